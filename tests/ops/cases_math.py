# SPDX-License-Identifier: Apache-2.0
"""Functions of one number."""

import torch

from harness import Case, Ref, cases, high

# Operator -> function, kind of input, whether complex numbers are defined.
FUNCTIONS = {
    "Acos": (torch.acos, "unit", True),
    "Asin": (torch.asin, "unit", True),
    "Atan": (torch.atan, "normal", True),
    "Cos": (torch.cos, "normal", True),
    "Cosh": (torch.cosh, "normal", True),
    "Erf": (torch.erf, "normal", False),
    "Erfc": (torch.erfc, "normal", False),
    "Erfinv": (torch.erfinv, "unit", False),
    "Exp": (torch.exp, "normal", True),
    "Exp2": (torch.exp2, "normal", True),
    "Expm1": (torch.expm1, "normal", True),
    "Log": (torch.log, "positive", True),
    "Log10": (torch.log10, "positive", True),
    "Log1p": (torch.log1p, "positive", True),
    "Log2": (torch.log2, "positive", True),
    "Reciprocal": (torch.reciprocal, "normal", True),
    "Rsqrt": (torch.rsqrt, "positive", True),
    "Sigmoid": (torch.sigmoid, "normal", True),
    "Sin": (torch.sin, "normal", True),
    "Sinh": (torch.sinh, "normal", True),
    "Sqrt": (torch.sqrt, "positive", True),
    "Tan": (torch.tan, "normal", True),
    "Tanh": (torch.tanh, "normal", True),
}
INPLACE = {"InplaceCos": "Cos", "InplaceExp": "Exp", "InplaceSin": "Sin"}
INPUT_NAMES = {"Acos": "input", "Atan": "input", "Cos": "input", "Frac": "input", "InplaceCos": "inputRef"}


def tensors(g, dtype, *kinds):
    """Tensors of every shape, and one of each other kind."""
    for shape in g.shapes:
        yield g.tensor(shape, dtype)
    if not dtype.is_complex:
        for kind in kinds:
            yield g.tensor([3, 29], dtype, kind)


def named(op, x, result):
    name = INPUT_NAMES.get(op, "selfRef" if op.startswith("Inplace") else "self")
    return Case({name: x}, {name if op.startswith("Inplace") else "out": result})


@cases(*FUNCTIONS, *INPLACE)
def floating_functions(op, g):
    function, kind, has_complex = FUNCTIONS[INPLACE.get(op, op)]
    for dtype in g.floating + (g.complex if has_complex else ()):
        for shape in g.shapes:
            x = g.tensor(shape, dtype, kind)
            yield named(op, x, Ref(function(high(x)), dtype))
    for dtype in g.floating:
        x = g.tensor([64], dtype, "edge")
        yield named(op, x, Ref(function(high(x)), dtype))
        # Beyond the middle: where arguments are reduced, results are large, small or undefined.
        x = (g.tensor([129], torch.float64) * 40).to(dtype)
        yield named(op, x, Ref(function(high(x)), dtype))
        x = (g.tensor([67], torch.float64) * 1e-3).to(dtype)
        yield named(op, x, Ref(function(high(x)), dtype))
    if op.startswith("Inplace"):
        return
    for dtype in g.integers + (torch.bool,):
        x = g.tensor([5, 7], dtype)
        yield named(op, x, Ref(function(x.to(torch.float64)), torch.float32))


@cases("Sin", "Cos", "Tan")
def far_arguments(op, g):
    function = FUNCTIONS[op][0]
    for scale in (3e3, 1e6, 1e20):
        x = (g.tensor([1, 77], torch.float64) * scale).to(torch.float32)
        yield named(op, x, Ref(function(high(x)), torch.float32))


@cases("Erfinv")
def near_one(op, g):
    for dtype in g.floating:
        x = 1 - torch.exp2(-torch.arange(0, 30, dtype=torch.float64) / 2)
        x = torch.cat([x, -x]).to(dtype)
        yield named(op, x, Ref(torch.erfinv(high(x)), dtype))


@cases("Ceil", "Floor", "Round", "Trunc")
def rounding(op, g):
    function = getattr(torch, op.lower())
    for dtype in g.real:
        for x in tensors(g, dtype, "small", "edge"):
            yield named(op, x, x.clone() if dtype in g.integers else function(high(x)).to(dtype))
    x = torch.tensor([2.0**23 - 0.5, -(2.0**23) + 0.5, 2.0**23 + 1, 2.0**31, -(2.0**40)], dtype=torch.float32)
    yield named(op, x, function(x))


@cases("Frac")
def frac(op, g):
    for dtype in g.floating:
        for x in tensors(g, dtype, "edge"):
            yield named(op, x, torch.frac(high(x)).to(dtype))


@cases("RoundDecimals")
def round_decimals(op, g):
    for dtype in g.floating:
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        for decimals in (0, 1, 3, -1, -2):
            for shape in g.shapes:
                x = (g.tensor(shape, torch.float64) * 100).to(dtype)
                yield Case({"self": x, "decimals": decimals},
                           {"out": Ref(torch.round(x.to(wide), decimals=decimals), dtype)})


@cases("NanToNum")
def nan_to_num(op, g):
    for dtype in g.real:
        for nan, posinf, neginf in ((0.0, 100.0, -100.0), (-1.5, 3.0, 0.25)):
            for x in tensors(g, dtype, "edge"):
                yield Case({"self": x, "nan": nan, "posinf": posinf, "neginf": neginf},
                           {"out": torch.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)})


@cases("Sign")
def sign(op, g):
    for dtype in g.all:
        for x in tensors(g, dtype, "edge"):
            if dtype.is_complex:
                if x.numel() > 1:
                    x.view(-1)[1] = 0
                yield Case({"self": x}, {"result": Ref(torch.sgn(high(x)), dtype)})
            else:
                yield Case({"self": x}, {"result": torch.sign(x)})


@cases("Abs")
def absolute(op, g):
    for dtype in g.all:
        for x in tensors(g, dtype, "edge"):
            result = x if dtype == torch.bool else torch.abs(high(x))
            yield named(op, x, Ref(result, x.abs().dtype if dtype.is_complex else dtype))


@cases("Neg")
def negative(op, g):
    for dtype in g.numeric:
        for x in tensors(g, dtype, "edge"):
            yield named(op, x, torch.neg(x))
