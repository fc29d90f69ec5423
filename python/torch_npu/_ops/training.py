# SPDX-License-Identifier: Apache-2.0
"""Optimizers, dropout, and what watches over a training."""
import torch
from torch_npu._errors import refused
from torch_npu._ops.attention import _make_drop_mask
from torch_npu._ops.checks import check, check_dims, check_same, check_type
from torch_npu._ops.registry import composite, declare, derivative, kernel, meta

ops = torch.ops.npu
aten = torch.ops.aten

# ---- Optimizers: they have only a form with out ----


def _needs_out(*names):
    def refuse(name):
        @composite(name)
        def _(*args, **options):
            words = f"{name}: pass out=(var, m, v), the parameter and its moments, which the step changes"
            raise refused(RuntimeError(words))

    for name in names:
        refuse(name)


_needs_out("npu_apply_adam", "npu_apply_adam_w", "npu_bert_apply_adam")


def _state(name, grad, out):
    check(len(out) == 3, name, f"out has {len(out)} tensors, expected var, m and v")
    for argument, tensor in zip(("var", "m", "v"), out):
        check(
            tensor.shape == grad.shape,
            name,
            f"{argument} has shape {list(tensor.shape)} and grad {list(grad.shape)}, expected the same",
        )
    return [tensor.float() for tensor in out]


def _store(out, values):
    for tensor, value in zip(out, values):
        tensor.copy_(value)
    return tuple(out)


@composite("npu_apply_adam.out")
def _(beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad, use_locking, use_nesterov, *, out):
    var, m, v = _state("npu_apply_adam", grad, out)
    grad = grad.float()
    rate = lr * (1 - beta2_power) ** 0.5 / (1 - beta1_power)
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad.square()
    step = beta1 * m + (1 - beta1) * grad if use_nesterov else m
    return _store(out, (var - rate * step / (v.sqrt() + epsilon), m, v))


@composite("npu_apply_adam_w.out")
def _(
    beta1_power, beta2_power, lr, weight_decay, beta1, beta2, epsilon, grad, max_grad_norm, amsgrad, maximize, *, out
):
    name = "npu_apply_adam_w"
    check(not amsgrad or max_grad_norm is not None, name, "amsgrad needs max_grad_norm")
    var, m, v = _state(name, grad, out)
    grad = -grad.float() if maximize else grad.float()
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad.square()
    most = torch.maximum(max_grad_norm.float(), v) if amsgrad else v
    below = (most / (1 - beta2_power * beta2)).sqrt() + epsilon
    var = var * (1 - lr * weight_decay) - lr / (1 - beta1_power * beta1) * m / below
    return _store(out, (var, m, v))


@composite("npu_bert_apply_adam.out")
def _(
    lr, beta1, beta2, epsilon, grad, max_grad_norm, global_grad_norm, weight_decay, step_size=None, adam_mode=0, *, out
):
    name = "npu_bert_apply_adam"
    if adam_mode != 0 or step_size is not None:
        raise refused(NotImplementedError(f"{name}: adam_mode 1 and step_size are not supported yet; leave them out"))
    check(
        max_grad_norm <= 0 or global_grad_norm <= max_grad_norm,
        name,
        f"global_grad_norm is {global_grad_norm}, above max_grad_norm, {max_grad_norm}; clip the gradients before the "
        "step and pass -1 as max_grad_norm",
    )
    var, m, v = _state(name, grad, out)
    grad = grad.float()
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad.square()
    return _store(out, (var - lr * (m / (v.sqrt() + epsilon) + weight_decay * var), m, v))


# ---- Dropout: a mask has a bit for each element, 16 bytes for 128 of them ----


def _mask_bytes(count):
    return (count + 127) // 128 * 16


def _check_p(name, p):
    check(0 <= p <= 1, name, f"p is {p}, expected a value from 0 to 1")


def _new_mask(like, count, p):
    """With numbers of the generator: other ones in each replay."""
    return _make_drop_mask(like, _mask_bytes(count) * 8, 1 - p)


declare("_apply_drop_mask(Tensor input, Tensor mask, float p) -> Tensor")


@meta("_apply_drop_mask")
def _(input, mask, p):
    name = "npu_dropout_do_mask"
    _check_p(name, p)
    check_type(name, "mask", mask, torch.uint8)
    check(
        mask.numel() >= _mask_bytes(input.numel()),
        name,
        f"mask has {mask.numel()} bytes, expected {_mask_bytes(input.numel())}",
    )
    return input.new_empty(input.shape)


@composite("npu_dropout_do_mask")
def _(input, mask, p):
    return ops._apply_drop_mask(input, mask, p), mask.clone()


@composite("npu_dropout_backward")
def _(grad_output, mask, p):
    return ops._apply_drop_mask(grad_output, mask, p)


@composite("_npu_dropout")
def _(input, p):
    _check_p("_npu_dropout", p)
    mask = _new_mask(input, input.numel(), p)
    return ops._apply_drop_mask(input, mask, p), mask


derivative("_npu_dropout", "npu_dropout_backward", "grad @1 p", "input")


@composite("npu_dropout_gen_mask")
def _(size, p, *, dtype=None, layout=None, device=None, pin_memory=None):
    _check_p("npu_dropout_gen_mask", p)
    return _new_mask(torch.empty(0, device=device or "npu"), torch.Size(size).numel(), p)


@meta("_npu_dropout_gen_mask.Tensor")
def _(input, size, p, seed, offset, *, parallel=True, sync=None):
    _check_p("_npu_dropout_gen_mask", p)
    return input.new_empty([_mask_bytes(torch.Size(size).numel())], dtype=torch.uint8)


@composite("npu_dropout_with_add_softmax")
def _(input, x1, alpha, prob, dim):
    name = "npu_dropout_with_add_softmax"
    _check_p(name, prob)
    check(x1.shape == input.shape, name, f"x1 has shape {list(x1.shape)} and input {list(input.shape)}")
    weights = (x1.float() + input.float() * alpha).softmax(dim).to(input.dtype)
    mask = _new_mask(input, input.numel(), prob)
    return mask, weights, ops._apply_drop_mask(weights, mask, prob)


@composite("npu_dropout_with_add_softmax_backward")
def _(grad, mask, softmax_out, alpha, prob, dim):
    check_same("npu_dropout_with_add_softmax_backward", grad=grad, softmax_out=softmax_out)
    back = ops._apply_drop_mask(grad, mask, prob).float()
    weights = softmax_out.float()
    of_sum = weights * (back - (weights * back).sum(dim, keepdim=True))
    return (of_sum * alpha).to(grad.dtype), of_sum.to(grad.dtype)


derivative(
    "npu_dropout_with_add_softmax",
    "npu_dropout_with_add_softmax_backward",
    "grad@2 @0 @1 alpha prob dim",
    "input x1",
)


@kernel("npu_sim_exponential_")
def _(input, lambd=1, *, generator=None):
    check(lambd > 0, "npu_sim_exponential_", f"lambd is {lambd}, expected a value above 0")
    return input.exponential_(lambd, generator=generator)


@meta("npu_sim_exponential_")
def _(input, lambd=1, *, generator=None):
    return input


# ---- Watching ----


@meta("_npu_silent_check_v2", "_npu_silent_check_v3")
def _(val, *rest, **options):
    return torch.empty_like(val, dtype=torch.int32)


# ---- Softmax in place ----


@composite("npu_attn_softmax_")
def _(input):
    return input.copy_(input.softmax(-1))


@composite("npu_attn_softmax_backward_")
def _(input, grad_output, values):
    grad = torch.matmul(grad_output.float(), values.float().transpose(-1, -2))
    check_same("npu_attn_softmax_backward_", input=input, product_of_grad_output_and_values=grad)
    weights = input.float()
    return input.copy_(weights * (grad - (weights * grad).sum(-1, keepdim=True)))


@composite("npu_masked_softmax_with_rel_pos_bias")
def _(x, atten_mask, relative_pos_bias, scale_value=1.0, inner_precision_mode=0):
    check_dims("npu_masked_softmax_with_rel_pos_bias", "x", x, 4, 5)
    scores = x.float() * scale_value
    if atten_mask is not None:
        scores = scores + atten_mask.float()
    return (scores + relative_pos_bias.float()).softmax(-1).to(x.dtype)


# ---- Cross entropy of a vocabulary in parts ----


def _bits(flags):
    """Eight to a byte, the first in the highest bit; ones behind the last."""
    count = flags.numel()
    padded = torch.nn.functional.pad(flags.to(torch.int32), (0, -count % 8), value=1).view(-1, 8)
    weights = torch.arange(7, -1, -1, device=flags.device, dtype=torch.int32)
    return (padded * 2**weights).sum(1).to(torch.uint8)


def _flags(name, bits, count):
    check(bits.numel() * 8 >= count, name, f"target_mask has {bits.numel()} bytes, for {count} rows")
    places = torch.arange(7, -1, -1, device=bits.device, dtype=torch.int32)
    return (bits.to(torch.int32).unsqueeze(1) >> places).bitwise_and(1).reshape(-1)[:count].to(torch.bool)


@composite("npu_fused_linear_online_max_sum")
def _(input, weight, target, vocab_start_index, vocab_end_index, return_logits=False):
    name = "npu_fused_linear_online_max_sum"
    check_dims(name, "input", input, 2)
    check_dims(name, "weight", weight, 2)
    check(
        input.size(1) == weight.size(1) and target.shape == input.shape[:1],
        name,
        f"input has shape {list(input.shape)}, weight {list(weight.shape)} and target {list(target.shape)}",
    )
    logits = torch.mm(input, weight.t())
    wide = logits.float()
    most = wide.amax(-1)
    rest = wide - most.unsqueeze(1)
    is_out = (target < vocab_start_index) | (target > vocab_end_index)
    own = (target - vocab_start_index).masked_fill(is_out, 0)
    predicted = rest.gather(1, own.to(torch.int64).unsqueeze(1)).squeeze(1).masked_fill(is_out, 0)
    none = logits.new_empty([0])
    return most, rest.exp().sum(-1), predicted, _bits(is_out), own, logits if return_logits else none


@composite("npu_fused_cross_entropy_loss_with_max_sum")
def _(
    logits_max, sum_exp_logits, predicted_logits, *, label_smoothing=0.0, input=None, weight=None,
    vocab_parallel_logits=None,
):  # fmt: skip
    name = "npu_fused_cross_entropy_loss_with_max_sum"
    check(not label_smoothing, name, f"label_smoothing is {label_smoothing}; only 0 is supported")
    loss = sum_exp_logits.log() - predicted_logits
    if vocab_parallel_logits is None:
        return loss, loss.new_empty([0])
    shifted = vocab_parallel_logits.float() - logits_max.unsqueeze(1)
    return loss, shifted.exp() / sum_exp_logits.unsqueeze(1)


@composite("npu_fused_linear_cross_entropy_loss_with_max_sum_backward")
def _(
    grad, input, weight, target_mask, masked_target, label_smoothing=0.0, logits_max=None, sum_exp_logits=None,
    softmax=None,
):  # fmt: skip
    name = "npu_fused_linear_cross_entropy_loss_with_max_sum_backward"
    check(not label_smoothing, name, f"label_smoothing is {label_smoothing}; only 0 is supported")
    if softmax is None:
        check(
            logits_max is not None and sum_exp_logits is not None, name, "without softmax, both sums are needed"
        )
        shifted = torch.mm(input, weight.t()).float() - logits_max.unsqueeze(1)
        softmax = shifted.exp() / sum_exp_logits.unsqueeze(1)
    is_own = (~_flags(name, target_mask, input.size(0))).float().unsqueeze(1)
    chosen = torch.zeros_like(softmax).scatter(1, masked_target.to(torch.int64).unsqueeze(1), is_own)
    of_logits = (softmax.float() - chosen) * grad.float().unsqueeze(1)
    return (
        torch.mm(of_logits, weight.float()).to(input.dtype),
        torch.mm(of_logits.t(), input.float()).to(weight.dtype),
    )


# ---- Streams of hidden states that are mixed ----


@composite("npu_mhc_sinkhorn")
def _(x, *, eps=1e-6, num_iters=20, out_flag=0):
    name = "npu_mhc_sinkhorn"
    check(x.dim() >= 2, name, f"x has shape {list(x.shape)}, expected matrices")
    check(num_iters > 0, name, f"num_iters is {num_iters}, expected a value above 0")
    if out_flag != 0:
        raise refused(NotImplementedError(f"{name}: out_flag is {out_flag}; only 0 is supported yet"))
    y = x.float().softmax(-1) + eps
    y = y / (y.sum(-2, keepdim=True) + eps)
    for _ in range(num_iters - 1):
        y = y / (y.sum(-1, keepdim=True) + eps)
        y = y / (y.sum(-2, keepdim=True) + eps)
    none = y.new_empty([0])
    return y.to(x.dtype), none, none.clone()


def _check_streams(name, x, h_res, h_out, h_post):
    check_dims(name, "x", x, 3, 4)
    check(
        h_out.shape == torch.Size([*x.shape[:-2], x.size(-1)]) and h_post.shape == x.shape[:-1],
        name,
        f"x has shape {list(x.shape)}, h_out {list(h_out.shape)} and h_post {list(h_post.shape)}",
    )
    check(
        h_res is None or h_res.shape == torch.Size([*x.shape[:-1], x.size(-2)]),
        name,
        f"h_res has shape {list(h_res.shape) if h_res is not None else ''}, expected [.., {x.size(-2)}, {x.size(-2)}]",
    )


@composite("npu_mhc_post")
def _(x, h_res, h_out, h_post):
    _check_streams("npu_mhc_post", x, h_res, h_out, h_post)
    kept = x.float() if h_res is None else torch.matmul(h_res.float().transpose(-1, -2), x.float())
    return (kept + h_post.float().unsqueeze(-1) * h_out.float().unsqueeze(-2)).to(x.dtype)


@composite("npu_mhc_post_backward")
def _(grad_y, x, h_res, h_out, h_post):
    _check_streams("npu_mhc_post_backward", x, h_res, h_out, h_post)
    check_same("npu_mhc_post_backward", x=x, grad_y=grad_y)
    grad, wide = grad_y.float(), x.float()
    if h_res is None:
        of_x, of_res = grad, grad.new_empty([0])
    else:
        of_x = torch.matmul(h_res.float(), grad)
        of_res = torch.matmul(wide, grad.transpose(-1, -2)).to(h_res.dtype)
    of_out = (grad * h_post.float().unsqueeze(-1)).sum(-2)
    of_post = (grad * h_out.float().unsqueeze(-2)).sum(-1)
    return of_x.to(x.dtype, copy=True), of_res, of_out.to(h_out.dtype), of_post.to(h_post.dtype)


derivative("npu_mhc_post", "npu_mhc_post_backward", "grad x h_res h_out h_post", "x h_res h_out h_post")


@composite("npu_mhc_pre")
def _(x, phi, alpha, bias, *, gamma=None, norm_eps=1e-6, hc_eps=1e-6, out_flag=0, inner_precise=0):
    name = "npu_mhc_pre"
    check_dims(name, "x", x, 3, 4)
    streams, size = x.shape[-2:]
    rows = streams * streams + 2 * streams
    check(
        list(phi.shape) == [rows, streams * size] and bias.numel() == rows and alpha.numel() == 3,
        name,
        f"x has shape {list(x.shape)}, phi {list(phi.shape)}, alpha {list(alpha.shape)} and bias {list(bias.shape)}",
    )
    wide = x.float()
    flat = wide.flatten(-2)
    inverse = torch.rsqrt(flat.square().mean(-1, keepdim=True) + norm_eps)
    scaled = flat if gamma is None else flat * gamma.float().reshape(-1)
    mix = torch.matmul(scaled, phi.float().t())
    normed = mix * inverse
    b = bias.float().reshape(-1)
    first, second = normed[..., :streams], normed[..., streams : 2 * streams]
    pre = torch.sigmoid(first * alpha[0] + b[:streams]) + hc_eps
    post = 2 * torch.sigmoid(second * alpha[1] + b[streams : 2 * streams])
    rest = (normed[..., 2 * streams :] * alpha[2] + b[2 * streams :]).unflatten(-1, (streams, streams))
    h_in = (pre.unsqueeze(-1) * wide).sum(-2).to(x.dtype)
    if out_flag == 0:
        none = pre.new_empty([0])
        return h_in, post, rest, none, none.clone(), none.clone()
    return h_in, post, rest, inverse.squeeze(-1), mix, pre
