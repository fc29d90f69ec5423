# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: optimizers, dropout, losses in parts, watching; npu_ops.py says how cases are run."""
import pytest
import torch
import torch_npu
from npu_ops import BF16, F32, HALF, Call, Cases, check_gradients, npu
from torch.nn.functional import cross_entropy

case = Cases()

# ---- Optimizers ----


def moments(g):
    return g(5, 6), g(5, 6), g(5, 6).abs(), g(5, 6)


@case(F32, HALF)
def adam(g):
    var, m, v, grad = moments(g)
    b1, b2, m1, v1 = 0.9, 0.99, m.float() * 0.9 + grad.float() * 0.1, v.float() * 0.99 + grad.float() ** 2 * 0.01
    rate = 0.05 * (1 - b2**3) ** 0.5 / (1 - b1**3)

    def op(var, m, v, grad):
        torch_npu.npu_apply_adam(b1**3, b2**3, 0.05, b1, b2, 1e-4, grad, False, False, out=(var, m, v))
        return var.clone()

    new = (var.float() - rate * m1 / (v1.sqrt() + 1e-4)).to(var.dtype)
    left = {0: new, 1: m1.to(var.dtype), 2: v1.to(var.dtype)}
    return Call(op, (var, m, v, grad), want=new, left=left)


@case(F32)
def adam_nesterov(g):
    var, m, v, grad = moments(g)
    m1, v1 = m * 0.9 + grad * 0.1, v * 0.99 + grad**2 * 0.01

    def op(var, m, v, grad):
        torch_npu.npu_apply_adam(0.9, 0.99, 0.05, 0.9, 0.99, 1e-4, grad, False, True, out=(var, m, v))

    rate = 0.05 * 0.01**0.5 / 0.1
    new = var - rate * (m1 * 0.9 + grad * 0.1) / (v1.sqrt() + 1e-4)
    return Call(op, (var, m, v, grad), want=None, left={0: new, 1: m1, 2: v1})


@case(F32)
def adam_w(g):
    """A step of torch's own."""
    var, m, v, grad = moments(g)
    leaf = torch.nn.Parameter(var.clone())
    leaf.grad = grad.clone()
    optimizer = torch.optim.AdamW([leaf], 0.05, (0.9, 0.99), 1e-6, 0.1, maximize=True)
    optimizer.state[leaf] = {"step": torch.tensor(2.0), "exp_avg": m.clone(), "exp_avg_sq": v.clone()}
    optimizer.step()
    state = optimizer.state[leaf]

    def op(var, m, v, grad):
        args = (0.9**2, 0.99**2, 0.05, 0.1, 0.9, 0.99, 1e-6, grad, None, False, True)
        torch_npu.npu_apply_adam_w(*args, out=(var, m, v))

    left = {0: leaf.detach(), 1: state["exp_avg"], 2: state["exp_avg_sq"]}
    return Call(op, (var, m, v, grad), want=None, left=left)


@case(F32)
def bert_adam(g):
    var, m, v, grad = moments(g)
    m1, v1 = m * 0.9 + grad * 0.1, v * 0.99 + grad**2 * 0.01

    def op(var, m, v, grad):
        torch_npu.npu_bert_apply_adam(0.05, 0.9, 0.99, 1e-4, grad, -1, 0, 0.1, out=(var, m, v))

    new = var - 0.05 * (m1 / (v1.sqrt() + 1e-4) + 0.1 * var)
    return Call(op, (var, m, v, grad), want=None, left={0: new, 1: m1, 2: v1})


# ---- Dropout ----


def bits_of(mask, count):
    return torch.stack([mask.int() >> place & 1 for place in range(8)], 1).reshape(-1)[:count].float()


@case(F32, BF16)
def masked(g):
    x, grad, mask = g(5, 30), g(5, 30), g.ints(0, 256, 32, dtype=torch.uint8)

    def op(x, grad, mask):
        out, same = torch_npu.npu_dropout_do_mask(x, mask, 0.25)
        return out, same, torch_npu.npu_dropout_backward(grad, mask, 0.25)

    share = bits_of(mask, 150).view(5, 30) / 0.75
    want = ((x.float() * share).to(x.dtype), mask, (grad.float() * share).to(x.dtype))
    return Call(op, (x, grad, mask), want=want)


@case(F32)
def mask_of_a_seed(g):
    x = g(200)

    def op(x):
        first = torch.ops.npu._npu_dropout_gen_mask.Tensor(x, [200], 0.5, 7, 0)
        again = torch.ops.npu._npu_dropout_gen_mask.Tensor(x, [200], 0.5, 7, 0)
        other = torch.ops.npu._npu_dropout_gen_mask.Tensor(x, [200], 0.5, 8, 0)
        return (first == again).all(), (first == other).all()

    return Call(op, (x,), want=(torch.tensor(True), torch.tensor(False)))


@case(F32)
def softmax_kept(g):
    """Nothing is dropped with the probability 0."""
    x, other, grad = g(3, 4, 32), g(3, 4, 32), g(3, 4, 32)

    def op(x, other, grad):
        mask, weights, out = torch_npu.npu_dropout_with_add_softmax(x, other, 0.5, 0.0, -1)
        return weights, out, *torch_npu.npu_dropout_with_add_softmax_backward(grad, mask, weights, 0.5, 0.0, -1)

    weights = (other + 0.5 * x).softmax(-1)
    back = weights * (grad - (weights * grad).sum(-1, keepdim=True))
    return Call(op, (x, other, grad), want=(weights, weights, back * 0.5, back))


# ---- Softmax in place ----


@case(F32)
def softmax_in_place(g):
    x, grad, values = g(2, 5, 6), g(2, 5, 4), g(2, 6, 4)
    leaf = x.clone().requires_grad_()
    (want,) = torch.autograd.grad(leaf.softmax(-1) @ values, leaf, grad)

    def op(x, grad, values):
        weights = torch_npu.npu_attn_softmax_(x).clone()
        torch_npu.npu_attn_softmax_backward_(x, grad, values)
        return weights

    return Call(op, (x, grad, values), want=x.softmax(-1), left={0: want})


@case(F32, HALF)
def rel_pos_bias(g):
    x, mask, bias = g(1, 2, 3, 4, 4), g(1, 2, 1, 4, 4), g(1, 1, 3, 4, 4)
    want = (x.float() * 0.5 + mask.float() + bias.float()).softmax(-1).to(x.dtype)
    return Call(npu("npu_masked_softmax_with_rel_pos_bias"), (x, mask, bias, 0.5), want=want)


# ---- Watching ----


@case(F32)
def silent_check(g):
    val, grad, sfda, step = torch.ones(1) * 5, g(3), torch.tensor([1.0, 0, 2]), torch.tensor([9], dtype=torch.int64)
    args = (val, grad, sfda, step, 4, 1e6, 1e3, 10.0, 1.0, 1)
    left = {2: torch.tensor([5.0, 0, 5]), 3: torch.tensor([10], dtype=torch.int64)}
    # Apart from what was before by more than the span of it.
    return Call(npu("_npu_silent_check_v2"), args, want=torch.tensor([1], dtype=torch.int32), left=left)


@case(F32)
def silent_check_average(g):
    val, grad, step, most, avg = torch.ones(1) * 5, g(3), torch.tensor([2]), torch.ones(1), torch.ones(1)
    args = (val, grad, step, most, avg, 100.0, 2.0, 0.5, 1)
    left = {2: torch.tensor([3]), 4: torch.tensor([3.0])}
    return Call(npu("_npu_silent_check_v3"), args, want=torch.tensor([1], dtype=torch.int32), left=left)


# ---- Vocabularies in parts ----


@case(F32)
def vocabulary(g):
    x, w, target, grad = g(11, 8), g(6, 8), g.ints(0, 9, 11), g(11)
    logits = x @ w.t()
    is_out = (target < 2) | (target > 7)
    own = (target - 2).masked_fill(is_out, 0)
    most = logits.amax(-1)
    total = (logits - most.unsqueeze(1)).exp().sum(-1)
    predicted = (logits - most.unsqueeze(1)).gather(1, own.long().unsqueeze(1)).squeeze(1).masked_fill(is_out, 0)
    marks = [sum(int(b) << (7 - i) for i, b in enumerate((is_out.int().tolist() + [1] * 5)[k : k + 8])) for k in (0, 8)]
    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    scores = leaves[0] @ leaves[1].t()
    loss = scores.logsumexp(-1) - scores.gather(1, own.long().unsqueeze(1)).squeeze(1) * (~is_out)
    back = torch.autograd.grad(loss, leaves, grad)

    def op(x, w, target, grad):
        most, total, predicted, mask, own, logits = torch_npu.npu_fused_linear_online_max_sum(x, w, target, 2, 7, True)
        loss, softmax = torch_npu.npu_fused_cross_entropy_loss_with_max_sum(
            most, total, predicted, vocab_parallel_logits=logits
        )
        backward = torch_npu.npu_fused_linear_cross_entropy_loss_with_max_sum_backward
        return (
            most, total, predicted, mask, own, loss, *backward(grad, x, w, mask, own, softmax=softmax),
            *backward(grad, x, w, mask, own, logits_max=most, sum_exp_logits=total),
        )  # fmt: skip

    want = (most, total, predicted, torch.tensor(marks, dtype=torch.uint8), own, total.log() - predicted, *back, *back)
    return Call(op, (x, w, target, grad), want=want)


# ---- Streams of hidden states ----


@case(F32)
def streams(g):
    x, phi, alpha, bias, gamma = g(3, 4, 6), g(24, 24), g(3), g(24), g(4, 6)
    flat = x.flatten(1)
    normed = (flat * gamma.view(-1)) @ phi.t() * (flat.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    pre = torch.sigmoid(normed[:, :4] * alpha[0] + bias[:4]) + 1e-6
    post = 2 * torch.sigmoid(normed[:, 4:8] * alpha[1] + bias[4:8])
    rest = (normed[:, 8:] * alpha[2] + bias[8:]).view(3, 4, 4)
    mixed = rest.softmax(-1) + 1e-6
    mixed = mixed / (mixed.sum(-2, keepdim=True) + 1e-6)
    for _ in range(4):
        mixed = mixed / (mixed.sum(-1, keepdim=True) + 1e-6)
        mixed = mixed / (mixed.sum(-2, keepdim=True) + 1e-6)
    h_in = (pre.unsqueeze(-1) * x).sum(1)
    out = mixed.transpose(1, 2) @ x + post.unsqueeze(-1) * h_in.unsqueeze(1)

    def op(x, phi, alpha, bias, gamma):
        h_in, post, rest, *_ = torch_npu.npu_mhc_pre(x, phi, alpha, bias, gamma=gamma)
        mixed, _, _ = torch_npu.npu_mhc_sinkhorn(rest, num_iters=5)
        return h_in, post, rest, mixed, torch_npu.npu_mhc_post(x, mixed, h_in, post)

    return Call(op, (x, phi, alpha, bias, gamma), want=(h_in, post, rest, mixed, out), bounds=HALF)


@pytest.mark.parametrize("key", case)
def test_eager_traced_and_captured(key):
    case.run(key)


GRADIENTS = {
    "dropout_with_add_softmax": (
        lambda x, y: torch_npu.npu_dropout_with_add_softmax(x, y, 0.5, 0.0, -1)[2],
        lambda x, y: (y + 0.5 * x).softmax(-1),
        [(3, 8), (3, 8)],
    ),
    "dropout_of_nothing": (lambda x: torch_npu._npu_dropout(x, 0.0)[0], lambda x: x * 1, [(3, 8)]),
    "loss_of_zeros": (
        lambda x: torch_npu.npu_cross_entropy_loss(
            x, torch.zeros(3, dtype=torch.int64, device=x.device), lse_square_scale_for_zloss=0.1
        ),
        lambda x: (cross_entropy(x, torch.zeros(3, dtype=torch.int64)) + 0.1 * x.logsumexp(-1).square().mean()).view(1),
        [(3, 5)],
    ),
}


@pytest.mark.parametrize("key", GRADIENTS)
def test_gradients(key):
    check_gradients(GRADIENTS[key])


def test_dropout_draws_anew():
    """Bits that are about as many as they should be, and other ones in each replay; gradients see the same ones."""
    x = torch.ones(64, 100, device="npu", requires_grad=True)
    out, mask = torch_npu._npu_dropout(x, 0.25)
    assert mask.dtype == torch.uint8 and mask.numel() == 6400 // 8
    assert out.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert 0.7 < (out != 0).float().mean() < 0.8
    out.sum().backward()
    assert torch.equal(x.grad, out)
    assert torch_npu.npu_dropout_gen_mask([200], 0.5, device="npu").numel() == 32
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        captured, _ = torch_npu._npu_dropout(x.detach(), 0.25)
    seen = []
    for _ in range(2):
        graph.replay()
        seen.append(captured.cpu())
    assert not torch.equal(*seen)


def test_exponential_draws():
    x = torch.empty(4000, device="npu")
    assert torch_npu.npu_sim_exponential_(x, 2.0) is x
    assert x.min() >= 0 and 0.4 < x.mean() < 0.6
    with pytest.raises(RuntimeError, match="lambd is -1"):
        torch_npu.npu_sim_exponential_(x, -1.0)


def test_a_step_needs_out():
    x = torch.ones(3, device="npu")
    with pytest.raises(RuntimeError, match=r"npu_apply_adam_w: pass out=\(var, m, v\)"):
        torch_npu.npu_apply_adam_w(0.9, 0.9, 0.1, 0.1, 0.9, 0.9, 1e-6, x, None, False, False)
    with pytest.raises(RuntimeError, match="m has shape"):
        torch_npu.npu_apply_adam(0.9, 0.9, 0.1, 0.9, 0.9, 1e-6, x, False, False, out=(x, x[:2], x))
    with pytest.raises(RuntimeError, match="clip the gradients"):
        torch_npu.npu_bert_apply_adam(0.1, 0.9, 0.9, 1e-6, x, 1.0, 2.0, 0.0, out=(x, x, x))
