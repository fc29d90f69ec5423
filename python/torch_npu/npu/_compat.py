# SPDX-License-Identifier: Apache-2.0
"""Names that programs for the hardware use, and that have little or nothing to do on the CPU.

Switches remember what they were set to; what would change the hardware's state changes nothing; what would have to
compute something that does not exist here says so.
"""
import enum
import os
import types
import warnings

import torch
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu.npu.device import _get_device_index

_state = {
    "options": {},
    "jit_compile": False,
    "mm_bmm_format_nd": True,
    "deterministic_with_backward": True,
    "deterministic_level": 0,
    "compatible_impl": False,
    "op_timeout_ms": 0,
    "device_limit": {},
    "stream_limit": {},
}


def _harmless(name, result=None):
    def function(*args, **kwargs):
        return result

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Has nothing to do on the CPU; returns {result!r}."
    return function


def _missing(name, instead):
    def function(*args, **kwargs):
        raise refused(RuntimeError(f"torch.npu.{name} is not supported on the CPU device; {instead}"))

    function.__name__ = function.__qualname__ = name
    return function


for _name, _result in {
    "set_aoe": None,
    "get_npu_overflow_flag": False,
    "clear_npu_overflow_flag": None,
    "stress_detect": 0,
    "stop_device": 0,
    "restart_device": None,
    "check_uce_in_memory": 0,
    "obfuscation_finalize": None,
}.items():
    globals()[_name] = _harmless(_name, _result)

for _name in ("obfuscation_initialize", "obfuscation_calculate"):
    globals()[_name] = _missing(_name, "compute on the plain tensors")


def init_dump():
    """Makes ready for set_dump."""
    torch.npu.init()
    _C._npu_initDump()


def set_dump(cfg_file):
    """Dumps what operators read and write, as the section "dump" of this JSON file says."""
    if not os.path.exists(cfg_file):
        warnings.warn(f"set_dump: there is no file {cfg_file}; nothing is dumped", stacklevel=2)
        return
    _C._npu_setDump(os.path.abspath(cfg_file))


def finalize_dump():
    """Ends the dump, when all devices have done what they were given."""
    if torch.npu.is_initialized():
        for device in range(torch.npu.device_count()):
            torch.npu.synchronize(device)
    _C._npu_finalizeDump()


def ipc_collect():
    """Frees memory that other processes had and have let go of."""
    from torch_npu.multiprocessing import reductions

    reductions._collect()


def set_option(option):
    """Remembers options of the compiler of operators."""
    if not isinstance(option, dict):
        raise refused(TypeError(f"set_option takes a dict, not {type(option).__name__}"))
    _state["options"].update(option)


def set_compile_mode(jit_compile=False):
    _state["jit_compile"] = bool(jit_compile)


def is_jit_compile_false():
    return not _state["jit_compile"]


def set_mm_bmm_format_nd(is_nd):
    _state["mm_bmm_format_nd"] = bool(is_nd)


def get_mm_bmm_format_nd():
    return _state["mm_bmm_format_nd"]


def current_blas_handle():
    warnings.warn("npu devices have no BLAS handle", stacklevel=2)


def enable_deterministic_with_backward():
    _state["deterministic_with_backward"] = True


def disable_deterministic_with_backward():
    _state["deterministic_with_backward"] = False


def set_deterministic_level(level):
    if level not in (0, 1, 2):
        raise refused(ValueError(f"level must be 0, 1 or 2, not {level!r}"))
    _state["deterministic_level"] = level


def use_compatible_impl(is_compatible):
    _state["compatible_impl"] = bool(is_compatible)


def are_compatible_impl_enabled():
    return _state["compatible_impl"]


def set_op_timeout_ms(timeout):
    _state["op_timeout_ms"] = int(timeout)


def _cores():
    properties = _C._npu_getDeviceProperties(_get_device_index(None, optional=True))
    return {"cube_core_num": properties["cube_core_num"], "vector_core_num": properties["vector_core_num"]}


def _limit(cube_num, vector_num):
    given = {"cube_core_num": cube_num, "vector_core_num": vector_num}
    return {name: number for name, number in given.items() if number is not None and number >= 0}


def set_device_limit(device, cube_num=-1, vector_num=-1):
    """Remembers how many cores programs should use."""
    _state["device_limit"].setdefault(_get_device_index(device, optional=True), {}).update(_limit(cube_num, vector_num))


def get_device_limit(device):
    return _cores() | _state["device_limit"].get(_get_device_index(device, optional=True), {})


def set_stream_limit(stream, cube_num=-1, vector_num=-1):
    _state["stream_limit"].setdefault(stream, {}).update(_limit(cube_num, vector_num))


def reset_stream_limit(stream):
    _state["stream_limit"].pop(stream, None)


def get_stream_limit(stream):
    return get_device_limit(stream.device) | _state["stream_limit"].get(stream, {})


class CubeMathType(enum.IntEnum):
    """How matrix products may treat their numbers. Here they keep them."""

    KEEP_DTYPE = 0
    ALLOW_FP32_DOWN_PRECISION = 1
    USE_FP16 = 2
    USE_HF32 = 3


matmul = types.SimpleNamespace(allow_hf32=False, cube_math_type=CubeMathType.KEEP_DTYPE)
conv = types.SimpleNamespace(allow_hf32=True)
config = types.SimpleNamespace(allow_internal_format=False)


class mstx:
    """Marks in a profile of the hardware: nothing is recorded."""

    @staticmethod
    def mark(message, stream=None, domain="default"):
        pass

    @staticmethod
    def range_start(message, stream=None, domain="default"):
        return 0

    @staticmethod
    def range_end(range_id, domain="default"):
        pass

    @staticmethod
    def mstx_range(message, stream=None, domain="default"):
        return lambda function: function


_LEGACY = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
}


class _LegacyTensorType(type):
    def __instancecheck__(cls, value):
        return isinstance(value, torch.Tensor) and value.device.type == "npu" and value.dtype == cls.dtype


class _LegacyStorageType(type):
    def __instancecheck__(cls, value):
        return isinstance(value, torch.TypedStorage) and value.device.type == "npu" and value.dtype == cls.dtype


def _new_tensor(cls, *args):
    if len(args) == 1 and not isinstance(args[0], int):
        return torch.tensor(args[0], dtype=cls.dtype, device="npu")
    return torch.empty(args, dtype=cls.dtype, device="npu")


def _new_storage(cls, *args):
    return torch.TypedStorage(*args, dtype=cls.dtype, device="npu")


legacy_types = []
for _prefix, _dtype in _LEGACY.items():
    for _suffix, _meta, _new in (
        ("Tensor", _LegacyTensorType, _new_tensor),
        ("Storage", _LegacyStorageType, _new_storage),
    ):
        _name = _prefix + _suffix
        globals()[_name] = _meta(_name, (), {"dtype": _dtype, "__new__": _new, "__module__": "torch.npu"})
        legacy_types.append(_name)

_HIDDEN = ("enum", "types", "warnings", "torch")
__all__ = [name for name in globals() if not name.startswith("_") and name not in _HIDDEN]
