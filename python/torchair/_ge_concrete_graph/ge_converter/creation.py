# SPDX-License-Identifier: Apache-2.0
"""Tensors from numbers: filled, counted, random."""
import math

import torch

from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Cast, Const
from torchair._ge_concrete_graph.ge_apis import dtype_promote as promote
from torchair._ge_concrete_graph.ge_converter.common import full, reshape, sizes
from torchair._ge_concrete_graph.graph import Tensor
from torchair._ge_concrete_graph.registry import converts
from torchair._ge_concrete_graph.rng import get_ge_rng_state

_INT64 = DataType.DT_INT64


def _checked(layout=None, memory_format=None):
    if layout not in (None, torch.strided):
        raise RuntimeError(f"a tensor of layout {layout} cannot be made in a graph; only torch.strided")


def _filled(value):
    def convert(*args, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None, names=None, meta_outputs):
        _checked(layout)
        return full(meta_outputs, value)

    return convert


for _name, _value in (("zeros", 0), ("ones", 1), ("empty", 0)):
    converts(f"{_name}.default" if _name != "empty" else "empty.memory_format", f"{_name}_like.default", f"new_{_name}.default")(_filled(_value))
converts("empty_strided.default", "new_empty_strided.default", "empty_permuted.default")(_filled(0))


@converts("full.default")
def _full(size, fill_value, *, dtype=None, layout=None, device=None, pin_memory=None, names=None, meta_outputs):
    _checked(layout)
    return full(meta_outputs, promote(fill_value, target_dtype=meta_outputs.dtype))


@converts("full_like.default", "new_full.default")
def _full_like(self, *args, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None, meta_outputs):
    return full(meta_outputs, promote(args[-1], target_dtype=meta_outputs.dtype))


@converts("fill.Scalar", "fill.Tensor")
def _fill(self, value, *, meta_outputs):
    return full(meta_outputs, promote(value, target_dtype=meta_outputs.dtype))


@converts("zero.default")
def _zero(self, *, meta_outputs):
    return full(meta_outputs, 0)


@converts("scalar_tensor.default")
def _scalar_tensor(s, *, dtype=None, layout=None, device=None, pin_memory=None, meta_outputs):
    return promote(s, target_dtype=meta_outputs.dtype)


def _range(start, end, step, meta_outputs):
    dtype = meta_outputs.dtype
    whole = dtype not in (DataType.DT_FLOAT, DataType.DT_DOUBLE, DataType.DT_FLOAT16, DataType.DT_BF16)
    compute = _INT64 if whole else DataType.DT_FLOAT if dtype != DataType.DT_DOUBLE else DataType.DT_DOUBLE
    if all(isinstance(each, (int, float)) for each in (start, end, step)):
        return Const(torch.arange(start, end, step, dtype=meta_outputs.torch_dtype), readable=False)
    return promote(ge.operator("Range")(*promote(start, end, step, target_dtype=compute)), target_dtype=dtype) if not whole or dtype != _INT64 \
        else _typed(ge.operator("Range")(*promote(start, end, step, target_dtype=_INT64)), _INT64)


def _typed(tensor, dtype):
    tensor.desc.dtype = ge.dtypes.to_proto(dtype)
    return tensor


@converts("arange.default")
def _arange(end, *, dtype=None, layout=None, device=None, pin_memory=None, meta_outputs):
    return _range(0, end, 1, meta_outputs)


@converts("arange.start")
def _arange_start(start, end, *, dtype=None, layout=None, device=None, pin_memory=None, meta_outputs):
    return _range(start, end, 1, meta_outputs)


@converts("arange.start_step")
def _arange_step(start, end, step=1, *, dtype=None, layout=None, device=None, pin_memory=None, meta_outputs):
    return _range(start, end, step, meta_outputs)


@converts("prims.iota")
def _iota(length, *, start, step, dtype, device, requires_grad, meta_outputs):
    return _range(start, start + length * step, step, meta_outputs)


@converts("linspace.default")
def _linspace(start, end, steps, *, dtype=None, layout=None, device=None, pin_memory=None, meta_outputs):
    if steps < 0:
        raise AssertionError(f"linspace: steps must not be negative, but it is {steps}")
    return Const(torch.linspace(start, end, steps, dtype=meta_outputs.torch_dtype), readable=False)


@converts("eye.default", "eye.m")
def _eye(n, m=None, *, dtype=None, layout=None, device=None, pin_memory=None, meta_outputs):
    return Const(torch.eye(*meta_outputs.size, dtype=meta_outputs.torch_dtype), readable=False)


# ---- Sizes as values ----


@converts("sym_size.int")
def _sym_size(self, dim, *, meta_outputs):
    shape = ge.operator("Shape")(self, dtype=int(_INT64))
    return _typed(ge.operator("Gather")(shape, Const(dim % self.rank, _INT64)), _INT64)


@converts("sym_numel.default")
def _sym_numel(self, *, meta_outputs):
    return _typed(ge.operator("Size")(self, dtype=int(_INT64)), _INT64)


@converts("_local_scalar_dense.default")
def _item(self, *, meta_outputs):
    value = reshape(self, [])
    return value if value.dtype == _INT64 or isinstance(meta_outputs.meta, torch.SymFloat) else Cast(value, dst_type=_INT64)


# ---- Random numbers ----


def _count(meta_outputs):
    number = meta_outputs.meta.numel()
    return int(number) if isinstance(number, int) else number.node.hint if number.node.hint is not None else 4096


def _drawn(kind, meta_outputs, dtype):
    seed, offset = get_ge_rng_state(_count(meta_outputs))
    key, counter = (Cast(each, dst_type=DataType.DT_UINT64) for each in (seed, offset))
    key, counter = reshape(key, [1]), ge.operator("Pack")([Const(0, DataType.DT_UINT64), reshape(counter, [])], axis=0, N=2)
    result = ge.operator(kind)(sizes(meta_outputs.symsize), key, counter, Const(1, DataType.DT_INT32), dtype=dtype)
    return _typed(result, dtype)


def _uniform_numbers(meta_outputs):
    dtype = meta_outputs.dtype
    own = dtype if dtype in (DataType.DT_FLOAT16, DataType.DT_BF16, DataType.DT_DOUBLE) else DataType.DT_FLOAT
    return _drawn("StatelessRandomUniformV2", meta_outputs, own)


@converts("rand.default", "rand_like.default", "rand.generator")
def _rand(*args, generator=None, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None, meta_outputs):
    return promote(_uniform_numbers(meta_outputs), target_dtype=meta_outputs.dtype)


@converts("randn.default", "randn_like.default", "randn.generator")
def _randn(*args, generator=None, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None, meta_outputs):
    return _drawn("StatelessRandomNormalV2", meta_outputs, meta_outputs.dtype)


@converts("uniform.default")
def _uniform(self, from_=0.0, to=1.0, *, generator=None, meta_outputs, **kwargs):
    low = kwargs.get("from", from_)
    dtype = meta_outputs.dtype
    return ge.operator("Add")(ge.operator("Mul")(_uniform_numbers(meta_outputs), Const(to - low, dtype)), Const(low, dtype))


def _integers(low, high, meta_outputs):
    wide = type(meta_outputs)(torch.empty(0, dtype=torch.float64, device="meta"))
    wide.meta = meta_outputs.meta.to(torch.float64) if not isinstance(meta_outputs.meta, torch._subclasses.FakeTensor) else meta_outputs.meta
    seed_numbers = _drawn("StatelessRandomUniformV2", meta_outputs, DataType.DT_FLOAT)
    span = promote(high - low, target_dtype=DataType.DT_FLOAT)
    whole = ge.operator("Floor")(ge.operator("Mul")(seed_numbers, span))
    whole = ge.operator("Minimum")(whole, promote(high - low - 1, target_dtype=DataType.DT_FLOAT))
    return ge.operator("Add")(Cast(whole, dst_type=meta_outputs.dtype), promote(low, target_dtype=meta_outputs.dtype))


@converts("randint.default")
def _randint(high, size, *, meta_outputs, **kwargs):
    return _integers(0, high, meta_outputs)


@converts("randint.low")
def _randint_low(low, high, size, *, meta_outputs, **kwargs):
    return _integers(low, high, meta_outputs)


@converts("randint_like.default")
def _randint_like(self, high, *, meta_outputs, **kwargs):
    return _integers(0, high, meta_outputs)


@converts("randperm.default")
def _randperm(n, *, dtype=None, layout=None, device=None, pin_memory=None, meta_outputs):
    seed, offset = get_ge_rng_state(_count(meta_outputs))
    result = ge.operator("StatelessRandperm")(promote(n, target_dtype=_INT64), reshape(seed, [1]), reshape(offset, [1]), dtype=_INT64)
    return promote(_typed(result, _INT64), target_dtype=meta_outputs.dtype)


def _bernoulli_numbers(probability, meta_outputs):
    drawn = _drawn("StatelessRandomUniformV2", meta_outputs, DataType.DT_FLOAT)
    return ge.operator("Less")(drawn, promote(probability, target_dtype=DataType.DT_FLOAT))


@converts("bernoulli.default")
def _bernoulli(self, *, generator=None, meta_outputs):
    return Cast(_bernoulli_numbers(self, meta_outputs), dst_type=meta_outputs.dtype)


@converts("bernoulli.p", "bernoulli.Tensor")
def _bernoulli_p(self, p=0.5, *, generator=None, meta_outputs):
    return Cast(_bernoulli_numbers(p, meta_outputs), dst_type=meta_outputs.dtype)


@converts("native_dropout.default")
def _native_dropout(input, p, train, *, meta_outputs):  # noqa: A002
    if train is False or p == 0:
        return ge.operator("Identity")(input), full(meta_outputs[1], True)
    kept = _bernoulli_numbers(1.0 - p, meta_outputs[0])
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    scaled = ge.operator("Mul")(input, Const(scale, input.dtype))
    return ge.operator("SelectV2")(kept, scaled, Const(0, input.dtype)), kept


@converts("native_dropout_backward.default")
def _native_dropout_backward(grad_output, mask, scale, *, meta_outputs):
    own = promote(grad_output, target_dtype=meta_outputs.dtype)  # gradients of whole numbers become floats
    scaled = ge.operator("Mul")(own, Const(scale, own.dtype))
    return ge.operator("SelectV2")(mask, scaled, Const(0, own.dtype))


_ = math, Tensor
