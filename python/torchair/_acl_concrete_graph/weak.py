# SPDX-License-Identifier: Apache-2.0
"""References that keep nothing alive, and messages that are made when they are shown."""
import weakref

import torch
import torch_npu


class WeakRef:
    """Called, it gives the tensor while somebody else holds it, then None. What is not a tensor it gives for ever."""

    __slots__ = ("_ref", "_value")

    def __init__(self, value):
        is_tensor = isinstance(value, torch.Tensor)
        self._ref = weakref.ref(value) if is_tensor else None
        self._value = None if is_tensor else value

    def __call__(self):
        return self._value if self._ref is None else self._ref()


class LazyMessage:
    """A text that is put together only when a log record is written."""

    __slots__ = ("_function", "_args")

    def __init__(self, function, *args):
        self._function = function
        self._args = args

    def __str__(self):
        return str(self._function(*self._args))


def bare(value):
    """The same for tensors of the device, without owning their memory; lists and dicts of them, too."""
    if isinstance(value, torch.Tensor):
        return torch_npu._C._weak_ref_tensor(value) if value.device.type == "npu" else value
    if isinstance(value, (list, tuple)):
        return type(value)(bare(item) for item in value)
    if isinstance(value, dict):
        return {key: bare(item) for key, item in value.items()}
    return value
