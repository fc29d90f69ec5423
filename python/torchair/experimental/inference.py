# SPDX-License-Identifier: Apache-2.0
"""Weights in the formats of the hardware. Here all memory is row-major: the functions check their arguments."""
import sys

import torch

from torchair.core.utils import logger

_FRACTAL_NZ = 29


def use_internal_format_weight(model):
    """Weights of a model on the device stay as they are: no kernel of this device wants another format."""
    if "torch_npu" not in sys.modules:
        logger.error("use_internal_format_weight needs torch_npu")
        return
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if name == "weight" and isinstance(module, (torch.nn.Linear, torch.nn.Conv2d)) and parameter.device.type == "cpu":
                raise RuntimeError(f"use_internal_format_weight: {type(module).__name__}.weight is on the CPU; move the model with .npu()")


def npu_format_cast_via_cpu(t, acl_format, customize_dtype=None, input_dtype=None):
    """The tensor itself, since packed formats are the memory of the plain one here."""
    if acl_format != _FRACTAL_NZ:
        raise RuntimeError(f"npu_format_cast_via_cpu: the format must be {_FRACTAL_NZ} (FRACTAL_NZ), not {acl_format}")
    if t.dtype != torch.int8:
        raise RuntimeError(f"npu_format_cast_via_cpu: the tensor must be of int8, not {t.dtype}")
    if t.dim() < 2 or 0 in t.shape[-2:]:
        raise RuntimeError(f"npu_format_cast_via_cpu: the last two of at least two dims must not be 0, but the shape is {list(t.shape)}")
    return t
