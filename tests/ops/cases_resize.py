# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F

from harness import Case, Ref, cases, high

SIZES = (([2, 3, 5, 7], [10, 14]), ([1, 2, 9, 8], [4, 5]), ([1, 1, 6, 33], [6, 70]), ([2, 1, 1, 3], [4, 1]),
         ([0, 2, 3, 3], [6, 6]), ([1, 2, 4, 4], [1, 9]))


@cases("UpsampleNearest2d")
def nearest(op, g):
    for dtype in g.real + (torch.bool,):
        for shape, size in SIZES:
            x = g.tensor(shape, dtype)
            out = torch.ops.aten.upsample_nearest2d(x.double(), size) if shape[0] else torch.zeros(shape[:2] + size)
            yield Case({"self": x, "outputSize": size}, {"out": out.to(dtype)})


@cases("UpsampleNearestExact2d")
def nearest_exact(op, g):
    for dtype in g.real:
        for shape, size in SIZES:
            for scales in ((0.0, 0.0), (size[0] / shape[2] + 0.1, size[1] / shape[3] + 0.05)):
                x = g.tensor(shape, dtype)
                given = [scale or None for scale in scales]
                out = (torch.ops.aten._upsample_nearest_exact2d(x.double(), size, *given) if shape[0]
                       else torch.zeros(shape[:2] + size))
                yield Case({"self": x, "outputSize": size, "scalesH": scales[0], "scalesW": scales[1]},
                           {"out": out.to(dtype)})


@cases("UpsampleBilinear2d", "UpsampleBicubic2d")
def smooth(op, g):
    compute = torch.ops.aten.upsample_bilinear2d if op == "UpsampleBilinear2d" else torch.ops.aten.upsample_bicubic2d
    for dtype in g.floating:
        for shape, size in SIZES:
            for align, scales in ((False, (0.0, 0.0)), (True, (0.0, 0.0)),
                                  (False, (size[0] / shape[2] + 0.1, size[1] / shape[3] + 0.05))):
                x = g.tensor(shape, dtype)
                given = [scale or None for scale in scales]
                out = compute(high(x), size, align, *given) if shape[0] else torch.zeros(shape[:2] + size)
                # The reference computes its float64 weights in another order.
                bound = "128/1 of max" if dtype == torch.float64 else None
                yield Case({"self": x, "outputSize": size, "alignCorners": align, "scalesH": scales[0],
                            "scalesW": scales[1]}, {"out": Ref(out, dtype, bound=bound)})


@cases("GridSampler2D")
def grid_sampler(op, g):
    for dtype in g.floating:
        for shape, size in (([2, 3, 5, 7], [4, 6]), ([1, 2, 1, 9], [3, 3]), ([0, 2, 3, 3], [2, 2])):
            for mode in range(3):
                for padding in range(3):
                    for align in (False, True) if dtype == torch.float32 else (padding == 2,):
                        x = g.tensor(shape, dtype)
                        grid = (g.tensor([shape[0], *size, 2], torch.float64) * 1.2).to(dtype)
                        out = (torch.ops.aten.grid_sampler_2d(high(x), high(grid), mode, padding, align) if shape[0]
                               else torch.zeros(shape[:2] + size))
                        yield Case({"input": x, "grid": grid, "interpolationMode": mode, "paddingMode": padding,
                                    "alignCorners": align}, {"out": Ref(out, dtype)})
    far = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 0.0]).reshape(1, 1, 6, 1).expand(1, 1, 6, 2)
    x = torch.ones([1, 1, 3, 3])
    yield Case({"input": x, "grid": far.contiguous(), "interpolationMode": 1, "paddingMode": 0, "alignCorners": False},
               {"out": torch.tensor([[[[0.0, 0, 0, 0, 0, 1]]]])})


@cases("UpsampleBilinear2d", "UpsampleBicubic2d")
def tiny_scales(op, g):
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    for scale in (1e-300, 1e-30):  # every output but the first is far behind the last input
        out = torch.full([1, 1, 3, 3], 4.0)
        yield Case({"self": x, "outputSize": [3, 3], "alignCorners": False, "scalesH": scale, "scalesW": scale},
                   {"out": Ref(out, x.dtype)})
