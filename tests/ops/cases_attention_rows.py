# SPDX-License-Identifier: Apache-2.0
"""Rows around attention: parts put together, heads into caches, windows compressed."""

import torch

from cases_attention import TYPES, attention, rotated, to_layout
from cases_attention_quantised import Nearly
from cases_paged_cache import cut, stored
from harness import Case, Ref, cases, high


@cases("RingAttentionUpdateV2")
def ring(op, g):
    for dtype in TYPES:
        for layout in ("SBH", "TND"):
            batch = 1 if layout == "TND" else 2
            q, k, v = (g.tensor([batch, 4, n, 8], torch.float64) for n in (5, 12, 12))
            parts = [attention(q, k[:, :, a:b], v[:, :, a:b], 0.5) for a, b in ((0, 4), (4, 12))]
            out, maximum, total, _ = attention(q, k, v, 0.5)
            outs = [to_layout(part[0], layout).to(dtype) for part in parts]
            # The result that follows from the rounded ones.
            share = [(part[2] * (part[1] - maximum).exp() / total) for part in parts]
            joined = sum(to_layout(s.expand_as(out), layout) * high(o) for s, o in zip(share, outs))
            eight = [[to_layout(t.expand(*t.shape[:-1], 8), "TND" if layout == "TND" else "BNSD").float() for t in part[1:3]]
                     for part in (*parts, (out, maximum, total))]
            args = {"prevAttnOut": outs[0], "prevSoftmaxMax": eight[0][0], "prevSoftmaxSum": eight[0][1],
                    "curAttnOut": outs[1], "curSoftmaxMax": eight[1][0], "curSoftmaxSum": eight[1][1],
                    "actualSeqQlenOptional": torch.tensor([2, 5]) if layout == "TND" else None,
                    "inputLayoutOptional": layout, "inputSoftmaxLayoutOptional": "TND" if layout == "TND" else None}
            yield Case(args, {"attnOut": Ref(joined, dtype), "softmaxMaxOut": Ref(eight[2][0]),
                              "softmaxSumOut": Ref(eight[2][1])})


@cases("QkvRmsNormRopeCache")
def heads_into_caches(op, g):
    for number, dtype in enumerate(TYPES):
        for quantized in (False, True):
            batch, tokens, heads, size, page, pages = 2, 3, (4, 2, 2), 32, 4, 5
            count = batch * tokens
            qkv = g.tensor([count, sum(heads) * size], dtype)
            gammas = [g.tensor([size], dtype) for _ in range(2)]
            cos, sin = g.tensor([count, size], dtype, "unit"), g.tensor([count, size], dtype, "unit")
            q, k, v = high(qkv).reshape(count, -1, size).split(heads, 1)
            angles = high(cos).unsqueeze(1), high(sin).unsqueeze(1)
            q, k = (rotated(x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * high(w), *angles, 0)
                    for x, w in zip((q, k), gammas))
            index = g.permutation(page * pages)[:count]
            index[0] = -1
            caches, expected, scales, offsets = [], [], [], []
            for rows in (k, v):
                scale = g.tensor([2, size] if number else [size], torch.float32, "positive") / 20 if quantized else None
                offset = g.tensor([2, size] if number else [size], torch.float32) if quantized and number else None
                line = rows
                if quantized:
                    line = (rows / high(scale) + (0 if offset is None else high(offset))).round().clamp(-128, 127)
                cache = g.tensor([pages, page, 2, size], torch.int8 if quantized else dtype)
                result = stored(high(cache) if not quantized else cache.double(), index, line)
                caches.append(cut(cache))
                expected.append(cut(result.to(cache.dtype)))
                scales.append(scale)
                offsets.append(offset)
            wants = number != 1
            args = {"qkv": qkv, "qGamma": gammas[0], "kGamma": gammas[1], "cos": cos, "sin": sin, "index": index,
                    "qOutRef": g.tensor([count, 4 * size], dtype), "kCacheRef": caches[0], "vCacheRef": caches[1],
                    "kScaleOptional": scales[0], "vScaleOptional": scales[1], "kOffsetOptional": offsets[0],
                    "vOffsetOptional": offsets[1], "qkvSize": [batch, tokens, sum(heads), size], "headNums": list(heads),
                    "epsilon": 1e-6, "cacheModeOptional": "PA_NZ"}
            plain = [Ref(x.reshape(count, -1), dtype) if wants else None for x in (q, k, v)]
            expect = {"qOutRef": Ref(q.reshape(count, -1), dtype)}
            expect |= {n: Nearly(x) if quantized else Ref(x, dtype) for n, x in zip(("kCacheRef", "vCacheRef"), expected)}
            yield Case(args, expect | {f"{n}OutBeforeQuantOptional": x for n, x in zip("qkv", plain)})


def windows_of(lengths, block, stride):
    begin = 0
    for length in lengths:
        yield from range(begin, begin + max(0, length - block + 1), stride)
        begin += length


@cases("NsaCompress", "NsaCompressGrad")
def compress(op, g):
    for dtype in TYPES:
        for lengths, block, stride in (([20, 3, 9], 4, 2), ([17], 5, 7), (None, 3, 1), ([2], 4, 2)):
            tokens = sum(lengths) + 1 if lengths else 12
            x, w = g.tensor([tokens, 2, 6], dtype), g.tensor([block, 2], dtype)
            leaves = [high(t).requires_grad_() for t in (x, w)]
            begins = list(windows_of(lengths or [tokens], block, stride))
            parts = [(leaves[0][b:b + block] * leaves[1].unsqueeze(-1)).sum(0) for b in begins]
            out = torch.stack(parts) if parts else torch.zeros(0, 2, 6, dtype=torch.float64)
            ends = torch.tensor(lengths).cumsum(0).tolist() if lengths else None
            args = {"input": x, "weight": w, "compressBlockSize": block, "compressStride": stride, "actSeqLenType": 0}
            if op == "NsaCompress":
                yield Case(args | {"actSeqLenOptional": ends, "layoutOptional": "TND"}, {"output": Ref(out.detach(), dtype)})
                continue
            grad = g.tensor(list(out.shape), dtype)
            wanted = (torch.autograd.grad((out * high(grad)).sum(), leaves) if parts
                      else [torch.zeros_like(t) for t in leaves])
            yield Case(args | {"outputGrad": grad, "actSeqLenOptionalOptional": ends, "layoutOptionalOptional": None},
                       {n: Ref(t, dtype) for n, t in zip(("inputGradOut", "weightGradOut"), wanted)})


@cases("NsaCompressWithCache")
def compress_newest(op, g):
    lengths, block, stride, page = [8, 9, 3, 4, 12], 4, 2, 4  # the second and the third complete no window
    for number, dtype in enumerate(TYPES):
        for paged in (False, True):
            w, cache = g.tensor([block, 2], dtype), g.tensor([7, 2, 6], dtype)
            slots = torch.tensor([3, 0, 1, 9, 6], dtype=torch.int32 if number else torch.int64)
            rows = [g.tensor([n, 2, 6], dtype) for n in lengths]
            wanted = high(cache).clone()
            for b, length in enumerate(lengths):
                if length >= block and (length - block) % stride == 0 and int(slots[b]) < 7:
                    wanted[int(slots[b])] = (high(rows[b])[length - block:] * high(w).unsqueeze(-1)).sum(0)
            x, table = torch.cat(rows), None
            if paged:
                table = g.permutation(20, torch.int32)[:15].reshape(5, 3)
                x = g.tensor([20, page, 2, 6], dtype)
                for b, row in enumerate(rows):
                    for i in range(len(row)):
                        x[int(table[b, i // page]), i % page] = row[i]
            ends = paged and number == 1
            yield Case({"input": x, "weight": w, "slotMapping": slots, "blockTableOptional": table, "layoutOptional": None,
                        "actSeqLenOptional": torch.tensor(lengths).cumsum(0).tolist() if ends else lengths,
                        "compressBlockSize": block, "compressStride": stride, "actSeqLenType": 0 if ends else 1,
                        "pageBlockSize": page, "outputCache": cache}, {"outputCache": Ref(wanted, dtype)})
