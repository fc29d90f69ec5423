# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: norms, activations and rotary embeddings; npu_ops.py says how cases are run."""
import pytest
import torch
import torch_npu
from npu_ops import BF16, F32, HALF, Call, Cases, check_gradients, norm_of, npu, quantized, turned
from torch.nn.functional import gelu, rms_norm, silu

case = Cases()


# ---- Norms and activations ----


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

@case(F32, BF16)
def gemma(g):
    x, gamma = g(4, 16), g(16)
    rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
    want = ((x.float() * rstd * (gamma.float() + 1)).to(x.dtype), rstd)
    return Call(npu("npu_gemma_rms_norm"), (x, gamma), want=want)


@case(F32)
def layer_norm_eval(g):
    x, w, b = g(4, 16), g(16), g(16)

    def op(x, w, b):
        return torch_npu.npu_layer_norm_eval(x, [16], w, b), torch_npu.npu_gelu_mul(x, approximate="tanh")

    act = gelu(x[:, :8], approximate="tanh") * x[:, 8:]
    return Call(op, (x, w, b), want=(torch.nn.functional.layer_norm(x, (16,), w, b), act))


@case(F32)
def group_norm_swish(g):
    x, w, b = g(2, 6, 4), g(6), g(6)
    y = torch.nn.functional.group_norm(x, 3, w, b)
    rows = x.view(2, 3, -1)
    want = (y * torch.sigmoid(y * 0.5), rows.mean(-1), (rows.var(-1, correction=0) + 1e-5).rsqrt())
    return Call(npu("npu_group_norm_swish"), (x, 3, w, b, 1e-5, 0.5), want=want)


# ---- Rotary embeddings ----


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


@pytest.mark.parametrize("key", case)
def test_eager_traced_and_captured(key):
    case.run(key)


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
}


@pytest.mark.parametrize("key", GRADIENTS)
def test_gradients(key):
    check_gradients(GRADIENTS[key])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_statistics_of_batch_norms_are_float32(dtype):
    """However the operator is spelled: those of the elements, not rounded to their type."""
    x = torch.randn(3, 2, 5).to(dtype)
    exact = x.double()
    wanted = exact.mean((0, 2)), exact.var((0, 2), correction=0).add(1e-5).rsqrt()
    weight, bias, mean, var = (torch.rand(2).to(dtype).npu() for _ in range(4))
    running = lambda: (mean.clone(), var.clone())  # noqa: E731
    x, aten = x.npu(), torch.ops.aten
    whole = aten.native_batch_norm(x, weight, bias, *running(), True, 0.1, 1e-5)
    for results in (whole, aten._native_batch_norm_legit(x, weight, bias, *running(), True, 0.1, 1e-5),
                    aten._native_batch_norm_legit_functional(x, weight, bias, *running(), True, 0.1, 1e-5),
                    aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-5),
                    aten._batch_norm_with_update(x, weight, bias, *running(), 0.1, 1e-5),
                    aten._batch_norm_with_update_functional(x, weight, bias, *running(), 0.1, 1e-5)):
        assert torch.equal(results[0], whole[0])
        torch.testing.assert_close([each.cpu() for each in results[1:3]], [each.float() for each in wanted], rtol=1e-5, atol=1e-6)
    own = running()
    aten._batch_norm_with_update(x, weight, bias, *own, 0.25, 1e-5)
    torch.testing.assert_close(own[0].cpu().double(), mean.cpu().double() * 0.75 + wanted[0] * 0.25, rtol=1e-2, atol=1e-2)
    still = aten._native_batch_norm_legit(x, weight, bias, mean, var, False, 0.1, 1e-5)
    plain = aten.native_batch_norm(x, weight, bias, mean, var, False, 0.1, 1e-5)
    assert torch.equal(still[0], plain[0]) and [each.shape for each in still] == [each.shape for each in plain]
