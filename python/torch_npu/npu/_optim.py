# SPDX-License-Identifier: Apache-2.0
"""Optimizers inside captures."""
import functools

import torch
from torch_npu import _C
from torch_npu._errors import refused


def _patch():
    """Optimizers that keep state on the host refuse to step while the current stream is being captured."""
    original = torch.optim.Optimizer._accelerator_graph_capture_health_check
    if getattr(original, "_checks_npu", False):
        return

    @functools.wraps(original)
    def check(self):
        original(self)
        if torch.compiler.is_compiling() or not _C._npu_isCurrentStreamCapturing():
            return
        for index, group in enumerate(self.param_groups):
            if not group.get("capturable", False):
                raise refused(
                    RuntimeError(
                        f"Attempting NPU graph capture of step() for an instance of {type(self).__name__}, but capturable "
                        f"is False in param group {index}: its state on the host would be frozen in the graph. Construct "
                        "the optimizer with capturable=True, or step outside of the capture."
                    )
                )

    check._checks_npu = True
    torch.optim.Optimizer._accelerator_graph_capture_health_check = check


_patch()
