# SPDX-License-Identifier: Apache-2.0
"""Operators that compute each element of their results from the elements at its place."""
import math

import torch

from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import FLOATING, DataType
from torchair._ge_concrete_graph.ge_apis import Cast, Const
from torchair._ge_concrete_graph.ge_apis import dtype_promote as promote
from torchair._ge_concrete_graph.graph import Tensor, default_graph, is_symbolic
from torchair._ge_concrete_graph.registry import converts

# ---- One operator of the engine for one of PyTorch, in the type of the result ----

_UNARY = {
    "neg": "Neg", "exp": "Exp", "sqrt": "Sqrt", "rsqrt": "Rsqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "tanh": "Tanh",
    "sinh": "Sinh", "cosh": "Cosh", "asin": "Asin", "acos": "Acos", "atan": "Atan", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "erf": "Erf", "erfinv": "Erfinv", "expm1": "Expm1", "sign": "Sign", "sgn": "Sign", "log1p": "Log1p",
    "relu": "Relu", "sigmoid": "Sigmoid", "silu": "Swish", "mish": "Mish", "hardswish": "HardSwish",
    "hardsigmoid": "HardSigmoid", "square": "Square", "log_sigmoid": None,
}
_COMPARE = {"eq": "Equal", "ne": "NotEqual", "gt": "Greater", "ge": "GreaterEqual", "lt": "Less", "le": "LessEqual"}
_WHOLE = {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool}


def _unary(kind):
    def convert(self, *, meta_outputs):
        return ge.operator(kind)(promote(self, target_dtype=meta_outputs.dtype))

    return convert


def _register_unary():
    for name, kind in _UNARY.items():
        if kind is not None and ge.is_known(kind):
            converts(f"{name}.default")(_unary(kind))


_register_unary()


def symbol(value):
    """A number that may be symbolic, as a Tensor then."""
    return default_graph().number(value) if is_symbolic(value) else value


@converts("abs.default")
def _abs(self, *, meta_outputs):
    if self.dtype == DataType.DT_UINT8:
        return self
    if self.dtype in (DataType.DT_COMPLEX64, DataType.DT_COMPLEX128):
        raise NotImplementedError("abs: the graph engine has no operator for complex numbers")
    return ge.operator("Abs")(self)




def _rounding(name, kind):
    @converts(name)
    def convert(self, *, meta_outputs):
        if meta_outputs.torch_dtype in _WHOLE:
            return self
        return ge.operator(kind)(self)


for _name, _kind in (("floor.default", "Floor"), ("ceil.default", "Ceil"), ("round.default", "Round"), ("trunc.default", "Trunc")):
    if ge.is_known(_kind):
        _rounding(_name, _kind)


@converts("log.default")
def _log(self, *, meta_outputs):
    return ge.operator("Log")(promote(self, target_dtype=meta_outputs.dtype))


@converts("log2.default")
def _log2(self, *, meta_outputs):
    return ge.operator("Log")(promote(self, target_dtype=meta_outputs.dtype), base=2.0)


@converts("log10.default")
def _log10(self, *, meta_outputs):
    return ge.operator("Log")(promote(self, target_dtype=meta_outputs.dtype), base=10.0)


@converts("exp2.default")
def _exp2(self, *, meta_outputs):
    return ge.operator("Pow")(Const(2, meta_outputs.dtype), promote(self, target_dtype=meta_outputs.dtype))


@converts("erfc.default")
def _erfc(self, *, meta_outputs):
    dtype = meta_outputs.dtype
    return ge.operator("Sub")(Const(1, dtype), ge.operator("Erf")(promote(self, target_dtype=dtype)))


@converts("fmod.Tensor", "fmod.Scalar")
def _fmod(self, other, *, meta_outputs):
    dtype = meta_outputs.dtype
    left, right = _two(self, other, dtype)
    whole = _div_mode(left, right, rounding_mode="trunc", meta_outputs=meta_outputs)
    return ge.operator("Sub")(left, ge.operator("Mul")(whole, right))


@converts("reciprocal.default")
def _reciprocal(self, *, meta_outputs):
    return ge.operator("Reciprocal")(promote(self, target_dtype=meta_outputs.dtype))


@converts("isinf.default")
def _isinf(self, *, meta_outputs):
    return ge.operator("IsInf")(self)


@converts("isnan.default")
def _isnan(self, *, meta_outputs):
    return ge.operator("NotEqual")(self, self)


# ---- Sums and products ----


def _two(left, right, dtype):
    return promote(symbol(left), symbol(right), target_dtype=dtype)


@converts("add.Tensor", "add.Scalar", "prims.add")
def _add(self, other, alpha=1, *, meta_outputs):
    dtype = meta_outputs.dtype
    if dtype == DataType.DT_BOOL:
        return ge.operator("LogicalOr")(self, promote(other, target_dtype=dtype))
    left, right = _two(self, other, dtype)
    if isinstance(alpha, (int, float)) and alpha == 1:
        return ge.operator("Add")(left, right)
    return ge.operator("AxpyV2")(left, right, promote(symbol(alpha), target_dtype=dtype))


@converts("sub.Tensor", "sub.Scalar", "prims.sub")
def _sub(self, other, alpha=1, *, meta_outputs):
    dtype = meta_outputs.dtype
    left, right = _two(self, other, dtype)
    if not (isinstance(alpha, (int, float)) and alpha == 1):
        right = ge.operator("Mul")(right, promote(symbol(alpha), target_dtype=dtype))
    return ge.operator("Sub")(left, right)


@converts("rsub.Tensor", "rsub.Scalar")
def _rsub(self, other, alpha=1, *, meta_outputs):
    return _sub(other, self, alpha, meta_outputs=meta_outputs)


@converts("mul.Tensor", "mul.Scalar", "prims.mul")
def _mul(self, other, *, meta_outputs):
    dtype = meta_outputs.dtype
    if dtype == DataType.DT_BOOL:
        return ge.operator("LogicalAnd")(self, promote(other, target_dtype=dtype))
    return ge.operator("Mul")(*_two(self, other, dtype))


@converts("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(self, other, *, meta_outputs):
    return ge.operator("RealDiv")(*_two(self, other, meta_outputs.dtype))


@converts("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(self, other, *, rounding_mode=None, meta_outputs):
    dtype = meta_outputs.dtype
    if rounding_mode is None:
        return _div(self, other, meta_outputs=meta_outputs)
    if rounding_mode == "floor":
        return ge.operator("FloorDiv")(*_two(self, other, dtype))
    if dtype in FLOATING:
        return ge.operator("Trunc")(ge.operator("RealDiv")(*_two(self, other, dtype)))
    left, right = _two(self, other, dtype)
    # Rounded down, and up by one where that is further from zero: exact for all integers.
    down = ge.operator("FloorDiv")(left, right)
    zero = Const(0, dtype)
    rest = ge.operator("NotEqual")(ge.operator("Mul")(down, right), left)
    negative = compared("NotEqual", ge.operator("Less")(left, zero), ge.operator("Less")(right, zero))
    return ge.operator("Add")(down, Cast(ge.operator("LogicalAnd")(rest, negative), dst_type=dtype))


@converts("floor_divide.default", "floor_divide.Scalar")
def _floor_divide(self, other, *, meta_outputs):
    return ge.operator("FloorDiv")(*_two(self, other, meta_outputs.dtype))


@converts("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(self, other, *, meta_outputs):
    return ge.operator("FloorMod")(*_two(self, other, meta_outputs.dtype))


@converts("addcmul.default")
def _addcmul(self, tensor1, tensor2, *, value=1, meta_outputs):
    return ge.operator("Addcmul")(*promote(self, tensor1, tensor2, symbol(value), target_dtype=meta_outputs.dtype))


@converts("addcdiv.default")
def _addcdiv(self, tensor1, tensor2, *, value=1, meta_outputs):
    return ge.operator("Addcdiv")(*promote(self, tensor1, tensor2, symbol(value), target_dtype=meta_outputs.dtype))


@converts("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def _pow(self, exponent, *, meta_outputs):
    if isinstance(exponent, (int, float)) and exponent == 2 and meta_outputs.dtype in FLOATING:  # a product, as torch has it
        return ge.operator("Square")(promote(self, target_dtype=meta_outputs.dtype))
    return ge.operator("Pow")(*_two(self, exponent, meta_outputs.dtype))


@converts("maximum.default", "prims.maximum")
def _maximum(self, other, *, meta_outputs):
    if meta_outputs.dtype == DataType.DT_BOOL:
        return ge.operator("LogicalOr")(self, other)
    return ge.operator("Maximum")(*_two(self, other, meta_outputs.dtype))


@converts("minimum.default", "prims.minimum")
def _minimum(self, other, *, meta_outputs):
    if meta_outputs.dtype == DataType.DT_BOOL:
        return ge.operator("LogicalAnd")(self, other)
    return ge.operator("Minimum")(*_two(self, other, meta_outputs.dtype))


@converts("atan2.default")
def _atan2(self, other, *, meta_outputs):
    return ge.operator("Atan2")(*_two(self, other, meta_outputs.dtype))


@converts("lerp.Scalar", "lerp.Tensor")
def _lerp(self, end, weight, *, meta_outputs):
    return ge.operator("Lerp")(*promote(self, end, weight, target_dtype=meta_outputs.dtype))


# ---- Comparisons and logic ----


def _like(value):
    """A stand-in for type promotion."""
    if isinstance(value, Tensor):
        return value.meta
    if is_symbolic(value):
        return 1.0 if isinstance(value, torch.SymFloat) else 1
    return value


def _common(*values):
    from torchair._ge_concrete_graph.dtypes import ge_type

    return ge_type(torch.result_type(*[_like(value) for value in values]))


def compared(kind, left, right):
    """Truth values as numbers, which is what the engine compares."""
    if left.dtype == DataType.DT_BOOL:
        left, right = (Cast(each, dst_type=DataType.DT_UINT8) for each in (left, right))
    return ge.operator(kind)(left, right)


def _compare(kind):
    def convert(self, other, *, meta_outputs):
        return compared(kind, *_two(self, other, _common(self, other)))

    return convert


for _name, _kind in _COMPARE.items():
    converts(f"{_name}.Tensor", f"{_name}.Scalar", f"prims.{_name}")(_compare(_kind))


def _logical(kind):
    def convert(self, other, *, meta_outputs):
        return ge.operator(kind)(*_two(self, other, DataType.DT_BOOL))

    return convert


converts("logical_and.default")(_logical("LogicalAnd"))
converts("logical_or.default")(_logical("LogicalOr"))


def _xor(both, either, neither):
    """What is in one of the two and not in both: the engine has no operator for it."""

    def convert(left, right):
        return ge.operator(both)(ge.operator(either)(left, right), ge.operator(neither)(ge.operator(both)(left, right)))

    return convert


_xor_of_bools = _xor("LogicalAnd", "LogicalOr", "LogicalNot")
_xor_of_bits = _xor("BitwiseAnd", "BitwiseOr", "Invert")


@converts("logical_xor.default")
def _logical_xor(self, other, *, meta_outputs):
    return _xor_of_bools(*_two(self, other, DataType.DT_BOOL))


@converts("bitwise_xor.Tensor", "bitwise_xor.Scalar", "__xor__.Tensor")
def _bitwise_xor(self, other, *, meta_outputs):
    dtype = meta_outputs.dtype
    return (_xor_of_bools if dtype == DataType.DT_BOOL else _xor_of_bits)(*_two(self, other, dtype))



@converts("logical_not.default")
def _logical_not(self, *, meta_outputs):
    return ge.operator("LogicalNot")(promote(self, target_dtype=DataType.DT_BOOL))


def _bitwise(logical, bitwise):
    def convert(self, other, *, meta_outputs):
        dtype = meta_outputs.dtype
        kind = logical if dtype == DataType.DT_BOOL else bitwise
        return ge.operator(kind)(*_two(self, other, dtype))

    return convert


converts("bitwise_and.Tensor", "bitwise_and.Scalar", "__and__.Tensor")(_bitwise("LogicalAnd", "BitwiseAnd"))
converts("bitwise_or.Tensor", "bitwise_or.Scalar", "__or__.Tensor")(_bitwise("LogicalOr", "BitwiseOr"))


@converts("bitwise_not.default")
def _bitwise_not(self, *, meta_outputs):
    return ge.operator("LogicalNot" if meta_outputs.dtype == DataType.DT_BOOL else "Invert")(self)


@converts("where.self")
def _where(condition, self, other, *, meta_outputs):
    return ge.operator("SelectV2")(promote(condition, target_dtype=DataType.DT_BOOL), *_two(self, other, meta_outputs.dtype))


@converts("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(self, mask, value, *, meta_outputs):
    dtype = meta_outputs.dtype
    if dtype in (DataType.DT_DOUBLE, DataType.DT_INT16, DataType.DT_UINT8):
        return ge.operator("SelectV2")(mask, promote(symbol(value), target_dtype=dtype), self)
    return ge.operator("MaskedFill")(self, mask, promote(symbol(value), target_dtype=dtype))


@converts("nan_to_num.default")
def _nan_to_num(self, nan=None, posinf=None, neginf=None, *, meta_outputs):
    if not meta_outputs.torch_dtype.is_floating_point:
        return ge.operator("Identity")(self)
    info = torch.finfo(meta_outputs.torch_dtype)
    return ge.operator("NanToNum")(
        self, nan=0.0 if nan is None else nan, posinf=info.max if posinf is None else posinf,
        neginf=info.min if neginf is None else neginf)


# ---- Activations ----


@converts("gelu.default")
def _gelu(self, *, approximate="none", meta_outputs):
    return ge.operator("GeluV2")(self, approximate=approximate)


@converts("gelu_backward.default")
def _gelu_backward(grad_output, self, *, approximate="none", meta_outputs):
    return ge.operator("GeluGradV2")(grad_output, self, approximate=approximate)


@converts("elu.default")
def _elu(self, alpha=1, scale=1, input_scale=1, *, meta_outputs):
    return ge.operator("Elu")(self, alpha=float(alpha), scale=float(scale), input_scale=float(input_scale))


@converts("leaky_relu.default")
def _leaky_relu(self, negative_slope=0.01, *, meta_outputs):
    if isinstance(negative_slope, Tensor):
        raise RuntimeError("leaky_relu: negative_slope must be a number, not a Tensor")
    return ge.operator("LeakyRelu")(self, negative_slope=float(negative_slope))


@converts("glu.default")
def _glu(self, dim=-1, *, meta_outputs):
    return ge.operator("GLU")(self, dim=dim)


def _limits(dtype):
    if dtype.is_floating_point:
        return -math.inf, math.inf
    return torch.iinfo(dtype).min, torch.iinfo(dtype).max


@converts("clamp.default", "clamp.Tensor", "hardtanh.default")
def _clamp(self, min=None, max=None, *, meta_outputs):  # noqa: A002  names of PyTorch
    if min is None and max is None:
        raise RuntimeError("clamp: at least one of min and max must be given")
    dtype = meta_outputs.dtype
    result = promote(self, target_dtype=dtype)
    if min is not None:
        result = ge.operator("Maximum")(result, promote(symbol(min), target_dtype=dtype))
    if max is not None:
        result = ge.operator("Minimum")(result, promote(symbol(max), target_dtype=dtype))
    return result


@converts("clamp_min.default", "clamp_min.Tensor")
def _clamp_min(self, min, *, meta_outputs):  # noqa: A002
    return _clamp(self, min, meta_outputs=meta_outputs)


@converts("clamp_max.default", "clamp_max.Tensor")
def _clamp_max(self, max, *, meta_outputs):  # noqa: A002
    return _clamp(self, None, max, meta_outputs=meta_outputs)


@converts("threshold_backward.default")
def _threshold_backward(grad_output, self, threshold, *, meta_outputs):
    if threshold == 0 and ge.is_known("ReluGrad"):
        return ge.operator("ReluGrad")(grad_output, self)
    dtype = meta_outputs.dtype
    keep = ge.operator("Greater")(self, Const(threshold, self.dtype))
    return ge.operator("SelectV2")(keep, grad_output, Const(0, dtype))


# ---- Types and copies ----


@converts("_to_copy.default")
def _to_copy(self, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None, meta_outputs):
    if layout not in (None, torch.strided):
        raise RuntimeError(f"_to_copy: layout {layout} is not supported in graphs")
    if dtype is not None and self.dtype != meta_outputs.dtype:
        return Cast(self, dst_type=meta_outputs.dtype)
    return ge.Clone(self)


@converts("prims.convert_element_type")
def _convert_element_type(a, dtype, *, meta_outputs):
    return Cast(a, dst_type=meta_outputs.dtype)


@converts("npu.npu_dtype_cast", "npu.npu_dtype_cast_backward")
def _npu_dtype_cast(self, dtype, *args, meta_outputs, **kwargs):
    return Cast(self, dst_type=meta_outputs.dtype)


@converts("clone.default")
def _clone(self, *, memory_format=None, meta_outputs):
    return ge.operator("Identity")(self)


@converts("detach.default", "alias.default", "lift_fresh_copy.default", "lift.default")
def _same(self, *, meta_outputs):
    return ge.operator("Identity")(self)


@converts("copy.default")
def _copy(self, src, non_blocking=False, *, meta_outputs):
    value = promote(src, target_dtype=self.dtype)
    if str(src.symsize) == str(self.symsize):
        return value
    return ge.operator("BroadcastTo")(value, default_graph().sizes(self.symsize))


@converts("copy_.default")
def _copy_(self, src, non_blocking=False, *, meta_outputs):
    value = _copy(self, src, meta_outputs=meta_outputs)
    return ge.operator("Assign")(self, value)
