# SPDX-License-Identifier: Apache-2.0
"""Reductions, scans and counts."""

import torch

from harness import Case, Ref, Scalar, cases, high


def wide(tensor):
    """The same numbers in a type that PyTorch reduces without a loss: for references."""
    return tensor.to(torch.int64) if tensor.dtype in (torch.bool,) else high(tensor)


def dim_lists(shape):
    """Every sort of subset of the dims."""
    rank = len(shape)
    lists = [[], list(range(rank)), [-1], [0]] if rank else [[]]
    if rank > 2:
        lists += [[0, 2], [1], [-2, -1]]
    return [dims for i, dims in enumerate(lists) if dims not in lists[:i]]


def every(dims, shape):
    """No dims at all means every one."""
    return dims or list(range(len(shape)))


# Long enough for blocks, folds of blocks, and a cut into parts.
LONG = (([140001], [], torch.float32), ([33000, 4], [0], torch.float32), ([2, 600, 20], [0, 1], torch.bfloat16),
        ([300, 90], [1], torch.float16))


def problems(g, dtypes, kind="normal"):
    """(tensor, dims, keep): all shapes and dims in the first type, some in the others."""
    number = 0
    for dtype in dtypes:
        for shape in g.shapes:
            for dims in dim_lists(shape):
                number += 1
                if dtype == dtypes[0] or number % 4 == 0:
                    yield g.tensor(shape, dtype, kind), dims, number % 3 == 0
    for shape, dims, dtype in LONG:  # sums that do not nearly vanish
        yield g.tensor(shape, dtype, "positive" if kind == "normal" else kind), dims, False


def without_empty(items):
    """Without those where nothing would be chosen from."""
    for x, dims, keep in items:
        if all(x.shape[d] != 0 for d in every(dims, x.shape)):
            yield x, dims, keep


def summed(x, dims, keep):
    return wide(x).sum(every(dims, x.shape), keepdim=keep) if x.dim() else wide(x)


@cases("ReduceSum")
def reduce_sum(op, g):
    for x, dims, keep in problems(g, g.all):
        dtype = torch.int64 if x.dtype in (torch.bool, *g.integers) else x.dtype
        yield Case({"self": x, "dims": dims, "keepDims": keep, "dtype": dtype}, {"out": Ref(summed(x, dims, keep), dtype)})
    x = g.tensor([5, 7], torch.float32)
    yield Case({"self": x, "dims": [0], "keepDims": False, "dtype": torch.float64},
               {"out": Ref(x.double().sum(0), torch.float64)})


@cases("ReduceNansum")
def nansum(op, g):
    for x, dims, keep in problems(g, g.floating + (torch.int32,), "positive"):
        dtype = torch.int64 if x.dtype == torch.int32 else x.dtype
        if x.is_floating_point() and x.numel() > 3:
            x = torch.where(g.mask(x.shape), x, torch.tensor(float("nan"), dtype=x.dtype))
        y = wide(x).nansum(every(dims, x.shape), keepdim=keep) if x.dim() else wide(x).nansum()
        yield Case({"self": x, "dim": dims, "keepDim": keep, "dtype": dtype}, {"out": Ref(y, dtype)})


@cases("Mean")
def mean(op, g):
    for x, dims, keep in problems(g, g.floating + g.complex + (torch.int16, torch.bool), "positive"):
        dtype = x.dtype if x.is_floating_point() or x.is_complex() else torch.float32
        y = x.to(torch.complex128 if x.is_complex() else torch.float64)
        y = y.mean(every(dims, x.shape), keepdim=keep) if x.dim() else y
        yield Case({"self": x, "dim": dims, "keepDim": keep, "dtype": dtype}, {"out": Ref(y, dtype)})


def product_type(dtype, g):
    return torch.int64 if dtype in (torch.bool, *g.integers) else dtype


def factors(g, shape, dtype):
    """Numbers whose products stay in range."""
    x = g.tensor(shape, dtype, "small")
    if dtype.is_floating_point or dtype.is_complex:
        x = 1 + x / 16
    return x.to(dtype)


@cases("Prod")
def prod(op, g):
    for dtype in g.all:
        for shape in ([], [0, 3], [7], [5, 13]):
            x = factors(g, shape, dtype)
            out = product_type(dtype, g)
            yield Case({"self": x, "dtype": out}, {"out": Ref(wide(x).prod(), out)})


@cases("ProdDim")
def prod_dim(op, g):
    for dtype in g.all:
        for shape in g.shapes:
            if not shape:
                continue
            for dim in (0, -1):
                x = factors(g, shape, dtype)
                out = product_type(dtype, g)
                yield Case({"self": x, "dim": dim, "keepDim": dim == 0, "dtype": out},
                           {"out": Ref(wide(x).prod(dim, keepdim=dim == 0), out)})


def chosen(x, dims, keep, function):
    y = x.to(torch.float64) if x.is_floating_point() else x.to(torch.int64)
    y = function(y, every(dims, x.shape), keep) if x.dim() else y
    return y.to(x.dtype)


LARGEST = {"Amax": torch.amax, "Amin": torch.amin}


@cases("Amax", "Amin")
def amax(op, g):
    for kind in ("normal", "edge"):
        for x, dims, keep in without_empty(problems(g, g.real + (torch.bool,), kind)):
            if kind == "edge" and x.numel() > 2000:
                continue
            yield Case({"self": x, "dim": dims, "keepDim": keep}, {"out": chosen(x, dims, keep, LARGEST[op])})


@cases("Max", "Min")
def max_of_all(op, g):
    for x, dims, _ in without_empty(problems(g, g.real + (torch.bool,))):
        if not dims:
            yield Case({"self": x}, {"out": chosen(x, dims, False, LARGEST["A" + op.lower()])})


@cases("Aminmax")
def aminmax(op, g):
    for x, dims, keep in without_empty(problems(g, g.real + (torch.bool,))):
        yield Case({"self": x, "dim": dims, "keepDim": keep},
                   {"minOut": chosen(x, dims, keep, torch.amin), "maxOut": chosen(x, dims, keep, torch.amax)})


@cases("All", "Any")
def all_any(op, g):
    function = {"All": torch.all, "Any": torch.any}[op]
    for number, (x, dims, keep) in enumerate(problems(g, g.all)):
        if number % 3 == 0:
            x = torch.zeros_like(x) if op == "Any" else torch.ones_like(x)
        y = x.to(torch.bool)
        for d in sorted((d % x.dim() for d in every(dims, x.shape)), reverse=True):
            y = function(y, d, keepdim=keep)
        yield Case({"self": x, "dim": dims, "keepdim": keep}, {"out": Ref(y, torch.uint8 if number % 5 == 0 else torch.bool)})


ORDERS = (2, 1, 0, 0.5, 3.5, float("inf"), -float("inf"), -1.5)


@cases("Norm", "LinalgVectorNorm")
def norm(op, g):
    items = problems(g, g.floating + g.complex)
    for number, (x, dims, keep) in enumerate(items):
        order = ORDERS[number % len(ORDERS)]
        if (order < 0 or order == float("inf")) and any(x.shape[d] == 0 for d in every(dims, x.shape)):
            continue
        if order < 0 and not torch.isinf(torch.tensor(order)):
            x = x + torch.sign(high(x).real if x.is_complex() else x).to(x.dtype)  # away from 0
        y = torch.linalg.vector_norm(high(x), order, every(dims, x.shape), keepdim=keep) if x.dim() else \
            torch.linalg.vector_norm(high(x), order)
        real = {torch.complex64: torch.float32, torch.complex128: torch.float64}.get(x.dtype, x.dtype)
        if op == "Norm":
            yield Case({"self": x, "pScalar": Scalar(float(order), torch.float32), "dim": dims, "keepdim": keep},
                       {"out": Ref(y, real)})
        else:
            yield Case({"self": x, "ord": Scalar(float(order), torch.float32), "dims": dims, "keepDims": keep, "dtype": real},
                       {"out": Ref(y, real)})


@cases("LogSumExp")
def logsumexp(op, g):
    for kind in ("normal", "edge"):
        for x, dims, keep in problems(g, g.floating + (torch.int32, torch.bool), kind):
            if kind == "edge" and x.numel() > 2000:
                continue
            y = x.to(torch.float64)
            y = torch.logsumexp(y, every(dims, x.shape), keepdim=keep) if x.dim() else torch.logsumexp(y, 0)
            yield Case({"self": x, "dim": dims, "keepDim": keep}, {"out": Ref(y, x.dtype if x.is_floating_point() else torch.float32)})


def variance(x, dims, correction, keep):
    # Written out: PyTorch warns where there are too few elements.
    x = x.to(torch.float64)
    dims = every(dims, x.shape)
    count = 1
    for d in dims:
        count *= x.shape[d]
    mean = x.mean(dims, keepdim=True) if dims else x
    square = (x - mean) ** 2
    total = square.sum(dims, keepdim=keep) if dims else square
    return total / max(0, count - correction), (mean if keep or not dims else x.mean(dims))


@cases("Std", "VarCorrection", "VarMean")
def var(op, g):
    for number, (x, dims, keep) in enumerate(problems(g, g.floating)):
        correction = (1, 0, 2)[number % 3]
        var_out, mean_out = variance(x, dims, correction, keep)
        args = {"self": x, "dim": dims, "correction": correction, "keepdim": keep}
        if op == "VarMean":
            yield Case(args, {"varOut": Ref(var_out, x.dtype), "meanOut": Ref(mean_out, x.dtype)})
        else:
            yield Case(args, {"out": Ref(var_out.sqrt() if op == "Std" else var_out, x.dtype)})


def along(g, dtypes, kinds=("normal",)):
    """(tensor, dim, keep) with elements along the dim."""
    number = 0
    for kind in kinds:
        for dtype in dtypes:
            for shape in g.shapes + ([3, 600], [600, 20], [40, 6, 30]):
                for dim in sorted({0, -1, len(shape) // 2}):
                    if (shape and shape[dim] == 0) or (not shape and dim > 0):
                        continue
                    number += 1
                    if number % 4 == 0 or (dtype == dtypes[0] and kind == kinds[0]):
                        yield g.tensor(shape, dtype, kind), dim, number % 3 == 0
    for shape, dim in (([140001], 0), ([33000, 4], 0)):
        yield g.tensor(shape, torch.float32), dim, False


def arg_of(x, dim, keep, largest):
    """First place of the best element; NaN is better than any number."""
    y = x.to(torch.float64) if x.is_floating_point() else x.to(torch.int64)
    values, places = (torch.max if largest else torch.min)(y, dim, keepdim=keep)
    return values.to(x.dtype), places


@cases("ArgMax", "ArgMin")
def arg(op, g):
    for number, (x, dim, keep) in enumerate(along(g, g.real + (torch.bool,), ("small", "edge"))):
        _, places = arg_of(x, dim, keep, op == "ArgMax")
        yield Case({"self": x, "dim": dim, "keepdim": keep},
                   {"out": Ref(places, torch.int32 if number % 4 == 0 else torch.int64)})


@cases("MaxDim", "MinDim")
def max_dim(op, g):
    for x, dim, keep in along(g, g.real + (torch.bool,), ("small", "edge")):
        values, places = arg_of(x, dim, keep, op == "MaxDim")
        yield Case({"self": x, "dim": dim, "keepdim": keep}, {"out": values, "indices": places})


@cases("Cumsum", "Cumprod")
def cumulative(op, g):
    for x, dim, _ in along(g, g.all):
        if op == "Cumprod":
            if x.numel() > 60000:
                continue
            x = factors(g, x.shape, x.dtype)
        if op == "Cumprod" and (x.is_floating_point() or x.is_complex()):
            x = (1 + (x - 1) / 64).to(x.dtype)
        dtype = torch.int64 if x.dtype in (torch.bool, *g.integers) else x.dtype
        y = (torch.cumsum if op == "Cumsum" else torch.cumprod)(wide(x), dim)
        if op == "Cumsum":
            yield Case({"self": x, "dim": dim, "dtype": dtype}, {"out": Ref(y, dtype)})
        else:
            yield Case({"input": x, "dim": Scalar(dim, torch.int64), "dtype": dtype}, {"out": Ref(y, dtype)})
    empty = g.tensor([0, 3], torch.float32)
    rest = {"self": empty, "dim": 0} if op == "Cumsum" else {"input": empty, "dim": Scalar(0, torch.int64)}
    yield Case({**rest, "dtype": torch.float32}, {"out": empty})


@cases("Cummax", "Cummin")
def cumulative_extreme(op, g):
    for x, dim, _ in along(g, g.real + (torch.bool,), ("small", "edge")):
        y = x.to(torch.float64) if x.is_floating_point() else x.to(torch.int64)
        values, places = (torch.cummax if op == "Cummax" else torch.cummin)(y, dim)
        yield Case({"self": x, "dim": dim}, {"valuesOut": values.to(x.dtype), "indicesOut": places})


@cases("Bincount")
def bincount(op, g):
    for dtype in g.integers:
        for count, least in ((0, 4), (1, 0), (300, 0), (300, 40)):
            x = g.index([count], 20, dtype)
            size = max(least, int(x.max()) + 1 if count else 0)
            yield Case({"self": x, "weights": None, "minlength": least}, {"out": torch.bincount(x, minlength=size)})
            for weight in (torch.float32, torch.float64, torch.int32):
                w = g.tensor([count], weight, "small")
                y = torch.bincount(x, w.double(), minlength=size)
                yield Case({"self": x, "weights": w, "minlength": least},
                           {"out": Ref(y, torch.float32 if weight == torch.float32 else torch.float64)})
    x = torch.tensor([0, 5, -1, 2, 2])  # what does not fit is passed over
    yield Case({"self": x, "weights": None, "minlength": 0}, {"out": torch.tensor([1, 0, 2])})


@cases("Histc")
def histc(op, g):
    for dtype in g.floating:
        for shape in ([], [0, 3], [5, 33], [66001]):
            if len(shape) == 1 and dtype != torch.float32:
                continue
            for bins, low, high_end in ((1, 0.0, 0.0), (7, 0.0, 0.0), (10, -1.0, 1.0), (64, 1.0, 1.0)):
                # Multiples of 1/2 lie clear of the edges, or on them exactly.
                x = g.tensor(shape, dtype, "small")
                y = torch.histc(x.double(), bins, low, high_end)
                if low == high_end and bins not in (1, 64):
                    x = torch.cat([x.flatten(), torch.tensor([-3.5, 3.5], dtype=dtype)]).clamp(-3.5, 3.5)
                    y = torch.histc(x.double(), bins, low, high_end)
                yield Case({"self": x, "bins": bins, "min": Scalar(low, torch.float32),
                            "max": Scalar(high_end, torch.float32)}, {"out": Ref(y, dtype)})
    for dtype in g.integers:
        for bins, low, high_end in ((1, 0, 0), (7, 0, 0), (4, 1, 9)):
            x = g.tensor([100], dtype)
            y = torch.histc(x.double(), bins, low, high_end)
            yield Case({"self": x, "bins": bins, "min": Scalar(low), "max": Scalar(high_end)},
                       {"out": Ref(y, dtype if bins != 7 else torch.int32)})
    # Beyond the precision of float32.
    x = torch.tensor([1 << 24, (1 << 24) + 1, (1 << 24) + 2], dtype=torch.int32)
    yield Case({"self": x, "bins": 2, "min": Scalar(1 << 24), "max": Scalar((1 << 24) + 2)}, {"out": torch.tensor([1, 2])})
    x = torch.tensor([float("nan"), 0.25, float("inf"), -float("inf"), 0.75])
    yield Case({"self": x, "bins": 2, "min": Scalar(0.0), "max": Scalar(1.0)}, {"out": torch.tensor([1.0, 1.0])})


@cases("Renorm")
def renorm(op, g):
    for dtype in g.floating:
        for number, shape in enumerate(([5, 33], [2, 3, 65], [0, 3], [4, 1, 6, 5], [300, 100])):
            for dim in (0, -1):
                for p in ((2.0, 1.0), (0.5, float("inf")))[number % 2]:
                    x = g.tensor(shape, dtype)
                    y = torch.renorm(x.double(), p, dim, 2.5) if x.numel() else x.double()
                    yield Case({"self": x, "p": Scalar(p, torch.float32), "dim": dim, "maxNorm": Scalar(2.5, torch.float32)},
                               {"out": Ref(y, dtype)})


@cases("Trace")
def trace(op, g):
    for dtype in g.all:
        for shape in ([5, 33], [33, 5], [1, 1], [0, 3], [400, 400]):
            x = g.tensor(shape, dtype)
            out = torch.int64 if dtype in (torch.bool, *g.integers) else dtype
            yield Case({"self": x}, {"out": Ref(wide(x).diagonal().sum(), out)})
