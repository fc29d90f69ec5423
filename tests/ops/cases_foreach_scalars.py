# SPDX-License-Identifier: Apache-2.0
"""More operators on lists of tensors: functions of numbers, numbers of the host, lists of numbers."""

import torch

from harness import Case, Ref, Scalar, cases, high

LISTS = ([[7], [2, 3, 65], [], [0, 3], [1]], [[4]] * 40)


def lists(g, dtypes, count, kind="normal"):
    """`count` lists of tensors of the same shapes, for each type; many small ones in float32."""
    for dtype in dtypes:
        for shapes in LISTS if dtype == torch.float32 else LISTS[:1]:
            yield dtype, [[g.tensor(shape, dtype, kind) for shape in shapes] for _ in range(count)]


def refs(values, dtype):
    return [Ref(value, dtype) for value in values]


def real(g):
    return g.floating + (torch.int32, torch.int64)


FUNCTIONS = {  # -> function, kind of input, whether integers are defined
    "Abs": (torch.abs, "normal", True),
    "Acos": (torch.acos, "unit", False),
    "Asin": (torch.asin, "unit", False),
    "Atan": (torch.atan, "normal", False),
    "Cos": (torch.cos, "normal", False),
    "Cosh": (torch.cosh, "normal", False),
    "Erf": (torch.erf, "normal", False),
    "Erfc": (torch.erfc, "normal", False),
    "Exp": (torch.exp, "normal", False),
    "Expm1": (torch.expm1, "normal", False),
    "Log": (torch.log, "positive", False),
    "Log10": (torch.log10, "positive", False),
    "Log1p": (torch.log1p, "positive", False),
    "Log2": (torch.log2, "positive", False),
    "Neg": (torch.neg, "normal", True),
    "Reciprocal": (torch.reciprocal, "positive", False),
    "Sigmoid": (torch.sigmoid, "normal", False),
    "Sign": (torch.sign, "small", True),
    "Sin": (torch.sin, "normal", False),
    "Sinh": (torch.sinh, "normal", False),
    "Tan": (torch.tan, "normal", False),
    "Tanh": (torch.tanh, "normal", False),
}


@cases(*("Foreach" + name for name in FUNCTIONS))
def functions(op, g):
    function, kind, has_integers = FUNCTIONS[op.removeprefix("Foreach")]
    for dtype, (x,) in lists(g, real(g) if has_integers else g.floating, 1, kind):
        yield Case({"x": x}, {"out": refs([function(high(t)) for t in x], dtype)})


BINARY = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Div": torch.div,
    "Maximum": lambda a, b: torch.maximum(a, torch.as_tensor(b, dtype=a.dtype)),
    "Minimum": lambda a, b: torch.minimum(a, torch.as_tensor(b, dtype=a.dtype)),
    "Pow": torch.pow,
}


def split(op):
    """'ForeachAddScalarV2' -> 'Add', 'ScalarV2'."""
    name = next(name for name in BINARY if op.startswith("Foreach" + name))
    return name, op.removeprefix("Foreach" + name)


def kinds(op, g):
    name, _ = split(op)
    return (g.floating if name == "Div" else real(g)), ("positive" if name == "Pow" else "normal")


@cases(*(f"Foreach{name}{form}" for name in BINARY for form in ("Scalar", "ScalarV2")
         if form != "Scalar" or name in ("Maximum", "Minimum", "Pow")))
def by_number(op, g):
    name, form = split(op)
    dtypes, kind = kinds(op, g)
    for dtype, (x,) in lists(g, dtypes, 1, kind):
        number = 0.75 if dtype.is_floating_point else 3
        given = Scalar(number) if form == "ScalarV2" else torch.tensor([number], dtype=dtype)
        yield Case({"x": x, "scalar": given}, {"out": refs([BINARY[name](high(t), number) for t in x], dtype)})
    # A number of another type is not rounded to the type of the tensors.
    x, number = [g.tensor([40], torch.bfloat16, "positive")], 1 + 1 / 512
    given = Scalar(number) if form == "ScalarV2" else torch.tensor([number], dtype=torch.float32)
    yield Case({"x": x, "scalar": given}, {"out": refs([BINARY[name](high(x[0]), number)], torch.bfloat16)})


@cases(*(f"Foreach{name}ScalarList" for name in BINARY))
def by_numbers(op, g):
    name, _ = split(op)
    dtypes, kind = kinds(op, g)
    for dtype, (x,) in lists(g, dtypes, 1, kind):
        numbers = [(0.25 + i % 4 / 4) if dtype.is_floating_point else 1 + i % 4 for i in range(len(x))]
        yield Case({"x": x, "scalars": [Scalar(number) for number in numbers]},
                   {"out": refs([BINARY[name](high(t), number) for t, number in zip(x, numbers)], dtype)})


@cases("ForeachDivList", "ForeachMaximumList", "ForeachMinimumList", "ForeachPowList")
def two_lists(op, g):
    name, _ = split(op)
    dtypes, _ = kinds(op, g)
    for dtype, (x, y) in lists(g, dtypes, 2, "positive"):
        if name == "Pow" and not dtype.is_floating_point:
            y = [t % 4 for t in y]
        yield Case({"x1": x, "x2": y}, {"out": refs([BINARY[name](high(a), high(b)) for a, b in zip(x, y)], dtype)})


@cases("ForeachPowScalarAndTensor")
def powers(op, g):
    for dtype, (x,) in lists(g, real(g), 1):
        x = x if dtype.is_floating_point else [t.abs() for t in x]
        base = 0.75 if dtype.is_floating_point else 3
        yield Case({"scalar": Scalar(base), "x": x}, {"out": refs([torch.pow(base, high(t)) for t in x], dtype)})


@cases("ForeachSubList", "ForeachSubListV2")
def scaled(op, g):
    for dtype, (x, y) in lists(g, real(g), 2):
        alpha = 0.5 if dtype.is_floating_point else 3
        given = Scalar(alpha) if op.endswith("V2") else torch.tensor([alpha], dtype=dtype)
        yield Case({"x1": x, "x2": y, "alpha": given},
                   {"out": refs([high(a) - alpha * high(b) for a, b in zip(x, y)], dtype)})


@cases("ForeachLerpList")
def lerp(op, g):
    for dtype, (x, y, z) in lists(g, g.floating, 3):
        weight = [torch.sigmoid(t) for t in z]
        expected = [high(a) + high(w) * (high(b) - high(a)) for a, b, w in zip(x, y, weight)]
        yield Case({"x1": x, "x2": y, "weight": weight}, {"out": refs(expected, dtype)})


@cases("ForeachAddcdivScalar", "ForeachAddcdivScalarV2", "ForeachAddcmulScalarV2", "ForeachAddcmulScalarList")
def sums(op, g):
    is_div = "div" in op
    for dtype, (x, y, z) in lists(g, g.floating if is_div else real(g), 3, "positive"):
        number = 0.5 if dtype.is_floating_point else 3
        numbers = torch.tensor([number + i % 3 for i in range(len(x))], dtype=dtype)
        given = numbers if op.endswith("List") else Scalar(number) if op.endswith("V2") else numbers[:1]
        every = high(numbers) if op.endswith("List") else [number] * len(x)
        steps = [high(b) / high(c) if is_div else high(b) * high(c) for b, c in zip(y, z)]
        yield Case({"x1": x, "x2": y, "x3": z, "scalars" if op.endswith("List") else "scalar": given},
                   {"out": refs([high(a) + n * step for a, n, step in zip(x, every, steps)], dtype)})


def round_half_to_odd(t):
    low = t.floor()
    up = torch.where(t - low == 0.5, low % 2 == 0, t - low > 0.5)
    return low + up.to(t.dtype)


ROUNDINGS = {1: torch.round, 2: torch.floor, 3: torch.ceil, 4: lambda t: torch.sign(t) * torch.floor(t.abs() + 0.5),
             5: torch.trunc, 6: round_half_to_odd, 7: torch.frac}


@cases("ForeachRoundOffNumber", "ForeachRoundOffNumberV2")
def roundings(op, g):
    for mode, function in ROUNDINGS.items():
        for dtype, (x,) in lists(g, g.floating, 1, "small"):
            given = Scalar(mode, torch.int8) if op.endswith("V2") else torch.tensor([mode], dtype=torch.int8)
            yield Case({"x": x, "roundMode": given}, {"out": refs([function(high(t)) for t in x], dtype)})


@cases("ForeachZeroInplace")
def zero(op, g):
    for dtype, (x,) in lists(g, g.all, 1):
        yield Case({"x": x}, {"x": [torch.zeros_like(t) for t in x]})
