# SPDX-License-Identifier: Apache-2.0
"""Operators by type as nets of TensorFlow and Caffe have them, and their training: pools, convolutions, norms, losses and
optimizers, against PyTorch or the formula."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from aclnn import AclError
from graph_ops import FAMILIES, ROWS, call, hold
from graph_ops_numbers import FLOATS, HALF, SINGLES, b16, c64, close, f16, f32, f64, i8, i16, i32, i64, numbers, u8, wide

CASES = {}


def case(type, inputs, expected, attributes=None, scale=1, **options):
    """expected: a tensor, or one of them for each output, by name."""
    CASES.setdefault(type, []).append((inputs, attributes, expected, scale, options))


def last(x):
    """NCHW as NHWC."""
    return x.permute(0, 2, 3, 1).contiguous()


def in_layout(x, layout):
    return last(x) if layout == "NHWC" else x


def spatial(values, layout):
    return [1, *values, 1] if layout == "NHWC" else [1, 1, *values]

# ---- Pools ----

def same_pads(size, window, stride):
    both = max(0, (-(-size // stride) - 1) * stride + window - size)
    return both // 2, both - both // 2


def padded(x, window, stride, padding, value):
    """x with what the padding puts around it: a name, or (top, bottom, left, right)."""
    if padding == "SAME":
        rows, columns = (same_pads(x.shape[2 + d], window[d], stride[d]) for d in range(2))
    else:
        rows, columns = ((0, 0), (0, 0)) if padding == "VALID" else (padding[:2], padding[2:])
    return F.pad(x, (*columns, *rows), value=value)


def largest(x, window, stride, padding, ceil=False):
    return F.max_pool2d(padded(x, window, stride, padding, -math.inf), window, stride, ceil_mode=ceil)


def means(x, window, stride, padding):
    """Over the elements that are there."""
    sums = F.avg_pool2d(padded(x, window, stride, padding, 0), window, stride, divisor_override=1)
    return sums / F.avg_pool2d(padded(torch.ones_like(x), window, stride, padding, 0), window, stride, divisor_override=1)


def gradient_of(function, x, seed=8):
    leaf = wide(x).double().requires_grad_()
    out = function(leaf)
    grad = numbers(x.dtype, *out.shape, seed=seed)
    return out.detach().to(x.dtype), grad, torch.autograd.grad(out, leaf, grad.double())[0]


GEOMETRIES = [((2, 2), (2, 2)), ((3, 2), (2, 1)), ((3, 3), (1, 2)), ((1, 4), (3, 3))]
for _layout, _padding, (_window, _stride) in itertools.product(("NHWC", "NCHW"), ("SAME", "VALID"), GEOMETRIES):
    _how = {"ksize": spatial(_window, _layout), "strides": spatial(_stride, _layout), "padding": _padding, "data_format": _layout}
    for _dtype in (f32, f16, f64, i8, i32, i64, u8):
        _x = numbers(_dtype, 2, 3, 7, 9, low=-60, high=60)
        case("MaxPool", {"x": in_layout(_x, _layout)}, in_layout(largest(wide(_x).double(), _window, _stride, _padding), _layout), _how)
    for _dtype in FLOATS:
        _x = numbers(_dtype, 2, 3, 7, 9)
        case("AvgPool", {"x": in_layout(_x, _layout)}, in_layout(means(wide(_x), _window, _stride, _padding), _layout), _how)
    for _dtype in (f32, f16, f64):
        _x = numbers(_dtype, 2, 3, 7, 9)
        _y, _grad, _expected = gradient_of(lambda x: largest(x, _window, _stride, _padding), _x)
        case("MaxPoolGrad", {"x1": in_layout(_x, _layout), "x2": in_layout(_y, _layout), "grad": in_layout(_grad, _layout)},
             in_layout(_expected, _layout), _how, scale=4)
        _y, _grad, _expected = gradient_of(lambda x: means(x, _window, _stride, _padding), _x)
        case("AvgPoolGrad", {"orig_input_shape": list(in_layout(_x, _layout).shape), "input_grad": in_layout(_grad, _layout)},
             in_layout(_expected, _layout), _how, scale=4)
for _layout, _padding, _ceil in itertools.product(("NHWC", "NCHW"), ("SAME", "VALID", "CALCULATED"), (False, True)):
    _window, _stride, _pads = (3, 2), (2, 2), (1, 0, 0, 1)
    _x = numbers(f32, 2, 3, 9, 9)
    _around = _pads if _padding == "CALCULATED" else _padding
    _how = {"ksize": spatial(_window, _layout), "strides": spatial(_stride, _layout), "padding_mode": _padding, "pads": list(_pads),
            "data_format": _layout, "ceil_mode": _ceil}
    _ceil = _ceil and _padding != "SAME"
    case("MaxPoolV3", {"x": in_layout(_x, _layout)}, in_layout(largest(_x, _window, _stride, _around, _ceil), _layout), _how)
    _y, _grad, _expected = gradient_of(lambda x: largest(x, _window, _stride, _around, _ceil), _x)
    case("MaxPoolV3Grad", {"orig_input": in_layout(_x, _layout), "orig_output": in_layout(_y, _layout), "grad": in_layout(_grad, _layout)},
         in_layout(_expected, _layout), _how, scale=4)
for _layout, _exclusive, _divisor in itertools.product(("NHWC", "NCHW"), (False, True), (0, 3)):
    _window, _stride, _pads = (3, 2), (2, 1), (1, 0, 0, 1)
    _x = numbers(f32, 2, 3, 8, 9)

    def _means(x, exclusive=_exclusive, divisor=_divisor):
        if divisor or not exclusive:
            return F.avg_pool2d(padded(x, _window, _stride, _pads, 0), _window, _stride, divisor_override=divisor or 6)
        return means(x, _window, _stride, _pads)

    _, _grad, _expected = gradient_of(_means, _x)
    case("AvgPoolV2Grad", {"orig_input_shape": list(in_layout(_x, _layout).shape), "input_grad": in_layout(_grad, _layout)},
         in_layout(_expected, _layout), {"ksize": spatial(_window, _layout), "strides": spatial(_stride, _layout), "pads": list(_pads),
                                         "data_format": _layout, "exclusive": _exclusive, "divisor_override": _divisor}, scale=4)
for _dtype in (f32, f16, i8, i32):
    _x = numbers(_dtype, 2, 3, 4, 5, low=-60, high=60)
    case("MaxPoolV3", {"x": _x}, wide(_x).double().amax((2, 3), True), {"ksize": [1, 1, 2, 2], "strides": [1, 1, 2, 2], "global_pooling": True})
for _dtype in FLOATS:
    _x = numbers(_dtype, 2, 3, 4, 5)
    case("GlobalAveragePool", {"x": _x}, wide(_x).mean((2, 3), True), scale=2)
    case("GlobalAveragePool", {"x": _x[..., 0].contiguous()}, wide(_x)[..., 0].mean(2, True), scale=2)
for _dtype, _layout in itertools.product(SINGLES, ("NCHW", "NHWC")):
    _x = numbers(_dtype, 2, 3, 8, 9)
    _in = {"x": in_layout(_x, _layout)}
    for _ceil in (0, 1):  # 0 rounds up
        _how = {"window": [3, 2], "stride": [2, 2], "pad": [1, 1, 0, 0], "ceil_mode": _ceil, "data_format": _layout}
        case("Pooling", _in, in_layout(F.max_pool2d(wide(_x), (3, 2), 2, (1, 0), ceil_mode=_ceil == 0), _layout), _how)
        case("Pooling", _in, in_layout(F.avg_pool2d(wide(_x), (3, 2), 2, (1, 0), ceil_mode=_ceil == 0), _layout), {**_how, "mode": 1})
    case("Pooling", _in, in_layout(wide(_x).mean((2, 3), True), _layout), {"mode": 1, "global_pooling": True, "data_format": _layout}, scale=2)

# ---- Convolutions ----

for _dtype, _layout, _many in itertools.product(HALF, ("NHWC", "NCHW", "NCHW1"), (1, 2)):
    # Filters [c * m, 1, h, w]; [h, w, c, m] beside NHWC, [m, c, h, w] beside NCHW.
    _x, _plain = numbers(_dtype, 2, 3, 7, 8), numbers(_dtype, 3 * _many, 1, 3, 2, seed=3)
    _turned = _plain.reshape(3, _many, 3, 2)

    def _filter(plain, layout=_layout, many=_many):
        turned = plain.reshape(3, many, 3, 2)
        return {"NHWC": turned.permute(2, 3, 0, 1), "NCHW": turned.permute(1, 0, 2, 3), "NCHW1": plain}[layout].contiguous()

    _form = _layout[:4]
    _how = {"strides": spatial((2, 1), _form), "pads": [1, 1, 0, 1], "dilations": spatial((1, 2), _form), "data_format": _form}
    _leaf, _weights = wide(_x).double().requires_grad_(), wide(_plain).double().requires_grad_()
    _bias = numbers(_dtype, 3 * _many, seed=5)
    _out = F.conv2d(F.pad(_leaf, (0, 1, 1, 1)), _weights, None, (2, 1), 0, (1, 2), 3)
    _grad = numbers(_dtype, *_out.shape, seed=6)
    _of_x, _of_filter = torch.autograd.grad(_out, (_leaf, _weights), _grad.double())
    _biased = _out.detach() + _bias.double().reshape(-1, 1, 1)
    _in = {"x": in_layout(_x, _form), "filter": _filter(_plain)}
    case("DepthwiseConv2D", _in, in_layout(_out.detach(), _form), _how, scale=4)
    case("DepthwiseConv2D", {**_in, "bias": _bias}, in_layout(_biased, _form), _how, scale=4, types={"y": f32})
    _grad = in_layout(_grad, _form)
    _size = {"input_size": list(in_layout(_x, _form).shape)}
    _filter_size = {"filter_size": list(_filter(_plain).shape)}
    case("DepthwiseConv2DBackpropInput", {**_size, "filter": _in["filter"], "out_backprop": _grad}, in_layout(_of_x, _form), _how, scale=4)
    case("DepthwiseConv2DBackpropInputD", {"filter": _in["filter"], "out_backprop": _grad}, in_layout(_of_x, _form), {**_how, **_size}, scale=4)
    case("DepthwiseConv2DBackpropFilter", {**_filter_size, "input": _in["x"], "out_backprop": _grad}, _filter(_of_filter), _how, scale=40)
    case("DepthwiseConv2DBackpropFilterD", {"input": _in["x"], "out_backprop": _grad}, _filter(_of_filter), {**_how, **_filter_size}, scale=40)
for _dtype, _layout in itertools.product(HALF, ("NHWC", "NCHW")):
    _x, _plain = numbers(_dtype, 2, 4, 7, 8), numbers(_dtype, 6, 2, 3, 2, seed=3)
    _how = {"strides": spatial((2, 1), _layout), "pads": [1, 1, 0, 1], "groups": 2, "data_format": _layout}
    _leaf, _weights = wide(_x).double().requires_grad_(), wide(_plain).double().requires_grad_()
    _out = F.conv2d(F.pad(_leaf, (0, 1, 1, 1)), _weights, None, (2, 1), 0, 1, 2)
    _grad = numbers(_dtype, *_out.shape, seed=6)
    _of_x, _of_filter = torch.autograd.grad(_out, (_leaf, _weights), _grad.double())
    _grad, _filters = in_layout(_grad, _layout), in_layout(_plain, _layout)
    case("Conv2DBackpropInputD", {"filter": _filters, "out_backprop": _grad}, in_layout(_of_x, _layout),
         {**_how, "input_size": list(in_layout(_x, _layout).shape)}, scale=4)
    case("Conv2DBackpropFilterD", {"x": in_layout(_x, _layout), "out_backprop": _grad}, in_layout(_of_filter, _layout),
         {**_how, "filter_size": list(_filters.shape)}, scale=40)
for _dtype, _layout, _bias in itertools.product(SINGLES, ("NHWC", "NCHW"), (False, True)):
    _x, _plain, _add = numbers(_dtype, 2, 4, 5, 6), numbers(_dtype, 4, 3, 3, 2, seed=3), numbers(_dtype, 6, seed=4)
    _out = F.conv_transpose2d(wide(_x), wide(_plain), wide(_add) if _bias else None, (2, 1), (1, 0), groups=2)
    _in = {"x": in_layout(_x, _layout), "filter": in_layout(_plain, _layout), **({"bias": _add} if _bias else {})}
    case("Deconvolution", _in, in_layout(_out, _layout),
         {"strides": [2, 1], "pads": [1, 1, 0, 0], "groups": 2, "data_format": _layout}, scale=4)
    case("Conv2DTransposeD", _in, in_layout(_out, _layout),
         {"strides": spatial((2, 1), _layout), "pads": [1, 1, 0, 0], "groups": 2, "data_format": _layout,
          "input_size": list(in_layout(_out, _layout).shape)}, scale=4)

# ---- Norms ----

for _dtype, _layout in itertools.product(HALF, ("NHWC", "NCHW")):
    _x = numbers(_dtype, 4, 3, 5, 6)
    _gamma, _beta, _mean, _variance = (numbers(f32, 3, low=0.5, seed=s) for s in range(4))
    _leaf, _scale, _offset = wide(_x).double().requires_grad_(), _gamma.double().requires_grad_(), _beta.double().requires_grad_()
    _grad = numbers(_dtype, 4, 3, 5, 6, seed=9)
    _in = {"x": in_layout(_x, _layout), "scale": _gamma, "offset": _beta}
    for _trains in (True, False):
        _own = (wide(_x).mean((0, 2, 3)), wide(_x).var((0, 2, 3), correction=0))
        _used = _own if _trains else (_mean, _variance)
        _y = F.batch_norm(_leaf, _mean.double().clone(), _variance.double().clone(), _scale, _offset, _trains, 0.5, 1e-3)
        _of = torch.autograd.grad(_y, (_leaf, _scale, _offset), _grad.double())
        _how = {"epsilon": 1e-3, "data_format": _layout, "is_training": _trains}
        case("BatchNorm", _in if _trains else {**_in, "mean": _mean, "variance": _variance},
             {"y": in_layout(_y.detach(), _layout), "batch_mean": _used[0], "reserve_space_1": _used[0], "reserve_space_2": _used[1],
              "batch_variance": wide(_x).var((0, 2, 3)) if _trains else _variance, "reserve_space_3": torch.empty(0)}, _how, scale=8)
        case("BatchNormGrad", {"y_backprop": in_layout(_grad, _layout), "x": _in["x"], "scale": _gamma, "reserve_space_1": _used[0],
                               "reserve_space_2": _used[1]},
             {"x_backprop": in_layout(_of[0], _layout), "scale_backprop": _of[1], "offset_backprop": _of[2]}, _how, scale=40)
for _dtype in SINGLES:
    _x = numbers(_dtype, 4, 3, 5)
    _gamma, _beta, _mean, _variance = (numbers(_dtype, 3, low=0.5, seed=s) for s in range(4))
    for _sum in (1.0, 2.0, 0.0):
        _factor = 1 / _sum if _sum else 0.0
        _normed = (wide(_x) - (wide(_mean) * _factor)[:, None]) / (wide(_variance) * _factor + 0.01).sqrt()[:, None]
        _in = {"x": _x, "mean": _mean, "variance": _variance}
        case("BNInference", {**_in, "momentum": torch.tensor([_sum], dtype=_dtype)}, _normed, {"epsilon": 0.01}, scale=16)
        case("BNInference", {**_in, "momentum": torch.tensor(_sum, dtype=_dtype), "scale": _gamma, "offset": _beta},
             _normed * wide(_gamma)[:, None] + wide(_beta)[:, None], {"epsilon": 0.01}, scale=16)
        if _sum == 1:
            case("BNInferenceD", _in, _normed, {"epsilon": 0.01}, scale=16)
            case("BNInferenceD", {**_in, "scale": _gamma, "b": _beta}, _normed * wide(_gamma)[:, None] + wide(_beta)[:, None],
                 {"epsilon": 0.01}, scale=16)
for _dtype, _layout in itertools.product(SINGLES, ("NCHW", "NHWC")):
    _x, _gamma, _beta = numbers(_dtype, 2, 3, 4, 5), numbers(_dtype, 3, seed=2), numbers(_dtype, 3, seed=3)
    _mean, _variance = wide(_x).mean((2, 3), True), wide(_x).var((2, 3), correction=0, keepdim=True)
    _normed = F.instance_norm(wide(_x), weight=wide(_gamma), bias=wide(_beta), eps=0.01)
    case("InstanceNorm", {"x": in_layout(_x, _layout), "gamma": _gamma, "beta": _beta},
         {"y": in_layout(_normed, _layout), "mean": in_layout(_mean, _layout), "variance": in_layout(_variance, _layout)},
         {"data_format": _layout, "epsilon": 0.01}, scale=4)
for _dtype, _factors, _begin in itertools.product(HALF, HALF, (1, -1)):
    _x = numbers(_dtype, 3, 4, 5)
    for _parameters in {_begin, -1}:
        _shape = _x.shape[_parameters:]
        _gamma, _beta = numbers(_factors, *_shape, seed=2), numbers(_factors, *_shape, seed=3)
        _dims = (1, 2) if _begin == 1 else (2,)
        _mean, _variance = wide(_x).mean(_dims, True), wide(_x).var(_dims, correction=0, keepdim=True)
        _y = (wide(_x) - _mean) / (_variance + 0.01).sqrt() * wide(_gamma) + wide(_beta)
        _how = {"begin_norm_axis": _begin, "begin_params_axis": _parameters, "epsilon": 0.01}
        _in = {"x": _x, "gamma": _gamma, "beta": _beta}
        case("LayerNorm", _in, {"y": _y, "mean": _mean, "variance": _variance}, _how, scale=4)
        case("LayerNormV3", _in, {"y": _y, "mean": _mean, "rstd": (_variance + 0.01).rsqrt()}, _how, scale=4)
    _gamma = numbers(_factors, 4, 5, seed=2)
    _leaf, _scale = wide(_x).double().requires_grad_(), wide(_gamma).double().requires_grad_()
    _zero = torch.zeros_like(_scale).requires_grad_()
    _dy = numbers(_dtype, 3, 4, 5, seed=4)
    _of = torch.autograd.grad(F.layer_norm(_leaf, (4, 5), _scale, _zero, 1e-12), (_leaf, _scale, _zero), _dy.double())
    _mean, _variance = wide(_x).mean((1, 2), True), wide(_x).var((1, 2), correction=0, keepdim=True)
    case("LayerNormGrad", {"dy": _dy, "x": _x, "variance": _variance, "mean": _mean, "gamma": _gamma},
         {"pd_x": _of[0], "pd_gamma": _of[1], "pd_beta": _of[2]}, scale=20)
for _dtype in SINGLES:
    _x = numbers(_dtype, 2, 7, 3, 4)
    for _radius, _bias, _alpha, _beta in ((2, 1.0, 0.5, 0.75), (5, 2.0, 1.0, 0.5), (0, 1.0, 0.1, 1.0)):
        _window = 2 * _radius + 1
        case("LRN", {"x": _x}, F.local_response_norm(wide(_x), _window, _alpha * _window, _beta, _bias),
             {"depth_radius": _radius, "bias": _bias, "alpha": _alpha, "beta": _beta}, scale=4)
    for _axis in ([1], [0, 2], []):
        _sum = (wide(_x) ** 2).sum(_axis or None, keepdim=True)
        case("L2Normalize", {"x": _x}, wide(_x) / _sum.clamp(min=20.0).sqrt(), {"axis": _axis, "eps": 20.0}, scale=4)

# ---- Factors and sums ----

for _dtype in SINGLES:
    _x = numbers(_dtype, 2, 3, 4, 5)
    for _axis, _count, _shape, _aligned in ((1, 1, (3,), (3, 1, 1)), (1, 2, (3, 4), (3, 4, 1)), (2, -1, (4, 5), (4, 5)),
                                            (0, 1, (2,), (2, 1, 1, 1)), (-1, 1, (5,), (5,)), (1, 0, (), ())):
        _scale, _bias = numbers(_dtype, *_shape, seed=2), numbers(_dtype, *_shape, seed=3)
        _how = {"axis": _axis, "num_axes": _count}
        case("Scale", {"x": _x, "scale": _scale}, wide(_x) * wide(_scale).reshape(_aligned), _how)
        case("Scale", {"x": _x, "scale": _scale, "bias": _bias},
             wide(_x) * wide(_scale).reshape(_aligned) + wide(_bias).reshape(_aligned), _how)
        case("Bias", {"x": _x, "bias": _bias}, wide(_x) + wide(_bias).reshape(_aligned), _how)
    _scale = numbers(_dtype, 3, 4, seed=2)
    case("Scale", {"x": _x, "scale": _scale}, wide(_x) * wide(_scale)[..., None], {"scale_from_blob": False})
    case("Bias", {"x": _x, "bias": _scale}, wide(_x) + wide(_scale)[..., None], {"bias_from_blob": False})
    _parts = [numbers(_dtype, 3, 5, seed=s) for s in range(3)]
    _wide = [wide(part) for part in _parts]
    for _count in (1, 2, 3):
        case("Eltwise", {"x": _parts[:_count]}, math.prod(_wide[:_count]), {"N": _count, "mode": 0}, scale=4)
        case("Eltwise", {"x": _parts[:_count]}, sum(_wide[:_count]), {"N": _count}, scale=2)
        case("Eltwise", {"x": _parts[:_count]}, torch.stack(_wide[:_count]).amax(0), {"N": _count, "mode": 2})
for _dtype in (f32, f16, b16, f64, i32, i64, c64):
    _parts = [numbers(_dtype, 3, 5, seed=s) for s in range(3)]
    for _count in (1, 2, 3):
        case("AccumulateNV2", {"x": _parts[:_count]}, sum(wide(part) for part in _parts[:_count]), {"N": _count}, scale=2)
    _x = numbers(_dtype, 2, 3, 4, 5)
    case("BiasAddGrad", {"x": _x}, wide(_x).sum((0, 1, 2)), scale=8)
    case("BiasAddGrad", {"x": _x}, wide(_x).sum((0, 2, 3)), {"data_format": "NCHW"}, scale=8)
    case("BiasAddGrad", {"x": _x[0, 0].contiguous()}, wide(_x)[0, 0].sum(0), {"data_format": "NCHW"}, scale=8)
for _dtype in HALF:
    _x, _bias = numbers(_dtype, 2, 3, 4), numbers(_dtype, 5, seed=3)
    for _axis, _inner in ((1, 12), (2, 4), (-1, 4), (0, 24)):
        _w = numbers(_dtype, 5, _inner, seed=2)
        _rows = wide(_x).reshape(*_x.shape[:_axis], _inner)
        case("FullyConnection", {"x": _x, "w": _w}, _rows @ wide(_w).t(), {"num_output": 5, "axis": _axis}, scale=4)
        case("FullyConnection", {"x": _x, "w": _w.t().contiguous(), "b": _bias}, _rows @ wide(_w).t() + wide(_bias),
             {"num_output": 5, "axis": _axis, "transpose": True}, scale=4)
    case("FullyConnection", {"x": _x, "w": numbers(_dtype, 5, 3, 4, seed=2)},
         wide(_x).reshape(2, 12) @ wide(numbers(_dtype, 5, 3, 4, seed=2)).reshape(5, 12).t(), {"num_output": 5}, scale=4)

# ---- Pictures, segments, matrices ----

for _mode, _size in itertools.product(("plain", "half", "corners"), ((8, 10), (3, 4), (1, 5), (4, 5))):
    _how = {"half_pixel_centers": _mode == "half", "align_corners": _mode == "corners"}
    for _dtype in (f32, f16, f64, u8, i32):
        _x = numbers(_dtype, 2, 3, 4, 5)
        _expected = F.interpolate(_x.float(), _size, mode="bilinear", align_corners=_mode == "corners")
        if _mode == "plain":  # element i lies at i * in / out
            _expected = _x.float()
            for _dim, _out in ((2, _size[0]), (3, _size[1])):
                _place = torch.arange(_out) * _expected.shape[_dim] / _out
                _low = _place.floor().long()
                _high = (_low + 1).clamp(max=_expected.shape[_dim] - 1)
                _share = (_place - _low).reshape(-1, 1) if _dim == 2 else _place - _low
                _expected = torch.lerp(_expected.index_select(_dim, _low), _expected.index_select(_dim, _high), _share)
        case("ResizeBilinearV2", {"x": _x, "size": torch.tensor(_size, dtype=i32)}, _expected, _how, scale=4)
        if _dtype in SINGLES:
            case("ResizeBilinearV2D", {"x": _x}, _expected, {**_how, "size": list(_size)}, scale=4)
for _dtype in (f32, f16, i8, i32, u8):
    _x = numbers(_dtype, 2, 3, 4, 5)
    _rows, _columns = torch.arange(8) // 2, torch.arange(3) * 5 // 3
    case("ResizeNearestNeighborV2D", {"x": _x}, _x[:, :, _rows][..., _columns], {"size": [8, 3]})
for _dtype in SINGLES:
    _grads = numbers(_dtype, 2, 3, 8, 3)
    _leaf = torch.zeros(2, 3, 4, 5, dtype=f64, requires_grad=True)
    _of = torch.autograd.grad(_leaf[:, :, torch.arange(8) // 2][..., torch.arange(3) * 5 // 3], _leaf, _grads.double())[0]
    case("ResizeNearestNeighborV2GradD", {"grads": _grads}, _of, {"size": [4, 5]}, scale=2)
    _x = numbers(_dtype, 2, 3, 4, 5)
    case("Upsample", {"x": _x}, wide(_x).repeat_interleave(2, 2).repeat_interleave(2, 3))
    case("Upsample", {"x": _x}, wide(_x).repeat_interleave(3, 2) * 0.5, {"stride_h": 3, "stride_w": 1, "scale": 0.5})
_ids = torch.tensor([[0, 2, 2, -1], [0, 0, 4, 2], [2, -7, 2, 0]])  # none of 1 and 3, two of no segment
_reductions = {"Max": lambda x: x.amax(0), "Min": lambda x: x.amin(0), "Prod": lambda x: x.prod(0), "Sum": lambda x: x.sum(0)}
for _dtype, (_name, _reduced) in itertools.product((f32, f16, f64, i32, i8, u8, i16), _reductions.items()):
    _x = numbers(_dtype, 3, 4, 5, low=-2, high=2)
    _info = torch.finfo(_dtype) if _dtype.is_floating_point else torch.iinfo(_dtype)
    _empty = {"Max": _info.min, "Min": _info.max, "Prod": 1, "Sum": 0}[_name]
    _expected = torch.full((5, 5), _empty, dtype=wide(_x).dtype)
    for _segment in (0, 2, 4):
        _expected[_segment] = _reduced(wide(_x)[_ids == _segment]).to(_expected.dtype)
    _type = f"UnsortedSegment{_name}"
    _valid = _ids.clamp(min=0) if _name == "Sum" else _ids
    if _name != "Sum":
        case(_type, {"x": _x, "segment_ids": _ids, "num_segments": [5]}, _expected, scale=4)
        case(_type, {"x": _x, "segment_ids": _ids.int(), "num_segments": [5]}, _expected, scale=4)
        case(_type + "D", {"x": _x, "segment_ids": _ids.int()}, _expected, {"num_segments": 5}, scale=4)
    elif _dtype in (f32, f16, i32, i8, u8):
        _expected = torch.zeros(5, 5, dtype=wide(_x).dtype).index_add(0, _valid.reshape(-1), wide(_x).reshape(12, 5))
        case(_type + "D", {"x": _x, "segment_ids": _valid.int()}, _expected, {"num_segments": 5}, scale=4)
for _dtype in (f32, f64, c64):
    _x = numbers(_dtype, 2, 4, 4) + 6 * torch.eye(4).to(_dtype)
    case("MatrixInverse", {"x": _x}, torch.linalg.inv(_x), scale=8)
    _positive = _x @ _x.mH
    case("Cholesky", {"x": _positive}, torch.linalg.cholesky(_positive), scale=8)
    if _dtype != c64:
        _sign, _log = torch.linalg.slogdet(numbers(_dtype, 5, 3, 3))
        case("LogMatrixDeterminant", {"x": numbers(_dtype, 5, 3, 3)}, {"sign": _sign, "y": _log}, scale=8)
    for _shape in ((2, 5, 3), (3, 5), (4, 4)):
        _x = numbers(_dtype, *_shape)
        for _full in (False, True):
            _q, _r = torch.linalg.qr(_x, "complete" if _full else "reduced")
            case("Qr", {"x": _x}, {"q": _q, "r": _r}, {"full_matrices": _full}, scale=20)
case("MatrixInverse", {"x": _x.real.contiguous() + 6 * torch.eye(4)}, torch.linalg.inv(_x.real + 6 * torch.eye(4)).mT, {"adjoint": True}, scale=8)

# ---- Losses ----

for _dtype in (f32, f16, f64):
    _scores = numbers(_dtype, 5, 7)
    for _labels in (numbers(_dtype, 5, 7, low=0, high=1, seed=4), numbers(_dtype, 7, low=0, high=1, seed=4)):
        _leaf = wide(_scores).double().requires_grad_()
        _loss = -(F.log_softmax(_leaf, -1) * wide(_labels).double()).sum(-1)
        case("SoftmaxCrossEntropyWithLogits", {"features": _scores, "labels": _labels},
             {"loss": _loss.detach(), "backprop": F.softmax(_leaf.detach(), -1) - wide(_labels).double()}, scale=4)
    for _index in (i32, i64):
        _classes = torch.tensor([0, 6, 3, 3, 1], dtype=_index)
        _leaf = wide(_scores).double().requires_grad_()
        _loss = F.cross_entropy(_leaf, _classes.long(), reduction="none")
        _backprop = torch.autograd.grad(_loss.sum(), _leaf)[0]
        case("SparseSoftmaxCrossEntropyWithLogits", {"features": _scores, "labels": _classes},
             {"loss": _loss.detach(), "backprop": _backprop}, scale=4)
    _wrong = torch.tensor([0, 7, -1, 3, 1])
    _nan = torch.tensor([1, math.nan, math.nan, 1, 1])
    _loss = F.cross_entropy(wide(_scores), _wrong % 7, reduction="none")
    _backprop = F.softmax(wide(_scores), -1) - F.one_hot(_wrong % 7, 7)
    case("SparseSoftmaxCrossEntropyWithLogits", {"features": _scores, "labels": _wrong},
         {"loss": _loss * _nan, "backprop": _backprop * _nan[:, None]}, scale=4)
for _dtype in SINGLES:
    _a, _b, _dout = numbers(_dtype, 4, 6), numbers(_dtype, 4, 6, low=0, high=1, seed=3), numbers(_dtype, 4, 6, seed=5)
    case("SigmoidCrossEntropyWithLogitsGrad", {"predict": _a, "target": _b, "dout": _dout},
         (torch.sigmoid(wide(_a)) - wide(_b)) * wide(_dout), scale=2)
    _weight, _positive = numbers(_dtype, 6, low=0.5, seed=6), numbers(_dtype, 6, low=0.5, seed=7)
    for _how in ("none", "mean", "sum"):
        case("SigmoidCrossEntropyWithLogitsV2", {"predict": _a, "target": _b},
             F.binary_cross_entropy_with_logits(wide(_a), wide(_b), reduction=_how), {"reduction": _how}, scale=4)
    case("SigmoidCrossEntropyWithLogitsV2", {"predict": _a, "target": _b, "weight": _weight, "pos_weight": _positive},
         F.binary_cross_entropy_with_logits(wide(_a), wide(_b), wide(_weight), pos_weight=wide(_positive)), scale=8)
    for _sigma in (1.0, 0.5):
        _leaf = wide(_a).requires_grad_()
        _loss = F.smooth_l1_loss(_leaf, wide(_b), reduction="none", beta=_sigma)
        case("SmoothL1Loss", {"predict": _a, "label": _b}, _loss.detach(), {"sigma": _sigma}, scale=2)
        case("SmoothL1LossGrad", {"predict": _a, "label": _b, "dout": _dout}, torch.autograd.grad(_loss, _leaf, wide(_dout))[0],
             {"sigma": _sigma}, scale=4)

# ---- Optimizers ----

# The step as a formula of the inputs by their names: the states that it writes.
STEPS = {}


def step(*names):
    def note(function):
        STEPS.update(dict.fromkeys(names, function))
        return function
    return note


@step("ApplyGradientDescent")
def descent(t, how):
    return {"var": t.var - t.alpha * t.delta}


@step("ApplyProximalGradientDescent")
def proximal(t, how):
    moved = t.var - t.alpha * t.delta
    return {"var": moved.sign() * (moved.abs() - t.alpha * t.l1).clamp(min=0) / (1 + t.alpha * t.l2)}


@step("ApplyMomentum", "ApplyMomentumD")
def momentum(t, how):
    accum = t.accum * t.momentum + t.grad
    way = t.grad + accum * t.momentum if how.get("use_nesterov") else accum
    return {"var": t.var - t.lr * way, "accum": accum}


@step("ApplyKerasMomentum", "ApplyKerasMomentumD")
def keras_momentum(t, how):
    accum = t.accum * t.momentum - t.grad * t.lr
    return {"var": t.var + (accum * t.momentum - t.grad * t.lr if how.get("use_nesterov") else accum), "accum": accum}


@step("ApplyAdam", "ApplyAdamD")
def adam(t, how):
    m, v = t.m * t.beta1 + t.grad * (1 - t.beta1), t.v * t.beta2 + t.grad ** 2 * (1 - t.beta2)
    way = m * t.beta1 + (1 - t.beta1) * t.grad if how.get("use_nesterov") else m
    rate = t.lr * (1 - t.beta2_power).sqrt() / (1 - t.beta1_power)
    return {"var": t.var - rate * way / (v.sqrt() + t.epsilon), "m": m, "v": v}


@step("ApplyAdamW")
def adam_w(t, how):
    grad = -t.grad if how.get("maximize") else t.grad
    m, v = t.m * t.beta1 + grad * (1 - t.beta1), t.v * t.beta2 + grad ** 2 * (1 - t.beta2)
    root = (v / (1 - t.beta2_power * t.beta2)).sqrt() + t.epsilon
    var = t.var * (1 - t.lr * t.weight_decay) - t.lr * m / (1 - t.beta1_power * t.beta1) / root
    return {"var": var, "m": m, "v": v}


@step("ApplyAdaMax", "ApplyAdaMaxD")
def ada_max(t, how):
    m, v = t.m * t.beta1 + t.grad * (1 - t.beta1), torch.maximum(t.v * t.beta2, t.grad.abs())
    return {"var": t.var - t.lr / (1 - t.beta1_power) * m / (v + t.epsilon), "m": m, "v": v}


@step("ApplyAdagrad", "ApplyAdagradD", "ApplyAdagradV2", "ApplyAdagradV2D")
def adagrad(t, how):
    accum = t.accum + t.grad ** 2 if how.get("update_slots", True) else t.accum
    epsilon = getattr(t, "epsilon", how.get("epsilon", 0.0))
    return {"var": t.var - t.lr * t.grad / (accum.sqrt() + epsilon), "accum": accum}


@step("ApplyRMSProp", "ApplyRMSPropD", "ApplyCenteredRMSProp", "ApplyCenteredRMSPropD")
def rms_prop(t, how):
    rho, factor, epsilon = (getattr(t, name, how.get(name)) for name in ("rho", "momentum", "epsilon"))
    ms = t.ms * rho + t.grad ** 2 * (1 - rho)
    found = {"ms": ms}
    base = ms
    if hasattr(t, "mg"):
        found["mg"] = t.mg * rho + t.grad * (1 - rho)
        base = ms - found["mg"] ** 2
    found["mom"] = t.mom * factor + t.lr * t.grad / (base + epsilon).sqrt()
    return {**found, "var": t.var - found["mom"]}


@step("ApplyAdadelta", "ApplyAdadeltaD")
def adadelta(t, how):
    accum = t.accum * t.rho + t.grad ** 2 * (1 - t.rho)
    update = ((t.accum_update + t.epsilon) / (accum + t.epsilon)).sqrt() * t.grad
    return {"var": t.var - t.lr * update, "accum": accum, "accum_update": t.accum_update * t.rho + update ** 2 * (1 - t.rho)}


@step("ApplyFtrl", "ApplyFtrlD", "ApplyFtrlV2", "ApplyFtrlV2D")
def ftrl(t, how):
    accum = t.accum + t.grad ** 2
    pull = t.grad + 2 * getattr(t, "l2_shrinkage", 0.0) * t.var
    linear = t.linear + pull - (accum ** -t.lr_power - t.accum ** -t.lr_power) / t.lr * t.var
    var = (t.l1 * linear.sign() - linear) / (accum ** -t.lr_power / t.lr + 2 * t.l2)
    return {"var": torch.where(linear.abs() > t.l1, var, 0.0), "accum": accum, "linear": linear}


@step("ApplyAddSign", "ApplyPowerSign")
def sign_step(t, how):
    m = t.m * t.beta + t.grad * (1 - t.beta)
    agree = t.grad.sign() * m.sign() * t.sign_decay
    factor = t.alpha + agree if hasattr(t, "alpha") else (t.logbase * agree).exp()
    return {"var": t.var - t.lr * factor * t.grad, "m": m}


@step("SGD")
def sgd(t, how):
    grad = t.gradient + how.get("weight_decay", 0.0) * t.parameters
    later = t.accum * t.momentum + (1 - how.get("dampening", 0.0)) * grad
    accum = torch.where(t.stat > 0, grad, later)
    way = grad + t.momentum * accum if how.get("nesterov") else accum
    return {"parameters": t.parameters - t.learning_rate * way, "accum": accum, "stat": torch.where(t.stat > 0, 0.0, t.stat)}


class Names:
    def __init__(self, values):
        self.__dict__.update(values)


NUMBERS = {"lr": 0.1, "alpha": 0.25, "momentum": 0.9, "beta1": 0.8, "beta2": 0.95, "beta1_power": 0.64, "beta2_power": 0.9,
           "epsilon": 0.01, "rho": 0.75, "l1": 0.5, "l2": 0.25, "l2_shrinkage": 0.125, "lr_power": -0.5, "learning_rate": 0.1,
           "beta": 0.7, "sign_decay": 0.5, "logbase": 0.7, "weight_decay": 0.3}
# Gradients and states that are not squares may have either sign.
SIGNED = {"var", "grad", "delta", "gradient", "parameters", "linear", "m", "mom", "mg"}
HOW = {"use_nesterov": (False, True), "nesterov": (False, True), "update_slots": (True, False), "maximize": (False, True), "weight_decay": (0.0, 0.5),
       "dampening": (0.0, 0.25), "epsilon": (0.015625,), "rho": (0.75,), "momentum": (0.875,)}  # numbers that float32 has


def optimizer_inputs(type, dtype, shape):
    values = {}
    for number, operand in enumerate(ROWS[type].inputs):
        name = operand.name
        if operand.is_optional:
            continue
        if name in NUMBERS:
            values[name] = torch.tensor(NUMBERS[name], dtype=dtype).reshape([1] if number % 2 else [])
        elif name == "stat":
            values[name] = (torch.arange(math.prod(shape)) % 2).reshape(shape).to(dtype)
        else:
            least = -1.5 if name in SIGNED else 1.0 if name == "ms" else 0.25
            values[name] = numbers(dtype, *shape, low=least, high=1.5 if name != "mg" else 0.25, seed=number)
    return values


def optimizer_cases(type):
    settings = [[(a.name, value) for value in HOW[a.name]] for a in ROWS[type].attributes if a.name in HOW]
    for how in itertools.product(*settings):
        for dtype in (f32, f16, f64, b16) if type != "SGD" else SINGLES:
            for shape in ((3, 5), (7,), (0, 2)):
                yield optimizer_inputs(type, dtype, shape), dict(how)


@pytest.mark.parametrize("type", sorted(STEPS))
def test_steps_of_optimizers(type):
    """Everything that the step writes, with outputs for all of it, in place and apart, and for the parameter alone."""
    first = ROWS[type].outputs[0].name
    for number, (inputs, how) in enumerate(optimizer_cases(type)):
        expected = STEPS[type](Names({name: wide(value) for name, value in inputs.items()}), how)
        assert list(expected) and set(expected) == {output.name for output in ROWS[type].outputs}
        for apart, wanted in ((False, None), (True, None), (False, 1)):
            found = call(type, inputs, how, apart=apart, wanted=wanted)
            for name in expected if wanted is None else (first,):
                try:
                    close(found[name], expected[name], 8)
                except AssertionError as error:
                    raise AssertionError(f"{type} {name} {how} {number}: {error}") from None


@pytest.mark.parametrize("type", [type for type in sorted(STEPS) if any(o.is_unnamed for o in ROWS[type].outputs)])
def test_states_that_no_output_names_are_written(type):
    """Programs pass the parameter as the only output; the states change in the memory of their inputs."""
    inputs, how = next(optimizer_cases(type))
    expected = STEPS[type](Names(inputs), how)
    for name, found in states_after(type, inputs, how).items():
        close(found, expected[name], 8)


def states_after(type, inputs, how):
    import graph_ops
    tensors, read = {}, {}
    make = graph_ops.make_inputs

    def keep(row, values):
        made, by_name = make(row, values)
        tensors.update(by_name)
        return made, by_name

    graph_ops.make_inputs = keep
    try:
        call(type, inputs, how, wanted=1)
        for output in ROWS[type].outputs:
            if output.is_unnamed:
                tensor, value = tensors[output.name][0], inputs[output.name]
                read[output.name] = graph_ops.elements(tensor.address, value.numel(), value.dtype).clone().reshape(value.shape)
    finally:
        graph_ops.make_inputs = make
    assert read
    return read


@pytest.mark.parametrize("type", sorted(CASES))
def test_as_pytorch(type):
    hold(type, CASES[type])


def test_every_row_has_a_case():
    missing = {type for type, family in FAMILIES.items() if family == "training"} - set(CASES) - set(STEPS)
    assert not missing


IMAGE, PLANE = numbers(f32, 1, 4, 4, 3), numbers(f32, 2, 6)
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1]}
ONE = torch.tensor(0.5)
REFUSED = [
    ("MaxPool", {"x": IMAGE}, {**POOL, "padding": "CALCULATED"}, ("padding", "CALCULATED", "SAME or VALID")),
    ("MaxPool", {"x": IMAGE}, {**POOL, "padding": "SAME", "data_format": "NCWH"}, ("data_format", "NCHW or NHWC")),
    ("MaxPool", {"x": IMAGE}, {**POOL, "ksize": [1, 2, 2, 3], "padding": "SAME"}, ("ksize", "batch and channels")),
    ("MaxPool", {"x": PLANE}, {**POOL, "padding": "SAME"}, ("x has the shape [2, 6]", "4 dims")),
    ("MaxPool", {"x": IMAGE}, {**POOL, "ksize": [1, 5, 5, 1], "padding": "VALID"}, ("x", "window of 5")),
    ("MaxPoolV3", {"x": IMAGE}, {**POOL, "data_format": "NHWC", "pads": [1, 1, -1, 0]}, ("pads", "0 or more")),
    ("MaxPoolGrad", {"x1": IMAGE, "x2": IMAGE, "grad": PLANE}, {**POOL, "padding": "SAME"}, ("grad", "x2 has")),
    ("AvgPoolGrad", {"orig_input_shape": [1, 4, 4], "input_grad": IMAGE}, {**POOL, "padding": "SAME"}, ("out_grad", "4 sizes")),
    ("Pooling", {"x": IMAGE}, {"mode": 2}, ("mode is 2",)),
    ("Pooling", {"x": IMAGE}, {"dilation": [2, 2, 2, 2]}, ("dilation",)),
    ("GlobalAveragePool", {"x": PLANE}, {}, ("x", "pool over")),
    ("DepthwiseConv2D", {"x": IMAGE, "filter": numbers(f32, 2, 2, 4, 1)}, {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0]},
     ("filter", "number of channels", "expected 3")),
    ("DepthwiseConv2D", {"x": numbers(f32, 1, 3, 4, 4), "filter": numbers(f32, 4, 1, 2, 2)},
     {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NCHW"}, ("filter", "x has 3 channels")),
    ("DepthwiseConv2DBackpropInput", {"input_size": [1, 4, 4, 3], "filter": numbers(f32, 2, 2, 3, 1), "out_backprop": numbers(f32, 1, 3, 3, 6)},
     {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0]}, ("out_backprop", "3 filters")),
    ("BatchNorm", {"x": IMAGE, "scale": numbers(f32, 4), "offset": numbers(f32, 3)}, {}, ("scale", "number of channels")),
    ("BatchNorm", {"x": IMAGE, "scale": numbers(f32, 3), "offset": numbers(f32, 3)}, {"is_training": False}, ("mean", "left out")),
    ("BatchNorm", {"x": IMAGE, "scale": numbers(f32, 3), "offset": numbers(f32, 3)}, {"data_format": "HWC"}, ("data_format",)),
    ("BNInference", {"x": PLANE, "mean": numbers(f32, 5), "variance": numbers(f32, 6), "momentum": ONE}, {}, ("mean", "6 channels")),
    ("BNInference", {"x": PLANE, "mean": numbers(f32, 6), "variance": numbers(f32, 6), "momentum": ONE}, {"use_global_stats": False},
     ("use_global_stats", "BatchNorm")),
    ("InstanceNorm", {"x": IMAGE, "gamma": numbers(f32, 4), "beta": numbers(f32, 3)}, {"data_format": "NHWC"}, ("gamma", "expected 3")),
    ("LayerNorm", {"x": PLANE, "gamma": numbers(f32, 5), "beta": numbers(f32, 6)}, {"begin_norm_axis": 1, "begin_params_axis": 1},
     ("gamma", "expected [6]")),
    ("LRN", {"x": PLANE}, {}, ("x", "4 dims")),
    ("LRN", {"x": IMAGE}, {"norm_region": "WITHIN_CHANNEL"}, ("norm_region", "ACROSS_CHANNELS")),
    ("L2Normalize", {"x": PLANE}, {"axis": [2]}, ("axis is 2",)),
    ("Scale", {"x": PLANE, "scale": numbers(f32, 5)}, {}, ("scale", "from dim 1 on")),
    ("Scale", {"x": PLANE, "scale": numbers(f32, 6)}, {"num_axes": 2}, ("num_axes", "-1 to 1")),
    ("Eltwise", {"x": [PLANE, PLANE]}, {"N": 2, "mode": 3}, ("mode is 3",)),
    ("Eltwise", {"x": [PLANE, numbers(f32, 3)]}, {"N": 2}, ("x[1]",)),
    ("FullyConnection", {"x": PLANE, "w": numbers(f32, 5, 7)}, {"num_output": 5}, ("w", "number of elements")),
    ("FullyConnection", {"x": PLANE, "w": numbers(f32, 5, 6), "b": numbers(f32, 4)}, {"num_output": 5}, ("b", "5 outputs")),
    ("BiasAddGrad", {"x": PLANE}, {"data_format": "X"}, ("data_format",)),
    ("ResizeBilinearV2D", {"x": IMAGE}, {"size": [2, 2], "align_corners": True, "half_pixel_centers": True}, ("half_pixel_centers",)),
    ("ResizeBilinearV2D", {"x": IMAGE}, {"size": [2, 2, 2]}, ("size has 3 numbers",)),
    ("ResizeBilinearV2", {"x": IMAGE, "size": [2, 2]}, {"dtype": u8}, ("dtype", "cast the result")),
    ("Upsample", {"x": IMAGE}, {"stride_h": 0}, ("stride_h is 0",)),
    ("UnsortedSegmentMax", {"x": PLANE, "segment_ids": torch.zeros(3, dtype=i64), "num_segments": [2]}, {}, ("segment_ids", "expected 2")),
    ("UnsortedSegmentProdD", {"x": PLANE, "segment_ids": torch.zeros(2, dtype=i64)}, {"num_segments": -1}, ("num_segments is -1",)),
    ("MatrixInverse", {"x": PLANE}, {}, ("x", "expected 2")),
    ("MatrixInverse", {"x": numbers(c64, 2, 2)}, {"adjoint": True}, ("adjoint",)),
    ("SoftmaxCrossEntropyWithLogits", {"features": PLANE, "labels": numbers(f32, 2, 5)}, {}, ("labels", "broadcast")),
    ("SparseSoftmaxCrossEntropyWithLogits", {"features": PLANE, "labels": torch.zeros(3, dtype=i64)}, {}, ("labels", "expected 2")),
    ("SmoothL1LossGrad", {"predict": PLANE, "label": PLANE, "dout": PLANE}, {"sigma": 0.0}, ("sigma",)),
    ("ApplyMomentum", {"var": PLANE, "accum": PLANE[:1].clone(), "lr": ONE, "grad": PLANE, "momentum": ONE}, {},
     ("accum has the shape [1, 6]", "var has [2, 6]")),
    ("ApplyMomentum", {"var": PLANE, "accum": PLANE, "lr": PLANE, "grad": PLANE, "momentum": ONE}, {}, ("lr", "one number")),
    ("ApplyGradientDescent", {"var": PLANE, "alpha": ONE, "delta": numbers(f32, 6)}, {}, ("delta has the shape [6]",)),
    ("ApplyGradientDescent", {"var": numbers(i32, 3), "alpha": torch.tensor(1, dtype=i32), "delta": numbers(i32, 3)}, {},
     ("var", "int32, which the operator does not take")),
]


@pytest.mark.parametrize("type, inputs, attributes, words", REFUSED)
def test_refusals_name_the_culprit(type, inputs, attributes, words):
    with pytest.raises(AclError) as refused:
        call(type, inputs, attributes)
    assert refused.value.status in (100021, 100022, 100023), refused.value.message
    for word in (type, *words):
        assert word in refused.value.message
