# SPDX-License-Identifier: Apache-2.0
"""Operators that fewer programs call, where others compute the same."""
import torch
from torch_npu._ops.atb import _paged
from torch_npu._ops.cache import npu_format_cast, npu_scatter_pa_kv_cache
from torch_npu._ops.checks import check, check_dims, check_type, host_list, refuse, type_of
from torch_npu._ops.norm import half_of, statistics_like
from torch_npu._ops.quantization import _round_to, quantize_rows
from torch_npu._ops.registry import composite, declare, kernel, meta
from torch_npu._ops.sparse import _Sequences

ops = torch.ops.npu
functional = torch.nn.functional

# ---- Shapes and types ----


@composite("npu_transpose", differentiable=True)
def _(input, perm, require_contiguous=True):
    return input.permute(perm).contiguous()


@composite("npu_reshape", differentiable=True)
def _(input, shape, can_refresh=False):
    return input.reshape(shape).clone()


@composite("npu_broadcast", differentiable=True)
def _(input, size):
    return input.expand(size).contiguous()


@composite("npu_slice", differentiable=True)
def _(input, offsets, size):
    check(len(offsets) == len(size) == input.dim(), "npu_slice", f"input has {input.dim()} dims")
    for dim, (begin, length) in enumerate(zip(offsets, size)):
        input = input.narrow(dim, begin, input.size(dim) - begin if length == -1 else length)
    return input.contiguous()


@composite("npu_confusion_transpose", differentiable=True)
def _(input, perm, shape, transpose_first):
    if transpose_first:
        return input.permute(perm).reshape(shape).contiguous()
    return input.reshape(shape).permute(perm).contiguous()


@composite("npu_dtype_cast", differentiable=True)
def _(input, dtype, input_dtype=None):
    refuse("npu_dtype_cast", input_dtype=input_dtype)
    return input.to(type_of("npu_dtype_cast", "dtype", dtype, None), copy=True)


@composite("_npu_dtype_cast", differentiable=True)
def _(input, dtype):
    return input.to(dtype, copy=True)


kernel("_npu_format_cast")(npu_format_cast)
# Types that belong to a format play no part: memory stays row by row.
kernel("_npu_format_cast.aclnn", "_npu_format_cast.input_dtype")(lambda input, acl_format, *_: npu_format_cast(
    input, acl_format
))  # fmt: skip


@meta("_npu_format_cast", "_npu_format_cast.aclnn", "_npu_format_cast.input_dtype")
def _(input, acl_format, *_):
    return input.new_empty(input.shape)


# ---- Activations and norms ----


@meta("npu_geglu")
def _(input, dim=-1, approximate=1, activate_left=False):
    shape = half_of("npu_geglu", input, dim)
    return input.new_empty(shape), input.new_empty(shape)


@composite("npu_silu", differentiable=True)
def _(input):
    return functional.silu(input)


@composite("npu_silu_")
def _(input):
    return input.copy_(functional.silu(input))


@composite("npu_mish", differentiable=True)
def _(input):
    return functional.mish(input)


@composite("npu_linear", differentiable=True)
def _(input, weight, bias=None):
    return functional.linear(input, weight, bias)


@composite("npu_scaled_masked_softmax", differentiable=True)
def _(x, mask, scale=1, fixed_triu_mask=False):
    name = "npu_scaled_masked_softmax"
    check_dims(name, "x", x, 4)
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    check_type(name, "mask", mask, torch.bool)
    return (x.float() * scale).masked_fill(mask, -10000.0).softmax(-1).to(x.dtype)


@composite("npu_group_norm_silu")
def _(input, weight, bias, group, eps=1e-5):
    check(input.dim() >= 2 and group > 0, "npu_group_norm_silu", f"input has shape {list(input.shape)}")
    batch, channels = input.shape[:2]
    rest = input.shape[2:].numel()
    out, mean, rstd = torch.native_group_norm(input.contiguous(), weight, bias, batch, channels, rest, group, eps)
    return functional.silu(out), mean.to(input.dtype), rstd.to(input.dtype)


@composite("npu_add_layer_norm")
def _(x1, x2, gamma, beta, epsilon=1e-5, additional_output=False):
    name = "npu_add_layer_norm"
    check(x1.shape == x2.shape, name, f"x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}")
    x = x1 + x2
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    rstd = torch.rsqrt((wide - mean).square().mean(-1, keepdim=True) + epsilon)
    y = ((wide - mean) * rstd * gamma.float() + beta.float()).to(x1.dtype)
    return y, mean, rstd, x if additional_output else x.new_empty([0])


@meta("npu_deep_norm")
def _(x, gx, beta, gamma, alpha=0.3, epsilon=1e-6):
    check(x.shape == gx.shape, "npu_deep_norm", f"x has shape {list(x.shape)} and gx {list(gx.shape)}")
    mean = statistics_like("npu_deep_norm", x, gamma)
    return mean, torch.empty_like(mean), x.new_empty(x.shape)


def _normed(x, gamma, epsilon):
    wide = x.float()
    dims = list(range(-gamma.dim(), 0))
    rstd = torch.rsqrt(wide.square().mean(dims, keepdim=True) + epsilon)
    return wide * rstd * gamma.float(), rstd


@composite("npu_add_rms_norm_cast")
def _(x1, x2, gamma, epsilon=1e-6):
    y, rstd, x = ops.npu_add_rms_norm(x1, x2, gamma, epsilon)
    return y.float(), y, rstd, x


@composite("npu_add_rms_norm_v2")
def _(x1, x2, gamma, epsilon=1e-6):
    y, rstd, x = ops.npu_add_rms_norm(x1, x2, gamma, epsilon)
    x1.copy_(y)
    x2.copy_(x)
    return rstd


@composite("npu_add_rms_norm_v2_functional")
def _(x1, x2, gamma, epsilon=1e-6):
    y, rstd, x = ops.npu_add_rms_norm(x1, x2, gamma, epsilon)
    return rstd, y, x


@composite("npu_rms_norm_quant")
def _(x, gamma, beta, scale, offset, epsilon=1e-6, *, dst_dtype=None):
    normed, _ = _normed(x, gamma, epsilon)
    return _round_to("npu_rms_norm_quant", (normed + beta.float()) * scale.float() + offset.float(), dst_dtype)


# ---- Quantised values ----


@composite("npu_anti_quant")
def _(x, scale, *, offset=None, dst_dtype=None, src_dtype=None):
    name = "npu_anti_quant"
    check_type(name, "x", x, torch.int8)
    wide = x.float() if offset is None else x.float() + offset.float()
    return (wide * scale.float()).to(type_of(name, "dst_dtype", dst_dtype, torch.float16))


@composite("npu_dequant_bias")
def _(x, weight_scale, activation_scale, bias, *, output_dtype=None):
    name = "npu_dequant_bias"
    check_dims(name, "x", x, 2)
    check_type(name, "x", x, torch.int32)
    if bias is not None and bias.dtype == torch.int32:
        x, bias = x + bias, None
    values = x.float() * weight_scale.float()
    if activation_scale is not None:
        values = values * activation_scale.float().reshape(-1, 1)
    return (values if bias is None else values + bias.float()).to(output_dtype or torch.float16)


@composite("npu_quant_matmul_dequant")
def _(
    x, quantized_weight, weight_scale, *, bias=None, x_scale=None, x_offset=None, smooth_scale=None,
    quant_mode="pertoken",
):  # fmt: skip
    name = "npu_quant_matmul_dequant"
    refuse(name, bias=bias, x_offset=x_offset)
    check_dims(name, "quantized_weight", quantized_weight, 2)
    ends = torch.full([1], x.size(0), dtype=torch.int64, device=x.device)
    return ops.npu_quant_grouped_matmul_dequant(
        x, quantized_weight.unsqueeze(0), weight_scale.reshape(1, -1), ends, x_scale=x_scale, smooth_scale=smooth_scale,
        quant_mode=quant_mode,
    )  # fmt: skip


@composite("atb._npu_quantize_per_tensor")
def _(x, scale, zero_point, y):
    check_type("_npu_quantize_per_tensor", "y", y, torch.int8)
    y.copy_((x.float() / scale.float() + zero_point.float()).round().clamp(-128, 127).to(torch.int8))


# ---- Attention and experts ----


@composite("npu_scatter_pa_kv_cache_functional")
def _(key, value, key_cache, value_cache, slot_mapping, **options):
    key_cache, value_cache = key_cache.clone(), value_cache.clone()
    npu_scatter_pa_kv_cache(key, value, key_cache, value_cache, slot_mapping, **options)
    return key_cache, value_cache


@kernel("atb._npu_paged_attention_v2.out")
def _(
    query, key_cache, block_table, context_lens, *, value_cache=None, mask=None, num_kv_heads=0, num_heads=0,
    scale_value=1.0, mask_type=0, workspace=None, out,
):  # fmt: skip
    name = "_npu_paged_attention_v2"
    refuse(name, mask=mask)
    check(num_heads > 0 and value_cache is not None, name, "num_heads and value_cache are needed")
    _paged(
        name, query, key_cache, value_cache, num_kv_heads or num_heads, num_heads, scale_value, block_table,
        host_list(name, "context_lens", list(context_lens)), out, workspace,
    )  # fmt: skip
    return out


@meta("atb._npu_paged_attention_v2.out")
def _(query, key_cache, block_table, context_lens, *, out, **options):
    return out


@composite("npu_swiglu_quant")
def _(
    x, *, smooth_scales=None, offsets=None, group_index=None, activate_left=False, quant_mode=0, group_list_type=0,
    dst_type=None,
):  # fmt: skip
    name = "npu_swiglu_quant"
    refuse(name, group_index=group_index, dst_type=None if dst_type in (None, torch.int8) else dst_type)
    half_of(name, x, -1)
    left, right = x.float().chunk(2, -1)
    values = functional.silu(left) * right if activate_left else left * functional.silu(right)
    if quant_mode == 1:
        refuse(name, offsets=offsets)
        return quantize_rows(values if smooth_scales is None else values * smooth_scales.float())
    check(smooth_scales is not None, name, "quant_mode 0 needs smooth_scales")
    values = values * smooth_scales.float()
    values = values if offsets is None else values + offsets.float()
    return values.round().clamp(-128, 127).to(torch.int8), values.new_zeros(x.shape[:-1])


@composite("npu_sparse_flash_attention")
def npu_sparse_flash_attention(query, key, value, sparse_indices, scale_value, **options):
    name = "npu_sparse_flash_attention"
    known = {
        "block_table": None, "actual_seq_lengths_query": None, "actual_seq_lengths_kv": None, "query_rope": None,
        "key_rope": None, "sparse_block_size": 1, "layout_query": "BSND", "layout_kv": "BSND", "sparse_mode": 3,
        "pre_tokens": 2**63 - 1, "next_tokens": 2**63 - 1, "attention_mode": 0, "return_softmax_lse": False,
    }  # fmt: skip
    check(set(options) <= set(known), name, f"does not take {sorted(set(options) - set(known))} yet")
    o = {**known, **options}
    check(o["sparse_block_size"] == 1, name, f"sparse_block_size is {o['sparse_block_size']}, expected 1")
    check(o["sparse_mode"] in (0, 3), name, f"sparse_mode is {o['sparse_mode']}, expected 0 or 3")
    check(not o["return_softmax_lse"], name, "return_softmax_lse is not supported yet")
    check((o["query_rope"] is None) == (o["key_rope"] is None), name, "query_rope and key_rope come together")
    s = _Sequences(
        name, query, key, o["actual_seq_lengths_query"], o["actual_seq_lengths_kv"], o["block_table"],
        o["layout_query"], o["layout_kv"],
    )  # fmt: skip
    check(key.size(-2) == 1, name, f"there are {key.size(-2)} heads of keys, expected 1")
    flat = query.flatten(0, -3).float()
    chosen = sparse_indices.flatten(0, -3)[:, 0].to(torch.int64)
    valid = (chosen >= 0) & (chosen < s.seen(o["sparse_mode"]).unsqueeze(-1))
    index = s.index[s.sequence].gather(1, chosen.clamp(0, max(s.capacity - 1, 0)))
    keys = s.rows_of(key)[:, 0][index].float()
    values = keys if value is None else s.rows_of(value)[:, 0][index].float()
    if o["key_rope"] is not None:
        flat = torch.cat([flat, o["query_rope"].flatten(0, -3).float()], -1)
        keys = torch.cat([keys, s.rows_of(o["key_rope"])[:, 0][index].float()], -1)
    scores = torch.bmm(flat, keys.transpose(1, 2)) * scale_value
    scores = scores.masked_fill(~valid.unsqueeze(1), float("-inf"))
    weights = scores.softmax(-1).masked_fill(~valid.any(-1).view(-1, 1, 1), 0)
    out = torch.bmm(weights, values).to(query.dtype).reshape(*query.shape[:-1], values.size(-1))
    none = query.new_empty([0], dtype=torch.float32)
    return out, none, none.clone()


# ---- Tensors that are packed, products that are checked ----

declare(
    "_hans_encode(Tensor input, Tensor(a!) pdf, bool statistic, bool reshuff, Tensor(b!) mantissa, Tensor(c!) fixed, "
    "Tensor(d!) var) -> ()"
)
declare("_hans_decode(Tensor mantissa, Tensor fixed, Tensor var, Tensor pdf, bool reshuff, Tensor(a!) out) -> ()")


@meta("_hans_encode", "_hans_decode")
def _(*args):
    return None


@composite("npu_hans_encode.out")
def _(input, statistic=False, reshuff=False, *, out):
    check(len(out) == 4, "npu_hans_encode", f"out has {len(out)} tensors, expected pdf, mantissa, fixed and var")
    pdf, mantissa, fixed, var = out
    ops._hans_encode(input, pdf, statistic, reshuff, mantissa, fixed, var)
    return pdf, mantissa, fixed, var


@composite("npu_hans_decode.out")
def _(mantissa, fixed, var, pdf, reshuff=False, *, out):
    ops._hans_decode(mantissa, fixed, var, pdf, reshuff, out)
    return out


@meta("_npu_matmul_abft_verify")
def _(a, b, c, checksum_weight, *, e_max=0.001):
    name = "_npu_matmul_abft_verify"
    for argument, tensor in (("a", a), ("b", b), ("c", c)):
        check_dims(name, argument, tensor, 2)
    check(b.size(0) == a.size(1), name, f"b has shape {list(b.shape)}, expected the {a.size(1)} columns of a as rows")
    return a.new_empty([(a.size(0) + 7) // 8 * ((b.size(1) + 255) // 256)], dtype=torch.uint8)
