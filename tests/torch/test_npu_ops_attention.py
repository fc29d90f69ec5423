# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: attention; npu_ops.py says how cases are run."""
import math

import pytest
import torch
import torch_npu
from npu_ops import (
    BF16, F32, HALF, HIDDEN, Call, Cases, Host, Source, attend, attend_heads, causal, check_gradients, gradients,
    npu, pages,
)  # fmt: skip
from torch.nn.functional import pad

case = Cases()


# ---- Attention ----


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

# ---- Chosen keys, states ----


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

# ---- Gradients ----


def plain_attention(q, k, v, scale, mask=None, pse=None):
    """[batch, heads, tokens, size]."""
    k, v = (t.repeat_interleave(q.size(1) // k.size(1), 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2)
    scores = scores * scale if pse is None else (scores + pse) * scale
    if mask is not None:
        scores = scores.masked_fill(mask, HIDDEN)
    return scores.softmax(-1) @ v


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

# ---- Forms with out, workspaces, updates ----


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

# ---- Errors ----


def test_lengths_of_the_device_are_refused_in_captures():
    q, k, v, table, _ = decode([5, 9])
    lengths = torch.tensor([5, 9], dtype=torch.int32, device="npu")
    out = torch.empty_like(q)
    torch_npu._npu_paged_attention(q, k, v, 2, 4, 0.25, table, lengths, out)  # waits for them
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        with pytest.raises(RuntimeError, match="context_lens is on npu:0.*pass a tensor of the host"):
            torch_npu._npu_paged_attention(q, k, v, 2, 4, 0.25, table, lengths, out)


@case(F32, HALF)
def added_mask(g):
    """Heads in a row of the result, and gradients."""
    q, k, v, mask, grad = g(2, 3, 5, 8), g(2, 3, 5, 8), g(2, 3, 5, 8), g(2, 1, 5, 5), g(10, 24)

    def op(q, k, v, mask, grad):
        rows, weights, kept = torch_npu.npu_fused_attention_score_fwd(q, k, v, mask, 0.3, 1.0)
        back = torch_npu.npu_fused_attention_score_grad(grad, weights, q, k, v, kept, 0.3, 1.0)
        again = torch_npu.npu_fused_attention_score_backward(grad, weights, q, k, v, kept, 0.3, 1.0)
        return rows, weights, kept, torch_npu.npu_fused_attention_score(q, k, v, mask, 0.3, 1.0), *back, *again

    leaves = [each.float().requires_grad_() for each in (q, k, v)]
    weights = (leaves[0] @ leaves[1].transpose(-1, -2) * 0.3 + mask.float()).softmax(-1)
    rows = (weights @ leaves[2]).transpose(1, 2).reshape(10, 24)
    of = [each.to(q.dtype) for each in torch.autograd.grad(rows, leaves, grad.float())]
    rows = rows.detach().to(q.dtype)
    want = (rows, weights.detach().to(q.dtype), torch.ones(150, dtype=torch.uint8), rows, *of, *of)
    return Call(op, (q, k, v, mask, grad), want=want, bounds=BF16 if q.dtype == HALF else None)


@case(F32)
def fusion_v3(g):
    q, k, v = g(2, 4, 7, 16), g(2, 2, 9, 16), g(2, 2, 9, 16)

    def op(q, k, v):
        results = torch_npu.npu_fusion_attention_v3(q, k, v, 4, "BNSD", scale=0.25)
        out = [torch.empty_like(each) for each in results]
        torch.ops.npu.npu_fusion_attention_v3.out(q, k, v, 4, "BNSD", scale=0.25, out=out)
        grad = torch_npu.npu_fusion_attention_grad_v3(
            q, k, v, torch.ones_like(out[0]), 4, "BNSD", softmax_max=out[1], softmax_sum=out[2], attention_in=out[0],
            scale_value=0.25,
        )  # fmt: skip
        back = [torch.empty_like(each) for each in grad]
        torch.ops.npu.npu_fusion_attention_grad_v3.out(
            q, k, v, torch.ones_like(out[0]), 4, "BNSD", softmax_max=out[1], softmax_sum=out[2], attention_in=out[0],
            scale_value=0.25, out=back,
        )  # fmt: skip
        return results[0], out[0], *grad[:3], *back[:3]

    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    want = plain_attention(*leaves, 0.25)
    of = torch.autograd.grad(want.sum(), leaves)
    return Call(op, (q, k, v), want=(want.detach(), want.detach(), *of, *of), bounds=HALF)


@case(F32)
def announced(g):
    """Results and workspaces by shape."""
    q, k = g(2, 4, 7, 16), g(2, 2, 9, 16)

    def op(q, k):
        shapes = [
            *torch_npu._npu_fusion_attention_v3_infer_output(q, k, k, 4, "BNSD"),
            *torch_npu._npu_fusion_attention_grad_v3_infer_output(q, k, k),
            *torch_npu._npu_fused_infer_attention_score_infer_output(
                q, k, input_layout="BNSD", num_heads=4, num_key_value_heads=2, softmax_lse_flag=True
            ),
            *torch_npu._npu_fused_infer_attention_score_v2_infer_output(
                q.half(), k.half(), input_layout="BNSD", num_query_heads=4, num_key_value_heads=2
            ),
            torch_npu._npu_fusion_attention_v3_get_max_workspace(q, k, k, 4, "BNSD"),
            torch_npu._npu_fusion_attention_grad_v3_get_max_workspace(q, k, k, q, 4, "BNSD"),
        ]
        return [torch.zeros_like(each) for each in shapes]

    statistics, none = torch.zeros(2, 4, 7, 8), torch.zeros(0)
    byte, like_q, like_k = torch.zeros(0, dtype=torch.uint8), torch.zeros_like(q), torch.zeros_like(k)
    want = (
        like_q, statistics, statistics, like_q, like_k, like_k, none, none, like_q, torch.zeros(2, 4, 7, 1),
        like_q.half(), none, byte, byte,
    )  # fmt: skip
    return Call(op, (q, k), want=want)


def ring(g, layout):
    q, k, v = g(6, 2, 8), g(10, 2, 8), g(10, 2, 8)
    parts = []
    for keys in (slice(0, 4), slice(4, 10), slice(0, 10)):
        scores = torch.einsum("qhd,khd->qhk", q, k[keys])
        top = scores.amax(-1)
        total = (scores - top.unsqueeze(-1)).exp().sum(-1)
        out = torch.einsum("qhk,khd->qhd", scores.softmax(-1), v[keys])
        if layout == "SBH":
            out, top, total = out.reshape(6, 1, 16), top.t().unsqueeze(0), total.t().unsqueeze(0)
        parts.append((out, *(each.unsqueeze(-1).expand(*each.shape, 8).contiguous() for each in (top, total))))
    return parts


@case(F32)
def ring_update(g):
    first, second, want = ring(g, "SBH")
    return Call(npu("npu_ring_attention_update"), (*first, *second), want=want)


@case(F32)
def ring_update_packed(g):
    first, second, want = ring(g, "TND")
    options = {"input_layout": "TND", "input_softmax_layout": "TND", "actual_seq_qlen": torch.tensor([2, 6])}
    return Call(npu("npu_ring_attention_update"), (*first, *second), options, want=want)


@case(F32)
def compressed(g):
    x, w, grad = g(12, 2, 3), g(4, 2), g(3, 2, 3)

    def formula(x, w):
        return torch.stack([(x[i : i + 4] * w.unsqueeze(-1)).sum(0) for i in (3, 5, 7)])

    def op(x, w, grad):
        lengths = {"actual_seq_len": [3, 12]}
        out = torch_npu.npu_nsa_compress(x, w, 4, 2, **lengths)
        return out, *torch_npu.npu_nsa_compress_grad(grad, x, w, 4, 2, **lengths)

    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    want = (formula(x, w), *torch.autograd.grad(formula(*leaves), leaves, grad))
    return Call(op, (x, w, grad), want=want)


@case(F32)
def delta_functional(g):
    call = recurrent_delta(g)
    place = next(iter(call.left))
    call.op, changed = npu("npu_recurrent_gated_delta_rule_functional"), call.left.pop(place)
    call.left[place] = call.args[place].clone()
    call.want = (call.want, changed)
    return call


@pytest.mark.parametrize("key", case)
def test_eager_traced_and_captured(key):
    case.run(key)


GRADIENTS = {
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
    "attention_v3": (
        lambda q, k, v: torch_npu.npu_fusion_attention_v3(q, k, v, 4, "BNSD", scale=0.25)[0],
        lambda q, k, v: plain_attention(q, k, v, 0.25),
        [(2, 4, 7, 16), (2, 4, 9, 16), (2, 4, 9, 16)],
    ),
    "added_mask": (
        lambda q, k, v: torch_npu.npu_fused_attention_score(q, k, v, torch.zeros_like(q[:, :1, :, :7]), 0.25, 1.0),
        lambda q, k, v: plain_attention(q, k, v, 0.25).transpose(1, 2).reshape(14, 64),
        [(2, 4, 7, 16), (2, 4, 7, 16), (2, 4, 7, 16)],
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
    check_gradients(GRADIENTS[key])
