# SPDX-License-Identifier: Apache-2.0
"""Devices: their number, the current one, the first use of the runtime."""
import os
import threading
import traceback

import torch
from torch_npu import _C
from torch_npu._errors import refused

_initialized = False
_lock = threading.RLock()
_queued_calls = []  # (function, stack of the call that queued it)
_tls = threading.local()


class DeferredNpuCallError(Exception):
    """A call that waited for the first use of the device has failed."""


def is_available():
    """Whether there is a device. Does not initialise anything."""
    return _C._npu_getDeviceCount() > 0


def device_count():
    """The number of visible devices."""
    return _C._npu_getDeviceCount()


def is_initialized():
    return _initialized and not _is_in_bad_fork()


def _is_in_bad_fork():
    return _C._npu_isInBadFork()


def _after_fork_in_child():
    global _initialized, _lock
    _initialized = False
    _lock = threading.RLock()
    _tls.is_initializing = False


os.register_at_fork(after_in_child=_after_fork_in_child)


def _lazy_call(callback):
    """Calls it now, or after the first use has initialised the runtime."""
    with _lock:
        if not is_initialized() and not getattr(_tls, "is_initializing", False):
            _queued_calls.append((callback, "".join(traceback.format_stack())))
            return
    callback()


def _lazy_init():
    """What every first use does: starts the runtime, then runs what was queued, in order."""
    global _initialized
    if _initialized or getattr(_tls, "is_initializing", False):
        return
    with _lock:
        if _initialized:
            return
        if _is_in_bad_fork():
            raise refused(
                RuntimeError(
                    "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, "
                    "you must use the 'spawn' start method"
                )
            )
        _tls.is_initializing = True
        try:
            _C._npu_init()
            while _queued_calls:
                callback, stack = _queued_calls.pop(0)
                try:
                    callback()
                except Exception as error:
                    raise refused(
                        DeferredNpuCallError(
                            f"a call that waited for the first use of the npu device failed: {error}\n\n"
                            f"It was queued here:\n\n{stack}"
                        )
                    ) from error
            _initialized = True
        finally:
            _tls.is_initializing = False


def init():
    """Initialises the runtime, if that has not been done yet. Every use of the device does so by itself."""
    _lazy_init()


def current_device():
    _lazy_init()
    return _C._npu_getDevice()


def _get_device_index(device, optional=False, allow_cpu=False):
    """The index of a device given as int, str, torch.device or None."""
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type == "cpu" and allow_cpu:
            return -1
        if device.type != "npu":
            raise refused(ValueError(f"Expected a npu device, but got: {device}"))
        if device.index is not None:
            return device.index
    elif device is not None:
        raise refused(ValueError(f"Expected a npu device, its index, or a string, but got: {device!r}"))
    if not optional:
        raise refused(ValueError(f"Expected a npu device with an index, or an integer, but got: {device}"))
    return _C._npu_getDevice()


def set_device(device):
    """Makes a device current in this thread; negative indices and None leave it as it is."""
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _lazy_init()
        _C._npu_setDevice(index)


class device:
    """Another current device for a ``with`` block; None and negative indices change nothing."""

    def __init__(self, device):
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self):
        if self.idx >= 0:
            _lazy_init()
            self.prev_idx = _C._npu_exchangeDevice(self.idx)
        return self

    def __exit__(self, *_):
        if self.prev_idx >= 0:
            _C._npu_setDevice(self.prev_idx)
        return False


class device_of(device):
    """The device of a tensor or storage; those of other devices change nothing."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_npu else -1)


def synchronize(device=None):
    """Waits for all work of the device; errors of its work are raised here."""
    _lazy_init()
    _C._npu_synchronize(_get_device_index(device, optional=True))


def is_current_stream_capturing():
    return _C._npu_isCurrentStreamCapturing()


def _sleep(cycles):
    """Queues a delay of so many nanoseconds on the current stream."""
    _lazy_init()
    _C._npu_sleep(cycles)


def npurt():
    """Functions of the runtime that take and return plain numbers."""
    _lazy_init()
    return _C._npurt
