# SPDX-License-Identifier: Apache-2.0
"""Shuffled channels, transposes with a new shape, slices with masks, chunks side by side, diagonals, powers."""

import torch

from harness import Case, Ref, Scalar, cases


@cases("ChannelShuffle")
def channel_shuffle(op, g):
    for dtype in g.all:
        for shape, groups in (([2, 6, 5], 3), ([1, 4, 3, 3], 2), ([2, 4, 0], 2), ([2, 5, 7], 1), ([3, 4, 2, 1, 3], 4)):
            x = g.tensor(shape, dtype)
            n, c = shape[:2]
            y = x.reshape([n, groups, c // groups] + shape[2:]).transpose(1, 2).reshape(shape)
            yield Case({"self": x, "groups": groups}, {"out": y})


@cases("ConfusionTranspose")
def confusion_transpose(op, g):
    for dtype in g.all:
        for shape, perm, new in (([2, 3, 4], [1, 0, 2], [3, 8]), ([6], [0], [2, 3]), ([4, 1, 3], [2, 0, 1], [12]),
                                 ([0, 3], [1, 0], [3, 0])):
            x = g.tensor(shape, dtype)
            yield Case({"x": x, "perm": perm, "shape": new, "transpose_first": True},
                       {"out": x.permute(perm).reshape(new)})
            yield Case({"x": x.reshape(new), "perm": perm, "shape": shape, "transpose_first": False},
                       {"out": x.permute(perm).contiguous()})


@cases("StridedSlice")
def strided_slice(op, g):
    masks = {"beginMask": 0, "endMask": 0, "ellipsisMask": 0, "newAxisMask": 0, "shrinkAxisMask": 0}
    for dtype in g.all:
        x = g.tensor([4, 6, 5], dtype)
        for begin, end, strides, changed, expected in (
                ([1], [3], [1], {}, x[1:3]),
                ([0, -4], [4, -1], [2, 1], {}, x[0:4:2, -4:-1]),
                ([2, 1, 0], [0, 5, 9], [1, 3, 2], {"endMask": 1}, x[2:, 1:5:3, 0:9:2]),
                ([3, 1], [1, 2], [1, 1], {"beginMask": 1, "shrinkAxisMask": 2}, x[:1, 1]),
                ([0, 1], [0, 3], [1, 1], {"ellipsisMask": 1}, x[..., 1:3]),
                ([1, 0, -1], [2, 0, 0], [1, 1, 1], {"ellipsisMask": 2, "shrinkAxisMask": 5}, x[1, ..., -1]),
                ([0, 1], [0, 3], [1, 1], {"newAxisMask": 1}, x[None, 1:3]),
                ([3], [1], [1], {}, x[3:1]),
                ([], [], [], {}, x)):
            yield Case({"self": x, "begin": begin, "end": end, "strides": strides, **masks, **changed},
                       {"out": expected.contiguous()})


@cases("ChunkCat")
def chunk_cat(op, g):
    for dtype in g.real:
        for shapes, dim, chunks in (([[5, 3], [2, 3]], 0, 2), ([[3, 4, 2], [3, 7]], 1, 3), ([[1]], 0, 4),
                                    ([[2, 9], [2, 9], [2, 1]], -1, 4)):
            x = [g.tensor(shape, dtype) for shape in shapes]
            axis = dim % len(shapes[0])
            yield Case({"tensors": x, "dim": dim, "numChunks": chunks}, {"out": torch._chunk_cat(x, axis, chunks)})
    half = [g.tensor([5, 3], torch.bfloat16), g.tensor([4], torch.bfloat16)]
    yield Case({"tensors": half, "dim": 0, "numChunks": 2},
               {"out": torch._chunk_cat([item.float() for item in half], 0, 2)})


@cases("InplaceFillDiagonal")
def fill_diagonal(op, g):
    for dtype in g.all:
        for shape in ([3, 3], [2, 5], [7, 3], [8, 3], [11, 2], [9, 1], [3, 3, 3], [0, 4]):
            for wrap in (False, True):
                x = g.tensor(shape, dtype)
                y = x.clone().fill_diagonal_(1, wrap) if x.numel() else x
                yield Case({"selfRef": x, "fillValue": Scalar(1, torch.int64), "wrap": wrap}, {"selfRef": y})


@cases("LogSpace")
def logspace(op, g):
    for dtype in g.real:
        for start, end, steps in ((0.0, 2.0, 5), (3.0, 1.0, 4), (1.0, 1.0, 1), (0.0, 4.0, 0), (0.0, 6.0, 300)):
            for base in (10.0, 2.0) if dtype.is_floating_point else (2.0,):
                if dtype == torch.float16 and base == 10.0 and end > 4:
                    continue
                if dtype.is_floating_point:
                    y = Ref(torch.logspace(start, end, steps, base, dtype=torch.float64), dtype)
                else:
                    y = torch.logspace(start, end, steps, base, dtype=torch.float64)
                    y = (y + 1e-9).to(dtype)
                yield Case({"start": Scalar(start, torch.float64), "end": Scalar(end, torch.float64), "steps": steps,
                            "base": base}, {"result": y})
