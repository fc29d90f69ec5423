# SPDX-License-Identifier: Apache-2.0
"""Modules that programs import for what they do: ``transfer_to_npu``, ``lightning``."""
from torch_npu._names import refused_module

_OPERATORS = (
    "ChannelShuffle, DCNv2, Focus, ModulatedDeformConv, MultiheadAttention, NpuDropPath, NpuCachedDropout, "
    "NpuFairseqDropout, Prefetcher, PSROIPool, ROIAlign, LabelSmoothingCrossEntropy, LinearA8W8Quant, LinearQuant, "
    "LinearWeightQuant, npu_iou, npu_ptiou, npu_giou, npu_diou, npu_ciou, npu_multiclass_nms, matmul_transpose, roll"
).split(", ")


__getattr__ = refused_module(
    __name__, _OPERATORS, "torch, torchvision and timm have modules and functions for the same, which work on npu"
)
