# SPDX-License-Identifier: Apache-2.0
"""Convolutions under the names of the published package, and what lies in parts of images."""
import torch
from torch_npu._errors import refused
from torch_npu._ops.checks import check, check_dims
from torch_npu._ops.registry import composite, declare, derivative, meta

ops = torch.ops.npu
aten = torch.ops.aten


def _check_sizes(name, input, weight, *dims):
    check_dims(name, "input", input, *dims)
    check(
        weight.dim() == input.dim(),
        name,
        f"weight has shape {list(weight.shape)} and input {list(input.shape)}, expected as many dims",
    )


def _convolve(name, *dims):
    @composite(name, differentiable=True)
    def _(input, weight, bias, stride, padding, dilation, groups):
        _check_sizes(name, input, weight, *dims)
        none = [0] * (input.dim() - 2)
        return aten.convolution(input, weight, bias, stride, padding, dilation, False, none, groups)


_convolve("npu_conv2d", 4)
_convolve("npu_conv3d", 5)
_convolve("npu_convolution", 4, 5)


def _convolve_into(name, function):
    @composite(name)
    def _(input, weight, bias, stride, padding, dilation, groups, *, out):
        result = function(input, weight, bias, stride, padding, dilation, groups)
        check(
            out.shape == result.shape and out.dtype == result.dtype,
            name,
            f"out has shape {list(out.shape)} and type {out.dtype}, expected {list(result.shape)} and {result.dtype}",
        )
        return out.copy_(result)


_convolve_into("npu_conv2d.out", lambda *given: ops.npu_conv2d(*given))
_convolve_into("npu_conv3d.out", lambda *given: ops.npu_conv3d(*given))


def _convolve_back(name, *dims):
    @composite(name, differentiable=True)
    def _(input, weight, bias, padding, output_padding, stride, dilation, groups):
        _check_sizes(name, input, weight, *dims)
        return aten.convolution(input, weight, bias, stride, padding, dilation, True, output_padding, groups)


_convolve_back("npu_conv_transpose2d", 4)
_convolve_back("npu_convolution_transpose", 4, 5)


def _gradients(input, grad, weight, stride, padding, dilation, transposed, output_padding, groups, mask):
    channels = weight.size(1) * groups if transposed else weight.size(0)
    return aten.convolution_backward(
        grad, input, weight, [channels], stride, padding, dilation, transposed, output_padding, groups, list(mask)
    )


@composite("npu_conv2d_backward", "npu_conv3d_backward", "npu_convolution_backward")
def _(input, grad, weight, stride, padding, dilation, groups, output_mask):
    none = [0] * (input.dim() - 2)
    return _gradients(input, grad, weight, stride, padding, dilation, False, none, groups, output_mask)


@composite(
    "npu_conv_transpose2d_backward", "npu_conv_transpose3d_backward", "npu_convolution_transpose_backward"
)
def _(input, grad, weight, padding, output_padding, stride, dilation, groups, mask):
    return _gradients(input, grad, weight, stride, padding, dilation, True, output_padding, groups, mask)


# ---- Deformable ----


def _check_deformable(name, input, weight, offset, kernel, stride, padding, dilation, groups, parts, modulated):
    """Sizes of the result."""
    for argument, tensor in (("input", input), ("weight", weight), ("offset", offset)):
        check_dims(name, argument, tensor, 4)
    if not modulated:
        raise refused(NotImplementedError(f"{name}: modulated must be True; masks of ones do the same"))
    counted = (("kernel_size", kernel, 2), ("stride", stride, 4), ("padding", padding, 4), ("dilation", dilation, 4))
    for argument, given, count in counted:
        check(len(given) == count, name, f"{argument} has {len(given)} numbers, expected {count}")
    check(min(groups, parts, *stride, *dilation) > 0, name, "groups, deformable_groups, stride, dilation are above 0")
    check(
        input.size(1) == weight.size(1) * groups and weight.size(0) % groups == 0 and input.size(1) % parts == 0,
        name,
        f"input has {input.size(1)} channels and weight has shape {list(weight.shape)}, which {groups} groups and "
        f"{parts} deformable groups do not divide",
    )
    sizes = [
        (input.size(2 + i) + padding[2 * i] + padding[2 * i + 1] - dilation[2 + i] * (weight.size(2 + i) - 1) - 1)
        // stride[2 + i]
        + 1
        for i in (0, 1)
    ]
    wanted = [input.size(0), 3 * parts * weight.size(2) * weight.size(3), *sizes]
    check(list(offset.shape) == wanted, name, f"offset has shape {list(offset.shape)}, expected {wanted}")
    return sizes


@meta("npu_deformable_conv2d")
def _(
    input, weight, offset, bias, kernel_size, stride, padding, dilation=(1, 1, 1, 1), groups=1, deformable_groups=1,
    modulated=True,
):  # fmt: skip
    height, width = _check_deformable(
        "npu_deformable_conv2d", input, weight, offset, kernel_size, stride, padding, dilation, groups,
        deformable_groups, modulated,
    )  # fmt: skip
    result = input.new_empty([input.size(0), weight.size(0), height, width])
    return result, input.new_empty([*input.shape[:2], height * weight.size(2), width * weight.size(3)])


@meta("npu_deformable_conv2dbk")
def _(
    input, grad_output, offset_out, weight, offset, kernel_size, stride, padding, dilation=(1, 1, 1, 1), groups=1,
    deformable_groups=1, modulated=True,
):  # fmt: skip
    name = "npu_deformable_conv2dbk"
    sizes = _check_deformable(
        name, input, weight, offset, kernel_size, stride, padding, dilation, groups, deformable_groups, modulated
    )
    wanted = [input.size(0), weight.size(0), *sizes]
    given = list(grad_output.shape)
    check(given == wanted, name, f"grad_output has shape {given}, expected {wanted}")
    empty = (torch.empty_like(each, memory_format=torch.contiguous_format) for each in (input, weight, offset))
    return *empty, grad_output.new_empty([weight.size(0)])


derivative(
    "npu_deformable_conv2d",
    "npu_deformable_conv2dbk",
    "input grad @1 weight offset kernel_size stride padding dilation groups deformable_groups modulated",
    "input weight offset bias",
)

# ---- Causal ----


def _shifted(x, count):
    """[tokens, ..] moved to later tokens, zeros in front."""
    if count == 0:
        return x
    return torch.cat([torch.zeros_like(x[:count]), x[: max(x.size(0) - count, 0)]])[: x.size(0)]


def _check_causal(name, input, weight, mask):
    check_dims(name, "input", input, 3)
    check(
        weight.dim() == 2 and weight.size(0) > 0 and weight.size(1) == input.size(2),
        name,
        f"weight has shape {list(weight.shape)}, expected [window, {input.size(2)}]",
    )
    check(
        mask is None or list(mask.shape) == [input.size(1), input.size(0)],
        name,
        f"mask has shape {list(mask.shape) if mask is not None else ''}, expected {[input.size(1), input.size(0)]}",
    )


@composite("npu_masked_causal_conv1d")
def _(input, weight, *, mask=None):
    _check_causal("npu_masked_causal_conv1d", input, weight, mask)
    wide, by = input.float(), weight.float()
    width = weight.size(0)
    result = sum(_shifted(wide, width - 1 - place) * by[place] for place in range(width))
    if mask is not None:
        result = result.masked_fill(~mask.t().unsqueeze(-1).to(torch.bool), 0)
    return result.to(input.dtype)


@composite("npu_masked_causal_conv1d_backward")
def _(grad_output, input, weight, *, mask=None):
    _check_causal("npu_masked_causal_conv1d_backward", input, weight, mask)
    grad, wide, by = grad_output.float(), input.float(), weight.float()
    if mask is not None:
        grad = grad.masked_fill(~mask.t().unsqueeze(-1).to(torch.bool), 0)
    width = weight.size(0)
    back = grad.flip(0)
    of_input = sum(_shifted(back, width - 1 - place) * by[place] for place in range(width)).flip(0)
    of_weight = torch.stack([(grad * _shifted(wide, width - 1 - place)).sum((0, 1)) for place in range(width)])
    return of_input.to(input.dtype), of_weight.to(weight.dtype)


derivative("npu_masked_causal_conv1d", "npu_masked_causal_conv1d_backward", "grad input weight mask", "input weight")


def _check_kept(name, x, weight, conv_states, starts, lines):
    check_dims(name, "x", x, 2, 3)
    check(
        weight.dim() == 2 and weight.size(0) > 0 and weight.size(1) == x.size(-1),
        name,
        f"weight has shape {list(weight.shape)}, expected [window, {x.size(-1)}]",
    )
    check(
        conv_states.dim() == 3 and conv_states.size(1) >= weight.size(0) - 1 and conv_states.size(2) == x.size(-1),
        name,
        f"conv_states has shape {list(conv_states.shape)}, expected [lines, {weight.size(0) - 1} or more, {x.size(-1)}]",
    )
    check(starts is not None or x.dim() == 3, name, "query_start_loc is needed for x of two dims")
    if lines is not None:
        check_dims(name, "cache_indices", lines, 1, 2)


@meta("npu_fused_causal_conv1d")
def _(x, weight, conv_states, *, query_start_loc=None, cache_indices=None, **rest):
    _check_kept("npu_fused_causal_conv1d", x, weight, conv_states, query_start_loc, cache_indices)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@meta("npu_fused_causal_conv1d_v2")
def _(x, weight, conv_states, *, query_start_loc=None, cache_indices=None, **rest):
    _check_kept("npu_fused_causal_conv1d_v2", x, weight, conv_states, query_start_loc, cache_indices)


# ---- Parts of images ----


def _samples(name, shape, rois, spatial_scale, height, width, count, roi_end_mode):
    """Where samples lie in the flat image, [boxes, height, width, samples, 4], and how much each counts."""
    check(rois.dim() == 2 and rois.size(1) == 5, name, f"rois has shape {list(rois.shape)}, expected [boxes, 5]")
    check(min(height, width, count) > 0, name, "pooled_height, pooled_width and sample_num are above 0")
    if roi_end_mode not in (None, 0):
        raise refused(NotImplementedError(f"{name}: roi_end_mode is {roi_end_mode}; only 0 is supported yet"))
    rows, columns = shape[-2:]
    boxes = rois.float() * spatial_scale

    def axis(begin, end, bins, size):
        """Two places and weights for each sample, [boxes, bins * count, 2]."""
        step = (end - begin).clamp(min=1) / bins / count
        place = torch.arange(bins * count, device=rois.device) + 0.5
        at = begin.unsqueeze(1) + step.unsqueeze(1) * place
        inside = (at >= -1) & (at <= size)
        at = at.clamp(0, size - 1)
        low = at.floor().clamp(max=max(size - 2, 0))
        share = at - low
        weights = torch.stack([1 - share, share], -1) * inside.unsqueeze(-1)
        return torch.stack([low, (low + 1).clamp(max=size - 1)], -1).to(torch.int64), weights

    y, y_weight = axis(boxes[:, 2], boxes[:, 4], height, rows)
    x, x_weight = axis(boxes[:, 1], boxes[:, 3], width, columns)
    # [boxes, samples down, samples across, 4]
    index = (y[:, :, None, :, None] * columns + x[:, None, :, None, :]).flatten(-2)
    weight = (y_weight[:, :, None, :, None] * x_weight[:, None, :, None, :]).flatten(-2)
    return index, weight / (count * count)


@composite("npu_roi_align")
def _(input, rois, spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode):
    name = "npu_roi_align"
    check_dims(name, "input", input, 4)
    index, weight = _samples(
        name, input.shape, rois, spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode
    )
    flat = input.float().flatten(2)[rois[:, 0].to(torch.int64)]  # [boxes, channels, places]
    shape = index.shape
    picked = flat.gather(2, index.flatten(1).unsqueeze(1).expand(-1, input.size(1), -1))
    values = picked.unflatten(2, shape[1:]) * weight.unsqueeze(1)
    bins = values.sum(-1).unflatten(3, (pooled_width, sample_num)).unflatten(2, (pooled_height, sample_num))
    return bins.sum((3, 5)).to(input.dtype)


@composite("npu_roi_alignbk")
def _(input, rois, xdiff_shape, pooled_width, pooled_height, spatial_scale, sample_num, roi_end_mode=None):
    name = "npu_roi_alignbk"
    check_dims(name, "input", input, 4)
    check(len(xdiff_shape) == 4, name, f"xdiff_shape is {list(xdiff_shape)}, expected 4 sizes")
    index, weight = _samples(
        name, xdiff_shape, rois, spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode
    )
    grad = input.float().repeat_interleave(sample_num, 2).repeat_interleave(sample_num, 3)
    parts = (grad.unsqueeze(-1) * weight.unsqueeze(1)).flatten(2)  # [boxes, channels, samples]
    places = xdiff_shape[2] * xdiff_shape[3]
    index = index.flatten(1) + rois[:, 0].to(torch.int64).unsqueeze(1) * places
    result = torch.zeros([xdiff_shape[0] * places, xdiff_shape[1]], device=input.device)
    result = result.index_add(0, index.reshape(-1), parts.transpose(1, 2).reshape(-1, xdiff_shape[1]))
    return result.view(xdiff_shape[0], places, xdiff_shape[1]).transpose(1, 2).reshape(xdiff_shape).to(input.dtype)


declare(
    "_roi_align_backward(Tensor grad, Tensor input, Tensor rois, float spatial_scale, int pooled_height, "
    "int pooled_width, int sample_num, int roi_end_mode) -> Tensor"
)


@composite("_roi_align_backward")
def _(grad, input, rois, spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode):
    return ops.npu_roi_alignbk(
        grad, rois, input.shape, pooled_width, pooled_height, spatial_scale, sample_num, roi_end_mode
    )


derivative(
    "npu_roi_align",
    "_roi_align_backward",
    "grad input rois spatial_scale pooled_height pooled_width sample_num roi_end_mode",
    "input",
)
