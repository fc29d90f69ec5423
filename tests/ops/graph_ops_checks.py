# SPDX-License-Identifier: Apache-2.0
"""What checks of operators by type share: a function marked with @checks("Conv2D", ...) is run for each type it names."""

import torch

HALF = (torch.float32, torch.float16, torch.bfloat16)
TOLERANCE = {torch.float32: 2e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}
CHECKS = {}  # type -> functions


def checks(*types):
    def register(function):
        for type in types:
            CHECKS.setdefault(type, []).append(function)
        return function
    return register


class Numbers:
    """The same ones in every run."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape, dtype=torch.float32):
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def whole(self, *shape, low=-9, high=10, dtype=torch.int32):
        return torch.randint(low, high, shape, generator=self.generator).to(dtype)


def close(actual, expected, dtype=None, factor=1.0):
    dtype = dtype or expected.dtype
    assert actual.dtype == dtype and list(actual.shape) == list(expected.shape), (actual.dtype, actual.shape, expected.shape)
    if not dtype.is_floating_point:
        assert torch.equal(actual, expected.to(dtype)), (actual, expected)
        return
    wide = expected.double()
    limit = TOLERANCE[dtype] * factor * max(1.0, float(wide.abs().max()) if wide.numel() else 1.0)
    assert torch.allclose(actual.double(), wide, rtol=0, atol=limit, equal_nan=True), float((actual.double() - wide).abs().max())


def leaves(*tensors):
    return [tensor.double().requires_grad_() for tensor in tensors]


def gradients(result, grad, wanted):
    return torch.autograd.grad(result, wanted, grad.double())
