# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F

from harness import Case, Ref, cases, high

# input, output channels, kernel, stride, padding, dilation, groups, bias
PLAIN = (
    ([2, 3, 9, 11], 8, [3, 3], [1], [1], [1], 1, True),
    ([1, 4, 12, 10], 6, [3, 2], [2, 1], [0, 1], [1, 2], 2, False),
    ([2, 6, 7, 7], 6, [3, 3], [2], [1], [1], 6, True),
    ([1, 5, 6, 9], 7, [1, 1], [1], [0], [1], 1, True),
    ([2, 5, 7, 8], 9, [1, 1], [2], [0], [1], 1, False),
    ([1, 3, 20, 21], 13, [7, 7], [2], [3], [1], 1, True),
    ([2, 4, 17], 6, [4], [3], [2], [2], 2, True),
    ([1, 2, 5, 6, 7], 5, [3, 2, 3], [1, 2, 1], [1, 0, 1], [1], 1, True),
    ([1, 4, 3, 5, 5], 8, [2, 3, 3], [1], [0, 1, 1], [1], 4, False),
    ([0, 3, 5, 5], 4, [3, 3], [1], [1], [1], 1, True),
    ([1, 2, 3, 3], 3, [3, 3], [4], [4], [1], 1, True),
    # One pixel is left, of which all of the input is a part.
    ([2, 70, 1, 1], 18, [1, 1], [1], [0], [1], 1, True),
    ([3, 6, 2, 3], 5, [2, 3], [2], [0], [1], 1, True),
    ([1, 9, 4], 4, [4], [1], [0], [1], 1, False),
)
LARGE = (
    ([1, 40, 19, 18], 140, [3, 3], [1], [1], [1], 1, True),
    ([2, 300, 9, 9], 20, [1, 1], [1], [0], [1], 1, True),
    ([1, 70, 8, 50], 2, [3, 3], [1], [1], [1], 1, True),
)
# input, output channels, kernel, stride, padding, output padding, dilation, groups, bias
TRANSPOSED = (
    ([2, 4, 5, 6], 6, [3, 3], [2], [1], [1], [1], 2, True),
    ([1, 5, 4, 4], 7, [4, 4], [2], [1], [0], [1], 1, False),
    ([1, 3, 6, 5], 4, [2, 3], [3, 1], [0, 1], [2, 0], [1, 2], 1, True),
    ([2, 3, 7], 2, [5], [2], [2], [1], [1], 1, True),
    ([1, 2, 3, 4, 3], 3, [2, 3, 3], [2, 1, 2], [0, 1, 1], [0, 0, 1], [1], 1, True),
    ([1, 6, 5, 5], 6, [3, 3], [1], [1], [0], [1], 6, True),
    ([1, 4, 5, 6], 5, [1, 1], [1], [0], [0], [1], 1, True),
)


def make(g, dtype, shape, outputs, kernel, groups, has_bias, transposed):
    x = g.tensor(shape, dtype)
    inputs = shape[1]
    weight = g.tensor(([inputs, outputs // groups] if transposed else [outputs, inputs // groups]) + kernel, dtype)
    return x, weight, g.tensor([outputs], dtype) if has_bias else None


def as_args(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    return {"input": x, "weight": weight, "bias": bias, "stride": stride, "padding": padding, "dilation": dilation,
            "transposed": transposed, "outputPadding": output_padding, "groups": groups, "cubeMathType": 0}


@cases("Convolution")
def convolution(op, g):
    for dtype in g.floating:
        for shape, outputs, kernel, stride, padding, dilation, groups, has_bias in (
                PLAIN + (LARGE if dtype != torch.bfloat16 else ())):
            x, weight, bias = make(g, dtype, shape, outputs, kernel, groups, has_bias, False)
            convolve = (F.conv1d, F.conv2d, F.conv3d)[len(kernel) - 1]
            out = convolve(high(x), high(weight), None if bias is None else high(bias), stride, padding, dilation, groups)
            yield Case(as_args(x, weight, bias, stride, padding, dilation, False, [0], groups),
                       {"output": Ref(out, dtype)})


@cases("Convolution")
def transposed_convolution(op, g):
    for dtype in g.floating:
        for shape, outputs, kernel, stride, padding, output_padding, dilation, groups, has_bias in TRANSPOSED:
            x, weight, bias = make(g, dtype, shape, outputs, kernel, groups, has_bias, True)
            convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(kernel) - 1]
            out = convolve(high(x), high(weight), None if bias is None else high(bias), stride, padding, output_padding,
                           groups, dilation)
            yield Case(as_args(x, weight, bias, stride, padding, dilation, True, output_padding, groups),
                       {"output": Ref(out, dtype)})


@cases("Convolution")
def other_layouts(op, g):
    x, weight, bias = make(g, torch.float32, [2, 6, 8, 9], 8, [3, 3], 1, True, False)
    last = x.to(memory_format=torch.channels_last)
    out = F.conv2d(high(x), high(weight), high(bias), 1, 1)
    yield Case(as_args(last, weight.to(memory_format=torch.channels_last), bias, [1], [1], [1], False, [0], 1),
               {"output": Ref(out, x.dtype)})
    yield Case(as_args(x.half(), weight.half(), bias, [1], [1], [1], False, None, 1),
               {"output": Ref(F.conv2d(high(x.half()), high(weight.half()), high(bias), 1, 1), torch.float16)})
    for value in (float("inf"), float("nan")):
        special = x.clone()
        special[0, 0, 4, 4] = value
        plain = F.conv2d(special, weight, bias, 1, 1)
        yield Case(as_args(special, weight, bias, [1], [1], [1], False, [0], 1), {"output": Ref(plain, x.dtype)})


@cases("ConvTbc")
def conv_tbc(op, g):
    for dtype in g.floating:
        for shape, kernel, outputs, pad in (([9, 2, 5], 3, 7, 1), ([6, 3, 4], 1, 2, 0), ([4, 1, 3], 4, 5, 2)):
            x = g.tensor(shape, dtype)
            weight = g.tensor([kernel, shape[2], outputs], dtype)
            bias = g.tensor([outputs], dtype)
            out = torch.conv_tbc(high(x), high(weight), high(bias), pad)
            yield Case({"self": x, "weight": weight, "bias": bias, "pad": pad, "cubeMathType": 0},
                       {"output": Ref(out, dtype)})


@cases("ConvDepthwise2d")
def depthwise(op, g):
    for dtype in g.floating:
        for shape, times, kernel, stride, padding, dilation, has_bias in (
                ([2, 3, 9, 11], 1, [3, 3], [1, 1], [1, 1], [1, 1], True), ([1, 4, 7, 8], 2, [2, 3], [2, 1], [0, 1], [1, 2], False),
                ([0, 2, 5, 5], 1, [3, 3], [1, 1], [1, 1], [1, 1], True), ([1, 1, 3, 3], 3, [1, 1], [1, 1], [0, 0], [1, 1], True)):
            x, weight = g.tensor(shape, dtype), g.tensor([times * shape[1], 1, *kernel], dtype)
            bias = g.tensor([times * shape[1]], dtype) if has_bias else None
            out = F.conv2d(high(x), high(weight), None if bias is None else high(bias), stride, padding, dilation, shape[1])
            yield Case({"self": x, "weight": weight, "kernelSize": kernel, "bias": bias, "stride": stride,
                        "padding": padding, "dilation": dilation, "cubeMathType": 0}, {"out": Ref(out, dtype)})
