# SPDX-License-Identifier: Apache-2.0
"""Comparisons, logic, bits, choice."""

import torch

from harness import Case, Ref, Scalar, cases

BROADCASTS = (([5, 33], [5, 33]), ([2, 3, 65], [65]), ([4, 1, 6], [3, 1]), ([0, 3], [1, 3]), ([], []), ([300], [1]))


def comparison(op):
    return getattr(torch, op[:2].lower())


def types(op, g):
    return g.all if op[:2] in ("Eq", "Ne") else g.real + (torch.bool,)


@cases("EqTensor", "NeTensor", "LtTensor", "LeTensor", "GtTensor", "GeTensor")
def compare(op, g):
    function = comparison(op)
    for dtype in types(op, g):
        for number, shapes in enumerate(BROADCASTS):
            x, y = g.tensor(shapes[0], dtype, "small"), g.tensor(shapes[1], dtype, "small")
            out = (torch.bool, torch.bool, torch.float32, torch.uint8)[number % 4]
            yield Case({"self": x, "other": y}, {"out": Ref(function(x, y), out)})
        x, y = g.tensor([6, 50], dtype, "edge"), g.tensor([6, 50], dtype, "edge")
        yield Case({"self": x, "other": y}, {"out": function(x, y)})
    x, y = g.tensor([40], torch.int32), g.tensor([3, 40], torch.float16, "small")
    yield Case({"self": x, "other": y}, {"out": function(x, y)})


@cases("EqScalar", "NeScalar", "LtScalar", "LeScalar", "GtScalar", "GeScalar")
def compare_scalar(op, g):
    function = comparison(op)
    for dtype in types(op, g):
        for shape in g.shapes:
            x = g.tensor(shape, dtype, "small")
            yield Case({"self": x, "other": Scalar(1)}, {"out": function(x, 1)})
        x = g.tensor([6, 50], dtype, "edge")
        yield Case({"self": x, "other": Scalar(0)}, {"out": Ref(function(x, 0), torch.bool)})
    x = g.tensor([50], torch.int8)
    yield Case({"self": x, "other": Scalar(0.5)}, {"out": function(x, 0.5)})
    for far in (300, 256 + int(x[0]), -200):  # beyond the type of the tensor
        yield Case({"self": x, "other": Scalar(far)}, {"out": function(x.to(torch.int32), far)})


@cases("LogicalAnd", "LogicalOr", "LogicalXor")
def logical(op, g):
    function = {"LogicalAnd": torch.logical_and, "LogicalOr": torch.logical_or, "LogicalXor": torch.logical_xor}[op]
    for dtype in g.all:
        for number, shapes in enumerate(BROADCASTS):
            x, y = g.tensor(shapes[0], dtype, "small"), g.tensor(shapes[1], dtype, "small")
            yield Case({"self": x, "other": y}, {"out": Ref(function(x, y), (torch.bool, torch.int64)[number % 2])})
    x, y = g.tensor([6, 50], torch.float32, "edge"), g.tensor([6, 50], torch.int32)
    yield Case({"self": x, "other": y}, {"out": function(x, y)})


@cases("LogicalNot")
def logical_not(op, g):
    for dtype in g.all:
        for shape in g.shapes:
            x = g.tensor(shape, dtype, "small")
            yield Case({"self": x}, {"out": torch.logical_not(x)})
    x = g.tensor([6, 50], torch.float32, "edge")
    yield Case({"self": x}, {"out": Ref(torch.logical_not(x), torch.float32)})


@cases("BitwiseAndTensor", "BitwiseOrTensor", "BitwiseXorTensor")
def bitwise(op, g):
    function = getattr(torch, "bitwise_" + op[7:-6].lower())
    for dtype in g.integers + (torch.bool,):
        for shapes in BROADCASTS:
            x, y = g.tensor(shapes[0], dtype), g.tensor(shapes[1], dtype)
            yield Case({"self": x, "other": y}, {"out": function(x, y)})
    x, y = g.tensor([40], torch.int8), g.tensor([3, 40], torch.int64)
    yield Case({"self": x, "other": y}, {"out": function(x, y)})


@cases("BitwiseAndScalar", "BitwiseNot")
def bitwise_other(op, g):
    for dtype in g.integers + (torch.bool,):
        for shape in g.shapes:
            x = g.tensor(shape, dtype)
            if op == "BitwiseNot":
                yield Case({"self": x}, {"out": torch.bitwise_not(x)})
            else:
                value = True if dtype == torch.bool else 6
                yield Case({"self": x, "other": Scalar(value)}, {"out": x & value})


@cases("SWhere")
def where(op, g):
    for number, dtype in enumerate(g.all):
        for shapes in BROADCASTS:
            mask = g.mask(shapes[number % 2])
            x, y = g.tensor(shapes[0], dtype), g.tensor(shapes[1], dtype)
            condition = mask.to(torch.uint8) * 3 if number % 3 == 2 else mask
            yield Case({"condition": condition, "self": x, "other": y}, {"out": torch.where(mask, x, y)})
    mask, x, y = g.mask([3, 40]), g.tensor([40], torch.int32), g.tensor([3, 1], torch.float32)
    yield Case({"condition": mask, "self": x, "other": y}, {"out": torch.where(mask, x, y)})


@cases("Equal")
def equal(op, g):
    for dtype in g.all:
        for shape in g.shapes + ([70000],):
            x = g.tensor(shape, dtype, "small")
            y = x.clone()
            yield Case({"self": x, "other": y}, {"out": torch.tensor([True])})
            if y.numel() > 0:
                y.view(-1)[-1] = 1 - y.view(-1)[-1] if dtype != torch.bool else ~y.view(-1)[-1]
                yield Case({"self": x, "other": y}, {"out": torch.tensor([torch.equal(x, y)])})
    x = g.tensor([2, 3], torch.float32)
    yield Case({"self": x, "other": g.tensor([3, 2], torch.float32)}, {"out": torch.tensor([False])})
    x[0, 0] = float("nan")
    yield Case({"self": x, "other": x.clone()}, {"out": torch.tensor(False)})


@cases("IsClose")
def is_close(op, g):
    for dtype in g.floating + g.complex + g.integers:
        for shapes in BROADCASTS:
            x = g.tensor(shapes[0], dtype, "small")
            y = g.tensor(shapes[1], dtype, "small")
            for rtol, atol in ((0.25, 0.125), (0.0, 0.5), (1e-5, 1e-8)):
                # Powers of two and halves: no rounding decides.
                yield Case({"self": x, "other": y, "rtol": rtol, "atol": atol, "equalNan": False},
                           {"out": torch.isclose(x, y, rtol, atol)})
    for equal_nan in (False, True):
        x, y = g.tensor([6, 60], torch.float32, "edge"), g.tensor([6, 60], torch.float32, "edge")
        yield Case({"self": x, "other": y, "rtol": 0.5, "atol": 0.0, "equalNan": equal_nan},
                   {"out": torch.isclose(x, y, 0.5, 0.0, equal_nan)})


@cases("IsFinite", "IsPosInf", "IsNegInf")
def tests_of_one(op, g):
    function = {"IsFinite": torch.isfinite, "IsPosInf": torch.isposinf, "IsNegInf": torch.isneginf}[op]
    for dtype in g.real + (torch.bool,) + (g.complex if op == "IsFinite" else ()):
        for shape in g.shapes:
            x = g.tensor(shape, dtype, "edge")
            yield Case({"self": x}, {"out": function(x)})
    x = g.tensor([60], torch.float32, "edge")
    yield Case({"self": x}, {"out": Ref(function(x), torch.float32)})
