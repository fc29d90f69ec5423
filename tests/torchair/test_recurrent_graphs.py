# SPDX-License-Identifier: Apache-2.0
"""nn.LSTM and nn.GRU in compiled graphs: layers that PyTorch writes out in steps are the operator that eager calls are."""

import copy

import pytest
import torch
import torch_npu  # noqa: F401
from torch import nn
from torch_npu.dynamo import torchair

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU}


@pytest.fixture(autouse=True)
def networks_are_traced():
    torch._dynamo.reset()
    before, torch._dynamo.config.allow_rnn = torch._dynamo.config.allow_rnn, True
    yield
    torch._dynamo.config.allow_rnn = before


def compiled(module, mode="max-autotune", frozen=False):
    config = torchair.CompilerConfig()
    config.mode = mode
    config.experimental_config.frozen_parameter = frozen
    return torch.compile(module, backend=torchair.get_npu_backend(compiler_config=config), dynamic=False, fullgraph=True)


class Tagger(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.layers = KINDS[kind](6, 19, batch_first=True, **options)
        self.head = nn.Linear(19 * (2 if options.get("bidirectional") else 1), 4)

    def forward(self, x):
        y, last = self.layers(x)
        return self.head(y[:, -1]), y, *(last if isinstance(last, tuple) else [last])


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bias": False}, {"bidirectional": True}])
@pytest.mark.parametrize("kind", KINDS)
def test_layers_are_what_eager_calls_are(kind, options, context):
    torch.manual_seed(1)
    module = Tagger(kind, **options).eval().npu()
    x = torch.randn(3, 5, 6).npu()
    with context():
        expected = module(x)
        step = compiled(module, frozen=not options)
        for _ in range(2):
            for mine, wanted in zip(step(x), expected, strict=True):
                assert torch.equal(mine, wanted) if wanted.dim() == 3 else torch.allclose(mine, wanted, atol=1e-6)


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
@pytest.mark.parametrize("kind", KINDS)
def test_training(kind, mode):
    torch.manual_seed(2)
    module = Tagger(kind)
    ours = copy.deepcopy(module).npu()
    x = torch.randn(3, 4, 6)
    step = compiled(ours, mode)
    for network, data in ((module, x), (step, x.npu())):
        sum((r ** 2).sum() for r in network(data)).backward()
    for mine, wanted in zip(ours.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(mine.grad.cpu(), wanted.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_for_captures(kind):
    torch.manual_seed(3)
    module = Tagger(kind).eval().npu()
    x = torch.randn(3, 4, 6).npu()
    with torch.no_grad():
        step = compiled(module, "reduce-overhead")
        for _ in range(3):
            for mine, wanted in zip(step(x), module(x), strict=True):
                torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)
