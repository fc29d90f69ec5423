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


@converts("npu.npu_fusion_attention")
def _fusion_attention(
    query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, keep_prob=1.0,
    pre_tockens=2147483647, next_tockens=2147483647, inner_precise=0, prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None,
    sparse_mode=0, gen_mask_parallel=True, sync=False, softmax_layout="", sink=None, dropout_mask=None, seed=0, offset=0,
    *, meta_outputs,
):
    if keep_prob < 1 or sink is not None or dropout_mask is not None or softmax_layout:
        raise NotImplementedError("npu_fusion_attention: a graph has no keep_prob below 1, sink, dropout_mask and softmax_layout")
    lengths = [None if each is None else ge.Const(list(each), dtype=DataType.DT_INT64) for each in (prefix, actual_seq_qlen, actual_seq_kvlen)]
    largest, total, weights, result = ge.operator("FlashAttentionScore")(
        query, key, value, pse, None, padding_mask, atten_mask, *lengths, None, None,
        scale_value=scale, keep_prob=1.0, pre_tockens=pre_tockens, next_tockens=next_tockens, head_num=head_num,
        input_layout=input_layout, inner_precise=inner_precise, sparse_mode=sparse_mode,
    )
    return result, largest, total, weights, 0, 0, 0
