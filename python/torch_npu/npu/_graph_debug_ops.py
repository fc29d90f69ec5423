# SPDX-License-Identifier: Apache-2.0
"""Operators that show tensors from within graphs: ``torch.ops.npu.print_npugraph_tensor`` and ``save_...``."""
import datetime
import itertools
import os
import threading

import torch
from torch.fx.node import has_side_effect
from torch_npu._errors import refused
from torch_npu.npu._host_functions import _launch_host_func_pending

_lock = threading.Lock()
_streams = {}
_counters = {}


def _stream_of(device):
    with _lock:
        if device.index not in _streams:
            _streams[device.index] = torch.npu.Stream(device=device, priority=-1)
        return _streams[device.index]


def _to_tensor(buffer):
    _, data, shape, dtype = buffer
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(shape)


class _Call:
    """Calls ``fn`` with tensors; keeps the host memory that the task reads."""

    def __init__(self, fn, hosts):
        self.fn = fn
        self.hosts = hosts

    def __call__(self, *buffers):
        self.fn([_to_tensor(buffer) for buffer in buffers])


def _on_values(tensors, fn):
    """Calls ``fn(list of CPU tensors)`` on the main thread with the values at this place in the stream."""
    device = tensors[0].device
    with torch.npu.device(device):
        current = torch.npu.current_stream(device)
        side = _stream_of(device)
        side.wait_stream(current)
        with torch.npu.stream(side):
            hosts = []
            for tensor in tensors:
                host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                hosts.append(host.copy_(tensor.detach(), non_blocking=True))
            args = tuple(
                ("host_tensor_ptr", host.data_ptr(), host.nbytes, tuple(host.shape), host.dtype) for host in hosts
            )
            _launch_host_func_pending(side, _Call(fn, hosts), args)
        current.wait_stream(side)


def _print(name, tensor):
    print(f"{name}={tensor}, shape={tuple(tensor.shape)}, dtype={tensor.dtype}", flush=True)


def _print_npu(input, *, tensor_name=None):
    name = "tensor" if tensor_name is None else tensor_name
    _on_values([input], lambda values: _print(name, values[0]))


def _print_cpu(input, *, tensor_name=None):
    _print("tensor" if tensor_name is None else tensor_name, input.detach())


class _Target:
    """Where values of one captured or eager call go."""

    def __init__(self, save_path, overwrite, device):
        if save_path is not None and not isinstance(save_path, str):
            raise refused(TypeError(f"save_path must be a str, not {type(save_path).__name__}"))
        if not isinstance(overwrite, bool):
            raise refused(TypeError(f"overwrite must be a bool, not {type(overwrite).__name__}"))
        if save_path is None:
            save_path = f"tensor_{datetime.datetime.now():%Y%m%d_%H%M%S_%f}"
        folder, file = os.path.split(save_path)
        stem, extension = os.path.splitext(file)
        if not stem:
            raise refused(ValueError(f"save_path {save_path!r} has no file name; name a file, such as out/x.pt"))
        if device.type == "npu":
            stem += f"_device_{device.index}"
        self.base = os.path.join(folder or os.curdir, stem)
        self.extension = extension or ".pt"
        self.overwrite = overwrite

    def save(self, value):
        path = self.base + self.extension
        if not self.overwrite:
            with _lock:
                counter = _counters.setdefault(os.path.abspath(path), itertools.count())
                path = f"{self.base}_{next(counter)}{self.extension}"
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        torch.save(value, path)


def _check_list(tensors):
    if not tensors:
        raise refused(ValueError("save_npugraph_tensor got an empty list; pass at least one tensor"))
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        names = ", ".join(sorted(str(device) for device in devices))
        raise refused(ValueError(f"save_npugraph_tensor got tensors on several devices ({names}); save them apart"))


def _save(tensors, unpack, save_path, overwrite):
    target = _Target(save_path, overwrite, tensors[0].device)
    if tensors[0].device.type == "npu":
        _on_values(tensors, lambda values: target.save(unpack(values)))
    else:
        target.save(unpack([tensor.detach() for tensor in tensors]))


def _save_one(input, *, save_path=None, overwrite=False):
    _save([input], lambda values: values[0], save_path, overwrite)


def _save_list(input, *, save_path=None, overwrite=False):
    _check_list(input)
    _save(list(input), lambda values: values, save_path, overwrite)


def _nothing(*args, **kwargs):
    return None


_library = torch.library.Library("npu", "FRAGMENT")
_library.define("print_npugraph_tensor(Tensor input, *, str? tensor_name=None) -> ()")
_library.define("save_npugraph_tensor(Tensor input, *, str? save_path=None, bool overwrite=False) -> ()")
_library.define("save_npugraph_tensor.tensor_list(Tensor[] input, *, str? save_path=None, bool overwrite=False) -> ()")
for _name, _npu, _cpu in (
    ("print_npugraph_tensor", _print_npu, _print_cpu),
    ("save_npugraph_tensor", _save_one, _save_one),
    ("save_npugraph_tensor.tensor_list", _save_list, _save_list),
):
    _library.impl(_name, _npu, "PrivateUse1")
    _library.impl(_name, _cpu, "CPU")
    _library.impl(_name, _nothing, "Meta")
    if _name.endswith("_list"):
        _library.impl(_name, _cpu, "CompositeExplicitAutograd")  # the empty list has no device
    has_side_effect(getattr(getattr(torch.ops.npu, _name.split(".")[0]), (_name + ".default").split(".")[1]))
