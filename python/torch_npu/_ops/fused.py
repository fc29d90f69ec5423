# SPDX-License-Identifier: Apache-2.0
"""Norms, activations and products of rank B that do several things at once."""
import torch
from torch_npu._ops.checks import check, check_dims, check_type, refuse, type_of
from torch_npu._ops.norm import half_of, statistics_like
from torch_npu._ops.quantization import _check_no_float_types, _float_scale, _round_to, _row_groups, quantize_rows
from torch_npu._ops.registry import composite

ops = torch.ops.npu
functional = torch.nn.functional

# ---- Norms ----


@composite("npu_layer_norm_eval", differentiable=True)
def _(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return functional.layer_norm(input, normalized_shape, weight, bias, eps)


@composite("npu_gemma_rms_norm")
def _(input, gamma, epsilon=1e-6):
    statistics_like("npu_gemma_rms_norm", input, gamma)
    wide = input.float()
    rstd = torch.rsqrt(wide.square().mean(list(range(-gamma.dim(), 0)), keepdim=True) + epsilon)
    return (wide * rstd * (gamma.float() + 1)).to(input.dtype), rstd


@composite("npu_group_norm_swish", differentiable=True)
def _(input, num_groups, weight, bias, eps=1e-5, swish_scale=1.0):
    name = "npu_group_norm_swish"
    check(
        input.dim() >= 2 and num_groups > 0 and input.size(1) % num_groups == 0,
        name,
        f"input has shape {list(input.shape)}, for {num_groups} groups",
    )
    batch, channels = input.shape[:2]
    rest = input.shape[2:].numel()
    out, mean, rstd = torch.native_group_norm(
        input.contiguous(), weight, bias, batch, channels, rest, num_groups, 1e-5 if eps is None else eps
    )
    return out * torch.sigmoid(out * (1.0 if swish_scale is None else swish_scale)), mean, rstd


@composite("npu_rms_norm_quant_v2")
def _(x, gamma, scale, *, offset=None, beta=None, epsilon=1e-6, div_mode=True, dst_dtype=None):
    name = "npu_rms_norm_quant_v2"
    statistics_like(name, x, gamma)
    wide = x.float()
    rstd = torch.rsqrt(wide.square().mean(list(range(-gamma.dim(), 0)), keepdim=True) + epsilon)
    normed = wide * rstd * gamma.float()
    normed = normed if beta is None else normed + beta.float()
    values = normed / scale.float() if div_mode else normed * scale.float()
    values = values if offset is None else values + offset.float()
    return _round_to(name, values, dst_dtype, "dst_dtype"), rstd


@composite("_npu_rms_norm_backward_quant")
def _(dy, x, rstd, gamma, scale_x, *, offset_x=None, div_mode=True, quant_mode="static", dst_type=1):
    name = "_npu_rms_norm_backward_quant"
    check(quant_mode == "static", name, f"quant_mode is '{quant_mode}', expected static")
    dx, dgamma = ops.npu_rms_norm_backward(dy, x, gamma, rstd)
    values = dx.float() / scale_x.float() if div_mode else dx.float() * scale_x.float()
    values = values if offset_x is None else values + offset_x.float()
    return _round_to(name, values, dst_type), dgamma


@composite("atb._npu_quant_rms_norm")
def _(self, gamma, beta, scale, offset, output, eps=1e-5):
    name = "_npu_quant_rms_norm"
    check_type(name, "output", output, torch.int8)
    check(output.shape == self.shape, name, f"output has shape {list(output.shape)} and self {list(self.shape)}")
    wide = self.float()
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    values = (wide * rstd * gamma.float() + beta.float()) / scale.float() + offset.float()
    output.copy_(values.round().clamp(-128, 127).to(torch.int8))


# ---- Activations ----


def _gelu(name, x, approximate):
    check(approximate in ("none", "tanh"), name, f"approximate is '{approximate}', expected none or tanh")
    return functional.gelu(x, approximate=approximate)


@composite("npu_gelu_mul", differentiable=True)
def _(input, *, approximate="none"):
    half_of("npu_gelu_mul", input, -1)
    left, right = input.chunk(2, -1)
    return _gelu("npu_gelu_mul", left, approximate) * right


@composite("npu_gelu_quant")
def _(
    input, *, input_scale=None, input_offset=None, approximate="none", quant_mode="dynamic", dst_type=None,
    round_mode="rint",
):  # fmt: skip
    name = "npu_gelu_quant"
    check(quant_mode in ("dynamic", "static"), name, f"quant_mode is '{quant_mode}', expected dynamic or static")
    check(round_mode == "rint", name, f"round_mode is '{round_mode}', expected rint")
    check(type_of(name, "dst_type", dst_type, torch.int8) == torch.int8, name, f"dst_type is {dst_type}, expected int8")
    values = _gelu(name, input.float(), approximate)
    if quant_mode == "dynamic":
        refuse(name, input_offset=input_offset)
        return quantize_rows(values if input_scale is None else values * input_scale.float())
    check(input_scale is not None, name, "quant_mode 'static' needs input_scale")
    values = values * input_scale.float()
    values = values if input_offset is None else values + input_offset.float()
    return values.round().clamp(-128, 127).to(torch.int8), values.new_empty([0])


# ---- Products ----


@composite("npu_fused_matmul")
def _(x1, x2, *, bias=None, x3=None, fused_op_type=""):
    name = "npu_fused_matmul"
    check(
        fused_op_type in ("", "add", "mul", "gelu_erf", "gelu_tanh", "relu"),
        name,
        f"fused_op_type is '{fused_op_type}', expected add, mul, gelu_erf, gelu_tanh, relu or nothing",
    )
    check((x3 is not None) == (fused_op_type in ("add", "mul")), name, "x3 belongs to the types add and mul")
    result = torch.matmul(x1, x2)
    if bias is not None:
        result = result + bias
    if fused_op_type == "add":
        return result + x3
    if fused_op_type == "mul":
        return result * x3
    if fused_op_type == "relu":
        return result.relu()
    return functional.gelu(result, approximate="tanh" if fused_op_type == "gelu_tanh" else "none") if (
        fused_op_type
    ) else result


@composite("npu_quant_matmul_reduce_sum")
def _(x1, x2, *, x1_scale=None, x2_scale=None):
    name = "npu_quant_matmul_reduce_sum"
    for argument, tensor in (("x1", x1), ("x2", x2)):
        check_dims(name, argument, tensor, 3)
        check_type(name, argument, tensor, torch.int8)
    check(x1_scale is not None and x2_scale is not None, name, "x1_scale and x2_scale are needed")
    check(
        x1.size(0) == x2.size(0) and x1_scale.shape == x1.shape[:2] and x2_scale.numel() == x2.size(2),
        name,
        f"x1 has shape {list(x1.shape)}, x2 {list(x2.shape)}, x1_scale {list(x1_scale.shape)} and x2_scale "
        f"{list(x2_scale.shape)}",
    )
    products = ops._int_matmul(x1, x2).float() * x1_scale.float().unsqueeze(-1)
    return (products.sum(0) * x2_scale.float().reshape(-1)).to(torch.bfloat16)


@composite("npu_quant_matmul_gelu")
def _(x1, x2, x1_scale, x2_scale, *, bias=None, approximate="gelu_erf"):
    name = "npu_quant_matmul_gelu"
    check(
        approximate in (None, "gelu_erf", "gelu_tanh"), name, f"approximate is '{approximate}', expected gelu_erf or "
        "gelu_tanh",
    )  # fmt: skip
    number = 15 if x2_scale.dtype == torch.bfloat16 else 5
    product = ops.npu_quant_matmul(x1, x2, x2_scale, pertoken_scale=x1_scale, bias=bias, output_dtype=number)
    return functional.gelu(product, approximate="tanh" if approximate == "gelu_tanh" else "none")


def _grouped_add(name, input, x, weight, group_list, transpose_x, transpose_weight, group_type, group_list_type):
    check(
        transpose_x and not transpose_weight and group_type == 2,
        name,
        "transpose_x is True, transpose_weight False and group_type 2",
    )
    check_dims(name, "x", x, 2)
    check_dims(name, "weight", weight, 2)
    check(x.size(0) == weight.size(0), name, f"x has {x.size(0)} rows and weight {weight.size(0)}")
    product = ops._grouped_matmul(
        [x.t()], [weight], None, None, None, None, None, None, group_list, 3, 2, group_list_type or 0, 0, None
    )[0]
    check(
        product.numel() == input.numel(),
        name,
        f"input has shape {list(input.shape)}, but the products have {list(product.shape)}",
    )
    return product.view(input.shape)


@composite("npu_grouped_matmul_add")
def _(input, x, weight, group_list, *, transpose_x=True, transpose_weight=False, group_type=2, group_list_type=0):
    name = "npu_grouped_matmul_add"
    given = (transpose_x, transpose_weight, group_type, group_list_type)
    return input + _grouped_add(name, input, x, weight, group_list, *given)


@composite("npu_grouped_matmul_add_")
def _(input, x, weight, group_list, *, transpose_x=True, transpose_weight=False, group_type=2, group_list_type=0):
    name = "npu_grouped_matmul_add_"
    given = (transpose_x, transpose_weight, group_type, group_list_type)
    return input.add_(_grouped_add(name, input, x, weight, group_list, *given))


@composite("npu_grouped_matmul_finalize_routing")
def _(
    x, w, group_list, *, scale=None, bias=None, offset=None, pertoken_scale=None, shared_input=None, logit=None,
    row_index=None, dtype=None, shared_input_weight=1.0, shared_input_offset=0, output_bs=0, group_list_type=1,
    tuning_config=None, x_dtype=None, w_dtype=None, scale_dtype=None, pertoken_scale_dtype=None,
):  # fmt: skip
    name = "npu_grouped_matmul_finalize_routing"
    refuse(name, bias=bias, offset=offset)
    _check_no_float_types(
        name, x_dtype=x_dtype, w_dtype=w_dtype, scale_dtype=scale_dtype, pertoken_scale_dtype=pertoken_scale_dtype
    )
    check(
        scale is not None and pertoken_scale is not None and logit is not None and row_index is not None,
        name,
        "scale, pertoken_scale, logit and row_index are needed",
    )
    check_dims(name, "x", x, 2)
    check_dims(name, "w", w, 3)
    check_type(name, "x", x, torch.int8)
    check_type(name, "w", w, torch.int8)
    check(output_bs > 0, name, f"output_bs is {output_bs}, expected a value above 0")
    check(group_list_type in (0, 1), name, f"group_list_type is {group_list_type}, expected 0 or 1")
    check(dtype in (None, torch.float32), name, f"dtype is {dtype}, expected torch.float32")
    group, groups = _row_groups(group_list, group_list_type, x.size(0))
    by_group = _float_scale(scale).reshape(groups, -1)[group.clamp(max=max(groups - 1, 0))]
    rows = ops._grouped_int_matmul(x, [w], group_list, group_list_type).float() * by_group
    rows = rows * (pertoken_scale.float() * logit.float()).reshape(-1, 1)
    rows = rows.masked_fill((group >= groups).unsqueeze(1), 0)
    result = rows.new_zeros([output_bs, rows.size(1)]).index_add(0, row_index.to(torch.int64), rows)
    if shared_input is None:
        return result
    first, count = shared_input_offset or 0, shared_input.size(0)
    check(
        0 <= first and first + count <= output_bs and shared_input.size(1) == rows.size(1),
        name,
        f"shared_input has shape {list(shared_input.shape)} and shared_input_offset is {first}, for {output_bs} rows",
    )
    shared = shared_input.float() * (1.0 if shared_input_weight is None else shared_input_weight)
    return result + functional.pad(shared, (0, 0, first, output_bs - first - count))


_ACTIVATIONS = {
    "relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu,
    "fastgelu": lambda x: x * torch.sigmoid(1.702 * x),
}  # fmt: skip


@composite("npu_ffn")
def _(
    x, weight1, weight2, activation, *, expert_tokens=None, expert_tokens_index=None, bias1=None, bias2=None,
    scale=None, offset=None, deq_scale1=None, deq_scale2=None, antiquant_scale1=None, antiquant_scale2=None,
    antiquant_offset1=None, antiquant_offset2=None, inner_precise=None, output_dtype=None,
):  # fmt: skip
    name = "npu_ffn"
    refuse(
        name, scale=scale, offset=offset, deq_scale1=deq_scale1, deq_scale2=deq_scale2,
        antiquant_scale1=antiquant_scale1, antiquant_scale2=antiquant_scale2, antiquant_offset1=antiquant_offset1,
        antiquant_offset2=antiquant_offset2, output_dtype=output_dtype,
    )  # fmt: skip
    check(
        activation in _ACTIVATIONS, name, f"activation is '{activation}', expected one of {', '.join(_ACTIVATIONS)}"
    )
    check(expert_tokens is None or expert_tokens_index is None, name, "expert_tokens and expert_tokens_index exclude "
          "each other")  # fmt: skip
    act = _ACTIVATIONS[activation]

    def layers(rows, first, first_bias, second, second_bias):
        hidden = torch.matmul(rows, first)
        hidden = act(hidden if first_bias is None else hidden + first_bias.to(hidden.dtype))
        result = torch.matmul(hidden, second)
        return result if second_bias is None else result + second_bias.to(result.dtype)

    ends = expert_tokens_index
    if expert_tokens is not None:
        ends = [sum(expert_tokens[: place + 1]) for place in range(len(expert_tokens))]
    if ends is None:
        check_dims(name, "weight1", weight1, 2)
        return layers(x, weight1, bias1, weight2, bias2)
    check_dims(name, "weight1", weight1, 3)
    rows = x.reshape(-1, x.size(-1))
    check(
        len(ends) == weight1.size(0) and list(ends) == sorted(ends) and (not ends or ends[-1] == rows.size(0)),
        name,
        f"the tokens of experts end at {list(ends)}, for {weight1.size(0)} experts and {rows.size(0)} tokens",
    )
    parts, begin = [], 0
    for expert, end in enumerate(ends):
        if end > begin:
            parts.append(
                layers(
                    rows[begin:end], weight1[expert], None if bias1 is None else bias1[expert], weight2[expert],
                    None if bias2 is None else bias2[expert],
                )  # fmt: skip
            )
        begin = end
    whole = torch.cat(parts) if parts else rows.new_zeros([0, weight2.size(-1)])
    return whole.view(*x.shape[:-1], weight2.size(-1))


def _low_rank(name, input, x, weight_b, indices, weight_a, layer_idx, scale, y_offset, y_slice_size):
    check_dims(name, "input", input, 2)
    check_dims(name, "x", x, 2)
    check_dims(name, "weight_b", weight_b, 4)
    check(
        0 <= layer_idx < weight_b.size(1),
        name,
        f"layer_idx is {layer_idx}, for weights of {weight_b.size(1)} layers",
    )
    count = weight_b.size(0)
    size = weight_b.size(2)
    check(y_slice_size in (-1, size), name, f"y_slice_size is {y_slice_size}, expected {size}")
    check(
        0 <= y_offset and y_offset + size <= input.size(1) and indices.shape == x.shape[:1] == input.shape[:1],
        name,
        f"input has shape {list(input.shape)}, x {list(x.shape)} and indices {list(indices.shape)}; y_offset is "
        f"{y_offset}",
    )
    chosen = indices.to(torch.int64)
    known = ((chosen >= 0) & (chosen < count)).unsqueeze(1)
    chosen = chosen.clamp(0, max(count - 1, 0))
    rows = x.float()
    if weight_a is not None:
        rows = torch.bmm(weight_a[chosen, layer_idx].float(), rows.unsqueeze(2)).squeeze(2).to(x.dtype).float()
    part = torch.bmm(weight_b[chosen, layer_idx].float(), rows.unsqueeze(2)).squeeze(2) * scale
    part = part.masked_fill(~known, 0)
    return functional.pad(part, (y_offset, input.size(1) - y_offset - size))


@composite("npu_batch_gather_matmul")
def _(input, x, weight_b, indices, weight_a=None, layer_idx=0, scale=1e-3, y_offset=0, y_slice_size=-1):
    name = "npu_batch_gather_matmul"
    added = _low_rank(name, input, x, weight_b, indices, weight_a, layer_idx, scale, y_offset, y_slice_size)
    return (input.float() + added).to(input.dtype)


@composite("npu_batch_gather_matmul_")
def _(input, x, weight_b, indices, weight_a=None, layer_idx=0, scale=1e-3, y_offset=0, y_slice_size=-1):
    name = "npu_batch_gather_matmul_"
    added = _low_rank(name, input, x, weight_b, indices, weight_a, layer_idx, scale, y_offset, y_slice_size)
    return input.copy_(input.float() + added)


# ---- Quantised values ----


@composite("npu_group_quant")
def _(x, scale, group_index, *, offset=None, dst_dtype=None):
    name = "npu_group_quant"
    check_dims(name, "x", x, 2)
    check_dims(name, "scale", scale, 2)
    check(
        scale.size(0) == group_index.numel() and scale.size(1) == x.size(1),
        name,
        f"scale has shape {list(scale.shape)}, expected [{group_index.numel()}, {x.size(1)}]",
    )
    check(dst_dtype in (None, torch.int8, torch.qint8), name, f"dst_dtype is {dst_dtype}, expected torch.int8")
    group, groups = _row_groups(group_index, 0, x.size(0))
    values = x.float() * scale.float()[group.clamp(max=max(groups - 1, 0))]
    values = values if offset is None else values + offset.float()
    return values.round().clamp(-128, 127).to(torch.int8).masked_fill((group >= groups).unsqueeze(1), 0)


def _quant_scatter(name, input, indices, updates, scales, zero_points, axis, quant_axis, reduce, dst_type, round_mode):
    check(reduce == "update", name, f"reduce is '{reduce}', expected update")
    check(round_mode in (None, "rint"), name, f"round_mode is '{round_mode}', expected rint")
    check(type_of(name, "dst_type", dst_type, torch.int8) == torch.int8, name, f"dst_type is {dst_type}, expected int8")
    check_type(name, "input", input, torch.int8)
    dims = input.dim()
    check(
        updates.dim() == dims and dims >= 2 and indices.dim() == 1 and -dims <= axis < dims,
        name,
        f"input has shape {list(input.shape)}, updates {list(updates.shape)} and indices {list(indices.shape)}",
    )
    axis %= dims
    check(axis != 0 and indices.size(0) == updates.size(0) <= input.size(0), name, f"axis is {axis}, for "
          f"{indices.size(0)} indices")  # fmt: skip
    check(quant_axis % dims == dims - 1, name, f"quant_axis is {quant_axis}, expected -1")
    values = updates.float() / scales.float().reshape(-1)
    values = values if zero_points is None else values + zero_points.float().reshape(-1)
    rows = values.round().clamp(-128, 127).to(torch.int8)
    place = torch.arange(updates.size(axis), device=input.device) + indices.to(torch.int64).unsqueeze(1)
    place = place.view(updates.size(0), *[1] * (axis - 1), -1, *[1] * (dims - axis - 1)).expand(updates.shape)
    return input.scatter(axis, place, rows)


@composite("npu_quant_scatter")
def _(
    input, indices, updates, quant_scales, quant_zero_points=None, axis=-2, quant_axis=-1, reduce="update",
    dst_type=None, round_mode="rint",
):  # fmt: skip
    given = (quant_scales, quant_zero_points, axis, quant_axis, reduce, dst_type, round_mode)
    return _quant_scatter("npu_quant_scatter", input, indices, updates, *given)


@composite("npu_quant_scatter_")
def _(
    input, indices, updates, quant_scales, quant_zero_points=None, axis=-2, quant_axis=-1, reduce="update",
    dst_type=None, round_mode="rint",
):  # fmt: skip
    given = (quant_scales, quant_zero_points, axis, quant_axis, reduce, dst_type, round_mode)
    return input.copy_(_quant_scatter("npu_quant_scatter_", input, indices, updates, *given))


# ---- Cells ----


@composite("npu_lstm_cell")
def _(input, w_ih, w_hh, h, c, b_ih=None, b_hh=None):
    name = "npu_lstm_cell"
    for argument, tensor in (("input", input), ("w_ih", w_ih), ("w_hh", w_hh), ("h", h), ("c", c)):
        check_dims(name, argument, tensor, 2)
    size = h.size(1)
    check(
        list(w_ih.shape) == [input.size(1), 4 * size] and list(w_hh.shape) == [size, 4 * size] and c.shape == h.shape,
        name,
        f"w_ih has shape {list(w_ih.shape)} and w_hh {list(w_hh.shape)}, expected [{input.size(1)}, {4 * size}] and "
        f"[{size}, {4 * size}]",
    )
    check(input.size(0) == h.size(0), name, f"input has {input.size(0)} rows and h {h.size(0)}")
    gates = torch.mm(input, w_ih) + torch.mm(h, w_hh)
    for bias in (b_ih, b_hh):
        gates = gates if bias is None else gates + bias
    i, f, j, o = gates.chunk(4, 1)  # the candidate is j
    i, f, j, o = i.sigmoid(), f.sigmoid(), j.tanh(), o.sigmoid()
    cell = f * c + i * j
    squashed = cell.tanh()
    hidden = o * squashed
    return hidden, hidden.clone(), cell, i, j, f, o, squashed


@composite("npu_lstm_cell_backward")
def _(grady, gradh, gradc, input, w_ih, w_hh, h, c, y_output, h_output, c_output, i, j, f, o, tanhc):
    of_hidden = torch.zeros_like(h)
    for grad in (grady, gradh):
        of_hidden = of_hidden if grad is None else of_hidden + grad
    of_cell = of_hidden * o * (1 - tanhc * tanhc)
    of_cell = of_cell if gradc is None else of_cell + gradc
    gates = torch.cat(
        [
            of_cell * j * i * (1 - i),
            of_cell * c * f * (1 - f),
            of_cell * i * (1 - j * j),
            of_hidden * tanhc * o * (1 - o),
        ],
        1,
    )
    of_bias = gates.sum(0)
    return (
        torch.mm(gates, w_ih.t()), torch.mm(input.t(), gates), torch.mm(h.t(), gates), of_bias, of_bias.clone(),
        torch.mm(gates, w_hh.t()), of_cell * f,
    )  # fmt: skip
