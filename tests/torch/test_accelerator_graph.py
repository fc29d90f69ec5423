# SPDX-License-Identifier: Apache-2.0
"""``torch.accelerator.Graph`` on this device."""
import gc

import pytest
import torch
from support import capture


def accelerator_capture(graph, work):
    with torch.Stream(device="npu"), graph:
        return work()


def test_TN_326_capture_and_replay():
    x = torch.zeros(16, device="npu")
    graph = torch.accelerator.Graph()
    y = accelerator_capture(graph, lambda: x * 2 + 1)
    for value in range(3):
        x.fill_(value)
        torch.npu.synchronize()
        graph.replay()
        torch.npu.synchronize()
        assert y.tolist() == [2.0 * value + 1] * 16


def test_TN_327_random_numbers():
    graph = torch.accelerator.Graph()
    torch.manual_seed(5)
    y = accelerator_capture(graph, lambda: torch.rand(64, device="npu") + torch.randn(64, device="npu"))
    torch.manual_seed(5)
    eager = [(torch.rand(64, device="npu") + torch.randn(64, device="npu")).cpu() for _ in range(3)]
    torch.manual_seed(5)
    for wanted in eager:
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(y.cpu(), wanted)


def test_TN_328_default_stream():
    x = torch.zeros(4, device="npu")
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="non-default stream"):
        with graph:
            pytest.fail("the body ran")
    y = accelerator_capture(graph, lambda: x + 1)
    graph.replay()
    torch.npu.synchronize()
    assert y.tolist() == [1.0] * 4


def test_TN_329_it_is_not_handed_out():
    x = torch.zeros(4, device="npu")
    graph = torch.accelerator.Graph()

    def work():
        with pytest.raises(RuntimeError, match="torch.accelerator.Graph"):
            torch.npu.NPUGraph.get_currently_capturing_graph()
        return x + 1

    y = accelerator_capture(graph, work)
    graph.replay()
    torch.npu.synchronize()
    assert y.tolist() == [1.0] * 4


def test_TN_330_pools():
    x = torch.zeros(4, device="npu")
    pool = torch.npu.graph_pool_handle()
    graph = torch.accelerator.Graph(pool=pool)
    y = accelerator_capture(graph, lambda: x + 1)
    assert tuple(graph.pool()) == pool
    other = torch.npu.NPUGraph()
    z = capture(other, lambda: x + 2, pool=graph.pool())
    assert other.pool() == pool
    graph.replay()
    other.replay()
    torch.npu.synchronize()
    assert y.tolist() == [1.0] * 4 and z.tolist() == [2.0] * 4


@pytest.mark.parametrize("instantiate", [True, False])
def test_TN_331_keep_graph(instantiate):
    x = torch.zeros(4, device="npu")
    graph = torch.accelerator.Graph(keep_graph=True)
    y = accelerator_capture(graph, lambda: x + 1)
    if instantiate:
        graph.instantiate()
    graph.replay()
    torch.npu.synchronize()
    assert y.tolist() == [1.0] * 4
    with pytest.raises(RuntimeError, match="not kept"):
        plain = torch.accelerator.Graph()
        accelerator_capture(plain, lambda: x + 1)
        plain.instantiate()


def test_TN_332_begun_twice():
    x = torch.zeros(4, device="npu")
    graph = torch.accelerator.Graph()

    def work():
        with pytest.raises(RuntimeError, match="already capturing"):
            graph.capture_begin()
        return x + 1

    y = accelerator_capture(graph, work)
    graph.replay()
    torch.npu.synchronize()
    assert y.tolist() == [1.0] * 4


def test_TN_333_end_fails():
    x = torch.zeros(4, device="npu")
    graph = torch.accelerator.Graph()
    side = torch.npu.Stream()

    def work():
        event = torch.npu.Event()
        event.record()
        event.wait(side)
        with torch.npu.stream(side):
            x + 1

    with pytest.raises(RuntimeError):
        accelerator_capture(graph, work)
    graph.reset()
    # Not its own any more: another graph's capture is handed out.
    plain = torch.npu.NPUGraph()
    with torch.npu.graph(plain):
        assert torch.npu.NPUGraph.get_currently_capturing_graph() is plain
        x + 1
    y = accelerator_capture(graph, lambda: x + 1)
    graph.replay()
    torch.npu.synchronize()
    assert y.tolist() == [1.0] * 4


def test_TN_334_memory_functions_agree():
    x = torch.ones(1 << 20, device="npu")
    torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() == torch.npu.memory_allocated() > 0
    assert torch.accelerator.memory_reserved() == torch.npu.memory_reserved()
    ours, theirs = torch.npu.memory_stats(), torch.accelerator.memory_stats()
    common = [key for key in theirs if key in ours]
    assert len(common) > 50
    assert all(ours[key] == theirs[key] for key in common)
    del x
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() == torch.npu.memory_reserved()


@pytest.mark.parametrize("mode", ["default", "global", "thread_local", "relaxed"])
def test_TN_335_modes(mode):
    x = torch.zeros(4, device="npu")
    graph = torch.accelerator.Graph(capture_error_mode=mode)
    y = accelerator_capture(graph, lambda: x + 1)
    graph.replay()
    torch.npu.synchronize()
    assert y.tolist() == [1.0] * 4


def test_TN_336_destroyed_in_the_middle():
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    with torch.npu.stream(torch.npu.Stream()):
        graph = torch.accelerator.Graph()
        graph.capture_begin()
        x + 1
        del graph
        gc.collect()
        assert not torch.npu.is_current_stream_capturing()
        with pytest.raises(RuntimeError, match="not currently capturing"):
            torch.npu.NPUGraph.get_currently_capturing_graph()
    torch.npu.synchronize()
    plain = torch.npu.NPUGraph()
    with torch.npu.graph(plain):
        assert torch.npu.NPUGraph.get_currently_capturing_graph() is plain
        x + 1


def test_dump(tmp_path):
    x = torch.zeros(4, device="npu")
    graph = torch.accelerator.Graph()
    graph.enable_debug_mode()
    accelerator_capture(graph, lambda: x + 1)
    graph.debug_dump(str(tmp_path / "x.json"))
    assert (tmp_path / "x.json").stat().st_size > 0
