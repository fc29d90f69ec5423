# SPDX-License-Identifier: Apache-2.0
"""``import torch_npu.contrib.transfer_to_npu``: programs written for ``cuda`` run on ``npu``.

From then on, in the whole process and for good:

- functions and classes of ``torch.cuda`` are those of ``torch.npu`` of the same name;
- ``.cuda()``, ``.is_cuda``, ``device="cuda:0"``, ``torch.device("cuda")``, ``map_location="cuda"`` and
  ``torch.autocast("cuda")`` mean npu. A device says what it is: ``torch.device("cuda").type`` is ``"npu"``;
- the backend ``nccl`` of ``torch.distributed`` is ``hccl``.

What a program imported from torch before (``from torch import zeros``) stays as it is.
"""
import functools
import sys
import types
import warnings

import torch
import torch.utils._device
import torch_npu

_device = torch.device
_DEVICE_NAMES = ("device", "device_type", "map_location", "pin_memory_device", "output_device")


def _to_npu(value):
    """The value with npu in the place of cuda."""
    if isinstance(value, str):
        return "npu" + value[4:] if value == "cuda" or value.startswith("cuda:") else value
    if isinstance(value, _device):
        return _device("npu", value.index) if value.type == "cuda" else value
    if isinstance(value, dict):
        return {_to_npu(key): _to_npu(part) for key, part in value.items()}
    return value


def _named(function):
    """Arguments that name a device by keyword."""

    @functools.wraps(function)
    def call(*arguments, **options):
        for name in _DEVICE_NAMES:
            if name in options:
                options[name] = _to_npu(options[name])
        return function(*arguments, **options)

    call._goes_to_npu = True
    return call


def _any(function):
    """Any argument may be a device."""

    @functools.wraps(function)
    def call(*arguments, **options):
        return function(
            *(_to_npu(value) if isinstance(value, (str, _device)) else value for value in arguments),
            **{name: _to_npu(value) if name in _DEVICE_NAMES else value for name, value in options.items()},
        )

    call._goes_to_npu = True
    return call


def _wrap(owner, wrapper, *names):
    for name in names:
        function = getattr(owner, name, None)
        if function is not None and not getattr(function, "_goes_to_npu", False):
            setattr(owner, name, wrapper(function))


def _class_for(real):
    """Stands for a class of torch: makes what the class makes, and what is of the class is of it."""

    class Meta(type):
        def __instancecheck__(cls, value):
            return isinstance(value, real)

        def __subclasscheck__(cls, kind):
            return kind is cls or issubclass(kind, real)

        def __call__(cls, *arguments, **options):
            return real(*map(_to_npu, arguments), **{name: _to_npu(value) for name, value in options.items()})

    names = {"__module__": real.__module__, "__qualname__": real.__qualname__, "__doc__": real.__doc__}
    return Meta(real.__name__, (), names)


def _replace_classes():
    for name in ("device", "Generator", "Stream", "Event"):
        setattr(torch, name, _class_for(getattr(torch, name)))

    class autocast(torch.autocast):
        def __init__(self, device_type, *arguments, **options):
            super().__init__(_to_npu(device_type), *arguments, **options)

    class GradScaler(torch.amp.GradScaler):
        def __init__(self, device="cuda", *arguments, **options):
            super().__init__(_to_npu(device), *arguments, **options)

    torch.autocast = torch.amp.autocast = torch.amp.autocast_mode.autocast = autocast
    torch.amp.GradScaler = torch.amp.grad_scaler.GradScaler = GradScaler


def _wrap_functions():
    makers = torch.utils._device._device_constructors()
    for owner in (torch, torch.fft, torch.sparse, torch.nested, torch.signal.windows):
        for name in dir(owner):
            function = getattr(owner, name, None)
            if isinstance(function, (types.FunctionType, types.BuiltinFunctionType)) and function in makers:
                _wrap(owner, _named, name)
    for name in dir(torch):
        if name.endswith("_like") and not name.startswith("_"):
            _wrap(torch, _named, name)
    tensor = torch.Tensor
    _wrap(tensor, _any, "to", "type")
    _wrap(tensor, _named, "new_tensor", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros", "new")
    _wrap(torch.nn.Module, _any, "to", "to_empty")
    _wrap(torch.UntypedStorage, _any, "to")
    _wrap(torch, _any, "set_default_device", "get_device_module", "is_autocast_enabled", "set_autocast_enabled")
    _wrap(torch, _any, "get_autocast_dtype", "set_autocast_dtype")
    _wrap(torch.amp, _any, "is_autocast_available", "custom_fwd", "custom_bwd")
    _wrap(torch.random, _named, "fork_rng")
    _wrap(torch.jit, _named, "load")
    load = torch.load

    @functools.wraps(load)
    def load_onto_npu(f, map_location=None, *arguments, **options):
        if map_location is None:  # files that were written on cuda
            map_location = _location
        elif callable(map_location):
            map_location = functools.partial(_located_by, map_location)
        return load(f, _to_npu(map_location), *arguments, **options)

    torch.load = load_onto_npu

    def cuda(self, device=None, *arguments, **options):
        return self.npu(_to_npu(device), *arguments, **options)

    for owner in (tensor, torch.nn.Module, torch.nn.utils.rnn.PackedSequence, torch.UntypedStorage, torch.TypedStorage):
        owner.cuda = cuda
        if owner is not torch.nn.Module:
            owner.is_cuda = property(lambda self: self.is_npu)
    made = torch.utils.data.DataLoader.__init__
    torch.utils.data.DataLoader.__init__ = _named(made)


def _location(storage, location):
    return torch.serialization.default_restore_location(storage, _to_npu(location))


def _located_by(function, storage, location):
    return function(storage, _to_npu(location))


def _fill(module, source):
    """Names of a module of torch.cuda become those of torch.npu."""
    for name in dir(module):
        if name.startswith("__") or isinstance(getattr(module, name, None), types.ModuleType):
            continue
        if hasattr(source, name):
            setattr(module, name, _takes_cuda(getattr(source, name)))


def _takes_cuda(value):
    """Functions of torch.npu take the device as an argument of any place."""
    return _any(value) if isinstance(value, types.FunctionType) else value


def _replace_cuda():
    cuda, npu = torch.cuda, torch.npu
    _fill(cuda, npu)
    for name in ("amp", "memory", "random", "streams", "graphs"):
        source = getattr(npu, name, None) or sys.modules.get(f"torch_npu.npu.{name}")
        if source is not None and hasattr(cuda, name):
            _fill(getattr(cuda, name), source)
    for name in ("autocast", "GradScaler"):
        setattr(cuda.amp, name, getattr(npu.amp, name))
    cuda.CUDAGraph = cuda.graphs.CUDAGraph = npu.NPUGraph
    cuda.graph = cuda.graphs.graph = npu.graph

    class device(npu.device):
        def __init__(self, device):
            super().__init__(_to_npu(device))

    cuda.device = device
    cuda.is_built = torch.backends.cuda.is_built = lambda: True
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_, **__: 0
    cuda.nvtx.mark = cuda.nvtx.range_end = lambda *_, **__: None
    cuda.nvtx.range_start = lambda *_, **__: 0


def _replace_backends():
    import torch.distributed as dist

    if not dist.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    def backend_of(name):
        return name.replace("cuda:", "npu:").replace("nccl", "hccl") if isinstance(name, str) else name

    def with_backend(function):
        @functools.wraps(function)
        def call(*arguments, **options):
            if "backend" in options:
                options["backend"] = backend_of(options["backend"])
            elif arguments and isinstance(arguments[0], str):
                arguments = (backend_of(arguments[0]), *arguments[1:])
            if "device_id" in options:
                options["device_id"] = _to_npu(options["device_id"])
            return function(*arguments, **options)

        return call

    for owner in (dist, c10d):
        for name in ("init_process_group", "new_group"):
            setattr(owner, name, with_backend(getattr(owner, name)))
        owner.is_nccl_available = lambda: True
    import torch.distributed.device_mesh as mesh

    mesh.init_device_mesh = dist.init_device_mesh = _any(mesh.init_device_mesh)


def _replace_profiler():
    from torch_npu import profiler

    for name in ("profile", "schedule", "tensorboard_trace_handler", "ProfilerActivity", "ProfilerAction"):
        setattr(torch.profiler, name, getattr(profiler, name))


def _transfer():
    if getattr(torch.cuda, "_goes_to_npu", False):
        return
    warnings.warn(
        "torch_npu.contrib.transfer_to_npu: from now on torch.cuda and devices named cuda mean npu, in this whole process; the "
        "backend nccl means hccl",
        stacklevel=3,
    )
    _wrap_functions()
    _replace_cuda()
    _replace_classes()
    _replace_backends()
    _replace_profiler()
    torch.cuda._goes_to_npu = True


assert torch_npu.npu is torch.npu
_transfer()
