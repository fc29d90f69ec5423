# SPDX-License-Identifier: Apache-2.0
"""A first script: a linear model is trained, captured and replayed, with streams and events."""

import copy

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
