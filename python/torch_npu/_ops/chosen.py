# SPDX-License-Identifier: Apache-2.0
"""Attention to chosen blocks and keys, what chooses them, and gradients of both: operators of the device."""
import torch
from torch_npu._ops.checks import check_dims, refuse
from torch_npu._ops.registry import composite, declare, derivative, meta

ops = torch.ops.npu
STATISTICS = 8  # times that each one stands there


def _like(*tensors):
    return tuple(torch.empty_like(tensor) for tensor in tensors)


# ---- Two hops: keys and values of (i, j) and of (j, k) ----


@meta("npu_fused_floyd_attention")
def _(query_ik, key_ij, value_ij, key_jk, value_jk, *, atten_mask=None, scale_value=1.0):
    check_dims("npu_fused_floyd_attention", "query_ik", query_ik, 5)
    statistics = query_ik.new_empty([*query_ik.shape[:-1], STATISTICS], dtype=torch.float32)
    return statistics, torch.empty_like(statistics), torch.empty_like(query_ik)


@meta("npu_fused_floyd_attention_backward")
def _(grad_output, query_ik, key_ij, value_ij, key_jk, value_jk, *rest, **options):
    return _like(query_ik, key_ij, value_ij, key_jk, value_jk)


derivative(
    "npu_fused_floyd_attention",
    "npu_fused_floyd_attention_backward",
    "grad@2 query_ik key_ij value_ij key_jk value_jk @2 @0 @1 atten_mask scale_value",
    "query_ik key_ij value_ij key_jk value_jk",
)

# ---- Blocks by a mask ----

declare(
    "_block_sparse_attention(Tensor query, Tensor key, Tensor value, Tensor block_sparse_mask, int[] block_shape, "
    "str q_input_layout, str kv_input_layout, int num_key_value_heads, float scale_value, int inner_precise, "
    "int[]? actual_seq_lengths, int[]? actual_seq_lengths_kv, int softmax_lse_flag) -> (Tensor, Tensor)"
)


@meta("_block_sparse_attention")
def _(query, key, value, mask, block_shape, q_layout, kv_layout, heads, scale, precise, lengths, lengths_kv, flag):
    check_dims("npu_block_sparse_attention", "query", query, 3, 4)
    rows = query.shape[:-1] if q_layout != "BSND" else [query.size(0), query.size(2), query.size(1)]
    out = query.new_empty([*query.shape[:-1], value.size(-1)])
    return out, query.new_empty([*rows, 1] if flag else [0], dtype=torch.float32)


@composite("npu_block_sparse_attention")
def npu_block_sparse_attention(
    query, key, value, block_sparse_mask, block_shape, *, q_input_layout="TND", kv_input_layout="TND",
    num_key_value_heads=1, scale_value=0.0, inner_precise=1, actual_seq_lengths=None, actual_seq_lengths_kv=None,
    softmax_lse_flag=0,
):  # fmt: skip
    return ops._block_sparse_attention(
        query, key, value, block_sparse_mask, block_shape, q_input_layout, kv_input_layout, num_key_value_heads,
        scale_value, inner_precise, actual_seq_lengths, actual_seq_lengths_kv, softmax_lse_flag or 0,
    )  # fmt: skip


@meta("npu_block_sparse_attention_backward")
def _(d_out, query, key, value, *rest):
    return _like(query, key, value)


# ---- What chooses keys ----


@meta("npu_dense_lightning_indexer_softmax_lse")
def _(query_index, key_index, weights, *, layout="BSND", **rest):
    tokens, heads = query_index.size(-3), key_index.size(-2)
    sizes = [heads, tokens] if layout == "TND" else [query_index.size(0), heads, tokens]
    return _like(*[query_index.new_empty(sizes, dtype=torch.float32)] * 2)


def _loss_and_gradients(query_index, key_index, weights):
    return (*_like(query_index, key_index, weights), query_index.new_empty([1], dtype=torch.float32))


@meta("npu_dense_lightning_indexer_grad_kl_loss")
def _(query, key, query_index, key_index, weights, *rest, **options):
    return _loss_and_gradients(query_index, key_index, weights)


@meta("npu_sparse_lightning_indexer_grad_kl_loss")
def _(query, key, query_index, key_index, weights, *rest, sinks=None, **options):
    refuse("npu_sparse_lightning_indexer_grad_kl_loss", sinks=sinks)
    return _loss_and_gradients(query_index, key_index, weights)


@meta("npu_lightning_indexer_grad")
def _(query, key, dy, sparse_indices, weights, *rest, **options):
    return _like(query, key, weights)


@meta("npu_sparse_flash_attention_grad")
def _(
    query, key, value, sparse_indices, d_out, out, softmax_max, softmax_sum, scale_value, sparse_block_size,
    query_rope=None, key_rope=None, *rest, **options,
):  # fmt: skip
    absent = query.new_empty([0])
    return tuple(torch.empty_like(absent if each is None else each) for each in (query, key, value, query_rope, key_rope))


# ---- Compressed and selected blocks ----

declare(
    "_nsa_compress_attention(Tensor query, Tensor key, Tensor value, float scale_value, int head_num, "
    "int compress_block_size, int compress_stride, int select_block_size, int select_block_count, Tensor? topk_mask, "
    "Tensor? atten_mask, int[]? actual_seq_qlen, int[]? actual_cmp_seq_kvlen, int[]? actual_sel_seq_kvlen, "
    "str layout, int sparse_mode) -> (Tensor, Tensor, Tensor, Tensor)"
)
declare(
    "_nsa_compress_attention_infer(Tensor query, Tensor key, Tensor value, float scale_value, int head_num, "
    "int key_value_head_num, int select_block_size, int select_block_count, int page_block_size, "
    "int compress_block_size, int compress_stride, str layout, Tensor? atten_mask, Tensor? block_table, "
    "Tensor? topk_mask, int[]? actual_seq_qlen, int[]? actual_cmp_seq_kvlen, int[]? actual_sel_seq_kvlen, "
    "int sparse_mode) -> (Tensor, Tensor)"
)
declare(
    "_nsa_select_attention(Tensor query, Tensor key, Tensor value, Tensor topk_indices, float scale_value, "
    "int head_num, int select_block_size, int select_block_count, Tensor? atten_mask, int[]? actual_seq_qlen, "
    "int[]? actual_seq_kvlen, str layout, int sparse_mode) -> (Tensor, Tensor, Tensor)"
)
declare(
    "_nsa_select_attention_grad(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor attention_out, "
    "Tensor softmax_max, Tensor softmax_sum, Tensor topk_indices, float scale_value, int head_num, "
    "int select_block_size, int select_block_count, Tensor? atten_mask, int[]? actual_seq_qlen, "
    "int[]? actual_seq_kvlen, str layout, int sparse_mode) -> (Tensor, Tensor, Tensor)"
)
declare(
    "_nsa_select_attention_infer(Tensor query, Tensor key, Tensor value, Tensor topk_indices, float scale_value, "
    "int head_num, int key_value_head_num, int select_block_size, int select_block_count, int page_block_size, "
    "str layout, Tensor? atten_mask, Tensor? block_table, int[]? actual_seq_qlen, int[]? actual_seq_kvlen, "
    "int sparse_mode) -> Tensor"
)


def _statistics(query):
    return _like(*[query.new_empty([query.size(0), query.size(1), STATISTICS], dtype=torch.float32)] * 2)


@meta("_nsa_compress_attention")
def _(query, key, value, scale_value, head_num, block, stride, select_block_size, select_block_count, *rest):
    check_dims("npu_nsa_compress_attention", "query", query, 3)
    places = query.new_empty([query.size(0), key.size(1), select_block_count], dtype=torch.int32)
    return (query.new_empty([*query.shape[:-1], value.size(-1)]), places, *_statistics(query))


@composite("npu_nsa_compress_attention")
def npu_nsa_compress_attention(
    query, key, value, scale_value, head_num, compress_block_size, compress_stride, select_block_size,
    select_block_count, *, topk_mask=None, atten_mask=None, actual_seq_qlen=None, actual_cmp_seq_kvlen=None,
    actual_sel_seq_kvlen=None,
):  # fmt: skip
    return ops._nsa_compress_attention(
        query, key, value, scale_value, head_num, compress_block_size, compress_stride, select_block_size,
        select_block_count, topk_mask, atten_mask, actual_seq_qlen, actual_cmp_seq_kvlen, actual_sel_seq_kvlen, "TND",
        0 if atten_mask is None else 1,
    )  # fmt: skip


@meta("_nsa_compress_attention_infer")
def _(query, key, value, scale_value, head_num, key_value_head_num, select_block_size, select_block_count, *rest):
    check_dims("npu_nsa_compress_attention_infer", "query", query, 3)
    depth = value.size(-1) if value.dim() != 3 or rest[5] is None else value.size(-1) // key_value_head_num
    places = query.new_empty([query.size(0), key_value_head_num, select_block_count], dtype=torch.int32)
    return query.new_empty([*query.shape[:-1], depth]), places


@composite("npu_nsa_compress_attention_infer")
def npu_nsa_compress_attention_infer(
    query, key, value, scale_value, head_num, key_value_head_num, select_block_size, select_block_count,
    page_block_size, compress_block_size, compress_stride, *, layout="TND", atten_mask=None, block_table=None,
    topk_mask=None, actual_seq_qlen=None, actual_cmp_seq_kvlen=None, actual_sel_seq_kvlen=None,
):  # fmt: skip
    return ops._nsa_compress_attention_infer(
        query, key, value, scale_value, head_num, key_value_head_num, select_block_size, select_block_count,
        page_block_size, compress_block_size, compress_stride, layout, atten_mask, block_table, topk_mask,
        actual_seq_qlen, actual_cmp_seq_kvlen, actual_sel_seq_kvlen, 0 if atten_mask is None else 1,
    )  # fmt: skip


@meta("_nsa_select_attention")
def _(query, key, value, *rest):
    check_dims("npu_nsa_select_attention", "query", query, 3)
    return (query.new_empty([*query.shape[:-1], value.size(-1)]), *_statistics(query))


def _causal(atten_mask):
    """A mask says that later keys are hidden; it is not read."""
    return 0 if atten_mask is None else 2


@composite("npu_nsa_select_attention")
def npu_nsa_select_attention(
    query, key, value, topk_indices, scale_value, head_num, select_block_size, select_block_count, *, atten_mask=None,
    actual_seq_qlen=None, actual_seq_kvlen=None,
):  # fmt: skip
    return ops._nsa_select_attention(
        query, key, value, topk_indices, scale_value, head_num, select_block_size, select_block_count, atten_mask,
        actual_seq_qlen, actual_seq_kvlen, "TND", _causal(atten_mask),
    )  # fmt: skip


@meta("_nsa_select_attention_grad")
def _(grad, query, key, value, *rest):
    return _like(query, key, value)


@composite("npu_nsa_select_attention_grad")
def npu_nsa_select_attention_grad(
    grad, query, key, value, attention_out, softmax_max, softmax_sum, topk_indices, scale_value, head_num,
    select_block_size, select_block_count, *, atten_mask=None, actual_seq_qlen=None, actual_seq_kvlen=None,
):  # fmt: skip
    return ops._nsa_select_attention_grad(
        grad, query, key, value, attention_out, softmax_max, softmax_sum, topk_indices, scale_value, head_num,
        select_block_size, select_block_count, atten_mask, actual_seq_qlen, actual_seq_kvlen, "TND",
        _causal(atten_mask),
    )  # fmt: skip


@meta("_nsa_select_attention_infer")
def _(query, key, value, topk_indices, scale_value, head_num, key_value_head_num, *rest):
    block_table = rest[5]
    if query.dim() == 3 and rest[3] == "BSH":
        per_head = value.size(-1) // key_value_head_num
        return query.new_empty([*query.shape[:-1], head_num * per_head])
    packed = value.dim() == 3 and block_table is not None
    return query.new_empty([*query.shape[:-1], value.size(-1) // key_value_head_num if packed else value.size(-1)])


@composite("npu_nsa_select_attention_infer")
def npu_nsa_select_attention_infer(
    query, key, value, topk_indices, scale_value, head_num, key_value_head_num, select_block_size, select_block_count,
    page_block_size, *, layout="BSND", atten_mask=None, block_table=None, actual_seq_qlen=None, actual_seq_kvlen=None,
):  # fmt: skip
    return ops._nsa_select_attention_infer(
        query, key, value, topk_indices, scale_value, head_num, key_value_head_num, select_block_size,
        select_block_count, page_block_size, layout, atten_mask, block_table, actual_seq_qlen, actual_seq_kvlen,
        _causal(atten_mask),
    )  # fmt: skip


# ---- Experts that share load ----


@meta("npu_moe_update_expert")
def _(expert_ids, eplb_table, *, active_mask=None, **rest):
    check_dims("npu_moe_update_expert", "expert_ids", expert_ids, 2)
    return torch.empty_like(expert_ids), expert_ids.new_empty(expert_ids.shape, dtype=torch.bool)
