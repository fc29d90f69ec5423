# SPDX-License-Identifier: Apache-2.0
"""Networks of convolutions over one to three dims, and transposed ones, in compiled graphs: equal to those of the CPU."""
import copy

import pytest
import torch
from support_ge import compiled
from torch import nn

import torch_npu  # noqa: F401
import torchair


def trained(model):
    """With statistics that a norm has after training."""
    torch.manual_seed(0)
    for each in model.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm):
            each.running_mean.uniform_(-0.5, 0.5)
            each.running_var.uniform_(0.5, 2)
            each.weight.data.uniform_(0.5, 2)
            each.bias.data.uniform_(-0.5, 0.5)
    return model.eval()


def sound():
    return nn.Sequential(nn.Conv1d(5, 24, 5, 2, 2), nn.BatchNorm1d(24), nn.ReLU(), nn.Conv1d(24, 24, 3, padding=2, dilation=2),
                         nn.BatchNorm1d(24), nn.ConvTranspose1d(24, 7, 4, 2, 1))


def video():
    return nn.Sequential(nn.Conv3d(3, 24, 3, 1, 1, bias=False), nn.BatchNorm3d(24), nn.ReLU(inplace=True),
                         nn.Conv3d(24, 24, (1, 3, 3), 2, (0, 1, 1), groups=24), nn.BatchNorm3d(24), nn.SiLU(), nn.Conv3d(24, 40, 1),
                         nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(40, 6))


def generator():
    return nn.Sequential(nn.ConvTranspose2d(20, 48, 4, bias=False), nn.BatchNorm2d(48), nn.ReLU(True),
                         nn.ConvTranspose2d(48, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
                         nn.ConvTranspose2d(32, 32, 3, 2, 1, output_padding=1, groups=2), nn.BatchNorm2d(32),
                         nn.ConvTranspose2d(32, 16, 3, 1, 1), nn.Conv2d(16, 3, 3, padding=1), nn.Tanh())


class Gated(nn.Module):
    """Squeeze and excite."""

    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.Hardswish())
        self.own = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, groups=width), nn.BatchNorm2d(width), nn.SiLU())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 8, 1), nn.ReLU(), nn.Conv2d(8, width, 1), nn.Sigmoid())
        self.last = nn.Sequential(nn.Conv2d(width, width, 1), nn.BatchNorm2d(width))

    def forward(self, x):
        x = self.first(x)
        y = self.own(x)
        return x + self.last(y * self.gate(y))


class Causal(nn.Module):
    """Of what was, and nothing of what will be."""

    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Conv1d(5, width, 2)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**i) for i in range(3))
        self.last = nn.Conv1d(width, 7, 1)

    def forward(self, x):
        x = self.first(nn.functional.pad(x, (1, 0)))
        for each in self.layers:
            x = x + torch.tanh(each(nn.functional.pad(x, (2 * each.dilation[0], 0))))
        return self.last(x)


class Same(nn.Module):
    """Padded as TensorFlow does it: where sides differ, more behind."""

    def __init__(self, width=24):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, 2, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.own = nn.Conv2d(width, width, 5, 2, groups=width)
        self.last = nn.Conv2d(width, width, 3, 2, padding=1)

    def forward(self, x):
        x = self.norm(self.first(nn.functional.pad(x, (0, 1, 0, 1)))).relu()
        x = self.own(nn.functional.pad(x, (1, 2, 1, 2)))
        border = nn.functional.pad(x, (0, 1, 1, 0))
        return self.last(border) + border.mean()


MODELS = {
    "causal": (Causal, (2, 5, 300)),
    "same": (Same, (2, 3, 40, 36)),
    "sound": (sound, (2, 5, 300)),
    "video": (video, (2, 3, 5, 13, 14)),
    "generator": (generator, (3, 20, 1, 1)),
    "gated": (Gated, (2, 3, 37, 41)),
}


def close(got, expected):
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("name", MODELS)
def test_networks_compile(name):
    make, shape = MODELS[name]
    model = trained(make())
    x = torch.randn(shape)
    on_device = copy.deepcopy(model).npu()
    with torch.no_grad():
        expected = model(x)
        close(on_device(x.npu()), expected)
        for frozen in (False, True):
            config = torchair.CompilerConfig()
            config.experimental_config.frozen_parameter = frozen
            f = compiled(on_device, config=config)
            for _ in range(3):
                close(f(x.npu()), expected)


@pytest.mark.parametrize("name", MODELS)
def test_networks_are_captured(name):
    make, shape = MODELS[name]
    model = trained(make())
    inputs = [torch.randn(shape) for _ in range(2)]
    on_device, x = copy.deepcopy(model).npu(), inputs[0].npu()
    with torch.no_grad():
        on_device(x)
        torch.npu.synchronize()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            result = on_device(x)
        for turn in range(16):  # links take over after a few
            x.copy_(inputs[turn % 2])
            graph.replay()
            close(result, model(inputs[turn % 2]))


def test_gradients_of_transposed_and_deep_convolutions():
    for make, shape in (MODELS["video"], MODELS["generator"]):
        model = trained(make()).train()
        x = torch.randn(shape)
        on_device = copy.deepcopy(model).npu()
        model(x).square().mean().backward()
        on_device(x.npu()).square().mean().backward()
        for expected, got in zip(model.parameters(), on_device.parameters()):
            torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-3, atol=1e-4 * expected.grad.abs().max().item() + 1e-6)


def test_sizes_may_be_open(split):
    conv = nn.Conv3d(3, 24, 3, padding=1)
    on_device = copy.deepcopy(conv).npu()
    f = compiled(lambda x: on_device(x).relu(), dynamic=True)
    with torch.no_grad():
        for sizes in ((4, 9, 8), (5, 7, 10), (6, 11, 9)):
            x = torch.randn(2, 3, *sizes)
            close(f(x.npu()), conv(x).relu())
    assert not any(each.fallbacks for each in split), "PyTorch ran a part of the graph"
