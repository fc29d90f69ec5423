# SPDX-License-Identifier: Apache-2.0
"""Gradients, against those that PyTorch derives, and the activation functions that belong to them."""

import torch
from torch.nn import functional

from harness import Case, Check, Ref, Scalar, cases, high


def double(value):
    return Scalar(value, torch.float64)


def inputs(g, dtypes):
    for dtype in dtypes:
        for shape in ([5, 33], [0, 3], [], [2, 3, 65]):
            yield g.tensor(shape, dtype)
        yield (g.tensor([3, 41], torch.float64) * 8).to(dtype)


def derived(function, grad, *tensors):
    """Gradients of function(*tensors), computed in float64."""
    leaves = [high(t).clone().requires_grad_() for t in tensors]
    result = function(*leaves)
    return torch.autograd.grad(result, leaves, high(grad).expand(result.shape))


# ---- Functions ----

@cases("Celu")
def celu(op, g):
    for alpha in (1.0, 0.3, 2.0):
        for x in inputs(g, g.floating):
            yield Case({"self": x, "alpha": double(alpha)}, {"out": Ref(functional.celu(high(x), alpha), x.dtype)})


@cases("Hardshrink", "Softshrink")
def shrink(op, g):
    function = functional.hardshrink if op == "Hardshrink" else functional.softshrink
    for bound in (0.5, 1.25, 0.0, -0.5)[:3 if op == "Softshrink" else 4]:
        for x in [*inputs(g, g.floating), g.tensor([60], torch.float32, "edge"), g.tensor([60], torch.float16, "small")]:
            yield Case({"self": x, "lambd": double(bound)}, {"out": Ref(function(high(x), bound), x.dtype)})


@cases("LogSigmoid", "LogSigmoidForward")
def log_sigmoid(op, g):
    for x in [*inputs(g, g.floating), g.tensor([60], torch.float32, "edge")]:
        expect = {"out": Ref(functional.logsigmoid(high(x)), x.dtype)}
        if op.endswith("Forward"):
            expect["buffer"] = Check([0], x.dtype, lambda actual: True)
        yield Case({"self": x}, expect, any_shape=("buffer",))


@cases("Prelu", "PreluBackward")
def prelu(op, g):
    for dtype in g.floating:
        for shape in ([5, 33], [2, 3, 65], [7], [], [2, 4, 3, 5]):
            counts = {1, shape[1] if len(shape) > 1 else 1}
            wide = [[1, count, *[1] * (len(shape) - 2)] for count in counts if shape[1:] and dtype == torch.float32]
            for sizes in [[count] for count in counts] + wide:
                x, weight = g.tensor(shape, dtype), g.tensor(sizes, dtype)
                function = lambda x, weight: functional.prelu(x, weight.flatten())  # noqa: E731
                if op == "Prelu":
                    yield Case({"self": x, "weight": weight}, {"out": Ref(function(high(x), high(weight)), dtype)})
                    continue
                grad = g.tensor(shape, dtype)
                of_x, of_weight = derived(function, grad, x, weight)
                yield Case({"gradOutput": grad, "self": x, "weight": weight},
                           {"gradInput": Ref(of_x, dtype), "gradWeight": Ref(of_weight, dtype)})
    if op == "Prelu":
        x = g.tensor([0, 3], torch.float32)
        yield Case({"self": x, "weight": g.tensor([3], torch.float32)}, {"out": x})


# ---- Gradients of functions of one number ----

SIMPLE = {  # -> function of self, name of the result, attributes
    "FastGeluBackward": (lambda x: x * torch.sigmoid(1.702 * x), "gradInput", {}),
    "HardsigmoidBackward": (lambda x: (x + 3).clamp(0, 6) / 6, "out", {}),  # PyTorch has 1 / 6 as a float32
    "HardswishBackward": (functional.hardswish, "out", {}),
    "HardswishBackwardV2": (functional.hardswish, "out", {}),
    "HardshrinkBackward": (lambda x: functional.hardshrink(x, 0.75), "gradInput", {"lambd": double(0.75)}),
    "SoftshrinkBackward": (lambda x: functional.softshrink(x, 0.75), "gradInput", {"lambda": double(0.75)}),
    "HardtanhBackward": (lambda x: functional.hardtanh(x, -0.5, 0.75), "out", {"min": double(-0.5), "max": double(0.75)}),
    "MishBackward": (functional.mish, "gradInput", {}),
    "SoftplusBackward": (lambda x: functional.softplus(x, 1.5, 20), "gradInput",
                         {"beta": double(1.5), "threshold": double(20)}),
}


@cases(*SIMPLE)
def simple(op, g):
    function, out, attributes = SIMPLE[op]
    for x in inputs(g, g.floating):
        grad = g.tensor(list(x.shape), x.dtype)
        yield Case({"gradOutput": grad, "self": x, **attributes}, {out: Ref(derived(function, grad, x)[0], x.dtype)})
    x, grad = g.tensor([4, 60], torch.float32), g.tensor([60], torch.float32)
    yield Case({"gradOutput": grad, "self": x, **attributes}, {out: Ref(derived(function, grad, x)[0], torch.float32)})


@cases("LogSigmoidBackward")
def log_sigmoid_backward(op, g):
    for x in inputs(g, g.floating):
        grad = g.tensor(list(x.shape), x.dtype)
        yield Case({"gradOutput": grad, "self": x, "buffer": torch.zeros([0], dtype=x.dtype)},
                   {"gradInput": Ref(derived(functional.logsigmoid, grad, x)[0], x.dtype)})


@cases("EluBackward")
def elu_backward(op, g):
    for alpha, scale, inner in ((1.0, 1.0, 1.0), (1.6732632423543772, 1.0507009873554805, 1.0), (0.5, 2.0, 0.75)):
        for is_result in (False, True):
            for x in inputs(g, g.floating):
                grad = g.tensor(list(x.shape), x.dtype)
                expected = torch.ops.aten.elu_backward(high(grad), alpha, scale, inner, is_result, high(x))
                yield Case({"gradOutput": grad, "alpha": double(alpha), "scale": double(scale), "inputScale": double(inner),
                            "isResult": is_result, "selfOrResult": x}, {"gradInput": Ref(expected, x.dtype)})


@cases("LeakyReluBackward")
def leaky_relu_backward(op, g):
    for slope, is_result in ((0.01, False), (-0.3, False), (0.5, True)):
        for x in inputs(g, g.floating):
            grad = g.tensor(list(x.shape), x.dtype)
            expected = derived(lambda t: functional.leaky_relu(t, slope), grad, x)[0]
            yield Case({"gradOutput": grad, "self": x, "negativeSlope": double(slope), "selfIsResult": is_result},
                       {"out": Ref(expected, x.dtype)})


# ---- Losses ----

REDUCTIONS = ("none", "mean", "sum")
SHAPES = (([5, 33], [5, 33]), ([2, 3, 65], [65]), ([], []))


def unit(t):
    return torch.sigmoid(t.double()).to(t.dtype)


@cases("SoftMarginLoss")
def soft_margin(op, g):
    for dtype in g.floating:
        for number, reduction in enumerate(REDUCTIONS):
            for shapes in SHAPES:
                x, y = g.tensor(shapes[0], dtype), g.tensor(shapes[1], dtype, "small").sign()
                loss = functional.softplus(-high(x) * high(y), 1, 50)
                value = {"none": loss, "mean": loss.mean(), "sum": loss.sum()}[reduction]
                yield Case({"self": x, "target": y, "reduction": number}, {"out": Ref(value, dtype)})


LOSSES = {  # -> loss without reduction, which of self and target, names of gradient and result, attributes
    "L1LossBackward": (lambda x, y: (x - y).abs(), 0, "gradOutput", "gradInput", {}),
    "SmoothL1LossBackward": (lambda x, y: functional.smooth_l1_loss(x, y, reduction="none", beta=0.75), 0, "gradOut",
                             "gradInput", {"beta": 0.75}),
    "SoftMarginLossBackward": (lambda x, y: functional.softplus(-x * y, 1, 50), 0, "gradOutput", "out", {}),
    "BinaryCrossEntropyBackward": (lambda x, y: functional.binary_cross_entropy(x, y, reduction="none"), 0, "gradOutput",
                                   "out", {}),
    "KlDivTargetBackward": (lambda x, y: functional.kl_div(x, y, reduction="none"), 1, "gradOutput", "gradTarget",
                            {"logTarget": False}),
}


@cases(*LOSSES)
def loss_gradients(op, g):
    function, which, grad_name, out, attributes = LOSSES[op]
    for dtype in g.floating:
        for number in range(3):
            for shapes in SHAPES:
                x = g.tensor(shapes[0], dtype)
                y = g.tensor(shapes[0], dtype)
                if op.startswith(("Binary", "Kl")):
                    x, y = unit(x), unit(y)
                grad = g.tensor(shapes[1] if number == 0 else [], dtype)
                scale = 1 / max(1, x.numel()) if number == 1 else 1
                args = {grad_name: grad, "self": x, "target": y, "reduction": number, **attributes}
                factor = 1
                if op.startswith("Binary"):
                    weight = g.tensor(shapes[1], dtype, "positive") if number != 2 else None
                    args["weightOptional"] = weight
                    factor = 1 if weight is None else high(weight)
                expected = derived(function, torch.ones([], dtype=dtype), x, y)[which] * high(grad) * scale * factor
                yield Case(args, {out: Ref(expected, dtype)})
    if op == "KlDivTargetBackward":
        for number in range(4):
            x, y = g.tensor([5, 33], torch.float32), g.tensor([5, 33], torch.float32)
            scale = {0: 1, 1: 1 / 165, 2: 1, 3: 1 / 5}[number]
            expected = derived(lambda a, b: functional.kl_div(a, b, reduction="none", log_target=True),
                               torch.ones([]), x, y)[1] * scale
            yield Case({"gradOutput": torch.ones([]), "self": x, "target": y, "reduction": number, "logTarget": True},
                       {"gradTarget": Ref(expected, torch.float32)})
        zero = torch.tensor([0.0, 0.5, 0.0])
        yield Case({"gradOutput": torch.ones([3]), "self": torch.ones([3]), "target": zero, "reduction": 0,
                    "logTarget": False}, {"gradTarget": torch.tensor([0.0, 0.5, 0.0]).log().masked_fill(zero == 0, 0)})


@cases("NLLLoss2dBackward")
def nll_2d(op, g):
    for dtype in g.floating:
        for number, reduction in enumerate(REDUCTIONS):
            for index in (torch.int64, torch.int32):
                x = torch.log_softmax(g.tensor([3, 5, 4, 7], torch.float64), 1).to(dtype)
                target = g.index([3, 4, 7], 5)
                target[0, 0, :3] = 2
                weight = g.tensor([5], dtype, "positive") if index == torch.int64 else None
                wide = None if weight is None else high(weight)
                grad = g.tensor([3, 4, 7] if number == 0 else [], dtype)
                expected = derived(lambda t: functional.nll_loss(t, target, wide, ignore_index=2, reduction=reduction), grad,
                                   x)[0]
                counted = (torch.ones(5).double() if wide is None else wide)[target][target != 2].sum()
                total = counted.to(dtype)
                expected = expected * (counted / high(total)) if number == 1 else expected
                yield Case({"gradOutput": grad, "self": x, "target": target.to(index), "weight": weight,
                            "reduction": number, "ignoreIndex": 2, "totalWeight": total.reshape(1)},
                           {"out": Ref(expected, dtype)})
