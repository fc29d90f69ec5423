# SPDX-License-Identifier: Apache-2.0
"""Functions of one and two numbers that models use now and then."""

import torch

from harness import Case, Ref, Scalar, cases, high

BROADCASTS = (([5, 33], [5, 33]), ([2, 3, 65], [65]), ([4, 1, 6], [3, 1]), ([0, 3], [1, 3]), ([], [7]))


def atanh(x):
    return torch.atanh(x)


FUNCTIONS = {  # -> function, name of the input, numbers that it is defined for
    "Acosh": (torch.acosh, "self", lambda t: t.abs() + 1 if not t.is_complex() else t),
    "Asinh": (torch.asinh, "input", lambda t: t),
    "Atanh": (torch.atanh, "input", lambda t: t if t.is_complex() else torch.tanh(t) * 0.9),
    "Sinc": (torch.sinc, "self", lambda t: t),
}


@cases(*FUNCTIONS)
def functions(op, g):
    function, name, domain = FUNCTIONS[op]
    for dtype in g.floating + g.complex:
        for shape in g.shapes:
            x = domain(g.tensor(shape, dtype)).to(dtype)
            yield Case({name: x}, {"out": Ref(function(high(x)), dtype)})
    x = g.tensor([64], torch.float32, "edge")
    if op == "Sinc":
        x = torch.tensor([0.0, -0.0, 1.0, 2.5, float("nan")])
    yield Case({name: x}, {"out": Ref(function(high(x)), torch.float32)})
    x = g.tensor([3, 40], torch.int32, "positive") if op == "Acosh" else torch.zeros([3, 40], dtype=torch.int32)
    yield Case({name: x}, {"out": Ref(function(x.double()), torch.float32)})


@cases("AngleV2")
def angle(op, g):
    for dtype in g.all:
        result = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(dtype, dtype)
        result = result if result.is_floating_point else torch.float32
        for kind in ("normal", "edge"):
            if kind == "edge" and dtype.is_complex:
                continue
            x = g.tensor([4, 37], dtype, kind)
            yield Case({"x": x}, {"out": Ref(torch.angle(high(x)), result)})
    yield Case({"x": g.tensor([], torch.float32)}, {"out": torch.angle(g.tensor([], torch.float32)) * 0})


@cases("Signbit")
def signbit(op, g):
    for number, dtype in enumerate(g.real + (torch.bool,)):
        for kind in ("small", "edge"):
            x = g.tensor([4, 37], dtype, kind)
            yield Case({"self": x}, {"out": Ref(torch.signbit(x), (torch.bool, torch.uint8, torch.float32)[number % 3])})


@cases("Logit", "LogitGrad")
def logit(op, g):
    for dtype in g.floating:
        for eps in (-1.0, 0.0, 0.25):
            x = torch.sigmoid(g.tensor([5, 33], torch.float64) * 2).to(dtype)
            if op == "Logit":
                clamped = high(x) if eps < 0 else high(x).clamp(eps, 1 - eps)
                yield Case({"input": x, "eps": eps}, {"out": Ref(torch.log(clamped / (1 - clamped)), dtype)})
                continue
            dy, y = g.tensor([33], dtype), high(x)
            inside = (y >= eps) & (y <= 1 - eps) if eps >= 0 else torch.ones_like(y, dtype=torch.bool)
            expected = torch.where(inside, high(dy) / (y * (1 - y)), torch.zeros_like(y))
            yield Case({"x": x, "dy": dy, "eps": eps}, {"out": Ref(expected, dtype)})
    x = torch.tensor([-0.5, 0.0, 1.0, 1.5, float("nan"), 0.3])
    if op == "Logit":
        yield Case({"input": x, "eps": -1.0}, {"out": Ref(torch.logit(high(x)), torch.float32)})
    else:
        dy = torch.ones(6)
        expected = torch.ops.aten.logit_backward(dy.double(), high(x), None)
        yield Case({"x": x, "dy": dy, "eps": -1.0}, {"out": Ref(expected, torch.float32)})


@cases("XLogYTensor", "XLogYScalarOther", "XLogYScalarSelf", "LogAddExp2")
def pairs(op, g):
    function = torch.logaddexp2 if op == "LogAddExp2" else torch.xlogy
    for dtype in g.floating:
        for shapes in BROADCASTS:
            x, y = g.tensor(shapes[0], dtype, "small"), g.tensor(shapes[1], dtype, "positive")
            if op.endswith("Other"):
                yield Case({"self": x, "other": Scalar(0.3)}, {"out": Ref(torch.xlogy(high(x), torch.tensor(0.3).double()), dtype)})
            elif op.endswith("ScalarSelf"):
                yield Case({"self": Scalar(0.3), "other": y}, {"out": Ref(torch.xlogy(torch.tensor(0.3).double(), high(y)), dtype)})
            else:
                yield Case({"self": x, "other": y}, {"out": Ref(function(high(x), high(y)), dtype)})
    if op in ("XLogYTensor", "LogAddExp2"):
        x, y = g.tensor([300], torch.float64, "edge"), g.tensor([300], torch.float64, "edge")
        yield Case({"self": x, "other": y}, {"out": Ref(function(x, y), torch.float64)})
    if op == "XLogYTensor":
        x, y = g.tensor([3, 40], torch.int32), g.tensor([40], torch.int64, "positive")
        yield Case({"self": x, "other": y}, {"out": Ref(torch.xlogy(x.double(), y.double()), torch.float32)})


@cases("Gcd")
def gcd(op, g):
    for dtype in g.integers:
        for shapes in BROADCASTS:
            x, y = g.tensor(shapes[0], dtype), g.tensor(shapes[1], dtype)
            yield Case({"self": x, "other": y}, {"out": torch.gcd(x, y)})
    x, y = g.tensor([40], torch.int16), g.tensor([3, 40], torch.int64)
    yield Case({"self": x, "other": y}, {"out": torch.gcd(x.long(), y)})


@cases("LeftShift", "RightShift", "LeftShifts")
def shifts(op, g):
    function = torch.bitwise_right_shift if op == "RightShift" else torch.bitwise_left_shift
    name = "input" if op == "RightShift" else "self"
    for dtype in g.integers:
        for shapes in BROADCASTS:
            x = g.tensor(shapes[0], dtype, "edge")
            if op == "LeftShifts":
                yield Case({name: x, "shiftBits": Scalar(3)}, {"out": function(x, torch.tensor(3, dtype=dtype))})
                continue
            bits = g.index(shapes[1], 7, dtype)
            yield Case({name: x, "shiftBits": bits}, {"out": function(x, bits)})
    if op != "LeftShifts":
        x, bits = g.tensor([200], torch.int32, "edge"), g.pick([200], [-1, 0, 31, 32, 40], torch.int32)
        yield Case({name: x, "shiftBits": bits}, {"out": function(x, bits)})


@cases("BitwiseOrScalar", "BitwiseXorScalar")
def bits(op, g):
    function = torch.bitwise_or if "Or" in op and "Xor" not in op else torch.bitwise_xor
    for dtype in g.integers + (torch.bool,):
        for shape in g.shapes:
            x = g.tensor(shape, dtype, "edge" if dtype != torch.bool else "normal")
            number = True if dtype == torch.bool else 5
            yield Case({"self": x, "other": Scalar(number)}, {"out": function(x, torch.tensor(number, dtype=dtype))})


@cases("Polar")
def polar(op, g):
    for dtype, out in ((torch.float32, torch.complex64), (torch.float64, torch.complex128)):
        for shapes in BROADCASTS:
            x, y = g.tensor(shapes[0], dtype, "positive"), g.tensor(shapes[1], dtype)
            yield Case({"input": x, "angle": y}, {"out": Ref(torch.polar(*torch.broadcast_tensors(high(x), high(y))), out)})


@cases("Addr")
def addr(op, g):
    for dtype in g.numeric:
        for number, shape in enumerate(([5, 33], [33], [5, 1], [])):
            x, a, b = g.tensor(shape, dtype), g.tensor([5], dtype), g.tensor([33], dtype)
            beta, alpha = ((2, 3), (None, 2), (0, 1), (1, None))[number]
            product = (1 if alpha is None else alpha) * torch.outer(high(a), high(b))
            expected = (1 if beta is None else beta) * high(x) + product
            yield Case({"self": x, "vec1": a, "vec2": b, "betaOptional": beta if beta is None else Scalar(beta),
                        "alphaOptional": alpha if alpha is None else Scalar(alpha)},
                       {"out": Ref(expected.expand(5, 33), dtype)})
    x, a, b = torch.full([5, 3], float("nan")), g.tensor([5], torch.float32), g.tensor([3], torch.float32)
    yield Case({"self": x, "vec1": a, "vec2": b, "betaOptional": Scalar(0.0), "alphaOptional": None},
               {"out": Ref(torch.outer(high(a), high(b)), torch.float32)})


@cases("AddRelu")
def add_relu(op, g):
    for dtype in g.real:
        for shapes in BROADCASTS:
            x, y = g.tensor(shapes[0], dtype), g.tensor(shapes[1], dtype)
            alpha = 0.5 if dtype.is_floating_point else 2
            yield Case({"self": x, "other": y, "alpha": Scalar(alpha)},
                       {"out": Ref(torch.relu(high(x) + alpha * high(y)), dtype)})


@cases("AddV3", "RemainderScalarTensor")
def of_scalar(op, g):
    for dtype in g.floating + g.integers:
        for shape in g.shapes:
            y = g.tensor(shape, dtype, "positive")
            number = 7 if not dtype.is_floating_point else 7.25
            if op == "AddV3":
                yield Case({"self": Scalar(number), "other": y, "alpha": Scalar(2)}, {"out": Ref(number + 2 * high(y), dtype)})
                continue
            wide = y.float() if dtype in (torch.float16, torch.bfloat16) else y
            yield Case({"self": Scalar(number), "other": y}, {"out": Ref(torch.remainder(number, wide), dtype)})
