# SPDX-License-Identifier: Apache-2.0
"""Operators by type against PyTorch: attention, convolutions, pools, indexing, norms, products, quantisation, routing."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import graph_ops
import graph_ops_borrowed
from aclnn import AclError
from graph_ops import call

HALF = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}
CHECKS = {}  # type -> functions
NO_STEPS = 100024


def checks(*types):
    def register(function):
        for type in types:
            CHECKS.setdefault(type, []).append(function)
        return function
    return register


class Numbers:
    """The same ones in every run."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape, dtype=torch.float32):
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def whole(self, *shape, low=-9, high=10, dtype=torch.int32):
        return torch.randint(low, high, shape, generator=self.generator).to(dtype)


def close(actual, expected, dtype=None, factor=1.0):
    dtype = dtype or expected.dtype
    assert actual.dtype == dtype and list(actual.shape) == list(expected.shape), (actual.dtype, actual.shape, expected.shape)
    if not dtype.is_floating_point:
        assert torch.equal(actual, expected.to(dtype)), (actual, expected)
        return
    wide = expected.double()
    limit = TOLERANCE[dtype] * factor * max(1.0, float(wide.abs().max()) if wide.numel() else 1.0)
    assert torch.allclose(actual.double(), wide, rtol=0, atol=limit, equal_nan=True), float((actual.double() - wide).abs().max())


def leaves(*tensors):
    return [tensor.double().requires_grad_() for tensor in tensors]


def gradients(result, grad, wanted):
    return torch.autograd.grad(result, wanted, grad.double())


@pytest.mark.parametrize("key", graph_ops_borrowed.BORROWED)
def test_as_the_function(key):
    *_, unknown = graph_ops_borrowed.names_of(key)
    assert not unknown, f"nothing is said of {unknown}"
    graph_ops_borrowed.verify(key)


# ---- Convolutions ----

CHANNELS_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
CONVOLUTIONS = [  # groups, strides, pads in front and behind, dilations, of each dim
    (1, (1, 1, 1), ((0, 0), (0, 0), (0, 0)), (1, 1, 1)),
    (2, (2, 1, 2), ((1, 1), (2, 2), (0, 0)), (1, 2, 1)),
    (1, (1, 2, 1), ((0, 1), (2, 0), (1, 1)), (2, 1, 1)),
]


def spatial(values, is_last):
    return [1, *values, 1] if is_last else [1, 1, *values]


def laid(tensor, is_last):
    return tensor.permute(CHANNELS_LAST[tensor.dim()]).contiguous() if is_last else tensor


def first(tensor, is_last):
    order = CHANNELS_LAST[tensor.dim()]
    return tensor.permute([order.index(d) for d in range(tensor.dim())]) if is_last else tensor


def around(x, pads):
    return F.pad(x, [n for pair in reversed(pads) for n in pair])


def convolution_of(dims, x, filter, bias, strides, pads, dilations, groups):
    return (F.conv2d if dims == 2 else F.conv3d)(around(x, pads), filter, bias, strides, 0, dilations, groups)


def convolution_cases(type, dtypes):
    dims = 3 if "3D" in type else 2
    for number, (dtype, (groups, strides, pads, dilations)) in enumerate(itertools.product(dtypes, CONVOLUTIONS)):
        is_last = number % 2 == 0
        layout = ("NHWC", "NDHWC")[dims - 2] if is_last else ("NCHW", "NCDHW")[dims - 2]
        attributes = {"strides": spatial(strides[:dims], is_last), "pads": [n for pair in pads[:dims] for n in pair],
                      "dilations": spatial(dilations[:dims], is_last), "groups": groups, "data_format": layout}
        yield number, dtype, is_last, attributes, (strides[:dims], pads[:dims], dilations[:dims], groups)


@checks("Conv2D", "Conv3D")
def convolution(type, random):
    dims = 3 if type == "Conv3D" else 2
    dtypes = (*HALF, torch.int8) if dims == 2 else (torch.float16, torch.int8)
    for number, dtype, is_last, attributes, geometry in convolution_cases(type, dtypes):
        groups = attributes["groups"]
        if dtype == torch.int8:
            x, filter = random.whole(2, 4, 7, 6, 5, dtype=dtype), random.whole(6, 4 // groups, 3, 2, 3, dtype=dtype)
            bias = random.whole(6) if number % 3 else None
        else:
            x, filter = random(2, 4, 7, 6, 5, dtype=dtype), random(6, 4 // groups, 3, 2, 3, dtype=dtype)
            bias = random(6, dtype=dtype if dtype != torch.bfloat16 else torch.float32) if number % 3 else None
        if dims == 2:
            x, filter = x[..., 0].contiguous(), filter[..., 0].contiguous()
        expected = convolution_of(dims, x.double(), filter.double(), None if bias is None else bias.double(), *geometry)
        out = torch.int32 if dtype == torch.int8 else torch.float32 if number % 4 == 1 else dtype
        result = call(type, {"x": laid(x, is_last), "filter": laid(filter, is_last), "bias": bias}, attributes,
                      {"y": out})
        close(first(result["y"], is_last), expected, out)


@checks("Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3DBackpropInput", "Conv3DBackpropFilter")
def convolution_gradients(type, random):
    dims = 3 if "3D" in type else 2
    for _, dtype, is_last, attributes, geometry in convolution_cases(type, (torch.float32, torch.float16)):
        x, filter = random(2, 4, 7, 6, 5, dtype=dtype), random(6, 4 // geometry[3], 3, 2, 3, dtype=dtype)
        if dims == 2:
            x, filter = x[..., 0].contiguous(), filter[..., 0].contiguous()
        wide_x, wide_filter = leaves(x, filter)
        result = convolution_of(dims, wide_x, wide_filter, None, *geometry)
        grad = random(*result.shape, dtype=dtype)
        of_x, of_filter = gradients(result, grad, (wide_x, wide_filter))
        inputs = {"out_backprop": laid(grad, is_last)}
        if type.endswith("Input"):
            inputs |= {"input_size": list(laid(x, is_last).shape), "filter": laid(filter, is_last)}
        else:
            inputs |= {"filter_size": list(laid(filter, is_last).shape), "x": laid(x, is_last)}
        actual = call(type, inputs, attributes)["y"]
        close(first(actual, is_last), of_x if type.endswith("Input") else of_filter, dtype)


@checks("Conv2DTranspose", "Conv3DTranspose")
def transposed_convolution(type, random):
    dims = 3 if "3D" in type else 2
    dtypes = (torch.float16, torch.int8) if dims == 2 else (torch.float16,)
    for number, dtype, is_last, attributes, (strides, pads, dilations, groups) in convolution_cases(type, dtypes):
        make = random.whole if dtype == torch.int8 else random
        x, filter = make(2, 4, 4, 3, 5, dtype=dtype), make(4, 6 // groups, 3, 2, 3, dtype=dtype)
        if dims == 2:
            x, filter = x[..., 0].contiguous(), filter[..., 0].contiguous()
        bias = None if number % 2 else make(6, dtype=torch.int32) if dtype == torch.int8 else make(6, dtype=dtype)
        more = [(number + d) % 2 if strides[d] > 1 else 0 for d in range(dims)]
        whole = (F.conv_transpose2d if dims == 2 else F.conv_transpose3d)(
            x.double(), filter.double(), None if bias is None else bias.double(), strides, 0, more, groups, dilations)
        expected = whole
        for d, (front, behind) in enumerate(pads):
            expected = expected.narrow(2 + d, front, expected.size(2 + d) - front - behind)
        out = torch.int32 if dtype == torch.int8 else dtype
        given = number % 3 == 0
        size = list(laid(expected, is_last).shape) if given else [0] * (dims + 2)
        result = call(type, {"input_size": size, "x": laid(x, is_last), "filter": laid(filter, is_last), "bias": bias},
                      attributes | {"output_padding": spatial(more, is_last)}, {"y": out})
        close(first(result["y"], is_last), expected, out)


@checks("QuantConv2D")
def quant_convolution(type, random):
    for number, _, is_last, attributes, geometry in convolution_cases(type, (torch.int8,)):
        x, filter = random.whole(2, 4, 7, 6, dtype=torch.int8), random.whole(6, 4 // geometry[3], 3, 2, dtype=torch.int8)
        bias = random.whole(6) if number else None
        scale = (random(6).abs() * 0.01).float()
        packed = call("TransQuantParamV2", {"scale": scale})["y"]
        expected = convolution_of(2, x.double(), filter.double(), None if bias is None else bias.double(), *geometry)
        used = (scale.view(torch.int32) & ~0x1FFF).view(torch.float32).double()  # the device keeps 19 bits
        result = call(type, {"x": laid(x, is_last), "filter": laid(filter, is_last), "scale": packed, "bias": bias},
                      attributes | {"dtype": 1})
        close(first(result["y"], is_last), expected * used.view(-1, 1, 1), torch.float16, 4)


@checks("MaskedCausalConv1d")
def masked_causal(type, random):
    for dtype, window, tokens, has_mask in ((torch.float16, 3, 7, True), (torch.bfloat16, 4, 2, False), (torch.float16, 1, 5, True)):
        x, weight = random(tokens, 2, 5, dtype=dtype), random(window, 5, dtype=dtype)
        mask = random.whole(2, tokens, low=0, high=2, dtype=torch.bool) if has_mask else None
        padded = F.pad(x.double(), (0, 0, 0, 0, window - 1, 0))
        expected = sum(padded[i:i + tokens] * weight[i].double() for i in range(window))
        if has_mask:
            expected = expected * mask.t().unsqueeze(-1)
        close(call(type, {"input": x, "weight": weight, "mask": mask})["output"], expected, dtype)


# ---- Pools, grids, sizes ----

@checks("AvgPoolV2", "AvgPoolV2Grad")
def mean_pool(type, random):
    cases = [  # layout, window, strides, pads, ceil, exclusive, divisor, mode, global
        ("NCHW", (3, 2), (2, 1), (1, 1), False, True, 0, "CALCULATED", False),
        ("NHWC", (3, 3), (2, 2), (1, 0), True, False, 0, "CALCULATED", False),
        ("NCHW", (2, 2), (2, 2), (0, 0), True, True, 3, "VALID", False),
        ("NHWC", (1, 1), (1, 1), (0, 0), False, True, 0, "CALCULATED", True),
        ("NCHW", (3, 3), (1, 1), (1, 1), False, True, 0, "SAME", False),
    ]
    for number, (layout, window, strides, pads, ceil, exclusive, divisor, mode, whole) in enumerate(cases):
        dtype = (torch.float32, torch.float16)[number % 2]
        is_last = layout == "NHWC"
        x = random(2, 3, 7, 8, dtype=dtype)
        (wide,) = leaves(x)
        attributes = {"ksize": spatial(window, is_last), "strides": spatial(strides, is_last), "padding_mode": mode,
                      "pads": [pads[0]] * 2 + [pads[1]] * 2 if mode == "CALCULATED" else [0] * 4, "data_format": layout,
                      "global_pooling": whole, "ceil_mode": ceil, "exclusive": exclusive, "divisor_override": divisor}
        if whole:
            expected = wide.mean((2, 3), keepdim=True)
        else:
            expected = F.avg_pool2d(wide, window, strides, pads, ceil, not exclusive, divisor or None)
        if type == "AvgPoolV2":
            close(first(call(type, {"x": laid(x, is_last)}, attributes)["y"], is_last), expected.detach(), dtype)
            continue
        grad = random(*expected.shape, dtype=dtype)
        (of_x,) = gradients(expected, grad, (wide,))
        actual = call(type, {"orig_input_shape": list(laid(x, is_last).shape), "input_grad": laid(grad, is_last)}, attributes)
        close(first(actual["out_grad"], is_last), of_x, dtype)
    if type == "AvgPoolV2":  # other pads behind than in front
        x = random(1, 2, 5, 5)
        for exclusive in (False, True):
            count = F.avg_pool2d(F.pad(torch.ones_like(x) if exclusive else x * 0 + 1, (0, 1, 1, 0)), 3, 1)
            expected = F.avg_pool2d(F.pad(x, (0, 1, 1, 0)), 3, 1) / (count if exclusive else 1)
            close(call(type, {"x": x}, {"ksize": [1, 1, 3, 3], "strides": [1, 1, 1, 1], "pads": [1, 0, 0, 1],
                                        "exclusive": exclusive})["y"], expected)


@checks("AdaptiveAvgPool2d", "AdaptiveAvgPool2dGrad")
def adaptive_pool(type, random):
    for dtype, shape, size in ((torch.float32, (2, 3, 7, 8), (3, 5)), (torch.float16, (3, 5, 9), (1, 1)),
                               (torch.bfloat16, (1, 2, 4, 4), (4, 2))):
        x = random(*shape, dtype=dtype)
        (wide,) = leaves(x)
        expected = F.adaptive_avg_pool2d(wide, size)
        if type == "AdaptiveAvgPool2d":
            close(call(type, {"x": x}, {"output_size": list(size)})["y"], expected.detach(), dtype)
        elif dtype != torch.bfloat16:
            grad = random(*expected.shape, dtype=dtype)
            actual = call(type, {"input_grad": grad}, {"orig_input_shape": list(shape)})["output_grad"]
            close(actual, gradients(expected, grad, (wide,))[0], dtype)


@checks("MaxPoolWithArgmaxV3", "MaxPoolGradWithArgmaxV3", "MaxPoolWithArgmaxV1", "MaxPoolGradWithArgmaxV1")
def largest(type, random):
    is_mask = type.endswith("V1")
    cases = [((3, 2), (2, 1), (1, 1), (1, 1), False), ((2, 2), (2, 2), (0, 0), (1, 1), True), ((2, 3), (1, 2), (1, 0), (2, 1), False)]
    for number, (window, strides, pads, dilations, ceil) in enumerate(cases):
        dtype = HALF[number % (2 if is_mask else 3)]
        is_last = not is_mask and number % 2 == 1
        x = random(2, 3, 9, 7, dtype=dtype)
        (wide,) = leaves(x)
        expected, places = F.max_pool2d(wide, window, strides, pads, dilations, ceil, True)
        grad = random(*expected.shape, dtype=dtype)
        (of_x,) = gradients(expected, grad, (wide,))
        if is_mask:
            attributes = {"ksize": [1, *window, 1], "strides": [1, *strides, 1], "pads": [1, *pads, 1],
                          "dilation": [1, *dilations, 1], "ceil_mode": ceil}
        else:
            attributes = {"ksize": list(window), "strides": list(strides), "pads": list(pads), "dilation": list(dilations),
                          "ceil_mode": ceil, "data_format": "NHWC" if is_last else "NCHW", "dtype": 3 if number else 9}
        forward = "MaxPoolWithArgmax" + type[-2:]
        result = call(forward, {"x": laid(x, is_last)}, attributes)
        close(first(result["y"], is_last), expected.detach(), dtype)
        if is_mask:
            entries = -(-expected.size(2) * expected.size(3) // 16)
            bits = (result["argmax"].to(torch.int32).unsqueeze(-1) >> torch.arange(16)) & 1
            found = bits[..., :entries, :].flatten(-2)[..., : expected.size(2) * expected.size(3)]
            rows = torch.arange(expected.size(2)).view(-1, 1) * strides[0] - pads[0]
            columns = torch.arange(expected.size(3)).view(1, -1) * strides[1] - pads[1]
            for t in range(window[0] * window[1]):
                here = (rows + t // window[1] * dilations[0]) * x.size(3) + columns + t % window[1] * dilations[1]
                inside = columns + t % window[1] * dilations[1]
                wanted = (places == here) & (inside >= 0) & (inside < x.size(3))
                assert torch.equal(found[:, :, t].bool(), wanted.flatten(-2)), t
            assert not bool(bits[..., entries:, :].any())
        else:
            close(first(result["argmax"], is_last), places, torch.int32 if number else torch.int64)
        if "Grad" in type:
            actual = call(type, {"x": laid(x, is_last), "grad": laid(grad, is_last), "argmax": result["argmax"]}, attributes)
            close(first(actual["y"], is_last), of_x, dtype)


@checks("MaxPool3DWithArgmaxV2")
def largest_of_volumes(type, random):
    for dtype, layout in ((torch.float32, "NCDHW"), (torch.bfloat16, "NDHWC")):
        is_last = layout == "NDHWC"
        x = random(1, 2, 5, 6, 7, dtype=dtype)
        expected, places = F.max_pool3d(x.double(), (2, 3, 2), (2, 1, 2), (1, 1, 0), 1, True, True)
        result = call(type, {"x": laid(x, is_last)}, {"ksize": spatial((2, 3, 2), is_last), "strides": spatial((2, 1, 2), is_last),
                                                      "pads": [1, 1, 0], "ceil_mode": True, "data_format": layout})
        close(first(result["y"], is_last), expected, dtype)
        close(first(result["argmax"], is_last), places, torch.int32)


@checks("GridSampler2D", "GridSampler2DGrad", "GridSampler3D")
def grids(type, random):
    dims = 3 if "3D" in type else 2
    for number, (mode, padding, aligns) in enumerate(
            [("bilinear", "zeros", False), ("nearest", "border", True), ("bilinear", "reflection", True)]):
        dtype = (torch.float32, torch.float16, torch.float64)[number]
        if "Grad" in type and dtype == torch.float16:
            dtype = torch.float32
        x, grid = random(2, 3, 5, 6, 4, dtype=dtype), torch.tanh(random(2, 4, 3, 2, dims, dtype=dtype)) * 1.2
        if dims == 2:
            x, grid = x[..., 0].contiguous(), grid[..., 0, :].contiguous()
        wide, wide_grid = leaves(x, grid)
        expected = F.grid_sample(wide, wide_grid, mode, padding, aligns)
        attributes = {"interpolation_mode": mode, "padding_mode": padding, "align_corners": aligns}
        if "Grad" not in type:
            close(call(type, {"x": x, "grid": grid}, attributes)["y"], expected.detach(), dtype, 20)
            continue
        grad = random(*expected.shape, dtype=dtype)
        result = call(type, {"grad": grad, "x": x, "grid": grid}, attributes)
        for name, wanted in zip(("dx", "dgrid"), gradients(expected, grad, (wide, wide_grid))):
            close(result[name], wanted, dtype, 20)


@checks("ResizeNearestNeighborV2", "ResizeNearestNeighborV2Grad")
def nearest(type, random):
    for number, (size, mode) in enumerate(itertools.product(((4, 13), (9, 3), (1, 6)), ("plain", "half", "corners"))):
        dtype = (torch.float32, torch.float16, torch.int32)[number % 3]
        x = random.whole(2, 3, 5, 6, dtype=dtype)

        def places(count, out):
            if mode == "corners":
                return torch.tensor([round(i * (count - 1) / (out - 1) + 1e-9) if out > 1 else 0 for i in range(out)])
            shift = 0.5 if mode == "half" else 0.0
            return torch.tensor([min(count - 1, int((i + shift) * count / out)) for i in range(out)])

        rows, columns = places(5, size[0]), places(6, size[1])
        attributes = {"align_corners": mode == "corners", "half_pixel_centers": mode == "half"}
        expected = x[:, :, rows][:, :, :, columns]
        if mode != "corners":
            same = F.interpolate(x.float(), size, mode="nearest-exact" if mode == "half" else "nearest")
            assert torch.equal(same, expected.float())
        if type == "ResizeNearestNeighborV2":
            close(call(type, {"x": x, "size": list(size)}, attributes)["y"], expected)
            continue
        grads = random.whole(*expected.shape, dtype=dtype)
        wanted = torch.zeros(2, 3, 5, size[1], dtype=torch.float64).index_add(2, rows, grads.double())
        wanted = torch.zeros(2, 3, 5, 6, dtype=torch.float64).index_add(3, columns, wanted)
        close(call(type, {"grads": grads, "size": [5, 6]}, attributes)["y"], wanted, dtype)


# ---- Indexing ----

@checks("EmbeddingBag")
def bags(type, random):
    weight = random(7, 4)
    for number, (mode, dtype) in enumerate(itertools.product(("sum", "mean", "max"), HALF)):
        table = weight.to(dtype)
        kind = (torch.int64, torch.int32)[number % 2]
        indices, offsets = random.whole(9, low=0, high=7, dtype=kind), torch.tensor([0, 3, 3, 7], dtype=kind)
        scales = random(9, dtype=dtype) if mode == "sum" and number % 2 else None
        last = number % 3 == 1
        if last:
            offsets = torch.cat([offsets, torch.tensor([9], dtype=kind)])
        wide = None if scales is None else scales.double()
        expected = F.embedding_bag(indices, table.double(), offsets, mode=mode, per_sample_weights=wide, include_last_offset=last)
        result = call(type, {"weight": table, "indices": indices, "offsets": offsets, "per_sample_weights": scales},
                      {"mode": mode, "include_last_offset": last})
        close(result["y"], expected, dtype)
        close(result["bag_size"], torch.tensor([3, 0, 4, 2]), kind)
        close(result["offset2bag"], torch.tensor([0, 0, 0, 2, 2, 2, 2, 3, 3]), kind)
    indices = random.whole(3, 4, low=0, high=7, dtype=torch.int64)
    close(call(type, {"weight": weight, "indices": indices}, {"mode": "mean"})["y"], F.embedding_bag(indices, weight, mode="mean"))


@checks("IndexByTensor")
def index_by_tensor(type, random):
    x = random(4, 5, 6, 3)
    i, j, k = (random.whole(*shape, low=0, high=3, dtype=torch.int64) for shape in ((2, 1), (3,), (2, 3)))
    cases = [([1], [i], x[i]), ([0, 1, 1], [i, j], x[:, i, j]), ([1, 0, 1], [i, j], x[i, :, j]),
             ([0, 0, 0, 1], [k], x[..., k]), ([1, 1, 1, 1], [i, j, k, j], x[i, j, k, j]),
             ([0, 1], [torch.zeros(0, dtype=torch.int64)], x[:, torch.zeros(0, dtype=torch.int64)])]
    for mask, indices, expected in cases:
        close(call(type, {"x": x, "indices": indices}, {"indices_mask": mask})["y"], expected)
    words = random.whole(4, 5, dtype=torch.int8)
    close(call(type, {"x": words, "indices": [j]}, {"indices_mask": [0, 1]})["y"], words[:, j])


@checks("InplaceIndexAdd")
def index_add(type, random):
    for dtype, alpha, axis in ((torch.float32, None, 1), (torch.int32, 3, 0), (torch.float16, 2, -1)):
        var = random.whole(4, 5, 3, dtype=dtype)
        indices = torch.tensor([2, 0, 2], dtype=torch.int32)
        shape = list(var.shape)
        shape[axis] = 3
        updates = random.whole(*shape, dtype=dtype)
        expected = var.index_add(axis, indices, updates, alpha=1 if alpha is None else alpha)
        given = None if alpha is None else torch.tensor([alpha], dtype=dtype)
        close(call(type, {"var": var, "indices": indices, "updates": updates, "alpha": given}, {"axis": axis})["var"], expected)


@checks("MapIndex")
def map_index(type, random):
    table = torch.tensor([[1, 2, 3], [4, 5, 6], [1, 2, 3], [7, 8, 9]], dtype=torch.int32)
    for x, expected in (([4, 5, 6], 1), ([1, 2, 3], 0), ([7, 8, 9], 3), ([7, 8, 8], -1)):
        result = call(type, {"x": torch.tensor(x, dtype=torch.int32), "data_seq": table.flatten()})["y"]
        assert result.flatten().tolist() == [expected]


@checks("ScatterElements")
def scatter_elements(type, random):
    for dtype, word in ((torch.float32, "none"), (torch.int32, "none"), (torch.float32, "mul"), (torch.int64, "add")):
        data, updates = random.whole(4, 5, dtype=dtype), random.whole(2, 5, dtype=dtype)
        indices = torch.stack([torch.randperm(4, generator=random.generator)[:2] for _ in range(5)], 1)
        expected = data.clone()
        expected = expected.scatter(0, indices, updates) if word == "none" else expected.scatter_reduce(
            0, indices, updates, {"mul": "prod", "add": "sum"}[word])
        close(call(type, {"data": data, "indices": indices, "updates": updates}, {"axis": 0, "reduction": word})["y"], expected)


# ---- Norms ----

def each(values, x):
    return values.view([-1] + [1] * (x.dim() - 2)) if values.dim() == 1 else values


def over_channels(x):
    return x.transpose(0, 1).flatten(1)


@checks("BatchNormV3", "BatchNormGradV3")
def batch_norm(type, random):
    for dtype, other, training in ((torch.float32, torch.float32, True), (torch.float16, torch.float32, True),
                                   (torch.bfloat16, torch.float32, False)):
        x = random(3, 4, 5, 2, dtype=dtype)
        weight, bias, mean = (random(4, dtype=other) for _ in range(3))
        variance = random(4, dtype=other).abs() + 0.1
        wide, wide_weight, wide_bias = leaves(x, weight, bias)
        running_mean, running_var = mean.double(), variance.double()
        expected = F.batch_norm(wide, running_mean, running_var, wide_weight, wide_bias, training, 0.3, 1e-4)
        if training:
            used = over_channels(x.double()).mean(1), over_channels(x.double()).var(1, unbiased=False)
        else:
            used = mean.double(), variance.double()
        result = call("BatchNormV3", {"x": x, "weight": weight, "bias": bias, "running_mean": mean, "running_var": variance},
                      {"epsilon": 1e-4, "momentum": 0.3, "is_training": training})
        if type == "BatchNormV3":
            close(result["y"], expected.detach(), dtype)
            close(result["running_mean"], running_mean, other)
            close(result["running_var"], running_var, other)
            close(result["save_mean"], used[0], torch.float32)
            close(result["save_rstd"], (used[1] + 1e-4).rsqrt(), torch.float32)
            continue
        dy = random(*x.shape, dtype=dtype)
        actual = call(type, {"dy": dy, "x": x, "weight": weight, "running_mean": mean, "running_var": variance,
                             "save_mean": result["save_mean"], "save_rstd": result["save_rstd"]},
                      {"is_training": training, "epsilon": 1e-4})
        for name, wanted, kind in zip(("dx", "dweight", "dbias"), gradients(expected, dy, (wide, wide_weight, wide_bias)),
                                      (dtype, other, other)):
            close(actual[name], wanted, kind, 4)


@checks("BNInfer", "BNInferGrad", "BNTrainingUpdateGrad", "BN3DTrainingUpdateGrad", "BNTrainingReduceGrad")
def batch_norm_parts(type, random):
    for dtype, shape, wide_statistics in ((torch.float32, (3, 4, 5, 2), False), (torch.float16, (2, 3, 4, 2, 2), True)):
        x, grads = random(*shape, dtype=dtype), random(*shape, dtype=dtype)
        channels, eps = shape[1], 1e-3
        view = [1, channels] + [1] * (len(shape) - 2)
        mean, scale, offset = (random(channels) for _ in range(3))
        variance = random(channels).abs() + 0.1
        told = {"mean": mean, "variance": variance, "scale": scale, "offset": offset}
        if wide_statistics:
            told = {name: value.view(view) for name, value in told.items()}
        centred = x.double() - mean.double().view(view)
        root = (variance.double() + eps).rsqrt()
        sums = over_channels(grads.double() * centred).sum(1) * root, over_channels(grads.double()).sum(1)
        statistics = {"batch_mean": told["mean"], "batch_variance": told["variance"]}
        if type == "BNInfer":
            expected = centred * (root * scale.double()).view(view) + offset.double().view(view)
            close(call(type, {"x": x, **told}, {"epsilon": eps})["y"], expected, dtype)
        elif type == "BNInferGrad":
            actual = call(type, {"grads": grads, "scale": told["scale"], "batch_variance": told["variance"]}, {"epsilon": eps})
            close(actual["x_backprop"], grads.double() * (root * scale.double()).view(view), dtype)
        elif type == "BNTrainingReduceGrad":
            count = x.numel() / channels
            expected = (grads.double() - sums[1].view(view) / count - centred * (root * sums[0]).view(view) / count)
            expected = expected * (root * scale.double()).view(view)
            inputs = {"grads": grads, "x": x, "diff_scale": sums[0].float(), "diff_offset": sums[1].float(),
                      "scale": told["scale"], **statistics}
            close(call(type, inputs, {"epsilon": eps})["y"], expected, dtype, 4)
        else:
            result = call(type, {"grads": grads, "x": x, **statistics}, {"epsilon": eps})
            close(result["diff_scale"].flatten(), sums[0], torch.float32, 4)
            close(result["diff_offset"].flatten(), sums[1], torch.float32, 4)


@checks("SyncBatchNormBackwardElemt", "SyncBatchNormBackwardReduce")
def sync_norm_gradients(type, random):
    for dtype in (torch.float32, torch.float16):
        mean, invstd, weight, first_mean, second_mean = (random(4, dtype=dtype) for _ in range(5))
        if type.endswith("Reduce"):
            result = call(type, {"sum_dy": weight, "sum_dy_dx_pad": first_mean, "mean": mean, "invert_std": invstd})
            expected = first_mean.double() - weight.double() * mean.double()
            close(result["sum_dy_xmu"], expected, dtype)
            close(result["y"], expected * invstd.double(), dtype)
            continue
        dy, x = random(3, 4, 5, dtype=dtype), random(3, 4, 5, dtype=dtype)
        m, r, w, a, b = (value.double().view(1, 4, 1) for value in (mean, invstd, weight, first_mean, second_mean))
        expected = (dy.double() - a - (x.double() - m) * r * r * b) * r * w
        actual = call(type, {"grad_output": dy, "save_input": x, "mean": mean, "invstd": invstd, "weight": weight,
                             "mean_dy": first_mean, "mean_dy_xmu": second_mean})
        close(actual["grad_input"], expected, dtype, 4)


@checks("GroupNorm", "GroupNormV2", "GroupNormGrad")
def group_norm(type, random):
    for number, (dtype, shape, groups) in enumerate([(torch.float32, (2, 6, 5, 3), 3), (torch.float16, (1, 4, 7), 1),
                                                     (torch.float32, (3, 4), 2)]):
        x, gamma, beta = random(*shape, dtype=dtype), random(shape[1], dtype=dtype), random(shape[1], dtype=dtype)
        wide, wide_gamma, wide_beta = leaves(x, gamma, beta)
        expected = F.group_norm(wide, groups, wide_gamma, wide_beta, 1e-3)
        grouped = x.double().reshape(shape[0], groups, -1)
        mean, variance = grouped.mean(2), grouped.var(2, unbiased=False)
        rstd = (variance + 1e-3).rsqrt()
        if type != "GroupNormGrad":
            result = call(type, {"x": x, "gamma": gamma, "beta": beta}, {"num_groups": groups, "eps": 1e-3})
            close(result["y"], expected.detach(), dtype)
            close(result["mean"], mean, dtype)
            close(result["variance" if type == "GroupNorm" else "rstd"], variance if type == "GroupNorm" else rstd, dtype, 2)
            continue
        dy = random(*shape, dtype=dtype)
        flags = {name: number != i for i, name in enumerate(("dx_is_require", "dgamma_is_require", "dbeta_is_require"))}
        result = call(type, {"dy": dy, "mean": mean.to(dtype), "rstd": rstd.to(dtype), "x": x, "gamma": gamma},
                      {"num_groups": groups, **flags})
        wanted = gradients(expected, dy, (wide, wide_gamma, wide_beta))
        for name, value, flag in zip(("dx", "dgamma", "dbeta"), wanted, flags.values()):
            close(result[name], value if flag else torch.zeros_like(value), dtype, 6)


@checks("LayerNormGradV3")
def layer_norm_gradient(type, random):
    for dtype, shape, normed in ((torch.float32, (3, 5), 1), (torch.float16, (2, 3, 4), 2), (torch.bfloat16, (4, 33), 1)):
        x, gamma, dy = random(*shape, dtype=dtype), random(*shape[-normed:], dtype=dtype), random(*shape, dtype=dtype)
        wide, wide_gamma = leaves(x, gamma)
        wide_beta = torch.zeros_like(wide_gamma, requires_grad=True)
        expected = F.layer_norm(wide, shape[-normed:], wide_gamma, wide_beta, 1e-5)
        dims = list(range(len(shape) - normed, len(shape)))
        mean = x.double().mean(dims, keepdim=True)
        rstd = (x.double().var(dims, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        result = call(type, {"dy": dy, "x": x, "rstd": rstd.float(), "mean": mean.float(), "gamma": gamma})
        for name, value in zip(("pd_x", "pd_gamma", "pd_beta"), gradients(expected, dy, (wide, wide_gamma, wide_beta))):
            close(result[name], value, dtype, 4)


@checks("FFT", "FFT2D")
def transforms(type, random):
    for shape, dtype in (((3, 12), torch.complex64), ((2, 7, 8), torch.complex128), ((1, 36), torch.complex64),
                         ((2, 3, 1, 5), torch.complex64), ((0, 4), torch.complex64), ((64, 60), torch.complex64)):
        x = torch.complex(random(*shape, dtype=torch.float64), random(*shape, dtype=torch.float64)).to(dtype)
        expected = x if not x.numel() else torch.fft.fft(x) if type == "FFT" else torch.fft.fft2(x)
        actual = call(type, {"x": x})["y"]
        assert actual.dtype == dtype and actual.shape == expected.shape
        scale = float(expected.abs().max()) if x.numel() else 1
        assert torch.allclose(actual, expected, rtol=0, atol=scale * (1e-6 if dtype == torch.complex64 else 1e-13))


@checks("Cmo")
def hint(type, random):
    call(type, {"src": random(4)}, {"max_size": 16})


IMAGE = torch.zeros(1, 2, 5, 5)
REFUSED = [  # type, inputs, attributes, number, words of the message
    ("GridSampler2D", {"x": IMAGE, "grid": torch.zeros(1, 3, 3, 2)}, {"interpolation_mode": "cubic"}, 100023,
     ("interpolation_mode", "bilinear, nearest, bicubic")),
    ("GridSampler3D", {"x": IMAGE.unsqueeze(2), "grid": torch.zeros(1, 1, 3, 3, 3)}, {"data_format": "NDHWC"}, 100023,
     ("data_format", "NCDHW")),
    ("ResizeNearestNeighborV2", {"x": IMAGE, "size": [2, 2]}, {"align_corners": True, "half_pixel_centers": True}, 100023,
     ("half_pixel_centers", "align_corners")),
    ("EmbeddingBag", {"weight": IMAGE[0, 0], "indices": torch.zeros(2, 2, dtype=torch.int64)}, {"mode": "median"}, 100023,
     ("mode", "sum, mean or max")),
    ("Scatter", {"var": IMAGE, "indices": torch.zeros(1, dtype=torch.int64), "updates": IMAGE}, {"reduce": "add"}, 100023,
     ("reduce", "use update")),
    ("ScatterElements", {"data": IMAGE, "indices": torch.zeros(1, 2, 5, 5, dtype=torch.int64), "updates": IMAGE},
     {"reduction": "max"}, 100023, ("reduction", "none, add or mul")),
    ("AvgPoolV2Grad", {"orig_input_shape": [1, 2, 5, 5], "input_grad": IMAGE[..., :4]},
     {"ksize": [1, 1, 2, 2], "strides": [1, 1, 1, 1], "pads": [0, 1, 0, 0]}, 100023, ("pads", "in front")),
    ("MaxPool3DWithArgmaxV2", {"x": IMAGE.unsqueeze(2)}, {"ksize": [1, 2, 2], "strides": [1, 1, 1], "pads": [0, 0, 0, 1, 0, 0]},
     100023, ("pads", "behind")),
    ("Conv2D", {"x": IMAGE, "filter": torch.zeros(3, 2, 1, 1)},
     {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NCHW", "offset_x": 3}, 100023, ("offset_x", "only 0")),
    ("Conv2DBackpropInput", {"input_size": [1, 2, 5, 5], "filter": torch.zeros(3, 2, 1), "out_backprop": IMAGE},
     {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NCHW"}, 100021, ("filter", "has 3 dims", "pass 4 dims")),
    ("Conv2DBackpropFilter", {"filter_size": [2, 5], "x": IMAGE, "out_backprop": IMAGE},
     {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NCHW"}, 100022, ("gets 2 dims",)),
    ("MapIndex", {"x": torch.zeros(3, dtype=torch.int32), "data_seq": torch.zeros(4, dtype=torch.int32)}, {}, 100021,
     ("data_seq", "rows as long as x")),
    ("BNInfer", {"x": IMAGE, **{name: torch.zeros(3) for name in ("scale", "offset", "mean", "variance")}}, {"epsilon": 0.1},
     100021, ("scale has 3 elements", "each channel")),
    ("GroupNormGrad", {"dy": IMAGE, "mean": torch.zeros(3), "rstd": torch.zeros(3), "x": IMAGE, "gamma": torch.zeros(2)},
     {"num_groups": 2}, 100021, ("mean", "[n, num_groups]")),
    ("MaskedCausalConv1d", {"input": IMAGE[0].half(), "weight": torch.zeros(2, 4).half()}, {}, 100021, ("weight", "[window, h]")),
    ("DynamicBlockQuant", {"x": IMAGE[0, 0].half()}, {}, 100023, ("dst_type", "no type that can be written")),
    ("QuantMax", {"x": IMAGE, "scale": torch.ones(1)}, {}, 100024, ("QuantMax has no kernel", "floating point", "int8")),
    ("HcomBroadcast", {"x": [IMAGE]}, {"root_rank": 0, "group": "g"}, 100024, ("HcomBroadcast has no kernel", "several processes")),
    ("FusedCausalConv1d", {"x": IMAGE, "weight": IMAGE, "conv_states": IMAGE}, {}, 100024, ("no published formula",)),
]


@pytest.mark.parametrize("type, inputs, attributes, number, words", REFUSED)
def test_refusals_say_why(type, inputs, attributes, number, words):
    with pytest.raises(AclError) as refused:
        call(type, inputs, attributes)
    assert refused.value.status == number, refused.value.message
    for word in (type, *words):
        assert word in refused.value.message


FAMILIES = ("attention", "convolution", "indexing", "matmul", "normalization", "quantization", "routing", "collective")
BY_OTHER_TESTS = {"BatchMatMul", "BatchMatMulV2", "MatMul", "MatMulV2"}  # tests/aclop/operator_test.cc


def has_steps(type):
    try:
        graph_ops.infer_nothing(type)
    except AclError as error:
        return error.status != NO_STEPS
    return True


def test_every_type_with_steps_has_a_case():
    types = {type for type, family in graph_ops.FAMILIES.items() if family in FAMILIES and has_steps(type)}
    tested = set(CHECKS) | {key.partition("/")[0] for key in graph_ops_borrowed.BORROWED} | BY_OTHER_TESTS
    assert not types - tested
    assert not tested - types - {"FFT", "FFT2D"}


@pytest.mark.parametrize("type", CHECKS)
def test_against_torch(type):
    for number, check in enumerate(CHECKS[type]):
        check(type, Numbers(number + len(type)))
