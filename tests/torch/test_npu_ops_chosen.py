# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: attention to chosen blocks and keys, and what chooses them; npu_ops.py says how cases are
run."""
import pytest
import torch
import torch_npu
from npu_ops import BF16, F32, HIDDEN, Call, Cases, attend, check_gradients, npu

case = Cases()


def floyd_formula(q, k1, v1, k2, v2, scale=0.4):
    q, k1, v1, k2, v2 = (t.float() for t in (q, k1, v1, k2, v2))
    scores = scale * (torch.einsum("bhnmd,bhnkd->bhnmk", q, k1) + torch.einsum("bhnmd,bhkmd->bhnmk", q, k2))
    most = scores.amax(-1, keepdim=True)
    share = scores.softmax(-1)
    out = torch.einsum("bhnmk,bhnkd->bhnmd", share, v1) + torch.einsum("bhnmk,bhkmd->bhnmd", share, v2)
    total = (scores - most).exp().sum(-1, keepdim=True)
    return *(t.expand(*t.shape[:-1], 8) for t in (most, total)), out


FLOYD = ((1, 2, 3, 4, 8), (1, 2, 3, 5, 8), (1, 2, 3, 5, 8), (1, 2, 5, 4, 8), (1, 2, 5, 4, 8))


@case(F32, BF16)
def floyd(g):
    tensors = tuple(g(*shape) for shape in FLOYD)
    most, total, out = floyd_formula(*tensors)
    return Call(npu("npu_fused_floyd_attention"), tensors, {"scale_value": 0.4}, want=(most, total, out.to(tensors[0].dtype)))


def test_floyd_gradients():
    check_gradients((
        lambda *tensors: torch_npu.npu_fused_floyd_attention(*tensors, scale_value=0.4)[2],
        lambda *tensors: floyd_formula(*tensors)[2], FLOYD,
    ))  # fmt: skip


@case(F32)
def block_sparse(g):
    q, k, v = g(2, 4, 6, 8), g(2, 2, 10, 8), g(2, 2, 10, 8)
    mask = g.ints(0, 2, 2, 4, 2, 2, dtype=torch.int8)
    mask[..., 0] = 1
    seen = mask.bool().repeat_interleave(3, 2).repeat_interleave(5, 3)
    out = torch.stack([
        torch.stack([attend(q[b, h], k[b, h // 2], v[b, h // 2], 0.3, seen[b, h]) for h in range(4)]) for b in range(2)
    ])  # fmt: skip
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k.repeat_interleave(2, 1)) * 0.3
    lse = scores.masked_fill(~seen, HIDDEN).logsumexp(-1, keepdim=True)
    options = {"q_input_layout": "BNSD", "kv_input_layout": "BNSD", "num_key_value_heads": 2, "scale_value": 0.3,
               "softmax_lse_flag": 1}  # fmt: skip
    return Call(npu("npu_block_sparse_attention"), (q, k, v, mask, [3, 5]), options, want=(out, lse))


# ---- Selected blocks: one sequence of 12 keys, 3 blocks of 4 ----

SELECT = (0.25, 4, 4, 2)  # scale, heads, size and count of blocks


def selected(q, k, v, chosen):
    keys = torch.arange(k.size(0)) // 4
    seen = (chosen.unsqueeze(-1) == keys).any(-2)  # [tokens, key heads, keys]
    heads = [attend(q[:, h], k[:, h // 2], v[:, h // 2], SELECT[0], seen[:, h // 2]) for h in range(q.size(1))]
    return torch.stack(heads, 1)


def places(g, tokens):
    return torch.stack([torch.stack([g.shuffled(3)[:2] for _ in range(2)]) for _ in range(tokens)])


LENGTHS = {"actual_seq_qlen": [5], "actual_seq_kvlen": [12]}


@case(F32, BF16)
def nsa_select(g):
    q, k, v, chosen = g(5, 4, 16), g(12, 2, 16), g(12, 2, 8), places(g, 5)
    want = selected(q, k, v, chosen).to(q.dtype)
    return Call(npu("npu_nsa_select_attention"), (q, k, v, chosen, *SELECT), LENGTHS, want=(want, None, None), ignore=(1, 2))


@case(F32)
def nsa_select_infer(g):
    q, k, v, chosen = g(1, 5, 4, 16), g(1, 12, 2, 16), g(1, 12, 2, 8), places(g, 5)
    want = selected(q[0], k[0], v[0], chosen).unsqueeze(0)
    args = (q, k, v, chosen.unsqueeze(0), 0.25, 4, 2, 4, 2, 4)
    return Call(npu("npu_nsa_select_attention_infer"), args, LENGTHS, want=want)


def test_nsa_select_gradients():
    g = torch.Generator().manual_seed(3)
    q, k, v, d = (torch.randn(*shape, generator=g) for shape in ((5, 4, 16), (12, 2, 16), (12, 2, 8), (5, 4, 8)))
    chosen = torch.tensor([[[0, 2], [1, 0]]] * 5, dtype=torch.int32)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    wanted = torch.autograd.grad(selected(*leaves, chosen), leaves, d)
    device = [t.npu() for t in (q, k, v, chosen)]
    out, most, total = torch_npu.npu_nsa_select_attention(*device, *SELECT, **LENGTHS)
    got = torch_npu.npu_nsa_select_attention_grad(d.npu(), *device[:3], out, most, total, device[3], *SELECT, **LENGTHS)
    for one, want in zip(got, wanted):
        torch.testing.assert_close(one.cpu(), want, atol=1e-5, rtol=1e-5)


@case(F32)
def nsa_compress(g):
    """Compressed keys of 32 tokens by 16, blocks of 64; the best of 4 blocks by the weights that fall on it."""
    q, k, v = g(6, 4, 16), g(15, 2, 16), g(15, 2, 8)
    heads = [attend(q[:, h], k[:, h // 2], v[:, h // 2], 0.25) for h in range(4)]
    lengths = {"actual_seq_qlen": [6], "actual_cmp_seq_kvlen": [15], "actual_sel_seq_kvlen": [256]}
    args = (q, k, v, 0.25, 4, 32, 16, 64, 2)
    return Call(npu("npu_nsa_compress_attention"), args, lengths, want=(torch.stack(heads, 1), None, None, None), ignore=(1, 2, 3))


def test_compressed_attention_chooses_alike():
    g = torch.Generator().manual_seed(4)
    q, k, v = (torch.randn(*shape, generator=g).npu() for shape in ((6, 4, 16), (15, 2, 16), (15, 2, 8)))
    lengths = {"actual_seq_qlen": [6], "actual_cmp_seq_kvlen": [15], "actual_sel_seq_kvlen": [256]}
    out, chosen, most, total = torch_npu.npu_nsa_compress_attention(q, k, v, 0.25, 4, 32, 16, 64, 2, **lengths)
    again, same = torch_npu.npu_nsa_compress_attention_infer(q, k, v, 0.25, 4, 2, 64, 2, 128, 32, 16, **lengths)
    torch.testing.assert_close(out.cpu(), again.cpu())
    assert torch.equal(chosen.cpu(), same.cpu()) and chosen.dtype == torch.int32
    assert most.shape == total.shape == (6, 4, 8) and (total > 0).all()
    weights = torch.stack([(q[:, h].cpu() @ k[:, h // 2].cpu().t() * 0.25).softmax(-1) for h in range(4)], 1)
    summed = weights.view(6, 2, 2, 15).sum(2)
    scores = torch.zeros(6, 2, 4)
    for j in range(4):
        for m in range(4):
            for n in range(2):
                if 0 <= 4 * j - m - n < 15:
                    scores[..., j] += summed[..., 4 * j - m - n]
    assert torch.equal(chosen.cpu().long(), scores.sort(dim=-1, descending=True, stable=True).indices[..., :2])


# ---- What chooses keys ----


def index_scores(q, k, w):
    """[batch, tokens, keys], later keys hidden."""
    scores = torch.einsum("bsnd,btd->bsnt", q, k[:, :, 0]).relu()
    scores = torch.einsum("bsnt,bsn->bst", scores, w)
    hidden = torch.arange(k.size(1)) > torch.arange(q.size(1)).unsqueeze(1) + k.size(1) - q.size(1)
    return scores, hidden


@case(F32)
def indexer_lse(g):
    q, k, w = g(2, 3, 4, 8), g(2, 6, 1, 8), g(2, 3, 4).abs()
    scores, hidden = index_scores(q, k, w)
    scores = scores.masked_fill(hidden, HIDDEN)
    most = scores.amax(-1)
    total = (scores - most.unsqueeze(-1)).exp().sum(-1)
    want = (most.unsqueeze(1), total.unsqueeze(1))
    return Call(npu("npu_dense_lightning_indexer_softmax_lse"), (q, k, w), want=want)


def test_indexer_gradients():
    g = torch.Generator().manual_seed(5)
    q, k, w = (torch.randn(*shape, generator=g) for shape in ((2, 3, 4, 8), (2, 6, 1, 8), (2, 3, 4)))
    chosen = torch.tensor([0, 2], dtype=torch.int32).expand(2, 3, 1, 2).contiguous()
    dy = torch.randn(2, 3, 1, 2, generator=g)
    leaves = [t.clone().requires_grad_() for t in (q, k, w)]
    values = index_scores(*leaves)[0].gather(-1, chosen[:, :, 0].long()).unsqueeze(2)
    wanted = torch.autograd.grad(values, leaves, dy)
    got = torch_npu.npu_lightning_indexer_grad(*(t.npu() for t in (q, k, dy, chosen, w)))
    for one, want in zip(got, wanted):
        torch.testing.assert_close(one.cpu(), want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dense", (True, False))
def test_indexer_loss(dense):
    """The divergence between the weights of attention and those of the indexer, and its gradients."""
    g = torch.Generator().manual_seed(6)
    q, k = torch.randn(1, 3, 2, 8, generator=g), torch.randn(1, 6, 1, 8, generator=g)
    qi, ki, w = torch.randn(1, 3, 4, 8, generator=g), torch.randn(1, 6, 1, 8, generator=g), torch.rand(1, 3, 4, generator=g)
    leaves = [t.clone().requires_grad_() for t in (qi, ki, w)]
    scores, hidden = index_scores(*leaves)
    attention = (torch.einsum("bsnd,btd->bnst", q, k[:, :, 0]) * 0.3).masked_fill(hidden, HIDDEN)
    most = attention.amax(-1)
    total = (attention - most.unsqueeze(-1)).exp().sum(-1)
    wanted = attention.softmax(-1).mean(1)
    logs = scores.masked_fill(hidden, HIDDEN).log_softmax(-1)
    loss = torch.where(wanted > 0, wanted * (wanted.clamp(min=1e-30).log() - logs), 0.0).sum()
    gradients = torch.autograd.grad(loss, leaves)
    statistics = [t.permute(0, 2, 1).reshape(1, 1, 3, 2).contiguous() for t in (most, total)]  # [batch, key heads, tokens, heads]
    device = [t.npu() for t in (q, k, qi, ki, w)]
    if dense:
        index = torch_npu.npu_dense_lightning_indexer_softmax_lse(*device[2:])
        got = torch_npu.npu_dense_lightning_indexer_grad_kl_loss(*device, *(t.npu() for t in statistics), *index, 0.3)
    else:
        chosen = torch.arange(6, dtype=torch.int32).expand(1, 3, 1, 6).masked_fill(hidden.view(1, 3, 1, 6), -1)
        got = torch_npu.npu_sparse_lightning_indexer_grad_kl_loss(*device, chosen.contiguous().npu(), *(t.npu() for t in statistics), 0.3)
        with pytest.raises(NotImplementedError, match="sinks"):
            torch_npu.npu_sparse_lightning_indexer_grad_kl_loss(*device, chosen.contiguous().npu(), *(t.npu() for t in statistics), 0.3,
                                                                 sinks=statistics[0].npu())
    torch.testing.assert_close(got[3].cpu(), loss.detach().reshape(1), atol=1e-5, rtol=1e-5)
    for one, want in zip(got, gradients):
        torch.testing.assert_close(one.cpu(), want, atol=2e-5, rtol=2e-5)


def test_sparse_attention_gradients():
    g = torch.Generator().manual_seed(7)
    q, k, d = (torch.randn(*shape, generator=g) for shape in ((1, 3, 2, 8), (1, 6, 1, 8), (1, 3, 2, 8)))
    rq, rk = torch.randn(1, 3, 2, 4, generator=g), torch.randn(1, 6, 1, 4, generator=g)
    chosen = torch.tensor([[0, 2, 3], [1, 2, 4], [5, 0, 1]], dtype=torch.int32).view(1, 3, 1, 3)
    seen = torch.zeros(1, 3, 6, dtype=torch.bool).scatter(-1, chosen[:, :, 0].long(), True)
    leaves = [t.clone().requires_grad_() for t in (q, k, rq, rk)]
    scores = torch.einsum("bsnd,btd->bnst", leaves[0], leaves[1][:, :, 0])
    scores = 0.3 * (scores + torch.einsum("bsnd,btd->bnst", leaves[2], leaves[3][:, :, 0]))
    scores = scores.masked_fill(~seen.unsqueeze(1), HIDDEN)
    out = torch.einsum("bnst,btd->bsnd", scores.softmax(-1), leaves[1][:, :, 0])
    wanted = torch.autograd.grad(out, leaves, d)
    most = scores.detach().amax(-1)
    total = (scores.detach() - most.unsqueeze(-1)).exp().sum(-1)
    statistics = [t.permute(0, 2, 1).reshape(1, 1, 3, 2).contiguous().npu() for t in (most, total)]
    got = torch_npu.npu_sparse_flash_attention_grad(
        q.npu(), k.npu(), None, chosen.npu(), d.npu(), out.detach().npu(), *statistics, 0.3, 1, rq.npu(), rk.npu(), sparse_mode=0,
    )  # fmt: skip
    assert got[2].numel() == 0
    for one, want in zip((got[0], got[1], got[3], got[4]), wanted):
        torch.testing.assert_close(one.cpu(), want, atol=1e-5, rtol=1e-5)


@case(F32)
def update_expert(g):
    ids, table = g.ints(0, 4, 5, 2), torch.tensor([[1, 3, 0], [2, 0, 5], [1, 2, 0], [2, 4, 1]], dtype=torch.int32)
    rank, world = 1, 4
    count = table[ids.long(), 0]
    replica = rank // -(-world // count)
    want = table[ids.long(), 1 + replica].to(torch.int32)
    return Call(npu("npu_moe_update_expert"), (ids, table), {"local_rank_id": rank, "world_size": world}, want=(want, None), ignore=(1,))


@pytest.mark.parametrize("key", case)
def test_operator(key):
    case.run(key)
