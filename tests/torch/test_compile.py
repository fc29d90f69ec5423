# SPDX-License-Identifier: Apache-2.0
"""torch.compile: with the default backend, as graphs (reduce-overhead), and with backends that generate no code.

Each program of the default backend is compiled as C++ for half a minute, unless its cache has it: REPRISE_TEST_FORM=full
also compiles the convolutional net, and sizes that change.
"""
import os

import pytest
import torch
import torch.nn.functional as F
from support import Gate, output_of
from torch import nn

FULL = os.environ.get("REPRISE_TEST_FORM") == "full"
WARM = 4  # steps: the first compiles, the second captures, the others replay


@pytest.fixture(autouse=True)
def compiled_anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.second_norm(x))


def conv_net():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )


def mlp():
    return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))


MODELS = {"mlp": (mlp, (2, 5, 16)), "block": (Block, (2, 5, 16)), "conv": (conv_net, (2, 3, 12, 12))}


def trains_like_the_cpu(name, shapes=(), **options):
    """Losses, weights and buffers of some steps agree with those of the uncompiled model on the CPU."""
    make, shape = MODELS[name]
    expected, model = make(), make()
    model.load_state_dict(expected.state_dict())
    model = model.npu()
    compiled = torch.compile(model, **options)
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (expected, model)]
    for size in shapes or [shape] * WARM:
        x = torch.randn(size)
        results = []
        for run, value, optimizer in ((expected, x, optimizers[0]), (compiled, x.npu(), optimizers[1])):
            value.requires_grad_()
            result = run(value)
            result.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            results.append((result.detach().cpu(), value.grad.cpu()))
        torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)
    states = [each.state_dict() for each in (expected, model)]
    for key, value in states[0].items():
        torch.testing.assert_close(states[1][key].cpu(), value, rtol=1e-3, atol=1e-4)


COMPILED = list(MODELS) if FULL else ["mlp"]  # half a minute of compiling for the others


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(
    "options",
    [{"backend": "eager"}, {"backend": "aot_eager"}, {"backend": "aot_eager", "fullgraph": True}],
    ids=["eager", "aot_eager", "fullgraph"],
)
def test_a_model_trains(name, options):
    trains_like_the_cpu(name, **options)


@pytest.mark.parametrize("name", COMPILED)
def test_a_model_trains_compiled(name):
    trains_like_the_cpu(name)


@pytest.mark.parametrize("options", [{"backend": "aot_eager"}] + [{}] * FULL)
def test_sizes_may_change(options):
    trains_like_the_cpu("block", shapes=[(2, 5, 16), (3, 7, 16), (4, 3, 16)], dynamic=True, **options)


@pytest.fixture
def graphs(monkeypatch):
    """The functions that have become graphs, one entry for each capture; any that gives up fails the test."""
    from torch_npu.npu import _inductor_graphs

    recorded, given_up = [], []
    plain = _inductor_graphs._Recorded.__init__

    def record(self, function, *others):
        recorded.append(function)
        plain(self, function, *others)

    monkeypatch.setattr(_inductor_graphs._Recorded, "__init__", record)
    monkeypatch.setattr(_inductor_graphs._log, "warning", lambda *words: given_up.append(words))
    yield recorded
    assert not given_up


@pytest.mark.parametrize("name", COMPILED)
def test_a_model_trains_as_graphs(name, graphs):
    trains_like_the_cpu(name, mode="reduce-overhead", fullgraph=True)
    assert len(set(graphs)) == 2, "forward and backward"


def test_what_cannot_be_a_graph_runs_without(monkeypatch):
    from torch_npu.npu import _inductor_graphs

    why = []
    monkeypatch.setattr(_inductor_graphs._log, "warning", lambda *words: why.append(words[-1]))

    def work(x, y):
        return x * 2, y + 1

    compiled = torch.compile(work, mode="reduce-overhead")
    x, y = torch.ones(4, device="npu"), torch.ones(4)
    for _ in range(WARM):
        torch.testing.assert_close(compiled(x, y), work(x, y))
    assert why and all("several devices: cpu, npu:0" in each for each in why)


def test_results_of_graphs_stay_and_inputs_are_read_anew(graphs):
    def work(x, table):
        table.add_(1)  # where it is: at the same address each time
        return x * 2 + table, x.shape[0]

    compiled = torch.compile(work, mode="reduce-overhead")
    table = torch.zeros(4, device="npu")
    inputs = [torch.full((3, 4), float(i), device="npu") for i in range(6)]
    results = [compiled(x, table)[0] for x in inputs]
    for step, result in enumerate(results):
        torch.testing.assert_close(result, inputs[step] * 2 + step + 1)
    assert table.tolist() == [6.0] * 4
    assert len(graphs) == 1


def fused(x):
    return (x * 2 + 1).relu().sum(-1)


def test_compiled_kernels_are_tasks_of_the_current_stream():
    compiled = torch.compile(fused)
    x = torch.randn(3, 8, device="npu")
    torch.testing.assert_close(compiled(x), fused(x))
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    y = torch.zeros(3, 8, device="npu")
    torch.npu.synchronize()
    with torch.npu.stream(side), Gate(side) as gate:
        y.fill_(3)
        result = compiled(y)  # behind what the gate holds back
        assert not side.query()
        gate.open()
        assert result.tolist() == [7.0 * 8] * 3


def test_compiled_kernels_are_captured(tmp_path):
    compiled = torch.compile(fused)
    x = torch.randn(3, 8, device="npu")
    compiled(x)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = compiled(x)
    for _ in range(2):
        x.copy_(torch.randn(3, 8))
        graph.replay()
        torch.testing.assert_close(y, fused(x))
    graph.debug_dump(str(tmp_path / "graph.json"))
    assert "npu_fused" in (tmp_path / "graph.json").read_text()


@pytest.mark.parametrize("transposed", [lambda x: x.t().argmax(), lambda x: (x.t() + 1).argmin()])
def test_positions_are_those_of_the_tensor(transposed):
    x = torch.randn(5, 7, device="npu")
    assert torch.compile(transposed)(x) == transposed(x)


def test_scalars_of_the_host_are_read_at_the_call():
    compiled = torch.compile(lambda x, by: x * by + 1)
    x = torch.ones(8, device="npu")
    by = torch.tensor(3.0)
    with Gate() as gate:
        result = compiled(x, by)
        by.fill_(9)
        gate.open()
    assert result.tolist() == [4.0] * 8


def test_an_index_out_of_range_is_an_exception():
    compiled = torch.compile(lambda table, index: table[index] * 2)
    table = torch.randn(10, 4, device="npu")
    index = torch.tensor([1, 2, 3], device="npu")
    torch.testing.assert_close(compiled(table, index), table[index] * 2)
    with pytest.raises(RuntimeError, match="index out of bounds"):
        compiled(table, index * 10)
        torch.npu.synchronize()
    torch.testing.assert_close(compiled(table, index), table[index] * 2)


def test_random_numbers_differ_from_run_to_run():
    compiled = torch.compile(lambda x: F.dropout(x, 0.5) * 2)
    x = torch.ones(1000, device="npu")
    first, second = compiled(x), compiled(x)
    assert not torch.equal(first, second)
    assert 300 < int((first == 0).sum()) < 700


def test_what_is_not_there_says_so():
    x = torch.randn(3, 8, device="npu")
    with pytest.raises(Exception, match="leave cpp_wrapper off"):
        torch.compile(fused, options={"cpp_wrapper": True})(x)


def test_a_device_that_is_not_the_current_one():
    said = output_of(
        """
        import torch

        def work(x, by):
            return (x * by + 1).relu().sum(-1)

        for mode in ("default", "reduce-overhead"):
            torch._dynamo.reset()
            compiled = torch.compile(work, mode=mode)
            with torch.inference_mode():
                for step in range(4):
                    x, by = torch.randn(3, 8, device="npu:1"), torch.full((8,), float(step), device="npu:1")
                    result = compiled(x, by)
                    assert result.device == x.device and torch.npu.current_device() == 0
                    torch.testing.assert_close(result, work(x, by))
        print("right")
        """,
        REPRISE_DEVICES=2,
    )
    assert said == "right"
