# SPDX-License-Identifier: Apache-2.0
"""Derivatives, threads and captures."""
import threading

import pytest
import torch

from support import PATIENCE, output_of

DEVICE = "npu"


def test_TN_291_the_backward_pass_is_captured_with_the_forward():
    x = torch.randn(4, 3, device=DEVICE)
    weight = torch.randn(3, 2, device=DEVICE, requires_grad=True)
    bias = torch.zeros(2, device=DEVICE, requires_grad=True)
    forward = torch.npu.NPUGraph()
    with torch.npu.graph(forward):
        (x @ weight + bias).square().sum()
    whole = torch.npu.NPUGraph()
    with torch.npu.graph(whole):
        loss = (x @ weight + bias).square().sum()
        loss.backward()
    address = weight.grad.data_ptr()
    for _ in range(3):
        x.copy_(torch.randn(4, 3))
        weight.grad.fill_(float("nan"))  # the captured pass makes the gradient anew
        whole.replay()
        expected = 2 * x.t() @ (x @ weight + bias)
        torch.testing.assert_close(weight.grad.cpu(), expected.detach().cpu(), rtol=1e-4, atol=1e-5)
        assert weight.grad.data_ptr() == address


def test_TN_292_gradients_alone():
    x = torch.randn(5, device=DEVICE, requires_grad=True)
    seed = torch.ones((), device=DEVICE)
    stream = torch.Stream(device=DEVICE)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:  # the backward pass runs on the stream of the forward pass
        y = x.exp().sum()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=stream):
        (gradient,) = torch.autograd.grad(y, x, seed, retain_graph=True)
    for value in (1.0, 2.0):
        seed.fill_(value)
        graph.replay()
        torch.testing.assert_close(gradient.cpu(), value * x.detach().cpu().exp())


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return factor * x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * ctx.factor * x**2 * gradient, None


def test_TN_293_functions_of_ones_own():
    x = torch.ones(4, device=DEVICE, requires_grad=True)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = Cube.apply(x, 2.0)
        (gradient,) = torch.autograd.grad(y.sum(), x)
    for value in (1.0, 3.0):
        with torch.no_grad():
            x.fill_(value)
        graph.replay()
        assert y.tolist() == [2 * value**3] * 4 and gradient.tolist() == [6 * value**2] * 4


def test_TN_294_the_first_backward_pass_of_a_process_is_captured():
    result = output_of(
        """
        import torch
        x = torch.tensor([1.0, 2.0], device="npu", requires_grad=True)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            x.square().sum().backward()
        with torch.no_grad():
            x += 1
        graph.replay()
        print(x.grad.tolist())
        """
    )
    assert result == "[4.0, 6.0]"


def test_TN_295_gradients_accumulate_once_per_replay():
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    x.grad = torch.zeros_like(x)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = (x * 2).sum()
        y.backward(retain_graph=True)
        y.backward()
    for replays in (1, 2, 3):
        graph.replay()
        assert x.grad.tolist() == [4.0 * replays] * 3


@pytest.mark.parametrize("mode", ["relaxed", "thread_local"])
def test_TN_298_two_threads_capture_at_once(mode):
    graphs = [torch.npu.NPUGraph() for _ in range(2)]
    inputs = [torch.full((8,), float(i + 1), device=DEVICE) for i in range(2)]
    streams = [torch.Stream(device=DEVICE) for _ in range(2)]
    outputs, errors = [None, None], []
    torch.accelerator.synchronize()
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def work(i):
        try:
            with streams[i]:
                barrier.wait()
                graphs[i].capture_begin(capture_error_mode=mode)
                barrier.wait()  # both are open now
                outputs[i] = inputs[i] * 10
                outputs[i] = outputs[i] + i
                barrier.wait()
                graphs[i].capture_end()
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    for _ in range(2):
        for i in range(2):
            inputs[i] += 1
            graphs[i].replay()
            assert outputs[i].tolist() == [inputs[i][0].item() * 10 + i] * 8


def test_TN_300_threads_allocate_during_a_capture():
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    stop, errors, counts = threading.Event(), [], [0] * 8
    started = threading.Barrier(9, timeout=PATIENCE)

    def work(i):
        try:
            with torch.Stream(device=DEVICE) as stream:
                kept = []
                started.wait()
                while not stop.is_set() or counts[i] < 20:
                    kept.append(torch.empty((i + 1) * 1000 * (counts[i] % 7 + 1), device=DEVICE))
                    kept[-1].fill_(i)
                    if len(kept) > 5:
                        kept.pop(counts[i] % 5)
                    counts[i] += 1
                stream.synchronize()
                assert all(t[-1].item() == i for t in kept)
        except BaseException as error:
            errors.append(error)

    side = torch.Stream(device=DEVICE)
    torch.accelerator.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    started.wait()
    graph = torch.npu.NPUGraph()
    x = torch.ones(1000, device=DEVICE)
    torch.accelerator.current_stream().synchronize()
    with side:
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(50):
            y = x * 2 + 1
        graph.capture_end()
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, errors
    graph.replay()
    assert y.tolist() == [3.0] * 1000 and min(counts) >= 20
    torch.accelerator.synchronize()
    del x, y, graph, threads
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_allocated() == before


def test_derivatives_follow_the_streams_of_the_forward_pass():
    side = torch.Stream(device=DEVICE)
    main = torch.accelerator.current_stream()
    x = torch.ones(1 << 14, device=DEVICE, requires_grad=True)
    seen = []
    side.wait_stream(main)
    with side:
        y = x * 3
        y.register_hook(lambda gradient: seen.append(torch.accelerator.current_stream().stream_id))
    main.wait_stream(side)
    (y * y).sum().backward()
    assert x.grad.sum().item() == 18 * (1 << 14)
    assert len(seen) == 1


def test_double_backward_and_gradcheck():
    x = torch.randn(3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: (t.sin() * t).sum(), (x,))
    assert torch.autograd.gradgradcheck(lambda t: (t.sin() * t).sum(), (x,))
    layer = torch.nn.Conv1d(2, 2, 3, dtype=torch.float64).to(DEVICE)
    y = torch.randn(1, 2, 6, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (y,))
    assert torch.autograd.gradgradcheck(layer, (y,))
