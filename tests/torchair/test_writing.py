# SPDX-License-Identifier: Apache-2.0
"""Programs as people write them, in the orders they come upon, in both modes: results, state and gradients are those of eager
calls."""
import collections
import contextlib
import copy
import dataclasses
import sys

import acl_support
import pytest
import torch
import torch.nn.functional as F
from support_ge import Counting, equal, numbers
from torch import nn
from torchair.configs.compiler_config import CompilerConfig

MODES = ["max-autotune", "npugraph_ex"]
pytestmark = pytest.mark.parametrize("mode", MODES)


def counting(mode):
    config = CompilerConfig()
    config.mode = mode
    return Counting(config)


def compiled(function, mode, dynamic=False):
    return acl_support.compiled(function, dynamic, mode)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.second(F.gelu(self.norm(self.first(x))))


def trained(model, step, optimizer, inputs):
    losses = []
    for x in inputs:
        optimizer.zero_grad()
        loss = step(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, dict(model.named_parameters())


# ---- In which order a program makes model, optimizer, compiled function and device ----


@pytest.mark.parametrize("order", ["optimizer compile to", "compile to optimizer", "to compile optimizer", "compile optimizer to"])
def test_orders_of_preparation(order, mode):
    here = Net()
    wanted = trained(here, here, torch.optim.AdamW(here.parameters(), lr=0.05), [])[1]
    wanted = {name: value.detach().clone() for name, value in wanted.items()}
    model = copy.deepcopy(here)
    parts = {
        "to": lambda made: made.update(model=made["model"].to("npu")),
        "compile": lambda made: made.update(step=compiled(made["model"], mode)),
        "optimizer": lambda made: made.update(optimizer=torch.optim.AdamW(made["model"].parameters(), lr=0.05)),
    }
    made = {"model": model}
    for part in order.split():
        parts[part](made)
    inputs = [torch.randn(5, 6) for _ in range(3)]
    results = trained(made["model"], made["step"], made["optimizer"], [x.npu() for x in inputs])
    expected = trained(here, here, torch.optim.AdamW(here.parameters(), lr=0.05), inputs)
    equal(results, expected, 1e-3)
    assert any(not torch.equal(wanted[name], value) for name, value in expected[1].items())


def test_compiled_in_place_before_the_device(mode):
    model = Net().eval()
    x = torch.randn(4, 6)
    wanted = model(x)
    model.compile(backend=acl_support.backend(mode), dynamic=False, fullgraph=True)
    model.npu()
    equal(model(x.npu()), wanted)


def test_a_method_compiled_with_a_decorator(mode):
    backend = counting(mode)

    class Decorated(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Net()

        @torch.compile(backend=backend, fullgraph=True, dynamic=False)
        def forward(self, x, *, scale=1.0):
            return self.inner(x) * scale

    model = Decorated().npu().eval()
    x = numbers(4, 6)
    equal(model(x, scale=2.0), model.inner(x) * 2)
    assert backend.count == 1


def test_weights_loaded_behind_the_first_call(mode):
    model, other = Net().npu(), Net().npu()
    step, x = compiled(model, mode), numbers(4, 6)
    with torch.no_grad():
        first = step(x).clone()
        model.load_state_dict(other.state_dict())
        second = step(x)
        equal(second, other(x))
        assert not torch.equal(first.cpu(), second.cpu())
        model.first.weight = nn.Parameter(torch.zeros_like(model.first.weight))
        equal(step(x), model(x))


def test_train_and_eval_take_turns(mode):
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Dropout(0.0)).npu()
    other = copy.deepcopy(model)
    step = compiled(model, mode)
    for training in (True, False, True, False):
        model.train(training), other.train(training)
        x = numbers(5, 6)
        equal(step(x), other(x))
        equal(dict(model.named_buffers()), dict(other.named_buffers()))


# ---- What a function refers to ----


def test_closures(mode):
    weight, sizes = numbers(4), [2, 3]

    def make(factor):
        def function(x):
            return x * weight + factor * len(sizes)

        return function

    x = numbers(3, 4)
    for factor in (2.0, 3.0):
        function = make(factor)
        equal(compiled(function, mode)(x), function(x))

    state = {"scale": 2.0}

    def reading(x):
        return x * state["scale"]

    step = compiled(reading, mode)
    for scale in (2.0, 5.0, 2.0):
        state["scale"] = scale
        equal(step(x), x * scale)


def test_a_module_that_is_imported_late(mode, tmp_path, monkeypatch):
    name = f"imported_late_by_{mode.replace('-', '_')}"  # dynamo keeps a module that it has seen under its name
    (tmp_path / f"{name}.py").write_text("import torch\nSCALE = 3.0\n\ndef shift(x):\n    return torch.sin(x) * SCALE\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    space = {}
    exec(f"def function(x):\n    import {name}\n\n    return {name}.shift(x) + 1\n", space)
    step, x = torch.compile(space["function"], backend=acl_support.backend(mode)), numbers(3)
    equal(step(x), torch.sin(x) * 3 + 1)
    sys.modules[name].SCALE = 4.0
    equal(step(x), torch.sin(x) * 4 + 1)
    monkeypatch.delitem(sys.modules, name)


def test_nested_modules_with_hooks(mode):
    seen = []

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(Net(), nn.Linear(3, 6)) for _ in range(2))

        def forward(self, x):
            for block in self.blocks:
                x = x + block(x)
            return x

    model = Outer().npu()
    model.blocks[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model.blocks[1][0].register_forward_hook(lambda module, args, result: torch.tanh(result))
    handle = model.blocks[1][1].register_forward_hook(lambda module, args, kwargs, result: result + args[0].sum(), with_kwargs=True)
    model.blocks[0][1].weight.register_hook(lambda gradient: seen.append(1) or gradient * 2)
    other = copy.deepcopy(model)
    other.blocks[0][1].weight.register_hook(lambda gradient: gradient * 2)
    x = numbers(4, 6)
    step = compiled(model, mode)
    for again in (False, True):
        for one, call in ((model, step), (other, other)):
            one.zero_grad()
            call(x).square().mean().backward()
        equal({n: p.grad for n, p in model.named_parameters()}, {n: p.grad for n, p in other.named_parameters()}, 1e-3)
        assert len(seen) == 1 + again
    handle.remove()
    other.blocks[1][1]._forward_hooks.clear()
    equal(step(x), other(x))


# ---- Sizes ----


def test_sizes_that_dynamo_finds_out_to_change(mode):
    backend = counting(mode)
    step = torch.compile(lambda x: torch.softmax(x @ x.t(), -1) * x.shape[0], backend=backend, fullgraph=True, dynamic=None)
    for rows in (3, 3, 5, 7, 4):
        x = numbers(rows, 4)
        equal(step(x), torch.softmax(x @ x.t(), -1) * rows)
    assert backend.count == 2


def test_sizes_that_the_program_marks(mode):
    backend = counting(mode)
    model = Net().npu().eval()
    step = torch.compile(model, backend=backend, fullgraph=True)
    for rows in (4, 7, 2, 4):
        x = numbers(rows, 6)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=64)
        equal(step(x), model(x))
    assert backend.count == 1
    x = numbers(9, 6)
    torch._dynamo.mark_static(x, 0)
    equal(step(x), model(x))


def test_numbers_as_arguments(mode):
    step = torch.compile(lambda x, n, f, flag: (x * n + f) if flag else x.repeat(n, 1), backend=acl_support.backend(mode), fullgraph=True)
    x = numbers(2, 3)
    for n, f, flag in ((2, 0.5, True), (3, 0.25, True), (4, 0.125, True), (2, 1.0, False), (5, 1.0, False)):
        equal(step(x, n, f, flag), (x * n + f) if flag else x.repeat(n, 1))


# ---- Contexts ----


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_autocast(where, mode):
    model = Net().npu()
    other = copy.deepcopy(model)

    def inside(one):
        def function(x):
            with torch.autocast("npu", dtype=torch.bfloat16):
                y = one(x)
            return y.float() * 2, y

        return function

    x = numbers(4, 6)
    context = contextlib.nullcontext() if where == "inside" else torch.autocast("npu", dtype=torch.bfloat16)
    results = []
    for one, call in ((model, compiled(inside(model) if where == "inside" else model, mode)), (other, inside(other) if where == "inside" else other)):
        with context:
            result = call(x)
        last = result[1] if where == "inside" else result
        assert last.dtype == torch.bfloat16
        last.float().square().mean().backward()
        results.append((last.float(), {name: each.grad for name, each in one.named_parameters()}))
    equal(*results, 3e-2)
    assert results[0][1]["first.weight"].dtype == torch.float32


def test_contexts_without_gradients(mode):
    model = Net().npu()
    backend = counting(mode)
    step = torch.compile(model, backend=backend, dynamic=False, fullgraph=True)
    x = numbers(4, 6)
    wanted = model(x)
    for context, keeps in ((torch.no_grad, False), (torch.inference_mode, False), (torch.enable_grad, True), (torch.no_grad, False)):
        with context():
            result = step(x)
            assert result.requires_grad == keeps and result.is_inference() == (context is torch.inference_mode)
            equal(result, wanted)
    assert backend.count == 3
    with torch.inference_mode():
        given = x.clone()
    with torch.no_grad():
        equal(step(given), wanted)


def test_no_grad_inside(mode):
    model = Net().npu()

    def function(x):
        with torch.no_grad():
            scale = model(x).abs().mean()
        y = model(x) / scale
        return y, y.detach()

    gradients = []
    for call in (compiled(function, mode), function):
        x = numbers(4, 6).fill_(0.5).requires_grad_()
        model.zero_grad()
        y, loose = call(x)
        assert y.requires_grad and not loose.requires_grad
        y.sum().backward()
        gradients.append((y, x.grad, {name: each.grad.clone() for name, each in model.named_parameters()}))
    equal(*gradients)


# ---- State ----


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("cache", torch.zeros(6, 4), persistent=False)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.count += 1
        self.mean.lerp_(x.mean(0), 0.25)
        self.cache[: x.shape[0]].copy_(x)
        self.cache[1:3].mul_(2)
        return self.cache.sum() + self.mean, self.count


@pytest.mark.parametrize("grad", [False, True])
def test_buffers_written_in_place(mode, grad):
    model, other = Counter().npu(), Counter().npu()
    step = torch.compile(model, backend=acl_support.backend(mode), fullgraph=True)
    mine = {name: each.data_ptr() for name, each in model.named_buffers()}
    with torch.set_grad_enabled(grad):
        for rows in (3, 3, 5, 4):
            x = numbers(rows, 4)
            equal([each.clone() for each in step(x)], [each.clone() for each in other(x)])
            equal(dict(model.named_buffers()), dict(other.named_buffers()))
    assert model.calls == other.calls == 4 and {name: each.data_ptr() for name, each in model.named_buffers()} == mine


def test_arguments_written_in_place(mode):
    def function(x, y, out):
        x[:, 0] = 1
        x.add_(y)
        out.append(x.sum())
        y.view(-1)[2:4].zero_()
        return x.t()

    step = compiled(function, mode)
    for _ in range(2):
        x, y = numbers(3, 4), numbers(3, 4)
        mine, others, lists = (x.clone(), y.clone()), (x.clone(), y.clone()), ([], [])
        result, expected = step(*mine, lists[0]), function(*others, lists[1])
        equal((result, mine, lists[0]), (expected, others, lists[1]))
        assert result.untyped_storage().data_ptr() == mine[0].untyped_storage().data_ptr()


# ---- Arguments and results of other kinds ----


@dataclasses.dataclass
class Given:
    x: torch.Tensor
    scale: float
    mask: torch.Tensor | None = None


@dataclasses.dataclass
class Made:
    total: torch.Tensor
    name: str
    rest: dict


Pair = collections.namedtuple("Pair", "left right")


def test_dataclasses_dictionaries_and_tuples(mode):
    def function(given, *more, key, options=None, **others):
        y = given.x * given.scale
        if given.mask is not None:
            y = y.masked_fill(given.mask, 0.0)
        rest = collections.OrderedDict(pair=Pair(y + 1, others["last"] - 1), more=[each * 2 for each in more], none=None, number=3)
        rest[key] = options["bias"] + y
        return Made(y.sum(), "sum", rest)

    step = compiled(function, mode)
    for mask in (None, torch.tensor([[True, False, True]]).npu()):
        for _ in range(2):
            x, options = numbers(2, 3), {"bias": numbers(3)}
            arguments = (Given(x, 2.0, mask), numbers(2), numbers(1)), dict(key="own", options=options, last=x)
            result, expected = (call(*arguments[0], **arguments[1]) for call in (step, function))
            assert type(result) is Made and result.name == "sum" and list(result.rest) == list(expected.rest)
            assert type(result.rest["pair"]) is Pair and result.rest["number"] == 3 and result.rest["none"] is None
            equal((result.total, dict(result.rest)), (expected.total, dict(expected.rest)))


def test_results_that_are_arguments_or_constants(mode):
    def function(x, y):
        return x, x[1], y, torch.ones(2, device=x.device), 4, None, (y.shape[0], "word")

    step, x, y = compiled(function, mode), numbers(3, 2), numbers(2)
    for _ in range(2):
        result = step(x, y)
        assert result[0] is x and result[2] is y and result[4:] == (4, None, (2, "word"))
        equal(result[1], x[1])
        equal(result[3], torch.ones(2))


def test_a_break_between_two_graphs(mode):
    said = []

    def function(x):
        y = torch.relu(x) * 2
        said.append(y.sum().item() > 0)
        return y - 1 if said[-1] else y + 1

    step = torch.compile(function, backend=acl_support.backend(mode))
    for sign in (1.0, -1.0, 1.0):
        x = numbers(4).abs() * sign
        equal(step(x), torch.relu(x) * 2 - sign)
    assert said == [True, False, True]


# ---- Random numbers ----


def test_random_numbers(mode):
    def function(x):
        return F.dropout(x, 0.5), torch.rand_like(x), torch.randn(4, 50, device=x.device)

    step, x = compiled(function, mode), torch.ones(40, 50).npu()
    torch.npu.manual_seed(5)
    first = [[each.clone() for each in step(x)] for _ in range(2)]
    torch.npu.manual_seed(5)
    again = [[each.clone() for each in step(x)] for _ in range(2)]
    equal(first, again, 0)
    for one, two in zip(*first):
        assert not torch.equal(one.cpu(), two.cpu())
    dropped, uniform, normal = (each.cpu() for each in first[0])
    assert set(dropped.unique().tolist()) == {0.0, 2.0} and 0.4 < (dropped == 0).float().mean() < 0.6
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.05 and abs(normal.std() - 1) < 0.2


def test_dropout_trains_with_one_mask(mode):
    step = compiled(lambda x: F.dropout(x, 0.5) * 3, mode)
    for _ in range(2):
        x = torch.ones(20, 30).npu().requires_grad_()
        y = step(x)
        y.sum().backward()
        equal(x.grad, y)
        assert 0 < (y == 0).sum() < 600
