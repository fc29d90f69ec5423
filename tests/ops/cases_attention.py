# SPDX-License-Identifier: Apache-2.0
"""Attention, rotary position embedding, choice of experts."""

import math

import torch

from harness import Case, Ref, cases, high

TYPES = (torch.float32, torch.float16, torch.bfloat16)
FAR = 2**31 - 1


def attention(q, k, v, scale, hidden=None, shift=None, shift_first=False, keep=None, keep_prob=1.0, sink=None):
    """[.., heads, queries, depth] in float64, with maxima and sums; heads of k and v repeat."""
    q, k, v = high(q), high(k), high(v)
    times = q.shape[-3] // k.shape[-3]
    k, v = k.repeat_interleave(times, -3), v.repeat_interleave(times, -3)
    scores = q @ k.transpose(-1, -2)
    if shift is not None:
        scores = (scores + high(shift)) * scale if shift_first else scores * scale + high(shift)
    else:
        scores = scores * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden.to(torch.bool), -math.inf)
    maximum = (scores.amax(-1, keepdim=True) if scores.shape[-1]
               else torch.full(scores.shape[:-1] + (1,), -math.inf, dtype=torch.float64))
    if sink is not None:
        maximum = torch.maximum(maximum, high(sink).reshape(-1, 1, 1))
    weights = torch.exp(scores - maximum.detach().clamp(min=-1e300))
    total = weights.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(high(sink).reshape(-1, 1, 1) - maximum.detach())
    if keep is not None:
        weights = weights * keep / keep_prob
    out = weights @ v / (total + (total == 0))
    return out, maximum, total, torch.where(total == 0, math.inf, maximum + total.log())


def causal(queries, keys, offset):
    return torch.ones(queries, keys, dtype=torch.bool).triu(1 + offset)


def band(queries, keys, before, after, offset=0):
    gap = torch.arange(keys) - torch.arange(queries).unsqueeze(1) - offset
    return (gap < -before) | (gap > after)


def to_layout(tensor, layout):
    """From [batch, head, token, depth]."""
    if layout == "BNSD":
        return tensor.contiguous()
    if layout in ("BSND", "BSH"):
        tensor = tensor.transpose(1, 2)
    elif layout == "SBH":
        tensor = tensor.permute(2, 0, 1, 3)
    elif layout == "NBSD":
        return tensor.transpose(0, 1).contiguous()
    elif layout == "TND":
        return tensor[0].transpose(0, 1).contiguous()
    elif layout == "NTD":
        return tensor[0].contiguous()
    return (tensor.flatten(2) if layout in ("BSH", "SBH") else tensor).contiguous()


def arguments(op, query, key, value, layout, heads, kv_heads, scale, **given):
    """Every input of the operator: null, or what stands for 'no limit', unless given."""
    from aclnn import TABLE
    args = {}
    defaults = {"query": query, "key": key, "value": value, "numHeads": heads, "headNum": heads, "scaleValue": scale,
                "preTokens": FAR, "nextTokens": FAR, "inputLayout": layout, "numKeyValueHeads": kv_heads,
                "keepProb": 1.0, "softmaxLseFlag": False, "pseType": 0 if op.startswith("Fused") else 1}
    row = TABLE[op]
    for (c_type, name), role in zip(row.parameters, row.roles):
        if role.startswith("out"):
            continue
        args[name] = defaults.get(name, 0 if role == "attr" else None)
    for name, value in given.items():
        name = next(n for n in (name, name + "Optional", name.lower()) if n in args)
        args[name] = value
    if "TensorList" in dict((n, t) for t, n in row.parameters).get("key", ""):
        for name in ("key", "value"):
            if isinstance(args[name], torch.Tensor):
                args[name] = [args[name]]
    return args


def tensors(g, dtype, batch, heads, kv_heads, queries, keys, depth, value_depth=None):
    return (g.tensor([batch, heads, queries, depth], dtype), g.tensor([batch, kv_heads, keys, depth], dtype),
            g.tensor([batch, kv_heads, keys, value_depth or depth], dtype))


def layouts(op, g, extra=()):
    """Each layout, each type, heads that share keys, more than one block of rows and of keys."""
    expect = {"attentionOut": None} | ({"softmaxLse": None} if op.startswith("Fused") else {})
    sizes = ((2, 4, 2, 5, 9, 16), (1, 2, 2, 130, 150, 24), (1, 3, 1, 40, 33, 20))
    for number, layout in enumerate(("BNSD", "BSND", "BSH", *extra)):
        for dtype in TYPES:
            batch, heads, kv_heads, queries, keys, depth = sizes[number % len(sizes)]
            q, k, v = tensors(g, dtype, batch, heads, kv_heads, queries, keys, depth)
            scale = 1 / math.sqrt(depth)
            into, _, onto = layout.partition("_")
            args = arguments(op, *(to_layout(t, into) for t in (q, k, v)), layout, heads, kv_heads, scale)
            out = to_layout(attention(q, k, v, scale)[0], onto or into)
            yield Case(args, expect | {"attentionOut": Ref(out, dtype)})


@cases("PromptFlashAttention", "PromptFlashAttentionV2", "PromptFlashAttentionV3")
def prompt(op, g):
    yield from layouts(op, g)
    dtype, scale = torch.float32, 0.3
    q, k, v = tensors(g, dtype, 2, 4, 2, 37, 37, 8)
    mask = g.mask([2, 1, 37, 37])
    mask[0, 0, 3] = True  # a query that sees nothing
    out = attention(q, k, v, scale, mask)[0]
    yield Case(arguments(op, q, k, v, "BNSD", 4, 2, scale, attenMask=mask), {"attentionOut": Ref(out, dtype)})
    mask = g.mask([40, 48])  # longer than needed, and a band beside it
    hidden = mask[:37, :37] | band(37, 37, 5, 2)
    yield Case(arguments(op, q, k, v, "BNSD", 4, 2, scale, attenMask=mask.to(torch.int8), preTokens=5, nextTokens=2),
               {"attentionOut": Ref(attention(q, k, v, scale, hidden)[0], dtype)})
    # Numbers that are none: a row of scores with NaN or +Inf is NaN, hidden ones do not matter.
    odd = [t.clone() for t in (q, k, v)]
    odd[0][0, 1, 4, 2], odd[0][1, 0, 0, 0] = math.nan, math.inf
    odd[1][1, 1, 5, 3] = math.nan
    hidden = torch.zeros(1, 1, 1, 37, dtype=torch.bool)
    hidden[..., 5] = True
    out = attention(odd[0].double(), k, v, scale, hidden)[0]
    assert out.isnan().any(-1).sum() == 2
    yield Case(arguments(op, *odd, "BNSD", 4, 2, scale, attenMask=hidden), {"attentionOut": Ref(out, dtype)})
    shift = g.tensor([1, 4, 37, 37], dtype)
    out = attention(q, k, v, scale, shift=shift)[0]
    yield Case(arguments(op, q, k, v, "BNSD", 4, 2, scale, pseShift=shift), {"attentionOut": Ref(out, dtype)})
    out = attention(q, k, v, scale)[0]
    out[0, :, 20:] = 0
    yield Case(arguments(op, q, k, v, "BNSD", 4, 2, scale, actualSeqLengths=[20, 37]),
               {"attentionOut": Ref(out, dtype)})
    if op != "PromptFlashAttention":
        yield from sparse_modes(op, g)


def sparse_modes(op, g, extra=None):
    dtype, scale = torch.float32, 0.4
    q, k, v = tensors(g, dtype, 1, 2, 2, 70, 150, 8)
    compressed = torch.ones(2048, 2048, dtype=torch.bool).triu(1)  # may be left out
    expect = (lambda out: {"attentionOut": Ref(out, dtype)} | (extra or {}))
    for mode, hidden in ((2, causal(70, 150, 0)), (3, causal(70, 150, 80)), (4, band(70, 150, 30, 3, 80))):
        out = attention(q, k, v, scale, hidden)[0]
        yield Case(arguments(op, q, k, v, "BNSD", 2, 2, scale, sparseMode=mode,
                             attenMask=compressed if mode == 4 else None, preTokens=30,
                             nextTokens=3), expect(out))
    mask = g.mask([1, 1, 70, 150])
    yield Case(arguments(op, q, k, v, "BNSD", 2, 2, scale, sparseMode=1, attenMask=mask, preTokens=0, nextTokens=0),
               expect(attention(q, k, v, scale, mask)[0]))
    # Lengths of keys: the corner moves with them.
    out = attention(q, k[:, :, :90], v[:, :, :90], scale, causal(70, 90, 20))[0]
    yield Case(arguments(op, q, k, v, "BNSD", 2, 2, scale, sparseMode=3, actualSeqLengthsKv=[90]), expect(out))


@cases("IncreFlashAttention", "IncreFlashAttentionV2", "IncreFlashAttentionV3", "IncreFlashAttentionV4")
def incremental(op, g):
    for dtype in TYPES:
        for layout, keys in (("BNSD", 33), ("BSND", 700), ("BSH", 1300)):
            q, k, v = tensors(g, dtype, 2, 4, 2, 1, keys, 24)
            mask = g.mask([2, 1, 1, keys])
            lengths = [keys // 2, keys]
            mask |= (torch.arange(keys) >= torch.tensor(lengths).reshape(2, 1, 1, 1))
            args = arguments(op, *(to_layout(t, layout) for t in (q, k, v)), layout, 4, 2, 0.2, attenMask=mask,
                             actualSeqLengths=lengths)
            yield Case(args, {"attentionOut": Ref(to_layout(attention(q, k, v, 0.2, mask)[0], layout), dtype)})
    q, k, v = tensors(g, torch.float32, 2, 12, 1, 1, 40, 16)
    args = arguments(op, q, k, v, "BNSD", 12, 1, 0.2)
    args |= {"key": [k[:1], k[1:, :, :20]], "value": [v[:1], v[1:, :, :20]]}
    hidden = torch.zeros(2, 1, 1, 40, dtype=torch.bool)
    hidden[1, ..., 20:] = True
    yield Case(args, {"attentionOut": Ref(attention(q, k, v, 0.2, hidden)[0], torch.float32)})
    if op in ("IncreFlashAttentionV3", "IncreFlashAttentionV4"):
        yield from pages(op, g, "actualSeqLengths", {})


def pages(op, g, lengths_name, extra):
    dtype, size = torch.float32, 16
    for shape in ("BSH", "BNSD"):
        lengths = [35, 50]
        q, k, v = tensors(g, dtype, 2, 4, 2, 1, 64, 8)
        table = g.permutation(12, torch.int32).reshape(2, 6)[:, :4].contiguous()
        paged = [torch.zeros(12, 2, size, 8) for _ in range(2)]
        for source, target in zip((k, v), paged):
            for b in range(2):
                for block in range(4):
                    target[table[b, block].item()] = source[b, :, block * size:(block + 1) * size]
        hidden = torch.arange(64) >= torch.tensor(lengths).reshape(2, 1, 1, 1)
        args = arguments(op, q, *(to_layout(t, shape) for t in paged), "BNSD", 4, 2, 0.4, blockTable=table,
                         blockSize=size, **{lengths_name: lengths})
        out = attention(q, k, v, 0.4, hidden)[0]
        yield Case(args, {"attentionOut": Ref(out, dtype)} | extra)


@cases("FusedInferAttentionScore", "FusedInferAttentionScoreV2", "FusedInferAttentionScoreV3",
       "FusedInferAttentionScoreV4", "FusedInferAttentionScoreV5")
def fused(op, g):
    none = {"softmaxLse": None}
    yield from layouts(op, g, ("BNSD_BSND", "BSH_NBSD"))
    yield from sparse_modes(op, g, none)
    yield from pages(op, g, "actualSeqLengthsKv", none)
    # Sequences end to end; one has no keys, the last tokens belong to none.
    q, k, v = tensors(g, torch.float32, 1, 2, 2, 30, 40, 8)
    ends, key_ends = [7, 9, 25], [11, 11, 40]
    out = torch.zeros(1, 2, 30, 8, dtype=torch.float64)
    lse = torch.full((1, 2, 30, 1), math.inf, dtype=torch.float64)
    for i in range(3):
        a, b = ([0] + ends)[i], ends[i]
        c, d = ([0] + key_ends)[i], key_ends[i]
        out[:, :, a:b], _, _, lse[:, :, a:b] = attention(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], 0.5,
                                                         causal(b - a, d - c, d - c - b + a))
    for layout in ("TND", "NTD"):
        args = arguments(op, *(to_layout(t, layout) for t in (q, k, v)), layout, 2, 2, 0.5, actualSeqLengths=ends,
                         actualSeqLengthsKv=key_ends, sparseMode=3, softmaxLseFlag=True)
        yield Case(args, {"attentionOut": Ref(to_layout(out, layout), torch.float32),
                          "softmaxLse": Ref(to_layout(lse, "TND"), torch.float32)})
    # One query over many keys: cut into pieces. One stands for both lengths.
    q, k, v = tensors(g, torch.float32, 2, 4, 1, 1, 1200, 16)
    out, _, _, lse = attention(q, k[:, :, :1100], v[:, :, :1100], 0.25)
    yield Case(arguments(op, q, k, v, "BNSD", 4, 1, 0.25, actualSeqLengthsKv=[1100], softmaxLseFlag=True),
               {"attentionOut": Ref(out, torch.float32), "softmaxLse": Ref(lse, torch.float32)})
    yield Case(arguments(op, q, k, v, "BNSD", 4, 1, 0.25),
               {"attentionOut": Ref(attention(q, k, v, 0.25)[0], torch.float32),
                "softmaxLse": Ref(torch.zeros(1), torch.float32)}, any_shape=("softmaxLse",))
    # One query: the right lower corner hides nothing, and a band says nothing.
    mask = g.mask([2, 1, 1, 1200])
    for hidden, given in ((None, {"sparseMode": 3}),
                          (mask, {"attenMask": mask, "preTokens": 3, "nextTokens": 0})):
        yield Case(arguments(op, q, k, v, "BNSD", 4, 1, 0.25, **given),
                   {"attentionOut": Ref(attention(q, k, v, 0.25, hidden)[0], torch.float32)} | none)
    if op[-2:] in ("V3", "V4", "V5"):
        yield from rotary_parts(op, g)
    if op[-2:] in ("V4", "V5"):
        q, k, v = tensors(g, torch.float32, 1, 4, 2, 6, 20, 8)
        sink = g.tensor([4], torch.float32) * 3
        out = attention(q, k, v, 0.25, sink=sink)[0]
        yield Case(arguments(op, q, k, v, "BNSD", 4, 2, 0.25, learnableSink=sink),
                   {"attentionOut": Ref(out, torch.float32), "softmaxLse": None})


def rotary_parts(op, g):
    """Queries and keys in two tensors each; values are the first part of the keys."""
    for dtype, queries, layout in ((torch.float32, 1, "BNSD"), (torch.bfloat16, 9, "BSH"), (torch.float32, 30, "BSND")):
        q, k, _ = tensors(g, dtype, 2, 4, 1, queries, 40, 24)
        parts = [to_layout(t, layout) for t in (q[..., :16], k[..., :16], q[..., 16:], k[..., 16:])]
        args = arguments(op, *parts[:2], parts[1], layout, 4, 1, 0.2, queryRope=parts[2], keyRope=parts[3])
        out = attention(q, k, k[..., :16], 0.2)[0]
        yield Case(args, {"attentionOut": Ref(to_layout(out, layout), dtype), "softmaxLse": None})
    q, k, _ = tensors(g, torch.float32, 1, 4, 1, 12, 40, 24)
    paged = k.reshape(1, 5, 8, 24).transpose(0, 1)
    table = torch.arange(5, dtype=torch.int32).reshape(1, 5)
    key, rope = (paged[..., :16].contiguous(), paged[..., 16:].reshape(5, 8, 8))
    args = arguments(op, q[..., :16].contiguous(), key, key, "BNSD", 4, 1, 0.2, queryRope=q[..., 16:].contiguous(),
                     keyRope=rope, blockTable=table, blockSize=8, actualSeqLengthsKv=[37])
    out = attention(q, k[:, :, :37], k[:, :, :37, :16], 0.2)[0]
    yield Case(args, {"attentionOut": Ref(out, torch.float32), "softmaxLse": None})


def statistics(maximum, total, layout="BNSD"):
    return {name: Ref(to_layout(t.expand(*t.shape[:-1], 8), layout), torch.float32)
            for name, t in (("softmaxMaxOut", maximum), ("softmaxSumOut", total))} | {"softmaxOutOut": None}


@cases("FlashAttentionScore", "FlashAttentionScoreV2", "FlashAttentionScoreV3", "FlashAttentionScoreV4")
def training(op, g):
    for layout in ("BNSD", "BSND", "BSH", "SBH"):
        for dtype in TYPES:
            q, k, v = tensors(g, dtype, 2, 4, 2, 9, 14, 16)
            out, maximum, total, _ = attention(q, k, v, 0.25)
            yield Case(arguments(op, *(to_layout(t, layout) for t in (q, k, v)), layout, 4, 2, 0.25),
                       statistics(maximum, total) | {"attentionOutOut": Ref(to_layout(out, layout), dtype)})
    q, k, v = tensors(g, torch.float32, 2, 2, 2, 20, 30, 8, 12)
    shift, mask = g.tensor([2, 2, 20, 30], torch.float32), g.mask([2, 1, 20, 30])
    keep = g.mask([2, 2, 20, 30])
    bits = (keep.reshape(-1, 8).to(torch.int32) << torch.arange(8)).sum(-1).to(torch.uint8)
    for first in ((True,) if op == "FlashAttentionScore" else (True, False)):
        out, maximum, total, _ = attention(q, k, v, 0.3, mask, shift, first, keep, 0.5)
        args = arguments(op, q, k, v, "BNSD", 2, 2, 0.3, realShift=shift, attenMask=mask.to(torch.uint8), keepProb=0.5,
                         dropMask=bits)
        if "pseType" in args:
            args["pseType"] = int(first)
        yield Case(args, statistics(maximum, total) | {"attentionOutOut": Ref(out, torch.float32)})
    if op.endswith("V4"):
        yield from two_parts(g, op)
    if op[-2:] in ("V3", "V4"):
        sink = g.tensor([2], torch.float32) * 2
        out, maximum, total, _ = attention(q, k, v, 0.3, sink=sink)
        yield Case(arguments(op, q, k, v, "BNSD", 2, 2, 0.3, sink=sink),
                   statistics(maximum, total) | {"attentionOutOut": Ref(out, torch.float32)})
    hidden = causal(20, 30, 10).unsqueeze(0) & (torch.arange(30) >= torch.tensor([4, 25]).reshape(2, 1, 1))
    out, maximum, total, _ = attention(q, k, v, 0.3, hidden.unsqueeze(1))
    yield Case(arguments(op, q, k, v, "BNSD", 2, 2, 0.3, sparseMode=6, prefix=[4, 25]),
               statistics(maximum, total) | {"attentionOutOut": Ref(out, torch.float32)})


def two_parts(g, op):
    """Sequences end to end, with queries and keys in two tensors each."""
    q, k, v = tensors(g, torch.float32, 1, 4, 2, 20, 30, 24, 16)
    made = [attention(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], 0.5) for a, b, c, d in ((0, 5, 0, 12), (5, 20, 12, 30))]
    out, maximum, total, _ = (torch.cat(part, 2) for part in zip(*made))
    q, k, v = (to_layout(t, "TND") for t in (q, k, v))
    args = arguments(op, q[..., :16].contiguous(), k[..., :16].contiguous(), v, "TND", 4, 2, 0.5,
                     queryRope=q[..., 16:].contiguous(), keyRope=k[..., 16:].contiguous(), actualSeqQLen=[5, 20],
                     actualSeqKvLen=[12, 30])
    yield Case(args, statistics(maximum, total, "TND") | {"attentionOutOut": Ref(to_layout(out, "TND"), torch.float32)})


@cases("FlashAttentionVarLenScore", "FlashAttentionVarLenScoreV2", "FlashAttentionVarLenScoreV3",
       "FlashAttentionVarLenScoreV4", "FlashAttentionVarLenScoreV5")
def varlen(op, g):
    if op.endswith("V5"):  # a sink, and keys and queries in two parts
        q, k, v = tensors(g, torch.float32, 1, 4, 2, 20, 30, 24, 16)
        sink = g.tensor([4], torch.float32) * 2
        parts = [attention(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], 0.5, sink=sink)
                 for a, b, c, d in ((0, 5, 0, 12), (5, 20, 12, 30))]
        out, maximum, total, _ = (torch.cat(part, 2) for part in zip(*parts))
        q, k, v = (to_layout(t, "TND") for t in (q, k, v))
        args = arguments(op, q[..., :16].contiguous(), k[..., :16].contiguous(), v, "TND", 4, 2, 0.5,
                         queryRope=q[..., 16:].contiguous(), keyRope=k[..., 16:].contiguous(), sink=sink,
                         actualSeqQLen=[5, 20], actualSeqKvLen=[12, 30], softmaxOutLayout="same_as_input")
        yield Case(args, statistics(maximum, total, "TND") | {"attentionOutOut": Ref(to_layout(out, "TND"), torch.float32)})
    for dtype in TYPES:
        q, k, v = tensors(g, dtype, 1, 4, 2, 25, 40, 16)
        ends, key_ends = [7, 9, 25], [11, 20, 40]
        parts = [attention(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], 0.5, causal(b - a, d - c, d - c - b + a))
                 for a, b, c, d in zip([0] + ends, ends, [0] + key_ends, key_ends)]
        out, maximum, total, _ = (torch.cat(part, 2) for part in zip(*parts))
        args = arguments(op, *(to_layout(t, "TND") for t in (q, k, v)), "TND", 4, 2, 0.5, actualSeqQLen=ends,
                         actualSeqKvLen=key_ends, sparseMode=3)
        yield Case(args, statistics(maximum, total, "TND") | {"attentionOutOut": Ref(to_layout(out, "TND"), dtype)})


def more_outputs(op, given=()):
    """Gradients that an operator may also give, and does not here."""
    from aclnn import TABLE
    return {name: None for _, name in TABLE[op].parameters
            if name in ("dpseOut", "dsinkOut", "dqRopeOut", "dkRopeOut") and name not in given}


@cases("FlashAttentionScoreGradV3", "FlashAttentionScoreGradV4", "FlashAttentionUnpaddingScoreGradV3",
       "FlashAttentionUnpaddingScoreGradV5")
def sink_and_parts_grad(op, g):
    """The gradients of a sink, and of queries and keys in two tensors each."""
    from aclnn import TABLE
    names = {name for _, name in TABLE[op].parameters}
    packed = "actualSeqQLenOptional" in names
    apart = bool(names & {"queryRope", "queryRopeOptional"})
    for dtype in TYPES:
        q, k, v = tensors(g, dtype, 1, 4, 2, 25, 40, 24, 24)
        dy = g.tensor([1, 4, 25, 24], dtype)
        sink = g.tensor([4], torch.float32) * 2 if "sinkOptional" in names else None
        leaves = [high(t).requires_grad_() for t in (q, k, v) + (() if sink is None else (sink,))]
        cuts = ((0, 7, 0, 11), (7, 9, 11, 20), (9, 25, 20, 40)) if packed else ((0, 25, 0, 40),)
        parts = [attention(leaves[0][:, :, a:b], *(t[:, :, c:d] for t in leaves[1:3]), 0.25,
                           causal(b - a, d - c, d - c - b + a), sink=None if sink is None else leaves[3])
                 for a, b, c, d in cuts]
        out, maximum, total, _ = (torch.cat(part, 2) for part in zip(*parts))
        out.backward(high(dy))
        layout = "TND" if packed else "BSND"
        made = {f"softmax{name}Optional": to_layout(t.detach().expand(*t.shape[:-1], 8).float(), "TND" if packed else "BNSD")
                for name, t in (("Max", maximum), ("Sum", total))}
        split = (lambda t: (to_layout(t[..., :16], layout), to_layout(t[..., 16:], layout))) if apart else (
            lambda t: (to_layout(t, layout),))
        ropes = {}
        if apart:
            plain = "queryRope" in names
            ropes = {"queryRope" if plain else "queryRopeOptional": split(q)[1],
                     "keyInRope" if plain else "keyRopeOptional": split(k)[1]}
        args = arguments(op, split(q)[0], None, to_layout(v, layout), layout, 4, 2, 0.25, keyIn=split(k)[0],
                         dy=to_layout(dy, layout), sparseMode=3, attentionIn=to_layout(out.detach().to(dtype), layout),
                         **made, **({"actualSeqQLen": [7, 9, 25], "actualSeqKvLen": [11, 20, 40]} if packed else {}))
        args |= ropes | ({} if sink is None else {"sinkOptional": sink})
        expect = {"dqOut": split(leaves[0].grad)[0], "dkOut": split(leaves[1].grad)[0],
                  "dvOut": to_layout(leaves[2].grad, layout)}
        if apart:
            expect |= {"dqRopeOut": split(leaves[0].grad)[1], "dkRopeOut": split(leaves[1].grad)[1]}
        expect = {name: Ref(value, dtype) for name, value in expect.items()}
        if sink is not None:
            expect["dsinkOut"] = Ref(leaves[3].grad, torch.float32, bound="2e4/2e5 of max" if dtype != torch.float32 else None)
        yield Case(args, expect | more_outputs(op, expect))


@cases("FlashAttentionUnpaddingScoreGrad", "FlashAttentionUnpaddingScoreGradV2", "FlashAttentionUnpaddingScoreGradV3",
       "FlashAttentionUnpaddingScoreGradV4", "FlashAttentionUnpaddingScoreGradV5")
def varlen_grad(op, g):
    ends, key_ends = [7, 9, 25], [11, 20, 40]
    for dtype in TYPES:
        q, k, v = tensors(g, dtype, 1, 4, 2, 25, 40, 16)
        dy = g.tensor([1, 4, 25, 16], dtype)
        leaves = [high(t).requires_grad_() for t in (q, k, v)]
        parts = [attention(leaves[0][:, :, a:b], *(t[:, :, c:d] for t in leaves[1:]), 0.25,
                           causal(b - a, d - c, d - c - b + a))
                 for a, b, c, d in zip([0] + ends, ends, [0] + key_ends, key_ends)]
        out, maximum, total, _ = (torch.cat(part, 2) for part in zip(*parts))
        out.backward(high(dy))
        made = {f"softmax{name}": to_layout(t.detach().expand(*t.shape[:-1], 8).to(torch.float32), "TND")
                for name, t in (("Max", maximum), ("Sum", total))}
        args = arguments(op, to_layout(q, "TND"), None, to_layout(v, "TND"), "TND", 4, 2, 0.25,
                         keyIn=to_layout(k, "TND"), dy=to_layout(dy, "TND"), sparseMode=3, actualSeqQLen=ends,
                         actualSeqKvLen=key_ends, attentionIn=to_layout(out.detach().to(dtype), "TND"), **made)
        yield Case(args, {name: Ref(to_layout(leaf.grad, "TND"), dtype)
                          for name, leaf in zip(("dqOut", "dkOut", "dvOut"), leaves)} | more_outputs(op))


@cases("FlashAttentionScoreGrad", "FlashAttentionScoreGradV2", "FlashAttentionScoreGradV3", "FlashAttentionScoreGradV4")
def training_grad(op, g):
    """Against autograd in float64; statistics and result are those of float64, rounded."""
    for layout in ("BNSD", "BSH", "SBH"):
        for dtype in TYPES:
            yield gradient_case(op, g, dtype, layout, 2, 4, 2, 9, 14, 16)
        yield gradient_case(op, g, dtype, layout, 1, 2, 1, 70, 150, 24)
    mask, keep = g.mask([2, 1, 20, 30]), g.mask([2, 2, 20, 30])
    mask[1, 0, 2] = True
    shift = g.tensor([2, 2, 20, 30], torch.float32)
    bits = (keep.reshape(-1, 8).to(torch.int32) << torch.arange(8)).sum(-1).to(torch.uint8)
    yield gradient_case(op, g, torch.float32, "BNSD", 2, 2, 2, 20, 30, 8, hidden=mask, shift=shift, keep=keep,
                        given={"attenMask": mask, "pseShift": shift, "dropMask": bits, "keepProb": 0.5})
    hidden = causal(40, 300, 260)
    yield gradient_case(op, g, torch.float32, "BNSD", 1, 2, 2, 40, 300, 8, hidden=hidden, given={"sparseMode": 3})


def gradient_case(op, g, dtype, layout, batch, heads, kv_heads, queries, keys, depth, hidden=None, shift=None,
                  keep=None, given=None):
    q, k, v = tensors(g, dtype, batch, heads, kv_heads, queries, keys, depth)
    dy = g.tensor([batch, heads, queries, depth], dtype)
    leaves = [high(t).requires_grad_() for t in (q, k, v)]
    out, maximum, total, _ = attention(*leaves, 0.25, hidden, shift, True, keep, 0.5 if keep is not None else 1.0)
    out.backward(high(dy))
    made = {f"softmax{name}Optional": t.detach().expand(*t.shape[:-1], 8).to(torch.float32).contiguous()
            for name, t in (("Max", maximum), ("Sum", total))}
    args = arguments(op, to_layout(q, layout), None, to_layout(v, layout), layout, heads, kv_heads, 0.25,
                     keyIn=to_layout(k, layout), dy=to_layout(dy, layout),
                     attentionIn=to_layout(out.detach().to(dtype), layout), **made, **(given or {}))
    return Case(args, {name: Ref(to_layout(leaf.grad, layout), dtype)
                       for name, leaf in zip(("dqOut", "dkOut", "dvOut"), leaves)} | more_outputs(op))


# ---- Rotary ----

def turned(x, mode):
    n = x.shape[-1]
    if mode == 0:
        return x, torch.cat((-x[..., n // 2:], x[..., :n // 2]), -1)
    if mode == 1:
        return x, torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    if mode == 2:
        a, b, c, d = x.chunk(4, -1)
        return x, torch.cat((-b, a, -d, c), -1)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.cat((even, odd), -1), torch.cat((-odd, even), -1)


def rotated(x, cos, sin, mode):
    first, second = turned(x, mode)
    return first * cos + second * sin


def rotary_inputs(g, dtype):
    shapes = (([2, 3, 5, 16], [1, 1, 5, 16]), ([2, 5, 3, 20], [2, 5, 1, 20]), ([4, 2, 24], [4, 1, 24]),
              ([1, 6, 2, 128], [1, 6, 1, 128]), ([0, 2, 3, 8], [1, 1, 3, 8]))
    for shape, angles in shapes if dtype == torch.float32 else shapes[:2]:
        yield g.tensor(shape, dtype), g.tensor(angles, dtype, "unit"), g.tensor(angles, dtype, "unit")


@cases("RotaryPositionEmbeddingV2")
def rotary_by_matrix(op, g):
    for dtype in TYPES:
        for x, cos, sin in rotary_inputs(g, dtype):
            for mode, matrix in ((0, False), (1, False), (0, True)):
                rotate = g.tensor([x.shape[-1], x.shape[-1]], dtype) if matrix else None
                out = (high(x) * high(cos) + high(x) @ high(rotate) * high(sin) if matrix
                       else rotated(high(x), high(cos), high(sin), mode))
                yield Case({"x": x, "cos": cos, "sin": sin, "mode": mode, "rotateOptional": rotate}, {"out": Ref(out, dtype)})


@cases("RotaryPositionEmbedding")
def rotary(op, g):
    for dtype in TYPES:
        for mode in range(4):
            for x, cos, sin in rotary_inputs(g, dtype):
                out = rotated(high(x), high(cos), high(sin), mode)
                yield Case({"x": x, "cos": cos, "sin": sin, "mode": mode}, {"out": Ref(out, dtype)})


@cases("InterleaveRope")
def interleave_rope(op, g):
    for dtype in TYPES:
        for x, cos, sin in rotary_inputs(g, dtype):
            yield Case({"x": x, "cos": cos, "sin": sin}, {"out": Ref(rotated(high(x), high(cos), high(sin), 3), dtype)})


@cases("RotaryPositionEmbeddingGrad")
def rotary_grad(op, g):
    for dtype in TYPES:
        for mode in range(4):
            for x, cos, sin in rotary_inputs(g, dtype):
                dy = g.tensor(x.shape, dtype)
                leaves = [high(t).requires_grad_() for t in (x, cos, sin)]
                rotated(*leaves, mode).backward(high(dy))
                dx, dcos, dsin = (Ref(leaf.grad, dtype) for leaf in leaves)
                args = {"dy": dy, "cos": cos, "sin": sin, "mode": mode}
                yield Case(args | {"xOptional": x}, {"dxOut": dx, "dcosOut": dcos, "dsinOut": dsin})
                yield Case(args | {"xOptional": None}, {"dxOut": dx, "dcosOut": None, "dsinOut": None})


@cases("ApplyRotaryPosEmb", "ApplyRotaryPosEmbV2")
def apply_rotary(op, g):
    shapes = {1: ([2, 5, 4, 16], [2, 5, 1, 16], [2, 5, 1, 16]), 2: ([5, 2, 4, 16], [5, 2, 2, 16], [5, 1, 1, 16]),
              3: ([2, 4, 5, 16], [2, 2, 5, 16], [1, 1, 5, 16]), 4: ([7, 4, 16], [7, 2, 16], [7, 1, 16])}
    for dtype in TYPES:
        for layout, (query, key, angles) in shapes.items():
            for mode, name in enumerate(("half", "interleave", "quarter") if op.endswith("V2") else ("half",)):
                q, k = g.tensor(query, dtype), g.tensor(key, dtype)
                cos, sin = g.tensor(angles, dtype, "unit"), g.tensor(angles, dtype, "unit")
                args = {"queryRef": q, "keyRef": k, "cos": cos, "sin": sin, "layout": layout, "rotaryMode": name}
                yield Case(args, {f"{which}Ref": Ref(rotated(high(x), high(cos), high(sin), mode), dtype)
                                  for which, x in (("query", q), ("key", k))})


# ---- Gating ----

@cases("MoeGatingTopKSoftmax")
def gating(op, g):
    for dtype in TYPES:
        for shape, k in (([5, 8], 2), ([3, 64], 6), ([2, 7, 16], 16), ([4, 3], 0), ([0, 8], 2), ([1, 300], 8)):
            x = (g.permutation(math.prod(shape)).reshape(shape).to(torch.float64) * (4 / max(1, shape[-1]))).to(dtype)
            finished = g.mask(shape[:-1])
            p = torch.softmax(high(x), -1)
            order = torch.sort(high(x), stable=True, dim=-1, descending=True).indices[..., :k]
            rows = math.prod(shape[:-1])
            source = torch.arange(rows * k).reshape(k, rows).transpose(0, 1).reshape(*shape[:-1], k)
            for mask in (None, finished):
                expert = order if mask is None else torch.where(mask.unsqueeze(-1), shape[-1], order)
                yield Case({"x": x, "finishedOptional": mask, "k": k},
                           {"yOut": Ref(p.gather(-1, order), dtype), "expertIdxOut": Ref(expert, torch.int32),
                            "rowIdxOut": Ref(source, torch.int32)})
