# SPDX-License-Identifier: Apache-2.0
"""nn.LSTM and nn.GRU: without gradients one operator of the device, else steps; the results are those of the CPU."""
import copy
import json

import pytest
import torch
from torch import nn
from torch.profiler import profile

DEVICE = "npu"
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU}
SHAPES = {
    "plain": {}, "batch first": {"batch_first": True}, "no bias": {"bias": False}, "layers": {"num_layers": 3},
    "both directions": {"bidirectional": True, "num_layers": 2, "batch_first": True},
    "dropout, which eval leaves out": {"num_layers": 2, "dropout": 0.5},
}


def flat(result):
    output, states = result
    return [output, *(states if isinstance(states, tuple) else [states])]


def compare(ours, expected, **bounds):
    for mine, wanted in zip(flat(ours), flat(expected), strict=True):
        assert mine.shape == wanted.shape and mine.stride() == wanted.stride()
        torch.testing.assert_close(mine.cpu(), wanted, **bounds)


def operators(call):
    """How many operators the device ran."""
    with profile() as events:
        call()
        torch.npu.synchronize()
    return [event.name for event in events.events() if event.name.startswith("aten::")]


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_networks_without_gradients(kind, shape, context):
    torch.manual_seed(1)
    module = KINDS[kind](6, 19, **SHAPES[shape]).eval()
    ours = copy.deepcopy(module).to(DEVICE)
    x = torch.randn(5, 3, 6)
    directions = module.num_layers * (2 if module.bidirectional else 1)
    batch = x.shape[0 if module.batch_first else 1]
    state = torch.randn(directions, batch, 19)
    states = (state, state * 2) if kind == "lstm" else state
    moved = tuple(s.to(DEVICE) for s in states) if kind == "lstm" else states.to(DEVICE)
    with context():
        compare(ours(x.to(DEVICE)), module(x), rtol=1e-5, atol=1e-5)
        compare(ours(x.to(DEVICE), moved), module(x, states), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype, bound", [(torch.float16, 5e-3), (torch.bfloat16, 4e-2), (torch.float64, 1e-12)])
@pytest.mark.parametrize("kind", KINDS)
def test_types(kind, dtype, bound):
    torch.manual_seed(2)
    module = KINDS[kind](6, 9, 2).to(dtype).eval()
    x = torch.randn(4, 3, 6).to(dtype)
    with torch.no_grad():
        ours = copy.deepcopy(module).to(DEVICE)(x.to(DEVICE))
        expected = module.double()(x.double())
        for mine, wanted in zip(flat(ours), flat(expected), strict=True):
            assert mine.dtype == dtype
            torch.testing.assert_close(mine.cpu().double(), wanted, rtol=bound, atol=bound)


@pytest.mark.parametrize("kind", KINDS)
def test_one_operator_or_steps(kind):
    module = KINDS[kind](6, 9).to(DEVICE)
    x = torch.randn(8, 3, 6, device=DEVICE)
    cell = f"aten::_thnn_fused_{kind}_cell"
    with torch.no_grad():
        names = operators(lambda: module(x))
        assert f"aten::{kind}" in names and not any(cell in name for name in names)
    assert sum(cell in name for name in operators(lambda: module(x))) >= 8  # somebody may ask for gradients


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_operator_does_not_have(kind):
    torch.manual_seed(3)
    x = torch.randn(4, 3, 6)
    with torch.no_grad():
        if kind == "lstm":  # a hidden state that is narrower than the cell state
            module = nn.LSTM(6, 9, proj_size=4)
            compare(copy.deepcopy(module).to(DEVICE)(x.to(DEVICE)), module(x), rtol=1e-4, atol=1e-5)
        module = KINDS[kind](6, 9, 2)
        packed = nn.utils.rnn.pack_padded_sequence(x, [4, 2, 1])
        expected = nn.utils.rnn.pad_packed_sequence(module(packed)[0])[0]
        ours = nn.utils.rnn.pad_packed_sequence(copy.deepcopy(module).to(DEVICE)(packed.to(DEVICE))[0])[0]
        torch.testing.assert_close(ours.cpu(), expected, rtol=1e-4, atol=1e-5)
        on_device = copy.deepcopy(module).to(DEVICE)
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            autocast = on_device(x.to(DEVICE))[0]
        torch.testing.assert_close(autocast.float().cpu(), module(x)[0], rtol=0.1, atol=0.05)
        empty = on_device(x[:, :0].to(DEVICE))[0]
        assert empty.shape == (4, 0, 9)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_in_training_drops(kind):
    torch.manual_seed(4)
    module = KINDS[kind](6, 64, 2, dropout=0.5).to(DEVICE)
    x = torch.randn(4, 3, 6, device=DEVICE)
    with torch.no_grad():
        assert not torch.equal(module(x)[0], module(x)[0])
        module.eval()
        assert torch.equal(module(x)[0], module(x)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_behind_calls_without(kind):
    torch.manual_seed(5)
    module = KINDS[kind](6, 9, 2, bidirectional=True)
    ours = copy.deepcopy(module).to(DEVICE)
    x = torch.randn(4, 3, 6)
    for network, data in ((module, x), (ours, x.to(DEVICE))):
        with torch.no_grad():
            network(data)
        (network(data)[0] ** 2).sum().backward()
    for mine, wanted in zip(ours.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), wanted.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_captured_networks_equal_eager_ones(kind):
    torch.manual_seed(6)
    module = KINDS[kind](24, 40, 2, batch_first=True).to(DEVICE)
    x = torch.randn(3, 5, 24, device=DEVICE)
    with torch.no_grad():
        module(x)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            captured = module(x)
        for turn in range(6):
            x.copy_(torch.randn(3, 5, 24))
            if turn == 4:  # a graph may keep weights in a form of its own until then
                for parameter in module.parameters():
                    parameter.mul_(0.5)
            graph.replay()
            for mine, wanted in zip(flat(captured), flat(module(x)), strict=True):
                assert torch.equal(mine, wanted)


@pytest.mark.parametrize("steps", [1, 5, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_captured_networks_are_one_task_for_all_steps(kind, steps, tmp_path):
    module = KINDS[kind](6, 19, num_layers=2, bidirectional=True).to(DEVICE).eval()
    x, graph = torch.ones(steps, 3, 6, device=DEVICE), torch.npu.NPUGraph()
    with torch.no_grad(), torch.npu.graph(graph):
        module(x)
    graph.debug_dump(str(tmp_path / "graph.json"))
    tasks = [task["name"] for task in json.loads((tmp_path / "graph.json").read_text(encoding="utf-8"))]
    # Of each layer and direction: the product of all inputs, and the steps.
    assert tasks.count(f"aten::{kind}") == 2 * 2 * 2, tasks


@pytest.mark.parametrize("kind", KINDS)
def test_maps_and_modes_see_steps(kind):
    torch.manual_seed(7)
    module = KINDS[kind](6, 9).to(DEVICE)
    x = torch.randn(4, 3, 6, device=DEVICE)
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad():
        expected = module(x)[0]
        traced = make_fx(lambda y: module(y)[0])(x)
        assert torch.equal(traced(x), expected) or torch.allclose(traced(x), expected, atol=1e-5)
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            assert module(mode.from_tensor(x))[0].shape == expected.shape
