# SPDX-License-Identifier: Apache-2.0
"""``torch.npu.amp``: mixed precision under the names of a device; the work is done by ``torch.amp``."""
from torch_npu.npu.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from torch_npu.npu.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
