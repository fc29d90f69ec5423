# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: gradients that are called by name; npu_ops.py says how cases are run."""
import math

import pytest
import torch
import torch_npu
from npu_ops import BF16, F32, HALF, Call, Cases, check_gradients, npu
from torch.nn.functional import (
    binary_cross_entropy_with_logits, conv2d, conv3d, conv_transpose2d, conv_transpose3d, cross_entropy, gelu,
    group_norm, layer_norm, mish, silu,
)  # fmt: skip

case = Cases()


def backward(function, grad, *tensors):
    """Gradients of a formula, for that of its result."""
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(function(*leaves), leaves, grad)


# ---- Shapes, products, activations ----


@case(F32)
def confusion(g):
    x, grad = g(2, 3, 4), g(3, 8)
    (want,) = backward(lambda x: x.permute(1, 0, 2).reshape(3, 8), grad, x)
    return Call(npu("npu_confusion_transpose_backward"), (grad, [1, 0, 2], [2, 3, 4], False), want=want)


@case(F32)
def confusion_reshaped(g):
    x, grad = g(4, 6), g(2, 4, 3)
    (want,) = backward(lambda x: x.reshape(4, 2, 3).permute(1, 0, 2), grad, x)
    return Call(npu("npu_confusion_transpose_backward"), (grad, [1, 0, 2], [4, 6], True), want=want)


@case(HALF)
def casts(g):
    x = g(3, 4)

    def op(x):
        first = torch_npu.npu_dtype_cast_backward(x, torch.float32)
        return first, torch_npu._npu_dtype_cast_backward(x, torch.bfloat16)

    return Call(op, (x,), want=(x.float(), x.bfloat16()))


@case(F32)
def gathered(g):
    x, index, grad = g(4, 5), g.ints(0, 4, 3, 5, dtype=torch.int64), g(3, 5)
    (want,) = backward(lambda x: x.gather(0, index), grad, x)
    return Call(npu("npu_gather_backward"), (grad, [4, 5], 0, index, False), want=want)


@case(F32)
def extremes(g):
    x, grad = g(4, 5), g(4)

    def op(x, grad):
        _, least = torch_npu.npu_min(x, 1)
        _, most = torch_npu.npu_max(x, 1)
        return (
            torch_npu.npu_min_backward(grad, 1, least, [4, 5], False),
            torch_npu.npu_max_backward(grad, 1, most, [4, 5], False),
        )

    want = backward(lambda x: x.amin(1), grad, x) + backward(lambda x: x.amax(1), grad, x)
    return Call(op, (x, grad), want=want)


@case(F32)
def products(g):
    a, b, grad = g(2, 3, 4), g(4, 5), g(2, 3, 5)

    def op(a, b, grad):
        return (
            torch_npu.npu_bmm_v2_mat1_backward(grad, a, b, a.shape),
            torch_npu.npu_bmm_v2_mat2_backward(grad, a, b, b.shape),
            *torch_npu.npu_linear_backward(grad, a, b.t().contiguous()),
        )

    of_a, of_b = backward(torch.matmul, grad, a, b)
    return Call(op, (a, b, grad), want=(of_a, of_b, of_a, of_b.t().contiguous()))


@case(F32, BF16)
def activations(g):
    x, grad = g(4, 6), g(4, 6)

    def op(x, grad):
        return torch_npu.npu_mish_backward(grad, x), torch_npu.npu_silu_backward(grad, x, torch_npu.npu_silu(x))

    wide = x.float(), grad.float()
    want = backward(mish, wide[1], wide[0]) + backward(silu, wide[1], wide[0])
    return Call(op, (x, grad), want=tuple(each.to(x.dtype) for each in want))


@case(F32)
def geglu_grad(g):
    x, grad = g(4, 12), g(4, 6)
    act = gelu(x[:, 6:], approximate="tanh")
    want = backward(lambda x: x[:, :6] * gelu(x[:, 6:], approximate="tanh"), grad, x)[0]
    return Call(npu("npu_geglu_grad"), (grad, x, act), want=want)


@case(F32, HALF)
def masked_softmax(g):
    x, mask, grad = g(2, 3, 4, 5), g.ints(0, 2, 2, 1, 4, 5).bool(), g(2, 3, 4, 5)
    y = (x.float() * 0.5).masked_fill(mask, -10000).softmax(-1)
    (want,) = backward(lambda x: (x * 0.5).masked_fill(mask, -10000).softmax(-1), grad.float(), x.float())
    args = (grad, y.to(x.dtype), mask, 0.5, False)
    return Call(npu("npu_scaled_masked_softmax_backward"), args, want=want.to(x.dtype), bounds=HALF)


# ---- Norms ----


def statistics(x, epsilon=1e-5):
    return x.mean(-1, keepdim=True), (x.var(-1, correction=0, keepdim=True) + epsilon).rsqrt()


@case(F32)
def layernorm_grad(g):
    x, w, b, grad = g(4, 8), g(8), g(8), g(4, 8)
    want = backward(lambda x, w, b: layer_norm(x, (8,), w, b), grad, x, w, b)
    return Call(npu("npu_layernorm_grad"), (grad, x, [8], *statistics(x), w, b), want=want)


@case(F32)
def add_layer_norm_backward(g):
    a, b, gamma, grad, more = g(4, 8), g(4, 8), g(8), g(4, 8), g(4, 8)
    mean, rstd = statistics(a + b)
    of_a, of_gamma = backward(lambda a, gamma: layer_norm(a + b, (8,), gamma), grad, a, gamma)
    want = (of_a + more, of_a + more, of_gamma, grad.sum(0))
    return Call(npu("npu_add_layer_norm_backward"), (grad, a, b, rstd, mean, gamma, more), want=want)


@case(F32)
def deep_norm_backward(g):
    x, gx, gamma, beta, grad = g(4, 8), g(4, 8), g(8), g(8), g(4, 8)
    mean, rstd = statistics(x * 0.3 + gx, 1e-6)
    of = backward(lambda x, gx, b, w: layer_norm(x * 0.3 + gx, (8,), w, b, 1e-6), grad, x, gx, beta, gamma)
    return Call(npu("npu_deep_norm_backward"), (grad, x, gx, gamma, mean, rstd), want=of)


def swish(x, w, b, scale=1.5):
    y = group_norm(x, 3, w, b)
    return y * torch.sigmoid(y * scale)


@case(F32)
def group_norm_swish_grad(g):
    x, w, b, grad = g(2, 6, 4, 3), g(6), g(6), g(2, 6, 4, 3)
    rows = x.view(2, 3, -1)
    mean, rstd = rows.mean(-1), (rows.var(-1, correction=0) + 1e-5).rsqrt()
    args = (grad, x, 3, w, b, mean, rstd, [True] * 3, 1.5)
    return Call(npu("npu_group_norm_swish_grad"), args, want=backward(swish, grad, x, w, b))


@case(F32)
def renorm(g):
    x, grad = g(4, 6), g(4, 6)
    (want,) = backward(lambda x: x.renorm(2, 0, 1.5), grad, x)
    return Call(npu("npu_renorm_backward"), (grad, x, 2, 0, 1.5), want=want)


# ---- Losses ----


@case(F32)
def softmax_cross_entropy(g):
    x, labels, grad = g(5, 7), g(5, 7).softmax(-1), g(5)

    def op(x, labels, grad):
        return (
            torch_npu.npu_softmax_cross_entropy_with_logits(x, labels),
            torch_npu.npu_softmax_cross_entropy_with_logits_backward(grad, x, labels),
        )

    loss = -(labels * x.log_softmax(-1)).sum(-1)
    return Call(op, (x, labels, grad), want=(loss, (x.softmax(-1) - labels) * grad.unsqueeze(1)))


@case(F32)
def bce(g):
    x, target, weight, positive, grad = g(4, 6), g(4, 6).sigmoid(), g(4, 6).abs(), g(6).abs(), g(4, 6)
    (want,) = backward(
        lambda x: binary_cross_entropy_with_logits(x, target, weight, pos_weight=positive, reduction="none"), grad, x
    )
    args = (grad, x, target, weight, positive.expand(4, 6).contiguous(), 0)
    return Call(npu("npu_binary_cross_entropy_with_logits_backward"), args, want=want)


@case(F32)
def cross_entropy_loss(g):
    x, target, weight = g(6, 5), g.ints(0, 5, 6, dtype=torch.int64), g(5).abs() + 0.1
    target[2] = -100
    loss = cross_entropy(x, target, weight, label_smoothing=0.1).view(1)
    args, options = (x, target, weight), {"label_smoothing": 0.1}
    want = (loss, x.log_softmax(-1), torch.empty(0), torch.empty(0))
    return Call(npu("npu_cross_entropy_loss"), args, options, want=want)


@case(F32)
def cross_entropy_parts(g):
    """Each sample, with the square of the logarithm of the sum."""
    x, target, grad = g(6, 5), g.ints(0, 5, 6, dtype=torch.int64), g(6)

    def formula(x):
        return cross_entropy(x, target, reduction="none") + 0.2 * x.logsumexp(-1).square()

    def op(x, target, grad):
        options = {"reduction": "none", "lse_square_scale_for_zloss": 0.2}
        loss, log_prob, zloss, lse = torch_npu.npu_cross_entropy_loss(x, target, None, return_zloss=True, **options)
        back = torch_npu.npu_cross_entropy_loss_backward(grad, log_prob, target, lse_for_zloss=lse, **options)
        return loss, zloss, lse, back

    lse = x.logsumexp(-1)
    want = (formula(x), 0.2 * lse.square(), lse, *backward(formula, grad, x))
    return Call(op, (x, target, grad), want=want)


# ---- Convolutions ----


def convolution(op, formula, *sizes, grad_first=True):
    dims = len(sizes)
    steps, pads, spread = [2] * dims, [1] * dims, [1] * dims

    def build(g):
        x, w, b = g(2, 4, *sizes), g(6, 2, *[3] * dims), g(6)
        grad = torch.empty_like(formula(x, w, b, steps, pads, spread, 2)).copy_(g(1) + 1)
        want = backward(lambda x, w, b: formula(x, w, b, steps, pads, spread, 2), grad, x, w, b)
        args = (x, grad, w, steps, pads, spread, 2, [True] * 3)
        return Call(npu(op), args, want=want)

    return build


@case(F32)
def conv2d_backward(g):
    return convolution("npu_conv2d_backward", conv2d, 5, 6)(g)


@case(F32)
def conv3d_backward(g):
    return convolution("npu_conv3d_backward", conv3d, 4, 5, 3)(g)


@case(F32)
def convolution_backward(g):
    return convolution("npu_convolution_backward", conv2d, 5, 6)(g)


def transposed(op, formula, *sizes):
    dims = len(sizes)
    steps, pads, more, spread = [2] * dims, [1] * dims, [1] * dims, [1] * dims

    def build(g):
        x, w, b = g(2, 4, *sizes), g(4, 3, *[3] * dims), g(6)

        def call(x, w, b):
            return formula(x, w, b, steps, pads, more, 2, spread)

        grad = torch.full_like(call(x, w, b), 0.5) + g(1)
        args = (x, grad, w, pads, more, steps, spread, 2, [True] * 3)
        return Call(npu(op), args, want=backward(call, grad, x, w, b))

    return build


@case(F32)
def conv_transpose2d_backward(g):
    return transposed("npu_conv_transpose2d_backward", conv_transpose2d, 4, 5)(g)


@case(F32)
def conv_transpose3d_backward(g):
    return transposed("npu_conv_transpose3d_backward", conv_transpose3d, 3, 4, 2)(g)


@case(F32)
def convolution_transpose_backward(g):
    return transposed("npu_convolution_transpose_backward", conv_transpose2d, 4, 5)(g)


@case(F32)
def convolutions(g):
    x, w, b, volume, block = g(2, 4, 5, 6), g(6, 2, 3, 3), g(6), g(1, 2, 3, 4, 5), g(4, 2, 2, 2, 2)

    def op(x, w, b, volume, block):
        out = torch.empty(2, 6, 3, 3, device=x.device)
        out3 = torch.empty(1, 4, 2, 3, 4, device=x.device)
        flat = ([2, 2], [1, 1], [1, 1], 2)
        deep = ([1] * 3, [0] * 3, [1] * 3, 1)
        return (
            torch_npu.npu_conv2d(x, w, b, *flat),
            torch_npu.npu_convolution(x, w, b, *flat),
            torch.ops.npu.npu_conv2d.out(x, w, b, *flat, out=out),
            torch_npu.npu_conv3d(volume, block, None, *deep),
            torch.ops.npu.npu_conv3d.out(volume, block, None, *deep, out=out3),
            torch_npu.npu_conv_transpose2d(x, w[:4], None, [1, 1], [1, 1], [2, 2], [1, 1], 1),
            torch_npu.npu_convolution_transpose(x, w[:4], None, [1, 1], [1, 1], [2, 2], [1, 1], 1),
        )

    two, three = conv2d(x, w, b, 2, 1, 1, 2), conv3d(volume, block)
    back = conv_transpose2d(x, w[:4], None, 2, 1, 1)
    return Call(op, (x, w, b, volume, block), want=(two, two, two, three, three, back, back))


def causal_conv(x, w, mask=None):
    width = w.size(0)
    padded = torch.cat([torch.zeros(width - 1, *x.shape[1:]), x])
    out = sum(padded[place : place + x.size(0)] * w[place] for place in range(width))
    return out if mask is None else out * mask.t().unsqueeze(-1)


@case(F32)
def masked_causal(g):
    x, w, mask, grad = g(6, 2, 4), g(3, 4), g.ints(0, 2, 2, 6).bool(), g(6, 2, 4)

    def op(x, w, mask, grad):
        return (
            torch_npu.npu_masked_causal_conv1d(x, w, mask=mask),
            *torch_npu.npu_masked_causal_conv1d_backward(grad, x, w, mask=mask),
        )

    want = (causal_conv(x, w, mask), *backward(lambda x, w: causal_conv(x, w, mask), grad, x, w))
    return Call(op, (x, w, mask, grad), want=want)


def kept(x, w, states, lengths, lines, accepted, computed, mode, residual):
    """Rows of sequences end to end; the states that are left."""
    states, parts, before = states.clone(), [], w.size(0) - 1
    for b, part in enumerate(x.split(lengths)):
        rows = states[lines[b]]
        history = torch.zeros(before, x.size(1)) if computed[b] == 0 else rows[: accepted[b] - 1 + before].float()
        offset = 0 if computed[b] == 0 else int(accepted[b]) - 1
        seen = torch.cat([history, part.float()])
        count = min(rows.size(0), seen.size(0))
        states[lines[b], rows.size(0) - count :] = seen[-count:].to(states.dtype)
        out = sum(seen[offset + place :][: part.size(0)] * w[place].float() for place in range(w.size(0)))
        if mode == "pangu":
            out[: max(before - int(computed[b]), 0)] = 0
        parts.append((out + part.float() if residual else out).to(x.dtype))
    return torch.cat(parts), states


def kept_call(g, name, mode):
    lengths = [4, 1, 6]
    x, w, states, lines = g(11, 8), g(3, 8), g(5, 5, 8), g.shuffled(5)[:3]
    computed, accepted = torch.tensor([0, 7, 1], dtype=torch.int32), torch.tensor([1, 1, 4], dtype=torch.int32)
    starts = torch.tensor([0, 4, 5, 11], dtype=torch.int32)
    out, left = kept(x, w, states, lengths, lines, accepted, computed, mode, mode == "pangu")
    options = {
        "query_start_loc": starts,
        "cache_indices": lines,
        "num_accepted_tokens": accepted,
        "num_computed_tokens": computed,
        "residual_connection": int(mode == "pangu"),
        "conv_mode": mode,
    }
    return Call(npu(name), (x, w, states), options), out, left


@case(F32, HALF, BF16)
def fused_causal(g):
    call, call.want, left = kept_call(g, "npu_fused_causal_conv1d", "default")
    call.left = {2: left}
    return call


@case(F32, HALF, BF16)
def fused_causal_in_place(g):
    call, out, left = kept_call(g, "npu_fused_causal_conv1d_v2", "pangu")
    call.left, call.want = {0: out, 2: left}, None
    return call


@case(F32, HALF, BF16)
def packed(g):
    """What was packed comes back, and how often each exponent is there."""
    x, each = g(256, 128), g(1).element_size()
    wide = x.view(torch.int32) >> 23 if each == 4 else x.view(torch.int16).int() >> 7
    counts = torch.bincount((wide & 255).flatten(), minlength=256).to(torch.int32)
    pdf, mantissa = torch.zeros(256, dtype=torch.int32), g(x.numel() * (each - 1) // each)
    fixed, var, back = g(512), g(x.numel()), torch.zeros_like(x)

    def op(x, pdf, mantissa, fixed, var, back):
        torch_npu.npu_hans_encode(x, True, False, out=(pdf, mantissa, fixed, var))
        return torch_npu.npu_hans_decode(mantissa, fixed, var, pdf, False, out=back), pdf.clone()

    return Call(op, (x, pdf, mantissa, fixed, var, back), want=(x, counts), traced=False)


@case(F32, BF16)
def checked(g):
    a, b = g(20, 8), g(8, 300)
    c = a.float() @ b.float()
    c[3, 299] += 100
    want = torch.tensor([255, 255, 255, 255 - 8, 255, 255], dtype=torch.uint8)
    weight = torch.ones(300, dtype=a.dtype)
    return Call(npu("_npu_matmul_abft_verify"), (a, b, c, weight), {"e_max": 0.01}, want=want)


def deformed(x, offset):
    """What the window of 3 x 3 reads, one pixel of padding, one deformable group: [N, C, Ho * 3, Wo * 3]."""
    n, c, h, w = x.shape
    across, down, mask = offset.unflatten(1, (3, 3, 3)).unbind(1)  # [N, Kh, Kw, H, W]
    at = torch.arange(3) - 1
    rows = down + at.view(3, 1, 1, 1) + torch.arange(h).view(1, 1, h, 1)
    columns = across + at.view(1, 3, 1, 1) + torch.arange(w)
    total = 0
    for top, left in ((0, 0), (0, 1), (1, 0), (1, 1)):
        y, z = rows.detach().floor() + top, columns.detach().floor() + left
        share = (1 - (rows - y).abs()) * (1 - (columns - z).abs())
        inside = (y >= 0) & (y < h) & (z >= 0) & (z < w)
        place = (y.clamp(0, h - 1) * w + z.clamp(0, w - 1)).long()
        pixel = x.flatten(2).gather(2, place.flatten(1).unsqueeze(1).expand(n, c, -1)).unflatten(2, place.shape[1:])
        total = total + pixel * (share * inside * mask).unsqueeze(1)
    return total.permute(0, 1, 4, 2, 5, 3).reshape(n, c, 3 * h, 3 * w)


def deformable(x, weight, offset, bias):
    return conv2d(deformed(x, offset), weight, bias, 3, groups=2)


def npu_deformable(x, weight, offset, bias):
    return torch_npu.npu_deformable_conv2d(x, weight, offset, bias, [3, 3], [1] * 4, [1] * 4, groups=2)


@case(F32)
def deformable_conv2d(g):
    x, weight, offset, bias, grad = g(2, 4, 5, 6), g(6, 2, 3, 3), g(2, 27, 5, 6), g(6), g(2, 6, 5, 6)

    def op(x, weight, offset, bias, grad):
        out, kept = npu_deformable(x, weight, offset, bias)
        back = torch_npu.npu_deformable_conv2dbk(x, grad, kept, weight, offset, [3, 3], [1] * 4, [1] * 4, groups=2)
        return out, kept, *back

    given = x, weight, offset, bias
    want = (deformable(*given), deformed(x, offset), *backward(deformable, grad, *given))
    return Call(op, (*given, grad), want=want)


@pytest.mark.parametrize("key", case)
def test_eager_traced_and_captured(key):
    case.run(key)


def box_formula(kind):
    """Overlap of pairs given by centre and size, [4, pairs]."""

    def formula(a, b):
        (x1, y1, w1, h1), (x2, y2, w2, h2) = a, b
        across = (torch.minimum(x1 + w1 / 2, x2 + w2 / 2) - torch.maximum(x1 - w1 / 2, x2 - w2 / 2)).clamp(0)
        down = (torch.minimum(y1 + h1 / 2, y2 + h2 / 2) - torch.maximum(y1 - h1 / 2, y2 - h2 / 2)).clamp(0)
        union = w1 * h1 + w2 * h2 - across * down
        iou = across * down / union
        width = torch.maximum(x1 + w1 / 2, x2 + w2 / 2) - torch.minimum(x1 - w1 / 2, x2 - w2 / 2)
        height = torch.maximum(y1 + h1 / 2, y2 + h2 / 2) - torch.minimum(y1 - h1 / 2, y2 - h2 / 2)
        if kind == "giou":
            return (iou - (width * height - union) / (width * height)).unsqueeze(1)
        value = iou - ((x1 - x2) ** 2 + (y1 - y2) ** 2) / (width**2 + height**2)
        if kind == "ciou":
            v = 4 / math.pi**2 * (torch.atan(w2 / h2) - torch.atan(w1 / h1)) ** 2
            value = value - v * (v / (1 - iou + v)).detach()
        return value.unsqueeze(0)

    return formula


def boxes_of(tensor):
    """Sizes are above 0."""
    return torch.cat([tensor[:2], tensor[2:].abs() + 1])


GRADIENTS = {
    "geglu": (lambda x: torch_npu.npu_geglu(x)[0], lambda x: x[:, :6] * gelu(x[:, 6:], approximate="tanh"), [(4, 12)]),
    "add_layer_norm": (
        lambda *x: torch_npu.npu_add_layer_norm(*x)[0],
        lambda a, b, w, c: layer_norm(a + b, (8,), w, c),
        [(4, 8), (4, 8), (8,), (8,)],
    ),
    "add_layer_norm_sum": (
        lambda *x: sum(torch_npu.npu_add_layer_norm(*x, 1e-5, True)[0::3]),
        lambda a, b, w, c: layer_norm(a + b, (8,), w, c) + a + b,
        [(4, 8), (4, 8), (8,), (8,)],
    ),
    "deep_norm": (
        lambda *x: torch_npu.npu_deep_norm(*x)[2],
        lambda x, gx, c, w: layer_norm(x * 0.3 + gx, (8,), w, c, 1e-6),
        [(4, 8), (4, 8), (8,), (8,)],
    ),
    "group_norm_swish": (
        lambda x, w, b: torch_npu.npu_group_norm_swish(x, 3, w, b, swish_scale=1.5)[0],
        swish,
        [(2, 6, 4), (6,), (6,)],
    ),
    "gelu_mul": (torch_npu.npu_gelu_mul, lambda x: gelu(x[:, :6]) * x[:, 6:], [(4, 12)]),
    "softmax_cross_entropy": (
        lambda x: torch_npu.npu_softmax_cross_entropy_with_logits(x, torch.full((4, 6), 1 / 6, device=x.device)),
        lambda x: -x.log_softmax(-1).mean(-1),
        [(4, 6)],
    ),
    "cross_entropy": (
        lambda x: torch_npu.npu_cross_entropy_loss(x, torch.arange(4, device=x.device), reduction="sum"),
        lambda x: cross_entropy(x, torch.arange(4), reduction="sum").view(1),
        [(4, 6)],
    ),
    "max": (lambda x: torch_npu.npu_max(x, 1), lambda x: x.amax(1), [(4, 6)]),
    "conv2d": (
        lambda x, w: torch_npu.npu_conv2d(x, w, None, [1, 1], [1, 1], [1, 1], 1),
        lambda x, w: conv2d(x, w, None, 1, 1),
        [(1, 2, 4, 4), (3, 2, 3, 3)],
    ),
    "conv_transpose2d": (
        lambda x, w: torch_npu.npu_conv_transpose2d(x, w, None, [1, 1], [0, 0], [2, 2], [1, 1], 1),
        lambda x, w: conv_transpose2d(x, w, None, 2, 1),
        [(1, 2, 4, 4), (2, 3, 3, 3)],
    ),
    "masked_causal_conv1d": (torch_npu.npu_masked_causal_conv1d, causal_conv, [(6, 2, 4), (3, 4)]),
    "deformable_conv2d": (
        lambda *given: npu_deformable(*given)[0], deformable, [(2, 4, 5, 6), (6, 2, 3, 3), (2, 27, 5, 6), (6,)]
    ),
    "giou": (
        lambda a, b: torch_npu.npu_giou(boxes_of(a), boxes_of(b), True),
        lambda a, b: box_formula("giou")(boxes_of(a), boxes_of(b)),
        [(4, 9), (4, 9)],
    ),
    "diou": (
        lambda a, b: torch_npu.npu_diou(boxes_of(a), boxes_of(b), True),
        lambda a, b: box_formula("diou")(boxes_of(a), boxes_of(b)),
        [(4, 9), (4, 9)],
    ),
    "ciou": (
        lambda a, b: torch_npu.npu_ciou(boxes_of(a), boxes_of(b), True, False),
        lambda a, b: box_formula("ciou")(boxes_of(a), boxes_of(b)),
        [(4, 9), (4, 9)],
    ),
    "mhc_post": (
        torch_npu.npu_mhc_post,
        lambda x, r, h, p: r.transpose(-1, -2) @ x + p.unsqueeze(-1) * h.unsqueeze(-2),
        [(3, 4, 5), (3, 4, 4), (3, 5), (3, 4)],
    ),
    "nsa_compress": (
        lambda x, w: torch_npu.npu_nsa_compress(x, w, 4, 2, actual_seq_len=[3, 12]),
        lambda x, w: torch.stack([(x[i : i + 4] * w.unsqueeze(-1)).sum(0) for i in (3, 5, 7)]),
        [(12, 2, 3), (4, 2)],
    ),
}


@pytest.mark.parametrize("key", GRADIENTS)
def test_gradients(key):
    check_gradients(GRADIENTS[key])


def test_deformable_convolutions_name_what_is_wrong():
    x, weight, offset = (torch.ones(shape, device="npu") for shape in ((2, 4, 5, 6), (6, 2, 3, 3), (2, 27, 5, 6)))
    ones = [1] * 4
    with pytest.raises(RuntimeError, match="offset has shape .* expected .2, 54, 5, 6."):
        torch_npu.npu_deformable_conv2d(x, weight, offset, None, [3, 3], ones, ones, ones, 2, 2)
    with pytest.raises(RuntimeError, match="modulated must be True"):
        torch_npu.npu_deformable_conv2d(x, weight, offset, None, [3, 3], ones, ones, ones, 2, 1, False)
    with pytest.raises(RuntimeError, match="stride has 2 numbers, expected 4"):
        torch_npu.npu_deformable_conv2d(x, weight, offset, None, [3, 3], [1, 1], ones, ones, 2)


def test_shapes_do_not_broadcast():
    x, row = torch.ones(4, 8, device="npu"), torch.ones(1, 8, device="npu")
    box = torch.ones(3, 4, device="npu")
    wrong = [
        lambda: torch_npu.npu_scaled_masked_softmax_backward(row, x, x.bool(), 1.0, False),
        lambda: torch_npu.npu_renorm_backward(row, x, 2, 0, 1.0),
        lambda: torch_npu.npu_geglu_grad(row[:, :4], x, x[:, :4]),
        lambda: torch_npu.npu_attn_softmax_backward_(x, row, x),
        lambda: torch_npu.npu_bounding_box_encode(box[:1], box, 0, 0, 0, 0, 1, 1, 1, 1),
        lambda: torch_npu.npu_yolo_boxes_encode(box[:1], box, torch.ones(1, device="npu")),
    ]
    for call in wrong:
        with pytest.raises(RuntimeError, match="has shape .* expected that of"):
            call()
