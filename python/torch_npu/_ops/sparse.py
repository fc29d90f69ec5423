# SPDX-License-Identifier: Apache-2.0
"""Latent attention, attention to chosen keys, and attention with a state."""
import torch
from torch_npu._errors import refused
from torch_npu._ops.cache import write_pages
from torch_npu._ops.checks import check, check_dims, check_type, refuse
from torch_npu._ops.norm import npu_interleave_rope
from torch_npu._ops.registry import composite, declare, host_kernel, kernel, meta

ops = torch.ops.npu

# ---- Latent attention ----


def _rms(x, gamma, epsilon):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon) * gamma.float()).to(x.dtype)


def _write_cache(name, argument, cache, rows, index, cache_mode):
    """rows: [batch, heads, tokens, size] or [tokens of all, heads, size]."""
    size = rows.size(-1)
    if cache_mode == "Norm":
        # [batch, heads, places, size], a place for each token.
        check(
            cache.dim() == 4 and rows.dim() == 4 and index.numel() == rows.size(0) * rows.size(2),
            name,
            f"{argument} has shape {list(cache.shape)}, for rows of {list(rows.shape)} and {index.numel()} places",
        )
        batch, heads, tokens, _ = rows.shape
        place = index.reshape(batch, 1, tokens, 1).to(torch.int64).expand(batch, heads, tokens, 1)
        first = torch.arange(batch, device=rows.device).view(-1, 1, 1, 1).expand_as(place)
        second = torch.arange(heads, device=rows.device).view(1, -1, 1, 1).expand_as(place)
        where = torch.cat([first, second, torch.where(place < 0, torch.full_like(place, 2**31 - 1), place)], -1)
        ops.npu_scatter_nd_update_(cache, where, rows)
        return
    check(
        cache_mode in ("PA", "PA_BNSD", "PA_NZ", "PA_BSND"),
        name,
        f"cache_mode is '{cache_mode}', expected Norm, PA, PA_BNSD, PA_BSND or PA_NZ",
    )
    check_dims(name, argument, cache, 4)
    tokens = rows.transpose(1, 2).flatten(0, 1) if rows.dim() == 4 else rows  # [tokens, heads, size]
    pages = cache
    if cache_mode == "PA_NZ":  # [blocks, block size, heads, size] whose memory is in tiles: plain here
        check(cache.size(-1) == size or cache.size(1) * cache.size(3) == tokens.shape[1:].numel(), name, argument)
        pages = cache if cache.size(-1) == size else cache.transpose(1, 2)
    write_pages(name, argument, pages, tokens, index)


def _kv_rmsnorm_rope(name, kv, gamma, cos, sin, v, epsilon):
    check_dims(name, "kv", kv, 4)
    if v is None:
        size = gamma.numel()
        check(size < kv.size(-1), name, f"gamma has {size} elements, but rows of kv have {kv.size(-1)}")
        return npu_interleave_rope(kv[..., size:], cos, sin), _rms(kv[..., :size], gamma, epsilon)
    # Keys are normed and turned, values stay.
    return npu_interleave_rope(_rms(kv, gamma, epsilon), cos, sin), v


declare(
    "_kv_norm_rope_cache(Tensor kv, Tensor gamma, Tensor cos, Tensor sin, Tensor index, Tensor(a!) k_cache, "
    "Tensor(b!) ckv_cache, Tensor? k_rope_scale, Tensor? c_kv_scale, Tensor? k_rope_offset, Tensor? c_kv_offset, "
    "float epsilon, str cache_mode) -> (Tensor, Tensor)"
)


@meta("_kv_norm_rope_cache")
def _(kv, gamma, *rest):
    size = gamma.numel()
    return kv.new_empty([*kv.shape[:-1], kv.size(-1) - size]), kv.new_empty([*kv.shape[:-1], size])


@kernel("npu_kv_rmsnorm_rope_cache")
def npu_kv_rmsnorm_rope_cache(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, *, k_rope_scale=None, c_kv_scale=None, k_rope_offset=None,
    c_kv_offset=None, v=None, epsilon=1e-5, cache_mode="Norm", is_output_kv=False,
):  # fmt: skip
    name = "npu_kv_rmsnorm_rope_cache"
    scales = (k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset)
    plain = kv.dim() == 4 and kv.size(1) == 1 and k_cache.dim() == ckv_cache.dim() == 4 and gamma.dim() == 1
    plain = plain and kv.dtype == gamma.dtype == cos.dtype == sin.dtype and kv.dtype != torch.float64
    plain = plain and all(each is None or each.dtype == torch.float32 and each.dim() == 1 for each in scales)
    if plain and v is None and cache_mode in ("Norm", "PA", "PA_BNSD"):
        k_rope, c_kv = ops._kv_norm_rope_cache(
            kv, gamma, cos, sin, index, k_cache, ckv_cache, *scales, epsilon, cache_mode
        )
        return k_cache, ckv_cache, k_rope, c_kv
    k_rope, c_kv = _kv_rmsnorm_rope(name, kv, gamma, cos, sin, v, epsilon)

    def stored(values, scale, offset, cache):
        if scale is None:
            return values
        wide = values.float() * scale.float()
        wide = wide if offset is None else wide + offset.float()
        return wide.round().clamp(-128, 127).to(cache.dtype)

    _write_cache(name, "k_cache", k_cache, stored(k_rope, k_rope_scale, k_rope_offset, k_cache), index, cache_mode)
    _write_cache(name, "ckv_cache", ckv_cache, stored(c_kv, c_kv_scale, c_kv_offset, ckv_cache), index, cache_mode)
    return k_cache, ckv_cache, k_rope, c_kv if v is None else c_kv.clone()


@meta("npu_kv_rmsnorm_rope_cache")
def _(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, *, k_rope_scale=None, c_kv_scale=None, k_rope_offset=None,
    c_kv_offset=None, v=None, epsilon=1e-5, cache_mode="Norm", is_output_kv=False,
):  # fmt: skip
    k_rope, c_kv = _kv_rmsnorm_rope("npu_kv_rmsnorm_rope_cache", kv, gamma, cos, sin, v, epsilon)
    return torch.empty_like(k_cache), torch.empty_like(ckv_cache), k_rope, c_kv if v is None else c_kv.clone()


def _mla_prolog(
    name, token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, gamma_cq, gamma_ckv, rope_sin, rope_cos,
    epsilon_cq, epsilon_ckv, qc_qr_scale=1.0, kc_scale=1.0,
):  # fmt: skip
    check_dims(name, "token_x", token_x, 2, 3)
    check_dims(name, "weight_uk", weight_uk, 3)
    check_type(name, "token_x", token_x, torch.bfloat16, torch.float16, torch.float32)
    outer = token_x.shape[:-1]
    x = token_x.reshape(-1, token_x.size(-1))
    heads, depth, latent = weight_uk.shape
    rope = rope_sin.size(-1)
    cos, sin = rope_cos.reshape(1, -1, 1, rope), rope_sin.reshape(1, -1, 1, rope)
    check(
        weight_uq_qr.size(-1) == heads * (depth + rope),
        name,
        f"weight_uq_qr has shape {list(weight_uq_qr.shape)}, expected {heads * (depth + rope)} columns",
    )
    check(
        weight_dkv_kr.size(-1) == latent + rope and gamma_ckv.numel() == latent,
        name,
        f"weight_dkv_kr has shape {list(weight_dkv_kr.shape)}, expected {latent + rope} columns",
    )
    normed = _rms(x @ weight_dq, gamma_cq, epsilon_cq)
    q = (normed @ weight_uq_qr).view(-1, heads, depth + rope)
    if qc_qr_scale != 1.0:
        q = q * qc_qr_scale
    query = torch.bmm(q[..., :depth].transpose(0, 1), weight_uk).transpose(0, 1)
    query_rope = npu_interleave_rope(q[..., depth:].unsqueeze(0), cos, sin).squeeze(0)
    kv = x @ weight_dkv_kr
    c_kv = _rms(kv[..., :latent], gamma_ckv, epsilon_ckv)
    if kc_scale != 1.0:
        c_kv = c_kv * kc_scale
    k_rope = npu_interleave_rope(kv[..., latent:].view(1, -1, 1, rope), cos, sin).view(-1, 1, rope)
    query = query.reshape(*outer, heads, latent).contiguous()
    return query, query_rope.reshape(*outer, heads, rope), c_kv.unsqueeze(1), k_rope, normed.reshape(*outer, -1)


def _store_latent(name, kv_cache, kr_cache, c_kv, k_rope, index, cache_mode):
    if cache_mode in ("BSND", "TND"):
        check(kv_cache.numel() == c_kv.numel() and kr_cache.numel() == k_rope.numel(), name, "caches hold all tokens")
        kv_cache.copy_(c_kv.view(kv_cache.shape))
        kr_cache.copy_(k_rope.view(kr_cache.shape))
        return
    check(index is not None, name, "cache_index is needed")
    for argument, cache, rows in (("kv_cache", kv_cache, c_kv), ("kr_cache", kr_cache, k_rope)):
        _write_cache(name, argument, cache, rows.to(cache.dtype), index, cache_mode)


@kernel("npu_mla_prolog_v2")
def npu_mla_prolog_v2(
    token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin, rope_cos,
    cache_index, kv_cache, kr_cache, *, rmsnorm_epsilon_cq=1e-5, rmsnorm_epsilon_ckv=1e-5, cache_mode="PA_BSND",
    **scales,
):  # fmt: skip
    name = "npu_mla_prolog_v2"
    refuse(name, **scales)
    query, query_rope, c_kv, k_rope, _ = _mla_prolog(
        name, token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin,
        rope_cos, rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv,
    )  # fmt: skip
    _store_latent(name, kv_cache, kr_cache, c_kv, k_rope, cache_index, cache_mode)
    return query, query_rope, kv_cache, kr_cache, query.new_ones([1], dtype=torch.float32)


@meta("npu_mla_prolog_v2")
def announce_mla_prolog_v2(
    token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin, rope_cos,
    cache_index, kv_cache, kr_cache, *, rmsnorm_epsilon_cq=1e-5, rmsnorm_epsilon_ckv=1e-5, cache_mode="PA_BSND",
    **scales,
):  # fmt: skip
    refuse("npu_mla_prolog_v2", **scales)
    query, query_rope, _, _, _ = _mla_prolog(
        "npu_mla_prolog_v2", token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq,
        rmsnorm_gamma_ckv, rope_sin, rope_cos, rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv,
    )  # fmt: skip
    scale = query.new_empty([1], dtype=torch.float32)
    return query, query_rope, torch.empty_like(kv_cache), torch.empty_like(kr_cache), scale


@composite("npu_mla_prolog_v3")
def npu_mla_prolog_v3(
    token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin, rope_cos,
    kv_cache, kr_cache, *, cache_index=None, rmsnorm_epsilon_cq=1e-5, rmsnorm_epsilon_ckv=1e-5, cache_mode="PA_BSND",
    query_norm_flag=False, weight_quant_mode=0, kv_cache_quant_mode=0, query_quant_mode=0, ckvkr_repo_mode=0,
    quant_scale_repo_mode=0, tile_size=128, qc_qr_scale=1.0, kc_scale=1.0, **scales,
):  # fmt: skip
    name = "npu_mla_prolog_v3"
    refuse(name, **scales)
    modes = (weight_quant_mode, kv_cache_quant_mode, query_quant_mode, ckvkr_repo_mode, quant_scale_repo_mode)
    if any(modes):
        raise refused(
            NotImplementedError(f"{name}: quantised weights and caches are not supported yet; leave the modes out")
        )
    query, query_rope, c_kv, k_rope, normed = _mla_prolog(
        name, token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv, rope_sin,
        rope_cos, rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv, qc_qr_scale, kc_scale,
    )  # fmt: skip
    _store_latent(name, kv_cache, kr_cache, c_kv, k_rope, cache_index, cache_mode)
    none = query.new_empty([0], dtype=torch.float32)
    query_norm = normed if query_norm_flag else normed.new_empty([0])
    return query, query_rope, none, query_norm, none.clone()


# ---- Attention to chosen keys ----


class _Sequences:
    """Queries and keys of several sequences as rows: which sequence a row is of, its place there, and the keys."""

    def __init__(self, name, query, key, lengths_query, lengths_key, block_table, layout_query, layout_key):
        check(layout_query in ("BSND", "TND"), name, f"layout_query is '{layout_query}', expected BSND or TND")
        check(
            layout_key in ("BSND", "TND", "PA_BSND"),
            name,
            f"layout_key is '{layout_key}', expected BSND, TND or PA_BSND",
        )
        device = query.device
        check_dims(name, "query", query, 4 if layout_query == "BSND" else 3)

        def numbers(tensor):
            return None if tensor is None else tensor.to(device, torch.int64).reshape(-1)

        lengths_query, lengths_key = numbers(lengths_query), numbers(lengths_key)
        if layout_query == "BSND":
            batch, steps = query.shape[:2]
            self.sequence = torch.arange(batch, device=device).repeat_interleave(steps)
            self.place = torch.arange(steps, device=device).repeat(batch)
            self.queries = torch.full([batch], steps, device=device) if lengths_query is None else lengths_query
        else:
            check(lengths_query is not None, name, "the layout TND needs actual_seq_lengths_query")
            batch = lengths_query.numel()
            row = torch.arange(query.size(0), device=device)
            self.sequence = torch.searchsorted(lengths_query, row, right=True).clamp(max=max(batch - 1, 0))
            begins = torch.cat([lengths_query.new_zeros(1), lengths_query[:-1]])
            self.place = row - begins[self.sequence]
            self.queries = lengths_query - begins
        if layout_key == "PA_BSND":
            paged = block_table is not None and lengths_key is not None
            check(paged, name, "pages need block_table and the lengths of keys")
            check_dims(name, "key", key, 4)
            self.capacity = block_table.size(1) * key.size(1)
            table = block_table.to(torch.int64).clamp(0, max(key.size(0) - 1, 0))
            self.index = (
                table.unsqueeze(-1) * key.size(1) + torch.arange(key.size(1), device=device)
            ).reshape(batch, -1)
            self.keys = lengths_key
        elif layout_key == "BSND":
            check_dims(name, "key", key, 4)
            self.capacity = key.size(1)
            self.index = torch.arange(batch * self.capacity, device=device).view(batch, -1)
            self.keys = torch.full([batch], self.capacity, device=device) if lengths_key is None else lengths_key
        else:
            check(lengths_key is not None, name, "the layout TND needs the lengths of keys")
            check_dims(name, "key", key, 3)
            begins = torch.cat([lengths_key.new_zeros(1), lengths_key[:-1]])
            self.capacity = key.size(0)
            self.keys = lengths_key - begins
            self.index = (begins.unsqueeze(-1) + torch.arange(self.capacity, device=device)).clamp(
                max=max(key.size(0) - 1, 0)
            )
        check(self.keys.numel() == batch, name, f"there are {self.keys.numel()} lengths of keys for {batch} sequences")
        self.outer = 2 if layout_key != "TND" else 1

    def rows_of(self, tensor):
        """[tokens of all blocks, ..] of keys."""
        return tensor.flatten(0, self.outer - 1)

    def seen(self, sparse_mode):
        """How many keys each query sees; none for rows behind the end of their sequence."""
        keys = self.keys[self.sequence]
        if sparse_mode == 3:
            keys = keys - self.queries[self.sequence] + self.place + 1
        return torch.where(self.place < self.queries[self.sequence], keys.clamp(min=0), torch.zeros_like(keys))


def _index_keys(
    name, query, key, weights, lengths_query, lengths_key, block_table, layout_query, layout_key, sparse_count,
    sparse_mode, pre_tokens, next_tokens, query_scale=None, key_scale=None,
):  # fmt: skip
    check(sparse_count > 0, name, f"sparse_count is {sparse_count}, expected a value above 0")
    check(sparse_mode in (0, 3), name, f"sparse_mode is {sparse_mode}, expected 0 or 3")
    limit = 2**31 - 1
    unlimited = pre_tokens >= limit and next_tokens >= limit
    check(unlimited, name, "pre_tokens and next_tokens are not supported yet; leave them out")
    s = _Sequences(name, query, key, lengths_query, lengths_key, block_table, layout_query, layout_key)
    heads, key_heads = query.size(-2), key.size(-2)
    check(key_heads > 0 and heads % key_heads == 0, name, f"there are {heads} heads of queries and {key_heads} of keys")
    flat = query.flatten(0, -3).float()  # [rows, heads, size]
    weight = weights.flatten(0, -2).float()  # [rows, heads]
    if query_scale is not None:
        weight = weight * query_scale.flatten(0, -2).float()
    all_keys = s.rows_of(key).float()
    if key_scale is not None:
        all_keys = all_keys * s.rows_of(key_scale).float().reshape(*all_keys.shape[:-1], 1)
    keys = all_keys[s.index][s.sequence]  # [rows, capacity, key heads, size]
    parts = flat.view(flat.size(0), key_heads, heads // key_heads, -1)
    scores = torch.einsum("rgnd,rcgd->rgnc", parts, keys).relu()
    scores = torch.einsum("rgnc,rgn->rgc", scores, weight.view(flat.size(0), key_heads, -1))
    hidden = torch.arange(s.capacity, device=query.device) >= s.seen(sparse_mode).unsqueeze(-1)
    scores = scores.masked_fill(hidden.unsqueeze(1), float("-inf"))
    values, places = scores.sort(dim=-1, descending=True, stable=True)
    short = sparse_count - s.capacity
    if short > 0:
        values = torch.nn.functional.pad(values, (0, short), value=float("-inf"))
        places = torch.nn.functional.pad(places, (0, short))
    values, places = values[..., :sparse_count], places[..., :sparse_count]
    places = places.masked_fill(values == float("-inf"), -1).to(torch.int32)
    shape = [*query.shape[:-2], key_heads, sparse_count]
    return places.reshape(shape), values.to(query.dtype if query.dtype != torch.int8 else torch.float32).reshape(shape)


@composite("npu_lightning_indexer")
def npu_lightning_indexer(
    query, key, weights, *, actual_seq_lengths_query=None, actual_seq_lengths_key=None, block_table=None,
    layout_query="BSND", layout_key="BSND", sparse_count=2048, sparse_mode=3, pre_tokens=2**63 - 1,
    next_tokens=2**63 - 1, return_value=False,
):  # fmt: skip
    places, values = _index_keys(
        "npu_lightning_indexer", query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table,
        layout_query, layout_key, sparse_count, sparse_mode, pre_tokens, next_tokens,
    )  # fmt: skip
    return places, values if return_value else query.new_empty([0])


@composite("npu_quant_lightning_indexer")
def npu_quant_lightning_indexer(
    query, key, weights, query_dequant_scale, key_dequant_scale, query_quant_mode, key_quant_mode, *,
    actual_seq_lengths_query=None, actual_seq_lengths_key=None, block_table=None, layout_query="BSND",
    layout_key="BSND", sparse_count=2048, sparse_mode=3, pre_tokens=2**63 - 1, next_tokens=2**63 - 1, query_dtype=None,
    key_dtype=None,
):  # fmt: skip
    name = "npu_quant_lightning_indexer"
    check(query_quant_mode == 0 and key_quant_mode == 0, name, "query_quant_mode and key_quant_mode take 0 only")
    refuse(name, query_dtype=query_dtype, key_dtype=key_dtype)
    for argument, tensor in (("query", query), ("key", key)):
        check_type(name, argument, tensor, torch.int8)
    return _index_keys(
        name, query, key, weights, actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query,
        layout_key, sparse_count, sparse_mode, pre_tokens, next_tokens, query_dequant_scale, key_dequant_scale,
    )[0]  # fmt: skip


@composite("npu_kv_quant_sparse_flash_attention")
def npu_kv_quant_sparse_flash_attention(
    query, key, value, sparse_indices, scale_value, key_quant_mode, value_quant_mode, *, key_dequant_scale=None,
    value_dequant_scale=None, block_table=None, actual_seq_lengths_query=None, actual_seq_lengths_kv=None,
    sparse_block_size=1, layout_query="BSND", layout_kv="BSND", sparse_mode=3, pre_tokens=2**63 - 1,
    next_tokens=2**63 - 1, attention_mode=0, quant_scale_repo_mode=1, tile_size=128, rope_head_dim=64, key_dtype=None,
    value_dtype=None,
):  # fmt: skip
    name = "npu_kv_quant_sparse_flash_attention"
    refuse(
        name, key_dequant_scale=key_dequant_scale, value_dequant_scale=value_dequant_scale, key_dtype=key_dtype,
        value_dtype=value_dtype,
    )  # fmt: skip
    check(key_quant_mode == 2 and value_quant_mode == 2, name, "key_quant_mode and value_quant_mode take 2 only")
    check(attention_mode == 2, name, f"attention_mode is {attention_mode}, expected 2")
    check(quant_scale_repo_mode == 1, name, f"quant_scale_repo_mode is {quant_scale_repo_mode}, expected 1")
    check(sparse_block_size == 1, name, f"sparse_block_size is {sparse_block_size}, expected 1")
    check(sparse_mode in (0, 3), name, f"sparse_mode is {sparse_mode}, expected 0 or 3")
    check_type(name, "key", key, torch.int8)
    check_type(name, "query", query, torch.bfloat16, torch.float16)
    latent = query.size(-1) - rope_head_dim
    check(latent > 0 and latent % tile_size == 0, name, f"tiles of {tile_size} do not divide {latent} dims of query")
    width = latent + 2 * rope_head_dim + 4 * (latent // tile_size)
    check(key.size(-1) == width, name, f"rows of key have {key.size(-1)} bytes, expected {width}")
    s = _Sequences(
        name, query, key, actual_seq_lengths_query, actual_seq_lengths_kv, block_table, layout_query, layout_kv
    )
    key_heads, heads = key.size(-2), query.size(-2)
    check(key_heads == 1, name, f"there are {key_heads} heads of keys, expected 1")
    flat = query.flatten(0, -3).float()
    chosen = sparse_indices.flatten(0, -3)[:, 0].to(torch.int64)  # [rows, count]
    valid = (chosen >= 0) & (chosen < s.seen(sparse_mode).unsqueeze(-1))
    index = s.index[s.sequence].gather(1, chosen.clamp(0, max(s.capacity - 1, 0)))
    rows = s.rows_of(key)[:, 0][index].contiguous()  # [rows, count, bytes]
    plain = rows[..., :latent].float()
    rope = rows[..., latent : latent + 2 * rope_head_dim].contiguous().view(query.dtype).float()
    scales = rows[..., latent + 2 * rope_head_dim :].contiguous().view(torch.float32)
    values = (plain.unflatten(-1, (-1, tile_size)) * scales.unsqueeze(-1)).flatten(-2)
    scores = torch.bmm(flat, torch.cat([values, rope], -1).transpose(1, 2)) * scale_value
    scores = scores.masked_fill(~valid.unsqueeze(1), float("-inf"))
    weights = scores.softmax(-1).masked_fill(~valid.any(-1).view(-1, 1, 1), 0)
    return torch.bmm(weights, values).to(query.dtype).reshape(*query.shape[:-1], latent)


# ---- Attention with a state ----

declare(
    "_gated_delta_rule(Tensor query, Tensor key, Tensor value, Tensor(a!) state, Tensor? beta, Tensor? g, "
    "Tensor lengths, Tensor? indices, Tensor? accepted, float scale) -> Tensor"
)
host_kernel("_gated_delta_rule")


@meta("_gated_delta_rule")
def _(query, key, value, state, beta, g, lengths, indices, accepted, scale):
    name = "gated_delta_rule"
    for argument, tensor in (("query", query), ("key", key), ("value", value)):
        check_dims(name, argument, tensor, 3)
    check_dims(name, "state", state, 4)
    tokens, heads, depth = value.shape
    check(
        query.shape == key.shape and key.size(0) == tokens and key.size(1) > 0 and heads % key.size(1) == 0,
        name,
        f"query has shape {list(query.shape)}, key {list(key.shape)} and value {list(value.shape)}",
    )
    check(
        list(state.shape[1:]) == [heads, depth, key.size(2)],
        name,
        f"state has shape {list(state.shape)}, expected [.., {heads}, {depth}, {key.size(2)}]",
    )
    for argument, tensor in (("beta", beta), ("g", g)):
        check(
            tensor is None or list(tensor.shape) == [tokens, heads],
            name,
            f"{argument} has shape {list(tensor.shape) if tensor is not None else ''}, expected [{tokens}, {heads}]",
        )
    check_dims(name, "actual_seq_lengths", lengths, 1)
    check(indices is None or indices.numel() == tokens, name, f"ssm_state_indices is for {tokens} tokens")
    check(accepted is None or accepted.shape == lengths.shape, name, "num_accepted_tokens is for each sequence")
    return query.new_empty(value.shape)


def _scale_of(name, scale, key):
    return key.size(-1) ** -0.5 if scale is None else scale


@composite("npu_recurrent_gated_delta_rule")
def npu_recurrent_gated_delta_rule(
    query, key, value, state, *, beta=None, scale=None, actual_seq_lengths=None, ssm_state_indices=None,
    num_accepted_tokens=None, g=None, gk=None,
):  # fmt: skip
    name = "npu_recurrent_gated_delta_rule"
    refuse(name, gk=gk)
    check(actual_seq_lengths is not None, name, "actual_seq_lengths is needed")
    if ssm_state_indices is not None:
        ssm_state_indices = ssm_state_indices.reshape(-1)
    return ops._gated_delta_rule(
        query, key, value, state, beta, g, actual_seq_lengths, ssm_state_indices, num_accepted_tokens,
        _scale_of(name, scale, key),
    )  # fmt: skip


@composite("npu_chunk_gated_delta_rule")
def npu_chunk_gated_delta_rule(
    query, key, value, *, beta=None, initial_state=None, actual_seq_lengths=None, scale=None, g=None
):
    name = "npu_chunk_gated_delta_rule"
    check(initial_state is not None and actual_seq_lengths is not None, name, "initial_state and actual_seq_lengths "
          "are needed")  # fmt: skip
    check(
        initial_state.size(0) == actual_seq_lengths.numel(),
        name,
        f"initial_state has {initial_state.size(0)} states for {actual_seq_lengths.numel()} sequences",
    )
    state = initial_state.clone(memory_format=torch.contiguous_format)
    out = ops._gated_delta_rule(
        query, key, value, state, beta, g, actual_seq_lengths, None, None, _scale_of(name, scale, key)
    )
    return out, state
