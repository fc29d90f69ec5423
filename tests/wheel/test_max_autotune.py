# SPDX-License-Identifier: Apache-2.0
"""torch.compile with the published package's torchair and its default mode, max-autotune: the graph engine.

The global options of the first graph hold for the process, so that all tests here leave them as they are by default.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_npu  # noqa: F401
from torch import nn
from torch_npu.dynamo import torchair


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()
    torch.manual_seed(3)
    yield
    torch._dynamo.reset()


class Counting:
    """The backend, and how often it compiled."""

    def __init__(self, config=None):
        self.compile = torchair.get_npu_backend(compiler_config=config)
        self.count = 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        return self.compile(*args, **kwargs)


def compiled(model, dynamic=False, config=None):
    return torch.compile(model, backend=Counting(config), dynamic=dynamic, fullgraph=True)


def config_of(**experimental):
    config = torchair.CompilerConfig()
    for name, value in experimental.items():
        setattr(config.experimental_config, name, value)
    return config


def equal(result, expected, bound=1e-5):
    torch.testing.assert_close(
        torch.utils._pytree.tree_map(lambda x: x.detach().cpu(), result),
        torch.utils._pytree.tree_map(lambda x: x.detach().cpu(), expected), rtol=bound, atol=bound)


class Mlp(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(width, 32), nn.Linear(32, width), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.second(torch.relu(self.first(x))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(16, 5))

    def forward(self, x):
        return F.log_softmax(self.body(x), dim=-1)


class Block(nn.Module):
    """What a layer of a decoder does."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(q @ k.transpose(-1, -2) * 8 ** -0.5, -1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(x)))


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.head = nn.Embedding(50, 16), nn.Embedding(20, 16), nn.Linear(16, 50)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return torch.topk(self.head(torch.tanh(x).mean(1)), 3)


def tokens(*shape):
    return torch.randint(0, 50, shape).npu()


def numbers(*shape):
    return torch.randn(shape).npu()


MODELS = {
    "mlp": (Mlp, numbers, [(4, 16), (4, 16), (7, 16), (2, 16)]),
    "cnn": (Cnn, numbers, [(2, 3, 8, 8), (2, 3, 8, 8), (3, 3, 8, 8), (4, 3, 8, 8)]),
    "block": (Block, numbers, [(2, 5, 16), (2, 5, 16), (2, 7, 16), (3, 4, 16)]),
    "embeddings": (Embeddings, tokens, [(2, 5), (2, 5), (3, 7), (4, 9)]),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", MODELS)
def test_inference(name, dynamic):
    make, inputs, shapes = MODELS[name]
    model = make().eval().npu()
    backend = Counting()
    step = torch.compile(model, backend=backend, dynamic=dynamic, fullgraph=True)
    count = None
    with torch.no_grad():
        for shape in shapes if dynamic else shapes[:2]:
            x = inputs(*shape)
            equal(step(x), model(x))
            count = count or backend.count
    assert backend.count == count


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_training(dynamic):
    models = [Mlp().npu()]
    models.append(copy.deepcopy(models[0]))
    steps = [models[0], compiled(models[1], dynamic)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    for rows in (4, 4, 6) if dynamic else (4, 4, 4):
        x, wanted = numbers(rows, 16), numbers(rows, 16)
        losses = []
        for step, optimizer in zip(steps, optimizers):
            optimizer.zero_grad()
            losses.append(F.mse_loss(step(x), wanted))
            losses[-1].backward()
            optimizer.step()
        equal(losses[1], losses[0])
    equal(dict(models[1].named_parameters()), dict(models[0].named_parameters()))


def test_convolutions_train():
    """Without a batch norm in training: the package's conversion of it takes two pairs of results for each other."""
    models = [nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3, stride=2),
                            nn.Flatten(), nn.LogSoftmax(-1)).npu()]
    models.append(copy.deepcopy(models[0]))
    steps = [models[0], compiled(models[1])]
    x = numbers(2, 3, 8, 8)
    for _ in range(2):
        for step in steps:
            F.nll_loss(step(x), torch.tensor([1, 2]).npu()).backward()
    for name, parameter in models[0].named_parameters():
        equal(models[1].get_parameter(name).grad, parameter.grad, 1e-4)


@pytest.mark.parametrize("options", [{}, {"enable_ref_data": True}, {"keep_inference_input_mutations": False}], ids=str)
def test_buffers_written_in_place(options):
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("rows", torch.zeros(6, 4))
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.rows.mul_(0.5).add_(x)
            self.count.add_(1)
            return self.rows.sum(0) + self.count

    models = [Cache().npu(), Cache().npu()]
    step = compiled(models[1], config=config_of(**options))
    with torch.no_grad():
        for _ in range(3):
            x = numbers(6, 4)
            equal(step(x), models[0](x))
            equal(dict(models[1].named_buffers()), dict(models[0].named_buffers()))


@pytest.mark.parametrize("options", [
    {"frozen_parameter": True}, {"memory_efficiency": True}, {"enable_view_optimize": False}, {"tiling_schedule_optimize": True},
    {"topology_sorting_strategy": "BFS"}, {"topology_sorting_strategy": "RDFS"}, {"topology_sorting_strategy": "StableRDFS"},
    {"static_model_ops_lower_limit": 2}, {"npu_fx_pass": True}, {"remove_noop_ops": False}], ids=str)
def test_options(options):
    model = Block().eval().npu()
    step = compiled(model, config=config_of(**options))
    with torch.no_grad():
        for _ in range(3):
            x = numbers(2, 5, 16)
            equal(step(x), model(x))


def test_gelu_is_the_one_by_tanh():
    """The package's converter leaves out how it is approximated, so that the graph has the operator's own way."""
    x = numbers(3, 40)
    equal(compiled(F.gelu)(x), F.gelu(x.cpu(), approximate="tanh"))


def test_two_models_take_turns():
    models = [Mlp().eval().npu(), Block().eval().npu()]
    steps = [compiled(model) for model in models]
    with torch.no_grad():
        for _ in range(3):
            for model, step in zip(models, steps):
                x = numbers(2, 5, 16)
                equal(step(x), model(x))


def test_dropout():
    def drop(x):
        return F.dropout(x, 0.25, training=True)

    step = compiled(drop)
    x = torch.ones(100, 100).npu()
    results = [step(x).cpu() for _ in range(2)]
    for result in results:
        assert set(result.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
        assert abs((result == 0).float().mean().item() - 0.25) < 0.03
    assert not torch.equal(*results)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_other_types(dtype):
    model = Block().eval().npu().to(dtype)
    step = compiled(model)
    x = numbers(2, 5, 16).to(dtype)
    with torch.no_grad():
        equal(step(x), model(x), 2e-2)


def test_inputs_that_are_views():
    def both(x, y):
        return torch.cat([x.transpose(0, 1), y[:, 1:]]).sum(-1), x.t(), y

    step = compiled(both)
    x, y = numbers(3, 8)[:, ::2], numbers(4, 4)
    equal(step(x, y), both(x, y))


def test_tensors_of_the_host():
    def scaled(x, scale):
        return x * scale + scale

    step = compiled(scaled)
    for scale in (2.0, 3.0):
        x, s = numbers(3, 4), torch.tensor(scale)
        equal(step(x, s), scaled(x, s))


def test_another_graph_runs_on_a_stream():
    model = Mlp().eval().npu()
    step = compiled(model)
    stream = torch.npu.Stream()
    x = numbers(4, 16)
    torch.npu.synchronize()
    with torch.no_grad(), torch.npu.stream(stream):
        for _ in range(2):
            result = step(x)
    stream.synchronize()
    equal(result, model(x))


def test_graphs_are_dumped(tmp_path):
    config = torchair.CompilerConfig()
    config.debug.graph_dump.type = "pbtxt"
    config.debug.graph_dump.path = str(tmp_path)
    x = numbers(3, 4)
    equal(compiled(lambda x: torch.relu(x) + 1, config=config)(x), torch.relu(x) + 1)
    texts = {path.name.split("_graph_")[0]: path.read_text() for path in tmp_path.glob("*.pbtxt")}
    assert {"dynamo_original", "dynamo_optimized"} <= set(texts), texts.keys()
    assert '"Relu"' in texts["dynamo_optimized"]


@pytest.mark.parametrize("in_place", (False, True))
def test_a_convolution_that_keeps_its_last_tokens(in_place):
    def step(x, weight, states, starts, lines):
        if in_place:
            torch.ops.npu.npu_fused_causal_conv1d_v2(x, weight, states, query_start_loc=starts, cache_indices=lines)
            return x * 2
        return torch_npu.npu_fused_causal_conv1d(x, weight, states, query_start_loc=starts, cache_indices=lines) * 2

    x, weight, states = (torch.randn(*shape).half().npu() for shape in ((7, 128), (3, 128), (4, 2, 128)))
    numbers = [torch.tensor(values, dtype=torch.int32).npu() for values in ((0, 3, 7), (2, 0))]
    model, eager, kept = compiled(step), states.clone(), states.clone()
    for _ in range(2):
        expected = step(x.clone(), weight, eager, *numbers)
        equal(model(x.clone(), weight, kept, *numbers), expected, 0)
        assert torch.equal(kept.cpu(), eager.cpu()) and not torch.equal(kept.cpu(), states.cpu())
