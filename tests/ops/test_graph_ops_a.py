# SPDX-License-Identifier: Apache-2.0
"""Operators by type against PyTorch: element-wise, activation, lists, reductions, movement.

Each type has cases of its own; test_every_row_has_a_case sees that none is missing.
"""

import math

import pytest
import torch
import torch.nn.functional as F

import aclnn
import test_graph_ops_c
import test_graph_ops_d
from graph_ops import FAMILIES, ROWS, Known, hold
from graph_ops_numbers import (FLOATS, HALF, INTEGERS, SINGLES, UNARY, b16, boolean, c64, c128, f16, f32, f64, i8, i16, i32,
                               i64, numbers, u8, wide)

SHAPES = ((3, 5), (0, 3), (), (2, 1, 17))
CASES = {}


def case(type, inputs, expected, attributes=None, scale=1, **options):
    """expected: a tensor, a list of tensors, or one of them for each output, by name."""
    CASES.setdefault(type, []).append((inputs, attributes, expected, scale, options))


# ---- Element by element ----

def unary(type, function, dtypes, name="x", attributes=None, low=-3.0, high=3.0, scale=1, shapes=SHAPES):
    for dtype in dtypes:
        for shape in shapes if dtype == dtypes[0] else shapes[:1]:
            x = numbers(dtype, *shape, low=low, high=high)
            case(type, {name: x}, function(wide(x)), attributes, scale)


def binary(type, function, dtypes, names=("x1", "x2"), low=-3.0, high=3.0, **attributes):
    for dtype in dtypes:
        for one, other in (((3, 5), (3, 5)), ((2, 3, 1), (7,)), ((0, 3), (1, 3)), ((), ())):
            if dtype != dtypes[0] and len(one) != 3:
                continue
            a, b = numbers(dtype, *one, low=low, high=high), numbers(dtype, *other, low=low, high=high, seed=5)
            case(type, dict(zip(names, (a, b), strict=True)), function(wide(a), wide(b)), attributes)


unary("Acosh", torch.acosh, FLOATS, low=1.0)
unary("Acosh", torch.acosh, (c64, c128))
unary("Asinh", torch.asinh, UNARY)
unary("Atanh", torch.atanh, UNARY, low=-0.9, high=0.9)
unary("Erfinv", torch.erfinv, SINGLES, name="input_x", low=-0.9, high=0.9)
unary("Real", torch.real, (c64, c128), name="input")
unary("Imag", torch.imag, (c64, c128), name="input")
unary("Log", torch.log, UNARY, low=0.1)
unary("Log", lambda x: torch.log(2 * x + 1) / math.log(10), FLOATS, low=0.1,
      attributes={"base": 10.0, "scale": 2.0, "shift": 1.0})
for _dtype in (f32, f16, f64):
    _x = numbers(_dtype, 3, 5)
    _x[1, 2], _x[0, 0], _x[2, 4] = math.inf, -math.inf, math.nan
    case("IsInf", {"x": _x}, torch.isinf(_x))
for _dtype in HALF:
    _x = numbers(_dtype, 3, 5)
    _x[1, 2], _x[0, 0], _x[2, 4] = math.inf, -math.inf, math.nan
    case("NanToNum", {"x": _x}, torch.nan_to_num(_x, 0.5, 100.0, -50.0), {"nan": 0.5, "posinf": 100.0, "neginf": -50.0})
for _dtype, _result in ((f32, c64), (f64, c128)):
    _a, _b = numbers(_dtype, 2, 3), numbers(_dtype, 3, seed=3)
    case("Complex", {"real": _a, "imag": _b}, torch.complex(*torch.broadcast_tensors(_a, _b)),
         {"Tout": _result})
for _dtype in INTEGERS:
    _x = torch.tensor([[100, -100, 7], [1, 0, -1]]).to(_dtype)
    case("RightShift", {"x": _x, "y": torch.tensor([0, 1, 3]).to(_dtype)}, _x >> torch.tensor([0, 1, 3]).to(_dtype))
for _type, _names in (("Select", ("condition", "x1", "x2")), ("SelectV2", ("condition", "then", "else"))):
    for _dtype in (f32, f16, b16, f64, i8, i32, i64, boolean, c64):
        for _shape in ((3, 5), (0, 3), ()):
            _given = numbers(boolean, *_shape), numbers(_dtype, *_shape), numbers(_dtype, *_shape, seed=9)
            case(_type, dict(zip(_names, _given, strict=True)), torch.where(*_given))
_given = numbers(boolean, 3, 1), numbers(f32, 2, 1, 4), numbers(f32, 1)
case("SelectV2", dict(zip(("condition", "then", "else"), _given, strict=True)), torch.where(*_given))
binary("TruncateDiv", lambda a, b: torch.div(a, b, rounding_mode="trunc"), (i32, f32, f16, f64, i8, u8, i16, i64),
       low=1.0, high=50.0)
for _dtype in (f32, f16, b16, i32, i64, i8, boolean):
    if _dtype == boolean:
        continue
    for _shape in ((3, 5), (0, 3), ()):
        _x, _mask, _value = numbers(_dtype, *_shape), numbers(boolean, *_shape), numbers(_dtype)
        case("MaskedFill", {"x": _x, "mask": _mask, "value": _value}, _x.masked_fill(_mask, _value))
_mask = numbers(boolean, 2, 3, 1)
case("MaskedFill", {"x": numbers(f32, 4), "mask": _mask, "value": torch.tensor([7.0])},
     numbers(f32, 4).expand(2, 3, 4).masked_fill(_mask, 7.0))
for _known in (False, True):
    for _dtype in (f32, f16, b16, f64):
        _x, _a, _b = numbers(_dtype, 2, 3, 4), numbers(_dtype, 3, 1, low=1), numbers(_dtype, 4, low=1, seed=2)
        _v = torch.tensor(0.5, dtype=_dtype)
        for _type, _function in (("Addcmul", torch.addcmul), ("Addcdiv", torch.addcdiv)):
            case(_type, {"input_data": _x, "x1": _a, "x2": _b, "value": Known(_v) if _known else _v},
                 _function(wide(_x), wide(_a), wide(_b), value=0.5), scale=2)
for _dtype in (i32, i64, i8, u8):
    _x, _a, _b = numbers(_dtype, 3, 4), numbers(_dtype, 3, 4, seed=2), numbers(_dtype, 4, seed=3)
    case("Addcmul", {"input_data": _x, "x1": _a, "x2": _b, "value": torch.tensor([2]).to(_dtype)}, _x + 2 * _a * _b)
case("HardSigmoid", {"input_x": numbers(i32, 3, 4)}, F.hardsigmoid(numbers(i32, 3, 4).float()), types={"output_y": f32})
case("Addcmul", {"input_data": numbers(f32, 0, 3), "x1": numbers(f32, 3), "x2": numbers(f32, 3), "value": torch.tensor(1.0)},
     torch.empty(0, 3))

for _dtype in (c64, c128):
    for _shape in ((3, 8), (2, 3, 15), (0, 4), (7, 1), (5, 13), (2, 6, 49)):
        _x = numbers(_dtype, *_shape)
        case("FFT", {"x": _x}, torch.fft.fft(_x) if _x.numel() else _x, scale=20)
        case("FFT2D", {"x": _x}, torch.fft.fft2(_x) if _x.numel() else _x, scale=40)
for _type in ("Cos", "Sin", "Tan", "Cosh", "Sinh", "Tanh", "Exp", "Expm1", "Sqrt", "Rsqrt", "Reciprocal", "Acos", "Asin", "Atan",
              "Log1p", "Sigmoid", "Square"):
    unary(_type, getattr(torch, _type.lower()), (c64, c128), scale=4)

# ---- Activations ----

aten = torch.ops.aten
unary("FastGelu", lambda x: x * torch.sigmoid(1.702 * x), HALF)
unary("Gelu", lambda x: F.gelu(x, approximate="tanh"), HALF)
unary("GeluV2", F.gelu, HALF)
unary("GeluV2", lambda x: F.gelu(x, approximate="tanh"), HALF, attributes={"approximate": "tanh"})
unary("HardSigmoid", F.hardsigmoid, SINGLES, name="input_x", low=-8, high=8)
unary("HardSigmoid", lambda x: torch.clamp(0.5 * x + 0.25, 0, 1), SINGLES, name="input_x",
      attributes={"alpha": 0.5, "beta": 0.25})
unary("LogSigmoid", F.logsigmoid, SINGLES)
unary("Swish", F.silu, HALF)
unary("Swish", lambda x: x * torch.sigmoid(1.5 * x), HALF, attributes={"scale": 1.5})
_halves = ((3, 6), (0, 4), (2, 8))
unary("GLU", F.glu, FLOATS, shapes=_halves)
unary("GLU", lambda x: F.glu(x, 1), (f32,), shapes=((2, 4, 3),), attributes={"dim": 1})
unary("SwiGlu", lambda x: F.silu(x[..., : x.shape[-1] // 2]) * x[..., x.shape[-1] // 2:], HALF, shapes=_halves)


def gradient(type, function, dtypes, names, order=(0, 1), attributes=None, low=-3.0, high=3.0, shapes=SHAPES, scale=2):
    """names: of the gradient and of the input; order: their places in the function."""
    for dtype in dtypes:
        for shape in shapes if dtype == dtypes[0] else shapes[:1]:
            x = numbers(dtype, *shape, low=low, high=high)
            out = function(wide(x), None)
            grad = numbers(dtype, *out.shape, seed=4)
            case(type, dict(zip(names, (grad, x), strict=True)), function(wide(x), wide(grad)), attributes, scale)


def derivative(function):
    """The gradient by autograd; without one, the result itself."""
    def compute(x, grad):
        if grad is None:
            return function(x)
        x = x.detach().clone().requires_grad_()
        return torch.autograd.grad(function(x), x, grad)[0]
    return compute


gradient("FastGeluGrad", derivative(lambda x: x * torch.sigmoid(1.702 * x)), HALF, ("dy", "x"))
gradient("GLUGrad", derivative(F.glu), FLOATS, ("y_grad", "x"), shapes=_halves)
gradient("SwiGluGrad", derivative(lambda x: F.silu(x[..., : x.shape[-1] // 2]) * x[..., x.shape[-1] // 2:]), HALF,
         ("y_grad", "x"), shapes=_halves)
gradient("GeluGradV2", derivative(F.gelu), HALF, ("dy", "x"))
gradient("GeluGradV2", derivative(lambda x: F.gelu(x, approximate="tanh")), HALF, ("dy", "x"), attributes={"approximate": "tanh"})
gradient("HardSigmoidGrad", derivative(F.hardsigmoid), SINGLES, ("grads", "input_x"), low=-8, high=8)
gradient("HardSwishGrad", derivative(F.hardswish), SINGLES, ("grad", "x"), low=-8, high=8)
gradient("HardtanhGrad", lambda x, g: x if g is None else aten.hardtanh_backward(g, x, -0.5, 0.75), SINGLES,
         ("grad", "result"), attributes={"min_val": -0.5, "max_val": 0.75})
gradient("LeakyReluGrad", derivative(lambda x: F.leaky_relu(x, 0.25)), (f32, f16, f64), ("gradients", "features"),
         attributes={"negative_slope": 0.25})
gradient("LogSigmoidGrad", derivative(F.logsigmoid), SINGLES, ("grads", "features"))
gradient("ReluGrad", lambda x, g: x if g is None else g * (x > 0), FLOATS + (i32, i8, u8, i64, i16), ("gradients", "features"))
gradient("SigmoidGrad", lambda y, g: y if g is None else g * y * (1 - y), FLOATS, ("dy", "y"))
gradient("TanhGrad", lambda y, g: y if g is None else g * (1 - y * y), FLOATS, ("dy", "y"))
gradient("ThresholdGradV2D", lambda x, g: x if g is None else g * (x > 1), (f16, i32), ("gradients", "features"),
         attributes={"threshold": 1.0})
for _is_result in (False, True):
    gradient("EluGradV2", lambda x, g, r=_is_result: x if g is None else aten.elu_backward(g, 0.7, 1.2, 0.9, r, x), SINGLES,
             ("grads", "activations"), low=-0.8,
             attributes={"alpha": 0.7, "scale": 1.2, "input_scale": 0.9, "is_result": _is_result})
for _dtype in HALF:
    _dy, _x = numbers(_dtype, 3, 5, seed=4), numbers(_dtype, 3, 5)
    case("GeluGrad", {"dy": _dy, "x": _x, "y": F.gelu(_x, approximate="tanh")},
         aten.gelu_backward(wide(_dy), wide(_x), approximate="tanh"), scale=2)
    _x = numbers(_dtype, 3, 8)
    _left, _right = wide(_x).chunk(2, -1)
    case("GeGluV2", {"x": _x}, {"y": _left * F.gelu(_right, approximate="tanh"), "gelu": F.gelu(_right, approximate="tanh")},
         scale=2)
    case("GeGluV2", {"x": _x}, {"y": F.gelu(_left) * _right, "gelu": F.gelu(_left)},
         {"approximate": 0, "activate_left": True}, scale=2)
    _a, _b = wide(_x)[:, ::2].clamp(max=2.0), wide(_x)[:, 1::2].clamp(-2.0, 2.0)
    case("ClippedSwiglu", {"x": _x}, _a * torch.sigmoid(1.702 * _a) * (_b + 1.0), {"limit": 2.0}, scale=2)
    _a, _b = _left.clamp(max=2.0), _right.clamp(-2.0, 2.0)
    case("ClippedSwiglu", {"x": _x}, _a * torch.sigmoid(_a) * (_b + 0.5),
         {"limit": 2.0, "alpha": 1.0, "bias": 0.5, "interleaved": False}, scale=2)
for _dtype in SINGLES:
    for _shape in ((4, 3, 5), (4, 3)):
        _x, _w, _g = numbers(_dtype, *_shape), numbers(_dtype, 3, seed=2), numbers(_dtype, *_shape, seed=3)
        case("PRelu", {"x": _x, "weight": _w}, F.prelu(wide(_x), wide(_w)))
        _dx, _da = torch.autograd.grad(F.prelu(*(_v := (wide(_x).requires_grad_(), wide(_w).requires_grad_()))), _v, wide(_g))
        case("PReluGrad", {"grads": _g, "features": _x.detach(), "weights": _w.detach()}, {"dx": _dx, "da": _da}, scale=4)
for _dtype in SINGLES + (i8, i32, u8, i64):
    _x = numbers(_dtype, 3, 5, high=4)
    case("ThresholdV2", {"x": _x, "threshold": torch.tensor([1]).to(_dtype), "value": torch.tensor(2).to(_dtype)},
         torch.where(_x > 1, _x, torch.tensor(2).to(_dtype)))
    case("ThresholdV2", {"x": _x, "threshold": torch.tensor(1).to(_dtype)}, torch.where(_x > 1, _x, torch.zeros_like(_x)))

# ---- Lists ----


def lists(dtype, low=-3.0, high=3.0, seed=1):
    return [numbers(dtype, *shape, low=low, high=high, seed=seed + i) for i, shape in enumerate(((3, 5), (0, 2), (), (17,)))]


def each(function, *given):
    return [function(*(wide(tensor) for tensor in tensors)) for tensors in zip(*given, strict=True)]


for _type, _function, _dtypes, _low, _high in (
        ("ACos", torch.acos, SINGLES, -0.9, 0.9), ("ASin", torch.asin, SINGLES, -0.9, 0.9), ("ATan", torch.atan, SINGLES, -3, 3),
        ("Abs", torch.abs, (f32, f16, i32), -3, 3), ("Cos", torch.cos, SINGLES, -3, 3), ("Cosh", torch.cosh, SINGLES, -3, 3),
        ("Erf", torch.erf, SINGLES, -3, 3), ("Erfc", torch.erfc, SINGLES, -3, 3), ("Exp", torch.exp, SINGLES, -3, 3),
        ("Expm1", torch.expm1, SINGLES, -3, 3), ("Log", torch.log, SINGLES, 0.1, 3), ("Log10", torch.log10, SINGLES, 0.1, 3),
        ("Log1p", torch.log1p, SINGLES, 0.1, 3), ("Log2", torch.log2, SINGLES, 0.1, 3), ("Sigmoid", torch.sigmoid, SINGLES, -3, 3),
        ("Sin", torch.sin, SINGLES, -3, 3), ("Sinh", torch.sinh, SINGLES, -3, 3), ("Tan", torch.tan, SINGLES, -1, 1),
        ("Tanh", torch.tanh, SINGLES, -3, 3)):
    for _dtype in _dtypes:
        _x = lists(_dtype, _low, _high)
        case("Foreach" + _type, {"x": _x}, each(_function, _x), lengths={"y": 4})
for _name, _function, _with_int in (("Add", torch.add, True), ("Sub", torch.sub, True), ("Mul", torch.mul, True),
                                    ("Div", torch.div, False), ("Maximum", torch.maximum, True),
                                    ("Minimum", torch.minimum, True), ("Pow", torch.pow, True)):
    for _dtype in (f32, f16) + ((i32,) if _with_int else ()):
        _x, _y = lists(_dtype, 1, 3), lists(_dtype, 1, 3, seed=30)
        _extra = {"alpha": torch.tensor(2).to(_dtype)} if _name in ("Add", "Sub") else {}
        _factor = 2 if _extra else 1
        case(f"Foreach{_name}List", {"x1": _x, "x2": _y, **_extra}, each(lambda a, b, f=_function, k=_factor: f(a, k * b), _x, _y),
             lengths={"y": 4}, scale=2)
        _scalar = torch.tensor(2).to(_dtype)
        case(f"Foreach{_name}Scalar", {"x": _x, "scalar": _scalar}, each(lambda a, f=_function, s=wide(_scalar): f(a, s), _x),
             lengths={"y": 4}, scale=2)
        _scalars = torch.tensor([1, 2, 3, 2]).to(_dtype)
        case(f"Foreach{_name}ScalarList", {"x": _x, "scalars": _scalars}, each(_function, _x, list(_scalars)),
             lengths={"y": 4}, scale=2)
for _known in (Known, lambda tensor: tensor):
    for _dtype in (f32, f16, i32):
        _x = lists(_dtype, 0, 3)
        case("ForeachPowScalarAndTensor", {"scalar": _known(torch.tensor(2).to(_dtype)), "x": _x},
             each(lambda a: torch.pow(2, a), _x), lengths={"y": 4}, scale=2)
    for _dtype in HALF:
        _x, _y = lists(_dtype), lists(_dtype, seed=30)
        for _type in ("ForeachLerpScalar", "ForeachLerpList"):
            case(_type, {"x1": _x, "x2": _y, "weight": _known(torch.tensor([0.25]))},
                 each(lambda a, b: torch.lerp(a, b, 0.25), _x, _y), lengths={"y": 4}, scale=2)
_x, _y = lists(f32), lists(f32, seed=30)
case("ForeachLerpList", {"x1": _x, "x2": _y, "weight": torch.tensor([0.25, 0.5, 1.0, 2.0])},
     [torch.lerp(a, b, w) for a, b, w in zip(_x, _y, (0.25, 0.5, 1.0, 2.0), strict=True)], lengths={"y": 4}, scale=2)
for _name, _function in (("Addcmul", lambda a, b, c, s: a + s * (b * c)), ("Addcdiv", lambda a, b, c, s: a + s * (b / c))):
    for _dtype in SINGLES:
        _lists = lists(_dtype), lists(_dtype, 1, 3, seed=30), lists(_dtype, 1, 3, seed=60)
        _operands = [operand.name for operand in ROWS[f"Foreach{_name}Scalar"].inputs]
        case(f"Foreach{_name}Scalar", dict(zip(_operands, _lists + (torch.tensor(2).to(_dtype),), strict=True)),
             each(lambda a, b, c, f=_function: f(a, b, c, 2), *_lists), lengths={"y": 4}, scale=3)
        for _kind in ("List", "ScalarList"):
            _operands = [operand.name for operand in ROWS[f"Foreach{_name}{_kind}"].inputs]
            _scalars = torch.tensor([1, 2, 3, 2]).to(_dtype)
            case(f"Foreach{_name}{_kind}", dict(zip(_operands, _lists + (_scalars,), strict=True)),
                 each(_function, *_lists, list(_scalars)), lengths={"y": 4}, scale=3)
for _dtype in HALF:
    _x = lists(_dtype)
    for _p in (1.0, 2.0):
        case("ForeachNorm", {"x1": _x, "scalar": Known(torch.tensor(_p))},
             each(lambda a, p=_p: torch.linalg.vector_norm(a, p), _x), lengths={"y": 4}, scale=3)
    case("ForeachRoundOffNumber", {"x": _x, "roundMode": torch.tensor(1)}, each(torch.round, _x), lengths={"y": 4})

# ---- Reductions ----

for _dtype in (f32, f16, f64, i32, i8, u8, i16, i64):
    for _shape, _dim in (((3, 7), 1), ((3, 7), -2), ((5,), 0)):
        _x = numbers(_dtype, *_shape, low=-50, high=50)
        case("ArgMaxV2", {"x": _x, "dimension": [_dim]}, wide(_x).argmax(_dim))
        case("ArgMin", {"x": _x, "dimension": torch.tensor(_dim, dtype=i32)}, wide(_x).argmin(_dim), {"dtype": i32})
for _dtype in HALF:
    _x = numbers(_dtype, 3, 7, low=-50, high=50)
    for _keep in (False, True):
        _found = wide(_x).max(1, keepdim=_keep)
        case("ArgMaxWithValue", {"x": _x}, {"values": _found.values, "indice": _found.indices}, {"dimension": 1, "keep_dims": _keep})
        _found = wide(_x).min(-2, keepdim=_keep)
        if _dtype != b16:
            case("ArgMinWithValue", {"x": _x}, {"values": _found.values, "indice": _found.indices}, {"dimension": -2, "keep_dims": _keep})
    case("LogSoftmaxV2", {"logits": _x}, F.log_softmax(wide(_x), -1), scale=4)
    _x, _g = F.log_softmax(numbers(f32, 3, 7), 1).to(_dtype), numbers(_dtype, 3, 7, seed=4)
    case("LogSoftmaxGrad", {"grad": _g, "x": _x}, aten._log_softmax_backward_data(wide(_g), wide(_x), 1, f32), scale=8)
    _x = F.softmax(numbers(f32, 2, 3, 7), 1).to(_dtype)
    _g = numbers(_dtype, 2, 3, 7, seed=4)
    case("SoftmaxGrad", {"softmax": _x, "grad_softmax": _g}, aten._softmax_backward_data(wide(_g), wide(_x), 1, f32),
         {"axes": [1]}, scale=4)
    for _p, _encoded in ((2.0, 2.0), (1.0, 1.0), (3.0, 3.0), (math.inf, 2147483647.0), (-math.inf, -2147483648.0), (0.0, 0.0)):
        _x = numbers(_dtype, 2, 3, 7)
        case("LpNormV2", {"x": _x}, torch.linalg.vector_norm(wide(_x), _p, (1,), keepdim=True),
             {"p": _encoded, "axes": [1], "keepdim": True}, scale=3)
    case("LpNormV2", {"x": _x}, torch.linalg.vector_norm(wide(_x)), scale=3)
    _x = numbers(_dtype, 2, 3, 7)
    for _correction, _dims, _keep in ((1, [2], False), (0, [0, 2], True), (1, [], False)):
        _std, _mean = torch.std_mean(wide(_x), _dims or None, correction=_correction, keepdim=_keep)
        case("ReduceStdV2", {"x": _x}, {"std": _std, "mean": _mean}, {"dim": _dims, "correction": _correction, "keepdim": _keep}, scale=3)
        _full = wide(_x).mean(_dims or None, keepdim=True).expand_as(_x).to(_dtype)
        case("ReduceStdWithMean", {"x": _x, "mean": _full}, _std,
             {"dim": _dims, "correction": _correction, "keepdim": _keep, "unbiased": _correction == 1}, scale=6)
    _std = torch.var(wide(_x), 2, correction=1)
    case("ReduceStdWithMean", {"x": _x, "mean": wide(_x).mean(2, keepdim=True).expand_as(_x).to(_dtype)},
         torch.rsqrt(_std + 0.5), {"dim": [2], "invert": True, "epsilon": 0.5}, scale=6)
case("LogSoftmaxV2", {"logits": numbers(f64, 2, 3, 4)}, F.log_softmax(numbers(f64, 2, 3, 4).reshape(2, 12), 1).reshape(2, 3, 4),
     {"axes": [1, 2]})
case("SoftmaxV2", {"x": numbers(f32, 2, 3, 4)}, F.softmax(numbers(f32, 2, 3, 4), 0), {"axes": [0]})
for _dtype in (f32, f16, i32, i64, f64):
    _x = numbers(_dtype, 3, 5)
    case("Cumsum", {"x": _x, "axis": [1]}, wide(_x).cumsum(1), scale=3)
    case("Cumsum", {"x": _x, "axis": [-2]}, wide(_x).flip(0).cumsum(0).flip(0), {"reverse": True}, scale=3)
    case("Cumsum", {"x": _x, "axis": [1]}, wide(_x).cumsum(1) - wide(_x), {"exclusive": True}, scale=5)
    case("Cumsum", {"x": _x, "axis": [1]}, wide(_x).flip(1).cumsum(1).flip(1) - wide(_x), {"exclusive": True, "reverse": True}, scale=5)
case("Cumsum", {"x": numbers(f32, 0, 3), "axis": [1]}, torch.empty(0, 3), {"exclusive": True})
case("Cumsum", {"x": numbers(f32, 1), "axis": [0]}, torch.zeros(1), {"exclusive": True})
for _dtype in SINGLES:
    _a, _b = numbers(_dtype, 3, 5), numbers(_dtype, 3, 5, seed=2)
    for _reduction in ("mean", "sum", "none"):
        _leaf = wide(_a).clone().requires_grad_()
        _loss = F.mse_loss(_leaf, wide(_b), reduction=_reduction)
        _d = torch.ones_like(_loss).to(_dtype) * 2
        case("MseLoss", {"predict": _a, "label": _b}, _loss.detach(), {"reduction": _reduction}, scale=4)
        case("MseLossGrad", {"predict": _a, "label": _b, "dout": _d}, torch.autograd.grad(_loss, _leaf, wide(_d))[0],
             {"reduction": _reduction}, scale=4)
for _target in (torch.tensor([0, 2, -100, 1, 2]), torch.tensor([0, 2, 1, 1, 2], dtype=i32)):
    for _reduction in ("mean", "sum", "none"):
        _x, _w = numbers(f32, 5, 3), torch.tensor([0.5, 1.0, 2.0])
        for _weight in (_w, None):
            _loss, _total = aten.nll_loss_forward(_x, _target.long(), _weight, ("none", "mean", "sum").index(_reduction), -100)
            case("NLLLoss", {"x": _x, "target": _target, "weight": _weight}, {"y": _loss, "total_weight": _total},
                 {"reduction": _reduction})
        _loss, _total = aten.nll_loss_forward(_x, _target.long(), _w, ("none", "mean", "sum").index(_reduction), -100)
        _g = torch.ones_like(_loss) * 3
        case("NLLLossGrad", {"x": _x, "y_grad": _g, "target": _target, "weight": _w, "total_weight": _total},
             aten.nll_loss_backward(_g, _x, _target.long(), _w, ("none", "mean", "sum").index(_reduction), -100, _total),
             {"reduction": _reduction})
for _dtype in (f32, f16, i32, i8, u8, i64, f64):
    _x = numbers(_dtype, 2, 3, 4, low=-2, high=2)
    for _axes, _keep in (([1], False), ([0, 2], True), ([-1], False)):
        _expected = wide(_x) if _x.dtype.is_floating_point else _x
        for _d in sorted((d % 3 for d in _axes), reverse=True):
            _expected = _expected.prod(_d, keepdim=True, dtype=_expected.dtype)
        if not _keep:
            _expected = _expected.reshape([s for d, s in enumerate(_x.shape) if d not in [a % 3 for a in _axes]])
        case("ReduceProd", {"x": numbers(_dtype), "axes": [0]}, numbers(_dtype))
        case("ReduceProd", {"x": _x, "axes": _axes}, _expected, {"keep_dims": _keep}, scale=3)
        if _dtype not in (i64, f64):
            case("ReduceProdD", {"x": _x}, _expected, {"axes": _axes, "keep_dims": _keep}, scale=3)
for _dtype in (f32, f16, i32, i64):
    _x = numbers(_dtype, 2, 3, 4)
    case("ReduceMeanWithCast", {"x": _x, "axes": [1]}, _x.to(f32).mean(1), {"dtype": f32}, scale=2)
    case("ReduceMeanWithCast", {"x": _x, "axes": []}, _x.to(f32), {"dtype": f32})
case("ReduceMean", {"x": numbers(f32, 2, 3), "axes": []}, numbers(f32, 2, 3))
case("ReduceMean", {"x": numbers(f32, 2, 3), "axes": []}, numbers(f32, 2, 3).mean(), {"noop_with_empty_axes": False})
case("ReduceMeanWithCast", {"x": numbers(f16, 2, 3), "axes": [0]}, numbers(f16, 2, 3).float().mean(0).half())
for _dtype in (f32, f16, i8, i32, u8, i16, i64):
    _row, _x = torch.tensor([1, 3, 5, 7, 9]).to(_dtype), torch.tensor([[3, 6, 9], [2, 0, 10]]).to(_dtype)
    _rows = _row.expand(2, 5).contiguous()
    for _right in (False, True):
        _expected = torch.searchsorted(wide(_row), wide(_x), right=_right)
        case("SearchSorted", {"sorted_sequence": _row, "values": _x}, _expected, {"right": _right})
        case("SearchSorted", {"sorted_sequence": _rows, "values": _x}, _expected, {"right": _right, "dtype": i32})
_turned, _sorter = torch.tensor([9.0, 1.0, 5.0]), torch.tensor([1, 2, 0])
case("SearchSorted", {"sorted_sequence": _turned, "values": torch.tensor([4.0]), "sorter": _sorter}, torch.tensor([1]))
for _dtype in (f32, f16, i8, i32, u8, i16, i64):
    _x = torch.stack([torch.randperm(50, generator=torch.Generator().manual_seed(s)) for s in range(3)]).to(_dtype)
    for _descending in (False, True):
        _found = wide(_x).sort(-1, descending=_descending)
        case("Sort", {"x": _x}, {"y1": _found.values, "y2": _found.indices}, {"descending": _descending})
    for _largest in (False, True):
        _found = wide(_x).topk(5, 1, largest=_largest)
        case("TopKV2", {"x": _x, "k": torch.tensor(5, dtype=i32)}, {"values": _found.values, "indices": _found.indices},
             {"largest": _largest, "dim": 1})
case("Sort", {"x": numbers(f32, 0, 3)}, {"y1": torch.empty(0, 3), "y2": torch.empty(0, 3)})

# ---- Movement ----

ANY = (f32, f16, b16, f64, i8, i16, i32, i64, u8, boolean, c64, c128)
for _dtype in ANY:
    _x = numbers(_dtype, 4, 6)
    case("AsStrided", {"x": _x, "size": [2, 3], "stride": [3, 2], "storage_offset": [5]}, _x.as_strided([2, 3], [3, 2], 5))
    case("ReverseV2", {"x": _x, "axis": [0, -1]}, _x.flip(0, 1)) if _dtype != b16 else None
    case("Tile", {"x": _x, "multiples": [2, 1, 3]}, _x.repeat(2, 1, 3))
    case("Tril", {"x": _x}, _x.tril(-1), {"diagonal": -1})
    case("Triu", {"x": _x}, _x.triu(2), {"diagonal": 2})
    case("Unpack", {"x": _x}, list(_x.unbind(1)), {"num": 6, "axis": 1}, lengths={"y": 6})
    case("SplitV", {"x": _x, "size_splits": [1, -1, 2], "split_dim": [1]}, list(_x.split([1, 3, 2], 1)), {"num_split": 3},
         lengths={"y": 3})
    case("StridedSliceV2", {"x": _x, "begin": [1, 5], "end": [4, 0], "axes": [0, 1], "strides": [2, -2]},
         _x[1:4:2].flip(1)[:, 0:5:2])
    case("TransData", {"src": _x}, _x, {"src_format": "ND", "dst_format": "FRACTAL_NZ"})
    _source = numbers(_dtype, 4, 6, seed=8)
    _expected = _x.clone()
    _expected.as_strided([2, 3], [12, 2], 1).copy_(_source.as_strided([2, 3], [1, 6], 2))
    case("ViewCopy", {"dst": _x, "dst_size": [2, 3], "dst_stride": [12, 2], "dst_storage_offset": [1], "src": _source,
                      "src_size": [2, 3], "src_stride": [1, 6], "src_storage_offset": [2]}, _expected)
    case("Shape", {"x": _x}, torch.tensor([4, 6], dtype=i32))
case("Shape", {"x": numbers(f32)}, torch.empty(0, dtype=i64), {"dtype": 9})
case("Tile", {"x": numbers(f32, 2, 3), "multiples": [2]}, numbers(f32, 2, 3).repeat(1, 2))
case("Tile", {"x": numbers(f32, 2, 3), "multiples": [0, 1]}, torch.empty(0, 3))
case("AsStrided", {"x": numbers(f32, 4), "size": [3, 4], "stride": [0, 1], "storage_offset": [0]}, numbers(f32, 4).expand(3, 4))
case("AsStrided", {"x": numbers(f32, 4), "size": [], "stride": [], "storage_offset": [2]}, numbers(f32, 4)[2])
case("AsStrided", {"x": numbers(f32, 0), "size": [0], "stride": [1], "storage_offset": [0]}, torch.empty(0))
for _from, _to, _shape, _keep in ((f32, i32, (3, 2), False), (f32, i16, (3, 2), False), (f32, u8, (3, 2), True),
                                  (i16, f32, (3, 2), False), (i8, i64, (3, 8), False), (i64, f64, (3,), False)):
    _x = numbers(_from, *_shape, low=-100, high=100)
    _flat = _x.contiguous().reshape(-1).view(_to)
    _ratio = _x.element_size() / torch.empty(0, dtype=_to).element_size()
    _sizes = list(_shape)
    if _ratio > 1:
        _sizes = _sizes[:-1] + [int(_sizes[-1] * _ratio)] if _keep else _sizes + [int(_ratio)]
    elif _ratio < 1:
        _sizes = _sizes[:-1]
    case("Bitcast", {"x": _x}, _flat.reshape(_sizes), {"type": _to, "keep_dim": _keep})
for _dtype in (f32, f64):
    for _known in (Known, lambda tensor: tensor):
        for _count in (1, 2, 7):
            case("LinSpace", {"start": _known(torch.tensor(-1.5, dtype=_dtype)), "stop": _known(torch.tensor(4, dtype=_dtype)),
                              "num": [_count]}, torch.linspace(-1.5, 4, _count, dtype=_dtype))
for _dtype in (i32, i64, f32, f64, f16):
    for _numbers in ((1, 10, 4), (10, -3, -2), (5, 5, 1)):
        _given = [torch.tensor(n).to(_dtype) for n in _numbers]
        case("Range", dict(zip(("start", "limit", "delta"), _given, strict=True)), torch.arange(*_numbers, dtype=_dtype))
for _dtype in (i32, i64):
    _x = torch.tensor([[0, 2], [1, 5]]).to(_dtype)
    for _axis in (-1, 0, 1):
        _expected = torch.where(_x.unsqueeze(-1) == torch.arange(4), torch.tensor(1.5), torch.tensor(-1.0)).movedim(-1, _axis)
        case("OneHot", {"x": _x, "depth": [4], "on_value": torch.tensor([1.5]), "off_value": torch.tensor([-1.0])}, _expected,
             {"axis": _axis})
for _dtype in ANY:
    _x = numbers(_dtype, 2, 3, 4)
    case("PadV3", {"x": _x, "paddings": [0, 1, 2, 0, 1, 1], "constant_values": torch.tensor(2).to(_dtype)},
         F.pad(_x, (1, 1, 2, 0, 0, 1), value=1 if _dtype == boolean else 2))
    _floating = wide(_x) if not _x.dtype.is_complex and _x.dtype != boolean else _x.to(c128)
    _reflected = F.pad(_floating[None], (2, 3, 1, 0), mode="reflect")[0]
    case("PadV3", {"x": _x, "paddings": [0, 0, 1, 0, 2, 3]}, _reflected.to(c128).real.to(_dtype) if _dtype == boolean else _reflected,
         {"mode": "reflect"})
    if _dtype != b16:
        case("MirrorPad", {"x": _x, "paddings": torch.tensor([[0, 0], [1, 0], [2, 3]])},
             _reflected.to(c128).real.to(_dtype) if _dtype == boolean else _reflected, {"mode": "REFLECT"})
_x = numbers(f32, 2, 3, 4)
case("PadV3", {"x": _x, "paddings": [0, 2, 0, 1, 1, 0]}, F.pad(_x, (0, 0, 2, 1, 0, 1)), {"paddings_contiguous": False})
case("PadV3", {"x": _x, "paddings": [0, 0, -1, 1, 2, -2]}, F.pad(_x, (2, -2, -1, 1)))
case("PadV3", {"x": _x, "paddings": [0, 0, 3, 1, 2, 5]}, F.pad(_x[None], (2, 5, 3, 1), mode="replicate")[0], {"mode": "edge"})
case("PadV3", {"x": numbers(f32, 0, 3), "paddings": [1, 1, 0, 0]}, torch.zeros(2, 3))
case("MirrorPad", {"x": torch.arange(4.0), "paddings": [2, 4]}, torch.tensor([1.0, 0, 0, 1, 2, 3, 3, 2, 1, 0]), {"mode": "SYMMETRIC"})
for _mode, _torch_mode in (("reflect", "reflect"), ("edge", "replicate"), ("constant", "constant")):
    for _dtype in HALF:
        _leaf = numbers(f32, 2, 4, 5).requires_grad_()
        _padded = F.pad(_leaf[None], (2, 3, 1, 2), mode=_torch_mode)[0]
        _g = numbers(_dtype, *_padded.shape, seed=6)
        case("PadV3Grad", {"x": _g, "paddings": [0, 0, 1, 2, 2, 3]}, torch.autograd.grad(_padded, _leaf, wide(_g))[0],
             {"mode": _mode}, scale=4)
for _begin, _end, _axes, _strides, _expected in (
        ([2, -3], [99, -1], [0, 1], [3, 1], lambda x: x[2:99:3, -3:-1]), ([0], [5], None, None, lambda x: x[0:5]),
        ([7], [-100], [0], [-3], lambda x: x[[7, 4, 1]]), ([3], [3], [1], None, lambda x: x[:, 3:3]),
        ([-100, 1], [100, 2], [1, 0], [2, 1], lambda x: x[1:2, ::2])):
    _x = numbers(f32, 9, 7)
    case("StridedSliceV2", {"x": _x, "begin": _begin, "end": _end, "axes": _axes, "strides": _strides}, _expected(_x))
_x = numbers(f32, 2, 3, 4)
case("StridedSliceV2", {"x": _x, "begin": [0, 1], "end": [0, 2]}, _x[..., 1], {"ellipsis_mask": 1, "shrink_axis_mask": 2})
case("StridedSliceV2", {"x": _x, "begin": [0, -1], "end": [0, 0]}, _x[None, -1], {"new_axis_mask": 1, "shrink_axis_mask": 2})
case("StridedSliceV2", {"x": _x, "begin": [1, 1], "end": [0, 2]}, _x[:, :2], {"begin_mask": 3, "end_mask": 1})
case("StridedSliceV2", {"x": _x, "begin": [1], "end": [0], "strides": [-1]}, _x.flip(0), {"begin_mask": 1, "end_mask": 1})


@pytest.mark.parametrize("type", sorted(CASES))
def test_as_pytorch(type):
    hold(type, CASES[type])


# Types of test_graph_ops_draws.py.
ELSEWHERE = {"StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessBernoulli", "StatelessDropOutGenMask", "DropOutDoMask",
             "Dropout", "StatelessRandperm", "Randperm", "MultinomialWithReplacement", "NonZero", "Where", "Unique"}


def test_every_row_has_a_case():
    families = {"elementwise", "activation", "foreach", "reduction", "random", "movement"}
    loops = (aclnn.REPO / "tests/aclop/operator_test.cc").read_text()  # against plain loops
    missing = [type for type, family in FAMILIES.items()
               if family in families and type not in CASES and type not in test_graph_ops_c.CASES
               and type not in test_graph_ops_d.CASES and type not in ELSEWHERE and f'"{type}"' not in loops]
    # Of the compiler, which also computes the others while it compiles.
    assert sorted(missing) == ["Const", "Rank", "ShapeN", "Size"]
