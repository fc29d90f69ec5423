# SPDX-License-Identifier: Apache-2.0
"""Rows that become integers of 8 or 4 bits, or come from such, alone and behind products, norms and activations."""

import torch
from torch.nn import functional

from cases_fused import Rounded, dynamic, gated, normed
from cases_quantization import clamped, dynamic_case, pack
from harness import Case, Ref, cases, high

TYPES = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = ([8], [5, 40], [2, 3, 16], [1, 1032], [0, 8])


def unpacked(words):
    """Eight numbers of 4 bits from an int32."""
    parts = torch.stack([(words.to(torch.int64) >> (4 * place)) & 15 for place in range(8)], -1).flatten(-2)
    return torch.where(parts >= 8, parts - 16, parts)


class RoundedWords(Rounded):
    """As Rounded, of 4-bit numbers that share words."""

    def __init__(self, numbers):
        super().__init__(numbers)
        self.dtype, self.numbers = torch.int32, numbers.nan_to_num(0).clamp(-8.4, 7.4)
        self.shape, self.wide = [*numbers.shape[:-1], numbers.shape[-1] // 8], list(numbers.shape)

    def verify(self, actual, op):
        assert list(actual.shape) == self.shape
        gap = (unpacked(actual).double() - self.numbers.double()).abs()
        assert bool((gap <= 0.5005).all()), f"{op}: {int((gap > 0.5005).sum())} integers are off, by up to {gap.max()}"


def rounded(numbers, packed):
    return RoundedWords(numbers) if packed else Rounded(numbers)


def int8(g, shape, low=-128):
    return torch.randint(low, 128, shape, generator=g.torch).to(torch.int8)


@cases("Quantize")
def quantize(op, g):
    number = 0
    bounds = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int32: (-2 ** 31, 2 ** 31 - 1)}
    for dtype in TYPES:
        for shape in SHAPES:
            for target in bounds:
                axis = -1 if number % 2 else 0
                n = 1 if number % 5 == 4 else shape[axis]
                x = g.tensor(shape, dtype) * 40
                if x.numel() > 3:
                    x.view(-1)[0], x.view(-1)[1] = float("nan"), float("inf") if target != torch.int32 else 1
                scale = g.tensor([n], dtype, "positive") + 0.1
                zero = None if number % 3 == 0 else torch.randint(-5, 9, [n], generator=g.torch).to(
                    (torch.int32, torch.int8, torch.bfloat16)[number % 3])
                view = [1] * len(shape)
                view[axis] = n
                value = x.float() / scale.float().view(view)
                value = value if zero is None else value + zero.float().view(view)
                out = value.round().double().clamp(*bounds[target]).nan_to_num(0).to(target)
                yield Case({"x": x, "scales": scale, "zeroPoints": zero, "dtype": target, "axis": axis}, {"out": out})
                number += 1


@cases("GroupQuant")
def group_quant(op, g):
    number = 0
    for dtype in TYPES:
        for rows, n, ends in ((6, 16, [2, 2, 6]), (9, 520, [4, 7]), (0, 8, [0]), (5, 8, [1, 900, -3])):
            x, scale = g.tensor([rows, n], dtype) * 9, g.tensor([len(ends), n], torch.float32, "positive")
            offset = None if number % 2 else torch.tensor([3.0])
            packed, begin = number % 3 == 2, 0
            value = torch.zeros(rows, n)
            for group, end in enumerate(ends):
                end = min(max(end, begin), rows)
                value[begin:end] = x[begin:end].float() * scale[group] + (0 if offset is None else offset)
                begin = end
            yield Case({"x": x, "scale": scale, "groupIndex": torch.tensor(ends), "offsetOptional": offset,
                        "dstType": 29 if packed else 2}, {"y": clamped(value.round(), packed)})
            number += 1


@cases("DynamicQuantV3", "DynamicQuantV4")
def dynamic_modes(op, g):
    number = 0
    for dtype in TYPES:
        for shape in ([8], [5, 40], [2, 3, 16], [1, 1032], [0, 8], [300, 8]):
            for mode in ("pertoken", "pertensor", "perchannel", None):
                for symmetric in (True, False):
                    number += 1
                    if (mode == "perchannel" and len(shape) < 2) or (mode == "pertensor" and 0 in shape):
                        continue
                    x = g.tensor(shape, dtype)
                    smooth = g.tensor([shape[-1]], dtype, "positive") if number % 3 == 0 else None
                    factors = None if smooth is None else smooth.float()
                    packed = mode in ("pertoken", None) and number % 4 == 0
                    v = x.float() if smooth is None else x.float() * factors
                    if mode == "pertensor":
                        y, step, offset = dynamic_case(v.reshape(1, -1), None, None, packed, not symmetric)
                        y = y.reshape(shape)
                    elif mode == "perchannel":
                        y, step, offset = dynamic_case(v.transpose(-1, -2), None, None, packed, not symmetric)
                        y = y.transpose(-1, -2).contiguous()
                        if x.numel() == 0:
                            step = offset = torch.zeros(step.shape)
                    else:
                        y, step, offset = dynamic_case(v, None, None, packed, not symmetric)
                    if mode == "perchannel" and 0 in shape:
                        continue
                    args = {"x": x, "smoothScalesOptional": smooth, "groupIndexOptional": None,
                            "dstType": 3 if packed else 2, "isSymmetrical": symmetric, "quantMode": mode}
                    if op.endswith("V4"):
                        args["dstTypeMax"] = 0.0
                    yield Case(args, {"yOut": y, "scaleOut": Ref(step), "offsetOut": None if symmetric else Ref(offset)})


@cases("DynamicBlockQuant", "DynamicBlockQuantV2")
def block_quant(op, g):
    number = 0
    for dtype in TYPES:
        for shape in ([5, 40], [2, 9, 16], [1, 1032], [0, 8], [70, 3]):
            for rows, columns in ((1, 128), (4, 16), (2, 700)):
                number += 1
                x = g.tensor(shape, dtype)
                if x.numel():
                    x.view(-1, shape[-1])[0] = 0
                least = 0.02 if number % 3 == 0 else 0.0
                top = 100.0 if number % 2 and op.endswith("V2") else 127.0
                down, across = -shape[-2] % rows, -shape[-1] % columns
                blocks = functional.pad(x.float(), (0, across, 0, down)).unflatten(-1, (-1, columns)).unflatten(
                    -3, (-1, rows))
                step = (blocks.abs().amax((-3, -1)) / top).clamp(min=least)
                each = step.unsqueeze(-1).unsqueeze(-3)
                y = torch.where(each == 0, torch.zeros_like(blocks), blocks / each)
                y = clamped(y.round(), False).flatten(-4, -3).flatten(-2)[..., :shape[-2], :shape[-1]].contiguous()
                args = {"x": x, "minScale": least, "roundModeOptional": "rint" if number % 2 else None, "dstType": 2,
                        "rowBlockSize": rows, "colBlockSize": columns}
                if op.endswith("V2"):
                    args["dstTypeMax"] = 0.0 if top == 127.0 else top
                yield Case(args, {"yOut": y, "scaleOut": Ref(step)})


@cases("GeluQuant")
def gelu_quant(op, g):
    number = 0
    for dtype in TYPES:
        for shape in SHAPES:
            for mode in ("dynamic", "static"):
                number += 1
                x = g.tensor(shape, dtype)
                scale = g.tensor([shape[-1] if number % 3 else 1], dtype, "positive") if mode == "static" or number % 4 else None
                offset = g.tensor([shape[-1]], dtype) * 3 if mode == "static" and number % 3 == 0 else None
                approximate = ("none", "tanh", None)[number % 3]
                v = functional.gelu(high(x), approximate=approximate or "none")
                v = v if scale is None else v * high(scale) * (1 if mode == "dynamic" else 20)
                given = scale if scale is None or mode == "dynamic" else (scale * 20).to(dtype)
                if mode == "static":
                    v = functional.gelu(high(x), approximate=approximate or "none") * high(given)
                v = v if offset is None else v + high(offset)
                numbers, step = dynamic(v) if mode == "dynamic" else (v, None)
                yield Case({"self": x, "inputScaleOptional": given, "inputOffsetOptional": offset,
                            "approximate": approximate, "quantMode": mode, "roundMode": "rint", "dstType": 2},
                           {"y": Rounded(numbers), "outScaleOptional": None if step is None else Ref(step, torch.float32)})


@cases("RmsNormQuant", "RmsNormQuantV3")
def rms_norm_quant(op, g):
    number = 0
    for dtype in TYPES:
        for shape in SHAPES:
            for _ in range(2):
                number += 1
                n, third = shape[-1], op.endswith("V3")
                x, gamma, beta = g.tensor(shape, dtype), g.tensor([n], dtype), g.tensor([n], dtype)
                divides = third and number % 3 != 0
                wide = n if third and number % 2 else 1
                scale = (g.tensor([wide], dtype, "positive") + 0.1) * (1 if divides else 20)
                offset = torch.randint(-5, 9, [wide], generator=g.torch).to((torch.int8, dtype)[number % 2])
                if third and number % 4 == 0:
                    beta = offset = None
                wanted_rstd = third and number % 5 < 3
                y = normed(x, gamma, beta, 1e-6)
                v = y / high(scale) if divides else y * high(scale)
                v = v if offset is None else v + offset.double()
                args = {"x": x, "gamma": gamma, "beta": beta, "scale": scale, "offset": offset, "epsilon": 1e-6}
                expect = {"y": rounded(v, number % 4 == 1)}
                if third:
                    rstd = (high(x).square().mean(-1, keepdim=True) + 1e-6).rsqrt()
                    args |= {"divMode": divides, "outputRstd": wanted_rstd}
                    expect["rstd"] = Ref(rstd, torch.float32) if wanted_rstd else None
                yield Case(args, expect)


@cases("AscendAntiQuant")
def anti_quant(op, g):
    number = 0
    for dtype, code in ((torch.float16, 1), (torch.bfloat16, 27), (torch.float32, 0)):
        for shape in SHAPES:
            for packed in (False, True):
                number += 1
                values = torch.randint(-8, 8, shape, generator=g.torch) if packed else int8(g, shape)
                n = shape[-1] if number % 3 else 1
                scale = g.tensor([n], torch.float32, "positive") / 10
                offset = None if number % 2 else g.tensor([n], torch.float32)
                square = number % 5 == 0
                y = values.double() + (0 if offset is None else offset.double())
                y = y * scale.double() * (scale.double() if square else 1)
                yield Case({"x": pack(values) if packed else values, "scale": scale, "offset": offset, "dstType": code,
                            "sqrtMode": square}, {"y": Ref(y, dtype, bound="4/1 of max")})


@cases("FakeQuantPerTensorAffineCachemask", "FakeQuantPerChannelAffineCachemask")
def fake_quant(op, g):
    number, tensor = 0, "PerTensor" in op
    for dtype in TYPES:
        for shape in ([7], [5, 33], [2, 3, 600], [0, 3]) + (([],) if tensor else ()):
            number += 1
            x = g.tensor(shape, dtype) * 20
            axis = number % len(shape) if shape else 0
            n = 1 if tensor else shape[axis]
            if not n:
                continue
            low, high_ = (0, 255) if number % 2 else (-128, 127)
            scale, zero = g.tensor([n], torch.float32, "positive") + 0.05, g.index([n], 9, torch.int32) + low // 32
            zero = zero.clamp(min=low)
            enabled = number % 4 != 0 or not tensor
            args = {"self": x, "scale": scale, "zeroPoint": zero, "quantMin": low, "quantMax": high_}
            if tensor:
                out, mask = torch._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
                    x.float(), scale, zero, torch.tensor([int(enabled)]), low, high_)
                args["fakeQuantEnabled"] = float(enabled)
            else:
                out, mask = torch.ops.aten.fake_quantize_per_channel_affine_cachemask(x.float(), scale, zero, axis, low, high_)
                args["axis"] = axis
            yield Case(args, {"out": out.to(dtype), "mask": mask})


@cases("InplaceQuantScatter", "InplaceQuantScatterV2")
def quant_scatter(op, g):
    number = 0
    for dtype in TYPES:
        for shape, batch, axis, count in (([3, 9, 16], 3, -2, 2), ([4, 2, 9, 8], 2, 2, 1), ([2, 600], 2, -1, 5),
                                          ([3, 4, 530], 3, 1, 1), ([2, 5, 4, 8], 0, 1, 2)):
            number += 1
            self = int8(g, shape)
            axis_ = axis % len(shape)
            sizes = [batch, *shape[1:]]
            sizes[axis_] = count
            updates = g.tensor(sizes, dtype) * 30
            index = g.index([batch], shape[axis_] - count + 1, torch.int32 if number % 2 else torch.int64)
            n = sizes[-1] if number % 3 else 1
            scale = g.tensor([n], dtype, "positive") + 0.1
            zero = None if number % 2 else torch.randint(-5, 9, [n], generator=g.torch).to(torch.int32)
            if number % 4 == 3 and batch:
                index[0] = shape[axis_]  # beyond: writes nothing
            out = self.clone()
            value = updates.float() / scale.float()
            value = clamped((value if zero is None else value + zero.float()).round(), False)
            for b, first in enumerate(index.tolist()):
                if first + count <= shape[axis_]:
                    out[b].narrow(axis_ - 1, first, count).copy_(value[b])
            args = {"selfRef": self, "indices": index, "updates": updates, "quantScales": scale, "quantZeroPoints": zero,
                    "axis": axis, "quantAxis": -1, "reduction": 1}
            if op.endswith("V2"):
                args["roundMode"] = "rint"
            yield Case(args, {"selfRef": out})


@cases("FlatQuant", "FlatQuantV2")
def flat_quant(op, g):
    for number, dtype in enumerate(TYPES):
        for b, m, n in ((3, 4, 8), (1, 16, 64), (0, 2, 8), (2, 1, 520)):
            x = g.tensor([b, m, n], dtype)
            left, right = g.tensor([m, m], dtype), g.tensor([n, n], dtype)
            ratio = (1.0, 0.7)[number % 2]
            turned = high(left) @ high(x) @ high(right)
            step = turned.abs().amax((1, 2)) * ratio / 7
            args = {"x": x, "kroneckerP1": left, "kroneckerP2": right, "clipRatio": ratio}
            if op.endswith("V2"):
                args["dstTypeMax"] = 0.0
            yield Case(args, {"out": RoundedWords(turned / step.view(-1, 1, 1)), "quantScale": Ref(step, torch.float32)})


@cases("RotateQuant")
def rotate_quant(op, g):
    number = 0
    for dtype in TYPES:
        for m, n, k in ((5, 64, 16), (3, 32, 32), (0, 8, 4), (9, 600, 40)):
            for alpha in (None, 0.6, 1.0):
                number += 1
                x, rotation = g.tensor([m, n], dtype), g.tensor([k, k], dtype)
                turned = (high(x).reshape(m, n // k, k) @ high(rotation)).reshape(m, n)
                if alpha == 0.6:
                    parts = [part.clamp(-part.abs().amax(-1, keepdim=True) * 0.6, part.abs().amax(-1, keepdim=True) * 0.6)
                             for part in turned.split(32, 1)]
                    turned = torch.cat(parts, 1)
                packed = number % 3 == 0
                numbers, step = dynamic(turned)
                if packed:
                    numbers, step = numbers * 7 / 127, step * 127 / 7
                yield Case({"x": x, "rotation": rotation, "alpha": None if alpha is None else torch.tensor([alpha]),
                            "axis": -1, "roundMode": "rint", "scaleAlg": 0, "dstTypeMax": 0.0, "trans": False},
                           {"yOut": rounded(numbers, packed), "scaleOut": Ref(step, torch.float32)})


@cases("RmsNormGradQuant")
def norm_grad_quant(op, g):
    number = 0
    for dtype in TYPES:
        for shape in ([5, 40], [2, 3, 16], [1, 1032], [300, 8], [0, 8]):
            number += 1
            n = shape[-1]
            x, dy, gamma = g.tensor(shape, dtype), g.tensor(shape, dtype), g.tensor([n], dtype)
            leaf, weight = high(x).requires_grad_(), high(gamma).requires_grad_()
            rstd = (high(x).square().mean(-1, keepdim=True) + 1e-6).rsqrt().float()
            ((leaf * (leaf.square().mean(-1, keepdim=True) + 1e-6).rsqrt()) * weight).backward(high(dy))
            divides = number % 2 == 0
            scale = (g.tensor([n if number % 3 else 1], torch.float32, "positive") + 0.1) * (0.05 if divides else 20)
            offset = None if number % 4 == 0 else torch.tensor([2], dtype=torch.int32)
            v = leaf.grad / high(scale) if divides else leaf.grad * high(scale)
            yield Case({"dy": dy, "x": x, "rstd": rstd, "gamma": gamma, "scalesX": scale, "offsetXOptional": offset,
                        "quantMode": "static", "divMode": divides},
                       {"dxOut": Rounded(v if offset is None else v + 2),
                        "dgammaOut": Ref(weight.grad, torch.float32)})


@cases("SwiGluQuantV2")
def swiglu_quant(op, g):
    number = 0
    for dtype in TYPES:
        for shape in ([6, 32], [2, 3, 16], [1, 1200], [0, 16]):
            for mode in ("dynamic", "static"):
                for grouped in (False, True):
                    number += 1
                    n, rows = shape[-1] // 2, 1
                    for size in shape[:-1]:
                        rows *= size
                    x, left = g.tensor(shape, dtype), number % 2 == 0
                    sizes = [rows // 2, rows - rows // 2] if grouped else [rows]
                    counts = number % 4 < 2
                    groups = torch.tensor(sizes if counts else torch.tensor(sizes).cumsum(0).tolist()) if grouped else None
                    smooth = g.tensor([len(sizes), n], torch.float32, "positive") * (20 if mode == "static" else 1)
                    offset = g.tensor([len(sizes), n], torch.float32) if mode == "static" and number % 3 == 0 else None
                    which = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
                    v = gated(high(x), left).reshape(-1, n) * high(smooth)[which]
                    v = v if offset is None else v + high(offset)[which]
                    numbers, step = dynamic(v) if mode == "dynamic" else (v, None)
                    packed = n % 8 == 0 and number % 3 == 1
                    if packed and mode == "dynamic":
                        numbers, step = numbers * 7 / 127, step * 127 / 7
                    numbers = numbers.reshape(*shape[:-1], n)
                    scale = Ref(step.reshape(shape[:-1]), torch.float32, bound="32/1 of max") if step is not None else None
                    yield Case({"x": x, "smoothScalesOptional": smooth if grouped else smooth[0].clone(),
                                "offsetsOptional": offset if offset is None or grouped else offset[0].clone(),
                                "groupIndexOptional": groups, "activateLeft": left, "quantModeOptional": mode,
                                "groupListType": int(counts), "dstType": 29 if packed else 2},
                               {"yOut": rounded(numbers, packed), "scaleOut": scale})


@cases("DequantBias")
def dequant_bias(op, g):
    number = 0
    for dtype, code in ((torch.float16, 1), (torch.bfloat16, 27), (torch.float32, 0)):
        for m, n in ((5, 40), (1, 1032), (0, 8), (300, 3)):
            for kind in (None, torch.int32, torch.float32, torch.bfloat16):
                number += 1
                x = torch.randint(-10 ** 6, 10 ** 6, [m, n], generator=g.torch).to(torch.int32)
                scale = g.tensor([n], torch.bfloat16 if number % 3 == 0 else torch.float32) / 10 ** 5
                rows = g.tensor([m], torch.float32, "positive") if number % 2 else None
                bias = None if kind is None else (g.tensor([n], kind) * (9000 if kind == torch.int32 else 1)).to(kind)
                y = x.double() + (bias.double() if kind == torch.int32 else 0)
                y = y * high(scale) * (1 if rows is None else high(rows).unsqueeze(1))
                y = y if kind in (None, torch.int32) else y + high(bias)
                yield Case({"x": x, "weightScale": scale, "activateScaleOptional": rows, "biasOptional": bias,
                            "outputDtype": code}, {"out": Ref(y, dtype, bound="8/2 of max")})


@cases("TransQuantParamV3")
def trans_quant_param(op, g):
    from cases_quantization import packed_param
    for n in (1, 7, 600, 0):
        for mode in (0, 1):
            for dtype in (torch.uint64, torch.int64):
                scale, offset = g.tensor([n], torch.float32), g.tensor([n], torch.float32) * 200 if n > 1 else None
                cut = ((scale.view(torch.int32) + 0x1000 * mode) & -8192).view(torch.float32)
                yield Case({"scale": scale, "offset": offset, "roundMode": mode}, {"out": packed_param(cut, offset).view(dtype)})


@cases("FusedQuantMatmul", "FusedQuantMatmulWeightNz")
def fused_quant_matmul(op, g):
    number = 0
    for shape, n in (([5, 33], 7), ([2, 3, 16], 40), ([1, 600], 520), ([0, 8], 4)):
        for dtype in TYPES:
            for kind in ("gelu_erf", "gelu_tanh", None):
                number += 1
                a, b = int8(g, shape), int8(g, [shape[-1], n])
                scale = g.tensor([n if number % 3 else 1], torch.float32, "positive") / (shape[-1] * 500)
                rows = g.tensor([shape[-2]], torch.float32, "positive") if number % 2 else None
                bias = (None, g.tensor([n], torch.float32), g.index([n], 99, torch.int32))[number % 3]
                sums = (a.long() @ b.long()).double() + (high(bias) if number % 3 == 2 else 0)
                y = sums * high(scale) * (1 if rows is None else high(rows).unsqueeze(-1))
                y = y + high(bias) if number % 3 == 1 else y
                y = y if kind is None else functional.gelu(y, approximate="tanh" if kind == "gelu_tanh" else "none")
                none = dict.fromkeys(("yScaleOptional", "x1OffsetOptional", "x2OffsetOptional", "yOffsetOptional", "x3Optional"))
                yield Case(none | {"x1": a, "x2": b, "x1Scale": rows, "x2Scale": scale, "biasOptional": bias,
                                   "fusedOpType": kind, "groupSizeOptional": 0},
                           {"out": Ref(y, dtype, bound="16/2 of max")})


@cases("TransposeQuantBatchMatMul", "TransposeQuantBatchMatMulWeightNz")
def transpose_quant_matmul(op, g):
    number = 0
    for dtype, code in ((torch.float16, 1), (torch.bfloat16, 27), (torch.float32, 0)):
        for batch, m, n, k in ((4, 5, 7, 9), (2, 1, 33, 70), (6, 70, 20, 33), (2, 3, 0, 2)):
            for split in (1, 2):
                number += 1
                a, b = int8(g, [batch, m, k]), int8(g, [batch, k, n])
                row = g.tensor([m if number % 2 else 1], torch.float32, "positive") if number % 3 else None
                column = g.tensor([n if number % 4 and n else 1], torch.float32, "positive") / 9999
                y = (a.long() @ b.long()).double() * high(column)
                y = y if row is None else y * high(row).unsqueeze(-1)
                if split == 1:
                    y = y.transpose(0, 1)
                else:
                    y = y.reshape(2, batch // 2, m, n).transpose(1, 2).reshape(2, m, batch // 2 * n)
                yield Case({"x1": a.transpose(0, 1).contiguous(), "x2": b, "bias": None, "x1Scale": row, "x2Scale": column,
                            "dtype": code, "groupSize": 0, "permX1": [1, 0, 2], "permX2": [0, 1, 2], "permY": [1, 0, 2],
                            "batchSplitFactor": split}, {"out": Ref(y, dtype, bound="4/1 of max")})


@cases("QuantMatmulReduceSumWeightNz")
def reduce_sum(op, g):
    for dtype in TYPES:
        for b, m, k, n in ((4, 5, 7, 9), (1, 3, 70, 520), (2, 0, 8, 4), (3, 9, 33, 1)):
            x1, x2 = int8(g, [b, m, k]), int8(g, [b, k, n])
            row, column = g.tensor([b, m], torch.float32, "positive"), g.tensor([n], torch.bfloat16, "positive") / 9999
            y = ((x1.long() @ x2.long()).double() * high(row).unsqueeze(-1)).sum(0) * high(column)
            none = dict.fromkeys(("yScale", "x1Offset", "x2Offset", "yOffset", "bias"))
            yield Case(none | {"x1": x1, "x2": x2, "x1Scale": row, "x2Scale": column, "transposeX1": False,
                               "transposeX2": False, "groupSize": 0, "dims": [0], "keepDims": False},
                       {"out": Ref(y, dtype, bound="8/2 of max")})


@cases("QuantConvolution")
def quant_convolution(op, g):
    number = 0
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for shape, weight, stride, pad, dilation, groups in (
                ([2, 3, 9, 8], [4, 3, 3, 3], [2, 1], [1, 1], [1, 1], 1), ([1, 4, 5, 5], [6, 4, 1, 1], [1, 1], [0, 0], [1, 1], 1),
                ([1, 4, 7, 9], [4, 2, 3, 2], [1, 2], [1, 0], [2, 1], 2), ([0, 2, 4, 4], [2, 2, 2, 2], [1, 1], [0, 0], [1, 1], 1),
                ([1, 2, 600], [3, 2, 5], [1], [2], [1], 1)):
            number += 1
            x, w = int8(g, shape), int8(g, weight)
            scale = g.tensor([weight[0] if number % 3 else 1], torch.float32, "positive") / 20000
            bias = g.index([weight[0]], 9000, torch.int32) if number % 2 else None
            convolve = functional.conv2d if len(shape) == 4 else functional.conv1d
            view = [1, -1] + [1] * (len(shape) - 2)
            y = convolve(x.double(), w.double(), None if bias is None else bias.double(), stride, pad, dilation, groups)
            given = scale
            if number % 4 == 0:
                from cases_quantization import packed_param
                given, scale = packed_param(scale, None), (scale.view(torch.int32) & -8192).view(torch.float32)
            yield Case({"input": x, "weight": w, "bias": bias, "scale": given, "offset": None, "stride": stride,
                        "padding": pad, "dilation": dilation, "transposed": False, "outputPadding": None, "groups": groups,
                        "offsetx": 0, "roundMode": "rint"}, {"output": Ref(y * high(scale).view(view), dtype)})
