# SPDX-License-Identifier: Apache-2.0
"""k-th elements, medians of numbers, buckets, membership, both ends, deviations with their means."""

import torch

from cases_sorting import places_of, rows, topk
from harness import Case, Check, Ref, Scalar, cases, high

cases("TopkV2")(lambda op, g: (Case({**case.args, "sortPolicy": number % 2}, case.expect)
                               for number, case in enumerate(topk(op, g))))


def chosen(x, dim, keep, values, **args):
    """A case of an operator that tells a value of each row and a place where it is."""
    shown = values if keep or not x.dim() else values.squeeze(dim)

    def verify(places):
        return places_of(x, values, dim)(places.reshape(values.shape))
    return Case({"self": x, "dim": dim, **args},
                {"valuesOut": shown.contiguous(), "indicesOut": Check(shown.shape, torch.int64, verify)})


@cases("Kthvalue")
def kthvalue(op, g):
    for number, (x, dim) in enumerate(rows(g, g.real)):
        keep = number % 2 == 0
        n = x.shape[dim] if x.dim() else 1
        ordered = torch.sort(x, dim=dim).values
        for k in sorted({1, (n + 1) // 2, n}):
            yield chosen(x, dim, keep, ordered.narrow(dim, k - 1, 1) if x.dim() else ordered, k=k, keepdim=keep)


@cases("NanMedianDim")
def nanmedian_dim(op, g):
    for number, (x, dim) in enumerate(rows(g, g.real)):
        keep = number % 2 == 0
        values, _ = torch.nanmedian(x, dim, keepdim=True)
        yield chosen(x, dim, keep, values, keepDim=keep)


@cases("NanMedian")
def nanmedian(op, g):
    for dtype in g.real:
        for shape in ([], [7], [5, 33], [2, 3, 65]):
            for kind in ("small", "edge"):
                x = g.tensor(shape, dtype, kind)
                yield Case({"self": x}, {"out": torch.nanmedian(x)})
    yield Case({"self": torch.full([3], float("nan"))}, {"out": torch.tensor(float("nan"))})


@cases("Bucketize")
def bucketize(op, g):
    for number, dtype in enumerate(g.real):
        for wanted, count in (([4, 5], 9), ([], 1), ([3], 0), ([2, 3, 40], 30)):
            for right in (False, True):
                bounds = g.tensor([count], dtype, "small").sort().values
                x = g.tensor(wanted, dtype, "small")
                small = number % 2 == 0
                y = torch.bucketize(x, bounds, out_int32=small, right=right)
                yield Case({"self": x, "boundaries": bounds, "outInt32": small, "right": right}, {"out": y})


@cases("Unique")
def unique(op, g):
    for number, dtype in enumerate(g.real + (torch.bool,)):
        for shape in ([0, 3], [1], [7], [5, 33]):
            x = g.tensor(shape, dtype, "small")
            values, where = torch.unique(x, sorted=True, return_inverse=True)
            wanted = number % 2 == 0
            yield Case({"self": x, "sorted": True, "returnInverse": wanted},
                       {"valueOut": Ref(values, allocated=[x.numel()]), "inverseOut": where if wanted else None})


@cases("IsInScalarTensor")
def is_in_scalar(op, g):
    for number, dtype in enumerate(g.real):
        for shape in ([], [7], [5, 33], [0, 3]):
            for value in (2, 258):  # to 8 bits, the second one is the first
                for invert in (False, True):
                    x = g.tensor(shape, dtype, "small")
                    y = torch.tensor(bool((x.to(torch.float64) == value).any()) != invert)
                    yield Case({"element": Scalar(value, torch.int64), "testElements": x, "assumeUnique": False,
                                "invert": invert}, {"out": y})


@cases("IsInTensorScalar")
def is_in_tensor(op, g):
    for number, dtype in enumerate(g.real):
        for shape in ([], [7], [5, 33], [0, 3]):
            for invert, value in ((False, 2), (True, 2), (False, 258)):
                x = g.tensor(shape, dtype, "small")
                y = (x.to(torch.float64) == value) != invert
                yield Case({"element": x, "testElement": Scalar(value, torch.int64), "assumeUnique": number % 2 == 0,
                            "invert": invert}, {"out": y})


@cases("AminmaxAll")
def aminmax_all(op, g):
    for dtype in g.real + (torch.bool,):
        for shape in ([], [7], [5, 33], [2, 3, 65]):
            x = g.tensor(shape, dtype, "edge")
            least, most = torch.aminmax(x)
            yield Case({"self": x}, {"minOut": least, "maxOut": most})


@cases("AminmaxDim")
def aminmax_dim(op, g):
    for dtype in g.real + (torch.bool,):
        for shape, dim in (([], 0), ([7], -1), ([5, 33], 0), ([2, 3, 65], 1), ([0, 3], 1)):
            for keep in (False, True):
                x = g.tensor(shape, dtype, "edge")
                least, most = torch.aminmax(x, dim=dim, keepdim=keep)
                yield Case({"self": x, "dim": dim, "keepDim": keep}, {"minOut": least, "maxOut": most})


@cases("StdMeanCorrection")
def std_mean(op, g):
    for dtype in g.floating:
        for shape, dims in (([7], [0]), ([5, 33], []), ([2, 3, 65], [0, 2]), ([4, 6], [-1])):
            for correction, keep in ((1, False), (0, True), (2, False)):
                x = g.tensor(shape, dtype)
                std, mean = torch.std_mean(high(x), dims or list(range(len(shape))), correction=correction,
                                           keepdim=keep)
                yield Case({"self": x, "dim": dims, "correction": correction, "keepdim": keep},
                           {"stdOut": Ref(std, dtype), "meanOut": Ref(mean, dtype)})
