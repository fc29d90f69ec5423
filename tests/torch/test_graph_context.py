# SPDX-License-Identifier: Apache-2.0
"""``torch.npu.graph``: what entering and leaving it do."""
import contextlib
import gc
import weakref

import pytest
import torch
from support import output_of
from torch_npu.npu import graphs


class Mode:
    """Stands for the dispatch mode of a graph, and notes what is done with it."""

    graph_dispatch_records = ()

    def __init__(self):
        self.log = []

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, *_):
        self.log.append("exit")

    def reset(self):
        self.log.append("reset")


class Recorder(torch.npu.NPUGraph):
    """Notes the order of what is called."""

    def __init__(self, log, fail_begin=False, fail_end=False):
        super().__init__()
        self.log, self.fail_begin, self.fail_end = log, fail_begin, fail_end

    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)

    def capture_begin(self, *args, **kwargs):
        self.log.append("begin")
        if self.fail_begin:
            raise ValueError("begin refused")
        super().capture_begin(*args, **kwargs)

    def capture_end(self):
        self.log.append("end")
        super().capture_end()
        if self.fail_end:
            raise ValueError("end refused")


def test_TN_073_body_raises():
    graph = torch.npu.NPUGraph()
    before = torch.npu.current_stream()
    error = KeyError("mine")
    x = torch.zeros(4, device="npu")
    with pytest.raises(KeyError) as info:
        with torch.npu.graph(graph):
            x.add_(1)
            raise error
    assert info.value is error
    assert torch.npu.current_stream() == before
    assert not torch.npu.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="KeyError: 'mine'.*captured again"):
        graph.replay()  # holds only what came before the exception
    with torch.npu.graph(graph):
        x.add_(2)
    graph.replay()
    assert x.tolist() == [2.0] * 4


def test_TN_073_dispatch_mode_is_left():
    graph = torch.npu.NPUGraph()
    graph.graph_dispatch_mode = mode = Mode()
    with pytest.raises(KeyError):
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            assert mode.log == ["enter"]
            raise KeyError
    assert mode.log == ["enter", "exit"]
    graph.reset()
    assert mode.log == ["enter", "exit", "reset"]


def test_TN_074_body_and_end_fail():
    graph = Recorder([], fail_end=True)
    before = torch.npu.current_stream()
    with pytest.raises(KeyError) as info:
        with torch.npu.graph(graph):
            torch.ones(4, device="npu")
            raise KeyError("body")
    assert isinstance(info.value.__context__, ValueError)
    assert torch.npu.current_stream() == before
    with pytest.raises(ValueError, match="end refused"):
        with torch.npu.graph(Recorder([], fail_end=True)):
            torch.ones(4, device="npu")
    assert torch.npu.current_stream() == before


def test_TN_093_order_of_entering(monkeypatch):
    log = []

    def noting(name, function):
        def call(*args, **kwargs):
            log.append(name)
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(torch.npu, "synchronize", noting("synchronize", torch.npu.synchronize))
    monkeypatch.setattr(graphs.memory, "empty_cache", noting("empty_cache", graphs.memory.empty_cache))
    monkeypatch.setattr(graphs.memory, "host_empty_cache", noting("host_empty_cache", graphs.memory.host_empty_cache))
    monkeypatch.setattr(graphs.gc, "collect", noting("collect", gc.collect))
    graph = Recorder(log)
    graph.graph_dispatch_mode = Mode()
    graph.graph_dispatch_mode.log = log
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        torch.ones(4, device="npu")
    assert log == ["synchronize", "empty_cache", "host_empty_cache", "enter", "begin", "end", "exit"]
    del log[:]
    monkeypatch.setattr(graphs, "force_npugraph_gc", True)
    with torch.npu.graph(Recorder(log)):
        torch.ones(4, device="npu")
    assert log == ["synchronize", "collect", "empty_cache", "host_empty_cache", "begin", "end"]


def test_TN_093_caches_and_cycles():
    class Node:
        pass

    def cycle():
        node = Node()
        node.me = node
        node.memory = torch.ones(32 << 20, device="npu")
        return weakref.ref(node)

    torch.npu.synchronize()
    gc.collect()
    gc.disable()
    try:
        dead = cycle()
        cached = torch.ones(32 << 20, device="npu")
        del cached
        held = torch.accelerator.memory_reserved()
        with torch.npu.graph(torch.npu.NPUGraph()):
            torch.ones(4, device="npu")
        assert dead() is not None  # nobody asked for a collection
        assert torch.accelerator.memory_reserved() <= held - (100 << 20)  # what was cached is gone
    finally:
        gc.enable()
        gc.collect()


def test_TN_093_switch_of_the_collection():
    code = """
        import torch
        from torch_npu.npu import graphs
        print(graphs.force_npugraph_gc)
    """
    assert output_of(code, fresh=True, TORCH_NPUGRAPH_GC=1) == "True"
    assert graphs.force_npugraph_gc is False


def test_TN_094_one_side_stream_for_all():
    seen = []
    for _ in range(2):
        context = torch.npu.graph(torch.npu.NPUGraph())
        with context:
            seen.append(torch.npu.current_stream())
            torch.ones(4, device="npu")
        assert context.capture_stream == torch.npu.graph.default_capture_stream
    assert seen[0] == seen[1] == torch.npu.graph.default_capture_stream
    assert isinstance(torch.npu.graph.default_capture_stream, torch.npu.Stream)


def test_TN_095_explicit_stream():
    stream, outer = torch.npu.Stream(), torch.npu.Stream()
    with torch.npu.stream(outer):
        with torch.npu.graph(torch.npu.NPUGraph(), stream=stream):
            assert torch.npu.current_stream() == stream
            torch.ones(4, device="npu")
        assert torch.npu.current_stream() == outer


def test_TN_096_positions_of_arguments():
    graph = torch.npu.NPUGraph()
    pool, stream = torch.npu.graph_pool_handle(), torch.npu.Stream()
    context = torch.npu.graph(graph, pool, stream, True)
    assert graph.auto_dispatch_capture is True and context.auto_dispatch_capture is True
    assert context.pool == (pool,) and context.capture_stream == stream
    assert context.capture_error_mode == "global"
    assert torch.npu.graph(graph, pool, stream, False, "relaxed").capture_error_mode == "relaxed"
    assert graph.auto_dispatch_capture is False
    assert torch.npu.NPUGraph().auto_dispatch_capture is False


def test_TN_097_begin_fails():
    before = torch.npu.current_stream()
    graph = Recorder([], fail_begin=True)
    graph.graph_dispatch_mode = mode = Mode()
    with pytest.raises(ValueError, match="begin refused"):
        with torch.npu.graph(graph, auto_dispatch_capture=True):
            pytest.fail("the body ran")
    assert mode.log == ["enter", "exit"]
    assert torch.npu.current_stream() == before
    with pytest.raises(RuntimeError, match="global"):
        with torch.npu.graph(torch.npu.NPUGraph(), capture_error_mode="none"):
            pytest.fail("the body ran")
    assert torch.npu.current_stream() == before


def test_TN_098_inside_another_capture():
    x = torch.zeros(4, device="npu")
    outer = torch.npu.NPUGraph()
    with torch.npu.graph(outer):
        x.add_(1)
        with pytest.raises(RuntimeError, match="captur"):
            with torch.npu.graph(torch.npu.NPUGraph()):
                pytest.fail("the body ran")
        x.add_(1)
    outer.replay()
    torch.npu.synchronize()
    assert x.tolist() == [2.0] * 4


def test_TN_105_subclasses():
    class Named(torch.npu.NPUGraph):
        def __new__(cls, name, keep_graph=False):
            return super().__new__(cls, keep_graph)

        def __init__(self, name, keep_graph=False):
            super().__init__(keep_graph)
            self.name = name

    class Careless(torch.npu.NPUGraph):
        def __new__(cls, *_, **__):
            return super().__new__(cls)

        def __init__(self, *_, **__):
            pass

    x = torch.ones(4, device="npu")
    for graph in (Named("a"), Named("a", keep_graph=True), Careless(1, key=2)):
        with torch.npu.graph(graph):
            y = x + 1
        graph.replay()
        torch.npu.synchronize()
        assert y.tolist() == [2.0] * 4
    named = Named("a", True)
    with torch.npu.graph(named):
        x + 1
    assert named.raw_npu_graph() != 0


def test_update_needs_auto_dispatch():
    with pytest.raises(RuntimeError, match="auto_dispatch_capture"):
        torch.npu.NPUGraph().update([{}])


def test_contexts_in_a_stack():
    x = torch.zeros(4, device="npu")
    for _ in range(3):
        with contextlib.ExitStack() as stack:
            graph = torch.npu.NPUGraph()
            stack.enter_context(torch.npu.graph(graph))
            x.add_(1)
        graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [3.0] * 4
