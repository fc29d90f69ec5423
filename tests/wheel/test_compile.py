# SPDX-License-Identifier: Apache-2.0
"""torch.compile through the published package: what its backends compile gives what runs without."""

import copy

import pytest
import torch
import torch.nn.functional as F
import torch_npu  # noqa: F401
from torch import nn


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


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


def backend(name):
    if name != "reduce-overhead":
        return name
    from torch_npu.dynamo import torchair

    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    return torchair.get_npu_backend(compiler_config=config)


def block():
    torch.manual_seed(4)
    return Block().npu()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", ["aot_eager", "reduce-overhead", "npugraph_ex"])
def test_inference(name, dynamic):
    model = block()
    compiled = torch.compile(model, backend=backend(name), dynamic=dynamic, fullgraph=True)
    with torch.no_grad():
        for length in (5, 5, 7, 3, 7):
            x = torch.randn(2, length, 16).npu()
            torch.testing.assert_close(compiled(x).cpu(), model(x).cpu(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_training(dynamic):
    model = block()
    losses = {}
    for way in ("eager", "compiled"):
        module = copy.deepcopy(model)
        call = module if way == "eager" else torch.compile(module, backend="aot_eager", dynamic=dynamic)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(3)
        losses[way] = []
        for length in (5, 5, 6):
            x = torch.randn(2, length, 16, generator=generator).npu()
            optimizer.zero_grad()
            loss = call(x).square().mean()
            loss.backward()
            optimizer.step()
            losses[way].append(loss.item())
    torch.testing.assert_close(losses["compiled"], losses["eager"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["reduce-overhead", "npugraph_ex"])
def test_weights_that_change_in_place_are_read_anew(name):
    model = block()
    compiled = torch.compile(model, backend=backend(name))
    x = torch.randn(2, 5, 16).npu()
    with torch.no_grad():
        for factor in (1.0, 0.5):
            model.down.weight.mul_(factor)
            torch.testing.assert_close(compiled(x).cpu(), model(x).cpu(), rtol=1e-5, atol=1e-5)
