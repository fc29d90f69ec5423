# SPDX-License-Identifier: Apache-2.0
"""Attention whose keys, values, queries or results are int8."""

import torch

from cases_attention import arguments, attention, tensors, to_layout
from harness import Case, Ref, cases, high

FUSED = tuple("FusedInferAttentionScore" + version for version in ("", "V2", "V3", "V4", "V5"))
INT8 = torch.int8


def integers(g, shape):
    return torch.randint(-128, 128, shape, generator=g.torch).to(INT8)


class Nearly(Ref):
    """int8 results that may be off by one where a number lay next to a half."""

    def verify(self, actual, op):
        off = (actual.int() - self.value.int()).abs()
        assert list(actual.shape) == self.shape and off.max() <= 1 and (off != 0).float().mean() < 0.02, f"{op}: {off.max()}"


def known(op, **given):
    from aclnn import TABLE
    names = {n for _, n in TABLE[op].parameters}
    return {k: v for k, v in given.items() if {k, k + "Optional", k.lower()} & names}


def outputs(op, out):
    return {"attentionOut": out} | ({"softmaxLse": None} if op.startswith("Fused") else {})


def restored(x, scale, offset):
    return (x.double() + (0 if offset is None else high(offset))) * high(scale)


# Shapes [batch, heads, tokens, depth] of factors by mode, and how they are passed.
MODES = {
    "tensor": (0, lambda b, n, s, d: (1, 1, 1, 1), lambda t: t.reshape(1)),
    "channel": (0, lambda b, n, s, d: (1, n, 1, d), lambda t: t[0, :, 0]),
    "row": (0, lambda b, n, s, d: (1, n, 1, d), lambda t: t.reshape(-1)),
    "token": (1, lambda b, n, s, d: (b, 1, s, 1), lambda t: t[:, 0, :, 0]),
    "head": (2, lambda b, n, s, d: (1, n, 1, 1), lambda t: t.reshape(-1)),
    "token and head": (3, lambda b, n, s, d: (b, n, s, 1), lambda t: t[..., 0]),
}


@cases("IncreFlashAttentionV3", "IncreFlashAttentionV4", *FUSED)
def int8_cache(op, g):
    apart = op.startswith("Fused") and op != "FusedInferAttentionScore"
    lengths = "actualSeqLengthsKv" if op.startswith("Fused") else "actualSeqLengths"
    for number, (mode, (code, shape, told)) in enumerate(MODES.items()):
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            if code > 1 and not apart or code and op.startswith("Incre"):
                continue
            for queries, keys in ((1, 700), (9, 40)):
                if queries > 1 and not op.startswith("Fused"):
                    continue
                b, heads, n, d = 2, 4, 2, 16
                q = g.tensor([b, heads, queries, d], dtype)
                k, v = integers(g, [b, n, keys, d]), integers(g, [b, n, keys, d])
                factor_type = torch.float32 if mode == "token" and dtype != torch.bfloat16 else dtype
                ks, vs = (g.tensor(shape(b, n, keys, d), factor_type, "positive") * 0.02 for _ in range(2))
                ko, vo = (g.tensor(shape(b, n, keys, d), factor_type) if number % 2 else None for _ in range(2))
                fewer = [keys - 3, keys]
                hidden = torch.arange(keys) >= torch.tensor(fewer).reshape(b, 1, 1, 1)
                out = attention(q, restored(k, ks, ko), restored(v, vs, vo), 0.2, hidden)[0]
                given = {lengths: fewer}
                if apart and number != 1:
                    given |= {"keyAntiquantScale": told(ks), "valueAntiquantScale": told(vs), "keyAntiquantMode": code,
                              "valueAntiquantMode": code}
                    given |= {} if ko is None else {"keyAntiquantOffset": told(ko), "valueAntiquantOffset": told(vo)}
                else:
                    given |= {"antiquantScale": torch.stack([told(ks).squeeze(0) if mode == "tensor" else told(ks),
                                                             told(vs).squeeze(0) if mode == "tensor" else told(vs)])}
                    given |= {} if ko is None else {"antiquantOffset": torch.stack([told(ko), told(vo)])}
                    given |= known(op, antiquantMode=code)
                layout = ("BNSD", "BSH", "BSND")[number % 3]
                args = arguments(op, *(to_layout(t, layout) for t in (q, k, v)), layout, heads, n, 0.2, **given)
                yield Case(args, outputs(op, Ref(to_layout(out, layout), dtype)))


@cases(*FUSED[1:], "IncreFlashAttentionV4")
def int8_pages(op, g):
    """Factors for each token, by sequence and by page."""
    lengths_name = "actualSeqLengthsKv" if op.startswith("Fused") else "actualSeqLengths"
    b, heads, n, d, size, pages = 2, 4, 2, 8, 16, 4
    lengths = [35, 64]
    for shape in ("BSH", "BNSD"):
        for code in (0, 1, 3, 4, 5) if op.startswith("Fused") else (0,):
            q = g.tensor([b, heads, 1, d], torch.float16)
            k, v = integers(g, [b, n, size * pages, d]), integers(g, [b, n, size * pages, d])
            of_token = {0: (1, n, 1, d), 1: (b, 1, size * pages, 1), 3: (b, n, size * pages, 1), 4: (b, 1, size * pages, 1),
                        5: (b, n, size * pages, 1)}[code]
            ks, vs = (g.tensor(of_token, torch.float16, "positive") * 0.02 for _ in range(2))
            table = g.permutation(12, torch.int32).reshape(2, 6)[:, :pages].contiguous()

            def paged(source, fill):
                result = torch.full([12, source.shape[1], size, source.shape[3]], fill, dtype=source.dtype)
                for i in range(b):
                    for block in range(pages):
                        result[table[i, block].item()] = source[i, :, block * size:(block + 1) * size]
                return result

            told = {0: lambda t: t[0, :, 0], 1: lambda t: t[:, 0, :, 0], 3: lambda t: t[..., 0],
                    4: lambda t: paged(t, 1.0)[:, 0, :, 0], 5: lambda t: paged(t, 1.0)[..., 0]}[code]
            given = ({"keyAntiquantScale": told(ks), "valueAntiquantScale": told(vs), "keyAntiquantMode": code,
                      "valueAntiquantMode": code} if op.startswith("Fused")
                     else {"antiquantScale": torch.stack([told(ks), told(vs)])})
            hidden = torch.arange(size * pages) >= torch.tensor(lengths).reshape(b, 1, 1, 1)
            out = attention(q, restored(k, ks, None), restored(v, vs, None), 0.3, hidden)[0]
            args = arguments(op, q, *(to_layout(paged(t, 0), shape) for t in (k, v)), "BNSD", heads, n, 0.3,
                             blockTable=table, blockSize=size, **{lengths_name: lengths}, **given)
            yield Case(args, outputs(op, Ref(out, torch.float16)))


@cases("PromptFlashAttentionV2", "PromptFlashAttentionV3", "IncreFlashAttentionV2", *FUSED)
def int8_all(op, g):
    """Queries, keys and values are int8; results float16, or int8 by a scale and an offset."""
    queries = 1 if op.startswith("Incre") else 7
    first = "dequantScale1" if op.startswith("Incre") else "deqScale1"
    for as_bits in (False, True):
        for into in (torch.float16, INT8):
            q, k, v = (integers(g, [2, n, s, 16]) for n, s in ((4, queries), (2, 30), (2, 30)))
            one, two, three = torch.tensor([0.001]), torch.tensor([100.0]), torch.tensor([0.0004])
            out = attention(q.double() * one.double(), k.double(), v.double() * two.double() * three.double(), 0.5)[0]
            given = {first: one.view(torch.int32).to(torch.int64).to(torch.uint64) if as_bits else one, "quantScale1": two,
                     first.replace("1", "2"): three}
            if into == INT8:
                scale, offset = g.tensor([4, 16] if as_bits else [1], torch.float32, "positive") * 20, torch.tensor([3.0])
                out = (out * (scale.reshape(1, 4, 1, 16) if as_bits else scale).double() + 3).round().clamp(-128, 127)
                given |= {"quantScale2": scale, "quantOffset2": offset}
            args = arguments(op, q, k, v, "BNSD", 4, 2, 0.5, **given)
            yield Case(args, outputs(op, Nearly(out.to(INT8)) if into == INT8 else Ref(out, into)))
    # Floating operands, int8 results.
    q, k, v = tensors(g, torch.float16, 2, 4, 2, queries, 30, 16)
    out = (attention(q, k, v, 0.5)[0] * 30).round().clamp(-128, 127).to(INT8)
    args = arguments(op, q, k, v, "BNSD", 4, 2, 0.5, quantScale2=torch.tensor([30.0]))
    yield Case(args, outputs(op, Nearly(out)))


@cases(*FUSED[3:])
def int8_latent(op, g):
    """int8 queries with a factor for each token and head, int8 keys that are the values, parts that are turned."""
    for layout in ("BNSD", "BSND", "BSH"):
        for dtype in (torch.bfloat16, torch.float16):
            q, k = integers(g, [2, 4, 2, 32]), integers(g, [2, 1, 50, 32])
            qr, kr = g.tensor([2, 4, 2, 8], dtype), g.tensor([2, 1, 50, 8], dtype)
            factor = g.tensor([2, 4, 2, 1], torch.float32, "positive") * 0.02
            ks = torch.tensor([0.015])
            value = k.double() * 0.015
            out = attention(torch.cat([q.double() * factor.double(), high(qr)], -1), torch.cat([value, high(kr)], -1), value,
                            0.3)[0]
            told = to_layout(factor, "BSND" if layout == "BSH" else layout)[..., 0]
            args = arguments(op, *(to_layout(t, layout) for t in (q, k, k)), layout, 4, 1, 0.3,
                             queryRope=to_layout(qr, layout), keyRope=to_layout(kr, layout), dequantScaleQuery=told,
                             queryQuantMode=3, keyAntiquantScale=ks, valueAntiquantScale=ks.clone(), keyAntiquantMode=0,
                             valueAntiquantMode=0)
            yield Case(args, outputs(op, Ref(to_layout(out, layout), dtype)))
