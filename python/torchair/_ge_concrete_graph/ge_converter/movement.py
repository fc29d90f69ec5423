# SPDX-License-Identifier: Apache-2.0
"""Operators that compute nothing: other shapes, parts, copies, elements at other places."""
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Cast, Const
from torchair._ge_concrete_graph.ge_apis import dtype_promote as promote
from torchair._ge_concrete_graph.ge_converter.common import reshape, sizes, transpose
from torchair._ge_concrete_graph.graph import is_symbolic
from torchair._ge_concrete_graph.registry import converts

_LAST = 2**63 - 1


def _equal(left, right):
    return len(left) == len(right) and all(statically_known_true(a == b) for a, b in zip(left, right))


@converts("view.default", "_unsafe_view.default", "reshape.default", "_reshape_alias.default")
def _view(self, size, *args, meta_outputs):
    return reshape(self, meta_outputs.symsize)


@converts("squeeze.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default")
def _squeeze(self, dim=None, *, meta_outputs):
    if len(meta_outputs.symsize) == self.rank:
        return ge.operator("Identity")(self)
    return reshape(self, meta_outputs.symsize)


@converts("permute.default")
def _permute(self, dims, *, meta_outputs):
    dims = [dim % max(self.rank, 1) for dim in dims]
    moved = [dim for dim in dims if not statically_known_true(self.symsize[dim] == 1)]
    if moved == sorted(moved):
        return reshape(self, meta_outputs.symsize)
    return transpose(self, dims)


@converts("transpose.int")
def _transpose(self, dim0, dim1, *, meta_outputs):
    dims = list(range(self.rank))
    if dims:
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return _permute(self, dims, meta_outputs=meta_outputs)


@converts("t.default")
def _t(self, *, meta_outputs):
    if self.rank > 2:
        raise RuntimeError(f"t: a tensor of at most two dims is expected, not of {self.rank}")
    return _permute(self, list(reversed(range(self.rank))), meta_outputs=meta_outputs)


@converts("expand.default")
def _expand(self, size, *, implicit=False, meta_outputs):
    if implicit:
        raise NotImplementedError("expand: implicit=True is not supported in graphs")
    if _equal(self.symsize, meta_outputs.symsize):
        return self
    return ge.operator("BroadcastTo")(self, sizes(meta_outputs.symsize))


@converts("repeat.default")
def _repeat(self, repeats, *, meta_outputs):
    if len(repeats) > self.rank:
        self = reshape(self, [1] * (len(repeats) - self.rank) + list(self.symsize))
    return ge.operator("Tile")(self, sizes(repeats))


@converts("flip.default")
def _flip(self, dims, *, meta_outputs):
    return ge.operator("ReverseV2")(self, Const([dim % self.rank for dim in dims])) if dims and self.rank else ge.operator("Identity")(self)


@converts("roll.default")
def _roll(self, shifts, dims=(), *, meta_outputs):
    return ge.operator("Roll")(self, shifts=list(shifts), dims=list(dims))


# ---- Parts ----


@converts("slice.Tensor")
def _slice(self, dim=0, start=None, end=None, step=1, *, meta_outputs):
    if _equal(self.symsize, meta_outputs.symsize) and step == 1:
        return ge.operator("Identity")(self)
    if isinstance(end, int) and 2**31 <= end < _LAST:
        raise RuntimeError(f"slice: end is {end}, which is 2^31 or more")
    start = 0 if start is None else start
    # Within the dim, so that the engine need not.
    size = self.symsize[dim]
    length = meta_outputs.symsize[dim]
    if isinstance(start, int) and isinstance(size, int):
        start = max(0, start + size if start < 0 else start)
    elif isinstance(start, int) and start < 0:
        start = size + start
    end = start + length * step if step != 1 else start + length
    if isinstance(end, int) and isinstance(size, int):
        end = min(end, size)
    return ge.operator("StridedSliceV2")(self, sizes([start]), sizes([end]), Const([dim % self.rank]), Const([step]))


@converts("select.int")
def _select(self, dim, index, *, meta_outputs):
    dim = dim % self.rank
    if is_symbolic(index):
        return ge.operator("GatherV2")(self, index, Const([dim]), negative_index_support=True)
    size = self.symsize[dim]
    if index < 0:
        index = size + index
    part = ge.operator("StridedSliceV2")(self, sizes([index]), sizes([index + 1]), Const([dim]), Const([1]))
    return reshape(part, meta_outputs.symsize)


@converts("narrow.default")
def _narrow(self, dim, start, length, *, meta_outputs):
    return _slice(self, dim, start, start + length, meta_outputs=meta_outputs)


def _split_sizes(self, dim, metas):
    return [each.symsize[dim] for each in metas]


@converts("split.Tensor", "split_with_sizes.default", "split.sizes", "chunk.default")
def _split(self, split, dim=0, *, meta_outputs):
    parts = _split_sizes(self, dim, meta_outputs)
    if len(parts) == 1:
        return [ge.operator("Identity")(self)]
    return ge.operator("SplitV")(self, sizes(parts), Const(dim % self.rank, DataType.DT_INT64), num_split=len(parts))


@converts("unbind.int")
def _unbind(self, dim=0, *, meta_outputs):
    return ge.operator("Unpack")(self, num=len(meta_outputs), axis=dim % self.rank)


@converts("cat.default")
def _cat(tensors, dim=0, *, meta_outputs):
    rank = meta_outputs.rank
    dtype = meta_outputs.dtype
    kept = [each for each in tensors if not (each.rank == 1 and each.symsize[0] == 0 and rank != 1)]
    if len(kept) > 1 and any(isinstance(each.symsize[dim], int) and each.symsize[dim] == 0 for each in kept):
        kept = [each for each in kept if not (isinstance(each.symsize[dim], int) and each.symsize[dim] == 0)]
    kept = [promote(each, target_dtype=dtype) for each in kept]
    if len(kept) == 1:
        return ge.operator("Identity")(kept[0])
    return ge.operator("ConcatV2")(kept, Const(dim % rank, DataType.DT_INT32), N=len(kept))


@converts("stack.default")
def _stack(tensors, dim=0, *, meta_outputs):
    tensors = [promote(each, target_dtype=meta_outputs.dtype) for each in tensors]
    return ge.operator("Pack")(tensors, axis=dim % meta_outputs.rank, N=len(tensors))


@converts("as_strided.default")
def _as_strided(self, size, stride, storage_offset=0, *, meta_outputs):
    return ge.operator("AsStrided")(self, sizes(size), sizes(stride), sizes([storage_offset or 0]))


@converts("constant_pad_nd.default")
def _constant_pad(self, pad, value=0, *, meta_outputs):
    paddings = _paddings(self, pad)
    if all(isinstance(each, int) and each == 0 for each in paddings):
        return ge.operator("Identity")(self)
    if any(isinstance(each, int) and each < 0 for each in paddings):
        for i in range(self.rank):
            low, high = paddings[2 * i], paddings[2 * i + 1]
            cut = [min(low, 0), min(high, 0)]
            if any(cut):
                self = _cut(self, i, -cut[0], self.symsize[i] + cut[1])
                paddings[2 * i], paddings[2 * i + 1] = max(low, 0), max(high, 0)
        if not any(paddings):
            return self
    return ge.operator("PadV3")(self, sizes(paddings), promote(value, target_dtype=self.dtype))


def _cut(self, dim, start, end):
    from torchair._ge_concrete_graph.graph import Tensor

    result = ge.operator("StridedSliceV2")(self, sizes([start]), sizes([end]), Const([dim]), Const([1]))
    result.symsize = list(self.symsize)
    result.symsize[dim] = end - start
    assert isinstance(result, Tensor)
    return result


def _paddings(self, pad):
    """(before, after) of each dim, first dim first."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    pairs += [(0, 0)] * (self.rank - len(pairs))
    return [each for pair in reversed(pairs) for each in pair]


def _border(mode):
    def convert(self, padding, *, meta_outputs):
        return ge.operator("PadV3")(self, sizes(_paddings(self, padding)), mode=mode)

    return convert


for _rank in (1, 2, 3):
    converts(f"reflection_pad{_rank}d.default")(_border("reflect"))
    converts(f"replication_pad{_rank}d.default")(_border("edge"))


@converts("tril.default")
def _tril(self, diagonal=0, *, meta_outputs):
    return ge.operator("Tril")(self, diagonal=diagonal)


@converts("triu.default")
def _triu(self, diagonal=0, *, meta_outputs):
    return ge.operator("Triu")(self, diagonal=diagonal)


# ---- Parts that are replaced ----


@converts("slice_scatter.default")
def _slice_scatter(self, src, dim=0, start=None, end=None, step=1, *, meta_outputs):
    size, length = self.symsize[dim], src.symsize[dim] if src.rank else 1
    dim = dim % self.rank
    start = 0 if start is None else start
    if isinstance(start, int) and start < 0:
        start = size + start
    src = promote(src, target_dtype=self.dtype)
    shape = list(self.symsize)
    shape[dim] = length
    if not _equal(src.symsize, shape):
        src = ge.operator("BroadcastTo")(src, sizes(shape))
    if statically_known_true(length == size):
        return src
    if step == 1:
        parts = [] if statically_known_true(start == 0) else [_cut(self, dim, 0, start)]
        parts.append(src)
        stop = start + length
        if not statically_known_true(stop == size):
            parts.append(_cut(self, dim, stop, size))
        return ge.operator("ConcatV2")(parts, Const(dim, DataType.DT_INT32), N=len(parts))
    places = Const(list(range(start, start + length * step, step)))
    return _put(self, src, dim, places, length)


def _put(self, src, dim, places, length):
    """``src`` at places along a dim."""
    shape = [1] * self.rank
    shape[dim] = length
    index = ge.operator("BroadcastTo")(reshape(places, shape), sizes(src.symsize))
    return ge.operator("ScatterElements")(self, index, src, axis=dim)


@converts("select_scatter.default")
def _select_scatter(self, src, dim, index, *, meta_outputs):
    dim = dim % self.rank
    shape = list(self.symsize)
    shape[dim] = 1
    src = reshape(ge.operator("BroadcastTo")(promote(src, target_dtype=self.dtype), sizes(shape[:dim] + shape[dim + 1 :])), shape)
    src.symsize = shape
    return _slice_scatter(self, src, dim, index, None, 1, meta_outputs=meta_outputs)


def _zeros(meta_outputs):
    from torchair._ge_concrete_graph.ge_converter.common import full

    zeros = full(meta_outputs, 0)
    zeros.symsize = meta_outputs.symsize
    return zeros


@converts("slice_backward.default")
def _slice_backward(grad_output, input_sizes, dim, start, end, step, *, meta_outputs):
    return _slice_scatter(_zeros(meta_outputs).set_meta(meta_outputs.meta), grad_output, dim, start, end, step, meta_outputs=meta_outputs)


@converts("select_backward.default")
def _select_backward(grad_output, input_sizes, dim, index, *, meta_outputs):
    return _select_scatter(_zeros(meta_outputs).set_meta(meta_outputs.meta), grad_output, dim, index, meta_outputs=meta_outputs)


@converts("as_strided_scatter.default")
def _as_strided_scatter(self, src, size, stride, storage_offset=0, *, meta_outputs):
    own, step = list(src.symsize), 1
    strides = []
    for each in reversed(own):
        strides.insert(0, step)
        step = step * each
    return ge.operator("ViewCopy")(ge.Clone(self), sizes(size), sizes(stride), sizes([storage_offset or 0]), src, sizes(own), sizes(strides),
                                   sizes([0]))


# ---- Complex numbers ----


@converts("view_as_real.default")
def _view_as_real(self, *, meta_outputs):
    parts = [ge.operator(kind)(self, Tout=meta_outputs.dtype) for kind in ("Real", "Imag")]
    for each in parts:
        each.desc.dtype = ge.dtypes.to_proto(meta_outputs.dtype)
    return ge.operator("Pack")(parts, axis=self.rank, N=2)


@converts("complex.default")
def _complex(real, imag, *, meta_outputs):
    return ge.operator("Complex")(real, imag, Tout=meta_outputs.dtype)


@converts("view_as_complex.default")
def _view_as_complex(self, *, meta_outputs):
    real, imag = ge.operator("Unpack")(self, num=2, axis=self.rank - 1)
    return ge.operator("Complex")(real, imag, Tout=meta_outputs.dtype)


_ = Cast
