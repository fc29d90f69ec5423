# SPDX-License-Identifier: Apache-2.0
"""A first script: a linear model is trained, captured and replayed, with streams and events."""

import copy

import pytest
import torch
from torch import nn


def small_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def test_trains_as_the_cpu_does():
    torch.manual_seed(1)
    x, y = torch.randn(5, 8), torch.randn(5, 4)
    losses = {}
    for device in ("cpu", "npu"):
        model = copy.deepcopy(small_model()).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses[device] = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = ((model(x.to(device)) - y.to(device)) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    torch.testing.assert_close(losses["npu"], losses["cpu"], rtol=1e-5, atol=1e-6)


def test_a_graph_replays_what_was_captured():
    model = small_model().npu()
    x = torch.randn(5, 8).npu()
    graph = torch.npu.NPUGraph()
    with torch.no_grad():
        model(x)
        torch.npu.synchronize()
        with torch.npu.graph(graph):
            y = model(x)
        for seed in range(3):
            torch.manual_seed(seed)
            value = torch.randn(5, 8)
            x.copy_(value)
            graph.replay()
            torch.npu.synchronize()
            assert torch.equal(y.cpu(), model(value.npu()).cpu())


def test_streams_and_events_order():
    side = torch.npu.Stream()
    begin, end = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
    x = torch.zeros(1000).npu()
    begin.record()
    x += 1
    end.record()
    with torch.npu.stream(side):
        side.wait_event(end)
        y = x * 2
    torch.npu.current_stream().wait_stream(side)
    y += 1
    torch.npu.synchronize()
    assert begin.elapsed_time(end) >= 0
    assert torch.equal(y.cpu(), torch.full((1000,), 3.0))


# Networks that the package gives to the device as one operator (LSTM of one layer and direction), layer by layer by type
# (other LSTM, bfloat16), or step by step (GRU).
RECURRENT = (("LSTM", {}), ("LSTM", {"batch_first": True}), ("LSTM", {"num_layers": 2, "bidirectional": True}),
             ("LSTM", {"num_layers": 2, "bias": False, "batch_first": True}), ("GRU", {}),
             ("GRU", {"num_layers": 2, "bidirectional": True}))


def gradients_of(network, data, states):
    y, states = network(data, states) if states else network(data)
    states = states if isinstance(states, tuple) else (states,)
    (y.square().sum() + sum(s.square().sum() for s in states)).backward()
    return [y, *states, data.grad, *(p.grad for p in network.parameters())]


def compare_with_the_cpu(here, x, states=()):
    there = copy.deepcopy(here).npu()
    moved, *others = (t.detach().npu().requires_grad_() for t in (x, *states))
    expected = gradients_of(here, x, states)
    rough = x.dtype != torch.float32
    for mine, value in zip(gradients_of(there, moved, tuple(others)), expected, strict=True):
        torch.testing.assert_close(mine.cpu(), value, rtol=0.02 if rough else 1e-4, atol=0.05 if rough else 1e-5)
    for mine, value in zip(others, states, strict=True):
        torch.testing.assert_close(mine.grad.cpu(), value.grad, rtol=0.02 if rough else 1e-4, atol=0.05 if rough else 1e-5)


@pytest.mark.parametrize("kind, settings", RECURRENT, ids=[f"{kind}-{len(more)}" for kind, more in RECURRENT])
def test_recurrent_networks_train_as_on_the_cpu(kind, settings):
    torch.manual_seed(2)
    compare_with_the_cpu(getattr(nn, kind)(5, 6, **settings), torch.randn(3, 4, 5, requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_lstm_of_every_type_with_states(dtype, layers):
    """No layers: one cell."""
    torch.manual_seed(4)
    shape = (4, 6) if layers == 0 else (layers * 2, 4, 6)
    states = tuple(torch.randn(shape).to(dtype).requires_grad_() for _ in range(2))
    x = torch.randn((4, 5) if layers == 0 else (3, 4, 5)).to(dtype).requires_grad_()
    network = nn.LSTMCell(5, 6) if layers == 0 else nn.LSTM(5, 6, layers, bidirectional=True)
    compare_with_the_cpu(network.to(dtype), x, states)


@pytest.mark.parametrize("settings", [{}, {"num_layers": 2}, {"num_layers": 2, "bidirectional": True}])
def test_packed_sequences_of_an_lstm(settings):
    """The package loses the gradients of the last states of the direction that begins at the end."""
    torch.manual_seed(3)
    here = nn.LSTM(5, 6, **settings)
    there = copy.deepcopy(here).npu()
    x, lengths = torch.randn(3, 4, 5), [3, 2, 2, 1]
    results = []
    for network, data in ((here, x), (there, x.npu())):
        y, (h, c) = network(nn.utils.rnn.pack_padded_sequence(data, lengths))
        y, _ = nn.utils.rnn.pad_packed_sequence(y)
        y.square().sum().backward()
        results.append([y, h, c, *(p.grad for p in network.parameters())])
    for mine, expected in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine.cpu(), expected, rtol=1e-4, atol=1e-5)
