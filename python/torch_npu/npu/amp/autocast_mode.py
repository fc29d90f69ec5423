# SPDX-License-Identifier: Apache-2.0
"""Autocast for the device ``npu``."""
import functools

import torch
from typing_extensions import deprecated


class autocast(torch.amp.autocast_mode.autocast):
    """``torch.autocast("npu", ...)``; float16 unless told otherwise."""

    def __init__(self, enabled=True, dtype=torch.float16, cache_enabled=True):
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


@deprecated(
    "torch.npu.amp.custom_fwd is deprecated; use torch.amp.custom_fwd with device_type='npu'", category=FutureWarning
)
def custom_fwd(fwd=None, *, cast_inputs=None):
    """``torch.amp.custom_fwd`` for this device."""
    return functools.partial(torch.amp.custom_fwd, device_type="npu")(fwd=fwd, cast_inputs=cast_inputs)


@deprecated(
    "torch.npu.amp.custom_bwd is deprecated; use torch.amp.custom_bwd with device_type='npu'", category=FutureWarning
)
def custom_bwd(bwd):
    """``torch.amp.custom_bwd`` for this device."""
    return torch.amp.custom_bwd(bwd, device_type="npu")
