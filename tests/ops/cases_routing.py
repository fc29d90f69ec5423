# SPDX-License-Identifier: Apache-2.0
"""Tokens to experts and back, choice of experts in groups."""

import torch

from cases_quantization import dynamic_case
from harness import Case, Ref, cases, high

TYPES = (torch.float32, torch.float16, torch.bfloat16)
# tokens, choices, experts, row length
SIZES = ((6, 2, 4, 8), (1, 3, 5, 33), (40, 4, 7, 16), (5, 1, 3, 600), (0, 2, 4, 8), (300, 2, 300, 3))


def experts_of(g, tokens, choices, experts, dtype=torch.int32):
    return g.index([tokens, choices], experts, dtype)


def order_of(expert):
    return torch.sort(expert.reshape(-1), stable=True).indices


def places_of(order):
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel())
    return places.to(torch.int32)


@cases("MoeInitRouting")
def init_routing(op, g):
    for dtype in (*TYPES, torch.int8):
        for tokens, choices, experts, n in SIZES:
            x, expert = g.tensor([tokens, n], dtype), experts_of(g, tokens, choices, experts)
            row_idx = torch.arange(tokens * choices, dtype=torch.int32).reshape(choices, tokens).T.contiguous()
            order = order_of(expert)
            rows = row_idx.reshape(-1).long()[order]
            places = torch.empty(tokens * choices, dtype=torch.int32)
            places[rows] = torch.arange(tokens * choices, dtype=torch.int32)
            for active in (tokens + 3, tokens // 2):
                kept = min(active, tokens) * choices
                yield Case({"x": x, "rowIdx": row_idx, "expertIdx": expert, "activeNum": active},
                           {"expandedXOut": x[rows[:kept] % max(tokens, 1)], "expandedRowIdxOut": places,
                            "expandedExpertIdxOut": expert.reshape(-1)[order]})


def with_capacity(x, expert, first, end, capacity):
    """Rows and places; those that are dropped have -1."""
    rows = torch.zeros(end - first, capacity, x.shape[-1], dtype=x.dtype)
    places = torch.full([expert.numel()], -1, dtype=torch.int32)
    used = [0] * (end - first)
    for assignment, name in enumerate(expert.reshape(-1).tolist()):
        e = name - first
        if 0 <= e < end - first:
            if used[e] < capacity:
                places[assignment] = e * capacity + used[e]
                rows[e, used[e]] = x[assignment // expert.shape[1]]
            used[e] += 1
    return rows, places, torch.tensor(used)


@cases("MoeInitRoutingV2")
def init_routing_v2(op, g):
    base = {"activeNumOptional": 0, "expertCapacityOptional": 0, "dropPadModeOptional": 0,
            "expertTokensCountOrCumsumFlagOptional": 0, "expertTokensBeforeCapacityFlagOptional": False}
    for number, dtype in enumerate((*TYPES, torch.int8)):
        for tokens, choices, experts, n in SIZES:
            index = torch.int64 if number == 1 else torch.int32
            x, expert = g.tensor([tokens, n], dtype), experts_of(g, tokens, choices, experts, index)
            order = order_of(expert)
            counts = torch.bincount(expert.reshape(-1).long(), minlength=experts)
            for flag in range(3):
                told = [None, counts.cumsum(0), counts][flag]
                active = tokens * choices // 2 if flag == 1 else 0
                yield Case(base | {"x": x, "expertIdx": expert, "expertNumOptional": experts, "activeNumOptional": active,
                                   "expertTokensCountOrCumsumFlagOptional": flag},
                           {"expandedXOut": x[order[:active or order.numel()] // choices],
                            "expandedRowIdxOut": places_of(order), "expertTokensBeforeCapacityOutOptional": None,
                            "expertTokensCountOrCumsumOutOptional": None if told is None else Ref(told, torch.int32)})
            for capacity in {1, max(1, tokens // 2)} if tokens else ():
                rows, places, used = with_capacity(x, expert, 0, experts, capacity)
                yield Case(base | {"x": x, "expertIdx": expert, "expertNumOptional": experts, "dropPadModeOptional": 1,
                                   "expertCapacityOptional": capacity, "expertTokensBeforeCapacityFlagOptional": True},
                           {"expandedXOut": rows, "expandedRowIdxOut": places, "expertTokensCountOrCumsumOutOptional": None,
                            "expertTokensBeforeCapacityOutOptional": Ref(used, torch.int32)})


@cases("MoeInitRoutingV3")
def init_routing_v3(op, g):
    none = {"scaleOptional": None, "offsetOptional": None, "activeNum": -1, "expertCapacity": -1, "dropPadMode": 0,
            "expertTokensNumType": 1, "expertTokensNumFlag": True, "quantMode": -1, "activeExpertRangeOptional": None,
            "rowIdxType": 0}
    for dtype in (*TYPES, torch.int8):
        for tokens, choices, experts, n in SIZES:
            x, expert = g.tensor([tokens, n], dtype), experts_of(g, tokens, choices, experts)
            order = order_of(expert)
            yield Case(none | {"x": x, "expertIdx": expert, "expertNum": -1, "expertTokensNumFlag": False},
                       {"expandedXOut": x[order // choices], "expandedRowIdxOut": places_of(order),
                        "expertTokensCountOrCumsumOut": None, "expandedScaleOut": None})
            for number, (first, end) in enumerate(((0, experts), (1, experts - 1), (0, 1))):
                given = [first, end] if number else None
                is_kept = (expert >= first) & (expert < end)
                order = order_of(torch.where(is_kept, expert, 2 ** 30))
                kept = int(is_kept.sum())
                rows = torch.zeros(tokens * choices, n, dtype=dtype)
                rows[:kept] = x[order[:kept] // choices]
                places = places_of(order)
                places[order[kept:]] = -1
                counts = torch.bincount(expert[is_kept].long() - first, minlength=end - first)
                pairs = torch.zeros(end - first, 2, dtype=torch.int64)
                there = counts.nonzero().reshape(-1)
                pairs[:len(there)] = torch.stack((there + first, counts[there]), -1)
                sources = torch.cat((order[:kept], torch.full([tokens * choices - kept], -1))).to(torch.int32)
                args = none | {"x": x, "expertIdx": expert, "expertNum": experts, "activeExpertRangeOptional": given}
                expect = {"expandedXOut": rows, "expandedRowIdxOut": places, "expandedScaleOut": None}
                for type_, told in enumerate((counts.cumsum(0), counts, pairs)):
                    yield Case(args | {"expertTokensNumType": type_},
                               expect | {"expertTokensCountOrCumsumOut": Ref(told, torch.int64)})
                yield Case(args | {"rowIdxType": 1, "expertTokensNumFlag": False},
                           expect | {"expandedRowIdxOut": sources, "expertTokensCountOrCumsumOut": None})
                scale = g.tensor([tokens], torch.float32)
                scales = torch.zeros(tokens * choices)
                scales[:kept] = scale[order[:kept] // choices]
                yield Case(args | {"scaleOptional": scale},
                           expect | {"expertTokensCountOrCumsumOut": Ref(counts, torch.int64), "expandedScaleOut": scales})
                if tokens:
                    padded, dropped, used = with_capacity(x, expert, first, end, 2 if tokens > 1 else 1)
                    yield Case(args | {"dropPadMode": 1, "expertCapacity": padded.shape[1]},
                               expect | {"expandedXOut": padded, "expandedRowIdxOut": dropped,
                                         "expertTokensCountOrCumsumOut": Ref(used, torch.int64)})
                if dtype == torch.int8 or kept == 0:
                    continue
                counted = expect | {"expertTokensCountOrCumsumOut": Ref(counts, torch.int64)}
                for smooth in (None, g.tensor([1, n], torch.float32, "positive"),
                               g.tensor([end - first, n], torch.float32, "positive")):
                    own = None
                    if smooth is not None:
                        own = smooth.expand(end - first, n)[expert.reshape(-1)[order[:kept]].long() - first]
                    y, step, _ = dynamic_case(rows[:kept], smooth, own, False, False)
                    wanted = torch.zeros(tokens * choices, n, dtype=torch.int8)
                    wanted[:kept] = y
                    steps = torch.zeros(tokens * choices)
                    steps[:kept] = step
                    yield Case(args | {"quantMode": 1, "scaleOptional": smooth},
                               counted | {"expandedXOut": wanted, "expandedScaleOut": Ref(steps, bound="2/1")})
                scale, offset = torch.tensor([12.5]), torch.tensor([3.0])
                wanted = (rows.float() * scale + offset).round().clamp(-128, 127).to(torch.int8)
                wanted[kept:] = 0
                yield Case(args | {"quantMode": 0, "scaleOptional": scale, "offsetOptional": offset},
                           counted | {"expandedXOut": wanted})


@cases("MoeTokenPermute")
def permute(op, g):
    for number, dtype in enumerate((*TYPES, torch.int8)):
        for tokens, choices, experts, n in SIZES:
            x = g.tensor([tokens, n], dtype)
            index = experts_of(g, tokens, choices, experts, torch.int64 if number % 2 else torch.int32)
            if choices == 1 and number % 2:
                index = index.reshape(-1)
            order = order_of(index)
            for wanted in (0, order.numel() // 2, -1 if order.numel() else 0):
                count = wanted if wanted > 0 else order.numel() + wanted
                yield Case({"tokens": x, "indices": index, "numOutTokens": wanted, "paddedMode": False},
                           {"permuteTokensOut": x[order[:count] // choices], "sortedIndicesOut": places_of(order)})


def combined(rows, place, weight, choices, by_choice=False, bias=None, expert=None):
    """[tokens, n] in float64; places beyond the rows count as 0."""
    tokens, n = place.numel() // choices, rows.shape[-1]
    flat = torch.cat((high(rows).reshape(-1, n), torch.zeros(1, n, dtype=torch.float64)))
    place = place.long()
    place = torch.where((place < 0) | (place >= len(flat) - 1), len(flat) - 1, place)
    place = place.reshape(choices, tokens).T if by_choice else place.reshape(tokens, choices)
    parts = flat[place]
    if bias is not None:
        parts = parts + high(bias)[expert.long()]
    return (parts * (1 if weight is None else high(weight).unsqueeze(-1))).sum(1)


@cases("MoeTokenUnpermute", "MoeTokenPermuteGrad")
def unpermute(op, g):
    for number, dtype in enumerate(TYPES):
        for tokens, choices, experts, n in SIZES:
            place = g.permutation(tokens * choices, torch.int64 if number == 1 else torch.int32)
            for count in (tokens * choices, tokens * choices // 2):
                rows = g.tensor([count, n], dtype)
                if op == "MoeTokenPermuteGrad":
                    yield Case({"permutedOutputGrad": rows, "sortedIndices": place, "numTopk": choices, "paddedMode": False},
                               {"out": Ref(combined(rows, place, None, choices), dtype, bound="8/2 of max")})
                    continue
                weight = g.tensor([tokens, choices], torch.float32 if number == 2 else dtype, "positive")
                if choices == 1 and number == 0:
                    weight = None
                yield Case({"permutedTokens": rows, "sortedIndices": place, "probsOptional": weight, "paddedMode": False,
                            "restoreShapeOptional": None},
                           {"out": Ref(combined(rows, place, weight, choices), dtype)})


@cases("MoeTokenUnpermuteGrad")
def unpermute_grad(op, g):
    for dtype in TYPES:
        for tokens, choices, experts, n in SIZES:
            place = g.permutation(tokens * choices, torch.int32)
            for count in (tokens * choices, tokens * choices // 2):
                rows, gradient = g.tensor([count, n], dtype), g.tensor([tokens, n], dtype)
                weight = g.tensor([tokens, choices], dtype, "positive") if choices > 1 or dtype != torch.float32 else None
                leaf = high(rows).requires_grad_()
                own = None if weight is None else high(weight).requires_grad_()
                combined_with = torch.cat((leaf, torch.zeros(1, n, dtype=torch.float64)))
                there = torch.where(place < count, place, count).long().reshape(tokens, choices)
                out = combined_with[there] * (1 if own is None else own.unsqueeze(-1))
                out.sum(1).backward(high(gradient))
                yield Case({"permuteTokens": rows, "unpermutedTokensGrad": gradient, "sortedIndices": place,
                            "probsOptional": weight, "paddedMode": False, "restoreShapeOptional": None},
                           {"permutedTokensGradOut": Ref(leaf.grad, dtype),
                            "probsGradOut": None if own is None else Ref(own.grad, dtype)})


@cases("MoeFinalizeRouting", "MoeFinalizeRoutingV2")
def finalize(op, g):
    is_second = op.endswith("V2")
    for dtype in TYPES:
        for tokens, choices, experts, n in SIZES:
            for mode in range(4) if is_second else (0,):
                padded = is_second and mode % 2 == 1
                shape = [experts, 3, n] if padded else [tokens * choices, n]
                rows = g.tensor(shape, dtype)
                place = g.permutation(tokens * choices, torch.int32)
                if padded:
                    place = g.index([tokens * choices], experts * 3 + 1, torch.int32) - 1
                weight = g.tensor([tokens, choices], dtype, "positive") if mode != 3 else None
                bias = g.tensor([experts, n], dtype) if not is_second or mode < 2 else None
                expert = experts_of(g, tokens, choices, experts) if bias is not None or mode == 2 else None
                x1 = g.tensor([tokens, n], dtype) if not is_second or mode != 2 else None
                x2 = g.tensor([tokens, n], dtype) if mode == 0 and dtype != torch.float16 else None
                out = combined(rows, place, weight, choices, mode < 2, bias, expert)
                for x in (x1, x2):
                    out = out if x is None else out + high(x)
                args = {"expandedX": rows, "expandedRowIdx": place, "x1Optional": x1, "x2Optional": x2,
                        "biasOptional": bias, "scalesOptional": weight, "expertIdxOptional": expert}
                yield Case(args | ({"dropPadMode": mode} if is_second else {}), {"out": Ref(out, dtype)})


@cases("MoeComputeExpertTokens")
def expert_tokens(op, g):
    for dtype in (torch.int32, torch.int64):
        for count, experts in ((0, 3), (1, 1), (7, 4), (1000, 64), (5, 2000)):
            sorted_ = torch.sort(g.index([count], experts, dtype)).values
            ends = torch.bincount(sorted_.long(), minlength=experts).cumsum(0)
            yield Case({"sortedExperts": sorted_, "numExperts": experts}, {"out": Ref(ends, dtype)})


@cases("MoeGatingTopK")
def group_gating(op, g):
    sizes = ((5, 8, 2, 1, 1), (3, 64, 6, 4, 8), (4, 32, 8, 2, 4), (1, 256, 8, 4, 8), (0, 8, 2, 1, 2), (6, 6, 6, 3, 3),
             (2, 5, 1, 1, 5))
    for dtype in TYPES:
        for rows, columns, k, chosen, groups in sizes:
            for norm_type in range(2):
                for mode in range(2):
                    # Numbers that are apart, so that rounding does not choose.
                    x = (g.permutation(rows * columns).reshape(rows, columns) % columns).to(dtype) / 8
                    bias = (g.permutation(columns).to(torch.float64) / 4).to(dtype) if mode == 1 else None
                    p = torch.softmax(high(x), -1) if norm_type == 0 else torch.sigmoid(high(x))
                    value = p if bias is None else p + high(bias)
                    parts = value.reshape(rows, groups, columns // groups)
                    score = parts.sort(-1, descending=True).values[..., :2 if mode == 1 else 1].sum(-1)
                    best = torch.sort(score, stable=True, descending=True).indices[:, :chosen]
                    seen = torch.zeros(rows, groups, dtype=torch.bool).scatter(1, best, True)
                    masked = parts.masked_fill(~seen.unsqueeze(-1), -torch.inf).reshape(rows, columns)
                    expert = torch.sort(masked, stable=True, descending=True).indices[:, :k]
                    y = p.gather(-1, expert)
                    renorm = mode if norm_type == 0 else 0
                    if norm_type == 1 or renorm == 1:
                        y = y / (y.sum(-1, keepdim=True) + 1e-20)
                    args = {"x": x, "biasOptional": bias, "k": k, "kGroup": chosen, "groupCount": groups,
                            "groupSelectMode": mode, "renorm": renorm, "normType": norm_type, "outFlag": mode == 0,
                            "routedScalingFactor": 2.5, "eps": 1e-20}
                    yield Case(args, {"yOut": Ref(y * 2.5, dtype), "expertIdxOut": Ref(expert, torch.int32),
                                      "outOut": Ref(p, torch.float32) if mode == 0 else None})
