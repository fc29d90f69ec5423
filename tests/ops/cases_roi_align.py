# SPDX-License-Identifier: Apache-2.0
"""Averages over bins of boxes against plain loops over their points."""

import math

import torch

from harness import Case, Ref, cases, high


def point(plane, y, x):
    height, width = plane.shape[-2:]
    if y < -1 or y > height or x < -1 or x > width:
        return torch.zeros(plane.shape[0], dtype=plane.dtype)
    y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = y - top, x - left
    return ((1 - v) * ((1 - u) * plane[:, top, left] + u * plane[:, top, right])
            + v * ((1 - u) * plane[:, bottom, left] + u * plane[:, bottom, right]))


def roi_align(image, boxes, scale, height, width, samples, mode):
    rows = []
    for n, x1, y1, x2, y2 in boxes.tolist():
        if not 0 <= n < len(image):
            rows.append(torch.zeros(image.shape[1], height, width, dtype=image.dtype))
            continue
        shift, more, least = (0.5 if mode == 2 else 0), (1 if mode == 1 else 0), (-math.inf if mode == 2 else 1)
        x, y = x1 * scale - shift, y1 * scale - shift
        w, h = (max((end + more) * scale - shift - begin, least, 0) for end, begin in ((x2, x), (y2, y)))
        nx, ny = samples or math.ceil(w / width), samples or math.ceil(h / height)
        bins = [sum((point(image[int(n)], y + (r + (i + 0.5) / ny) * h / height, x + (c + (j + 0.5) / nx) * w / width)
                     for i in range(ny) for j in range(nx)), torch.zeros(image.shape[1], dtype=image.dtype)) / max(1, nx * ny)
                for r in range(height) for c in range(width)]
        rows.append(torch.stack(bins, -1).reshape(image.shape[1], height, width))
    return torch.stack(rows)


@cases("ROIAlign", "ROIAlignBackward")
def align(op, g):
    boxes = [[0, 1.0, 2.0, 7.0, 9.0], [1, 0.0, 0.0, 0.5, 0.25], [1, -6.0, 3.0, 30.0, 8.0], [0, 5.0, 5.0, 5.0, 5.0],
             [2, 0.0, 0.0, 4.0, 4.0], [1, 40.0, 40.0, 50.0, 50.0]]
    for dtype in g.floating:
        for mode, samples, height, width, scale in ((0, 2, 2, 3, 0.5), (1, 0, 3, 2, 0.5), (2, 0, 2, 2, 1.0), (2, 1, 1, 1, 0.25)):
            image, rois = g.tensor([2, 3, 8, 9], dtype), torch.tensor(boxes, dtype=torch.float32)
            leaf = high(image).requires_grad_()
            out = roi_align(leaf, rois, scale, height, width, samples, mode)
            numbers = {"spatialScale": scale, "pooledHeight": height, "pooledWidth": width, "sampleNum": samples,
                       "roiEndMode": mode}
            if op == "ROIAlign":
                yield Case({"self": image, "rois": rois, **numbers}, {"out": Ref(out.detach(), dtype)})
                continue
            dy = g.tensor(list(out.shape), dtype)
            of, = torch.autograd.grad(out, leaf, high(dy))
            yield Case({"self": dy, "rois": rois, "xdiffShape": list(image.shape), **numbers}, {"out": Ref(of, dtype)})
