# SPDX-License-Identifier: Apache-2.0
"""Which function makes operators of the engine of an operator of PyTorch."""
import contextlib
import threading

import torch

_lite = {}  # by operator: converters for small devices
_uses_lite = threading.local()


class Converter:
    """A registered function. ``takes_symbols``: it knows sizes that are symbolic; others get Tensors in their place."""

    def __init__(self, function, takes_symbols):
        self.function = function
        self.takes_symbols = takes_symbols
        self.supported = []

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def register(target, takes_symbols=False, lite=False):
    """A decorator. What is registered later holds. ``lite``: for exports with enable_lite_export, where it goes first."""

    def keep(function):
        converter = Converter(function, takes_symbols)
        if lite:
            _lite[target] = converter
            return function
        try:
            target._ge_converter = converter
        except AttributeError:  # builtins
            _builtins[target] = converter
        return function

    return keep


_builtins = {}


@contextlib.contextmanager
def lite(is_on):
    """Whether converters for small devices go first within the block."""
    outer = getattr(_uses_lite, "value", False)
    _uses_lite.value = is_on
    try:
        yield
    finally:
        _uses_lite.value = outer


def find(target):
    if _lite and getattr(_uses_lite, "value", False) and target in _lite:
        return _lite[target]
    found = getattr(target, "_ge_converter", None)
    if found is None:
        try:
            found = _builtins.get(target)
        except TypeError:
            found = None
    return found


def overload(name):
    """ "add.Tensor", "npu.npu_rms_norm" or "prims.add": an OpOverload, or None where this PyTorch has none."""
    parts = name.split(".")
    namespace = "aten"
    if parts[0] in ("aten", "npu", "prims", "air", "c10d_functional", "_c10d_functional", "npu_define"):
        namespace = parts.pop(0)
    packet = getattr(getattr(torch.ops, namespace), parts[0], None)
    if packet is None:
        return None
    return getattr(packet, parts[1] if len(parts) > 1 else "default", None)


def converts(*names):
    """A decorator for converters of ours: of each of these operators that there is."""

    def keep(function):
        for name in names:
            target = overload(name)
            if target is not None:
                register(target, takes_symbols=True)(function)
        return function

    return keep
