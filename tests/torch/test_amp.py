# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: what autocast casts, scaling of losses, both inside captures."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "npu"


def test_TN_280_the_scale_follows_the_data_of_each_replay():
    scaler = torch.amp.GradScaler("npu", init_scale=4.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2)
    weight = torch.ones(1, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.0)
    static = torch.zeros(1, device=DEVICE, dtype=torch.float16)
    scaler.scale(torch.zeros(1, device=DEVICE))  # makes the scale
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        loss = (weight.half() * static).sum()
        scaler.scale(loss).backward()
    rows = []
    for value in (5, 20000, 5, 40000):
        static.fill_(value)
        weight.grad.zero_()
        graph.replay()
        gradient = weight.grad.item()
        scaler.step(optimizer)
        scaler.update()
        rows.append((gradient, scaler.get_scale(), scaler._growth_tracker.item()))
    inf = float("inf")
    assert rows == [(20, 4, 1), (inf, 2, 0), (10, 2, 1), (inf, 1, 0)]


def parameters():
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(n, generator=generator).to(DEVICE).requires_grad_() for n in (3, 5)]


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_TN_281_captured_scaler_steps_of_fused_optimizers(name, amsgrad):
    runs = []
    for captured in (False, True):
        params = parameters()
        for p in params:
            p.grad = torch.zeros_like(p)
        optimizer = getattr(torch.optim, name)(params, lr=0.1, amsgrad=amsgrad, fused=True, capturable=captured)
        scaler = torch.amp.GradScaler("npu", init_scale=4.0)
        scaler.scale(torch.zeros(1, device=DEVICE))
        generator = torch.Generator().manual_seed(4)

        def give(params=params, generator=generator):
            for p in params:
                p.grad.copy_(torch.randn(p.shape, generator=generator))

        for _ in range(3):
            give()
            scaler.step(optimizer)
            scaler.update()
        if captured:
            graph = torch.npu.NPUGraph()
            with torch.npu.graph(graph):
                scaler.step(optimizer)
                scaler.update()
        for _ in range(2):
            give()
            if captured:
                graph.replay()
            else:
                scaler.step(optimizer)
                scaler.update()
        runs.append([p.detach().cpu() for p in params])
    for a, b in zip(*runs):
        assert torch.equal(a, b)


def test_TN_282_buffers_of_the_scaler_follow_replays():
    scaler = torch.amp.GradScaler("npu", init_scale=8.0, growth_interval=3)
    weight = torch.ones(2, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.5)
    x = torch.ones(2, device=DEVICE)
    scaler.scale(x)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        scaled = scaler.scale((weight * x).sum())
        scaled.backward()
    trackers = []
    for value in (1.0, 1.0, float("nan"), 1.0):
        x.fill_(value)
        weight.grad.zero_()
        graph.replay()
        before = weight.detach().cpu()
        scaler.unscale_(optimizer)
        found = sum(v.item() for v in scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values())
        assert (found != 0) == (value != 1)
        scaler.step(optimizer)
        assert torch.equal(weight.detach().cpu(), before) == (value != 1)
        scaler.update()
        trackers.append((scaler._growth_tracker.item(), scaler.get_scale()))
    assert trackers == [(1, 8), (2, 8), (0, 4), (1, 4)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_TN_283_autocast_in_captures(dtype):
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4)).to(DEVICE)
    x = torch.randn(3, 6, device=DEVICE)
    types = []

    def work():
        with torch.autocast("npu", dtype=dtype, cache_enabled=False):
            first = model[0](x)
            norm = model[1](first)
            output = model[2](norm)
            loss = output.softmax(-1).square().sum()
        types[:] = [first.dtype, norm.dtype, output.dtype, loss.dtype]
        loss.backward()
        return [loss.detach()] + [p.grad for p in model.parameters()]

    work()
    model.zero_grad(set_to_none=True)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        captured = work()
    assert types == [dtype, torch.float32, dtype, torch.float32]
    x.copy_(torch.randn(3, 6))
    graph.replay()
    ours = [t.cpu() for t in captured]
    model.zero_grad(set_to_none=True)
    for a, b in zip(ours, work()):
        assert torch.equal(a, b.cpu())


def test_autocast_by_policy():
    a = torch.randn(4, 4, device=DEVICE)
    low = a.bfloat16()
    with torch.autocast("npu", dtype=torch.bfloat16):
        assert (a @ a).dtype == F.linear(a, a).dtype == torch.bfloat16
        assert F.conv1d(a[None], a[:, :, None]).dtype == torch.bfloat16
        assert F.scaled_dot_product_attention(a[None], a[None], a[None]).dtype == torch.bfloat16
        assert low.exp().dtype == low.softmax(-1).dtype == F.mse_loss(low, low).dtype == torch.float32
        assert low.sum().dtype == low.norm().dtype == torch.float32
        assert torch.cat([a, low]).dtype == torch.stack([a, low]).dtype == torch.float32
        assert (low + low).dtype == torch.bfloat16
        with torch.autocast("npu", enabled=False):
            assert (a @ a).dtype == torch.float32
    with torch.npu.amp.autocast():
        assert (a @ a).dtype == torch.float16
    with torch.npu.amp.autocast(dtype=torch.bfloat16, cache_enabled=False):
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32


def test_TN_284_binary_cross_entropy_is_refused_under_autocast():
    x = torch.rand(4, device=DEVICE)
    with torch.autocast("npu", dtype=torch.float16):
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            F.binary_cross_entropy(x, x)
        assert F.binary_cross_entropy_with_logits(x, x).dtype == torch.float32
        with torch.autocast("npu", enabled=False):
            assert F.binary_cross_entropy(x, x).item() > 0
    assert F.binary_cross_entropy(x, x).item() > 0


def test_TN_287_scaler_steps_that_read_the_device_are_refused_in_captures():
    weight = torch.ones(2, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.Adam([weight], 0.1, capturable=True, foreach=False)
    scaler = torch.amp.GradScaler("npu")
    scaler.scale(torch.zeros(1, device=DEVICE))
    weight.grad = torch.ones_like(weight)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x = weight.detach() + 1
        with pytest.raises(RuntimeError, match="item"):
            scaler.step(optimizer)
    graph.replay()
    assert x.tolist() == [2, 2]


def test_the_scaler_of_the_device_module():
    with pytest.raises(ValueError, match="growth_factor is 1.0"):
        torch.npu.amp.GradScaler(growth_factor=1.0)
    with pytest.raises(ValueError, match="backoff_factor is 1.5"):
        torch.npu.amp.GradScaler(backoff_factor=1.5)
    assert torch.npu.amp.GradScaler(enabled=False, growth_factor=1.0).scale(3) == 3
    weight = torch.ones(2, device=DEVICE, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 1.0)
    fixed = torch.npu.amp.GradScaler(init_scale=16.0, growth_interval=1, dynamic=False)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        fixed.scale((weight * factor).sum()).backward()
        fixed.step(optimizer)
        fixed.update()
        assert fixed.get_scale() == 16
    assert weight.tolist() == [-1, -1]
    growing = torch.npu.amp.GradScaler(init_scale=16.0, growth_interval=1)
    optimizer.zero_grad()
    growing.scale(weight.sum()).backward()
    growing.step(optimizer)
    growing.update()
    assert growing.get_scale() == 32


def test_custom_forward_and_backward_under_autocast():
    with pytest.warns(FutureWarning, match="custom_fwd is deprecated"):
        cast = torch.npu.amp.custom_fwd(cast_inputs=torch.float32)
    with pytest.warns(FutureWarning, match="custom_bwd is deprecated"):

        class Double(torch.autograd.Function):
            @staticmethod
            @cast
            def forward(ctx, x):
                assert x.dtype == torch.float32 and not torch.is_autocast_enabled("npu")
                return x * 2

            @staticmethod
            @torch.npu.amp.custom_bwd
            def backward(ctx, gradient):
                return gradient * 2

    x = torch.ones(3, device=DEVICE, dtype=torch.float16, requires_grad=True)
    with torch.autocast("npu", dtype=torch.float16):
        y = Double.apply(x)
    y.sum().backward()
    assert y.dtype == torch.float32 and x.grad.tolist() == [2, 2, 2]
