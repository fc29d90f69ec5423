# SPDX-License-Identifier: Apache-2.0
"""Tokens into caches of pages, and out of them."""

import torch

from cases_attention import rotated
from cases_normalization import statistics
from harness import Case, Ref, cases, high

TYPES = (torch.float32, torch.float16, torch.bfloat16)


def cut(cache):
    """[pages, tokens, heads, elements] with lines in pieces of 32 bytes: [pages, pieces, tokens, elements of a piece]."""
    size = 32 // cache.element_size()
    return cache.flatten(2).reshape(*cache.shape[:2], -1, size).transpose(1, 2).contiguous()


def whole(cache, heads):
    return cache.transpose(1, 2).flatten(2).reshape(cache.shape[0], cache.shape[2], heads, -1)


def stored(cache, slots, tokens):
    """The cache as lines [page, token, head, element] with the tokens at their slots."""
    result = cache.clone()
    for token, slot in enumerate(slots.tolist()):
        if 0 <= slot < cache.shape[0] * cache.shape[1]:
            result[slot // cache.shape[1], slot % cache.shape[1]] = tokens[token].reshape(cache.shape[2:])
    return result


@cases("ScatterPaKvCache", "ScatterPaCache")
def scatter(op, g):
    both = op == "ScatterPaKvCache"
    for number, dtype in enumerate((*TYPES, torch.int8)):
        for tokens, pages, size, heads, width, value_width in ((7, 3, 4, 2, 32, 64), (1, 1, 1, 1, 32, 32), (0, 2, 4, 1, 32, 32),
                                                               (40, 5, 16, 3, 96, 32)):
            key, value = g.tensor([tokens, heads, width], dtype), g.tensor([tokens, heads, value_width], dtype)
            slots = g.permutation(pages * size)[:tokens].to(torch.int64 if number == 1 else torch.int32)
            if len(slots) < tokens:
                slots = g.index([tokens], pages * size, slots.dtype)  # some slots twice
            if tokens > 3:
                slots[1], slots[2] = -1, pages * size
            caches = [g.tensor([pages, size, heads, each], dtype) for each in (width, value_width)]
            expected = [stored(cache, slots, t) for cache, t in zip(caches, (key, value))]
            for mode in (None, "Norm", "PA_NZ"):
                given, wanted = caches, expected
                if mode == "PA_NZ":
                    given, wanted = [cut(t) for t in caches], [cut(t) for t in expected]
                    if number == 3:  # heads on their own
                        given, wanted = ([t.reshape(pages, heads, -1, size, 32) for t in ts] for ts in (given, wanted))
                args = {"key": key, "keyCacheRef": given[0], "slotMapping": slots, "compressLensOptional": None,
                        "compressSeqOffsetOptional": None, "seqLensOptional": None, "cacheMode": mode}
                expect = {"keyCacheRef": wanted[0]}
                if both:
                    args |= {"value": value, "valueCacheRef": given[1], "scatterMode": "None" if number else "Nct",
                             "stridesOptional": [1, 1] if number == 2 else None,
                             "offsetsOptional": [0, 0] if number == 2 else None}
                    expect["valueCacheRef"] = wanted[1]
                yield Case(args, expect)


@cases("GatherPaKvCache")
def gather(op, g):
    for number, dtype in enumerate((*TYPES, torch.int8)):
        index = torch.int64 if number == 1 else torch.int32
        for lengths, pages, size, heads, width, value_width in (([5, 0, 9], 6, 4, 2, 32, 64), ([1], 1, 1, 1, 32, 32),
                                                                ([33, 20], 9, 8, 1, 64, 32)):
            table = torch.stack([g.permutation(pages)[:max(1, pages - 1)] for _ in lengths]).to(index)
            if number == 2:
                table[0, 0] = pages + 3  # no page: those tokens stay
            caches = [g.tensor([pages, size, heads, each], dtype) for each in (width, value_width)]
            for mode in (None, "PA_NZ"):
                for offsets in (None, [size] * len(lengths)):
                    if offsets is not None and pages == 1:
                        continue
                    for ends in (False, True):
                        total = sum(lengths)
                        before = [g.tensor([total + 2, heads, each], dtype) for each in (width, value_width)]
                        after = [t.clone() for t in before]
                        at = 0
                        for b, length in enumerate(lengths):
                            for i in range(length):
                                place = i + (offsets[b] if offsets else 0)
                                page = int(table[b, place // size]) if place // size < table.shape[1] else -1
                                if 0 <= page < pages:
                                    for t, cache in zip(after, caches):
                                        t[at + i] = cache[page, place % size]
                            at += length
                        told = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()] if ends else lengths, dtype=index)
                        given = [cut(t) for t in caches] if mode else caches
                        yield Case({"keyCache": given[0], "valueCache": given[1], "blockTables": table, "seqLens": told,
                                    "keyRef": before[0], "valueRef": before[1], "cacheMode": mode,
                                    "seqOffsetOptional": None if offsets is None else torch.tensor(offsets, dtype=index),
                                    "isSeqLensCumsum": ends}, {"keyRef": after[0], "valueRef": after[1]})


@cases("KvRmsNormRopeCache", "KvRmsNormRopeCacheV2")
def norm_rope_cache(op, g):
    for number, dtype in enumerate(TYPES):
        for batch, length, n, m in ((3, 1, 64, 32), (2, 5, 32, 64), (1, 9, 96, 32)):
            kv = g.tensor([batch, 1, length, n + m], dtype)
            gamma = g.tensor([n], dtype)
            angles = [batch, 1, 1 if number == 1 else length, m]
            cos, sin = g.tensor(angles, dtype, "unit"), g.tensor(angles, dtype, "unit")
            k = rotated(high(kv[..., n:]), high(cos), high(sin), 3)
            _, rstd = statistics(kv[..., :n], 1, 1e-5, centered=False)
            ckv = high(kv[..., :n]) * rstd * high(gamma)
            lines = [k.to(dtype).reshape(-1, m), ckv.to(dtype).reshape(-1, n)]
            for mode in (None, "Norm", "PA", "PA_BNSD", "PA_NZ", "PA_BLK_BNSD", "PA_BLK_NZ"):
                for quantized in (False, True):
                    if quantized and (number != 0 or (mode or "Norm").endswith("Z") and mode == "PA_BLK_NZ"):
                        continue
                    size, pages = 4, batch * 4
                    tokens = batch * length
                    if mode in (None, "Norm"):
                        index = torch.stack([g.permutation(12)[:length] for _ in range(batch)])
                        slots = (index + 12 * torch.arange(batch).unsqueeze(1)).reshape(-1)
                        shapes = [[batch, 12, 1, each] for each in (m, n)]
                    elif "BLK" in mode:
                        blocks = -(-length // size)
                        index = g.permutation(pages)[:batch * blocks] * size
                        slots = torch.cat([index[b * blocks + i // size] + torch.tensor([i % size])
                                           for b in range(batch) for i in range(length)])
                        shapes = [[pages, size, 1, each] for each in (m, n)]
                    else:
                        index = slots = g.permutation(pages * size)[:tokens]
                        if tokens > 1:
                            index[0] = -1
                        shapes = [[pages, size, 1, each] for each in (m, n)]
                    factors = [g.tensor([each], torch.float32, "positive") * 10 if quantized else None for each in (m, n)]
                    shifts = [g.tensor([m], torch.float32) if quantized else None, None]
                    caches, expected = [], []
                    for shape, line, factor, shift in zip(shapes, lines, factors, shifts):
                        if quantized:
                            # Far from halves: what the norm rounds differently must not matter.
                            line = line.float() * factor + (0 if shift is None else shift)
                            line = line.round().clamp(-128, 127).to(torch.int8)
                        cache = g.tensor(shape, torch.int8 if quantized else dtype)
                        result = stored(cache, slots, line)
                        if mode in ("PA_NZ", "PA_BLK_NZ"):
                            # The pieces of a page, in memory of the plain shape.
                            cache, result = (cut(t).reshape(shape) for t in (cache, result))
                        elif mode in (None, "Norm"):
                            cache, result = (t.transpose(1, 2).contiguous() for t in (cache, result))
                        caches.append(cache)
                        expected.append(result)
                    wants = mode == "PA"
                    args = {"kv": kv, "gamma": gamma, "cos": cos, "sin": sin, "index": index.long(), "kCacheRef": caches[0],
                            "ckvCacheRef": caches[1], "kRopeScaleOptional": factors[0], "ckvScaleOptional": factors[1],
                            "kRopeOffsetOptional": shifts[0], "ckvOffsetOptional": shifts[1], "epsilon": 1e-5,
                            "cacheMode": mode, "isOutputKv": wants}
                    if op.endswith("V2"):
                        args["vOptional"] = None
                    expect = {name: Nearly(value) if quantized else Ref(value, dtype)
                              for name, value in zip(("kCacheRef", "ckvCacheRef"), expected)}
                    yield Case(args, expect | {"kRopeOut": Ref(k, dtype) if wants else None,
                                               "cKvOut": Ref(ckv, dtype) if wants else None})


class Nearly(Ref):
    """Integers that may be off by one: where numbers next to a half were rounded."""

    def verify(self, actual, op):
        assert list(actual.shape) == self.shape, f"{op}: shape {list(actual.shape)}"
        off = (actual.int() - self.value.int()).abs()
        assert off.max() <= 1 and (off != 0).float().mean() < 0.02, f"{op}: {int((off != 0).sum())} integers are off"
