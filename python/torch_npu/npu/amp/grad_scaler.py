# SPDX-License-Identifier: Apache-2.0
"""Scaling of losses on the device ``npu``."""
import torch
from torch_npu._errors import refused


class GradScaler(torch.amp.GradScaler):
    """``torch.amp.GradScaler("npu")``. With ``dynamic=False`` the scale stays as it is; steps whose gradients are not
    finite are skipped all the same."""

    def __init__(
        self,
        init_scale=2.0**16,
        growth_factor=2.0,
        backoff_factor=0.5,
        growth_interval=2000,
        dynamic=True,
        enabled=True,
    ):
        if enabled and growth_factor <= 1.0:
            raise refused(ValueError(f"growth_factor is {growth_factor}, must be greater than 1"))
        if enabled and backoff_factor >= 1.0:
            raise refused(ValueError(f"backoff_factor is {backoff_factor}, must be less than 1"))
        super().__init__(
            "npu",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
        self._dynamic = dynamic
        if enabled and not dynamic:
            self._growth_factor = 1.0
            self._backoff_factor = 1.0
