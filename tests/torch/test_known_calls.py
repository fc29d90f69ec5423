# SPDX-License-Identifier: Apache-2.0
"""Calls that are made again and again keep the plan of the device's kernels, which then takes other memory. Whatever else
changes is seen: values of numbers, layouts, which tensors share memory, captures, threads."""
import gc
import itertools
import threading

import pytest
import torch
import torch_npu
from support import Gate, output_of

TIMES = 6  # the first few calls of a kind are prepared anew

CALLS = {
    "add": lambda x, y: x + y,
    "add with alpha": lambda x, y: torch.add(x, y, alpha=3),
    "add to itself": lambda x, y: x + x,
    "a number": lambda x, y: x * 2.5,
    "a number of the host": lambda x, y: x + torch.tensor(2.0),
    "compare": lambda x, y: (x > y).float(),
    "where": lambda x, y: torch.where(x > y, x, y),
    "relu": lambda x, y: torch.relu(x),
    "gelu": lambda x, y: torch.nn.functional.gelu(x),
    "in place": lambda x, y: x.clone().add_(y),
    "in place of a part": lambda x, y: x.clone()[1:3].mul_(y[1:3]),
    "out": lambda x, y: torch.mul(x, y, out=torch.empty_like(x)),
    "out of itself": lambda x, y: (lambda z: torch.mul(z, y, out=z))(x.clone()),
    "broadcast": lambda x, y: x + y[0],
    "turned": lambda x, y: x.t() - y.t(),
    "of several types": lambda x, y: x + y.half(),
    "matmul": lambda x, y: x @ y.t(),
    "addmm": lambda x, y: torch.addmm(x[:, :6], x, y.t()),
    "sum": lambda x, y: x.sum(),
    "sum of a dim": lambda x, y: x.sum(1, keepdim=True),
    "mean": lambda x, y: x.mean(0),
    "max of a dim": lambda x, y: torch.max(x, 1)[1],
    "softmax": lambda x, y: torch.softmax(x, -1),
    "layer norm": lambda x, y: torch.nn.functional.layer_norm(x, (8,), y[0], y[1]),
    "cat": lambda x, y: torch.cat((x, y, x)),
    "stack": lambda x, y: torch.stack((x, y), 1),
    "gather": lambda x, y: torch.gather(x, 1, torch.arange(8, device=x.device).flip(0).expand(6, 8)),
    "embedding": lambda x, y: torch.nn.functional.embedding(torch.tensor([3, 0, 3], device=x.device), x),
    "cumsum": lambda x, y: torch.cumsum(x, 1),
    "sort": lambda x, y: torch.sort(x, 1)[0],
    "nothing": lambda x, y: x[:0] + y[:0],
    "triu": lambda x, y: torch.triu(x),
    "clamp": lambda x, y: x.clamp(-0.5, 0.5),
    "masked fill": lambda x, y: x.masked_fill(y > 0, -1.0),
}

# Calls that are prepared each time; where nothing is computed there is no plan.
PREPARED_ANEW = {"a number of the host", "of several types", "embedding", "sort", "nothing"}


def operands(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 8, generator=generator), torch.randn(6, 8, generator=generator)


@pytest.mark.parametrize("name", CALLS)
def test_each_call_reads_and_writes_its_own_memory(name, npu):
    results, held = [], []
    for seed in range(TIMES):
        x, y = operands(seed)
        on_device = x.npu(), y.npu()
        results.append((CALLS[name](*on_device), CALLS[name](x, y)))
        if seed % 2:
            held.append(on_device)  # so that memory lies elsewhere next time
    for found, expected in results:
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CALLS)
def test_plans_are_moved(name, npu):
    x, y = (t.npu() for t in operands(0))
    for _ in range(TIMES):
        CALLS[name](x, y)
    before = torch_npu._C._times_moved()
    for _ in range(TIMES):
        CALLS[name](x, y)
    moved = torch_npu._C._times_moved() - before
    assert moved == 0 if name in PREPARED_ANEW else moved >= TIMES


@pytest.mark.parametrize("name", ["add", "a number", "matmul", "sum", "layer norm", "cat", "softmax"])
def test_calls_that_wait_keep_their_own_memory(name, npu):
    for seed in range(TIMES):
        CALLS[name](*(t.npu() for t in operands(seed)))
    made = [operands(seed) for seed in range(8)]
    on_device = [(x.npu(), y.npu()) for x, y in made]
    torch.npu.synchronize()
    with Gate():
        found = [CALLS[name](x, y) for x, y in on_device]
    for result, (x, y) in zip(found, made):
        torch.testing.assert_close(result.cpu(), CALLS[name](x, y), rtol=1e-4, atol=1e-4)


def test_numbers_are_seen(npu):
    x = operands(0)[0]
    on_device = x.npu()
    numbers = [2, 3, 2.5, -1, 0]
    for number in numbers * 4 + [n for n in numbers for _ in range(4)]:
        torch.testing.assert_close((on_device * number).cpu(), x * number)
        torch.testing.assert_close(torch.add(on_device, on_device, alpha=number).cpu(), torch.add(x, x, alpha=number))
        torch.testing.assert_close(on_device.clamp(max=number).cpu(), x.clamp(max=number))
        torch.testing.assert_close((on_device > number).cpu(), x > number)


def test_offsets_and_strides_are_seen(npu):
    x = torch.randn(64)
    on_device = x.npu()
    views = [lambda t, n=n, s=s: t[n : n + 16 * s : s] for n in range(4) for s in (1, 2)]
    for _ in range(TIMES):
        for a, b in itertools.product(views, views[:3]):
            torch.testing.assert_close((a(on_device) + b(on_device)).cpu(), a(x) + b(x))


@pytest.mark.parametrize("shape", [(), (5,), (1, 4), (3, 1, 2), (2, 3, 4, 5)])
def test_results_are_laid_out_as_the_first_one_was(npu, shape):
    """Turned, with channels behind, of one element."""
    x = torch.randn(shape)
    views = [x, x.mT if x.dim() > 1 else x, x.to(memory_format=torch.channels_last) if x.dim() == 4 else x, x.flatten()[:1]]
    for view in views:
        on_device = view.npu()
        assert on_device.stride() == view.stride()
        for _ in range(TIMES):
            expected, got = view + view, on_device + on_device
            assert got.stride() == expected.stride() and got.is_contiguous() == expected.is_contiguous()
            assert got.untyped_storage().nbytes() == expected.untyped_storage().nbytes() and got.is_leaf
            torch.testing.assert_close(got.cpu(), expected)
            count = got.numel()
            torch.testing.assert_close(got.resize_(count + 3)[:count].cpu(), expected.resize_(count + 3)[:count])


def test_what_is_refused_is_refused_again(npu):
    x = torch.zeros(16, device="npu")
    y = torch.zeros(4, device="npu")
    for _ in range(TIMES):
        torch.add(x[:4], y, out=x[8:12])
        torch.add(x[:4], y, out=x[:4])
        with pytest.raises(RuntimeError, match="overlap|memory"):
            torch.add(x[:4], y, out=x[1:5])
        with pytest.raises(RuntimeError, match="size"):
            x + x[:3]


def test_an_out_argument_gets_its_size_each_time(npu):
    x = torch.arange(6.0)
    on_device = x.npu()
    for _ in range(TIMES):
        out = torch.empty(0, device="npu")
        torch.mul(on_device, on_device, out=out)
        torch.testing.assert_close(out.cpu(), x * x)


def test_storages_that_share_memory(npu):
    """Storages that do not know of each other: what a call sees of overlaps is where the memory lies."""
    base = torch.arange(64.0).npu()
    one = torch.from_dlpack(torch.utils.dlpack.to_dlpack(base))
    two = torch.from_dlpack(torch.utils.dlpack.to_dlpack(base))
    assert one.untyped_storage()._cdata != two.untyped_storage()._cdata
    expected = torch.arange(64.0)
    apart = torch.ones(64, device="npu")
    for _ in range(TIMES):
        torch.add(one, 1, out=apart)
        torch.testing.assert_close(apart.cpu(), expected + 1)
    for _ in range(TIMES):
        torch.add(one, 1, out=two)
        expected += 1
        torch.testing.assert_close(base.cpu(), expected)


@pytest.mark.parametrize("name", ["add", "a number", "matmul", "sum", "layer norm", "cat"])
def test_a_graph_keeps_what_it_was_captured_with(name, npu):
    call = CALLS[name]
    for seed in range(TIMES):
        call(*(t.npu() for t in operands(seed)))
    x, y = (t.npu() for t in operands(50))
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = call(x, y)
        again = call(y, x)
    for seed in range(TIMES):
        new = operands(60 + seed)
        found = call(*(t.npu() for t in new))
        x.copy_(new[0])
        y.copy_(new[1])
        graph.replay()
        expected = call(*new)
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(result.cpu(), expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(again.cpu(), call(new[1], new[0]), rtol=1e-4, atol=1e-4)
    del graph
    gc.collect()
    torch.testing.assert_close(call(x, y).cpu(), call(*new), rtol=1e-4, atol=1e-4)


def test_several_streams(npu):
    streams = [torch.npu.Stream() for _ in range(3)]
    for seed in range(24):
        x, y = operands(seed)
        with torch.npu.stream(streams[seed % 3]):
            found = x.npu() + y.npu()
            torch.testing.assert_close(found.cpu(), x + y)


def test_threads_have_their_own(npu):
    failed = []

    def work(first):
        try:
            for seed in range(first, first + 40):
                x, y = operands(seed)
                for name in ("add", "a number", "matmul", "sum", "softmax", "cat"):
                    found = CALLS[name](x.npu(), y.npu())
                    torch.testing.assert_close(found.cpu(), CALLS[name](x, y), rtol=1e-4, atol=1e-4)
        except Exception as error:  # of a thread nobody hears
            failed.append(error)

    for first in (0, 1000):  # the second ones begin when the first have ended
        threads = [threading.Thread(target=work, args=(first + 100 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


def test_more_kinds_of_calls_than_are_kept(npu):
    x = torch.arange(3000.0)
    on_device = x.npu()
    for _ in range(4):
        for size in range(1, 3000, 3):
            assert (on_device[:size] + on_device[:size])[-1].item() == 2 * (size - 1)


def test_backward_is_like_the_first_time(npu):
    for seed in range(TIMES):
        x, y = operands(seed)
        on_device = x.npu().requires_grad_()
        (torch.relu(on_device @ y.npu().t()) * 2).sum().backward()
        x.requires_grad_()
        (torch.relu(x @ y.t()) * 2).sum().backward()
        torch.testing.assert_close(on_device.grad.cpu(), x.grad, rtol=1e-4, atol=1e-4)


def test_two_devices():
    code = """
        import torch, torch_npu
        for i in range(12):
            device = f"npu:{i % 2}"
            x = torch.full((4, 4), float(i), device=device)
            y = x + x
            assert y.device == torch.device(device)
            assert (y.cpu() == 2 * i).all()
        print("good")
    """
    assert output_of(code, REPRISE_DEVICES=2) == "good"


def test_each_call_waits_with_launch_blocking():
    code = """
        import torch, torch_npu
        x = torch.ones(4, device="npu")
        for i in range(8):
            x = x + x
        print(x.sum().item())
    """
    assert output_of(code, ASCEND_LAUNCH_BLOCKING=1) == "1024.0"
