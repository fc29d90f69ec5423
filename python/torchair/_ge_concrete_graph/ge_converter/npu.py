# SPDX-License-Identifier: Apache-2.0
"""Operators of torch.ops.npu: most are one of the engine, with inputs and attributes of the same names."""
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Cast, Const
from torchair._ge_concrete_graph.registry import converts


@converts("npu.npu_swiglu")
def _swiglu(self, dim=-1, *, meta_outputs):
    return ge.operator("SwiGlu")(self, dim=dim)


@converts("npu.fast_gelu", "npu.npu_fast_gelu")
def _fast_gelu(self, *, meta_outputs):
    return ge.operator("FastGelu")(self)


@converts("npu.scatter_update")
def _scatter_update(self, indices, updates, axis, *, meta_outputs):
    return ge.operator("Scatter")(ge.Clone(self), indices, updates, reduce="update", axis=axis)


@converts("npu.scatter_update_")
def _scatter_update_(self, indices, updates, axis, *, meta_outputs):
    return ge.operator("Scatter")(self, indices, updates, reduce="update", axis=axis)


@converts("npu.npu_scatter_nd_update")
def _scatter_nd_update(self, indices, updates, *, meta_outputs):
    return ge.operator("ScatterNdUpdate")(ge.Clone(self), indices, updates)


@converts("npu.npu_scatter_nd_update_")
def _scatter_nd_update_(self, indices, updates, *, meta_outputs):
    return ge.operator("ScatterNdUpdate")(self, indices, updates)


_ = Cast, Const, DataType
