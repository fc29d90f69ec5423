# SPDX-License-Identifier: Apache-2.0
"""Quantization; the references take the same steps in float32."""

import torch

from harness import Case, Ref, cases

TYPES = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = ([8], [5, 40], [2, 3, 16], [1, 1032], [0, 8], [3, 8, 8])
ROUNDINGS = {"round": torch.round, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc}


def pack(numbers):
    """Eight 4-bit numbers of the last dim in an int32."""
    parts = numbers.to(torch.int64).reshape(*numbers.shape[:-1], numbers.shape[-1] // 8, 8) & 15
    words = (parts << (4 * torch.arange(8))).sum(-1)
    return torch.where(words >= 2 ** 31, words - 2 ** 32, words).to(torch.int32)


def clamped(value, packed):
    value = value.clamp(-8, 7) if packed else value.clamp(-128, 127)
    value = value.nan_to_num(0)
    return pack(value) if packed else value.to(torch.int8)


def quantize_case(g, number, dtype, shape, axis=None):
    x = g.tensor(shape, dtype) * 40
    if x.numel() > 3:
        x.view(-1)[1], x.view(-1)[2] = float("inf"), float("nan")
        x.view(-1)[0] = 0.5
    packed, square = number % 3 == 2, number % 2 == 1
    mode = [*ROUNDINGS, None][number % 5]
    dim = axis if axis is not None else -1
    size = [1] if number % 4 == 3 else [shape[dim]]
    scale, offset = g.tensor(size, dtype, "positive"), None if number % 3 == 1 else g.tensor(size, dtype) * 5
    if number == 0:
        scale = torch.ones(size, dtype=dtype)
        offset = torch.zeros(size, dtype=dtype)
    view = [1] * len(shape)
    view[dim] = size[0]
    value = x.float() * scale.float().view(view)
    if square:
        value = value * scale.float().view(view)
    if offset is not None:
        value = value + offset.float().view(view)
    y = clamped(ROUNDINGS[mode or "round"](value), packed)
    args = {"x": x, "scale": scale, "offset": offset, "sqrtMode": square, "roundMode": mode,
            "dstType": (3 if number % 2 else 29) if packed else 2}
    if axis is not None:
        args["axis"] = axis
    return Case(args, {"y": y})


@cases("AscendQuant")
def ascend_quant(op, g):
    number = 0
    for dtype in TYPES:
        for shape in SHAPES:
            for _ in range(3):
                yield quantize_case(g, number, dtype, shape)
                number += 1


@cases("AscendQuantV3")
def ascend_quant_v3(op, g):
    number = 0
    for dtype in TYPES:
        for shape in SHAPES[1:]:
            for axis in (-1, -2, len(shape) - 1):
                yield quantize_case(g, number, dtype, shape, axis)
                number += 1


def dynamic_case(x, smooth, rows_of_smooth, packed, asymmetric):
    """y, scale, offset."""
    bottom, top = (-8.0, 7.0) if packed else (-128.0, 127.0)
    v = x.float() if smooth is None else x.float() * rows_of_smooth
    if v.shape[-1] == 0 or v.numel() == 0:
        scale = torch.zeros(v.shape[:-1])
        return clamped(v, packed), scale, scale
    if asymmetric:
        scale = (v.amax(-1) - v.amin(-1)) / (top - bottom)
        offset = torch.where(scale == 0, torch.zeros_like(scale), top - v.amax(-1) / scale)
    else:
        scale = v.abs().amax(-1) / top
        offset = torch.zeros_like(scale)
    y = torch.where(scale.unsqueeze(-1) == 0, torch.zeros_like(v), v / scale.unsqueeze(-1) + offset.unsqueeze(-1))
    return clamped(torch.round(y), packed), scale, offset


@cases("DynamicQuant")
def dynamic_quant(op, g):
    number = 0
    for dtype in TYPES:
        for shape in SHAPES:
            x = g.tensor(shape, dtype)
            if x.dim() > 1 and x.numel():
                x.view(-1, shape[-1])[0] = 0
            for smooth in (None, g.tensor([shape[-1]], dtype)):
                packed = number % 3 == 2
                y, scale, _ = dynamic_case(x, smooth, None if smooth is None else smooth.float(), packed, False)
                yield Case({"x": x, "smoothScalesOptional": smooth}, {"yOut": y, "scaleOut": Ref(scale)})
                number += 1
    x = g.tensor([3, 8], torch.float32)
    x[1, 2] = float("nan")
    y, scale, _ = dynamic_case(x, None, None, False, False)
    y[1] = 0
    yield Case({"x": x, "smoothScalesOptional": None}, {"yOut": y, "scaleOut": Ref(scale)})


@cases("DynamicQuantV2")
def dynamic_quant_v2(op, g):
    number = 0
    for dtype in TYPES:
        for shape in SHAPES:
            x = g.tensor(shape, dtype)
            if x.dim() > 1 and x.numel():
                x.view(-1, shape[-1])[0] = 3
            rows = x.numel() // shape[-1]
            for kind in range(4):
                smooth, groups, factors = None, None, None
                if kind == 1:
                    smooth = g.tensor([shape[-1]], dtype, "positive")
                    factors = smooth.float()
                elif kind > 1:
                    smooth = g.tensor([2, shape[-1]], dtype, "positive")
                    ends = [rows // 2, rows if kind == 2 else max(0, rows - 1)]
                    groups = torch.tensor(ends, dtype=torch.int32 if kind == 2 else torch.int64)
                    which = [smooth[0].float()] * ends[0] + [smooth[1].float()] * (ends[1] - ends[0])
                    which += [torch.ones(shape[-1])] * (rows - len(which))
                    factors = (torch.stack(which) if which else torch.ones(0, shape[-1])).view(shape)
                packed, asymmetric = number % 3 == 2, number % 4 != 1
                y, scale, offset = dynamic_case(x, smooth, factors, packed, asymmetric)
                yield Case({"x": x, "smoothScalesOptional": smooth, "groupIndexOptional": groups,
                            "dstType": 29 if packed else 2},
                           {"yOut": y, "scaleOut": Ref(scale), "offsetOut": Ref(offset) if asymmetric else None})
                number += 1
