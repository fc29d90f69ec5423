# SPDX-License-Identifier: Apache-2.0
"""Sums, means, extremes, norms, softmax: operators that go over whole dims."""
import math

import torch

from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Cast, Const
from torchair._ge_concrete_graph.ge_apis import dtype_promote as promote
from torchair._ge_concrete_graph.ge_converter.common import all_dims, dims_of, full, is_empty, reshape
from torchair._ge_concrete_graph.registry import converts

_HALF = (DataType.DT_FLOAT16, DataType.DT_BF16)


def _reduce(kind, self, dim, keepdim, dtype):
    return ge.operator(kind)(promote(self, target_dtype=dtype), Const(dims_of(self, dim)), keep_dims=bool(keepdim))


@converts("sum.default")
def _sum(self, *, dtype=None, meta_outputs):
    return _sum_dims(self, None, False, meta_outputs=meta_outputs)


@converts("sum.dim_IntList")
def _sum_dims(self, dim=None, keepdim=False, *, dtype=None, meta_outputs):
    if is_empty(self):
        return full(meta_outputs, 0)
    return _reduce("ReduceSum", self, dim, keepdim, meta_outputs.dtype)


@converts("mean.default")
def _mean(self, *, dtype=None, meta_outputs):
    return _reduce("ReduceMean", self, None, False, meta_outputs.dtype)


@converts("mean.dim")
def _mean_dims(self, dim=None, keepdim=False, *, dtype=None, meta_outputs):
    return _reduce("ReduceMean", self, dim, keepdim, meta_outputs.dtype)


@converts("prod.default")
def _prod(self, *, dtype=None, meta_outputs):
    return _reduce("ReduceProd", self, None, False, meta_outputs.dtype)


@converts("prod.dim_int")
def _prod_dim(self, dim, keepdim=False, *, dtype=None, meta_outputs):
    return _reduce("ReduceProd", self, [dim], keepdim, meta_outputs.dtype)


@converts("amax.default")
def _amax(self, dim=(), keepdim=False, *, meta_outputs):
    return _reduce("ReduceMax", self, dim, keepdim, meta_outputs.dtype)


@converts("amin.default")
def _amin(self, dim=(), keepdim=False, *, meta_outputs):
    return _reduce("ReduceMin", self, dim, keepdim, meta_outputs.dtype)


@converts("max.default")
def _max(self, *, meta_outputs):
    return _amax(self, meta_outputs=meta_outputs)


@converts("min.default")
def _min(self, *, meta_outputs):
    return _amin(self, meta_outputs=meta_outputs)


def _primitive(kind):
    def convert(inp, dims, *, output_dtype=None, meta_outputs):
        return _reduce(kind, inp, dims, False, meta_outputs.dtype)

    return convert


for _name, _kind in (("sum", "ReduceSum"), ("prod", "ReduceProd"), ("amax", "ReduceMax"), ("amin", "ReduceMin")):
    converts(f"prims.{_name}")(_primitive(_kind))


def _with_value(kind):
    def convert(self, dim, keepdim=False, *, meta_outputs):
        if self.rank == 0:
            return ge.operator("Identity")(self), Const(0, DataType.DT_INT64)
        index, value = ge.operator(kind)(self, dimension=dim, keep_dims=bool(keepdim))
        return value, Cast(index, dst_type=DataType.DT_INT64)

    return convert


converts("max.dim")(_with_value("ArgMaxWithValue"))
converts("min.dim")(_with_value("ArgMinWithValue"))


def _arg(kind):
    def convert(self, dim=None, keepdim=False, *, meta_outputs):
        if dim is None:
            self, dim = ge.operator("Reshape")(self, Const([-1])), 0
        elif self.rank == 0:
            return Const(0, DataType.DT_INT64)
        index, _ = ge.operator(kind)(self, dimension=dim, keep_dims=bool(keepdim))
        return reshape(Cast(index, dst_type=DataType.DT_INT64), meta_outputs.symsize) if keepdim else Cast(index, dst_type=DataType.DT_INT64)

    return convert


converts("argmax.default")(_arg("ArgMaxWithValue"))
converts("argmin.default")(_arg("ArgMinWithValue"))


def _logic(kind, names):
    def every(self, *, meta_outputs):
        return ge.operator(kind)(promote(self, target_dtype=DataType.DT_BOOL), Const(all_dims(self)))

    def some(self, dim=None, keepdim=False, *, meta_outputs):
        return ge.operator(kind)(promote(self, target_dtype=DataType.DT_BOOL), Const(dims_of(self, dim)), keep_dims=bool(keepdim))

    converts(f"{names}.default")(every)
    converts(f"{names}.dim", f"{names}.dims")(some)


_logic("ReduceAll", "all")
_logic("ReduceAny", "any")


@converts("var.correction")
def _var(self, dim=None, *, correction=1, keepdim=False, meta_outputs):
    return _var_mean(self, dim, correction=correction, keepdim=keepdim, meta_outputs=(meta_outputs, meta_outputs))[0]


@converts("var_mean.correction")
def _var_mean(self, dim=None, *, correction=1, keepdim=False, meta_outputs):
    spec = meta_outputs[0]
    correction = 1 if correction is None else correction
    dims = dims_of(self, dim)
    wide = Cast(self, dst_type=DataType.DT_FLOAT) if self.dtype in _HALF else self
    mean = ge.operator("ReduceMean")(wide, Const(dims), keep_dims=True)
    apart = ge.operator("Sub")(wide, mean)
    squares = ge.operator("ReduceSum")(ge.operator("Mul")(apart, apart), Const(dims), keep_dims=bool(keepdim))
    count = 1
    for each in dims:
        count = count * self.symsize[each]
    divisor = count - correction
    if isinstance(divisor, (int, float)):
        divisor = max(divisor, 0)
    result = ge.operator("RealDiv")(squares, promote(divisor, target_dtype=wide.dtype))
    flat = mean if keepdim else ge.operator("ReduceMean")(wide, Const(dims))
    return promote(result, flat, target_dtype=spec.dtype)


@converts("std.correction")
def _std(self, dim=None, *, correction=1, keepdim=False, meta_outputs):
    return ge.operator("Sqrt")(_var(self, dim, correction=correction, keepdim=keepdim, meta_outputs=meta_outputs))


@converts("logsumexp.default")
def _logsumexp(self, dim, keepdim=False, *, meta_outputs):
    x = promote(self, target_dtype=meta_outputs.dtype)
    dims = Const(dims_of(self, dim))
    top = ge.operator("ReduceMax")(x, dims, keep_dims=True)
    finite = ge.operator("SelectV2")(ge.operator("IsFinite")(top), top, Const(0, x.dtype)) if ge.is_known("IsFinite") else top
    total = ge.operator("Log")(ge.operator("ReduceSum")(ge.operator("Exp")(ge.operator("Sub")(x, finite)), dims, keep_dims=bool(keepdim)))
    if not keepdim:
        finite = reshape(finite, meta_outputs.symsize)
    return ge.operator("Add")(total, finite)


@converts("linalg_vector_norm.default")
def _vector_norm(self, ord=2, dim=None, keepdim=False, *, dtype=None, meta_outputs):  # noqa: A002
    x = promote(self, target_dtype=meta_outputs.dtype)
    dims = Const(dims_of(self, dim))
    size = ge.operator("Abs")(x)
    if ord in (math.inf, -math.inf):
        return ge.operator("ReduceMax" if ord > 0 else "ReduceMin")(size, dims, keep_dims=bool(keepdim))
    if ord == 0:
        nonzero = Cast(ge.operator("NotEqual")(x, Const(0, x.dtype)), dst_type=x.dtype)
        return ge.operator("ReduceSum")(nonzero, dims, keep_dims=bool(keepdim))
    if ord == 1:
        return ge.operator("ReduceSum")(size, dims, keep_dims=bool(keepdim))
    if ord == 2:
        return ge.operator("Sqrt")(ge.operator("ReduceSum")(ge.operator("Mul")(x, x), dims, keep_dims=bool(keepdim)))
    if x.dtype in (DataType.DT_FLOAT16, DataType.DT_BF16):  # powers of them, and their sum, are soon beyond 65504
        size = Cast(size, dst_type=DataType.DT_FLOAT)
    powers = ge.operator("Pow")(size, Const(float(ord), size.dtype))
    total = ge.operator("ReduceSum")(powers, dims, keep_dims=bool(keepdim))
    return promote(ge.operator("Pow")(total, Const(1.0 / ord, size.dtype)), target_dtype=x.dtype)


@converts("cumsum.default")
def _cumsum(self, dim, *, dtype=None, meta_outputs):
    if self.rank == 0:
        return promote(self, target_dtype=meta_outputs.dtype)
    return ge.operator("Cumsum")(promote(self, target_dtype=meta_outputs.dtype), Const(dim, DataType.DT_INT32))


@converts("_softmax.default")
def _softmax(self, dim, half_to_float=False, *, meta_outputs):
    if half_to_float:
        self = Cast(self, dst_type=DataType.DT_FLOAT)
    return ge.operator("SoftmaxV2")(self, axes=[dim])


@converts("_safe_softmax.default")
def _safe_softmax(self, dim, dtype=None, *, meta_outputs):
    x = promote(self, target_dtype=meta_outputs.dtype)
    hidden = ge.operator("Equal")(x, Const(-math.inf, x.dtype))
    empty = ge.operator("ReduceAll")(hidden, Const([dim]), keep_dims=True)
    return ge.operator("SelectV2")(empty, Const(0, x.dtype), ge.operator("SoftmaxV2")(x, axes=[dim]))


@converts("_log_softmax.default")
def _log_softmax(self, dim, half_to_float=False, *, meta_outputs):
    return ge.operator("LogSoftmaxV2")(promote(self, target_dtype=meta_outputs.dtype), axes=[dim])


@converts("_softmax_backward_data.default")
def _softmax_backward(grad_output, output, dim, input_dtype, *, meta_outputs):
    return promote(ge.operator("SoftmaxGrad")(output, grad_output, axes=[dim]), target_dtype=meta_outputs.dtype)


@converts("_log_softmax_backward_data.default")
def _log_softmax_backward(grad_output, output, dim, input_dtype, *, meta_outputs):
    return promote(ge.operator("LogSoftmaxGrad")(grad_output, output, axis=[dim]), target_dtype=meta_outputs.dtype)


# ---- Order ----


@converts("topk.default")
def _topk(self, k, dim=-1, largest=True, sorted=True, *, meta_outputs):  # noqa: A002
    k = k if not isinstance(k, int) else Const(k, DataType.DT_INT32)
    values, indices = ge.operator("TopKV2")(self, k, sorted=bool(sorted), dim=dim, largest=bool(largest))
    return values, Cast(indices, dst_type=DataType.DT_INT64)


@converts("sort.default")
def _sort(self, dim=-1, descending=False, *, meta_outputs):
    return _stable_sort(self, stable=True, dim=dim, descending=descending, meta_outputs=meta_outputs)


@converts("sort.stable")
def _stable_sort(self, *, stable, dim=-1, descending=False, meta_outputs):
    if self.rank == 0:
        return ge.operator("Identity")(self), Const(0, DataType.DT_INT64)
    last = self.rank - 1
    dim = dim % self.rank
    perm = list(range(self.rank))
    perm[dim], perm[last] = perm[last], perm[dim]
    turned = self if dim == last else ge.operator("Transpose")(self, Const(perm))
    values, indices = ge.operator("Sort")(turned, axis=-1, descending=bool(descending), stable=bool(stable))
    indices = Cast(indices, dst_type=DataType.DT_INT64)
    if dim != last:
        values, indices = (ge.operator("Transpose")(each, Const(perm)) for each in (values, indices))
    return values, indices


@converts("argsort.default")
def _argsort(self, dim=-1, descending=False, *, meta_outputs):
    return _sort(self, dim, descending, meta_outputs=meta_outputs)[1]


@converts("searchsorted.Tensor")
def _searchsorted(sorted_sequence, self, *, out_int32=False, right=False, side=None, sorter=None, meta_outputs):
    if side not in (None, "left", "right"):
        raise ValueError(f"searchsorted: side must be left or right, not {side!r}")
    right = right or side == "right"
    return ge.operator("SearchSorted")(sorted_sequence, self, sorter, dtype=meta_outputs.dtype, right=right)


_ = torch


@converts("_cdist_forward.default")
def _cdist(x1, x2, p, compute_mode=None, *, meta_outputs):
    """Of all pairs of rows; the differences lie in memory."""
    left = reshape(x1, [*x1.symsize[:-1], 1, x1.symsize[-1]])
    right = reshape(x2, [*x2.symsize[:-2], 1, *x2.symsize[-2:]])
    last, dtype = Const([len(meta_outputs.symsize)]), meta_outputs.dtype
    if is_empty(x1) or is_empty(x2):
        return full(meta_outputs, 0)
    apart = ge.operator("Sub")(left, right)
    if p == 0:
        return ge.operator("ReduceSum")(promote(ge.operator("NotEqual")(apart, Const(0, dtype)), target_dtype=dtype), last)
    if p == 2:
        return ge.operator("Sqrt")(ge.operator("ReduceSum")(ge.operator("Mul")(apart, apart), last))
    apart = ge.operator("Abs")(apart)
    if p in (1, float("inf")):
        return ge.operator("ReduceSum" if p == 1 else "ReduceMax")(apart, last)
    total = ge.operator("ReduceSum")(ge.operator("Pow")(apart, Const(p, dtype)), last)
    return ge.operator("Pow")(total, Const(1 / p, dtype))
