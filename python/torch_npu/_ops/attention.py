# SPDX-License-Identifier: Apache-2.0
"""Attention of training, of whole prompts and of single queries over kept keys."""
import torch
from torch_npu._errors import refused
from torch_npu._ops.checks import check, refuse
from torch_npu._ops.registry import declare, derivative, kernel, meta, workspace

ops = torch.ops.npu

# ---- Training ----

_NO_LIMIT = 2147483647
_COPIES = 8  # of each statistic

declare(
    "_attention(Tensor query, Tensor key, Tensor value, Tensor? pse, Tensor? drop_mask, Tensor? padding_mask, "
    "Tensor? atten_mask, int[]? prefix, float scale, float keep_prob, int pre_tokens, int next_tokens, int head_num, "
    "str input_layout, int inner_precise, int sparse_mode, int pse_type) -> (Tensor, Tensor, Tensor)"
)
declare(
    "_attention_packed(Tensor query, Tensor key, Tensor value, Tensor? pse, Tensor? drop_mask, Tensor? padding_mask, "
    "Tensor? atten_mask, int[]? prefix, int[]? actual_seq_qlen, int[]? actual_seq_kvlen, float scale, "
    "float keep_prob, int pre_tokens, int next_tokens, int head_num, str input_layout, int inner_precise, "
    "int sparse_mode) -> (Tensor, Tensor, Tensor)"
)
declare(
    "_attention_grad(Tensor query, Tensor key, Tensor value, Tensor dy, Tensor? pse, Tensor? drop_mask, "
    "Tensor? padding_mask, Tensor? atten_mask, Tensor softmax_max, Tensor softmax_sum, Tensor attention, "
    "int[]? prefix, float scale, float keep_prob, int pre_tokens, int next_tokens, int head_num, str input_layout, "
    "int inner_precise, int sparse_mode) -> (Tensor, Tensor, Tensor)"
)


declare(
    "_attention_packed_grad(Tensor query, Tensor key, Tensor value, Tensor dy, Tensor? pse, Tensor? drop_mask, "
    "Tensor? padding_mask, Tensor? atten_mask, Tensor softmax_max, Tensor softmax_sum, Tensor attention, "
    "int[]? prefix, int[]? actual_seq_qlen, int[]? actual_seq_kvlen, float scale, float keep_prob, int pre_tokens, "
    "int next_tokens, int head_num, str input_layout, int inner_precise, int sparse_mode) -> (Tensor, Tensor, Tensor)"
)


def _sizes(name, query, value, key, heads, layout):
    """Batch, queries, and the shape of the result."""
    dims = {"BSH": 3, "SBH": 3, "BNSD": 4, "BSND": 4, "TND": 3}.get(layout)
    check(dims is not None, name, f"input_layout is '{layout}', expected BSH, SBH, BNSD, BSND or TND")
    for argument, tensor in (("query", query), ("key", key), ("value", value)):
        check(tensor.dim() == dims, name, f"{argument} has shape {list(tensor.shape)}, which is not {layout}")
    check(heads > 0, name, f"head_num is {heads}, expected a value above 0")
    shape = list(query.shape)
    if layout in ("BSH", "SBH"):
        check(shape[2] % heads == 0, name, f"query has shape {shape}, whose last dim {heads} heads do not divide")
        depth = shape[2] // heads
        key_heads = key.size(2) // depth if depth else 0
        shape[2] = heads * (value.size(2) // key_heads) if key_heads else 0
        batch, queries = (shape[0], shape[1]) if layout == "BSH" else (shape[1], shape[0])
        return batch, queries, shape
    shape[-1] = value.size(-1)
    if layout == "TND":
        return None, shape[0], shape
    return shape[0], shape[2] if layout == "BNSD" else shape[1], shape


def _drop_bits(query, key, heads, layout, q_ends, kv_ends):
    """Weights that a mask of dropped ones counts, one bit each."""
    if layout == "TND":
        total, q_begin, kv_begin = 0, 0, 0
        for q_end, kv_end in zip(q_ends, kv_ends):
            total += (q_end - q_begin) * (kv_end - kv_begin)
            q_begin, kv_begin = q_end, kv_end
        return total * heads
    batch, queries, _ = _sizes("npu_fusion_attention", query, key, key, heads, layout)
    return batch * heads * queries * key.size({"BSH": 1, "SBH": 0, "BNSD": 2, "BSND": 1}[layout])


def _check_training(name, query, key, layout, q_ends, kv_ends, keep_prob, sink, pse_type=1, **rest):
    refuse(name, sink=sink, **rest)
    check(0 < keep_prob <= 1, name, f"keep_prob is {keep_prob}, expected a value above 0 and up to 1")
    check(pse_type in (0, 1), name, f"pse_type is {pse_type}; a shift that slopes give is not supported yet")
    if layout == "TND":
        check(q_ends and kv_ends, name, "the layout TND needs actual_seq_qlen and actual_seq_kvlen")
        check(
            len(q_ends) == len(kv_ends),
            name,
            f"actual_seq_qlen has {len(q_ends)} entries and actual_seq_kvlen {len(kv_ends)}",
        )


def _train(
    name, query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale, keep_prob, pre_tokens,
    next_tokens, inner_precise, prefix, actual_seq_qlen, actual_seq_kvlen, sparse_mode, sink, dropout_mask, pse_type=1,
):  # fmt: skip
    _check_training(name, query, key, input_layout, actual_seq_qlen, actual_seq_kvlen, keep_prob, sink, pse_type)
    dropped = query.new_empty([0])
    bits = 0
    if keep_prob < 1:
        bits = _drop_bits(query, key, head_num, input_layout, actual_seq_qlen, actual_seq_kvlen)
        dropped = dropout_mask if dropout_mask is not None else _make_drop_mask(query, bits, keep_prob)
    if input_layout == "TND":
        check(pse_type == 1, name, f"pse_type is {pse_type}, but the layout TND takes only 1")
        out, maximum, total = ops._attention_packed(
            query, key, value, pse, dropped if bits else None, padding_mask, atten_mask, prefix, actual_seq_qlen,
            actual_seq_kvlen, scale, keep_prob, pre_tokens, next_tokens, head_num, input_layout, inner_precise,
            sparse_mode,
        )  # fmt: skip
    else:
        out, maximum, total = ops._attention(
            query, key, value, pse, dropped if bits else None, padding_mask, atten_mask, prefix, scale, keep_prob,
            pre_tokens, next_tokens, head_num, input_layout, inner_precise, sparse_mode, pse_type,
        )  # fmt: skip
    return out, maximum, total, dropped, 0, 0, bits


def _make_drop_mask(query, bits, keep_prob):
    count = (bits + 7) // 8
    kept = torch.rand(count, 8, device=query.device) < keep_prob
    place = torch.zeros(count, dtype=torch.uint8, device=query.device)
    for bit in range(8):
        place += kept[:, bit].to(torch.uint8) * (1 << bit)
    return place


def _announce_training(query, key, value, heads, layout, keep_prob, q_ends, kv_ends, dropout_mask, name):
    batch, queries, shape = _sizes(name, query, value, key, heads, layout)
    statistics = [queries, heads, _COPIES] if layout == "TND" else [batch, heads, queries, _COPIES]
    maximum = query.new_empty(statistics, dtype=torch.float32)
    dropped, bits = query.new_empty([0]), 0
    if keep_prob < 1:
        bits = _drop_bits(query, key, heads, layout, q_ends, kv_ends)
        dropped = query.new_empty([(bits + 7) // 8], dtype=torch.uint8)
        if dropout_mask is not None:
            dropped = torch.empty_like(dropout_mask)
    return query.new_empty(shape), maximum, torch.empty_like(maximum), dropped, 0, 0, bits


@meta("_attention")
def _(query, key, value, pse, drop_mask, padding_mask, atten_mask, prefix, scale, keep_prob, pre_tokens, next_tokens,
      head_num, input_layout, inner_precise, sparse_mode, pse_type):  # fmt: skip
    name = "npu_fusion_attention"
    return _announce_training(query, key, value, head_num, input_layout, 1, None, None, None, name)[:3]


@meta("_attention_packed")
def _(query, key, value, pse, drop_mask, padding_mask, atten_mask, prefix, actual_seq_qlen, actual_seq_kvlen, scale,
      keep_prob, pre_tokens, next_tokens, head_num, input_layout, inner_precise, sparse_mode):  # fmt: skip
    name = "npu_fusion_attention"
    return _announce_training(query, key, value, head_num, input_layout, 1, None, None, None, name)[:3]


@meta("_attention_grad")
def _(query, key, value, dy, pse, drop_mask, padding_mask, atten_mask, softmax_max, softmax_sum, attention, prefix,
      scale, keep_prob, pre_tokens, next_tokens, head_num, input_layout, inner_precise, sparse_mode):  # fmt: skip
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


@meta("_attention_packed_grad")
def _(query, key, value, *rest):
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


@kernel("npu_fusion_attention")
def npu_fusion_attention(
    query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, keep_prob=1.0,
    pre_tockens=_NO_LIMIT, next_tockens=_NO_LIMIT, inner_precise=0, prefix=None, actual_seq_qlen=None,
    actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, softmax_layout="", sink=None,
    dropout_mask=None, seed=0, offset=0,
):  # fmt: skip
    return _train(
        "npu_fusion_attention", query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale,
        keep_prob, pre_tockens, next_tockens, inner_precise, prefix, actual_seq_qlen, actual_seq_kvlen, sparse_mode,
        sink, dropout_mask,
    )  # fmt: skip


@meta("npu_fusion_attention")
def _(
    query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, keep_prob=1.0,
    pre_tockens=_NO_LIMIT, next_tockens=_NO_LIMIT, inner_precise=0, prefix=None, actual_seq_qlen=None,
    actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, softmax_layout="", sink=None,
    dropout_mask=None, seed=0, offset=0,
):  # fmt: skip
    name = "npu_fusion_attention"
    _check_training(name, query, key, input_layout, actual_seq_qlen, actual_seq_kvlen, keep_prob, sink)
    return _announce_training(
        query, key, value, head_num, input_layout, keep_prob, actual_seq_qlen, actual_seq_kvlen, dropout_mask, name
    )


@kernel("npu_fusion_attention_v2")
def npu_fusion_attention_v2(
    query, key, value, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None, query_rope=None,
    key_rope=None, scale=1.0, keep_prob=1.0, pre_tokens=_NO_LIMIT, next_tokens=_NO_LIMIT, inner_precise=0, prefix=None,
    actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, pse_type=1,
    q_start_idx=None, kv_start_idx=None, softmax_layout="", sink=None, dropout_mask=None, seed=0, offset=0,
):  # fmt: skip
    return _train(
        "npu_fusion_attention_v2", query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale,
        keep_prob, pre_tokens, next_tokens, inner_precise, prefix, actual_seq_qlen, actual_seq_kvlen, sparse_mode,
        sink, dropout_mask, pse_type,
    )  # fmt: skip


@meta("npu_fusion_attention_v2")
def _(
    query, key, value, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None, query_rope=None,
    key_rope=None, scale=1.0, keep_prob=1.0, pre_tokens=_NO_LIMIT, next_tokens=_NO_LIMIT, inner_precise=0, prefix=None,
    actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, pse_type=1,
    q_start_idx=None, kv_start_idx=None, softmax_layout="", sink=None, dropout_mask=None, seed=0, offset=0,
):  # fmt: skip
    name = "npu_fusion_attention_v2"
    _check_training(
        name, query, key, input_layout, actual_seq_qlen, actual_seq_kvlen, keep_prob, sink, pse_type,
        query_rope=query_rope, key_rope=key_rope, q_start_idx=q_start_idx, kv_start_idx=kv_start_idx,
    )  # fmt: skip
    return _announce_training(
        query, key, value, head_num, input_layout, keep_prob, actual_seq_qlen, actual_seq_kvlen, dropout_mask, name
    )


def _train_grad(
    name, query, key, value, dy, head_num, layout, pse, padding_mask, atten_mask, maximum, total, dropped, attention,
    scale, keep_prob, pre_tokens, next_tokens, inner_precise, prefix, q_ends, kv_ends, sparse_mode,
):  # fmt: skip
    check(
        maximum is not None and total is not None and attention is not None,
        name,
        "softmax_max, softmax_sum and attention_in are what npu_fusion_attention returned, and are needed",
    )
    if pse is not None and pse.requires_grad:
        raise refused(NotImplementedError(f"{name}: the gradient of pse is not supported yet; detach it"))
    dropped = dropped if keep_prob < 1 else None
    rest = (scale, keep_prob, pre_tokens, next_tokens, head_num, layout, inner_precise, sparse_mode)
    saved = (query, key, value, dy, pse, dropped, padding_mask, atten_mask, maximum, total, attention, prefix)
    if layout == "TND":
        return ops._attention_packed_grad(*saved, q_ends, kv_ends, *rest)
    return ops._attention_grad(*saved, *rest)


def fusion_grad(
    name, query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None, softmax_max=None,
    softmax_sum=None, softmax_in=None, attention_in=None, scale_value=1.0, keep_prob=1.0, pre_tockens=_NO_LIMIT,
    next_tockens=_NO_LIMIT, inner_precise=0, seed=0, offset=0, numels=0, prefix=None, actual_seq_qlen=None,
    actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, softmax_layout="", sink=None,
):  # fmt: skip
    """npu_fusion_attention_grad and its third form."""
    refuse(name, sink=sink)
    dq, dk, dv = _train_grad(
        name, query, key, value, dy, head_num, input_layout, pse, padding_mask, atten_mask, softmax_max, softmax_sum,
        softmax_in, attention_in, scale_value, keep_prob, pre_tockens, next_tockens, inner_precise, prefix,
        actual_seq_qlen, actual_seq_kvlen, sparse_mode,
    )  # fmt: skip
    return dq, dk, dv, query.new_empty([0]), query.new_empty([0], dtype=torch.float32)


@kernel("npu_fusion_attention_grad")
def _(*args, **options):
    return fusion_grad("npu_fusion_attention_grad", *args, **options)


@kernel("npu_fusion_attention_grad_v2")
def _(
    query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None, softmax_max=None,
    softmax_sum=None, softmax_in=None, attention_in=None, query_rope=None, key_rope=None, scale_value=1.0,
    keep_prob=1.0, pre_tokens=_NO_LIMIT, next_tokens=_NO_LIMIT, inner_precise=0, seed=0, offset=0, numels=0,
    prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False,
    pse_type=1, q_start_idx=None, kv_start_idx=None, softmax_layout="", sink=None,
):  # fmt: skip
    name = "npu_fusion_attention_grad_v2"
    refuse(name, sink=sink, query_rope=query_rope, key_rope=key_rope)
    refuse(name, q_start_idx=q_start_idx, kv_start_idx=kv_start_idx)
    if pse is not None and pse_type == 0:  # behind the scale; what is below has it in front
        pse = pse.detach() / scale_value if not pse.requires_grad else pse
    dq, dk, dv = _train_grad(
        name, query, key, value, dy, head_num, input_layout, pse, padding_mask, atten_mask, softmax_max, softmax_sum,
        softmax_in, attention_in, scale_value, keep_prob, pre_tokens, next_tokens, inner_precise, prefix,
        actual_seq_qlen, actual_seq_kvlen, sparse_mode,
    )  # fmt: skip
    none = query.new_empty([0])
    return dq, dk, dv, none, none.clone(), none.clone(), query.new_empty([0], dtype=torch.float32)


def _announce_grad(empty):
    def announce(query, key, value, dy, head_num, input_layout, **rest):
        parts = [query.new_empty(tensor.shape) for tensor in (query, key, value)]
        parts += [query.new_empty([0]) for _ in range(empty)]
        return (*parts, query.new_empty([0], dtype=torch.float32))

    return announce


meta("npu_fusion_attention_grad")(_announce_grad(1))
meta("npu_fusion_attention_grad_v2")(_announce_grad(3))


_SAVED = "query key value grad head_num input_layout pse padding_mask atten_mask @1 @2 @3 @0 "
_REST = "prefix actual_seq_qlen actual_seq_kvlen sparse_mode gen_mask_parallel sync "
derivative(
    "npu_fusion_attention",
    "npu_fusion_attention_grad",
    _SAVED + "scale keep_prob pre_tockens next_tockens inner_precise seed offset @6 " + _REST + "softmax_layout sink",
    "query key value pse sink",
)
derivative(
    "npu_fusion_attention_v2",
    "npu_fusion_attention_grad_v2",
    _SAVED
    + "query_rope key_rope scale keep_prob pre_tokens next_tokens inner_precise seed offset @6 "
    + _REST
    + "pse_type q_start_idx kv_start_idx softmax_layout sink",
    "query key value pse query_rope key_rope sink",
)

# ---- Inference ----

workspace("_npu_fused_infer_attention_score_get_max_workspace", "npu_fused_infer_attention_score")
workspace("_npu_fused_infer_attention_score_v2_get_max_workspace", "npu_fused_infer_attention_score_v2")


@meta(
    "_npu_fused_infer_attention_score_get_max_workspace",
    "_npu_fused_infer_attention_score_v2_get_max_workspace",
)
def _(query, *rest, **options):
    # How much it is depends on the machine; nobody looks at the bytes of a workspace.
    return query.new_empty([0], dtype=torch.uint8)


# Where batch, heads, tokens and depth of a layout are; H holds heads and depth.
_LAYOUTS = ("BSH", "SBH", "BSND", "BNSD", "NSD", "TND", "NTD", "SH", "NBSD")


def _infer_shapes(name, query, value, heads, key_heads, layout, is_paged):
    """Shapes of the result, and of the logarithms of the sums."""
    layout_in, _, layout_out = layout.partition("_")
    layout_out = layout_out or layout_in
    check(heads > 0, name, f"the number of heads is {heads}, expected a value above 0")
    for each in (layout_in, layout_out):
        check(each in _LAYOUTS, name, f"input_layout is '{layout}', expected a layout such as BSH, BNSD or TND")
    check(
        query.dim() == len(layout_in), name, f"query has shape {list(query.shape)}, which is not {layout_in}"
    )
    sizes = dict(zip(layout_in, query.shape))
    key_heads = key_heads or heads
    # Of values: [blocks, tokens, heads * depth] or [blocks, heads, tokens, depth] in pages.
    if is_paged:
        depth = value.size(2) // key_heads if value.dim() == 3 else value.size(-1)
        if value.dim() == 5:
            depth = value.size(2) * value.size(4)
    else:
        depth = value.size(-1) // key_heads if "H" in layout_in else value.size(-1)
    sizes["N"], sizes["D"], sizes["H"] = heads, depth, heads * depth
    tokens = [sizes["T"]] if "T" in layout_in else [sizes.get("B", 1), sizes.get("S", 1)]
    lse = [sizes["T"], heads, 1] if "T" in layout_in else [tokens[0], heads, tokens[1], 1]
    return [sizes.get(letter, 1) for letter in layout_out], lse


def _announce_inference(name, query, value, heads, key_heads, layout, is_paged, with_lse, out):
    shape, lse = _infer_shapes(name, query, value, heads, key_heads, layout, is_paged)
    if out is not None:
        check(len(out) == 2, name, f"out has {len(out)} tensors, expected 2")
        return out[0], out[1]
    return query.new_empty(shape), query.new_empty(lse if with_lse else [0], dtype=torch.float32)


@meta("npu_fused_infer_attention_score", "npu_fused_infer_attention_score.out")
def _(
    query, key, value, *, block_table=None, num_heads=1, input_layout="BSH", num_key_value_heads=0,
    softmax_lse_flag=False, out=None, **rest
):  # fmt: skip
    return _announce_inference(
        "npu_fused_infer_attention_score", query, value, num_heads, num_key_value_heads, input_layout,
        block_table is not None, softmax_lse_flag, out,
    )  # fmt: skip


@meta("npu_fused_infer_attention_score_v2", "npu_fused_infer_attention_score_v2.out")
def _(
    query, key, value, *, block_table=None, num_query_heads=1, input_layout="BSH", num_key_value_heads=0,
    return_softmax_lse=False, out=None, **rest
):  # fmt: skip
    return _announce_inference(
        "npu_fused_infer_attention_score_v2", query, value, num_query_heads, num_key_value_heads, input_layout,
        block_table is not None, return_softmax_lse, out,
    )  # fmt: skip


@meta("npu_prompt_flash_attention", "npu_incre_flash_attention")
def _(query, key, value, *, num_heads=1, input_layout="BSH", num_key_value_heads=0, block_table=None, **rest):
    name = "npu_prompt_flash_attention"
    shape, _ = _infer_shapes(name, query, value, num_heads, num_key_value_heads, input_layout, block_table is not None)
    return query.new_empty(shape)
