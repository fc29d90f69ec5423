# SPDX-License-Identifier: Apache-2.0
"""Hints of programs that fuse kernels: checked, and otherwise without effect on this device."""
import torch
from torch_npu._errors import refused

_library = torch.library.Library("npu", "FRAGMENT")
_OPS = ("super_kernel_scope_begin", "super_kernel_scope_end")

_INT, _STR, _LIST = int, str, list
_OPTIMIZE = {
    **dict.fromkeys(
        ("preload_code", "split_mode", "stream_fusion", "constant_codegen", "auto_op_parallel", "early_start"), _INT
    ),
    "opt_extend": _STR,
    **dict.fromkeys(
        (
            "dcci_before_kernel_start",
            "dcci_after_kernel_end",
            "dcci_disable_on_kernel",
            "ubuf_lock_ignore_kernel",
        ),
        _LIST,
    ),
    "aggressive_opt_strategies": dict.fromkeys(
        ("event_breaker_bypass", "value_breaker_bypass", "task_breaker_bypass"), _INT
    ),
}
_DEBUG = {
    **dict.fromkeys(
        (
            "debug_sync_all",
            "debug_op_exec_trace",
            "debug_cross_core_sync_check",
            "debug_per_op_max_core_num",
        ),
        _INT,
    ),
    "debug_extend": _STR,
}


def _check(name, options, known):
    if options is None:
        return
    if not isinstance(options, dict):
        raise refused(RuntimeError(f"{name} must be a dict or None, not {type(options).__name__}"))
    for key, value in options.items():
        if key not in known:
            raise refused(RuntimeError(f"{name} knows no key {key!r}; known are {', '.join(known)}"))
        kind = known[key]
        if isinstance(kind, dict):
            if not isinstance(value, dict):
                raise refused(RuntimeError(f"{name}[{key!r}] must be a dict, not {type(value).__name__}"))
            _check(f"{name}[{key!r}]", value, kind)
        elif not isinstance(value, kind) or isinstance(value, bool):
            raise refused(RuntimeError(f"{name}[{key!r}] must be of type {kind.__name__}, not {type(value).__name__}"))
        elif kind is _LIST and not all(isinstance(item, str) for item in value):
            raise refused(RuntimeError(f"{name}[{key!r}] must hold strings only, not {value!r}"))


def check_options(optimize_options, debug_options):
    """Raises RuntimeError for what ``NPUGraph.super_kernel_optimize`` does not know."""
    _check("optimize_options", optimize_options, _OPTIMIZE)
    _check("debug_options", debug_options, _DEBUG)


def _mark(scope_name=None):
    if scope_name is not None and not scope_name.strip():
        raise refused(RuntimeError("scope_name must be a non-empty string, or None"))


for _op in _OPS:
    _library.define(f"{_op}(str? scope_name=None) -> ()")
    for _key in ("PrivateUse1", "CPU", "BackendSelect"):
        _library.impl(_op, _mark, _key)
    torch.library.register_fake(f"npu::{_op}", _mark, lib=_library)
    torch.fx.node.has_side_effect(getattr(torch.ops.npu, _op).default)
