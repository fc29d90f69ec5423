# SPDX-License-Identifier: Apache-2.0
"""Operators that find elements by indices."""

import torch

from harness import Case, Ref, Scalar, cases, high

# One type for each size of an item.
SIZES = (torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.complex128)
SUMS = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.uint8, torch.int16, torch.int32,
        torch.int64, torch.complex64, torch.complex128)
PAIRS = tuple((dtype, torch.int64) for dtype in SIZES) + ((torch.float32, torch.int32),)


def wrapped(index, size):
    index = index.long()
    return torch.where(index < 0, index + size, index)


def signed(g, shape, limit, dtype):
    """Indices of either sign."""
    if limit == 0:
        return g.index(shape, 1, dtype)
    return g.index(shape, 2 * limit, dtype) - limit


# Self, dim, index.
BY_ELEMENT = (([7], 0, [9]), ([5, 33], 0, [7, 33]), ([5, 33], -1, [5, 40]), ([5, 33], 1, [3, 2]), ([2, 3, 65], 1, [2, 4, 60]),
              ([4, 1, 6], 0, [2, 1, 5]), ([], 0, []), ([0, 3], 0, [0, 3]))
MUCH_BY_ELEMENT = BY_ELEMENT + (([170, 100], 0, [165, 100]),)


@cases("Gather")
def gather(op, g):
    for dtype, kind in PAIRS:
        for shape, dim, at in much(dtype, kind, BY_ELEMENT, MUCH_BY_ELEMENT):
            x = g.tensor(shape, dtype)
            size = x.shape[dim] if shape else 1
            index = signed(g, at, size, kind)
            yield Case({"self": x, "dim": dim, "index": index},
                       {"out": torch.gather(x, dim, wrapped(index, size))})
    x = g.tensor([4, 3], torch.float32)
    index = torch.tensor([[4, 0, -5], [1, 2**40, 3]])
    yield Case({"self": x, "dim": 0, "index": index},
               {"out": torch.stack([torch.stack([x[0, 0] * 0, x[0, 1], x[0, 0] * 0]),
                                    torch.stack([x[1, 0], x[0, 0] * 0, x[3, 2]])])})


# Self, dim, number of indices.
BY_ROW = (([7], 0, 9), ([5, 33], 0, 12), ([5, 33], -1, 40), ([2, 3, 65], 1, 2), ([2, 6, 5], 1, 0), ([4, 1, 6], 0, 3))
MUCH_BY_ROW = BY_ROW + (([300, 50], 0, 400),)


def much(dtype, kind, little, more):
    """`more`, with enough work for several threads, for some types."""
    return more if dtype in (torch.float32, torch.bfloat16) and kind == torch.int64 else little


@cases("IndexSelect")
def index_select(op, g):
    for dtype, kind in PAIRS:
        for shape, dim, count in much(dtype, kind, BY_ROW, MUCH_BY_ROW):
            x = g.tensor(shape, dtype)
            index = signed(g, [count], x.shape[dim], kind)
            yield Case({"self": x, "dim": dim, "index": index},
                       {"out": torch.index_select(x, dim, wrapped(index, x.shape[dim]))})
    x = g.tensor([], torch.float32)
    yield Case({"self": x, "dim": 0, "index": torch.tensor([0])}, {"out": x.clone()})
    x = g.tensor([3, 2], torch.float32)
    yield Case({"self": x, "dim": 0, "index": torch.tensor(-1)}, {"out": x[2:].clone()})
    yield Case({"self": x, "dim": 0, "index": torch.tensor([3, -4, 0])},
               {"out": torch.stack([x[0] * 0, x[0] * 0, x[0]])})
    yield Case({"self": torch.zeros(0, 4), "dim": 0, "index": torch.tensor([0, -1])}, {"out": torch.zeros(2, 4)})


@cases("GatherV2")
def gather_v2(op, g):
    for dtype in SIZES:
        for shape, dim, at in (([7], 0, [9]), ([5, 33], 0, [2, 3]), ([5, 33], 1, [4, 1, 2]), ([2, 3, 6], -1, []),
                               ([2, 3, 6], 1, [0, 2]), ([9], 0, [])):
            x = g.tensor(shape, dtype)
            index = signed(g, at, x.shape[dim], torch.int64)
            where = (slice(None),) * (dim % x.dim())
            yield Case({"self": x, "dim": dim, "index": index}, {"out": x[where + (index,)].clone()})


@cases("GatherV3")
def gather_v3(op, g):
    for dtype in SIZES:
        for shape, dim, at, batch in (([7], 0, [9], 0), ([5, 33], 1, [4, 1, 2], 0), ([4, 6, 5], 1, [4, 3], 1),
                                      ([4, 6, 5], 2, [4, 3], 1), ([2, 3, 6, 5], 2, [2, 3, 4, 2], 2),
                                      ([2, 3, 6], 2, [2, 3], 2)):
            x = g.tensor(shape, dtype)
            index = signed(g, at, x.shape[dim], torch.int32)
            lead = 1
            for size in shape[:batch]:
                lead *= size
            parts = [x.reshape([lead] + shape[batch:])[b][(slice(None),) * (dim - batch) +
                                                          (index.reshape([lead] + at[batch:])[b].long(),)]
                     for b in range(lead)]
            result = torch.stack(parts).reshape(shape[:batch] + list(parts[0].shape))
            yield Case({"self": x, "dim": dim, "index": index, "batchDims": batch, "mode": 0}, {"out": result})


@cases("Embedding")
def embedding(op, g):
    for dtype, kind in PAIRS:
        for rows, width, at in ((7, 33, [4]), (9, 5, [2, 3]), (40, 64, [2, 1, 5]), (3, 4, []), (3, 4, [0])):
            weight, index = g.tensor([rows, width], dtype), g.index(at, rows, kind)
            yield Case({"weight": weight, "indices": index}, {"out": weight[index.long()]})
    weight = g.tensor([3, 4], torch.float32)
    yield Case({"weight": weight, "indices": torch.tensor([-1, 3, 2])},
               {"out": torch.stack([weight[0] * 0, weight[0] * 0, weight[2]])})


@cases("EmbeddingDenseBackward")
def embedding_backward(op, g):
    for dtype, kind in [(dtype, torch.int64) for dtype in g.floating] + [(torch.float32, torch.int32)]:
        for rows, width, at, padding, scales in ((7, 33, [4], -1, False), (9, 5, [40, 3], 2, False),
                                                 (6, 300, [9, 10], 0, True), (300, 16, [5], -1, True),
                                                 (3, 4, [], -1, False), (3, 4, [0], 1, False)):
            index = g.index(at, rows, kind)
            grad = g.tensor(at + [width], dtype)
            out = torch.ops.aten.embedding_dense_backward(high(grad), index, rows, padding, scales)
            yield Case({"grad": grad, "indices": index, "numWeights": rows, "paddingIdx": padding % 2**64,
                        "scaleGradByFreq": scales}, {"out": Ref(out, dtype)})
    grad, index = g.tensor([3, 4], torch.float32), torch.tensor([5, 1, -1])
    out = torch.zeros(5, 4)
    out[1] = grad[1]
    yield Case({"grad": grad, "indices": index, "numWeights": 5, "paddingIdx": 2**64 - 1, "scaleGradByFreq": False},
               {"out": out})


# ---- Lists of indices ----

# Self, shapes of the indices (None: the whole dim).
LISTS = (([7], [[4]]), ([5, 33], [[4]]), ([5, 33], [None, [4]]), ([5, 33], [[6], [6]]), ([5, 33], [[3, 1], [4]]),
         ([4, 5, 6], [[3], None, [3]]), ([4, 5, 6], [None, [2, 3], [3]]), ([4, 5, 6], [[], [3]]), ([3, 4, 5, 2], [None, [4], [4]]),
         ([7], [[]]), ([5, 4], [[0]]), ([4, 5, 6, 2], [[2], None, None, [2]]))


def listed(g, shape, ats, kind):
    given, true = [], []
    for size, at in zip(shape, ats):
        given.append(None if at is None else signed(g, at, size, kind))
        true.append(slice(None) if at is None else given[-1].long())
    return given, tuple(true)


@cases("Index")
def index(op, g):
    for dtype, kind in PAIRS:
        for shape, ats in LISTS:
            x = g.tensor(shape, dtype)
            given, true = listed(g, shape, ats, kind)
            yield Case({"self": x, "indices": given}, {"out": x[true].clone()})
    x, at = g.tensor([4, 5], torch.float32), torch.tensor([1, 3, 4])
    yield Case({"self": x, "indices": [torch.zeros(0, dtype=torch.int64), at]}, {"out": x[:, at]})
    yield Case({"self": x, "indices": [torch.tensor([4, 0]), torch.tensor([0, -6])]}, {"out": torch.zeros(2)})


@cases("IndexPutImpl")
def index_put(op, g):
    for dtype, kind in PAIRS:
        for shape, ats in LISTS:
            x = g.tensor(shape, dtype)
            # Without doubles: which of several values wins is ours to say, and is tested below.
            given, true = listed(g, shape, ats, kind)
            places = torch.arange(x.numel()).reshape(shape)[true].flatten()
            value_of = {int(place): g.tensor([], dtype) for place in places}
            values = torch.stack([value_of[int(place)] for place in places]) if len(places) else g.tensor([0], dtype)
            values = values.reshape(x[true].shape)
            out = x.clone()
            out[true] = values
            yield Case({"selfRef": x, "indices": given, "values": values, "accumulate": False, "unsafe": False},
                       {"selfRef": out})
    for dtype in SUMS:
        for shape, ats in LISTS + (([6], [[900]]), ([3, 200], [[40]])):
            x = g.tensor(shape, dtype)
            given, true = listed(g, shape, ats, torch.int64)
            values = g.tensor(list(x[true].shape), dtype)
            out = torch.ops.aten.index_put(high(x), given, high(values), True)
            yield Case({"selfRef": x, "indices": given, "values": values, "accumulate": True, "unsafe": True},
                       {"selfRef": Ref(out, dtype)})
    x = g.tensor([4, 5], torch.float32)
    one = torch.tensor(2.0)
    out = x.clone()
    out[torch.tensor([1, 3])] = 2.0
    yield Case({"selfRef": x, "indices": [torch.tensor([1, 3, 4, -5])], "values": one, "accumulate": False,
                "unsafe": False}, {"selfRef": out})
    values = g.tensor([3, 5], torch.float32)
    last = x.clone()
    last[2], last[0] = values[2], values[1]
    yield Case({"selfRef": x, "indices": [torch.tensor([2, 0, 2])], "values": values, "accumulate": False,
                "unsafe": False}, {"selfRef": last})
    mask = g.tensor([4, 5], torch.bool)
    added = mask.clone()
    added[torch.tensor([1, 1])] |= torch.tensor([[True], [False]])
    added[1] = True
    yield Case({"selfRef": mask, "indices": [torch.tensor([1, 1])], "values": torch.tensor([[True], [False]]),
                "accumulate": True, "unsafe": False}, {"selfRef": added})


# ---- Scatters ----

def distinct(g, shape, dim, at, kind):
    """Indices without doubles along dim."""
    if not at:
        return torch.zeros([], dtype=kind)
    size = shape[dim]
    moved = list(at)
    count = moved.pop(dim % len(at))
    lines = 1
    for extent in moved:
        lines *= extent
    rows = [g.permutation(size, kind)[:count] for _ in range(lines)]
    index = torch.stack(rows).reshape(moved + [min(count, size)]) if rows else torch.zeros(moved + [count], dtype=kind)
    return index.movedim(-1, dim).contiguous()


@cases("Scatter")
def scatter(op, g):
    for dtype, kind in PAIRS:
        for shape, dim, at in much(dtype, kind, BY_ELEMENT, MUCH_BY_ELEMENT):
            x = g.tensor(shape, dtype)
            index = distinct(g, shape, dim, at, kind)
            src = g.tensor([s + 1 for s in index.shape], dtype)
            yield Case({"self": x, "dim": dim, "index": index, "src": src, "reduce": 0},
                       {"out": torch.scatter(x, dim, index.long(), src)})
    for dtype in SUMS:
        for shape, dim, at in much(dtype, torch.int64, BY_ELEMENT, MUCH_BY_ELEMENT):
            x = g.tensor(shape, dtype, "small")
            size = x.shape[dim] if shape else 1
            index = signed(g, at, size, torch.int64)
            src = g.tensor(at, dtype, "small")
            yield Case({"self": x, "dim": dim, "index": index, "src": src, "reduce": 1},
                       {"out": Ref(torch.scatter_add(high(x), dim, wrapped(index, size), high(src)), dtype)})
            if dtype.is_complex:
                continue
            if dtype.is_floating_point:
                src = torch.where(src > 0, 2.0, 0.5).to(dtype)
            yield Case({"self": x, "dim": dim, "index": index, "src": src, "reduce": 2},
                       {"out": Ref(torch.scatter_reduce(high(x), dim, wrapped(index, size), high(src), "prod"), dtype)})
    x = g.tensor([3], torch.complex64)
    yield Case({"self": x, "dim": 0, "index": torch.tensor([2, 0, 2]), "src": torch.tensor([2j, 3 + 1j, -1j]), "reduce": 2},
               {"out": torch.stack([x[0] * (3 + 1j), x[1], x[2] * 2])})
    x, src = g.tensor([5], torch.float32), g.tensor([4], torch.float32)
    out = x.clone()
    out[1] = src[2]
    out[4] = src[1]
    yield Case({"self": x, "dim": 0, "index": torch.tensor([1, -1, 1, 5]), "src": src, "reduce": 0}, {"out": out})


@cases("ScatterValue")
def scatter_value(op, g):
    for dtype, kind in PAIRS:
        for shape, dim, at in much(dtype, kind, BY_ELEMENT, MUCH_BY_ELEMENT):
            x = g.tensor(shape, dtype, "small")
            size = x.shape[dim] if shape else 1
            index = signed(g, at, size, kind)
            yield Case({"self": x, "dim": dim, "index": index, "value": Scalar(3, torch.int64), "reduce": 0},
                       {"out": torch.scatter(x, dim, wrapped(index, size), 3)})
            yield Case({"self": x, "dim": dim, "index": index, "value": Scalar(2, torch.int64), "reduce": 1},
                       {"out": Ref(torch.scatter(high(x), dim, wrapped(index, size), 2, reduce="add"), dtype)})
    x = g.tensor([4], torch.float32)
    yield Case({"self": x, "dim": 0, "index": torch.tensor([0, 0, 2, 4]), "value": Scalar(2.5), "reduce": 2},
               {"out": x * torch.tensor([6.25, 1, 2.5, 1])})


@cases("ScatterAdd")
def scatter_add(op, g):
    for dtype in SUMS:
        for shape, dim, at in (much(dtype, torch.int64, BY_ELEMENT, MUCH_BY_ELEMENT) +
                               (([6], 0, [900]), ([3, 4], 1, [3, 200]))):
            x = g.tensor(shape, dtype)
            size = x.shape[dim] if shape else 1
            index = signed(g, at, size, torch.int64)
            src = g.tensor(at, dtype)
            yield Case({"self": x, "dim": dim, "index": index, "src": src},
                       {"out": Ref(torch.scatter_add(high(x), dim, wrapped(index, size), high(src)), dtype)})
    mask = g.tensor([6], torch.bool)
    out = mask.clone()
    out[2] |= True
    yield Case({"self": mask, "dim": 0, "index": torch.tensor([2, 2, 9]), "src": torch.tensor([True, False, True])},
               {"out": out})


@cases("IndexAdd")
def index_add(op, g):
    for dtype in SUMS:
        for shape, dim, count in much(dtype, torch.int64, BY_ROW, MUCH_BY_ROW):
            x = g.tensor(shape, dtype)
            index = signed(g, [count], x.shape[dim], torch.int32 if count % 2 else torch.int64)
            source = g.tensor(shape[:dim % len(shape)] + [count] + shape[dim % len(shape) + 1:], dtype)
            for alpha in (1, 3) if not dtype.is_floating_point else (1, 2.5):
                yield Case({"self": x, "dim": dim, "index": index, "source": source, "alpha": Scalar(alpha)},
                           {"out": Ref(torch.index_add(high(x), dim, wrapped(index, x.shape[dim]), high(source),
                                                       alpha=alpha), dtype)})
    x, source = g.tensor([], torch.float32), g.tensor([], torch.float32)
    yield Case({"self": x, "dim": 0, "index": torch.tensor([0]), "source": source, "alpha": Scalar(1)},
               {"out": x + source})


def copies(op, g):
    for dtype, kind in PAIRS:
        for shape, dim, count in much(dtype, kind, BY_ROW, MUCH_BY_ROW):
            x = g.tensor(shape, dtype)
            count = min(count, x.shape[dim])
            index = g.permutation(x.shape[dim], kind)[:count] - x.shape[dim] // 2
            source = g.tensor(shape[:dim % len(shape)] + [count] + shape[dim % len(shape) + 1:], dtype)
            yield x, dim, index, source, torch.index_copy(x, dim, wrapped(index, x.shape[dim]), source)
    x, source = g.tensor([4, 3], torch.float32), g.tensor([3, 3], torch.float32)
    yield x, 0, torch.tensor([1, 4, 1]), source, torch.cat([x[:1], source[2:], x[2:]])


@cases("IndexCopy")
def index_copy(op, g):
    for x, dim, index, source, out in copies(op, g):
        yield Case({"selfRef": x, "dim": dim, "index": index, "source": source}, {"outRef": out})


@cases("InplaceIndexCopy")
def inplace_index_copy(op, g):
    for x, dim, index, source, out in copies(op, g):
        yield Case({"selfRef": x, "dim": dim, "index": index, "source": source}, {"selfRef": out})


@cases("IndexFillTensor", "InplaceIndexFillTensor")
def index_fill(op, g):
    for dtype in SIZES + (torch.bool,):
        for shape, dim, count in much(dtype, torch.int64, BY_ROW, MUCH_BY_ROW):
            x = g.tensor(shape, dtype)
            index = signed(g, [count], x.shape[dim], torch.int64)
            out = torch.index_fill(x, dim, wrapped(index, x.shape[dim]), 1)
            args = {"dim": dim, "index": index.tolist(), "value": Scalar(1, torch.int64)}
            if op.startswith("Inplace"):
                yield Case({"selfRef": x, **args}, {"selfRef": out})
            else:
                yield Case({"self": x, **args}, {"out": out})


@cases("ScatterNdUpdate")
def scatter_nd_update(op, g):
    for dtype, kind in PAIRS:
        for shape, batch, depth in (([7], [4], 1), ([5, 33], [3], 1), ([5, 33], [2, 3], 2), ([4, 5, 6], [7], 2),
                                    ([4, 5, 6], [], 2), ([4, 5], [0], 1), ([9], [], 1)) + (
                                        (([200, 90], [190], 1),) if dtype == torch.bfloat16 else ()):
            x = g.tensor(shape, dtype)
            places = 1
            for size in shape[:depth]:
                places *= size
            count = 1
            for size in batch:
                count *= size
            flat = g.permutation(places)[:count]
            indices = torch.stack(torch.unravel_index(flat, shape[:depth]), -1).reshape(batch + [depth]).to(kind)
            updates = g.tensor(batch + shape[depth:], dtype)
            out = x.clone()
            out[tuple(indices.long().unbind(-1))] = updates
            yield Case({"varRef": x, "indices": indices, "updates": updates}, {"varRef": out})
    x, updates = g.tensor([4, 3], torch.float32), g.tensor([3, 3], torch.float32)
    yield Case({"varRef": x, "indices": torch.tensor([[1], [4], [-1]]), "updates": updates},
               {"varRef": torch.stack([x[0], updates[0], x[2], updates[2]])})


# ---- Masks ----

MASKS = (([7], [7]), ([5, 33], [5, 33]), ([5, 33], [33]), ([5, 33], [5, 1]), ([2, 3, 65], [3, 1]), ([], []), ([0, 3], [3]))


@cases("InplaceMaskedFillScalar")
def masked_fill_scalar(op, g):
    for dtype in SIZES + (torch.bool, torch.float16):
        for shape, at in MASKS:
            x, mask = g.tensor(shape, dtype), g.mask(at)
            yield Case({"selfRef": x, "mask": mask, "value": Scalar(1, torch.int64)}, {"selfRef": x.masked_fill(mask, 1)})
    x = g.tensor([9], torch.float32)
    mask = torch.tensor([0, 1, 0, 255, 2, 0, 0, 1, 1], dtype=torch.uint8)
    yield Case({"selfRef": x, "mask": mask, "value": Scalar(-2.5)}, {"selfRef": x.masked_fill(mask != 0, -2.5)})


@cases("InplaceMaskedFillTensor")
def masked_fill_tensor(op, g):
    for dtype in SIZES + (torch.bool, torch.float16):
        for shape, at in MASKS:
            x, mask, value = g.tensor(shape, dtype), g.mask(at), g.tensor([], dtype)
            yield Case({"selfRef": x, "mask": mask, "value": value}, {"selfRef": x.masked_fill(mask, value)})
    x, mask = g.tensor([9], torch.float32), g.mask([9])
    yield Case({"selfRef": x, "mask": mask, "value": torch.tensor([3])}, {"selfRef": x.masked_fill(mask, 3)})


@cases("InplaceMaskedScatter")
def masked_scatter(op, g):
    for dtype in SIZES + (torch.bool, torch.float16):
        for shape, at in MASKS:
            x, mask = g.tensor(shape, dtype), g.mask(at)
            source = g.tensor([3, x.numel()], dtype)
            yield Case({"selfRef": x, "mask": mask, "source": source}, {"selfRef": x.masked_scatter(mask, source)})
    x, source = g.tensor([5], torch.float32), g.tensor([2], torch.float32)
    mask = torch.tensor([True, False, True, True, True])
    yield Case({"selfRef": x, "mask": mask, "source": source},
               {"selfRef": torch.stack([source[0], x[1], source[1], x[3], x[4]])})
