# SPDX-License-Identifier: Apache-2.0
"""Operators of torch_npu beyond PyTorch's, against plain formulas on the CPU."""

import pytest
import torch
import torch_npu
from torch_npu.contrib.module.deform_conv import ModulatedDeformConv


def g(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape))).to(dtype)


def boxes(count, seed):
    low, size = g(2, count + seed)[:, :count], g(2, count + seed).abs()[:, :count] + 0.5
    return torch.cat([low, size])  # centre and sides


def complete_overlap(first, second):
    """Intersection over union, less what centres and ratios of sides lack; the weight of the ratios has no gradient."""
    a, b = ([x - w / 2, y - h / 2, x + w / 2, y + h / 2] for x, y, w, h in (first, second))
    inter = ((torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])).clamp(min=0)
             * (torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])).clamp(min=0))
    iou = inter / (first[2] * first[3] + second[2] * second[3] - inter)
    hull = [torch.maximum(a[k + 2], b[k + 2]) - torch.minimum(a[k], b[k]) for k in (0, 1)]
    apart = (first[0] - second[0]) ** 2 + (first[1] - second[1]) ** 2
    ratio = 4 / torch.pi ** 2 * ((second[2] / second[3]).atan() - (first[2] / first[3]).atan()) ** 2
    weight = (ratio / (1 - iou + ratio)).detach()
    return iou - apart / (hull[0] ** 2 + hull[1] ** 2) - weight * ratio


def test_complete_overlap_of_boxes_and_its_gradients():
    results = []
    for device in ("cpu", "npu"):
        first, second = (boxes(6, seed).to(device).requires_grad_() for seed in (0, 1))
        if device == "npu":
            value = torch_npu.npu_ciou(first, second, trans=True, is_cross=False, mode=0, atan_sub_flag=True)[0]
        else:
            value = complete_overlap(first, second)
        (value * g(6).to(device)).sum().backward()
        results.append([t.cpu() for t in (value.detach(), first.grad, second.grad)])
    for mine, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("mode", [0, 1])
def test_overlaps_of_every_pair(mode):
    first = torch.tensor([[0, 0, 10, 10], [10, 10, 20, 20], [32, 32, 38, 42.0]])
    second = torch.tensor([[0, 0, 10, 20], [0, 10, 10, 30], [10, 10, 20, 20.0]])
    wanted = torch.tensor([[0.5, 0, 0], [0, 0, 0], [0, 1, 0]])
    torch.testing.assert_close(
        torch_npu.npu_iou(first.npu(), second.npu(), mode).cpu(), wanted, rtol=2e-3, atol=2e-3, check_dtype=False)


def test_cross_entropy_of_a_vocabulary():
    x, weight, target = g(9, 16, dtype=torch.bfloat16), g(128, 16, dtype=torch.bfloat16), torch.arange(9) * 13 % 128
    most, sums, predicted, mask, own, logits = torch_npu.npu_fused_linear_online_max_sum(
        x.npu(), weight.npu(), target.npu(), 0, 127, True)
    loss, softmax = torch_npu.npu_fused_cross_entropy_loss_with_max_sum(most, sums, predicted, vocab_parallel_logits=logits)
    here = [x.float().requires_grad_(), weight.float().requires_grad_()]
    wanted = torch.nn.functional.cross_entropy(here[0] @ here[1].t(), target, reduction="none")
    torch.testing.assert_close(loss.cpu(), wanted.detach(), rtol=0.01, atol=0.05)
    grad = g(9)
    wanted.backward(grad)
    for more in ({"softmax": softmax}, {"logits_max": most, "sum_exp_logits": sums}):
        got = torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
            grad.npu(), x.npu(), weight.npu(), mask, own, 0.0, **more)
        for mine, value in zip(got, here, strict=True):
            torch.testing.assert_close(mine.cpu().float(), value.grad, rtol=0.03, atol=0.03)


def test_streams_and_their_matrix():
    matrix = torch_npu.npu_mhc_sinkhorn(g(3, 4, 4).npu())[0]
    torch.testing.assert_close(matrix.sum(-1).cpu(), torch.ones(3, 4), rtol=1e-3, atol=1e-3)
    x, h_out, h_post = g(3, 4, 16, dtype=torch.bfloat16), g(3, 16, dtype=torch.bfloat16), g(3, 4)
    y = torch_npu.npu_mhc_post(x.npu(), matrix, h_out.npu(), h_post.npu())
    wanted = matrix.cpu().transpose(1, 2) @ x.float() + h_post.unsqueeze(-1) * h_out.float().unsqueeze(1)
    torch.testing.assert_close(y.cpu().float(), wanted, rtol=0.01, atol=0.02)


def test_matrix_of_the_streams_has_a_gradient():
    x = g(3, 4, 4)
    there, here = x.npu().requires_grad_(), x.double().requires_grad_()
    y = torch_npu.npu_mhc_sinkhorn(there, num_iters=5, out_flag=1)[0]
    z = here.softmax(-1) + 1e-6
    z = z / (z.sum(-2, keepdim=True) + 1e-6)
    for _ in range(4):
        z = z / (z.sum(-1, keepdim=True) + 1e-6)
        z = z / (z.sum(-2, keepdim=True) + 1e-6)
    factor = g(3, 4, 4)
    (y * factor.npu()).sum().backward()
    (z * factor).sum().backward()
    torch.testing.assert_close(there.grad.cpu(), here.grad.float(), rtol=1e-4, atol=1e-5)


def test_deformable_convolution_without_offsets_is_a_convolution():
    """A new layer moves nothing and has masks of a half."""
    layer, x, factor = ModulatedDeformConv(4, 6, 3, 1, 1).npu(), g(2, 4, 7, 7), g(2, 6, 7, 7)
    there, here = x.npu().requires_grad_(), [x.clone().requires_grad_(), layer.weight.detach().cpu().requires_grad_()]
    y = layer(there)
    wanted = torch.nn.functional.conv2d(*here, padding=1) / 2
    torch.testing.assert_close(y.detach().cpu(), wanted.detach(), rtol=1e-4, atol=1e-4)
    (y * factor.npu()).sum().backward()
    (wanted * factor).sum().backward()
    torch.testing.assert_close(layer.weight.grad.cpu(), here[1].grad, rtol=1e-4, atol=1e-4)
    assert layer.conv_offset.weight.grad.abs().sum() > 0


def test_a_number_of_the_host_is_compared_from_the_left():
    """The package asks for aclnnLessScalar for >=, which would be wrong for equal ones; it must not be there."""
    x, one = torch.tensor([0.0, 1.0, 2.0]).npu(), torch.tensor(1.0)
    assert (one >= x).tolist() == [True, True, False]
    assert (one <= x).tolist() == [False, True, True]
    assert (one > x).tolist() == [True, False, False]


def test_causal_convolution_with_a_mask():
    x, weight, mask = g(6, 2, 16, dtype=torch.bfloat16), g(3, 16, dtype=torch.bfloat16), torch.rand(2, 6) > 0.3
    there = [x.npu().requires_grad_(), weight.npu().requires_grad_()]
    here = [x.float().requires_grad_(), weight.float().requires_grad_()]
    padded = torch.cat([torch.zeros(2, 2, 16), here[0]])
    wanted = sum(here[1][w] * padded[w:w + 6] for w in range(3)) * mask.t().unsqueeze(-1)
    wanted.sum().backward()
    y = torch_npu.npu_masked_causal_conv1d(there[0], there[1], mask=mask.npu())
    y.sum().backward()
    for mine, value in zip((y.detach(), *(t.grad for t in there)), (wanted.detach(), *(t.grad for t in here)), strict=True):
        torch.testing.assert_close(mine.cpu().float(), value, rtol=0.02, atol=0.03)
