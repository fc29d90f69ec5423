# SPDX-License-Identifier: Apache-2.0
"""Elements at places that tensors say."""
import torch

from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Cast, Const
from torchair._ge_concrete_graph.ge_apis import dtype_promote as promote
from torchair._ge_concrete_graph.ge_converter.common import full, reshape, sizes
from torchair._ge_concrete_graph.registry import converts

_INDEX = DataType.DT_INT64


@converts("embedding.default")
def _embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False, *, meta_outputs):
    if scale_grad_by_freq or sparse:
        raise NotImplementedError("embedding: scale_grad_by_freq and sparse are not supported in graphs")
    return ge.operator("GatherV2")(weight, indices, Const([0]))


@converts("embedding_dense_backward.default")
def _embedding_backward(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq, *, meta_outputs):
    return ge.operator("EmbeddingDenseGrad")(
        grad_output, indices, num_weights=num_weights, padding_idx=padding_idx, scale_grad_by_freq=bool(scale_grad_by_freq))


@converts("index_select.default")
def _index_select(self, dim, index, *, meta_outputs):
    if self.rank == 0:
        return ge.operator("Identity")(self)
    return ge.operator("GatherV2")(self, reshape(index, [meta_outputs.symsize[dim]]), Const([dim % self.rank]))


@converts("gather.default")
def _gather(self, dim, index, *, sparse_grad=False, meta_outputs):
    if self.rank == 0:
        return ge.operator("BroadcastTo")(self, sizes(meta_outputs.symsize)) if meta_outputs.rank else ge.operator("Identity")(self)
    if index.rank == 0:
        return reshape(ge.operator("GatherElements")(self, reshape(promote(index, target_dtype=_INDEX), [1]), dim=0), [])
    return ge.operator("GatherElements")(self, promote(index, target_dtype=_INDEX), dim=dim % self.rank)


def _indices(indices, where):
    found = []
    for each in indices:
        if each is None:
            continue
        if each.dtype in (DataType.DT_BOOL, DataType.DT_UINT8):
            raise NotImplementedError(
                f"{where}: a mask as an index gives a result whose shape depends on data; use torch.where or masked_fill")
        found.append(promote(each, target_dtype=_INDEX))
    return found


@converts("index.Tensor", "_unsafe_index.Tensor")
def _index(self, indices, *, meta_outputs):
    mask = [int(each is not None) for each in indices]
    masks = [each for each in indices if each is not None]
    if len(masks) == 1 and masks[0].dtype == DataType.DT_BOOL and mask[0] == 1:
        return _select_by_mask(self, masks[0], meta_outputs)
    return ge.operator("IndexByTensor")(self, _indices(indices, "index"), indices_mask=mask)


def _select_by_mask(self, mask, meta_outputs):
    """Rows where a mask is true: how many, only the run knows."""
    rank = mask.rank
    places = ge.operator("NonZero")(mask, dtype=_INDEX)
    if rank == 1:
        return ge.operator("GatherV2")(self, ge.operator("Reshape")(places, Const([-1])), Const([0]))
    columns = ge.operator("Unpack")(places, num=rank, axis=1)
    return ge.operator("IndexByTensor")(self, list(columns), indices_mask=[1] * rank)


@converts("nonzero.default")
def _nonzero(self, *, meta_outputs):
    return ge.operator("NonZero")(self, dtype=_INDEX)


@converts("masked_select.default")
def _masked_select(self, mask, *, meta_outputs):
    flat = [ge.operator("Reshape")(each, Const([-1])) for each in _broadcast(self, mask)]
    places = ge.operator("Reshape")(ge.operator("NonZero")(flat[1], dtype=_INDEX), Const([-1]))
    return ge.operator("GatherV2")(flat[0], places, Const([0]))


def _broadcast(*tensors):
    shape = torch.broadcast_shapes(*[tuple(each.symsize) for each in tensors])
    return [each if list(each.symsize) == list(shape) else ge.operator("BroadcastTo")(each, sizes(shape)) for each in tensors]


# ---- Writing ----


def _scatter(self, dim, index, src, reduction):
    if self.rank == 0:
        return src if reduction == "none" else ge.operator("Add")(self, src)
    if list(map(str, src.symsize or [])) != list(map(str, index.symsize)):
        starts = [0] * index.rank
        src = ge.operator("StridedSliceV2")(src, Const(starts), sizes(index.symsize), Const(list(range(index.rank))), Const([1] * index.rank))
    return ge.operator("ScatterElements")(self, promote(index, target_dtype=_INDEX), src, axis=dim % self.rank, reduction=reduction)


@converts("scatter.src")
def _scatter_src(self, dim, index, src, *, meta_outputs):
    return _scatter(self, dim, index, promote(src, target_dtype=self.dtype), "none")


@converts("scatter.value")
def _scatter_value(self, dim, index, value, *, meta_outputs):
    src = ge.operator("Fill")(sizes(index.symsize), promote(value, target_dtype=self.dtype))
    src.symsize = index.symsize
    return _scatter(self, dim, index, src, "none")


@converts("scatter_add.default")
def _scatter_add(self, dim, index, src, *, meta_outputs):
    return _scatter(self, dim, index, src, "add")


def _along(self, dim, index, source, reduction):
    """``source`` at the rows that ``index`` says."""
    if self.rank == 0:  # as one row
        row = reshape(self, [1])
        row.symsize = [1]
        return reshape(_along(row, 0, index, reshape(source, list(index.symsize) or [1]), reduction), [])
    dim = dim % self.rank
    shape = [1] * self.rank
    shape[dim] = index.symsize[0] if index.rank else 1
    wide = list(self.symsize)
    wide[dim] = shape[dim]
    spread = ge.operator("BroadcastTo")(reshape(promote(index, target_dtype=_INDEX), shape), sizes(wide))
    return ge.operator("ScatterElements")(self, spread, source, axis=dim, reduction=reduction)


@converts("index_add.default")
def _index_add(self, dim, index, source, *, alpha=1, meta_outputs):
    source = promote(source, target_dtype=self.dtype)
    if alpha != 1:
        source = ge.operator("Mul")(source, promote(alpha, target_dtype=self.dtype))
    if self.rank and index.rank and self.dtype != DataType.DT_BF16:  # whole rows; of types that the operator has
        return ge.operator("InplaceIndexAdd")(ge.Clone(self), index, source, axis=dim % self.rank)
    return _along(self, dim, index, source, "add")


@converts("index_copy.default")
def _index_copy(self, dim, index, source, *, meta_outputs):
    return _along(self, dim, index, promote(source, target_dtype=self.dtype), "none")


@converts("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(self, dim, index, value, *, meta_outputs):
    shape = list(self.symsize) or [1]
    shape[dim] = index.symsize[0] if index.rank else 1
    source = ge.operator("BroadcastTo")(promote(value, target_dtype=self.dtype), sizes(shape))
    return _along(self, dim, index, source, "none")


@converts("index_put.default", "_unsafe_index_put.default", "index_put_.default", "_index_put_impl_.default")
def _index_put(self, indices, values, accumulate=False, unsafe=False, *, meta_outputs):
    given = [i for i, each in enumerate(indices) if each is not None]
    mask = indices[given[0]]
    if len(given) == 1 and mask.dtype == DataType.DT_BOOL and given[0] == 0 and not accumulate and (values.rank == 0 or values.get_numel() == 1):
        wide = reshape(mask, list(mask.symsize) + [1] * (self.rank - mask.rank))
        return ge.operator("SelectV2")(wide, promote(reshape(values, []), target_dtype=self.dtype), self)
    found = _indices(indices, "index_put")
    if given != list(range(given[0], given[0] + len(given))):
        raise NotImplementedError("index_put: indices with None between them are not supported in graphs")
    # The indexed dims first, as one.
    first, count = given[0], len(given)
    rest = [i for i in range(self.rank) if not first <= i < first + count]
    perm = list(range(first, first + count)) + rest
    moved = ge.operator("Transpose")(self, Const(perm)) if perm != sorted(perm) else self
    own = list(self.symsize)
    shape = [own[i] for i in perm]
    inner = 1
    for each in shape[count:]:
        inner = inner * each
    places = torch.broadcast_shapes(*[tuple(each.symsize) for each in found])
    number = 1
    for each in places:
        number = number * each
    linear, outer = None, 1
    for i in reversed(range(count)):
        index = found[i]
        size = promote(own[first + i], target_dtype=_INDEX)
        index = ge.operator("FloorMod")(index, size)  # negative ones count from the end
        if list(index.symsize or found[i].symsize) != list(places):
            index = ge.operator("BroadcastTo")(index, sizes(places))
        part = index if isinstance(outer, int) and outer == 1 else ge.operator("Mul")(index, promote(outer, target_dtype=_INDEX))
        linear = part if linear is None else ge.operator("Add")(linear, part)
        outer = outer * own[first + i]
    flat = reshape(moved, [outer, inner])
    spread = ge.operator("BroadcastTo")(reshape(linear, [number, 1]), sizes([number, inner]))
    tail = [own[i] for i in rest]
    # Values stand where the indexed dims stood.
    wide = tail[:first] + list(places) + tail[first:]
    updates = ge.operator("BroadcastTo")(promote(values, target_dtype=self.dtype), sizes(wide))
    if first:
        turn = list(range(first, first + len(places))) + list(range(first)) + list(range(first + len(places), len(wide)))
        updates = ge.operator("Transpose")(updates, Const(turn))
    updates = reshape(updates, [number, inner])
    flat = ge.operator("ScatterElements")(flat, spread, updates, axis=0, reduction="add" if accumulate else "none")
    result = reshape(flat, shape)
    if perm != sorted(perm):
        back = [perm.index(i) for i in range(self.rank)]
        result = ge.operator("Transpose")(result, Const(back))
    return result


@converts("one_hot.default")
def _one_hot(self, num_classes=-1, *, meta_outputs):
    return ge.operator("OneHot")(self, Const(num_classes, DataType.DT_INT32), Const(1, _INDEX), Const(0, _INDEX))


_ = Cast, full
