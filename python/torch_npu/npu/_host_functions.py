# SPDX-License-Identifier: Apache-2.0
"""Python functions in stream order."""
from torch_npu import _C

__all__ = [
    "_launch_callback",
    "_launch_host_func",
    "_launch_host_func_pending",
    "_subscribe_report",
    "_unsubscribe_report",
]


def _launch_host_func(stream, fn, data):
    """Calls ``fn(data)`` on a thread of the runtime at its turn in ``stream``; captured: at each replay.

    It must not wait for that stream. Exceptions are reported as unraisable.
    """
    _C._npu_launchHostFunc(stream, fn, data)


def _launch_host_func_pending(stream, fn, args):
    """Calls ``fn(*args)`` on the main thread, after its turn in ``stream``.

    Tuples ``("host_tensor_ptr", address, bytes, shape, dtype)`` in ``args`` are copied at its turn; ``fn`` gets
    ``("host_tensor_buffer", bytearray, shape, dtype)`` instead.
    """
    _C._npu_launchHostFuncPending(stream, fn, args)


def _launch_callback(stream, fn, data):
    """Calls ``fn(data)`` on the thread that serves the subscribed streams of the device. Not in captures."""
    _C._npu_launchCallback(stream, fn, data)


def _subscribe_report(stream):
    """Starts to serve the callbacks of ``stream``."""
    _C._npu_subscribeReport(stream)


def _unsubscribe_report(stream):
    """Waits for ``stream``, and serves its callbacks no more."""
    _C._npu_unsubscribeReport(stream)
