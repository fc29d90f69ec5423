# SPDX-License-Identifier: Apache-2.0
"""Conditions in graphs: by hand, and as cond under the dispatch modes."""
import gc
import itertools
import weakref

import pytest
import torch
from torch_npu.npu._npugraph_conditional_nodes import (
    ControlFlowOpWarmupDispatchMode,
    NPUGraphCaptureControlFlowOpDispatchMode,
    if_else_node,
)

cond = torch.ops.higher_order.cond


def flag(value=True):
    return torch.tensor(value, device="npu")


def captured(work, **options):
    """A graph of ``work()`` under the capture mode, and what it returned."""
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, **options), NPUGraphCaptureControlFlowOpDispatchMode():
        result = work()
    return graph, result


def check_all(graph, flags, result, expected):
    """Replays with every combination of flags; ``expected(*values)`` is a list, or a tuple of lists."""
    for values in itertools.product((True, False), repeat=len(flags)):
        for place, value in zip(flags, values):
            place.fill_(value)
        torch.npu.synchronize()
        graph.replay()
        got = tuple(item.tolist() for item in result) if isinstance(result, tuple) else result.tolist()
        assert got == expected(*values), values


def test_TN_231_both_branches():
    pred, x = flag(), torch.tensor([1.0, 2.0], device="npu")
    graph, result = captured(lambda: cond(pred, lambda x: x + 1, lambda x: x * 10, (x,)))
    check_all(graph, [pred], result, lambda value: [2, 3] if value else [10, 20])
    x.fill_(5)
    check_all(graph, [pred], result, lambda value: [6, 6] if value else [50, 50])


def test_TN_231_predicate_computed_in_the_graph():
    x = torch.tensor([1.0, 2.0], device="npu")

    def work():
        return cond(x.sum() > 4, lambda x: x - 4, lambda x: x + 4, (x,))

    graph, result = captured(work)
    graph.replay()
    assert result.tolist() == [5, 6]
    x.fill_(3)
    torch.npu.synchronize()
    graph.replay()
    assert result.tolist() == [-1, -1]


def test_TN_232_several_results():
    pred, x = flag(), torch.tensor([1.0, 2.0], device="npu")

    def work():
        return cond(pred, lambda x: (x + 1, x.sum()), lambda x: (x - 1, x.prod()), (x,))

    graph, result = captured(work)
    check_all(graph, [pred], result, lambda value: ([2, 3], 3) if value else ([0, 1], 2))


def test_TN_232_no_operands():
    pred = flag()
    graph, result = captured(
        lambda: cond(pred, lambda: torch.ones(2, device="npu"), lambda: torch.zeros(2, device="npu"), ())
    )
    check_all(graph, [pred], result, lambda value: [1, 1] if value else [0, 0])


def test_TN_232_results_that_are_operands():
    pred, x = flag(), torch.tensor([1.0, 2.0], device="npu")
    graph, result = captured(lambda: cond(pred, lambda x: x, lambda x: x * 3, (x,)))
    check_all(graph, [pred], result, lambda value: [1, 2] if value else [3, 6])
    assert x.tolist() == [1, 2]


def test_TN_232_two_conds_and_a_consumer():
    a, b, x = flag(), flag(), torch.tensor([1.0, 2.0], device="npu")

    def work():
        y = cond(a, lambda x: x + 1, lambda x: x + 2, (x,))
        z = cond(b, lambda x: x * 2, lambda x: x * 3, (x,))
        return y * 100 + z

    def expected(first, second):
        return [(x + (1 if first else 2)) * 100 + x * (2 if second else 3) for x in (1, 2)]

    graph, result = captured(work)
    check_all(graph, [a, b], result, expected)


def test_TN_232_branches_must_agree():
    x = torch.ones(2, device="npu")
    pred = flag()
    for true_fn, false_fn in (
        (lambda x: x + 1, lambda x: x.sum()),
        (lambda x: x + 1, lambda x: (x + 1).half()),
        (lambda x: x + 1, lambda x: (x + 1, x + 2)),
    ):
        graph = torch.npu.NPUGraph()
        with pytest.raises(RuntimeError, match="condition"):
            with torch.npu.graph(graph), NPUGraphCaptureControlFlowOpDispatchMode():
                cond(pred, true_fn, false_fn, (x,))


def nested(flags, x, *, allocate=False):
    """x plus one of eight numbers, by three levels of conditions."""

    def level(index, offset):
        def branch(bit):
            def run(x):
                here = offset + bit * 2 ** (2 - index)
                y = x + 1 if allocate else x
                y = y - 1 if allocate else y
                return y + here if index == 2 else cond(flags[index + 1], *level(index + 1, here), (y,))

            return run

        return branch(1), branch(0)

    return cond(flags[0], *level(0, 0), (x,))


@pytest.mark.parametrize("allocate", [False, True])
def test_TN_233_three_levels(allocate):
    flags, x = [flag(), flag(), flag()], torch.tensor([10.0, 20.0], device="npu")
    graph, result = captured(lambda: nested(flags, x, allocate=allocate))
    check_all(graph, flags, result, lambda a, b, c: [10 + 4 * a + 2 * b + c, 20 + 4 * a + 2 * b + c])


def test_TN_234_branches_allocate_in_the_pool_of_the_graph():
    pred, x = flag(), torch.ones(1 << 18, device="npu")
    inside = []

    def branch(x, by):
        parts = [x + value for value in range(by)]
        inside.extend(part.data_ptr() for part in parts)
        return sum(parts)

    def work():
        return cond(pred, lambda x: branch(x, 3), lambda x: cond(pred, lambda x: x, lambda x: branch(x, 5), (x,)), (x,))

    graph, result = captured(work)
    check_all(graph, [pred], result[:2], lambda value: [6, 6] if value else [15, 15])
    pool = tuple(graph.pool())
    segments = [segment for segment in torch.npu.memory_snapshot() if tuple(segment["segment_pool_id"]) == pool]
    assert len(inside) == 8
    for address in [*inside, result.data_ptr()]:
        assert any(s["address"] <= address < s["address"] + s["total_size"] for s in segments)


class Branching(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left = torch.nn.Linear(4, 4)
        self.right = torch.nn.Linear(4, 4)

    def forward(self, pred, x):
        parameters = (self.left.weight, self.left.bias, self.right.weight, self.right.bias)

        def left(x, a, b, c, d):
            return torch.nn.functional.linear(x, a, b).relu(),

        def right(x, a, b, c, d):
            return torch.nn.functional.linear(x, c, d).tanh(),

        return cond(pred, left, right, (x, *parameters))[0]


def test_TN_235_forward_and_backward():
    torch.manual_seed(0)
    module = Branching().npu()
    pred, x = flag(), torch.randn(3, 4, device="npu", requires_grad=True)
    wanted = [x, *module.parameters()]

    def step():
        y = module(pred, x)
        return (y, *torch.autograd.grad(y.square().sum(), wanted))

    eager = {}
    for value in (True, False):
        pred.fill_(value)
        eager[value] = [item.detach().cpu() for item in step()]
    with ControlFlowOpWarmupDispatchMode():
        step()
    graph, results = captured(step)
    for value in (True, False, True):
        pred.fill_(value)
        torch.npu.synchronize()
        graph.replay()
        for got, right in zip(results, eager[value]):
            torch.testing.assert_close(got.cpu(), right)


def test_TN_236_predicate_on_the_host():
    x = torch.ones(2, device="npu")
    for pred in (torch.tensor(True), True):
        with pytest.raises(ValueError, match="must be on an npu device"):
            if_else_node(pred, lambda x: x + 1, lambda x: x - 1, (x,))


@pytest.mark.parametrize("pred,words", [(1.0, "bool tensors"), ([True, False], "scalar")])
def test_TN_237_wrong_predicates(pred, words):
    pred, x = flag(pred), torch.ones(2, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
        with pytest.raises(RuntimeError, match=words):
            if_else_node(pred, lambda x: x + 1, lambda x: x - 1, (x,))
    graph.replay()
    assert x.tolist() == [2, 2]


def test_TN_238_random_numbers_in_a_branch():
    pred, x = flag(), torch.ones(2, device="npu")
    before = torch.npu.current_stream()
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match="RNG"):
        with torch.npu.graph(graph), NPUGraphCaptureControlFlowOpDispatchMode():
            cond(pred, lambda x: torch.rand_like(x), lambda x: x - 1, (x,))
    assert torch.npu.current_stream() == before
    assert not torch.npu.is_current_stream_capturing()
    torch.rand(2, device="npu")
    graph, result = captured(lambda: cond(pred, lambda x: x + 1, lambda x: x - 1, (x,)))
    check_all(graph, [pred], result, lambda value: [2, 2] if value else [0, 0])


def test_TN_239_random_numbers_after_a_cond():
    pred, x = flag(), torch.ones(100, device="npu")

    def work():
        y = cond(pred, lambda x: x + 1, lambda x: x - 1, (x,))
        return y + torch.rand(100, device="npu")

    graph, result = captured(work)
    for value, low in ((True, 2), (False, 0), (True, 2)):
        pred.fill_(value)
        torch.npu.manual_seed(3)
        right = torch.rand(100, device="npu") + low
        torch.npu.manual_seed(3)
        graph.replay()
        assert torch.equal(result.cpu(), right.cpu())


def test_TN_240_exception_in_a_body():
    pred, x = flag(), torch.ones(2, device="npu")
    before = torch.npu.current_stream()
    streams = []

    class Mistake(Exception):
        pass

    def branch(x):
        streams.append(torch.npu.current_stream())
        raise Mistake

    graph = torch.npu.NPUGraph()
    capture = torch.npu.Stream()
    with torch.npu.stream(capture):
        graph.capture_begin()
        y = x + 1
        with pytest.raises(Mistake):
            if_else_node(pred, branch, lambda x: x, (x,))
        assert streams[0] != capture
        assert torch.npu.current_stream() == capture
        assert torch.npu.NPUGraph.get_currently_capturing_graph() is graph
        with pytest.raises(RuntimeError):
            graph.capture_end()
    assert torch.npu.current_stream() == before
    del y
    graph, result = captured(lambda: cond(pred, lambda x: x + 1, lambda x: x - 1, (x,)))
    check_all(graph, [pred], result, lambda value: [2, 2] if value else [0, 0])


def test_TN_241_wrong_places():
    pred, x = flag(), torch.ones(2, device="npu")
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError):
        graph.begin_capture_to_if_node(pred)
    with pytest.raises(RuntimeError):
        graph.end_capture_to_conditional_node()
    with pytest.raises(RuntimeError, match="not currently capturing"):
        if_else_node(pred, lambda x: x, lambda x: x, (x,))
    outer, side = torch.npu.Stream(), torch.npu.Stream()
    with torch.npu.stream(outer):
        graph.capture_begin()
        x.add_(1)
        with pytest.raises(RuntimeError):
            graph.end_capture_to_conditional_node()
        with torch.npu.stream(side), pytest.raises(RuntimeError):
            graph.begin_capture_to_if_node(pred)  # not the capture's stream
        graph.begin_capture_to_if_node(pred)
        with torch.npu.stream(outer), pytest.raises(RuntimeError):
            graph.begin_capture_to_if_node(pred)  # not the innermost
        x.add_(10)
        graph.end_capture_to_conditional_node()
        graph.capture_end()
    graph.replay()
    assert x.tolist() == [12, 12]


def test_TN_242_body_left_open():
    pred, x = flag(), torch.ones(2, device="npu")
    before = torch.npu.current_stream()
    graph = torch.npu.NPUGraph()
    outer = torch.npu.Stream()
    with torch.npu.stream(outer):
        graph.capture_begin()
        graph.begin_capture_to_if_node(pred)
        body = torch.npu.current_stream()
        x.add_(1)
        with torch.npu.stream(outer), pytest.raises(RuntimeError):
            graph.capture_end()
        assert not torch.npu.is_current_stream_capturing()
    with torch.npu.stream(body):
        assert not torch.npu.is_current_stream_capturing()
    assert torch.npu.current_stream() == before
    torch.npu.synchronize()
    assert x.tolist() == [1, 1]
    with torch.npu.graph(graph):
        x.add_(1)
    graph.replay()
    assert x.tolist() == [2, 2]


def test_TN_243_warm_up():
    made = []

    class Spy(torch.npu.NPUGraph):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(weakref.ref(self))

    x = torch.ones(2, device="npu")
    plain = torch.npu.NPUGraph
    torch.npu.NPUGraph = Spy
    try:
        for value in (True, False):
            pred = flag(value)
            calls = []
            with ControlFlowOpWarmupDispatchMode():
                y = cond(
                    pred,
                    lambda x: calls.append(1) or cond(pred, lambda x: x + 1, lambda x: x + 2, (x,)),
                    lambda x: calls.append(0) or x - 1,
                    (x,),
                )
            assert y.tolist() == ([2, 2] if value else [0, 0])
            assert calls == [1, 0, int(value)]  # both when captured, one when run
    finally:
        torch.npu.NPUGraph = plain
    gc.collect()
    assert made and all(graph() is None for graph in made)


def test_TN_243_warm_up_within_a_capture():
    pred, x = flag(), torch.ones(2, device="npu")
    graph = torch.npu.NPUGraph()
    mode = ControlFlowOpWarmupDispatchMode()
    with torch.npu.graph(graph), mode:
        result = cond(pred, lambda x: x + 1, lambda x: x - 1, (x,))
    check_all(graph, [pred], result, lambda value: [2, 2] if value else [0, 0])


def test_TN_244_pool_is_used_once_by_a_graph():
    pred, x = flag(), torch.ones(2, device="npu")
    pool = torch.npu.MemPool()
    counts = []
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, pool=pool.id):
        counts.append(pool.use_count())
        if_else_node(pred, lambda x: x + 1, lambda x: x - 1, (x,))
        counts.append(pool.use_count())
    counts.append(pool.use_count())
    assert len(set(counts)) == 1
    graph.reset()
    assert pool.use_count() == counts[0] - 1


def test_TN_245_current_graph_in_a_body():
    pred, x = flag(), torch.ones(2, device="npu")
    graph = torch.npu.NPUGraph()
    seen = []

    def branch(x):
        seen.append(torch.npu.NPUGraph.get_currently_capturing_graph())
        return x + 1

    with torch.npu.graph(graph):
        if_else_node(pred, branch, lambda x: if_else_node(pred, branch, branch, (x,)), (x,))
    assert len(seen) == 3 and all(found is graph for found in seen)


# ---- torch.cond as it is ----


def test_torch_cond_in_a_capture():
    def choose(pred, x):
        return torch.cond(pred, lambda x: x.sin() + 1, lambda x: x * 10, (x,))

    pred = flag()
    x = torch.ones(4, device="npu")
    torch.testing.assert_close(choose(pred, x), x.sin() + 1)  # eagerly the host chooses; it also compiles
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = choose(x.sum() > 3, x) + 1
    for value in (1.0, 0.25, 2.0):
        x.fill_(value)
        graph.replay()
        torch.testing.assert_close(y, (x.sin() + 1 if 4 * value > 3 else x * 10) + 1)
