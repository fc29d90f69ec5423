# SPDX-License-Identifier: Apache-2.0
"""Capture and replay: what a graph holds, where and how often it runs."""
import gc
import threading
import warnings

import pytest
import torch
from support import capture, output_of


def in_thread(work):
    """Runs ``work`` in another thread and returns its result, or raises what it raised."""
    result = []

    def run():
        try:
            result.append((work(), None))
        except BaseException as error:  # noqa: B036
            result.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    return value


def graph_of(work, **options):
    graph = torch.npu.NPUGraph()
    return graph, capture(graph, work, **options)


def test_TN_037_is_current_stream_capturing():
    assert torch.npu.is_current_stream_capturing() is False
    graph = torch.npu.NPUGraph()
    x = torch.zeros(4, device="npu")
    with torch.npu.graph(graph):
        assert torch.npu.is_current_stream_capturing() is True
        assert in_thread(torch.npu.is_current_stream_capturing) is False
        x += 1
    assert torch.npu.is_current_stream_capturing() is False


def test_TN_038_captured_code_runs_at_replay_only():
    a = torch.full((1000,), 1000.0, device="npu")
    count = torch.zeros((), device="npu")

    def work():
        b = a
        for _ in range(10):
            b = b + 1
        count.add_(1)
        return b

    graph, b = graph_of(work)
    torch.npu.synchronize()
    assert count.item() == 0
    a.fill_(1)
    graph.replay()
    assert b.sum().item() == 11 * 1000
    assert count.item() == 1


def test_TN_039_reset_then_a_new_graph():
    x = torch.ones(8, device="npu")
    first, _ = graph_of(lambda: x + 1)
    first.reset()
    second, y = graph_of(lambda: x * 3)
    second.replay()
    assert y.tolist() == [3.0] * 8
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        first.replay()


def test_TN_040_capture_again_after_reset():
    x = torch.ones(8, device="npu")
    graph = torch.npu.NPUGraph()
    for factor in (2, 3, 4):
        y = capture(graph, lambda: x * factor)
        graph.replay()
        assert y.tolist() == [float(factor)] * 8
        graph.reset()


def test_TN_041_in_place_update_advances_with_each_replay():
    x = torch.zeros(16, device="npu")
    graph, _ = graph_of(lambda: x.add_(1))
    for n in range(1, 8):
        graph.replay()
        assert x.tolist() == [float(n)] * 16


def test_TN_042_replay_on_any_stream():
    x = torch.zeros(16, device="npu")
    graph, y = graph_of(lambda: x + 5)
    raw = torch.npu.Stream()
    streams = [torch.npu.default_stream(), torch.npu.Stream(), torch.npu.ExternalStream(raw.npu_stream)]
    for n, stream in enumerate(streams):
        x.fill_(n)
        torch.npu.synchronize()
        with torch.npu.stream(stream):
            graph.replay()
        torch.npu.synchronize()
        assert y.tolist() == [n + 5.0] * 16


def test_TN_043_replay_from_another_thread():
    x = torch.full((16,), 2.0, device="npu")
    graph, y = graph_of(lambda: x * x)

    def work():
        graph.replay()
        torch.npu.synchronize()

    in_thread(work)
    assert y.tolist() == [4.0] * 16


def test_TN_044_results_outlive_the_graph():
    x = torch.arange(1024, device="npu", dtype=torch.float32)
    graph, y = graph_of(lambda: x * 2 + 1)
    graph.replay()
    torch.npu.synchronize()
    del graph
    gc.collect()
    torch.accelerator.empty_cache()
    others = [torch.full((1024,), -1.0, device="npu") for _ in range(8)]
    assert torch.equal(y.cpu(), torch.arange(1024, dtype=torch.float32) * 2 + 1)
    del others


def test_TN_045_two_graphs_in_turn():
    a = torch.zeros(64, device="npu")
    b = torch.zeros(64, device="npu")
    first, x = graph_of(lambda: a + 1)
    second, y = graph_of(lambda: b * 2)
    for n in range(5):
        a.fill_(n)
        b.fill_(10 * n)
        torch.npu.synchronize()
        first.replay()
        second.replay()
        torch.npu.synchronize()
        assert x.tolist() == [n + 1.0] * 64
        assert y.tolist() == [20.0 * n] * 64


def test_TN_046_scalars_are_baked():
    x = torch.ones(4, device="npu")
    scalar = 3.0
    zero_dim = torch.tensor(4.0)
    graph, (y, z) = graph_of(lambda: (x * scalar, x + zero_dim))
    scalar = 100.0
    zero_dim.fill_(100.0)
    graph.replay()
    assert y.tolist() == [3.0] * 4
    assert z.tolist() == [5.0] * 4


def test_TN_047_views_follow_the_data():
    x = torch.zeros(4, 6, device="npu")

    def work():
        return (
            x.t().contiguous(),
            x[1:3, ::2] + 0,
            x.view(2, 12).sum(1),
            x[:1].expand(4, 6) + 0,
            x.transpose(0, 1)[2:4] * 2,
            x.flatten()[5:9].clone(),
        )

    graph, results = graph_of(work)
    for seed in range(3):
        data = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed))
        x.copy_(data)
        graph.replay()
        expected = (
            data.t().contiguous(),
            data[1:3, ::2],
            data.view(2, 12).sum(1),
            data[:1].expand(4, 6),
            data.transpose(0, 1)[2:4] * 2,
            data.flatten()[5:9],
        )
        for got, wanted in zip(results, expected):
            torch.testing.assert_close(got.cpu(), wanted)  # sums have an order of their own


def test_TN_048_a_thousand_replays_without_waiting():
    x = torch.zeros((), device="npu", dtype=torch.int64)
    graph, _ = graph_of(lambda: x.add_(1))
    for _ in range(1000):
        graph.replay()
    torch.npu.synchronize()
    assert x.item() == 1000


def test_TN_049_empty_capture_warns_and_replays():
    graph = torch.npu.NPUGraph()
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        graph.capture_begin()
        with pytest.warns(UserWarning, match="NPU Graph is empty"):
            graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert len(graph.pool()) == 2


@pytest.mark.parametrize("work", ["operator", "event"])
def test_TN_050_no_warning_when_something_was_captured(work):
    x = torch.zeros(4, device="npu")
    graph = torch.npu.NPUGraph()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.npu.graph(graph):
            if work == "operator":
                x.add_(1)
            else:
                torch.npu.ExternalEvent().record()
    graph.replay()
    torch.npu.synchronize()


def test_TN_051_executions_of_one_graph_do_not_overlap():
    x = torch.zeros((), device="npu", dtype=torch.int64)
    log = torch.zeros(64, device="npu", dtype=torch.int64)

    # Anybody in between would see, or make, an odd number.
    def work():
        x.add_(1)
        y = x.clone()
        for _ in range(20):
            y = y + 0
        log.add_(y % 2)
        x.add_(1)

    graph, _ = graph_of(work)
    streams = [torch.npu.Stream(), torch.npu.Stream()]
    for n in range(100):
        with torch.npu.stream(streams[n % 2]):
            graph.replay()
    torch.npu.synchronize()
    assert x.item() == 200
    assert log.tolist() == [100] * 64


def test_TN_052_work_of_other_threads_is_not_captured():
    x = torch.zeros(4, device="npu")
    other = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()

    def foreign():
        stream = torch.npu.Stream()
        with torch.npu.stream(stream):
            other.add_(1)
            stream.synchronize()
        return other.data_ptr()

    with torch.npu.graph(graph, capture_error_mode="thread_local"):
        x.add_(1)
        in_thread(foreign)
        x.add_(1)
    assert other.tolist() == [1.0] * 4
    for _ in range(3):
        graph.replay()
    assert x.tolist() == [6.0] * 4
    assert other.tolist() == [1.0] * 4


def test_TN_053_work_of_another_device_is_not_captured():
    code = """
        from test_graph_basics import second_device_in_a_capture
        second_device_in_a_capture()
        print("done")
    """
    assert output_of(code, REPRISE_DEVICES=2) == "done"


def second_device_in_a_capture():
    x = torch.zeros(4, device="npu:0")
    y = torch.zeros(4, device="npu:1")
    torch.npu.synchronize(1)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
        y.add_(1)
        torch.npu.current_stream(1).synchronize()
    assert y.tolist() == [1.0] * 4
    for _ in range(3):
        graph.replay()
    assert x.tolist() == [3.0] * 4
    assert y.tolist() == [1.0] * 4


def test_TN_054_blocking_launches():
    code = """
        import torch
        x = torch.zeros(4, device="npu")
        g = torch.npu.NPUGraph()
        with torch.npu.graph(g):
            torch.npu._sleep(1000000)
            x += 1
        g.replay()
        print(torch.npu.current_stream().query() and x.tolist() == [1.0] * 4)
    """
    assert output_of(code, ASCEND_LAUNCH_BLOCKING=1) == "True"


def test_TN_090_reset_at_any_time():
    graph = torch.npu.NPUGraph()
    graph.reset()
    graph.reset()
    x = torch.zeros(4, device="npu")
    capture(graph, lambda: x + 1)
    graph.reset()
    graph.reset()


def test_pools_are_named():
    first, second = torch.npu.graph_pool_handle(), torch.npu.graph_pool_handle()
    assert first[0] == second[0] == 0 and 1 <= first[1] < second[1]
    x = torch.zeros(4, device="npu")
    graph, _ = graph_of(lambda: x + 1, pool=first)
    assert graph.pool() == first
    other, _ = graph_of(lambda: x + 1, pool=graph.pool())
    assert other.pool() == first
    own, _ = graph_of(lambda: x + 1)
    assert own.pool()[0] >= 1 and own.pool()[1] == 0


def test_the_capturing_graph_is_found_as_the_same_object():
    x = torch.zeros(4, device="npu")

    class Mine(torch.npu.NPUGraph):
        pass

    graph = Mine()
    with pytest.raises(RuntimeError, match="not currently capturing"):
        torch.npu.NPUGraph.get_currently_capturing_graph()
    with torch.npu.graph(graph):
        assert torch.npu.NPUGraph.get_currently_capturing_graph() is graph
        with pytest.raises(RuntimeError, match="not currently capturing"):
            in_thread(torch.npu.NPUGraph.get_currently_capturing_graph)
        x.add_(1)
    with pytest.raises(RuntimeError, match="not currently capturing"):
        torch.npu.NPUGraph.get_currently_capturing_graph()


def test_register_generator_state_is_deprecated():
    with pytest.warns(DeprecationWarning, match="register_generator_state"):
        torch.npu.NPUGraph().register_generator_state(torch.Generator(device="npu"))
