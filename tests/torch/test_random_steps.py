# SPDX-License-Identifier: Apache-2.0
"""Random programs, step by step on the CPU and on npu: views of views, work in place, reductions, products, gradients.

A step that the CPU refuses has to be refused at the call here, too, and changes nothing. A failure prints the seed and
the steps so far; REPRISE_TEST_CASES=1 REPRISE_TEST_SEED=17 repeats that one. REPRISE_TEST_FORM=full takes many more.
"""
import os
import random
import warnings

import pytest
import torch

FULL = os.environ.get("REPRISE_TEST_FORM") == "full"
SEED = int(os.environ.get("REPRISE_TEST_SEED", "1"))
PROGRAMS = int(os.environ.get("REPRISE_TEST_CASES", "1000" if FULL else "15"))
STEPS = 40
MOST_ELEMENTS = 600
MOST_TENSORS = 8
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)

# Sums of few numbers of about 1, in different orders.
TOLERANCES = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (1e-4, 1e-4),
    torch.bfloat16: (0.06, 0.06),
    torch.float16: (0.01, 0.01),
    torch.complex64: (1e-4, 1e-4),
}


def overlaps_itself(tensor):
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride()))


class Choice:
    """What a step draws; both sides then do the same."""

    def __init__(self, rng, tensor, may_round):
        self.rng = rng
        self.may_round = may_round
        self.shape = tuple(tensor.shape)
        self.dims = tensor.dim()
        self.dtype = tensor.dtype

    def dim(self):
        return self.rng.randrange(-self.dims, self.dims) if self.dims else 0

    def size(self, dim):
        return self.shape[dim] if self.dims else 1

    def order(self):
        order = list(range(self.dims))
        self.rng.shuffle(order)
        return order

    def number(self):
        return self.rng.choice([-2, -1, 0, 1, 2, 3] if not self.dtype.is_floating_point else [-1.5, -1, 0, 0.5, 2])

    def tensor(self, shape, dtype=None):
        """The same values for each side, from a seed of its own; sometimes permuted or with a step."""
        seed, form = self.rng.randrange(1 << 30), self.rng.randrange(4)
        dtype = dtype or self.dtype

        def make(device):
            g = torch.Generator().manual_seed(seed)
            if form == 1:
                made = values(tuple(reversed(shape)), dtype, g).permute(*reversed(range(len(shape)))).clone()
                made = made.to(device)
            elif form == 2 and shape:
                made = values((*shape[:-1], 2 * shape[-1]), dtype, g).to(device)[..., ::2]
            else:
                made = values(shape, dtype, g).to(device)
            return made

        return make

    def index(self, size, shape):
        seed = self.rng.randrange(1 << 30)

        def make(device):
            g = torch.Generator().manual_seed(seed)
            return torch.randint(max(size, 1), shape, generator=g).to(device)

        return make


def values(shape, dtype, g):
    if dtype == torch.bool:
        return torch.randint(2, shape, generator=g).bool()
    if dtype in (torch.int64, torch.int32, torch.uint8):
        return torch.randint(0 if dtype == torch.uint8 else -4, 5, shape, generator=g).to(dtype)
    return torch.randn(shape, generator=g, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)


# ---- Steps: (name and what was drawn, the call) ----


def step_permute(c):
    order = c.order()
    return f"permute{tuple(order)}", lambda x, d: x.permute(order)


def step_slice(c):
    dim = c.dim()
    size = c.size(dim)
    start, step = c.rng.randrange(size + 1), c.rng.choice([1, 1, 2, 3])
    stop = c.rng.randrange(start, size + 1)

    def call(x, d):
        index = [slice(None)] * x.dim()
        index[dim] = slice(start, stop, step)
        return x[tuple(index)]

    return f"slice({dim}, {start}, {stop}, {step})", call


def step_select(c):
    dim = c.dim()
    at = c.rng.randrange(max(c.size(dim), 1))
    return f"select({dim}, {at})", lambda x, d: x.select(dim, at)


def step_unsqueeze_expand(c):
    dim, size = c.rng.randrange(c.dims + 1), c.rng.choice([1, 2, 3])

    def call(x, d):
        made = x.unsqueeze(dim)
        return made.expand(*(size if i == dim else -1 for i in range(made.dim())))

    return f"unsqueeze_expand({dim}, {size})", call


def step_reshape(c):
    cut = c.rng.randrange(c.dims + 1)
    return f"reshape({cut})", lambda x, d: x.reshape(*x.shape[:cut], -1) if x.numel() else x


def step_diagonal(c):
    offset = c.rng.choice([-1, 0, 1])
    return f"diagonal({offset})", lambda x, d: x.diagonal(offset, 0, -1)


def step_unfold(c):
    dim, size, step = c.dim(), c.rng.choice([1, 2, 3]), c.rng.choice([1, 2])
    return f"unfold({dim}, {size}, {step})", lambda x, d: x.unfold(dim, size, step)


def step_flip(c):
    dim = c.dim()
    return f"flip({dim})", lambda x, d: x.flip(dim)


def step_roll(c):
    dim, by = c.dim(), c.rng.randrange(-3, 4)
    return f"roll({by}, {dim})", lambda x, d: x.roll(by, dim)


def step_clone(c):
    kind = c.rng.choice(["clone", "contiguous", "t", "double", *(["float", "half", "long"] if c.may_round else [])])
    if kind == "t":
        return "mT.contiguous", lambda x, d: x.mT.contiguous()
    return kind, lambda x, d: getattr(x, kind)()


UNARY = "abs neg sin cos tanh sigmoid sign square floor trunc exp isnan isfinite logical_not sgn relu".split()


def step_unary(c):
    name = c.rng.choice(UNARY)
    return name, lambda x, d: getattr(torch, name)(x)


BINARY = "add sub mul maximum minimum eq lt ge ne logical_and logical_xor atan2 div true_divide fmod remainder".split()


def step_binary(c):
    name = c.rng.choice(BINARY)
    # Of the same sizes, of one that broadcasts, or of one that may not fit.
    shape = c.rng.choice([c.shape, tuple(1 if c.rng.random() < 0.5 else n for n in c.shape), c.shape[-1:], (2,)])
    other = c.tensor(shape, c.rng.choice([None, None, torch.float32, torch.int64]))
    if name in ("fmod", "remainder", "div", "true_divide"):
        return f"{name}({list(shape)})", lambda x, d: getattr(torch, name)(x, other(d).abs().to(torch.float32) + 0.5)
    return f"{name}({list(shape)})", lambda x, d: getattr(torch, name)(x, other(d))


def step_number_of_host(c):
    name = c.rng.choice(["add", "mul", "maximum", "lt", "copysign", "logical_or", "atan2"])
    value = torch.tensor(c.number())
    return f"{name}(cpu {value})", lambda x, d: getattr(torch, name)(x, value)


def step_reduce(c):
    name = c.rng.choice(["sum", "mean", "amax", "amin", "prod", "any", "all", "argmax", "std", "logsumexp", "norm"])
    keep = c.rng.random() < 0.5
    if c.rng.random() < 0.3 and name not in ("logsumexp", "argmax"):
        return f"{name}()", lambda x, d: getattr(torch, name)(x)
    dim = c.dim()
    return f"{name}({dim}, {keep})", lambda x, d: getattr(torch, name)(x, dim=dim, keepdim=keep)


def step_values_of_dim(c):
    name, dim = c.rng.choice(["max", "min", "median", "mode", "cummax", "sort"]), c.dim()
    return f"{name}({dim})", lambda x, d: getattr(torch, name)(x, dim=dim)[0]


def step_scan(c):
    name, dim = c.rng.choice(["cumsum", "cumprod", "softmax", "log_softmax"]), c.dim()
    return f"{name}({dim})", lambda x, d: getattr(torch, name)(x, dim)


def step_where(c):
    condition, other = c.tensor(c.shape, torch.bool), c.tensor(c.shape)
    return "where", lambda x, d: torch.where(condition(d), x, other(d))


def step_cat(c):
    dim, other = c.dim(), c.tensor(c.shape)
    name = c.rng.choice(["cat", "stack"])
    return f"{name}({dim})", lambda x, d: getattr(torch, name)([x, other(d), x], dim)


def step_matmul(c):
    inner = c.shape[-1] if c.dims else 1
    if c.rng.random() < 0.1:
        inner += 1  # refused
    shape = c.rng.choice([(inner, 3), (inner,), (*c.shape[:-2], inner, 2)])
    other = c.tensor(shape)
    return f"matmul({list(shape)})", lambda x, d: torch.matmul(x, other(d))


def step_linear(c):
    inner = c.shape[-1] if c.dims else 1
    weight, bias = c.tensor((4, inner)), c.tensor((4,))
    return "linear", lambda x, d: torch.nn.functional.linear(x, weight(d), bias(d))


def step_layer_norm(c):
    last = c.shape[-1:]
    weight = c.tensor(last)
    return "layer_norm", lambda x, d: torch.nn.functional.layer_norm(x, last, weight(d))


def step_conv(c):
    channels = c.shape[1] if c.dims > 1 else 1
    last = c.rng.random() < 0.5
    weight = c.tensor((2, channels, 2, 2))

    def call(x, d):
        if x.dim() != 4:
            raise ValueError("not for these")
        return torch.nn.functional.conv2d(x.contiguous(memory_format=torch.channels_last) if last else x, weight(d))

    return f"conv2d({last})", call


def step_pad(c):
    pad = tuple(c.rng.choice([-1, 0, 1, 2]) for _ in range(2 * min(c.dims, 2)))
    return f"pad{pad}", lambda x, d: torch.nn.functional.pad(x, pad, value=1)


def step_index_select(c):
    dim = c.dim()
    index = c.index(c.size(dim), (3,))
    return f"index_select({dim})", lambda x, d: x.index_select(dim, index(d))


def step_gather(c):
    dim = c.dim()
    index = c.index(c.size(dim), c.shape)
    return f"gather({dim})", lambda x, d: x.gather(dim, index(d))


def step_mask(c):
    mask = c.tensor(c.shape, torch.bool)
    return "x[mask]", lambda x, d: x[mask(d)]


def step_triangle(c):
    name, k = c.rng.choice(["tril", "triu"]), c.rng.choice([-1, 0, 1])
    return f"{name}({k})", lambda x, d: getattr(torch, name)(x, k)


def step_add_(c):
    name = c.rng.choice(["add_", "sub_", "mul_", "copy_"])
    shape = c.rng.choice([c.shape, c.shape[-1:], (1,), (2,)])
    other = c.tensor(shape, c.rng.choice([None, None, torch.int64, torch.float64]))
    return f"{name}({list(shape)})", lambda x, d: getattr(x, name)(other(d))


def step_number_(c):
    name, value = c.rng.choice(["add_", "mul_", "fill_", "clamp_", "zero_"]), c.number()
    if name == "zero_":
        return name, lambda x, d: x.zero_()
    return f"{name}({value})", lambda x, d: getattr(x, name)(value)


def step_unary_(c):
    name = c.rng.choice(["neg_", "abs_", "sigmoid_", "relu_", "square_", "sin_"])
    return name, lambda x, d: getattr(x, name)()


def step_masked_fill_(c):
    mask, value = c.tensor(c.shape, torch.bool), c.number()
    of_host = c.rng.random() < 0.5
    return (
        f"masked_fill_({value}, {of_host})",
        lambda x, d: x.masked_fill_(mask(d), torch.tensor(value) if of_host else value),
    )


def step_assign(c):
    dim = c.dim()
    at, value = c.rng.randrange(max(c.size(dim), 1)), c.number()

    def call(x, d):
        x.select(dim, at).fill_(value)
        return x

    return f"select({dim}, {at}).fill_({value})", call


def step_copy_of_itself(c):
    order = c.order()
    return f"copy_(permute{tuple(order)})", lambda x, d: x.copy_(x.permute(order))


def step_scatter_(c):
    dim = c.dim()
    index, source = c.index(c.size(dim), c.shape), c.tensor(c.shape)
    name = c.rng.choice(["scatter_add", "scatter"])
    if name == "scatter":  # twice to one place: any of them
        value = c.number()
        return f"scatter_({dim}, {value})", lambda x, d: x.scatter_(dim, index(d), value)
    return f"scatter_add_({dim})", lambda x, d: x.scatter_add_(dim, index(d), source(d))


def step_addmm_(c):
    if c.dims != 2:
        return step_binary(c)
    a, b = c.tensor((c.shape[0], 3)), c.tensor((3, c.shape[1]))
    return "addmm_", lambda x, d: x.addmm_(a(d), b(d))


STEPS_OF = {name[5:]: f for name, f in list(globals().items()) if name.startswith("step_")}
# What the CPU does where elements share memory, and its results then depend on the order of its loops; its medians of
# such tensors are wrong.
NOT_ON_OVERLAPS = ("addmm_", "scatter_", "assign", "number_", "masked_fill_", "values_of_dim")


# What the device's operators take and those of the CPU refuse.
ONLY_HERE = ["\"abs_cpu\" not implemented for 'Bool'"]


def differ(name, x, y):
    """Why the tensor of npu is not that of the CPU; "" if it is."""
    if x.shape != y.shape or x.dtype != y.dtype:
        return f"{name}: {x.dtype}{list(x.shape)} instead of {y.dtype}{list(y.shape)}"
    rtol, atol = TOLERANCES.get(y.dtype, (0, 0))
    try:
        torch.testing.assert_close(x.detach().cpu(), y.detach(), rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        return f"{name}: {error}"
    return ""


def run_program(seed, dtype, with_gradients):
    rng = random.Random(seed)
    g = torch.Generator().manual_seed(seed)
    shapes = [(2, 3, 4, 4), (3, 4), (4, 4), (5,), (2, 3, 4)]
    lines = []
    leaves, pool = [], []
    for shape in shapes:
        leaf = values(shape, dtype, g)
        pair = leaf, leaf.to("npu")
        if with_gradients:
            pair = tuple(each.requires_grad_() for each in pair)
            leaves.append(pair)
            pair = tuple(each * 1 for each in pair)
        pool.append(pair)
    for _ in range(STEPS):
        at = rng.randrange(len(pool))
        on_cpu, on_npu = pool[at]
        name = rng.choice(list(STEPS_OF))
        text, call = STEPS_OF[name](Choice(rng, on_cpu, not with_gradients))
        if overlaps_itself(on_cpu) and name in NOT_ON_OVERLAPS:
            continue
        lines.append(f"{at}: {on_cpu.dtype}{list(on_cpu.shape)}{list(on_cpu.stride())}.{text}")
        where = "\n".join([f"seed {seed}, {dtype}", *lines])
        refused = None
        try:
            expected = call(on_cpu, "cpu")
        except REFUSALS as error:
            refused = error
        try:
            actual = call(on_npu, "npu")
        except REFUSALS as error:
            assert refused is not None, f"{where}\nnpu refuses: {error}"
            actual = None
        try:
            torch.npu.synchronize()
        except RuntimeError as error:
            raise AssertionError(f"{where}\nfound late: {error}") from None
        if refused is not None:
            if str(refused) in ONLY_HERE:
                continue
            assert actual is None, f"{where}\nthe CPU refuses: {refused}"
            lines[-1] += "  # refused"
            continue
        if differs := differ(text, actual, expected):
            raise AssertionError(f"{where}\n{differs}")
        if not with_gradients and expected.is_floating_point():
            with torch.no_grad():  # so that roundings do not add up
                if not overlaps_itself(actual) and torch.isfinite(expected).all():
                    actual.copy_(expected)
                    expected.copy_(expected.clone())
        if expected.numel() > MOST_ELEMENTS or expected.dim() > 5 or expected.numel() == 0:
            continue
        if expected.is_floating_point() and not (expected.detach().abs().max() < 1e3):
            continue  # grows without bound, or is not a number
        if len(pool) < MOST_TENSORS:
            pool.append((expected, actual))
        else:
            pool[rng.randrange(MOST_TENSORS)] = expected, actual
    where = "\n".join([f"seed {seed}, {dtype}", *lines])
    for number, (x, y) in enumerate(pool):  # views see what was done in place to what they are parts of
        if differs := differ(f"tensor {number}", y, x):
            raise AssertionError(f"{where}\n{differs}")
    if with_gradients:
        check_gradients(leaves, pool, where)


def check_gradients(leaves, pool, where):
    gradients = []
    for side in (0, 1):
        parts = [pair[side] for pair in pool if pair[0].requires_grad and pair[0].is_floating_point()]
        if not parts:
            return
        total = sum(part.double().tanh().sum() for part in parts)
        wanted = [leaf[side] for leaf in leaves]
        try:
            gradients.append(torch.autograd.grad(total, wanted, allow_unused=True))
        except REFUSALS as error:
            gradients.append(error)
    expected, actual = gradients
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        assert isinstance(expected, Exception) and isinstance(actual, Exception), f"{where}\n{expected}\n{actual}"
        return
    for number, (x, y) in enumerate(zip(actual, expected)):
        assert (x is None) == (y is None), where
        if x is not None and torch.isfinite(y).all() and y.abs().max() < 1e6:
            if differs := differ(f"gradient {number}", x, y):
                raise AssertionError(f"{where}\n{differs}")


KINDS = {
    "float32": (torch.float32, False),
    "float64-gradients": (torch.float64, True),
    "int64": (torch.int64, False),
    "float16": (torch.float16, False),
}


@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("kind", KINDS)
def test_random_steps_give_what_they_give_on_the_cpu(kind):
    dtype, with_gradients = KINDS[kind]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(SEED, SEED + PROGRAMS):
                run_program(seed, dtype, with_gradients)
    finally:
        torch.set_num_threads(threads)
