# SPDX-License-Identifier: Apache-2.0
"""Operators on lists of tensors."""

import torch

from harness import Case, Ref, Scalar, cases, high

LISTS = ([[5, 33]], [[7], [2, 3, 65], [], [0, 3], [1]], [[300, 300], [3]], [[4]] * 40)


def lists(g, dtypes, count, kind="normal"):
    """`count` lists of tensors of one shape each, for each type and set of shapes."""
    for dtype in dtypes:
        for shapes in LISTS:
            if shapes[0] == [300, 300] and dtype != torch.float32:
                continue
            yield dtype, [[g.tensor(shape, dtype, kind) for shape in shapes] for _ in range(count)]


def refs(values, dtype):
    return [Ref(value, dtype) for value in values]


def real(g):
    return g.floating + (torch.int32, torch.int64)


@cases("ForeachAddList", "ForeachAddListV2")
def add_list(op, g):
    for dtype, (x, y) in lists(g, real(g), 2):
        alpha = 0.5 if dtype.is_floating_point else 3
        given = Scalar(alpha) if op.endswith("V2") else torch.tensor([alpha], dtype=dtype)
        yield Case({"x1": x, "x2": y, "alpha": given},
                   {"out": refs([high(a) + alpha * high(b) for a, b in zip(x, y)], dtype)})


@cases("ForeachAddScalar", "ForeachSubScalar", "ForeachMulScalar", "ForeachDivScalar")
def by_scalar(op, g):
    dtypes = g.floating if "Div" in op else real(g)
    for dtype, (x,) in lists(g, dtypes, 1):
        number = 0.75 if dtype.is_floating_point else 3
        tensor = torch.tensor(number, dtype=dtype) if len(x) > 1 else torch.tensor([number], dtype=dtype)
        function = {"A": lambda t: t + number, "S": lambda t: t - number, "M": lambda t: t * number,
                    "D": lambda t: t / number}[op[7]]
        yield Case({"x": x, "scalar": tensor}, {"out": refs([function(high(t)) for t in x], dtype)})
    # A number of another type is not rounded to the type of the tensors.
    x = [g.tensor([40], torch.bfloat16)]
    number = torch.tensor([1 + 1 / 512], dtype=torch.float32)
    value = {"A": high(x[0]) + number.double(), "S": high(x[0]) - number.double(), "M": high(x[0]) * number.double(),
             "D": high(x[0]) / number.double()}[op[7]]
    yield Case({"x": x, "scalar": number}, {"out": refs([value], torch.bfloat16)})


@cases("ForeachNonFiniteCheckAndUnscale")
def unscale(op, g):
    for number, (dtype, (x,)) in enumerate(lists(g, g.floating, 1)):
        factor, found = (0.25, 1.0, 1 / 3)[number % 3], float(number % 2)
        if number % 4 == 1:
            x[-1].view(-1)[-1] = (float("nan"), float("inf"), -float("inf"))[number % 3]
            found = 1.0
        value = torch.tensor(factor, dtype=torch.float32)
        narrow = torch.float64 if dtype == torch.float64 else torch.float32
        yield Case({"scaledGrads": x, "foundInf": torch.tensor([float(number % 2)]),
                    "invScale": value if number % 5 else value.reshape(1)},
                   {"scaledGrads": refs([t.to(narrow) * value for t in x], dtype), "foundInf": torch.tensor([found])})
    x = [g.tensor([100000], torch.float32), g.tensor([70000], torch.bfloat16)]
    x[1][69999] = float("inf")
    yield Case({"scaledGrads": x, "foundInf": torch.zeros([]), "invScale": torch.tensor([0.5])},
               {"scaledGrads": [t * 0.5 for t in x], "foundInf": torch.ones([])})


@cases("ForeachMulList")
def mul_list(op, g):
    for dtype, (x, y) in lists(g, real(g), 2):
        yield Case({"x1": x, "x2": y}, {"out": refs([high(a) * high(b) for a, b in zip(x, y)], dtype)})


@cases("ForeachSqrt")
def sqrt(op, g):
    for dtype, (x,) in lists(g, g.floating, 1, "positive"):
        yield Case({"x": x}, {"out": refs([torch.sqrt(high(t)) for t in x], dtype)})
    x = g.tensor([300], torch.float32, "edge")
    yield Case({"x": [x]}, {"out": refs([torch.sqrt(x)], torch.float32)})


@cases("ForeachCopy")
def copy(op, g):
    for dtype, (x,) in lists(g, g.all, 1, "small"):
        yield Case({"x": x}, {"out": [t.clone() for t in x]})
    x = [g.tensor([40], torch.float32, "small"), g.tensor([3, 5], torch.int64)]
    yield Case({"x": x}, {"out": [x[0].to(torch.bfloat16), x[1].to(torch.float32)]})


@cases("ForeachLerpScalar")
def lerp(op, g):
    for dtype, (x, y) in lists(g, g.floating, 2):
        for weight in (0.25, 0.9):
            yield Case({"x1": x, "x2": y, "weight": Scalar(weight, torch.float64)},
                       {"out": refs([high(a) + weight * (high(b) - high(a)) for a, b in zip(x, y)], dtype)})


@cases("ForeachAddcmulScalar")
def addcmul(op, g):
    for dtype, (x, y, z) in lists(g, real(g), 3):
        number = 0.5 if dtype.is_floating_point else 3
        yield Case({"x1": x, "x2": y, "x3": z, "scalar": torch.tensor([number], dtype=dtype)},
                   {"out": refs([high(a) + number * high(b) * high(c) for a, b, c in zip(x, y, z)], dtype)})


@cases("ForeachAddcdivScalarList")
def addcdiv(op, g):
    for dtype, (x, y, z) in lists(g, g.floating, 3, "positive"):
        numbers = g.tensor([len(x)], dtype)
        expected = [high(a) + n * high(b) / high(c) for a, b, c, n in zip(x, y, z, high(numbers))]
        yield Case({"x1": x, "x2": y, "x3": z, "scalars": numbers}, {"out": refs(expected, dtype)})


@cases("ForeachNorm")
def norm(op, g):
    for dtype, (x,) in lists(g, g.floating, 1):
        for order in (2, 1, 0, 3.5, float("inf")):
            if order == float("inf") and any(t.numel() == 0 for t in x):
                continue
            expected = [torch.linalg.vector_norm(high(t), order) for t in x]
            expected = [e.reshape(1) if len(x) == 1 else e for e in expected]
            yield Case({"x": x, "scalar": Scalar(order, torch.float32)}, {"out": refs(expected, dtype)})
    x = g.tensor([300], torch.float32, "edge")
    for order in (2, float("inf"), -float("inf")):
        yield Case({"x": [x], "scalar": Scalar(order)}, {"out": refs([torch.linalg.vector_norm(x, order)], torch.float32)})
