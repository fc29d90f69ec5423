# SPDX-License-Identifier: Apache-2.0
"""Floats of 8 bits: products of them that are added, rows that become such; and rotated rows in quantized caches."""

import math

import torch
from torch.nn import functional

import aclnn
from cases_fused import Rounded
from harness import Case, Ref, cases, high

E4M3, E5M2, E8M0, HIFLOAT8 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu, aclnn.HIFLOAT8
TYPES = (torch.float32, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)


# ---- Numbers ----

def hifloat8_of(bits):
    """By the published definition: a prefix, the exponent as sign and digits behind a leading 1, what is behind the point."""
    sign, bits = (-1.0 if bits & 0x80 else 1.0), bits & 0x7F
    if bits == 0:
        return math.nan if sign < 0 else 0.0
    if bits < 8:
        return sign * 2.0 ** (bits - 23)
    if bits == 0x6F:
        return sign * math.inf
    digits = 4 if bits >= 0x60 else 3 if bits >= 0x40 else 2 if bits >= 0x20 else 1 if bits >= 0x10 else 0
    behind = {4: 1, 3: 2}.get(digits, 3)
    field, exponent = bits >> behind & ((1 << digits) - 1), 0
    if digits:
        exponent = (field & ((1 << (digits - 1)) - 1)) | 1 << (digits - 1)
        exponent = -exponent if field >> (digits - 1) & 1 else exponent
    return sign * 2.0 ** exponent * (1 + (bits & ((1 << behind) - 1)) / (1 << behind))


HIFLOAT8_VALUES = torch.tensor([hifloat8_of(bits) for bits in range(256)], dtype=torch.float64)
GREATEST = {E4M3: 448.0, E5M2: 57344.0, HIFLOAT8: 32768.0}


def values_of(small):
    """What the 256 patterns are worth."""
    return HIFLOAT8_VALUES if small == HIFLOAT8 else torch.arange(256, dtype=torch.uint8).view(small).double()


def number_of(small):
    return aclnn.SMALL.get(small, small)


def stored(bits, small):
    """Patterns as a tensor of the type."""
    if small != HIFLOAT8:
        return bits.view(small)
    bits.acl_number = HIFLOAT8
    return bits


def random_small(g, shape, small):
    """A tensor of the type, and its values: magnitudes up to 8."""
    patterns = torch.tensor([bits for bits, value in enumerate(values_of(small).tolist()) if abs(value) <= 8],
                            dtype=torch.uint8)
    bits = patterns[torch.randint(0, len(patterns), shape, generator=g.torch)]
    return stored(bits.clone(), small), values_of(small)[bits.long()]


class Nearest(Ref):
    """An output of 8-bit floats: a number next to `value`, or the other one where both are as near."""

    def __init__(self, value, small):
        super().__init__(value, torch.uint8 if small == HIFLOAT8 else small)
        self.small = small
        if small == HIFLOAT8:
            self.acl_number = HIFLOAT8

    def verify(self, actual, op):
        assert list(actual.shape) == list(self.value.shape), f"{op}: shape {list(actual.shape)}, not {list(self.value.shape)}"
        found = values_of(self.small)[actual.contiguous().view(torch.uint8).long()]
        wanted, top = self.value.double(), GREATEST[self.small]
        assert bool((found.isnan() == wanted.isnan()).all()), f"{op}: NaN in other places"
        table = values_of(self.small)
        table = table[table.isfinite()].unique()
        usual = wanted.nan_to_num(0).clamp(-top, top)
        above = torch.searchsorted(table, usual.contiguous()).clamp(max=len(table) - 1)
        least = torch.minimum((table[above] - usual).abs(), (table[(above - 1).clamp(min=0)] - usual).abs())
        inside = wanted.abs() <= top
        gap = (found.nan_to_num(0).clamp(-top, top) - usual).abs()
        good = (gap <= least + usual.abs() * 2.0 ** -17 + 1e-12) | ~inside | wanted.isnan()
        assert bool(good.all()), (f"{op}: {int((~good).sum())} of {good.numel()} numbers are not the nearest, the first is "
                                  f"{found[~good][:1].tolist()} for {wanted[~good][:1].tolist()}")


# ---- Products that are added ----

def exponents(g, blocks, lines):
    """[blocks, lines, 2] and the factors [2 blocks, lines]."""
    bits = torch.randint(124, 131, [blocks, lines, 2], generator=g.torch).to(torch.uint8)
    return bits.view(E8M0), (2.0 ** (bits.double() - 127)).permute(0, 2, 1).reshape(2 * blocks, lines)


def exchanged(tensor):
    return tensor.view(torch.uint8).transpose(0, 1).contiguous().view(tensor.dtype)


def turned(tensor):
    """The last two dims exchanged, contiguous."""
    if tensor.dtype == torch.uint8:
        return stored(tensor.transpose(-1, -2).contiguous(), HIFLOAT8)
    return tensor.view(torch.uint8).transpose(-1, -2).contiguous().view(tensor.dtype)


PAIRS = ((E4M3, E4M3), (E5M2, E4M3), (HIFLOAT8, HIFLOAT8))


@cases("QuantBatchMatmulInplaceAdd")
def added_product(op, g):
    number = 0
    for left, right in PAIRS:
        for m, k, n in ((3, 8, 5), (1, 1, 1), (33, 70, 65), (0, 8, 5), (4, 0, 5), (7, 130, 600)):
            for kind in ("numbers", "lines", "columns", "exponents"):
                number += 1
                (x1, a), (x2, b) = random_small(g, [m, k], left), random_small(g, [k, n], right)
                turns1, turns2 = number % 2 == 1, number % 3 == 1
                y, group_size = g.tensor([m, n], torch.float32), 0
                if kind == "exponents":
                    blocks = -(-k // 64)
                    (scale1, e1), (scale2, e2) = exponents(g, blocks, m), exponents(g, blocks, n)
                    at = torch.arange(k) // 32
                    product = (a * e1[at].t()) @ (b * e2[at])
                    scale1 = scale1 if turns1 or number % 4 == 0 else exchanged(scale1)
                    scale2 = exchanged(scale2) if turns2 else scale2
                    group_size = ((1 << 32) + (1 << 16) + 32) if number % 2 else 0
                else:
                    scale2 = g.tensor([n if kind in ("lines", "columns") else 1], torch.float32)
                    scale1 = g.tensor([m if kind == "lines" else 1], torch.float32) if kind != "columns" else None
                    product = a @ b * high(scale2) * (1 if scale1 is None else high(scale1).reshape(-1, 1))
                yield Case({"x1": turned(x1) if turns1 else x1, "x2": turned(x2) if turns2 else x2, "x1ScaleOptional": scale1,
                            "x2Scale": scale2, "yRef": y, "transposeX1": turns1, "transposeX2": turns2, "groupSize": group_size},
                           {"yRef": Ref(high(y) + product, torch.float32)})
    (x1, a), (x2, b) = random_small(g, [2, 1, 3, 8], E4M3), random_small(g, [4, 8, 5], E5M2)
    y, scale = g.tensor([2, 4, 3, 5], torch.float32), g.tensor([5], torch.float32)
    yield Case({"x1": x1, "x2": x2, "x1ScaleOptional": None, "x2Scale": scale, "yRef": y, "transposeX1": False,
                "transposeX2": False, "groupSize": 0}, {"yRef": Ref(high(y) + a @ b * high(scale), torch.float32)})


@cases("QuantGroupedMatmulInplaceAdd")
def added_groups(op, g):
    number = 0
    lists = ([8], [3, 3, 8], [0, 70, 70, 130], [5, 2, 900, -4], [64, 100])
    for left, right in PAIRS:
        for ends in lists:
            for kind in ("numbers", "columns", "none", "exponents"):
                number += 1
                k = max(8, min(ends[-1], 130) if ends[-1] > 0 else 40) + number % 2
                groups, (m, n) = len(ends), ((7, 11), (33, 17), (29, 300))[number % 3]
                (x1, a), (x2, b) = random_small(g, [k, m], left), random_small(g, [k, n], right)
                begins, until = [], 0
                for end in ends:
                    begins.append(until)
                    until = min(max(end, until), k)
                bounds = [*begins, until]
                list_type = number % 2
                given = torch.tensor([bounds[i + 1] - bounds[i] for i in range(groups)] if list_type else ends)
                y = g.tensor([groups, m, n], torch.float32)
                value = high(y).clone()
                if kind == "exponents":
                    blocks = k // 64 + groups
                    (scale1, e1), (scale2, e2) = exponents(g, blocks, m), exponents(g, blocks, n)
                elif kind == "none":
                    scale1, scale2 = None, g.tensor([1], torch.float32)
                else:
                    shape = [groups, n] if kind == "columns" else [groups, 1] if number % 2 else [groups]
                    scale1, scale2 = g.tensor([groups, 1] if number % 3 else [groups], torch.float32), g.tensor(shape, torch.float32)
                for e in range(groups):
                    rows = torch.arange(bounds[e], bounds[e + 1])
                    if kind == "exponents":
                        at = 2 * (bounds[e] // 64 + e) + (rows - bounds[e]) // 32
                        value[e] += (a[rows] * e1[at]).t() @ (b[rows] * e2[at])
                        continue
                    factor = high(scale2).reshape(-1)[0] if kind == "none" else high(scale2)[e] * high(scale1).reshape(-1)[e]
                    value[e] += a[rows].t() @ b[rows] * factor
                if kind == "exponents" and number % 4 < 2:
                    scale1, scale2 = exchanged(scale1), exchanged(scale2)
                assert m != k and k // 64 + groups not in (m, n)  # else strides tell which dim is which: see test_small_floats.py
                yield Case({"x1": x1 if number % 2 else turned(x1), "x2": x2, "scale1Optional": scale1,
                            "scale2": scale2, "groupList": given, "yRef": y, "groupListType": list_type, "groupSize": 0},
                           {"yRef": Ref(value, torch.float32)})


# ---- Rows that become such numbers ----

def quantized(v, step):
    """v / step in float32, 0 where the step is 0."""
    step = step.float()
    return torch.where(step == 0, torch.zeros_like(v), v.float() / step)


@cases("GroupedDynamicBlockQuant", "GroupedDynamicBlockQuantV2")
def grouped_blocks(op, g):
    number = 0
    for dtype in TYPES:
        for shape, ends in (([5, 40], [2, 2, 5]), ([2, 9, 130], [4, 9]), ([1, 2], [1]), ([0, 8], [0]), ([7, 3], [0, 0, 7]),
                            ([300, 70], [129, 200, 300]), ([6, 8], [2, 4]), ([2, 6, 0], [6]), ([5, 16], [3, 1, 900, -2])):
            for rows, columns in ((1, 128), (4, 16), (128, 64)):
                number += 1
                small = (E5M2, E4M3, HIFLOAT8)[number % 3]
                x = g.tensor(shape, dtype) * 8
                if x.numel() > 40:
                    x.view(-1, shape[-1])[0] = 0
                    x.view(-1)[-1] = float("nan") if number % 4 == 0 else float("inf") if number % 4 == 1 else 3.0
                top, least = GREATEST[small], 8.0 if number % 5 == 0 else 0.0
                if op.endswith("V2") and number % 2:
                    top = 15.0
                m, n = shape[-2:]
                step = torch.zeros([*shape[:-2], m // rows + len(ends), -(-n // columns)])
                y, begin = torch.zeros(shape), 0
                for i, end in enumerate(ends):
                    end = min(max(end, begin), m)
                    for at in range(begin, end, rows):
                        line = begin // rows + i + (at - begin) // rows
                        for column in range(0, n, columns):
                            place = (..., slice(at, min(at + rows, end)), slice(column, column + columns))
                            block = x[place].float()
                            found = block.abs().amax((-2, -1)) / torch.tensor(top)
                            if least:
                                found = torch.where(found > 1 / least, torch.tensor(1 / least), found)
                            step[..., line, column // columns] = found
                            y[place] = quantized(block, found.unsqueeze(-1).unsqueeze(-1))
                    begin = end
                args = {"x": x, "groupList": torch.tensor(ends, dtype=torch.int32), "minScale": least,
                        "roundModeOptional": None if number % 2 else "round" if small == HIFLOAT8 else "rint",
                        "dstType": number_of(small), "rowBlockSize": rows, "colBlockSize": columns, "groupListType": 0}
                if op.endswith("V2"):
                    args["dstTypeMax"] = 15.0 if top == 15.0 else 0.0
                yield Case(args, {"yOut": Nearest(y, small), "scaleOut": Ref(step)})


@cases("QuantMax", "GroupedQuantMax")
def scaled(op, g):
    number = 0
    for dtype in TYPES:
        for shape, ends in (([5, 40], [2, 2, 5]), ([4, 3, 130], [4]), ([0, 8], [0]), ([7, 0], [7]), ([9, 600], [0, 4, 9]), ([6, 8], [2, 4]),
                            ([6, 2, 2, 3], [3, 1, 900, -2]), ([17], [17])):
            if len(shape) == 1 and op == "GroupedQuantMax":
                continue
            number += 1
            small = (E5M2, E4M3, HIFLOAT8)[number % 3]
            x = g.tensor(shape, dtype)
            if x.numel() > 40:
                x.view(-1)[-1] = float("nan") if number % 4 == 0 else float("inf") if number % 4 == 1 else 3.0
            ends = ends if op == "GroupedQuantMax" else [shape[0]]
            scale = g.tensor([len(ends)], torch.float32)
            y, amax, begin = torch.zeros(shape), torch.zeros([len(ends)]), 0
            for i, end in enumerate(ends):
                end = min(max(end, begin), shape[0])
                part = x[begin:end].float()
                y[begin:end] = part * scale[i]
                amax[i] = part.abs().amax() if part.numel() else 0
                begin = end
            args = {"x": x, "scale": scale, "roundMode": "round" if small == HIFLOAT8 else "rint", "dstType": number_of(small)}
            if op == "GroupedQuantMax":
                args["groupList"] = torch.tensor(ends)
            yield Case(args, {"y": Nearest(y, small), "amax": Ref(amax.to(dtype))})


def gated(x, limit):
    a, b = high(x).chunk(2, -1)
    if limit > 0:
        a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    return functional.silu(a) * b


def real_rows(counts, rows):
    """Where groups begin, and where the last one ends."""
    bounds = [0]
    for count in counts:
        bounds.append(min(bounds[-1] + max(count, 0), rows))
    return bounds


def blocks_of(v, size, even=False):
    """The last dim in blocks, padded with zeros; `even`: pairs of blocks."""
    unit = 2 * size if even else size
    return functional.pad(v, (0, -v.shape[-1] % unit)).unflatten(-1, (-1, size))


SWIGLU_SHAPES = (([4, 16], None), ([5, 600], [2, 1]), ([2, 3, 130], [1, 0, 4]), ([1, 2], None), ([0, 16], [0]), ([70, 64], [30, 70, -3]),
                 ([6], None))


@cases("SwigluGroupQuant")
def swiglu_quant(op, g):
    number = 0
    for dtype in TYPES:
        for shape, counts in SWIGLU_SHAPES:
            for mode in range(4):
                number += 1
                small = HIFLOAT8 if mode > 1 else (E4M3, E5M2)[number % 2]
                rows, n = math.prod(shape[:-1]), shape[-1] // 2
                limit = (-1.0, 0.8, 0.0)[number % 3]
                x = g.tensor(shape, dtype) * 2
                weight = g.tensor([[*shape[:-1], 1], [rows]][number % 2], torch.float32) if number % 4 < 2 else None
                v = gated(x, limit) * (1 if weight is None else high(weight).reshape([*shape[:-1], 1]))
                bounds = real_rows(counts, rows) if counts is not None else [0, rows]
                lives = (torch.arange(rows) < bounds[-1]).reshape([*shape[:-1], 1])
                origin, y_shape = v * lives, [*shape[:-1], n]
                rounds, given, top = bool(number % 2), None, 15.0 if number % 2 else 0.0
                if mode == 0:
                    step = (blocks_of(v, 128).abs().amax(-1).clamp(min=1e-8) / GREATEST[small])
                    step = 2.0 ** step.log2().ceil() if rounds else step
                    each = step.repeat_interleave(128, -1)[..., :n]
                    scale = Ref(step * lives, torch.float32, bound="exact" if rounds else "16/16")
                elif mode == 1:
                    most = blocks_of(v, 32, even=True).abs().amax(-1)
                    power = (torch.frexp(most).exponent - 1 - (8 if small == E4M3 else 15)).clamp(-127, 127)
                    power = torch.where(most == 0, torch.full_like(power, -127), power)
                    each = (2.0 ** power.double()).repeat_interleave(32, -1)[..., :n]
                    bits = torch.where(lives, power + 127, torch.zeros_like(power)).to(torch.uint8)
                    scale = Ref(bits.reshape([*shape[:-1], -(-n // 64), 2]).view(E8M0), bound="exact")
                else:
                    groups = len(bounds) - 1
                    flat = v.reshape(rows, n)
                    if mode == 2:
                        given = g.tensor([groups if number % 3 else 1], torch.float32, "positive")
                        steps, scale = high(given).expand(groups), torch.zeros(0)
                    else:
                        most = [flat[begin:end].abs().max().item() if end > begin and n else 0.0
                                for begin, end in zip(bounds, bounds[1:], strict=False)]
                        steps = torch.tensor(most, dtype=torch.float64).clamp(min=1e-8) / (top or 32768.0)
                        scale = Ref(steps, torch.float32, bound="16/16")
                    each = torch.ones(rows, 1, dtype=torch.float64)
                    for group, (begin, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
                        each[begin:end] = steps[group]
                    each = each.reshape([*shape[:-1], 1])
                wanted = Nearest(torch.where(lives, v / each, torch.zeros_like(v)).reshape(y_shape), small)
                keeps = number % 3 != 1
                yield Case({"x": x, "weightOptional": weight,
                            "groupIndexOptional": None if counts is None else torch.tensor(counts),
                            "scaleOptional": given, "dstType": number_of(small), "quantMode": mode,
                            "blockSize": (0, {0: 128, 1: 32}.get(mode, 0))[number % 2], "roundScale": rounds,
                            "clampLimit": limit, "dstTypeMax": top, "outputOrigin": keeps},
                           {"yOut": wanted, "yScaleOut": scale,
                            "yOriginOut": Ref(origin, dtype, bound="16/2 of max") if keeps else None})


@cases("SwigluGroupQuantGrad")
def swiglu_grad(op, g):
    number = 0
    for dtype in TYPES:
        for shape, counts in SWIGLU_SHAPES:
            for kind in ("alone", "weight", "origin", "computed"):
                number += 1
                rows, n = math.prod(shape[:-1]), shape[-1] // 2
                limit = (0.0, 0.8, -1.0)[number % 3]
                x, grad = g.tensor(shape, dtype), g.tensor([*shape[:-1], n], dtype)
                lives = torch.ones(rows, 1) if counts is None else (torch.arange(rows) < real_rows(counts, rows)[-1]).reshape(-1, 1)
                lives = lives.double().reshape([*shape[:-1], 1])
                weight = None if kind == "alone" else g.tensor([*shape[:-1], 1], torch.float32)
                leaf = high(x).clone().requires_grad_()
                factor = torch.ones([*shape[:-1], 1]).double() if weight is None else high(weight).clone()
                factor.requires_grad_()
                y = gated(leaf, limit)
                (y * factor * lives * high(grad)).sum().backward()
                given = y.detach().to(dtype) if kind == "origin" else None
                grad_weight = None
                if kind in ("origin", "computed"):
                    origin = y.detach() if given is None else high(given)
                    grad_weight = Ref((origin * high(grad) * lives).sum(-1, keepdim=True), torch.float32)
                    if given is None:  # as autograd has it
                        torch.testing.assert_close(grad_weight.value, factor.grad)
                yield Case({"gradY": grad, "x": x, "weightOptional": weight, "yOriginOptional": given,
                            "groupIndexOptional": None if counts is None else torch.tensor(counts), "clampLimit": limit},
                           {"gradXOut": Ref(leaf.grad, dtype), "gradWeightOutOptional": grad_weight})


# ---- Turned into quantized caches ----

def turn(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


@cases("DequantRopeQuantKvcache")
def turned_caches(op, g):
    number = 0
    for dtype in HALVES:
        for b, s, hq, h, d in ((2, 3, 4, 2, 8), (1, 1, 1, 1, 2), (3, None, 2, 1, 16), (0, 2, 1, 1, 4), (2, 5, 0, 3, 6)):
            for mode in ("contiguous", "page", None):
                for given in (torch.int32, dtype, torch.float32):
                    number += 1
                    rows, lines, pages = b * (s or 1), 7, b + 1
                    lead = [b] if s is None else [b, s]
                    width = (hq + 2 * h) * d
                    weight = row = bias = None
                    if given == torch.int32:
                        x = torch.randint(-200, 200, [*lead, width], generator=g.torch).to(torch.int32)
                        weight = g.tensor([width] if number % 2 else [1, width], (torch.float32, torch.bfloat16)[number % 2]) / 100
                        row = g.tensor([rows], torch.float32, "positive") if number % 4 < 2 else None
                        kind = (None, torch.int32, torch.float32, torch.float16)[number % 4]
                        bias = None if kind is None else (
                            torch.randint(-50, 50, [width], generator=g.torch).to(kind) if kind == torch.int32 else
                            g.tensor([width], kind))
                        v = high(x).double() + (high(bias) if kind == torch.int32 else 0)
                        v = v * high(weight).reshape(-1) * (1 if row is None else high(row).reshape([*lead, 1]))
                        v = v + (high(bias) if kind not in (None, torch.int32) else 0)
                    else:
                        x = g.tensor([*lead, width], given)
                        v = high(x)
                    cos, sin = g.tensor([*lead, 1, d], dtype), g.tensor([*lead, 1, d], dtype)
                    q, k, value = (part.unflatten(-1, (-1, d)) if part.shape[-1] else part.reshape([*lead, 0, d])
                                   for part in v.split([hq * d, h * d, h * d], -1))
                    q, k = turn(q, high(cos), high(sin)), turn(k, high(cos), high(sin))
                    scales = [g.tensor([[d], [h, d], [1], [h * d]][(number + i) % 4], torch.float32, "positive") * 20 for i in range(2)]
                    offsets = [None if (number + i) % 3 == 0 else g.tensor([d], (torch.float32, torch.bfloat16)[i]) * 4 for i in range(2)]
                    caches = [torch.randint(-128, 128, [pages, lines, h, d], generator=g.torch).to(torch.int8) for _ in range(2)]
                    wanted = []
                    slots = (torch.randint(-1, lines - (s or 1) + 2, [b], generator=g.torch) if mode != "page" else
                             torch.randint(-1, pages * lines + 1, [rows], generator=g.torch)).to((torch.int32, torch.int64)[number % 2])
                    for cache, numbers, scale, offset in zip(caches, (k, value), scales, offsets, strict=True):
                        new = numbers * high(scale).reshape([h, d] if scale.numel() == h * d else [1, -1])
                        new = (new if offset is None else new + high(offset)).clamp(-128.4, 127.4)
                        new, out = new.reshape(rows, h, d), cache.double().clone()
                        for token in range(rows):
                            slot = int(slots[token if mode == "page" else token // (s or 1)])
                            if mode == "page" and 0 <= slot < pages * lines:
                                out.view(-1, h, d)[slot] = new[token]
                            elif mode != "page" and 0 <= slot <= lines - 1 - token % (s or 1):
                                out[token // (s or 1), slot + token % (s or 1)] = new[token]
                        wanted.append(Rounded(out))
                    keeps = number % 2 == 0
                    yield Case({"x": x, "cos": cos, "sin": sin, "kCacheRef": caches[0], "vCacheRef": caches[1], "indices": slots,
                                "scaleK": scales[0], "scaleV": scales[1], "offsetKOptional": offsets[0],
                                "offsetVOptional": offsets[1], "weightScaleOptional": weight, "activationScaleOptional": row,
                                "biasOptional": bias, "sizeSplits": [hq * d, h * d, h * d], "quantModeOptional": "static",
                                "layoutOptional": "BSND" if number % 2 else None, "kvOutput": keeps, "cacheModeOptional": mode},
                               {"kCacheRef": wanted[0], "vCacheRef": wanted[1], "qOut": Ref(q, dtype),
                                "kOut": Ref(k, dtype) if keeps else None, "vOut": Ref(value, dtype) if keeps else None})
