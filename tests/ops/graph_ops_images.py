# SPDX-License-Identifier: Apache-2.0
"""Convolutions, pools, grids and sizes by type against PyTorch, in both orders of channels."""

import itertools

import torch
import torch.nn.functional as F

from cases_deformable import deformed, sizes_of
from graph_ops import call
from graph_ops_checks import HALF, checks, close, gradients, leaves

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


@checks("Conv2DFused", "Conv3DFused")
def fused_convolution(type, random):
    dims = 3 if "3D" in type else 2
    for number, dtype, is_last, attributes, geometry in convolution_cases(type, HALF):
        x = random(2, 4, 7, 6, 5, dtype=dtype)
        filter = random(6, 4 // attributes["groups"], 3, 2, 3, dtype=dtype)
        if dims == 2:
            x, filter = x[..., 0].contiguous(), filter[..., 0].contiguous()
        bias = random(6, dtype=dtype) if number % 3 else None
        sums = convolution_of(dims, x.double(), filter.double(), None if bias is None else bias.double(), *geometry)
        addend = random(*sums.shape, dtype=dtype) if number % 4 < 2 else None
        expected = sums if addend is None else sums + addend.double()
        activation = ("", "Relu", "Clip")[number % 3]
        expected = (expected, expected.clamp(min=0), expected.clamp(-0.5, 1.5))[number % 3]
        result = call(type, {"x": laid(x, is_last), "filter": laid(filter, is_last), "bias": bias,
                             "addend": None if addend is None else laid(addend, is_last)},
                      {**attributes, "activation": activation, "low": -0.5, "high": 1.5}, {"y": dtype})
        close(first(result["y"], is_last), expected, dtype)


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


@checks("FusedCausalConv1d", "InplaceFusedCausalConv1d")
def kept_causal(type, random):
    for dtype, residual in ((torch.float16, None), (torch.bfloat16, 0)):
        x, weight, states = random(7, 5, dtype=dtype), random(3, 5, dtype=dtype), random(4, 4, 5, dtype=dtype)
        lines, accepted = torch.tensor([3, 0], dtype=torch.int32), torch.tensor([2, 3], dtype=torch.int32)
        given = {"x": x, "weight": weight, "conv_states": states, "query_start_loc": torch.tensor([0, 3, 7], dtype=torch.int32),
                 "cache_indices": lines, "num_accepted_tokens": accepted}
        result = call(type, given, {} if residual is None else {"residual_connection": residual})
        left, parts = states.clone(), []
        for part, line, offset in zip(x.split([3, 4]), lines.tolist(), (accepted - 1).tolist()):
            seen = torch.cat([states[line, :offset + 2], part])
            left[line] = seen[-4:]
            seen = seen[offset:].double()
            out = sum(seen[i:i + len(part)] * weight[i].double() for i in range(3))
            parts.append(out + part.double() if residual is None else out)  # which the attribute says by itself
        close(result["y" if type == "FusedCausalConv1d" else "x"], torch.cat(parts), dtype)
        assert torch.equal(result["conv_states"], left)


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


@checks("DeformableOffsets", "DeformableOffsetsGrad")
def read_beside_the_window(type, random):
    # batch, groups, groups of channels that move together, channels, -, image, kernel, stride, padding, dilation
    for number, problem in enumerate(((2, 1, 2, 4, 0, (5, 6), (3, 2), (2, 1), (1, 2, 0, 1), (1, 2)),
                                      (1, 1, 1, 3, 0, (4, 4), (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)))):
        dtype = (torch.float32, torch.float16)[number]
        n, _, moved, channels, _, image, kernel, stride, padding, dilation = problem
        out = sizes_of(problem)
        x, offsets = random(n, channels, *image, dtype=dtype), random(n, 3 * moved * kernel[0] * kernel[1], *out, dtype=dtype)
        wide, is_last = leaves(x, offsets), number == 0
        expected = deformed(*wide, problem)
        attributes = {"strides": spatial(stride, is_last), "pads": list(padding), "ksize": list(kernel),
                      "dilations": spatial(dilation, is_last), "deformable_groups": moved,
                      "data_format": "NHWC" if is_last else "NCHW"}
        inputs = {"x": laid(x, is_last), "offsets": laid(offsets, is_last)}
        if "Grad" not in type:
            close(first(call(type, inputs, attributes)["y"], is_last), expected.detach(), dtype, 20)
            continue
        grad = random(*expected.shape, dtype=dtype)
        result = call(type, {"grad": laid(grad, is_last)} | inputs, attributes)
        for name, wanted in zip(("grad_x", "grad_offsets"), gradients(expected, grad, wide)):
            close(first(result[name], is_last), wanted, dtype, 40)
