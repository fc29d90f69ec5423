# SPDX-License-Identifier: Apache-2.0
"""What devices are like, and switches."""
import os
import uuid
import warnings
from dataclasses import dataclass

import torch
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu.npu.device import _get_device_index, _lazy_init, device_count


@dataclass(frozen=True)
class _DeviceProperties:
    """What a device reports about itself."""

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    cube_core_num: int
    vector_core_num: int
    L2_cache_size: int
    uuid: uuid.UUID

    def __repr__(self):
        return (
            f"_NPUDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"cube_core_num={self.cube_core_num}, vector_core_num={self.vector_core_num}, "
            f"L2_cache_size={self.L2_cache_size >> 20}MB, uuid={self.uuid})"
        )


def _checked(device):
    _lazy_init()
    index = _get_device_index(device, optional=True)
    if not 0 <= index < device_count():
        raise refused(
            AssertionError(
                f"Invalid device id {index}: there are {device_count()} npu devices; REPRISE_DEVICES, in the environment "
                "before Python starts, says how many there are"
            )
        )
    return index


def get_device_properties(device=None):
    found = _C._npu_getDeviceProperties(_checked(device))
    found["uuid"] = uuid.UUID(bytes=found["uuid"])
    return _DeviceProperties(major=0, minor=0, multi_processor_count=found["cube_core_num"], **found)


def get_device_name(device=None):
    return get_device_properties(device).name


# Programs ask for the number to tell generations of the hardware apart.
_SOC_VERSIONS = {
    **{f"Ascend910{name}": 100 + i for i, name in enumerate(("PremiumA", "ProA", "A", "ProB", "B"))},
    **{f"Ascend310P{i + 1}": 200 + i for i in range(7)},
    **{f"Ascend910{name}": 220 + i for i, name in enumerate(("B1", "B2", "B2C", "B3", "B4", "B4-1"))},
    **{f"Ascend310B{i + 1}": 240 + i for i in range(4)},
    **{f"Ascend910_{name}": 250 + i for i, name in enumerate((9391, 9392, 9381, 9382, 9372, 9362))},
    "Ascend950": 260,
}


def get_soc_version():
    """The number of the hardware that the device says to be (REPRISE_SOC); -1 for names without one."""
    name = get_device_name()
    if name.startswith(("Ascend910_95", "Ascend950")):
        name = "Ascend950"
    return _SOC_VERSIONS.get(name, -1)


def get_device_capability(device=None):
    """(major, minor) of TORCH_NPU_DEVICE_CAPABILITY; None when it does not say."""
    text = os.environ.get("TORCH_NPU_DEVICE_CAPABILITY", "")
    major, _, minor = text.partition(".")
    if major.isdigit() and minor.isdigit():
        return int(major), int(minor)
    warnings.warn(
        "npu devices have no compute capability; TORCH_NPU_DEVICE_CAPABILITY=major.minor gives them one", stacklevel=2
    )
    return None


def mem_get_info(device=None):
    """(free, total) bytes of the device."""
    _lazy_init()
    return _C._npu_memGetInfo(_get_device_index(device, optional=True))


def can_device_access_peer(device_id, peer_device_id):
    return _C._npu_canAccessPeer(_checked(device_id), _checked(peer_device_id))


def utilization(device=None):
    """Per cent of time in which the device worked. Nobody measures it here: 0."""
    _checked(device)
    return 0


_MODES = {"default": 0, "warn": 1, "error": 2}


def set_sync_debug_mode(debug_mode):
    """What a call does that waits for the device without saying so: nothing (0, "default"), "warn" or "error"."""
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise refused(
                RuntimeError(f"invalid value of debug_mode, expected one of default, warn, error, not {debug_mode!r}")
            )
        debug_mode = _MODES[debug_mode]
    _C._npu_setSyncDebugMode(debug_mode)


def get_sync_debug_mode():
    return _C._npu_getSyncDebugMode()


def event_counters():
    """How often this process took a slower way, by event: ``{"dispatch.cpu_kernel": 12, …}``.

    ``dispatch``: operators that ran as the CPU kernel of PyTorch, or for which the host had to wait; ``plan``: graphs
    that kept to their captured streams, tasks that were fused with a neighbour or not; ``capture``; ``alloc``: segments
    of the caching allocators; ``fusion``: places of graphs that passes of the compiler rewrote or left. The variable
    ``REPRISE_VERBOSE=dispatch,plan,capture,alloc,fusion`` prints each event with its reason.
    """
    return _C._event_counters()


def get_cann_version(module="CANN"):
    """The version of a part of the toolkit; empty for parts that it does not have."""
    return _C._npu_toolkitVersion(module)


def is_bf16_supported(including_emulation=False):
    return True


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16, torch.float32]


def is_autocast_enabled():
    return torch.is_autocast_enabled("npu")


def set_autocast_enabled(enabled):
    torch.set_autocast_enabled("npu", enabled)


def get_autocast_dtype():
    return torch.get_autocast_dtype("npu")


def set_autocast_dtype(dtype):
    torch.set_autocast_dtype("npu", dtype)
