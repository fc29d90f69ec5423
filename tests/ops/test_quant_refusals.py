# SPDX-License-Identifier: Apache-2.0
"""Values that quantization, routing by maps, products in groups and operators of the published package refuse, operators
that are there by name alone, and indices of the device that name nothing."""

import csv
import ctypes

import pytest
import torch

import aclnn
from harness import cases_of
from test_matmul_refusals import fresh_memory, placed, refused  # noqa: F401 - the fixture
from test_operators import Call, representative

with (aclnn.REPO / "api" / "ops_refused.csv").open() as _rows:
    REFUSED = list(csv.DictReader(_rows))


@pytest.mark.parametrize("row", REFUSED, ids=[row["operator"] for row in REFUSED])
def test_operators_that_are_there_by_name_tell_why(row):
    for function in (row["operator"] + "GetWorkspaceSize", row["operator"]):
        status = getattr(aclnn._ops, function)(*[ctypes.c_void_p(None)] * 4)
        message = aclnn._acl.aclGetRecentErrMsg().decode()
        assert status == aclnn.PARAM_INVALID
        assert all(word in message for word in (row["operator"], row["reason"], row["advice"])), message


E4M3 = torch.float8_e4m3fn

# operator, what is changed in a good call, word of the message
BAD = [
    ("Quantize", {"axis": 9}, "axis"), ("Quantize", {"dtype": torch.float32}, "dtype is"),
    ("Quantize", {"scales": [3, 2]}, "scales has shape"), ("GroupQuant", {"dstType": 3}, "dstType is"),
    ("GroupQuant", {"offsetOptional": [2]}, "offsetOptional"), ("GroupQuant", {"scale": [1, 16]}, "scale has shape"),
    ("DynamicQuantV3", {"quantMode": "perhead"}, "quantMode is 'perhead'"),
    ("DynamicQuantV3", {"groupIndexOptional": torch.ones(2, dtype=torch.int32)}, "groupIndexOptional"),
    ("DynamicQuantV3", {"isSymmetrical": False, "offsetOut": None}, "offsetOut is null"),
    ("DynamicQuantV4", {"dstTypeMax": 15.0}, "dstTypeMax is 15"),
    ("DynamicBlockQuant", {"rowBlockSize": 0}, "rowBlockSize"), ("DynamicBlockQuant", {"minScale": -1.0}, "minScale"),
    ("DynamicBlockQuant", {"roundModeOptional": "floor"}, "roundModeOptional"),
    ("GeluQuant", {"approximate": "erf"}, "approximate"), ("GeluQuant", {"quantMode": "none"}, "quantMode"),
    ("GeluQuant", {"dstType": 36}, "dstType is"), ("RmsNormQuant", {"gamma": [3]}, "gamma has shape"),
    ("RmsNormQuant", {"scale": [3]}, "scale has shape"),
    ("RmsNormQuantV3", {"outputRstd": True, "rstd": None}, "rstd is null"),
    ("AscendAntiQuant", {"dstType": 2}, "dstType is"), ("AscendAntiQuant", {"scale": [3]}, "scale has shape"),
    ("FakeQuantPerTensorAffineCachemask", {"quantMin": 900}, "quantMin is 900"),
    ("FakeQuantPerChannelAffineCachemask", {"axis": 4}, "axis"), ("InplaceQuantScatter", {"axis": 0}, "axis"),
    ("InplaceQuantScatter", {"reduction": 7}, "reduction is 7"), ("InplaceQuantScatterV2", {"roundMode": "ceil"}, "roundMode"),
    ("FlatQuant", {"clipRatio": 0.0}, "clipRatio is 0"), ("FlatQuantV2", {"dstTypeMax": 6.0}, "dstTypeMax"),
    ("FlatQuant", {"kroneckerP1": [3, 3]}, "kroneckerP1"), ("RotateQuant", {"axis": 0}, "axis is 0"),
    ("RotateQuant", {"scaleAlg": 1}, "scaleAlg"), ("RotateQuant", {"rotation": [5, 5]}, "rotation has shape"),
    ("RmsNormGradQuant", {"quantMode": "dynamic"}, "quantMode"), ("SwiGluQuantV2", {"groupListType": 2}, "groupListType"),
    ("SwiGluQuantV2", {"dstType": 4}, "dstType is 4"), ("DequantBias", {"outputDtype": 3}, "outputDtype"),
    ("TransQuantParamV3", {"roundMode": 2}, "roundMode is 2"), ("FusedQuantMatmul", {"fusedOpType": "swiglu"}, "fusedOpType"),
    ("FusedQuantMatmul", {"x3Optional": [5, 7]}, "x3Optional"), ("FusedQuantMatmul", {"groupSizeOptional": 32}, "groupSize"),
    ("TransposeQuantBatchMatMul", {"dtype": 2}, "dtype is"), ("TransposeQuantBatchMatMul", {"x2Scale": None}, "x2Scale is null"),
    ("TransposeQuantBatchMatMul", {"bias": [7]}, "bias is given"),
    ("QuantMatmulReduceSumWeightNz", {"dims": [1]}, "dims is [1]"), ("QuantMatmulReduceSumWeightNz", {"x1Scale": None}, "x1Scale"),
    ("WeightQuantBatchMatmulNz", {"antiquantGroupSize": -1}, "antiquantGroupSize"),
    ("MoeGatingTopKSoftmaxV2", {"k": 99}, "k is 99"), ("MoeGatingTopKSoftmaxV2", {"renorm": 2}, "renorm is 2"),
    ("MoeGatingTopKSoftmaxV2", {"outputSoftmaxResultFlag": True, "renorm": 0, "softmaxResultOutOptional": None}, "is null"),
    ("MoeGatingTopKV2", {"inputIdsOptional": torch.ones(5, dtype=torch.int32), "tid2eidOptional": None}, "tid2eidOptional is null"),
    ("MoeGatingTopKV2", {"normType": 2}, "normType is 2"), ("MoeGatingTopKBackward", {"gradY": [4, 2]}, "gradY"),
    ("MoeInitRoutingQuantV2", {"quantMode": -1}, "quantMode is -1"),
    ("MoeInitRoutingQuantV2", {"expertTokensCountOrCumsumFlag": 5}, "expertTokensCountOrCumsumFlag is 5"),
    ("MoeReRouting", {"idxType": 2}, "idxType is 2"), ("MoeFinalizeRoutingV4", {"oriXOptional": [6, 8]}, "oriXOptional"),
    ("MoeFinalizeRoutingV4", {"zeroExpertRangeOptional": [0, 2]}, "zeroExpertRangeOptional is [0, 2]"),
    ("MoeFinalizeRoutingV4", {"k": 5}, "k is 5"),
    ("MoeTokenPermuteWithRoutingMap", {"numOutTokens": 999}, "numOutTokens is 999"),
    ("MoeTokenPermuteWithRoutingMap", {"numOutTokens": 5, "dropAndPad": True}, "dropAndPad is true"),
    ("MoeTokenPermuteWithRoutingMapGrad", {"tokensNum": -1}, "tokensNum"),
    ("MoeTokenUnpermuteWithRoutingMap", {"restoreShapeOptional": [6]}, "restoreShapeOptional is [6]"),
    ("MoeTokenUnpermuteWithRoutingMapGrad", {"permutedTokensOptional": None}, "permutedTokensOptional is null"),
    ("MoeUpdateExpert", {"balanceMode": 3}, "balanceMode is 3"), ("MoeUpdateExpert", {"worldSize": 0}, "worldSize"),
    ("MoeUpdateExpert", {"pruningThresholdOptional": None}, "pruningThresholdOptional is null"),
    ("GroupedMatmul", {"groupListOptional": [3, 2, 23, 24]}, "groupListOptional is [3, 2, 23, 24]"),
    ("GroupedMatmul", {"groupListOptional": [3, 24]}, "groupListOptional has 2"),
    ("GroupedMatmulWeightNz", {"quantGroupSize": 32}, "quantGroupSize is 32"),
    ("GroupedMatmulAdd", {"transposeX": False}, "transposeX"), ("GroupedMatmulAddV2", {"groupListType": 2}, "groupListType"),
    ("GroupedMatmulSwigluQuantV2", {"quantMode": 1}, "quantMode is 1"), ("GroupedMatmulSwigluQuantV2", {"biasOptional": [3]}, "biasOptional"),
    ("GroupedMatmulSwigluQuantV2", {"weightAssistMatrixOptional": [[3, 16]]}, "weightAssistMatrixOptional"),
    ("GroupedMatmulFinalizeRoutingV2", {"dtype": 1}, "dtype is 1"),
    ("GroupedMatmulFinalizeRoutingV2", {"rowIndexOptional": None}, "rowIndexOptional is null"),
    ("GroupedMatmulFinalizeRoutingV3", {"biasOptional": [3, 8]}, "biasOptional"),
    ("QuantGroupedMatmulDequant", {"xQuantMode": "perchannel"}, "xQuantMode"),
    ("QuantMatmulDequant", {"xOffsetOptional": [9]}, "xOffsetOptional"),
    ("QuantBatchMatmulInplaceAdd", {"x1": [8, 3]}, "x1 has float32"), ("QuantBatchMatmulInplaceAdd", {"groupSize": 5}, "groupSize is 5"),
    ("QuantBatchMatmulInplaceAdd", {"x2": torch.ones(5, 9).to(E4M3)}, "cannot be multiplied"),
    ("QuantBatchMatmulInplaceAdd", {"x2Scale": [4]}, "x2Scale has shape [4]"),
    ("QuantBatchMatmulInplaceAdd", {"x2Scale": torch.ones(1, 5, 2).to(torch.float8_e8m0fnu)}, "only one has exponents"),
    ("QuantBatchMatmulInplaceAdd", {"yRef": [3, 6]}, "yRef has shape"),
    ("QuantBatchMatmulInplaceAdd", {"yRef": torch.ones(3, 5).half()}, "yRef has float16"),
    ("QuantGroupedMatmulInplaceAdd", {"groupListType": 2}, "groupListType is 2"),
    ("QuantGroupedMatmulInplaceAdd", {"groupSize": 32}, "groupSize is 32"), ("QuantGroupedMatmulInplaceAdd", {"scale2": [7, 2]}, "scale2 has shape"),
    ("QuantGroupedMatmulInplaceAdd", {"x2": torch.ones(9, 17, dtype=torch.uint8)}, "x2 has uint8"),
    ("QuantGroupedMatmulInplaceAdd", {"yRef": [33, 17]}, "yRef has shape [33, 17], expected 3 dims"),
    ("GroupedDynamicBlockQuant", {"dstType": 35}, "dstType is"), ("GroupedDynamicBlockQuant", {"groupListType": 1}, "groupListType is 1"),
    ("GroupedDynamicBlockQuant", {"rowBlockSize": 0}, "rowBlockSize"), ("GroupedDynamicBlockQuant", {"minScale": -1.0}, "minScale"),
    ("GroupedDynamicBlockQuant", {"roundModeOptional": "hybrid"}, "roundModeOptional is 'hybrid'"),
    ("GroupedDynamicBlockQuantV2", {"dstTypeMax": -1.0}, "dstTypeMax"), ("GroupedDynamicBlockQuant", {"scaleOut": [1, 1]}, "scaleOut has shape"),
    ("GroupedDynamicBlockQuant", {"yOut": torch.ones(5, 40, dtype=torch.int8)}, "yOut has int8"),
    ("QuantMax", {"roundMode": "hybrid"}, "roundMode is 'hybrid'"), ("QuantMax", {"dstType": 3}, "dstType is"),
    ("QuantMax", {"scale": [2]}, "scale has shape [2], expected one number for each group"), ("QuantMax", {"amax": [2]}, "amax has shape"),
    ("GroupedQuantMax", {"scale": [2]}, "scale has shape"), ("GroupedQuantMax", {"roundMode": "round"}, "roundMode is 'round'"),
    ("SwigluGroupQuant", {"quantMode": 5}, "quantMode is 5"), ("SwigluGroupQuant", {"quantMode": 2}, "quantMode is 2"),
    ("SwigluGroupQuant", {"blockSize": 64}, "blockSize is 64"), ("SwigluGroupQuant", {"x": [4, 15]}, "x has shape [4, 15]"),
    ("SwigluGroupQuant", {"yScaleOut": [4, 2]}, "yScaleOut has shape"), ("SwigluGroupQuant", {"yScaleOut": None}, "yScaleOut is null"),
    ("SwigluGroupQuant", {"weightOptional": [3]}, "weightOptional has shape"), ("SwigluGroupQuant", {"dstType": 34}, "dstType is"),
    ("SwigluGroupQuant", {"outputOrigin": True, "yOriginOut": None}, "yOriginOut is null"),
    ("SwigluGroupQuantGrad", {"gradY": [4, 3]}, "gradY has shape"), ("SwigluGroupQuantGrad", {"yOriginOptional": [3]}, "yOriginOptional has shape"),
    ("SwigluGroupQuantGrad", {"gradWeightOutOptional": [4]}, "weightOptional is null"),
    ("SwigluGroupQuantGrad", {"gradXOut": torch.ones(4, 16).half()}, "gradXOut has float16"),
    ("DequantRopeQuantKvcache", {"sizeSplits": [32, 16, 8]}, "sizeSplits is [32, 16, 8]"),
    ("DequantRopeQuantKvcache", {"quantModeOptional": "dynamic"}, "quantModeOptional is 'dynamic'"),
    ("DequantRopeQuantKvcache", {"layoutOptional": "BNSD"}, "layoutOptional is 'BNSD'"),
    ("DequantRopeQuantKvcache", {"cacheModeOptional": "ring"}, "cacheModeOptional is 'ring'"),
    ("DequantRopeQuantKvcache", {"weightScaleOptional": None}, "weightScaleOptional is null"),
    ("DequantRopeQuantKvcache", {"indices": torch.ones(3, dtype=torch.int32)}, "indices has shape [3]"),
    ("DequantRopeQuantKvcache", {"scaleK": [5]}, "scaleK has shape [5]"), ("DequantRopeQuantKvcache", {"cos": torch.ones(3).half()}, "cos has shape [3]"),
    ("DequantRopeQuantKvcache", {"kCacheRef": torch.ones(3, 7, 2, 8, dtype=torch.uint8)}, "kCacheRef has uint8"),
    ("DequantRopeQuantKvcache", {"x": torch.ones(2, 3, 64).half()}, "weightScaleOptional is given"),
    ("DequantRopeQuantKvcache", {"kvOutput": True, "kOut": None}, "kOut is null"),
    ("FusedCausalConv1d", {"queryStartLocOptional": None}, "queryStartLocOptional is null"),
    ("FusedCausalConv1d", {"queryStartLocOptional": torch.zeros(2, 2, dtype=torch.int32)}, "queryStartLocOptional has shape"),
    ("FusedCausalConv1d", {"x": [3]}, "x has shape [3]"), ("FusedCausalConv1d", {"weight": [3, 4]}, "weight has shape [3, 4]"),
    ("FusedCausalConv1d", {"weight": [17, 5]}, "a window of 1 to 16"), ("FusedCausalConv1d", {"convStates": [4, 1, 5]}, "2 tokens or more"),
    ("FusedCausalConv1d", {"convStates": [3, 2, 5]}, "3 lines for 4 sequences"),
    ("FusedCausalConv1d", {"cacheIndicesOptional": torch.zeros(3, dtype=torch.int32)}, "cacheIndicesOptional has shape [3]"),
    ("FusedCausalConv1d", {"cacheIndicesOptional": torch.zeros(3, 2, dtype=torch.int32)}, "expected a row for each of 4 sequences"),
    ("FusedCausalConv1d", {"cacheIndicesOptional": torch.zeros(4, 2, dtype=torch.int32)}, "blockIdxFirstScheduledTokenOptional is null"),
    ("FusedCausalConv1d", {"initialStateIdxOptional": torch.zeros(4, dtype=torch.int32)}, "initialStateIdxOptional is given"),
    ("FusedCausalConv1d", {"numAcceptedTokensOptional": torch.zeros(5, dtype=torch.int32)}, "numAcceptedTokensOptional has shape [5]"),
    ("FusedCausalConv1d", {"residualConnection": 2}, "residualConnection is 2"), ("FusedCausalConv1d", {"convMode": 2}, "convMode is 2"),
    ("InplaceFusedCausalConv1d", {"convMode": 1}, "numComputedTokensOptional is null"),
    ("InplaceFusedCausalConv1d", {"weight": torch.ones(3, 5).half()}, "weight has float16, expected the type float32 of x"),
    ("HansEncode", {"inputTensor": [64, 65]}, "has 4160 elements"), ("HansEncode", {"inputTensor": [32770]}, "has 32770 elements"),
    ("HansEncode", {"pdfRef": torch.zeros(255, dtype=torch.int32)}, "pdfRef has 255 elements"),
    ("HansEncode", {"mantissaOut": [9]}, "mantissaOut has 36 bytes, expected 98304"), ("HansEncode", {"fixedOut": [120]}, "expected 512 at least"),
    ("HansEncode", {"varOut": [2]}, "but 32768 numbers may take 33280"), ("HansEncode", {"reshuff": True}, "reshuff leaves var out"),
    ("HansDecode", {"var": torch.ones(9000).half()}, "var has float16"), ("HansDecode", {"out": [100]}, "out has 100 elements"),
    ("MatmulAbftVerify", {"b": [3, 16]}, "expected the 16 columns of a as rows"), ("MatmulAbftVerify", {"a": [2, 3, 4]}, "a has shape [2, 3, 4]"),
    ("MatmulAbftVerify", {"c": [8, 15]}, "c has shape"), ("MatmulAbftVerify", {"checksumWeight": [15]}, "checksumWeight has shape"),
    ("MatmulAbftVerify", {"compRow": torch.zeros(2, dtype=torch.uint8)}, "compRow has shape"), ("MatmulAbftVerify", {"eMax": -1.0}, "eMax is -1"),
    ("QuantFlashAttentionScore", {"inputLayout": "BSH"}, "inputLayout is 'BSH'"), ("QuantFlashAttentionScore", {"headNum": 3}, "headNum is 3"),
    ("QuantFlashAttentionScore", {"attenMaskOptional": torch.ones(130, 70, dtype=torch.bool)}, "has no masks"),
    ("QuantFlashAttentionScore", {"query": torch.ones(1, 130, 2, 16).to(E4M3)}, "key has hifloat8, expected the type float8_e4m3fn"),
    ("QuantFlashAttentionScore", {"query": [1, 130, 2, 16]}, "query has float32"), ("QuantFlashAttentionScore", {"pScale": [2]}, "pScale has shape"),
    ("QuantFlashAttentionScore", {"dScaleQ": [1, 2, 3, 1]}, "blocks of 128, 256 or 512 of 130 tokens"),
    ("QuantFlashAttentionScore", {"softmaxMaxOut": [1, 2, 129, 1]}, "softmaxMaxOut has shape"),
    ("QuantFlashAttentionScoreGrad", {"dScaleDy": [1, 2, 5, 1]}, "dScaleDy has shape"),
    ("QuantFlashAttentionScoreGrad", {"softmaxSum": [1, 2, 1, 1]}, "softmaxSum has shape"),
    ("QuantFlashAttentionScoreGrad", {"dvOut": torch.ones(1, 9, 2, 16).to(torch.bfloat16)}, "dvOut has shape"),
]


@pytest.mark.parametrize("name, changed, word", BAD, ids=[f"{name}-{next(iter(changed))}" for name, changed, _ in BAD])
def test_arguments_are_refused(name, changed, word):
    op = aclnn.TABLE[name]
    call = Call(op, representative(name))
    values = dict(call.values)
    for parameter, value in changed.items():
        kind = next(c_type for c_type, own in op.parameters if own == parameter)
        if "aclTensorList*" in kind:
            value = [placed(torch.ones(shape)) for shape in value]
        elif "aclTensor*" in kind and value is not None:
            value = placed(torch.ones(value, dtype=torch.float32) if isinstance(value, list) else value)
        values[parameter] = value
    with pytest.raises(aclnn.AclError) as error:
        aclnn.plan(op, aclnn.pack(op, values, aclnn.Objects()))
    assert error.value.status in (aclnn.PARAM_INVALID, aclnn.PARAM_NULLPTR)
    assert op.name in error.value.message and word in error.value.message, error.value.message


WILD = torch.tensor([-2 ** 31, -1, 2 ** 31 - 1, 10 ** 6, 3, 0], dtype=torch.int32)


@pytest.mark.parametrize("name, parameter", [
    ("MoeGatingTopKV2", "inputIdsOptional"), ("MoeGatingTopKV2", "tid2eidOptional"), ("MoeGatingTopKBackward", "expertIdx"),
    ("MoeInitRoutingQuantV2", "expertIdx"), ("MoeReRouting", "expertTokenNumPerRank"),
    ("MoeTokenPermuteWithRoutingMapGrad", "sortedIndices"), ("MoeTokenUnpermuteWithRoutingMap", "sortedIndices"),
    ("MoeTokenUnpermuteWithRoutingMapGrad", "outIndex"), ("MoeTokenUnpermuteWithRoutingMapGrad", "permuteTokenId"),
    ("MoeUpdateExpert", "expertIds"), ("MoeUpdateExpert", "eplbTable"), ("InplaceQuantScatter", "indices"),
    ("GroupQuant", "groupIndex"), ("SwiGluQuantV2", "groupIndexOptional"), ("GroupedMatmulAdd", "groupList"),
    ("GroupedMatmulSwigluQuantV2", "groupList"), ("GroupedMatmulFinalizeRoutingV2", "rowIndexOptional"),
    ("GroupedMatmulFinalizeRoutingV2", "groupListOptional"), ("QuantGroupedMatmulDequant", "groupList"),
    ("QuantGroupedMatmulInplaceAdd", "groupList"), ("GroupedDynamicBlockQuant", "groupList"), ("GroupedQuantMax", "groupList"),
    ("SwigluGroupQuant", "groupIndexOptional"),
    ("SwigluGroupQuantGrad", "groupIndexOptional"), ("DequantRopeQuantKvcache", "indices"),
    *((name, parameter + "Optional") for name in ("FusedCausalConv1d", "InplaceFusedCausalConv1d") for parameter in (
        "queryStartLoc", "cacheIndices", "numAcceptedTokens", "numComputedTokens", "blockIdxFirstScheduledToken",
        "blockIdxLastScheduledToken", "initialStateIdx")),
    ("HansDecode", "fixed"), ("HansDecode", "pdf")])
def test_numbers_of_the_device_that_name_nothing_touch_nothing_else(name, parameter):
    op, count = aclnn.TABLE[name], 0
    for case in cases_of(name):
        given = case.args[parameter]
        if given is None or given.numel() == 0:
            continue
        call = Call(op, case, aclnn.layout_source(count))
        call.write_inputs()
        wild = WILD.repeat(given.numel() // len(WILD) + 1)[:given.numel()].reshape(given.shape)
        call.values[parameter].write(wild.to(given.dtype))
        aclnn.run(op, call.packed())
        aclnn.device().synchronize()
        assert all(item.gaps_are_intact() for item in call.all_placed()), f"{name}: wrote outside of a view"
        call.destroy()
        count += 1
        if count == 6:
            break
    assert count > 0
