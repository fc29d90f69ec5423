# SPDX-License-Identifier: Apache-2.0
"""What the tests of the operators torch_npu.npu_*, torch.ops.npu.* and torch.ops.atb.* need (test_npu_ops_*.py).

A case is a function that makes a call from a source of random tensors, with what plain PyTorch on the CPU gives for it;
all the rest follows from it: the call on the device, on Meta tensors, on fake ones, and captured and replayed with
other values.
"""
import dataclasses
import typing

import torch
import torch_npu
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import rms_norm

HALF = torch.float16
BF16 = torch.bfloat16
F32 = torch.float32
HIDDEN = float("-inf")


@dataclasses.dataclass
class Call:
    """``op(*args, **kwargs)`` gives ``want`` and leaves in its arguments what ``left`` says by place."""

    op: typing.Callable
    args: tuple
    kwargs: dict = dataclasses.field(default_factory=dict)
    want: typing.Any = ()
    left: dict = dataclasses.field(default_factory=dict)
    ignore: tuple = ()  # results that nobody may rely on
    captured: bool = True
    traced: bool = True
    bounds: typing.Any = None  # a type whose rounding is behind all results


class Host:
    """A tensor that stays on the host."""

    def __init__(self, tensor):
        self.tensor = tensor


class Source:
    """Random tensors; the same ones for the same number."""

    def __init__(self, seed, dtype):
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype = dtype

    def __call__(self, *sizes, dtype=None):
        return torch.randn(sizes, generator=self.generator).to(dtype or self.dtype)

    def ints(self, low, high, *sizes, dtype=torch.int32):
        return torch.randint(low, high, sizes, generator=self.generator).to(dtype)

    def shuffled(self, count, dtype=torch.int32):
        return torch.randperm(count, generator=self.generator).to(dtype)


def npu(name):
    return getattr(torch_npu, name)


def norm_of(x, gamma, epsilon=1e-6):
    return rms_norm(x.float(), gamma.shape, gamma.float(), epsilon)


def attend(q, k, v, scale, seen=None, shift=None):
    """One head: [queries, size] and [keys, size]; seen[i, j]: whether query i sees key j."""
    scores = q.float() @ k.float().t() * scale
    if shift is not None:
        scores = scores + shift.float()
    if seen is not None:
        scores = scores.masked_fill(~seen, HIDDEN)
    weights = scores.softmax(-1).nan_to_num(0)
    return weights @ v.float()


def attend_heads(q, k, v, scale, seen=None, shift=None):
    """[queries, heads, size]."""
    group = q.size(1) // k.size(1)
    return torch.stack(
        [attend(q[:, h], k[:, h // group], v[:, h // group], scale, seen, shift) for h in range(q.size(1))], 1
    )


def causal(queries, keys):
    return torch.arange(keys) <= torch.arange(queries).unsqueeze(1) + keys - queries


def quantized(values, limit=127):
    scale = values.float().abs().amax(-1) / limit
    return (values.float() / scale.unsqueeze(-1)).round().to(torch.int8), scale


def turned(x, cos, sin, neighbours=False):
    x = x.float()
    if neighbours:
        other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    else:
        a, b = x.chunk(2, -1)
        other = torch.cat([-b, a], -1)
    return x * cos.float() + other * sin.float()


def pages(g, lengths, heads, size, block=4):
    """Keys in pages: the pages, the table, and the keys of each sequence."""
    most = max(-(-length // block) for length in lengths)
    count = len(lengths) * most + 2
    cache = g(count, block, heads, size)
    table = g.shuffled(count)[: len(lengths) * most].view(len(lengths), most).to(torch.int32)
    rows = [cache[table[i].long()].flatten(0, 1)[:length] for i, length in enumerate(lengths)]
    return cache, table, rows


def mapped(value, change):
    """Tensors of the device replaced; those of the host as they are."""
    if isinstance(value, Host):
        return value.tensor
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return value


def flat(value):
    return [value] if isinstance(value, torch.Tensor) or value is None else list(value)


BOUNDS = {F32: (2e-5, 2e-5), HALF: (4e-3, 4e-3), BF16: (3e-2, 3e-2)}


def check(call, results, args, kwargs):
    wanted = flat(call.want)
    results = flat(results)
    assert len(results) == len(wanted)
    pairs = [(f"result {i}", got, want) for i, (got, want) in enumerate(zip(results, wanted)) if i not in call.ignore]
    for place, want in call.left.items():
        pairs.append((f"argument {place}", kwargs[place] if isinstance(place, str) else args[place], want))
    for what, got, want in pairs:
        if not isinstance(want, torch.Tensor):
            assert got == want, what
            continue
        got = got.cpu()
        assert got.shape == want.shape and got.dtype == want.dtype, (what, got.shape, got.dtype, want.shape, want.dtype)
        if want.dtype == torch.int8:
            # What lies half way between two numbers may go either way.
            difference = (got.int() - want.int()).abs()
            assert difference.numel() == 0 or (difference.max() <= 1 and (difference > 0).float().mean() < 0.02), what
        elif not want.is_floating_point():
            assert torch.equal(got, want), what
        else:
            absolute, relative = BOUNDS[call.bounds or want.dtype]
            torch.testing.assert_close(got, want, atol=absolute, rtol=relative, msg=lambda text: f"{what}: {text}")


def describe(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.stride() if value.numel() > 1 else ()
    return value


def copy_into(to, values):
    if isinstance(to, torch.Tensor):
        if to.device.type == "npu":
            to.copy_(values)
    elif isinstance(to, dict):
        for key in to:
            copy_into(to[key], values[key])
    elif isinstance(to, (list, tuple)):
        for place, value in zip(to, values):
            copy_into(place, value)


def gradients(function, *tensors):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    result = function(*leaves)
    result = result[0] if isinstance(result, tuple) else result
    weight = torch.linspace(-1, 2, result.numel()).view(result.shape).to(result.device, result.dtype)
    (result * weight).sum().backward()
    return [leaf.grad.cpu() for leaf in leaves]


ALL_CASES = {}  # by file and key: those of all files that have been imported


class Cases(dict):
    """The cases of a file by key; the decorator of the functions that make them."""

    def __call__(self, *dtypes):
        def add(function):
            for dtype in dtypes or (F32,):
                key = f"{function.__name__}-{str(dtype)[6:]}"
                assert key not in self, key
                self[key] = ALL_CASES[function.__module__, key] = (function, dtype)
            return function

        return add

    def run(self, key):
        """Eagerly, on Meta and on fake tensors, captured and replayed."""
        build, dtype = self[key]

        def make(seed):
            call = build(Source(seed, dtype))
            return call, mapped(call.args, lambda t: t.npu()), mapped(call.kwargs, lambda t: t.npu())

        call, args, kwargs = make(1)
        results = call.op(*args, **kwargs)
        check(call, results, args, kwargs)
        described = [describe(result) for result in flat(results)]

        if call.traced:
            _, args, kwargs = make(1)
            metas = mapped(args, lambda t: t.to("meta")), mapped(kwargs, lambda t: t.to("meta"))
            assert [describe(result) for result in flat(call.op(*metas[0], **metas[1]))] == described
            with FakeTensorMode(allow_non_fake_inputs=True) as mode:
                fakes = mapped(args, mode.from_tensor), mapped(kwargs, mode.from_tensor)
                traced = flat(call.op(*fakes[0], **fakes[1]))
            assert [describe(result) for result in traced] == described
            assert all(result.device.type == "npu" for result in traced if isinstance(result, torch.Tensor))

        if call.captured:
            _, args, kwargs = make(1)
            graph = torch.npu.NPUGraph()
            with torch.npu.graph(graph):
                results = call.op(*args, **kwargs)
            for seed in (2, 3):
                call, new_args, new_kwargs = make(seed)
                copy_into((args, kwargs), (new_args, new_kwargs))
                graph.replay()
                torch.npu.synchronize()
                check(call, results, args, kwargs)


def check_gradients(row):
    """ours, the formula, shapes: gradients of all tensors."""
    ours, formula, shapes = row
    source = Source(5, F32)
    tensors = [source(*shape) for shape in shapes]
    got = gradients(ours, *(tensor.npu() for tensor in tensors))
    for number, (ours_one, want) in enumerate(zip(got, gradients(formula, *tensors))):
        torch.testing.assert_close(ours_one, want, atol=1e-4, rtol=1e-4, msg=lambda text: f"gradient {number}: {text}")
