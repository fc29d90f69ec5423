# SPDX-License-Identifier: Apache-2.0
"""``torch.compile(backend="npugraph_ex")`` and what belongs to it: functions that are captured and replayed."""
import importlib

from torch_npu._errors import refused

__all__ = ["compile_fx", "inference", "register_replacement", "scope"]

VERSION = "1.0.6"  # of cached programs

_DEFAULTS = {
    "force_eager": False,
    "use_graph_pool": None,
    "reuse_graph_pool_in_same_fx": True,
    "capture_limit": 64,
    "clone_input": True,
    "clone_output": False,
    "disable_static_kernel_compile_cache": False,
    "static_kernel_compile": False,
    "frozen_parameter": False,
    "remove_noop_ops": True,
    "remove_cat_ops": True,
    "pattern_fusion_pass": True,
    "inplace_pass": True,
    "input_inplace_pass": True,
    "post_grad_custom_pre_pass": None,
    "post_grad_custom_post_pass": None,
    "dump_tensor_data": False,
    "data_dump_stage": "optimized",
    "data_dump_dir": "./",
    "_vllm_aclnn_static_kernel_sym_index": 0,
    "_vllm_aclnn_static_kernel_sym_range": None,
    "super_kernel_optimize": False,
    "super_kernel_optimize_options": None,
    "super_kernel_debug_options": None,
    "deadlock_check": False,
    "capture_error_mode": "global",
    "force_recapture": False,
    "mode": "npugraph_ex",
}
_OWN = ("disable_static_kernel_compile_cache", "capture_error_mode", "force_recapture")  # not of CompilerConfig
_CAPTURE_MODES = ("global", "thread_local", "relaxed")


def _config(options):
    """A CompilerConfig of torchair for these options."""
    options = dict(options or {})
    for name in options:
        if name not in _DEFAULTS:
            raise refused(ValueError(f"Invalid option {name!r}, expected one of {', '.join(_DEFAULTS)}"))
    mode = options.pop("mode", "npugraph_ex")
    if mode != "npugraph_ex":
        raise refused(ValueError(f"option 'mode' is {mode!r}, but this backend has only 'npugraph_ex'"))
    if options.get("capture_error_mode", "global") not in _CAPTURE_MODES:
        raise refused(
            ValueError(
                f"option 'capture_error_mode' is {options['capture_error_mode']!r}, expected one of "
                f"{', '.join(_CAPTURE_MODES)}"
            )
        )
    config = importlib.import_module("torchair").CompilerConfig()
    config.mode = "npugraph_ex"
    if "deadlock_check" in options:
        config.debug.deadlock_check = bool(options.pop("deadlock_check"))
    config.npugraphex_config = {name: options.pop(name) for name in _OWN if name in options}
    config.take_options(options)
    return config


def _backend(gm, example_inputs, options=None, **kwargs):
    compiler = importlib.import_module("torchair.npu_fx_compiler")
    return compiler.get_npu_backend(compiler_config=_config(options))(gm, example_inputs, **kwargs)


_backend.captures = True  # for torch.npu.set_stream in what dynamo traces


def compile_fx(gm, example_inputs=None, options=None):
    """Compiles an FX graph: of operators (torch.ops.aten…), as compilers of AOT autograd get it, or as dynamo makes it.

    Without ``example_inputs`` those are taken that the graph was traced with.
    """
    return importlib.import_module("torchair._acl_concrete_graph.compile_fx").compile_fx(
        gm, example_inputs, _config(options)
    )


def register_replacement(*args, **kwargs):
    """See torchair.register_replacement."""
    return importlib.import_module("torchair").register_replacement(*args, **kwargs)


def __getattr__(name):
    if name in ("inference", "scope"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
