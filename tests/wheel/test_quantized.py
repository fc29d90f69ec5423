# SPDX-License-Identifier: Apache-2.0
"""Quantized operators and those of mixtures of experts, as the package calls them: the order of their arguments."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu


def near(actual, wanted, tolerance=0.02):
    """Integers within one of what they should be, numbers within the tolerance."""
    actual = actual.cpu()
    assert list(actual.shape) == list(wanted.shape), (actual.shape, wanted.shape)
    if not actual.is_floating_point():
        assert (actual.double() - wanted.double()).abs().max() <= (1 if actual.dtype == torch.int8 else 0)
    else:
        torch.testing.assert_close(actual.double(), wanted.double(), rtol=tolerance, atol=tolerance)


def int8(*shape):
    return torch.randint(-100, 100, shape, dtype=torch.int8)


def by_rows(v):
    step = v.abs().amax(-1, keepdim=True) / 127
    return (v / step).round(), step.squeeze(-1)


def swiglu(v):
    left, right = v.chunk(2, -1)
    return F.silu(left) * right


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


def test_norms_and_activations():
    x, gamma, beta = torch.randn(6, 32).half(), torch.rand(32).half(), torch.rand(32).half()
    scale, offset = torch.tensor([20.0]).half(), torch.tensor([3], dtype=torch.int8)
    wide = x.float()
    normed = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * gamma.float() + beta.float()
    near(torch_npu.npu_rms_norm_quant(x.npu(), gamma.npu(), beta.npu(), scale.npu(), offset.npu()),
         (normed * 20 + 3).round().clamp(-128, 127))
    numbers, step = by_rows(F.gelu(wide))
    y, scales = torch_npu.npu_gelu_quant(x.npu())
    near(y, numbers)
    near(scales, step)
    y, scales = torch_npu.npu_swiglu_quant(x.npu(), activate_left=True, quant_mode=1)
    numbers, step = by_rows(swiglu(wide))
    near(y, numbers)
    near(scales, step)


def test_rows():
    x = torch.randn(6, 32).half()
    y, scales = torch_npu.npu_dynamic_block_quant(x.npu(), dst_type=1, row_block_size=1, col_block_size=16)
    blocks, step = by_rows(x.float().reshape(6, 2, 16))
    near(y, blocks.reshape(6, 32))
    near(scales, step)
    scale, ends = torch.rand(2, 32) * 30, torch.tensor([2, 6])
    near(torch_npu.npu_group_quant(x.npu(), scale.npu(), ends.npu(), dst_dtype=torch.int8),
         (x.float() * scale[[0, 0, 1, 1, 1, 1]]).round().clamp(-128, 127))
    sums, weight, rows = torch.randint(-900, 900, (6, 32), dtype=torch.int32), torch.rand(32) / 900, torch.rand(6)
    near(torch_npu.npu_dequant_bias(sums.npu(), weight.npu(), rows.npu(), None, output_dtype=torch.float16),
         sums.float() * weight * rows.unsqueeze(1))
    near(torch_npu.npu_quantize(x.npu(), torch.tensor([0.05]).half().npu(), None, torch.qint8, -1),
         (x.float() / 0.05).round().clamp(-128, 127))
    words = torch_npu.npu_trans_quant_param(weight.npu(), round_mode=1).cpu()
    assert torch.equal(words & 0xFFFFFFFF, ((weight.view(torch.int32) + 0x1000) & -8192).long())


def test_products_of_quantized_rows():
    x, weight = torch.randn(5, 16).half(), int8(8, 16)
    scale = torch.rand(8) / 100
    numbers, step = by_rows(x.float())
    wanted = (numbers @ weight.float().t()) * scale * step.unsqueeze(1)
    near(torch_npu.npu_quant_matmul_dequant(x.npu(), weight.npu(), scale.npu(), quant_mode="pertoken"), wanted)


def test_gating():
    x = torch.randn(6, 16)
    y, expert, all_ = torch_npu.npu_moe_gating_top_k_softmax_v2(x.npu(), k=2, renorm=0, output_softmax=True)
    p = x.softmax(-1)
    near(y, p.topk(2).values)
    near(expert, p.topk(2).indices)
    near(all_, p)
    y, expert, _ = torch_npu.npu_moe_gating_top_k(x.npu(), 2, norm_type=1, routed_scaling_factor=2.0)
    best = x.sigmoid().topk(2)
    near(y, best.values / best.values.sum(-1, keepdim=True) * 2)
    near(expert, best.indices)
    leaf = x.clone().requires_grad_()
    grad = torch.randn(6, 2)
    norm = leaf.sigmoid()
    chosen = norm.gather(-1, best.indices)
    (chosen / chosen.sum(-1, keepdim=True) * 2).backward(grad)
    near(torch_npu.npu_moe_gating_top_k_backward(norm.detach().npu(), grad.npu(), best.indices.int().npu(), renorm=0,
                                                 norm_type=1, routed_scaling_factor=2.0), leaf.grad)


def test_routing():
    counts = torch.tensor([[1, 2], [3, 1]])
    tokens, scales = torch.randn(7, 16).half(), torch.rand(7)
    rows, of_rows, index, numbers = torch_npu.npu_moe_re_routing(tokens.npu(), counts.npu(), per_token_scales=scales.npu())
    order = torch.tensor([0, 3, 4, 5, 1, 2, 6])
    near(rows, tokens[order])
    near(of_rows, scales[order])
    near(index, order)
    near(numbers, counts.sum(0))
    ids, table = torch.tensor([[0, 1], [1, 0]], dtype=torch.int32), torch.tensor([[2, 4, 5], [1, 7, 0]], dtype=torch.int32)
    new, kept = torch_npu.npu_moe_update_expert(
        ids.npu(), table.npu(), expert_scales=torch.tensor([[0.9, 0.1], [0.5, 0.4]]).npu(),
        pruning_threshold=torch.tensor([[0.2, 0.2]]).npu(), active_mask=torch.tensor([True, True]).npu(), local_rank_id=1,
        world_size=2, balance_mode=0)
    assert new.cpu().tolist() == [[5, 7], [7, 5]] and kept.cpu().tolist() == [[True, False], [True, True]]
    x, expert = torch.randn(4, 16).half(), torch.tensor([[0, 2], [1, 0], [2, 1], [0, 1]], dtype=torch.int32)
    rows, places, told, _, steps = torch_npu.npu_moe_init_routing_quant(
        x.npu(), expert.npu(), active_num=8, expert_num=3, expert_tokens_num_mode=2, quant_mode=1)
    order = expert.reshape(-1).sort(stable=True).indices
    numbers, step = by_rows(x.float()[order // 2])
    near(rows, numbers)
    near(steps, step)
    near(told, torch.tensor([3, 3, 2]))
    out = torch_npu.npu_moe_finalize_routing(x[order // 2].npu(), None, None, None, torch.ones(4, 2).half().npu(), places,
                                             None, drop_pad_mode=2)
    near(out, 2 * x.float())


def test_routing_maps():
    tokens, probs = torch.randn(5, 16), torch.rand(5, 3)
    route = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]], dtype=torch.bool)
    expert, token = route.t().nonzero().unbind(1)
    rows, picked, index = torch_npu.npu_moe_token_permute_with_routing_map(
        tokens.npu(), route.npu(), probs=probs.npu(), num_out_tokens=10)
    near(rows, tokens[token])
    near(picked, probs[token, expert])
    near(index, token.sort(stable=True).indices)
    grad, probs_grad = torch.randn(10, 16), torch.rand(10)
    of_tokens, of_probs = torch_npu.npu_moe_token_permute_with_routing_map_grad(
        grad.npu(), probs_grad.npu(), index, route.npu(), 3, 5, False)
    near(of_tokens, torch.zeros(5, 16).index_add(0, token, grad))
    near(of_probs, torch.zeros(5, 3).index_put((token, expert), probs_grad))
    out = torch_npu.npu_moe_token_unpermute_with_routing_map(rows, index, [5, 16], probs=probs.npu(), routing_map=route.npu())
    near(out, tokens * (probs * route).sum(-1, keepdim=True))


def test_products_in_groups():
    counts, ends = torch.tensor([2, 3]), torch.tensor([2, 5])
    group = torch.tensor([0, 0, 1, 1, 1])
    x, weight = int8(5, 32), int8(2, 32, 64)
    scale, rows = torch.rand(2, 64) / 900, torch.rand(5) + 0.1
    sums = torch.stack([x[i].float() @ weight[e].float() for i, e in enumerate(group)])
    v = sums * scale[group] * rows.unsqueeze(1)
    numbers, step = by_rows(swiglu(v))
    nz = torch_npu.npu_format_cast(weight.npu(), 29)
    y, scales, _ = torch_npu.npu_grouped_matmul_swiglu_quant(x.npu(), nz, ends.npu(), scale.npu(), rows.npu())
    near(y, numbers)
    near(scales, step)
    y, scales = torch_npu.npu_grouped_matmul_swiglu_quant_v2(
        x.npu(), [nz], [scale.npu()], rows.npu(), counts.npu(), group_list_type=1)
    near(y, numbers)
    near(scales, step)
    logit, index = torch.rand(5), torch.tensor([0, 2, 1, 0, 2])
    shared = torch.randn(2, 64).bfloat16()
    wanted = torch.zeros(4, 64).index_add(0, index, v * logit.unsqueeze(1))
    wanted[1:3] += shared.float() * 0.5
    out = torch_npu.npu_grouped_matmul_finalize_routing(
        x.npu(), nz, counts.npu(), scale=scale.npu(), pertoken_scale=rows.npu(), shared_input=shared.npu(), logit=logit.npu(),
        row_index=index.npu(), dtype=torch.float32, shared_input_weight=0.5, shared_input_offset=1, output_bs=4)
    near(out, wanted)
    a, b, y = torch.randn(5, 8).half(), torch.randn(5, 6).half(), torch.randn(2 * 8, 6)
    wanted = y + torch.cat([a[:2].float().t() @ b[:2].float(), a[2:].float().t() @ b[2:].float()])
    near(torch_npu.npu_grouped_matmul_add_(y.npu(), a.npu(), b.npu(), ends.npu()), wanted)
    half, turned = torch.randn(5, 32).half(), weight.transpose(1, 2).contiguous()
    numbers, step = by_rows(half.float())
    wanted = torch.stack([numbers[i] @ weight[e].float() for i, e in enumerate(group)]) * scale[group] * step.unsqueeze(1)
    near(torch_npu.npu_quant_grouped_matmul_dequant(half.npu(), turned.npu(), scale.npu(), ends.npu()), wanted)


def unpacked(words):
    parts = torch.stack([(words.long() >> (4 * place)) & 15 for place in range(8)], -1).flatten(-2)
    return torch.where(parts >= 8, parts - 16, parts)


def test_rows_that_are_turned_or_scattered():
    x, left, right = torch.randn(2, 4, 16).half(), torch.randn(4, 4).half(), torch.randn(16, 16).half()
    words, scales = torch_npu.npu_kronecker_quant(x.npu(), left.npu(), right.npu(), clip_ratio=0.9)
    turned = left.float() @ x.float() @ right.float()
    step = turned.abs().amax((1, 2)) * 0.9 / 7
    near(scales, step)
    assert (unpacked(words.cpu()) - (turned / step.view(2, 1, 1)).round().clamp(-8, 7)).abs().max() <= 1
    cache, index = int8(2, 6, 32), torch.tensor([1, 4], dtype=torch.int32)
    updates, scale = torch.randn(2, 2, 32).half(), (torch.rand(32) / 20 + 0.01).half()
    wanted = cache.clone()
    for batch, first in enumerate(index.tolist()):
        wanted[batch, first:first + 2] = (updates[batch].float() / scale.float()).round().clamp(-128, 127)
    near(torch_npu.npu_quant_scatter_(cache.npu(), index.npu(), updates.npu(), scale.npu()), wanted)
    rows = torch.randn(3, 32).half()
    y, steps = torch_npu.npu_dynamic_quant(rows.npu(), quant_mode="pertensor")
    near(y, (rows.float() / rows.float().abs().max() * 127).round())
    near(steps.reshape(1), rows.float().abs().max().reshape(1) / 127)
