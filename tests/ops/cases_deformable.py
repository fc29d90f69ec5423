# SPDX-License-Identifier: Apache-2.0
"""Convolutions that read beside the places of their window, against a plain formula in float64 and PyTorch's gradients
of it."""

import torch
from torch.nn import functional

from harness import Case, Ref, cases, high

# batch, groups, deformable groups, channels in and out of each group, image, kernel, stride, padding, dilation
PROBLEMS = (
    (2, 1, 1, 3, 2, (5, 6), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    (1, 2, 4, 4, 3, (6, 5), (2, 3), (2, 1), (0, 1, 2, 0), (1, 2)),
    (3, 1, 2, 2, 1, (4, 4), (1, 1), (1, 2), (0, 0, 0, 0), (1, 1)),
    (0, 1, 1, 2, 2, (3, 3), (2, 2), (1, 1), (0, 0, 0, 0), (1, 1)),
)


def pixels(image, row, column):
    """image [N, C, H, W] at whole places [N, P]; 0 outside."""
    n, c, h, w = image.shape
    exists = (row >= 0) & (row < h) & (column >= 0) & (column < w)
    place = (row.clamp(0, h - 1) * w + column.clamp(0, w - 1)).long()
    return image.flatten(2).gather(2, place.unsqueeze(1).expand(n, c, -1)) * exists.unsqueeze(1)


def read(image, y, x):
    """image [N, C, H, W] at [N, P] places, bilinearly; 0 from one pixel outside on."""
    h, w = image.shape[2:]
    inside = (y > -1) & (x > -1) & (y < h) & (x < w)
    top, left = y.detach().floor(), x.detach().floor()
    down, right = (y - top).unsqueeze(1), (x - left).unsqueeze(1)
    value = sum(pixels(image, top + i, left + j) * (down if i else 1 - down) * (right if j else 1 - right)
                for i in (0, 1) for j in (0, 1))
    return value * inside.unsqueeze(1)


def deformed(x, offset, problem):
    """What the kernel reads: [N, C, Ho * Kh, Wo * Kw]."""
    n, groups, moved, _, _, (h, w), (kh, kw), (sh, sw), (top, _, left, _), (dh, dw) = problem
    out_h, out_w = offset.shape[2:]
    right, down, mask = offset.unflatten(1, (3, moved, kh, kw)).unbind(1)
    rows = torch.arange(out_h).view(1, 1, -1, 1) * sh - top + torch.arange(kh).view(-1, 1, 1, 1) * dh
    columns = torch.arange(out_w).view(1, 1, 1, -1) * sw - left + torch.arange(kw).view(1, -1, 1, 1) * dw
    parts = []
    for part, image in enumerate(x.chunk(moved, 1)):
        y, z = (rows + down[:, part]).flatten(1), (columns + right[:, part]).flatten(1)
        parts.append(read(image, y, z) * mask[:, part].flatten(1).unsqueeze(1))
    every = torch.cat(parts, 1).unflatten(2, (kh, kw, out_h, out_w))
    return every.permute(0, 1, 4, 2, 5, 3).reshape(n, x.shape[1], out_h * kh, out_w * kw)


def sizes_of(problem):
    *_, image, kernel, stride, padding, dilation = problem
    return [(image[i] + sum(padding[2 * i:2 * i + 2]) - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]


def inputs(g, dtype, problem):
    n, groups, moved, channels, made, image, kernel, stride, padding, dilation = problem
    out = sizes_of(problem)
    x = g.tensor([n, groups * channels, *image], dtype)
    weight = g.tensor([groups * made, channels, *kernel], dtype)
    offset = g.tensor([n, 3 * moved * kernel[0] * kernel[1], *out], torch.float32)
    offset[:, :, :1] = offset[:, :, :1].round()  # whole places, too, some of them one outside
    attributes = {"kernelSize": list(kernel), "stride": [1, 1, *stride], "padding": list(padding),
                  "dilation": [1, 1, *dilation], "groups": groups, "deformableGroups": moved, "modulated": True}
    return x, weight, offset, out, attributes


@cases("DeformableConv2d")
def deformable(op, g):
    for dtype in g.floating:
        for number, problem in enumerate(PROBLEMS):
            x, weight, offset, _, attributes = inputs(g, dtype, problem)
            bias = g.tensor([weight.shape[0]], dtype) if number % 2 == 0 else None
            kept = deformed(high(x), high(offset), problem)
            expected = functional.conv2d(kept, high(weight), None if bias is None else high(bias), problem[6], groups=problem[1])
            yield Case({"x": x, "weight": weight, "offset": offset, "biasOptional": bias} | attributes,
                       {"out": Ref(expected, dtype), "deformOutOptional": None if number == 1 else Ref(kept, dtype)})


@cases("DeformableConv2dBackward")
def deformable_backward(op, g):
    for dtype in g.floating:
        for problem in PROBLEMS:
            x, weight, offset, out, attributes = inputs(g, dtype, problem)
            wide = [high(t).requires_grad_() for t in (x, weight, offset)]
            kept = deformed(wide[0], wide[2], problem)
            stored = kept.detach().to(dtype)
            grad = g.tensor([x.shape[0], weight.shape[0], *out], dtype)
            functional.conv2d(kept, wide[1], None, problem[6], groups=problem[1]).backward(high(grad))
            # The gradient of weight is that of what was read as it was stored.
            rounded = high(weight).detach().clone().requires_grad_()
            functional.conv2d(high(stored), rounded, None, problem[6], groups=problem[1]).backward(high(grad))
            yield Case({"input": x, "gradOutput": grad, "offsetOut": stored, "weight": weight, "offset": offset} | attributes,
                       {"gradInput": Ref(wide[0].grad, dtype), "gradWeight": Ref(rounded.grad, dtype),
                        "gradOffset": Ref(wide[2].grad, torch.float32),
                        "gradBias": Ref(high(grad).sum((0, 2, 3)), torch.float32)})
