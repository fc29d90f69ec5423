# SPDX-License-Identifier: Apache-2.0
"""Norms and activations that end in a quantization, parts of attention put together, likely tokens."""

import torch

from harness import Case, Ref, cases, high

TYPES = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = ([5, 40], [2, 3, 16], [1, 1032], [7], [0, 8], [300, 3])


class Rounded(Ref):
    """int8 of numbers that are known in more precision: off by one only where the number is next to a half."""

    def __init__(self, numbers):
        super().__init__(numbers.nan_to_num(0).round().clamp(-128, 127).to(torch.int8))
        self.numbers = numbers.nan_to_num(0).clamp(-128.4, 127.4)

    def verify(self, actual, op):
        assert list(actual.shape) == self.shape, f"{op}: shape {list(actual.shape)}, not {self.shape}"
        gap = (actual.double() - self.numbers.double()).abs()
        assert bool((gap <= 0.5005).all()), f"{op}: {int((gap > 0.5005).sum())} integers are off, by up to {gap.max()}"


def normed(x, gamma, beta, eps):
    y = high(x) * (high(x).square().mean(-1, keepdim=True) + eps).rsqrt() * high(gamma)
    return y if beta is None else y + high(beta)


def dynamic(v):
    """Numbers to round, and the step of each row."""
    step = v.abs().amax(-1) / 127 if v.numel() else torch.zeros(v.shape[:-1], dtype=v.dtype)
    return torch.where(step.unsqueeze(-1) == 0, torch.zeros_like(v), v / step.unsqueeze(-1)), step


@cases("AddRmsNormQuant", "AddRmsNormQuantV2")
def norm_quant(op, g):
    is_second = op.endswith("V2")
    number = 0
    for dtype in TYPES:
        for shape in SHAPES:
            for _ in range(3):
                number += 1
                n = shape[-1]
                x1, x2, gamma = g.tensor(shape, dtype), g.tensor(shape, dtype), g.tensor([n], dtype)
                divides = number % 2 == 0
                scales = [g.tensor([1 if number % 3 == 0 else n], torch.float32, "positive") + 0.05 for _ in range(2)]
                zeros = [g.tensor([n], torch.float32) * 5, torch.randint(-9, 9, [n], generator=g.torch).to(torch.int32)]
                if number % 3 == 1:
                    scales[1] = zeros[1] = None
                if number % 4 == 1:
                    zeros[0] = None
                beta = g.tensor([n], dtype) if is_second and number % 2 else None
                x = x1 + x2
                y = normed(x, gamma, beta, 1e-6)
                outs = []
                for scale, zero in zip(scales, zeros):
                    v = None
                    if scale is not None:
                        v = y / high(scale) if divides else y * high(scale) * 20
                        v = v if zero is None else v + zero.double()
                    outs.append(v)
                given = [None if s is None else s if divides else s * 20 for s in scales]
                args = {"x1": x1, "x2": x2, "gamma": gamma, "scales1": given[0], "scales2Optional": given[1],
                        "zeroPoints1Optional": zeros[0], "zeroPoints2Optional": zeros[1], "axis": -1, "epsilon": 1e-6,
                        "divMode": divides}
                expect = {"y1Out": Rounded(outs[0]), "y2Out": None if outs[1] is None else Rounded(outs[1]),
                          "xOut": Ref(x, dtype, bound="exact")}
                if is_second:
                    args["betaOptional"] = beta
                    expect["rmsNormOut"] = Ref(y, dtype, bound="16/2 of max") if number % 3 == 2 else None
                yield Case(args, expect)


@cases("AddRmsNormDynamicQuant", "AddRmsNormDynamicQuantV2")
def norm_dynamic_quant(op, g):
    is_second = op.endswith("V2")
    number = 0
    for dtype in TYPES:
        for shape in SHAPES:
            for kind in range(4):
                number += 1
                n = shape[-1]
                x1, x2, gamma = g.tensor(shape, dtype), g.tensor(shape, dtype), g.tensor([n], dtype)
                if x1.dim() > 1 and x1.numel():
                    x1[0] = x2[0] = 0
                smooth = [g.tensor([n], dtype, "positive") if kind & bit else None for bit in (1, 2)]
                beta = g.tensor([n], dtype) if is_second and number % 3 == 0 else None
                wanted = [True, smooth[1] is not None]
                mask = None
                if is_second and number % 2:
                    mask = wanted = [(True, True), (False, True), (True, False)][number // 2 % 3]
                x = x1 + x2
                y = normed(x, gamma, beta, 1e-5)
                made = [dynamic(y if s is None else y * high(s)) for s in smooth]
                args = {"x1": x1, "x2": x2, "gamma": gamma, "smoothScale1Optional": smooth[0],
                        "smoothScale2Optional": smooth[1], "epsilon": 1e-5}
                if is_second:
                    args |= {"betaOptional": beta, "outputMask": None if mask is None else list(mask)}
                expect = {"xOut": Ref(x, dtype, bound="exact")}
                for k in range(2):
                    expect[f"y{k + 1}Out"] = Rounded(made[k][0]) if wanted[k] else None
                    expect[f"scale{k + 1}Out"] = Ref(made[k][1], torch.float32, bound="32/1 of max") if wanted[k] else None
                yield Case(args, expect)


def gated(v, left, interleaved=False, clipped=None):
    """clipped: limit, alpha, shift."""
    a, b = (v[..., ::2], v[..., 1::2]) if interleaved else v.chunk(2, -1)
    if not left:
        a, b = b, a
    if clipped is None:
        return torch.nn.functional.silu(a) * b
    limit, alpha, shift = clipped
    a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    return a * torch.sigmoid(alpha * a) * (b + shift)


@cases("ClippedSwiglu")
def clipped_swiglu(op, g):
    for dtype in TYPES:
        for shape in ([5, 40], [2, 3, 16], [1, 1200], [2], [0, 8]):
            for interleaved in (True, False):
                x = g.tensor(shape, dtype) * 4
                out = gated(high(x), True, interleaved, (7.0, 1.702, 1.0))
                rows = x.numel() // shape[-1]
                for groups in (None, torch.tensor([rows // 2, rows - rows // 2])):
                    yield Case({"x": x, "groupIndexOptional": groups, "dim": -1, "alpha": 1.702, "limit": 7.0, "bias": 1.0,
                                "interleaved": interleaved}, {"out": Ref(out, dtype)})


@cases("DequantSwigluQuant", "DequantSwigluQuantV2")
def dequant_swiglu_quant(op, g):
    is_second = op.endswith("V2")
    number = 0
    for dtype in (torch.int32, torch.float16, torch.bfloat16, torch.float32):
        for shape in ([6, 40], [2, 3, 16], [1, 1200], [0, 8]):
            for mode in ("dynamic", "static", None) if dtype == torch.int32 else ("dynamic", "static"):
                for grouped in (False, True):
                    number += 1
                    n, rows = shape[-1] // 2, 1
                    for size in shape[:-1]:
                        rows *= size
                    ends = [rows // 3, rows - rows // 3] if grouped else [rows]
                    which = torch.repeat_interleave(torch.arange(len(ends)), torch.tensor(ends))
                    if dtype == torch.int32:
                        x = torch.randint(-1000, 1000, shape, generator=g.torch).to(torch.int32)
                    else:
                        x = g.tensor(shape, dtype)
                    v = x.double().reshape(rows, 2 * n)
                    weight = per_row = bias = None
                    if dtype == torch.int32:
                        weight = g.tensor([len(ends), 2 * n] if grouped or number % 2 else [2 * n], torch.float32) / 500
                        per_row = g.tensor([rows, 1], torch.float32, "positive") if number % 3 else None
                        kind = (None, torch.int32, torch.float32, torch.bfloat16)[number % 4]
                        if kind is not None:
                            bias = g.tensor([len(ends), 2 * n], kind) * (20 if kind == torch.int32 else 1)
                        if kind == torch.int32:
                            v = v + bias[which]
                        v = v * high(weight).reshape(-1, 2 * n)[which if weight.dim() == 2 and len(weight) > 1 else 0]
                        if per_row is not None:
                            v = v * high(per_row)
                        if bias is not None and kind != torch.int32:
                            v = v + high(bias)[which]
                    left = number % 2 == 0
                    clipped = is_second and number % 3 == 1
                    s = gated(v, left or clipped, clipped, (1.5, 1.3, 0.5) if clipped else None)
                    scale = offset = None
                    if mode == "dynamic":
                        if number % 2:
                            scale = g.tensor([len(ends), n], torch.float32, "positive")
                            s = s * high(scale)[which]
                        numbers, step = dynamic(s)
                    else:
                        scale = g.tensor([len(ends)] if number % 2 else [len(ends), n], torch.float32, "positive") + 0.02
                        s = s / high(scale).reshape(len(ends), -1)[which]
                        if number % 3 == 0:
                            offset = g.tensor([len(ends), n], torch.float32) * 5
                            s = s + high(offset)[which]
                        numbers, step = s, None
                    args = {"x": x, "weightScaleOptional": weight, "activationScaleOptional": per_row, "biasOptional": bias,
                            "quantScaleOptional": scale, "quantOffsetOptional": offset,
                            "groupIndexOptional": torch.tensor(ends) if grouped else None, "activateLeft": left,
                            "quantModeOptional": mode}
                    if is_second:
                        args |= {"dstType": 2, "roundModeOptional": "rint", "activateDim": -1, "swigluMode": int(clipped),
                                 "clampLimit": 1.5, "gluAlpha": 1.3, "gluBias": 0.5}
                    yield Case(args, {"yOut": Rounded(numbers.reshape(*shape[:-1], n)), "scaleOut": None if step is None else
                                      Ref(step.reshape(shape[:-1]), torch.float32, bound="32/1 of max")})


@cases("AttentionUpdate")
def merge_parts(op, g):
    for dtype in TYPES:
        for rows, n, count in ((5, 16, 3), (1, 600, 2), (0, 8, 2), (33, 4, 1)):
            sums = [g.tensor([rows], torch.float32) * 4 for _ in range(count)]
            if rows > 3 and count > 1:
                sums[0][1], sums[1][2] = float("inf"), float("-inf")
                for s in sums:
                    s[3] = float("inf")
            parts = [g.tensor([rows, n], dtype) for _ in range(count)]
            logs = torch.stack([torch.where(s == float("inf"), -torch.inf, high(s)) for s in sums])
            total = torch.logsumexp(logs, 0)
            weights = torch.where(total == -torch.inf, 0.0, torch.exp(logs - total))
            out = (weights.unsqueeze(-1) * torch.stack([high(p) for p in parts])).sum(0)
            for kind in range(2):
                yield Case({"lse": sums, "localOut": parts, "updateType": kind},
                           {"out": Ref(out, dtype), "lseOut": Ref(total, torch.float32) if kind else None})


@cases("ApplyTopKTopP")
def likely_tokens(op, g):
    """Against sorting, with numbers that are powers of two apart, so that rounding chooses nothing."""
    for dtype in TYPES:
        for rows, n in ((4, 10), (1, 1), (3, 600), (0, 5)):
            x = g.tensor([rows, n], dtype, "small")
            k = g.index([rows], n + 2, torch.int32)
            p = (torch.rand([rows], generator=g.torch) * 0.9 + 0.05).to(dtype)
            for has_k, has_p in ((True, True), (True, False), (False, True), (False, False)):
                p, out = p.clone(), x.clone()
                for r in range(rows):
                    row = x[r].float()
                    wanted = int(k[r]) if has_k and 0 < int(k[r]) <= n else n
                    least = torch.sort(row, descending=True).values[wanted - 1]
                    keep = row >= least
                    if has_p:
                        ascending = torch.sort(row[keep]).values
                        share = torch.softmax(ascending.double(), 0).cumsum(0)
                        gone = share <= 1 - float(p[r].float())
                        gone[-1] = False
                        # Not next to the boundary.
                        if bool(((share - (1 - float(p[r].float()))).abs() < 1e-5).any()):
                            p[r] = 1.0
                            gone[:] = False
                        keep &= row >= ascending[~gone][0]
                    out[r] = torch.where(keep, x[r], torch.tensor(-torch.inf, dtype=dtype))
                yield Case({"logits": x, "p": p if has_p else None, "k": k if has_k else None}, {"out": out})


@cases("RopeWithSinCosCache", "RopeWithSinCosCacheV2")
def rotation_by_table(op, g):
    modes = (0, 1) if op.endswith("V2") else (None,)
    for number, dtype in enumerate(TYPES):
        for tokens, heads, kv_heads, size, m, places in ((5, 4, 2, 16, 16, 30), (1, 1, 1, 64, 32, 1), (0, 2, 1, 8, 8, 4),
                                                         (40, 3, 1, 20, 12, 7)):
            query, key = g.tensor([tokens, heads * size], dtype), g.tensor([tokens, kv_heads * size], dtype)
            table = g.tensor([places, m], dtype, "unit")
            choices = [(sections, mode) for mode in modes for sections in (None, [m // 2 - 2, 1, 1])]
            choices += [([m // 2 - 3, 1, 1, 1], 0)] if len(modes) == 2 else []
            for sections, mode in choices:
                index = torch.int32 if number == 1 else torch.int64
                positions = g.index([tokens] if sections is None else [len(sections), tokens], places, index)
                rows = high(table)[positions.long()]
                cos, sin = rows.chunk(2, -1)
                if sections is not None and mode == 1:  # by turns, as long as a section lasts
                    kinds = [i % 3 if i < 3 * sections[i % 3] else 0 for i in range(m // 2)]
                    cos, sin = (torch.stack([t[kind, :, i] for i, kind in enumerate(kinds)], -1) for t in (cos, sin))
                elif sections is not None:
                    cos, sin = (torch.cat([part[i] for i, part in enumerate(t.split(sections, -1))], -1) for t in (cos, sin))
                cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
                for neox in (True, False):
                    outs = []
                    for x in (query, key):
                        parts = high(x).reshape(tokens, x.shape[1] // size, size).clone()
                        a, b = ((parts[..., :m // 2], parts[..., m // 2:m]) if neox else
                                (parts[..., :m:2], parts[..., 1:m:2]))
                        turned = (a * cos - b * sin, b * cos + a * sin)
                        parts[..., :m] = torch.cat(turned, -1) if neox else torch.stack(turned, -1).flatten(-2)
                        outs.append(Ref(parts.reshape(x.shape), dtype))
                    yield Case({"positions": positions, "queryIn": query, "keyIn": key, "cosSinCache": table,
                                "mropeSection": sections, "headSize": size, "isNeoxStyle": neox}
                               | ({} if mode is None else {"cacheMode": mode}),
                               {"queryOut": outs[0], "keyOut": outs[1]})
