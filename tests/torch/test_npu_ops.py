# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*, torch.ops.npu.* and torch.ops.atb.*, against formulas of plain PyTorch on the CPU.

A case is a function that makes a call from a source of random tensors; all the rest follows from it: the call on the
device, on Meta tensors, on fake ones, and captured and replayed with other values.
"""
import dataclasses
import math
import typing

import pytest
import torch
import torch_npu
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import gelu, pad, rms_norm, silu

HALF = torch.float16
BF16 = torch.bfloat16
F32 = torch.float32
HIDDEN = float("-inf")

# Rank A of the published package, as programs name them.
RANK_A = """
_npu_fused_infer_attention_score_get_max_workspace _npu_fused_infer_attention_score_v2_get_max_workspace
atb._npu_flash_attention atb._npu_flash_attention_qlens atb._npu_flash_attention_unpad atb._npu_flash_attention_unpad_v2
atb._npu_flash_attention_v2 atb._npu_flash_attention_v3 atb._npu_group_topk atb._npu_matmul_add_fp32
atb._npu_paged_attention atb._npu_paged_attention_get_workspace atb._npu_paged_attention_mla
atb._npu_paged_attention_splitfuse atb._npu_paged_attention_splitfuse_v2 atb._npu_reshape_and_cache
atb._npu_reshape_and_cache_siso atb._npu_rotary_embedding atb.npu_paged_cache_load get_npu_format npu_add_rms_norm
npu_add_rms_norm_dynamic_quant npu_add_rms_norm_quant npu_apply_rotary_pos_emb npu_attention_update
npu_chunk_gated_delta_rule npu_clipped_swiglu npu_convert_weight_to_int4pack npu_dequant_swiglu_quant
npu_dynamic_block_quant npu_dynamic_quant npu_fast_gelu npu_format_cast npu_fused_infer_attention_score
npu_fused_infer_attention_score_v2 npu_fusion_attention npu_gather_pa_kv_cache npu_grouped_matmul
npu_grouped_matmul_swiglu_quant npu_grouped_matmul_swiglu_quant_v2 npu_interleave_rope
npu_kv_quant_sparse_flash_attention npu_kv_rmsnorm_rope_cache npu_lightning_indexer npu_mla_prolog_v2 npu_mla_prolog_v3
npu_moe_compute_expert_tokens npu_moe_finalize_routing npu_moe_gating_top_k npu_moe_gating_top_k_softmax
npu_moe_init_routing npu_moe_init_routing_v2 npu_moe_token_permute npu_moe_token_unpermute npu_mrope
npu_prompt_flash_attention npu_quant_grouped_matmul_dequant npu_quant_lightning_indexer npu_quant_matmul npu_quantize
npu_recurrent_gated_delta_rule npu_rms_norm npu_rotary_mul npu_scatter_nd_update_ npu_scatter_pa_cache
npu_scatter_pa_kv_cache npu_swiglu npu_top_k_top_p npu_transpose_batchmatmul npu_transpose_quant_batchmatmul
npu_weight_quant_batchmatmul
""".split()


@dataclasses.dataclass
class Call:
    """``op(*args, **kwargs)`` gives ``want`` and leaves in its arguments what ``left`` says by place."""

    op: typing.Callable
    args: tuple
    kwargs: dict = dataclasses.field(default_factory=dict)
    want: typing.Any = ()
    left: dict = dataclasses.field(default_factory=dict)
    ignore: tuple = ()  # results that nobody may rely on
    captured: bool = True
    traced: bool = True
    bounds: typing.Any = None  # a type whose rounding is behind all results


class Host:
    """A tensor that stays on the host."""

    def __init__(self, tensor):
        self.tensor = tensor


class Source:
    """Random tensors; the same ones for the same number."""

    def __init__(self, seed, dtype):
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype = dtype

    def __call__(self, *sizes, dtype=None):
        return torch.randn(sizes, generator=self.generator).to(dtype or self.dtype)

    def ints(self, low, high, *sizes, dtype=torch.int32):
        return torch.randint(low, high, sizes, generator=self.generator).to(dtype)

    def shuffled(self, count, dtype=torch.int32):
        return torch.randperm(count, generator=self.generator).to(dtype)


CASES = {}


def case(*dtypes, name=None):
    def add(function):
        for dtype in dtypes or (F32,):
            CASES[f"{name or function.__name__}-{str(dtype)[6:]}"] = (function, dtype)
        return function

    return add


def npu(name):
    return getattr(torch_npu, name)


def norm_of(x, gamma, epsilon=1e-6):
    return rms_norm(x.float(), gamma.shape, gamma.float(), epsilon)


def attend(q, k, v, scale, seen=None, shift=None):
    """One head: [queries, size] and [keys, size]; seen[i, j]: whether query i sees key j."""
    scores = q.float() @ k.float().t() * scale
    if shift is not None:
        scores = scores + shift.float()
    if seen is not None:
        scores = scores.masked_fill(~seen, HIDDEN)
    weights = scores.softmax(-1).nan_to_num(0)
    return weights @ v.float()


def attend_heads(q, k, v, scale, seen=None, shift=None):
    """[queries, heads, size]."""
    group = q.size(1) // k.size(1)
    return torch.stack(
        [attend(q[:, h], k[:, h // group], v[:, h // group], scale, seen, shift) for h in range(q.size(1))], 1
    )


def causal(queries, keys):
    return torch.arange(keys) <= torch.arange(queries).unsqueeze(1) + keys - queries


# ---- Norms and activations -----------------------------------------------------------------------------------------


@case(F32, HALF, BF16)
def rms(g):
    x, gamma = g(3, 5, 32), g(32)
    rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5)
    return Call(npu("npu_rms_norm"), (x, gamma, 1e-5), want=(norm_of(x, gamma, 1e-5).to(x.dtype), rstd))


@case(F32, BF16)
def add_rms(g):
    a, b, gamma = g(7, 24), g(7, 24), g(24)
    x = a + b
    rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
    return Call(npu("npu_add_rms_norm"), (a, b, gamma), want=(norm_of(x, gamma).to(x.dtype), rstd, x))


@case(HALF, BF16)
def add_rms_quant(g):
    a, b, gamma, scales = g(7, 24), g(7, 24), g(24), g(24, dtype=F32).abs() * 0.1 + 0.02
    zero = g.ints(-3, 4, 24)
    normed = norm_of(a + b, gamma)
    want = ((normed / scales + zero).round().clamp(-128, 127).to(torch.int8), None, a + b)
    return Call(npu("npu_add_rms_norm_quant"), (a, b, gamma, scales, zero), want=want, ignore=(1,))


@case(BF16)
def add_rms_quant_twice(g):
    a, b, gamma, beta = g(7, 24), g(7, 24), g(24), g(24)
    one, two = g(24).abs() * 0.1 + 0.02, g(24).abs() + 5
    normed = norm_of(a + b, gamma) + beta.float()
    want = [(normed * s.float()).round().clamp(-128, 127).to(torch.int8) for s in (one, two)]
    options = {"beta": beta, "scales2": two, "div_mode": False}
    return Call(npu("npu_add_rms_norm_quant"), (a, b, gamma, one, None), options, want=(*want, a + b))


def quantized(values, limit=127):
    scale = values.float().abs().amax(-1) / limit
    return (values.float() / scale.unsqueeze(-1)).round().to(torch.int8), scale


@case(HALF, BF16)
def add_rms_dynamic_quant(g):
    a, b, gamma, one, two = g(7, 24), g(7, 24), g(24), g(24).abs(), g(24).abs()
    normed = norm_of(a + b, gamma)
    (y1, s1), (y2, s2) = quantized(normed * one.float()), quantized(normed * two.float())
    options = {"smooth_scale1": one, "smooth_scale2": two}
    return Call(npu("npu_add_rms_norm_dynamic_quant"), (a, b, gamma), options, want=(y1, y2, a + b, s1, s2))


@case(HALF)
def add_rms_dynamic_quant_once(g):
    a, b, gamma = g(7, 24), g(7, 24), g(24)
    y, s = quantized(norm_of(a + b, gamma))
    none = torch.empty(0, dtype=torch.int8), torch.empty(0)
    want = (y, none[0], a + b, s, none[1])
    return Call(npu("npu_add_rms_norm_dynamic_quant"), (a, b, gamma), want=want)


@case(F32, BF16)
def swiglu(g):
    x = g(5, 14, 3)
    a, b = x.float().chunk(2, 1)
    return Call(npu("npu_swiglu"), (x, 1), want=(silu(a) * b).to(x.dtype))


@case(F32, HALF)
def fast_gelu(g):
    x = g(5, 9)
    return Call(npu("npu_fast_gelu"), (x,), want=(x.float() * torch.sigmoid(1.702 * x.float())).to(x.dtype))


@case(F32, BF16)
def gelu_tanh(g):
    x = g(5, 9)
    return Call(npu("npu_gelu"), (x,), {"approximate": "tanh"}, want=gelu(x.float(), approximate="tanh").to(x.dtype))


@case(F32, BF16)
def clipped_swiglu(g):
    x = g(6, 16) * 6
    a, b = x.float()[:, ::2].clamp(max=7), x.float()[:, 1::2].clamp(-7, 7)
    return Call(npu("npu_clipped_swiglu"), (x,), want=(a * torch.sigmoid(1.702 * a) * (b + 1)).to(x.dtype))


@case(F32)
def clipped_swiglu_halves(g):
    x, groups = g(6, 16), torch.tensor([2, 0, 3])
    a, b = x[:, :8].clamp(max=0.5), x[:, 8:].clamp(-0.5, 0.5)
    want = a * torch.sigmoid(2 * a) * (b + 0.25)
    want[5:] = 0
    options = {"group_index": groups, "alpha": 2.0, "limit": 0.5, "bias": 0.25, "interleaved": False}
    return Call(npu("npu_clipped_swiglu"), (x,), options, want=want)


# ---- Rotary embeddings ---------------------------------------------------------------------------------------------


def turned(x, cos, sin, neighbours=False):
    x = x.float()
    if neighbours:
        other = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    else:
        a, b = x.chunk(2, -1)
        other = torch.cat([-b, a], -1)
    return x * cos.float() + other * sin.float()


@case(F32, HALF, BF16)
def rotary_mul(g):
    x, cos, sin = g(2, 5, 3, 8), g(1, 5, 1, 8), g(1, 5, 1, 8)
    return Call(npu("npu_rotary_mul"), (x, cos, sin), want=turned(x, cos, sin).to(x.dtype))


@case(F32)
def rotary_mul_neighbours(g):
    x, cos, sin = g(2, 5, 3, 8), g(1, 5, 1, 8), g(1, 5, 1, 8)
    return Call(npu("npu_rotary_mul"), (x, cos, sin, "interleave"), want=turned(x, cos, sin, True))


@case(F32, HALF)
def apply_rotary(g):
    q, k, cos, sin = g(2, 5, 3, 8), g(2, 5, 1, 8), g(2, 5, 1, 8), g(2, 5, 1, 8)
    want = [turned(x, cos, sin).to(x.dtype) for x in (q, k)]
    return Call(npu("npu_apply_rotary_pos_emb"), (q, k, cos, sin), want=tuple(want))


@case(F32, BF16)
def interleave_rope(g):
    x, cos, sin = g(2, 3, 1, 8), g(2, 1, 1, 8), g(2, 1, 1, 8)
    apart = torch.cat([x[..., ::2], x[..., 1::2]], -1)
    return Call(npu("npu_interleave_rope"), (x, cos, sin), want=turned(apart, cos, sin).to(x.dtype))


def embedded(x, positions, cache, size, neighbours=False):
    cos, sin = cache[positions.long()].chunk(2, -1)
    cos, sin = (torch.cat([t, t], -1) if not neighbours else t.repeat_interleave(2, -1) for t in (cos, sin))
    heads, count = x.view(x.size(0), -1, size), cos.size(-1)
    front = turned(heads[..., :count], cos.unsqueeze(1), sin.unsqueeze(1), neighbours).to(x.dtype)
    return torch.cat([front, heads[..., count:]], -1).view(x.shape)


@case(F32, HALF)
def rotary_embedding(g):
    positions, q, k, cache = g.ints(0, 10, 6, dtype=torch.int64), g(6, 24), g(6, 8), g(10, 8)
    left = {1: embedded(q, positions, cache, 8), 2: embedded(k, positions, cache, 8)}
    return Call(npu("_npu_rotary_embedding"), (positions, q, k, 8, cache, True), left=left, want=None)


@case(F32)
def rotary_embedding_partly(g):
    positions, q, k, cache = g.ints(0, 10, 6, dtype=torch.int64), g(6, 24), g(6, 8), g(10, 4)
    left = {1: embedded(q, positions, cache, 8, True), 2: embedded(k, positions, cache, 8, True)}
    return Call(torch.ops.atb._npu_rotary_embedding, (positions, q, k, 8, cache, False), left=left, want=None)


@case(F32)
def mrope(g):
    positions, q, k, cache = g.ints(0, 10, 3, 6), g(6, 16), g(6, 8), g(10, 8)
    rows = cache[positions.long()]
    mixed = torch.cat(
        [rows[0, :, :1], rows[1, :, 1:3], rows[2, :, 3:4], rows[0, :, 4:5], rows[1, :, 5:7], rows[2, :, 7:]], -1
    )
    order = torch.arange(6)
    want = tuple(embedded(x, order, mixed, 8) for x in (q, k))
    return Call(npu("npu_mrope"), (positions, q, k, cache, 8), {"mrope_section": [1, 2, 1]}, want=want)


@case(BF16)
def mrope_plain(g):
    positions, q, k, cache = g.ints(0, 10, 6), g(6, 16), g(6, 8), g(10, 8)
    want = tuple(embedded(x, positions, cache, 8, True) for x in (q, k))
    options = {"mrope_section": [0, 0, 0], "rotary_mode": "interleave"}
    return Call(npu("npu_mrope"), (positions, q, k, cache, 8), options, want=want)


# ---- Attention -----------------------------------------------------------------------------------------------------


@case(F32, HALF)
def fusion(g):
    q, k, v, mask = g(2, 4, 7, 16), g(2, 2, 9, 16), g(2, 2, 9, 16), torch.ones(7, 9).triu(3).bool()
    want = torch.stack([
        attend_heads(*(t[b].transpose(0, 1) for t in (q, k, v)), 0.25, ~mask).transpose(0, 1) for b in range(2)
    ]).to(q.dtype)  # fmt: skip
    options = {"atten_mask": mask, "scale": 0.25}
    want = (want, None, None, torch.empty(0, dtype=q.dtype), 0, 0, 0)
    return Call(npu("npu_fusion_attention"), (q, k, v, 4, "BNSD"), options, want=want, ignore=(1, 2))


@case(BF16)
def fusion_packed(g):
    q, k, v = g(8, 4, 16), g(11, 4, 16), g(11, 4, 16)
    parts = [attend_heads(q[:3], k[:4], v[:4], 0.5), attend_heads(q[3:], k[4:], v[4:], 0.5)]
    options = {"scale": 0.5, "actual_seq_qlen": [3, 8], "actual_seq_kvlen": [4, 11]}
    want = (torch.cat(parts).to(q.dtype), None, None, None, 0, 0, 0)
    return Call(npu("npu_fusion_attention"), (q, k, v, 4, "TND"), options, want=want, ignore=(1, 2, 3))


@case(F32)
def fusion_v2(g):
    q, k, v, pse = g(2, 6, 32), g(2, 5, 32), g(2, 5, 32), g(2, 4, 6, 5)
    want = torch.stack([
        torch.cat([attend(*(t[b].view(-1, 4, 8)[:, h] for t in (q, k, v)), 0.3, shift=pse[b, h]) for h in range(4)], 1)
        for b in range(2)
    ])  # fmt: skip
    options = {"pse": pse, "scale": 0.3, "pse_type": 0}
    want = (want, None, None, torch.empty(0), 0, 0, 0)
    return Call(npu("npu_fusion_attention_v2"), (q, k, v, 4, "BSH"), options, want=want, ignore=(1, 2))


@case(HALF, BF16)
def prompt(g):
    q, k, v = g(2, 4, 7, 16), g(2, 2, 7, 16), g(2, 2, 7, 16)
    want = torch.stack([
        attend_heads(*(t[b].transpose(0, 1) for t in (q, k, v)), 0.25, causal(7, 7)).transpose(0, 1) for b in range(2)
    ]).to(q.dtype)  # fmt: skip
    options = {
        "atten_mask": torch.ones(2048, 2048).triu(1).bool(),
        "num_heads": 4,
        "num_key_value_heads": 2,
        "input_layout": "BNSD",
        "scale_value": 0.25,
        "sparse_mode": 2,
    }
    return Call(npu("npu_prompt_flash_attention"), (q, k, v), options, want=want)


def pages(g, lengths, heads, size, block=4):
    """Keys in pages: the pages, the table, and the keys of each sequence."""
    most = max(-(-length // block) for length in lengths)
    count = len(lengths) * most + 2
    cache = g(count, block, heads, size)
    table = g.shuffled(count)[: len(lengths) * most].view(len(lengths), most).to(torch.int32)
    rows = [cache[table[i].long()].flatten(0, 1)[:length] for i, length in enumerate(lengths)]
    return cache, table, rows


@case(F32, HALF, BF16)
def fused_infer(g):
    lengths = [9, 3, 6]
    (k, table, ks), v = pages(g, lengths, 2, 16), g(11, 4, 2, 16)
    vs = [v[table[i].long()].flatten(0, 1)[:n] for i, n in enumerate(lengths)]
    q = g(3, 1, 4 * 16)
    want = torch.stack([attend_heads(q[i].view(1, 4, 16), ks[i], vs[i], 0.25).view(1, -1) for i in range(3)])
    options = {
        "num_heads": 4,
        "num_key_value_heads": 2,
        "scale": 0.25,
        "input_layout": "BSH",
        "block_table": table,
        "block_size": 4,
        "actual_seq_lengths_kv": lengths,
    }
    args = (q, k.flatten(2), v.flatten(2))
    none = torch.empty(0)
    return Call(npu("npu_fused_infer_attention_score"), args, options, want=(want.to(q.dtype), none))


@case(BF16)
def fused_infer_lse(g):
    q, k, v = g(2, 4, 7, 16), g(2, 4, 9, 16), g(2, 4, 9, 16)
    scores = q.float() @ k.float().transpose(-1, -2) * 0.25
    want = ((scores.softmax(-1) @ v.float()).to(q.dtype), scores.logsumexp(-1, keepdim=True))
    options = {"num_heads": 4, "scale": 0.25, "input_layout": "BNSD", "softmax_lse_flag": True}
    return Call(npu("npu_fused_infer_attention_score"), (q, k, v), options, want=want)


@case(HALF)
def fused_infer_v2(g):
    q, k, v, sink = g(8, 4, 16), g(8, 2, 16), g(8, 2, 16), g(4)
    parts = []
    for begin, end in ((0, 5), (5, 8)):
        for h in range(4):
            scores = q[begin:end, h].float() @ k[begin:end, h // 2].float().t() * 0.25
            scores = scores.masked_fill(~causal(end - begin, end - begin), HIDDEN)
            with_sink = torch.cat([scores, sink[h].float().expand(end - begin, 1)], 1)
            parts.append(with_sink.softmax(-1)[:, :-1] @ v[begin:end, h // 2].float())
    want = torch.cat([torch.stack(parts[:4], 1), torch.stack(parts[4:], 1)]).to(q.dtype)
    options = {
        "num_query_heads": 4,
        "num_key_value_heads": 2,
        "softmax_scale": 0.25,
        "input_layout": "TND",
        "actual_seq_qlen": [5, 8],
        "actual_seq_kvlen": [5, 8],
        "sparse_mode": 3,
        "atten_mask": torch.ones(2048, 2048).triu(1).bool(),
        "learnable_sink": sink,
    }
    return Call(npu("npu_fused_infer_attention_score_v2"), (q, k, v), options, want=(want, torch.empty(0)))


def sequences(q, k, v, lengths, scale, seen=lambda n: None, shift=lambda n: None):
    parts, begin = [], 0
    for n in lengths:
        rows = slice(begin, begin + n)
        parts.append(attend_heads(q[rows], k[rows], v[rows], scale, seen(n), shift(n)))
        begin += n
    return torch.cat(parts).to(q.dtype)


@case(HALF, BF16)
def flash(g):
    q, k, v, lengths = g(8, 4, 16), g(8, 2, 16), g(8, 2, 16), [5, 3]
    mask = torch.ones(6, 6).triu(1).to(q.dtype) * (HIDDEN if q.dtype == HALF else 1)
    mask = mask.nan_to_num(0, neginf=HIDDEN)
    want = sequences(q, k, v, lengths, 0.25, lambda n: causal(n, n))
    args = (q, k, v, mask, Host(torch.tensor(lengths, dtype=torch.int32)), 0.25, 4, 2, torch.empty_like(q))
    return Call(npu("_npu_flash_attention"), args, left={8: want}, want=None)


@case(HALF)
def flash_small_mask(g):
    q, k, v, lengths = g(8, 4, 16), g(8, 2, 16), g(8, 2, 16), [5, 3]
    mask = torch.ones(2, 2).triu(1).half()
    want = sequences(q, k, v, lengths, 0.25, lambda n: causal(n, n))
    args = (q, k, v, mask, Host(torch.tensor(lengths, dtype=torch.int32)), 0.25, 4, 2)
    return Call(npu("_npu_flash_attention_v3"), args, {"out": torch.empty_like(q)}, left={"out": want}, want=None)


@case(HALF)
def flash_slopes(g):
    q, k, v, lengths, mask = g(8, 4, 16), g(8, 4, 16), g(8, 4, 16), [5, 3], g(1, 1, 5, 5)
    want = sequences(q, k, v, lengths, 0.25, shift=lambda n: mask[0, 0, :n, :n])
    options = {"mask": mask, "mask_type": 2, "scale_value": 0.25, "num_heads": 4, "num_kv_heads": 4}
    options["out"] = torch.empty_like(q)
    op = torch_npu.atb._npu_flash_attention_v2.out
    return Call(op, (q, k, v, lengths), options, left={"out": want}, want=want)


@case(BF16)
def flash_unpad(g):
    q, k, v, lengths = g(8, 4, 16), g(8, 2, 16), g(8, 2, 16), [5, 3]
    args = (q, k, v, Host(torch.tensor(lengths, dtype=torch.int32)), 0.25, 4, 2, torch.empty_like(q))
    return Call(npu("_npu_flash_attention_unpad"), args, left={7: sequences(q, k, v, lengths, 0.25)}, want=None)


@case(F32)
def flash_unpad_v2(g):
    q, k, v, lengths = g(8, 4, 16), g(8, 2, 16), g(8, 2, 16), [5, 3]
    args = (q, k, v, Host(torch.tensor(lengths, dtype=torch.int32)), 0.25, 4, 2)
    left = {"out": sequences(q, k, v, lengths, 0.25)}
    return Call(npu("_npu_flash_attention_unpad_v2"), args, {"out": torch.empty_like(q)}, left=left, want=None)


def paged_call(g, op, size_v=None, name_v=True):
    lengths = [9, 3, 6]
    k, table, ks = pages(g, lengths, 2, 16)
    v = g(*k.shape) if size_v is None else k[..., :size_v]
    vs = [v[table[i].long()].flatten(0, 1)[:n] for i, n in enumerate(lengths)]
    q = g(3, 4, 16)
    want = torch.cat([attend_heads(q[i : i + 1], ks[i], vs[i], 0.25) for i in range(3)]).to(q.dtype)
    lens = Host(torch.tensor(lengths, dtype=torch.int32))
    if size_v is None:
        args = (q, k, v, 2, 4, 0.25, table, lens, torch.empty_like(want))
    else:
        args = (q, k, 2, 4, 0.25, table, lens, size_v, torch.empty_like(want))
    return Call(op, args, left={8: want}, want=None)


@case(F32, HALF, BF16)
def paged(g):
    return paged_call(g, npu("_npu_paged_attention"))


@case(HALF)
def paged_mla(g):
    return paged_call(g, npu("_npu_paged_attention_mla"), 12)


def split_call(g, op, order, **options):
    contexts, queries = [9, 3, 6], [4, 1, 3]
    k, table, ks = pages(g, contexts, 2, 16)
    v = g(*k.shape)
    vs = [v[table[i].long()].flatten(0, 1)[:n] for i, n in enumerate(contexts)]
    q, parts, begin = g(8, 4, 16), [], 0
    for i, (new, whole) in enumerate(zip(queries, contexts)):
        parts.append(attend_heads(q[begin : begin + new], ks[i], vs[i], 0.25, causal(new, whole)))
        begin += new
    want = torch.cat(parts).to(q.dtype)
    mask = torch.ones(16, 16).triu(1).to(q.dtype)
    values = {
        "mask": mask,
        "contexts": Host(torch.tensor(contexts, dtype=torch.int32)),
        "queries": Host(torch.tensor(queries, dtype=torch.int32)),
        "table": table,
        "out": torch.empty_like(q),
    }
    args = (q, k, v, *(values[each] for each in order[:4]), 2, 4, 0.25)
    if "out" in order:
        return Call(op, (*args, values["out"]), left={10: want}, want=None)
    return Call(op, args, {"out": values["out"]}, left={"out": want}, want=None)


@case(HALF, BF16)
def splitfuse(g):
    op = npu("_npu_paged_attention_splitfuse")
    return split_call(g, op, ("table", "contexts", "mask", "queries", "out"))


@case(HALF)
def splitfuse_marks(g):
    """A mask that is no number to add."""
    call = split_call(g, npu("_npu_paged_attention_splitfuse"), ("table", "contexts", "mask", "queries", "out"))
    call.args = (*call.args[:5], torch.ones(8, 16, dtype=torch.int8).triu(1), *call.args[6:])
    return call


@case(HALF)
def flash_marks(g):
    call = flash(g)
    call.args = (*call.args[:3], torch.ones(6, 6, dtype=torch.int8).triu(1), *call.args[4:])
    return call


@case(HALF)
def splitfuse_v2(g):
    return split_call(g, npu("_npu_paged_attention_splitfuse_v2"), ("table", "contexts", "mask", "queries"))


@case(HALF)
def flash_qlens(g):
    return split_call(g, npu("_npu_flash_attention_qlens"), ("table", "mask", "queries", "contexts", "out"))


@case(HALF)
def splitfuse_rows(g):
    """A row of the mask for each query."""
    call = split_call(g, npu("_npu_paged_attention_splitfuse"), ("table", "contexts", "mask", "queries", "out"))
    rows = torch.zeros(8, 9)
    begin = 0
    for new, whole in ((4, 9), (1, 3), (3, 6)):
        rows[begin : begin + new, :whole] = rows[begin : begin + new, :whole].masked_fill(~causal(new, whole), HIDDEN)
        begin += new
    call.args = (*call.args[:5], rows.half(), *call.args[6:])
    return call


@case(F32, BF16)
def attention_update(g):
    lse, out = [g(6, dtype=F32) for _ in range(3)], [g(6, 8) for _ in range(3)]
    total = torch.stack(lse).logsumexp(0)
    want = sum(o.float() * (part - total).exp().unsqueeze(1) for o, part in zip(out, lse)).to(out[0].dtype)
    return Call(npu("npu_attention_update"), (lse, out, 1), want=(want, total))


# ---- Pages ---------------------------------------------------------------------------------------------------------


def stored(cache, rows, slots):
    cache = cache.clone()
    for row, slot in zip(rows, slots.tolist()):
        if slot >= 0:
            cache[slot // cache.size(1), slot % cache.size(1)] = row
    return cache


def slots_of(g, count, most):
    slots = g.shuffled(most)[:count]
    slots[1] = -1  # nowhere
    return slots


@case(F32, HALF)
def reshape_and_cache(g):
    k, v, keys, values, slots = g(5, 2, 8), g(5, 2, 8), g(4, 4, 2, 8), g(4, 4, 2, 8), slots_of(g, 5, 16)
    left = {2: stored(keys, k, slots), 3: stored(values, v, slots)}
    return Call(npu("_npu_reshape_and_cache"), (k, v, keys, values, slots), left=left, want=None)


@case(BF16)
def reshape_and_cache_siso(g):
    k, keys, slots = g(5, 1, 8), g(4, 4, 1, 8), slots_of(g, 5, 16)
    return Call(npu("_npu_reshape_and_cache_siso"), (k, keys, slots), left={1: stored(keys, k, slots)}, want=None)


@case(HALF)
def scatter_pa(g):
    k, v, keys, values, slots = g(5, 2, 8), g(5, 2, 6), g(4, 4, 2, 8), g(4, 4, 2, 6), slots_of(g, 5, 16)
    left = {2: stored(keys, k, slots), 3: stored(values, v, slots)}
    args = (k, v, keys, values, slots)
    return Call(npu("npu_scatter_pa_kv_cache"), args, {"cache_mode": "Norm"}, left=left, want=None)


@case(HALF)
def scatter_pa_tiles(g):
    k, v, keys, values, slots = g(5, 2, 8), g(5, 2, 8), g(4, 4, 4, 4), g(4, 4, 4, 4), slots_of(g, 5, 16)

    def tiled(cache, rows):
        return stored(cache.transpose(1, 2), rows.reshape(5, 4, 4), slots).transpose(1, 2).contiguous()

    left = {2: tiled(keys, k), 3: tiled(values, v)}
    return Call(npu("npu_scatter_pa_kv_cache"), (k, v, keys, values, slots), left=left, want=None)


@case(F32)
def scatter_pa_one(g):
    k, keys, slots = g(5, 2, 8), g(4, 4, 2, 8), slots_of(g, 5, 16)
    want = stored(keys, k, slots)
    op = torch.ops.npu.npu_scatter_pa_cache.value
    return Call(op, (k, slots), {"key_cache": keys}, left={"key_cache": want}, want=want)


@case(F32, BF16)
def scatter_nd(g):
    x, places, rows = g(6, 5, 3), g.shuffled(6, torch.int64)[:4].view(4, 1), g(4, 5, 3)
    want = x.clone()
    want[places[:, 0]] = rows
    return Call(npu("npu_scatter_nd_update_"), (x, places, rows), left={0: want}, want=want)


@case(F32, HALF)
def gather_pa(g):
    lengths = [6, 3, 0, 7]
    keys, table, rows = pages(g, [7, 7, 7, 7], 2, 8)
    values = g(*keys.shape)
    key, value = g(20, 2, 8), g(20, 2, 8)
    left = {}
    for place, cache, out in ((4, keys, key), (5, values, value)):
        parts = [cache[table[i].long()].flatten(0, 1)[:n] for i, n in enumerate(lengths)]
        left[place] = torch.cat([*parts, out[16:]])  # rows of no sequence stay
    args = (keys, values, table, torch.tensor(lengths, dtype=torch.int32), key, value)
    return Call(npu("npu_gather_pa_kv_cache"), args, left=left, want=None)


@case(F32)
def gather_pa_offsets(g):
    keys, table, _ = pages(g, [7, 7], 2, 8)
    values = g(*keys.shape)
    rows = [torch.cat([c[table[i].long()].flatten(0, 1)[o : o + n] for i, (n, o) in enumerate(((3, 2), (4, 1)))])
            for c in (keys, values)]  # fmt: skip
    args = (keys, values, table, torch.tensor([0, 3, 7], dtype=torch.int32), g(7, 2, 8), g(7, 2, 8))
    options = {"seq_offset": torch.tensor([2, 1], dtype=torch.int32), "is_seq_lens_cumsum": True}
    return Call(npu("npu_gather_pa_kv_cache"), args, options, left={4: rows[0], 5: rows[1]}, want=None)


@case(HALF)
def paged_cache_load(g):
    lengths = [6, 3, 7]
    keys, table, rows = pages(g, lengths, 2, 8)
    values = g(*keys.shape)
    want = tuple(torch.cat([c[table[i].long()].flatten(0, 1)[:n] for i, n in enumerate(lengths)])
                 for c in (keys, values))  # fmt: skip
    args = (keys, values, table, torch.tensor(lengths, dtype=torch.int32))
    return Call(torch_npu.atb.npu_paged_cache_load, args, want=want, captured=False, traced=False)


@case(HALF)
def paged_cache_load_out(g):
    call = paged_cache_load(g)
    out = {"key": torch.empty_like(call.want[0]), "value": torch.empty_like(call.want[1])}
    left = {"key": call.want[0], "value": call.want[1]}
    return Call(torch_npu.atb.npu_paged_cache_load.out, call.args, out, want=call.want, left=left)


@case(F32, BF16)
def kv_rmsnorm(g):
    kv, gamma, cos, sin = g(2, 1, 3, 24), g(16), g(2, 1, 3, 8), g(2, 1, 3, 8)
    kr, ckv, index = g(2, 1, 9, 8), g(2, 1, 9, 16), torch.stack([g.shuffled(9, torch.int64)[:3] for _ in range(2)])
    normed = norm_of(kv[..., :16], gamma, 1e-5).to(kv.dtype)
    rope = kv[..., 16:]
    rope = turned(torch.cat([rope[..., ::2], rope[..., 1::2]], -1), cos, sin).to(kv.dtype)
    want_kr, want_ckv = kr.clone(), ckv.clone()
    for b in range(2):
        want_kr[b, 0, index[b]], want_ckv[b, 0, index[b]] = rope[b, 0], normed[b, 0]
    args = (kv, gamma, cos, sin, index, kr, ckv)
    want = (want_kr, want_ckv, rope, normed)
    return Call(npu("npu_kv_rmsnorm_rope_cache"), args, left={5: want_kr, 6: want_ckv}, want=want)


@case(F32)
def kv_rmsnorm_paged(g):
    kv, gamma, cos, sin = g(5, 1, 1, 24), g(16), g(5, 1, 1, 8), g(5, 1, 1, 8)
    kr, ckv, index = g(4, 4, 1, 8), g(4, 4, 1, 16), slots_of(g, 5, 16).to(torch.int64)
    normed = norm_of(kv[..., :16], gamma, 1e-5)
    rope = kv[..., 16:]
    rope = turned(torch.cat([rope[..., ::2], rope[..., 1::2]], -1), cos, sin)
    want = (stored(kr, rope[:, 0], index), stored(ckv, normed[:, 0], index), rope, normed)
    args, options = (kv, gamma, cos, sin, index, kr, ckv), {"cache_mode": "PA", "is_output_kv": True}
    return Call(npu("npu_kv_rmsnorm_rope_cache"), args, options, left={5: want[0], 6: want[1]}, want=want)


def latent(g, op, version):
    x, w_dq, w_uq, w_uk, w_kv = g(5, 32) * 0.3, g(32, 16) * 0.3, g(16, 3 * 12) * 0.3, g(3, 8, 16) * 0.3, g(32, 20) * 0.3
    gq, gkv, sin, cos = g(16), g(16), g(5, 4), g(5, 4)
    kv, kr, index = g(4, 4, 1, 16), g(4, 4, 1, 4), g.shuffled(16, torch.int64)[:5]

    def step(value):
        return value.to(x.dtype).float()

    cq = norm_of(step(x.float() @ w_dq.float()), gq, 1e-5).to(x.dtype)
    q = step(cq.float() @ w_uq.float()).view(5, 3, 12)
    query = torch.stack([q[:, h, :8] @ w_uk[h].float() for h in range(3)], 1).to(x.dtype)

    def rope(t):
        apart = torch.cat([t[..., ::2], t[..., 1::2]], -1)
        return turned(apart, cos.view(5, 1, 4), sin.view(5, 1, 4)).to(x.dtype)

    both = step(x.float() @ w_kv.float())
    ckv, kro = norm_of(both[:, :16], gkv, 1e-5).to(x.dtype).unsqueeze(1), rope(both[:, 16:].view(5, 1, 4))
    new_kv, new_kr = stored(kv, ckv, index), stored(kr, kro, index)
    if version == 2:
        args = (x, w_dq, w_uq, w_uk, w_kv, gq, gkv, sin, cos, index, kv, kr)
        want = (query, rope(q[..., 8:]), new_kv, new_kr, torch.ones(1))
        return Call(op, args, want=want, left={10: new_kv, 11: new_kr})
    args = (x, w_dq, w_uq, w_uk, w_kv, gq, gkv, sin, cos, kv, kr)
    want = (query, rope(q[..., 8:]), torch.empty(0), cq, torch.empty(0))
    options = {"cache_index": index, "query_norm_flag": True}
    return Call(op, args, options, want=want, left={9: new_kv, 10: new_kr})


@case(F32, BF16)
def mla_prolog_v2(g):
    return latent(g, npu("npu_mla_prolog_v2"), 2)


@case(F32, BF16)
def mla_prolog_v3(g):
    return latent(g, npu("npu_mla_prolog_v3"), 3)


# ---- Experts -------------------------------------------------------------------------------------------------------


@case(F32, BF16)
def gating_softmax(g):
    x, done = g(6, 10), g.ints(0, 2, 6).bool()
    values, places = x.float().softmax(-1).topk(3)
    places = places.to(torch.int32).masked_fill(done.unsqueeze(1), 10)
    rows = torch.arange(18, dtype=torch.int32).view(3, 6).t()
    return Call(npu("npu_moe_gating_top_k_softmax"), (x, done, 3), want=(values.to(x.dtype), places, rows))


@case(F32, BF16)
def gating_sigmoid(g):
    x, bias = g(6, 16), g(16)
    normed = x.float().sigmoid()
    scores = (normed + bias.float()).view(6, 4, 4)
    groups = scores.topk(2).values.sum(-1).topk(2).indices
    scores = torch.full_like(scores, HIDDEN).scatter(
        1, groups.unsqueeze(-1).expand(6, 2, 4), scores.gather(1, groups.unsqueeze(-1).expand(6, 2, 4))
    )
    chosen = scores.view(6, 16).topk(3).indices
    y = normed.gather(1, chosen)
    y = (y / y.sum(-1, keepdim=True) * 2.5).to(x.dtype)
    options = {
        "bias": bias,
        "k_group": 2,
        "group_count": 4,
        "group_select_mode": 1,
        "norm_type": 1,
        "out_flag": True,
        "routed_scaling_factor": 2.5,
    }
    return Call(npu("npu_moe_gating_top_k"), (x, 3), options, want=(y, chosen.to(torch.int32), normed))


@case(F32)
def gating_plain(g):
    x = g(6, 16)
    values, chosen = x.softmax(-1).topk(4)
    return Call(npu("npu_moe_gating_top_k"), (x, 4), want=(values, chosen.to(torch.int32), None), ignore=(2,))


@case(F32)
def group_topk(g):
    x = g(6, 16)
    best = x.view(6, 4, 4).topk(2).values.sum(-1).topk(2).indices
    keep = torch.zeros(6, 4).scatter(1, best, 1).bool().repeat_interleave(4, 1)
    return Call(npu("_npu_group_topk"), (x, 2, 4, 2), left={0: x * keep}, want=None)


@case(F32)
def expert_tokens(g):
    experts = g.ints(0, 6, 20).sort().values
    want = torch.tensor([int((experts <= e).sum()) for e in range(6)], dtype=torch.int32)
    return Call(npu("npu_moe_compute_expert_tokens"), (experts, 6), want=want)


def routed(experts):
    """Entries in the order of their experts."""
    flat = experts.flatten().tolist()
    return sorted(range(len(flat)), key=lambda i: flat[i])


@case(F32, HALF)
def init_routing(g):
    x, experts = g(5, 8), g.ints(0, 4, 5, 2)
    rows = torch.arange(10, dtype=torch.int32).view(2, 5).t().contiguous()
    order = routed(experts)
    sources = [int(rows.flatten()[i]) for i in order]
    back = torch.empty(10, dtype=torch.int32)
    for place, source in enumerate(sources):
        back[source] = place
    want = (torch.stack([x[s % 5] for s in sources[:6]]), back, experts.flatten()[order])
    return Call(npu("npu_moe_init_routing"), (x, rows, experts, 3), want=want)


@case(F32, BF16)
def init_routing_v2(g):
    x, experts, scale = g(5, 8), g.ints(0, 8, 5, 2), g(5, dtype=F32)
    order = [i for i in routed(experts) if 2 <= experts.flatten()[i] < 6]
    expanded, scales = torch.zeros(10, 8, dtype=x.dtype), torch.zeros(10)
    back = torch.full((10,), -1, dtype=torch.int32)
    for place, entry in enumerate(order):
        expanded[place], scales[place], back[entry] = x[entry // 2], scale[entry // 2], place
    counts = torch.tensor([int((experts == e).sum()) for e in range(2, 6)])
    options = {
        "scale": scale,
        "expert_num": 8,
        "expert_tokens_num_type": 1,
        "expert_tokens_num_flag": True,
        "active_expert_range": [2, 6],
    }
    return Call(npu("npu_moe_init_routing_v2"), (x, experts), options, want=(expanded, back, counts, scales))


@case(F32)
def init_routing_v2_quant(g):
    x, experts, smooth = g(5, 8), g.ints(0, 4, 5, 2), g(4, 8).abs() + 0.1
    order = routed(experts)
    wide = torch.stack([x[i // 2] * smooth[experts.flatten()[i]] for i in order])
    y, scales = quantized(wide)
    pairs = torch.zeros(4, 2, dtype=torch.int64)
    present = [e for e in range(4) if (experts == e).any()]
    for row, e in enumerate(present):
        pairs[row] = torch.tensor([e, int((experts == e).sum())])
    options = {
        "scale": smooth,
        "expert_num": 4,
        "expert_tokens_num_type": 2,
        "expert_tokens_num_flag": True,
        "quant_mode": 1,
        "row_idx_type": 1,
    }
    want = (y, torch.tensor(order, dtype=torch.int32), pairs, scales)
    return Call(npu("npu_moe_init_routing_v2"), (x, experts), options, want=want)


@case(F32)
def init_routing_v2_capacity(g):
    x, experts = g(5, 8), g.ints(0, 3, 5, 2)
    room, back, used = torch.zeros(3, 2, 8), torch.full((10,), -1, dtype=torch.int32), [0, 0, 0]
    for entry in routed(experts):
        e = int(experts.flatten()[entry])
        if used[e] < 2:
            room[e, used[e]], back[entry] = x[entry // 2], e * 2 + used[e]
            used[e] += 1
    ends = torch.tensor([int((experts <= e).sum()) for e in range(3)])
    options = {"expert_capacity": 2, "expert_num": 3, "drop_pad_mode": 1, "expert_tokens_num_flag": True}
    return Call(npu("npu_moe_init_routing_v2"), (x, experts), options, want=(room, back, ends, None), ignore=(3,))


@case(F32, BF16)
def finalize_routing(g):
    rows, s1, s2, bias, scales = g(10, 8), g(5, 8), g(5, 8), g(4, 8), g(5, 2)
    index, experts = g.shuffled(10), g.ints(0, 4, 5, 2)
    want = s1.float() + s2.float()
    for i in range(5):
        for k in range(2):
            want[i] += scales[i, k].float() * (rows[index[i + 5 * k]].float() + bias[experts[i, k]].float())
    args = (rows, s1, s2, bias, scales, index, experts)
    return Call(npu("npu_moe_finalize_routing"), args, want=want.to(rows.dtype))


@case(HALF)
def finalize_routing_rows(g):
    rows, scales, index = g(10, 8), g(5, 2), g.shuffled(10)
    index[3] = -1
    want = torch.zeros(5, 8)
    for entry, place in enumerate(index.tolist()):
        if place >= 0:
            want[entry // 2] += scales.flatten()[entry].float() * rows[place].float()
    args = (rows, None, None, None, scales, index, None, 2)
    return Call(npu("npu_moe_finalize_routing"), args, want=want.to(rows.dtype))


@case(F32, BF16)
def token_permute(g):
    tokens, indices = g(5, 8), g.ints(0, 4, 5, 2, dtype=torch.int64)
    order = routed(indices)
    back = torch.empty(10, dtype=torch.int32)
    back[order] = torch.arange(10, dtype=torch.int32)
    want = (tokens[[i // 2 for i in order[:7]]], back)
    return Call(npu("npu_moe_token_permute"), (tokens, indices, 7), want=want)


@case(F32, BF16)
def token_unpermute(g):
    rows, index, probs = g(8, 8), g.shuffled(10), g(5, 2)
    wide = pad(rows.float(), (0, 0, 0, 2))[index.long()].view(5, 2, 8)
    want = (wide * probs.float().unsqueeze(-1)).to(rows.dtype).float().sum(1).to(rows.dtype)
    return Call(npu("npu_moe_token_unpermute"), (rows, index, probs), want=want)


@case(F32, HALF)
def top_k_top_p(g):
    logits, p, k = g(4, 12) * 2, torch.tensor([0.5, 0.9, 0.1, 1.0]), torch.tensor([3, 12, 5, 1], dtype=torch.int32)
    want = torch.full_like(logits, HIDDEN)
    for row in range(4):
        values, places = logits[row].float().sort(descending=True)
        values, places = values[: int(k[row])], places[: int(k[row])]
        before = values.softmax(0).cumsum(0) - values.softmax(0)
        for place, mass in zip(places.tolist(), before.tolist()):
            if mass < p[row] or place == places[0]:
                want[row, place] = logits[row, place]
    return Call(npu("npu_top_k_top_p"), (logits, p.to(logits.dtype), k), want=want)


# ---- Quantised values and products ---------------------------------------------------------------------------------


@case(HALF, BF16)
def dynamic_quant(g):
    x = g(3, 5, 16)
    return Call(npu("npu_dynamic_quant"), (x,), want=quantized(x))


@case(HALF)
def dynamic_quant_smooth(g):
    x, smooth = g(5, 16), g(16).abs() + 0.1
    return Call(npu("npu_dynamic_quant"), (x,), {"smooth_scales": smooth}, want=quantized(x.float() * smooth.float()))


@case(BF16)
def dynamic_quant_tensor(g):
    x = g(5, 16)
    scale = x.float().abs().max() / 127
    want = ((x.float() / scale).round().to(torch.int8), scale.view(1))
    return Call(npu("npu_dynamic_quant"), (x,), {"quant_mode": "pertensor"}, want=want)


def packed(values):
    words = [sum((int(v) & 15) << (4 * i) for i, v in enumerate(row)) for row in values.reshape(-1, 8).tolist()]
    words = [word - 2**32 if word >= 2**31 else word for word in words]
    return torch.tensor(words, dtype=torch.int32).view(*values.shape[:-1], -1)


@case(HALF)
def dynamic_quant_int4(g):
    x = g(5, 16)
    y, scale = quantized(x, 7)
    return Call(npu("npu_dynamic_quant"), (x,), {"dst_type": torch.quint4x2}, want=(packed(y), scale))


@case(HALF, BF16)
def dynamic_block_quant(g):
    x = g(3, 200)
    blocks = pad(x.float(), (0, 56)).view(3, 2, 128)
    y, scale = quantized(blocks)
    return Call(npu("npu_dynamic_block_quant"), (x,), want=(y.view(3, 256)[:, :200].contiguous(), scale))


@case(F32, HALF)
def quantize(g):
    x, scale, zero = g(5, 16), g(16, dtype=F32).abs() * 0.1 + 0.02, g.ints(-3, 4, 16)
    want = (x.float() / scale + zero).round().clamp(-128, 127).to(torch.int8)
    return Call(npu("npu_quantize"), (x, scale, zero, torch.qint8, 1), want=want)


@case(HALF)
def quantize_int4(g):
    x, scale = g(5, 16), g(16).abs()
    want = packed((x.float() * scale.float()).round().clamp(-8, 7))
    return Call(npu("npu_quantize"), (x, scale, None, torch.quint4x2, -1, False), want=want)


@case(F32)
def int4pack(g):
    w = g.ints(-8, 8, 6, 16)
    return Call(npu("npu_convert_weight_to_int4pack"), (w,), want=packed(w))


def product(a, b):
    return (a.double() @ b.double()).to(torch.int32)


@case(HALF, BF16)
def quant_matmul(g):
    a, b = g.ints(-128, 128, 5, 40, dtype=torch.int8), g.ints(-128, 128, 40, 6, dtype=torch.int8)
    scale, token, bias = g(6, dtype=F32) * 1e-4, g(5, dtype=F32).abs(), g.ints(-99, 99, 6)
    want = ((product(a, b) + bias).float() * scale * token.unsqueeze(1)).to(g.dtype)
    options = {"pertoken_scale": token, "bias": bias, "output_dtype": g.dtype}
    return Call(npu("npu_quant_matmul"), (a, b, scale), options, want=want)


@case(F32)
def quant_matmul_int8(g):
    a, b = g.ints(-128, 128, 2, 5, 40, dtype=torch.int8), g.ints(-128, 128, 6, 40, dtype=torch.int8).t()
    scale, offset = g(6) * 1e-3, g(6)
    want = (product(a, b).float() * scale + offset).round().clamp(-128, 127).to(torch.int8)
    return Call(npu("npu_quant_matmul"), (a, b, scale), {"offset": offset}, want=want)


@case(F32)
def quant_matmul_deep(g):
    """Sums that float32 does not have."""
    a, b = torch.full((2, 3000), -128, dtype=torch.int8), g.ints(-128, -126, 3000, 3, dtype=torch.int8)
    options = {"output_dtype": torch.int32}
    return Call(npu("npu_quant_matmul"), (a, b, torch.ones(1)), options, want=product(a, b))


@case(HALF)
def quant_matmul_int4(g):
    a, b = g.ints(-128, 128, 5, 40, dtype=torch.int8), g.ints(-8, 8, 40, 16)
    scale, token = g(16, dtype=F32) * 1e-3, g(5, dtype=F32).abs()
    want = (product(a, b).float() * scale * token.unsqueeze(1)).half()
    options = {"pertoken_scale": token, "output_dtype": HALF}
    return Call(npu("npu_quant_matmul"), (a, packed(b), scale), options, want=want)


@case(HALF, BF16)
def weight_quant(g):
    x, w, scale, offset, bias = g(5, 32), g.ints(-128, 128, 32, 6, dtype=torch.int8), g(6) * 0.01, g(6), g(6, dtype=F32)
    bias = bias.to(HALF if g.dtype == HALF else BF16)
    want = (x.float() @ ((w.float() + offset.float()) * scale.float()) + bias.float()).to(x.dtype)
    return Call(npu("npu_weight_quant_batchmatmul"), (x, w, scale, offset, None, None, bias), want=want)


@case(HALF)
def weight_quant_int4(g):
    x, w, scale = g(5, 64), g.ints(-8, 8, 64, 16), g(2, 16) * 0.1
    want = (x.float() @ (w.float() * scale.float().repeat_interleave(32, 0))).half()
    options = {"antiquant_group_size": 32}
    return Call(npu("npu_weight_quant_batchmatmul"), (x, packed(w), scale), options, want=want)


@case(F32, HALF)
def transpose_bmm(g):
    a, b = g(5, 4, 8), g(4, 8, 6)
    want = torch.bmm(a.float().transpose(0, 1), b.float())
    split = want.view(2, 2, 5, 6).permute(0, 2, 1, 3).reshape(2, 5, 12)
    options = {"perm_x1": [1, 0, 2], "perm_y": [1, 0, 2], "batch_split_factor": 2}
    return Call(npu("npu_transpose_batchmatmul"), (a, b), options, want=split.to(a.dtype))


@case(F32)
def transpose_bmm_plain(g):
    a, b = g(4, 5, 8), g(4, 8, 6)
    return Call(npu("npu_transpose_batchmatmul"), (a, b), want=torch.bmm(a, b).transpose(0, 1).contiguous())


@case(HALF)
def transpose_quant_bmm(g):
    a, b = g.ints(-128, 128, 5, 4, 8, dtype=torch.int8), g.ints(-128, 128, 4, 8, 6, dtype=torch.int8)
    s1, s2 = g(5, dtype=F32) * 0.01, g(6, dtype=F32) * 0.01
    want = (product(a.transpose(0, 1), b).float() * s1.view(1, 5, 1) * s2).transpose(0, 1).half().contiguous()
    options = {"x1_scale": s1, "x2_scale": s2}
    return Call(npu("npu_transpose_quant_batchmatmul"), (a, b, HALF), options, want=want)


ENDS = [3, 3, 8, 12]


def by_group(rows, ends, function):
    parts, begin = [], 0
    for i, end in enumerate(ends):
        parts.append(function(rows[begin:end], i))
        begin = end
    return torch.cat(parts)


@case(F32, HALF, BF16)
def grouped(g):
    x, w, bias = g(12, 16), g(4, 16, 6), g(4, 6)
    want = by_group(x, ENDS, lambda r, i: r.float() @ w[i].float() + bias[i].float()).to(x.dtype)
    options = {"bias": [bias], "group_list": torch.tensor(ENDS), "split_item": 3, "group_type": 0}
    return Call(npu("npu_grouped_matmul"), ([x], [w]), options, want=[want])


@case(F32)
def grouped_lists(g):
    xs, ws = [g(3, 8), g(5, 12)], [g(8, 6), g(12, 4)]
    return Call(npu("npu_grouped_matmul"), (xs, ws), {"group_type": -1}, want=[x @ w for x, w in zip(xs, ws)])


@case(F32)
def grouped_numbers(g):
    x, w = g(12, 16), [g(16, 6) for _ in range(4)]
    want = by_group(x, ENDS, lambda r, i: r @ w[i])
    options = {"group_list": ENDS, "split_item": 3, "group_type": 0}
    return Call(torch.ops.npu.npu_grouped_matmul.List, ([x], w), options, want=[want])


@case(BF16)
def grouped_quant(g):
    x, w = g.ints(-128, 128, 12, 16, dtype=torch.int8), g.ints(-128, 128, 4, 16, 6, dtype=torch.int8)
    scale, token = g(4, 6, dtype=F32) * 1e-3, g(12, dtype=F32).abs()
    want = by_group(x, ENDS, lambda r, i: product(r, w[i]).float() * scale[i])
    want = (want * token.unsqueeze(1)).to(BF16)
    options = {
        "scale": [scale],
        "per_token_scale": [token],
        "group_list": torch.tensor([3, 0, 5, 4]),
        "split_item": 2,
        "group_type": 0,
        "group_list_type": 1,
        "output_dtype": BF16,
    }
    return Call(npu("npu_grouped_matmul"), ([x], [w]), options, want=[want])


def swiglu_quant_parts(g):
    x, w = g.ints(-128, 128, 12, 16, dtype=torch.int8), g.ints(-128, 128, 4, 16, 8, dtype=torch.int8)
    scale, token = g(4, 8, dtype=F32) * 1e-3, g(12, dtype=F32).abs()
    values = by_group(x, ENDS, lambda r, i: product(r, w[i]).float() * scale[i]) * token.unsqueeze(1)
    return x, w, scale, token, quantized(silu(values[:, :4]) * values[:, 4:])


@case(F32)
def grouped_swiglu(g):
    x, w, scale, token, want = swiglu_quant_parts(g)
    args = (x, w, torch.tensor(ENDS), scale, token)
    return Call(npu("npu_grouped_matmul_swiglu_quant"), args, want=(*want, None), ignore=(2,))


@case(F32)
def grouped_swiglu_v2(g):
    x, w, scale, token, want = swiglu_quant_parts(g)
    args = (x, [w], [scale], token, torch.tensor([3, 0, 5, 4]))
    return Call(npu("npu_grouped_matmul_swiglu_quant_v2"), args, {"group_list_type": 1}, want=want)


@case(HALF)
def grouped_dequant(g):
    x, w, scale = g(12, 16), g.ints(-128, 128, 4, 6, 16, dtype=torch.int8), g(4, 6, dtype=F32) * 1e-2
    y, token = quantized(x)
    want = by_group(y, ENDS, lambda r, i: product(r, w[i].t()).float() * scale[i]) * token.unsqueeze(1)
    args = (x, w, scale, torch.tensor(ENDS))
    return Call(npu("npu_quant_grouped_matmul_dequant"), args, want=want.half())


@case(F32)
def dequant_swiglu(g):
    x, scale, token, smooth = g.ints(-999, 999, 9, 16), g(3, 16) * 1e-2, g(9).abs(), g(3, 8).abs() + 0.1
    y, s = torch.zeros(9, 8, dtype=torch.int8), torch.zeros(9)
    for i, (begin, end) in enumerate(((0, 2), (2, 2), (2, 7))):
        values = x[begin:end].float() * scale[i] * token[begin:end, None]
        y[begin:end], s[begin:end] = quantized(values[:, :8] * silu(values[:, 8:]) * smooth[i])
    options = {
        "weight_scale": scale,
        "activation_scale": token,
        "quant_scale": smooth,
        "group_index": torch.tensor([2, 0, 5]),
        "quant_mode": 1,
    }
    return Call(npu("npu_dequant_swiglu_quant"), (x,), options, want=(y, s))


@case(BF16)
def dequant_swiglu_static(g):
    x, scale, offset = g(9, 16), g(1, 8, dtype=F32).abs() * 0.1 + 0.05, g(1, 8, dtype=F32)
    values = silu(x.float()[:, :8]) * x.float()[:, 8:]
    want = (values / scale + offset).round().clamp(-128, 127).to(torch.int8)
    options = {"quant_scale": scale, "quant_offset": offset, "activate_left": True}
    return Call(npu("npu_dequant_swiglu_quant"), (x,), options, want=(want, None), ignore=(1,))


# ---- Chosen keys, states -------------------------------------------------------------------------------------------


def indexed(q, k, w, count, seen):
    scores = torch.zeros(k.size(0))
    for h in range(q.size(0)):
        scores += w[h].float() * (k.float() @ q[h].float()).relu()
    best = scores[:seen].sort(descending=True).indices[:count].to(torch.int32)
    return pad(best, (0, count - best.numel()), value=-1)


@case(F32, BF16)
def lightning(g):
    q, k, w = g(2, 3, 4, 8), g(2, 9, 1, 8), g(2, 3, 4)
    lengths = [9, 5]
    rows = [[indexed(q[b, i], k[b, :, 0], w[b, i], 6, lengths[b] - 2 + i) for i in range(3)] for b in range(2)]
    want = torch.stack([torch.stack(row) for row in rows]).unsqueeze(2)
    options = {"actual_seq_lengths_key": torch.tensor(lengths, dtype=torch.int32), "sparse_count": 6}
    none = torch.empty(0, dtype=q.dtype)
    return Call(npu("npu_lightning_indexer"), (q, k, w), options, want=(want, none))


@case(F32)
def lightning_paged(g):
    lengths, queries = [9, 5], [3, 1]
    k, table, ks = pages(g, lengths, 1, 8)
    q, w = g(4, 4, 8), g(4, 4)
    rows = [indexed(q[i], ks[0][:, 0], w[i], 4, 7 + i) for i in range(3)]
    rows.append(indexed(q[3], ks[1][:, 0], w[3], 4, 5))
    options = {
        "actual_seq_lengths_query": torch.tensor([3, 4], dtype=torch.int32),
        "actual_seq_lengths_key": torch.tensor(lengths, dtype=torch.int32),
        "block_table": table,
        "layout_query": "TND",
        "layout_key": "PA_BSND",
        "sparse_count": 4,
    }
    want = (torch.stack(rows).unsqueeze(1), torch.empty(0))
    return Call(npu("npu_lightning_indexer"), (q, k, w), options, want=want)


@case(F32)
def quant_lightning(g):
    q, k = g.ints(-128, 128, 2, 3, 4, 8, dtype=torch.int8), g.ints(-128, 128, 2, 9, 1, 8, dtype=torch.int8)
    w, sq, sk = g(2, 3, 4), g(2, 3, 4).abs(), g(2, 9, 1).abs()
    wide = k.float() * sk.unsqueeze(-1)
    rows = [[indexed(q[b, i].float(), wide[b, :, 0], w[b, i] * sq[b, i], 5, 9) for i in range(3)] for b in range(2)]
    want = torch.stack([torch.stack(row) for row in rows]).unsqueeze(2)
    options = {"sparse_count": 5, "sparse_mode": 0}
    return Call(npu("npu_quant_lightning_indexer"), (q, k, w, sq, sk, 0, 0), options, want=want)


@case(BF16, HALF)
def quant_sparse(g):
    size, rope, tile, count = 32, 8, 16, 4
    q, plain = g(2, 2, 3, size + rope), g.ints(-128, 128, 2, 9, 1, size, dtype=torch.int8)
    scales, turned_part = g(2, 9, 1, size // tile, dtype=F32).abs() * 0.02, g(2, 9, 1, rope)
    key = torch.cat([plain, turned_part.view(torch.int8), scales.view(torch.int8)], -1)
    values = plain.float() * scales.repeat_interleave(tile, -1)
    keys = torch.cat([values, turned_part.float()], -1)
    chosen = torch.stack([torch.stack([g.shuffled(7)[:count] for _ in range(2)]) for _ in range(2)]).unsqueeze(2)
    chosen[0, 0, 0, 2:] = -1
    want = torch.zeros(2, 2, 3, size)
    for b in range(2):
        for i in range(2):
            places = chosen[b, i, 0][chosen[b, i, 0] >= 0].long()
            for h in range(3):
                want[b, i, h] = attend(q[b, i, h : h + 1], keys[b, places, 0], values[b, places, 0], 0.2)[0]
    args = (q, key, key, chosen, 0.2, 2, 2)
    options = {"attention_mode": 2, "tile_size": tile, "rope_head_dim": rope}
    return Call(npu("npu_kv_quant_sparse_flash_attention"), args, options, want=want.to(q.dtype))


def delta(q, k, v, beta, decay, s, scale):
    """One token and head."""
    s = s * math.exp(decay)
    s = s + torch.outer(beta * (v - s @ k), k)
    return s @ q * scale, s


@case(F32, BF16)
def chunk_delta(g):
    q, k, v = g(7, 2, 8) * 0.3, g(7, 2, 8) * 0.3, g(7, 4, 6)
    beta, decay, state, lengths = g(7, 4).sigmoid(), -g(7, 4, dtype=F32).abs(), g(2, 4, 6, 8), [3, 4]
    out, last, begin = torch.zeros(7, 4, 6), torch.zeros(2, 4, 6, 8), 0
    for b, n in enumerate(lengths):
        for h in range(4):
            s = state[b, h].float()
            for t in range(begin, begin + n):
                row = (q[t, h // 2].float(), k[t, h // 2].float(), v[t, h].float(), float(beta[t, h]))
                out[t, h], s = delta(*row, float(decay[t, h]), s, 0.5)
            last[b, h] = s
        begin += n
    options = {
        "beta": beta,
        "initial_state": state,
        "actual_seq_lengths": torch.tensor(lengths, dtype=torch.int32),
        "scale": 0.5,
        "g": decay,
    }
    want = (out.to(q.dtype), last.to(state.dtype))
    return Call(npu("npu_chunk_gated_delta_rule"), (q, k, v), options, want=want)


@case(F32)
def recurrent_delta(g):
    q, k, v = g(5, 2, 8) * 0.3, g(5, 2, 8) * 0.3, g(5, 4, 6)
    beta, state = g(5, 4).sigmoid(), g(9, 4, 6, 8)
    lengths, places, accepted = [3, 2], g.shuffled(9)[:5], [2, 1]
    out, left, begin = torch.zeros(5, 4, 6), state.clone(), 0
    for b, n in enumerate(lengths):
        for h in range(4):
            s = state[places[begin + accepted[b] - 1], h]
            for t in range(begin, begin + n):
                out[t, h], s = delta(q[t, h // 2], k[t, h // 2], v[t, h], float(beta[t, h]), 0.0, s, 8**-0.5)
                left[places[t], h] = s
        begin += n
    options = {
        "beta": beta,
        "scale": 8**-0.5,
        "actual_seq_lengths": torch.tensor(lengths, dtype=torch.int32),
        "ssm_state_indices": places,
        "num_accepted_tokens": torch.tensor(accepted, dtype=torch.int32),
    }
    return Call(npu("npu_recurrent_gated_delta_rule"), (q, k, v, state), options, want=out, left={3: left})


@case(F32)
def matmul_add(g):
    x, w, c = g(7, 4, dtype=HALF), g(7, 5, dtype=HALF), g(4, 5)
    return Call(npu("_npu_matmul_add_fp32"), (x, w, c), left={2: c + x.float().t() @ w.float()}, want=None)


@case(F32, torch.int8)
def format_cast(g):
    x = g(4, 6).to(g.dtype)
    return Call(npu("npu_format_cast"), (x, 29), want=x)


# ---- Rank B --------------------------------------------------------------------------------------------------------


@case(F32)
def shapes(g):
    """Several that only move numbers, one behind the other."""

    def op(x):
        y = torch_npu.npu_transpose(x, [1, 0, 2])
        y = torch_npu.npu_slice(y, [0, 1, 0], [-1, 2, 3])
        y = torch_npu.npu_reshape(torch_npu.npu_broadcast(y, [5, 2, 3]), [5, 6])
        y = torch_npu.npu_dtype_cast(y, torch.float16)
        return torch_npu.npu_confusion_transpose(y, [1, 0, 2], [5, 2, 3], False)

    x = g(4, 5, 3)
    want = x.permute(1, 0, 2)[:, 1:3].reshape(5, 6).half().view(5, 2, 3).permute(1, 0, 2)
    return Call(op, (x,), want=want)


@case(F32, BF16)
def geglu(g):
    x = g(5, 12)
    act = gelu(x.float()[:, 6:], approximate="tanh")
    return Call(npu("npu_geglu"), (x,), want=((x.float()[:, :6] * act).to(x.dtype), act.to(x.dtype)))


@case(F32, HALF)
def masked_softmax(g):
    x, mask = g(2, 3, 4, 5), g.ints(0, 2, 2, 1, 4, 5).bool()
    want = (x.float() * 0.5).masked_fill(mask, -10000).softmax(-1).to(x.dtype)
    return Call(npu("npu_scaled_masked_softmax"), (x, mask, 0.5), want=want)


@case(F32)
def group_norm_silu(g):
    x, w, b = g(2, 6, 4, 3), g(6), g(6)
    want = (silu(torch.nn.functional.group_norm(x, 3, w, b)), *(
        t.view(2, 3) for t in (x.view(2, 3, -1).mean(-1), (x.view(2, 3, -1).var(-1, correction=0) + 1e-5).rsqrt())
    ))  # fmt: skip
    return Call(npu("npu_group_norm_silu"), (x, w, b, 3), want=want)


@case(F32, BF16)
def deep_norm(g):
    x, gx, beta, gamma = g(4, 16), g(4, 16), g(16), g(16)
    wide = x.float() * 0.3 + gx.float()
    y = torch.nn.functional.layer_norm(wide, (16,), gamma.float(), beta.float(), 1e-6).to(x.dtype)
    rstd = (wide.var(-1, correction=0, keepdim=True) + 1e-6).rsqrt()
    return Call(npu("npu_deep_norm"), (x, gx, beta, gamma), want=(wide.mean(-1, keepdim=True), rstd, y))


@case(F32)
def add_layer_norm(g):
    a, b, gamma, beta = g(4, 16), g(4, 16), g(16), g(16)
    x = a + b
    want = (
        torch.nn.functional.layer_norm(x, (16,), gamma, beta),
        x.mean(-1, keepdim=True),
        (x.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt(),
        x,
    )
    return Call(npu("npu_add_layer_norm"), (a, b, gamma, beta, 1e-5, True), want=want)


@case(BF16)
def add_rms_forms(g):
    a, b, gamma = g(4, 16), g(4, 16), g(16)
    x = a + b
    y = norm_of(x, gamma).to(x.dtype)
    rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)

    def op(a, b, gamma):
        return (
            *torch_npu.npu_add_rms_norm_cast(a, b, gamma),
            *torch_npu.npu_add_rms_norm_v2_functional(a, b, gamma),
            torch_npu.npu_add_rms_norm_v2(a, b, gamma),
        )

    want = (y.float(), y, rstd, x, rstd, y, x, rstd)
    return Call(op, (a, b, gamma), want=want, left={0: y, 1: x}, bounds=BF16)


@case(HALF)
def rms_quant(g):
    x, gamma, beta, scale, offset = g(4, 16), g(16), g(16), g(1).abs() + 10, g(1)
    want = ((norm_of(x, gamma) + beta.float()) * scale.float() + offset.float()).round().clamp(-128, 127)
    return Call(npu("npu_rms_norm_quant"), (x, gamma, beta, scale, offset), want=want.to(torch.int8))


@case(BF16)
def anti_quant(g):
    x, scale, offset = g.ints(-128, 128, 4, 16, dtype=torch.int8), g(16, dtype=F32) * 0.1, g(16, dtype=F32)
    options = {"offset": offset, "dst_dtype": BF16}
    return Call(npu("npu_anti_quant"), (x, scale), options, want=((x.float() + offset) * scale).bfloat16())


@case(HALF)
def dequant_bias(g):
    x, scale, token, bias = g.ints(-999, 999, 4, 16), g(16, dtype=F32) * 1e-3, g(4, dtype=F32), g.ints(-9, 9, 16)
    want = ((x + bias).float() * scale * token.unsqueeze(1)).half()
    return Call(npu("npu_dequant_bias"), (x, scale, token, bias), want=want)


@case(HALF)
def quant_matmul_dequant(g):
    x, w, scale = g(5, 16), g.ints(-128, 128, 6, 16, dtype=torch.int8), g(6, dtype=F32) * 1e-2
    y, token = quantized(x)
    want = (product(y, w.t()).float() * scale * token.unsqueeze(1)).half()
    return Call(npu("npu_quant_matmul_dequant"), (x, w, scale), want=want)


@case(HALF)
def swiglu_quant(g):
    x, smooth = g(5, 16), g(8, dtype=F32).abs() + 0.1
    want = quantized(silu(x.float()[:, :8]) * x.float()[:, 8:] * smooth)
    options = {"smooth_scales": smooth, "activate_left": True, "quant_mode": 1}
    return Call(npu("npu_swiglu_quant"), (x,), options, want=want)


@case(HALF)
def quantize_tensor(g):
    x, scale, zero, y = g(5, 16), g(1).abs() * 0.1 + 0.02, g.ints(-3, 4, 1, dtype=torch.int8), torch.zeros(5, 16)
    want = (x.float() / scale.float() + zero).round().clamp(-128, 127).to(torch.int8)
    return Call(npu("_npu_quantize_per_tensor"), (x, scale, zero, y.to(torch.int8)), left={3: want}, want=None)


@case(HALF)
def paged_v2(g):
    call = paged_call(g, torch_npu.atb._npu_paged_attention_v2.out)
    q, k, v, _, _, _, table, lens, out = call.args
    call.kwargs = {"value_cache": v, "num_kv_heads": 2, "num_heads": 4, "scale_value": 0.25, "out": out}
    call.args, want = (q, k, table, lens.tensor.tolist()), call.left[8]
    call.left, call.want = {"out": want}, want
    return call


def latent_attention(g, op, lse=False, out=False):
    lengths = [9, 3, 6]
    ctkv, table, keys = pages(g, lengths, 1, 16)
    k_rope, q, q_rope = g(*ctkv.shape[:3], 8), g(3, 4, 16), g(3, 4, 8)
    rows, sums = [], []
    for i, n in enumerate(lengths):
        both = torch.cat([keys[i], k_rope[table[i].long()].flatten(0, 1)[:n]], -1)
        query = torch.cat([q, q_rope], -1)[i : i + 1]
        rows.append(torch.cat([attend(query[:, h], both[:, 0], keys[i][:, 0], 0.2) for h in range(4)]))
        sums.append((query[0].float() @ both[:, 0].float().t() * 0.2).logsumexp(-1, keepdim=True))
    want = torch.stack(rows).to(q.dtype)
    args = (q, q_rope, ctkv, k_rope, table, lengths, 4, 0.2, 1)
    if lse:
        return Call(op, (*args, True), want=(want, torch.stack(sums).to(q.dtype)))
    if out:
        return Call(op, args, {"output": torch.empty_like(q)}, want=want, left={"output": want})
    return Call(op, args, want=want)


@case(HALF, BF16)
def latent_plain(g):
    return latent_attention(g, torch_npu.atb.npu_multi_head_latent_attention)


@case(HALF)
def latent_out(g):
    return latent_attention(g, torch.ops.atb.npu_multi_head_latent_attention.out, out=True)


@case(HALF)
def latent_lse(g):
    return latent_attention(g, torch.ops.atb.npu_multi_head_latent_attention.lse, lse=True)


@case(F32)
def scatter_pa_functional(g):
    k, v, keys, values, slots = g(5, 2, 8), g(5, 2, 8), g(4, 4, 2, 8), g(4, 4, 2, 8), slots_of(g, 5, 16)
    args, options = (k, v, keys, values, slots), {"cache_mode": "Norm"}
    want = (stored(keys, k, slots), stored(values, v, slots))
    left = {2: keys.clone(), 3: values.clone()}
    return Call(npu("npu_scatter_pa_kv_cache_functional"), args, options, left=left, want=want)


@case(F32, BF16)
def sparse_attention(g):
    q, k, q_rope, k_rope = g(2, 2, 3, 16), g(2, 9, 1, 16), g(2, 2, 3, 8), g(2, 9, 1, 8)
    chosen = torch.stack([torch.stack([g.shuffled(7)[:4] for _ in range(2)]) for _ in range(2)]).unsqueeze(2)
    chosen[1, 0, 0, 3:] = -1
    want = torch.zeros(2, 2, 3, 16)
    for b in range(2):
        for i in range(2):
            places = chosen[b, i, 0][chosen[b, i, 0] >= 0].long()
            keys = torch.cat([k, k_rope], -1)[b, places, 0]
            want[b, i] = torch.stack([
                attend(torch.cat([q, q_rope], -1)[b, i, h : h + 1], keys, k[b, places, 0], 0.2)[0] for h in range(3)
            ])  # fmt: skip
    options = {"query_rope": q_rope, "key_rope": k_rope, "attention_mode": 2}
    args, want = (q, k, k, chosen, 0.2), (want.to(q.dtype), torch.empty(0), torch.empty(0))
    return Call(npu("npu_sparse_flash_attention"), args, options, want=want)


@case(F32)
def unpermute_grad(g):
    rows, grad, index, probs = g(8, 8), g(5, 8), g.shuffled(10), g(5, 2)
    leaves = rows.clone().requires_grad_(), probs.clone().requires_grad_()
    value = (pad(leaves[0], (0, 0, 0, 2))[index.long()].view(5, 2, 8) * leaves[1].unsqueeze(-1)).sum(1)
    want = torch.autograd.grad(value, leaves, grad)
    return Call(npu("npu_moe_token_unpermute_grad"), (rows, grad, index, probs), want=want)


@case(F32, HALF)
def simple(g):
    x, w, b = g(4, 8), g(6, 8), g(6)

    def op(x, w, b):
        return torch_npu.npu_linear(torch_npu.npu_mish(torch_npu.npu_silu(x)), w, b)

    want = (torch.nn.functional.mish(silu(x.float())) @ w.float().t() + b.float()).to(x.dtype)
    return Call(op, (x, w, b), want=want)


# ---- What is done with them ----------------------------------------------------------------------------------------


def mapped(value, change):
    """Tensors of the device replaced; those of the host as they are."""
    if isinstance(value, Host):
        return value.tensor
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, change) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    return value


def flat(value):
    return [value] if isinstance(value, torch.Tensor) or value is None else list(value)


BOUNDS = {F32: (2e-5, 2e-5), HALF: (4e-3, 4e-3), BF16: (3e-2, 3e-2)}


def check(call, results, args, kwargs):
    wanted = flat(call.want)
    results = flat(results)
    assert len(results) == len(wanted)
    pairs = [(f"result {i}", got, want) for i, (got, want) in enumerate(zip(results, wanted)) if i not in call.ignore]
    for place, want in call.left.items():
        pairs.append((f"argument {place}", kwargs[place] if isinstance(place, str) else args[place], want))
    for what, got, want in pairs:
        if not isinstance(want, torch.Tensor):
            assert got == want, what
            continue
        got = got.cpu()
        assert got.shape == want.shape and got.dtype == want.dtype, (what, got.shape, got.dtype, want.shape, want.dtype)
        if want.dtype == torch.int8:
            # What lies half way between two numbers may go either way.
            difference = (got.int() - want.int()).abs()
            assert difference.numel() == 0 or (difference.max() <= 1 and (difference > 0).float().mean() < 0.02), what
        elif not want.is_floating_point():
            assert torch.equal(got, want), what
        else:
            absolute, relative = BOUNDS[call.bounds or want.dtype]
            torch.testing.assert_close(got, want, atol=absolute, rtol=relative, msg=lambda text: f"{what}: {text}")


def describe(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.stride() if value.numel() > 1 else ()
    return value


@pytest.mark.parametrize("key", CASES)
def test_eager_traced_and_captured(key):
    build, dtype = CASES[key]

    def make(seed):
        call = build(Source(seed, dtype))
        return call, mapped(call.args, lambda t: t.npu()), mapped(call.kwargs, lambda t: t.npu())

    call, args, kwargs = make(1)
    results = call.op(*args, **kwargs)
    check(call, results, args, kwargs)
    described = [describe(result) for result in flat(results)]

    if call.traced:
        _, args, kwargs = make(1)
        metas = mapped(args, lambda t: t.to("meta")), mapped(kwargs, lambda t: t.to("meta"))
        assert [describe(result) for result in flat(call.op(*metas[0], **metas[1]))] == described
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            fakes = mapped(args, mode.from_tensor), mapped(kwargs, mode.from_tensor)
            traced = flat(call.op(*fakes[0], **fakes[1]))
        assert [describe(result) for result in traced] == described
        assert all(result.device.type == "npu" for result in traced if isinstance(result, torch.Tensor))

    if call.captured:
        _, args, kwargs = make(1)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            results = call.op(*args, **kwargs)
        for seed in (2, 3):
            call, new_args, new_kwargs = make(seed)
            copy_into((args, kwargs), (new_args, new_kwargs))
            graph.replay()
            torch.npu.synchronize()
            check(call, results, args, kwargs)


def copy_into(to, values):
    if isinstance(to, torch.Tensor):
        if to.device.type == "npu":
            to.copy_(values)
    elif isinstance(to, dict):
        for key in to:
            copy_into(to[key], values[key])
    elif isinstance(to, (list, tuple)):
        for place, value in zip(to, values):
            copy_into(place, value)


@pytest.mark.parametrize("name", RANK_A)
def test_rank_a_is_there(name):
    """Callable under the names of the published package, and not refused."""
    space, _, short = name.rpartition(".")
    packet = getattr(getattr(torch.ops, space or "npu"), short)
    assert callable(packet)
    assert getattr(torch_npu, short, None) is packet or getattr(torch_npu.atb, short) is packet
    assert torch_npu._ops.NAMES[space or "npu", short] == ("A", True)


def test_rank_a_is_tested():
    """By a case; formats and workspaces further down."""
    operators = [build(Source(1, dtype)).op for build, dtype in CASES.values()]
    used = {str(getattr(operator, "overloadpacket", operator)).removeprefix("npu.") for operator in operators}
    apart = {name for name in RANK_A if name.endswith("workspace")} | {"get_npu_format"}
    assert set(RANK_A) - apart - used == set()


def test_others_are_refused_by_name():
    names = [(space, name) for (space, name), (_, there) in torch_npu._ops.NAMES.items() if not there]
    assert len(names) > 250
    x = torch.zeros(2, 2)
    for call in (
        lambda: torch_npu.npu_grid_assign_positive(*[x.npu()] * 7, 1, 0.5, 0.5, True),
        lambda: torch.ops.npu.npu_sort_v2(x),
        lambda: torch.ops.npu.npu_sort_v2(x.to("meta")),
    ):
        with pytest.raises(NotImplementedError, match="npu::npu_.*Reprise does not have this operator yet"):
            call()


# ---- Gradients -----------------------------------------------------------------------------------------------------


def gradients(function, *tensors):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    result = function(*leaves)
    result = result[0] if isinstance(result, tuple) else result
    weight = torch.linspace(-1, 2, result.numel()).view(result.shape).to(result.device, result.dtype)
    (result * weight).sum().backward()
    return [leaf.grad.cpu() for leaf in leaves]


def plain_attention(q, k, v, scale, mask=None, pse=None):
    """[batch, heads, tokens, size]."""
    k, v = (t.repeat_interleave(q.size(1) // k.size(1), 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2)
    scores = scores * scale if pse is None else (scores + pse) * scale
    if mask is not None:
        scores = scores.masked_fill(mask, HIDDEN)
    return scores.softmax(-1) @ v


GRADIENTS = {
    "rms_norm": (
        lambda x, w: torch_npu.npu_rms_norm(x, w, 1e-5),
        lambda x, w: rms_norm(x, w.shape, w, 1e-5),
        [(3, 5, 16), (16,)],
    ),
    "swiglu": (
        torch_npu.npu_swiglu,
        lambda x: silu(x[..., :6]) * x[..., 6:],
        [(4, 12)],
    ),
    "fast_gelu": (torch_npu.npu_fast_gelu, lambda x: x * torch.sigmoid(1.702 * x), [(4, 12)]),
    "gelu": (lambda x: torch_npu.npu_gelu(x, approximate="tanh"), lambda x: gelu(x, approximate="tanh"), [(4, 12)]),
    "rotary_mul": (torch_npu.npu_rotary_mul, turned, [(2, 5, 3, 8), (1, 5, 1, 8), (1, 5, 1, 8)]),
    "token_unpermute": (
        lambda x, p: torch_npu.npu_moe_token_unpermute(x, torch.tensor([3, 0, 2, 1, 5, 4]).to(x.device), p),
        lambda x, p: (x[[3, 0, 2, 1, 5, 4]].view(3, 2, 4) * p.unsqueeze(-1)).sum(1),
        [(6, 4), (3, 2)],
    ),
    "token_permute": (
        lambda x: torch_npu.npu_moe_token_permute(x, torch.tensor([[1, 0], [0, 2], [1, 2]]).to(x.device)),
        lambda x: x[[0, 1, 0, 2, 1, 2]],
        [(3, 4)],
    ),
    "attention": (
        lambda q, k, v: torch_npu.npu_fusion_attention(q, k, v, 4, "BNSD", scale=0.25),
        lambda q, k, v: plain_attention(q, k, v, 0.25),
        [(2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16)],
    ),
    "attention_groups": (
        lambda q, k, v: torch_npu.npu_fusion_attention(q, k, v, 4, "BNSD", scale=0.25),
        lambda q, k, v: plain_attention(q, k, v, 0.25),
        [(2, 4, 7, 16), (2, 2, 9, 16), (2, 2, 9, 16)],
    ),
    "attention_packed": (
        lambda q, k, v: torch_npu.npu_fusion_attention(
            q, k, v, 4, "TND", scale=0.25, actual_seq_qlen=[3, 8], actual_seq_kvlen=[4, 11]
        ),
        lambda q, k, v: torch.cat([
            plain_attention(*(t.transpose(0, 1)[None] for t in part), 0.25)[0].transpose(0, 1)
            for part in ((q[:3], k[:4], v[:4]), (q[3:], k[4:], v[4:]))
        ]),  # fmt: skip
        [(8, 4, 16), (11, 2, 16), (11, 2, 16)],
    ),
}


@pytest.mark.parametrize("key", GRADIENTS)
def test_gradients(key):
    ours, formula, shapes = GRADIENTS[key]
    source = Source(5, F32)
    tensors = [source(*shape) for shape in shapes]
    got = gradients(ours, *(tensor.npu() for tensor in tensors))
    for number, (ours_one, want) in enumerate(zip(got, gradients(formula, *tensors))):
        torch.testing.assert_close(ours_one, want, atol=1e-4, rtol=1e-4, msg=lambda text: f"gradient {number}: {text}")


def test_gradients_with_a_shift_and_a_mask():
    source = Source(6, F32)
    q, k, v, pse = source(2, 4, 7, 16), source(2, 4, 9, 16), source(2, 4, 9, 16), source(2, 4, 7, 9)
    mask = torch.ones(7, 9).triu(4).bool()

    def ours(q, k, v):
        return torch_npu.npu_fusion_attention(
            q, k, v, 4, "BNSD", pse=pse.npu(), atten_mask=mask.npu(), scale=0.25
        )

    got = gradients(ours, q.npu(), k.npu(), v.npu())
    for ours_one, want in zip(got, gradients(lambda q, k, v: plain_attention(q, k, v, 0.25, mask, pse), q, k, v)):
        torch.testing.assert_close(ours_one, want, atol=1e-4, rtol=1e-4)
    wanted = pse.npu().requires_grad_()
    out = torch_npu.npu_fusion_attention(q.npu(), k.npu(), v.npu(), 4, "BNSD", pse=wanted)[0]
    with pytest.raises(NotImplementedError, match="gradient of pse"):
        out.sum().backward()


def test_dropout_of_attention():
    """The weights that are kept count 1 / keep_prob, and the same ones come back in the gradients."""
    torch.manual_seed(3)
    q, k = torch.zeros(1, 2, 64, 16, device="npu"), torch.zeros(1, 2, 64, 16, device="npu")
    v = torch.eye(64, 16, device="npu").expand(1, 2, 64, 16).contiguous().requires_grad_()
    out, *_, dropped, _, _, numels = torch_npu.npu_fusion_attention(q, k, v, 2, "BNSD", keep_prob=0.5)
    assert numels == 2 * 64 * 64 and dropped.dtype == torch.uint8 and dropped.numel() == numels // 8
    weights = out.cpu() * 64
    assert set(weights.unique().tolist()) == {0.0, 2.0}
    assert 0.4 < (weights != 0).float().mean() < 0.6
    bits = torch.tensor([[byte >> i & 1 for i in range(8)] for byte in dropped.cpu().tolist()]).view(1, 2, 64, 64)
    torch.testing.assert_close(weights, bits[..., :16] * 2.0)
    out.sum().backward()
    torch.testing.assert_close(v.grad.cpu(), (bits.sum(2) * 2.0 / 64).unsqueeze(-1).expand(1, 2, 64, 16))


def test_a_derivative_is_not_dropped_in_silence():
    """What has none says so instead of leaving gradients out."""
    x, gamma = torch.ones(2, 8, device="npu", requires_grad=True), torch.ones(8, device="npu")
    with pytest.raises(RuntimeError, match="npu_add_rms_norm"):
        torch_npu.npu_add_rms_norm(x, x, gamma)[2].sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y = torch_npu.npu_rms_norm(x, gamma)[0].sum()
        y.backward()
        y.backward()


# ---- Forms with out, workspaces, updates ---------------------------------------------------------------------------


def decode(lengths, seed=1):
    source = Source(seed, HALF)
    k, table, _ = pages(source, [12, 12], 2, 16)
    v, q = source(*k.shape), source(2, 4, 16)

    def want(lengths):
        rows = []
        for i, n in enumerate(lengths):
            ks, vs = (c[table[i].long()].flatten(0, 1)[:n] for c in (k, v))
            rows.append(attend_heads(q[i : i + 1], ks, vs, 0.25))
        return torch.cat(rows).half()

    return q.npu(), k.npu(), v.npu(), table.npu(), want


def close(got, want):
    torch.testing.assert_close(got.cpu().view(want.shape), want, atol=4e-3, rtol=4e-3)


@pytest.mark.parametrize("version", ["", "_v2"])
def test_fused_infer_out_is_updated(version):
    q, k, v, table, want = decode([5, 9])
    heads, scale, lengths = (
        ("num_heads", "scale", "actual_seq_lengths_kv")
        if not version
        else ("num_query_heads", "softmax_scale", "actual_seq_kvlen")
    )
    options = {
        heads: 4,
        scale: 0.25,
        "num_key_value_heads": 2,
        "input_layout": "BSND",
        "block_table": table,
        "block_size": 4,
    }
    packet = getattr(torch_npu, "npu_fused_infer_attention_score" + version)
    room = getattr(torch_npu, f"_npu_fused_infer_attention_score{version}_get_max_workspace")
    args = (q.unsqueeze(1), k.flatten(2), v.flatten(2))
    workspace = room(*args, **options)
    assert workspace.dtype == torch.uint8 and workspace.device.type == "npu"
    out, lse = torch.empty(2, 1, 4, 16, dtype=HALF, device="npu"), torch.empty(1, device="npu")
    result = packet.out(*args, **options, **{lengths: [5, 9]}, workspace=workspace, out=[out, lse])
    assert result[0].data_ptr() == out.data_ptr()
    close(out, want([5, 9]))

    stream, event = torch.npu.Stream(), torch.npu.ExternalEvent()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        current = torch.npu.current_stream()
        event.wait(current)
        event.reset(current)
        torch.npu.graph_task_group_begin(current)
        packet.out(*args, **options, **{lengths: [1, 1]}, workspace=workspace, out=[out, lse])
        handle = torch.npu.graph_task_group_end(current)
    for now in ([12, 3], [4, 8]):
        with torch.npu.stream(stream):
            torch.npu.graph_task_update_begin(stream, handle)
            packet.out(*args, **options, **{lengths: now}, workspace=workspace, out=[out, lse])
            torch.npu.graph_task_update_end(stream)
            event.record(stream)
        graph.replay()
        close(out, want(now))


@pytest.mark.parametrize("version", ["", "_v2"])
def test_fused_infer_with_automatic_updates(version):
    q, k, v, table, want = decode([5, 9])
    heads, scale, lengths = (
        ("num_heads", "scale", "actual_seq_lengths_kv")
        if not version
        else ("num_query_heads", "softmax_scale", "actual_seq_kvlen")
    )
    options = {heads: 4, scale: 0.25, "num_key_value_heads": 2, "input_layout": "BSND", "block_size": 4}
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        out = getattr(torch_npu, "npu_fused_infer_attention_score" + version)(
            q.unsqueeze(1), k.flatten(2), v.flatten(2), block_table=table, **options, **{lengths: [1, 1]}
        )[0]
    for now in ([12, 3], [4, 8]):
        graph.update([{lengths: now}])
        graph.replay()
        close(out, want(now))


def test_paged_attention_is_updated():
    q, k, v, table, want = decode([5, 9])
    out = torch.empty_like(q)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        torch_npu._npu_paged_attention(q, k, v, 2, 4, 0.25, table, torch.tensor([1, 1], dtype=torch.int32), out)
    for now in ([12, 3], [4, 8]):
        graph.update([{"context_lens": torch.tensor(now, dtype=torch.int32)}])
        graph.replay()
        close(out, want(now))
    room = torch_npu._npu_paged_attention_get_workspace(
        q, k, v, 2, 4, 0.25, table, torch.tensor([1, 1], dtype=torch.int32), out
    )
    assert room.dtype == torch.uint8


def test_an_update_without_room_is_refused():
    """A workspace that nobody holds would be somebody else's when the graph runs."""
    q = torch.zeros(1, 8, 1, 256, device="npu", dtype=HALF)
    k = torch.zeros(1, 1, 32768, 256, device="npu", dtype=HALF).expand(1, 8, 32768, 256)
    options = {"num_heads": 8, "scale": 1.0, "input_layout": "BNSD"}
    out, lse = torch.empty_like(q), torch.empty(1, device="npu")
    room = torch_npu._npu_fused_infer_attention_score_get_max_workspace(q, k, k, **options)
    assert room.numel() > 2**16

    def call(length, **more):
        torch_npu.npu_fused_infer_attention_score.out(
            q, k, k, **options, actual_seq_lengths_kv=[length], out=[out, lse], **more
        )

    stream, graph = torch.npu.Stream(), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        current = torch.npu.current_stream()
        torch.npu.graph_task_group_begin(current)
        for _ in range(2):
            call(32768, workspace=room)
        handle = torch.npu.graph_task_group_end(current)
    with torch.npu.stream(stream):
        torch.npu.graph_task_update_begin(stream, handle)
        try:
            with pytest.raises(RuntimeError, match="pass a tensor of that size as workspace"):
                call(32768)
            for _ in range(2):
                call(32768, workspace=room)
        finally:
            torch.npu.graph_task_update_end(stream)
    graph.replay()
    assert torch.equal(out.cpu(), torch.zeros(1, 8, 1, 256, dtype=HALF))


# ---- Errors, formats, compilation ----------------------------------------------------------------------------------


def test_wrong_calls():
    x, w = torch.ones(4, 8, device="npu"), torch.ones(8, device="npu")
    i = torch.ones(4, 8, device="npu", dtype=torch.int8)
    page, table = torch.zeros(2, 4, 2, 8, device="npu"), torch.zeros(1, 1, device="npu", dtype=torch.int32)
    wrong = [
        (lambda: torch_npu.npu_rms_norm(x, w[:3]), "gamma has shape"),
        (lambda: torch_npu.npu_rms_norm(x.int(), w), "npu_rms_norm: .*int32"),
        (lambda: torch_npu.npu_rms_norm(x, w.cpu()), "same device"),
        (lambda: torch_npu.npu_swiglu(x[:, :7]), "no halves"),
        (lambda: torch_npu.npu_rotary_mul(x, x, x, "third"), "it does not know 'third', but half"),
        (lambda: torch_npu.npu_fusion_attention(x, x, x, 2, "ABC"), "input_layout is 'ABC'"),
        (lambda: torch_npu.npu_fusion_attention(x[None], x[None], x[None], 3, "BSH"), "3 heads do not divide"),
        (lambda: torch_npu.npu_fusion_attention(*[x.view(4, 2, 4)] * 3, 2, "TND"), "needs actual_seq_qlen"),
        (lambda: torch_npu.npu_quant_matmul(x, i.t(), w), "x1 has type torch.float32"),
        (lambda: torch_npu.npu_quant_matmul(i, i, w), "no product"),
        (lambda: torch_npu.npu_quant_matmul(i, i.t(), w[:3]), "scale has shape"),
        (lambda: torch_npu.npu_moe_gating_top_k(x, 9), "k is 9"),
        (lambda: torch_npu.npu_dynamic_quant(x, dst_type=torch.float8_e4m3fn), "float8_e4m3fn.*not supported"),
        (lambda: torch_npu.npu_quant_matmul(i, i.t(), w, x1_dtype=torch_npu.hifloat8), "hifloat8.*not supported"),
        (lambda: torch_npu._npu_reshape_and_cache(page, page, page, page, table), "takes no rows|rows of"),
        (
            lambda: torch_npu._npu_paged_attention(x.view(2, 2, 8), page, page, 2, 2, 1.0, table, [1], x),
            "context_lens|_npu_paged_attention",
        ),
        (lambda: torch_npu.npu_format_cast(x, 77), "acl_format is 77"),
    ]
    for call, text in wrong:
        with pytest.raises((RuntimeError, NotImplementedError), match=text):
            call()
        assert torch.equal(x.cpu(), torch.ones(4, 8))


def test_lengths_of_the_device_are_refused_in_captures():
    q, k, v, table, _ = decode([5, 9])
    lengths = torch.tensor([5, 9], dtype=torch.int32, device="npu")
    out = torch.empty_like(q)
    torch_npu._npu_paged_attention(q, k, v, 2, 4, 0.25, table, lengths, out)  # waits for them
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        with pytest.raises(RuntimeError, match="context_lens is on npu:0.*pass a tensor of the host"):
            torch_npu._npu_paged_attention(q, k, v, 2, 4, 0.25, table, lengths, out)


def test_an_index_out_of_range_is_reported():
    query = torch.ones(2, 1, 4, device="npu")
    state = torch.zeros(3, 1, 4, 4, device="npu")
    places = torch.tensor([0, 7], dtype=torch.int32, device="npu")
    lengths = torch.tensor([1, 1], dtype=torch.int32, device="npu")
    torch_npu.npu_recurrent_gated_delta_rule(
        query, query, query, state, actual_seq_lengths=lengths, ssm_state_indices=places
    )
    with pytest.raises(RuntimeError, match="state 7 is wanted of 3"):
        torch.npu.synchronize()


def test_formats_are_remembered():
    x = torch.randn(4, 6, device="npu")
    assert torch_npu.get_npu_format(x) == 2
    assert torch_npu.get_npu_format(torch.zeros(1, 2, 3, 4, device="npu")) == 0
    tiled = torch_npu.npu_format_cast(x, 29)
    assert torch_npu.get_npu_format(tiled) == 29 == torch_npu.get_npu_format(tiled.t())
    assert torch_npu.get_npu_format(x) == 2 == torch_npu.get_npu_format(tiled.clone())
    assert torch.equal(tiled.cpu(), x.cpu())
    assert torch_npu.get_npu_format(torch_npu.npu_format_cast(tiled, 2)) == 2
    assert torch_npu.get_npu_format(torch_npu.npu_format_cast_(x, 29)) == 29
    for _ in range(8):  # whoever gets the memory next
        del tiled
        tiled = torch.randn(4, 6, device="npu")
        assert torch_npu.get_npu_format(tiled) == 2


def test_compiled():
    def block(x, gamma, cos, sin):
        y = torch_npu.npu_rms_norm(x, gamma)[0]
        y = torch_npu.npu_rotary_mul(y.view(2, 5, 2, 8), cos, sin).flatten(2)
        return torch_npu.npu_fusion_attention(y, y, y, 2, "BSH", scale=0.3)[0].sum()

    source = Source(9, F32)
    tensors = [source(2, 5, 16), source(16), source(1, 5, 1, 8), source(1, 5, 1, 8)]
    results = []
    for function in (block, torch.compile(block, backend="aot_eager", fullgraph=True)):
        leaves = [tensor.npu().requires_grad_() for tensor in tensors]
        value = function(*leaves)
        value.backward()
        results.append([value, *(leaf.grad for leaf in leaves)])
    for eager, compiled in zip(*results):
        torch.testing.assert_close(compiled, eager)
