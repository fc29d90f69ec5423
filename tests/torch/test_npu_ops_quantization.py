# SPDX-License-Identifier: Apache-2.0
"""The operators torch_npu.npu_*: quantised values and products; npu_ops.py says how cases are run."""
import pytest
import torch
import torch_npu
from npu_ops import BF16, F32, HALF, Call, Cases, norm_of, npu, quantized
from torch.nn.functional import pad, silu

case = Cases()


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
def norm_forms(g):
    x, gamma, beta, scale, offset, dy = g(4, 16), g(16), g(16), g(16).abs() * 0.1 + 0.02, g(16), g(4, 16)
    y = torch.zeros(4, 16, dtype=torch.int8)
    rstd = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)

    def op(x, gamma, beta, scale, offset, dy, y, rstd):
        torch_npu._npu_quant_rms_norm(x, gamma, beta, scale, offset, y, 1e-6)
        return (
            *torch_npu.npu_rms_norm_quant_v2(x, gamma, scale, offset=offset, beta=beta),
            torch_npu._npu_rms_norm_backward_quant(dy, x, rstd, gamma, scale, offset_x=offset)[0],
        )

    values = norm_of(x, gamma) + beta.float()
    quant = (values / scale.float() + offset.float()).round().clamp(-128, 127).to(torch.int8)
    leaf = x.float().requires_grad_()
    (dx,) = torch.autograd.grad(norm_of(leaf, gamma), leaf, dy.float())
    back = (dx.half().float() / scale.float() + offset.float()).round().clamp(-128, 127).to(torch.int8)
    return Call(op, (x, gamma, beta, scale, offset, dy, y, rstd), want=(quant, rstd, back), left={6: quant})


@case(HALF)
def gelu_quant(g):
    x, smooth, offset = g(4, 16), g(16, dtype=F32).abs() + 0.1, g(16, dtype=F32)

    def op(x, smooth, offset):
        static = {"input_scale": smooth * 20, "input_offset": offset, "quant_mode": "static", "approximate": "tanh"}
        return (
            *torch_npu.npu_gelu_quant(x, input_scale=smooth),
            torch_npu.npu_gelu_quant(x, **static)[0],
        )

    act = torch.nn.functional.gelu(x.float(), approximate="tanh") * smooth * 20 + offset
    want = (*quantized(torch.nn.functional.gelu(x.float()) * smooth), act.round().clamp(-128, 127).to(torch.int8))
    return Call(op, (x, smooth, offset), want=want)


@case(HALF)
def fused_products(g):
    a, b, c, bias = g(5, 8), g(8, 6), g(5, 6), g(6)

    def op(a, b, c, bias):
        return (
            torch_npu.npu_fused_matmul(a, b, bias=bias),
            torch_npu.npu_fused_matmul(a, b, x3=c, fused_op_type="add"),
            torch_npu.npu_fused_matmul(a, b, x3=c, fused_op_type="mul"),
            torch_npu.npu_fused_matmul(a, b, fused_op_type="gelu_tanh"),
        )

    product = (a.float() @ b.float()).half().float()
    want = (product + bias.float(), product + c, product * c, torch.nn.functional.gelu(product, approximate="tanh"))
    return Call(op, (a, b, c, bias), want=tuple(each.half() for each in want), bounds=BF16)


@case(BF16)
def reduced_product(g):
    a, b = (g.ints(-9, 9, *shape, dtype=torch.int8) for shape in ((3, 5, 16), (3, 16, 6)))
    rows, columns = g(3, 5, dtype=F32), g(6)
    want = ((product(a, b).float() * rows.unsqueeze(-1)).sum(0) * columns.float()).bfloat16()

    def op(a, b, rows, columns):
        return torch_npu.npu_quant_matmul_reduce_sum(a, b, x1_scale=rows, x2_scale=columns)

    return Call(op, (a, b, rows, columns), want=want)


@case(BF16)
def product_gelu(g):
    a, b = g.ints(-128, 128, 5, 16, dtype=torch.int8), g.ints(-128, 128, 16, 6, dtype=torch.int8)
    rows, columns = g(5, dtype=F32).abs() * 1e-2, g(6).abs() * 1e-2
    value = (product(a, b).float() * columns.float() * rows.unsqueeze(1)).bfloat16()
    want = torch.nn.functional.gelu(value)
    return Call(npu("npu_quant_matmul_gelu"), (a, b, rows, columns), want=want)


@case(HALF)
def grouped_add(g):
    x, w, y, ends = g(9, 4), g(9, 5), g(8, 5, dtype=F32), torch.tensor([4, 9])
    parts = [x[:4].float().t() @ w[:4].float(), x[4:].float().t() @ w[4:].float()]
    want = y + torch.cat(parts).half().float()

    def op(x, w, y, ends):
        out = torch_npu.npu_grouped_matmul_add(y, x, w, ends)
        torch_npu.npu_grouped_matmul_add_(y, x, w, ends)
        return out

    return Call(op, (x, w, y, ends), want=want, left={2: want}, bounds=BF16)


@case(F32)
def finalized(g):
    x, w = g.ints(-9, 9, 8, 16, dtype=torch.int8), g.ints(-9, 9, 2, 16, 6, dtype=torch.int8)
    scale, token, logit, shared = g(2, 6), g(8).abs(), g(8), g(2, 6, dtype=BF16)
    counts, row = torch.tensor([3, 5]), torch.tensor([0, 2, 3, 0, 1, 1, 2, 3])
    rows = torch.cat([product(x[:3], w[0]).float() * scale[0], product(x[3:], w[1]).float() * scale[1]])
    want = torch.zeros(4, 6).index_add(0, row, rows * (token * logit).unsqueeze(1))
    want[1:3] += 0.5 * shared.float()

    def op(x, w, counts, scale, token, shared, logit, row):
        return torch_npu.npu_grouped_matmul_finalize_routing(
            x, w, counts, scale=scale, pertoken_scale=token, shared_input=shared, logit=logit, row_index=row,
            shared_input_weight=0.5, shared_input_offset=1, output_bs=4,
        )  # fmt: skip

    return Call(op, (x, w, counts, scale, token, shared, logit, row), want=want, bounds=HALF)


@case(F32)
def feed_forward(g):
    x, w1, b1, w2 = g(7, 8), g(3, 8, 12), g(3, 12), g(3, 12, 5)
    act = torch.nn.functional.silu

    def op(x, w1, b1, w2):
        return (
            torch_npu.npu_ffn(x, w1, w2, "silu", expert_tokens=[2, 0, 5], bias1=b1),
            torch_npu.npu_ffn(x, w1[0], w2[0], "relu"),
        )

    parts = [act(x[a:b] @ w1[e] + b1[e]) @ w2[e] for e, (a, b) in enumerate(((0, 2), (2, 2), (2, 7)))]
    return Call(op, (x, w1, b1, w2), want=(torch.cat(parts), (x @ w1[0]).relu() @ w2[0]), bounds=HALF)


@case(HALF)
def low_rank(g):
    y, x, a, b = g(5, 10), g(5, 8), g(3, 2, 4, 8), g(3, 2, 6, 4)
    index = torch.tensor([0, 2, 1, 3, 0], dtype=torch.int32)

    def op(y, x, b, index, a):
        out = torch_npu.npu_batch_gather_matmul(y, x, b, index, a, 1, 0.5, 2, 6)
        torch_npu.npu_batch_gather_matmul_(y, x, b, index, a, 1, 0.5, 2, 6)
        return out

    want = y.float().clone()
    for row, which in enumerate(index.tolist()):
        if which < 3:  # the others have no weights
            hidden = (a[which, 1].float() @ x[row].float()).half().float()
            want[row, 2:8] += 0.5 * (b[which, 1].float() @ hidden)
    return Call(op, (y, x, b, index, a), want=want.half(), left={0: want.half()}, bounds=BF16)


@case(F32)
def group_quant(g):
    x, scale, ends, offset = g(7, 8), g(3, 8) * 20, torch.tensor([2, 2, 6], dtype=torch.int32), g(1)
    scales = scale[[0, 0, 2, 2, 2, 2, 2]]
    want = (x * scales + offset).round().clamp(-128, 127).to(torch.int8)
    want[6] = 0  # of no group
    return Call(npu("npu_group_quant"), (x, scale, ends), {"offset": offset}, want=want)


@case(BF16)
def quant_scatter(g):
    cache, rows = torch.zeros(3, 2, 6, 8, dtype=torch.int8), g(3, 2, 2, 8)
    places = torch.tensor([1, 4, 0], dtype=torch.int32)
    scale = g(8).abs() * 0.1 + 0.02

    def op(cache, places, rows, scale):
        out = torch_npu.npu_quant_scatter(cache, places, rows, scale)
        torch_npu.npu_quant_scatter_(cache, places, rows, scale)
        return out

    want = cache.clone()
    values = (rows.float() / scale.float()).round().clamp(-128, 127).to(torch.int8)
    for number, place in enumerate(places.tolist()):
        want[number, :, place : place + 2] = values[number]
    return Call(op, (cache, places, rows, scale), want=want, left={0: want})


@case(F32)
def lstm_cell(g):
    x, wi, wh, h, c, bi, bh, gy, gc = g(3, 4), g(4, 20), g(5, 20), g(3, 5), g(3, 5), g(20), g(20), g(3, 5), g(3, 5)

    def cell(x, wi, wh, h, c, bi, bh):
        return torch._VF.lstm_cell(x, (h, c), wi.t(), wh.t(), bi, bh)

    def op(x, wi, wh, h, c, bi, bh, gy, gc):
        y, hidden, cell, *gates = torch_npu.npu_lstm_cell(x, wi, wh, h, c, bi, bh)
        back = torch_npu.npu_lstm_cell_backward(gy, None, gc, x, wi, wh, h, c, y, hidden, cell, *gates)
        return y, hidden, cell, *back

    leaves = [each.clone().requires_grad_() for each in (x, wi, wh, h, c, bi, bh)]
    new = cell(*leaves)
    of = torch.autograd.grad(new, leaves, (gy, gc))
    want = (new[0].detach(), new[0].detach(), new[1].detach(), of[0], of[1], of[2], of[5], of[6], of[3], of[4])
    return Call(op, (x, wi, wh, h, c, bi, bh, gy, gc), want=want)


@pytest.mark.parametrize("key", case)
def test_eager_traced_and_captured(key):
    case.run(key)
