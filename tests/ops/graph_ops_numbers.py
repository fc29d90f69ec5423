# SPDX-License-Identifier: Apache-2.0
"""What the tests of operators by type share: types, reproducible numbers, comparison."""

import math

import torch

f16, b16, f32, f64, i8, u8, i16, i32, i64 = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8,
                                              torch.uint8, torch.int16, torch.int32, torch.int64)
c64, c128, boolean = torch.complex64, torch.complex128, torch.bool
FLOATS, HALF, SINGLES = (f32, f16, b16, f64), (f32, f16, b16), (f32, f16)
UNARY = FLOATS + (c64, c128)
INTEGERS = (i8, i16, i32, i64, u8)
TOLERANCE = {f16: 2e-3, b16: 1.6e-2, f32: 3e-5, f64: 1e-9, c64: 3e-5, c128: 1e-9}


def numbers(dtype, *shape, low=-3.0, high=3.0, seed=1):
    """Reproducible numbers, of whole ones where the type has no others."""
    generator = torch.Generator().manual_seed(seed + 7 * len(shape))
    if dtype == boolean:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex:
        parts = torch.rand(*shape, 2, dtype=f64, generator=generator) * (high - low) + low
        return torch.view_as_complex(parts).to(dtype)
    if not dtype.is_floating_point:
        least = 0 if dtype == u8 else math.ceil(low)
        return torch.randint(least, max(least, math.floor(high)) + 1, shape, generator=generator).to(dtype)
    return (torch.rand(shape, dtype=f64, generator=generator) * (high - low) + low).to(dtype)


def wide(tensor):
    return tensor.float() if tensor.dtype in (f16, b16) else tensor


def close(found, expected, scale):
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other, scale)
        return
    assert list(found.shape) == list(expected.shape)
    error = TOLERANCE.get(found.dtype)
    if error is None:
        assert torch.equal(found, expected.to(found.dtype)), (found, expected)
        return
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=error * scale, atol=error * scale, equal_nan=True)
