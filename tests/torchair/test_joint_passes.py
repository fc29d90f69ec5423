# SPDX-License-Identifier: Apache-2.0
"""npu_fx_pass: what programs write in several operators, as one."""
import warnings

import pytest
import torch
from acl_support import compiled as captured
from acl_support import graphs, operators
from support_ge import compiled, config_of, equal, graphs_of, numbers, types
from torch import nn


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * y.to(x.dtype)


def turned(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


class Layer(nn.Module):
    """A layer of a decoder without a mask."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = Norm(32), nn.Linear(32, 96, bias=False), nn.Linear(32, 32, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
        q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
        weights = torch.softmax(q @ k.transpose(-1, -2) / 4.0, -1, dtype=torch.float32).to(q.dtype)
        return x + self.out((weights @ v).transpose(1, 2).flatten(2))


def arguments(dtype, rows=6):
    angles = torch.arange(rows)[:, None] * torch.rand(8).repeat(2)
    return numbers(2, rows, 32, dtype=dtype), angles.cos()[None, None].to(dtype).npu(), angles.sin()[None, None].to(dtype).npu()


FUSED = ("RmsNorm", "RotaryMul", "FlashAttentionScore")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_TA_089_norms_rotations_and_attention(dtype, dynamic):
    model = Layer().to(dtype).npu()
    values = arguments(dtype)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        expected = model(*values)
        made, result = graphs_of(model, *values, dynamic=dynamic, config=config_of(npu_fx_pass=True))
        equal(result.float(), expected.float(), 1e-4 if dtype == torch.float32 else 5e-2)
        found = types(made[0])
        attention = int(dtype == torch.bfloat16)  # which the operator takes in 16 bits
        assert [found.count(kind) for kind in FUSED] == [1, 2, attention], found
        assert not {"Rsqrt", "Neg"} & set(found) and found.count("SoftmaxV2") == 1 - attention, found
        torch._dynamo.reset()
        plain, _ = graphs_of(model, *values, dynamic=dynamic)
        assert not set(FUSED) & set(types(plain[0]))


def test_TA_089_captured_and_trained():
    model = Layer().to(torch.bfloat16).npu()
    values = arguments(torch.bfloat16)
    with torch.no_grad(), graphs() as made:
        equal(captured(model, experimental_config__npu_fx_pass=True)(*values).float(), model(*values).float(), 5e-2)
    found = operators(made[0])
    names = ("npu_rms_norm", "npu_rotary_mul", "npu_fusion_attention")
    assert [found.get(f"npu.{name}.default") for name in names] == [1, 2, 1], found
    torch._dynamo.reset()
    model, values = model.float(), arguments(torch.float32)
    gradients = []
    for step in (model, compiled(model, config=config_of(npu_fx_pass=True))):
        model.zero_grad()
        step(*values).square().mean().backward()
        gradients.append([each.grad.clone() for each in model.parameters()])
    equal(gradients[1], gradients[0], 1e-3)


def test_TA_089_what_only_looks_like_it_stays():
    x, cos, sin = arguments(torch.float32)
    cos, sin, q = cos.half(), sin.half(), numbers(2, 2, 6, 16, dtype=torch.float16)

    def other_rotation(q):
        return q * cos + torch.cat((q[..., 8:], q[..., :8]), -1) * sin, q * cos + turned(q + 1) * sin

    def other_norm(x):
        return x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6) * x, x * torch.rsqrt((x + 1).pow(2).mean(-1, keepdim=True) + 1e-6) * x[0, 0]

    def other_attention(q):
        weights = torch.softmax(q @ q.transpose(-1, -2), -2)
        return weights @ q, torch.softmax(q @ (q + 1).transpose(-1, -2), -1), torch.softmax(q @ q[:1, :1].transpose(-1, -2), -1) @ q

    for function, value in ((other_rotation, q), (other_norm, x), (other_attention, q)):
        made, result = graphs_of(function, value, config=config_of(npu_fx_pass=True))
        equal(result, function(value), 5e-3)
        assert not set(FUSED) & set(types(made[0])), types(made[0])
        torch._dynamo.reset()
