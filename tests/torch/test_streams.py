# SPDX-License-Identifier: Apache-2.0
"""Streams and events, eager. Everything is ordered by events; a gate makes work pending for as long as a test wants."""
import ctypes
import threading

import pytest
import torch
from support import Gate, output_of

npu = torch.npu


def rebuilt(stream):
    return npu.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )


@pytest.fixture
def external():
    """An external stream, waited for and destroyed afterwards."""
    runtime = npu.npurt()
    handle = ctypes.c_uint64(0)
    assert runtime.npuStreamCreate(ctypes.addressof(handle)) == 0
    yield npu.ExternalStream(handle.value)
    npu.synchronize()
    assert runtime.npuStreamDestroy(handle.value) == 0


def test_TN_020_priorities_choose_the_pool():
    types = [npu.Stream().stream_id >> 5] + [npu.Stream(priority=p).stream_id >> 5 for p in (0, 1, -1, -2)]
    assert types == [3, 3, 3, 4, 4]
    assert npu.SyncLaunchStream().stream_id >> 5 == 2
    assert npu.default_stream().stream_id == 0


def test_TN_021_streams_go_round():
    streams = [npu.Stream() for _ in range(33)]
    assert streams[0] == streams[32]
    assert len(set(streams)) == 32
    launch = [npu.SyncLaunchStream() for _ in range(5)]
    assert launch[0] == launch[4] and len(set(launch)) == 4


def test_TN_021_the_pools_can_be_smaller():
    seen = output_of(
        """
        import torch
        print(len({torch.npu.Stream() for _ in range(33)}), len({torch.npu.Stream(priority=-1) for _ in range(9)}))
        """,
        REPRISE_TORCH_STREAMS="8",
    )
    assert seen == "8 8"


@pytest.mark.parametrize("make", [npu.Stream, npu.default_stream, npu.SyncLaunchStream])
def test_TN_022_streams_are_rebuilt_from_their_parts(make):
    stream = make()
    again = rebuilt(stream)
    assert again == stream and hash(again) == hash(stream) and again.npu_stream == stream.npu_stream
    assert again._as_parameter_.value == stream.npu_stream
    assert stream == npu.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    with npu.stream(again):
        x = torch.ones(8, device="npu") + 1
    again.synchronize()
    assert stream.query() and x.sum().item() == 16


@pytest.mark.parametrize(
    "parts",
    [
        {"stream_id": 9999, "device_type": 20},
        {"stream_id": 1 << 29, "device_type": 20},
        {"stream_id": (1 << 30) + 5000, "device_type": 20},
        {"stream_id": 33, "device_type": 20},
        {"stream_id": 1},
        {"device_index": 999, "device_type": 20},
        {"device_index": 63, "device_type": 20},
        {"device_type": 999},
        {"stream_id": -1, "device_type": 20},
        {"device_index": -1, "device_type": 20},
        {"device_type": -1},
        {"stream_id": 1 << 70, "device_type": 20},
    ],
    ids=str,
)
def test_TN_023_parts_that_name_no_stream(parts):
    with pytest.raises((RuntimeError, OverflowError, TypeError)) as refused:
        npu.Stream(**parts)
    assert refused.type is not TypeError or parts["stream_id"] > 1 << 63


def test_TN_023_sync_launch_streams_end_at_four():
    first = npu.SyncLaunchStream().stream_id & ~3
    with pytest.raises(RuntimeError, match="names no stream"):
        npu.Stream(stream_id=first + 4, device_type=20)


def test_TN_024_a_stream_waits_for_another():
    a, b = npu.Stream(), npu.Stream()
    x = torch.zeros(1 << 16, device="npu")
    npu.synchronize()
    with Gate(a), npu.stream(a):
        x.fill_(3)
        event = a.record_event()
        with npu.stream(b):
            b.wait_event(event)
            y = x + 1
        assert not b.query()
    b.synchronize()
    assert y.cpu().unique().tolist() == [4]
    with Gate(b), npu.stream(b):
        x.fill_(5)
        a.wait_stream(b)
        with a:
            y = x + 1
        assert not a.query()
    a.synchronize()
    assert y.cpu().unique().tolist() == [6]


@pytest.mark.parametrize("timing", [False, True])
def test_TN_025_events_that_were_never_recorded(timing):
    event = npu.Event(enable_timing=timing)
    assert event.query() and event.device is None and event.npu_event == 0
    event.synchronize()
    event.wait()
    npu.Stream().wait_event(event)
    event.wait(npu.Stream())
    assert event.npu_event == 0


def test_TN_026_elapsed_time():
    begin, end, plain = npu.Event(enable_timing=True), npu.Event(enable_timing=True), npu.Event()
    with npu.stream(npu.Stream()):
        begin.record()
        npu._sleep(5_000_000)
        end.record()
    plain.record()
    milliseconds = begin.elapsed_time(end)  # waits
    microseconds = end.recorded_time() - begin.recorded_time()
    assert end.query() and isinstance(milliseconds, float) and milliseconds > 4.9 and microseconds >= 4900
    assert milliseconds * 1000 == pytest.approx(microseconds, rel=1e-3)  # two ways to read the same two points in time
    assert begin.device == torch.device("npu:0")
    for first, second in ((begin, plain), (plain, end), (begin, npu.Event(enable_timing=True))):
        with pytest.raises(RuntimeError, match="elapsed_time needs"):
            first.elapsed_time(second)
    with pytest.raises(RuntimeError):
        plain.recorded_time()


def test_TN_028_shared_events_have_no_timing():
    with pytest.raises(RuntimeError, match="timing"):
        npu.Event(interprocess=True, enable_timing=True)
    shared = npu.Event(interprocess=True)
    handle = shared.ipc_handle()
    assert isinstance(handle, bytes) and shared.ipc_handle() == handle
    shared.record()
    shared.synchronize()
    assert shared.query()
    with pytest.raises(RuntimeError, match="64 bytes"):
        npu.Event.from_ipc_handle(0, handle[:-1])
    with pytest.raises(RuntimeError, match="interprocess=True"):
        npu.Event().ipc_handle()
    seen = output_of(
        f"""
        import torch
        event = torch.npu.Event.from_ipc_handle("npu:0", bytes.fromhex("{handle.hex()}"))
        event.wait(torch.npu.Stream())
        event.synchronize()
        torch.npu.synchronize()
        print(event.query(), event.device)
        """
    )
    assert seen == "True npu:0"


def test_TN_029_external_events_are_waited_for_before_they_are_recorded():
    a, b = npu.Stream(), npu.Stream()
    x = torch.zeros(4, device="npu")
    npu.synchronize()
    event = npu.ExternalEvent()
    for done in (1, 2, 3):
        a.wait_event(event)
        with npu.stream(a):
            x.add_(1)
            event.reset(a)  # for the next round
        assert not a.query()  # nobody has recorded it
        with npu.stream(b):
            y = x.clone()
        b.synchronize()
        assert y.cpu().tolist() == [done - 1] * 4
        event.record(b)
        a.synchronize()
        assert x.cpu().tolist() == [done] * 4


def test_TN_029_external_events_and_the_current_stream():
    event = npu.ExternalEvent()
    side = npu.Stream()
    with npu.stream(side):
        event.wait()
        event.reset()
        assert not side.query()
    event.record()
    side.synchronize()


def test_TN_030_plain_events_cannot_be_reset():
    event = npu.Event()
    event.record()
    with pytest.raises(RuntimeError, match="external events only"):
        event.reset()
    with pytest.raises(RuntimeError, match="external events only"):
        npu.Event(interprocess=True).reset(npu.Stream())


def test_TN_031_operators_on_an_external_stream(external):
    x = torch.arange(1024.0, device="npu")
    npu.synchronize()
    with npu.stream(external):
        assert npu.current_stream() == external
        y = x * 2 + 1
        z = y.sum()
    npu.synchronize()  # the owner's means
    assert npu.current_stream() == npu.default_stream()
    assert torch.equal(y.cpu(), torch.arange(1024.0) * 2 + 1) and z.item() == 1024.0**2


def test_TN_032_what_external_streams_refuse(external):
    event, stream = npu.Event(), npu.Stream()
    event.record(stream)
    tensor = torch.ones(2, device="npu")
    refused = [
        external.query,
        external.synchronize,
        external.record_event,
        lambda: external.wait_event(event),
        lambda: external.wait_stream(stream),
        lambda: stream.wait_stream(external),
        lambda: event.record(external),
        lambda: event.wait(external),
        lambda: npu.ExternalEvent().record(external),
        lambda: npu.ExternalEvent().wait(external),
        lambda: npu.ExternalEvent().reset(external),
        lambda: tensor.record_stream(external),
    ]
    if hasattr(npu, "graph_task_group_begin"):
        refused += [lambda: npu.graph_task_group_begin(external), lambda: npu.graph_task_group_end(external)]
    if hasattr(npu, "_subscribe_report"):
        refused += [lambda: npu._subscribe_report(external), lambda: npu._unsubscribe_report(external)]
    for call in refused:
        with pytest.raises(RuntimeError, match="External NPU stream is not supported"):
            call()
    if hasattr(npu, "NPUGraph"):
        with npu.stream(external), pytest.raises(RuntimeError, match="External NPU stream is not supported"):
            npu.NPUGraph().capture_begin()


def test_TN_033_wrapping_one_handle_twice(external):
    again = npu.ExternalStream(external.npu_stream)
    assert again == external and hash(again) == hash(external) and again == npu.Stream(stream_ptr=external.npu_stream)
    assert isinstance(again, npu.Stream) and isinstance(again, torch.Stream)
    assert again != npu.Stream() and rebuilt(external) == external
    for wrong in ({"priority": -1}, {"is_sync_launch": 1}):
        with pytest.raises(RuntimeError):
            npu.ExternalStream(external.npu_stream, **wrong)
    with pytest.raises(RuntimeError, match="null"):
        npu.ExternalStream(0)


def test_TN_034_priorities_cannot_be_asked_for():
    with pytest.raises(RuntimeError, match="not supported"):
        npu.Stream().priority  # noqa: B018
    with pytest.raises(RuntimeError, match="not supported"):
        npu.Stream.priority_range()


def test_TN_035_the_current_stream_belongs_to_the_thread():
    side = npu.Stream()
    seen = []
    with npu.stream(side):
        thread = threading.Thread(target=lambda: seen.append(npu.current_stream()))
        thread.start()
        thread.join()
        assert npu.current_stream() == side
    assert seen == [npu.default_stream()]


def test_TN_036_generic_streams_and_events():
    a, b = torch.Stream(device="npu"), torch.Stream(device="npu")
    event = torch.Event(device="npu", enable_timing=True)
    x = torch.zeros(4, device="npu")
    npu.synchronize()
    assert a.device == torch.device("npu:0") and event.query()
    with a:
        assert torch.accelerator.current_stream() == a and npu.current_stream().stream_id == a.stream_id
        with Gate():
            x.add_(1)
            event.record()
            with b:
                with a:  # again, from inside
                    assert torch.accelerator.current_stream() == a
                assert torch.accelerator.current_stream() == b
                event.wait()
                y = x + 1
            assert torch.accelerator.current_stream() == a
            assert not event.query() and not b.query()
    assert npu.current_stream() == npu.default_stream()
    b.synchronize()
    assert event.query() and b.query() and y.cpu().tolist() == [2] * 4
    event.synchronize()
    torch.accelerator.synchronize()


def test_TN_036_generic_and_own_ones_mix():
    own, generic = npu.Stream(), torch.Stream(device="npu")
    x = torch.zeros(4, device="npu")
    npu.synchronize()
    with Gate(own):
        with own:
            x.add_(1)
        generic.wait_stream(own)
        with generic:
            x.mul_(3)
        mark = generic.record_event()
        own.wait_event(mark)
        event = npu.Event()
        with npu.stream(own):
            x.add_(1)
            event.record()
        generic.wait_event(event)
        own.wait_stream(generic)
        event.record(generic)
        event.wait(own)
        assert not generic.query() and not event.query()
    own.synchronize()
    assert x.cpu().tolist() == [4] * 4
    torch.accelerator.set_stream(own)
    assert npu.current_stream() == own
    npu.set_stream(npu.default_stream())


def test_contexts_nest_and_none_changes_nothing():
    a, b = npu.Stream(), npu.Stream()
    context = npu.stream(a)
    with context, npu.stream(b), context:
        assert npu.current_stream() == a
        with npu.stream(None), npu.StreamContext(None):
            assert npu.current_stream() == a
    assert npu.current_stream() == npu.default_stream()
    npu.set_stream(None)
    assert npu.current_stream() == npu.default_stream()
    with pytest.raises(KeyError), npu.stream(b):
        raise KeyError
    assert npu.current_stream() == npu.default_stream()


def test_arguments_of_other_types():
    stream, event = npu.Stream(), npu.Event()
    event.record(stream)
    for call in (
        lambda: stream.wait_event("x"),
        lambda: stream.wait_event(stream),
        lambda: stream.wait_event(None),
        lambda: stream.wait_stream(event),
        lambda: stream.record_event(3),
        lambda: event.record("x"),
        lambda: event.wait(3),
        lambda: event.elapsed_time(stream),
        lambda: npu.set_stream(event),
        lambda: npu.stream(0),
        lambda: stream.wait_event(torch.Event(device="cpu")),
    ):
        with pytest.raises(RuntimeError, match="expected"):
            call()
    assert stream != 3 and stream is not None and stream != "x"


def test_sleep_takes_positive_numbers():
    with pytest.raises(RuntimeError, match="positive"):
        npu._sleep(0)
    with pytest.raises(TypeError):
        npu._sleep("long")


def test_streams_and_events_can_be_held_weakly_and_printed():
    import weakref

    stream, event = npu.Stream(), npu.Event()
    assert weakref.ref(stream)() is stream and weakref.ref(event)() is event
    assert str(stream.stream_id) in repr(stream) and "Event" in repr(event)
    stream.set_data_preprocess_stream(True)
    assert npu._C._npu_getCurrentRawStream(0) == npu.current_stream().npu_stream


def test_TN_021_streams_that_are_captured_are_passed_over():
    stream = npu.Stream()
    graph = npu.NPUGraph()
    with npu.graph(graph, stream=stream):
        others = [npu.Stream() for _ in range(40)]
        torch.ones(1, device="npu")
    assert stream not in others and len(set(others)) == 31
    assert stream in [npu.Stream() for _ in range(32)]


def test_sleep_is_captured():
    graph = npu.NPUGraph()
    with npu.graph(graph):
        npu._sleep(8_000_000)
    begin, end = npu.Event(enable_timing=True), npu.Event(enable_timing=True)
    begin.record()
    graph.replay()
    graph.replay()
    end.record()
    assert begin.elapsed_time(end) > 15.9  # at least; a busy machine makes it more


def test_external_events_by_flag():
    event = torch.npu.Event(external=True)
    event.wait()  # before it is recorded
    other = torch.npu.Stream()
    event.record(other)
    torch.npu.synchronize()
    for wrong, words in (({"enable_timing": True}, "timing.*outside of the graph"), ({"interprocess": True}, "shared")):
        with pytest.raises(RuntimeError, match=f"an external event cannot.*{words}"):
            torch.npu.Event(external=True, **wrong)
