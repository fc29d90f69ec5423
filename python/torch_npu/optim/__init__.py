# SPDX-License-Identifier: Apache-2.0
"""Optimizers under the names of the hardware's: those of ``torch.optim``, over lists of tensors (``foreach``)."""
import torch

from torch_npu._errors import refused
from torch_npu._names import refused_module


class NpuFusedOptimizerBase(torch.optim.Optimizer):
    """What the optimizers of this module have in common."""

    def clip_grad_norm_fused_(self, max_norm, norm_type=2.0):
        """``torch.nn.utils.clip_grad_norm_`` over all parameters of the optimizer; returns the norm there was."""
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)


def _over(optimizer, name):
    def __init__(self, params, *arguments, **options):
        if options.get("amsgrad"):
            raise refused(RuntimeError(f"{name} has no amsgrad; use torch.optim.{optimizer.__name__}(amsgrad=True)"))
        optimizer.__init__(self, params, *arguments, foreach=True, **options)

    body = {"__init__": __init__, "__module__": __name__, "__doc__": f"``torch.optim.{optimizer.__name__}``."}
    return type(name, (NpuFusedOptimizerBase, optimizer), body)


NpuFusedSGD = _over(torch.optim.SGD, "NpuFusedSGD")
NpuFusedAdam = _over(torch.optim.Adam, "NpuFusedAdam")
NpuFusedAdamW = _over(torch.optim.AdamW, "NpuFusedAdamW")
NpuFusedAdadelta = _over(torch.optim.Adadelta, "NpuFusedAdadelta")
NpuFusedRMSprop = _over(torch.optim.RMSprop, "NpuFusedRMSprop")

__all__ = ["NpuFusedOptimizerBase", "NpuFusedSGD", "NpuFusedAdam", "NpuFusedAdamW", "NpuFusedAdadelta", "NpuFusedRMSprop"]

__getattr__ = refused_module(
    __name__,
    ("NpuFusedLamb", "NpuFusedAdamP", "NpuFusedBertAdam", "NpuFusedRMSpropTF"),
    "torch.optim has no such optimizer; timm.optim has Lamb, AdamP and RMSpropTF, which work on npu",
)
