# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation in pieces."""

import torch

from harness import Case, Ref, cases, high

SHAPES = ([4, 3, 5, 6], [9, 5], [2, 2, 700], [2, 3, 2, 3, 4], [8, 40, 1])


def wide(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def others(x):
    return [d for d in range(x.dim()) if d != 1]


def along(x, values):
    return high(values).reshape([-1 if d == 1 else 1 for d in range(x.dim())])


def statistics(x, eps=1e-5):
    return high(x).mean(others(x)), (high(x).var(others(x), unbiased=False) + eps).rsqrt()


@cases("BatchNormStats", "BatchNormReduce")
def of_one(op, g):
    for dtype in g.floating:
        for shape in SHAPES:
            x = g.tensor(shape, dtype)
            if op == "BatchNormStats":
                mean, invstd = statistics(x)
                yield Case({"input": x, "eps": 1e-5}, {"mean": Ref(mean, wide(dtype)), "invstd": Ref(invstd, wide(dtype))})
            else:
                yield Case({"x": x}, {"sum": Ref(high(x).sum(others(x)), wide(dtype)),
                                      "squareSum": Ref(high(x).square().sum(others(x)), wide(dtype))})


@cases("BatchNormElemt")
def elemt(op, g):
    for dtype in g.floating:
        for number, shape in enumerate(SHAPES):
            x = g.tensor(shape, dtype)
            weight, bias = (g.tensor(shape[1:2], wide(dtype)) if number != 1 else None for _ in range(2))
            mean, invstd = g.tensor(shape[1:2], wide(dtype)), g.tensor(shape[1:2], wide(dtype), "positive")
            out = (high(x) - along(x, mean)) * along(x, invstd)
            if weight is not None:
                out = out * along(x, weight) + along(x, bias)
            yield Case({"input": x, "weight": weight, "bias": bias, "mean": mean, "invstd": invstd, "eps": 1e-5},
                       {"output": Ref(out, dtype)})


@cases("BatchNormReduceBackward")
def reduce_backward(op, g):
    for dtype in g.floating:
        for number, shape in enumerate(SHAPES):
            x, dy = g.tensor(shape, dtype), g.tensor(shape, dtype)
            mean, invstd = (t.to(wide(dtype)) for t in statistics(x))
            product = (high(dy) * (high(x) - along(x, mean))).sum(others(x))
            asked = ((True, True, True), (True, False, False), (False, True, False))[number % 3]
            plain = high(dy).sum(others(x))
            results = zip(("sumDy", "sumDyXmu", "gradWeight", "gradBias"),
                          (plain, product, product * high(invstd), plain), (asked[0], *asked))
            yield Case({"gradOut": dy, "input": x, "mean": mean, "invstd": invstd, "weight": None, "inputG": asked[0],
                        "weightG": asked[1], "biasG": asked[2]},
                       {name: Ref(value, wide(dtype)) if wanted else None for name, value, wanted in results})


@cases("BatchNormElemtBackward")
def elemt_backward(op, g):
    """With the sums of the tensor itself this is the gradient of the batch normalisation."""
    for dtype in g.floating:
        for number, shape in enumerate(SHAPES):
            x, dy = g.tensor(shape, dtype), g.tensor(shape, dtype)
            weight = g.tensor(shape[1:2], wide(dtype)) if number != 1 else None
            leaf = high(x).requires_grad_()
            out = torch.batch_norm(leaf, None if weight is None else high(weight), None, None, None, True, 0.1, 1e-5, False)
            dx, = torch.autograd.grad(out, leaf, high(dy))
            mean, invstd = (t.double().to(wide(dtype)) for t in statistics(x))
            count = x.numel() // shape[1]
            sum_dy = high(dy).sum(others(x)).to(wide(dtype))
            product = (high(dy) * (high(x) - along(x, mean))).sum(others(x)).to(wide(dtype))
            counter = torch.tensor([count] if number % 2 else [1, count - 1], dtype=torch.int32)
            yield Case({"gradOut": dy, "input": x, "mean": mean, "invstd": invstd, "weight": weight, "sumDy": sum_dy,
                        "sumDyXmu": product, "counter": counter}, {"gradInput": Ref(dx, dtype)})


PARTS = ([3, 5], [40], [1, 2, 600, 7])


@cases("BatchNormGatherStatsWithCounts", "SyncBatchNormGatherStats")
def gather(op, g):
    for dtype in (torch.float32, torch.float64):
        for number, counts in enumerate(PARTS):
            channels = (3, 70, 1)[number]
            parts = [g.tensor([n, channels], torch.float64) for n in counts]
            union = torch.cat(parts)
            running = g.tensor([channels], dtype), g.tensor([channels], dtype, "positive")
            moved = [high(t).clone() for t in running]
            _, mean, invstd = torch.native_batch_norm(union, None, None, *moved, True, 0.25, 2**-10)
            has_running = number != 1
            if op.startswith("Sync"):
                given = {"totalSum": torch.stack([p.sum(0) for p in parts]).to(dtype),
                         "totalSquareSum": torch.stack([p.square().sum(0) for p in parts]).to(dtype),
                         "sampleCount": torch.tensor(counts, dtype=torch.int32)}
                names = "mean", "variance", "batchMean", "batchInvstd"
            else:
                pairs = [statistics(p, 2**-10) for p in parts]
                given = {"input": g.tensor([2, channels], dtype), "mean": torch.stack([m for m, _ in pairs]).to(dtype),
                         "invstd": torch.stack([s for _, s in pairs]).to(dtype),
                         "counts": torch.tensor(counts, dtype=dtype)}
                names = "runningMean", "runningVar", "meanAll", "invstdAll"
            results = dict(zip(names, (*(Ref(t, dtype) if has_running else None for t in moved), Ref(mean, dtype),
                                       Ref(invstd, dtype))))
            given.update(zip(names, running if has_running else (None, None)))
            yield Case({**given, "momentum": 0.25, "eps": 2**-10}, results)
