# SPDX-License-Identifier: Apache-2.0
"""Names that programs import from torch_npu: types of data that PyTorch has, too, and what is absent. Types that are
numbers come with the operators that take them (torch_npu._ops)."""
import importlib.abc
import opcode
import sys

import torch

DTYPES = {
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "bool": torch.bool,
}

# What the vendor's package has and this one has not; why, and what to use instead.
ABSENT = {
    "HiFloat8Tensor": "no type of PyTorch holds its bits; use torch.float8_e4m3fn or torch.float8_e5m2",
    "matmul_checksum": "it looks for faults of the hardware, which a CPU does not have",
    "ParallelStore": "use torch.distributed.TCPStore",
    "onnx": "operators of npu cannot be exported; export the model from the CPU",
    "asd": "it looks for faults of the hardware, which a CPU does not have",
    "_afd": "communication between devices is not there",
    "_inductor": "kernels of the hardware are not generated here; use torch.compile with PyTorch's own backends",
    "_logging": "ASCEND_GLOBAL_LOG_LEVEL=1 makes the runtime say what it does",
}


def _error(module, name, reasons):
    """What a ``__getattr__`` of a module raises. AttributeError, so that ``hasattr`` is false; but ``from module import name``
    would drop its text and say only that there is no such name, so there it is ImportError."""
    if name not in reasons:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    text = f"{module}.{name} does not exist in Reprise, whose device is the CPU: {reasons[name]}"
    caller = sys._getframe(2)
    while caller.f_code.co_filename == __file__ or caller.f_code.co_name == "__getattr__":
        caller = caller.f_back
    kind = AttributeError
    if caller.f_code.co_code[caller.f_lasti] == opcode.opmap["IMPORT_FROM"]:
        kind = ImportError
    return kind(text)


def lookup(module, name):
    """For ``__getattr__`` of the package: a type, or the sentence that says what is missing."""
    if name in DTYPES:
        return DTYPES[name]
    if not name.startswith("__") and hasattr(torch.ops.npu, name):
        return getattr(torch.ops.npu, name)
    raise _error(module, name, ABSENT)


_REASONS = {"torch_npu": ABSENT}  # of modules, by name


def refused_module(module, names, why=None):
    """A ``__getattr__`` for a module: names of the vendor's are refused with the reason."""
    reasons = names if isinstance(names, dict) else dict.fromkeys(names, why)
    _REASONS[module] = reasons

    def __getattr__(name):
        raise _error(module, name, reasons)

    return __getattr__


class _AbsentModules(importlib.abc.MetaPathFinder):
    """The last finder: ``import torch_npu.onnx`` says why there is none. ``find_spec`` answers None, as for any other."""

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("torch_npu."):
            return None
        module, _, name = fullname.rpartition(".")
        if name not in _REASONS.get(module, ()) or _is_asked_by_find_spec():
            return None
        reason = _REASONS[module][name]
        raise ModuleNotFoundError(
            f"{fullname} does not exist in Reprise, whose device is the CPU: {reason}", name=fullname
        )


def _is_asked_by_find_spec():
    frame = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        if frame.f_code.co_name == "find_spec" and frame.f_globals.get("__name__") == "importlib.util":
            return True
        frame = frame.f_back
    return False


sys.meta_path.append(_AbsentModules())
