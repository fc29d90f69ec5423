# SPDX-License-Identifier: Apache-2.0
"""Sorting, selecting, searching, and operators that find out the shape of their result."""

import torch

from harness import Case, Check, Ref, Scalar, cases


def rows(g, dtypes, kinds=("small", "edge"), long=([3, 700], [300, 20], [2, 3, 90])):
    """(tensor, dim) with elements along the dim; all of them in the first type, some in the others."""
    number = 0
    for kind in kinds:
        for dtype in dtypes:
            for shape in g.shapes + long:
                for dim in sorted({0, -1, len(shape) // 2}):
                    if (shape and shape[dim] == 0) or (not shape and dim > 0):
                        continue
                    number += 1
                    if number % 4 == 0 or (dtype == dtypes[0] and kind == kinds[0]):
                        yield g.tensor(shape, dtype, kind), dim


def places_of(x, values, dim):
    """Checks places where equal elements may be told apart in more than one way."""
    def verify(places):
        if x.dim() == 0:
            return bool((places == 0).all())
        picked = x.gather(dim, places)
        different = places.sort(dim).values.diff(dim=dim)
        return bool((((picked == values) | ((picked != picked) & (values != values))).all()) and (different != 0).all())
    return verify


@cases("Sort", "Argsort")
def sort(op, g):
    for number, (x, dim) in enumerate(rows(g, g.real + (torch.bool,))):
        descending = number % 2 == 1
        values, places = torch.sort(x, dim=dim, descending=descending, stable=True)
        args = {"self": x, "dim": dim, "descending": descending}
        if op == "Sort":
            yield Case({**args, "stable": number % 3 == 0}, {"valuesOut": values, "indicesOut": places})
        else:
            yield Case(args, {"out": places})


@cases("Topk")
def topk(op, g):
    for number, (x, dim) in enumerate(rows(g, g.real + (torch.bool,), long=([3, 3000], [300, 20], [2, 3, 90]))):
        n = x.shape[dim] if x.dim() else 1
        largest = number % 2 == 0
        # PyTorch's own order of NaN, by way of a sort.
        ordered = torch.sort(x, dim=dim, descending=largest, stable=True)
        for k in sorted({0, 1, n // 3, n}):
            if k == 0 and not x.dim():
                continue
            values = ordered.values.narrow(dim, 0, k) if x.dim() else ordered.values
            is_sorted = number % 3 != 0
            args = {"self": x, "k": k, "dim": dim, "largest": largest, "sorted": is_sorted}
            if is_sorted:
                expected = Ref(values.contiguous())
                places = ordered.indices.narrow(dim, 0, k).contiguous() if x.dim() else ordered.indices
                yield Case(args, {"valuesOut": expected, "indicesOut": places})
            else:
                def same_elements(found, values=values, dim=dim):
                    a, b = (torch.sort(t, dim=dim).values for t in (found, values))
                    return bool(((a == b) | ((a != a) & (b != b))).all())

                def distinct(found, n=n, dim=dim):
                    steps = torch.sort(found, dim=dim).values.diff(dim=dim) if found.dim() else found[None] * 0 + 1
                    return bool((steps > 0).all() and (found >= 0).all() and (found < n).all())
                yield Case(args, {"valuesOut": Check(values.shape, x.dtype, same_elements),
                                  "indicesOut": Check(values.shape, torch.int64, distinct)})


@cases("MedianDim")
def median_dim(op, g):
    for number, (x, dim) in enumerate(rows(g, g.real)):
        keep = number % 2 == 0
        values, _ = torch.median(x, dim, keepdim=True)
        shown = values if keep or not x.dim() else values.squeeze(dim)

        def verify(places, x=x, values=values, dim=dim):
            places = places.reshape(values.shape)
            return places_of(x, values, dim)(places)
        yield Case({"self": x, "dim": dim, "keepDim": keep},
                   {"valuesOut": shown.contiguous(), "indicesOut": Check(shown.shape, torch.int64, verify)})


@cases("Median")
def median(op, g):
    for dtype in g.real:
        for shape in ([], [7], [5, 33], [2, 3, 65], [6, 700]):
            for kind in ("normal", "small", "edge"):
                x = g.tensor(shape, dtype, kind)
                yield Case({"self": x}, {"valuesOut": torch.median(x)})


@cases("SearchSorted", "SearchSorteds")
def search_sorted(op, g):
    number = 0
    for dtype in g.real:
        for shape, wanted in (([9], [4, 5]), ([1], []), ([0], [3]), ([2, 3, 17], [2, 3, 8]), ([40], [0])):
            for right in (False, True):
                number += 1
                x = g.tensor(shape, dtype, "small")
                sorter = torch.argsort(x, stable=True) if number % 3 == 0 else None
                sequence = x if sorter is not None else x.sort().values
                small = number % 4 == 0
                out = torch.int32 if small else torch.int64
                args = {"sortedSequence": sequence, "outInt32": small, "right": right, "sorter": sorter}
                if op == "SearchSorted":
                    v = g.tensor(wanted, dtype, "small")
                    y = torch.searchsorted(sequence, v, right=right, sorter=sorter)
                    yield Case({**args, "self": v}, {"out": y.to(out)})
                elif len(shape) == 1:
                    y = torch.searchsorted(sequence, torch.tensor(2, dtype=dtype), right=right, sorter=sorter)
                    yield Case({**args, "self": Scalar(2, torch.int64)}, {"out": y.to(out)})


# ---- Results of a shape that is found out ----

def sparse(g, shape, dtype):
    """About half of the elements are 0."""
    x = g.tensor(shape, dtype, "edge" if dtype.is_floating_point else "normal")
    return x * g.mask(shape).to(x.dtype) if dtype != torch.bool else x


SHAPES = ([], [0, 3], [1], [7], [5, 33], [2, 3, 65], [4, 1, 6, 5], [200, 300])


@cases("Nonzero", "NonzeroV2")
def nonzero(op, g):
    for dtype in g.all:
        for shape in SHAPES if dtype == torch.float32 else SHAPES[1:6]:
            x = sparse(g, shape, dtype)
            y = torch.nonzero(x)
            allocated = [x.numel(), x.dim()]
            if op == "NonzeroV2":
                y, allocated = y.t().contiguous(), allocated[::-1]
            yield Case({"self": x}, {"out": Ref(y, allocated=allocated)})


@cases("MaskedSelect")
def masked_select(op, g):
    for dtype in g.all:
        for shape, mask_shape in (([], []), ([0, 3], [0, 3]), ([5, 33], [5, 33]), ([5, 33], [33]), ([1, 33], [5, 1]),
                                  ([200, 200], [200, 200])):
            if len(shape) == 2 and shape[0] == 200 and dtype != torch.float32:
                continue
            x, mask = g.tensor(shape, dtype), g.mask(mask_shape)
            count = torch.broadcast_shapes(shape, mask_shape).numel()
            yield Case({"self": x, "mask": mask}, {"out": Ref(torch.masked_select(x, mask), allocated=[count])})


@cases("Unique2")
def unique(op, g):
    for number, dtype in enumerate(g.real + (torch.bool,)):
        for shape in SHAPES if dtype == torch.float32 else SHAPES[1:6]:
            for inverse, counts in ((True, True), (False, False), (False, True)):
                x = g.tensor(shape, dtype, "small")
                values, where, often = torch.unique(x, sorted=True, return_inverse=True, return_counts=True)
                yield Case({"self": x, "sorted": number % 2 == 0, "returnInverse": inverse, "returnCounts": counts},
                           {"valueOut": Ref(values, allocated=[x.numel()]),
                            "inverseOut": where if inverse else None,
                            "countsOut": Ref(often, allocated=[x.numel()]) if counts else None})
    x = g.tensor([60], torch.float32, "edge")
    values, often = torch.unique(x, return_counts=True)
    yield Case({"self": x, "sorted": True, "returnInverse": False, "returnCounts": True},
               {"valueOut": Ref(values, allocated=[60]), "inverseOut": None, "countsOut": Ref(often, allocated=[60])})


@cases("UniqueDim")
def unique_dim(op, g):
    for dtype in g.real + (torch.bool,):
        for shape, dim in (([7], 0), ([40, 2], 0), ([2, 40], -1), ([2, 50, 2], 1)):
            x = g.tensor(shape, dtype, "small").clamp(-1, 1) if dtype != torch.bool else g.tensor(shape, dtype)
            values, where, often = torch.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=dim)
            for inverse in (True, False):
                yield Case({"self": x, "sorted": True, "returnInverse": inverse, "dim": dim},
                           {"valueOut": Ref(values.contiguous(), allocated=shape),
                            "inverseOut": where if inverse else None,
                            "countsOut": Ref(often, allocated=[shape[dim]])})


@cases("UniqueConsecutive")
def unique_consecutive(op, g):
    for dtype in g.real + (torch.bool,):
        for shape, dim in (([], None), ([0, 3], None), ([7], 0), ([60], None), ([6, 30], None), ([40, 2], 0), ([2, 40], -1),
                           ([2, 50, 2], 1)):
            x = g.tensor(shape, dtype, "small").clamp(0, 1) if dtype != torch.bool else g.tensor(shape, dtype)
            values, where, often = torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=dim)
            size = x.numel() if dim is None else shape[dim]
            for wanted in (True, False):
                yield Case({"self": x, "returnInverse": wanted, "returnCounts": wanted, "dim": 1000 if dim is None else dim},
                           {"valueOut": Ref(values.contiguous(), allocated=[size] if dim is None else shape),
                            "inverseOut": where if wanted else None,
                            "countsOut": Ref(often, allocated=[size]) if wanted else None})
    x = torch.tensor([1 + 1j, 1 + 1j, 1 - 1j, 2, 2])
    values, often = torch.tensor([1 + 1j, 1 - 1j, 2]), torch.tensor([2, 1, 2])
    yield Case({"self": x, "returnInverse": False, "returnCounts": True, "dim": 1000},
               {"valueOut": Ref(values, allocated=[5]), "inverseOut": None, "countsOut": Ref(often, allocated=[5])})
