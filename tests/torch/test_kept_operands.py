# SPDX-License-Identifier: Apache-2.0
"""Captured modules whose weights the graph keeps in other forms: replays give the bits of eager calls, whoever changes
the weights in between."""
import pytest
import torch
import torch_npu
from support import capture

ROWS = 40


@pytest.fixture
def model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(96, 200), torch.nn.ReLU(), torch.nn.Linear(200, 72)).npu()


@pytest.fixture
def convolutions():
    torch.manual_seed(4)
    layers = [torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Conv2d(32, 24, 3)]
    return torch.nn.Sequential(*layers).npu().eval()


def captured(model, x):
    graph = torch.npu.NPUGraph()
    with torch.no_grad():
        model(x)
        out = capture(graph, lambda: model(x))
    return graph, out


def check(graph, out, model, x, replays=1):
    with torch.no_grad():
        expected = model(x)
    for _ in range(replays):
        out.fill_(-1)
        graph.replay()
        assert torch.equal(out.cpu(), expected.cpu())


def test_replays_are_eager_calls(model):
    x = torch.randn(ROWS, 96, device="npu")
    graph, out = captured(model, x)
    for _ in range(6):
        x.copy_(torch.randn(ROWS, 96))
        check(graph, out, model, x, replays=2)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_convolutions(convolutions, layout, dtype):
    model = convolutions.to(dtype=dtype, memory_format=layout)
    x = torch.randn(2, 16, 14, 14, device="npu", dtype=dtype).contiguous(memory_format=layout)
    graph, out = captured(model, x)
    check(graph, out, model, x, replays=6)
    model.load_state_dict({name: value * 1.25 for name, value in model.state_dict().items()})
    check(graph, out, model, x, replays=14)


class Block(torch.nn.Module):
    """Convolutions of one tap, of several, of channels by themselves, and what was there before."""

    def __init__(self, width):
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(width, width, 1, bias=False), torch.nn.BatchNorm2d(width), torch.nn.ReLU6(),
            torch.nn.Conv2d(width, width, 3, padding=1, groups=width), torch.nn.BatchNorm2d(width), torch.nn.ReLU(inplace=True),
            torch.nn.Conv2d(width, width, 3, padding=1, bias=False), torch.nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(x + self.body(x))


@pytest.mark.parametrize("size", [15, 6])
def test_residual_networks(size):
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 48, 3, padding=1), Block(48), torch.nn.MaxPool2d(2), Block(48), Block(48)).npu().eval()
    x = torch.randn(1, 3, size, size, device="npu")
    graph, out = captured(model, x)
    check(graph, out, model, x, replays=8)
    with torch_npu.profiler.profile():  # which shows each task
        check(graph, out, model, x, replays=2)
    x.copy_(torch.randn(1, 3, size, size))
    check(graph, out, model, x, replays=2)
    with torch.no_grad():
        model[1].body[1].running_mean += 0.5
        model[3].body[6].weight *= 1.5
    check(graph, out, model, x, replays=12)


def test_state_is_loaded_between_replays(model):
    x = torch.randn(ROWS, 96, device="npu")
    graph, out = captured(model, x)
    states = [{name: torch.randn_like(value, device="cpu") for name, value in model.state_dict().items()} for _ in range(4)]
    for state in states:
        check(graph, out, model, x, replays=5)
        model.load_state_dict(state)
        check(graph, out, model, x, replays=12)


def test_an_optimizer_steps_between_replays(model):
    x = torch.randn(ROWS, 96, device="npu")
    graph, out = captured(model, x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    check(graph, out, model, x, replays=5)
    for _ in range(25):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        check(graph, out, model, x)


def test_one_weight_under_an_optimizer(model):
    x = torch.randn(ROWS, 96, device="npu")
    graph, out = captured(model, x)
    for step in range(30):
        if step % 5 == 4:
            with torch.no_grad():
                model[2].weight[step % 72, 100] += 1
        check(graph, out, model, x)


def test_parameters_are_replaced(model):
    """A graph reads the memory that was captured, whatever becomes of it: here it is still there."""
    x = torch.randn(ROWS, 96, device="npu")
    graph, out = captured(model, x)
    check(graph, out, model, x, replays=5)
    old = model[0].weight.data
    expected = out.cpu()
    model[0].weight.data = torch.randn_like(old)
    for _ in range(3):
        graph.replay()
        assert torch.equal(out.cpu(), expected)
    old.mul_(2)
    model[0].weight.data = old
    check(graph, out, model, x, replays=3)


def test_graphs_of_one_model(model):
    """Two sizes of one model share its weights, as engines for serving capture them."""
    graphs = []
    for rows in (ROWS, 2 * ROWS):
        x = torch.randn(rows, 96, device="npu")
        graphs.append((*captured(model, x), model, x))
    for _ in range(5):
        for each in graphs:
            check(*each)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5)
    for _ in range(12):
        for each in graphs:
            check(*each)
