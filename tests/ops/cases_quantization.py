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


def packed_param(scale, offset):
    """64 bits that hold both."""
    words = (scale.view(torch.int32).long() & 0xFFFFE000) | 1 << 46
    if offset is not None:
        words, shift = torch.broadcast_tensors(words, offset.round().clamp(-256, 255).long() & 0x1FF)
        words = words | shift << 37
    return words.contiguous()


@cases("TransQuantParamV2")
def pack_param(op, g):
    for n in (1, 7, 600, 0):
        scale = g.tensor([n], torch.float32)
        for offset in (None, g.tensor([n], torch.float32) * 200, g.tensor([1], torch.float32)):
            for dtype in (torch.uint64, torch.int64):
                words = packed_param(scale, offset)
                yield Case({"scale": scale, "offset": offset}, {"out": words.view(dtype)})
    yield Case({"scale": torch.tensor([2.5]), "offset": torch.tensor([-300.0, 300.0, 0.5, -1.5])},
               {"out": packed_param(torch.tensor([2.5]), torch.tensor([-300.0, 300.0, 0.5, -1.5]))})


@cases("QuantMatmulV3", "QuantMatmulV4", "QuantMatmulV5", "QuantMatmulWeightNz")
def quant_matmul(op, g):
    is_fifth = op in ("QuantMatmulV5", "QuantMatmulWeightNz")
    number = 0
    shapes = (([5, 33], [33, 7]), ([1, 600], [600, 520]), ([2, 3, 16], [16, 40]), ([4, 2, 8], [4, 8, 3]), ([3, 0], [0, 4]),
              ([0, 8], [8, 4]), ([70, 300], [300, 70]), ([2, 1024], [1024, 3]), ([2, 1025], [1025, 3]))
    for a_shape, b_shape in shapes:
        for out_type in (torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.float32):
            number += 1
            a = torch.randint(-128, 128, a_shape, generator=g.torch).to(torch.int8)
            b = torch.randint(-128, 128, b_shape, generator=g.torch).to(torch.int8)
            if a_shape[-1] >= 1024:
                a[:], b[:] = -128, -128  # the largest sums there can be
            m, n = a_shape[-2], b_shape[-1]
            scale = g.tensor([1 if number % 3 == 0 else n], torch.float32, "positive") / (1 + a_shape[-1]) / 64
            offset = g.tensor([n], torch.float32) * 9 if out_type == torch.int8 and number % 2 else None
            per_row = g.tensor([m], torch.float32, "positive") if number % 2 and not op.endswith("V3") else None
            bias_type = (torch.int32, torch.float32, torch.bfloat16, None)[number % 4 if out_type != torch.int32 else 0]
            bias = None if bias_type is None else g.tensor([n], bias_type) * (50 if bias_type == torch.int32 else 1)
            sums = (a.long() @ b.long())
            if bias_type == torch.int32:
                sums = sums + bias
            given, shift = scale, offset
            if number % 5 == 0:
                given = packed_param(scale, offset)
                scale = (scale.view(torch.int32) & -8192).view(torch.float32)
                if offset is not None:
                    shift, offset = offset.round(), None
            value = sums.float() * scale
            if per_row is not None:
                value = value * per_row.unsqueeze(-1)
            if bias is not None and bias_type != torch.int32:
                value = value + bias.float()
            if out_type == torch.int32:
                value = sums
            elif out_type == torch.int8:
                value = (value + (0 if shift is None else shift)).round().clamp(-128, 127).to(torch.int8)
            turn = number % 4
            args = {"x1": a.transpose(-1, -2).contiguous() if turn & 1 else a, "transposeX1": bool(turn & 1),
                    "x2": b.transpose(-1, -2).contiguous() if turn & 2 else b, "transposeX2": bool(turn & 2), "bias": bias}
            if is_fifth:
                empty = torch.empty(0, dtype=torch.int8) if number % 2 else None
                args |= {"x1Scale": per_row, "x2Scale": given, "yScale": empty, "x1Offset": empty, "x2Offset": offset,
                         "yOffset": empty, "groupSize": 0}
            else:
                args |= {"scale": given, "offset": offset, "pertokenScaleOptional": per_row}
            if n == 0 or given.numel() == 0:
                continue
            yield Case(args, {"out": Ref(value, out_type)})


@cases("ConvertWeightToINT4Pack")
def pack_int4(op, g):
    for shape in ([8], [5, 40], [2, 3, 16], [0, 8], [3, 0], [1, 1032]):
        weight = torch.randint(-20, 20, shape, generator=g.torch).to(torch.int32)
        yield Case({"weight": weight}, {"weightInt4Pack": pack(weight)})
