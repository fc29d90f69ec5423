# SPDX-License-Identifier: Apache-2.0
"""Quantised values, products of them, and what is fused with either. Sums of products of integers are exact."""
import torch
from torch_npu._errors import refused
from torch_npu._ops.checks import check, check_dims, check_type, is_int4, refuse, type_of
from torch_npu._ops.norm import half_of
from torch_npu._ops.registry import composite, declare, host_kernel, meta

ops = torch.ops.npu

_ACL_INT8, _ACL_INT4 = 2, 29

# ---- Values ----

declare(
    "_dynamic_quant(Tensor input, Tensor? smooth_scales, Tensor? group_index, int dst_type, bool asymmetric) "
    "-> (Tensor, Tensor, Tensor)"
)


@meta("_dynamic_quant")
def _(input, smooth_scales, group_index, dst_type, asymmetric):
    rows = list(input.shape[:-1])
    if dst_type == _ACL_INT4:
        columns = input.size(-1)
        check(columns % 8 == 0, "npu_dynamic_quant", f"input has {columns} columns, which 8 do not divide")
        y = input.new_empty([*rows, input.size(-1) // 8], dtype=torch.int32)
    else:
        y = input.new_empty(input.shape, dtype=torch.int8)
    scale = input.new_empty(rows, dtype=torch.float32)
    return y, scale, input.new_empty(rows if asymmetric else [0], dtype=torch.float32)


def _target(name, dst_type):
    if dst_type is not None and is_int4(dst_type):
        return _ACL_INT4
    check(
        type_of(name, "dst_type", dst_type, torch.int8) == torch.int8,
        name,
        f"dst_type is {dst_type}, expected that of int8 or quint4x2",
    )
    return _ACL_INT8


def _divide(top, limit):
    """The scale of values up to ``top``; a row of zeros has scale 0."""
    return top / limit


def _apply_scale(values, scale, limit):
    """Rounded to even; with scale 0 everything is 0."""
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    return (values * inverse).round().clamp(-limit - 1, limit).to(torch.int8)


def quantize_rows(values):
    """int8, and a scale for each row."""
    wide = values.float()
    scale = _divide(wide.abs().amax(-1), 127.0) if wide.size(-1) else wide.new_zeros(wide.shape[:-1])
    return _apply_scale(wide, scale.unsqueeze(-1), 127), scale


def _dynamic(name, input, smooth_scales, group_index, dst_type, quant_mode, dst_type_max, asymmetric):
    target = _target(name, dst_type)
    check(dst_type_max in (0, 0.0), name, f"dst_type_max is {dst_type_max}; it is not supported yet")
    check(input.dim() > 0, name, "input has no dims")
    if quant_mode == "pertoken":
        return ops._dynamic_quant(input, smooth_scales, group_index, target, asymmetric)
    check(quant_mode in ("pertensor", "perchannel"), name, f"quant_mode is '{quant_mode}', expected pertoken, "
          "pertensor or perchannel")  # fmt: skip
    refuse(name, group_index=group_index)
    values = input if smooth_scales is None else input * smooth_scales.to(input.dtype)
    if quant_mode == "pertensor":
        moved = values.reshape(1, -1)
    else:
        check(values.dim() >= 2, name, f"input has shape {list(input.shape)}; perchannel needs 2 dims")
        moved = values.transpose(-1, -2)
    check(target == _ACL_INT8, name, f"quant_mode '{quant_mode}' gives int8 only")
    y, scale, offset = ops._dynamic_quant(moved.contiguous(), None, None, target, asymmetric)
    y = y.reshape(input.shape) if quant_mode == "pertensor" else y.transpose(-1, -2).contiguous()
    return y, scale, offset


@composite("npu_dynamic_quant")
def npu_dynamic_quant(
    input, *, smooth_scales=None, group_index=None, dst_type=None, quant_mode="pertoken", dst_type_max=0.0
):
    name = "npu_dynamic_quant"
    return _dynamic(name, input, smooth_scales, group_index, dst_type, quant_mode, dst_type_max, False)[:2]


@composite("npu_dynamic_quant_asymmetric")
def _(input, *, smooth_scales=None, group_index=None, dst_type=None, quant_mode="pertoken", dst_type_max=0.0):
    name = "npu_dynamic_quant_asymmetric"
    return _dynamic(name, input, smooth_scales, group_index, dst_type, quant_mode, dst_type_max, True)


@composite("npu_dynamic_block_quant")
def npu_dynamic_block_quant(
    x, *, min_scale=0.0, round_mode="rint", dst_type=1, row_block_size=1, col_block_size=128, dst_type_max=0.0
):
    name = "npu_dynamic_block_quant"
    check_dims(name, "x", x, 2, 3)
    check(round_mode == "rint", name, f"round_mode is '{round_mode}', expected rint")
    check(row_block_size > 0 and col_block_size > 0, name, "blocks have sizes above 0")
    check(min_scale >= 0, name, f"min_scale is {min_scale}, expected no negative value")
    check(type_of(name, "dst_type", dst_type, torch.int8) == torch.int8, name, f"dst_type is {dst_type}, expected int8")
    limit = dst_type_max or 127.0
    rows, columns = x.shape[-2:]
    down, across = -rows % row_block_size, -columns % col_block_size
    wide = torch.nn.functional.pad(x.float(), (0, across, 0, down))
    blocks = wide.unflatten(-1, (-1, col_block_size)).unflatten(-3, (-1, row_block_size))
    scale = (blocks.abs().amax((-3, -1)) / limit).clamp(min=min_scale)
    quantized = _apply_scale(blocks, scale.unsqueeze(-1).unsqueeze(-3), 127)
    y = quantized.flatten(-4, -3).flatten(-2)[..., :rows, :columns].contiguous()
    return y, scale


def pack_int4(values):
    """Eight numbers of a row to an int32, the first in the lowest bits."""
    parts = values.to(torch.int64).bitwise_and(15).unflatten(-1, (-1, 8))
    word = parts[..., 0]
    for place in range(1, 8):
        word = word + parts[..., place] * 16**place
    return torch.where(word >= 2**31, word - 2**32, word).to(torch.int32)


def unpack_int4(words):
    """int8 from int32 of eight numbers each."""
    parts = [(words >> (4 * place)).bitwise_and(15) for place in range(8)]
    values = torch.stack(parts, -1).flatten(-2)
    return torch.where(values >= 8, values - 16, values).to(torch.int8)


def _round_to(name, values, number, argument="dst_type"):
    """Rounded to even, held within the type; 4-bit numbers packed."""
    if number is not None and is_int4(number):
        check(values.size(-1) % 8 == 0, name, f"there are {values.size(-1)} columns, which 8 do not divide")
        return pack_int4(values.round().clamp(-8, 7))
    dtype = type_of(name, argument, number, torch.int8)
    check(dtype in (torch.int8, torch.uint8, torch.int32), name, f"{argument} is {number}, expected an integer type")
    if dtype == torch.int32:
        return values.double().round().clamp(-(2**31), 2**31 - 1).to(dtype)
    low, high = (0, 255) if dtype == torch.uint8 else (-128, 127)
    return values.round().clamp(low, high).to(dtype)


@composite("npu_quantize")
def npu_quantize(input, scales, zero_points, dtype, axis=1, div_mode=True):
    name = "npu_quantize"
    check(-input.dim() <= axis < input.dim(), name, f"axis is {axis}, but input has shape {list(input.shape)}")
    shape = [1] * input.dim()
    shape[axis] = -1
    size = input.size(axis)

    def along(argument, tensor):
        check(
            tensor.numel() in (1, size),
            name,
            f"{argument} has shape {list(tensor.shape)}, expected one element or the {size} of dim {axis}",
        )
        return tensor.float().reshape(shape)

    scale = along("scales", scales)
    values = input.float() / scale if div_mode else input.float() * scale
    if zero_points is not None:
        values = values + along("zero_points", zero_points)
    return _round_to(name, values, dtype, "dtype")


@meta("npu_convert_weight_to_int4pack")
def npu_convert_weight_to_int4pack(weight, inner_k_tiles=0):
    name = "npu_convert_weight_to_int4pack"
    check_dims(name, "weight", weight, 2, 3)
    check_type(name, "weight", weight, torch.int32)
    check(weight.size(-1) % 8 == 0, name, f"weight has shape {list(weight.shape)}, whose last dim 8 do not divide")
    return weight.new_empty([*weight.shape[:-1], weight.size(-1) // 8])


declare("_trans_quant_param(Tensor scale, Tensor? offset) -> Tensor")


@meta("_trans_quant_param")
def _(scale, offset):
    return scale.new_empty(scale.shape, dtype=torch.int64)


@composite("npu_trans_quant_param")
def npu_trans_quant_param(scale, offset=None, round_mode=0):
    name = "npu_trans_quant_param"
    check_type(name, "scale", scale, torch.float32)
    check(round_mode in (None, 0, 1), name, f"round_mode is {round_mode}, expected 0 or 1")
    if round_mode != 1 and scale.dim() == 1:
        return ops._trans_quant_param(scale, offset)
    refuse(name, offset=offset)
    bits = scale.contiguous().view(torch.int32).to(torch.int64).bitwise_and(0xFFFFFFFF)
    # The product takes 19 bits of the scale.
    bits = (bits + 0x1000 if round_mode == 1 else bits).bitwise_and(0xFFFFE000)
    return bits.bitwise_or(1 << 46)


def _float_scale(scale):
    """Of npu_trans_quant_param, or as it is."""
    if scale.dtype == torch.int64:
        bits = scale.bitwise_and(0xFFFFFFFF)
        return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32).view(torch.float32)
    return scale.float()


# ---- Norms and activations that quantise ----


def _add_norm(x1, x2, gamma, beta, epsilon, name):
    check(x1.shape == x2.shape, name, f"x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}")
    check(
        gamma.dim() <= x1.dim() and x1.shape[x1.dim() - gamma.dim() :] == gamma.shape,
        name,
        f"gamma has shape {list(gamma.shape)}, expected the last dims of {list(x1.shape)}",
    )
    x = x1 + x2
    wide = x.float()
    dims = list(range(-gamma.dim(), 0))
    normed = wide * torch.rsqrt(wide.square().mean(dims, keepdim=True) + epsilon) * gamma.float()
    return (normed if beta is None else normed + beta.float()), x


declare(
    "_add_rms_norm_quant(Tensor x1, Tensor x2, Tensor gamma, Tensor scales1, Tensor? scales2, Tensor? zero_points1, "
    "Tensor? zero_points2, Tensor? beta, float epsilon, bool div_mode, bool has_second) -> (Tensor, Tensor, Tensor)"
)


@meta("_add_rms_norm_quant")
def _(x1, x2, gamma, scales1, scales2, zero_points1, zero_points2, beta, epsilon, div_mode, has_second):
    # Without the second scales nobody may rely on what is in the second result.
    y = x1.new_empty(x1.shape, dtype=torch.int8)
    return y, torch.empty_like(y), x1.new_empty(x1.shape)


declare(
    "_add_rms_norm_dynamic_quant(Tensor x1, Tensor x2, Tensor gamma, Tensor? smooth_scale1, Tensor? smooth_scale2, "
    "Tensor? beta, float epsilon, bool first, bool second, bool[] mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


@meta("_add_rms_norm_dynamic_quant")
def _(x1, x2, gamma, smooth_scale1, smooth_scale2, beta, epsilon, first, second, mask):
    shapes = [list(x1.shape) if wanted else [0] for wanted in (first, second)]
    rows = [list(x1.shape[:-1]) if wanted else [0] for wanted in (first, second)]
    return (
        *(x1.new_empty(shape, dtype=torch.int8) for shape in shapes),
        x1.new_empty(x1.shape),
        *(x1.new_empty(shape, dtype=torch.float32) for shape in rows),
    )


def _is_simple(x1, x2, gamma, *rest):
    """What the operators of the device take: one row for all, in the type of x1 or in float32."""
    size = x1.size(-1)
    return (
        x1.shape == x2.shape
        and x1.dtype == x2.dtype == gamma.dtype
        and x1.dtype != torch.float64
        and list(gamma.shape) == [size]
        and all(each is None or each.dim() == 1 and each.numel() in (1, size) for each in rest)
    )


@composite("npu_add_rms_norm_quant")
def npu_add_rms_norm_quant(
    x1, x2, gamma, scales1, zero_points1=None, beta=None, scales2=None, zero_points2=None, *, axis=-1, epsilon=1e-6,
    div_mode=True, dst_type=None,
):  # fmt: skip
    name = "npu_add_rms_norm_quant"
    check(axis == -1, name, f"axis is {axis}, expected -1")
    check(scales2 is not None or zero_points2 is None, name, "zero_points2 needs scales2")
    simple = _is_simple(x1, x2, gamma, scales1, zero_points1, beta, scales2, zero_points2)
    if simple and (beta is None or beta.dtype == x1.dtype) and dst_type in (None, 1):
        return ops._add_rms_norm_quant(
            x1, x2, gamma, scales1, scales2, zero_points1, zero_points2, beta, epsilon, div_mode, scales2 is not None
        )
    normed, x = _add_norm(x1, x2, gamma, beta, epsilon, name)

    def quantize(scales, zero_points):
        values = normed / scales.float() if div_mode else normed * scales.float()
        return _round_to(name, values if zero_points is None else values + zero_points.float(), dst_type)

    y1 = quantize(scales1, zero_points1)
    return y1, torch.zeros_like(y1) if scales2 is None else quantize(scales2, zero_points2), x


@composite("npu_add_rms_norm_dynamic_quant")
def npu_add_rms_norm_dynamic_quant(
    x1, x2, gamma, *, smooth_scale1=None, smooth_scale2=None, beta=None, epsilon=1e-6, output_mask=None, y_dtype=None
):
    name = "npu_add_rms_norm_dynamic_quant"
    target = _target(name, y_dtype)
    both = smooth_scale1 is not None and smooth_scale2 is not None
    wants = [True, both] if output_mask is None else list(output_mask)
    check(len(wants) == 2 and any(wants), name, f"output_mask is {output_mask}, expected one or both to be True")
    simple = _is_simple(x1, x2, gamma, smooth_scale1, smooth_scale2, beta) and all(
        each is None or each.dtype == x1.dtype for each in (smooth_scale1, smooth_scale2, beta)
    )
    if simple and target == _ACL_INT8:
        given = (smooth_scale1, smooth_scale2, beta, epsilon, *wants, wants)
        return ops._add_rms_norm_dynamic_quant(x1, x2, gamma, *given)
    normed, x = _add_norm(x1, x2, gamma, beta, epsilon, name)
    results, scales = [], []
    for wanted, smooth in zip(wants, (smooth_scale1, smooth_scale2)):
        if wanted:
            y, scale, _ = ops._dynamic_quant(
                normed if smooth is None else normed * smooth.float(), None, None, target, False
            )
        else:
            y = normed.new_empty([0], dtype=torch.int32 if target == _ACL_INT4 else torch.int8)
            scale = normed.new_empty([0])
        results.append(y)
        scales.append(scale)
    return (*results, x, *scales)


def _groups_of(name, group_index, rows, device):
    """The group of each row, for groups of so many rows each; behind the last one: as many as there are."""
    ends = group_index.to(torch.int64).cumsum(0)
    return torch.searchsorted(ends, torch.arange(rows, device=device), right=True)


def _by_group(name, argument, tensor, group, groups):
    """A row of the tensor for each row of a group; one row, or no dim for rows: the same for all."""
    wide = tensor.float()
    if wide.dim() < 2:
        return wide
    if group is None or wide.size(0) == 1:
        check(wide.size(0) == 1, name, f"{argument} has {wide.size(0)} rows, but there is no group_index")
        return wide
    check(wide.size(0) == groups, name, f"{argument} has {wide.size(0)} rows for {groups} groups")
    return wide[group.clamp(max=groups - 1)]


declare(
    "_dequant_swiglu_quant(Tensor x, Tensor? weight_scale, Tensor? activation_scale, Tensor? bias, "
    "Tensor? quant_scale, Tensor? quant_offset, bool activate_left, str quant_mode, int swiglu_mode, "
    "float clamp_limit, float glu_alpha, float glu_bias, bool is_dynamic) -> (Tensor, Tensor)"
)


@meta("_dequant_swiglu_quant")
def _(
    x, weight_scale, activation_scale, bias, quant_scale, quant_offset, activate_left, quant_mode, swiglu_mode,
    clamp_limit, glu_alpha, glu_bias, is_dynamic,
):  # fmt: skip
    y = x.new_empty(half_of("npu_dequant_swiglu_quant", x, -1), dtype=torch.int8)
    return y, x.new_empty(x.shape[:-1], dtype=torch.float32)


@composite("npu_dequant_swiglu_quant")
def npu_dequant_swiglu_quant(
    x, *, weight_scale=None, activation_scale=None, bias=None, quant_scale=None, quant_offset=None, group_index=None,
    activate_left=False, quant_mode=0, dst_type=None, round_mode=None, activate_dim=None, swiglu_mode=0,
    clamp_limit=7.0, glu_alpha=1.702, glu_bias=1.0,
):  # fmt: skip
    name = "npu_dequant_swiglu_quant"
    check(x.dim() >= 2, name, f"x has shape {list(x.shape)}, expected 2 dims or more")
    check(activate_dim in (None, -1, x.dim() - 1), name, f"activate_dim is {activate_dim}; only the last is supported")
    check(round_mode in (None, 0), name, f"round_mode is {round_mode}, expected 0 (to even)")
    check(quant_mode in (0, 1), name, f"quant_mode is {quant_mode}, expected 0 or 1")
    check(swiglu_mode in (0, 1), name, f"swiglu_mode is {swiglu_mode}, expected 0 or 1")
    check(type_of(name, "dst_type", dst_type, torch.int8) == torch.int8, name, f"dst_type is {dst_type}, expected int8")
    half = half_of(name, x, -1)
    check(x.dtype != torch.int32 or weight_scale is not None, name, "x is int32 and needs weight_scale")
    check(quant_mode == 1 or quant_scale is not None, name, "quant_mode 0 needs quant_scale")
    rows = x.reshape(-1, x.size(-1))
    group = groups = None
    plain = all(
        each is None or each.dtype == torch.float32 and each.dim() == 1
        for each in (weight_scale, quant_scale, quant_offset)
    )
    plain = plain and (activation_scale is None or activation_scale.dtype == torch.float32)
    # The bias of an int32 x is int32, or is added behind the scales.
    plain = plain and (bias is None or bias.dim() == 1) and x.dtype == torch.int32
    if plain and group_index is None and quant_mode == 1:
        if activation_scale is not None:
            activation_scale = activation_scale.reshape(-1)
        return ops._dequant_swiglu_quant(
            x, weight_scale, activation_scale, bias, quant_scale, quant_offset, activate_left, "dynamic", swiglu_mode,
            clamp_limit, glu_alpha, glu_bias, True,
        )  # fmt: skip
    if group_index is not None:
        groups = group_index.numel()
        group = _groups_of(name, group_index, rows.size(0), x.device)
    if bias is not None and bias.dtype == torch.int32 and x.dtype == torch.int32:
        values = (rows + (bias if bias.dim() < 2 or group is None else bias[group.clamp(max=groups - 1)])).float()
        bias = None
    else:
        values = rows.float()
    if weight_scale is not None:
        values = values * _by_group(name, "weight_scale", weight_scale, group, groups)
    if activation_scale is not None:
        values = values * activation_scale.float().reshape(-1, 1)
    if bias is not None:
        values = values + _by_group(name, "bias", bias, group, groups)
    if swiglu_mode == 1:
        gate, linear = (values[..., ::2], values[..., 1::2])
        gate, linear = gate.clamp(max=clamp_limit), linear.clamp(-clamp_limit, clamp_limit)
        values = gate * torch.sigmoid(glu_alpha * gate) * (linear + glu_bias)
    else:
        left, right = values.chunk(2, -1)
        values = torch.nn.functional.silu(left) * right if activate_left else left * torch.nn.functional.silu(right)
    if quant_mode == 0:
        check(quant_scale is not None, name, "quant_mode 0 needs quant_scale")
        values = values / _by_group(name, "quant_scale", quant_scale, group, groups)
        if quant_offset is not None:
            values = values + _by_group(name, "quant_offset", quant_offset, group, groups)
        y, scale = values.round().clamp(-128, 127).to(torch.int8), values.new_zeros(rows.size(0))
    else:
        if quant_scale is not None:
            values = values * _by_group(name, "quant_scale", quant_scale, group, groups)
        y, scale = quantize_rows(values)
    if group is not None:  # rows of no group
        rest = group >= groups
        y, scale = y.masked_fill(rest.unsqueeze(-1), 0), scale.masked_fill(rest, 0)
    return y.reshape(half), scale.reshape(x.shape[:-1])


# ---- Products ----

declare("_int_matmul(Tensor x1, Tensor x2) -> Tensor")
host_kernel("_int_matmul")
declare("_grouped_int_matmul(Tensor x, Tensor[] weight, Tensor group_list, int group_list_type) -> Tensor")
host_kernel("_grouped_int_matmul")


@meta("_int_matmul")
def _(x1, x2):
    name = "npu_quant_matmul"
    check(
        x1.dim() >= 2 and x2.dim() >= 2 and x1.size(-1) == x2.size(-2),
        name,
        f"x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}, which have no product",
    )
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return x1.new_empty([*batch, x1.size(-2), x2.size(-1)], dtype=torch.int32)


@meta("_grouped_int_matmul")
def _(x, weight, group_list, group_list_type):
    for each in weight:
        check(
            each.size(-2) == x.size(-1) and each.size(-1) == weight[0].size(-1),
            "npu_grouped_matmul",
            f"x has shape {list(x.shape)} and a weight {list(each.shape)}, which have no product",
        )
    return x.new_empty([x.size(0), weight[0].size(-1)], dtype=torch.int32)


def _check_no_float_types(name, **numbers):
    for argument, number in numbers.items():
        if number is not None and not is_int4(number):
            type_of(name, argument, number, None)


declare(
    "_quant_matmul(Tensor x1, Tensor x2, Tensor scale, Tensor? offset, Tensor? pertoken_scale, Tensor? bias, "
    "ScalarType output) -> Tensor"
)


@meta("_quant_matmul")
def _(x1, x2, scale, offset, pertoken_scale, bias, output):
    check(
        x1.dim() >= 2 and x2.dim() >= 2 and x1.size(-1) == x2.size(-2),
        "npu_quant_matmul",
        f"x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}, which have no product",
    )
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return x1.new_empty([*batch, x1.size(-2), x2.size(-1)], dtype=output)


@composite("npu_quant_matmul")
def npu_quant_matmul(
    x1, x2, scale, *, offset=None, pertoken_scale=None, bias=None, output_dtype=None, x1_dtype=None, x2_dtype=None,
    pertoken_scale_dtype=None, scale_dtype=None, group_sizes=None, y_scale=None,
):  # fmt: skip
    name = "npu_quant_matmul"
    refuse(name, y_scale=y_scale)
    _check_no_float_types(
        name, x1_dtype=x1_dtype, x2_dtype=x2_dtype, pertoken_scale_dtype=pertoken_scale_dtype, scale_dtype=scale_dtype
    )
    if group_sizes is not None and any(size not in (0, 1) for size in group_sizes):
        raise refused(
            NotImplementedError(f"{name}: group_sizes is {list(group_sizes)}; scales of groups are not supported yet")
        )
    for argument, tensor in (("x1", x1), ("x2", x2)):
        check_type(name, argument, tensor, torch.int8, torch.int32)
    if x1.dtype == torch.int32:
        x1 = unpack_int4(x1)
    if x2.dtype == torch.int32:
        # The dim of stride 1 is the one that words are made of.
        along_rows = x2.stride(-2) == 1 and x2.size(-1) > 1 and x2.stride(-1) != 1
        x2 = unpack_int4(x2.transpose(-1, -2)).transpose(-1, -2) if along_rows else unpack_int4(x2)
    output = type_of(name, "output_dtype", output_dtype, torch.int8)
    check(
        output in (torch.int8, torch.float16, torch.bfloat16, torch.int32),
        name,
        f"output_dtype is {output}, expected int8, float16, bfloat16 or int32",
    )
    columns = x2.size(-1)
    for argument, tensor in (("scale", scale), ("offset", offset)):
        check(
            tensor is None or tensor.numel() in (1, columns),
            name,
            f"{argument} has shape {list(tensor.shape) if tensor is not None else ''}, expected one element or "
            f"{columns}",
        )
    if output == torch.int32:
        int_bias = bias is None or bias.dtype == torch.int32
        check(
            int_bias and offset is None and pertoken_scale is None, name, "int32 results take an int32 bias only"
        )
    check(output == torch.int8 or offset is None, name, "offset is for results of int8")
    check(
        pertoken_scale is None or pertoken_scale.numel() in (1, x1.size(-2)),
        name,
        f"pertoken_scale has shape {list(pertoken_scale.shape) if pertoken_scale is not None else ''}, expected "
        f"{x1.size(-2)} elements",
    )
    if pertoken_scale is not None:
        pertoken_scale = pertoken_scale.reshape(-1)
        if pertoken_scale.numel() == 1 and x1.size(-2) != 1:
            pertoken_scale = pertoken_scale.expand(x1.size(-2)).contiguous()
    offset = None if offset is None else offset.reshape(-1)
    return ops._quant_matmul(x1, x2, scale.reshape(-1), offset, pertoken_scale, bias, output)


@meta("npu_weight_quant_batchmatmul")
def _(
    x, weight, antiquant_scale, antiquant_offset=None, quant_scale=None, quant_offset=None, bias=None,
    antiquant_group_size=0, inner_precise=0, weight_dtype=None,
):  # fmt: skip
    name = "npu_weight_quant_batchmatmul"
    refuse(name, quant_scale=quant_scale, quant_offset=quant_offset)
    check_dims(name, "x", x, 2)
    check_dims(name, "weight", weight, 2)
    check_type(name, "weight", weight, torch.int8, torch.int32)
    columns = weight.size(1)
    if weight.dtype == torch.int32 and weight.is_contiguous():
        columns *= 8
    return x.new_empty([x.size(0), columns])


def _permuted(name, argument, tensor, dims):
    if not dims:
        return tensor
    check(sorted(dims) == list(range(tensor.dim())), name, f"{argument} is {list(dims)}, for {tensor.dim()} dims")
    return tensor.permute(list(dims))


def _split_result(name, result, perm_y, factor):
    """[batch, m, n] as [m, batch, n], whose batch may be cut into parts: [parts, m, batch / parts * n]."""
    result = _permuted(name, "perm_y", result, perm_y or [1, 0, 2])
    factor = factor or 1
    if factor > 1:
        check(result.size(1) % factor == 0, name, f"batch_split_factor is {factor}, for {result.size(1)} matrices")
        result = result.unflatten(1, (factor, -1)).flatten(2).transpose(0, 1)
    return result.contiguous()


declare(
    "_transpose_matmul(Tensor input, Tensor weight, int[] perm_x1, int[] perm_x2, int[] perm_y, int factor) -> Tensor"
)


@meta("_transpose_matmul")
def _(input, weight, perm_x1, perm_x2, perm_y, factor):
    name = "npu_transpose_batchmatmul"
    left, right = _permuted(name, "perm_x1", input, perm_x1), _permuted(name, "perm_x2", weight, perm_x2)
    check(
        left.size(0) == right.size(0) and left.size(2) == right.size(1),
        name,
        f"input has shape {list(input.shape)} and weight {list(weight.shape)}, which have no product",
    )
    batch, rows, columns = left.size(0), left.size(1), right.size(2)
    if factor > 1:
        check(batch % factor == 0, name, f"batch_split_factor is {factor}, for {batch} matrices")
        return input.new_empty([factor, rows, batch // factor * columns])
    return input.new_empty([[batch, rows, columns][dim] for dim in perm_y])


@composite("npu_transpose_batchmatmul")
def npu_transpose_batchmatmul(
    input, weight, *, bias=None, scale=None, perm_x1=None, perm_x2=None, perm_y=None, batch_split_factor=1
):
    name = "npu_transpose_batchmatmul"
    check_dims(name, "input", input, 3)
    check_dims(name, "weight", weight, 3)
    factor, order = batch_split_factor or 1, list(perm_y or [1, 0, 2])
    check(sorted(order) == [0, 1, 2], name, f"perm_y is {order}, for 3 dims")
    if bias is None and scale is None and (factor == 1 or order == [1, 0, 2]) and input.dtype == weight.dtype:
        given = (list(perm_x1 or [0, 1, 2]), list(perm_x2 or [0, 1, 2]), order, factor)
        return ops._transpose_matmul(input, weight, *given)
    result = torch.bmm(_permuted(name, "perm_x1", input, perm_x1), _permuted(name, "perm_x2", weight, perm_x2))
    if bias is not None:
        # [n], or [batch * n]: one for each matrix.
        result = result + (bias.view(result.size(0), 1, -1) if bias.numel() != result.size(2) else bias)
    if scale is not None:
        # By batch and column, in the order of the result.
        by_column = _float_scale(scale).view(result.size(0), 1, result.size(2))
        result = (result.float() * by_column).round().clamp(-128, 127).to(torch.int8)
    return _split_result(name, result, perm_y, batch_split_factor)


@composite("npu_transpose_quant_batchmatmul")
def npu_transpose_quant_batchmatmul(
    x1, x2, dtype, *, bias=None, x1_scale=None, x2_scale=None, group_sizes=None, perm_x1=None, perm_x2=None,
    perm_y=None, batch_split_factor=1, x1_dtype=None, x2_dtype=None,
):  # fmt: skip
    name = "npu_transpose_quant_batchmatmul"
    refuse(name, bias=bias)
    _check_no_float_types(name, x1_dtype=x1_dtype, x2_dtype=x2_dtype)
    for argument, tensor in (("x1", x1), ("x2", x2)):
        check_dims(name, argument, tensor, 3)
        check_type(name, argument, tensor, torch.int8)
    output = type_of(name, "dtype", dtype, None)
    check(output in (torch.float16, torch.bfloat16, torch.float32), name, f"dtype is {output}, expected a real type")
    left = _permuted(name, "perm_x1", x1, perm_x1 or [1, 0, 2])
    right = _permuted(name, "perm_x2", x2, perm_x2 or [0, 1, 2])
    values = ops._int_matmul(left, right).float()
    if x1_scale is not None:
        values = values * (x1_scale.float() if x1_scale.numel() == 1 else x1_scale.float().view(1, -1, 1))
    if x2_scale is not None:
        values = values * (x2_scale.float() if x2_scale.numel() == 1 else x2_scale.float().view(1, 1, -1))
    return _split_result(name, values.to(output), perm_y, batch_split_factor)


# ---- Products by groups ----

declare(
    "_grouped_matmul(Tensor[] x, Tensor[] weight, Tensor[]? bias, Tensor[]? scale, Tensor[]? offset, "
    "Tensor[]? antiquant_scale, Tensor[]? antiquant_offset, Tensor[]? per_token_scale, Tensor? group_list, "
    "int split_item, int group_type, int group_list_type, int act_type, int[]? tuning_config) -> Tensor[]"
)


def _columns(weight):
    return weight.size(-1) * (8 if weight.dtype == torch.int32 and weight.stride(-1) == 1 else 1)


@meta("_grouped_matmul")
def _(
    x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale, group_list, split_item,
    group_type, group_list_type, act_type, tuning_config,
):  # fmt: skip
    name = "npu_grouped_matmul"
    check(len(x) > 0 and len(weight) > 0, name, "x and weight are lists of one tensor or more")
    check(split_item in (0, 1, 2, 3), name, f"split_item is {split_item}, expected a value from 0 to 3")
    check(group_type in (-1, 0, 2), name, f"group_type is {group_type}, expected -1, 0 or 2")
    single = len(weight) == 1 and weight[0].dim() == 3
    groups = weight[0].size(0) if single else len(weight)
    rows = sum(each.shape[:-1].numel() for each in x)
    if group_type == 2:
        check(group_list is not None, name, "group_type 2 needs group_list")
        return [x[0].new_empty([group_list.size(0), x[0].size(0), _columns(weight[0])])]
    if split_item in (2, 3):
        return [x[0].new_empty([rows, _columns(weight[0])])]
    check(
        len(x) == groups,
        name,
        f"there are {len(x)} tensors in x for {groups} weights; with split_item {split_item} each has a result",
    )
    return [
        each.new_empty([*each.shape[:-1], _columns(weight[0] if single else weight[index])])
        for index, each in enumerate(x)
    ]


def _group_tensor(name, group_list, x):
    """A list of numbers as a tensor of the device, without a copy from the host."""
    parts = [torch.full([1], int(value), dtype=torch.int64, device=x.device) for value in group_list]
    return torch.cat(parts) if parts else torch.zeros([0], dtype=torch.int64, device=x.device)


def _row_groups(group_list, group_list_type, rows):
    """The group of each row; behind the last one: as many as there are groups."""
    ends = group_list.to(torch.int64)
    if group_list_type == 2:
        ends = ends[:, 1]
    if group_list_type != 0:
        ends = ends.cumsum(0)
    return torch.searchsorted(ends.contiguous(), torch.arange(rows, device=ends.device), right=True), ends.numel()


def _list_or_none(tensors):
    return None if tensors is None or all(each.numel() == 0 for each in tensors) else list(tensors)


def _stacked(tensors):
    """[groups, ..] of a list of one for each group, or of a single one of all."""
    return tensors[0] if len(tensors) == 1 else torch.stack([each.reshape(-1) for each in tensors])


declare(
    "_grouped_quant_matmul(Tensor x, Tensor weight, Tensor[]? bias, Tensor[]? scale, Tensor[]? per_token_scale, "
    "Tensor group_list, int group_list_type, ScalarType output) -> Tensor"
)


@meta("_grouped_quant_matmul")
def _(x, weight, bias, scale, per_token_scale, group_list, group_list_type, output):
    return x.new_empty([x.size(0), weight.size(-1)], dtype=output)


def _quantized_groups(
    name, x, weight, bias, scale, per_token_scale, group_list, split_item, group_list_type, output_dtype
):
    check(len(x) == 1 and split_item in (2, 3), name, "products of int8 take a single x and give a single result")
    check(group_list is not None, name, "products of int8 need group_list")
    output = type_of(name, "output_dtype", output_dtype, torch.int8)
    x = x[0]
    if len(weight) == 1 and weight[0].dim() == 2:
        weight = [weight[0].unsqueeze(0)]
    weight = [unpack_int4(each) if each.dtype == torch.int32 else each for each in weight]
    per_token = per_token_scale is None or per_token_scale[0].dtype == torch.float32 and per_token_scale[0].dim() == 1
    if group_list_type != 2 and per_token and len(weight) == 1 and (scale is not None or output == torch.int32):
        return [ops._grouped_quant_matmul(
            x, weight[0], bias, scale, per_token_scale, group_list, group_list_type, output
        )]  # fmt: skip
    total = ops._grouped_int_matmul(x, weight, group_list, group_list_type)
    group, groups = _row_groups(group_list, group_list_type, x.size(0))
    if group_list_type == 2:
        own = torch.cat([group_list[:, 0].to(torch.int64), group_list.new_zeros(1, dtype=torch.int64)])
        group = own[group]
    last = sum(1 if each.dim() == 2 else each.size(0) for each in weight) - 1
    pick = group.clamp(max=max(last, 0))
    if bias is not None and bias[0].dtype == torch.int32:
        total = total + _stacked(bias)[pick]
        bias = None
    if output == torch.int32:
        return [total]
    check(scale is not None, name, "products of int8 need scale")
    by_group = _float_scale(_stacked(scale))
    check(by_group.dim() == 2, name, f"scale has shape {list(by_group.shape)}, expected [groups, columns]")
    values = total.float() * by_group[pick]
    if per_token_scale is not None:
        values = values * per_token_scale[0].float().reshape(-1, 1)
    if bias is not None:
        values = values + _stacked(bias).float()[pick]
    return [values.round().clamp(-128, 127).to(torch.int8) if output == torch.int8 else values.to(output)]


@composite("npu_grouped_matmul")
def npu_grouped_matmul(
    x, weight, *, bias=None, scale=None, offset=None, antiquant_scale=None, antiquant_offset=None,
    per_token_scale=None, group_list=None, activation_input=None, activation_quant_scale=None,
    activation_quant_offset=None, split_item=0, group_type=None, group_list_type=0, act_type=0, tuning_config=None,
    output_dtype=None, x_dtype=None, weight_dtype=None, scale_dtype=None, per_token_scale_dtype=None,
):  # fmt: skip
    name = "npu_grouped_matmul"
    refuse(
        name,
        activation_input=_list_or_none(activation_input),
        activation_quant_scale=_list_or_none(activation_quant_scale),
        activation_quant_offset=_list_or_none(activation_quant_offset),
    )
    _check_no_float_types(
        name, x_dtype=x_dtype, weight_dtype=weight_dtype, scale_dtype=scale_dtype,
        per_token_scale_dtype=per_token_scale_dtype,
    )  # fmt: skip
    check(len(x) > 0 and len(weight) > 0, name, "x and weight are lists of one tensor or more")
    check(act_type in (None, 0), name, f"act_type is {act_type}; activations are not supported yet")
    kind = -1 if group_type is None else group_type
    split_item, group_list_type = split_item or 0, group_list_type or 0
    check(group_list_type in (0, 1, 2), name, f"group_list_type is {group_list_type}, expected 0, 1 or 2")
    bias, scale, offset = _list_or_none(bias), _list_or_none(scale), _list_or_none(offset)
    antiquant_scale, antiquant_offset = _list_or_none(antiquant_scale), _list_or_none(antiquant_offset)
    per_token_scale = _list_or_none(per_token_scale)
    if x[0].dtype == torch.int8:
        refuse(name, offset=offset, antiquant_scale=antiquant_scale, antiquant_offset=antiquant_offset)
        check(kind == 0, name, f"group_type is {kind}; products of int8 take 0")
        return _quantized_groups(
            name, x, weight, bias, scale, per_token_scale, group_list, split_item, group_list_type, output_dtype
        )
    results = ops._grouped_matmul(
        x, weight, bias, scale, offset, antiquant_scale, antiquant_offset, per_token_scale, group_list, split_item,
        kind, group_list_type, 0, tuning_config,
    )  # fmt: skip
    output = None if output_dtype is None else type_of(name, "output_dtype", output_dtype, None)
    return results if output in (None, x[0].dtype) else [each.to(output) for each in results]


@composite("npu_grouped_matmul.List")
def _(
    x, weight, *, bias=None, scale=None, offset=None, antiquant_scale=None, antiquant_offset=None,
    per_token_scale=None, group_list=None, activation_input=None, activation_quant_scale=None,
    activation_quant_offset=None, split_item=0, group_type=None, group_list_type=0, act_type=0, output_dtype=None,
):  # fmt: skip
    numbers = None if group_list is None else list(group_list)
    kind, split = group_type, split_item or 0
    if numbers is not None and kind is None:
        kind = 0 if len(x) == 1 else -1
    if numbers is not None and split in (0, 1) and len(x) == 1 and kind == 0:
        # One result for each group of rows.
        ends = numbers
        if group_list_type == 1:
            ends = [sum(numbers[: i + 1]) for i in range(len(numbers))]
        begins = [0, *ends[:-1]]
        whole = npu_grouped_matmul(
            x, weight, bias=bias, scale=scale, offset=offset, antiquant_scale=antiquant_scale,
            antiquant_offset=antiquant_offset, per_token_scale=per_token_scale,
            group_list=_group_tensor("npu_grouped_matmul", ends, x[0]), split_item=3, group_type=0, act_type=act_type,
            output_dtype=None if output_dtype is None else _number_of(output_dtype),
        )[0]  # fmt: skip
        return [whole[begin:end].clone() for begin, end in zip(begins, ends)]
    return npu_grouped_matmul(
        x, weight, bias=bias, scale=scale, offset=offset, antiquant_scale=antiquant_scale,
        antiquant_offset=antiquant_offset, per_token_scale=per_token_scale,
        group_list=None if numbers is None else _group_tensor("npu_grouped_matmul", numbers, x[0]),
        activation_input=activation_input, activation_quant_scale=activation_quant_scale,
        activation_quant_offset=activation_quant_offset, split_item=split, group_type=kind,
        group_list_type=group_list_type, act_type=act_type,
        output_dtype=None if output_dtype is None else _number_of(output_dtype),
    )  # fmt: skip


def _number_of(dtype):
    numbers = {torch.int8: 1, torch.int32: 3, torch.float16: 5, torch.float32: 6, torch.bfloat16: 15}
    check(dtype in numbers, "npu_grouped_matmul", f"output_dtype is {dtype}")
    return numbers[dtype]


def _swiglu_quant(total, weight_scale, x_scale, smooth_scale, group, groups, bias):
    pick = group.clamp(max=max(groups - 1, 0))
    values = total.float() * weight_scale.float()[pick] * x_scale.float().reshape(-1, 1)
    if bias is not None:
        values = values + bias.float()[pick]
    left, right = values.chunk(2, -1)
    values = torch.nn.functional.silu(left) * right
    if smooth_scale is not None:
        values = values * smooth_scale.float()[pick]
    y, scale = quantize_rows(values)
    rest = group >= groups
    return y.masked_fill(rest.unsqueeze(-1), 0), scale.masked_fill(rest, 0)


@composite("npu_grouped_matmul_swiglu_quant")
def npu_grouped_matmul_swiglu_quant(x, weight, group_list, weight_scale, x_scale, *, bias=None, offset=None):
    name = "npu_grouped_matmul_swiglu_quant"
    refuse(name, offset=offset, bias=bias)
    y, scale = _grouped_swiglu_quant(name, x, [weight], [weight_scale], x_scale, group_list, None, 0)
    return y, scale, torch.zeros([], dtype=torch.float32, device=x.device)


@composite("npu_grouped_matmul_swiglu_quant_v2")
def npu_grouped_matmul_swiglu_quant_v2(
    x, weight, weight_scale, x_scale, group_list, *, smooth_scale=None, weight_assist_matrix=None, bias=None,
    dequant_mode=0, dequant_dtype=6, quant_mode=0, quant_dtype=1, group_list_type=0, tuning_config=None, x_dtype=None,
    weight_dtype=None, weight_scale_dtype=None, x_scale_dtype=None,
):  # fmt: skip
    name = "npu_grouped_matmul_swiglu_quant_v2"
    refuse(name, weight_assist_matrix=_list_or_none(weight_assist_matrix), bias=bias)
    _check_no_float_types(
        name, x_dtype=x_dtype, weight_dtype=weight_dtype, weight_scale_dtype=weight_scale_dtype,
        x_scale_dtype=x_scale_dtype,
    )  # fmt: skip
    check(dequant_mode in (None, 0) and quant_mode in (None, 0), name, "dequant_mode and quant_mode take 0 only")
    check(type_of(name, "quant_dtype", quant_dtype, torch.int8) == torch.int8, name, "quant_dtype takes int8 only")
    return _grouped_swiglu_quant(
        name, x, list(weight), list(weight_scale), x_scale, group_list, smooth_scale, group_list_type or 0
    )


def _grouped_swiglu_quant(name, x, weight, weight_scale, x_scale, group_list, smooth_scale, group_list_type):
    check_dims(name, "x", x, 2)
    check_type(name, "x", x, torch.int8)
    check(group_list_type in (0, 1), name, f"group_list_type is {group_list_type}, expected 0 or 1")
    weight = [unpack_int4(each) if each.dtype == torch.int32 else each for each in weight]
    total = ops._grouped_int_matmul(x, weight, group_list, group_list_type)
    group, groups = _row_groups(group_list, group_list_type, x.size(0))
    scales = _stacked(weight_scale)
    check(
        scales.shape == (groups, total.size(1)),
        name,
        f"weight_scale has shape {list(scales.shape)}, expected [{groups}, {total.size(1)}]",
    )
    return _swiglu_quant(total, scales, x_scale, smooth_scale, group, groups, None)


@composite("npu_quant_grouped_matmul_dequant")
def npu_quant_grouped_matmul_dequant(
    x, quantized_weight, weight_scale, group_list, *, bias=None, x_scale=None, x_offset=None, smooth_scale=None,
    quant_mode="pertoken",
):  # fmt: skip
    name = "npu_quant_grouped_matmul_dequant"
    refuse(name, bias=bias, x_offset=x_offset)
    check_dims(name, "x", x, 2)
    check_dims(name, "quantized_weight", quantized_weight, 3)
    check_type(name, "quantized_weight", quantized_weight, torch.int8)
    check(
        quantized_weight.size(2) == x.size(1) and weight_scale.shape == quantized_weight.shape[:2],
        name,
        f"quantized_weight has shape {list(quantized_weight.shape)} and weight_scale {list(weight_scale.shape)}, for "
        f"x of {list(x.shape)}",
    )
    check(quant_mode in ("pertoken", "pertensor"), name, f"quant_mode is '{quant_mode}'")
    values = x.float() if smooth_scale is None else x.float() * smooth_scale.float()
    if x_scale is not None:
        scale = x_scale.float().reshape(-1, 1)
        quantized = (values / scale).round().clamp(-128, 127).to(torch.int8)
    elif quant_mode == "pertoken":
        quantized, scale = quantize_rows(values)
        scale = scale.unsqueeze(-1)
    else:
        quantized, scale = quantize_rows(values.reshape(1, -1))
        quantized = quantized.view(x.shape)
    total = ops._grouped_int_matmul(quantized, [quantized_weight.transpose(1, 2)], group_list, 0)
    group, groups = _row_groups(group_list, 0, x.size(0))
    result = total.float() * _float_scale(weight_scale)[group.clamp(max=max(groups - 1, 0))] * scale
    return result.masked_fill((group >= groups).unsqueeze(-1), 0).to(x.dtype)
