# SPDX-License-Identifier: Apache-2.0
"""Convolutions and windows."""
import torch

from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Cast, Const
from torchair._ge_concrete_graph.ge_apis import dtype_promote as promote
from torchair._ge_concrete_graph.ge_converter.common import full, reshape, sizes
from torchair._ge_concrete_graph.registry import converts


def _whole(values, count, what):
    values = list(values)
    if not all(isinstance(each, int) for each in values):
        raise NotImplementedError(f"convolution: {what} {values} must be numbers, since they are attributes of the engine's operator")
    return values * count if len(values) == 1 else values


def _attributes(rank, stride, padding, dilation, groups):
    count = rank - 2
    stride, padding, dilation = (_whole(each, count, name) for each, name in
                                 ((stride, "stride"), (padding, "padding"), (dilation, "dilation")))
    return {
        "strides": [1, 1, *stride],
        "pads": [each for pad in padding for each in (pad, pad)],
        "dilations": [1, 1, *dilation],
        "groups": groups,
        "data_format": "NCHW" if rank == 4 else "NCDHW",
    }


def _wide(tensor):
    """[N, C, L] as [N, C, 1, L]."""
    result = reshape(tensor, [*tensor.symsize[:2], 1, *tensor.symsize[2:]])
    result.symsize = [*tensor.symsize[:2], 1, *tensor.symsize[2:]]
    return result


def _plane(stride, padding, dilation, output_padding):
    return [1, *stride], [0, *padding], [1, *dilation], [0, *output_padding]


# Types that the engine's operator for two dims takes, and Conv3D does not.
_FUSED = (DataType.DT_FLOAT, DataType.DT_BF16)


def _convolve(rank, input, weight, bias, attributes):  # noqa: A002
    kind = "Conv2D" if rank == 4 else "Conv3DFused" if input.dtype in _FUSED else "Conv3D"
    result = ge.operator(kind)(input, weight, bias, **attributes)
    result.desc.dtype = input.desc.dtype
    return result


@converts("convolution.default")
def _convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *, meta_outputs):  # noqa: A002
    dtype, rank = meta_outputs.dtype, input.rank
    result_sizes = list(meta_outputs.symsize)
    if rank == 3:
        input, weight = _wide(input), _wide(weight)  # noqa: A001
        stride, padding, dilation, output_padding = _plane(stride, padding, dilation, output_padding)
        result_sizes = [*result_sizes[:2], 1, *result_sizes[2:]]
    attributes = _attributes(max(rank, 4), stride, padding, dilation, groups)
    kind = "Conv2D" if max(rank, 4) == 4 else "Conv3D"
    bias = None if bias is None else promote(bias, target_dtype=dtype)
    if transposed:
        # As the gradient of a convolution; the operator of its own takes fewer types.
        count = sizes(result_sizes)
        result = ge.operator(f"{kind}BackpropInput")(count, weight, input, **attributes)
        result.desc.dtype = input.desc.dtype
        if bias is not None:
            channels = [1, result_sizes[1], *[1] * (len(result_sizes) - 2)]
            result = ge.operator("Add")(result, reshape(bias, channels))
    else:
        result = _convolve(max(rank, 4), input, weight, bias, attributes)
    return reshape(result, meta_outputs.symsize) if rank == 3 else result


@converts("convolution_backward.default")
def _convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding,  # noqa: A002
                          groups, output_mask, *, meta_outputs):
    rank = input.rank
    shapes = list(input.symsize), list(weight.symsize)
    own = input.symsize, weight.symsize
    dbias = None
    if output_mask[2]:
        dims = [i for i in range(rank) if i != 1]
        dbias = promote(ge.operator("ReduceSum")(grad_output, Const(dims)), target_dtype=meta_outputs[2].dtype)
    if rank == 3:
        grad_output, input, weight = _wide(grad_output), _wide(input), _wide(weight)  # noqa: A001
        stride, padding, dilation, output_padding = _plane(stride, padding, dilation, output_padding)
        shapes = list(input.symsize), list(weight.symsize)
    attributes = _attributes(max(rank, 4), stride, padding, dilation, groups)
    kind = "Conv2D" if max(rank, 4) == 4 else "Conv3D"
    dinput = dweight = None
    if transposed:
        if output_mask[0]:
            dinput = _convolve(max(rank, 4), grad_output, weight, None, attributes)
        if output_mask[1]:
            dweight = ge.operator(f"{kind}BackpropFilter")(grad_output, sizes(shapes[1]), input, **attributes)
    else:
        if output_mask[0]:
            dinput = ge.operator(f"{kind}BackpropInput")(sizes(shapes[0]), weight, grad_output, **attributes)
        if output_mask[1]:
            dweight = ge.operator(f"{kind}BackpropFilter")(input, sizes(shapes[1]), grad_output, **attributes)
    results = []
    for each, shape, spec in zip((dinput, dweight), own, meta_outputs):
        if each is not None:
            each.desc.dtype = grad_output.desc.dtype
            each = promote(each, target_dtype=spec.dtype)
            if rank == 3:
                each = reshape(each, shape)
        results.append(each)
    return [*results, dbias]


def _pair(values, default=None):
    values = list(values) if values else list(default)
    return values * 2 if len(values) == 1 else values


@converts("max_pool2d_with_indices.default")
def _max_pool(self, kernel_size, stride=(), padding=(0,), dilation=(1,), ceil_mode=False, *, meta_outputs):
    kernel = _pair(kernel_size)
    stride = _pair(stride, kernel)
    dtype, rank = self.dtype, self.rank
    x = promote(self, target_dtype=DataType.DT_FLOAT) if dtype == DataType.DT_DOUBLE else self
    shape = list(self.symsize) if rank == 4 else [1, *self.symsize]
    if rank != 4:
        x = reshape(x, shape)
    values, indices = ge.operator("MaxPoolWithArgmaxV3")(
        x, ksize=kernel, strides=stride, pads=_pair(padding), dilation=_pair(dilation), ceil_mode=bool(ceil_mode),
        data_format="NCHW", dtype=int(DataType.DT_INT64))
    indices.desc.dtype = ge.dtypes.to_proto(DataType.DT_INT64)
    if rank != 4:
        values, indices = (reshape(each, meta.symsize) for each, meta in zip((values, indices), meta_outputs))
    return promote(values, target_dtype=dtype), indices


@converts("max_pool2d_with_indices_backward.default")
def _max_pool_backward(grad_output, self, kernel_size, stride, padding, dilation, ceil_mode, indices, *, meta_outputs):
    *lead, height, width = self.symsize
    *_, rows, columns = grad_output.symsize
    zeros = full(meta_outputs, 0, [*lead, height * width])
    flat = [reshape(each, [*lead, rows * columns]) for each in (indices, grad_output)]
    return reshape(ge.operator("ScatterElements")(zeros, flat[0], flat[1], axis=len(lead), reduction="add"), self.symsize)


def _average(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    kernel = _pair(kernel_size)
    if divisor_override is not None and not 1 <= divisor_override <= 255:
        raise AssertionError(f"avg_pool2d: divisor_override must be in [1, 255], not {divisor_override}")
    pads = _pair(padding)
    return {
        "ksize": [1, 1, *kernel],
        "strides": [1, 1, *_pair(stride, kernel)],
        "pads": [pads[0], pads[0], pads[1], pads[1]],
        "ceil_mode": bool(ceil_mode),
        "exclusive": not count_include_pad,
        "divisor_override": divisor_override or 0,
    }


def _batched(tensor):
    return tensor if tensor.rank == 4 else reshape(tensor, [1, *tensor.symsize])


@converts("avg_pool2d.default")
def _avg_pool(self, kernel_size, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True, divisor_override=None, *, meta_outputs):
    result = ge.operator("AvgPoolV2")(
        _batched(self), **_average(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override))
    return result if self.rank == 4 else reshape(result, meta_outputs.symsize)


@converts("avg_pool2d_backward.default")
def _avg_pool_backward(grad_output, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, *, meta_outputs):
    shape = list(self.symsize) if self.rank == 4 else [1, *self.symsize]
    result = ge.operator("AvgPoolV2Grad")(
        sizes(shape), _batched(grad_output), **_average(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override))
    return result if self.rank == 4 else reshape(result, meta_outputs.symsize)


@converts("_adaptive_avg_pool2d.default")
def _adaptive_avg_pool(self, output_size, *, meta_outputs):
    result = ge.operator("AdaptiveAvgPool2d")(_batched(self), output_size=list(output_size))
    return result if self.rank == 4 else reshape(result, meta_outputs.symsize)


@converts("_adaptive_avg_pool2d_backward.default")
def _adaptive_avg_pool_backward(grad_output, self, *, meta_outputs):
    shape = list(self.symsize) if self.rank == 4 else [1, *self.symsize]
    result = ge.operator("AdaptiveAvgPool2dGrad")(_batched(grad_output), orig_input_shape=shape)
    return result if self.rank == 4 else reshape(result, meta_outputs.symsize)


def _says(size, wanted, scale):
    """Whether a scale is what the sizes say: the engine's operator knows sizes alone."""
    if scale is None or (isinstance(scale, (int, float)) and float(scale).is_integer()):
        return True
    return all(isinstance(each, (int, float)) for each in (size, wanted, scale)) and size * scale == wanted


def _refuse_scale(size, wanted, scale):
    raise NotImplementedError(
        f"upsample_nearest2d: the scale is {scale}, and the sizes are {size} and {wanted}, which say another; give the size instead"
    )


@converts("upsample_nearest2d.default")
def _upsample_nearest(self, output_size, scales_h=None, scales_w=None, *, meta_outputs):
    return _upsample_nearest_vec(self, None, (scales_h, scales_w), meta_outputs=meta_outputs)


@converts("upsample_nearest2d.vec")
def _upsample_nearest_vec(input, output_size, scale_factors=None, *, meta_outputs):  # noqa: A002
    plane = list(zip(input.symsize[2:], meta_outputs.symsize[2:], scale_factors or (None, None)))
    if all(_says(*each) for each in plane):
        return ge.operator("ResizeNearestNeighborV2")(input, sizes(meta_outputs.symsize[2:]))
    for dim, (size, wanted, scale) in enumerate(plane, 2):
        if not all(isinstance(each, (int, float)) for each in (size, wanted)) or not isinstance(scale, (float, type(None))):
            _refuse_scale(size, wanted, scale)
        step = torch.tensor(size / wanted if scale is None else 1 / scale, dtype=torch.float32)
        places = (torch.arange(wanted, dtype=torch.float32) * step).floor().long().clamp(max=size - 1)
        input = ge.operator("GatherV2")(input, Const(places.tolist()), Const([dim]))  # noqa: A001
    return input


@converts("upsample_nearest2d_backward.default")
def _upsample_nearest_backward(grad_output, output_size, input_size, scales_h=None, scales_w=None, *, meta_outputs):
    for each in zip(meta_outputs.symsize[2:], grad_output.symsize[2:], (scales_h, scales_w)):
        if not _says(*each):
            _refuse_scale(*each)
    return ge.operator("ResizeNearestNeighborV2Grad")(grad_output, sizes(list(input_size)[2:]))


_ = Cast
