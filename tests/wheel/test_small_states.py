# SPDX-License-Identifier: Apache-2.0
"""Convolutions with states, packed tensors, checked products and attention of 8 bits, as the package calls them: types,
shapes and the order of arguments."""

import os
import subprocess
import sys

import pytest
import torch
import torch_npu

HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


def ints(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def sequences(x, weight, states, lengths, lines, offsets=None, computed=None, mode="default", residual=0):
    """Results of sequences that lie end to end, and the states that they leave; line -1: left out."""
    states, out, begin = states.clone(), torch.zeros_like(x), 0
    for b, length in enumerate(lengths):
        part, line = x[begin:begin + length], lines[b]
        begin += length
        if line < 0:
            continue
        offset = states.shape[1] - 2 if offsets is None else offsets[b]
        history = states[line, :offset + 2]
        if computed is not None and computed[b] == 0:
            offset, history = 0, torch.zeros_like(states[line, :2])
        seen = torch.cat([history, part])
        kept = min(len(seen), states.shape[1])
        states[line, states.shape[1] - kept:] = seen[len(seen) - kept:]
        seen = seen[offset:].float()
        y = sum(weight[w].float() * seen[w:w + length] for w in range(3))
        if mode == "pangu":
            y[:max(2 - computed[b], 0)] = 0
        out[begin - length:begin] = y + part.float() * residual
    return out, states


def close(found, wanted):
    torch.testing.assert_close(found.cpu(), wanted, rtol=0.01, atol=0.02)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_convolution_of_prompts(dtype):
    x, weight, states = torch.randn(19, 128, dtype=dtype), torch.randn(3, 128, dtype=dtype), torch.randn(8, 2, 128, dtype=dtype)
    there = states.npu()
    y = torch_npu.npu_fused_causal_conv1d(x.npu(), weight.npu(), there, query_start_loc=ints(0, 5, 8, 15, 19).npu(),
                                          cache_indices=ints(0, 3, -1, 5).npu(), residual_connection=1, pad_slot_id=-1)
    wanted, left = sequences(x, weight, states, [5, 3, 7, 4], [0, 3, -1, 5], residual=1)
    close(y, wanted)
    assert torch.equal(there.cpu(), left)


@pytest.mark.parametrize("dtype", HALVES)
def test_a_convolution_in_place_with_tokens_that_were_given_up(dtype):
    x, weight, states = torch.randn(3, 4, 128, dtype=dtype), torch.randn(3, 128, dtype=dtype), torch.randn(4, 5, 128, dtype=dtype)
    there, left_there = x.npu(), states.npu()
    torch.ops.npu.npu_fused_causal_conv1d_v2(
        there, weight.npu(), left_there, cache_indices=ints(3, 0, 2).npu(), num_accepted_tokens=ints(1, 4, 2).npu(),
        num_computed_tokens=ints(9, 0, 1).npu(), residual_connection=1, conv_mode="pangu")
    wanted, left = sequences(x.flatten(0, 1), weight, states, [4] * 3, [3, 0, 2], [0, 3, 1], [9, 0, 1], "pangu", 1)
    close(there, wanted.view(3, 4, 128))
    assert torch.equal(left_there.cpu(), left)


def test_a_convolution_with_blocks_of_a_prefix_cache():
    """One sequence of 300 tokens behind 100: blocks of 128 end at 128 and 256 of the whole, and the last one is begun."""
    x, weight, states = torch.randn(300, 128).half(), torch.randn(3, 128).half(), torch.randn(6, 2, 128).half()
    there = states.npu()
    y = torch_npu.npu_fused_causal_conv1d(
        x.npu(), weight.npu(), there, query_start_loc=ints(0, 300).npu(), cache_indices=ints(4, 1, 5, 2).view(1, 4).npu(),
        num_computed_tokens=ints(100).npu(), block_idx_first_scheduled_token=ints(0).npu(), max_query_len=300,
        block_idx_last_scheduled_token=ints(3).npu(), initial_state_idx=ints(0).npu(), block_size=128)
    whole, left = torch.cat([states[4], x]), states.clone()  # row i is token 98 + i
    left[4], left[1], left[5], left[2] = whole[28:30], whole[156:158], whole[284:286], whole[-2:]
    close(y, sum(weight[w].float() * whole[w:w + 300].float() for w in range(3)).half())
    assert torch.equal(there.cpu(), left)


def test_a_captured_convolution_goes_on_with_its_states():
    x, weight, states = torch.randn(4, 128).half(), torch.randn(3, 128).half(), torch.randn(2, 2, 128).half()
    fixed, there, starts, lines = x.npu(), states.npu(), ints(0, 3, 4).npu(), ints(1, 0).npu()
    by = weight.npu()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = torch_npu.npu_fused_causal_conv1d(fixed, by, there, query_start_loc=starts, cache_indices=lines)
    there.copy_(states)
    for _ in range(3):
        x = torch.randn(4, 128).half()
        fixed.copy_(x)
        graph.replay()
        wanted, states = sequences(x, weight, states, [3, 1], [1, 0])
        close(y, wanted)
        assert torch.equal(there.cpu(), states)


def test_what_a_convolution_refuses():
    x, weight, states = (torch.zeros(*shape).half().npu() for shape in ((4, 128), (3, 128), (2, 2, 128)))
    with pytest.raises(RuntimeError, match="queryStartLocOptional is null"):
        torch_npu.npu_fused_causal_conv1d(x, weight, states)
        torch.npu.synchronize()
    with pytest.raises(RuntimeError, match="numComputedTokensOptional is null, but convMode is 1"):
        torch_npu.npu_fused_causal_conv1d(x, weight, states, query_start_loc=ints(0, 4).npu(), conv_mode="pangu")
        torch.npu.synchronize()


@pytest.mark.parametrize("dtype", (torch.float32, *HALVES))
@pytest.mark.parametrize("reshuff", (False, True))
def test_packed_tensors_come_back(dtype, reshuff):
    x = torch.randn(4, 128, 128).to(dtype)
    x[0, 0, :3] = torch.tensor([float("nan"), float("-inf"), -0.0]).to(dtype)
    there, each = x.npu(), x.element_size()
    pdf = torch.zeros(1, 256, dtype=torch.int32).npu()
    mantissa = torch.zeros(x.numel() * (each - 1) // each, dtype=dtype).npu()
    fixed = torch.zeros(x.numel() if reshuff else 1024, dtype=dtype).npu()
    var = torch.zeros(x.numel(), dtype=dtype).npu()
    torch_npu.npu_hans_encode(there, True, reshuff, out=(pdf, mantissa, fixed, var))
    wide = x.view(torch.int32) >> 23 if dtype == torch.float32 else x.view(torch.int16).int() >> 7
    assert torch.equal(pdf.cpu().view(-1), torch.bincount((wide & 255).flatten(), minlength=256).int())
    got = torch_npu.npu_hans_decode(mantissa, fixed, var, pdf, reshuff, out=torch.zeros_like(there)).cpu()
    assert torch.equal(got.view(torch.uint8), x.view(torch.uint8))
    assert bool((var == 0).all()) == reshuff  # else something went there


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_a_wrong_product_is_found(dtype):
    a, b = torch.randn(20, 64).to(dtype).npu(), torch.randn(64, 600).to(dtype).npu()
    c = (a.cpu().float() @ b.cpu().float()).npu()
    found = torch.ops.npu._npu_matmul_abft_verify(a, b, c, torch.ones(600, dtype=dtype).npu(), e_max=0.001)
    assert found.cpu().tolist() == [255] * 9  # 3 bytes for the rows of each of 3 parts
    c[10, 300] += 50
    found = torch.ops.npu._npu_matmul_abft_verify(a, b, c, torch.ones(600, dtype=dtype).npu(), e_max=0.001)
    assert found.cpu().tolist() == [255] * 4 + [255 - 4] + [255] * 4
    assert bool(torch_npu.matmul_checksum(a, b, c.to(dtype)))


def test_attention_of_8_bits(tmp_path):
    """The package has it on one chip alone, whose name it asks for when it begins."""
    program = tmp_path / "program.py"
    program.write_text(ATTENTION, encoding="utf-8")
    done = subprocess.run([sys.executable, str(program)], env=os.environ | {"REPRISE_SOC": "Ascend950"}, capture_output=True,
                          text=True, timeout=600, check=False)
    assert done.returncode == 0 and "as it should be" in done.stdout, done.stdout + done.stderr


ATTENTION = '''
import torch
import torch_npu

torch.manual_seed(2)
patterns = torch.tensor([0x00, 0x08, 0x10, 0x18, 0x20, 0x88, 0x98], dtype=torch.uint8)
worth = torch.tensor([0.0, 1.0, 2.0, 0.5, 4.0, -1.0, -0.5], dtype=torch.float64)
which = [torch.randint(0, 7, (1, tokens, 2, 16)) for tokens in (130, 300, 300, 130)]
q, k, v, dy = (patterns[w].npu() for w in which)
factors = [torch.rand(1, 2, blocks, 1) + 0.5 for blocks in (2, 2, 1, 2)]
wide = [(worth[w].transpose(1, 2) * f.double().repeat_interleave(block, 2)[:, :, :w.shape[1]])
        for w, f, block in zip(which, factors, (128, 256, 512, 128))]
there = [f.npu() for f in factors]
p, ds = torch.tensor([15.0]).npu(), torch.tensor([3.5]).npu()
out, most, total = torch_npu.npu_quant_fusion_attention(
    q, k, v, 2, "BSND", d_scale_q=there[0], d_scale_k=there[1], d_scale_v=there[2], p_scale=p, scale=0.05,
    query_dtype=torch_npu.hifloat8)[:3]
weights = (0.05 * wide[0] @ wide[1].transpose(2, 3)).softmax(-1)
wanted = weights @ wide[2]
torch.testing.assert_close(out.cpu().double().transpose(1, 2), wanted, rtol=0.03, atol=0.03)
grads = torch_npu.npu_quant_fusion_attention_backward(
    q, k, v, dy, 2, "BSND", *there, p_scale=p, ds_scale=ds, softmax_max=most, softmax_sum=total, attention_in=out,
    scale_value=0.05, query_dtype=torch_npu.hifloat8)[:3]
leaves = [x.clone().requires_grad_() for x in wide[:3]]
((0.05 * leaves[0] @ leaves[1].transpose(2, 3)).softmax(-1) @ leaves[2]).backward(wide[3])
for mine, leaf in zip(grads, leaves):
    off = (mine.cpu().double().transpose(1, 2) - leaf.grad).abs().max()
    assert off < 0.05 * leaf.grad.abs().max(), (off, leaf.grad.abs().max())
print("as it should be")
'''
