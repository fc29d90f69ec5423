# SPDX-License-Identifier: Apache-2.0
"""Random slopes, exponential numbers, normal numbers around tensors, dropout with its mask and its gradient."""

import torch

from cases_random import LAYOUTS, MANY, close, count_of, exactly, mask_bytes, moments, normals, philox, philox64, seeds
from harness import Case, Check, Ref, Scalar, cases, high


@cases("NormalFloatTensor", "NormalTensorFloat")
def normal_tensor(op, g):
    for dtype in g.floating:
        for shape in LAYOUTS:
            x, number = g.tensor(shape, dtype, "positive"), 0.75
            z = torch.tensor(normals(dtype, 4, 6, count_of(shape)), dtype=torch.float64).reshape(shape)
            is_mean = op == "NormalTensorFloat"
            expected = (high(x) + number * z if is_mean else number + high(x) * z).flatten().tolist()
            tolerance = max(1e-5, 2 * torch.finfo(dtype).eps) if dtype != torch.float64 else 1e-12
            yield Case({"mean": x if is_mean else number, "std": number if is_mean else x, "seed": 4, "offset": 6},
                       {"out": Check(shape, dtype, close(expected, tolerance))})


@cases("SimThreadExponential")
def exponential(op, g):
    for dtype in g.floating:
        for shape in LAYOUTS + (MANY,):
            x = g.tensor(shape, dtype)
            positive = lambda found: bool((found >= 0).all())  # noqa: E731
            verify = moments(0.5, 0.5) if shape == MANY else positive
            yield Case({"selfRef": x, "count": x.numel(), "lambda": 2.0, "seed": 3, "offset": 1},
                       {"selfRef": Check(shape, dtype, verify)})


@cases("StatelessExponentialTensor")
def exponential_by_tensors(op, g):
    for dtype in g.floating:
        for shape in LAYOUTS + (MANY,):
            x, double = g.tensor(shape, dtype), dtype == torch.float64
            words = philox64(3, 8, x.numel()) if double else philox(3, 8, x.numel())
            uniform = torch.tensor([((w >> 12) + 0.5) * 2.0**-52 if double else (w + 0.5) * 2.0**-32 for w in words],
                                   dtype=torch.float64)
            verify = moments(0.5, 0.5) if shape == MANY else close((-uniform.log() / 2).tolist(), 1e-12 if double else max(
                1e-5, 2 * torch.finfo(dtype).eps))
            yield Case({"self": x, "lambd": 2.0} | seeds(op, 3, 8), {"self": Check(shape, dtype, verify)})


@cases("RReluWithNoise", "InplaceRReluWithNoise")
def rrelu(op, g):
    for dtype in g.floating:
        for number, shape in enumerate(LAYOUTS):
            for training in (False, True):
                x, noise = g.tensor(shape, dtype), g.tensor(shape, dtype)
                lower, upper = (0.25, 0.5) if number % 2 else (0.125, 0.125)
                args = {"self": x, "noise": noise, "lower": Scalar(lower, torch.float64),
                        "upper": Scalar(upper, torch.float64), "training": training, "seed": number, "offset": 9}
                slopes = (torch.tensor([(word >> 8) * 2.0 ** -24 for word in philox(number, 9, x.numel())])
                          * (upper - lower) + lower).to(torch.float64).reshape(shape)
                wide = high(x)
                if training:
                    after = torch.where(wide <= 0, slopes, 1.0)
                    y = wide * after
                else:
                    after, y = high(noise), torch.where(wide <= 0, wide * (lower + upper) / 2, wide)
                if training and lower != upper and dtype == torch.float64:
                    continue  # drawn with more digits than this reference has
                out = Check(shape, dtype, close(y.flatten().tolist(), 4 * torch.finfo(dtype).eps))
                drawn = Check(shape, dtype, close(after.flatten().tolist(), 4 * torch.finfo(dtype).eps))
                name = "self" if op.startswith("Inplace") else "out"
                yield Case(args, {name: out, "noise": drawn})
    x = -torch.ones(MANY)
    args = {"self": x, "noise": torch.zeros(MANY), "lower": Scalar(0.0), "upper": Scalar(1.0), "training": True,
            "seed": 1, "offset": 0}
    name = "self" if op.startswith("Inplace") else "out"
    yield Case(args, {name: Check(MANY, x.dtype, moments(-0.5, 0.2887)), "noise": Check(MANY, x.dtype,
                                                                                      moments(0.5, 0.2887))})


@cases("DropoutV3", "DropoutV3Tensor")
def dropout(op, g):
    for dtype in g.floating:
        for number, shape in enumerate(([7], [], [0, 3], [128], [5, 33], [2, 3, 100])):
            for p in (0.0, 0.3, 1.0):
                x, count = g.tensor(shape, dtype), count_of(shape)
                words = philox(number, 12, count)
                kept = torch.tensor([int(word >= round(p * 2 ** 32)) for word in words]).reshape(shape)
                y = torch.where(kept == 1, high(x) / (1 - p) if p < 1 else 0.0, 0.0)
                mask = mask_bytes(words, p, count)
                yield Case({"input": x, "optionalNoiseShape": None, "p": p} | seeds(op, number, 12),
                           {"out": Ref(y, dtype), "maskOut": Check([len(mask)], torch.uint8, exactly(mask))})


@cases("DropoutV3Grad")
def dropout_grad(op, g):
    for dtype in g.floating:
        for shape in ([7], [], [0, 3], [128], [5, 33], [2, 3, 700]):
            x, count = g.tensor(shape, dtype), count_of(shape)
            mask = torch.randint(0, 256, [(count + 127) // 128 * 16], generator=g.torch).to(torch.uint8)
            kept = (mask.unsqueeze(1) >> torch.arange(8) & 1).flatten()[:count].reshape(shape)
            yield Case({"gradY": x, "mask": mask, "scale": 1.25},
                       {"gradX": Ref(torch.where(kept == 1, high(x) * 1.25, 0.0), dtype)})


@cases("MaskedScale")
def masked_scale(op, g):
    for dtype in g.floating:
        for shape in ([7], [], [0, 3], [5, 33]):
            for kind in (torch.bool, torch.uint8, torch.int8, torch.float16, torch.float32):
                x, mask = g.tensor(shape, dtype), g.mask(shape).to(kind)
                yield Case({"self": x, "mask": mask, "scale": 2.5}, {"out": Ref(high(x) * mask * 2.5, dtype)})
