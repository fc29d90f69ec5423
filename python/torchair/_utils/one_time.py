# SPDX-License-Identifier: Apache-2.0
"""Changes of PyTorch that hold for the process."""
import functools
import os
import sys

import torch

_BREAKS = ("SLICE", "SETITEM", "NN.CONV3D", "NN.LINEAR")


@functools.lru_cache(None)
def patch_torch():
    """Once, when the first backend is made."""
    if "torch_npu" in sys.modules:
        from torch_npu.npu import _dynamo_streams

        _dynamo_streams.register()
        _functional_writes()
    breaks = [word for word in os.environ.get("BREAK_GRAPH_OP_LIST", "").split(",") if word.strip()]
    for word in breaks:
        if word.strip().upper() not in _BREAKS:
            raise RuntimeError(f"BREAK_GRAPH_OP_LIST has {word!r}, which is none of {', '.join(_BREAKS)}")
    for word in breaks:
        _break_at(word.strip().upper())
    _keep_upsampling()


def _keep_upsampling():
    """upsample_nearest2d stays one operator for sizes with symbols, too: PyTorch takes it apart when it is traced for autograd.
    The overload by scale is the one by size, found here: PyTorch's function of it in C++ would make numbers of symbols."""
    of_scales, of_sizes = torch.ops.aten.upsample_nearest2d.vec, torch.ops.aten.upsample_nearest2d.default
    for overload in (of_scales, of_sizes):
        for key in (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd):
            overload.py_kernels.pop(key, None)
        overload._dispatch_cache.clear()

    @of_scales.py_impl(torch._C.DispatchKey.CompositeImplicitAutograd)
    @of_scales.py_impl(torch._C.DispatchKey.Autograd)
    def run(values, output_size, scale_factors):
        from torch._decomp.decompositions import upsample_compute_output_size

        wanted = upsample_compute_output_size(values.size(), output_size, scale_factors)
        return of_sizes(values, wanted, *(scale_factors or (None, None)))


def _functional_writes():
    """Operators of npu that write their first argument and return it: PyTorch makes nothing functional of them itself."""
    for name in ("npu_scatter_nd_update", "scatter_update", "npu_quant_scatter"):
        functional, written = getattr(torch.ops.npu, name, None), getattr(torch.ops.npu, name + "_", None)
        if functional is not None and written is not None:
            _make_functional(functional.default, written.default)


def _make_functional(functional, written):
    @written.py_functionalize_impl
    def run(ctx, target, *args, **kwargs):
        own, args, kwargs = ctx.unwrap_tensors(target), ctx.unwrap_tensors(args), ctx.unwrap_tensors(kwargs)
        with ctx.redispatch_to_next():
            result = functional(own, *args, **kwargs)
        ctx.replace(target, result)
        ctx.commit_update(target)
        ctx.sync(target)
        return target


def _break_at(word):
    owner, name = {
        "SLICE": (torch.Tensor, "__getitem__"),
        "SETITEM": (torch.Tensor, "__setitem__"),
        "NN.CONV3D": (torch.nn.Conv3d, "forward"),
        "NN.LINEAR": (torch.nn.Linear, "forward"),
    }[word]
    setattr(owner, name, torch._dynamo.disable(getattr(owner, name)))
