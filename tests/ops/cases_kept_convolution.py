# SPDX-License-Identifier: Apache-2.0
"""Causal convolutions that go on from call to call, against whole sequences put together in float64."""

import torch

from harness import Case, Ref, cases, high

TYPES = (torch.float32, torch.float16, torch.bfloat16)
INT = torch.int32


class Problem:
    """Sequences over rows x [tokens, channels] and lines of states [lines, tokens, channels]."""

    def __init__(self, g, dtype, lengths, channels=5, window=3, more=0, lines=None, in_front=0, behind=0):
        self.lengths, self.window, self.in_front = lengths, window, in_front
        self.x = g.tensor([in_front + sum(lengths) + behind, channels], dtype)
        self.weight = g.tensor([window, channels], dtype)
        self.states = g.tensor([lines or len(lengths), window - 1 + more, channels], dtype)
        self.given = {}  # by the name of the parameter, without Optional
        self.mode, self.residual, self.skip, self.block = 0, 0, -1, 128

    def give(self, **numbers):
        self.given |= {name: torch.tensor(value, dtype=INT) for name, value in numbers.items()}
        return self

    def starts(self):
        ends = torch.tensor([self.in_front, *self.lengths]).cumsum(0)
        return ends.to(INT)

    def args(self):
        names = ("cacheIndices", "initialStateMode", "bias", "numAcceptedTokens", "numComputedTokens",
                 "blockIdxFirstScheduledToken", "blockIdxLastScheduledToken", "initialStateIdx")
        return {"x": self.x, "weight": self.weight, "convStates": self.states, "queryStartLocOptional": self.starts(),
                **{name + "Optional": self.given.get(name) for name in names}, "activationMode": 0, "padSlotId": self.skip,
                "runMode": 0, "maxQueryLen": -1, "residualConnection": self.residual, "blockSize": self.block,
                "convMode": self.mode}

    def of(self, name, b):
        return int(self.given[name][b]) if name in self.given else None

    def line(self, b, block):
        table = self.given.get("cacheIndices")
        if table is None:
            return b
        return int(table[b]) if table.dim() == 1 else int(table[b, block])

    def solve(self, out):
        """`out` with the results in their places, and the states that are left."""
        x, weight, states = high(self.x), high(self.weight), high(self.states).clone()
        before, tokens = self.window - 1, states.shape[1]
        begin = self.in_front
        for b, length in enumerate(self.lengths):
            end = begin + length
            read = self.line(b, self.of("initialStateIdx", b))
            write = self.line(b, self.of("blockIdxLastScheduledToken", b))
            if read == self.skip or length == 0:
                begin = end
                continue
            computed = self.of("numComputedTokens", b)
            offset = tokens - before
            if (accepted := self.of("numAcceptedTokens", b)) is not None:
                offset = accepted - 1
            history = states[read, :offset + before].clone()
            if computed == 0:
                offset, history = 0, torch.zeros(before, x.shape[1], dtype=x.dtype)
            seen = torch.cat([history, x[begin:end]])
            rows = min(tokens, len(seen))
            states[write, tokens - rows:] = seen[len(seen) - rows:]
            seen = seen[offset:]
            if "initialStateIdx" in self.given:
                first, last = (self.of(f"blockIdx{which}ScheduledToken", b) for which in ("First", "Last"))
                place = (computed // self.block + 1) * self.block  # where the first block ends, counted from the start
                ends = [end for end in range(place, computed + length, self.block)]
                for block, full in zip(range(first, last), ends[len(ends) - (last - first):]):
                    at = full - computed
                    states[self.line(b, block), tokens - before:] = seen[at:at + before]
            result = sum(weight[w] * seen[w:w + length] for w in range(self.window))
            if self.mode == 1:
                result[:max(before - computed, 0)] = 0
            out[begin:end] = result + x[begin:end] if self.residual else result
            begin = end
        return out, states


def problems(g, dtype):
    yield Problem(g, dtype, [5, 3, 7, 4])
    p = Problem(g, dtype, [5, 1, 2, 4], channels=70, lines=8, in_front=2, behind=3).give(cacheIndices=[0, 3, 1, 5])
    p.residual = 1
    yield p
    yield Problem(g, dtype, [1, 0, 6, 2], lines=5).give(cacheIndices=[4, 0, 2, 1], numComputedTokens=[0, 9, 0, 7])
    # Three tokens more than the window needs, so that some of what was drafted can be given up.
    p = Problem(g, dtype, [4, 4, 1, 4], channels=130, more=3, lines=6)
    yield p.give(cacheIndices=[1, 5, 0, 3], numAcceptedTokens=[1, 4, 1, 2], numComputedTokens=[8, 6, 0, 2])
    yield Problem(g, dtype, [2, 1, 9], more=4).give(numAcceptedTokens=[2, 1, 3])
    p = Problem(g, dtype, [3, 2, 4, 1, 5], lines=5).give(cacheIndices=[2, -1, 0, 4, -1], numComputedTokens=[0, 1, 1, 0, 0])
    p.mode = p.residual = 1
    yield p
    p = Problem(g, dtype, [3, 2], more=1, lines=9).give(cacheIndices=[7, 2], numComputedTokens=[1, 2])
    p.skip, p.mode = 7, 1
    yield p
    for window, more in ((1, 0), (1, 2), (2, 1), (5, 0), (16, 2)):
        yield Problem(g, dtype, [3, 20, 1], window=window, more=more).give(numComputedTokens=[0, 3, 8])
    # A line for each block of tokens.
    for more, accepted in ((0, None), (2, [1, 3, 2, 1])):
        p = Problem(g, dtype, [9, 5, 8, 3], more=more, lines=24)
        p.block = 4
        p.give(cacheIndices=[[n * 6 + (i * 5 + 2) % 6 for i in range(6)] for n in range(4)], numComputedTokens=[0, 6, 4, 5],
               initialStateIdx=[0, 1, 0, 1], blockIdxFirstScheduledToken=[0, 1, 1, 1], blockIdxLastScheduledToken=[2, 2, 2, 1])
        yield p.give(numAcceptedTokens=accepted) if accepted else p


@cases("FusedCausalConv1d")
def fused(op, g):
    for dtype in TYPES:
        for p in problems(g, dtype):
            out, states = p.solve(torch.zeros_like(high(p.x)))
            yield Case(p.args(), {"y": Ref(out, dtype), "convStates": Ref(states, dtype, bound="exact")})
        for given in (False, True):
            p = batches(g, dtype)
            out, states = p.solve(torch.zeros_like(high(p.x)))
            args = p.args() | {"x": p.x.view(3, 4, -1)}
            if not given:
                args["queryStartLocOptional"] = None
            yield Case(args, {"y": Ref(out.view(3, 4, -1), dtype), "convStates": Ref(states, dtype, bound="exact")})


def batches(g, dtype):
    p = Problem(g, dtype, [4, 4, 4], more=3, lines=4).give(numAcceptedTokens=[1, 2, 4], cacheIndices=[3, 0, 2])
    p.residual = 1
    return p


@cases("InplaceFusedCausalConv1d")
def in_place(op, g):
    for dtype in TYPES:
        for p in problems(g, dtype):
            out, states = p.solve(high(p.x).clone())
            yield Case(p.args(), {"x": Ref(out, dtype), "convStates": Ref(states, dtype, bound="exact")})
        p = batches(g, dtype)
        out, states = p.solve(high(p.x).clone())
        args = p.args() | {"x": p.x.view(3, 4, -1), "queryStartLocOptional": None}
        yield Case(args, {"x": Ref(out.view(3, 4, -1), dtype), "convStates": Ref(states, dtype, bound="exact")})
