# SPDX-License-Identifier: Apache-2.0
"""Recorded and instantiated form of a graph."""
import pytest
import torch
from support import capture


def captured(keep_graph):
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph(keep_graph=keep_graph)
    y = capture(graph, lambda: x + 1)
    return graph, x, y


def check(graph, x, y):
    for value in (3, 7):
        x.fill_(value)
        torch.npu.synchronize()
        graph.replay()
        torch.npu.synchronize()
        assert y.tolist() == [value + 1.0] * 4


def test_TN_099_raw_handles():
    graph, x, y = captured(True)
    assert graph.raw_npu_graph() != 0 and graph.raw_cuda_graph() == graph.raw_npu_graph()
    with pytest.raises(RuntimeError, match="not instantiated"):
        graph.raw_npu_graph_exec()
    graph.instantiate()
    assert graph.raw_npu_graph_exec() != 0 and graph.raw_cuda_graph_exec() == graph.raw_npu_graph_exec()
    check(graph, x, y)


def test_TN_100_replay_instantiates():
    graph, x, y = captured(True)
    check(graph, x, y)
    assert graph.raw_npu_graph_exec() != 0


def test_TN_101_instantiate_twice():
    graph, x, y = captured(True)
    graph.instantiate()
    graph.instantiate()
    check(graph, x, y)
    graph.instantiate()
    check(graph, x, y)


def test_TN_102_not_kept():
    graph, x, y = captured(False)
    with pytest.raises(RuntimeError, match="keep_graph=True"):
        graph.raw_npu_graph()
    with pytest.raises(RuntimeError, match="not kept"):
        graph.instantiate()
    assert graph.raw_npu_graph_exec() != 0
    check(graph, x, y)


def test_TN_103_instantiate_before_the_end():
    graph = torch.npu.NPUGraph(keep_graph=True)
    with pytest.raises(RuntimeError, match="capture_end"):
        graph.instantiate()
    with torch.npu.graph(graph):
        torch.ones(4, device="npu")
        for call in (graph.instantiate, graph.raw_npu_graph, graph.raw_npu_graph_exec, graph.pool, graph.replay):
            with pytest.raises(RuntimeError):
                call()
    graph.instantiate()


def test_TN_104_captured_but_not_instantiated(tmp_path):
    graph, x, y = captured(True)
    assert graph.pool()[0] > 0
    graph.debug_dump(str(tmp_path / "dump.json"))
    assert (tmp_path / "dump.json").stat().st_size > 0
    with pytest.raises(RuntimeError, match="not instantiated"):
        graph.raw_npu_graph_exec()
    check(graph, x, y)
