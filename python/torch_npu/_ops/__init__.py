# SPDX-License-Identifier: Apache-2.0
"""The operators ``torch_npu.npu_*``, ``torch.ops.npu.*`` and ``torch.ops.atb.*``."""
import sys
import types

import torch
from torch_npu._ops import (  # noqa: F401
    atb, attention, attention_more, boxes, cache, chosen, convolution, fused, gradients, moe, more, norm, quantization, routing,
    shapes, sparse, training,
)  # fmt: skip
from torch_npu._ops.registry import install

NAMES = install()

# Those of atb that are called as torch_npu.NAME; the others are torch_npu.atb.NAME.
_AT_TOP = (
    "_npu_matmul_add_fp32 _npu_quant_rms_norm _npu_group_topk _npu_paged_attention _npu_paged_attention_mla "
    "_npu_paged_attention_quant _npu_quantize_per_tensor _npu_reshape_and_cache _npu_reshape_and_cache_siso "
    "_npu_rotary_embedding _npu_flash_attention _npu_flash_attention_v3 _npu_flash_attention_unpad "
    "_npu_flash_attention_unpad_v2 _npu_paged_attention_splitfuse _npu_paged_attention_splitfuse_v2 "
    "_npu_flash_attention_qlens _npu_paged_attention_get_workspace"
).split()


# Types that torch does not have, as programs pass them for a number of a type: the device's number and 256.
_TYPES = {"int4": 285, "hifloat8": 290, "float8_e8m0fnu": 293, "float4_e2m1fn_x2": 296, "float4_e1m2fn_x2": 297}


def export(module):
    """Puts the operators where programs look for them."""
    for name, number in _TYPES.items():
        setattr(module, name, number)
    module.Format = cache.Format
    module.empty_with_format = cache.empty_with_format
    atb = types.ModuleType("torch_npu.atb", "Operators of torch.ops.atb.")
    sys.modules["torch_npu.atb"] = module.atb = atb
    for space, name in NAMES:
        packet = getattr(getattr(torch.ops, space), name)
        target = module if space == "npu" or name in _AT_TOP else atb
        if not hasattr(target, name):
            setattr(target, name, packet)
