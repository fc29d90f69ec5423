# SPDX-License-Identifier: Apache-2.0
"""What calls give and refuse where kernels, Meta kernels and the CPU could each have a view of their own."""
import warnings

import pytest
import torch
import torch.nn.functional as F

NPU = "npu"


def to(device, value):
    """The same values on a device, lying as they do."""
    if isinstance(value, (list, tuple)):
        return type(value)(to(device, each) for each in value)
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value  # numbers of the host stay there
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device).copy_(value)


def both(call, *arguments):
    """The results of a call on the CPU and on npu, which have to be equal."""
    torch.npu.synchronize()
    expected = call(*to("cpu", arguments))
    actual = call(*to(NPU, arguments))
    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)
    assert actual.device.type == NPU
    return actual, expected


def refused(call, *arguments, match=None):
    """Both refuse, with an exception that comes from the call; none is left for the next synchronisation."""
    for device in ("cpu", NPU):
        with pytest.raises((RuntimeError, IndexError, TypeError), match=match):
            call(*to(device, arguments))
    torch.npu.synchronize()


def ramp(*shape, dtype=torch.float32):
    return torch.arange(1, torch.Size(shape).numel() + 1).reshape(shape).to(dtype)


# ---- Numbers of the host ----

HOST = torch.tensor(2.5)
NUMBERS_OF_HOST = {
    "masked_fill": lambda x: x.masked_fill(x > 3, HOST),
    "masked_fill_": lambda x: x.clone().masked_fill_(x > 3, torch.tensor(2)),
    "copysign": lambda x: torch.copysign(x, -HOST),
    "copysign-first": lambda x: torch.copysign(-HOST, x),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([1], device=x.device), HOST),
    "clamp": lambda x: x.clamp(HOST, torch.tensor(4.0)),
    "clamp-min": lambda x: x.clamp(min=HOST),
    "clamp_": lambda x: x.clone().clamp_(max=HOST),
    "logical_and": lambda x: torch.logical_and(HOST, x),
    "where": lambda x: torch.where(x > 2, HOST, x),
    "fmod": lambda x: torch.fmod(x, HOST),
    "xlogy": lambda x: torch.xlogy(HOST, x),
    "assign": lambda x: x.clone().index_put_((x > 2,), HOST),
    "of a wider type": lambda x: x * torch.tensor(2.0, dtype=torch.float64),
}


@pytest.mark.parametrize("name", NUMBERS_OF_HOST)
def test_numbers_of_the_host_are_operands(name):
    both(NUMBERS_OF_HOST[name], ramp(2, 3))


def test_a_number_of_the_host_cannot_be_written(npu):
    number = torch.tensor(1.0)
    with pytest.raises(RuntimeError, match="same device"):
        number.masked_fill_(torch.tensor(True, device=NPU), 5.0)
    with pytest.raises(RuntimeError):
        torch.add(torch.ones((), device=NPU), 1, out=number)
    npu.synchronize()
    assert number.item() == 1.0


# ---- Refused at the call ----

X, XI = ramp(2, 3), ramp(2, 3, dtype=torch.int64)
REFUSED = {
    "std of integers": (lambda x: x.std(), XI),
    "var of integers": (lambda x: x.var(0), XI),
    "mm of other sizes": (torch.mm, X, ramp(4, 5)),
    "matmul of other sizes": (torch.matmul, X, ramp(4)),
    "bmm of other sizes": (torch.bmm, ramp(1, 2, 3), ramp(1, 4, 5)),
    "addmm of other sizes": (torch.addmm, ramp(2, 2), X, ramp(4, 5)),
    "addmm on other sizes": (torch.addmm, ramp(3, 3), X, ramp(3, 5)),
    "mm of two types": (torch.mm, X, ramp(3, 2, dtype=torch.float64)),
    "bmm of two types": (torch.bmm, ramp(1, 2, 3), ramp(1, 3, 2, dtype=torch.float64)),
    "mv of two types": (torch.mv, X, ramp(3, dtype=torch.float64)),
    "linear of other sizes": (F.linear, X, ramp(5, 4)),
    "conv of two types": (F.conv2d, ramp(1, 2, 3, 3), ramp(2, 2, 2, 2).half()),
    "max of nothing": (torch.max, torch.zeros(0, 3)),
    "min of nothing": (torch.min, torch.zeros(0)),
    "median of nothing": (lambda x: x.median(0), torch.zeros(0, 3)),
    "mode of nothing": (lambda x: x.mode(), torch.zeros(3, 0)),
    "kthvalue of nothing": (lambda x: x.kthvalue(1), torch.zeros(3, 0)),
    "amax of another type": (lambda x: torch.amax(x, 0, out=torch.empty(3, device=x.device).half()), X),
    "any as numbers": (lambda x: torch.any(x, 0, out=torch.empty(3, device=x.device).int()), X),
    "tril of another type": (lambda x: torch.tril(x, out=torch.empty(2, 3, device=x.device).half()), X),
    "softmax of another type": (lambda x: torch.softmax(x, 0, out=torch.empty(2, 3, device=x.device).half()), X),
    "copy_ of other sizes": (lambda x: x.copy_(ramp(3, 3).to(x.device)), X),
    "copy_ of more dimensions": (lambda x: x[0].copy_(x), X),
    "copy_ of nothing": (lambda x: x.copy_(x[:0]), X),
    "copy_ to nothing": (lambda x: x[:0, 0].copy_(x[0]), X),
    "copy_ of the host to nothing": (lambda x: x[:0, 0].copy_(ramp(3)), X),
    "copy_ that overlaps": (lambda x: x[0, 1:].copy_(x[0, :-1]), X),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_the_call(name):
    call, *arguments = REFUSED[name]
    refused(call, *arguments)


EXPANDED = {
    "add_": lambda e, x: e.add_(x),
    "copy_": lambda e, x: e.copy_(x),
    "copy_ from the host": lambda e, x: e.copy_(x.cpu()),
    "relu_": lambda e, x: e.relu_(),
    "hardtanh_": lambda e, x: F.hardtanh_(e),
    "floor_divide_": lambda e, x: e.floor_divide_(x),
    "put_": lambda e, x: e.put_(torch.tensor([0], device=e.device), x[0, :1]),
    "masked_scatter_": lambda e, x: e.masked_scatter_(x > 2, x),
    "cumsum_": lambda e, x: e.cumsum_(0),
    "addmm_": lambda e, x: e.addmm_(x[:, :2], x),
    "out=": lambda e, x: torch.mul(x, x, out=e),
    "uniform_": lambda e, x: e.uniform_(),
    "fill_ with a tensor": lambda e, x: e.fill_(x[0, 0]),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_expanded_tensors_are_not_written(name):
    for device in ("cpu", NPU):
        x = X.to(device)
        expanded = ramp(1, 3).to(device).expand(2, 3)
        with pytest.raises(RuntimeError, match="single memory location|more than one element"):
            EXPANDED[name](expanded, x)
        torch.npu.synchronize()
        assert expanded.cpu().equal(ramp(1, 3).expand(2, 3))


def test_one_value_can_be_written_to_expanded_tensors():
    for fill in (lambda x: x.fill_(7), lambda x: x.zero_()):
        both(lambda x: fill(x.expand(2, 3)), ramp(1, 3))


# ---- Values ----

@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_medians_of_expanded_tensors(name):
    """Which the CPU gets wrong."""
    x = torch.randn(4, 3, 2).unsqueeze(3).expand(4, 3, 2, 5)
    values, indices = getattr(torch, name)(to(NPU, x.contiguous())[..., :1].expand(x.shape), -1)
    assert values.cpu().equal(x[..., 0])
    assert ((0 <= indices) & (indices < 5)).all()


NAN = torch.full((2, 2), float("nan"))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, n: torch.addmm(m, n, m, alpha=0),
        lambda m, n: torch.addmm(n, n, m, alpha=0, beta=0),
        lambda m, n: torch.addmv(m[0], n, m[0], alpha=0),
        lambda m, n: torch.addmm(n, m, m, beta=0),
        lambda m, n: m.clone().addmm_(n, m, alpha=0),
    ],
)
def test_products_that_count_for_nothing(call):
    both(call, ramp(2, 2), NAN)


def test_sums_as_small_integers():
    both(lambda x: torch.sum(x, 0, out=torch.empty((), dtype=torch.uint8, device=x.device)), ramp(300))
    both(lambda x: torch.sum(x, 0, dtype=torch.int8), ramp(300))
    both(lambda x: torch.sum(x, 0, out=torch.empty((), dtype=torch.uint8, device=x.device)), ramp(300).long())


@pytest.mark.parametrize("value", [3e38, 1e25, 1e-25, 1e-42])
def test_norms_of_very_large_and_small_numbers(value):
    for p in (1, 2, 3, float("inf"), 0.5):
        both(lambda x: torch.linalg.vector_norm(x, p, dim=1), torch.full((2, 4), value))
    both(lambda x: F.normalize(x, dim=1), torch.full((2, 4), value))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["batch", "instance", "batch without weights"])
def test_norms_of_channels_train_in_16_bits(dtype, kind):
    def gradients(device):
        torch.manual_seed(3)
        made = {
            "batch": lambda: torch.nn.BatchNorm2d(3),
            "instance": lambda: torch.nn.InstanceNorm2d(3, affine=True),
            "batch without weights": lambda: torch.nn.BatchNorm2d(3, affine=False),
        }[kind]()
        made = made.to(device=device, dtype=dtype)
        x = torch.randn(4, 3, 5, 5).to(device=device, dtype=dtype).requires_grad_()
        y = made(x)
        (y * torch.linspace(-1, 2, 300, dtype=dtype).view(4, 3, 5, 5).to(device)).sum().backward()
        running = [b for b in made.buffers() if b.is_floating_point()]
        return [t.detach().cpu() for t in (y, x.grad, *(p.grad for p in made.parameters()), *running)]

    expected = gradients("cpu")
    for actual, wanted in zip(gradients(NPU), expected, strict=True):
        assert actual.dtype == wanted.dtype
        torch.testing.assert_close(actual.float(), wanted.float(), rtol=0.05, atol=0.1)


# ---- torch.compile, vmap ----


class Block(torch.nn.Module):
    """Attention as models write it: heads by views, the result viewed together again."""

    def __init__(self, causal):
        super().__init__()
        self.qkv = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.causal = causal

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (t.view(b, s, 2, 8).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(y.transpose(1, 2).reshape(b, s, 16))


@pytest.mark.parametrize("causal", [False, True])
def test_attention_compiles_with_aot_eager(causal):
    torch.manual_seed(5)
    block = Block(causal)
    x = torch.randn(2, 5, 16)

    def run(block, x):
        x = x.clone().requires_grad_()
        block.zero_grad()
        y = block(x)
        y.square().sum().backward()
        return [t.detach().cpu() for t in (y, x.grad, *(p.grad for p in block.parameters()))]

    expected = run(block, x)
    block = block.to(NPU)
    eager = run(block, x.to(NPU))
    torch._dynamo.reset()
    compiled = run(torch.compile(block, backend="aot_eager"), x.to(NPU))
    for actual, again, wanted in zip(eager, compiled, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(again, wanted, rtol=1e-4, atol=1e-4)


def test_the_result_of_attention_lies_as_the_query():
    q = torch.randn(2, 5, 3, 8).to(NPU)  # batch, position, head
    y = F.scaled_dot_product_attention(*(q.transpose(1, 2),) * 3)
    assert y.transpose(1, 2).is_contiguous()
    y.transpose(1, 2).view(2, 5, 24)  # of one piece


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_one_query(causal):
    q, k = torch.randn(2, 3, 1, 8), torch.randn(2, 3, 6, 8)

    def gradients(q, k):
        q, k = q.detach().requires_grad_(), k.detach().requires_grad_()
        y = F.scaled_dot_product_attention(q, k, k, is_causal=causal)
        y.square().sum().backward()
        return torch.cat([y.flatten(), q.grad.flatten(), k.grad.flatten()])

    both(gradients, q, k)


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (1, 1, 1), (0, None, None)])
def test_vmap_over_attention(in_dims):
    shape = (3, 2, 4, 5, 8)
    q, k, v = (torch.randn(shape if dim is not None else shape[1:]) for dim in in_dims)
    attention = torch.vmap(F.scaled_dot_product_attention, in_dims=in_dims)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the CPU does it one by one
        both(attention, q, k, v)


@pytest.mark.parametrize("last", [False, True])
def test_convolutions_compile_in_both_formats(last):
    torch.manual_seed(6)
    form = torch.channels_last if last else torch.contiguous_format
    layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 1)
    model = torch.nn.Sequential(*layers).to(memory_format=form)
    x = torch.randn(2, 3, 6, 6).contiguous(memory_format=form)
    expected = model(x)
    model.to(NPU)
    torch._dynamo.reset()
    actual = torch.compile(model, backend="aot_eager")(x.to(NPU))
    torch.testing.assert_close(actual.cpu(), expected)
    assert actual.is_contiguous(memory_format=form)


# ---- How results lie ----


def moved_as_it_lies(tensor):
    """On npu, with strides of 0, too."""
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((elements,), (1,), 0).to(NPU).as_strided(tensor.size(), tensor.stride())


OF_TWO = "add sub mul div remainder fmod pow eq lt maximum minimum fmax hypot atan2 copysign xlogy bitwise_and gcd"


@pytest.mark.parametrize("name", OF_TWO.split())
def test_results_of_two_types_lie_as_on_the_cpu(name):
    """An operand that is converted says nothing about the order of dimensions if it was expanded."""
    call = getattr(torch, name)
    pairs = [(torch.float64, torch.float32), (torch.float32, torch.int64), (torch.int64, torch.int32)]
    for wide, narrow in pairs[2 if name in ("bitwise_and", "gcd") else 0 : 1 if name == "hypot" else 3]:
        x = ramp(5, 10, dtype=wide).t()
        expanded = torch.tensor(2).to(narrow).expand(10, 5)
        for other in (expanded, ramp(10, 10, dtype=narrow)[:, ::2], ramp(5, 10, dtype=narrow).t()):
            for first, second in ((x, other), (other, x), (other, other)):
                on_npu = call(moved_as_it_lies(first), moved_as_it_lies(second))
                on_cpu = call(first, second)
                assert on_npu.stride() == on_cpu.stride(), (wide, narrow, first.stride(), second.stride())
                torch.testing.assert_close(on_npu.cpu(), on_cpu)


def test_truth_values_are_not_subtracted_either_way():
    for mask in (ramp(5, 10).t() > 3, torch.tensor(True).expand(10, 5)):
        for x in (ramp(10, 5), ramp(10, 5, dtype=torch.int64)):
            for call in (torch.sub, lambda a, b: torch.sub(b, a), lambda a, b: b.clone().sub_(a)):
                for device in ("cpu", NPU):
                    with pytest.raises(RuntimeError, match="with a bool tensor is not supported"):
                        call(mask if device == "cpu" else moved_as_it_lies(mask), x.to(device))


@pytest.mark.parametrize("conv", ["conv1d", "conv2d", "conv3d", "conv_transpose2d"])
@pytest.mark.parametrize("options", [{}, {"dilation": 2}, {"groups": 2}], ids=["plain", "dilated", "groups"])
def test_convolutions_of_whole_numbers_are_refused_at_the_call_where_the_cpu_refuses(conv, options):
    spatial = int(conv[-2])
    call = getattr(F, conv)
    for dtype in (torch.bool, torch.uint8, torch.int32, torch.int64):
        x = torch.ones(1, 2, *(5,) * spatial).to(dtype)
        w = torch.ones(2, 1 if "groups" in options else 2, *(2,) * spatial).to(dtype)
        try:
            call(x, w, **options)
        except RuntimeError:
            refused(lambda a, b: call(a, b, **options), x, w, match="not implemented for")
        else:
            both(lambda a, b: call(a, b, **options), x, w)
