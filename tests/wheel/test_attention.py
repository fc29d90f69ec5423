# SPDX-License-Identifier: Apache-2.0
"""Attention of long contexts and of servers, as the package passes its arguments."""

import torch

npu = torch.ops.npu


def close(actual, wanted, most=0.02):
    actual, wanted = actual.float().cpu(), wanted.float()
    assert actual.shape == wanted.shape and (actual - wanted).abs().max() <= most * wanted.abs().max()


def test_an_indexer_chooses_the_keys_of_attention():
    torch.manual_seed(1)
    q, k, w = torch.randn(1, 4, 64, 128).half(), torch.randn(1, 20, 1, 128).half(), torch.rand(1, 4, 64).half()
    scores = (torch.einsum("bqhd,bkd->bqhk", q.float(), k[:, :, 0].float()).relu() * w.float().unsqueeze(-1)).sum(2)
    scores = scores.masked_fill(~torch.ones(4, 20, dtype=torch.bool).tril(16), -torch.inf)
    places, values = npu.npu_lightning_indexer(q.npu(), k.npu(), w.npu(), sparse_count=6, return_value=True)
    close(values[:, :, 0], scores.topk(6).values)
    query, rope = torch.randn(1, 4, 8, 512).half(), torch.randn(1, 4, 8, 64).half()
    key, key_rope = torch.randn(1, 20, 1, 512).half(), torch.randn(1, 20, 1, 64).half()
    out, maximum, total = npu.npu_sparse_flash_attention(
        query.npu(), key.npu(), key.npu(), places, 0.05, query_rope=rope.npu(), key_rope=key_rope.npu(),
        attention_mode=2, return_softmax_lse=True)
    chosen = places[:, :, 0].long().cpu()
    rows = torch.cat([key, key_rope], -1)[0, :, 0].float()[chosen[0]]
    logits = torch.einsum("qhd,qkd->qhk", torch.cat([query, rope], -1)[0].float(), rows) * 0.05
    close(out[0], torch.einsum("qhk,qkd->qhd", logits.softmax(-1), rows[..., :512]))
    close(maximum[0, 0], logits.amax(-1))
    close(total[0, 0], (logits - logits.amax(-1, keepdim=True)).exp().sum(-1))


def test_attention_reads_an_int8_cache():
    torch.manual_seed(2)
    q = torch.randn(2, 4, 1, 32).half()
    k, v = (torch.randint(-128, 128, (2, 2, 40, 32), dtype=torch.int8) for _ in range(2))
    scale = torch.rand(2, 2, 32).half() * 0.02
    out, _ = npu.npu_fused_infer_attention_score(
        q.npu(), k.npu(), v.npu(), num_heads=4, num_key_value_heads=2, scale=0.2, input_layout="BNSD",
        key_antiquant_scale=scale[0].npu(), value_antiquant_scale=scale[1].npu())
    keys, values = ((x.float() * s.float().unsqueeze(1)).repeat_interleave(2, 1) for x, s in zip((k, v), scale))
    close(out, (q.float() @ keys.transpose(-1, -2) * 0.2).softmax(-1) @ values)


def test_a_state_is_kept():
    torch.manual_seed(3)
    q, k, v = (torch.randn(3, 2, n).bfloat16() / 4 for n in (16, 16, 24))
    state, beta = torch.randn(1, 2, 24, 16).bfloat16(), torch.rand(3, 2).bfloat16()
    left = state.npu()
    out = npu.npu_recurrent_gated_delta_rule(
        q.npu(), k.npu(), v.npu(), left, beta=beta.npu(), scale=0.25, actual_seq_lengths=torch.tensor([3], dtype=torch.int32).npu(),
        ssm_state_indices=torch.zeros(3, dtype=torch.int32).npu())
    wanted, s = torch.zeros(3, 2, 24), state[0].float()
    for t in range(3):
        known = torch.einsum("hvk,hk->hv", s, k[t].float())
        step = beta[t].float().unsqueeze(-1) * (v[t].float() - known)
        s = s + step.unsqueeze(-1) * k[t].float().unsqueeze(1)
        wanted[t] = 0.25 * torch.einsum("hvk,hk->hv", s, q[t].float())
    close(out, wanted)
    close(left[0], s)


def test_a_table_of_angles_by_turns():
    positions = torch.randint(0, 9, (3, 5))
    q, k, table = torch.randn(5, 32).half(), torch.randn(5, 16).half(), torch.rand(9, 16).half()
    outs = npu.npu_mrope(positions.npu(), q.npu(), k.npu(), table.npu(), 16, mrope_section=[4, 2, 2],
                         rotary_mode="half", cache_mode="interleave")
    kinds = torch.tensor([i % 3 if i < 3 * [4, 2, 2][i % 3] else 0 for i in range(8)])
    rows = table.float()[positions]
    cos, sin = (part[kinds, :, torch.arange(8)].t().unsqueeze(1) for part in rows.chunk(2, -1))
    for x, out in zip((q, k), outs):
        a, b = x.float().view(5, -1, 16).chunk(2, -1)
        close(out.view(5, -1, 16), torch.cat([a * cos - b * sin, b * cos + a * sin], -1))
