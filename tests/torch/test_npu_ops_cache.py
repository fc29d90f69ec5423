# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: pages, writes by index and formats; npu_ops.py says how cases are run."""
import pytest
import torch
import torch_npu
from npu_ops import BF16, F32, HALF, Call, Cases, norm_of, npu, pages, turned

case = Cases()


# ---- Pages ----


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


@case(F32)
def mla_prolog(g):
    call = latent(g, npu("npu_mla_prolog"), 2)
    call.want = call.want[:4]
    return call


@case(F32)
def mla_prolog_functional(g):
    call = latent(g, npu("npu_mla_prolog_v3_functional"), 3)
    call.want += (call.left[9], call.left[10])
    call.left = {place: call.args[place].clone() for place in (9, 10)}
    return call


@case(F32)
def kv_rmsnorm_v2(g):
    call = kv_rmsnorm(g)
    call.op, call.want, call.ignore = npu("npu_kv_rmsnorm_rope_cache_v2"), call.want[2:], ()
    return call


@case(F32)
def kv_rmsnorm_functional(g):
    call = kv_rmsnorm(g)
    call.op, call.ignore = npu("npu_kv_rmsnorm_rope_cache_v2_functional"), ()
    call.want = (*call.want[2:], *call.want[:2])
    call.left = {place: call.args[place].clone() for place in call.left}
    return call


@case(F32)
def gather_functional(g):
    call = gather_pa(g)
    places = sorted(call.left)
    call.op, call.want = npu("npu_gather_pa_kv_cache_functional"), tuple(call.left[place] for place in places)
    call.left = {place: call.args[place].clone() for place in places}
    return call


def qkv_norm(g, op, is_functional):
    """Two heads of queries, one of keys, one of values, in tiles of 32."""
    qkv, gq, gk, cos, sin = g(6, 4 * 64), g(64), g(64), g(6, 64), g(6, 64)
    slots, q_out = slots_of(g, 6, 12), g(6, 128)
    keys, values = (g.ints(-9, 9, 3, 2, 4, 32, dtype=torch.int8) for _ in range(2))
    k_scale, v_scale = g(1, 64).abs() * 0.1 + 0.05, g(1, 64).abs() * 0.1 + 0.05
    q, k, v = qkv.view(6, 4, 64).split([2, 1, 1], 1)
    q, k = (turned(norm_of(x, w), cos.unsqueeze(1), sin.unsqueeze(1)) for x, w in ((q, gq), (k, gk)))

    def tiles(cache, rows, scale):
        plain = cache.transpose(1, 2).reshape(3, 4, 64)
        rows = (rows[:, 0] / scale).round().clamp(-128, 127).to(torch.int8)
        return stored(plain, rows, slots).view(3, 4, 2, 32).transpose(1, 2).contiguous()

    changed = (q.reshape(6, 128), tiles(keys, k, k_scale), tiles(values, v, v_scale))
    args = (qkv, gq, gk, cos, sin, slots, q_out, keys, values, [2, 3, 4, 64], [2, 1, 1])
    options = {"k_scale": k_scale, "v_scale": v_scale, "is_output_qkv": True}
    want = (q.reshape(6, 128), k.reshape(6, 64), v.reshape(6, 64))
    if is_functional:
        return Call(op, args, options, want=(*want, *changed), left={p: args[p].clone() for p in (6, 7, 8)})
    return Call(op, args, options, want=want, left=dict(zip((6, 7, 8), changed)))


@case(F32)
def qkv_rms_norm(g):
    return qkv_norm(g, npu("npu_qkv_rms_norm_rope_cache"), False)


@case(F32)
def qkv_rms_norm_functional(g):
    return qkv_norm(g, npu("npu_qkv_rms_norm_rope_cache_functional"), True)


# ---- Formats ----


@case(F32, torch.int8)
def format_cast(g):
    x = g(4, 6).to(g.dtype)
    return Call(npu("npu_format_cast"), (x, 29), want=x)


@case(F32)
def scatter_pa_functional(g):
    k, v, keys, values, slots = g(5, 2, 8), g(5, 2, 8), g(4, 4, 2, 8), g(4, 4, 2, 8), slots_of(g, 5, 16)
    args, options = (k, v, keys, values, slots), {"cache_mode": "Norm"}
    want = (stored(keys, k, slots), stored(values, v, slots))
    left = {2: keys.clone(), 3: values.clone()}
    return Call(npu("npu_scatter_pa_kv_cache_functional"), args, options, left=left, want=want)


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


@pytest.mark.parametrize("key", case)
def test_eager_traced_and_captured(key):
    case.run(key)
