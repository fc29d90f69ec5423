# SPDX-License-Identifier: Apache-2.0
"""Activation functions and their gradients."""

import torch
from torch.nn import functional

from harness import Case, Ref, Scalar, cases, high


@cases("Relu", "InplaceRelu")
def relu(op, g):
    for dtype in g.real:
        for kind in ("normal", "edge"):
            for shape in g.shapes:
                x = g.tensor(shape, dtype, kind)
                if op == "Relu":
                    yield Case({"self": x}, {"out": torch.relu(x)})
                else:
                    yield Case({"selfRef": x}, {"selfRef": torch.relu(x)})


def double(value):
    return Scalar(value, torch.float64)


def inputs(g, dtypes):
    for dtype in dtypes:
        for shape in g.shapes:
            yield g.tensor(shape, dtype)
        if not dtype.is_complex:
            yield g.tensor([50], dtype, "edge")
            yield (g.tensor([3, 41], torch.float64) * 8).to(dtype)


PLAIN = {
    "FastGelu": lambda x: x * torch.sigmoid(1.702 * x),
    "Gelu": functional.gelu,
    "Hardsigmoid": functional.hardsigmoid,
    "Hardswish": functional.hardswish,
    "Mish": functional.mish,
    "Silu": functional.silu,
}


@cases(*PLAIN)
def plain(op, g):
    for x in inputs(g, g.floating + (g.complex if op == "Silu" else ())):
        yield Case({"self": x}, {"out": Ref(PLAIN[op](high(x)), x.dtype)})


@cases("GeluV2")
def gelu_v2(op, g):
    for number, word in enumerate(("none", "tanh")):
        for x in inputs(g, g.floating):
            yield Case({"x": x, "approximate": number}, {"y": Ref(functional.gelu(high(x), approximate=word), x.dtype)})


@cases("Elu")
def elu(op, g):
    for alpha, scale, inner in ((1.0, 1.0, 1.0), (1.6732632423543772, 1.0507009873554805, 1.0), (0.5, 2, 0.75)):
        for x in inputs(g, g.floating):
            y = high(x)
            expected = torch.where(y <= 0, alpha * scale * torch.expm1(y * inner), scale * y)
            yield Case({"self": x, "alpha": double(alpha), "scale": double(scale), "inputScale": inner},
                       {"out": Ref(expected, x.dtype)})


@cases("Hardtanh")
def hardtanh(op, g):
    for dtype in g.real:
        low, top = (1, 3) if dtype in g.integers else (-0.5, 0.75)
        for x in [*(g.tensor(shape, dtype) for shape in g.shapes), g.tensor([3, 29], dtype, "edge")]:
            yield Case({"self": x, "clipValueMin": low, "clipValueMax": top}, {"out": x.clamp(low, top)})


@cases("LeakyRelu")
def leaky_relu(op, g):
    for slope in (0.01, -0.3, 2):
        for x in inputs(g, g.floating):
            yield Case({"self": x, "negativeSlope": double(slope)}, {"out": Ref(functional.leaky_relu(high(x), slope), x.dtype)})


@cases("Softplus")
def softplus(op, g):
    for beta, threshold in ((1, 20), (0.5, 3.0), (4, -1.0), (2.5, 15)):
        for x in inputs(g, g.floating):
            y = high(x)
            expected = functional.softplus(y, beta=beta, threshold=threshold)
            # An inexact product is the argument of an exponential.
            bound = "60/2" if beta == 2.5 else None
            yield Case({"self": x, "beta": beta, "threshold": threshold}, {"out": Ref(expected, x.dtype, bound=bound)})


@cases("Threshold", "InplaceThreshold")
def threshold(op, g):
    name, out = ("self", "out") if op == "Threshold" else ("selfRef", "selfRef")
    for dtype in g.real:
        for limit, value in ((1, 7), (2, 0)) if dtype in g.integers else ((0.5, -7.25), (0, 20)):
            for x in [*(g.tensor(shape, dtype) for shape in g.shapes[:5]), g.tensor([3, 29], dtype, "edge")]:
                yield Case({name: x, "threshold": limit, "value": value},
                           {out: functional.threshold(x, limit, value)})


def gradient(function, grad, x):
    """The gradient of function(x), in float64."""
    y = high(x).requires_grad_()
    result = function(y)
    return torch.autograd.grad(result, y, high(grad).expand(result.shape))[0]


def pairs(g, dtypes=None):
    for dtype in dtypes or g.floating:
        for shape in g.shapes:
            yield g.tensor(shape, dtype), g.tensor(shape, dtype)


@cases("SigmoidBackward", "TanhBackward")
def backward_of_result(op, g):
    for grad, y in pairs(g, g.floating + g.complex):
        wide = high(y)
        slope = wide * (1 - wide) if op == "SigmoidBackward" else (1 - wide) * (1 + wide)
        yield Case({"gradOutput": grad, "output": y}, {"gradInput": Ref(high(grad) * slope.conj(), y.dtype)})


@cases("SiluBackward", "GeluBackward")
def backward(op, g):
    function = {"SiluBackward": functional.silu, "GeluBackward": functional.gelu}[op]
    for grad, x in pairs(g):
        yield Case({"gradOutput": grad, "self": x}, {"gradInput": Ref(gradient(function, grad, x), x.dtype)})
    for dtype in g.floating:
        grad, x = g.tensor([5, 1, 7], dtype), (g.tensor([5, 1, 7], torch.float64) * 6).to(dtype)
        yield Case({"gradOutput": grad, "self": x}, {"gradInput": Ref(gradient(function, grad, x), dtype)})


@cases("GeluBackwardV2")
def gelu_backward_v2(op, g):
    for word in ("none", "tanh"):
        for grad, x in pairs(g):
            expected = gradient(lambda y: functional.gelu(y, approximate=word), grad, x)  # noqa: B023
            yield Case({"gradOutput": grad, "self": x, "approximate": word}, {"gradInput": Ref(expected, x.dtype)})


@cases("ThresholdBackward")
def threshold_backward(op, g):
    for dtype in g.real:
        for shape in g.shapes:
            grad, x = g.tensor(shape, dtype), g.tensor(shape, dtype, "small")
            yield Case({"gradOutput": grad, "self": x, "threshold": 2},
                       {"out": torch.where(x <= 2, torch.zeros_like(grad), grad)})
    grad, x = g.tensor([6, 1], torch.float32), g.tensor([5], torch.float32, "edge")
    yield Case({"gradOutput": grad, "self": x, "threshold": 0.5}, {"out": torch.where(x <= 0.5, 0.0, grad)})


HALVED = (([8], 0), ([0, 6], 1), ([5, 34], -1), ([6, 33], 0), ([2, 6, 65], 1), ([2, 3, 256], -1), ([4, 1, 6, 5], -2))


def halved(g, dtypes=None):
    for dtype in dtypes or g.floating:
        for shape, dim in HALVED:
            yield g.tensor(shape, dtype), dim


def swiglu(x, dim):
    a, b = x.chunk(2, dim)
    return functional.silu(a) * b


@cases("Glu", "SwiGlu")
def gated(op, g):
    name, function = ("self", functional.glu) if op == "Glu" else ("x", swiglu)
    for x, dim in halved(g):
        yield Case({name: x, "dim": dim}, {"out": Ref(function(high(x), dim), x.dtype)})


@cases("GluBackward", "SwiGluGrad")
def gated_backward(op, g):
    function = functional.glu if op == "GluBackward" else swiglu
    for x, dim in halved(g):
        half = list(x.shape)
        half[dim] //= 2
        grad = g.tensor(half, x.dtype)
        expected = Ref(gradient(lambda y: function(y, dim), grad, x), x.dtype)  # noqa: B023
        if op == "GluBackward":
            yield Case({"gradOut": grad, "self": x, "dim": dim}, {"out": expected})
        else:
            yield Case({"yGrad": grad, "x": x, "dim": dim}, {"out": expected})


@cases("GeGluV3")
def geglu(op, g):
    for number, word in enumerate(("none", "tanh")):
        for left in (True, False):
            for x, dim in halved(g, None if left == (word == "none") else (torch.float32,)):
                gate, other = high(x).chunk(2, dim) if left else reversed(high(x).chunk(2, dim))
                gelu = functional.gelu(gate, approximate=word)
                yield Case({"self": x, "dim": dim, "approximate": number, "activateLeft": left},
                           {"out": Ref(gelu * other, x.dtype), "outGelu": Ref(gelu, x.dtype)})
