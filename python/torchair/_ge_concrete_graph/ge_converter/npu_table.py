# SPDX-License-Identifier: Apache-2.0
"""Operators of torch.ops.npu that are one operator of the engine, as a table. Arguments find the inputs and attributes of
their name; a row says which others go where. An argument that has no place must have its default."""
import torch

from torchair._ge_concrete_graph import _operators, auto_converter
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Const
from torchair._ge_concrete_graph.ge_converter.common import full, reshape
from torchair._ge_concrete_graph.graph import Tensor
from torchair._ge_concrete_graph.registry import overload, register

_INT4 = {torch.quint4x2, 16, 285}  # torch's number of it, and 256 more than the engine's


def _word(name):
    return name.replace("_", "").lower()


class Row:
    """``names``: of inputs and attributes, the argument in their place; ``made``: a function of all arguments instead of
    one; ``ignored``: arguments that change nothing here; ``absent``: outputs that nobody may read without an argument;
    ``counts``: the argument that counts the rows of groups: the operator leaves rows behind them as they are, PyTorch has
    zeros there."""

    def __init__(self, target, kind, names=(), made=(), ignored=(), absent=(), counts=None):
        self.target, self.kind, self.absent, self.counts = target, kind, dict(absent), counts
        self.own = _operators.definition(kind)
        self.made = dict(made)
        arguments = {_word(each.name): each.name for each in target._schema.arguments}
        self.names = {}
        for name in [each.name for each in self.own.inputs] + list(self.own.attributes):
            if name in dict(names):
                self.names[name] = dict(names)[name]
            elif name not in self.made and _word(name) in arguments:
                self.names[name] = arguments[_word(name)]
        self.types = {each.attribute: i for i, each in enumerate(self.own.outputs) if each.attribute}
        self.known = {*self.names.values(), *ignored}
        self.written = {each.name for each in target._schema.arguments if each.alias_info is not None and each.alias_info.is_write}

    def __call__(self, *args, meta_outputs, **kwargs):
        values = auto_converter.bind(self.target._schema, args, kwargs)
        self._check(values)
        values["metas"] = metas = meta_outputs if isinstance(meta_outputs, tuple) else (meta_outputs,)
        given = {name: values[argument] for name, argument in self.names.items()}
        for name, make in self.made.items():
            given[name] = make(values)
        outputs = [each.name for each in self.own.outputs]
        order = outputs[: len(metas)]
        for name in self.types:
            owner = outputs[self.types[name]]
            if owner in order:
                given[name] = int(metas[order.index(owner)].dtype)
        for operand in self.own.inputs:
            given[operand.name] = self._operand(operand, given.get(operand.name), outputs)
        counts = {f"size_of_{each.name}": len(metas) for each in self.own.outputs if each.mark == "[]"}
        made = ge.operator(self.kind)(**{name: value for name, value in given.items() if value is not None}, **counts)
        made = dict(zip(outputs, made if isinstance(made, tuple) else (made,)))
        results = [made[name] if values[self.absent.get(name, self.names[self.own.inputs[0].name])] is not None else full(meta, 0)
                   for name, meta in zip(order, metas)]
        if self.counts is not None and values[self.counts] is not None:
            results = [_zeros_behind(each, meta, values[self.counts], values["x"].rank - 1) for each, meta in zip(results, metas)]
        return results[0] if len(results) == 1 else results

    def _check(self, values):
        for argument in self.target._schema.arguments:
            value = values[argument.name]
            if argument.name in self.known or value is None or argument.name in _TYPES:
                if argument.name in _TYPES and value in _INT4:
                    raise NotImplementedError(f"{self.target}: {argument.name} says int4, which graphs of the engine do not pack")
                continue
            if argument.name in self.made or (argument.has_default_value() and value == argument.default_value):
                continue
            if isinstance(value, (list, tuple)) and not value:
                continue
            raise NotImplementedError(
                f"{self.target}: {argument.name} is {value!r}, which {self.kind} of the graph engine has no place for; leave it out, or "
                "register a converter with torchair.register_fx_node_ge_converter"
            )

    def _operand(self, operand, value, outputs):
        if operand.mark == "[]":
            value = [] if value is None else [value] if isinstance(value, Tensor) else list(value)
        # What the operator writes although PyTorch has it as a new result.
        if operand.name in outputs and self.names.get(operand.name) not in self.written:
            return [ge.Clone(each) for each in value] if isinstance(value, list) else None if value is None else ge.Clone(value)
        return value


def _zeros_behind(tensor, meta, counts, dims):
    """``tensor``, whose first dims are rows, with zeros in those behind as many as ``counts`` has together."""
    shape = list(meta.symsize)
    rows = 1
    for size in shape[:dims]:
        rows = rows * size
    count = ge.operator("ReduceSum")(ge.promoted(counts, DataType.DT_INT64), Const([0]))
    places = ge.operator("Range")(*(ge.promoted(each, DataType.DT_INT64) for each in (0, rows, 1)))
    kept = reshape(ge.operator("Less")(places, count), shape[:dims] + [1] * (len(shape) - dims))
    return ge.operator("SelectV2")(kept, tensor, Const(0, meta.dtype))


# Arguments that say the type of a result or of packed elements; PyTorch's types of results say the former.
_TYPES = {"dst_type", "dst_dtype", "y_dtype", "dtype", "output_dtype", "src_dtype", "x_dtype", "weight_dtype", "x1_dtype", "x2_dtype",
          "scale_dtype", "per_token_scale_dtype", "pertoken_scale_dtype", "w_dtype", "tokens_dtype", "query_dtype", "key_dtype",
          "value_dtype", "out_dtype", "quant_dtype"}

_MODES = {"half": 0, "interleave": 1, "quarter": 2, "interleave-half": 3}


def _from(table, argument):
    def pick(values):
        if values[argument] not in table:
            raise NotImplementedError(f"{argument} is {values[argument]!r}; graphs of the engine know {', '.join(map(repr, table))}")
        return table[values[argument]]

    return pick


def _tokens_of_experts(values):
    return values["expert_tokens"] if values["expert_tokens_index"] is None else values["expert_tokens_index"]


def _wide(argument):
    """In float32 where it is of bfloat16, which biases of the engine's operators are not."""

    def pick(values):
        value = values[argument]
        widen = lambda each: ge.Cast(each, dst_type=DataType.DT_FLOAT) if each.dtype == DataType.DT_BF16 else each  # noqa: E731
        return None if value is None else [widen(each) for each in value] if isinstance(value, (list, tuple)) else widen(value)

    return pick


def _permutation(argument, default):
    return lambda values: values[argument] or default


_GROUPED = dict(
    made={"per_token_scale": lambda values: _only(values, "per_token_scale"),
          "group_type": lambda values: _or(values["group_type"], -1), "bias": _wide("bias"),
          # float16, bfloat16, int8, else int32
          "dtype": lambda values: {DataType.DT_FLOAT16: 0, DataType.DT_BF16: 1, DataType.DT_INT8: 2}.get(values["metas"][0].dtype, 3)},
    ignored=("per_token_scale", "group_type", "bias"),
)
_ROWS = (
    ("npu_add_rms_norm_cast", "AddRmsNormCast"),
    ("npu_add_rms_norm_dynamic_quant", "AddRmsNormDynamicQuant", dict(absent={"y2": "smooth_scale2", "scale2": "smooth_scale2"})),
    ("npu_anti_quant", "AscendAntiQuantV2"),
    ("npu_apply_rotary_pos_emb", "ApplyRotaryPosEmb", dict(made={"layout": _from({"BSND": 1}, "layout")})),
    ("npu_attention_update", "AttentionUpdate", dict(names={"go": "local_out"}, made={"sp": lambda values: len(values["lse"])})),
    ("npu_clipped_swiglu", "ClippedSwiglu", dict(counts="group_index")),
    ("npu_dequant_swiglu_quant", "DequantSwigluQuant", dict(
        counts="group_index", made={"quant_mode": _from({0: "static", 1: "dynamic"}, "quant_mode"), "round_mode": _from({None: "rint", 0: "rint"}, "round_mode")})),
    ("npu_dynamic_quant", "DynamicQuant", dict(names={"x": "input"})),
    ("npu_dynamic_quant_asymmetric", "DynamicQuantV2", dict(names={"x": "input"})),
    ("npu_fast_gelu_backward", "FastGeluGrad", dict(names={"dy": "grad", "x": "input"})),
    ("npu_ffn", "FFN", dict(made={"expert_tokens": _tokens_of_experts,
                                  "tokens_index_flag": lambda values: values["expert_tokens_index"] is not None},
                            ignored=("expert_tokens_index", "inner_precise"))),
    ("npu_fused_infer_attention_score", "FusedInferAttentionScore"),
    ("npu_fused_infer_attention_score_v2", "FusedInferAttentionScore", dict(
        names={"num_heads": "num_query_heads", "scale": "softmax_scale", "actual_seq_lengths": "actual_seq_qlen",
               "actual_seq_lengths_kv": "actual_seq_kvlen", "key_antiquant_scale": "dequant_scale_key",
               "key_antiquant_offset": "dequant_offset_key", "value_antiquant_scale": "dequant_scale_value",
               "value_antiquant_offset": "dequant_offset_value", "key_rope_antiquant_scale": "dequant_scale_key_rope",
               "quant_scale2": "quant_scale_out", "quant_offset2": "quant_offset_out", "quant_scale1": "quant_scale_p",
               "softmax_lse_flag": "return_softmax_lse", "key_antiquant_mode": "key_quant_mode",
               "value_antiquant_mode": "value_quant_mode"})),
    ("npu_fused_matmul", "FusedMatMul"),
    ("npu_geglu", "GeGluV2", dict(names={"x": "input"})),
    ("npu_gelu", "GeluV2", dict(names={"x": "input"})),
    ("npu_gelu_backward", "GeluGradV2", dict(names={"dy": "grad_output", "x": "input"})),
    ("npu_gelu_quant", "GeluQuant", dict(names={"x": "input"})),
    ("npu_group_norm_silu", "GroupNormSilu", dict(names={"x": "input", "gamma": "weight", "beta": "bias", "num_groups": "group"})),
    ("npu_group_quant", "GroupQuant"),
    ("npu_grouped_matmul", "GroupedMatmul", _GROUPED),
    ("npu_grouped_matmul.List", "GroupedMatmul", _GROUPED),
    ("npu_grouped_matmul_finalize_routing", "GroupedMatmulFinalizeRouting", dict(made={"dtype": lambda values: 0})),
    ("npu_incre_flash_attention", "IncreFlashAttention"),
    ("npu_interleave_rope", "InterleaveRope"),
    ("npu_masked_causal_conv1d", "MaskedCausalConv1d"),
    ("npu_masked_softmax_with_rel_pos_bias", "MaskedSoftmaxWithRelPosBias"),
    ("npu_mla_prolog_v3_functional", "MlaPrologV3"),
    ("npu_moe_compute_expert_tokens", "MoeComputeExpertTokens", dict(
        names={"sorted_experts": "sorted_expert_for_source_row", "num_experts": "num_expert"})),
    ("npu_moe_gating_top_k_softmax", "MoeGatingTopKSoftmax"),
    ("npu_moe_init_routing", "MoeInitRouting"),
    ("npu_moe_re_routing", "MoeReRouting"),
    ("npu_moe_update_expert", "MoeUpdateExpert"),
    ("npu_prompt_flash_attention", "PromptFlashAttention"),
    ("npu_qkv_rms_norm_rope_cache_functional", "QkvRmsNormRopeCache"),
    ("npu_quant_grouped_matmul_dequant", "QuantGroupedMatmulDequant", dict(names={"x_quant_mode": "quant_mode"})),
    ("npu_quant_matmul", "QuantBatchMatmulV3"),
    ("npu_quant_matmul_dequant", "QuantMatmulDequant", dict(names={"x_quant_mode": "quant_mode"})),
    ("npu_quant_matmul_reduce_sum", "QuantMatmulReduceSum", dict(made={"dims": lambda values: [0]})),
    ("npu_quant_scatter", "QuantUpdateScatter", dict(names={"var": "input"})),
    ("npu_quant_scatter_", "QuantUpdateScatter", dict(names={"var": "input"})),
    ("npu_rms_norm_backward", "RmsNormGrad", dict(names={"x": "input"})),
    ("npu_rotary_mul_backward", "RotaryPositionEmbeddingGrad", dict(
        names={"dy": "grad", "cos": "r1", "sin": "r2", "x": "input"}, made={"mode": _from(_MODES, "rotary_mode")}, ignored=("rotary_mode",))),
    ("npu_scatter_list", "ScatterList", dict(names={"var": "input", "indice": "indices"})),
    ("npu_scatter_pa_kv_cache_functional", "ScatterPaKvCache", dict(names={"compress_seq_offset": "compress_seq_offsets"})),
    ("npu_swiglu_backward", "SwiGluGrad", dict(names={"y_grad": "grad_output", "x": "input"})),
    ("npu_trans_quant_param", "TransQuantParamV2"),
    ("npu_transpose_batchmatmul", "TransposeBatchMatMul", dict(
        names={"x1": "input", "x2": "weight"}, made={"perm_y": _permutation("perm_y", [1, 0, 2])}, ignored=("perm_y",))),
    ("npu_transpose_quant_batchmatmul", "TransposeQuantBatchMatMul"),
    ("npu_weight_quant_batchmatmul", "WeightQuantBatchMatmulV2", dict(made={"bias": _wide("bias")}, ignored=("inner_precise", "bias"))),
)


def _or(value, other):
    return other if value is None else value


def _only(values, name):
    """Of a list that may have one tensor at most."""
    found = values[name] or []
    if len(found) > 1:
        raise NotImplementedError(f"{name} has {len(found)} tensors; graphs of the engine take one")
    return found[0] if found else None


def _register():
    for name, kind, *more in _ROWS:
        target = overload(f"npu.{name}")
        if target is not None:
            register(target, takes_symbols=True)(Row(target, kind, **(more[0] if more else {})))


_register()

# ---- Those that are more than one operator ----


def _converts(name):
    def keep(function):
        target = overload(f"npu.{name}")
        if target is not None:
            register(target, takes_symbols=True)(function)
        return function

    return keep


@_converts("npu_rotary_mul")
def _rotary_mul(input, r1, r2, rotary_mode="half", rotate=None, *, meta_outputs):  # noqa: A002
    if rotate is not None:
        raise NotImplementedError("npu_rotary_mul: rotate has no place in graphs of the engine; leave it out")
    mode = _from(_MODES, "rotary_mode")({"rotary_mode": rotary_mode})
    return ge.operator("RotaryPositionEmbedding")(input, r1, r2, mode=mode) if mode else ge.operator("RotaryMul")(input, r1, r2)


def _kept_convolution(kind):
    def convert(x, weight, conv_states, *, meta_outputs, activation="None", conv_mode="default", **given):
        activations, modes = {None: 0, "None": 0, "silu": 1, "swish": 2}, {None: 0, "default": 0, "pangu": 1}
        given.setdefault("residual_connection", 0)
        return ge.operator(kind)(
            x, weight, conv_states, activation_mode=_from(activations, "activation")({"activation": activation}),
            conv_mode=_from(modes, "conv_mode")({"conv_mode": conv_mode}),
            **{name: value for name, value in given.items() if value is not None},
        )

    return convert


@_converts("npu_fused_causal_conv1d")
def _fused_causal_conv1d(*args, **kwargs):
    return _kept_convolution("FusedCausalConv1d")(*args, **kwargs)[1]


@_converts("npu_fused_causal_conv1d_v2")
def _fused_causal_conv1d_in_place(*args, **kwargs):
    _kept_convolution("InplaceFusedCausalConv1d")(*args, **kwargs)


@_converts("npu_linear")
def _linear(input, weight, bias=None, *, meta_outputs):  # noqa: A002
    return ge.operator("MatMulV2")(input, weight, bias, transpose_x2=True)


@_converts("npu_prefetch")
def _prefetch(input, dependency, max_size, offset=0, *, meta_outputs):  # noqa: A002
    ge.operator("Cmo")(input, max_size=max_size, offset=offset, dependencies=[] if dependency is None else [dependency])


@_converts("npu_quantize")
def _quantize(input, scales, zero_points, dtype, axis=1, div_mode=True, *, meta_outputs):  # noqa: A002
    if dtype in _INT4:
        raise NotImplementedError("npu_quantize: dtype says int4, which graphs of the engine do not pack")
    offset = None if zero_points is None else ge.promoted(zero_points, scales.dtype)
    scale = ge.operator("Reciprocal")(scales) if div_mode else scales
    return ge.operator("AscendQuantV2")(input, scale, offset, axis=axis, dst_type=int(meta_outputs.dtype))

