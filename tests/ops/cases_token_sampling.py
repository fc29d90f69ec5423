# SPDX-License-Identifier: Apache-2.0
"""Sampling among the likeliest tokens, by sorting as a program would do it."""

import torch

from harness import Case, Ref, cases, high


def filtered(logits, k, p, least, most_k):
    """Logits with -Inf for what goes; all in float64."""
    order = logits.sort(stable=True).indices
    sorted_ = logits[order].clone()
    if 1 <= k <= min(len(logits), most_k):
        sorted_[sorted_ < sorted_[len(logits) - k]] = -torch.inf
    if p < 1:
        gone = sorted_.softmax(0).cumsum(0) <= 1 - p
        gone[-1] = False
        sorted_[gone] = -torch.inf
    if least is not None:
        weights = sorted_.softmax(0)
        sorted_[weights < least * weights.max()] = -torch.inf
    return torch.empty_like(sorted_).scatter_(0, order, sorted_)


@cases("TopKTopPSample", "TopKTopPSampleV2")
def sample(op, g):
    second = op.endswith("V2")
    for number, dtype in enumerate((torch.float32, torch.float16, torch.bfloat16, torch.float64)):
        for batch, width in ((5, 50), (3, 1), (2, 1500)):
            # Distinct logits: equal ones have no order that others share.
            logits = torch.stack([g.permutation(width, torch.float64) for _ in range(batch)]) / 8 - 3
            logits = logits.to(dtype)
            limit = 1200 if second else 1024
            k = torch.tensor([7, 0, width, 3, 9000][:batch], dtype=torch.int32)
            p = torch.tensor([0.625, 0.25, 1.0, 0.0, 0.8125][:batch], dtype=dtype)
            for sampled in (False, True):
                q = g.tensor([batch, width], torch.float32, "positive") if sampled else None
                least = g.pick([batch], [0.0, 0.5, 0.03125], dtype) if second and number % 2 else None
                probabilities = second and width == 50 and number == 0
                given = high(logits).softmax(1).to(dtype) if probabilities else logits
                values = high(given).log() if probabilities else high(given)
                rows = [filtered(values[b], int(k[b]), float(p[b]), None if least is None else float(least[b]), limit)
                        for b in range(batch)]
                kept = torch.stack(rows)
                weights = kept.softmax(1)
                token = (weights / (high(q).abs() + 1e-8) if sampled else weights).argmax(1)
                shown = torch.where(kept.isinf(), 0.0, high(given)) if probabilities else kept
                args = {"logits": given, "topK": k, "topP": p, "q": q, "eps": 1e-8, "isNeedLogits": sampled, "topKGuess": 32}
                results = {"logitsSelectIdx": token, "logitsTopKPSelect": Ref(shown, torch.float32) if sampled else None}
                if second:
                    order = values.sort(dim=1, descending=True, stable=True).indices
                    args.update(minPs=least, ksMax=limit, inputIsLogits=not probabilities, isNeedSampleResult=sampled)
                    results["logitsIdx"] = order if sampled else None
                    results["logitsSortMasked"] = (Ref(weights.gather(1, order), torch.float32, bound="8/8 of max")
                                                   if sampled else None)
                yield Case(args, results)


@cases("AdvanceStep", "AdvanceStepV2")
def advance(op, g):
    for sequences, queries, size in ((6, 4, 8), (3, 3, 1), (1, 0, 16)):
        tokens, positions, slots = (g.index([sequences], 1000) for _ in range(3))
        lengths = g.index([sequences], 5 * size) + 1
        sampled, blocks = g.index([queries, 1], 1000), g.permutation(6 * sequences).reshape(sequences, 6).to(torch.int32)
        after = [t.clone() for t in (tokens, positions, lengths, slots)]
        for i in range(queries):
            at = int(lengths[i])
            after[0][i], after[1][i], after[2][i] = sampled[i, 0], at, at + 1
            after[3][i] = int(blocks[i, at // size]) * size + at % size
        more = {"specToken": None, "acceptedNum": None} if op == "AdvanceStepV2" else {}
        yield Case({"inputTokens": tokens, "sampledTokenIds": sampled, "inputPositions": positions, "seqLens": lengths,
                    "slotMapping": slots, "blockTables": blocks.long(), "numSeqs": sequences, "numQueries": queries,
                    "blockSize": size} | more,
                   dict(zip(("inputTokens", "inputPositions", "seqLens", "slotMapping"), after)))
