# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: experts; npu_ops.py says how cases are run."""
import pytest
import torch
import torch_npu
from npu_ops import BF16, F32, HALF, HIDDEN, Call, Cases, check_gradients, flat, npu, quantized
from torch.nn.functional import pad

case = Cases()


@case(F32, BF16)
def gating_softmax(g):
    x, done = g(6, 10), g.ints(0, 2, 6).bool()
    values, places = x.float().softmax(-1).topk(3)
    places = places.to(torch.int32).masked_fill(done.unsqueeze(1), 10)
    rows = torch.arange(18, dtype=torch.int32).view(3, 6).t()
    return Call(npu("npu_moe_gating_top_k_softmax"), (x, done, 3), want=(values.to(x.dtype), places, rows))


@case(F32, BF16)
def gating_sigmoid(g):
    x, bias = g(6, 16), g(16)
    normed = x.float().sigmoid()
    scores = (normed + bias.float()).view(6, 4, 4)
    groups = scores.topk(2).values.sum(-1).topk(2).indices
    scores = torch.full_like(scores, HIDDEN).scatter(
        1, groups.unsqueeze(-1).expand(6, 2, 4), scores.gather(1, groups.unsqueeze(-1).expand(6, 2, 4))
    )
    chosen = scores.view(6, 16).topk(3).indices
    y = normed.gather(1, chosen)
    y = (y / y.sum(-1, keepdim=True) * 2.5).to(x.dtype)
    options = {
        "bias": bias,
        "k_group": 2,
        "group_count": 4,
        "group_select_mode": 1,
        "norm_type": 1,
        "out_flag": True,
        "routed_scaling_factor": 2.5,
    }
    return Call(npu("npu_moe_gating_top_k"), (x, 3), options, want=(y, chosen.to(torch.int32), normed))


@case(F32)
def gating_plain(g):
    x = g(6, 16)
    values, chosen = x.softmax(-1).topk(4)
    return Call(npu("npu_moe_gating_top_k"), (x, 4), want=(values, chosen.to(torch.int32), None), ignore=(2,))


@case(F32)
def group_topk(g):
    x = g(6, 16)
    best = x.view(6, 4, 4).topk(2).values.sum(-1).topk(2).indices
    keep = torch.zeros(6, 4).scatter(1, best, 1).bool().repeat_interleave(4, 1)
    return Call(npu("_npu_group_topk"), (x, 2, 4, 2), left={0: x * keep}, want=None)


@case(F32)
def expert_tokens(g):
    experts = g.ints(0, 6, 20).sort().values
    want = torch.tensor([int((experts <= e).sum()) for e in range(6)], dtype=torch.int32)
    return Call(npu("npu_moe_compute_expert_tokens"), (experts, 6), want=want)


def routed(experts):
    """Entries in the order of their experts."""
    flat = experts.flatten().tolist()
    return sorted(range(len(flat)), key=lambda i: flat[i])


@case(F32, HALF)
def init_routing(g):
    x, experts = g(5, 8), g.ints(0, 4, 5, 2)
    rows = torch.arange(10, dtype=torch.int32).view(2, 5).t().contiguous()
    order = routed(experts)
    sources = [int(rows.flatten()[i]) for i in order]
    back = torch.empty(10, dtype=torch.int32)
    for place, source in enumerate(sources):
        back[source] = place
    want = (torch.stack([x[s % 5] for s in sources[:6]]), back, experts.flatten()[order])
    return Call(npu("npu_moe_init_routing"), (x, rows, experts, 3), want=want)


@case(F32, BF16)
def init_routing_v2(g):
    x, experts, scale = g(5, 8), g.ints(0, 8, 5, 2), g(5, dtype=F32)
    order = [i for i in routed(experts) if 2 <= experts.flatten()[i] < 6]
    expanded, scales = torch.zeros(10, 8, dtype=x.dtype), torch.zeros(10)
    back = torch.full((10,), -1, dtype=torch.int32)
    for place, entry in enumerate(order):
        expanded[place], scales[place], back[entry] = x[entry // 2], scale[entry // 2], place
    counts = torch.tensor([int((experts == e).sum()) for e in range(2, 6)])
    options = {
        "scale": scale,
        "expert_num": 8,
        "expert_tokens_num_type": 1,
        "expert_tokens_num_flag": True,
        "active_expert_range": [2, 6],
    }
    return Call(npu("npu_moe_init_routing_v2"), (x, experts), options, want=(expanded, back, counts, scales))


@case(F32)
def init_routing_v2_quant(g):
    x, experts, smooth = g(5, 8), g.ints(0, 4, 5, 2), g(4, 8).abs() + 0.1
    order = routed(experts)
    wide = torch.stack([x[i // 2] * smooth[experts.flatten()[i]] for i in order])
    y, scales = quantized(wide)
    pairs = torch.zeros(4, 2, dtype=torch.int64)
    present = [e for e in range(4) if (experts == e).any()]
    for row, e in enumerate(present):
        pairs[row] = torch.tensor([e, int((experts == e).sum())])
    options = {
        "scale": smooth,
        "expert_num": 4,
        "expert_tokens_num_type": 2,
        "expert_tokens_num_flag": True,
        "quant_mode": 1,
        "row_idx_type": 1,
    }
    want = (y, torch.tensor(order, dtype=torch.int32), pairs, scales)
    return Call(npu("npu_moe_init_routing_v2"), (x, experts), options, want=want)


@case(F32)
def init_routing_v2_capacity(g):
    x, experts = g(5, 8), g.ints(0, 3, 5, 2)
    room, back, used = torch.zeros(3, 2, 8), torch.full((10,), -1, dtype=torch.int32), [0, 0, 0]
    for entry in routed(experts):
        e = int(experts.flatten()[entry])
        if used[e] < 2:
            room[e, used[e]], back[entry] = x[entry // 2], e * 2 + used[e]
            used[e] += 1
    ends = torch.tensor([int((experts <= e).sum()) for e in range(3)])
    options = {"expert_capacity": 2, "expert_num": 3, "drop_pad_mode": 1, "expert_tokens_num_flag": True}
    return Call(npu("npu_moe_init_routing_v2"), (x, experts), options, want=(room, back, ends, None), ignore=(3,))


@case(F32, BF16)
def finalize_routing(g):
    rows, s1, s2, bias, scales = g(10, 8), g(5, 8), g(5, 8), g(4, 8), g(5, 2)
    index, experts = g.shuffled(10), g.ints(0, 4, 5, 2)
    want = s1.float() + s2.float()
    for i in range(5):
        for k in range(2):
            want[i] += scales[i, k].float() * (rows[index[i + 5 * k]].float() + bias[experts[i, k]].float())
    args = (rows, s1, s2, bias, scales, index, experts)
    return Call(npu("npu_moe_finalize_routing"), args, want=want.to(rows.dtype))


@case(HALF)
def finalize_routing_rows(g):
    rows, scales, index = g(10, 8), g(5, 2), g.shuffled(10)
    index[3] = -1
    want = torch.zeros(5, 8)
    for entry, place in enumerate(index.tolist()):
        if place >= 0:
            want[entry // 2] += scales.flatten()[entry].float() * rows[place].float()
    args = (rows, None, None, None, scales, index, None, 2)
    return Call(npu("npu_moe_finalize_routing"), args, want=want.to(rows.dtype))


@case(F32, BF16)
def token_permute(g):
    tokens, indices = g(5, 8), g.ints(0, 4, 5, 2, dtype=torch.int64)
    order = routed(indices)
    back = torch.empty(10, dtype=torch.int32)
    back[order] = torch.arange(10, dtype=torch.int32)
    want = (tokens[[i // 2 for i in order[:7]]], back)
    return Call(npu("npu_moe_token_permute"), (tokens, indices, 7), want=want)


@case(F32, BF16)
def token_unpermute(g):
    rows, index, probs = g(8, 8), g.shuffled(10), g(5, 2)
    wide = pad(rows.float(), (0, 0, 0, 2))[index.long()].view(5, 2, 8)
    want = (wide * probs.float().unsqueeze(-1)).to(rows.dtype).float().sum(1).to(rows.dtype)
    return Call(npu("npu_moe_token_unpermute"), (rows, index, probs), want=want)


@case(F32, HALF)
def top_k_top_p(g):
    logits, p, k = g(4, 12) * 2, torch.tensor([0.5, 0.9, 0.1, 1.0]), torch.tensor([3, 12, 5, 1], dtype=torch.int32)
    want = torch.full_like(logits, HIDDEN)
    for row in range(4):
        values, places = logits[row].float().sort(descending=True)
        values, places = values[: int(k[row])], places[: int(k[row])]
        before = values.softmax(0).cumsum(0) - values.softmax(0)
        for place, mass in zip(places.tolist(), before.tolist()):
            if mass < p[row] or place == places[0]:
                want[row, place] = logits[row, place]
    return Call(npu("npu_top_k_top_p"), (logits, p.to(logits.dtype), k), want=want)


@case(F32)
def unpermute_grad(g):
    rows, grad, index, probs = g(8, 8), g(5, 8), g.shuffled(10), g(5, 2)
    leaves = rows.clone().requires_grad_(), probs.clone().requires_grad_()
    value = (pad(leaves[0], (0, 0, 0, 2))[index.long()].view(5, 2, 8) * leaves[1].unsqueeze(-1)).sum(1)
    want = torch.autograd.grad(value, leaves, grad)
    return Call(npu("npu_moe_token_unpermute_grad"), (rows, grad, index, probs), want=want)


@case(F32, BF16)
def permute_grads(g):
    tokens, grad, index = g(5, 4), g(10, 4), g.shuffled(10)

    def op(tokens, grad, index):
        chosen = index.view(5, 2)
        return (
            torch_npu.npu_moe_token_permute_grad(tokens, grad, chosen, index),
            torch_npu.npu_moe_token_permute_grad_v2(grad, index, 5, tokens.dtype, 2),
        )

    want = grad.float()[index.long()].view(5, 2, 4).sum(1).to(tokens.dtype)
    return Call(op, (tokens, grad, index), want=(want, want))


@case(F32)
def unpermute_forms(g):
    rows, grad, index, probs = g(10, 4), g(5, 4), g.shuffled(10), g(5, 2)

    def op(rows, grad, index, probs):
        out = torch_npu._npu_moe_token_unpermute(rows, index, probs)
        back = torch_npu.npu_moe_token_unpermute_grad_v2(grad, index, 10, rows.dtype, probs, permuted_tokens=rows)
        return *out, *back

    leaves = rows.clone().requires_grad_(), probs.clone().requires_grad_()
    value = (leaves[0][index.long()].view(5, 2, 4) * leaves[1].unsqueeze(-1)).sum(1)
    want = (value.detach(), rows, *torch.autograd.grad(value, leaves, grad))
    return Call(op, (rows, grad, index, probs), want=want)


@case(F32, BF16)
def gating_softmax_v2(g):
    x, done = g(6, 10), g.ints(0, 2, 6).bool()

    def op(x, done):
        return (
            *torch_npu.npu_moe_gating_top_k_softmax_v2(x, k=3, finished=done, output_softmax=True),
            *torch_npu.npu_moe_gating_top_k_softmax_v2(x, k=3, renorm=1),
        )

    weights = x.float().softmax(-1)
    values, places = weights.topk(3)
    shown = places.int().masked_fill(done.unsqueeze(1), 10)
    normed = (values / values.sum(-1, keepdim=True)).to(x.dtype)
    want = (values.to(x.dtype), shown, weights, normed, places.int(), torch.empty(0))
    return Call(op, (x, done), want=want)


@case(F32)
def gating_backward(g):
    x, grad = g(6, 10), g(6, 3)
    leaf = x.clone().requires_grad_()
    normed, soft = leaf.sigmoid(), leaf.softmax(-1)
    chosen = normed.topk(3).indices
    y = normed.gather(1, chosen)
    of_sigmoid = torch.autograd.grad(y / y.sum(1, keepdim=True) * 2.5, leaf, grad)
    of_softmax = torch.autograd.grad(soft.gather(1, chosen), leaf, grad)

    def op(normed, soft, grad, chosen):
        return (
            torch_npu.npu_moe_gating_top_k_backward(normed, grad, chosen, norm_type=1, routed_scaling_factor=2.5),
            torch_npu.npu_moe_gating_top_k_backward(soft, grad, chosen),
        )

    return Call(op, (normed.detach(), soft.detach(), grad, chosen.int()), want=(*of_sigmoid, *of_softmax))


@case(F32)
def init_routing_quant(g):
    x, experts = g(5, 8), g.ints(0, 4, 5, 2)
    order = experts.view(-1).argsort(stable=True)
    rows, scale = quantized(x[order // 2])
    back = torch.empty(10, dtype=torch.int32)
    back[order] = torch.arange(10, dtype=torch.int32)
    counts = torch.bincount(experts.view(-1), minlength=4).int()
    options = {"active_num": 0, "expert_num": 4, "expert_tokens_num_mode": 2}
    want = (rows, back, counts, torch.empty(0, dtype=torch.int32), scale)
    return Call(npu("npu_moe_init_routing_quant"), (x, experts), options, want=want)


@case(F32, HALF)
def re_routing(g):
    counts = torch.tensor([[1, 2, 0], [2, 1, 3]], dtype=torch.int32)
    tokens, scales = g(9, 4), g(9, dtype=F32)
    order = torch.tensor([0, 3, 4, 1, 2, 5, 6, 7, 8])

    def op(tokens, counts, scales):
        back = torch_npu.npu_moe_re_routing(tokens, counts, expert_token_num_type=0, idx_type=1)
        return *torch_npu.npu_moe_re_routing(tokens, counts, per_token_scales=scales), *back[2:]

    number = torch.tensor([3, 3, 3], dtype=torch.int32)
    want = (tokens[order], scales[order], order.int(), number, order.argsort().int(), number.cumsum(0).int())
    return Call(op, (tokens, counts, scales), want=want)


def routing_map(g):
    """Two of four experts for each of five tokens."""
    chosen = torch.stack([g.shuffled(4)[:2].long() for _ in range(5)])
    return torch.zeros(5, 4, dtype=torch.bool).scatter(1, chosen, True)


@case(F32)
def routing_by_map(g):
    tokens, probs, where = g(5, 6), g(5, 4), routing_map(g)

    def op(tokens, probs, where):
        rows, weights, index = torch_npu.npu_moe_token_permute_with_routing_map(
            tokens, where, probs=probs, num_out_tokens=10
        )
        whole = torch_npu._npu_moe_token_unpermute_with_routing_map(
            rows, index, [5, 6], probs=probs, routing_map=where
        )
        return rows, weights, index, whole[0], whole[3]

    token = torch.cat([where[:, e].nonzero().view(-1) for e in range(4)])
    weights = torch.cat([probs[where[:, e], e] for e in range(4)])
    whole = tokens * (probs * where).sum(1, keepdim=True)
    want = (tokens[token], weights, token.argsort(stable=True).int(), whole, probs[where])
    return Call(op, (tokens, probs, where), want=want)


@case(F32)
def routing_with_room(g):
    """Each expert takes as many tokens as it has room for."""
    tokens, probs, where = g(5, 6), g(5, 4), routing_map(g)

    def op(tokens, probs, where):
        rows, weights, token = torch_npu.npu_moe_token_permute_with_routing_map(
            tokens, where, probs=probs, num_out_tokens=12, drop_and_pad=True
        )
        whole = torch_npu.npu_moe_token_unpermute_with_routing_map(
            rows, token, [5, 6], probs=probs, routing_map=where, drop_and_pad=True
        )
        return rows, weights, token, whole

    token = torch.stack([(~where[:, e]).int().argsort(stable=True)[:3] for e in range(4)])
    weights = torch.stack([probs[token[e], e] for e in range(4)]).view(-1)
    token = token.view(-1)
    whole = torch.zeros(5, 6).index_add(0, token, tokens[token] * weights.unsqueeze(1))
    return Call(op, (tokens, probs, where), want=(tokens[token], weights, token.int(), whole))


@case(F32)
def add_topk_div(g):
    x, bias = g(6, 16), g(16).abs()

    def op(x, bias):
        options = {"group_num": 4, "group_topk": 2, "n": 2, "k": 3, "scale": 2.0}
        options["activation_type"] = "activation_sigmoid"
        y, indices = torch.empty(6, 3, device=x.device), torch.empty(6, 3, dtype=torch.int32, device=x.device)
        first = torch.ops.atb.npu_fused_add_topk_div(x, bias, **options)
        return *first, *torch.ops.atb.npu_fused_add_topk_div.out(x, bias, **options, y=y, indices=indices)

    weights = x.sigmoid()
    scores = (weights + bias).view(6, 4, 4)
    best = scores.topk(2).values.sum(-1).topk(2).indices
    hidden = torch.ones(6, 4, dtype=torch.bool).scatter(1, best, False)
    chosen = scores.masked_fill(hidden.unsqueeze(-1), 0).view(6, 16).topk(3).indices
    y = weights.gather(1, chosen)
    y = y / y.sum(1, keepdim=True) * 2
    return Call(op, (x, bias), want=(y, chosen.int(), y, chosen.int()))


@pytest.mark.parametrize("key", case)
def test_eager_traced_and_captured(key):
    case.run(key)


MAP = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)


def by_map(tokens, probs, room=None):
    """Through both operators and back, with a weight for each row."""
    where = MAP.to(tokens.device)
    rows, weights, index = torch_npu.npu_moe_token_permute_with_routing_map(
        tokens, where, probs=probs, num_out_tokens=room or 8, drop_and_pad=room is not None
    )
    return torch_npu.npu_moe_token_unpermute_with_routing_map(
        rows * weights.unsqueeze(1), index, [4, 5], probs=probs, routing_map=where, drop_and_pad=room is not None
    )


GRADIENTS = {
    "routing_map": (by_map, lambda x, p: x * (p * MAP).square().sum(1, keepdim=True), [(4, 5), (4, 3)]),
    "routing_map_with_room": (
        lambda x, p: by_map(x, p, 12), lambda x, p: x * p.square().sum(1, keepdim=True), [(4, 5), (4, 3)]
    ),
    "token_unpermute": (
        lambda x, p: torch_npu.npu_moe_token_unpermute(x, torch.tensor([3, 0, 2, 1, 5, 4]).to(x.device), p),
        lambda x, p: (x[[3, 0, 2, 1, 5, 4]].view(3, 2, 4) * p.unsqueeze(-1)).sum(1),
        [(6, 4), (3, 2)],
    ),
    "token_permute": (
        lambda x: torch_npu.npu_moe_token_permute(x, torch.tensor([[1, 0], [0, 2], [1, 2]]).to(x.device)),
        lambda x: x[[0, 1, 0, 2, 1, 2]],
        [(3, 4)],
    ),
}


@pytest.mark.parametrize("key", GRADIENTS)
def test_gradients(key):
    check_gradients(GRADIENTS[key])
