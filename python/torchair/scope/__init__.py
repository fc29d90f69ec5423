# SPDX-License-Identifier: Apache-2.0
"""Attributes for all operators of a part of a compiled function. Scopes nest; inner ones win."""
import torch
from torchair.ops import _air  # noqa: F401

__all__ = ["data_dump", "limit_core_num", "npu_stream_switch", "npu_wait_tensor", "op_never_timeout", "super_kernel"]


class _Scope:
    def __init__(self, attributes):
        self.keys = list(attributes)
        self.values = list(attributes.values())

    def __enter__(self):
        torch.ops.air.scope_enter(self.keys, self.values)

    def __exit__(self, *_):
        torch.ops.air.scope_exit()


def npu_stream_switch(stream_tag, stream_priority=0, enable_inner_parallel=True):
    """Runs on another stream, one for each tag."""
    return _Scope(
        {
            "_user_stream_label": stream_tag,
            "_user_stream_priority": str(stream_priority),
            "_enable_inner_parallel": str(enable_inner_parallel),
        }
    )


def super_kernel(scope, options=""):
    """Marks what the device may run as one kernel; None unmarks."""
    return _Scope({"_super_kernel_scope": "" if scope is None else scope, "_super_kernel_options": options})


def limit_core_num(op_aicore_num, op_vectorcore_num):
    """Uses at most so many cores."""
    return _Scope({"_op_aicore_num": str(op_aicore_num), "_op_vectorcore_num": str(op_vectorcore_num)})


def op_never_timeout(enable=True):
    if not isinstance(enable, bool):
        raise TypeError(f"op_never_timeout takes a bool, not {type(enable).__name__}")
    return _Scope({"_op_exec_never_timeout": str(enable)})


def data_dump():
    """Marks what enable_dump writes."""
    return _Scope({"torchair_enable_data_dump": "True"})


def npu_wait_tensor(x, dependency):
    """``x``, once ``dependency`` is there. For graphs of the engine."""
    return torch.ops.air.wait_tensor(x, dependency)
