# SPDX-License-Identifier: Apache-2.0
"""torchair's own mode through the published package: its graphs, compiled and run by the graph engine, give what the CPU
gives."""

import copy

import pytest
import torch
import torch_npu  # noqa: F401
from torch import nn
from torch_npu.dynamo import torchair
from torch_npu.dynamo.torchair.inference import set_dim_gears


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Sum(nn.Module):
    def forward(self, x, y):
        return torch.relu(x @ y + 1.0) * 2


def mlp():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1))


def compiled(module, dynamic=False, **experimental):
    config = torchair.CompilerConfig()
    for name, value in experimental.items():
        setattr(config.experimental_config, name, value)
    backend = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(copy.deepcopy(module).npu(), backend=backend, dynamic=dynamic, fullgraph=True)


@pytest.mark.parametrize("experimental", [{}, {"frozen_parameter": True}, {"memory_efficiency": True}], ids=str)
def test_static(experimental):
    model = mlp()
    run = compiled(model, **experimental)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(5, 8)
            torch.testing.assert_close(run(x.npu()).cpu(), model(x), rtol=1e-4, atol=1e-5)


def test_dynamic():
    model = Sum()
    run = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (4, 6, 9, 4):
            x, y = torch.randn(rows, 8), torch.randn(8, 3)
            torch.testing.assert_close(run(x.npu(), y.npu()).cpu(), model(x, y), rtol=1e-4, atol=1e-5)


def test_size_as_an_input():
    class Cut(nn.Module):
        def forward(self, x, n):
            return x[:, :n] + n

    run = compiled(Cut(), dynamic=True)
    x = torch.randn(5, 8)
    for n in (3, 4, 5):
        torch.testing.assert_close(run(x.npu(), n).cpu(), x[:, :n] + n)


def test_gears():
    class Shift(nn.Module):
        def forward(self, x):
            return torch.relu(x + 1)

    run = compiled(Shift())
    for rows in (2, 4, 2):
        x = torch.randn(rows, 8)
        on_device = x.npu()
        set_dim_gears(on_device, {0: [2, 4]})
        torch.testing.assert_close(run(on_device).cpu(), torch.relu(x + 1))


def test_input_that_is_written():
    class Write(nn.Module):
        def forward(self, x, y):
            x.add_(y)
            return x * 2

    x, y = torch.randn(4), torch.randn(4)
    on_device = x.npu()
    out = compiled(Write())(on_device, y.npu())
    torch.testing.assert_close(on_device.cpu(), x + y)
    torch.testing.assert_close(out.cpu(), (x + y) * 2)


def test_training():
    model = mlp()
    on_device = copy.deepcopy(model).npu()
    run = torch.compile(on_device, backend=torchair.get_npu_backend(compiler_config=torchair.CompilerConfig()))
    x = torch.randn(5, 8)
    run(x.npu())[:, 0].sum().backward()
    model(x)[:, 0].sum().backward()
    for one, other in zip(on_device.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-5)
