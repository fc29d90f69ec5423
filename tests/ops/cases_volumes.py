# SPDX-License-Identifier: Apache-2.0
"""Resizes, pools and padding of rows, planes and volumes, and their gradients, against those that PyTorch derives."""

import torch
from torch.nn import functional

from harness import Case, Ref, cases, high

SPATIAL = {1: [7], 2: [6, 9], 3: [4, 5, 6]}
BATCHES = ([2, 3], [1, 1])


def derived(function, grad, x):
    leaf = high(x).clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, high(grad))[0]


# ---- Resizes ----

SIZES = {1: ([11], [3], [7], [14]), 2: ([11, 4], [6, 9], [3, 20]), 3: ([7, 3, 11], [4, 5, 6], [2, 10, 3])}
MODES = {"Nearest": "nearest", "NearestExact": "nearest-exact", "Linear": "linear", "Bilinear": "bilinear",
         "Trilinear": "trilinear", "Bicubic": "bicubic"}
FORWARD = ("UpsampleNearest1d", "UpsampleNearest1dV2", "UpsampleNearestExact1d", "UpsampleNearest2dV2", "UpsampleNearest3d",
           "UpsampleNearestExact3d", "UpsampleLinear1d", "UpsampleTrilinear3d", "UpsampleBilinear2dAA", "UpsampleBicubic2dAA")
BACKWARD = ("UpsampleBicubic2dBackward", "UpsampleBicubic2dAAGrad", "UpsampleBilinear2dAABackward",
            "UpsampleBilinear2dBackward", "UpsampleBilinear2dBackwardV2", "UpsampleLinear1dBackward",
            "UpsampleNearest1dBackward", "UpsampleNearestExact1dBackward", "UpsampleNearest2dBackward",
            "UpsampleNearestExact2dBackward", "UpsampleNearest3dBackward", "UpsampleNearestExact3dBackward",
            "UpsampleTrilinear3dBackward")


def form(op):
    """Number of dims, mode, whether it is antialiased."""
    dims = next(d for d in (1, 2, 3) if f"{d}d" in op)
    return dims, MODES[op.removeprefix("Upsample").partition(f"{dims}d")[0]], "AA" in op


def resize(op, size, align):
    _, mode, antialias = form(op)
    more = {} if "nearest" in mode else {"align_corners": align}
    return lambda x: functional.interpolate(x, size=size, mode=mode, antialias=antialias, **more)


def scales(op, given=None):
    """Values of the attributes that scale."""
    dims, _, _ = form(op)
    names = {"UpsampleNearest1d": (), "UpsampleNearest1dV2": ("scaleL",), "UpsampleLinear1d": ("scale",)}.get(
        op, ("scales",) if dims == 1 else ("scalesD", "scalesH", "scalesW")[3 - dims:])
    return {name: given[d] if given else 0.0 for d, name in enumerate(names)}


def alignments(op):
    return (False, True) if "nearest" not in form(op)[1] else (False,)


@cases(*FORWARD)
def resizes(op, g):
    dims, mode, _ = form(op)
    name = {"UpsampleBilinear2dAA": "input", "UpsampleBicubic2dAA": "x"}.get(op, "self")
    for dtype in g.floating + ((torch.uint8, torch.int64, torch.bool) if "nearest" in mode else ()):
        for size in SIZES[dims]:
            for align in alignments(op):
                x = g.tensor(BATCHES[0] + SPATIAL[dims], dtype)
                expected = resize(op, size, align)(high(x) if dtype.is_floating_point else x.float())
                args = {name: x, "outputSize": size, **scales(op)}
                if "nearest" not in mode:
                    args["alignCorners"] = align
                yield Case(args, {"out": Ref(expected, dtype)})
    if scales(op) and "AA" not in op:
        x, size, given = g.tensor([1, 2] + SPATIAL[dims], torch.float32), [2 * s for s in SPATIAL[dims]], [2.25] * dims
        more = {} if "nearest" in mode else {"align_corners": False}
        expected = functional.interpolate(high(x), scale_factor=given, mode=mode, recompute_scale_factor=False, **more)
        args = {name: x, "outputSize": list(expected.shape[2:]), **scales(op, given)}
        if more:
            args["alignCorners"] = False
        yield Case(args, {"out": Ref(expected, torch.float32)})


@cases(*BACKWARD)
def resize_gradients(op, g):
    dims, mode, _ = form(op)
    grad_name = "gradOutput" if op in ("UpsampleBilinear2dAABackward", "UpsampleBicubic2dAAGrad", "UpsampleNearestExact1dBackward",
                                       "UpsampleNearestExact2dBackward") else "gradOut"
    out = "gradInput" if op in ("UpsampleBicubic2dBackward", "UpsampleNearest2dBackward", "UpsampleNearest3dBackward",
                                "UpsampleNearestExact3dBackward", "UpsampleTrilinear3dBackward") else "out"
    for dtype in g.floating:
        for number, size in enumerate(SIZES[dims]):
            for align in alignments(op):
                shape = BATCHES[number % 2] + SPATIAL[dims]
                grad = g.tensor(BATCHES[number % 2] + size, dtype)
                expected = derived(resize(op, size, align), grad, torch.zeros(shape))
                args = {grad_name: grad, "outputSize": size, "inputSize": shape, **scales(op)}
                if "nearest" not in mode:
                    args["alignCorners"] = align
                yield Case(args, {out: Ref(expected, dtype)})


# ---- Padding ----

PADS = {1: ([2, 3], [0, 0], [-1, 2]), 2: ([1, 2, 3, 0], [-1, 2, 0, -2]), 3: ([1, 2, 0, 3, 2, 1], [-1, 0, 2, -1, 0, 3])}
FORWARD_PADS = ("ReflectionPad3d", "ReplicationPad1d", "ReplicationPad3d")
BACKWARD_PADS = [f"{kind}Pad{d}dBackward" for kind in ("Reflection", "Replication") for d in (1, 2, 3)]


def pad(op, padding):
    mode = "reflect" if "Reflection" in op else "replicate"
    return lambda x: functional.pad(x, padding, mode=mode)


@cases(*FORWARD_PADS)
def pads(op, g):
    dims = int(op[-2])
    for dtype in g.all:
        for number, padding in enumerate(PADS[dims]):
            shape = ([2, 3] if number % 2 else [3]) + SPATIAL[dims]
            x = g.tensor(shape, dtype)
            wide = x if dtype.is_floating_point or dtype.is_complex else x.double()
            yield Case({"self": x, "padding": padding}, {"out": Ref(pad(op, padding)(wide), dtype)})


@cases(*BACKWARD_PADS)
def pad_gradients(op, g):
    dims = int(op[op.index("Pad") + 3])
    for dtype in g.floating:
        for number, padding in enumerate(PADS[dims]):
            shape = ([2, 3] if number % 2 else [3]) + SPATIAL[dims]
            function = pad(op, padding)
            grad = g.tensor(list(function(torch.zeros(shape)).shape), dtype)
            yield Case({"gradOutput": grad, "self": torch.zeros(shape, dtype=dtype), "padding": padding},
                       {"gradInput": Ref(derived(function, grad, torch.zeros(shape)), dtype)})


# ---- Average pools ----

WINDOWS = (  # kernel, stride, padding, ceil, counts padding, divisor
    (2, [], 0, False, True, 0),
    (3, 2, 1, True, False, 0),
    (3, 2, 1, True, True, 0),
    (2, 3, 1, False, True, 5),
)


@cases("AvgPool2dBackward", "AvgPool3d", "AvgPool3dBackward")
def average_pools(op, g):
    dims = 2 if "2d" in op else 3
    pool = functional.avg_pool2d if dims == 2 else functional.avg_pool3d
    for dtype in g.floating:
        for number, (kernel, stride, padding, ceil, counts, divisor) in enumerate(WINDOWS):
            def function(x):
                return pool(x, kernel, stride or None, padding, ceil, counts, divisor or None)
            shape = ([2, 3] if number % 2 else [3]) + SPATIAL[dims]
            x = g.tensor(shape, dtype)
            args = {"self": x, "kernelSize": [kernel] * dims, "stride": [stride] * dims if stride else [],
                    "padding": [padding], "ceilMode": ceil, "countIncludePad": counts, "divisorOverride": divisor}
            if op == "AvgPool3d":
                yield Case(args, {"out": Ref(function(high(x)), dtype)})
                continue
            grad = g.tensor(list(function(high(x)).shape), dtype)
            if dims == 2:
                args["cubeMathType"] = 0
            yield Case({"gradOutput": grad, **args},
                       {"gradInput" if dims == 2 else "output": Ref(derived(function, grad, x), dtype)})


@cases("AdaptiveAvgPool3dBackward")
def adaptive_average(op, g):
    for dtype in g.floating:
        for size in ([2, 3, 4], [1, 1, 1], [5, 7, 6]):
            x = g.tensor([2, 3, 4, 5, 6], dtype)
            grad = g.tensor([2, 3] + size, dtype)
            expected = derived(lambda t: functional.adaptive_avg_pool3d(t, size), grad, x)
            yield Case({"gradOutput": grad, "self": x}, {"out": Ref(expected, dtype)})


# ---- Maximum pools ----

def adaptive_max(dims):
    return functional.adaptive_max_pool2d if dims == 2 else functional.adaptive_max_pool3d


@cases("AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AdaptiveMaxPool2dBackward", "AdaptiveMaxPool3dBackward")
def adaptive_maximum(op, g):
    dims = 2 if "2d" in op else 3
    for dtype in g.floating:
        for number, size in enumerate(([2, 3, 4], [1, 1, 1], [5, 7, 6])):
            size, index = size[:dims], (torch.int64, torch.int32)[number % 2]
            x = g.tensor(([2, 3] if number % 2 else [3]) + SPATIAL[dims], dtype, "small")
            if number == 2:
                x.view(-1)[::7] = float("nan")
            values, indices = adaptive_max(dims)(x, size, return_indices=True)
            if not op.endswith("Backward"):
                yield Case({"self": x, "outputSize": size}, {"outputOut": values, "indicesOut": Ref(indices, index)})
                continue
            grad = g.tensor(list(values.shape), dtype)
            yield Case({"gradOutput": grad, "self": x, "indices": indices.to(index)},
                       {"gradInput": Ref(scattered(x, indices, high(grad), dims), dtype)})


def scattered(x, indices, values, dims):
    flat = torch.zeros(list(x.shape[:-dims]) + [x.shape[-dims:].numel()], dtype=torch.float64)
    flat.scatter_add_(-1, indices.flatten(-dims), values.flatten(-dims))
    return flat.reshape(x.shape)


MAX_WINDOWS = (  # kernel, stride, padding, dilation, ceil
    (2, [], 0, 1, False),
    (3, 2, 1, 1, True),
    (2, 1, 1, 2, False),
)


def max_windows(g, dims):
    for dtype in g.floating:
        for number, (kernel, stride, padding, dilation, ceil) in enumerate(MAX_WINDOWS):
            x = g.tensor(([2, 3] if number % 2 else [3]) + SPATIAL[dims], dtype, "small")
            pool = functional.max_pool2d if dims == 2 else functional.max_pool3d
            values, indices = pool(x, kernel, stride or None, padding, dilation, ceil, return_indices=True)
            args = {"self": x, "kernelSize": [kernel] * dims, "stride": [stride] * dims if stride else [],
                    "padding": [padding] * dims, "dilation": [dilation], "ceilMode": ceil}
            yield dtype, x, args, values, indices


@cases("MaxPool3dWithArgmax", "MaxPool3dWithArgmaxBackward")
def maximum(op, g):
    for number, (dtype, x, args, values, indices) in enumerate(max_windows(g, 3)):
        index = (torch.int64, torch.int32)[number % 2]
        if op == "MaxPool3dWithArgmax":
            yield Case(args, {"out": values, "indices": Ref(indices, index)})
            continue
        grad = g.tensor(list(values.shape), dtype)
        yield Case({"gradOutput": grad, **args, "indices": indices.to(index)},
                   {"gradInput": Ref(scattered(x, indices, high(grad), 3), dtype)})


@cases("MaxPool2dWithMaskBackward")
def masked(op, g):
    for dtype, x, args, values, indices in max_windows(g, 2):
        grad = g.tensor(list(values.shape), dtype)
        kernel, outputs = args["kernelSize"][0], values.shape[-2:].numel()
        stride = (args["stride"] or args["kernelSize"])[0]
        mask = torch.zeros(list(values.shape[:-2]) + [kernel * kernel, ((outputs + 15) // 16 + 1) * 32], dtype=torch.uint8)
        width, own = x.shape[-1], torch.arange(outputs)
        row = own // values.shape[-1] * stride - args["padding"][0]
        column = own % values.shape[-1] * stride - args["padding"][0]
        dilation = args["dilation"][0]
        flat = indices.flatten(-2)
        place = (flat // width - row) // dilation * kernel + (flat % width - column) // dilation
        mask[..., :outputs].scatter_(-2, place.unsqueeze(-2), 1)
        yield Case({"gradOutput": grad, **args, "indices": mask},
                   {"gradInput": Ref(scattered(x, indices, high(grad), 2), dtype)})


@cases("MaxUnpool2d", "MaxUnpool3d")
def unpool(op, g):
    dims = 2 if "2d" in op else 3
    function = functional.max_unpool2d if dims == 2 else functional.max_unpool3d
    pool = functional.max_pool2d if dims == 2 else functional.max_pool3d
    for dtype in g.floating:
        for number, batch in enumerate(([2, 3], [3])):
            x, indices = pool(g.tensor(batch + SPATIAL[dims], dtype), 2, return_indices=True)
            args = {"self": x, "indices": indices.to((torch.int64, torch.int32)[number]), "outputSize": SPATIAL[dims]}
            if dims == 3:
                args.update(stride=[2, 2, 2], padding=[0, 0, 0])
            yield Case(args, {"out" if dims == 2 else "outRef": function(x, indices, 2, output_size=SPATIAL[dims])})
