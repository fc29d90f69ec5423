# SPDX-License-Identifier: Apache-2.0
"""Tokens to experts and back by a map, tokens that come rank by rank, choices with their gradients."""

import torch

from cases_quantization import dynamic_case
from cases_routing import SIZES, combined, experts_of, order_of, places_of, with_capacity
from harness import Case, Ref, cases, high

TYPES = (torch.float32, torch.float16, torch.bfloat16)
# tokens, experts, row length
MAPS = ((6, 4, 8), (1, 3, 33), (40, 5, 600), (9, 1, 3), (0, 2, 8))


def apart(g, rows, columns, dtype):
    """Scores that rounding does not reorder."""
    return (g.permutation(rows * columns).reshape(rows, columns) % columns).to(dtype) / 64


@cases("MoeGatingTopKSoftmaxV2")
def top_k_softmax(op, g):
    number = 0
    for dtype in TYPES:
        for shape, k in (([5, 8], 2), ([2, 3, 65], 6), ([1, 1], 1), ([0, 8], 2), ([4, 300], 300)):
            for renorm in (0, 1):
                number += 1
                rows = 1
                for size in shape[:-1]:
                    rows *= size
                x = apart(g, rows, shape[-1], dtype).reshape(shape)
                finished = g.mask(shape[:-1]) if number % 3 == 0 else None
                p = torch.softmax(high(x), -1)
                expert = torch.sort(p, stable=True, descending=True, dim=-1).indices[..., :k]
                y = p.gather(-1, expert)
                y = y / y.sum(-1, keepdim=True) if renorm else y
                if finished is not None:
                    expert = expert.masked_fill(finished.unsqueeze(-1), shape[-1])
                wants = number % 2 == 0 and not renorm
                yield Case({"x": x, "finishedOptional": finished, "k": k, "renorm": renorm,
                            "outputSoftmaxResultFlag": wants},
                           {"yOut": Ref(y, dtype), "expertIdxOut": Ref(expert, torch.int32),
                            "softmaxResultOutOptional": Ref(p, torch.float32) if wants else None})


@cases("MoeGatingTopKV2")
def table_gating(op, g):
    number = 0
    for dtype in TYPES:
        for rows, columns, k in ((5, 8, 2), (3, 64, 6), (1, 256, 8), (0, 8, 2)):
            for norm_type in range(2):
                for by_table in (False, True):
                    number += 1
                    x, renorm = apart(g, rows, columns, dtype), number % 2 if norm_type == 0 else 0
                    p = torch.softmax(high(x), -1) if norm_type == 0 else torch.sigmoid(high(x))
                    ids = table = None
                    if by_table:
                        ids = g.index([rows], 7, torch.int32 if number % 3 else torch.int64)
                        table = torch.stack([g.permutation(columns)[:k] for _ in range(7)]).to(torch.int32)
                        expert = table[ids.long()].long()
                    else:
                        expert = torch.sort(p, stable=True, descending=True).indices[:, :k]
                    y = p.gather(-1, expert)
                    y = y / (y.sum(-1, keepdim=True) + 1e-20) if norm_type == 1 or renorm else y
                    yield Case({"x": x, "biasOptional": None, "inputIdsOptional": ids, "tid2eidOptional": table, "k": k,
                                "kGroup": 1, "groupCount": 1, "groupSelectMode": 0, "renorm": renorm, "normType": norm_type,
                                "outFlag": number % 3 == 0, "routedScalingFactor": 2.5, "eps": 1e-20},
                               {"yOut": Ref(y * 2.5, dtype), "expertIdxOut": Ref(expert, torch.int32),
                                "outOut": Ref(p, torch.float32) if number % 3 == 0 else None})


@cases("MoeGatingTopKBackward")
def gating_gradient(op, g):
    for dtype in TYPES:
        for rows, columns, k in ((5, 8, 2), (3, 64, 6), (1, 256, 8), (0, 8, 2)):
            for norm_type in range(2):
                for renorm in range(2):
                    x = g.tensor([rows, columns], torch.float64).requires_grad_()
                    p = torch.softmax(x, -1) if norm_type == 0 else torch.sigmoid(x)
                    expert = torch.sort(p.detach(), stable=True, descending=True).indices[:, :k]
                    y = p.gather(-1, expert)
                    y = y / (y.sum(-1, keepdim=True) + 1e-20) if norm_type == 1 or renorm else y
                    grad = g.tensor([rows, k], dtype)
                    (y * 2.5).backward(high(grad))
                    yield Case({"xNorm": p.detach().float(), "gradY": grad, "expertIdx": expert.to(torch.int32),
                                "renorm": renorm, "normType": norm_type, "routedScalingFactor": 2.5, "eps": 1e-20},
                               {"gradX": Ref(x.grad, dtype)})


@cases("MoeInitRoutingQuantV2")
def init_routing_quant(op, g):
    base = {"activeNum": 0, "expertCapacity": 0, "dropPadMode": 0, "expertTokensCountOrCumsumFlag": 0,
            "expertTokensBeforeCapacityFlag": False}
    for dtype in TYPES:
        for tokens, choices, experts, n in SIZES:
            x, expert = g.tensor([tokens, n], dtype), experts_of(g, tokens, choices, experts)
            order = order_of(expert)
            counts = torch.bincount(expert.reshape(-1).long(), minlength=experts)
            rows = x[order // choices]
            scale, offset = torch.tensor([12.5]), torch.tensor([3.0])
            still = (rows.float() * scale + offset).round().clamp(-128, 127).to(torch.int8)
            smooth = g.tensor([experts, n], torch.float32, "positive")
            moved, step, _ = dynamic_case(rows, smooth, smooth[expert.reshape(-1)[order].long()], False, False)
            for flag in range(3):
                told = [None, counts.cumsum(0), counts][flag]
                told = None if told is None else Ref(told, torch.int32)
                args = base | {"x": x, "expertIdx": expert, "expertNum": experts, "expertTokensCountOrCumsumFlag": flag}
                expect = {"expandedRowIdxOut": places_of(order), "expertTokensBeforeCapacityOutOptional": None,
                          "expertTokensCountOrCumsumOutOptional": told}
                yield Case(args | {"scaleOptional": scale, "offsetOptional": offset, "quantMode": 0},
                           expect | {"expandedXOut": still, "dynamicQuantScaleOutOptional": None})
                yield Case(args | {"scaleOptional": smooth, "offsetOptional": None, "quantMode": 1},
                           expect | {"expandedXOut": moved, "dynamicQuantScaleOutOptional": Ref(step)})
            if not tokens:
                continue
            padded, places, used = with_capacity(x, expert, 0, experts, max(1, tokens // 2))
            y, steps, _ = dynamic_case(padded, None, None, False, False)
            yield Case(base | {"x": x, "expertIdx": expert, "expertNum": experts, "dropPadMode": 1,
                               "expertCapacity": padded.shape[1], "expertTokensBeforeCapacityFlag": True,
                               "scaleOptional": None, "offsetOptional": None, "quantMode": 1},
                       {"expandedXOut": y, "expandedRowIdxOut": places, "expertTokensCountOrCumsumOutOptional": None,
                        "expertTokensBeforeCapacityOutOptional": Ref(used, torch.int32),
                        "dynamicQuantScaleOutOptional": Ref(steps.reshape(-1))})


@cases("MoeReRouting")
def re_routing(op, g):
    number = 0
    for dtype in (*TYPES, torch.int8):
        for ranks, experts, n, rest in ((2, 3, 8, 0), (4, 1, 33, 0), (1, 5, 600, 2), (3, 4, 7, 0)):
            for idx_type in (0, 1):
                number += 1
                counts = g.index([ranks, experts], 4, torch.int32 if number % 2 else torch.int64)
                tokens = int(counts.sum()) + rest
                x = g.tensor([tokens, n], dtype)
                scales = g.tensor([tokens], torch.float32) if number % 3 else None
                expert = torch.repeat_interleave(torch.arange(ranks * experts) % experts, counts.reshape(-1).long())
                expert = torch.cat([expert, torch.full([rest], experts)])
                order = torch.sort(expert, stable=True).indices
                index = order if idx_type == 0 else places_of(order)
                numbers = counts.sum(0)
                numbers = numbers.cumsum(0) if number % 4 == 0 else numbers
                yield Case({"tokens": x, "expertTokenNumPerRank": counts, "perTokenScalesOptional": scales,
                            "expertTokenNumType": int(number % 4 != 0), "idxType": idx_type},
                           {"permuteTokens": x[order], "permutePerTokenScalesOptional": None if scales is None else
                            scales[order], "permuteTokenIdx": index.to(torch.int32),
                            "expertTokenNum": numbers.to(counts.dtype)})


@cases("MoeFinalizeRoutingV4")
def finalize_fourth(op, g):
    none = dict.fromkeys(("oriXOptional", "constExpertAlpha1Optional", "constExpertAlpha2Optional", "constExpertVOptional",
                          "zeroExpertRangeOptional", "copyExpertRangeOptional", "constExpertRangeOptional"))
    number = 0
    for dtype in TYPES:
        for tokens, choices, experts, n in SIZES:
            for mode in (0, 2):
                number += 1
                rows, place = g.tensor([tokens * choices, n], dtype), g.permutation(tokens * choices, torch.int32)
                weight = g.tensor([tokens, choices], dtype, "positive") if number % 3 else None
                if weight is None and tokens == 0:
                    continue
                x1 = g.tensor([tokens, n], dtype) if number % 2 else None
                out = combined(rows, place, weight, choices, mode < 2)
                out = out if x1 is None else out + high(x1)
                yield Case(none | {"expandedX": rows, "expandedRowIdx": place, "x1Optional": x1, "x2Optional": None,
                                   "biasOptional": None, "scalesOptional": weight, "expertIdxOptional": None,
                                   "dropPadMode": mode, "k": choices if number % 3 == 0 or number % 5 == 0 else 1},
                           {"out": Ref(out, dtype)})


# ---- By a map ----

def routed(g, tokens, experts, choices, padded):
    """A map, and of each row its token and its expert, expert by expert."""
    scores = torch.rand(tokens, experts, generator=g.torch)
    if padded:
        route = g.mask([tokens, experts])
        room = max(1, tokens // 2)
        rows = [(e, t) for e in range(experts) for t in
                sorted(range(tokens), key=lambda t: (not route[t, e], t))[:room]] if tokens else []
    else:
        chosen = scores.argsort(-1)[:, :choices]
        route = torch.zeros(tokens, experts, dtype=torch.bool).scatter(1, chosen, True)
        rows = [(e, t) for e in range(experts) for t in range(tokens) if route[t, e]]
    expert, token = (torch.tensor([row[i] for row in rows], dtype=torch.int64) for i in range(2))
    return route, token, expert


def map_cases(g, dtypes=TYPES):
    for number, dtype in enumerate(dtypes):
        for tokens, experts, n in MAPS:
            for padded in (False, True):
                route, token, expert = routed(g, tokens, experts, min(2, experts), padded)
                kind = (torch.bool, torch.int8, torch.uint8)[number % 3]
                probs = g.tensor([tokens, experts], dtype, "positive") if number != 1 else None
                yield dtype, n, route.to(kind), token, expert, probs, padded


@cases("MoeTokenPermuteWithRoutingMap")
def permute_by_map(op, g):
    for dtype, n, route, token, expert, probs, padded in map_cases(g):
        x = g.tensor([len(route), n], dtype)
        index = token if padded else torch.sort(token, stable=True).indices
        yield Case({"tokens": x, "routingMap": route, "probsOptional": probs, "numOutTokens": len(token),
                    "dropAndPad": padded},
                   {"permuteTokensOut": x[token], "sortedIndicesOut": index.to(torch.int32),
                    "permuteProbsOutOptional": None if probs is None else probs[token, expert]})


@cases("MoeTokenPermuteWithRoutingMapGrad")
def permute_by_map_grad(op, g):
    for dtype, n, route, token, expert, probs, padded in map_cases(g):
        rows = g.tensor([len(token), n], dtype)
        tokens, experts = route.shape
        index = token if padded else torch.sort(token, stable=True).indices
        out = torch.zeros(tokens, n, dtype=torch.float64).index_add(0, token, high(rows))
        of_rows = None if probs is None else g.tensor([len(token)], dtype)
        of_probs = None if probs is None else torch.zeros(tokens, experts, dtype=dtype)
        if probs is not None:
            of_probs[token, expert] = of_rows
        yield Case({"permutedTokenOutputGrad": rows, "permutedProbsOutputGradOptional": of_rows,
                    "sortedIndices": index.to(torch.int32), "routingMapOptional": route if probs is not None else None,
                    "numExperts": experts, "tokensNum": tokens, "dropAndPad": padded},
                   {"tokensGradOut": Ref(out, dtype), "probsGradOutOptional": of_probs})


@cases("MoeTokenUnpermuteWithRoutingMap")
def unpermute_by_map(op, g):
    for dtype, n, route, token, expert, probs, padded in map_cases(g):
        rows = g.tensor([len(token), n], dtype)
        order = torch.sort(token, stable=True).indices
        weight = 1 if probs is None else high(probs)[token, expert].unsqueeze(-1)
        out = torch.zeros(len(route), n, dtype=torch.float64).index_add(0, token, high(rows) * weight)
        yield Case({"permutedTokens": rows, "sortedIndices": (token if padded else order).to(torch.int32),
                    "routingMapOptional": route if probs is not None else None, "probsOptional": probs,
                    "paddedMode": padded, "restoreShapeOptional": [len(route), n] if padded else None},
                   {"unpermutedTokens": Ref(out, dtype), "outIndex": order.to(torch.int32),
                    "permuteTokenId": token[order].to(torch.int32),
                    "permuteProbs": None if probs is None else Ref(probs[token, expert], bound="exact")})


@cases("MoeTokenUnpermuteWithRoutingMapGrad")
def unpermute_by_map_grad(op, g):
    for dtype, n, route, token, expert, probs, padded in map_cases(g):
        rows, grad = g.tensor([len(token), n], dtype), g.tensor([len(route), n], dtype)
        order = torch.sort(token, stable=True).indices
        leaf = high(rows).requires_grad_()
        own = None if probs is None else high(probs).requires_grad_()
        weight = 1 if own is None else own[token, expert].unsqueeze(-1)
        torch.zeros(len(route), n, dtype=torch.float64).index_add(0, token, leaf * weight).backward(high(grad))
        yield Case({"unpermutedTokensGrad": grad, "outIndex": order.to(torch.int32),
                    "permuteTokenId": token[order].to(torch.int32), "routingMapOptional": route if own is not None else None,
                    "permutedTokensOptional": rows if own is not None else None, "probsOptional": probs,
                    "paddedMode": padded, "restoreShapeOptional": [len(route), n]},
                   {"permutedTokensGradOut": Ref(leaf.grad, dtype),
                    "probsGradOutOptional": None if own is None else Ref(own.grad, dtype)})


@cases("MoeUpdateExpert")
def update_expert(op, g):
    number = 0
    for dtype in (*TYPES, None):
        for tokens, k, experts, columns, world in ((6, 3, 5, 4, 8), (1, 2, 9, 2, 2), (40, 8, 64, 5, 7), (0, 2, 3, 3, 4)):
            for mode in (0, 1):
                number += 1
                ids = g.index([tokens, k], experts, torch.int32 if number % 2 else torch.int64)
                counts = g.index([experts, 1], columns - 1, torch.int32) + 1
                table = torch.cat([counts, g.index([experts, columns - 1], 99, torch.int32)], 1)
                rank = number % world
                scales = None if dtype is None else torch.sort(g.tensor([tokens, k], dtype, "positive"), descending=True).values
                threshold = None if dtype is None else g.tensor([k], torch.float32, "positive") / (2 * k)
                active = g.mask([tokens]) if number % 3 else None
                of = counts.reshape(-1)[ids.long()].long()
                place = rank // ((world + of - 1) // of) if mode == 0 else torch.arange(tokens).unsqueeze(1) % of
                new = table.long()[ids.long()].gather(2, 1 + place.unsqueeze(-1)).squeeze(-1)
                kept = None
                if scales is not None:
                    kept = ~(scales.float() < threshold * scales.float().sum(-1, keepdim=True))
                    kept = kept if active is None else kept & active.unsqueeze(-1)
                yield Case({"expertIds": ids, "eplbTable": table, "expertScalesOptional": scales,
                            "pruningThresholdOptional": threshold, "activeMaskOptional": active, "localRankId": rank,
                            "worldSize": world, "balanceMode": mode},
                           {"balancedExpertIds": new.to(ids.dtype), "balancedActiveMask": kept})
