# SPDX-License-Identifier: Apache-2.0
"""Operators that the package calls by their type: what jit_compile=True asks for, or what has no function."""

import pytest
import torch
import torch.nn.functional as F

X = torch.tensor([[-1.5, -0.25, 0.0, 0.75], [1.0, 2.5, -3.0, 0.5], [4.0, -0.5, 1.25, -2.0]])

CALLS = {
    "ClipByValue": F.hardtanh,
    "Square": torch.square,
    "IsFinite": torch.isfinite,
    "IsClose": lambda x: torch.isclose(x, x + 1e-9),
    "SoftShrink": F.softshrink,
    "HardShrink": F.hardshrink,
    "CeluV2": lambda x: F.celu(x, 2.0),
    "Elu": F.elu,
    "LeakyRelu": F.leaky_relu,
    "ThresholdV2D": lambda x: F.threshold(x, 0.1, 5.0),
    "Roll": lambda x: torch.roll(x, (1, 2), (0, 1)),
    "Sqrt": lambda x: x.abs().sqrt(),
    "Tanh": torch.tanh,
    "Pow": lambda x: x.abs() ** 1.5,
    "FloorDiv": lambda x: x // 0.3,
    "Maximum": lambda x: torch.maximum(x, -x),
    "Greater": lambda x: (x > 0) & (x <= 1),
    "ReduceMean": lambda x: x.mean(1),
    "RmsNorm": lambda x: F.rms_norm(x, (4,)),
    "AllClose": lambda x: torch.tensor(torch.allclose(x, x)),
}


@pytest.fixture
def by_type():
    torch.npu.set_compile_mode(jit_compile=True)
    yield
    torch.npu.set_compile_mode(jit_compile=False)


@pytest.mark.parametrize("name", CALLS)
def test_computes_what_the_cpu_does(by_type, name):
    got, wanted = CALLS[name](X.npu()).cpu(), CALLS[name](X)
    assert got.dtype == wanted.dtype
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6)


def test_gradients(by_type):
    weight = torch.nn.Parameter(X.clone().npu())
    (weight * weight * 2).mean().backward()
    cpu = torch.nn.Parameter(X.clone())
    (cpu * cpu * 2).mean().backward()
    torch.testing.assert_close(weight.grad.cpu(), cpu.grad, rtol=1e-5, atol=1e-6)
