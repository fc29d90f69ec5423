# SPDX-License-Identifier: Apache-2.0
"""Elements combined at indexed places, elements of flat tensors, parts of tensors, repetitions by a tensor."""

import torch

from harness import Case, Ref, Scalar, cases, high

REDUCTIONS = ("", "sum", "prod", "amax", "amin", "mean")


@cases("ScatterReduce")
def scatter_reduce(op, g):
    number = 0
    for dtype in g.real:
        for shape, part, dim in (([7], [5], 0), ([4, 6], [3, 9], 1), ([2, 5, 3], [2, 8, 2], 1), ([], [], 0),
                                 ([3, 4], [0, 4], 0)):
            for reduce in range(1, 6):
                number += 1
                x = g.tensor(shape, dtype, "small")
                source = g.tensor(part, dtype, "small")
                if reduce == 2:
                    x, source = x.clamp(-1, 1), source.clamp(-1, 1)
                index = g.index(part, shape[dim] if shape else 1, (torch.int64, torch.int32)[number % 2])
                keep = number % 3 != 0
                y = torch.scatter_reduce(high(x), dim, index.to(torch.int64), high(source), REDUCTIONS[reduce],
                                         include_self=keep)
                yield Case({"self": x, "dim": dim, "index": index, "src": source, "reduce": reduce,
                            "includeSelf": keep}, {"out": Ref(y, dtype)})
    x, source = torch.zeros(4), torch.tensor([1.0, 2.0, 3.0, float("nan")])
    # Below 0 from the end; out of range nothing; NaN wins.
    index = torch.tensor([-1, 9, -9, 0])
    for reduce, expected in ((1, [float("nan"), 0, 0, 1]), (3, [float("nan"), 0, 0, 1]), (0, [float("nan"), 0, 0, 1])):
        yield Case({"self": x, "dim": 0, "index": index, "src": source, "reduce": reduce, "includeSelf": True},
                   {"out": torch.tensor(expected)})


@cases("Take")
def take(op, g):
    for dtype in g.all:
        for shape, places in (([7], [3]), ([4, 5], [2, 3]), ([], [4]), ([2, 3, 4], []), ([3], [0])):
            x = g.tensor(shape, dtype)
            index = g.index(places, x.numel()) - (x.numel() if places == [2, 3] else 0)
            yield Case({"self": x, "index": index}, {"out": torch.take(x, index)})
    yield Case({"self": torch.ones(2), "index": torch.tensor([2, -3, 1], dtype=torch.int32)},
               {"out": torch.tensor([0.0, 0.0, 1.0])})


@cases("InplacePut")
def put(op, g):
    for dtype in g.all:
        for shape, count in (([7], 3), ([4, 5], 30), ([], 1), ([3], 0)):
            for accumulate in (False, True):
                if accumulate and dtype == torch.bool:
                    continue
                x = g.tensor(shape, dtype, "small")
                source = g.tensor([count], dtype, "small")
                index = g.index([count], x.numel())
                if not accumulate:
                    index = g.permutation(x.numel())[:count]
                    source = source[:index.numel()]
                y = high(x).clone().put_(index, high(source), accumulate)
                yield Case({"selfRef": x, "index": index, "source": source, "accumulate": accumulate},
                           {"selfRef": Ref(y, dtype)})
    yield Case({"selfRef": torch.zeros(3), "index": torch.tensor([0, -1, 7, 0], dtype=torch.int32),
                "source": torch.tensor([1.0, 2.0, 3.0, 4.0]), "accumulate": False},
               {"selfRef": torch.tensor([4.0, 0.0, 2.0])})


@cases("InplaceScatterUpdate")
def scatter_update(op, g):
    for dtype in g.all:
        for shape, part, axis in (([3, 2, 8, 4], 1, -2), ([3, 2, 8, 4], 3, 2), ([2, 5], 2, -1), ([2, 3, 4], 2, 1)):
            data = g.tensor(shape, dtype)
            size = list(shape)
            size[axis] = part
            updates = g.tensor(size, dtype)
            index = g.index([shape[0]], shape[axis] - part + 1, torch.int32)
            y = data.clone()
            for n in range(shape[0]):
                y[n].narrow(axis - (axis > 0), int(index[n]), part).copy_(updates[n])
            yield Case({"data": data, "indices": index, "updates": updates, "axis": axis}, {"data": y})
    data, updates = torch.zeros([3, 4, 2]), torch.ones([3, 2, 2])
    y = data.clone()
    y[1, 2:] = 1  # the others do not fit
    yield Case({"data": data, "indices": torch.tensor([3, 2, -1]), "updates": updates, "axis": 1}, {"data": y})


@cases("ScatterList")
def scatter_list(op, g):
    for number, dtype in enumerate(g.all):
        for shape, part, axis in (([2, 8, 4], 1, -2), ([2, 8, 4], 3, 2), ([5], 2, -1)):
            count = 3
            data = [g.tensor(shape, dtype) for _ in range(count)]
            size = [count] + shape
            size[axis] = part
            updates = g.tensor(size, dtype)
            index = g.index([count], ([count] + shape)[axis] - part + 1)
            mask = torch.tensor([1, 0, 1], dtype=torch.uint8) if number % 2 else None
            y = [item.clone() for item in data]
            for n in range(count):
                if mask is None or mask[n]:
                    y[n].narrow(axis - (axis > 0), int(index[n]), part).copy_(updates[n])
            yield Case({"varRef": data, "indice": index, "updates": updates, "maskOptional": mask,
                        "reduceOptional": "update" if number % 3 else None, "axis": axis}, {"varRef": y})


@cases("CoalesceSparse")
def coalesce(op, g):
    for number, dtype in enumerate(g.numeric):
        for count, dims, rest in ((9, 2, []), (6, 1, [3]), (5, 3, [2, 4]), (0, 2, [])):
            indices = g.index([dims, count], 2)
            values = g.tensor([count] + rest, dtype, "small")
            size = [2] * dims
            whole = torch.sparse_coo_tensor(indices, high(values), size + rest).coalesce()
            flat = sum(indices[d] * 2 ** (dims - 1 - d) for d in range(dims))
            unique, where = torch.unique(flat, sorted=True, return_inverse=True)
            kind = (torch.int32, torch.int64)[number % 2]
            yield Case({"uniqueLen": unique.to(kind), "uniqueIndices": where.to(kind),
                        "indices": indices.t().contiguous().to(kind), "values": values},
                       {"newIndices": whole.indices().t().contiguous().to(kind),
                        "newValues": Ref(whole.values(), dtype)})


@cases("IndexAddV2")
def index_add(op, g):
    for number, dtype in enumerate(g.all):
        for shape, dim in (([5], 0), ([4, 3], 0), ([2, 6, 3], -2)):
            x = g.tensor(shape, dtype, "small")
            size = list(shape)
            size[dim] = 7
            source, index = g.tensor(size, dtype, "small"), g.index([7], shape[dim])
            y = torch.index_add(high(x), dim, index, high(source), alpha=1)
            yield Case({"self": x, "dim": dim, "index": index, "source": source, "alpha": Scalar(1),
                        "mode": number % 2}, {"out": Ref(y, dtype)})


@cases("RepeatInterleaveTensor")
def repeat_positions(op, g):
    for dtype in (torch.int32, torch.int64):
        for repeats in ([2, 0, 3], [1], [4], [0, 0], []):
            counts = torch.tensor(repeats, dtype=dtype)
            y = torch.repeat_interleave(counts.to(torch.int64)).to(dtype)
            yield Case({"repeats": counts, "outputSize": y.numel()}, {"out": y})
    yield Case({"repeats": torch.tensor([2, -1, 1]), "outputSize": 5}, {"out": torch.tensor([0, 0, 2, 0, 0])})


@cases("RepeatInterleaveWithDim")
def repeat_along(op, g):
    for number, dtype in enumerate(g.all):
        for shape, dim in (([5], 0), ([3, 4], 0), ([3, 4], -1), ([2, 3, 5], 1), ([], 0), ([2, 0, 3], 1)):
            x = g.tensor(shape, dtype)
            size = shape[dim] if shape else 1
            repeats = g.index([size if number % 3 else 1], 4, (torch.int64, torch.int32)[number % 2])
            counts = repeats.expand(size) if repeats.numel() == 1 else repeats
            y = torch.repeat_interleave(x if shape else x.reshape(1), counts.to(torch.int64), dim)
            yield Case({"self": x, "repeats": repeats, "dim": dim, "outputSize": y.shape[dim]}, {"out": y})


@cases("RepeatInterleaveGrad")
def repeat_grad(op, g):
    for number, dtype in enumerate(g.floating):
        for shape, dim in (([5], 0), ([3, 4], 0), ([3, 40], -1), ([2, 3, 5], 1), ([2, 3, 0], 1)):
            repeats = g.index([shape[dim] if number % 2 else 1], 4)
            wide = torch.zeros(shape, dtype=torch.float64).requires_grad_()
            y = torch.repeat_interleave(wide, repeats.expand(shape[dim]) if repeats.numel() == 1 else repeats, dim)
            grad = g.tensor(list(y.shape), dtype)
            (expected,) = torch.autograd.grad(y, wide, high(grad))
            yield Case({"yGrad": grad, "repeats": repeats, "axis": dim}, {"out": Ref(expected, dtype)})
