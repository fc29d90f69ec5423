# SPDX-License-Identifier: Apache-2.0
"""What is refused, what fails, and what is left of a capture afterwards."""
import ctypes
import gc
import threading

import pytest
import torch
import torch_npu
from support import capture, output_of


def in_thread(work):
    """Runs ``work`` in another thread; returns (result, error)."""
    outcome = []

    def run():
        try:
            outcome.append((work(), None))
        except BaseException as error:  # noqa: B036
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return outcome[0]


def works(graph=None):
    """A capture, also with random numbers, succeeds and replays."""
    graph = torch.npu.NPUGraph() if graph is None else graph
    x = torch.ones(8, device="npu")
    y = capture(graph, lambda: (x + 1, torch.rand(8, device="npu")))
    graph.replay()
    torch.npu.synchronize()
    assert y[0].tolist() == [2.0] * 8
    assert 0 <= float(y[1].min()) and float(y[1].max()) < 1


def reserved():
    gc.collect()
    torch.npu.synchronize()
    torch.accelerator.empty_cache()
    return torch.accelerator.memory_reserved()


class Fault:
    """The n-th pass through a fault point of the core fails, inside the scope."""

    library = None

    def __init__(self, point, n=1):
        self.point, self.n = point.encode(), n
        if Fault.library is None:
            with open("/proc/self/maps", encoding="utf-8") as maps:
                path = next(line.split()[-1] for line in maps if "libreprise.so" in line)
            Fault.library = ctypes.CDLL(path)
        # A string_view travels as length and address.
        self.arm = Fault.library["_ZN7reprise8ArmFaultESt17basic_string_viewIcSt11char_traitsIcEEi"]
        self.arm.argtypes = [ctypes.c_size_t, ctypes.c_char_p, ctypes.c_int]
        self.has_fired = Fault.library["_ZN7reprise10FaultFiredEv"]
        self.has_fired.restype = ctypes.c_bool

    def __enter__(self):
        self.arm(len(self.point), self.point, self.n)
        return self

    def __exit__(self, *_):
        self.fired = self.has_fired()
        self.arm(1, b"*", 0)


@pytest.fixture
def stream():
    s = torch.npu.Stream()
    with torch.npu.stream(s):
        yield s
    torch.npu.synchronize()


def test_TN_055_default_stream():
    before = reserved()
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match="non-default stream") as info:
        graph.capture_begin()
    assert info.value.code == 107031 and info.value.hint and "default stream" in info.value.cause
    assert reserved() == before
    works(graph)


def test_TN_055_external_stream():
    raw = torch.npu.Stream()
    with torch.npu.stream(torch.npu.ExternalStream(raw.npu_stream)):
        with pytest.raises(RuntimeError, match="External NPU stream is not supported"):
            torch.npu.NPUGraph().capture_begin()
        assert not torch.npu.is_current_stream_capturing()
    works()


@pytest.mark.parametrize("call", ["replay", "pool", "raw_npu_graph", "instantiate", "raw_npu_graph_exec"])
@pytest.mark.parametrize("keep_graph", [False, True])
def test_TN_056_nothing_captured(call, keep_graph):
    with pytest.raises(RuntimeError) as info:
        getattr(torch.npu.NPUGraph(keep_graph), call)()
    assert info.value.code == 507011 and info.value.hint
    if call in ("replay", "pool"):
        assert "without a preceding successful capture" in str(info.value)


def test_TN_057_graph_is_ready(stream):
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    x.add_(1)
    graph.capture_end()
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        graph.capture_begin()
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


def test_TN_058_graph_is_capturing(stream):
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="already capturing"):
        graph.capture_begin()
    x.add_(1)
    graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_TN_059_end_on_another_stream(stream, mode):
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin(capture_error_mode=mode)
    x.add_(1)
    with torch.npu.stream(torch.npu.Stream()):
        with pytest.raises(RuntimeError, match="same stream"):
            graph.capture_end()
    assert torch.npu.is_current_stream_capturing()
    graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


def test_TN_060_never_begun():
    with pytest.raises(RuntimeError, match="capture_begin"):
        torch.npu.NPUGraph().capture_end()


def test_TN_061_unknown_mode(stream):
    with pytest.raises(RuntimeError) as info:
        torch.npu.NPUGraph().capture_begin(capture_error_mode="foo")
    for fragment in ("foo", "global", "thread_local", "relaxed"):
        assert fragment in str(info.value)
    assert not torch.npu.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="not a pool"):
        torch.npu.NPUGraph().capture_begin(pool=(3, 4))
    works()


def test_TN_062_task_queue():
    code = """
        import torch
        x = torch.zeros(4, device="npu")
        try:
            with torch.npu.graph(torch.npu.NPUGraph()):
                x += 1
        except RuntimeError as error:
            print("TASK_QUEUE_ENABLE" in str(error) and not torch.npu.is_current_stream_capturing())
    """
    assert output_of(code, TASK_QUEUE_ENABLE=2) == "True"


@pytest.mark.parametrize("call", ["item", "cpu", "print", "tolist"])
def test_TN_063_reading_values_in_a_capture(call):
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph()
    reads = {
        "item": lambda: x.sum().item(),
        "cpu": x.cpu,
        "print": lambda: str(x),
        "tolist": x.tolist,
    }
    with torch.npu.graph(graph):
        y = x + 1
        with pytest.raises(RuntimeError, match="captur"):
            reads[call]()
        z = y * 2
    graph.replay()
    torch.npu.synchronize()
    assert z.tolist() == [4.0] * 4
    works()


def test_TN_064_waiting_in_a_capture():
    x = torch.zeros(4, device="npu")
    event = torch.npu.Event()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x.add_(1)
        event.record()
        for wait in (torch.npu.synchronize, torch.npu.current_stream().synchronize, event.query, event.synchronize):
            with pytest.raises(RuntimeError, match="captur"):
                wait()
        x.add_(1)
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [2.0] * 4


@pytest.mark.parametrize("operator", ["nonzero", "masked_select"])
def test_TN_065_results_that_depend_on_data(operator):
    x = torch.ones(4, device="npu")
    mask = x > 0
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        with pytest.raises(RuntimeError, match=operator):
            x.nonzero() if operator == "nonzero" else x.masked_select(mask)
        y = x + 1
    graph.replay()
    torch.npu.synchronize()
    assert y.tolist() == [2.0] * 4


def fork(stream, waits_only=False):
    """Forks a side stream off the current one, without a join."""
    side = torch.npu.Stream()
    event = torch.npu.Event()
    event.record()
    event.wait(side)
    if not waits_only:
        with torch.npu.stream(side):
            torch.zeros(1 << 20, device="npu").add_(1)
    return side


def test_TN_066_side_stream_not_joined(stream):
    before = reserved()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    torch.ones(1 << 20, device="npu").add_(1)
    fork(stream)
    with pytest.raises(RuntimeError, match="captur") as info:
        graph.capture_end()
    assert info.value.code == 107025
    assert not torch.npu.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    assert reserved() == before
    works()
    works(graph)  # from a failed capture to the next one


def test_TN_067_failed_capture_gives_its_pool_back(stream):
    before = reserved()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    kept = torch.ones(1 << 20, device="npu")
    fork(stream)
    with pytest.raises(RuntimeError):
        graph.capture_end()
    del graph, kept
    assert reserved() == before


def test_TN_068_failed_capture_on_a_shared_pool(stream):
    before = reserved()
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    good = torch.npu.NPUGraph()
    good.capture_begin()
    y = x + 1
    good.capture_end()
    bad = torch.npu.NPUGraph()
    bad.capture_begin(pool=good.pool())
    torch.ones(1 << 20, device="npu")
    fork(stream)
    with pytest.raises(RuntimeError):
        bad.capture_end()
    good.replay()
    torch.npu.synchronize()
    assert y.tolist() == [1.0] * 4
    # Only the good one uses the pool now: with it goes all of it.
    del y, x
    good.reset()
    assert reserved() == before


@pytest.mark.parametrize(
    "point", ["graph.begin", "graph.info", "graph.route.device", "graph.route.host"]
)
def test_TN_069_TN_070_begin_fails(stream, point):
    before = reserved()
    graph = torch.npu.NPUGraph()
    with Fault(point) as fault:
        with pytest.raises(RuntimeError, match="captur") as info:
            graph.capture_begin()
    assert fault.fired and info.value.code == 207005
    assert not torch.npu.is_current_stream_capturing()
    # Nothing is routed: this comes from the default pool, in both allocators.
    kept = torch.ones(1 << 20, device="npu"), torch.ones(4).pin_memory()
    stream.synchronize()
    del kept
    assert reserved() == before
    graph.capture_begin()
    x = torch.ones(4, device="npu")
    graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize("point", ["graph.end", "graph.instantiate"])
def test_TN_071_end_fails(stream, point):
    before = reserved()
    generator = torch.Generator(device="npu")
    state = generator.get_state()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    torch.rand(1 << 20, device="npu", generator=generator)
    with Fault(point) as fault:
        with pytest.raises(RuntimeError) as info:
            graph.capture_end()
    assert fault.fired and info.value.code == 207005
    assert not torch.npu.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.pool()
    assert torch.equal(generator.get_state(), state)
    assert reserved() == before
    works(graph)


def test_every_acquisition_of_a_capture_may_fail(stream):
    x = torch.ones(64, device="npu")
    torch.npu.synchronize()

    def run(graph):
        graph.capture_begin()
        try:
            y = x * 2
            z = torch.rand(64, device="npu")
            return y + z
        finally:
            graph.capture_end()

    before = reserved()
    run(torch.npu.NPUGraph())  # what is made once
    for n in range(1, 100):
        graph = torch.npu.NPUGraph()
        error = None
        with Fault("*", n) as fault:
            try:
                run(graph)
            except RuntimeError as raised:
                error = raised
        assert not torch.npu.is_current_stream_capturing(), n
        if error is not None:
            assert getattr(error, "code", 0) != 0, (n, error)
        del error
        graph.reset()
        result = run(graph)
        graph.replay()
        torch.npu.synchronize()
        assert 2.0 <= float(result.min()), n
        del graph, result
        assert reserved() == before, n
        if not fault.fired:
            break
    assert 8 < n < 99


def test_TN_072_out_of_memory():
    graph = torch.npu.NPUGraph()
    current = torch.npu.current_stream()
    with pytest.raises(torch.OutOfMemoryError, match="out of memory") as info:
        with torch.npu.graph(graph):
            torch.empty(2**40, device="npu")
    assert info.value.code != 0 and info.value.hint
    assert torch.npu.current_stream() == current
    assert not torch.npu.is_current_stream_capturing()
    works()


def test_TN_075_deleted_while_capturing(stream):
    before = reserved()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    kept = torch.ones(1 << 20, device="npu")
    del graph
    gc.collect()
    assert not torch.npu.is_current_stream_capturing()
    stream.synchronize()
    del kept
    assert reserved() == before
    works()


def test_TN_075_deleted_in_the_body_of_a_condition(stream):
    graph = torch.npu.NPUGraph()
    predicate = torch.ones((), dtype=torch.bool, device="npu")
    torch.npu.synchronize()
    graph.capture_begin()
    graph.begin_capture_to_if_node(predicate)
    graph.begin_capture_to_if_node(predicate)
    assert torch.npu.current_stream() != stream
    del graph
    assert torch.npu.current_stream() == stream
    assert not torch.npu.is_current_stream_capturing()
    works()


def test_TN_076_deleted_while_a_replay_is_queued(stream):
    for _ in range(20):
        x = torch.zeros(1000, device="npu")
        torch.npu.synchronize()
        graph = torch.npu.NPUGraph()
        graph.capture_begin()
        y = x + 1
        for _ in range(10):
            y = y + 1
        x.copy_(y)
        graph.capture_end()
        torch.npu._sleep(200000)  # not a gate: letting go of a graph may wait for its executions
        graph.replay()
        del graph, y
        torch.npu.synchronize()
        assert x.tolist() == [11.0] * 1000


@pytest.mark.parametrize("ending", ["reset", "del", "cycle", "thread"])
def test_TN_076_graph_ends_while_its_host_functions_need_the_gil(stream, ending):
    calls = []
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    torch.npu._launch_host_func(stream, calls.append, 1)
    graph.capture_end()
    torch.npu._sleep(1000000)
    for _ in range(5):
        graph.replay()
    if ending == "reset":
        graph.reset()
    elif ending == "cycle":
        graph.me = graph
    elif ending == "thread":
        holder = [graph]
        del graph
        _, error = in_thread(holder.clear)
        assert error is None
    if ending != "thread":
        del graph
    gc.collect()
    torch.npu.synchronize()
    assert calls == [1] * 5


def test_TN_077_stream_is_captured_by_another_graph(stream):
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    first, second = torch.npu.NPUGraph(), torch.npu.NPUGraph()
    first.capture_begin()
    with pytest.raises(RuntimeError, match="being captured already"):
        second.capture_begin()
    x.add_(1)
    first.capture_end()
    first.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


def test_TN_078_event_from_before_the_capture(stream):
    x = torch.zeros(4, device="npu")
    side = torch.npu.Stream()
    event = side.record_event()
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="captur"):
        event.wait(stream)
    x.add_(1)
    graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


def test_TN_079_event_never_recorded(stream):
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    torch.npu.Event().wait(stream)
    x.add_(1)
    graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


def test_TN_080_captures_that_meet():
    first, second = torch.npu.NPUGraph(), torch.npu.NPUGraph()
    a, b = torch.npu.Stream(), torch.npu.Stream()
    event = torch.npu.Event()
    with torch.npu.stream(a):
        first.capture_begin(capture_error_mode="relaxed")
    with torch.npu.stream(b):
        second.capture_begin(capture_error_mode="relaxed")
        event.record(b)
    with pytest.raises(RuntimeError, match="captur"):
        event.wait(a)
    for graph, on in ((first, a), (second, b)):
        with torch.npu.stream(on):
            with pytest.raises(RuntimeError):
                graph.capture_end()
            assert not torch.npu.is_current_stream_capturing()
    works(first)
    works(second)


@pytest.mark.parametrize("waits_only", [True, False])
def test_TN_081_fork_without_a_last_record(stream, waits_only):
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    if waits_only:
        side = fork(stream, waits_only=True)
    else:
        side = fork(stream)
        side.record_event().wait(stream)
        with torch.npu.stream(side):
            torch.ones(4, device="npu")
    with pytest.raises(RuntimeError):
        graph.capture_end()
    with torch.npu.stream(side):
        assert not torch.npu.is_current_stream_capturing()
        assert torch.ones(4, device="npu").tolist() == [1.0] * 4


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_TN_082_end_in_another_thread(stream, mode):
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin(capture_error_mode=mode)
    x.add_(1)

    def end():
        with torch.npu.stream(stream):
            graph.capture_end()

    _, error = in_thread(end)
    if mode == "relaxed":
        assert error is None
    else:
        assert isinstance(error, RuntimeError) and "same thread" in str(error) and error.code == 107038
        assert torch.npu.is_current_stream_capturing()
        graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_TN_083_device_synchronize_from_another_thread(stream, mode):
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin(capture_error_mode=mode)
    _, error = in_thread(torch.npu.synchronize)
    assert isinstance(error, RuntimeError) and "captur" in str(error)
    x.add_(1)
    graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


def test_TN_084_other_threads_give_memory_back_during_a_capture(stream):
    x = torch.zeros(1 << 20, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin(capture_error_mode="thread_local")
    y = x + 1
    held = torch.accelerator.memory_reserved()

    def other():
        with torch.npu.stream(torch.npu.Stream()):
            big = torch.ones(8 << 20, device="npu")
            del big
            torch.accelerator.empty_cache()
        return torch.accelerator.memory_reserved()

    after, error = in_thread(other)
    assert error is None and after <= held
    z = y + 1
    graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert torch.equal(z, torch.full_like(z, 2))


@pytest.mark.parametrize("operator", ["zero", "fill", "copy", "clone", "cat"])
def test_TN_085_copies_and_fills_in_a_task_group(stream, operator):
    x = torch.ones(8, device="npu")
    y = torch.ones(8, device="npu")
    work = {
        "zero": lambda: y.zero_(),
        "fill": lambda: y.fill_(3),
        "copy": lambda: y.copy_(x),
        "clone": lambda: x.clone(),
        "cat": lambda: torch.cat([x, y]),
    }[operator]
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    torch.npu.graph_task_group_begin(stream)
    z = work()
    handle = torch.npu.graph_task_group_end(stream)
    graph.capture_end()
    assert handle is not None
    x.fill_(5)
    torch.npu.synchronize()
    graph.replay()
    torch.npu.synchronize()
    expected = {"zero": [0.0], "fill": [3.0], "copy": [5.0], "clone": [5.0], "cat": [5.0, 1.0]}[operator]
    assert z.tolist() == [value for value in expected for _ in range(8)]


def test_TN_086_event_of_a_finished_capture(stream):
    event = torch.npu.Event()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    torch.ones(4, device="npu")
    event.record()
    graph.capture_end()
    assert event.query() is True
    event.wait(torch.npu.Stream())
    torch.npu.synchronize()


def test_TN_087_replay_in_a_capture(stream):
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    inner = torch.npu.NPUGraph()
    inner.capture_begin()
    x.add_(10)
    inner.capture_end()
    outer = torch.npu.NPUGraph()
    outer.capture_begin()
    with pytest.raises(RuntimeError, match="captur"):
        inner.replay()
    x.add_(1)
    outer.capture_end()
    outer.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4


def test_TN_088_pageable_and_pinned_copies(stream):
    x = torch.zeros(4, device="npu")
    pinned = torch.ones(4).pin_memory()
    pageable = torch.ones(4)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    for non_blocking in (False, True):
        with pytest.raises(RuntimeError, match="captur"):
            x.copy_(pageable, non_blocking=non_blocking)
    x.copy_(pinned, non_blocking=True)
    graph.capture_end()
    pinned.fill_(7)
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [7.0] * 4


def test_TN_089_wrong_shapes_are_reported_at_the_call(stream):
    a = torch.ones(2, 3, device="npu")
    b = torch.ones(4, 5, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="shapes|sizes"):
        a @ b
    c = a + 1
    graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert c.sum().item() == 12


@pytest.mark.parametrize("mode", ["thread_local", "relaxed"])
def test_TN_091_threads_allocate_during_captures(stream, mode):
    graph = torch.npu.NPUGraph()
    stop = threading.Event()
    failures = []

    def allocate():
        try:
            with torch.npu.stream(torch.npu.Stream()):
                while not stop.is_set():
                    torch.ones(1 << 20, device="npu")
                    torch.accelerator.empty_cache()
        except BaseException as error:  # noqa: B036
            failures.append(error)

    thread = threading.Thread(target=allocate)
    thread.start()
    try:
        for _ in range(10):
            graph.capture_begin(capture_error_mode=mode)
            y = torch.ones(1 << 18, device="npu") + 1
            graph.capture_end()
            graph.replay()
            stream.synchronize()
            assert y[0].item() == 2
            graph.reset()
    finally:
        stop.set()
        thread.join()
    assert not failures


def test_TN_092_unsafe_calls_of_other_threads(stream):
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()

    def unsafe():
        with torch.npu.stream(torch.npu.Stream()):
            return x.cpu()

    graph.capture_begin(capture_error_mode="global")
    _, error = in_thread(unsafe)
    assert isinstance(error, RuntimeError) and "captur" in str(error)
    x.add_(1)
    graph.capture_end()
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4

    graph.reset()
    graph.capture_begin(capture_error_mode="thread_local")
    value, error = in_thread(unsafe)
    assert error is None and value.tolist() == [1.0] * 4
    graph.capture_end()


def test_errors_name_number_culprit_and_next_step():
    with pytest.raises(RuntimeError) as info:
        torch.npu.NPUGraph().replay()
    error = info.value
    assert type(error).__name__ == "NpuError"
    assert error.code == 507011
    assert error.cause and error.culprit and error.hint
    for part in (str(error.code), error.cause, error.culprit, error.hint):
        assert part in str(error)


def fails_at_replay(index, table):
    return table.index_select(0, index)  # the line that errors of replays name


def test_errors_of_replays_name_the_line_that_captured(stream):
    table = torch.arange(8.0, device="npu")
    index = torch.zeros(2, dtype=torch.int64, device="npu")
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    graph.capture_begin()
    y = fails_at_replay(index, table)
    graph.capture_end()
    index.fill_(1000)
    torch.npu.synchronize()
    graph.replay()
    with pytest.raises(RuntimeError) as info:
        torch.npu.synchronize()
    assert "test_graph_errors.py" in str(info.value) and "fails_at_replay" in str(info.value)
    index.fill_(3)
    graph.replay()
    torch.npu.synchronize()
    assert y.tolist() == [3.0, 3.0]


def test_graphs_die_in_threads_at_exit_and_with_work_queued():
    code = """
        import gc, threading, torch
        x = torch.zeros(1000, device="npu")
        def work(kept):
            with torch.npu.stream(torch.npu.Stream()):
                for _ in range(10):
                    g = torch.npu.NPUGraph()
                    g.capture_begin(capture_error_mode="relaxed")
                    y = x + 1
                    torch.rand(8, device="npu")
                    g.capture_end()
                    g.replay()
                    kept.append(g)
                    if len(kept) > 3: kept.pop(0)
                g.cycle = g
        kept = [[] for _ in range(3)]
        threads = [threading.Thread(target=work, args=(k,)) for k in kept]
        for t in threads: t.start()
        for t in threads: t.join()
        open_graph = torch.npu.NPUGraph()
        s = torch.npu.Stream()
        torch.npu.set_stream(s)
        torch.npu._sleep(1000000)
        for k in kept:
            for g in k: g.replay()
        open_graph.capture_begin(capture_error_mode="relaxed")
        x + 1
        print("ended")
    """
    assert output_of(code) == "ended"


# ---- Memory that has gone since ----


def replays_over(make, spoil, match="uses, at"):
    """``make()``: (graph, holder) after a capture; ``spoil(holder)`` frees what the graph uses."""
    graph, holder = make()
    graph.replay()
    spoil(holder)
    with pytest.raises(torch_npu.NpuError, match=match) as refused:
        graph.replay()
    torch.npu.synchronize()
    return graph, refused.value


class Holder:
    def __init__(self):
        self.module = torch.nn.Linear(4, 4).npu()
        self.x = torch.ones(2, 4, device="npu")
        self.module(self.x)

    def captured(self):
        graph = torch.npu.NPUGraph()
        with torch.no_grad(), torch.npu.graph(graph):
            self.y = self.module(self.x) * 2
        return graph, self


def drop_input(holder):
    del holder.x


def new_weights(holder):
    holder.module.weight.data = torch.zeros(4, 4, device="npu")


def there_and_back(holder):
    holder.module.cpu().npu()


def grow_input(holder):
    holder.x.resize_(2000, 40)


@pytest.mark.parametrize("spoil", [drop_input, new_weights, there_and_back, grow_input])
def test_replays_over_freed_memory_are_refused(spoil):
    graph, error = replays_over(lambda: Holder().captured(), spoil)
    assert error.code == 107000
    assert "test_graph_errors.py" in error.culprit and " in captured and freed" in error.culprit
    assert error.culprit.endswith(f"in {spoil.__name__}"), error.culprit
    assert "copy_()" in error.hint
    holder = Holder()
    graph.reset()
    with torch.no_grad(), torch.npu.graph(graph):
        y = holder.module(holder.x)
    graph.replay()
    torch.testing.assert_close(y, holder.module(holder.x))


@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.add_(1),
        lambda x: x.fill_(1),
        lambda x: x.t().zero_(),
        lambda x: x.copy_(torch.ones(4, 4, device="npu")),
        lambda x: torch.ones(4, 4, device="npu").t().copy_(x),
        lambda x: torch.linalg.inv_ex(x),
        lambda x: torch.nn.functional.conv2d(x[None, None], torch.ones(1, 1, 2, 2, device="npu")),
        lambda x: torch.nn.functional.dropout(x),
        lambda x: x.normal_(),
        lambda x: torch.bernoulli(x),
        lambda x: torch.cumsum(x, 0),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    ],
    ids="add fill zero copy_to copy_from inv conv dropout normal bernoulli cumsum attention".split(),
)
def test_every_way_to_launch_notes_what_it_uses(work):
    def make():
        holder = [torch.eye(4, device="npu")]
        work(holder[0])
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            holder.append(work(holder[0]).clone() if isinstance(work(holder[0]), torch.Tensor) else None)
        return graph, holder

    replays_over(make, lambda holder: holder.clear())


def test_freed_memory_that_no_graph_reads_is_nobodys_business():
    bystander = torch.ones(4, device="npu")
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        inner = x + 1  # of the graph's pool: it may go
        y = inner * 2
    del bystander, inner
    first = y
    second = torch.npu.NPUGraph()
    with torch.npu.graph(second, pool=graph.pool()):
        z = first + 1
    del first, y
    graph.replay()
    second.replay()
    assert z.tolist() == [5.0] * 4
    # Another graph's tensors are no concern of this one.
    other = torch.ones(4, device="npu")
    with torch.npu.graph(third := torch.npu.NPUGraph()):
        other.add_(1)
    third.reset()
    del other
    graph.replay()


@pytest.mark.parametrize(("mode", "warnings"), [("warn", 1), ("off", 0)])
def test_liveness_can_be_a_warning_or_off(mode, warnings):
    said = output_of(
        """
        import warnings
        import torch

        x = torch.ones(4, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = x + 1
        del x
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graph.replay()
            graph.replay()
            torch.npu.synchronize()
        print(len([each for each in caught if "was freed after it was captured" in str(each.message)]))
        """,
        REPRISE_TORCH_LIVENESS=mode,
    )
    assert said == str(warnings)
