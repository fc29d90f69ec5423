# SPDX-License-Identifier: Apache-2.0
"""``torch.distributed`` with tensors of ``npu``: the backend of the CPU (gloo, mpi) works on their memory."""
import sys
import types

from torch_npu import _C
from torch_npu._names import refused_module
from torch_npu.distributed import _host_backends


def is_available():
    """Whether torch.distributed can be used with tensors of the device."""
    import torch.distributed

    return torch.distributed.is_available()


def is_hccl_available():
    """Whether groups can be made with ``backend="hccl"``: gloo serves them."""
    return is_available()


_host_backends.register()

# Programs import options of the hardware's backend from here.
_C._distributed_c10d = types.ModuleType("torch_npu._C._distributed_c10d")
_C._distributed_c10d.__getattr__ = refused_module(
    "torch_npu._C._distributed_c10d",
    ("ProcessGroupHCCL", "ParallelStore", "_verify_params_across_processes", "_is_support_hccl_comm_name"),
    'backend="hccl" is served by gloo, which takes no options of the hardware\'s backend',
)
sys.modules["torch_npu._C._distributed_c10d"] = _C._distributed_c10d

__all__ = ["is_available", "is_hccl_available"]
