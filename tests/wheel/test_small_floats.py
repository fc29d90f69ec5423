# SPDX-License-Identifier: Apache-2.0
"""Floats of 8 bits and Fourier transforms, as the package calls them: types, shapes and the order of arguments."""

import pytest
import torch
import torch.nn.functional as F
import torch_npu

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
PATTERNS = torch.tensor([0x00, 0x08, 0x10, 0x18, 0x20, 0x88, 0x98], dtype=torch.uint8)  # of hifloat8
VALUES = torch.tensor([0.0, 1.0, 2.0, 0.5, 4.0, -1.0, -0.5])
EXACT = {"rtol": 0, "atol": 0}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def hifloat8(*shape):
    """Patterns, and their values."""
    which = torch.randint(0, len(PATTERNS), shape)
    return PATTERNS[which], VALUES[which]


def exponents(blocks, lines):
    """Bytes [blocks, lines, 2], and factors for 32 numbers each, [2 blocks, lines]."""
    bits = torch.randint(125, 130, (blocks, lines, 2), dtype=torch.uint8)
    return bits, (2.0 ** (bits.float() - 127)).permute(0, 2, 1).reshape(2 * blocks, lines)


def values_of_hifloat8(bits):
    """By the product with ones on the diagonal."""
    ones = (torch.eye(bits.shape[1]) * 8).to(torch.uint8).npu()
    sums = torch.zeros(bits.shape).npu()
    return torch_npu.npu_add_quant_matmul_(sums, bits, ones, torch.ones(1).npu(), x1_scale=torch.ones(1).npu(),
                                           x1_dtype=torch_npu.hifloat8, x2_dtype=torch_npu.hifloat8).cpu()


def test_products_of_hifloat8_are_added():
    (x1, a), (x2, b), y = hifloat8(16, 9), hifloat8(16, 12), torch.randn(9, 12)
    scales, there = [torch.rand(1) for _ in range(2)], y.npu()
    got = torch_npu.npu_add_quant_matmul_(there, x1.npu().transpose(0, 1), x2.npu(), scales[1].npu(), x1_scale=scales[0].npu(),
                                          x1_dtype=torch_npu.hifloat8, x2_dtype=torch_npu.hifloat8, group_sizes=[0, 0, 0])
    wanted = y + a.t() @ b * scales[0] * scales[1]
    torch.testing.assert_close(got.cpu(), wanted, **CLOSE)
    torch.testing.assert_close(there.cpu(), wanted, **CLOSE)


@pytest.mark.parametrize("small", (E4M3, E5M2))
def test_products_with_exponents_are_added(small):
    k, m, n = 70, 8, 12
    x1, x2, y = torch.randn(k, m).to(small), torch.randn(k, n).to(E4M3), torch.randn(m, n)
    (e1, f1), (e2, f2) = exponents(2, m), exponents(2, n)
    at = torch.arange(k) // 32
    got = torch_npu.npu_add_quant_matmul(
        y.npu(), x1.npu().transpose(0, 1), x2.npu(), e2.npu(), x1_scale=e1.npu().transpose(0, 1),
        x1_scale_dtype=torch_npu.float8_e8m0fnu, x2_scale_dtype=torch_npu.float8_e8m0fnu, group_sizes=[1, 1, 32])
    torch.testing.assert_close(got.cpu(), y + (x1.float() * f1[at]).t() @ (x2.float() * f2[at]), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("turned", (True, False))
def test_products_of_groups_are_added(turned):
    """The first matrix as [m, k], a view, or as [k, m]."""
    (x1, a), (x2, b), y = hifloat8(16, 8), hifloat8(16, 12), torch.randn(3, 8, 12)
    rows, columns = torch.rand(3), torch.rand(3, 12)
    left = x1.npu().transpose(0, 1) if turned else x1.npu()
    got = torch_npu.npu_add_quant_gmm_(y.npu(), left, x2.npu(), columns.npu(), torch.tensor([5, 5, 14]).npu(), x1_scale=rows.npu(),
                                       x1_dtype=torch_npu.hifloat8, x2_dtype=torch_npu.hifloat8)
    wanted = y.clone()
    for group, part in ((0, slice(0, 5)), (2, slice(5, 14))):
        wanted[group] += a[part].t() @ b[part] * columns[group] * rows[group]
    torch.testing.assert_close(got.cpu(), wanted, **CLOSE)


def test_products_of_groups_with_exponents_are_added():
    k, m, n, counts = 130, 5, 7, [70, 0, 60]
    x1, x2, y = torch.randn(k, m).to(E4M3), torch.randn(k, n).to(E4M3), torch.randn(3, m, n)
    (e1, f1), (e2, f2) = exponents(k // 64 + 3, m), exponents(k // 64 + 3, n)
    got = torch_npu.npu_add_quant_gmm(
        y.npu(), x1.npu().transpose(0, 1), x2.npu(), e2.npu(), torch.tensor(counts).npu(), x1_scale=e1.npu().transpose(0, 1),
        group_list_type=1, x1_scale_dtype=torch_npu.float8_e8m0fnu, x2_scale_dtype=torch_npu.float8_e8m0fnu)
    wanted, begin = y.clone(), 0
    for group, count in enumerate(counts):
        rows = torch.arange(begin, begin + count)
        at = 2 * (begin // 64 + group) + (rows - begin) // 32
        wanted[group] += (x1.float()[rows] * f1[at]).t() @ (x2.float()[rows] * f2[at])
        begin += count
    torch.testing.assert_close(got.cpu(), wanted, rtol=1e-4, atol=1e-3)


def blocks_of_groups(x, ends, rows, top):
    """Numbers to store and steps, blocks of `rows` rows and 128 columns."""
    m, n = x.shape
    steps, numbers, begin = torch.zeros(m // rows + len(ends), -(-n // 128)), torch.zeros(m, n), 0
    for group, end in enumerate(ends):
        for at in range(begin, end, rows):
            for column in range(0, n, 128):
                place = slice(at, min(at + rows, end)), slice(column, column + 128)
                step = x[place].float().abs().max() / top
                steps[begin // rows + group + (at - begin) // rows, column // 128] = step
                numbers[place] = x[place].float() / step
        begin = end
    return numbers, steps


def test_blocks_of_groups():
    x, ends = torch.randn(300, 200).half(), [2, 2, 140, 300]
    for small, number in ((E4M3, 292), (E5M2, 291)):
        y, scale = torch_npu.npu_grouped_dynamic_block_quant(x.npu(), torch.tensor(ends, dtype=torch.int32).npu(), dst_type=number,
                                                             row_block_size=128)
        numbers, steps = blocks_of_groups(x, ends, 128, torch.finfo(small).max)
        torch.testing.assert_close(scale.cpu(), steps, **EXACT)
        torch.testing.assert_close(y.cpu().float(), numbers.to(small).float(), **EXACT)


def gated(x, limit):
    a, b = x.chunk(2, -1)
    return F.silu(a.clamp(max=limit)) * b.clamp(-limit, limit)


def test_gated_rows_become_hifloat8():
    x, weight, counts = torch.randn(6, 32), torch.rand(6, 1), [2, 0, 3]
    v = gated(x, 0.7) * weight
    v[5:] = 0  # beyond the groups
    steps = torch.tensor([v[:2].abs().max(), 1e-8, v[2:5].abs().max()]) / 15
    y, scale, origin = torch_npu.npu_swiglu_group_quant(
        x.npu(), weight=weight.npu(), group_index=torch.tensor(counts).npu(), quant_mode=3, dst_type=torch_npu.hifloat8,
        clamp_limit=0.7, dst_type_max=15.0, output_origin=True)
    torch.testing.assert_close(scale.cpu(), steps, **CLOSE)
    torch.testing.assert_close(origin.cpu(), v, **CLOSE)
    each = torch.cat([steps[:1].expand(2), steps[2:].expand(3), torch.ones(1)]).unsqueeze(-1)
    got = values_of_hifloat8(y)
    assert ((got - v / each).abs() <= (v / each).abs() / 8 + 1e-6).all() and got.abs().max() <= 15
    given = torch.tensor([0.5])
    y, scale, _ = torch_npu.npu_swiglu_group_quant(x.npu(), scale=given.npu(), quant_mode=2, dst_type=torch_npu.hifloat8)
    a, b = x.chunk(2, -1)
    wanted = F.silu(a) * b / given
    assert scale.numel() == 0 and ((values_of_hifloat8(y) - wanted).abs() <= wanted.abs() / 8 + 1e-6).all()


def test_gradients_of_gated_rows():
    x, weight, grad = torch.randn(6, 32), torch.rand(6, 1), torch.randn(6, 16)
    here = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    v = gated(here[0], 0.7)
    (v * here[1] * grad)[:5].sum().backward()
    got = torch_npu.npu_swiglu_group_quant_backward(grad.npu(), x.npu(), weight=weight.npu(), y_origin=v.detach().npu(),
                                                    group_index=torch.tensor([2, 3]).npu(), clamp_limit=0.7)
    for mine, leaf in zip(got, here, strict=True):
        torch.testing.assert_close(mine.cpu(), leaf.grad, **CLOSE)


@pytest.mark.parametrize("mode", ("contiguous", "page"))
def test_queries_keys_and_values_are_turned_into_caches(mode):
    b, s, heads, d = 2, 3, 2, 8
    x, weight, row = torch.randint(-200, 200, (b, s, 64), dtype=torch.int32), torch.rand(64) / 100, torch.rand(b * s)
    cos, sin = torch.randn(b, s, 1, d).half(), torch.randn(b, s, 1, d).half()
    caches = [torch.zeros(b, 7, heads, d, dtype=torch.int8) for _ in range(2)]
    scales, offset = [torch.rand(d) * 20 for _ in range(2)], torch.rand(d) * 4
    slots = torch.tensor([4, 1]) if mode == "contiguous" else torch.tensor([13, 2, 4, 0, 7, 9])
    got = torch_npu.npu_dequant_rope_quant_kvcache(
        x.npu(), cos.npu(), sin.npu(), *[cache.npu() for cache in caches], slots.to(torch.int32).npu(), scales[0].npu(), scales[1].npu(),
        [32, 16, 16], offset_k=offset.npu(), weight_scale=weight.npu(), activation_scale=row.npu(), kv_output=True, cache_mode=mode)
    q, k, v = (part.unflatten(-1, (-1, d)) for part in (x.float() * weight * row.view(b, s, 1)).split([32, 16, 16], -1))
    q, k = (part * cos.float() + torch.cat([-part[..., d // 2:], part[..., :d // 2]], -1) * sin.float() for part in (q, k))
    for mine, part in zip(got[:3], (q, k, v), strict=True):
        torch.testing.assert_close(mine.cpu().float(), part, rtol=2e-3, atol=2e-3)
    for mine, part, scale, add in zip(got[3:], (k, v), scales, (offset, 0), strict=True):
        wanted, rows = torch.zeros(b * 7, heads, d), (part * scale + add).clamp(-128, 127).flatten(0, 1)
        for token in range(b * s):
            wanted[slots[token] if mode == "page" else token // s * 7 + slots[token // s] + token % s] = rows[token]
        assert ((mine.cpu().float().flatten(0, 1) - wanted).abs() <= 0.51).all()


@pytest.mark.parametrize("width, onesided, normalized", ((16, True, False), (11, False, True)))
def test_transforms_of_windows(width, onesided, normalized):
    x, window = torch.randn(2, 100), torch.hann_window(width)
    settings = {"win_length": width, "onesided": onesided, "normalized": normalized, "return_complex": True}
    got = torch.stft(x.npu(), 16, 5, window=window.npu(), **settings)
    torch.testing.assert_close(got.cpu(), torch.stft(x, 16, 5, window=window, **settings), **CLOSE)


@pytest.mark.parametrize("norm", ("backward", "forward", "ortho"))
def test_transforms_of_real_numbers(norm):
    x = torch.randn(3, 10, 4)
    torch.testing.assert_close(torch.fft.rfft(x.npu(), 12, 1, norm).cpu(), torch.fft.rfft(x, 12, 1, norm), **CLOSE)


def test_captured_once_and_replayed():
    """A replay takes the numbers that are there then."""
    x, ends = torch.zeros(6, 128).half().npu(), torch.tensor([2, 6], dtype=torch.int32).npu()
    x1, x2, sums = torch.zeros(16, 8, dtype=torch.uint8).npu(), torch.zeros(16, 8, dtype=torch.uint8).npu(), torch.zeros(8, 8).npu()
    one, graph = torch.ones(1).npu(), torch.npu.NPUGraph()
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        y, scale = torch_npu.npu_grouped_dynamic_block_quant(x, ends, dst_type=292)
        torch_npu.npu_add_quant_matmul_(sums, x1.transpose(0, 1), x2, one, x1_scale=one, x1_dtype=torch_npu.hifloat8,
                                        x2_dtype=torch_npu.hifloat8)
    wanted_sums = torch.zeros(8, 8)
    for _ in range(2):
        rows, (left, a), (right, b) = torch.randn(6, 128).half(), hifloat8(16, 8), hifloat8(16, 8)
        x.copy_(rows)
        x1.copy_(left)
        x2.copy_(right)
        graph.replay()
        numbers, steps = blocks_of_groups(rows, [2, 6], 1, 448)
        torch.testing.assert_close(scale.cpu(), steps, **EXACT)
        torch.testing.assert_close(y.cpu().float(), numbers.to(E4M3).float(), **EXACT)
        wanted_sums += a.t() @ b
        torch.testing.assert_close(sums.cpu(), wanted_sums, **CLOSE)


def test_what_is_not_there_is_refused_with_a_sentence():
    with pytest.raises(RuntimeError, match="roundModeOptional is 'hybrid'"):
        torch_npu.npu_grouped_dynamic_block_quant(torch.zeros(2, 8).half().npu(), torch.tensor([2], dtype=torch.int32).npu(),
                                                  round_mode="hybrid", dst_type=290)
        torch.npu.synchronize()
