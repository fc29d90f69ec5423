# SPDX-License-Identifier: Apache-2.0
"""Operators of PyTorch in graphs of the engine: equal to eager ones. Many in one graph, so that few are compiled."""
import pytest
import torch
import torch.nn.functional as F
from support_ge import check, compiled, numbers, tokens


def each(functions, *args):
    return [function(*args) for function in functions]


def whole(text, owner=torch):
    return [getattr(owner, name) for name in text.split()]


def unary(x):
    names = "neg exp sin cos tanh sigmoid erf relu abs floor ceil round trunc sign expm1 reciprocal square log1p exp2 erfc frac isinf " \
        "isnan isfinite logical_not sqrt rsqrt log log2 log10"
    return each(whole(names), x)


def activations(x):
    names = "silu gelu mish hardswish hardsigmoid softplus elu leaky_relu hardtanh relu6 logsigmoid selu celu softsign tanhshrink"
    return [*each(whole(names, F), x), F.gelu(x, approximate="tanh")]


def binary(x, y):
    names = "add sub mul div pow maximum minimum atan2 eq ne gt ge lt le remainder fmod floor_divide logical_and logical_or logical_xor"
    return [*each(whole(names), x, y), torch.add(x, y, alpha=2), 3 - x, x.pow(2), x ** 2.0, x ** 3, 2 ** x, x.round().int().pow(2), torch.lerp(x, y, 0.3), torch.addcmul(x, x, y, value=0.5),
            torch.addcdiv(x, x, y, value=0.5), torch.where(x > y, x, y), x.masked_fill(x > y, -1.0), x.clamp(1.2, 1.5)]


def integers(a, b):
    return [a & b, a | b, a ^ b, ~a, a + 2, a * 2.5, torch.div(a, b, rounding_mode="trunc"), torch.div(a, b, rounding_mode="floor"),
            a % b, (a > 2) ^ (b > 2), a.sum(), a.float().half(), a.to(torch.bfloat16), a.double()]


def reductions(x):
    names = "sum mean prod max min argmax argmin norm"
    return [*each(whole(names), x), x.sum(1), x.mean((0, 1), keepdim=True), x.max(1), x.min(0, keepdim=True), x.argmax(1), x.amax(0),
            x.var(1), x.std(), torch.var_mean(x, 0, correction=0), x.logsumexp(1), (x > 0).all(), (x > 0).any(1), x.cumsum(1), x.norm(dim=1),
            torch.linalg.vector_norm(x, 1), x.softmax(-1), x.log_softmax(0)]


def order(x):
    """TA-084 is in here."""
    return x.topk(2), x.sort(0), x.sort(-1, descending=True), x.argsort(), torch.searchsorted(x.sort(-1)[0], x)


def products(x, y, w, b, q):
    return [x @ y.t(), torch.addmm(b, x, w.t(), beta=0.5, alpha=2), F.linear(q, w, b), q @ q.transpose(1, 2), x @ x[0],
            torch.einsum("bij,bkj->bik", q, q), F.scaled_dot_product_attention(q, q, q), torch.outer(x[0], y[0])]


def shapes(x, y):
    return [x.view(-1), x.reshape(2, 6).t() + 1, x[None].permute(2, 0, 1) * 1, x.unsqueeze(1).squeeze(1) + 0, x[:1].expand(3, 4) + 1,
            x.repeat(2, 1), x.flip(0), x.roll(1, 0), x[1:] + 1, x[:, ::2] * 1, x[:, 1:-1] * 2, x[1] + 1, x[:, -1] * 1,
            [part + 1 for part in x.split(2, 1)], [part + 1 for part in x.unbind(0)], torch.cat([x, y], 1), torch.cat([x, y.half()]),
            torch.stack([x, y], 1), F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 2), value=3.0), F.pad(x, (-1, 0)), x.tril(), x.triu(1),
            F.pad(x[None], (1, 2), mode="reflect"), F.pad(x[None], (1, 2), mode="replicate"), x.as_strided((2, 2), (1, 2), 1) + 1,
            torch.slice_scatter(x, y[:2], 0, 0, 2), torch.slice_scatter(x, y[:2], 0, 0, 3, 2), torch.select_scatter(x, y[0], 0, 1),
            x.diagonal() + 0, x.rot90(), x.tile(2, 2), x.unflatten(1, (2, 2)).permute(1, 0, 2).flatten(1) + 0]


def indexing(x, i, j, w, v):
    rows = torch.arange(3, device=x.device).unsqueeze(1).expand(3, 2)
    return [F.embedding(i, w), x.index_select(1, j), x.gather(1, rows), x[i], x[:, j], x[i, j], x.scatter(1, rows, x), x.scatter(1, rows, 2.0),
            x.scatter_add(1, rows, x), x.index_add(0, i, v), x.index_copy(0, i[:1], v[:1]), torch.index_put(x, (i, j), v[:, 0], accumulate=True),
            F.one_hot(i, 7)]


def scalars(a, i, j, v):
    """Tensors without dims count as one row."""
    return [a.index_fill(0, i, 3.0), a.index_fill(0, j, 3.0), a.index_copy(0, i, a * 2), a.index_add(0, j, a), v.index_fill(0, i, 1.0),
            a.gather(0, i), a.gather(0, j), v.gather(0, i), v.gather(0, j), torch.complex(a, a).real,
            torch._native_batch_norm_legit(v[None, :, None] * 2, v, v, v - 1, v.abs() + 1, False, 0.1, 1e-5)[0]]


def norms(x, w, b):
    image = x.view(2, 3, 2, 2)
    return [F.layer_norm(x, (4,), w, b), F.layer_norm(x, (4,)), F.rms_norm(x, (4,), w), F.group_norm(image, 3),
            F.batch_norm(image, w[:3] + 1, b[:3].abs() + 1, w[:3], b[:3]), F.batch_norm(image.flatten(2), w[:3], b[:3].abs() + 1)]


def windows(x, w, b, t):
    return [F.conv2d(x, w, b, padding=1, stride=2), F.conv1d(x[:, :, 0], w[:, :, 0]), F.conv_transpose2d(x, t, stride=2, padding=1,
            output_padding=1), F.max_pool2d(x, 2, return_indices=True), F.max_pool1d(x[:, :, 0], 2), F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.adaptive_avg_pool2d(x, 2), F.interpolate(x, scale_factor=2)]


def made(x):
    device = x.device
    return [torch.zeros(3, device=device), torch.ones_like(x), torch.full((2,), 7, device=device), torch.arange(x.shape[0], device=device),
            torch.arange(0, 10, 3, device=device), torch.full_like(x, 2.0), x.new_zeros(2, 2), torch.linspace(0, 1, 5, device=device),
            torch.eye(3, device=device), torch.tensor([1.0, 2.0], device=device) * 2]


def volumes(x, w, b, t, g):
    """Over three dims in types that the engine's operator does not take."""
    backward = torch.ops.aten.convolution_backward
    shape = [1, 1, 1], [0, 0, 0], [1, 1, 1]
    y = F.conv3d(x, w)
    return [F.conv3d(x, w, b, padding=(1, 0, 1), stride=(2, 1, 1)), F.conv3d(x, w, dilation=(2, 1, 1), padding=(1, 1, 0)),
            F.conv3d(x, g, groups=2, stride=2), F.conv_transpose3d(x, t, stride=2), F.conv3d(x.bfloat16(), w.bfloat16()).isfinite(),
            F.conv3d(x[0], w), *backward(y, x, w, [6], *shape, False, [0, 0, 0], 1, [True] * 3),
            *backward(F.conv_transpose3d(x, t), x, t, [3], *shape, True, [0, 0, 0], 1, [True] * 3)]


def distances(x, y):
    return [torch.cdist(x, y, p=p, compute_mode=mode) for p in (0.0, 1.0, 2.0, 2.5, float("inf")) for mode in (
        "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")[p != 2.0:]] + [torch.cdist(x[0], x[1])]


def losses(x, y, i):
    return [F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.cross_entropy(x, i), F.huber_loss(x, y),
            F.binary_cross_entropy_with_logits(x, y.sigmoid())]


def lists(x, y):
    return torch._foreach_add([x, y], 2.0), torch._foreach_mul([x, y], [y, x]), torch._foreach_sqrt([x, y])


CASES = {
    "unary": (unary, lambda: (numbers(3, 4).abs() + 1.1,)),
    "activations": (activations, lambda: (numbers(3, 4),)),
    "binary": (binary, lambda: (numbers(3, 4).abs() + 1, numbers(3, 4).abs() + 1)),
    "integers": (integers, lambda: (tokens(50, 6) - 25, tokens(5, 6) + 1)),
    "reductions": (reductions, lambda: (numbers(3, 4),)),
    "order": (order, lambda: (numbers(3, 4),)),
    "products": (products, lambda: (numbers(3, 4), numbers(3, 4), numbers(5, 4), numbers(5), numbers(2, 3, 4))),
    "shapes": (shapes, lambda: (numbers(3, 4), numbers(3, 4))),
    "indexing": (indexing, lambda: (numbers(3, 4), torch.tensor([0, 2, 1]).npu(), torch.tensor([3, 0, 2]).npu(), numbers(7, 4), numbers(3, 4))),
    "scalars": (scalars, lambda: (numbers(), tokens(1), tokens(1, 1), numbers(4))),
    "norms": (norms, lambda: (numbers(6, 4), numbers(4), numbers(4))),
    "windows": (windows, lambda: (numbers(2, 3, 8, 8), numbers(6, 3, 3, 3), numbers(6), numbers(3, 5, 3, 3))),
    "distances": (distances, lambda: (numbers(2, 5, 3), numbers(2, 4, 3))),
    "made": (made, lambda: (numbers(3, 4),)),
    "losses": (losses, lambda: (numbers(3, 4), numbers(3, 4), tokens(4, 3))),
    "lists": (lists, lambda: (numbers(3, 4).abs(), numbers(3, 4).abs())),
}
STATIC_ONLY = {"norms", "indexing"}
ENGINE_ONLY = {"distances"}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_TA_081_equal_to_eager(name, dynamic, monkeypatch):
    function, arguments = CASES[name]
    if name in ENGINE_ONLY:
        monkeypatch.setenv("REPRISE_STRICT", "1")  # nothing is left to PyTorch
    check(function, *arguments(), dynamic=dynamic, bound=1e-3)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_volumes(dynamic, monkeypatch):
    if not dynamic:  # open sizes stay with PyTorch
        monkeypatch.setenv("REPRISE_STRICT", "1")
    arguments = numbers(2, 4, 5, 4, 3), numbers(6, 4, 3, 2, 3), numbers(6), numbers(4, 3, 2, 2, 1), numbers(4, 2, 1, 2, 2)
    check(volumes, *arguments, dynamic=dynamic, bound=1e-3)


def test_unknown_operators_are_named(monkeypatch):
    monkeypatch.setenv("REPRISE_STRICT", "1")
    step = compiled(lambda x: torch.linalg.inv(x))
    with pytest.raises(Exception, match="(?s)linalg_inv.*register_fx_node_ge_converter"):
        step(numbers(3, 3))


def test_whole_numbers_where_floats_are_meant():
    x = tokens(9, 3, 4)
    check(lambda x: [torch.nan_to_num(x), torch.nan_to_num(x, 1.0, 2.0, 3.0), torch.ops.aten.native_dropout_backward(x, x > 4, 1.5)], x)


def test_norms_of_16_bits_whose_powers_are_beyond_their_type():
    x = (numbers(40) * 8).half()
    check(lambda x: [torch.dist(x, x * 0, 4), torch.linalg.vector_norm(x, 5), torch.dist(x, x + 2, 3.5)], x, bound=4e-3)
