# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: who computes which token, and what becomes of the results."""
import torch
from torch_npu._errors import refused
from torch_npu._ops.checks import check, check_dims, check_type
from torch_npu._ops.quantization import quantize_rows
from torch_npu._ops.registry import composite, declare, derivative, meta

ops = torch.ops.npu


@meta("npu_moe_gating_top_k_softmax")
def _(x, finished=None, k=1):
    check_dims("npu_moe_gating_top_k_softmax", "x", x, 2, 3)
    shape = [*x.shape[:-1], k]
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32), x.new_empty(shape, dtype=torch.int32)


declare(
    "_gating_top_k(Tensor x, Tensor? bias, int k, int k_group, int group_count, int group_select_mode, int renorm, "
    "int norm_type, float factor, float eps) -> (Tensor, Tensor, Tensor)"
)


@meta("_gating_top_k")
def _(x, bias, k, k_group, group_count, group_select_mode, renorm, norm_type, factor, eps):
    rows, experts = x.shape
    normed = x.new_empty([rows, experts], dtype=torch.float32)
    return x.new_empty([rows, k]), x.new_empty([rows, k], dtype=torch.int32), normed


@composite("npu_moe_gating_top_k")
def npu_moe_gating_top_k(
    x, k, *, bias=None, input_ids=None, tid2eid=None, k_group=1, group_count=1, group_select_mode=0, renorm=0,
    norm_type=0, out_flag=False, routed_scaling_factor=1.0, eps=1e-20,
):  # fmt: skip
    name = "npu_moe_gating_top_k"
    check_dims(name, "x", x, 2)
    rows, experts = x.shape
    check(norm_type in (0, 1), name, f"norm_type is {norm_type}, expected 0 (softmax) or 1 (sigmoid)")
    check(renorm in (0, 1), name, f"renorm is {renorm}, expected 0 or 1")
    check(group_select_mode in (0, 1), name, f"group_select_mode is {group_select_mode}, expected 0 or 1")
    check(
        group_count > 0 and experts % group_count == 0,
        name,
        f"group_count is {group_count}, which does not divide {experts} experts",
    )
    size = experts // group_count
    check(0 < k_group <= group_count, name, f"k_group is {k_group}, expected a value from 1 to {group_count}")
    check(0 < k <= size * k_group, name, f"k is {k}, expected a value from 1 to {size * k_group}")
    check((input_ids is None) == (tid2eid is None), name, "input_ids and tid2eid come together or not at all")
    check(
        bias is None or bias.shape == (experts,),
        name,
        f"bias has shape {list(bias.shape) if bias is not None else ''}, expected [{experts}]",
    )
    if tid2eid is None:
        given = (k, k_group, group_count, group_select_mode, renorm, norm_type, routed_scaling_factor, eps)
        if bias is None or bias.dtype == x.dtype:
            return ops._gating_top_k(x, bias, *given)
        y, experts_of_rows, normed = ops._gating_top_k(x.float(), bias.float(), *given)
        return y.to(x.dtype), experts_of_rows, normed
    # A table says which experts a token has.
    normed = x.float().softmax(-1) if norm_type == 0 else x.float().sigmoid()
    chosen = tid2eid[input_ids.to(torch.int64)].to(torch.int64)
    y = normed.gather(1, chosen)
    if norm_type == 1 or renorm == 1:
        y = y / (y.sum(-1, keepdim=True) + eps)
    y = (y * routed_scaling_factor).to(x.dtype)
    return y, chosen.to(torch.int32), normed if out_flag else torch.zeros_like(normed)


def _best(scores, k):
    """Of equal scores the first comes first."""
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k]


@meta("npu_moe_compute_expert_tokens")
def _(sorted_expert_for_source_row, num_expert):
    check_dims("npu_moe_compute_expert_tokens", "sorted_expert_for_source_row", sorted_expert_for_source_row, 1)
    check(num_expert > 0, "npu_moe_compute_expert_tokens", f"num_expert is {num_expert}, expected a value above 0")
    return sorted_expert_for_source_row.new_empty([num_expert], dtype=torch.int32)


def _ends(sorted_experts, experts, first=0):
    """How many entries there are up to each expert, of experts in ascending order."""
    wanted = torch.arange(first, first + experts, dtype=sorted_experts.dtype, device=sorted_experts.device)
    return torch.searchsorted(sorted_experts.contiguous(), wanted, right=True)


@meta("npu_moe_init_routing")
def _(x, row_idx, expert_idx, active_num):
    name = "npu_moe_init_routing"
    check_dims(name, "x", x, 2)
    check_dims(name, "row_idx", row_idx, 2)
    check(
        row_idx.shape == expert_idx.shape and row_idx.size(0) == x.size(0),
        name,
        f"row_idx has shape {list(row_idx.shape)}, expert_idx {list(expert_idx.shape)} and x {list(x.shape)}",
    )
    check(active_num >= 0, name, f"active_num is {active_num}, expected no negative value")
    rows, k = row_idx.shape
    places = row_idx.new_empty([rows * k], dtype=torch.int32)
    return x.new_empty([min(rows, active_num) * k, x.size(1)]), places, torch.empty_like(places)


declare(
    "_init_routing(Tensor x, Tensor expert_idx, Tensor? scale, Tensor? offset, int active_num, int expert_capacity, "
    "int expert_num, int drop_pad_mode, int tokens_type, bool with_tokens, int quant_mode, int[] range, "
    "int row_idx_type, bool with_scale) -> (Tensor, Tensor, Tensor, Tensor)"
)


@meta("_init_routing")
def _(
    x, expert_idx, scale, offset, active_num, expert_capacity, expert_num, drop_pad_mode, tokens_type, with_tokens,
    quant_mode, range, row_idx_type, with_scale,
):  # fmt: skip
    total = expert_idx.numel()
    rows = min(active_num, total) if active_num > 0 else total
    shape = [rows, x.size(1)]
    if drop_pad_mode == 1:
        rows, shape = expert_num * expert_capacity, [expert_num, expert_capacity, x.size(1)]
    first, last = range
    counted = [last - first] if tokens_type != 2 else [expert_num, 2]
    # Nobody may rely on what is in results that were not asked for.
    return (
        x.new_empty(shape, dtype=x.dtype if quant_mode == -1 else torch.int8),
        x.new_empty([total], dtype=torch.int32),
        x.new_empty(counted if with_tokens else [], dtype=torch.int64),
        x.new_empty([] if quant_mode == 0 else [rows], dtype=torch.float32),
    )


@composite("npu_moe_init_routing_v2")
def npu_moe_init_routing_v2(
    x, expert_idx, *, scale=None, offset=None, active_num=-1, expert_capacity=-1, expert_num=-1, drop_pad_mode=0,
    expert_tokens_num_type=0, expert_tokens_num_flag=False, quant_mode=-1, active_expert_range=(), row_idx_type=0,
    x_dtype=None,
):  # fmt: skip
    name = "npu_moe_init_routing_v2"
    check_dims(name, "x", x, 2)
    check_dims(name, "expert_idx", expert_idx, 2)
    check(x.size(0) == expert_idx.size(0), name, f"x has {x.size(0)} rows and expert_idx {expert_idx.size(0)}")
    check(drop_pad_mode in (0, 1), name, f"drop_pad_mode is {drop_pad_mode}, expected 0 or 1")
    check(expert_tokens_num_type in (0, 1, 2), name, f"expert_tokens_num_type is {expert_tokens_num_type}")
    check(row_idx_type in (0, 1), name, f"row_idx_type is {row_idx_type}, expected 0 or 1")
    if quant_mode not in (-1, 0, 1):
        raise refused(
            NotImplementedError(f"{name}: quant_mode is {quant_mode}; those to 4 and 8 bit floats are not supported")
        )
    if x_dtype is not None:
        raise refused(NotImplementedError(f"{name}: x_dtype is not supported yet; leave it out"))
    rows, k = expert_idx.shape
    total = rows * k
    experts = expert_num
    if experts <= 0:
        check(not expert_tokens_num_flag and drop_pad_mode == 0, name, f"expert_num is {experts}, but it is needed")
        experts = 2**31 - 1
    first, last = active_expert_range if len(active_expert_range) == 2 else (0, experts)
    check(0 <= first < last, name, f"active_expert_range is {list(active_expert_range)}, expected ascending numbers")
    if quant_mode == -1:
        check(
            scale is None or scale.shape == (rows,),
            name,
            f"scale has shape {list(scale.shape) if scale is not None else ''}, expected [{rows}]",
        )
    if drop_pad_mode == 1:
        check(expert_capacity > 0, name, f"expert_capacity is {expert_capacity}, expected a value above 0")
        check((first, last) == (0, experts), name, "drop_pad_mode 1 takes no active_expert_range")
    is_plain = all(each is None or each.dtype == torch.float32 for each in (scale, offset))
    if expert_num > 0 and quant_mode != 0 and is_plain and x.dtype != torch.float64:
        with_scale = quant_mode == 1 or scale is not None
        return ops._init_routing(
            x, expert_idx, scale, offset, max(active_num, 0), max(expert_capacity, 0), expert_num, drop_pad_mode,
            expert_tokens_num_type, expert_tokens_num_flag, quant_mode, [first, last], row_idx_type, with_scale,
        )  # fmt: skip
    flat = expert_idx.reshape(-1).to(torch.int64)
    is_active = (flat >= first) & (flat < last)
    key = torch.where(is_active, flat, torch.full_like(flat, 2**31))
    sorted_key, order = key.sort(stable=True)  # order[place] = entry of expert_idx
    count = torch.arange(total, device=x.device)
    available = is_active.sum()

    if drop_pad_mode == 1:
        check(expert_capacity > 0, name, f"expert_capacity is {expert_capacity}, expected a value above 0")
        check((first, last) == (0, experts), name, "drop_pad_mode 1 takes no active_expert_range")
        within = count - torch.searchsorted(sorted_key, sorted_key)  # place among those of its expert
        kept = (within < expert_capacity) & (sorted_key < experts)
        place = torch.where(kept, sorted_key * expert_capacity + within, experts * expert_capacity)
        room = torch.full([experts * expert_capacity + 1], -1, dtype=torch.int64, device=x.device)
        source = room.scatter(0, place, order)[:-1]  # entry that lies there; -1: none
        gathered = torch.full([total], -1, dtype=torch.int64, device=x.device).scatter(
            0, order, torch.where(kept, place, torch.full_like(place, -1))
        )
    else:
        active = total if active_num <= 0 else min(active_num, total)
        is_there = count < available
        source = torch.where(is_there, order, torch.full_like(order, -1))[:active]
        gathered = torch.full([total], -1, dtype=torch.int64, device=x.device).scatter(
            0, order, torch.where(is_there, count, torch.full_like(count, -1))
        )
    is_row = source >= 0
    token = source.clamp(min=0).div(max(k, 1), rounding_mode="floor")
    expanded = x[token].masked_fill(~is_row.unsqueeze(-1), 0)
    expanded_scale = torch.zeros(source.shape, dtype=torch.float32, device=x.device)
    if quant_mode == -1 and scale is not None:
        check(scale.shape == (rows,), name, f"scale has shape {list(scale.shape)}, expected [{rows}]")
        expanded_scale = scale.float()[token].masked_fill(~is_row, 0)
    elif quant_mode == 0:
        check(scale is not None and scale.numel() == 1, name, "quant_mode 0 needs a scale of one element")
        shifted = expanded.float() * scale.float() + (0 if offset is None else offset.float())
        expanded = shifted.round().clamp(-128, 127).to(torch.int8)
        expanded_scale = torch.zeros([], dtype=torch.float32, device=x.device)
    elif quant_mode == 1:
        wide = expanded.float()
        if scale is not None:
            length = last - first
            check(
                scale.dim() == 2 and scale.size(0) in (1, length) and scale.size(1) == x.size(1),
                name,
                f"scale has shape {list(scale.shape)}, expected [{length}, {x.size(1)}] or [1, {x.size(1)}]",
            )
            if scale.size(0) == 1:
                wide = wide * scale.float()
            else:
                expert = (flat[source.clamp(min=0)] - first).clamp(0, length - 1)
                wide = wide * scale.float()[expert]
        expanded, expanded_scale = quantize_rows(wide)
    if drop_pad_mode == 1:
        expanded = expanded.view(experts, expert_capacity, x.size(1))
    if not expert_tokens_num_flag:
        tokens = torch.zeros([], dtype=torch.int64, device=x.device)
    else:
        ends = _ends(sorted_key, last - first, first)
        counts = torch.diff(ends, prepend=ends.new_zeros(1))
        if expert_tokens_num_type == 0:
            tokens = ends
        elif expert_tokens_num_type == 1:
            tokens = counts
        else:
            pairs = torch.stack([torch.arange(first, last, device=x.device), counts], -1)
            # Experts with tokens first, zeros behind them.
            order_of = (counts == 0).to(torch.int64).sort(stable=True).indices
            pairs = pairs.masked_fill((counts == 0).unsqueeze(-1), 0)[order_of]
            rest = pairs.new_zeros([experts - (last - first), 2])
            tokens = torch.cat([pairs, rest])
    if row_idx_type == 0:
        row_idx = gathered
    else:
        row_idx = order
    return expanded, row_idx.to(torch.int32), tokens, expanded_scale


@meta("npu_moe_finalize_routing")
def npu_moe_finalize_routing(
    expanded_permuted_rows, skip1, skip2, bias, scales, expanded_src_to_dst_row, export_for_source_row,
    drop_pad_mode=0, k=1,
):  # fmt: skip
    name = "npu_moe_finalize_routing"
    mode = drop_pad_mode or 0
    check(mode in (0, 1, 2, 3), name, f"drop_pad_mode is {mode}, expected a value from 0 to 3")
    check_dims(name, "expanded_src_to_dst_row", expanded_src_to_dst_row, 1)
    if scales is not None:
        check_dims(name, "scales", scales, 2)
        k = scales.size(1)
    else:
        k = 1 if k is None else k
    check(
        k > 0 and expanded_src_to_dst_row.numel() % k == 0,
        name,
        f"expanded_src_to_dst_row has {expanded_src_to_dst_row.numel()} entries, which are not {k} for each row",
    )
    count = expanded_src_to_dst_row.numel() // k
    if mode in (1, 3):
        check_dims(name, "expanded_permuted_rows", expanded_permuted_rows, 3)
    check(bias is None or export_for_source_row is not None, name, "bias needs export_for_source_row")
    return expanded_permuted_rows.new_empty([count, expanded_permuted_rows.size(-1)])


derivative("npu_moe_token_permute", "npu_moe_token_permute_grad", "tokens grad indices @1 padded_mode", "tokens")


@meta("npu_moe_token_permute")
def _(tokens, indices, num_out_tokens=None, padded_mode=False):
    name = "npu_moe_token_permute"
    check(not padded_mode, name, "padded_mode is not supported yet")
    check_dims(name, "tokens", tokens, 2)
    check_dims(name, "indices", indices, 1, 2)
    check(indices.size(0) == tokens.size(0), name, f"there are {tokens.size(0)} tokens and {indices.size(0)} indices")
    choices = 1 if indices.dim() == 1 else indices.size(1)
    total = indices.numel()
    wanted = num_out_tokens or 0
    count = min(wanted, total) if wanted > 0 else max(wanted + total, 0)
    return tokens.new_empty([count, tokens.size(1)]), indices.new_empty([total], dtype=torch.int32)


derivative(
    "npu_moe_token_unpermute",
    "npu_moe_token_unpermute_grad",
    "permuted_tokens grad sorted_indices probs padded_mode restore_shape",
    "permuted_tokens probs",
)
declare(
    "_unpermute_grad(Tensor permuted_tokens, Tensor grad, Tensor sorted_indices, Tensor? probs, bool has_probs) "
    "-> (Tensor, Tensor)"
)


@meta("_unpermute_grad")
def _(permuted_tokens, grad, sorted_indices, probs, has_probs):
    of_probs = grad.new_empty([0]) if probs is None else probs.new_empty(probs.shape)
    return permuted_tokens.new_empty(permuted_tokens.shape), of_probs


@composite("npu_moe_token_unpermute_grad")
def _(permuted_tokens, grad_unpermuted_tokens, sorted_indices, probs=None, padded_mode=False, restore_shape=None):
    check(not padded_mode, "npu_moe_token_unpermute_grad", "padded_mode is not supported yet")
    return ops._unpermute_grad(permuted_tokens, grad_unpermuted_tokens, sorted_indices, probs, probs is not None)


@meta("npu_moe_token_unpermute")
def _(permuted_tokens, sorted_indices, probs=None, padded_mode=False, restore_shape=None):
    name = "npu_moe_token_unpermute"
    check(not padded_mode, name, "padded_mode is not supported yet")
    check_dims(name, "permuted_tokens", permuted_tokens, 2)
    check_dims(name, "sorted_indices", sorted_indices, 1)
    check_type(name, "sorted_indices", sorted_indices, torch.int32, torch.int64)
    choices = 1
    if probs is not None:
        check_dims(name, "probs", probs, 2)
        choices = probs.size(1)
    check(
        choices > 0 and sorted_indices.numel() % choices == 0,
        name,
        f"sorted_indices has {sorted_indices.numel()} entries, which are not {choices} for each token",
    )
    return permuted_tokens.new_empty([sorted_indices.numel() // choices, permuted_tokens.size(1)])


declare("_top_k_top_p(Tensor logits, Tensor? p, Tensor? k) -> Tensor")


@meta("_top_k_top_p")
def _(logits, p, k):
    return logits.new_empty(logits.shape)


@composite("npu_top_k_top_p")
def npu_top_k_top_p(logits, p=None, k=None):
    name = "npu_top_k_top_p"
    check_dims(name, "logits", logits, 2)
    rows, size = logits.shape
    for argument, tensor in (("p", p), ("k", k)):
        if tensor is not None:
            check(tensor.shape == (rows,), name, f"{argument} has shape {list(tensor.shape)}, expected [{rows}]")
    if logits.dtype != torch.float64 and (k is None or k.dtype == torch.int32):
        return ops._top_k_top_p(logits, p, k)
    values, places = logits.sort(dim=-1, stable=True)
    out = float("-inf")
    if k is not None:
        at = (size - k.to(torch.int64)).clamp(0, max(size - 1, 0))
        values = values.masked_fill(values < values.gather(1, at.unsqueeze(1)), out)
    if p is not None:
        sums = values.float().softmax(-1).cumsum(-1)
        hidden = sums <= 1 - p.float().unsqueeze(1)
        hidden = torch.cat([hidden[:, :-1], torch.zeros_like(hidden[:, -1:])], -1)  # one is always left
        values = values.masked_fill(hidden, out)
    return torch.empty_like(logits).scatter(1, places, values)


declare("_attention_update(Tensor[] lse, Tensor[] local_out) -> (Tensor, Tensor)")


@meta("_attention_update")
def _(lse, local_out):
    return local_out[0].new_empty(local_out[0].shape), lse[0].new_empty(lse[0].shape)


@composite("npu_attention_update")
def npu_attention_update(lse, local_out, update_type):
    name = "npu_attention_update"
    check(
        len(lse) == len(local_out) and len(lse) > 0,
        name,
        f"there are {len(lse)} tensors in lse and {len(local_out)} in local_out",
    )
    check(update_type in (0, 1), name, f"update_type is {update_type}, expected 0 or 1")
    if lse[0].dtype == torch.float32 and local_out[0].dim() == 2:
        return ops._attention_update(lse, local_out)
    sums = torch.stack(list(lse)).float()
    top = sums.amax(0)
    base = torch.where(top.isinf(), torch.zeros_like(top), top)
    whole = base + (sums - base).exp().sum(0).log()
    weights = (sums - torch.where(whole.isinf(), torch.zeros_like(whole), whole)).exp()
    out = (torch.stack(list(local_out)).float() * weights.unsqueeze(-1)).sum(0)
    return out.to(local_out[0].dtype), whole.to(lse[0].dtype)


@composite("atb._npu_group_topk")
def _npu_group_topk(self, k=0, group_num=1, n=1):
    name = "_npu_group_topk"
    check_dims(name, "self", self, 2)
    rows, experts = self.shape
    check(group_num > 0 and experts % group_num == 0, name, f"group_num is {group_num}, for {experts} experts")
    size = experts // group_num
    check(0 < n <= size, name, f"n is {n}, expected a value from 1 to {size}")
    check(0 <= k <= group_num, name, f"k is {k}, expected a value from 0 to {group_num}")
    groups = self.view(rows, group_num, size)
    best = groups.topk(n, -1).values.float().sum(-1)
    taken = torch.zeros_like(best).scatter(1, _best(best, k), 1.0)
    self.copy_(groups.masked_fill(taken.unsqueeze(-1) == 0, 0).view(rows, experts))
