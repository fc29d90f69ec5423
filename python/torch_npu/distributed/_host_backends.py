# SPDX-License-Identifier: Apache-2.0
"""Collectives on tensors of ``npu``, by a backend of the CPU (gloo, mpi) that a program names for them.

Memory of the device is memory of the host. So a collective waits for what the current stream has to do (the backend
works in threads of its own, not in the order of streams), calls the same collective with tensors of the CPU over the
same bytes, and gives the tensors of the device back. As with tensors of the CPU, a result is there when ``wait`` has
returned; what is queued on the device after that sees it.
"""
import warnings

import torch
import torch.library
from torch_npu import _C
from torch_npu._errors import refused

_library = None


def _views(value, made):
    """The value with tensors of the CPU in the place of those of npu; ``made`` maps each to the one it stands for."""
    if isinstance(value, torch.Tensor):
        if value.device.type != "npu":
            return value
        if value.layout != torch.strided:
            raise refused(
                RuntimeError(
                    f"collectives of npu take dense tensors, not {value.layout}; call to_dense() before, or communicate .cpu()"
                )
            )
        view = _C._npu_hostView(value)
        made.append((view, value))
        return view
    if isinstance(value, (list, tuple)):
        return type(value)(_views(part, made) for part in value)
    return value


def _originals(value, made):
    if isinstance(value, torch.Tensor):
        for view, original in made:
            if view is value or (view.data_ptr() == value.data_ptr() and view.shape == value.shape):
                return original
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(_originals(part, made) for part in value)
    return value


def _work_over(boxed, made):
    """Work whose results are the tensors of the device."""
    from torch._C import _distributed_c10d as c10d

    work = c10d.Work.unbox(boxed)
    try:
        future = work.get_future()
    except RuntimeError:  # of barriers, say
        return boxed
    return c10d._create_work_from_future(future.then(lambda done: _originals(done.value(), made))).boxed()


def _device_of(value):
    if isinstance(value, torch.Tensor):
        return value.device if value.device.type == "npu" else None
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_device_of, value)), None)
    return None


def _group_of(arguments):
    from torch._C._distributed_c10d import ProcessGroup

    for value in arguments:
        if isinstance(value, torch.ScriptObject) and "ProcessGroup" in str(value._type()):
            return ProcessGroup.unbox(value)
    return None


def _is_of_hccl(arguments):
    from torch_npu.distributed import _backend

    group = _group_of(arguments)
    return group is not None and _backend.is_hccl(_backend.serving_npu(group))


def _kernel(name, native):
    operator = getattr(torch.ops.c10d, name)
    # Results of these are those of their work; others say from whom they received.
    keeps_work = name in ("send", "recv_", "recv_any_source_", "barrier")

    def call(keys, *arguments):
        if _is_of_hccl(arguments):
            return native.call_boxed(keys, *arguments)
        device = _device_of(arguments) or torch.device("npu", _C._npu_getDevice())
        with torch.npu.device(device):
            if torch.npu.is_current_stream_capturing():
                raise refused(
                    RuntimeError(
                        f"c10d.{name}: a collective of a backend of the CPU works outside of streams and cannot be captured; "
                        'call it before or after the capture, or use the backend "hccl"'
                    )
                )
            torch.npu.current_stream().synchronize()
        made = []
        result = operator(*(_views(value, made) for value in arguments))
        if isinstance(result, tuple):
            return *(_originals(part, made) for part in result[:-1]), _work_over(result[-1], made)
        return result if keeps_work else _work_over(result, made)

    return call


def _barrier(native):
    def call(keys, tensor, group, devices, timeout, *rest):
        if _is_of_hccl([group]):
            return native.call_boxed(keys, tensor, group, devices, timeout, *rest)
        torch.npu.synchronize()
        return torch.ops.c10d.barrier(torch.empty(1), group, devices, timeout, *rest)

    return call


def _with_npu(devices):
    return devices if "npu" in devices else [*devices, "npu"]


def announce():
    """Backends of the CPU may be named for tensors of the device."""
    from torch.distributed.distributed_c10d import Backend

    for name in (Backend.GLOO, Backend.MPI, Backend.FAKE):
        Backend.backend_capability[name] = _with_npu(Backend.backend_capability[name])


def serve(group):
    """Called for each new group. The first whose backend of npu is one of the CPU makes PyTorch's operators for the
    device ask which of the two the group has; until then they go to hccl without a detour."""
    from torch_npu.distributed import _backend

    if _library is None:
        backend = _backend.serving_npu(group)
        if backend is not None and not _backend.is_hccl(backend):
            _register()


def _register():
    global _library
    _library = torch.library.Library("c10d", "IMPL", "PrivateUse1")  # noqa: TOR901  lives as long as the process
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(.|\n)*verriding a previously registered kernel")  # it is meant
        for line in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"):
            namespace, _, name = line.partition("::")
            if namespace == "c10d":
                native = torch.library.get_kernel(line, "PrivateUse1")
                kernel = _barrier(native) if name == "barrier" else _kernel(name, native)
                _library.impl(name, kernel, "PrivateUse1", with_keyset=True, allow_override=True)
