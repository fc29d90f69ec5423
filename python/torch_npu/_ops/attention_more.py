# SPDX-License-Identifier: Apache-2.0
"""Attention of rank B: training with tensors for lengths, parts put together, windows, and caches that are written."""
import torch
from torch_npu._errors import refused
from torch_npu._ops.atb import _pages as _attention_pages
from torch_npu._ops.atb import _tokens
from torch_npu._ops.attention import (
    _NO_LIMIT, _announce_inference, _announce_training, _check_training, _train, fusion_grad,
)  # fmt: skip
from torch_npu._ops.cache import npu_gather_pa_kv_cache, write_pages
from torch_npu._ops.checks import check, check_dims, check_same, check_type, host_list, refuse
from torch_npu._ops.norm import turn
from torch_npu._ops.registry import composite, derivative, kernel, meta
from torch_npu._ops.sparse import (
    announce_mla_prolog_v2, npu_kv_rmsnorm_rope_cache, npu_mla_prolog_v2, npu_recurrent_gated_delta_rule,
)  # fmt: skip

ops = torch.ops.npu

# ---- Training: lengths, seeds and offsets are tensors ----


def _lengths(name, argument, tensor):
    return None if tensor is None else [int(number) for number in host_list(name, argument, tensor)]


def _train_v3(
    name, query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale, keep_prob, pre_tockens,
    next_tockens, inner_precise, prefix, actual_seq_qlen, actual_seq_kvlen, sparse_mode, sink,
):  # fmt: skip
    out, maximum, total, dropped, *_ = _train(
        name, query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale, keep_prob, pre_tockens,
        next_tockens, inner_precise, prefix, _lengths(name, "actual_seq_qlen", actual_seq_qlen),
        _lengths(name, "actual_seq_kvlen", actual_seq_kvlen), sparse_mode, sink, None,
    )  # fmt: skip
    # The mask, and not a seed, is what gradients need.
    seed = torch.zeros([1], dtype=torch.int64, device=query.device)
    return out, maximum, total, dropped, seed, torch.zeros_like(seed)


@kernel("npu_fusion_attention_v3")
def npu_fusion_attention_v3(
    query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, keep_prob=1.0,
    pre_tockens=_NO_LIMIT, next_tockens=_NO_LIMIT, inner_precise=0, prefix=None, actual_seq_qlen=None,
    actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, softmax_layout="", sink=None,
):  # fmt: skip
    return _train_v3(
        "npu_fusion_attention_v3", query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale,
        keep_prob, pre_tockens, next_tockens, inner_precise, prefix, actual_seq_qlen, actual_seq_kvlen, sparse_mode,
        sink,
    )  # fmt: skip


def _copy_all(name, out, results):
    check(len(out) == len(results), name, f"out has {len(out)} tensors, expected {len(results)}")
    for number, (tensor, result) in enumerate(zip(out, results)):
        if result.numel() == 0 and tensor.numel() != 0:
            continue  # nothing that anybody may rely on
        check(
            tensor.shape == result.shape and tensor.dtype == result.dtype,
            name,
            f"tensor {number} of out has shape {list(tensor.shape)} and type {tensor.dtype}, expected "
            f"{list(result.shape)} and {result.dtype}",
        )
        tensor.copy_(result)
    return tuple(out)


@kernel("npu_fusion_attention_v3.out")
def _(*args, workspace=None, out, **options):
    if len(args) > 21:  # workspace is no keyword
        args = args[:21]
    return _copy_all("npu_fusion_attention_v3", out, npu_fusion_attention_v3(*args, **options))


@meta("npu_fusion_attention_v3.out")
def _(*args, out, **options):
    check(len(out) == 6, "npu_fusion_attention_v3", f"out has {len(out)} tensors, expected 6")
    return tuple(out)


@meta("npu_fusion_attention_v3")
def _(
    query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, keep_prob=1.0,
    pre_tockens=_NO_LIMIT, next_tockens=_NO_LIMIT, inner_precise=0, prefix=None, actual_seq_qlen=None,
    actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, softmax_layout="", sink=None,
):  # fmt: skip
    name = "npu_fusion_attention_v3"
    if input_layout == "TND":
        check(
            actual_seq_qlen is not None and actual_seq_kvlen is not None,
            name,
            "the layout TND needs actual_seq_qlen and actual_seq_kvlen",
        )
        check(keep_prob == 1, name, "dropout in the layout TND depends on the lengths and cannot be traced")
    _check_training(name, query, key, "BSH", None, None, keep_prob, sink)
    out, maximum, total, dropped, *_ = _announce_training(
        query, key, value, head_num, input_layout, keep_prob, None, None, None, name
    )
    seed = torch.zeros([1], dtype=torch.int64, device=query.device)
    return out, maximum, total, dropped, seed, torch.zeros_like(seed)


@kernel("npu_fusion_attention_grad_v3")
def npu_fusion_attention_grad_v3(*args, actual_seq_qlen=None, actual_seq_kvlen=None, **options):
    name = "npu_fusion_attention_grad_v3"
    q_ends = _lengths(name, "actual_seq_qlen", actual_seq_qlen)
    kv_ends = _lengths(name, "actual_seq_kvlen", actual_seq_kvlen)
    return fusion_grad(name, *args, actual_seq_qlen=q_ends, actual_seq_kvlen=kv_ends, **options)


@kernel("npu_fusion_attention_grad_v3.out")
def _(*args, workspace=None, out, **options):
    return _copy_all("npu_fusion_attention_grad_v3", out, npu_fusion_attention_grad_v3(*args, **options))


@meta("npu_fusion_attention_grad_v3.out")
def _(*args, out, **options):
    check(len(out) == 5, "npu_fusion_attention_grad_v3", f"out has {len(out)} tensors, expected 5")
    return tuple(out)


@meta("npu_fusion_attention_grad_v3")
def _(query, key, value, *rest, **options):
    parts = [tensor.new_empty(tensor.shape) for tensor in (query, key, value)]
    return (*parts, query.new_empty([0]), query.new_empty([0], dtype=torch.float32))


derivative(
    "npu_fusion_attention_v3",
    "npu_fusion_attention_grad_v3",
    "query key value grad head_num input_layout pse padding_mask atten_mask @1 @2 @3 @0 scale keep_prob pre_tockens "
    "next_tockens inner_precise @4 @5 prefix actual_seq_qlen actual_seq_kvlen sparse_mode gen_mask_parallel sync "
    "softmax_layout sink",
    "query key value pse sink",
)


@composite("_npu_fusion_attention_v3_get_max_workspace", "_npu_fusion_attention_grad_v3_get_max_workspace")
def _(query, *rest, **options):
    # The operator takes what it needs by itself.
    return query.new_empty([0], dtype=torch.uint8)


@composite("_npu_fusion_attention_v3_infer_output")
def _(query, key, value, head_num, input_layout):
    name = "npu_fusion_attention_v3"
    return _announce_training(query, key, value, head_num, input_layout, 1, None, None, None, name)[:3]


@composite("_npu_fusion_attention_grad_v3_infer_output")
def _(query, key, value, pse=None, sink=None):
    return (
        *(tensor.new_empty(tensor.shape) for tensor in (query, key, value)),
        query.new_empty([0] if pse is None else pse.shape),
        query.new_empty([0] if sink is None else sink.shape, dtype=torch.float32),
    )


def _infer_output(name, query, value, heads, key_heads, layout, is_paged, with_lse, is_quantized, out_type):
    out, lse = _announce_inference(name, query, value, heads, key_heads, layout, is_paged, with_lse, None)
    return out.to(torch.int8) if is_quantized else out if out_type is None else out.to(out_type), lse


@composite("_npu_fused_infer_attention_score_infer_output")
def _(
    query, value, *, input_layout="BSH", quant_scale2=None, block_table=None, num_heads=1, num_key_value_heads=0,
    softmax_lse_flag=False, query_rope=None,
):  # fmt: skip
    return _infer_output(
        "npu_fused_infer_attention_score", query, value, num_heads, num_key_value_heads, input_layout,
        block_table is not None, softmax_lse_flag, quant_scale2 is not None,
        torch.float16 if query.dtype == torch.int8 else None,
    )  # fmt: skip


@composite("_npu_fused_infer_attention_score_v2_infer_output")
def _(
    query, value, *, query_dtype=None, value_dtype=None, input_layout="BSH", quant_scale_out=None, block_table=None,
    num_query_heads=1, num_key_value_heads=0, return_softmax_lse=False, query_rope=None, out_dtype=None,
):  # fmt: skip
    name = "npu_fused_infer_attention_score_v2"
    refuse(name, query_dtype=query_dtype, value_dtype=value_dtype, out_dtype=out_dtype)
    out_type = None
    if query.dtype == torch.int8:
        out_type = torch.bfloat16 if query_rope is None else query_rope.dtype
    return _infer_output(
        name, query, value, num_query_heads, num_key_value_heads, input_layout, block_table is not None,
        return_softmax_lse, quant_scale_out is not None, out_type,
    )  # fmt: skip


# ---- Scores with an added mask; heads in one row ----


def _no_transposes(name, **given):
    for argument, value in given.items():
        if value:
            raise refused(NotImplementedError(f"{name}: {argument} is True, which is not supported yet; transpose the tensor"))


def _check_scores(name, query, key, value, keep_prob):
    for argument, tensor in (("query_layer", query), ("key_layer", key), ("value_layer", value)):
        check_dims(name, argument, tensor, 4)
    check(query.shape == key.shape == value.shape, name, f"query_layer has shape {list(query.shape)}, key_layer "
          f"{list(key.shape)} and value_layer {list(value.shape)}, expected the same")  # fmt: skip
    check(0 < keep_prob <= 1, name, f"keep_prob is {keep_prob}, expected a value above 0 and up to 1")


@composite("npu_fused_attention_score_fwd")
def _(
    query_layer, key_layer, value_layer, attention_mask, scale, keep_prob, query_transpose=False, key_transpose=False,
    bmm_score_transpose_a=False, bmm_score_transpose_b=False, value_transpose=False, dx_transpose=False,
):  # fmt: skip
    name = "npu_fused_attention_score"
    _no_transposes(
        name, query_transpose=query_transpose, key_transpose=key_transpose, value_transpose=value_transpose,
        bmm_score_transpose_a=bmm_score_transpose_a, bmm_score_transpose_b=bmm_score_transpose_b,
        dx_transpose=dx_transpose,
    )  # fmt: skip
    _check_scores(name, query_layer, key_layer, value_layer, keep_prob)
    batch, heads, tokens, size = query_layer.shape
    scores = torch.matmul(query_layer, key_layer.transpose(-1, -2)).float() * scale + attention_mask.float()
    weights = scores.softmax(-1).to(query_layer.dtype)
    mask = torch.ones(weights.numel(), dtype=torch.uint8, device=weights.device)
    kept = weights
    if keep_prob < 1:
        mask = (torch.rand(weights.numel(), device=weights.device) < keep_prob).to(torch.uint8)
        kept = weights * mask.view(weights.shape).to(weights.dtype) / keep_prob
    rows = torch.matmul(kept, value_layer).transpose(1, 2).reshape(batch * tokens, heads * size)
    return rows, weights, mask


@composite("npu_fused_attention_score_grad", "npu_fused_attention_score_backward")
def _(
    grad_output, softmax_output, query_layer, key_layer, value_layer, mask, scale, keep_prob, query_transpose=False,
    key_transpose=False, value_transpose=False, dx_transpose=False,
):  # fmt: skip
    name = "npu_fused_attention_score_grad"
    _no_transposes(
        name, query_transpose=query_transpose, key_transpose=key_transpose, value_transpose=value_transpose,
        dx_transpose=dx_transpose,
    )  # fmt: skip
    _check_scores(name, query_layer, key_layer, value_layer, keep_prob)
    batch, heads, tokens, size = query_layer.shape
    grad = grad_output.reshape(batch, tokens, heads, size).transpose(1, 2).float()
    weights = softmax_output.float()
    share = mask.view(weights.shape).float() / keep_prob
    of_value = torch.matmul((weights * share).transpose(-1, -2), grad)
    of_weights = torch.matmul(grad, value_layer.float().transpose(-1, -2)) * share
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdim=True)) * scale
    return (
        torch.matmul(of_scores, key_layer.float()).to(query_layer.dtype),
        torch.matmul(of_scores.transpose(-1, -2), query_layer.float()).to(key_layer.dtype),
        of_value.to(value_layer.dtype),
    )


derivative(
    "npu_fused_attention_score_fwd",
    "npu_fused_attention_score_grad",
    "grad @1 query_layer key_layer value_layer @2 scale keep_prob query_transpose key_transpose value_transpose "
    "dx_transpose",
    "query_layer key_layer value_layer",
)


@composite("npu_fused_attention_score", differentiable=True)
def _(query_layer, key_layer, value_layer, attention_mask, scale, keep_prob, *transposes, **more):
    return ops.npu_fused_attention_score_fwd(
        query_layer, key_layer, value_layer, attention_mask, scale, keep_prob, *transposes, **more
    )[0]


# ---- Parts put together, windows ----


@composite("npu_ring_attention_update")
def _(
    prev_attn_out, prev_softmax_max, prev_softmax_sum, cur_attn_out, cur_softmax_max, cur_softmax_sum, *,
    actual_seq_qlen=None, input_layout="SBH", input_softmax_layout="",
):  # fmt: skip
    name = "npu_ring_attention_update"
    check(input_layout in ("SBH", "TND"), name, f"input_layout is '{input_layout}', expected SBH or TND")
    if input_layout == "TND" and input_softmax_layout not in ("TND",):
        raise refused(NotImplementedError(f"{name}: with input_layout TND, input_softmax_layout takes only TND yet"))
    check_dims(name, "prev_attn_out", prev_attn_out, 3)
    check_same(name, prev_attn_out=prev_attn_out, cur_attn_out=cur_attn_out)
    check_same(
        name, prev_softmax_max=prev_softmax_max, prev_softmax_sum=prev_softmax_sum, cur_softmax_max=cur_softmax_max,
        cur_softmax_sum=cur_softmax_sum,
    )  # fmt: skip
    maximum = torch.maximum(prev_softmax_max, cur_softmax_max)
    before = prev_softmax_sum * (prev_softmax_max - maximum).exp()
    now = cur_softmax_sum * (cur_softmax_max - maximum).exp()
    total = before + now

    def spread(share):
        share = share[..., 0]
        if input_layout == "TND":
            return share.unsqueeze(-1)  # [tokens, heads, 1]
        size = prev_attn_out.size(2) // share.size(1)
        return share.permute(2, 0, 1).repeat_interleave(size, 2)  # [tokens, batch, heads * size]

    out = prev_attn_out.float() * spread(before / total) + cur_attn_out.float() * spread(now / total)
    return out.to(prev_attn_out.dtype), maximum, total


def _windows(name, input, weight, block, stride, ends):
    """Begins and ends of the sequences that are long enough for a window."""
    check_dims(name, "input", input, 3)
    check(block > 0 and stride > 0, name, f"compress_block_size is {block} and compress_stride {stride}")
    check(
        list(weight.shape) == [block, input.size(1)],
        name,
        f"weight has shape {list(weight.shape)}, expected [{block}, {input.size(1)}]",
    )
    ends = [input.size(0)] if ends is None else list(ends)
    check(ends == sorted(ends) and ends and 0 <= ends[0] and ends[-1] <= input.size(0), name, "actual_seq_len is where "
          f"each sequence ends, but {ends} for {input.size(0)} tokens")  # fmt: skip
    return [(begin, end) for begin, end in zip([0, *ends[:-1]], ends) if end - begin >= block]


@composite("npu_nsa_compress")
def _(input, weight, compress_block_size, compress_stride, *, actual_seq_len=None):
    name = "npu_nsa_compress"
    block, stride = compress_block_size, compress_stride
    parts = [
        (input[begin:end].float().unfold(0, block, stride) * weight.float().t().unsqueeze(1)).sum(-1)
        for begin, end in _windows(name, input, weight, block, stride, actual_seq_len)
    ]
    if not parts:
        return input.new_empty([0, *input.shape[1:]])
    return torch.cat(parts).to(input.dtype)


@composite("npu_nsa_compress_grad")
def _(grad, input, weight, compress_block_size, compress_stride, *, actual_seq_len=None):
    name = "npu_nsa_compress_grad"
    block, stride = compress_block_size, compress_stride
    of_input = torch.zeros(input.shape, device=input.device)
    of_weight = torch.zeros(weight.shape, device=input.device)
    first = 0
    for begin, end in _windows(name, input, weight, block, stride, actual_seq_len):
        count = (end - begin - block) // stride + 1
        part = grad[first : first + count].float()
        first += count
        windows = input[begin:end].float().unfold(0, block, stride)  # [count, heads, size, block]
        of_weight = of_weight + (windows * part.unsqueeze(-1)).sum((0, 2)).t()
        place = (
            torch.arange(count, device=input.device).unsqueeze(1) * stride
            + torch.arange(block, device=input.device)
            + begin
        )
        spread = part.unsqueeze(1) * weight.float().unsqueeze(-1)  # [count, block, heads, size]
        of_input = of_input.index_add(0, place.reshape(-1), spread.flatten(0, 1))
    return of_input.to(input.dtype), of_weight.to(weight.dtype)


derivative(
    "npu_nsa_compress",
    "npu_nsa_compress_grad",
    "grad input weight compress_block_size compress_stride actual_seq_len",
    "input weight",
)

# ---- Caches ----


@composite("npu_gather_pa_kv_cache_functional")
def _(key_cache, value_cache, block_tables, seq_lens, key, value, **options):
    key, value = key.clone(), value.clone()
    npu_gather_pa_kv_cache(key_cache, value_cache, block_tables, seq_lens, key, value, **options)
    return key, value


@composite("npu_recurrent_gated_delta_rule_functional")
def _(query, key, value, state, **options):
    state = state.clone()
    return npu_recurrent_gated_delta_rule(query, key, value, state, **options), state


@composite("npu_kv_rmsnorm_rope_cache_v2")
def npu_kv_rmsnorm_rope_cache_v2(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, *, k_cache_dtype=None, ckv_cache_dtype=None, **options
):
    refuse("npu_kv_rmsnorm_rope_cache_v2", k_cache_dtype=k_cache_dtype, ckv_cache_dtype=ckv_cache_dtype)
    return npu_kv_rmsnorm_rope_cache(kv, gamma, cos, sin, index, k_cache, ckv_cache, **options)[2:]


@composite("npu_kv_rmsnorm_rope_cache_v2_functional")
def _(kv, gamma, cos, sin, index, k_cache, ckv_cache, **options):
    k_cache, ckv_cache = k_cache.clone(), ckv_cache.clone()
    results = npu_kv_rmsnorm_rope_cache_v2(kv, gamma, cos, sin, index, k_cache, ckv_cache, **options)
    return (*results, k_cache, ckv_cache)


kernel("npu_mla_prolog")(lambda *args, **options: npu_mla_prolog_v2(*args, **options)[:4])
meta("npu_mla_prolog")(lambda *args, **options: announce_mla_prolog_v2(*args, **options)[:4])


@composite("npu_mla_prolog_v3_functional")
def _(
    token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin, rope_cos,
    kv_cache, kr_cache, *, token_x_dtype=None, weight_dq_dtype=None, weight_uq_qr_dtype=None,
    weight_dkv_kr_dtype=None, kv_cache_dtype=None, **options,
):  # fmt: skip
    refuse(
        "npu_mla_prolog_v3_functional", token_x_dtype=token_x_dtype, weight_dq_dtype=weight_dq_dtype,
        weight_uq_qr_dtype=weight_uq_qr_dtype, weight_dkv_kr_dtype=weight_dkv_kr_dtype, kv_cache_dtype=kv_cache_dtype,
    )  # fmt: skip
    kv_cache, kr_cache = kv_cache.clone(), kr_cache.clone()
    results = ops.npu_mla_prolog_v3(
        token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin,
        rope_cos, kv_cache, kr_cache, **options,
    )  # fmt: skip
    return (*results, kv_cache, kr_cache)


@composite("npu_qkv_rms_norm_rope_cache")
def npu_qkv_rms_norm_rope_cache(
    qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, qkv_size, head_nums, *, k_scale=None, v_scale=None,
    k_offset=None, v_offset=None, epsilon=1e-6, cache_mode="PA_NZ", is_output_qkv=False,
):  # fmt: skip
    name = "npu_qkv_rms_norm_rope_cache"
    check(cache_mode == "PA_NZ", name, f"cache_mode is '{cache_mode}', expected PA_NZ")
    batch, tokens, heads, size = qkv_size
    check(
        sum(head_nums) == heads and list(qkv.shape) == [batch * tokens, heads * size],
        name,
        f"qkv has shape {list(qkv.shape)}, qkv_size is {list(qkv_size)} and head_nums {list(head_nums)}",
    )
    q, k, v = qkv.view(batch * tokens, heads, size).split(list(head_nums), 1)
    angles = [each.reshape(batch * tokens, 1, size) for each in (cos, sin)]

    def normed(x, gamma):
        return turn(_wide_rms(x, gamma, epsilon), *angles, "half")

    def store(argument, cache, rows, scale, offset):
        if scale is not None:
            rows = rows / scale.float()
            rows = rows if offset is None else rows + offset.float()
            check_type(name, argument, cache, torch.int8)
            rows = rows.round().clamp(-128, 127)
        check_dims(name, argument, cache, 4)
        write_pages(name, argument, cache.transpose(1, 2), rows.to(cache.dtype).contiguous(), index)

    turned_q, turned_k = normed(q, q_gamma), normed(k, k_gamma)
    q_out.copy_(turned_q.reshape(q_out.shape))
    store("k_cache", k_cache, turned_k, k_scale, k_offset)
    store("v_cache", v_cache, v.float(), v_scale, v_offset)
    if not is_output_qkv:
        none = qkv.new_empty([0])
        return none, none.clone(), none.clone()
    return tuple(each.reshape(batch * tokens, -1).to(qkv.dtype, copy=True) for each in (turned_q, turned_k, v))


def _wide_rms(x, gamma, epsilon):
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon) * gamma.float()


@composite("npu_qkv_rms_norm_rope_cache_functional")
def _(qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, qkv_size, head_nums, **options):
    q_out, k_cache, v_cache = q_out.clone(), k_cache.clone(), v_cache.clone()
    results = npu_qkv_rms_norm_rope_cache(
        qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, qkv_size, head_nums, **options
    )
    return (*results, q_out, k_cache, v_cache)


# ---- Workspaces ----


@kernel("atb._npu_paged_attention_v2_get_workspace")
def _(
    query, key_cache, block_table, context_lens, *, value_cache=None, mask=None, num_kv_heads=0, num_heads=0,
    scale_value=1.0, mask_type=0, out,
):  # fmt: skip
    name = "_npu_paged_attention_v2_get_workspace"
    refuse(name, mask=mask)
    check(num_heads > 0 and value_cache is not None, name, "num_heads and value_cache are needed")
    key_heads = num_kv_heads or num_heads
    return ops._npu_fused_infer_attention_score_get_max_workspace(
        _tokens(name, "query", query, num_heads).unsqueeze(1),
        _attention_pages(name, "key_cache", key_cache, key_heads),
        _attention_pages(name, "value_cache", value_cache, key_heads), block_table=block_table,
        block_size=key_cache.size(1), num_heads=num_heads, num_key_value_heads=key_heads, scale=scale_value,
        input_layout="BSND",
    )  # fmt: skip


@meta("atb._npu_paged_attention_v2_get_workspace")
def _(query, *rest, **options):
    return query.new_empty([0], dtype=torch.uint8)
