# SPDX-License-Identifier: Apache-2.0
"""Attention and embeddings of ``torch.ops.atb``: lengths are on the host, results are written to ``out``."""
import torch
from torch_npu._errors import refused
from torch_npu._ops.checks import check, check_dims, check_type, host_list, refuse
from torch_npu._ops.norm import rope_of_table, rotate_some
from torch_npu._ops.registry import kernel, meta

ops = torch.ops.npu

# mask_type of the published package.
_NONE, _NORM, _ALIBI, _COMPRESSED = 0, 1, 2, 3
_HIDDEN_BF16 = -10000.0  # what a mask of ones stands for in bfloat16


def _tokens(name, argument, tensor, heads):
    """[tokens, heads, size], also of [tokens, heads * size]."""
    check_dims(name, argument, tensor, 2, 3)
    if tensor.dim() == 3:
        check(tensor.size(1) == heads, name, f"{argument} has shape {list(tensor.shape)}, expected {heads} heads")
        return tensor
    check(heads > 0 and tensor.size(1) % heads == 0, name, f"{argument} has shape {list(tensor.shape)}")
    return tensor.view(tensor.size(0), heads, -1)


def _pages(name, argument, cache, heads):
    """[blocks, heads, block size, size] of [blocks, block size, heads, size], without a copy."""
    check_dims(name, argument, cache, 4)
    check(
        cache.size(2) == heads,
        name,
        f"{argument} has shape {list(cache.shape)}, expected [blocks, block size, {heads}, size]",
    )
    return cache.transpose(1, 2)


def _shift(mask, dtype):
    """What is added to the scores: -inf hides, and so does 1 in bfloat16 and in integers."""
    shift = mask.to(dtype)
    if not mask.is_floating_point():
        shift = torch.zeros_like(mask, dtype=dtype).masked_fill(mask != 0, float("-inf"))
    elif mask.dtype == torch.bfloat16:
        shift = shift * _HIDDEN_BF16
    while shift.dim() < 4:
        shift = shift.unsqueeze(0)
    return shift


def _attend(query, key, value, out, workspace=None, **options):
    """One launch, which writes ``out``."""
    lse = out.new_empty([0], dtype=torch.float32)
    ops.npu_fused_infer_attention_score.out(query, key, value, workspace=workspace, out=[out, lse], **options)


def _ends(lengths):
    total, ends = 0, []
    for length in lengths:
        total += length
        ends.append(total)
    return ends


def _packed(
    name, query, key, value, seq_len, scale_value, num_heads, num_kv_heads, out, mask=None, causal=False, shift=None
):
    """Sequences end to end, each of which looks at itself."""
    num_kv_heads = num_kv_heads or num_heads
    lengths = host_list(name, "seq_len", seq_len)
    query, out = _tokens(name, "query", query, num_heads), _tokens(name, "out", out, num_heads)
    key, value = _tokens(name, "key", key, num_kv_heads), _tokens(name, "value", value, num_kv_heads)
    ends = _ends(lengths)
    check(
        all(length >= 0 for length in lengths) and (not ends or ends[-1] <= query.size(0)),
        name,
        f"seq_len is {lengths}, but there are {query.size(0)} tokens",
    )
    options = {
        "num_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "scale": scale_value,
        "sparse_mode": 3 if causal else 0,
    }
    if not ends:
        return
    if mask is not None and mask.dim() > 2 and mask.size(0) == len(lengths) and len(lengths) > 1:
        # A mask for each sequence.
        for index, (length, end) in enumerate(zip(lengths, ends)):
            if length == 0:
                continue
            rows = slice(end - length, end)
            part = mask[index][..., :length, :length]
            _attend(
                query[rows].unsqueeze(0), key[rows].unsqueeze(0), value[rows].unsqueeze(0), out[rows].unsqueeze(0),
                pse_shift=_shift(part, query.dtype), input_layout="BSND", **options,
            )  # fmt: skip
        return
    if mask is not None:
        longest = max(lengths)
        check(
            mask.size(-1) >= longest and mask.size(-2) >= longest,
            name,
            f"mask has shape {list(mask.shape)}, which is too small for {longest} tokens",
        )
        options["pse_shift"] = _shift(mask, query.dtype)
    if causal:
        options["atten_mask"] = _compressed(query)
    _attend(
        query, key, value, out, actual_seq_lengths=ends, actual_seq_lengths_kv=ends, input_layout="TND", **options
    )


def _compressed(query):
    """The mask that causal modes want and do not read: all its rows are one."""
    return torch.zeros([1, 1], dtype=torch.bool, device=query.device).expand(2048, 2048)


def _masked(name, query, key, value, mask, seq_len, scale_value, num_heads, num_kv_heads, out, mask_type):
    lengths = host_list(name, "seq_len", seq_len)
    longest = max(lengths, default=0)
    causal = mask_type == _COMPRESSED or (mask is not None and mask.size(-1) < longest)
    if mask_type == _NONE or mask is None:
        mask, causal = None, False
    _packed(
        name, query, key, value, lengths, scale_value, num_heads, num_kv_heads, out, None if causal else mask, causal
    )


@kernel("atb._npu_flash_attention")
def _npu_flash_attention(query, key, value, mask, seq_len, scale_value, num_heads, num_kv_heads, out):
    name = "_npu_flash_attention"
    _masked(name, query, key, value, mask, seq_len, scale_value, num_heads, num_kv_heads, out, _NORM)


@kernel("atb._npu_flash_attention_v3")
def _npu_flash_attention_v3(
    query, key, value, mask, seq_len, scale_value, num_heads, num_kv_heads, *, mask_type=3, out
):
    name = "_npu_flash_attention_v3"
    mask_type = 3 if mask_type is None else mask_type
    check(mask_type in (_NONE, _NORM, _ALIBI, _COMPRESSED), name, f"mask_type is {mask_type}, expected 0, 1, 2 or 3")
    _masked(name, query, key, value, mask, seq_len, scale_value, num_heads, num_kv_heads, out, mask_type)


@kernel("atb._npu_flash_attention_v2.out")
def _npu_flash_attention_v2(
    query, key, value, seq_len, *, mask=None, slopes=None, kernel_type=0, mask_type=2, scale_value=1.0, num_heads=0,
    num_kv_heads=0, out,
):  # fmt: skip
    name = "_npu_flash_attention_v2"
    known = mask_type in (_NONE, _NORM, _ALIBI)
    check(known, name, f"mask_type is {mask_type}; compressed slopes are not supported yet")
    check(slopes is None, name, "slopes are not supported yet; pass the whole mask")
    check(num_heads > 0, name, "num_heads is needed")
    _masked(name, query, key, value, mask, list(seq_len), scale_value, num_heads, num_kv_heads, out, mask_type)
    return out


@kernel("atb._npu_flash_attention_unpad")
def _npu_flash_attention_unpad(query, key, value, seq_len, scale_value, num_heads, num_kv_heads, out):
    name = "_npu_flash_attention_unpad"
    _packed(name, query, key, value, seq_len, scale_value, num_heads, num_kv_heads, out)


@kernel("atb._npu_flash_attention_unpad_v2")
def _npu_flash_attention_unpad_v2(
    query, key, value, seq_len, scale_value, num_heads, num_kv_heads, *, kernel_type=0, out
):
    name = "_npu_flash_attention_unpad_v2"
    _packed(name, query, key, value, seq_len, scale_value, num_heads, num_kv_heads, out)


def _paged(name, query, key_cache, value_cache, num_kv_heads, num_heads, scale_value, table, lengths, out, workspace):
    """A query for each sequence."""
    query, out = _tokens(name, "query", query, num_heads), _tokens(name, "out", out, num_heads)
    check_type(name, "block_table", table, torch.int32)
    check(
        len(lengths) == query.size(0) == table.size(0),
        name,
        f"there are {query.size(0)} queries, {len(lengths)} context_lens and {table.size(0)} rows of block_table",
    )
    _attend(
        query.unsqueeze(1), _pages(name, "key_cache", key_cache, num_kv_heads),
        _pages(name, "value_cache", value_cache, num_kv_heads), out.unsqueeze(1), workspace,
        actual_seq_lengths_kv=lengths, block_table=table, block_size=key_cache.size(1), num_heads=num_heads,
        num_key_value_heads=num_kv_heads, scale=scale_value, input_layout="BSND",
    )  # fmt: skip


@kernel("atb._npu_paged_attention")
def _npu_paged_attention(
    query, key_cache, value_cache, num_kv_heads, num_heads, scale_value, block_table, context_lens, out, *,
    workspace=None,
):  # fmt: skip
    name = "_npu_paged_attention"
    lengths = host_list(name, "context_lens", context_lens)
    _paged(
        name, query, key_cache, value_cache, num_kv_heads, num_heads, scale_value, block_table, lengths, out, workspace
    )


@kernel("atb._npu_paged_attention_get_workspace")
def _npu_paged_attention_get_workspace(
    query, key_cache, value_cache, num_kv_heads, num_heads, scale_value, block_table, context_lens, out
):
    name = "_npu_paged_attention_get_workspace"
    return ops._npu_fused_infer_attention_score_get_max_workspace(
        _tokens(name, "query", query, num_heads).unsqueeze(1), _pages(name, "key_cache", key_cache, num_kv_heads),
        _pages(name, "value_cache", value_cache, num_kv_heads), block_table=block_table,
        block_size=key_cache.size(1), num_heads=num_heads, num_key_value_heads=num_kv_heads, scale=scale_value,
        input_layout="BSND",
    )  # fmt: skip


@kernel("atb._npu_paged_attention_mla")
def _npu_paged_attention_mla(
    query, key_cache, num_kv_heads, num_heads, scale_value, block_table, context_lens, mla_vheadsize, out
):
    name = "_npu_paged_attention_mla"
    lengths = host_list(name, "context_lens", context_lens)
    check(
        0 < mla_vheadsize <= key_cache.size(-1),
        name,
        f"mla_vheadsize is {mla_vheadsize}, expected a value from 1 to {key_cache.size(-1)}",
    )
    values = key_cache[..., :mla_vheadsize]  # the keys without their rotated part
    _paged(name, query, key_cache, values, num_kv_heads, num_heads, scale_value, block_table, lengths, out, None)


# ---- Latent attention: keys and values are one, and a part of the keys is apart ----


def _latent_options(name, q_nope, q_rope, ctkv, k_rope, block_tables, q_headnum, qk_scale, kv_headnum, options):
    """What the fused operator is called with, without lengths."""
    refuse(
        name, mask=options.get("mask"), qseqlen=options.get("qseqlen") or None, qk_descale=options.get("qk_descale"),
        pv_descale=options.get("pv_descale"),
    )  # fmt: skip
    mode = options.get("cache_mode")
    if mode not in (None, "krope_ctkv"):
        raise refused(NotImplementedError(f"{name}: cache_mode is '{mode}'; only krope_ctkv is supported yet"))
    for argument in ("mask_type", "calc_type"):
        given = options.get(argument)
        check(given in (None, "undefined", "calc_type_undefined"), name, f"{argument} is '{given}'")
    key = _pages(name, "ctkv", ctkv, kv_headnum)
    args = (_tokens(name, "q_nope", q_nope, q_headnum).unsqueeze(1), key, key)
    return args, {
        "query_rope": _tokens(name, "q_rope", q_rope, q_headnum).unsqueeze(1),
        "key_rope": _pages(name, "k_rope", k_rope, kv_headnum),
        "block_table": block_tables,
        "block_size": ctkv.size(1),
        "num_heads": q_headnum,
        "num_key_value_heads": kv_headnum,
        "scale": qk_scale,
        "input_layout": "BSND",
    }


def _latent(
    q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, output, lse, options
):
    name = "npu_multi_head_latent_attention"
    lengths = host_list(name, "context_lens", context_lens)
    check(
        len(lengths) == q_nope.size(0) == block_tables.size(0),
        name,
        f"there are {q_nope.size(0)} queries, {len(lengths)} context_lens and {block_tables.size(0)} rows of "
        "block_tables",
    )
    args, given = _latent_options(
        name, q_nope, q_rope, ctkv, k_rope, block_tables, q_headnum, qk_scale, kv_headnum, options
    )
    sums = None if lse is None else q_nope.new_empty([q_nope.size(0), q_headnum, 1, 1], dtype=torch.float32)
    ops.npu_fused_infer_attention_score.out(
        *args, actual_seq_lengths_kv=list(lengths), workspace=options.get("workspace"),
        softmax_lse_flag=lse is not None,
        out=[output.view(args[0].shape), q_nope.new_empty([0], dtype=torch.float32) if sums is None else sums], **given,
    )  # fmt: skip
    if lse is not None:
        lse.copy_(sums.view(lse.shape))
    return output


@kernel("atb.npu_multi_head_latent_attention.out")
def _(q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, *, output, **options):
    return _latent(
        q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, output, None, options
    )


@kernel("atb.npu_multi_head_latent_attention")
def _(q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, **options):
    output = torch.empty_like(q_nope, dtype=q_rope.dtype)
    return _latent(
        q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, output, None, options
    )


@kernel("atb.npu_multi_head_latent_attention.lse_out")
def _(
    q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, return_lse, *, output,
    lse, **options,
):  # fmt: skip
    wanted = lse if return_lse else None
    _latent(
        q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, output, wanted,
        options,
    )  # fmt: skip
    return output, lse


@kernel("atb.npu_multi_head_latent_attention.lse")
def _(
    q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, return_lse, **options
):
    output = torch.empty_like(q_nope, dtype=q_rope.dtype)
    lse = q_nope.new_zeros([q_nope.size(0), q_headnum, 1])
    _latent(
        q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, output,
        lse if return_lse else None, options,
    )  # fmt: skip
    return output, lse


@kernel("atb._npu_multi_head_latent_attention_get_workspace.lse")
def _(
    q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum, return_lse, **options
):
    args, given = _latent_options(
        "npu_multi_head_latent_attention", q_nope, q_rope, ctkv, k_rope, block_tables, q_headnum, qk_scale, kv_headnum,
        options,
    )  # fmt: skip
    return ops._npu_fused_infer_attention_score_get_max_workspace(*args, softmax_lse_flag=return_lse, **given)


@meta("atb.npu_multi_head_latent_attention")
def _(q_nope, q_rope, *rest, **options):
    return torch.empty_like(q_nope, dtype=q_rope.dtype)


@meta("atb.npu_multi_head_latent_attention.out")
def _(*rest, output, **options):
    return output


@meta("atb.npu_multi_head_latent_attention.lse")
def _(q_nope, q_rope, *rest, **options):
    lse = q_nope.new_empty([q_nope.size(0), q_nope.size(1), 1])
    return torch.empty_like(q_nope, dtype=q_rope.dtype), lse


@meta("atb.npu_multi_head_latent_attention.lse_out")
def _(*rest, output, lse, **options):
    return output, lse


def _split_fuse(
    name, query, key_cache, value_cache, block_table, context_lens, mask, seq_len, num_kv_heads, num_heads,
    scale_value, out,
):  # fmt: skip
    """Several queries for each sequence, the last ones of its context."""
    queries, contexts = host_list(name, "seq_len", seq_len), host_list(name, "context_lens", context_lens)
    query, out = _tokens(name, "query", query, num_heads), _tokens(name, "out", out, num_heads)
    ends = _ends(queries)
    check(
        len(queries) == len(contexts) == block_table.size(0) and (not ends or ends[-1] <= query.size(0)),
        name,
        f"seq_len is {queries}, context_lens is {contexts}, for {query.size(0)} queries and {block_table.size(0)} rows "
        "of block_table",
    )
    check(
        all(0 <= new <= whole for new, whole in zip(queries, contexts)),
        name,
        f"seq_len is {queries}, of which each is a part of context_lens, {contexts}",
    )
    if not ends:
        return
    longest = max(contexts)
    options = {
        "block_table": block_table,
        "block_size": key_cache.size(1),
        "num_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "scale": scale_value,
    }
    keys, values = _pages(name, "key_cache", key_cache, num_kv_heads), _pages(
        name, "value_cache", value_cache, num_kv_heads
    )
    if (
        mask is not None
        and mask.is_floating_point()
        and mask.dim() == 2
        and mask.size(0) == query.size(0)
        and mask.size(1) >= longest
    ):
        # A row of the mask for each query.
        for index, (new, whole, end) in enumerate(zip(queries, contexts, ends)):
            if new == 0:
                continue
            rows = slice(end - new, end)
            _attend(
                query[rows].unsqueeze(0), keys, values, out[rows].unsqueeze(0), input_layout="BSND",
                pse_shift=_shift(mask[rows, :whole], query.dtype), actual_seq_lengths=[new],
                actual_seq_lengths_kv=[whole], **{**options, "block_table": block_table[index : index + 1]},
            )  # fmt: skip
        return
    if mask is not None:  # whatever its size, it hides what comes later
        options.update(sparse_mode=3, atten_mask=_compressed(query))
    _attend(
        query, keys, values, out, actual_seq_lengths=ends, actual_seq_lengths_kv=contexts, input_layout="TND", **options
    )


@kernel("atb._npu_paged_attention_splitfuse")
def _npu_paged_attention_splitfuse(
    query, key_cache, value_cache, block_table, context_lens, mask, seq_len, num_kv_heads, num_heads, scale_value, out
):
    _split_fuse(
        "_npu_paged_attention_splitfuse", query, key_cache, value_cache, block_table, context_lens, mask, seq_len,
        num_kv_heads, num_heads, scale_value, out,
    )  # fmt: skip


@kernel("atb._npu_paged_attention_splitfuse_v2")
def _npu_paged_attention_splitfuse_v2(
    query, key_cache, value_cache, block_table, context_lens, mask, seq_len, num_kv_heads, num_heads, scale_value, *,
    mask_type=5, out,
):  # fmt: skip
    _split_fuse(
        "_npu_paged_attention_splitfuse_v2", query, key_cache, value_cache, block_table, context_lens, mask, seq_len,
        num_kv_heads, num_heads, scale_value, out,
    )  # fmt: skip


@kernel("atb._npu_flash_attention_qlens")
def _npu_flash_attention_qlens(
    query, key_cache, value_cache, block_table, mask, seq_len, context_lens, num_kv_heads, num_heads, scale_value, out
):
    _split_fuse(
        "_npu_flash_attention_qlens", query, key_cache, value_cache, block_table, context_lens, mask, seq_len,
        num_kv_heads, num_heads, scale_value, out,
    )  # fmt: skip


def _prefix(name, query, key, value, table, queries, contexts, kv_heads, heads, scale, out):
    """Several queries for each sequence, which see what comes before them."""
    _split_fuse(
        name, query, key, value, table, list(contexts), _compressed(query), list(queries), kv_heads or heads, heads,
        scale, out,
    )  # fmt: skip
    return out


@kernel("atb._npu_flash_attention_prefix_v2.out")
def _(
    query, key_cache, value_cache, block_table, mask, seq_len, context_lens, *, slopes=None, kernel_type=1, mask_type=3,
    num_kv_heads=0, num_heads=0, scale_value=1.0, out,
):  # fmt: skip
    name = "_npu_flash_attention_prefix_v2"
    refuse(name, slopes=slopes)
    check(mask_type == _COMPRESSED, name, f"mask_type is {mask_type}, expected 3; slopes are not supported yet")
    return _prefix(
        name, query, key_cache, value_cache, block_table, seq_len, context_lens, num_kv_heads, num_heads, scale_value,
        out,
    )  # fmt: skip


@meta("atb._npu_flash_attention_prefix_v2.out")
def _(*rest, out, **options):
    return out


@kernel("atb.npu_self_attention_prefix_encoder.out")
def _self_attention_prefix_encoder(
    query, key, value, block_tables, seqlen, kv_seqlen, q_headnum, qk_scale, kv_headnum, *, mask=None, slopes=None,
    mask_type=None, output,
):  # fmt: skip
    name = "npu_self_attention_prefix_encoder"
    refuse(name, slopes=slopes)
    known = (None, "mask_type_causal_mask", "mask_type_norm_compress")
    check(mask_type in known, name, f"mask_type is '{mask_type}', expected {known[1]} or {known[2]}")
    return _prefix(name, query, key, value, block_tables, seqlen, kv_seqlen, kv_headnum, q_headnum, qk_scale, output)


@kernel("atb.npu_self_attention_prefix_encoder")
def _(query, *args, **options):
    return _self_attention_prefix_encoder(query, *args, output=torch.empty_like(query), **options)


@meta("atb.npu_self_attention_prefix_encoder")
def _(query, *rest, **options):
    return torch.empty_like(query)


@meta("atb.npu_self_attention_prefix_encoder.out")
def _(*rest, output, **options):
    return output


# ---- Rings: keys come in parts, and what a part gives is joined with what the others gave ----


@kernel("atb.npu_ring_mla.out")
def _ring_mla(
    q_nope, q_rope, k_nope, k_rope, value, mask, seqlen, head_num, kv_head_num, *, pre_out=None, prev_lse=None,
    qk_scale=1.0, kernel_type=None, mask_type=None, input_layout=None, calc_type=None, output, softmax_lse,
):  # fmt: skip
    name = "npu_ring_mla"
    check(mask_type in (None, "no_mask", "mask_type_triu"), name, f"mask_type is '{mask_type}'")
    check(calc_type in (None, "calc_type_first_ring", "calc_type_default"), name, f"calc_type is '{calc_type}'")
    check(input_layout in (None, "type_bsnd"), name, f"input_layout is '{input_layout}', expected type_bsnd")
    is_first = calc_type != "calc_type_default"
    check(is_first or (pre_out is not None and prev_lse is not None), name, "pre_out and prev_lse are needed")
    rows = host_list(name, "seqlen", seqlen)
    queries, keys = rows if seqlen.dim() == 2 else (rows, rows)
    tokens = q_nope.size(0)
    out = output if is_first else torch.empty_like(output)
    sums = q_nope.new_empty([tokens, head_num, 1], dtype=torch.float32)
    causal = mask_type == "mask_type_triu"
    ops.npu_fused_infer_attention_score.out(
        q_nope, k_nope, value, query_rope=q_rope, key_rope=k_rope, actual_seq_lengths=_ends(queries),
        actual_seq_lengths_kv=_ends(keys), input_layout="TND", num_heads=head_num, num_key_value_heads=kv_head_num,
        scale=qk_scale, sparse_mode=3 if causal else 0, atten_mask=_compressed(q_nope) if causal else None,
        softmax_lse_flag=True, out=[out, sums],
    )  # fmt: skip
    sums = sums.view(tokens, head_num)
    if not is_first:
        before = prev_lse.t().reshape(-1)
        joined, sums = ops.npu_attention_update(
            [before, sums.reshape(-1)], [pre_out.flatten(0, 1), out.flatten(0, 1)], 1
        )
        output.copy_(joined.view(output.shape))
    softmax_lse.copy_(sums.view(tokens, head_num).t())
    return output, softmax_lse


def _ring_results(q_nope, value, head_num):
    output = q_nope.new_empty([q_nope.size(0), head_num, value.size(2)])
    return output, q_nope.new_empty([head_num, q_nope.size(0)], dtype=torch.float32)


@kernel("atb.npu_ring_mla")
def _(q_nope, q_rope, k_nope, k_rope, value, mask, seqlen, head_num, kv_head_num, **options):
    output, softmax_lse = _ring_results(q_nope, value, head_num)
    return _ring_mla(
        q_nope, q_rope, k_nope, k_rope, value, mask, seqlen, head_num, kv_head_num, output=output,
        softmax_lse=softmax_lse, **options,
    )  # fmt: skip


@meta("atb.npu_ring_mla")
def _(q_nope, q_rope, k_nope, k_rope, value, mask, seqlen, head_num, kv_head_num, **options):
    return _ring_results(q_nope, value, head_num)


@meta("atb.npu_ring_mla.out")
def _(*rest, output, softmax_lse, **options):
    return output, softmax_lse


@meta(
    "atb._npu_flash_attention", "atb._npu_flash_attention_v3", "atb._npu_flash_attention_unpad",
    "atb._npu_flash_attention_unpad_v2", "atb._npu_paged_attention", "atb._npu_paged_attention_mla",
    "atb._npu_paged_attention_splitfuse", "atb._npu_paged_attention_splitfuse_v2", "atb._npu_flash_attention_qlens",
    "atb._npu_rotary_embedding", "atb._npu_matmul_add_fp32",
)  # fmt: skip
def _(*args, **options):
    return None


@meta("atb._npu_flash_attention_v2.out")
def _(query, key, value, seq_len, *, out, **options):
    return out


@meta("atb._npu_paged_attention_get_workspace")
def _(query, *rest):
    return query.new_empty([0], dtype=torch.uint8)


@kernel("atb._npu_rotary_embedding")
def _npu_rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox_style):
    name = "_npu_rotary_embedding"
    check(head_size > 0, name, f"head_size is {head_size}, expected a value above 0")
    check_dims(name, "cos_sin_cache", cos_sin_cache, 2)
    positions = positions.reshape(-1)
    check_type(name, "positions", positions, torch.int32, torch.int64)
    for argument, tensor in (("query", query), ("key", key)):
        check(
            tensor.numel() % (max(positions.numel(), 1) * head_size) == 0 and cos_sin_cache.size(1) <= head_size,
            name,
            f"{argument} has shape {list(tensor.shape)}, for {positions.numel()} positions and heads of {head_size}",
        )
    rows = [tensor.reshape(max(positions.numel(), 1), -1) for tensor in (query, key)]
    turned = rope_of_table(positions, *rows, cos_sin_cache, None, head_size, is_neox_style)
    if turned is not None:
        query.copy_(turned[0].view(query.shape))
        key.copy_(turned[1].view(key.shape))
        return
    cos, sin = cos_sin_cache.index_select(0, positions.to(torch.int64)).chunk(2, -1)
    for tensor in (query, key):
        if tensor.numel() != 0:
            rows = tensor.reshape(positions.numel(), -1, head_size)
            tensor.copy_(rotate_some(rows, cos, sin, is_neox_style).reshape(tensor.shape))


@kernel("atb._npu_matmul_add_fp32")
def _npu_matmul_add_fp32(x, weight, C):
    name = "_npu_matmul_add_fp32"
    for argument, tensor in (("x", x), ("weight", weight), ("C", C)):
        check_dims(name, argument, tensor, 2)
    check_type(name, "C", C, torch.float32)
    check(
        x.size(0) == weight.size(0) and C.shape == (x.size(1), weight.size(1)),
        name,
        f"x has shape {list(x.shape)}, weight {list(weight.shape)} and C {list(C.shape)}, expected [k, m], [k, n] and "
        "[m, n]",
    )
    C.addmm_(x.t().float(), weight.float())
