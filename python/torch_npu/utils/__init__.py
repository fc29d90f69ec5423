# SPDX-License-Identifier: Apache-2.0
"""Helpers that programs import by these names."""
from torch_npu._names import refused_module
from torch_npu.npu.utils import get_cann_version
from torch_npu.utils._async_save import save_async

__all__ = ["get_cann_version", "save_async"]

__getattr__ = refused_module(
    __name__,
    {
        "FlopsCounter": "use torch.utils.flop_counter.FlopCounterMode",
        "npu_combine_tensors": "use torch._foreach functions, or torch.cat",
        "get_part_combined_tensor": "use torch._foreach functions, or torch.cat",
        "is_combined_tensor_valid": "use torch._foreach functions, or torch.cat",
        "set_thread_affinity": "use os.sched_setaffinity, and REPRISE_WORKERS for the device",
        "reset_thread_affinity": "use os.sched_setaffinity, and REPRISE_WORKERS for the device",
        "set_asd_loss_scale": "it looks for faults of the hardware, which a CPU does not have",
        "register_asd_hook": "it looks for faults of the hardware, which a CPU does not have",
    },
)
