# SPDX-License-Identifier: Apache-2.0
"""``torch.compile`` with its default backend: inductor's C++ for the CPU, as tasks of the current stream.

Imported when something is compiled for the first time: PyTorch asks ``torch.npu`` for its classes then.
"""
import ctypes
import re

import torch
from torch._dynamo import device_interface
from torch._inductor import config, ir, lowering, scheduler, utils
from torch._inductor.async_compile import get_compile_threads
from torch._inductor.codecache import CppCodeCache, LambdaFuture
from torch._inductor.codegen import common, cpp, wrapper
from torch._inductor.virtualized import V
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu.npu import _inductor_config, _inductor_graphs

# ---- Kernels ----

_ENTRY = "reprise_entry"


def _kind(cpp_type):
    """The letter of an argument of this type, as _C._CompiledKernel knows them, and how it is taken from its word."""
    if cpp_type.endswith("*"):
        return "r" if cpp_type.startswith("const ") else "w", f"static_cast<{cpp_type}>({{word}})"
    plain = cpp_type.removeprefix("const ")
    kind = {"int64_t": "i", "float": "f", "double": "d"}.get(plain)
    if kind is None:
        raise refused(NotImplementedError(f"torch.compile for npu passes no arguments of type {cpp_type} to kernels"))
    return kind, f"reprise_of_word<{plain}>({{word}})"


def _with_entry(source, arg_types):
    """The kernel with a function beside it that takes all of its arguments as words."""
    if "TORCH_CHECK" in source:
        # What is thrown within threads of OpenMP ends the process; an index out of range must not.
        source = re.sub(r"^\s*#pragma omp .*$", "", source, flags=re.MULTILINE)
    arguments = ", ".join(_kind(each)[1].format(word=f"words[{i}]") for i, each in enumerate(arg_types))
    return f"""{source}
template <class T>
static T reprise_of_word(void* word) {{
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}}
extern "C" void {_ENTRY}(void* const* words) {{ kernel({arguments}); }}
"""


def compile_kernel(async_compile, name, arg_types, source):
    """What the generated program calls: makes the kernel, in the background if there are threads for it."""
    source = _with_entry(source, arg_types)
    kinds = "".join(_kind(each)[0] for each in arg_types)
    background = get_compile_threads() > 1
    load = CppCodeCache.load_async(source, submit_fn=async_compile.submit if background else None)

    def kernel():
        address = ctypes.cast(getattr(load(), _ENTRY), ctypes.c_void_p).value
        return _C._CompiledKernel(name, address, kinds)

    return LambdaFuture(kernel) if background else kernel()


class Scheduling(cpp.CppScheduling):
    """Kernels are those of the CPU."""

    def codegen_node(self, node):
        with _threads():
            return super().codegen_node(node)

    def codegen_outer_loop_node(self, node):
        with _threads():
            return super().codegen_outer_loop_node(node)

    def flush(self):
        with _threads():
            return super().flush()

    def define_kernel(self, src_code, nodes, kernel_args=None):
        wrapper_code = V.graph.wrapper_code
        if src_code in wrapper_code.src_to_kernel:
            return wrapper_code.src_to_kernel[src_code]
        descriptive = config.cpp.descriptive_names
        fused = utils.get_fused_kernel_name(nodes, descriptive) if descriptive else ""
        name = "_".join(["npu", fused, wrapper_code.next_kernel_suffix()])
        wrapper_code.src_to_kernel[src_code] = name
        src_code = src_code.replace(str(utils.Placeholder.KERNEL_NAME), "kernel")
        src_code = src_code.replace(str(utils.Placeholder.DESCRIPTIVE_NAME), name)
        src_code = src_code.replace("#pragma CMT", "//")
        args = self.kernel_group.args if kernel_args is None else kernel_args
        arg_types = args.cpp_argdefs()[2]
        body = f"npu_inductor.compile_kernel(async_compile, {name!r}, {arg_types!r}, r'''\n{src_code}\n''')"
        wrapper_code.define_kernel(name, body, gpu=False)
        return name



def _threads():
    # As many as other kernels of the CPU get here: results depend on it, and must not depend on the machine's load.
    return config.patch({"cpp.threads": _C._kernel_threads()})


# ---- The program around them ----


class _OnStreams:
    def _generate_kernel_call_helper(self, kernel_name, call_args, *, device=None, triton=True, **others):
        device = device or V.graph.get_current_device_or_throw()
        if device.type == "npu" and not triton:
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))
            return
        super()._generate_kernel_call_helper(kernel_name, call_args, device=device, triton=triton, **others)


    def make_allocation(self, name, device, *others, **options):
        out = super().make_allocation(name, device, *others, **options)
        if device.type == "npu" and device.index is not None:  # which need not be the current one
            out = out.replace("device='npu'", f"device='npu:{device.index}'", 1)
        return out


class PythonWrapperCodegen(_OnStreams, wrapper.PythonWrapperCodegen):
    @staticmethod
    def create(is_subgraph, subgraph_name, parent_wrapper, partition_signatures=None):
        if is_subgraph:
            return SubgraphPythonWrapperCodegen(subgraph_name, parent_wrapper, partition_signatures)
        return PythonWrapperCodegen()

    def write_header(self):
        super().write_header()
        self.imports.splice("from torch_npu.npu import _inductor as npu_inductor")


class SubgraphPythonWrapperCodegen(_OnStreams, wrapper.SubgraphPythonWrapperCodegen):
    pass


class CppWrapperCodegen:
    supports_caching = False

    @staticmethod
    def create(*_, **__):
        raise refused(
            NotImplementedError(
                "torch.compile for npu writes its program in Python: leave cpp_wrapper off; ahead-of-time compilation "
                "(AOTInductor) is not there for npu"
            )
        )


class DeviceOpOverrides(common.DeviceOpOverrides):
    def import_get_raw_stream_as(self, name):
        return f"from torch_npu.npu._inductor import get_raw_stream as {name}"

    def set_device(self, device_idx):
        return f"torch.npu.set_device({device_idx})"

    def synchronize(self):
        return "torch.npu.synchronize()"

    def device_guard(self, device_idx):
        return f"torch.npu.device({device_idx})"

    def current_stream(self):
        return "torch.npu.current_stream()"

    def cpp_kernel_type(self):
        return "void*"


def get_raw_stream(index):
    return torch.npu.current_stream(index).npu_stream


class DeviceInterface(device_interface.DeviceInterface):
    """What dynamo and inductor ask of a device."""

    device = torch.npu.device
    Event = torch.npu.Event
    Stream = torch.npu.Stream

    class Worker:
        @staticmethod
        def set_device(device):
            device_interface.caching_worker_current_devices["npu"] = device

        @staticmethod
        def current_device():
            known = device_interface.caching_worker_current_devices
            return known["npu"] if "npu" in known else torch.npu.current_device()

        @staticmethod
        def get_device_properties(device=None):
            return torch.npu.get_device_properties(device)

    current_device = staticmethod(torch.npu.current_device)
    set_device = staticmethod(torch.npu.set_device)
    device_count = staticmethod(torch.npu.device_count)
    is_available = staticmethod(torch.npu.is_available)
    stream = staticmethod(torch.npu.stream)
    current_stream = staticmethod(torch.npu.current_stream)
    set_stream = staticmethod(torch.npu.set_stream)
    synchronize = staticmethod(torch.npu.synchronize)
    get_device_properties = staticmethod(torch.npu.get_device_properties)
    memory_allocated = staticmethod(torch.npu.memory_allocated)
    get_raw_stream = staticmethod(get_raw_stream)

    @staticmethod
    def is_bf16_supported(including_emulation=False):
        return True

    @staticmethod
    def get_compute_capability(device=None):
        return ""

    @staticmethod
    def exchange_device(device):
        before = torch.npu.current_device()
        if device >= 0:
            torch.npu.set_device(device)
        return before

    @staticmethod
    def maybe_exchange_device(device):
        return DeviceInterface.exchange_device(device)

    @staticmethod
    def _set_stream_by_id(stream_id, device_index, device_type):
        torch.npu.set_stream(torch.npu.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


def _use_rules_of_cpp():
    """Inductor takes every device that it does not know for one of Triton: where it asks, npu answers like the CPU.

    That is not for speed alone: the positions that argmax finds in transposed memory depend on it.
    """
    backend, device_type, is_cpu = utils.get_current_backend, ir.get_device_type, scheduler.BaseSchedulerNode.is_cpu

    def get_current_backend(device=None):
        kind = device or V.graph.get_current_device_or_throw().type
        return "cpp" if kind == "npu" else backend(device)

    def get_device_type(x):
        kind = device_type(x)
        return "cpu" if kind == "npu" else kind

    def is_cpu_or_npu(self):
        device = self.get_device()
        return is_cpu(self) or (device is not None and device.type == "npu")

    utils.get_current_backend = common.get_current_backend = get_current_backend
    ir.get_device_type = get_device_type
    scheduler.BaseSchedulerNode.is_cpu = is_cpu_or_npu


def _find_positions_eagerly(kernel):
    """Inductor may walk several dimensions in another order, and then counts positions in that one."""
    compiled = lowering.lowerings[kernel]
    eager = lowering.fallback_handler(kernel, add_to_fallback_set=False)

    def find(x, dim=None, keepdim=False):
        of_all = dim is None and len(x.get_size()) > 1 and x.get_device().type == "npu"
        return (eager if of_all else compiled)(x, dim, keepdim)

    lowering.lowerings[kernel] = find


def _register():
    _use_rules_of_cpp()
    _find_positions_eagerly(torch.ops.aten.argmax.default)
    _find_positions_eagerly(torch.ops.aten.argmin.default)
    common.register_backend_for_device(
        "npu",
        Scheduling,
        PythonWrapperCodegen,
        CppWrapperCodegen,
        device_custom_config=_inductor_config,
    )
    common.register_device_op_overrides("npu", DeviceOpOverrides())
    device_interface.register_interface_for_device("npu", DeviceInterface)
    for index in range(torch.npu.device_count()):
        device_interface.register_interface_for_device(f"npu:{index}", DeviceInterface)
    _inductor_config.threads = _C._kernel_threads()
    _inductor_graphs.register()


_register()
