# SPDX-License-Identifier: Apache-2.0
"""Attention between floats of 8 bits and its gradients, against whole matrices in float64."""

import torch

from cases_small_floats import E4M3, E5M2, HIFLOAT8, random_small, values_of
from harness import Case, Ref, cases, high


def rounded(x, small):
    """The nearest number of the type to each one."""
    if small != HIFLOAT8:
        return x.float().to(small).double()
    table = values_of(small)
    table = table[table.isfinite()].unique()
    above = torch.searchsorted(table, x.contiguous()).clamp(1, len(table) - 1)
    below = table[above - 1]
    is_above = (table[above] - x < x - below) | ((table[above] - x == x - below) & (x > 0))
    return torch.where(is_above, table[above], below)


class Problem:
    def __init__(self, g, small, layout, batch, heads, key_heads, queries, keys, depth, value_depth, blocks):
        self.small, self.layout, self.scale, self.group = small, layout, 0.05, heads // key_heads
        self.given, self.wide = {}, {}
        for name, many, tokens, size, block in (("query", heads, queries, depth, blocks[0]), ("key", key_heads, keys, depth, blocks[1]),
                                                ("value", key_heads, keys, value_depth, blocks[2]), ("dy", heads, queries, value_depth, blocks[0])):
            shape = [batch, many, tokens, size] if layout == "BNSD" else [batch, tokens, many, size]
            self.given[name], values = random_small(g, shape, small)
            factors = g.tensor([batch, many, -(-tokens // block), 1], torch.float32, "positive") / 2
            self.given["of " + name] = factors
            self.wide[name] = self.by_heads(values) * high(factors).repeat_interleave(block, 2)[:, :, :tokens]
        self.p, self.ds = torch.tensor([15.0]), torch.tensor([3.5])

    def by_heads(self, x):
        return x if self.layout == "BNSD" else x.transpose(1, 2)

    def spread(self, name):
        return self.wide[name].repeat_interleave(self.group, 1)

    def scores(self):
        return self.scale * self.wide["query"] @ self.spread("key").transpose(2, 3)

    def forward(self):
        scores = self.scores()
        most = scores.amax(-1, keepdim=True)
        weights = (scores - most).exp()
        total = weights.sum(-1, keepdim=True)
        factor = float(self.p) if self.p is not None else 1.0
        out = rounded(weights * factor, self.small) @ self.spread("value") / (total * factor)
        return self.by_heads(out), most, total

    def backward(self, attention, most, total):
        factor, ds = (1.0 if each is None else float(each) for each in (self.p, self.ds))
        exact = (self.scores() - most).exp() / total
        dy = self.wide["dy"]
        gradient = exact * (dy @ self.spread("value").transpose(2, 3) - (dy * self.by_heads(attention)).sum(-1, keepdim=True))
        gradient = rounded(gradient * ds, self.small) * self.scale / ds
        weights = rounded(exact * factor, self.small) / factor

        def summed(x):
            return x.unflatten(1, (-1, self.group)).sum(2)

        results = (gradient @ self.spread("key"), summed(gradient.transpose(2, 3) @ self.wide["query"]), summed(weights.transpose(2, 3) @ dy))
        return [self.by_heads(x) for x in results]

    def args(self):
        return {"query": self.given["query"], "value": self.given["value"], "attenMaskOptional": None, "dScaleQ": self.given["of query"],
                "dScaleK": self.given["of key"], "dScaleV": self.given["of value"], "pScale": self.p, "scaleValue": self.scale,
                "preTokens": 2147483647, "nextTokens": 2147483647, "headNum": self.wide["query"].shape[1], "inputLayout": self.layout,
                "sparseMode": 0}


def problems(g):
    yield Problem(g, HIFLOAT8, "BSND", 1, 2, 2, 130, 70, 16, 16, (128, 256, 512)), torch.bfloat16
    yield Problem(g, HIFLOAT8, "BSND", 2, 4, 2, 5, 300, 8, 12, (512, 256, 512)), torch.float16
    yield Problem(g, E4M3, "BNSD", 1, 3, 1, 7, 260, 24, 8, (128, 128, 256)), torch.bfloat16
    yield Problem(g, E5M2, "BNSD", 2, 2, 2, 4, 9, 8, 8, (128, 256, 512)), torch.float32
    p = Problem(g, HIFLOAT8, "BNSD", 1, 1, 1, 3, 40, 8, 8, (128, 256, 512))
    p.p = p.ds = None
    yield p, torch.bfloat16


@cases("QuantFlashAttentionScore")
def eight_bit_attention(op, g):
    for number, (p, dtype) in enumerate(problems(g)):
        out, most, total = p.forward()
        repeated = 8 if number == 1 else 1
        yield Case(p.args() | {"key": p.given["key"]},
                   {"attentionOutOut": Ref(out, dtype), "softmaxMaxOut": Ref(most.expand(-1, -1, -1, repeated), torch.float32),
                    "softmaxSumOut": Ref(total.expand(-1, -1, -1, repeated), torch.float32), "softmaxOutOut": None})


@cases("QuantFlashAttentionScoreGrad")
def eight_bit_gradients(op, g):
    for number, (p, dtype) in enumerate(problems(g)):
        out, most, total = (x.to(kind) for x, kind in zip(p.forward(), (dtype, torch.float32, torch.float32)))
        grads = p.backward(high(out), high(most), high(total))
        repeated = 8 if number == 1 else 1
        args = p.args() | {"keyIn": p.given["key"], "dy": p.given["dy"], "dScaleDy": p.given["of dy"], "dsScale": p.ds, "outDtype": 1,
                           "attentionIn": out.contiguous(), "softmaxMax": most.repeat(1, 1, 1, repeated), "softmaxSum": total.repeat(1, 1, 1, repeated)}
        yield Case(args, {name: Ref(x, dtype) for name, x in zip(("dqOut", "dkOut", "dvOut"), grads)})
