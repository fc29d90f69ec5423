# SPDX-License-Identifier: Apache-2.0
"""Norms of sums, norms with an activation."""

import torch
import torch.nn.functional as F

from harness import Case, Ref, cases, high

ROWS = (([5, 33], 1), ([2, 3, 65], 2), ([4, 1, 6], 1), ([700], 1), ([0, 7], 1))


def wide(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def statistics_of(x, count, eps):
    dims = list(range(x.dim() - count, x.dim()))
    mean = x.mean(dims, keepdim=True)
    return mean, ((x - mean).square().mean(dims, keepdim=True) + eps).rsqrt()


@cases("FastLayerNorm")
def fast_layer_norm(op, g):
    for dtype in g.floating:
        for shape, count in ROWS:
            x, inner = g.tensor(shape, dtype), shape[len(shape) - count:]
            weight, bias = (g.tensor(inner, dtype) for _ in range(2))
            out, mean, rstd = torch.native_layer_norm(high(x), inner, high(weight), high(bias), 1e-5)
            yield Case({"input": x, "normalizedShape": inner, "weightOptional": weight, "biasOptional": bias, "eps": 1e-5},
                       {"out": Ref(out, dtype), "meanOutOptional": Ref(mean, wide(dtype)),
                        "rstdOutOptional": Ref(rstd, wide(dtype))})


@cases("AddLayerNorm")
def add_layer_norm(op, g):
    for dtype in g.floating:
        for number, (shape, count) in enumerate(ROWS):
            for additional in (True, False):
                x1, x2 = g.tensor(shape, dtype), g.tensor(shape, dtype)
                inner = shape[len(shape) - count:]
                gamma, beta = g.tensor(inner, wide(dtype)), g.tensor(inner, dtype)
                bias = (None, g.tensor(inner, dtype), g.tensor(shape, dtype))[number % 3]
                total = high(x1) + high(x2) + (0 if bias is None else high(bias))
                mean, rstd = statistics_of(total, count, 1e-5)
                out = (total - mean) * rstd * high(gamma) + high(beta)
                yield Case({"x1": x1, "x2": x2, "gamma": gamma, "beta": beta, "biasOptional": bias, "epsilon": 1e-5,
                            "additionalOutput": additional},
                           {"yOut": Ref(out, dtype), "meanOut": Ref(mean, wide(dtype)), "rstdOut": Ref(rstd, wide(dtype)),
                            "xOut": Ref(total, dtype) if additional else None})


@cases("AddLayerNormGrad")
def add_layer_norm_grad(op, g):
    for dtype in g.floating:
        for number, (shape, count) in enumerate(ROWS):
            x1, x2, dy = (g.tensor(shape, dtype) for _ in range(3))
            inner = shape[len(shape) - count:]
            gamma = g.tensor(inner, wide(dtype))
            dsum = g.tensor(shape, dtype) if number % 2 else None
            total = (high(x1) + high(x2)).requires_grad_()
            scale, shift = high(gamma).requires_grad_(), torch.zeros(inner).double().requires_grad_()
            out = F.layer_norm(total, inner, scale, shift, 1e-5)
            dx, dgamma, dbeta = torch.autograd.grad(out, (total, scale, shift), high(dy))
            mean, rstd = (t.detach().to(wide(dtype)) for t in statistics_of(total, count, 1e-5))
            yield Case({"dy": dy, "x1": x1, "x2": x2, "rstd": rstd, "mean": mean, "gamma": gamma, "dsumOptional": dsum},
                       {"dxOut": Ref(dx if dsum is None else dx + high(dsum), dtype), "dgammaOut": Ref(dgamma, wide(dtype)),
                        "dbetaOut": Ref(dbeta, wide(dtype))})


@cases("AddRmsNormCast")
def add_rms_norm_cast(op, g):
    for dtype in g.floating:
        for shape, count in ROWS:
            x1, x2 = g.tensor(shape, dtype), g.tensor(shape, dtype)
            gamma = g.tensor(shape[len(shape) - count:], dtype)
            total = (high(x1) + high(x2)).to(dtype)
            dims = list(range(len(shape) - count, len(shape)))
            rstd = (high(total).square().mean(dims, keepdim=True) + 1e-6).rsqrt()
            out = high(total) * rstd * high(gamma)
            # y1Out has the rounding of y2Out: two steps of its type.
            steps = max(8, 2 * round(torch.finfo(dtype).eps / torch.finfo(wide(dtype)).eps))
            yield Case({"x1": x1, "x2": x2, "gamma": gamma, "epsilon": 1e-6},
                       {"y1Out": Ref(out.to(dtype), wide(dtype), bound=f"{steps}/0 of max"),
                        "y2Out": Ref(out, dtype), "rstdOut": Ref(rstd, wide(dtype)), "xOut": total})


@cases("GemmaRmsNorm")
def gemma(op, g):
    for dtype in g.floating:
        for shape, count in ROWS:
            x, gamma = g.tensor(shape, dtype), g.tensor(shape[len(shape) - count:], dtype)
            dims = list(range(len(shape) - count, len(shape)))
            rstd = (high(x).square().mean(dims, keepdim=True) + 1e-6).rsqrt()
            yield Case({"x": x, "gamma": gamma, "epsilon": 1e-6},
                       {"yOut": Ref(high(x) * rstd * (1 + high(gamma)), dtype), "rstdOut": Ref(rstd, wide(dtype))})


GROUPS = (([2, 6, 5, 4], 3), ([1, 4, 300], 1), ([3, 32], 4), ([2, 4, 2, 3, 2], 2), ([0, 4, 3], 2))


def swish(x, scale):
    return x * torch.sigmoid(scale * x)


@cases("GroupNormSilu", "GroupNormSwish")
def group_norm_swish(op, g):
    for dtype in g.floating:
        for number, (shape, groups) in enumerate(GROUPS):
            x, channels = g.tensor(shape, dtype), shape[1]
            gamma, beta = (g.tensor([channels], dtype) if number != 1 else None for _ in range(2))
            size = x.numel() // max(1, shape[0] * channels)
            out, mean, rstd = torch.native_group_norm(high(x), None if gamma is None else high(gamma),
                                                      None if beta is None else high(beta), shape[0], channels, size,
                                                      groups, 1e-5)
            statistics = {"meanOut": Ref(mean, wide(dtype)), "rstdOut": Ref(rstd, dtype)}
            if op == "GroupNormSilu":
                yield Case({"self": x, "gamma": gamma, "beta": beta, "group": groups, "eps": 1e-5},
                           {"out": Ref(swish(out, 1), dtype), **statistics})
                continue
            for active, scale in ((True, 1.5), (False, 1.0)):
                yield Case({"x": x, "gamma": gamma, "beta": beta, "numGroups": groups, "dataFormatOptional": "NCHW",
                            "eps": 1e-5, "activateSwish": active, "swishScale": scale},
                           {"yOut": Ref(swish(out, scale) if active else out, dtype), **statistics})


@cases("GroupNormSwishGrad")
def group_norm_swish_grad(op, g):
    for dtype in g.floating:
        for number, (shape, groups) in enumerate(GROUPS[:4]):
            x, dy, channels = g.tensor(shape, dtype), g.tensor(shape, dtype), shape[1]
            gamma, beta = (g.tensor([channels], dtype) for _ in range(2))
            leaves = [high(t).requires_grad_() for t in (x, gamma, beta)]
            size = x[0, 0].numel()
            _, mean, rstd = torch.native_group_norm(high(x), None, None, shape[0], channels, size, groups, 1e-5)
            out = swish(F.group_norm(leaves[0], groups, leaves[1], leaves[2], 1e-5), 1.25)
            dx, dgamma, dbeta = torch.autograd.grad(out, leaves, high(dy))
            wanted = number != 2, number != 3
            yield Case({"dy": dy, "mean": mean.to(wide(dtype)), "rstd": rstd.to(wide(dtype)), "x": x, "gamma": gamma,
                        "beta": beta, "numGroups": groups, "dataFormatOptional": "NCHW", "swishScale": 1.25,
                        "dgammaIsRequire": wanted[0], "dbetaIsRequire": wanted[1]},
                       {"dxOut": Ref(dx, dtype), "dgammaOut": Ref(dgamma, wide(dtype)) if wanted[0] else None,
                        "dbetaOut": Ref(dbeta, wide(dtype)) if wanted[1] else None})
