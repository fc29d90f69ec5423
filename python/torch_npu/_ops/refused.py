# SPDX-License-Identifier: Apache-2.0
"""Why operators are not there, and what to call instead: the text behind the name when one is called."""

_REASONS = {
    "it gives or takes 8-bit floats; use the forms for int8": """
        npu_add_quant_gmm npu_add_quant_gmm_ npu_add_quant_matmul npu_add_quant_matmul_ npu_grouped_dynamic_block_quant
        npu_quant_fusion_attention npu_quant_fusion_attention_backward npu_quant_max npu_rotate_quant
        npu_swiglu_group_quant npu_swiglu_group_quant_backward npu_weight_quant_preprocess
        """,
    "it needs several devices; multiply, and call torch.distributed.all_reduce": "npu_mm_all_reduce_base",
    "its gates come out in formats of the device; use torch.nn.LSTM and torch.nn.GRU, or npu_lstm_cell": """
        _gru_npu _gru_npu_backward _lstm_npu _lstm_npu_backward npu_gru npu_gru_backward npu_lstm npu_lstm_backward
        npu_lstm_data npu_lstm_data_backward
        """,
    "there is no register of overflows; they show as inf and NaN, for which torch.amp.GradScaler looks": """
        npu_alloc_float_status npu_clear_float_status npu_get_float_status
        """,
    "tensors keep their memory; use Tensor.set_": "npu_change_data_ptr",
    "no formula of it is published; write it with operators of torch, or compute it on the CPU with torchvision": """
        npu_batch_nms npu_grid_assign_positive npu_nms_rotated npu_ps_roi_pooling npu_ps_roi_pooling_backward
        npu_random_choice_with_mask npu_rotated_box_decode npu_rotated_box_encode npu_rotated_iou npu_rotated_overlaps
        npu_sub_sample
        """,
    "use torch.nn.MultiheadAttention or npu_fusion_attention": """
        npu_fused_attention_layernorm_qkv_fwd npu_fused_attention_qkv_grad npu_multi_head_attention
        npu_multi_head_attention_backward
        """,
    "keys and values are compressed for whole sequences only: use npu_nsa_compress": "npu_nsa_compress_infer",
    "use npu_fused_infer_attention_score, _npu_paged_attention or npu_mla_prolog_v2": """
        _npu_paged_attention_quant npu_mla_preprocess
        """,
    "turn with npu_rotary_mul, quantise with npu_quantize and write with npu_scatter_nd_update_": """
        npu_dequant_rope_quant_kvcache npu_rope_quant_kvcache
        """,
    "published formulas of its slots disagree; write tokens, positions and slots with operators of torch": """
        npu_advance_step_flashattn
        """,
    "its forward pass does not keep what this needs; differentiate its formula, written with operators of torch": """
        npu_mhc_pre_backward npu_mhc_sinkhorn_backward
        """,
    "convolve in float32 and quantise the result with npu_quantize": "npu_quant_conv2d",
    "use npu_top_k_top_p, softmax and torch.multinomial": "npu_top_k_top_p_sample",
    "no formula of it is published; it balances or checks what the device does by itself here": """
        _npu_silent_check npu_ifmr
        """,
}

REASONS = {name: reason for reason, names in _REASONS.items() for name in names.split()}
