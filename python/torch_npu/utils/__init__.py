# SPDX-License-Identifier: Apache-2.0
"""Helpers that programs import by these names."""
from torch_npu._names import refused_module
from torch_npu.npu.utils import get_cann_version

__all__ = ["get_cann_version"]

__getattr__ = refused_module(
    __name__,
    {
        "FlopsCounter": "use torch.utils.flop_counter.FlopCounterMode",
        "npu_combine_tensors": "use torch._foreach functions, or torch.cat",
        "get_part_combined_tensor": "use torch._foreach functions, or torch.cat",
        "is_combined_tensor_valid": "use torch._foreach functions, or torch.cat",
        "save_async": "use torch.save, or torch.distributed.checkpoint.async_save",
        "set_thread_affinity": "use os.sched_setaffinity, and REPRISE_WORKERS for the device",
        "reset_thread_affinity": "use os.sched_setaffinity, and REPRISE_WORKERS for the device",
        "set_asd_loss_scale": "it looks for faults of the hardware, which a CPU does not have",
        "register_asd_hook": "it looks for faults of the hardware, which a CPU does not have",
    },
)
