# SPDX-License-Identifier: Apache-2.0
"""Attention to chosen keys, what chooses them, and attention with a state."""

import math

import torch

from cases_attention import TYPES, attention
from harness import Case, Ref, cases, high

FAR = 2**63 - 1
INT = torch.int32


class Layout:
    """Sequences in one of the layouts: queries [batch, token, head, element] and keys, packed, or keys in pages."""

    def __init__(self, g, layout, lengths, key_lengths, key_layout=None, page=4):
        self.g, self.layout, self.key_layout = g, layout, key_layout or layout
        self.lengths, self.key_lengths, self.page = lengths, key_lengths, page
        self.most, self.most_keys = max(lengths), max(key_lengths)
        self.count = len(lengths)
        if self.key_layout == "PA_BSND":
            pages = -(-self.most_keys // page)
            self.table = g.permutation(self.count * pages + 2, INT)[: self.count * pages].reshape(self.count, pages)

    def query(self, *shape, dtype, kind="normal"):
        rows = sum(self.lengths) + 1 if self.layout == "TND" else self.most  # one that belongs to none
        return self.g.tensor([rows, *shape] if self.layout == "TND" else [self.count, rows, *shape], dtype, kind)

    def key(self, *shape, dtype, kind="normal"):
        if self.key_layout == "TND":
            return self.g.tensor([sum(self.key_lengths), *shape], dtype, kind)
        if self.key_layout == "BSND":
            return self.g.tensor([self.count, self.most_keys, *shape], dtype, kind)
        return self.g.tensor([self.table.numel() + 2, self.page, *shape], dtype, kind)

    def queries_of(self, tensor, b):
        if self.layout == "BSND":
            return tensor[b, : self.lengths[b]]
        begin = sum(self.lengths[:b])
        return tensor[begin : begin + self.lengths[b]]

    def keys_of(self, tensor, b):
        count = self.key_lengths[b]
        if self.key_layout == "BSND":
            return tensor[b, :count]
        if self.key_layout == "TND":
            begin = sum(self.key_lengths[:b])
            return tensor[begin : begin + count]
        return tensor[self.table[b].long()].flatten(0, 1)[:count]

    def seen(self, b, mode):
        """[queries, keys]."""
        queries, keys = self.lengths[b], self.key_lengths[b]
        all_of = torch.ones(queries, keys, dtype=torch.bool)
        return all_of if mode == 0 else all_of.tril(0 if mode == 2 else keys - queries)

    def numbers(self, of_keys, as_list=False):
        """What the operator is told about lengths."""
        lengths = self.key_lengths if of_keys else self.lengths
        packed = (self.key_layout if of_keys else self.layout) == "TND"
        numbers = torch.tensor(lengths).cumsum(0) if packed else torch.tensor(lengths)
        return numbers.tolist() if as_list else numbers.to(INT)

    def scatter(self, parts, like):
        """Parts of all sequences, in the layout of queries; zeros elsewhere."""
        result = torch.zeros(like.shape[: 1 if self.layout == "TND" else 2] + parts[0].shape[1:], dtype=torch.float64)
        for b, part in enumerate(parts):
            result = self.place(result, b, part)
        return result

    def place(self, result, b, part):
        self.queries_of(result, b)[...] = part
        return result


def layouts(g):
    yield Layout(g, "BSND", [3, 5], [9, 70])
    yield Layout(g, "TND", [4, 1, 3], [6, 80, 3])
    yield Layout(g, "BSND", [2, 1], [7, 10], "PA_BSND")
    yield Layout(g, "TND", [1, 6], [13, 9], "PA_BSND")


def scores_of(s, b, q, k, w, q_scale=None, k_scale=None):
    """[queries, key heads, keys] in float64."""
    queries, keys = s.queries_of(q, b).double(), s.keys_of(k, b).double()
    weight = high(s.queries_of(w, b))
    if q_scale is not None:
        weight = weight * high(s.queries_of(q_scale, b))
    group = queries.shape[1] // keys.shape[1]
    dots = torch.einsum("qhd,khd->qhk", queries, keys.repeat_interleave(group, 1)).relu() * weight.unsqueeze(-1)
    result = dots.unflatten(1, (-1, group)).sum(2)
    return result if k_scale is None else result * high(s.keys_of(k_scale, b)).t()


def told(s, key_name, as_list=False, page=True):
    result = {"actualSeqLengthsQueryOptional": s.numbers(False, as_list),
              f"actualSeqLengths{key_name}Optional": s.numbers(True, as_list), "preTokens": FAR, "nextTokens": FAR}
    if page:
        result["blockTableOptional"] = getattr(s, "table", None)
    return result


class Chosen(Ref):
    """Places of keys: those with equal scores may change places."""

    def __init__(self, value, scores):
        super().__init__(value)
        self.scores = scores

    def verify(self, actual, op):
        assert list(actual.shape) == self.shape
        assert ((actual == -1) == (self.value == -1)).all(), f"{op}: {actual} instead of {self.value}"
        flat, wanted = actual.flatten(0, -2), self.value.flatten(0, -2)
        for row, want, scores in zip(flat, wanted, self.scores):
            row, want = row[row >= 0].long(), want[want >= 0].long()
            assert len(set(row.tolist())) == len(row), f"{op}: a key twice"
            error = (scores[row] - scores[want]).abs().max() if len(row) else 0
            assert error <= 1e-3 * (1 + scores[want].abs().max() if len(want) else 1), f"{op}: {row} instead of {want}"


def choice(s, b, scores, mode, count):
    hidden = scores.masked_fill(~s.seen(b, mode).unsqueeze(1), -math.inf)
    values, places = hidden.sort(dim=-1, descending=True, stable=True)
    short = count - values.shape[-1]
    if short > 0:
        values, places = (torch.nn.functional.pad(t, (0, short), value=v) for t, v in ((values, -math.inf), (places, -1)))
    values, places = values[..., :count], places[..., :count]
    return values, places.masked_fill(values == -math.inf, -1), hidden


@cases("LightningIndexer", "QuantLightningIndexer")
def indexer(op, g):
    quantized = op.startswith("Quant")
    for number, s in enumerate(layouts(g)):
        for dtype in TYPES:
            heads, key_heads, depth = ((4, 1, 16), (6, 2, 40), (3, 1, 8), (2, 2, 20))[number]
            mode, count = (3, 0, 3, 2)[number], (5, 12, 4, 3)[number]
            own = torch.int8 if quantized else dtype
            q, k = s.query(heads, depth, dtype=own), s.key(key_heads, depth, dtype=own)
            w = s.query(heads, dtype=dtype)
            scales = ([s.query(heads, dtype=dtype, kind="positive"), s.key(key_heads, dtype=dtype, kind="positive")]
                      if quantized else [None, None])
            values, places, rows = [], [], []
            for b in range(s.count):
                got = choice(s, b, scores_of(s, b, q, k, w, *scales), mode, count)
                values.append(got[0])
                places.append(got[1])
                rows.append(got[2])
            shape = list(q.shape[:-2]) + [key_heads, count]
            wanted = torch.full(shape, -1, dtype=INT)
            wanted_values = torch.full(shape, -math.inf, dtype=torch.float64)
            most = max(r.shape[-1] for r in rows)
            all_scores = torch.full([*shape[:-1], most], -math.inf, dtype=torch.float64)
            for b in range(s.count):
                s.queries_of(wanted, b)[...] = places[b]
                s.queries_of(wanted_values, b)[...] = values[b]
                s.queries_of(all_scores, b)[..., : rows[b].shape[-1]] = rows[b]
            args = {"query": q, "key": k, "weights": w, "layoutQueryOptional": s.layout, "layoutKeyOptional": s.key_layout,
                    "sparseCount": count, "sparseMode": mode} | told(s, "Key")
            expect = {"sparseIndicesOut": Chosen(wanted, all_scores.flatten(0, -2))}
            if quantized:
                args |= {"queryDequantScale": scales[0], "keyDequantScale": scales[1], "queryQuantMode": 0,
                         "keyQuantMode": 0, "keyStride0": -1, "keyDequantScaleStride0": -1}
            else:
                args["returnValues"] = number != 2
                expect["sparseValuesOut"] = Ref(wanted_values, dtype) if number != 2 else None
            yield Case(args, expect)


def spread(s, b, entries, block):
    """How often each key is chosen: [queries, key heads, keys]."""
    keys = s.key_lengths[b]
    times = torch.zeros(*entries.shape[:2], keys, dtype=torch.float64)
    for q in range(entries.shape[0]):
        for h in range(entries.shape[1]):
            for e in entries[q, h].tolist():
                if e >= 0:
                    times[q, h, e * block : (e + 1) * block] += 1
    return times


def attend(q, k, v, scale, times, sink=None):
    """Queries [token, head, element]; `times` weighs the keys of each. Result, maximum, sum."""
    group = q.shape[1] // k.shape[1]
    k, v, times = (t.repeat_interleave(group, 1) for t in (k, v, times))
    scores = torch.einsum("qhd,khd->qhk", q, k) * scale
    scores = scores.masked_fill(times == 0, -math.inf)
    maximum = scores.amax(-1)
    if sink is not None:
        maximum = torch.maximum(maximum, sink)
    weights = torch.exp(scores - maximum.detach().clamp(min=-1e300).unsqueeze(-1)) * times
    total = weights.sum(-1)
    if sink is not None:
        total = total + torch.exp(sink - maximum)
    out = torch.einsum("qhk,khd->qhd", weights, v) / (total + (total == 0)).unsqueeze(-1)
    return out, maximum, total


def entries_for(s, g, heads, count, block):
    entries = s.query(heads, count, dtype=torch.int64).abs()
    most = -(-s.most_keys // block)
    entries = torch.stack([g.permutation(max(most, count))[:count] for _ in range(entries[..., 0].numel())])
    entries = entries.reshape(*s.query(heads, dtype=torch.float32).shape, count)
    entries[..., count // 2 :] = torch.where(entries[..., count // 2 :] % 3 == 0, -1, entries[..., count // 2 :])
    return entries.to(INT)


def group_statistics(s, parts, like, heads):
    """[batch, 1, token, head], packed without the batch; -Inf and 0 for tokens of no sequence."""
    results = []
    for i, fill in ((1, -math.inf), (2, 0.0)):
        result = torch.full(like.shape[:-2] + (heads,), fill, dtype=torch.float64)
        for b, part in enumerate(parts):
            s.queries_of(result, b)[...] = part[i]
        results.append(result.unsqueeze(0 if s.layout == "TND" else 1))
    return results


def problem(s, g, dtype, number, sink=False):
    """Tensors of a case by name, its settings, and the leaves in float64."""
    heads, depth, rope, value_depth = ((4, 16, 8, 16), (3, 40, 0, 24), (6, 12, 4, 12), (2, 8, 8, 16))[number]
    block, count, mode = ((1, 8, 3), (4, 5, 0), (2, 3, 3), (1, 6, 2))[number]
    t = {"query": s.query(heads, depth, dtype=dtype), "key": s.key(1, depth, dtype=dtype),
         "value": None if number == 2 else s.key(1, value_depth, dtype=dtype),
         "queryRopeOptional": s.query(heads, rope, dtype=dtype) if rope else None,
         "keyRopeOptional": s.key(1, rope, dtype=dtype) if rope else None,
         "sparseIndices": entries_for(s, g, 1, count, block)}
    return t, heads, block, mode


def solve(s, t, block, mode, scale, sink=None):
    parts = []
    for b in range(s.count):
        q, k = s.queries_of(t["query"], b), s.keys_of(t["key"], b)
        v = k if t["value"] is None else s.keys_of(t["value"], b)
        if t["queryRopeOptional"] is not None:
            q = torch.cat([q, s.queries_of(t["queryRopeOptional"], b)], -1)
            k = torch.cat([k, s.keys_of(t["keyRopeOptional"], b)], -1)
        times = spread(s, b, s.queries_of(t["sparseIndices"], b), block) * s.seen(b, mode).unsqueeze(1)
        parts.append(attend(q, k, v, scale, times, sink))
    return parts


def widened(t):
    return {name: high(value) if value is not None and value.is_floating_point() else value for name, value in t.items()}


@cases("SparseFlashAttention", "SparseFlashAttentionV2")
def sparse(op, g):
    for number, s in enumerate(layouts(g)):
        for dtype in TYPES:
            t, heads, block, mode = problem(s, g, dtype, number)
            sink = g.tensor([heads], dtype) if op.endswith("V2") else None
            parts = solve(s, widened(t), block, mode, 0.3, None if sink is None else high(sink))
            out = s.scatter([part[0] for part in parts], t["query"])
            args = t | told(s, "Kv") | {"scaleValue": 0.3, "sparseBlockSize": block, "layoutQueryOptional": s.layout,
                                        "layoutKvOptional": s.key_layout, "sparseMode": mode, "attentionMode": 2,
                                        "returnSoftmaxLse": number != 1}
            if op.endswith("V2"):
                args["sinksOptional"] = sink
            expect = {"attentionOut": Ref(out, dtype), "softmaxMaxOptional": None, "softmaxSumOptional": None}
            if number != 1:
                names = ("softmaxMaxOptional", "softmaxSumOptional")
                values = group_statistics(s, parts, t["query"], heads)
                if sink is not None and s.layout == "TND":  # tokens of no sequence see the sink alone
                    values[0][..., -1, :], values[1][..., -1, :] = high(sink), 1.0
                if sink is not None and s.layout == "BSND":
                    for b, count in enumerate(s.lengths):
                        values[0][b, :, count:], values[1][b, :, count:] = high(sink), 1.0
                expect |= {name: Ref(value, torch.float32) for name, value in zip(names, values)}
            yield Case(args, expect)


@cases("SparseFlashAttentionGrad")
def sparse_grad(op, g):
    for number, s in enumerate((Layout(g, "BSND", [3, 5], [9, 70]), Layout(g, "TND", [4, 1, 3], [6, 80, 3]),
                                Layout(g, "BSND", [2, 1], [7, 10]))):
        for dtype in TYPES:
            t, heads, block, mode = problem(s, g, dtype, number)
            leaves = widened(t)
            names = [n for n in ("query", "key", "value", "queryRopeOptional", "keyRopeOptional") if t[n] is not None]
            for name in names:
                leaves[name].requires_grad_()
            parts = solve(s, leaves, block, mode, 0.3)
            out = s.scatter([part[0].detach() for part in parts], t["query"])
            grad = g.tensor(list(out.shape), dtype)
            total = sum((part[0] * high(s.queries_of(grad, b))).sum() for b, part in enumerate(parts))
            wanted = dict(zip(names, torch.autograd.grad(total, [leaves[n] for n in names])))
            maximum, summed = group_statistics(s, [[p.detach() for p in part] for part in parts], t["query"], heads)
            told_ = told(s, "Kv", page=False)
            args = t | told_ | {"dOut": grad, "out": out.to(dtype), "softmaxMax": maximum.float(),
                                "softmaxSum": summed.float(), "scaleValue": 0.3, "sparseBlockSize": block,
                                "layoutOptional": s.layout, "sparseMode": mode, "deterministic": True}
            outputs = {"query": "dQueryOut", "key": "dKeyOut", "value": "dValueOut", "queryRopeOptional": "dQueryRopeOut",
                       "keyRopeOptional": "dKeyRopeOut"}
            yield Case(args, {o: Ref(wanted[n], dtype) if n in wanted else None for n, o in outputs.items()})


@cases("KvQuantSparseFlashAttention")
def quantized_keys(op, g):
    for number, s in enumerate(layouts(g)):
        for dtype in (torch.float16, torch.bfloat16):
            heads, latent, rope, tile, count = 4, 32, 8, 16, 5
            mode = (3, 0, 3, 3)[number]
            numbers = s.key(1, latent, dtype=torch.int8)
            turned = s.key(1, rope, dtype=dtype)
            factors = s.key(1, latent // tile, dtype=torch.float32, kind="positive") * 0.1
            line = torch.cat([numbers, turned.contiguous().view(torch.int8), factors.contiguous().view(torch.int8)], -1)
            values = (numbers.double().unflatten(-1, (-1, tile)) * factors.double().unsqueeze(-1)).flatten(-2)
            t = {"query": s.query(heads, latent + rope, dtype=dtype), "sparseIndices": entries_for(s, g, 1, count, 1)}
            full = widened(t) | {"key": torch.cat([values, turned.double()], -1), "value": values,
                                 "queryRopeOptional": None}
            out = s.scatter([part[0] for part in solve(s, full, 1, mode, 0.2)], t["query"])
            args = t | told(s, "Kv") | {"key": line, "value": line, "keyDequantScaleOptional": None,
                                        "valueDequantScaleOptional": None, "scaleValue": 0.2, "keyQuantMode": 2,
                                        "valueQuantMode": 2, "sparseBlockSize": 1, "layoutQueryOptional": s.layout,
                                        "layoutKvOptional": s.key_layout, "sparseMode": mode, "attentionMode": 2,
                                        "quantScaleRepoMode": 1, "tileSize": tile, "ropeHeadDim": rope}
            yield Case(args, {"attentionOut": Ref(out, dtype)})


# ---- Training of the indexer ----


def gradient_layouts(g):
    yield Layout(g, "BSND", [3, 5], [9, 70])
    yield Layout(g, "TND", [4, 1, 3], [6, 80, 3])


def chosen_pairs(s, b, entries, mode):
    return spread(s, b, s.queries_of(entries, b), 1) * s.seen(b, mode).unsqueeze(1)


@cases("LightningIndexerGrad")
def indexer_grad(op, g):
    for number, s in enumerate(gradient_layouts(g)):
        for dtype in TYPES:
            heads, depth, count, mode = 4, 16, 6, (3, 0)[number]
            q, k, w = s.query(heads, depth, dtype=dtype), s.key(1, depth, dtype=dtype), s.query(heads, dtype=dtype)
            entries = entries_for(s, g, 1, count, 1)
            dy = g.tensor(list(entries.shape), dtype)
            leaves = [high(t).requires_grad_() for t in (q, k, w)]
            total = 0
            for b in range(s.count):
                scores = scores_of(s, b, *leaves)
                own = s.queries_of(entries, b).long()
                fits = (own >= 0) & (own < s.key_lengths[b])
                safe = own.clamp(0, s.key_lengths[b] - 1)
                fits &= s.seen(b, mode).unsqueeze(1).gather(2, safe)
                total = total + (scores.gather(2, safe) * high(s.queries_of(dy, b)) * fits).sum()
            wanted = torch.autograd.grad(total, leaves)
            args = {"query": q, "key": k, "dy": dy, "sparseIndices": entries, "weights": w, "headNum": 0,
                    "layoutOptional": s.layout, "sparseMode": mode, "deterministic": True} | told(s, "Key", page=False)
            yield Case(args, {n: Ref(t, dtype) for n, t in zip(("dQueryOut", "dKeyOut", "dWeightsOut"), wanted)})


@cases("SparseLightningIndexerGradKLLoss", "SparseLightningIndexerGradKLLossV2", "DenseLightningIndexerGradKLLoss")
def indexer_loss(op, g):
    dense = op.startswith("Dense")
    for number, s in enumerate(gradient_layouts(g)):
        for dtype in TYPES:
            heads, depth, mode = 4, 16, (3, 0)[number]
            q, k, w = s.query(heads, depth, dtype=dtype), s.key(1, depth, dtype=dtype), s.query(heads, dtype=dtype, kind="unit")
            t = {"query": s.query(3, 12, dtype=dtype), "key": s.key(1, 12, dtype=dtype), "value": None,
                 "queryRopeOptional": s.query(3, 8, dtype=dtype) if number == 0 else None,
                 "keyRopeOptional": s.key(1, 8, dtype=dtype) if number == 0 else None}
            entries = (torch.arange(s.most_keys, dtype=INT).expand(*q.shape[:-2], 1, -1) if dense
                       else entries_for(s, g, 1, 6, 1))
            t["sparseIndices"] = entries
            parts = solve(s, widened(t), 1, mode, 0.3)
            maximum, summed = group_statistics(s, parts, t["query"], 3)
            leaves = [high(x).requires_grad_() for x in (q, k, w)]
            loss, sums = 0, []
            for b in range(s.count):
                full = widened(t)
                times = chosen_pairs(s, b, entries, mode)
                qs, ks = s.queries_of(full["query"], b), s.keys_of(full["key"], b)
                if full["queryRopeOptional"] is not None:
                    qs = torch.cat([qs, s.queries_of(full["queryRopeOptional"], b)], -1)
                    ks = torch.cat([ks, s.keys_of(full["keyRopeOptional"], b)], -1)
                hidden = (times == 0).expand(-1, 3, -1)
                target = (torch.einsum("qhd,kd->qhk", qs, ks[:, 0]) * 0.3).masked_fill(hidden, -math.inf).softmax(-1).mean(1)
                own = scores_of(s, b, *leaves)[:, 0].masked_fill(times[:, 0] == 0, -math.inf)
                rows = (times[:, 0] != 0).any(-1)
                sums.append((own.detach().amax(-1), (own - own.amax(-1, keepdim=True)).exp().sum(-1).detach()))
                logs = own[rows].log_softmax(-1)
                keep = times[rows, 0] != 0
                loss = loss + (torch.xlogy(target[rows], target[rows]) - target[rows] * logs.masked_fill(~keep, 0)).sum()
            wanted = torch.autograd.grad(loss, leaves)
            t.pop("value")
            if dense:
                t.pop("sparseIndices")
            args = t | {"queryIndex": q, "keyIndex": k, "weights": w, "softmaxMax": maximum.float(),
                        "softmaxSum": summed.float(), "scaleValue": 0.3, "layoutOptional": s.layout, "sparseMode": mode,
                        } | told(s, "Key", as_list=True, page=False)
            if dense:
                names = ("softmaxMaxIndex", "softmaxSumIndex")
                args |= {n: x.float() for n, x in zip(names, index_sums(s, sums, q))}
            else:
                args["deterministic"] = True
            if op.endswith("V2"):
                args["sinksOptional"] = None
            expect = {n: Ref(x, dtype) for n, x in zip(("dQueryIndexOut", "dKeyIndexOut", "dWeightsOut"), wanted)}
            yield Case(args, expect | {"lossOut": Ref(loss.detach().reshape(1), torch.float32)})


def index_sums(s, sums, like):
    results = []
    for i, fill in ((0, -math.inf), (1, 0.0)):
        result = torch.full(like.shape[:-2], fill, dtype=torch.float64)
        for b, part in enumerate(sums):
            s.queries_of(result, b)[...] = part[i]
        results.append(result.unsqueeze(0 if s.layout == "TND" else 1))
    return results


@cases("DenseLightningIndexerSoftmaxLse")
def indexer_sums(op, g):
    for number, s in enumerate(gradient_layouts(g)):
        for dtype in TYPES:
            q, k, w = s.query(4, 16, dtype=dtype), s.key(1, 16, dtype=dtype), s.query(4, dtype=dtype, kind="unit")
            mode, sums = (3, 2)[number], []
            for b in range(s.count):
                own = scores_of(s, b, q, k, w)[:, 0].masked_fill(~s.seen(b, mode), -math.inf)
                maximum = own.amax(-1)
                sums.append((maximum, (own - maximum.clamp(min=-1e300).unsqueeze(-1)).exp().sum(-1)))
            args = {"queryIndex": q, "keyIndex": k, "weights": w, "layoutOptional": s.layout,
                    "sparseMode": mode} | told(s, "Key", as_list=True, page=False)
            results = index_sums(s, sums, q)
            yield Case(args, {n: Ref(x, torch.float32) for n, x in zip(("softmaxMaxOut", "softmaxSumOut"), results)})


# ---- Native sparse attention ----


def selected_problem(g, dtype):
    s = Layout(g, "TND", [4, 9], [30, 20])
    t = {"query": s.query(6, 16, dtype=dtype), "key": s.key(2, 16, dtype=dtype), "value": s.key(2, 24, dtype=dtype)}
    return s, t, entries_for(s, g, 2, 3, 4)


def select(s, t, entries, mode):
    parts = []
    for b in range(s.count):
        times = spread(s, b, s.queries_of(entries, b), 4) * s.seen(b, mode).unsqueeze(1)
        parts.append(attend(s.queries_of(t["query"], b), s.keys_of(t["key"], b), s.keys_of(t["value"], b), 0.25, times))
    return parts


def eight(s, parts, like):
    return [s_.squeeze(0).unsqueeze(-1).expand(-1, -1, 8).contiguous() for s_ in group_statistics(s, parts, like, like.shape[1])]


@cases("NsaSelectedAttention", "NsaSelectedAttentionGrad")
def selected(op, g):
    for dtype in TYPES:
        for mode in (0, 2, 3):
            s, t, entries = selected_problem(g, dtype)
            leaves = {n: high(x).requires_grad_() for n, x in t.items()}
            parts = select(s, leaves, entries, mode)
            statistics = eight(s, [[p.detach() for p in part] for part in parts], t["query"])
            out = s.scatter([part[0].detach() for part in parts], t["query"])
            args = t | {"topkIndices": entries, "attenMaskOptional": None, "actualSeqQLenOptional": s.numbers(False, True),
                        "actualSeqKvLenOptional": s.numbers(True, True), "scaleValue": 0.25, "headNum": 6,
                        "inputLayout": "TND", "sparseMode": mode, "selectedBlockSize": 4, "selectedBlockCount": 3}
            names = ("softmaxMax", "softmaxSum")
            if not op.endswith("Grad"):
                expect = {n + "Out": Ref(x, torch.float32) for n, x in zip(names, statistics)}
                yield Case(args, expect | {"attentionOut": Ref(out, dtype)})
                continue
            grad = g.tensor(list(out.shape), dtype)
            total = sum((part[0] * high(s.queries_of(grad, b))).sum() for b, part in enumerate(parts))
            wanted = torch.autograd.grad(total, list(leaves.values()))
            args |= {"attentionOut": out.to(dtype), "attentionOutGrad": grad} | {n: x.float() for n, x in zip(names, statistics)}
            yield Case(args, {n: Ref(x, dtype) for n, x in zip(("dqOut", "dkOut", "dvOut"), wanted)})


# ---- Attention with a state ----


@cases("RecurrentGatedDeltaRule", "ChunkGatedDeltaRule")
def delta_rule(op, g):
    recurrent = op.startswith("Recurrent")
    for number, dtype in enumerate(TYPES):
        for given in range(4 if recurrent else 2):
            lengths, tokens = [3, 0, 4], 8
            q, k, v = (g.tensor([tokens, *rest], dtype, "unit") for rest in ((2, 12), (2, 12), (4, 20)))
            q, k = q / 4, k / 4
            beta = g.tensor([tokens, 4], dtype, "unit").abs() if given != 1 else None
            decay = -g.tensor([tokens, 4], torch.float32, "positive") if given != 0 else None
            key_decay = -g.tensor([tokens, 4, 12], torch.float32, "positive") if given == 2 else None
            names = torch.tensor([2, 4, 4, 0, 0, 9, 5, 1], dtype=INT) if given == 3 else None
            accepted = torch.tensor([2, 1, 3], dtype=INT) if given == 3 else None
            state = g.tensor([6 if given == 3 else 3, 4, 20, 12], torch.float32 if given == 1 else dtype, "unit")
            left, out, begin = high(state).clone(), torch.zeros(tokens, 4, 20, dtype=torch.float64), 0
            for b, length in enumerate(lengths):
                name = (lambda t, b=b: int(names[t]) if names is not None else b)
                if length == 0:
                    continue
                for h in range(4):
                    first = name(begin + (int(accepted[b]) - 1 if accepted is not None else 0))
                    S = high(state[first, h]).clone() if first < len(state) else torch.zeros(20, 12, dtype=torch.float64)
                    for t in range(begin, begin + length):
                        if decay is not None:
                            S = S * high(decay[t, h]).exp()
                        if key_decay is not None:
                            S = S * high(key_decay[t, h]).exp()
                        key, rate = high(k[t, h // 2]), 1.0 if beta is None else high(beta[t, h])
                        S = S + rate * torch.outer(high(v[t, h]) - S @ key, key)
                        out[t, h] = 0.5 * S @ high(q[t, h // 2])
                        is_last = t + 1 == begin + length or name(t + 1) != name(t)
                        if name(t) < len(state) and is_last:
                            left[name(t), h] = S
                begin += length
            args = {"query": q, "key": k, "value": v, "beta": beta, "actualSeqLengths": torch.tensor(lengths, dtype=INT),
                    "g": decay, "scaleValue": 0.5}
            if recurrent:
                args |= {"stateRef": state, "ssmStateIndices": names, "gk": key_decay, "numAcceptedTokens": accepted}
            else:
                args["initialState"] = state
            yield Case(args, {"out": Ref(out, dtype), "stateRef" if recurrent else "finalState": Ref(left, state.dtype)})


@cases("NsaSelectedAttentionInfer")
def selected_inference(op, g):
    for number, (layout, paged) in enumerate((("BSND", False), ("BSND", True), ("BSH", True), ("TND", True), ("TND", False))):
        for dtype in TYPES:
            packed = layout == "TND"
            s = Layout(g, "TND" if packed else "BSND", [2, 1] if packed else [2, 2], [30, 19], "PA_BSND" if paged else None)
            t = {"query": s.query(6, 16, dtype=dtype), "key": s.key(2, 16, dtype=dtype), "value": s.key(2, 24, dtype=dtype)}
            entries = entries_for(s, g, 2, 3, 4)
            mode = (0, 3, 0, 3, 0)[number]
            parts = select(s, {n: high(x) for n, x in t.items()}, entries, mode)
            out = s.scatter([part[0] for part in parts], t["query"])
            lengths = s.lengths if number == 3 else s.numbers(False, True)
            if layout == "TND" and number == 3:
                t["query"], entries, out = t["query"][:3], entries[:3], out[:3]  # lengths: of all tokens
            if layout == "BSH":
                t["query"], out = t["query"].flatten(2), out.flatten(2)
                t["key"], t["value"] = t["key"].flatten(2), t["value"].flatten(2)
            args = t | {"topkIndices": entries, "attenMaskOptional": None, "blockTableOptional": s.table if paged else None,
                        "actualQSeqLenOptional": lengths, "actualKvSeqLenOptional": s.numbers(True, True),
                        "layoutOptional": layout, "numHeads": 6, "numKeyValueHeads": 2, "selectBlockSize": 4,
                        "selectBlockCount": 3, "pageBlockSize": 4, "scaleValue": 0.25, "sparseMode": mode}
            yield Case(args, {"output": Ref(out, dtype)})


@cases("BlockSparseAttention", "BlockSparseAttentionGrad")
def blocks(op, g):
    """Each head of queries has blocks of its own; one block of queries sees nothing."""
    for number, layout in enumerate(("BNSD", "TND", "TND")):
        for dtype in TYPES:
            lengths, key_lengths = [7, 5], [9, 14]
            q, k, v = ([g.tensor([n, heads, 8], dtype) for n in many]
                       for many, heads in ((lengths, 4), (key_lengths, 2), (key_lengths, 2)))
            if layout == "BNSD":
                lengths, key_lengths = [7, 7], [14, 14]
                q, k, v = ([g.tensor([n, heads, 8], dtype) for n in many]
                           for many, heads in ((lengths, 4), (key_lengths, 2), (key_lengths, 2)))
            mask = g.mask([2, 4, 3, 3])
            mask[0, 1, 1] = False
            join = (lambda ts: torch.cat(ts)) if layout == "TND" else (lambda ts: torch.stack(ts).transpose(1, 2).contiguous())
            leaves = [[high(t).requires_grad_() for t in ts] for ts in (q, k, v)]
            outs, sums = [], []
            for b in range(2):
                seen = mask[b].repeat_interleave(3, 1).repeat_interleave(5, 2)[:, : lengths[b], : key_lengths[b]]
                out, _, _, lse = attention(*(leaf[b].transpose(0, 1) for leaf in leaves), 0.3, ~seen)
                outs.append(out.transpose(0, 1))
                sums.append(lse.transpose(0, 1).detach())
            has_lse = number != 1 or op.endswith("Grad")
            args = {"query": join(q), "key": join(k), "value": join(v), "blockSparseMaskOptional": mask.to(torch.int8),
                    "attenMaskOptional": None, "blockShapeOptional": [3, 5], "qInputLayout": layout, "kvInputLayout": layout,
                    "actualSeqLengthsOptional": [lengths, lengths, [7, 12]][number],
                    "actualSeqLengthsKvOptional": [None, key_lengths, [9, 23]][number], "numKeyValueHeads": 2, "maskType": 0,
                    "scaleValue": 0.3, "preTokens": FAR, "nextTokens": FAR}
            if not op.endswith("Grad"):
                args |= {"blockTableOptional": None, "innerPrecise": 1, "blockSize": 0, "softmaxLseFlag": int(has_lse)}
                yield Case(args, {"attentionOut": Ref(join([o.detach() for o in outs]), dtype),
                                  "softmaxLseOptional": Ref(join(sums), torch.float32) if has_lse else None})
                continue
            grad = [g.tensor(list(o.shape), dtype) for o in outs]
            total = sum((o * high(d)).sum() for o, d in zip(outs, grad))
            wanted = torch.autograd.grad(total, sum(leaves, []))
            args |= {"dout": join(grad), "attentionOut": join([o.detach().to(dtype) for o in outs]),
                     "softmaxLse": join(sums).float()}
            yield Case(args, {n: Ref(join(list(wanted[2 * i : 2 * i + 2])), dtype) for i, n in enumerate(("dq", "dk", "dv"))})


@cases("FusedFloydAttention", "FusedFloydAttentionGrad")
def floyd(op, g):
    for number, dtype in enumerate(TYPES):
        for shape in ((2, 2, 3, 4, 5, 8), (1, 1, 1, 3, 70, 12)):
            b, h, n, m, k, d = shape
            q, k1, v1, k2, v2 = (g.tensor([b, h, *edge, d], dtype) for edge in ((n, m), (n, k), (n, k), (k, m), (k, m)))
            mask = None if number == 1 else g.mask([b, 1, n, 1, k])
            if mask is not None:
                mask[0, 0, 0] = True
            leaves = [high(t).requires_grad_() for t in (q, k1, v1, k2, v2)]
            q_, k1_, v1_, k2_, v2_ = leaves
            scores = 0.4 * (torch.einsum("bhnmd,bhnkd->bhnmk", q_, k1_) + torch.einsum("bhnmd,bhkmd->bhnmk", q_, k2_))
            if mask is not None:
                scores = scores.masked_fill(mask, -math.inf)
            maximum = scores.detach().amax(-1, keepdim=True)
            weights = (scores - maximum.clamp(min=-1e300)).exp()
            total = weights.sum(-1, keepdim=True)
            share = weights / (total + (total == 0))
            out = torch.einsum("bhnmk,bhnkd->bhnmd", share, v1_) + torch.einsum("bhnmk,bhkmd->bhnmd", share, v2_)
            eight = {name: t.detach().expand(*t.shape[:-1], 8).float().contiguous()
                     for name, t in (("softmaxMax", maximum), ("softmaxSum", total))}
            args = {"query": q, "key1": k1, "value1": v1, "key2": k2, "value2": v2, "scaleValue": 0.4,
                    "attenMaskOptional": None if mask is None else mask.to(torch.uint8)}
            if not op.endswith("Grad"):
                yield Case(args, eight | {"attentionOut": Ref(out.detach(), dtype)})
                continue
            grad = g.tensor([b, h, n, m, d], dtype)
            wanted = torch.autograd.grad((out * high(grad)).sum(), leaves)
            yield Case(args | eight | {"grad": grad, "attentionOut": out.detach().to(dtype)},
                       {name: Ref(t, dtype) for name, t in zip(("dquery", "dkey1", "dvalue1", "dkey2", "dvalue2"), wanted)})


@cases("NsaCompressAttention", "NsaCompressAttentionInfer")
def compressed(op, g):
    infer = op.endswith("Infer")
    block, stride, select_size, count = 8, 4, 12, 3
    for number, dtype in enumerate(TYPES):
        for masked in (False, True):
            paged = infer and number != 1
            s = Layout(g, "TND", [3, 5], [9, 20], "PA_BSND" if paged else None)
            selected = [40, 83]  # tokens before they were compressed
            t = {"query": s.query(4, 16, dtype=dtype), "key": s.key(2, 16, dtype=dtype), "value": s.key(2, 24, dtype=dtype)}
            mask = g.mask([5, 20]) if masked else None
            hidden = g.mask([5, 7]) if masked else None
            shape = [*t["query"].shape[:1], 2, count]
            places, most = torch.full(shape, -1, dtype=INT), 7
            scores_of_rows = torch.full([*shape[:2], most], -math.inf, dtype=torch.float64)
            parts = []
            for b in range(2):
                full = {n: high(x) for n, x in t.items()}
                seen = torch.ones(s.lengths[b], 2, s.key_lengths[b], dtype=torch.float64)
                if masked:
                    seen *= ~mask[: s.lengths[b], None, : s.key_lengths[b]]
                q, k, v = s.queries_of(full["query"], b), s.keys_of(full["key"], b), s.keys_of(full["value"], b)
                parts.append(attend(q, k, v, 0.3, seen))
                scores = torch.einsum("qhd,khd->qhk", q, k.repeat_interleave(2, 1)) * 0.3
                scores = scores.masked_fill(seen.repeat_interleave(2, 1) == 0, -math.inf).softmax(-1).nan_to_num()
                weights = scores.unflatten(1, (2, 2)).sum(2)
                blocks = -(-selected[b] // select_size)
                result = torch.zeros(s.lengths[b], 2, blocks, dtype=torch.float64)
                for j in range(blocks):
                    for m in range(select_size // stride):
                        for n in range(block // stride):
                            at = select_size // stride * j - m - n
                            if 0 <= at < s.key_lengths[b]:
                                result[..., j] += weights[..., at]
                if masked:
                    result = result.masked_fill(hidden[: s.lengths[b], None, :blocks], -math.inf)
                values, order = result.sort(dim=-1, descending=True, stable=True)
                order = order.masked_fill(values == -math.inf, -1)[..., :count]
                s.queries_of(places, b)[...] = order.to(INT)
                s.queries_of(scores_of_rows, b)[..., :blocks] = result
            out = s.scatter([part[0] for part in parts], t["query"])
            lengths = [s.numbers(False, True), s.numbers(True, True)]
            told = selected if paged else torch.tensor(selected).cumsum(0).tolist()
            common = {"scaleValue": 0.3, "sparseMode": int(masked), "compressBlockSize": block, "selectBlockSize": select_size,
                      "selectBlockCount": count}
            chosen = Chosen(places, scores_of_rows.flatten(0, -2))
            if infer:
                args = t | common | {"attentionMaskOptional": mask, "blockTableOptional": s.table if paged else None,
                                     "actualQSeqLenOptional": lengths[0], "actualCmpKvSeqLenOptional": lengths[1],
                                     "actualSelKvSeqLenOptional": told, "topKMaskOptional": hidden, "numHeads": 4,
                                     "numKeyValueHeads": 2, "compressBlockStride": stride, "layoutOptional": "TND",
                                     "pageBlockSize": 4}
                yield Case(args, {"output": Ref(out, dtype), "topKOutput": chosen})
                continue
            args = t | common | {"attenMaskOptional": mask, "topkMaskOptional": hidden, "actualSeqQLenOptional": lengths[0],
                                 "actualCmpSeqKvLenOptional": lengths[1], "actualSelSeqKvLenOptional": told, "headNum": 4,
                                 "inputLayout": "TND", "compressStride": stride}
            statistics = eight(s, parts, t["query"])
            yield Case(args, {"softmaxMaxOut": Ref(statistics[0], torch.float32), "softmaxSumOut": Ref(statistics[1], torch.float32),
                              "attentionOutOut": Ref(out, dtype), "topkIndicesOut": chosen})
