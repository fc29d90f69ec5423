# SPDX-License-Identifier: Apache-2.0
"""Sums, products, quotients, powers, bounds."""

import torch

from harness import Case, Ref, Scalar, cases, high

BROADCASTS = (([5, 33], [5, 33]), ([2, 3, 65], [65]), ([4, 1, 6], [3, 1]), ([0, 3], [1, 3]), ([], [7]), ([1], []), ([300], [1]))
MIXED = ((torch.float32, torch.int64), (torch.float16, torch.bfloat16), (torch.int32, torch.uint8), (torch.bool, torch.float32))


def wrap(op, name):
    """Names of the first operand and the result."""
    return (name, name) if op.startswith("Inplace") else ("self", "out")


def pair(op, g, dtype, shapes, kind="normal", kinds=None):
    first, second = shapes
    if op.startswith("Inplace"):
        first = list(torch.broadcast_shapes(first, second))
    return g.tensor(first, dtype, kind), g.tensor(second, dtype, kinds or kind)


def result(op, x, dtype):
    """The output keeps the type of the tensor that is written in place."""
    return x.dtype if op.startswith("Inplace") else dtype


def binary(op, g, dtypes, function, kind="normal", kinds=None, mixed=MIXED, edges=True):
    """Cases of a function of two tensors, with operands of one type and of two."""
    me, out = wrap(op, "selfRef")
    for dtype in dtypes:
        for shapes in BROADCASTS:
            x, y = pair(op, g, dtype, shapes, kind, kinds)
            expected = function(high(x), high(y))
            yield Case({me: x, "other": y}, {out: Ref(expected, dtype)})
        if edges:
            x, y = pair(op, g, dtype, ([6, 50], [6, 50]), "edge")
            yield Case({me: x, "other": y}, {out: Ref(function(high(x), high(y)), dtype)})
    for a, b in mixed:
        x, y = g.tensor([3, 40], a, kind), g.tensor([40], b, kinds or kind)
        wide = torch.promote_types(a, b)
        if op.startswith("Inplace") and wide != a:
            continue
        yield Case({me: x, "other": y}, {out: Ref(function(high(x.to(wide)), high(y.to(wide))), wide)})


def exact_add(x, y, alpha):
    if x.dtype == torch.bool:
        return x | (y & bool(alpha))
    return x + alpha * y


@cases("Add", "InplaceAdd", "Sub", "InplaceSub", "Rsub")
def add(op, g):
    me, out = wrap(op, "selfRef")
    types = [dtype for dtype in g.all if dtype != torch.bool or "Add" in op]
    for dtype in types:
        for number, shapes in enumerate(BROADCASTS):
            alpha = 1 if number % 2 or dtype == torch.bool else 3 if not dtype.is_floating_point else 0.5
            x, y = pair(op, g, dtype, shapes)
            a, b = high(x), high(y)
            expected = exact_add(a, b, alpha) if "Add" in op else b - alpha * a if "Rsub" in op else a - alpha * b
            yield Case({me: x, "other": y, "alpha": Scalar(alpha)}, {out: Ref(expected, dtype)})


@cases("Adds", "InplaceAdds", "Subs", "InplaceSubs", "Rsubs")
def adds(op, g):
    me, out = wrap(op, "selfRef")
    for dtype in g.numeric:
        for shape in g.shapes:
            x = g.tensor(shape, dtype)
            other, alpha = (0.3, 0.5) if dtype.is_floating_point or dtype.is_complex else (5, 2)
            a = high(x)
            expected = (a + alpha * other if "Adds" in op else other - alpha * a if "Rsubs" in op else a - alpha * other)
            yield Case({me: x, "other": Scalar(other, torch.float64 if other < 1 else None),
                        "alpha": Scalar(alpha)}, {out: Ref(expected, dtype)})
    if not op.startswith("Inplace"):
        x = g.tensor([40], torch.int32)
        expected = {"Adds": x + 2.5, "Subs": x - 2.5, "Rsubs": 2.5 - x}[op]
        yield Case({me: x, "other": Scalar(2.5), "alpha": Scalar(1)}, {out: Ref(expected, torch.float32)})


@cases("Mul", "InplaceMul")
def mul(op, g):
    yield from binary(op, g, g.all, lambda x, y: x & y if x.dtype == torch.bool else x * y, "small", edges=False)


@cases("Muls", "InplaceMuls", "Divs", "InplaceDivs")
def muls(op, g):
    me, out = wrap(op, "selfRef")
    for dtype in g.floating + g.complex + (g.integers if "Mul" in op else ()):
        for shape in g.shapes:
            x = g.tensor(shape, dtype)
            other = 0.3 if dtype.is_floating_point or dtype.is_complex else 5
            scalar = Scalar(other, torch.float64) if other == 0.3 else Scalar(other)
            yield Case({me: x, "other": scalar}, {out: Ref(high(x) * other if "Mul" in op else high(x) / other, dtype)})
    if op == "Divs":
        x = g.tensor([3, 40], torch.int64)
        yield Case({me: x, "other": Scalar(4)}, {out: Ref(x / 4, torch.float32)})


@cases("Div", "InplaceDiv")
def div(op, g):
    yield from binary(op, g, g.floating + g.complex, torch.div, "positive", mixed=MIXED[:2], edges=False)
    if op == "Div":
        x, y = g.tensor([3, 40], torch.int32), g.tensor([3, 40], torch.int32, "positive")
        yield Case({"self": x, "other": y}, {"out": Ref(x / y, torch.float32)})


def divided(x, y, mode):
    """torch.div by mode; a division of integers by zero gives zero."""
    if mode == 0 or x.is_floating_point():
        return torch.div(x, y, rounding_mode=(None, "trunc", "floor")[mode])
    safe = torch.where(y == 0, torch.ones_like(y), y)
    quotient = torch.div(x, safe, rounding_mode=(None, "trunc", "floor")[mode])
    return torch.where(y == 0, torch.zeros_like(quotient), quotient)


@cases("DivMod", "DivMods", "FloorDivide", "FloorDivides")
def div_mod(op, g):
    modes = (2,) if "Floor" in op else (0, 1, 2)
    for mode in modes:
        extra = {} if "Floor" in op else {"mode": mode}
        for dtype in g.floating + g.integers:
            out = dtype if mode or dtype.is_floating_point else torch.float32
            for shapes in (([5, 33], [5, 33]), ([2, 3, 65], [65]), ([0, 3], [1, 3]), ([], [])):
                x = g.tensor(shapes[0], dtype)
                if op.endswith("s"):
                    value = -3 if dtype != torch.uint8 else 3
                    y, other = torch.tensor(value, dtype=dtype), Scalar(value)
                else:
                    y = other = g.tensor(shapes[1], dtype)
                # Quotients are whole numbers: computed in the type itself, as their neighbours differ by one.
                wide = (lambda t: t.float()) if dtype in (torch.float16, torch.bfloat16) else (lambda t: t)
                expected = divided(wide(x), wide(y), mode)
                yield Case({"self": x, "other": other, **extra}, {"out": Ref(expected, out)})
        if not op.endswith("s"):
            x, y = g.tensor([400], torch.float32, "edge"), g.tensor([400], torch.float32, "edge")
            yield Case({"self": x, "other": y, **extra}, {"out": Ref(divided(x, y, mode), torch.float32)})
            x, y = g.tensor([400], torch.int32, "edge"), g.tensor([400], torch.int32, "edge")
            if mode:
                yield Case({"self": x, "other": y, **extra}, {"out": Ref(divided(x, y, mode), torch.int32)})


def rest(x, y, function):
    if x.is_floating_point():
        return function(x, y)
    safe = torch.where(y == 0, torch.ones_like(y), y)
    return torch.where(y == 0, torch.zeros_like(x), function(x, safe))


@cases("FmodTensor", "FmodScalar", "RemainderTensorTensor", "RemainderTensorScalar")
def remainder(op, g):
    function = torch.fmod if "Fmod" in op else torch.remainder
    for dtype in g.floating + g.integers:
        for shapes in (([5, 33], [5, 33]), ([2, 3, 65], [65]), ([0, 3], [1, 3]), ([], [])):
            x = g.tensor(shapes[0], dtype)
            if "Scalar" in op:
                value = -3 if dtype != torch.uint8 else 3
                y, other = torch.tensor(value, dtype=dtype), Scalar(value)
            else:
                y = other = g.tensor(shapes[1], dtype)
            wide = (lambda t: t.float()) if dtype in (torch.float16, torch.bfloat16) else (lambda t: t)
            yield Case({"self": x, "other": other}, {"out": Ref(rest(wide(x), wide(y), function), dtype)})
    if "Scalar" not in op:
        x, y = g.tensor([300], torch.float32, "edge"), g.tensor([300], torch.float32, "edge")
        yield Case({"self": x, "other": y}, {"out": Ref(function(high(x), high(y)), torch.float32)})


@cases("Maximum", "Minimum", "ClampMinTensor", "ClampMaxTensor")
def extremes(op, g):
    function = torch.maximum if op in ("Maximum", "ClampMinTensor") else torch.minimum
    name = {"ClampMinTensor": "clipValueMin", "ClampMaxTensor": "max"}.get(op, "other")
    for case in binary(op, g, g.real + (torch.bool,), function):
        args = dict(case.args)
        args[name] = args.pop("other")
        yield Case(args, case.expect)


@cases("Lerp", "InplaceLerp", "Lerps")
def lerp(op, g):
    me, out = wrap(op, "selfRef")
    for dtype in g.floating + g.complex:
        for shapes in BROADCASTS:
            x, y = pair(op, g, dtype, shapes)
            w = 0.25 if len(shapes[0]) % 2 else 0.75
            if op == "Lerps":
                yield Case({"self": x, "end": y, "weight": Scalar(w)}, {"out": Ref(high(x) + w * (high(y) - high(x)), dtype)})
                continue
            weight = g.tensor(shapes[1], dtype, "unit")
            yield Case({me: x, "end": y, "weight": weight}, {out: Ref(high(x) + high(weight) * (high(y) - high(x)), dtype)})


@cases("Addcmul", "InplaceAddcmul", "Addcdiv", "InplaceAddcdiv")
def addcmul(op, g):
    me, out = wrap(op, "selfRef")
    is_mul = "mul" in op
    for dtype in g.numeric if is_mul else g.floating + g.complex:
        for shapes in BROADCASTS:
            x, y = pair(op, g, dtype, shapes)
            z = g.tensor(shapes[1], dtype, "positive" if not dtype.is_complex else "normal")
            if dtype.is_complex and not is_mul:
                z = z + 3
            value = 0.5 if dtype.is_floating_point or dtype.is_complex else 3
            step = high(y) * high(z) if is_mul else high(y) / high(z)
            yield Case({me: x, "tensor1": y, "tensor2": z, "value": Scalar(value)}, {out: Ref(high(x) + value * step, dtype)})


@cases("Clamp", "ClampMin", "ClampMax", "InplaceClampMax")
def clamp(op, g):
    me, out = wrap(op, "selfRef")
    for dtype in g.real:
        low, high_bound = (-0.5, 0.75) if dtype.is_floating_point else (2, 5)
        for shape in g.shapes + ([6, 50],):
            x = g.tensor(shape, dtype, "edge" if shape == [6, 50] else "normal")
            pairs = {"ClampMin": ((low, None),), "Clamp": ((low, high_bound), (low, None), (None, high_bound), (high_bound, low))}
            for lower, upper in pairs.get(op, ((None, high_bound),)):
                args = {me: x}
                if "Max" not in op:
                    args["clipValueMin"] = None if lower is None else Scalar(lower)
                if op != "ClampMin":
                    args["clipValueMax"] = None if upper is None else Scalar(upper)
                yield Case(args, {out: Ref(torch.clamp(x, lower, upper), dtype)})
    if op == "Clamp":
        x = g.tensor([50], torch.int32)
        yield Case({"self": x, "clipValueMin": Scalar(-2.5), "clipValueMax": Scalar(2.5)},
                   {"out": Ref(torch.clamp(x, -2.5, 2.5), torch.float32)})
        x, nan = g.tensor([50], torch.float32), float("nan")
        for lower, upper in ((nan, 1.0), (0.0, nan)):
            yield Case({"self": x, "clipValueMin": Scalar(lower), "clipValueMax": Scalar(upper)},
                       {"out": Ref(torch.clamp(x, lower, upper), torch.float32)})


@cases("ClampTensor")
def clamp_tensor(op, g):
    for dtype in g.real:
        for kind in ("normal", "edge"):
            x, low, top = g.tensor([6, 50], dtype, kind), g.tensor([50], dtype, kind), g.tensor([6, 1], dtype, kind)
            for lower, upper in ((low, top), (low, None), (None, top)):
                yield Case({"self": x, "clipValueMin": lower, "clipValueMax": upper},
                           {"out": Ref(torch.clamp(x, lower, upper), dtype)})
        yield Case({"self": g.tensor([0, 4], dtype), "clipValueMin": g.tensor([4], dtype), "clipValueMax": None},
                   {"out": Ref(torch.zeros([0, 4]), dtype)})


@cases("Atan2")
def atan2(op, g):
    yield from binary(op, g, g.floating, torch.atan2, mixed=MIXED[:2])
    x, y = g.tensor([3, 40], torch.int32), g.tensor([40], torch.bool)
    yield Case({"self": x, "other": y}, {"out": Ref(torch.atan2(x.double(), y.double()), torch.float32)})


@cases("LogAddExp")
def logaddexp(op, g):
    yield from binary(op, g, g.floating, torch.logaddexp, mixed=MIXED[1:2], edges=False)
    x, y = g.tensor([300], torch.float64, "edge"), g.tensor([300], torch.float64, "edge")
    yield Case({"self": x, "other": y}, {"out": Ref(torch.logaddexp(x, y), torch.float64)})


@cases("Complex")
def make_complex(op, g):
    for dtype, out in ((torch.float32, torch.complex64), (torch.float64, torch.complex128)):
        for shapes in BROADCASTS:
            x, y = g.tensor(shapes[0], dtype), g.tensor(shapes[1], dtype)
            yield Case({"real": x, "imag": y}, {"out": torch.complex(*torch.broadcast_tensors(x, y)).to(out).contiguous()})


@cases("PowTensorScalar", "InplacePowTensorScalar")
def pow_scalar(op, g):
    out = "self" if op.startswith("Inplace") else "out"
    for dtype in g.floating + g.complex:
        for exponent in (2, 3, 0.5, -0.5, -1, -2, 2.3, 0, 1):
            for shape in ([5, 33], []):
                x = g.tensor(shape, dtype, "normal" if dtype.is_complex or exponent in (2, 3) else "positive")
                yield Case({"self": x, "exponent": Scalar(exponent, torch.float64)},
                           {out: Ref(torch.pow(high(x), exponent), dtype)})
    for dtype in g.integers:
        for exponent in (0, 1, 2, 3, 7):
            x = g.tensor([2, 3, 65], dtype)
            yield Case({"self": x, "exponent": Scalar(exponent)}, {out: Ref(torch.pow(x, exponent), dtype)})
    if out == "out":
        x = g.tensor([40], torch.int32, "positive")
        yield Case({"self": x, "exponent": Scalar(0.5)}, {out: Ref(torch.pow(x.double(), 0.5), torch.float32)})


@cases("PowScalarTensor")
def pow_of_scalar(op, g):
    for dtype in g.floating:
        for base in (2, 0.7, 1):
            for shape in ([5, 33], [], [0, 3]):
                x = g.tensor(shape, dtype)
                yield Case({"self": Scalar(base, torch.float64), "exponent": x}, {"out": Ref(torch.pow(base, high(x)), dtype)})
    for dtype in g.integers:
        x = g.tensor([2, 65], dtype, "positive")
        yield Case({"self": Scalar(3), "exponent": x}, {"out": Ref(torch.pow(3, x), dtype)})


@cases("PowTensorTensor", "InplacePowTensorTensor")
def pow_tensor(op, g):
    out = "self" if op.startswith("Inplace") else "out"
    for dtype in g.floating + g.integers:
        for shapes in BROADCASTS:
            x, y = pair(op, g, dtype, shapes, "positive", "normal")
            if not dtype.is_floating_point:
                x = x - 3 if dtype != torch.uint8 else x
                expected = torch.pow(x, y)
            else:
                expected = torch.pow(high(x), high(y))
            yield Case({"self": x, "exponent": y}, {out: Ref(expected, dtype)})
