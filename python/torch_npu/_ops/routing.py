# SPDX-License-Identifier: Apache-2.0
"""Experts: gradients of the routing, routing by maps, and forms of rank B."""
import torch
from torch_npu._ops.checks import check, check_dims, check_type, refuse
from torch_npu._ops.moe import _best, npu_moe_init_routing_v2
from torch_npu._ops.registry import composite, declare, derivative, meta

ops = torch.ops.npu

# ---- By index ----

declare("_permute_grad(Tensor grad, Tensor sorted_indices, int tokens, int choices) -> Tensor")


@meta("_permute_grad")
def _(grad, sorted_indices, tokens, choices):
    name = "npu_moe_token_permute_grad"
    check_dims(name, "grad_permuted_tokens", grad, 2)
    check(
        sorted_indices.numel() == tokens * choices,
        name,
        f"sorted_indices has {sorted_indices.numel()} entries, expected {choices} for each of {tokens} tokens",
    )
    return grad.new_empty([tokens, grad.size(1)])


@composite("npu_moe_token_permute_grad")
def _(tokens, grad_permuted_tokens, indices, sorted_indices, padded_mode=False):
    name = "npu_moe_token_permute_grad"
    check(not padded_mode, name, "padded_mode is not supported yet")
    choices = 1 if indices.dim() == 1 else indices.size(1)
    return ops._permute_grad(grad_permuted_tokens, sorted_indices, tokens.size(0), choices).to(tokens.dtype)


@composite("npu_moe_token_permute_grad_v2")
def _(grad_permuted_tokens, sorted_indices, tokens_size_0, tokens_dtype, num_topK, padded_mode=False):
    check(not padded_mode, "npu_moe_token_permute_grad_v2", "padded_mode is not supported yet")
    return ops._permute_grad(grad_permuted_tokens, sorted_indices, tokens_size_0, num_topK).to(tokens_dtype)


@composite("npu_moe_token_unpermute_grad_v2")
def _(
    grad_unpermuted_tokens, sorted_indices, permuted_tokens_size_0, permuted_tokens_dtype, probs=None,
    padded_mode=False, restore_shape=None, permuted_tokens=None,
):  # fmt: skip
    name = "npu_moe_token_unpermute_grad_v2"
    check(probs is None or permuted_tokens is not None, name, "probs need permuted_tokens")
    if permuted_tokens is None:
        permuted_tokens = grad_unpermuted_tokens.new_zeros(
            [permuted_tokens_size_0, grad_unpermuted_tokens.size(1)], dtype=permuted_tokens_dtype
        )
    tokens, of_probs = ops.npu_moe_token_unpermute_grad(
        permuted_tokens, grad_unpermuted_tokens, sorted_indices, probs, padded_mode, restore_shape
    )
    return tokens.to(permuted_tokens_dtype), of_probs


@composite("_npu_moe_token_unpermute")
def _(permuted_tokens, sorted_indices, probs=None, padded_mode=False, restore_shape=None):
    result = ops.npu_moe_token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode, restore_shape)
    return result, permuted_tokens.clone() if probs is not None else permuted_tokens.new_empty([0])


@composite("npu_moe_gating_top_k_softmax_v2")
def _(x, *, k=1, finished=None, renorm=0, output_softmax=False):
    name = "npu_moe_gating_top_k_softmax_v2"
    check_dims(name, "x", x, 2, 3)
    check(renorm in (None, 0, 1), name, f"renorm is {renorm}, expected 0 or 1")
    check(0 < k <= x.size(-1), name, f"k is {k}, expected a value from 1 to {x.size(-1)}")
    weights = x.float().softmax(-1)
    chosen = _best(weights, k)
    y = weights.gather(-1, chosen)
    if renorm == 1:
        y = y / y.sum(-1, keepdim=True)
    experts = chosen.to(torch.int32)
    if finished is not None:
        experts = experts.masked_fill(finished.unsqueeze(-1), x.size(-1))
    with_weights = bool(output_softmax) and renorm != 1
    return y.to(x.dtype), experts, weights if with_weights else weights.new_empty([0])


@composite("npu_moe_gating_top_k_backward")
def _(x_norm, grad_y, expertIdx, *, renorm=0, norm_type=0, routed_scaling_factor=1.0, eps=1e-20):
    name = "npu_moe_gating_top_k_backward"
    check_dims(name, "x_norm", x_norm, 2)
    check(norm_type in (0, 1), name, f"norm_type is {norm_type}, expected 0 (softmax) or 1 (sigmoid)")
    check(renorm in (0, 1), name, f"renorm is {renorm}, expected 0 or 1")
    check(grad_y.shape == expertIdx.shape and grad_y.size(0) == x_norm.size(0), name, "grad_y and expertIdx have a row "
          "for each one of x_norm")  # fmt: skip
    wide = x_norm.float()
    chosen = expertIdx.to(torch.int64)
    picked, grad = wide.gather(1, chosen), grad_y.float() * routed_scaling_factor
    if norm_type == 1 or renorm == 1:
        total = picked.sum(1, keepdim=True) + eps
        grad = grad / total - (grad * picked).sum(1, keepdim=True) / total.square()
    of_norm = torch.zeros_like(wide).scatter(1, chosen, grad)
    if norm_type == 1:
        of_x = of_norm * wide * (1 - wide)
    else:
        of_x = wide * (of_norm - (of_norm * wide).sum(1, keepdim=True))
    return of_x.to(grad_y.dtype)


@composite("npu_moe_init_routing_quant")
def _(
    x, expert_idx, *, scale=None, offset=None, active_num=1024, expert_capacity=0, expert_num=256, drop_pad_mode=0,
    expert_tokens_num_mode=0, expert_tokens_before_capacity_flag=False, quant_mode=1,
):  # fmt: skip
    name = "npu_moe_init_routing_quant"
    check(quant_mode in (0, 1), name, f"quant_mode is {quant_mode}, expected 0 or 1")
    check(expert_tokens_num_mode in (0, 1, 2), name, f"expert_tokens_num_mode is {expert_tokens_num_mode}")
    check(not expert_tokens_before_capacity_flag, name, "expert_tokens_before_capacity_flag is not supported yet")
    check(drop_pad_mode == 0, name, f"drop_pad_mode is {drop_pad_mode}; only 0 is supported yet")
    # 0: no numbers, 1: where the rows of each expert end, 2: how many they are.
    rows, places, numbers, scales = npu_moe_init_routing_v2(
        x, expert_idx, scale=scale, offset=offset, active_num=active_num, expert_capacity=expert_capacity,
        expert_num=expert_num, drop_pad_mode=0, expert_tokens_num_type=0 if expert_tokens_num_mode == 1 else 1,
        expert_tokens_num_flag=expert_tokens_num_mode != 0, quant_mode=quant_mode,
        active_expert_range=[0, expert_num],
    )  # fmt: skip
    none = numbers.new_empty([0], dtype=torch.int32)
    counted = numbers.to(torch.int32) if expert_tokens_num_mode != 0 else none
    return rows, places, counted, none.clone(), scales if quant_mode == 1 else scales.new_empty([0])


@composite("npu_moe_re_routing")
def _(
    tokens, expert_token_num_per_rank, *, per_token_scales=None, expert_token_num_type=1, idx_type=0, tokens_dtype=None
):
    name = "npu_moe_re_routing"
    refuse(name, tokens_dtype=tokens_dtype)
    check_dims(name, "tokens", tokens, 2)
    check_dims(name, "expert_token_num_per_rank", expert_token_num_per_rank, 2)
    check(expert_token_num_type in (0, 1), name, f"expert_token_num_type is {expert_token_num_type}, expected 0 or 1")
    check(idx_type in (0, 1), name, f"idx_type is {idx_type}, expected 0 or 1")
    counts = expert_token_num_per_rank.to(torch.int64)
    experts = counts.size(1)
    # Tokens lie rank by rank, and there expert by expert.
    ends = counts.reshape(-1).cumsum(0)
    row = torch.arange(tokens.size(0), device=tokens.device)
    part = torch.searchsorted(ends, row, right=True)
    order = part.remainder(max(experts, 1)).masked_fill(part >= counts.numel(), experts).argsort(stable=True)
    numbers = counts.sum(0) if expert_token_num_type == 1 else counts.sum(0).cumsum(0)
    index = order if idx_type == 0 else torch.empty_like(order).scatter(0, order, row)
    if per_token_scales is None:
        scales = torch.zeros([tokens.size(0)], dtype=torch.float32, device=tokens.device)
    else:
        check(per_token_scales.size(0) == tokens.size(0), name, f"per_token_scales has shape "
              f"{list(per_token_scales.shape)}")  # fmt: skip
        scales = per_token_scales[order]
    return tokens[order], scales, index.to(torch.int32), numbers.to(expert_token_num_per_rank.dtype)


# ---- By map: [tokens, experts], who computes which ----


def _check_map(name, routing_map):
    check_dims(name, "routing_map", routing_map, 2)
    check_type(name, "routing_map", routing_map, torch.bool, torch.int8, torch.uint8)


def _places(name, routing_map, wanted, drop_and_pad):
    """Expert by expert: tokens, and where in the transposed map, for so many rows."""
    tokens, experts = routing_map.shape
    flat = (routing_map != 0).t().reshape(-1)
    if drop_and_pad:
        check(
            wanted is not None and wanted % max(experts, 1) == 0,
            name,
            "drop_and_pad needs num_out_tokens, a multiple of the experts",
        )
        room = wanted // max(experts, 1)
        check(room <= tokens, name, f"num_out_tokens is {wanted}, for {experts} experts and {tokens} tokens")
        order = (~flat.view(experts, tokens)).to(torch.int32).argsort(dim=1, stable=True)[:, :room]
        where = order + torch.arange(experts, device=order.device).unsqueeze(1) * tokens
        return order.reshape(-1), where.reshape(-1)
    check(wanted is not None, name, "num_out_tokens is needed, how many entries of routing_map are set")
    most = tokens * experts
    check(0 <= wanted <= most, name, f"num_out_tokens is {wanted}, expected a value from 0 to {most}")
    where = (~flat).to(torch.int32).argsort(stable=True)[:wanted]
    return where.remainder(max(tokens, 1)), where


@composite("npu_moe_token_permute_with_routing_map")
def _(tokens, routing_map, *, probs=None, num_out_tokens=None, drop_and_pad=False):
    name = "npu_moe_token_permute_with_routing_map"
    check_dims(name, "tokens", tokens, 2)
    _check_map(name, routing_map)
    token, where = _places(name, routing_map, num_out_tokens, drop_and_pad)
    rows = tokens.index_select(0, token)
    picked = tokens.new_empty([0]) if probs is None else probs.t().reshape(-1).index_select(0, where)
    index = token if drop_and_pad else token.argsort(stable=True)
    return rows, picked, index.to(torch.int32)


@composite("npu_moe_token_permute_with_routing_map_grad")
def _(permuted_token_out_grad, probs_grad, sorted_indices, routing_map, experts_num, tokens_num, drop_and_pad):
    name = "npu_moe_token_permute_with_routing_map_grad"
    _check_map(name, routing_map)
    wanted = permuted_token_out_grad.size(0)
    token, where = _places(name, routing_map, wanted, drop_and_pad)
    wide = permuted_token_out_grad.float()
    of_tokens = wide.new_zeros([tokens_num, wide.size(1)]).index_add(0, token, wide)
    if probs_grad is None:
        return of_tokens.to(permuted_token_out_grad.dtype), wide.new_empty([0])
    flat = probs_grad.new_zeros([experts_num * tokens_num]).scatter(0, where, probs_grad)
    of_probs = flat.view(experts_num, tokens_num).t().contiguous()
    return of_tokens.to(permuted_token_out_grad.dtype), of_probs


declare(
    "_routing_map_grad(Tensor? grad, Tensor? probs_grad, Tensor tokens, Tensor sorted_indices, Tensor routing_map, "
    "Tensor? probs, bool drop_and_pad) -> (Tensor, Tensor)"
)


@composite("_routing_map_grad")
def _(grad, probs_grad, tokens, sorted_indices, routing_map, probs, drop_and_pad):
    rows = sorted_indices.numel()
    if grad is None:
        grad = tokens.new_zeros([rows, tokens.size(1)])
    if probs is not None and probs_grad is None:
        probs_grad = probs.new_zeros([rows])
    return ops.npu_moe_token_permute_with_routing_map_grad(
        grad, None if probs is None else probs_grad, sorted_indices, routing_map, routing_map.size(1), tokens.size(0),
        drop_and_pad,
    )  # fmt: skip


derivative(
    "npu_moe_token_permute_with_routing_map",
    "_routing_map_grad",
    "grad grad@1 tokens @2 routing_map probs drop_and_pad",
    "tokens probs",
)


@composite("_npu_moe_token_unpermute_with_routing_map")
def _(permuted_tokens, sorted_indices, restore_shape, *, probs=None, routing_map=None, drop_and_pad=False):
    name = "npu_moe_token_unpermute_with_routing_map"
    check_dims(name, "permuted_tokens", permuted_tokens, 2)
    check(len(restore_shape) == 2, name, f"restore_shape is {list(restore_shape)}, expected [tokens, size]")
    check(routing_map is not None or probs is None and drop_and_pad, name, "routing_map is needed")
    tokens = restore_shape[0]
    index = sorted_indices.to(torch.int64)
    wide = permuted_tokens.float()
    if drop_and_pad:
        picked = permuted_tokens.new_empty([0])
        if probs is not None:
            experts = probs.size(1)
            row = torch.arange(index.numel(), device=index.device).div(
                max(index.numel() // max(experts, 1), 1), rounding_mode="floor"
            )
            picked = probs.t().reshape(-1).index_select(0, row * tokens + index)
            wide = wide * picked.float().unsqueeze(1)
        result = wide.new_zeros(restore_shape).index_add(0, index, wide)
        ordered, order = index.sort(stable=True)
        return result.to(permuted_tokens.dtype), order.to(torch.int32), ordered.to(torch.int32), picked
    _check_map(name, routing_map)
    check(
        index.numel() == permuted_tokens.size(0) and tokens > 0 and index.numel() % tokens == 0,
        name,
        f"sorted_indices has {index.numel()} entries, which are not the same number for each of {tokens} tokens",
    )
    rows = wide.index_select(0, index).unflatten(0, (tokens, -1))
    picked = permuted_tokens.new_empty([0])
    if probs is not None:
        # Of each token the experts that computed it, in ascending order.
        flat = (routing_map == 0).reshape(-1).to(torch.int32).argsort(stable=True)[: index.numel()]
        picked = probs.reshape(-1).index_select(0, flat)
        rows = rows * picked.float().view(tokens, -1, 1)
    token = torch.arange(index.numel(), device=index.device).div(index.numel() // tokens, rounding_mode="floor")
    return rows.sum(1).to(permuted_tokens.dtype), index.to(torch.int32), token.to(torch.int32), picked


@composite("npu_moe_token_unpermute_with_routing_map", differentiable=True)
def _(permuted_tokens, sorted_indices, restore_shape, *, probs=None, routing_map=None, drop_and_pad=False):
    return ops._npu_moe_token_unpermute_with_routing_map(
        permuted_tokens, sorted_indices, restore_shape, probs=probs, routing_map=routing_map, drop_and_pad=drop_and_pad
    )[0]


@composite("npu_moe_token_unpermute_with_routing_map_grad")
def _(
    unpermuted_tokens_grad, out_index, permuted_token_id, routing_map, permuted_tokens, probs, drop_and_pad,
    restore_shape,
):  # fmt: skip
    name = "npu_moe_token_unpermute_with_routing_map_grad"
    index, token = out_index.to(torch.int64), permuted_token_id.to(torch.int64)
    # Entry i of both: row out_index[i] of the permuted tokens is of token permuted_token_id[i].
    rows = unpermuted_tokens_grad.float().index_select(0, token)
    none = unpermuted_tokens_grad.new_empty([0])
    if probs is None:
        room = torch.zeros([index.numel(), rows.size(1)], device=rows.device)
        return room.index_copy(0, index, rows).to(unpermuted_tokens_grad.dtype), none
    check(permuted_tokens is not None and routing_map is not None, name, "probs need permuted_tokens and routing_map")
    tokens, experts = probs.shape
    if drop_and_pad:
        # Which expert: by where the row lies.
        expert = index.div(max(index.numel() // max(experts, 1), 1), rounding_mode="floor")
    else:
        flat = (routing_map == 0).reshape(-1).to(torch.int32).argsort(stable=True)[: index.numel()]
        expert = flat.remainder(max(experts, 1))
    place = token * experts + expert
    weight = probs.reshape(-1).index_select(0, place).float().unsqueeze(1)
    of_weight = (permuted_tokens.float().index_select(0, index) * rows).sum(1)
    of_probs = torch.zeros([tokens * experts], device=rows.device).scatter(0, place, of_weight)
    of_rows = torch.zeros([index.numel(), rows.size(1)], device=rows.device).index_copy(0, index, rows * weight)
    return of_rows.to(unpermuted_tokens_grad.dtype), of_probs.view(tokens, experts).to(probs.dtype)


derivative(
    "_npu_moe_token_unpermute_with_routing_map",
    "npu_moe_token_unpermute_with_routing_map_grad",
    "grad @1 @2 routing_map permuted_tokens probs drop_and_pad restore_shape",
    "permuted_tokens probs",
)


# ---- Groups of experts ----


def _add_topk_div(
    x, add_num, mapping_num=None, mapping_table=None, activation_type=None, group_num=1, group_topk=1, n=1, k=1,
    is_norm=True, scale=1, enable_expert_mapping=False,
):  # fmt: skip
    name = "npu_fused_add_topk_div"
    refuse(name, mapping_num=mapping_num, mapping_table=mapping_table)
    check(not enable_expert_mapping, name, "enable_expert_mapping is not supported yet")
    check(activation_type in (None, "activation_sigmoid"), name, f"activation_type is '{activation_type}'")
    check_dims(name, "x", x, 2)
    rows, experts = x.shape
    check(group_num > 0 and experts % group_num == 0, name, f"group_num is {group_num}, for {experts} experts")
    size = experts // group_num
    check(
        0 < group_topk <= group_num and 0 < n <= size and 0 < k <= experts,
        name,
        f"group_topk is {group_topk}, n is {n} and k is {k}, for {group_num} groups of {size} experts",
    )
    weights = x.float().sigmoid()
    scores = (weights + add_num.float()).view(rows, group_num, size)
    best = _best(scores.topk(n, -1).values.sum(-1), group_topk)
    taken = torch.zeros([rows, group_num], device=x.device).scatter(1, best, 1.0)
    chosen = _best(scores.masked_fill(taken.unsqueeze(-1) == 0, 0).view(rows, experts), k)
    y = weights.gather(1, chosen)
    if is_norm:
        y = y / y.sum(-1, keepdim=True) * scale
    return y, chosen.to(torch.int32)


@composite("atb.npu_fused_add_topk_div")
def _(x, add_num, **options):
    return _add_topk_div(x, add_num, **options)


@composite("atb.npu_fused_add_topk_div.out")
def _(x, add_num, *, y, indices, **options):
    values, chosen = _add_topk_div(x, add_num, **options)
    return y.copy_(values), indices.copy_(chosen)
