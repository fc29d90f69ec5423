# SPDX-License-Identifier: Apache-2.0
"""The operations of the transformer library by way of PyTorch: ``torch_npu._npu_*`` and ``torch_npu.atb.*``.

A case is a function that makes tensors from a source of random numbers, what is called with them, and what plain
PyTorch gives for it. It is called eagerly, and captured and replayed with other values. The file runs with the published
package (tests/wheel) and with ours (tests/torch).
"""
import ctypes
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import typing

import pytest
import torch
import torch_npu

HALF, BF16, F32, I32, I8 = torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int8
HIDDEN = float("-inf")
BOUNDS = {HALF: 3e-3, BF16: 3e-2, F32: 1e-5, I32: 0, I8: 1}
CASES = {}


@dataclasses.dataclass
class Case:
    call: typing.Callable  # with tensors of the device by name; what it returns is compared, too
    tensors: dict
    left: dict = dataclasses.field(default_factory=dict)  # what it leaves in them
    gives: tuple = ()
    captured: bool = True
    bound: float = 0


class Source:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *sizes, dtype=HALF):
        return torch.randn(sizes, generator=self.generator).to(dtype)

    def shuffled(self, count, dtype=I32):
        return torch.randperm(count, generator=self.generator).to(dtype)

    def ints(self, low, high, *sizes, dtype=I32):
        return torch.randint(low, high, sizes, generator=self.generator).to(dtype)


def case(*variants):
    """A case for each of the variants, which are passed on."""

    def add(function):
        for variant in variants or ((),):
            name = "-".join([function.__name__, *(str(part).removeprefix("torch.") for part in variant)])
            CASES[name] = (function, variant)
        return function

    return add


def lengths(*values):
    return torch.tensor(values, dtype=I32)


def attend(query, key, value, scale, seen=None, shift=None):
    """[queries, heads, size] and [keys, key heads, size]."""
    repeats = query.size(1) // key.size(1)
    key, value = (each.float().repeat_interleave(repeats, 1) for each in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query.float(), key) * scale
    if shift is not None:
        scores = scores + shift.float()
    if seen is not None:
        scores = scores.masked_fill(~seen, HIDDEN)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).to(query.dtype)


def causal(queries, keys):
    return torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)


def of_pages(cache, row, length):
    """The first tokens of a sequence."""
    return cache[row.long()].flatten(0, 1)[:length]


def parts(tensor, counts):
    return tensor.split([*counts, tensor.size(0) - sum(counts)])[: len(counts)]


# ---- Attention over pages ----


def paged_tensors(g, dtype, tokens, table_rows, kv_heads=2, size=16):
    return {
        "q": g(tokens, 4, size, dtype=dtype), "k": g(16, 8, kv_heads, size, dtype=dtype),
        "v": g(16, 8, kv_heads, size, dtype=dtype), "table": g.shuffled(16)[: table_rows * 4].view(table_rows, 4),
        "out": torch.zeros(tokens, 4, size, dtype=dtype),
    }  # fmt: skip


def single(t, contexts, scale):
    rows = [
        attend(q[None], of_pages(t["k"], row, n), of_pages(t["v"], row, n), scale)
        for q, row, n in zip(t["q"], t["table"], contexts)
    ]
    return torch.cat(rows)


@case((HALF,), (BF16,))
def paged_attention(g, dtype):
    t, contexts = paged_tensors(g, dtype, 3, 3), lengths(1, 17, 32)
    return Case(
        lambda d: torch_npu._npu_paged_attention(
            d["q"], d["k"], d["v"], 2, 4, 0.25, d["table"], contexts, d["out"]),
        t, {"out": single(t, contexts, 0.25)})  # fmt: skip


@case()
def paged_attention_with_workspace(g):
    t, contexts = paged_tensors(g, HALF, 3, 3), lengths(9, 30, 4)

    def call(d):
        args = (d["q"], d["k"], d["v"], 2, 4, 0.25, d["table"], contexts, d["out"])
        workspace = torch_npu._npu_paged_attention_get_workspace(*args)
        torch_npu._npu_paged_attention(*args, workspace=workspace)

    return Case(call, t, {"out": single(t, contexts, 0.25)})


@case()
def paged_attention_v2(g):
    t, contexts = paged_tensors(g, HALF, 3, 3), [8, 2, 31]
    return Case(
        lambda d: torch_npu.atb._npu_paged_attention_v2(
            d["q"], d["k"], d["table"], contexts, value_cache=d["v"], num_kv_heads=2, num_heads=4, scale_value=0.25,
            out=d["out"]),
        t, {"out": single(t, contexts, 0.25)})  # fmt: skip


@case()
def paged_attention_mla(g):
    t, contexts = paged_tensors(g, HALF, 3, 3, kv_heads=1, size=24), lengths(7, 20, 32)
    t["v"], t["out"] = t["k"][..., :16].contiguous(), torch.zeros(3, 4, 16, dtype=HALF)
    return Case(
        lambda d: torch_npu._npu_paged_attention_mla(d["q"], d["k"], 1, 4, 0.2, d["table"], contexts, 16, d["out"]),
        t, {"out": single(t, contexts, 0.2)})  # fmt: skip


def chunks(t, queries, contexts, scale):
    """The last queries of each context; those that belong to none are zeros."""
    rows = [
        attend(q, of_pages(t["k"], row, n), of_pages(t["v"], row, n), scale, causal(len(q), n))
        for q, row, n in zip(parts(t["q"], queries), t["table"], contexts)
    ]
    return torch.cat(rows)


@case((8,), (32,))
def paged_attention_splitfuse(g, side):
    t = paged_tensors(g, HALF, 10, 3)
    queries, contexts = lengths(6, 1, 3), lengths(6, 20, 32)
    t["mask"] = torch.zeros(side, side, dtype=HALF).masked_fill(~causal(side, side), HIDDEN)
    if side >= 32:  # a row for each query
        t["mask"] = torch.cat([
            torch.nn.functional.pad(torch.zeros(q, n).masked_fill(~causal(q, n), HIDDEN), (0, 32 - n))
            for q, n in zip(queries.tolist(), contexts.tolist())]).to(HALF)  # fmt: skip
    return Case(
        lambda d: torch_npu._npu_paged_attention_splitfuse(
            d["q"], d["k"], d["v"], d["table"], contexts, d["mask"], queries, 2, 4, 0.25, d["out"]),
        t, {"out": chunks(t, queries, contexts, 0.25)})  # fmt: skip


@case()
def paged_attention_splitfuse_v2(g):
    t = paged_tensors(g, HALF, 10, 3)
    t["mask"] = torch.zeros(2048, 2048, dtype=HALF)
    queries, contexts = lengths(6, 1, 3), lengths(7, 20, 32)
    return Case(
        lambda d: torch_npu._npu_paged_attention_splitfuse_v2(
            d["q"], d["k"], d["v"], d["table"], contexts, d["mask"], queries, 2, 4, 0.25, out=d["out"]),
        t, {"out": chunks(t, queries, contexts, 0.25)})  # fmt: skip


@case()
def flash_attention_qlens(g):
    t = paged_tensors(g, HALF, 10, 3)
    t["mask"] = torch.zeros(128, 128, dtype=HALF)
    queries, contexts = lengths(2, 5, 3), lengths(10, 5, 19)
    return Case(
        lambda d: torch_npu._npu_flash_attention_qlens(
            d["q"], d["k"], d["v"], d["table"], d["mask"], queries, contexts, 2, 4, 0.25, d["out"]),
        t, {"out": chunks(t, queries, contexts, 0.25)})  # fmt: skip


@case()
def flash_attention_prefix_v2(g):
    t = paged_tensors(g, BF16, 10, 3)
    t["mask"] = torch.zeros(128, 128, dtype=BF16)
    queries, contexts = [2, 5, 3], [10, 5, 19]
    return Case(
        lambda d: torch_npu.atb._npu_flash_attention_prefix_v2(
            d["q"], d["k"], d["v"], d["table"], d["mask"], queries, contexts, num_kv_heads=2, num_heads=4,
            scale_value=0.25, out=d["out"]),
        t, {"out": chunks(t, queries, contexts, 0.25)})  # fmt: skip


@case()
def self_attention_prefix_encoder(g):
    t = paged_tensors(g, HALF, 10, 3)
    queries, contexts = [2, 5, 3], [10, 5, 19]
    return Case(
        lambda d: torch_npu.atb.npu_self_attention_prefix_encoder(
            d["q"], d["k"], d["v"], d["table"], queries, contexts, 4, 0.25, 2),
        t, gives=(chunks(t, queries, contexts, 0.25),))  # fmt: skip


# ---- Attention of sequences end to end ----

SEQUENCES = lengths(3, 1, 5)


def packed_tensors(g, dtype, tokens=9):
    return {
        "q": g(tokens, 4, 16, dtype=dtype), "k": g(tokens, 2, 16, dtype=dtype), "v": g(tokens, 2, 16, dtype=dtype),
        "out": torch.zeros(tokens, 4, 16, dtype=dtype),
    }  # fmt: skip


def packed(t, scale, seen=None, shift=None):
    split = zip(*(parts(t[name], SEQUENCES.tolist()) for name in "qkv"))
    return torch.cat([attend(q, k, v, scale, seen and seen(i, len(q)), shift and shift(i, len(q)))
                      for i, (q, k, v) in enumerate(split)])  # fmt: skip


@case((HALF,), (F32,))
def flash_attention_unpad(g, dtype):
    t = packed_tensors(g, dtype)
    return Case(
        lambda d: torch_npu._npu_flash_attention_unpad(d["q"], d["k"], d["v"], SEQUENCES, 0.25, 4, 2, d["out"]),
        t, {"out": packed(t, 0.25)})  # fmt: skip


@case()
def flash_attention_unpad_v2(g):
    t = packed_tensors(g, HALF)
    return Case(
        lambda d: torch_npu._npu_flash_attention_unpad_v2(
            d["q"], d["k"], d["v"], SEQUENCES, 0.25, 4, 2, kernel_type=2, out=d["out"]),
        t, {"out": packed(t, 0.25)})  # fmt: skip


@case((HALF, HIDDEN), (BF16, 1))
def flash_attention(g, dtype, hidden):
    """A mask that is added, and one of ones, which bfloat16 has."""
    t = packed_tensors(g, dtype)
    t["mask"] = torch.zeros(8, 8, dtype=dtype).masked_fill(~causal(8, 8), hidden)
    return Case(
        lambda d: torch_npu._npu_flash_attention(
            d["q"], d["k"], d["v"], d["mask"], SEQUENCES, 0.25, 4, 2, d["out"]),
        t, {"out": packed(t, 0.25, seen=lambda i, n: causal(n, n))})  # fmt: skip


@case()
def flash_attention_of_masks(g):
    """A mask for each sequence."""
    t = packed_tensors(g, HALF)
    t["mask"] = g(3, 8, 8)
    return Case(
        lambda d: torch_npu._npu_flash_attention(
            d["q"], d["k"], d["v"], d["mask"], SEQUENCES, 0.25, 4, 2, d["out"]),
        t, {"out": packed(t, 0.25, shift=lambda i, n: t["mask"][i, :n, :n])})  # fmt: skip


@case()
def flash_attention_v3(g):
    """A mask that stands for a causal one of any size."""
    t = packed_tensors(g, HALF)
    t["mask"] = torch.zeros(2, 2, dtype=HALF)
    return Case(
        lambda d: torch_npu._npu_flash_attention_v3(
            d["q"], d["k"], d["v"], d["mask"], SEQUENCES, 0.25, 4, 2, out=d["out"]),
        t, {"out": packed(t, 0.25, seen=lambda i, n: causal(n, n))})  # fmt: skip


@case()
def flash_attention_v2(g):
    """A shift for each head."""
    t = packed_tensors(g, HALF)
    t["mask"] = g(4, 8, 8)
    return Case(
        lambda d: torch_npu.atb._npu_flash_attention_v2(
            d["q"], d["k"], d["v"], SEQUENCES.tolist(), mask=d["mask"], mask_type=2, scale_value=0.25, num_heads=4,
            num_kv_heads=2, out=d["out"]),
        t, {"out": packed(t, 0.25, shift=lambda i, n: t["mask"][:, :n, :n])})  # fmt: skip


# ---- Latent attention ----


@case()
def multi_head_latent_attention(g):
    contexts = [3, 32]
    t = {
        "q": g(2, 4, 16), "qr": g(2, 4, 8), "k": g(16, 8, 1, 16), "kr": g(16, 8, 1, 8),
        "table": g.shuffled(16)[:8].view(2, 4),
    }  # fmt: skip
    want = torch.cat([
        attend(torch.cat([q, qr], -1)[None], torch.cat([of_pages(t["k"], row, n), of_pages(t["kr"], row, n)], -1),
               of_pages(t["k"], row, n), 0.2)
        for q, qr, row, n in zip(t["q"], t["qr"], t["table"], contexts)])  # fmt: skip
    return Case(
        lambda d: torch_npu.atb.npu_multi_head_latent_attention(
            d["q"], d["qr"], d["k"], d["kr"], d["table"], contexts, 4, 0.2, 1),
        t, gives=(want,))  # fmt: skip


@case()
def multi_head_latent_attention_out(g):
    one = CASES["multi_head_latent_attention"][0](g)
    one.tensors["out"] = torch.zeros(2, 4, 16, dtype=HALF)
    return Case(
        lambda d: [torch.ops.atb.npu_multi_head_latent_attention.out(
            d["q"], d["qr"], d["k"], d["kr"], d["table"], [3, 32], 4, 0.2, 1, output=d["out"])][1:],
        one.tensors, {"out": one.gives[0]}, captured=False)  # fmt: skip


# ---- Caches ----


@case((HALF,), (I8,))
def reshape_and_cache(g, dtype):
    t = {
        "k": g(5, 2, 16, dtype=dtype), "v": g(5, 2, 8, dtype=dtype), "kc": g(4, 4, 2, 16, dtype=dtype),
        "vc": g(4, 4, 2, 8, dtype=dtype), "slots": g.shuffled(16)[:5],
    }  # fmt: skip
    t["slots"][1] = -1  # a token that is kept nowhere
    left = {}
    for rows, name in (("k", "kc"), ("v", "vc")):
        left[name] = t[name].clone()
        for row, slot in zip(t[rows], t["slots"].tolist()):
            if slot >= 0:
                left[name].view(16, 2, -1)[slot] = row
    return Case(
        lambda d: torch_npu._npu_reshape_and_cache(d["k"], d["v"], d["kc"], d["vc"], d["slots"]), t, left)


@case()
def reshape_and_cache_siso(g):
    t = {"k": g(5, 1, 24), "kc": g(4, 4, 1, 24), "slots": g.shuffled(16)[:5]}
    left = t["kc"].clone()
    left.view(16, 1, 24)[t["slots"].long()] = t["k"]
    return Case(lambda d: torch_npu._npu_reshape_and_cache_siso(d["k"], d["kc"], d["slots"]), t, {"kc": left})


def cache_load_tensors(g):
    return {
        "k": g(8, 4, 2, 16), "v": g(8, 4, 2, 8), "table": g.shuffled(8)[:6].view(2, 3), "lengths": lengths(5, 9),
    }  # fmt: skip


def loaded(t):
    return tuple(torch.cat([of_pages(t[name], row, n) for row, n in zip(t["table"], (5, 9))]) for name in "kv")


@case()
def paged_cache_load(g):
    t = cache_load_tensors(g)
    return Case(lambda d: torch_npu.atb.npu_paged_cache_load(d["k"], d["v"], d["table"], d["lengths"]), t,
                gives=loaded(t), captured=False)  # fmt: skip


@case()
def paged_cache_load_out(g):
    t = {**cache_load_tensors(g), "key": torch.zeros(14, 2, 16, dtype=HALF), "value": torch.zeros(14, 2, 8, dtype=HALF)}
    key, value = loaded(t)
    return Case(
        lambda d: torch.ops.atb.npu_paged_cache_load.out(
            d["k"], d["v"], d["table"], d["lengths"], key=d["key"], value=d["value"]) and None,
        t, {"key": key, "value": value})  # fmt: skip


# ---- Row by row ----

# The package keeps the table of the first call for as long as the process lives.
TABLE = torch.cat([torch.rand(32, 8, generator=torch.Generator().manual_seed(5)),
                   torch.rand(32, 8, generator=torch.Generator().manual_seed(6))], 1).to(HALF)  # fmt: skip


@case((True,), (False,))
def rotary_embedding(g, is_neox):
    t = {"positions": g.ints(0, 32, 6, dtype=torch.int64), "q": g(6, 64), "k": g(6, 32), "table": TABLE}
    cos, sin = (half.float()[:, None] for half in TABLE[t["positions"]].chunk(2, -1))

    def rotate(x):
        x = x.float().view(6, -1, 16)
        first, second = x.chunk(2, -1) if is_neox else (x[..., ::2], x[..., 1::2])
        turned = first * cos - second * sin, second * cos + first * sin
        x = torch.cat(turned, -1) if is_neox else torch.stack(turned, -1)
        return x.reshape(6, -1).to(HALF)

    return Case(
        lambda d: torch_npu._npu_rotary_embedding(d["positions"], d["q"], d["k"], 16, d["table"], is_neox),
        t, {"q": rotate(t["q"]), "k": rotate(t["k"])})  # fmt: skip


@case((HALF,), (BF16,))
def quant_rms_norm(g, dtype):
    t = {
        "x": g(5, 32, dtype=dtype), "gamma": g(32, dtype=dtype), "beta": g(32, dtype=dtype),
        "scale": torch.tensor([0.05], dtype=dtype), "offset": lengths(3).to(I8), "y": torch.zeros(5, 32, dtype=I8),
    }  # fmt: skip
    x = t["x"].float()
    normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * t["gamma"].float() + t["beta"].float()
    want = (normed / t["scale"].float() + 3).round().clamp(-128, 127).to(I8)
    return Case(
        lambda d: torch_npu._npu_quant_rms_norm(d["x"], d["gamma"], d["beta"], d["scale"], d["offset"], d["y"], 1e-5),
        t, {"y": want})  # fmt: skip


@case((HALF, 1), (BF16, 32))
def quantize_per_tensor(g, dtype, scales):
    t = {
        "x": g(5, 32, dtype=dtype), "scale": (g(scales).abs() / 20 + 0.02).to(dtype),
        "offset": g.ints(-5, 5, scales).to(dtype), "y": torch.zeros(5, 32, dtype=I8),
    }  # fmt: skip
    want = (t["x"].float() / t["scale"].float() + t["offset"].float()).round().clamp(-128, 127).to(I8)
    return Case(
        lambda d: torch_npu._npu_quantize_per_tensor(d["x"], d["scale"], d["offset"], d["y"]), t, {"y": want})


@case((HALF,), (BF16,))
def matmul_add_fp32(g, dtype):
    t = {"x": g(7, 5, dtype=dtype), "w": g(7, 9, dtype=dtype), "c": g(5, 9, dtype=F32)}
    want = t["c"] + t["x"].float().t() @ t["w"].float()
    return Case(lambda d: torch_npu._npu_matmul_add_fp32(d["x"], d["w"], d["c"]), t, {"c": want}, bound=1e-4)


@case((1,), (2,))
def group_topk(g, n):
    t = {"x": torch.stack([g.shuffled(32, HALF) for _ in range(4)])}
    groups = t["x"].view(4, 8, 4)
    best = groups.float().topk(n).values.sum(-1).topk(3).indices
    taken = torch.zeros(4, 8).scatter(1, best, 1.0)
    want = (groups * taken[..., None]).view(4, 32).to(HALF)
    return Case(lambda d: torch_npu._npu_group_topk(d["x"], 3, 8, n), t, {"x": want})


@case((True, HALF), (False, F32))
def fused_add_topk_div(g, is_norm, dtype):
    t = {"x": g(5, 32, dtype=dtype), "bias": g(32, dtype=dtype).abs()}
    weights = t["x"].float().sigmoid()
    scores = (weights + t["bias"].float()).view(5, 8, 4)
    best = scores.topk(2).values.sum(-1).topk(4).indices
    taken = torch.zeros(5, 8).scatter(1, best, 1.0)
    chosen = (scores * taken[..., None]).view(5, 32).topk(6).indices
    y = weights.gather(1, chosen)
    y = y / y.sum(-1, keepdim=True) * 2.5 if is_norm else y
    return Case(
        lambda d: torch_npu.atb.npu_fused_add_topk_div(
            d["x"], d["bias"], activation_type="activation_sigmoid", group_num=8, group_topk=4, n=2, k=6,
            is_norm=is_norm, scale=2.5),
        t, gives=(y, chosen.to(I32)))  # fmt: skip


# ---- Both ways of calling ----


def make(name, seed):
    function, variant = CASES[name]
    return function(Source(seed), *variant)


def compare(one, device, given):
    torch.npu.synchronize()
    pairs = [(name, device[name], want) for name, want in one.left.items()]
    given = given if isinstance(given, (tuple, list)) else (given,)
    pairs += [(f"result {i}", got, want) for i, (got, want) in enumerate(zip(given, one.gives))]
    assert len(pairs) == len(one.left) + len(one.gives)
    for what, got, want in pairs:
        bound = one.bound or BOUNDS[want.dtype]
        torch.testing.assert_close(got.cpu(), want, rtol=bound, atol=bound, msg=lambda text, w=what: f"{w}: {text}")


@pytest.mark.parametrize("name", CASES)
def test_eager(name):
    one = make(name, 1)
    device = {key: tensor.npu() for key, tensor in one.tensors.items()}
    compare(one, device, one.call(device))


@pytest.mark.parametrize("name", [name for name in CASES if make(name, 1).captured])
def test_captured(name):
    first, second = make(name, 1), make(name, 2)
    device = {key: tensor.npu() for key, tensor in first.tensors.items()}
    first.call(device)  # so that what a first call does is done
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        given = first.call(device)
    for one in (second, first):
        for key, tensor in one.tensors.items():
            device[key].copy_(tensor)
        graph.replay()
        compare(one, device, given)


def test_ring_mla_in_two_parts():
    """What the first keys gave is joined with what the others give."""
    g = Source(3)
    q, qr, value = g(4, 2, 16), g(4, 2, 8), g(10, 2, 16)
    k, kr, mask = g(10, 2, 16), g(10, 2, 8), torch.zeros(512, 512, dtype=HALF)
    want = attend(torch.cat([q, qr], -1), torch.cat([k, kr], -1), value, 0.2)
    out = lse = None
    for keys in (slice(0, 6), slice(6, 10)):
        number = len(range(10)[keys])
        options = {"calc_type": "calc_type_first_ring"}
        if out is not None:
            options = {"calc_type": "calc_type_default", "pre_out": out, "prev_lse": lse}
        out, lse = torch_npu.atb.npu_ring_mla(
            q.npu(), qr.npu(), k[keys].npu(), kr[keys].npu(), value[keys].npu(), mask.npu(),
            torch.tensor([[4], [number]], dtype=I32), 2, 2, qk_scale=0.2, **options)  # fmt: skip
    scores = torch.einsum("qhd,khd->hqk", torch.cat([q, qr], -1).float(), torch.cat([k, kr], -1).float()) * 0.2
    torch.testing.assert_close(out.cpu(), want, rtol=3e-3, atol=3e-3)
    torch.testing.assert_close(lse.cpu(), scores.logsumexp(-1), rtol=1e-3, atol=1e-3)


# ---- Lengths that change between replays ----


def test_lengths_of_a_captured_call_change():
    g = Source(1)
    t = paged_tensors(g, HALF, 3, 3)
    d = {key: tensor.npu() for key, tensor in t.items()}
    contexts = lengths(1, 1, 1)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        torch_npu._npu_paged_attention(d["q"], d["k"], d["v"], 2, 4, 0.25, d["table"], contexts, d["out"])
        doubled = d["out"] * 2
    for now in ((5, 32, 1), (32, 2, 17), (9, 9, 9)):
        d["out"].zero_()
        graph.replay()
        graph.update(cpu_update_input=[{"context_lens": lengths(*now)}])
        torch.npu.synchronize()
        want = single(t, now, 0.25)
        torch.testing.assert_close(d["out"].cpu(), want, rtol=3e-3, atol=3e-3)
        torch.testing.assert_close(doubled.cpu(), want * 2, rtol=3e-3, atol=6e-3)


def test_lengths_of_captured_latent_attention_change():
    d = {key: tensor.npu() for key, tensor in make("multi_head_latent_attention_out", 1).tensors.items()}

    def call(contexts):
        torch.ops.atb.npu_multi_head_latent_attention.out(
            d["q"], d["qr"], d["k"], d["kr"], d["table"], contexts, 4, 0.2, 1, output=d["out"])  # fmt: skip
        return d["out"]

    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        call([1, 1])
    for contexts in ([3, 32], [32, 7]):
        want = call(contexts).cpu()
        d["out"].zero_()
        graph.replay()
        graph.update(cpu_update_input=[{"context_lens": contexts}])
        torch.npu.synchronize()
        assert torch.equal(d["out"].cpu(), want)


# ---- Refusals ----


def paged(d, **changes):
    args = {"q": d["q"], "k": d["k"], "v": d["v"], "kv": 2, "heads": 4, "scale": 0.25, "table": d["table"],
            "contexts": lengths(1, 2, 3), "out": d["out"], **changes}  # fmt: skip
    torch_npu._npu_paged_attention(*args.values())


REFUSED = {
    "lengths": (
        lambda d: paged(d, contexts=lengths(1, 2)), "2 entries for 3 queries|there are 3 queries, 2 context_lens"),
    "length": (lambda d: paged(d, contexts=lengths(1, 2, 99)), "99"),
    "heads": (lambda d: paged(d, kv=3), "3"),
    "table": (lambda d: paged(d, table=d["table"].float()), "int32"),
    "type": (lambda d: paged(d, k=d["k"].float()), "float32"),
    "slots": (
        lambda d: torch_npu._npu_reshape_and_cache(d["q"], d["q"], d["k"], d["v"], d["table"][0]), "has shape|shape"),
    "quantised": (
        lambda d: torch_npu._npu_paged_attention_quant(
            d["q"], d["k"], d["v"], 2, 4, 0.25, d["table"], lengths(1, 2, 3), 1, 1, d["q"], d["q"], d["out"]),
        "quantType is 1|CreateOperation failed|does not have this operator"),
    "groups": (lambda d: torch_npu._npu_group_topk(d["q"][0], 2, 5, 1), "5"),
}  # fmt: skip


def refuse_all():
    """Prints why each of them is refused; what comes next is right again."""
    # Without its queue the package says only that an operation was refused: the sentence is the thread's message.
    recent = ctypes.CDLL("libascendcl.so").aclGetRecentErrMsg
    recent.restype = ctypes.c_char_p
    for name, (call, _) in REFUSED.items():
        one = make("paged_attention-float16", 1)
        device = {key: tensor.npu() for key, tensor in one.tensors.items()}
        try:
            call(device)
            torch.npu.synchronize()
            print(f"{name}: not refused")
        except Exception as error:  # noqa: BLE001: of several types
            text = f"{error} {(recent() or b'').decode()}"
            print(f"{name}:", " ".join(text.split()))
        compare(one, device, one.call(device))


def test_refusals():
    """With a sentence that tells what does not fit. A failure ends the queue of the package, so they do not wait."""
    folder = str(pathlib.Path(__file__).parent)
    code = f"import sys; sys.path.insert(0, {folder!r}); import test_atb; test_atb.refuse_all()"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "ASCEND_LAUNCH_BLOCKING": "1"}, capture_output=True, text=True,
        timeout=600, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines() if line.split(": ")[0] in REFUSED)
    wrong = {name: said.get(name) for name, (_, text) in REFUSED.items() if not re.search(text, said.get(name, ""))}
    assert not wrong
