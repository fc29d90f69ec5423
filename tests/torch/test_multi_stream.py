# SPDX-License-Identifier: Apache-2.0
"""Graphs of several streams: forks, joins, order and overlap."""
import torch
from support import output_of, wait_until


def branches(x, w, side):
    """Two products on two streams, added."""
    main = torch.npu.current_stream()
    side.wait_stream(main)
    with torch.npu.stream(side):
        right = (x @ w).relu()
    left = x @ w.t()
    main.wait_stream(side)
    return left + right


def test_TN_204_fork_and_join():
    x = torch.zeros(8, 8, device="npu")
    side = torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        main = torch.npu.current_stream()
        a = x + 1
        side.wait_stream(main)
        with torch.npu.stream(side):
            b = a * 2
        c = a * 3
        main.wait_stream(side)
        d = b + c
    for value in range(4):
        x.fill_(value)
        torch.npu.synchronize()
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(b, torch.full_like(b, 2.0 * (value + 1)))
        assert torch.equal(d, torch.full_like(d, 5.0 * (value + 1)))


def test_TN_205_parallel_products():
    x = torch.zeros(32, 32, device="npu")
    w = torch.randn(32, 32).npu()
    side = torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = branches(x, w, side)
    for seed in range(3):
        x.copy_(torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)))
        torch.npu.synchronize()
        graph.replay()
        torch.npu.synchronize()
        eager = branches(x, w, side)
        torch.npu.synchronize()
        assert torch.equal(y, eager)


def test_TN_206_expandable_segments():
    code = """
        import torch
        from test_multi_stream import test_TN_204_fork_and_join, test_TN_205_parallel_products
        test_TN_204_fork_and_join()
        test_TN_205_parallel_products()
        print("done")
    """
    assert output_of(code, PYTORCH_NPU_ALLOC_CONF="expandable_segments:True") == "done"


def test_TN_207_nested_forks():
    x = torch.zeros((), device="npu", dtype=torch.int64)
    b, c = torch.npu.Stream(), torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        a = torch.npu.current_stream()
        x.add_(1)
        b.wait_stream(a)
        with torch.npu.stream(b):
            x.mul_(2)
            c.wait_stream(b)
            with torch.npu.stream(c):
                x.add_(3)
            b.wait_stream(c)
            x.mul_(5)
        a.wait_stream(b)
        x.add_(7)
    expected = 0
    for _ in range(5):
        graph.replay()
        expected = ((expected + 1) * 2 + 3) * 5 + 7
    torch.npu.synchronize()
    assert x.item() == expected


def test_TN_208_event_recorded_earlier_in_the_capture():
    x = torch.zeros(1000, device="npu")
    side, event = torch.npu.Stream(), torch.npu.Event()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        main = torch.npu.current_stream()
        x.add_(1)
        event.record()
        snapshot = x.clone()
        event.wait(side)
        with torch.npu.stream(side):
            y = x * 10
        main.wait_stream(side)
        x.mul_(0)
    for value in range(4):
        x.fill_(value)
        torch.npu.synchronize()
        graph.replay()
        torch.npu.synchronize()
        assert torch.equal(y, torch.full_like(y, 10.0 * (value + 1)))
        assert torch.equal(snapshot, torch.full_like(y, value + 1.0))
        assert x.sum().item() == 0


def test_TN_209_side_stream_after_the_capture():
    x = torch.ones(4, device="npu")
    w = torch.ones(4, 4, device="npu")
    side = torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = branches(w, w, side)
    with torch.npu.stream(side):
        assert not torch.npu.is_current_stream_capturing()
        z = x + 41
        side.synchronize()
    assert z.tolist() == [42.0] * 4
    graph.replay()
    torch.npu.synchronize()
    assert y[0].tolist() == [8.0] * 4


def test_TN_210_memory_that_two_streams_use():
    x = torch.zeros(4096, device="npu")
    side = torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        main = torch.npu.current_stream()
        results = []
        for n in range(8):
            side.wait_stream(main)
            with torch.npu.stream(side):
                t = x + n
            main.wait_stream(side)
            t.record_stream(main)
            results.append(t * 2)
            del t  # freed while both streams used it
    for value in range(50):
        x.fill_(value)
        torch.npu.synchronize()
        graph.replay()
        torch.npu.synchronize()
        for n, result in enumerate(results):
            assert result[0].item() == 2.0 * (value + n) and result[-1].item() == 2.0 * (value + n)


def test_TN_211_independent_branches_overlap():
    """Each branch waits in its middle for the first half of the other one: in turns, neither would end."""
    x, y = torch.zeros(4, device="npu"), torch.zeros(4, device="npu")
    sides = [torch.npu.Stream() for _ in range(2)]
    halves = [torch.npu.ExternalEvent() for _ in sides]
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        main = torch.npu.current_stream()
        for side, value, own, other in zip(sides, (x, y), halves, reversed(halves)):
            side.wait_stream(main)
            with torch.npu.stream(side):
                value.add_(1)
                own.record(side)
                other.wait(side)
                other.reset(side)  # for the next replay
                value.mul_(3)
        for side in sides:
            main.wait_stream(side)
        total = x + y
    expected = 0
    for _ in range(3):
        expected = (expected + 1) * 3
        graph.replay()
        done = torch.npu.current_stream().record_event()
        try:
            wait_until(done.query)
        finally:
            if not done.query():
                for half in halves:  # lets the replay end, and the process go on
                    half.record(torch.npu.Stream(priority=-1))
        assert x.tolist() == y.tolist() == [expected] * 4 and total.tolist() == [2 * expected] * 4
