# SPDX-License-Identifier: Apache-2.0
"""Sampling at points with its gradients, affine points, sums of windows, gradients of a convolution of sequences."""

import torch
from torch.nn import functional

from harness import Case, Ref, cases, high

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


def points(g, shape, dtype, nearest):
    """Points in and around the image; for the nearest mode none that is as near to two elements."""
    grid = g.tensor(shape, torch.float64) * 0.9
    if nearest:
        grid = (grid * 16).round() / 16 + 0.01
    return grid.to(dtype)


def samplings(g, dims):
    sizes = (([2, 3, 5, 7], [4, 3]), ([1, 10, 2, 1], [6, 1]), ([2, 1, 1, 4], [3, 2])) if dims == 2 else (
        ([2, 3, 3, 4, 5], [2, 3, 3]), ([1, 9, 1, 2, 1], [2, 2, 1]))
    number = 0
    for dtype in g.floating:
        for size, out in sizes:
            for mode in range(3 if dims == 2 else 2):
                for padding in range(3):
                    number += 1
                    x = g.tensor(size, dtype)
                    grid = points(g, [size[0], *out, dims], dtype, mode == 1)
                    yield x, grid, mode, padding, number % 2 == 0


def sampled(x, grid, mode, padding, corners):
    return functional.grid_sample(x, grid, MODES[mode], PADDINGS[padding], corners)


@cases("GridSampler3D")
def grid_sampler(op, g):
    for x, grid, mode, padding, corners in samplings(g, 3):
        if mode == 1 and x.dtype in (torch.float16, torch.bfloat16):
            continue  # points are as near to two elements after rounding
        y = sampled(high(x), high(grid), mode, padding, corners)
        yield Case({"input": x, "grid": grid, "interpolationMode": mode, "paddingMode": padding,
                    "alignCorners": corners}, {"out": Ref(y, x.dtype)})
    nan = torch.full([1, 1, 1, 1, 3], float("nan"))
    yield Case({"input": torch.ones([1, 2, 2, 2, 2]), "grid": nan, "interpolationMode": 0, "paddingMode": 0,
                "alignCorners": False}, {"out": torch.zeros([1, 2, 1, 1, 1])})


@cases("GridSampler2DBackward", "GridSampler3DBackward")
def grid_sampler_backward(op, g):
    dims = 2 if "2D" in op else 3
    for number, (x, grid, mode, padding, corners) in enumerate(samplings(g, dims)):
        if x.dtype in (torch.float16, torch.bfloat16) and mode == 1:
            continue
        wide = high(x).requires_grad_(), high(grid).requires_grad_()
        y = sampled(*wide, mode, padding, corners)
        grad = g.tensor(list(y.shape), x.dtype)
        of_input, of_grid = torch.autograd.grad(y, wide, high(grad), allow_unused=True)
        of_grid = torch.zeros_like(wide[1]) if of_grid is None else of_grid
        wanted = [(True, True), (True, True), (True, False), (False, True)][number % 4]
        yield Case({"gradOutput": grad, "input": x, "grid": grid, "interpolationMode": mode, "paddingMode": padding,
                    "alignCorners": corners, "outputMask": list(wanted)},
                   {"inputGrad": Ref(of_input, x.dtype) if wanted[0] else None,
                    "gridGrad": Ref(of_grid, x.dtype) if wanted[1] else None})


@cases("AffineGrid")
def affine_grid(op, g):
    for dtype in g.floating:
        for size in ([2, 3, 4, 5], [1, 1, 1, 1], [2, 1, 3, 4, 5], [1, 2, 1, 6, 2]):
            for corners in (False, True):
                dims = len(size) - 2
                theta = g.tensor([size[0], dims, dims + 1], dtype)
                y = functional.affine_grid(high(theta), size, align_corners=corners)
                yield Case({"theta": theta, "size": size, "alignCorners": corners}, {"out": Ref(y, dtype)})


@cases("Im2colBackward")
def fold(op, g):
    windows = (([5, 7], [2, 3], [1, 1], [0, 0], [1, 1]), ([6, 6], [3, 3], [1, 2], [1, 2], [2, 1]),
               ([4, 1], [4, 1], [1, 1], [0, 0], [3, 2]))
    for dtype in g.floating:
        for size, kernel, dilation, padding, stride in windows:
            args = dict(kernel_size=kernel, dilation=dilation, padding=padding, stride=stride)
            for batch in ([2, 3], [3], [0, 2]):
                shape = batch + size
                places = functional.unfold(torch.zeros([1, 1] + size), **args).shape[-1]
                grad = g.tensor(batch[:-1] + [batch[-1] * kernel[0] * kernel[1], places], dtype)
                y = functional.fold(high(grad), size, **args) if batch[0] else torch.zeros(shape)
                yield Case({"gradOutput": grad, "inputSize": size, "kernelSize": kernel, "dilation": dilation,
                            "padding": padding, "stride": stride}, {"out": Ref(y, dtype)})


@cases("UnfoldGrad")
def unfold_grad(op, g):
    for dtype in g.floating:
        for shape, dim, size, step in (([9], 0, 3, 1), ([9], 0, 3, 4), ([2, 20, 3], 1, 7, 2), ([4, 5], -1, 5, 1),
                                       ([0, 6], 1, 2, 2), ([3, 8], 0, 1, 1)):
            wide = torch.zeros(shape, dtype=torch.float64).requires_grad_()
            y = wide.unfold(dim, size, step)
            grad = g.tensor(list(y.shape), dtype)
            (expected,) = torch.autograd.grad(y, wide, high(grad))
            yield Case({"gradOut": grad, "inputSizes": shape, "dim": dim, "size": size, "step": step},
                       {"gradIn": Ref(expected, dtype)})


@cases("ConvTbcBackward")
def conv_tbc_backward(op, g):
    for dtype in g.floating:
        for t, b, c, k, o, pad in ((7, 2, 3, 3, 4, 0), (5, 1, 2, 3, 1, 2), (4, 3, 5, 1, 2, 1), (3, 2, 1, 5, 3, 1),
                                   (6, 0, 2, 2, 3, 0)):
            x, w, bias = g.tensor([t, b, c], dtype), g.tensor([k, c, o], dtype), g.tensor([o], dtype)
            wide = [high(value).requires_grad_() for value in (x, w, bias)]
            y = torch.conv_tbc(*wide, pad=pad)
            grad = g.tensor(list(y.shape), dtype)
            gradients = torch.autograd.grad(y, wide, high(grad))
            names = ("gradInput", "gradWeight", "gradBias")
            yield Case({"self": grad, "input": x, "weight": w, "bias": bias, "pad": pad, "cubeMathType": 1},
                       {name: Ref(value, dtype) for name, value in zip(names, gradients)})
