# SPDX-License-Identifier: Apache-2.0
"""``torch.npu``."""
import torch
from torch_npu import _C


def is_available():
    return _C._npu_getDeviceCount() > 0


def device_count():
    return _C._npu_getDeviceCount()


def is_initialized():
    return _C._npu_isInitialized()


def _lazy_init():
    _C._npu_init()


init = _lazy_init


def _is_in_bad_fork():
    return False


def current_device():
    _lazy_init()
    return _C._npu_getDevice()


def set_device(device):
    _lazy_init()
    _C._npu_setDevice(torch.device(device).index if not isinstance(device, int) else device)


def synchronize(device=None):
    _lazy_init()
    _C._npu_synchronize(_C._npu_getDevice())


def manual_seed_all(seed):
    if is_initialized():
        _C._npu_defaultGenerator(0).manual_seed(seed)


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16, torch.float32]


from torch_npu.npu import _optim, amp  # noqa: E402,F401
from torch_npu.npu.graphs import NPUGraph, graph, graph_pool_handle, is_current_stream_capturing  # noqa: E402,F401
