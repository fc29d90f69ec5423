# SPDX-License-Identifier: Apache-2.0
"""Gradients that programs call by name, of operators that stand elsewhere or that ATen has."""
import torch
from torch_npu._ops.checks import check, check_same, refuse
from torch_npu._ops.norm import half_of
from torch_npu._ops.registry import composite, declare, derivative, meta

ops = torch.ops.npu
aten = torch.ops.aten
functional = torch.nn.functional

# ---- Shapes and types ----


@composite("npu_confusion_transpose_backward")
def _(grad, perm, shape, transpose_first):
    # transpose_first is about the gradient: the other one of what the operator was called with.
    inverse = [list(perm).index(dim) for dim in range(len(perm))]
    if transpose_first:
        return grad.permute(inverse).reshape(shape).contiguous()
    return grad.reshape([shape[dim] for dim in perm]).permute(inverse).contiguous()


@composite("_npu_dtype_cast_backward")
def _(grad, dtype):
    return grad.to(dtype, copy=True)


@composite("npu_dtype_cast_backward")
def _(grad, dtype, grad_dtype=None, input_dtype=None):
    refuse("npu_dtype_cast_backward", grad_dtype=grad_dtype, input_dtype=input_dtype)
    return grad.to(dtype, copy=True)


@composite("npu_gather_backward")
def _(grad, self_size, dim, index, sparse_grad):
    check(not sparse_grad, "npu_gather_backward", "sparse_grad is True; sparse gradients are not supported")
    return grad.new_zeros(self_size).scatter_add(dim, index.to(torch.int64), grad)


@composite("npu_max_backward", "npu_min_backward")
def _(grad, dim, indices, sizes, keepdim):
    if not keepdim and sizes:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(sizes).scatter(dim, indices.to(torch.int64), grad)


# ---- Products ----


def _matrices(name, *tensors):
    for tensor in tensors:
        check(tensor.dim() >= 2, name, f"a tensor has shape {list(tensor.shape)}, expected 2 dims or more")


@composite("npu_bmm_v2_mat1_backward")
def _(grad, mat1, mat2, size):
    _matrices("npu_bmm_v2_mat1_backward", grad, mat2)
    return torch.matmul(grad, mat2.transpose(-2, -1)).sum_to_size(size).contiguous()


@composite("npu_bmm_v2_mat2_backward")
def _(grad, mat1, mat2, size):
    _matrices("npu_bmm_v2_mat2_backward", grad, mat1)
    return torch.matmul(mat1.transpose(-2, -1), grad).sum_to_size(size).contiguous()


@composite("npu_linear_backward")
def _(grad, input, weight):
    _matrices("npu_linear_backward", grad, input, weight)
    by_row = torch.mm(grad.reshape(-1, grad.size(-1)).t(), input.reshape(-1, input.size(-1)))
    return torch.matmul(grad, weight), by_row


# ---- Activations ----


@composite("npu_mish_backward")
def _(grad, input):
    return aten.mish_backward(grad, input)


@composite("npu_silu_backward")
def _(grad_output, x0, x1):
    return aten.silu_backward(grad_output, x0)


@composite("npu_geglu_grad")
def _(grad_output, input, gelu, dim=-1, approximate=1, activate_left=False):
    name = "npu_geglu_grad"
    check(approximate in (0, 1), name, f"approximate is {approximate}, expected 0 (erf) or 1 (tanh)")
    half_of(name, input, dim)
    check_same(name, grad_output=grad_output, gelu=gelu)
    first, second = input.chunk(2, dim)
    inner, outer = (first, second) if activate_left else (second, first)
    of_inner = aten.gelu_backward(grad_output * outer, inner, approximate="tanh" if approximate else "none")
    of_outer = grad_output * gelu
    return torch.cat([of_inner, of_outer] if activate_left else [of_outer, of_inner], dim)


derivative("npu_geglu", "npu_geglu_grad", "grad input @1 dim approximate activate_left", "input")


@composite("npu_scaled_masked_softmax_backward")
def _(y_grad, y, mask, scale, fixed_triu_mask):
    check_same("npu_scaled_masked_softmax_backward", y=y, y_grad=y_grad)
    if fixed_triu_mask:
        mask = torch.ones(y.shape[-2:], dtype=torch.bool, device=y.device).triu(1)
    weights, grad = y.float(), y_grad.float()
    grad = weights * (grad - (weights * grad).sum(-1, keepdim=True)) * scale
    return grad.masked_fill(mask, 0).to(y.dtype)


# ---- Norms ----


@composite("npu_layernorm_grad")
def _(grad_out, input, normalized_shape, mean, rstd, weight, bias):
    if weight is None:
        weight = input.new_ones(normalized_shape)
    if bias is None:
        bias = torch.zeros_like(weight)
    shape = list(normalized_shape)
    return aten.native_layer_norm_backward(grad_out, input, shape, mean, rstd, weight, bias, [True, True, True])


@composite("npu_add_layer_norm_backward")
def _(dy_opt, x1, x2, rstd, mean, gamma, dsum_opt):
    check_same("npu_add_layer_norm_backward", x1=x1, x2=x2)
    x = x1 + x2
    if dy_opt is None:
        grad = torch.zeros_like(x)
        of_gamma = torch.zeros_like(gamma)
        of_beta = torch.zeros_like(gamma)
    else:
        grad, of_gamma, of_beta = aten.native_layer_norm_backward(
            dy_opt, x, list(gamma.shape), mean, rstd, gamma, torch.zeros_like(gamma), [True, True, True]
        )
    if dsum_opt is not None:
        grad = grad + dsum_opt
    return grad, grad.clone(), of_gamma, of_beta


derivative(
    "npu_add_layer_norm", "npu_add_layer_norm_backward", "grad x1 x2 @2 @1 gamma grad@3", "x1 x2 gamma beta"
)

derivative("npu_deep_norm", "npu_deep_norm_backward", "grad@2 x gx gamma @0 @1 alpha", "x gx beta gamma")


@meta("npu_deep_norm_backward")
def _(dy, x, gx, gamma, mean, rstd, alpha=0.3):
    wide = gamma.new_empty(gamma.shape, dtype=torch.float32)
    return x.new_empty(x.shape), gx.new_empty(gx.shape), wide, torch.empty_like(wide)


def _affine_groups(tensor, groups):
    return tensor.unflatten(1, (groups, -1)).flatten(2).float()


@composite("npu_group_norm_swish_grad")
def _(grad, input, num_groups, weight, bias, mean, rstd, grad_input_mask, swish_scale=1.0):
    name = "npu_group_norm_swish_grad"
    check(input.dim() >= 2 and num_groups > 0, name, f"input has shape {list(input.shape)}")
    check_same(name, input=input, grad=grad)
    batch, channels = input.shape[:2]
    rest = input.shape[2:].numel()
    scale = 1.0 if swish_scale is None else swish_scale
    by_channel = [1, channels, *[1] * (input.dim() - 2)]
    normed = (_affine_groups(input, num_groups) - mean.float().unsqueeze(-1)) * rstd.float().unsqueeze(-1)
    out = normed.reshape(input.shape) * weight.float().view(by_channel) + bias.float().view(by_channel)
    gate = torch.sigmoid(scale * out)
    inner = (grad.float() * gate * (1 + scale * out * (1 - gate))).to(input.dtype)
    sizes = (batch, channels, rest, num_groups)
    return aten.native_group_norm_backward(
        inner.contiguous(), input.contiguous(), mean, rstd, weight, *sizes, [True, True, True]
    )


@composite("npu_renorm_backward")
def _(grad, input, p, dim, maxnorm):
    name = "npu_renorm_backward"
    check(p > 0, name, f"p is {p}, expected a value above 0")
    check_same(name, input=input, grad=grad)
    dims = [each for each in range(input.dim()) if each != dim % input.dim()]
    x, wide = input.float(), grad.float()
    norm = torch.linalg.vector_norm(x, p, dims, keepdim=True)
    # The derivative of the norm; 0 where that is 0.
    slope = x.sign() * (x.abs() / torch.where(norm == 0, torch.ones_like(norm), norm)).pow(p - 1)
    inverse = 1 / (norm + 1e-7)
    inner = (wide * x).sum(dims, keepdim=True)
    shrunk = maxnorm * inverse * (wide - inverse * inner * slope)
    return torch.where(norm > maxnorm, shrunk, wide).to(grad.dtype)


# ---- Losses ----

declare("_softmax_cross_entropy(Tensor input, Tensor labels) -> (Tensor, Tensor)")


@meta("_softmax_cross_entropy")
def _(input, labels):
    check(
        input.dim() >= 1 and input.shape == labels.shape,
        "npu_softmax_cross_entropy_with_logits",
        f"input has shape {list(input.shape)} and labels {list(labels.shape)}",
    )
    return input.new_empty(input.shape[:-1]), input.new_empty(input.shape)


@composite("npu_softmax_cross_entropy_with_logits")
def _(input, labels):
    return ops._softmax_cross_entropy(input, labels)[0]


@composite("npu_softmax_cross_entropy_with_logits_backward")
def _(grad, input, labels):
    return ops._softmax_cross_entropy(input, labels)[1] * grad.unsqueeze(-1)


derivative(
    "npu_softmax_cross_entropy_with_logits",
    "npu_softmax_cross_entropy_with_logits_backward",
    "grad input labels",
    "input",
)


@meta("npu_binary_cross_entropy_with_logits_backward")
def _(grad_output, input, target, weight_opt, pos_weight_opt, reduction):
    return input.new_empty(input.shape)


def _class_weights(input, weight, target, ignore_index):
    """The weight of each sample, 0 for those that count for nothing; the class of each, and the weights of classes."""
    count = input.size(1)
    classes = input.new_ones(count, dtype=torch.float32) if weight is None else weight.float()
    # A target that is no class makes the loss NaN; kernels cannot refuse it.
    is_class = (target >= 0) & (target < count)
    chosen = target.to(torch.int64).clamp(0, max(count - 1, 0))
    of_sample = torch.where(is_class, classes[chosen], torch.full_like(classes[chosen], float("nan")))
    return of_sample.masked_fill(target == ignore_index, 0), chosen, classes


def _check_cross_entropy(name, input, target, reduction, label_smoothing):
    check(input.dim() == 2, name, f"input has shape {list(input.shape)}, expected [samples, classes]")
    check(
        target.shape == input.shape[:1],
        name,
        f"target has shape {list(target.shape)}, expected [{input.size(0)}]",
    )
    check(reduction in ("mean", "sum", "none"), name, f"reduction is '{reduction}', expected mean, sum or none")
    check(0 <= label_smoothing <= 1, name, f"label_smoothing is {label_smoothing}, expected a value from 0 to 1")


declare(
    "_cross_entropy(Tensor input, Tensor target, Tensor? weight, str reduction, int ignore_index, "
    "float label_smoothing) -> (Tensor, Tensor)"
)


@meta("_cross_entropy")
def _(input, target, weight, reduction, ignore_index, label_smoothing):
    _check_cross_entropy("npu_cross_entropy_loss", input, target, reduction, label_smoothing)
    return input.new_empty([input.size(0) if reduction == "none" else 1]), input.new_empty(input.shape)


def _reduced(values, weights, reduction):
    if reduction == "none":
        return values
    return values.sum(0, keepdim=True) / (weights.sum() if reduction == "mean" else 1)


@composite("npu_cross_entropy_loss")
def _(
    input, target, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0,
    lse_square_scale_for_zloss=0.0, return_zloss=False,
):  # fmt: skip
    loss, log_prob = ops._cross_entropy(input, target, weight, reduction, ignore_index, label_smoothing)
    none = input.new_empty([0], dtype=torch.float32)
    if lse_square_scale_for_zloss == 0 and not return_zloss:
        return loss, log_prob, none.to(input.dtype), none
    lse = torch.logsumexp(input.float(), -1)
    of_sample, _, _ = _class_weights(input, weight, target, ignore_index)
    zloss = (lse_square_scale_for_zloss * lse.square()).masked_fill(target == ignore_index, 0)
    zloss = _reduced(zloss, of_sample, reduction)
    return (loss.float() + zloss).to(loss.dtype), log_prob, zloss.to(input.dtype), lse


declare(
    "_cross_entropy_grad(Tensor grad_loss, Tensor log_prob, Tensor target, Tensor? weight, str reduction, "
    "int ignore_index, float label_smoothing) -> Tensor"
)


@meta("_cross_entropy_grad")
def _(grad_loss, log_prob, target, weight, reduction, ignore_index, label_smoothing):
    _check_cross_entropy("npu_cross_entropy_loss_backward", log_prob, target, reduction, label_smoothing)
    return log_prob.new_empty(log_prob.shape)


@composite("npu_cross_entropy_loss_backward")
def _(
    grad_loss, log_prob, target, weight=None, grad_zloss=None, lse_for_zloss=None, reduction="mean", ignore_index=-100,
    label_smoothing=0.0, lse_square_scale_for_zloss=0.0,
):  # fmt: skip
    refuse("npu_cross_entropy_loss_backward", grad_zloss=grad_zloss)
    grad = ops._cross_entropy_grad(grad_loss, log_prob, target, weight, reduction, ignore_index, label_smoothing)
    if lse_square_scale_for_zloss == 0:
        return grad
    check(lse_for_zloss is not None and lse_for_zloss.numel() > 0 or log_prob.numel() == 0,
          "npu_cross_entropy_loss_backward", "lse_square_scale_for_zloss needs lse_for_zloss")  # fmt: skip
    of_sample, _, _ = _class_weights(log_prob, weight, target, ignore_index)
    slope = (2 * lse_square_scale_for_zloss * lse_for_zloss).masked_fill(target == ignore_index, 0) * grad_loss.float()
    if reduction == "mean":
        slope = slope / of_sample.sum()
    return (grad.float() + slope.unsqueeze(-1) * log_prob.float().exp()).to(grad.dtype)


derivative(
    "npu_cross_entropy_loss",
    "npu_cross_entropy_loss_backward",
    "grad @1 target weight - @3 reduction ignore_index label_smoothing lse_square_scale_for_zloss",
    "input",
)
