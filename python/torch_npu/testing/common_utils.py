# SPDX-License-Identifier: Apache-2.0
"""Inputs for tests of operators."""
import numpy
import torch

__all__ = ["create_common_tensor"]


def create_common_tensor(item, minValue, maxValue, device=None):
    """``item``: (type of numpy, format, shape). The same random numbers as a tensor of the CPU and as one of npu.

    Formats of the hardware are memory layouts; here all tensors are plain."""
    dtype, _, shape = item
    numbers = numpy.random.uniform(minValue, maxValue, shape).astype(dtype)
    here = torch.from_numpy(numpy.asarray(numbers))
    return here, here.to(device or "npu")
