# SPDX-License-Identifier: Apache-2.0
"""Graph operators that are one aclnn function: the cases of that function (cases_*.py), with operands by their names in
the prototype. Names fit where they are equal but for underscores and endings ("k_cache", "kCacheRef"); what fits
otherwise stands in BORROWED.
"""

import re

import torch

import graph_ops
from aclnn import NUMBERS, TABLE
from harness import Scalar, cases_of, load_cases, traits

# Type, with a word behind a slash where several functions compute it: the function; names of the prototype to parameters
# where they differ, None for what the function does not have; what cases must pass for parameters that the prototype does
# not have (... for anything), "@name" for attributes that the function does not have, "when" for what else must hold.
BORROWED = {
    # attention
    "ApplyRotaryPosEmb": ("ApplyRotaryPosEmbV2", {}, {}),
    "AttentionUpdate": ("AttentionUpdate", {"go": "localOut", "output": "out", "lse_m": "lseOut", "sp": None}, {"@sp": lambda case: len(case.args["lse"])}),
    "FlashAttentionScore": ("FlashAttentionScore", {"pre_tockens": "preTokens", "next_tockens": "nextTokens",
        "softmax_out": "softmaxOutOut", "attention_out": "attentionOutOut"}, {}),
    "FlashAttentionScore/lengths": ("FlashAttentionVarLenScore", {"pre_tockens": "preTokens", "next_tockens": "nextTokens",
        "softmax_out": "softmaxOutOut", "attention_out": "attentionOutOut",
        "actual_seq_qlen": "actualSeqQLenOptional", "actual_seq_kvlen": "actualSeqKvLenOptional"}, {}),
    "FlashAttentionScoreGrad": ("FlashAttentionScoreGrad", {"key": "keyIn", "pre_tockens": "preTokens",
        "next_tockens": "nextTokens"}, {}),
    "FlashAttentionScoreGrad/lengths": ("FlashAttentionUnpaddingScoreGrad", {"key": "keyIn", "pre_tockens": "preTokens",
        "next_tockens": "nextTokens", "actual_seq_qlen": "actualSeqQLenOptional",
        "actual_seq_kvlen": "actualSeqKvLenOptional"}, {}),
    "FusedInferAttentionScore": ("FusedInferAttentionScoreV4", {"scale": "scaleValue", "dequant_scale1": "deqScale1Optional",
        "dequant_scale2": "deqScale2Optional"}, {}),
    "IncreFlashAttention": ("IncreFlashAttentionV4", {"block_table": "blocktable"}, {}),
    "InterleaveRope": ("InterleaveRope", {"y": "out"}, {}),
    "KvRmsNormRopeCache": ("KvRmsNormRopeCacheV2", {"c_kv_scale": "ckvScaleOptional", "c_kv_offset": "ckvOffsetOptional"}, {}),
    "MaskedSoftmaxWithRelPosBias": ("MaskedSoftmaxWithRelPosBias", {"y": "out"}, {}),
    "MlaProlog": ("MlaPrologV2WeightNz", {}, {"dequantScaleQNopeOutOptional": None}),
    "MlaPrologV2": ("MlaPrologV2WeightNz", {}, {}),
    "MlaPrologV3": ("MlaPrologV3WeightNz", {}, {"@query_norm_flag":
        lambda case: case.expect["queryNormOutOptional"] is not None}),
    "PromptFlashAttention": ("PromptFlashAttentionV3", {}, {}),
    "QkvRmsNormRopeCache": ("QkvRmsNormRopeCache", {"q_out": "qOutRef", "is_output_qkv": None},
        {"@is_output_qkv": lambda case: case.expect["qOutBeforeQuantOptional"] is not None}),
    "RotaryMul": ("RotaryPositionEmbedding", {"r1": "cos", "r2": "sin", "y": "out"}, {"mode": 0}),
    "RotaryMulGrad": ("RotaryPositionEmbeddingGrad", {"r1": "cos", "r2": "sin", "dr1": "dcosOut", "dr2": "dsinOut"}, {"mode": 0}),
    "RotaryPositionEmbedding": ("RotaryPositionEmbeddingV2", {"y": "out", "rotate": "rotateOptional"}, {}),
    "RotaryPositionEmbeddingGrad": ("RotaryPositionEmbeddingGrad", {}, {}),
    # indexing
    "EmbeddingDenseGrad": ("EmbeddingDenseBackward", {"y": "out"}, {}),
    "Gather": ("Embedding", {"x": "weight", "y": "out"}, {}),
    "GatherElements": ("Gather", {"x": "self", "y": "out"}, {}),
    "GatherV2": ("GatherV3", {"x": "self", "axis": "dim", "indices": "index", "y": "out"}, {"mode": 0}),
    "QuantUpdateScatter": ("InplaceQuantScatterV2", {"var": "selfRef"}, {"reduction": 1, "@reduce": "update"}),
    "Scatter": ("InplaceScatterUpdate", {"var": "data"}, {"@reduce": "update"}),
    "ScatterElements": ("ScatterAdd", {"data": "self", "axis": "dim", "indices": "index", "updates": "src", "y": "out"},
        {"@reduction": "add"}),
    "ScatterList": ("ScatterList", {}, {}),
    "ScatterNdUpdate": ("ScatterNdUpdate", {}, {}),
    "ScatterPaKvCache": ("ScatterPaKvCache", {}, {}),
    # norms
    "AddRmsNorm": ("AddRmsNorm", {}, {}),
    "AddRmsNormCast": ("AddRmsNormCast", {}, {}),
    "GroupNormSilu": ("GroupNormSilu", {"x": "self", "num_groups": "group", "y": "out", "variance": "rstdOut"}, {}),
    "LayerNormV4": ("LayerNorm", {"x": "input", "gamma": "weightOptional", "beta": "biasOptional", "epsilon": "eps",
        "y": "out"}, {}),
    "RmsNorm": ("RmsNorm", {}, {}),
    "RmsNormGrad": ("RmsNormGrad", {}, {}),
    "RmsNormGradQuant": ("RmsNormGradQuant", {"scale_x": "scalesX", "offset_x": "offsetXOptional"}, {}),
    "SyncBatchNormGatherStats": ("SyncBatchNormGatherStats", {}, {}),
    # products
    "AddLora": ("AddLora", {"y": "y"}, {"out": Ellipsis}),
    "FFN": ("FFNV2", {}, {}),
    "FusedMatMul": ("FusedMatmul", {}, {"cubeMathType": 0}),
    "GroupedMatmul": ("GroupedMatmulV4", {"y": "out"}, {"activationInputOptional": None, "activationQuantScaleOptional": None,
        "activationQuantOffsetOptional": None, "activationFeatureOutOptional": None, "dynQuantScaleOutOptional": None}),
    "GroupedMatmulFinalizeRouting": ("GroupedMatmulFinalizeRoutingV3", {"x": "x1", "w": "x2", "transpose_x": "transposeX1",
        "transpose_w": "transposeX2", "y": "out", "output_bs": None}, {"antiquantScaleOptional": None,
        "antiquantOffsetOptional": None, "@output_bs": lambda case: case.expect["out"].shape[0]}),
    "GroupedMatmulSwigluQuantV2": ("GroupedMatmulSwigluQuantV2", {"y": "output", "y_scale": "outputScale"}, {}),
    "QuantBatchMatmulV3": ("QuantMatmulV4", {"y": "out"}, {}),
    "QuantGroupedMatmulDequant": ("QuantGroupedMatmulDequant", {"quantized_weight": "weight", "y": "out"}, {}),
    "QuantMatmulDequant": ("QuantMatmulDequant", {"quantized_weight": "weight", "y": "out"}, {}),
    "QuantMatmulReduceSum": ("QuantMatmulReduceSumWeightNz", {"y": "out"}, {}),
    "TransposeBatchMatMul": ("TransposeBatchMatMul", {"y": "out"}, {"cubeMathType": 0}),
    "TransposeQuantBatchMatMul": ("TransposeQuantBatchMatMul", {"y": "out"}, {}),
    "WeightQuantBatchMatmulV2": ("WeightQuantBatchMatmulV3", {}, {"antiquantGroupSize": 0}),
    # quantisation
    "AddRmsNormDynamicQuant": ("AddRmsNormDynamicQuantV2", {}, {}),
    "AscendAntiQuantV2": ("AscendAntiQuant", {}, {}),
    "AscendQuantV2": ("AscendQuantV3", {}, {}),
    "DequantSwigluQuant": ("DequantSwigluQuantV2", {}, {}),
    "DynamicBlockQuant": ("DynamicBlockQuantV2", {}, {}),
    "DynamicQuant": ("DynamicQuant", {}, {}),
    "DynamicQuantV2": ("DynamicQuantV2", {}, {"when": lambda case: case.expect["offsetOut"] is not None}),
    "FlatQuant": ("FlatQuantV2", {}, {}),
    "GeluQuant": ("GeluQuant", {"x": "self"}, {}),
    "GroupQuant": ("GroupQuant", {}, {}),
    "Quantize": ("Quantize", {"y": "out", "dtype": "dtype"}, {"@dtype": lambda case: {torch.int8: "torch.qint8",
        torch.uint8: "torch.quint8", torch.int32: "torch.qint32"}[case.args["dtype"]]}),
    "RotateQuant": ("RotateQuant", {"transpose_y": "trans", "y_dtype": None}, {}),
    "TransQuantParamV2": ("TransQuantParamV3", {"y": "out"}, {}),
    # routing
    "MoeComputeExpertTokens": ("MoeComputeExpertTokens", {"total_rows_before_expert": "out"}, {}),
    "MoeFinalizeRouting": ("MoeFinalizeRouting", {"expanded_expert_idx": "expertIdxOptional", "y": "out"}, {}),
    "MoeFinalizeRoutingV2": ("MoeFinalizeRoutingV2", {"y": "out", "K": None}, {}),
    "MoeGatingTopKSoftmax": ("MoeGatingTopKSoftmax", {}, {}),
    "MoeInitRouting": ("MoeInitRouting", {}, {}),
    "MoeInitRoutingV3": ("MoeInitRoutingV3", {}, {"when": lambda case: case.args["expertNum"] > 0}),
    "MoeReRouting": ("MoeReRouting", {}, {}),
    "MoeUpdateExpert": ("MoeUpdateExpert", {}, {}),
}


def plain(name):
    name = name.replace("_", "").lower()
    name = re.sub("optional$", "", name)
    return re.sub("(?<!.)$|(out|ref)$", "", name) if name not in ("out", "ref") else name


def names_of(key):
    """Prototype name -> parameter, and the parameters that no name has."""
    function, differing, fixed = BORROWED[key]
    row, op = graph_ops.ROWS[key.partition("/")[0]], TABLE[function]
    by_name = {}
    parameters = [name for _, name in op.parameters]
    operands = {operand.name for operand in row.inputs + row.outputs} | {a.name for a in row.attributes}
    for name in sorted(operands):
        if name in differing:
            if differing[name] is not None:
                by_name[name] = differing[name]
            continue
        fits = [p for p in parameters if plain(p) == plain(name) and p not in differing.values()]
        exact = [p for p in fits if re.sub("optional$", "", p.lower()) == name.replace("_", "").lower()]
        if fits:
            by_name[name] = (exact or fits)[0]
    unknown = set(parameters) - set(by_name.values()) - set(fixed)
    return row, op, by_name, unknown


class Unfit(Exception):
    """The case needs something that the prototype does not have."""


def fits_types(operand, values, letters):
    for value in values if isinstance(values, (list, tuple)) else [values]:
        if value is None or not hasattr(value, "dtype"):
            continue
        number = NUMBERS[value.dtype]
        if not operand.mask >> number & 1:
            raise Unfit(f"{operand.name} is {value.dtype}")
        if operand.letter and letters.setdefault(operand.letter, number) != number:
            raise Unfit(f"{operand.name} is not like the others")


def attribute_of(attribute, value):
    if isinstance(value, Scalar):
        value = value.value
    if isinstance(value, torch.dtype):
        value = NUMBERS[value]
    if value is None and attribute.is_required:
        raise Unfit(f"{attribute.name} is null")
    return value


def converted(key, case):
    """Arguments of graph_ops.call, and what is expected of the outputs."""
    row, op, by_name, _ = names_of(key)
    function, _, fixed = BORROWED[key]
    for name, wanted in fixed.items():
        if wanted is Ellipsis:
            continue
        if name == "when" and not wanted(case):
            raise Unfit("the prototype always does something else")
        if name in case.args and case.args[name] != wanted:
            raise Unfit(f"{name} is {case.args[name]}")
        if name in case.expect and case.expect[name] is not None:
            raise Unfit(f"{name} is wanted")
    inputs, attributes, types, lengths, expected, letters = {}, {}, {}, {}, {}, {}
    for operand in row.inputs:
        value = case.args.get(by_name.get(operand.name))
        if value is None and not operand.is_optional and not operand.is_list:
            raise Unfit(f"{operand.name} is left out")
        if operand.is_value and isinstance(value, int):
            value = [value]
        if operand.is_list and isinstance(value, torch.Tensor) or not operand.is_list and isinstance(value, list) and not operand.is_value:
            value = [value] if operand.is_list else value[0] if len(value) == 1 else value
        if isinstance(value, torch.Tensor) or isinstance(value, list) and not operand.is_value:
            fits_types(operand, value, letters)
        inputs[operand.name] = value
    for attribute in row.attributes:
        if attribute.name not in by_name:
            continue
        value = attribute_of(attribute, case.args[by_name[attribute.name]])
        if value is not None:
            attributes[attribute.name] = value
    for operand in row.outputs:
        parameter = by_name.get(operand.name)
        wanted = case.expect.get(parameter)
        if operand.is_list:
            lengths[operand.name] = len(wanted)
        if wanted is None:
            continue
        first = wanted[0] if isinstance(wanted, list) else wanted
        if getattr(first, "allocated", None) is not None:
            raise Unfit(f"the shape of {operand.name} depends on data")
        source = next((i for i in row.inputs if i.name == operand.name), operand)
        fits_types(source, wanted, letters)
        types[operand.name] = first.dtype
        expected[operand.name] = wanted
    for name, value in fixed.items():
        if name.startswith("@"):
            attributes[name[1:]] = value(case) if callable(value) else value
    for attribute in row.attributes:  # types that the function reads from its outputs
        for operand in row.outputs:
            if operand.source == f"@{attribute.name}" and operand.name in types:
                attributes[attribute.name] = NUMBERS[types[operand.name]]
    return (row.type, inputs, attributes, types, lengths), expected, op.id


def chosen(key, most=4, scanned=60):
    """The first cases that fit and bring something new, and why others do not fit."""
    load_cases()
    seen, found, reasons = set(), [], {}
    for number, case in enumerate(cases_of(BORROWED[key][0])):
        if len(found) == most or (number >= scanned and found) or number >= 10 * scanned:
            break
        try:
            call, expected, op = converted(key, case)
        except Unfit as error:
            reasons[str(error)] = reasons.get(str(error), 0) + 1
            continue
        new = traits(case) - seen
        if new:
            seen |= new
            found.append((call, expected, op))
    return found, reasons


def verify(key):
    found, reasons = chosen(key)
    assert found, f"no case of {BORROWED[key][0]} fits: {reasons}"
    for (type, inputs, attributes, types, lengths), expected, op in found:
        results = graph_ops.call(type, inputs, attributes, types, lengths)
        for name, wanted in expected.items():
            pairs = zip(results[name], wanted) if isinstance(wanted, list) else [(results[name], wanted)]
            for actual, ref in pairs:
                ref.verify(actual, op)
