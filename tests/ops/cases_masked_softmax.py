# SPDX-License-Identifier: Apache-2.0
"""Masked softmaxes and the pieces of a transformer around them."""

import torch
import torch.nn.functional as F

from harness import Case, Ref, cases, high

SHAPES = ([2, 3, 4, 5], [1, 2, 7, 7], [2, 1, 3, 600], [1, 1, 1, 1], [0, 2, 3, 4])


def masks(g, shape):
    """A mask and whether it is the fixed one."""
    yield g.mask(shape), False
    yield g.mask([1, 1, *shape[2:]]), False
    yield None, True


def chosen(mask, shape):
    return torch.ones(shape[2:]).triu(1).bool() if mask is None else mask


@cases("ScaledMaskedSoftmax")
def masked_softmax(op, g):
    for dtype in g.floating:
        for shape in SHAPES:
            x = g.tensor(shape, dtype)
            for mask, fixed in masks(g, shape):
                want = (high(x) * 0.75).masked_fill(chosen(mask, shape), -10000).softmax(-1)
                yield Case({"x": x, "mask": mask, "scale": 0.75, "fixedTriuMask": fixed}, {"y": Ref(want, dtype)})


@cases("ScaledMaskedSoftmaxBackward")
def masked_softmax_backward(op, g):
    for dtype in g.floating:
        for shape in SHAPES:
            y, dy = g.tensor(shape, dtype).softmax(-1), g.tensor(shape, dtype)
            for mask, fixed in masks(g, shape):
                want = 0.75 * high(y) * (high(dy) - (high(dy) * high(y)).sum(-1, keepdim=True))
                yield Case({"gradOutput": dy, "y": y, "mask": mask, "scale": 0.75, "fixTriuMask": fixed},
                           {"out": Ref(want.masked_fill(chosen(mask, shape), 0), dtype)})


@cases("MaskedSoftmaxWithRelPosBias")
def biased_softmax(op, g):
    for dtype in g.floating:
        for batch, windows, heads, steps, length in ((2, 3, 2, 4, 5), (1, 1, 1, 1, 1), (2, 1, 3, 2, 700)):
            x, bias = g.tensor([batch, windows, heads, steps, length], dtype), g.tensor([heads, steps, length], dtype)
            for mask in (None, g.tensor([windows, steps, length], dtype)):
                want = high(x) * 0.5 + high(bias)
                if mask is not None:
                    want = want + high(mask)[:, None]
                want = want.softmax(-1)
                flat = mask is None
                yield Case({"x": x.flatten(0, 1) if flat else x, "attenMaskOptional": mask, "relativePosBias": bias,
                            "scaleValue": 0.5, "innerPrecisionMode": 0}, {"out": Ref(want.flatten(0, 1) if flat else want, dtype)})


@cases("GeluMul")
def gelu_mul(op, g):
    for dtype in g.floating:
        for shape in ([4, 6], [2, 3, 1400], [2], [0, 4]):
            for mode in ("none", "tanh"):
                x = g.tensor(shape, dtype)
                left, right = high(x).chunk(2, -1)
                yield Case({"input": x, "approximateOptional": mode},
                           {"out": Ref(F.gelu(left, approximate=mode) * right, dtype)})


@cases("GeGluV3Backward")
def geglu_backward(op, g):
    for dtype in g.floating:
        for shape, dim in (([4, 6], -1), ([2, 4, 5], 1), ([3, 1200], 1), ([2, 3], 0), ([0, 4], 1)):
            for mode, on_left in ((1, False), (0, False), (1, True)):
                x = g.tensor(shape, dtype)
                leaf = high(x).requires_grad_()
                left, right = leaf.chunk(2, dim)
                active, plain = (left, right) if on_left else (right, left)
                gelu = F.gelu(active, approximate="tanh" if mode else "none")
                dy = g.tensor(list(gelu.shape), dtype)
                saved = gelu.detach().to(dtype)
                # The factor's gradient is taken from the GELU that was saved.
                of, = torch.autograd.grad(active.mul(0) + gelu * plain, leaf, high(dy))
                of = list(of.chunk(2, dim))
                of[1 if on_left else 0] = high(dy) * high(saved)
                yield Case({"gradOutput": dy, "self": x, "gelu": saved, "dim": dim, "approximate": mode,
                            "activateLeft": on_left}, {"gradInput": Ref(torch.cat(of, dim), dtype)})


@cases("TransformBiasRescaleQkv")
def split_heads(op, g):
    for dtype in g.floating:
        for batch, steps, heads, width in ((2, 3, 2, 4), (1, 1, 1, 1), (2, 5, 3, 600), (0, 2, 1, 3)):
            qkv, bias = g.tensor([batch, steps, 3 * heads * width], dtype), g.tensor([3 * heads * width], dtype)
            parts = [(p.reshape(batch, steps, heads, width).transpose(1, 2)) for p in (high(qkv) + high(bias)).chunk(3, -1)]
            parts[0] = parts[0] / width**0.5
            yield Case({"qkv": qkv, "qkvBias": bias, "numHeads": heads},
                       dict(zip(("qOut", "kOut", "vOut"), (Ref(p, dtype) for p in parts))))
