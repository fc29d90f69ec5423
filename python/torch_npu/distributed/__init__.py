# SPDX-License-Identifier: Apache-2.0
"""``torch.distributed`` with tensors of ``npu``: the backend ``hccl``, and what it has beyond PyTorch's interface."""
import atexit
import sys

from torch_npu import _C
from torch_npu._names import refused_module
from torch_npu.distributed import _backend
from torch_npu.distributed.distributed_c10d import (
    all_gather_into_tensor_uneven,
    all_to_all_vc,
    is_available,
    is_hccl_available,
    reduce_scatter_tensor_uneven,
    reinit_process_group,
)

_C._distributed_c10d.__getattr__ = refused_module(
    "torch_npu._C._distributed_c10d",
    ("ParallelStore", "ProcessGroupLCCL"),
    "torchrun and the stores of torch.distributed do what they do",
)
sys.modules["torch_npu._C._distributed_c10d"] = _C._distributed_c10d
if is_available():
    from torch._C._distributed_c10d import _make_nccl_premul_sum as _make_hccl_premul_sum  # noqa: F401

    _backend.register()
    atexit.register(_C._distributed_c10d._stop_watchdogs)


def _is_support_hccl_comm_name():
    """Whether communicators can be given names."""
    return True


_C._distributed_c10d._is_support_hccl_comm_name = _is_support_hccl_comm_name

__all__ = [
    "all_gather_into_tensor_uneven",
    "all_to_all_vc",
    "is_available",
    "is_hccl_available",
    "reduce_scatter_tensor_uneven",
    "reinit_process_group",
]
