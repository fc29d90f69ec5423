# SPDX-License-Identifier: Apache-2.0
"""Device memory: what captures take, statistics, history, limits, settings."""
import ctypes
import gc
import json
import pickle
import threading
import time

import pytest
import torch
from support import capture, output_of, run_script

MIB = 1 << 20


def settle():
    """Nothing is under way, nothing is cached."""
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()


def figures():
    stats = torch.npu.memory_stats()
    return {
        "segments": stats["segment.all.current"],
        "reserved": stats["reserved_bytes.all.current"],
        "active": stats["active.all.current"],
        "active_bytes": stats["active_bytes.all.current"],
    }


def change(before):
    now = figures()
    return tuple(now[key] - before[key] for key in ("segments", "reserved", "active", "active_bytes"))


def block_of(tensor):
    """(segment, block) of the snapshot that hold the tensor."""
    address = tensor.data_ptr()
    for segment in torch.npu.memory_snapshot():
        for block in segment["blocks"]:
            if block["address"] <= address < block["address"] + block["size"]:
                return segment, block
    raise AssertionError(f"{address:#x} is in no segment")


def chain_in_capture(source):
    result = source.clone()
    for _ in range(5):
        result = result.clone() + 1
    return result


# ---- What captures take ----


@pytest.mark.parametrize(
    ("item", "size", "segments", "reserved", "left"),
    [
        (106, 512, 1, 2 * MIB, 2 * MIB),
        (107, MIB, 2, 4 * MIB, 2 * MIB),
        (108, MIB + 512, 1, 20 * MIB, 20 * MIB),
        (109, 10 * MIB - 512, 2, 40 * MIB, 20 * MIB),
        (110, 10 * MIB + 512, 3, 36 * MIB, 12 * MIB),
    ],
    ids=["TN_106", "TN_107", "TN_108", "TN_109", "TN_110"],
)
def test_TN_106_to_TN_110_what_a_capture_takes(item, size, segments, reserved, left):
    source = torch.zeros(size // 4, device="npu")
    graph = torch.npu.NPUGraph()
    chain_in_capture(source)  # not what is looked at
    settle()
    before = figures()
    result = capture(graph, lambda: chain_in_capture(source))
    assert change(before) == (segments, reserved, 1, size)
    torch.npu.empty_cache()
    assert change(before) == (segments, reserved, 1, size)
    source.fill_(item)
    graph.replay()
    del graph
    settle()
    assert change(before) == (1, left, 1, size)
    assert result.cpu().eq(item + 5).all()
    del result
    settle()
    assert change(before) == (0, 0, 0, 0)


def test_TN_111_random_numbers_take_two_small_blocks_of_the_default_pool():
    source = torch.zeros(128, device="npu")
    graph = torch.npu.NPUGraph()
    settle()
    before = figures()
    result = capture(graph, lambda: torch.rand_like(source))
    assert change(before)[2:] == (3, 512 + 1024)
    graph.replay()
    del graph
    settle()
    assert change(before)[2:] == (1, 512)
    assert result.max() > 0
    del result


def test_TN_112_two_graphs_reserve_both():
    source = torch.zeros(128, device="npu")
    settle()
    before = figures()
    graphs = [torch.npu.NPUGraph() for _ in range(2)]
    results = [capture(graph, lambda: chain_in_capture(source)) for graph in graphs]
    assert change(before)[:3] == (2, 4 * MIB, 2)
    del results


def test_TN_113_rounds_of_captures_leave_nothing():
    weight = torch.ones(32, 32, device="npu")

    def round_trip():
        graph = torch.npu.NPUGraph()
        result = capture(graph, lambda: weight @ weight)
        graph.replay()
        del graph
        assert result[0, 0].item() == 32

    round_trip()
    settle()
    free = torch.npu.mem_get_info()[0]
    for _ in range(100):
        round_trip()
    settle()
    assert abs(free - torch.npu.mem_get_info()[0]) <= 2 * MIB


def test_TN_114_empty_cache_leaves_a_live_graph_alone():
    source = torch.zeros(128, device="npu")
    graph = torch.npu.NPUGraph()
    result = capture(graph, lambda: chain_in_capture(source))
    segments = torch.npu.memory_snapshot(graph.pool())
    assert segments
    torch.npu.empty_cache()
    assert [s["address"] for s in torch.npu.memory_snapshot(graph.pool())] == [s["address"] for s in segments]
    source.fill_(3)
    graph.replay()
    assert result.cpu().eq(8).all()


def test_TN_115_the_last_tensor_gives_the_segment_back():
    source = torch.zeros(128, device="npu")
    graph = torch.npu.NPUGraph()
    result = capture(graph, lambda: source + 1)
    pool = graph.pool()
    del graph
    settle()
    assert len(torch.npu.memory_snapshot(pool)) == 1
    del result
    settle()
    assert torch.npu.memory_snapshot(pool) == []


def test_TN_116_blocks_are_used_again_within_the_capture():
    source = torch.zeros(1024, device="npu")
    graph = torch.npu.NPUGraph()
    addresses = []

    def work():
        first = source + 1
        addresses.append(first.data_ptr())
        total = first.sum()
        del first
        second = source * 2
        addresses.append(second.data_ptr())
        return total + second.sum()

    result = capture(graph, work)
    assert addresses[0] == addresses[1]
    for value in (1.0, 2.0):
        source.fill_(value)
        graph.replay()
        assert result.item() == 1024 * (value + 1) + 1024 * value * 2


def test_TN_117_a_block_in_use_on_a_side_stream_is_not_handed_out_in_the_capture():
    source = torch.ones(1024, device="npu")
    side = torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    settle()
    before = figures()
    addresses = []

    def work():
        current = torch.npu.current_stream()
        first = source + 1
        addresses.append(first.data_ptr())
        side.wait_stream(current)
        with torch.npu.stream(side):
            doubled = first * 2
        first.record_stream(side)
        current.wait_stream(side)
        del first
        second = source + 5
        addresses.append(second.data_ptr())
        return doubled, second

    doubled, second = capture(graph, work)
    assert addresses[0] != addresses[1]
    graph.replay()
    assert doubled.cpu().eq(4).all() and second.cpu().eq(6).all()
    settle()  # the uses of the capture are over with it
    assert change(before)[2] == 2
    del graph, doubled, second
    settle()
    assert change(before) == (0, 0, 0, 0)


def test_memory_of_joined_side_streams_is_used_again_inside_the_capture():
    assert output_of(
        """
        import torch, torch_npu

        source = torch.ones(1 << 16, device="npu")
        side, far = torch.npu.Stream(), torch.npu.Stream()
        graph = torch.npu.NPUGraph()
        seen = []

        def layer(x, joins):
            current = torch.npu.current_stream()
            hidden = x * 2
            seen.append(hidden.data_ptr())
            side.wait_stream(current)
            with torch.npu.stream(side):
                out = hidden + 1
            hidden.record_stream(side)
            del hidden
            if joins:
                current.wait_stream(side)
                out.record_stream(current)
            return out

        with torch.npu.graph(graph):
            x = source
            for _ in range(4):
                x = layer(x, joins=True)
            y = layer(source, joins=False)  # its memory is in use until the streams have met
            z = torch.npu.current_stream(), source * 5
            seen.append(z[1].data_ptr())
            far.wait_stream(side)
            torch.npu.current_stream().wait_stream(far)
            w = source * 7
            seen.append(w.data_ptr())
        for value in (1, 3):
            source.fill_(value)
            graph.replay()
            expected = value
            for _ in range(4):
                expected = 2 * expected + 1
            assert x.eq(expected).all() and y.eq(2 * value + 1).all(), (x[0], y[0])
            assert z[1].eq(5 * value).all() and w.eq(7 * value).all()
        print(len(set(seen[:4])), seen[5] != seen[4], seen[6] == seen[4])
        """,
        PYTORCH_NPU_ALLOC_CONF="graph_capture_record_stream_reuse:True",
    ) == "1 True True"


def test_TN_118_a_use_from_before_the_capture_gets_its_event_after_it():
    side = torch.npu.Stream()
    source = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    settle()
    before = figures()
    used = torch.ones(1024, device="npu")
    used.record_stream(side)

    def work():
        nonlocal used
        result = source + 1
        used = None
        assert change(before)[2] == 2, "the block waits until the capture is over"
        return result

    result = capture(graph, work)
    settle()
    assert change(before)[2] == 1
    graph.replay()
    assert result.cpu().eq(1).all()


def test_TN_119_side_streams_have_segments_of_their_own_in_the_same_pool():
    source = torch.zeros(8, device="npu")
    side = torch.npu.Stream()
    graph = torch.npu.NPUGraph()

    def work():
        current = torch.npu.current_stream()
        here = source + 1
        side.wait_stream(current)
        with torch.npu.stream(side):
            there = source + 2
        current.wait_stream(side)
        return here, there

    results = capture(graph, work)
    segments = torch.npu.memory_snapshot(graph.pool())
    assert len(segments) == 2
    assert len({segment["stream"] for segment in segments}) == 2
    assert {segment["segment_pool_id"] for segment in segments} == {graph.pool()}
    assert side.npu_stream in {segment["stream"] for segment in segments}
    del results


def test_TN_120_threads_that_do_not_capture_stay_in_the_default_pool():
    source = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    made = []

    def work():
        thread = threading.Thread(target=lambda: made.append(torch.empty(100, device="npu")))
        thread.start()
        thread.join()
        return source + 1

    result = capture(graph, work)
    assert block_of(made[0])[0]["segment_pool_id"] == (0, 0)
    assert block_of(result)[0]["segment_pool_id"] == graph.pool()


def test_TN_121_gradients_of_a_captured_backward_lie_in_the_pool():
    weight = torch.ones(4, 4, device="npu", requires_grad=True)
    value = torch.ones(2, 4, device="npu")
    (value @ weight).sum().backward()  # the threads of autograd are there now
    weight.grad = None
    graph = torch.npu.NPUGraph()
    capture(graph, lambda: (value @ weight).sum().backward())
    assert block_of(weight.grad)[0]["segment_pool_id"] == graph.pool()
    value.fill_(3)
    graph.replay()
    assert weight.grad.cpu().eq(6).all()


def test_TN_122_a_free_of_another_thread_records_nothing_in_the_capture():
    stream = torch.npu.Stream()
    settle()
    before = figures()
    holder = [torch.ones(1024, device="npu")]
    holder[0].record_stream(stream)
    graph = torch.npu.NPUGraph()

    def work():
        thread = threading.Thread(target=holder.clear)
        thread.start()
        thread.join()
        assert change(before)[2] == 1

    with pytest.warns(UserWarning, match="NPU Graph is empty"):
        capture(graph, work, stream=stream)
    settle()
    assert change(before)[2] == 0


# ---- Settings ----


def test_TN_123_without_caches_captures_still_have_their_pool():
    code = """
        import json, torch
        source = torch.ones(8, device="npu")
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            temporary = source + 1
            result = temporary * 2
            del temporary
        source.fill_(4)
        graph.replay()
        torch.npu.synchronize()
        reserved = torch.npu.memory_reserved()
        eager = torch.ones(1 << 20, device="npu")
        more = torch.npu.memory_reserved() - reserved
        del eager
        torch.npu.synchronize()
        last = torch.empty(8, device="npu")  # frees are looked at here at the latest
        print(json.dumps({
            "result": result.cpu().tolist(),
            "pool": len(torch.npu.memory_snapshot(graph.pool())),
            "more": more,
            "after": torch.npu.memory_reserved() - reserved,
        }))
    """
    found = json.loads(output_of(code, PYTORCH_NO_NPU_MEMORY_CACHING="1"))
    assert found["result"] == [10] * 8
    assert found["pool"] == 1
    assert found["more"] >= 4 * MIB
    assert found["after"] < found["more"]


def test_TN_124_a_fraction_limits_what_is_reserved():
    settle()
    total = torch.npu.mem_get_info()[1]
    before = torch.npu.memory_stats()
    assert torch.npu.get_per_process_memory_fraction() == 1
    torch.npu.set_per_process_memory_fraction(0.5)
    try:
        assert torch.npu.get_per_process_memory_fraction() == 0.5
        with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory") as error:
            torch.empty(total * 6 // 10, dtype=torch.uint8, device="npu")
        assert error.value.code == 207001
        assert "fraction 0.50" in str(error.value)
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)
    after = torch.npu.memory_stats()
    assert after["num_ooms"] - before["num_ooms"] == 1
    assert after["num_alloc_retries"] - before["num_alloc_retries"] == 1


def test_TN_125_a_rejection_is_counted_and_tries_nothing():
    total = torch.npu.mem_get_info()[1]
    before = torch.npu.memory_stats()
    torch.npu.memory._set_allocator_settings("throw_on_npumalloc_oom:True,per_process_memory_fraction:0.5")
    try:
        with pytest.raises(torch.OutOfMemoryError, match="NPU out of memory"):
            torch.empty(total * 6 // 10, dtype=torch.uint8, device="npu")
    finally:
        torch.npu.memory._set_allocator_settings("throw_on_npumalloc_oom:False,per_process_memory_fraction:1")
    after = torch.npu.memory_stats()
    assert after["num_oom_rejections"] - before["num_oom_rejections"] == 1
    assert after["num_alloc_retries"] == before["num_alloc_retries"]


def test_TN_126_old_blocks_are_collected_but_not_in_a_capture():
    code = """
        import json, torch
        total = torch.npu.mem_get_info()[1]
        mib = 1 << 20
        torch.npu.set_per_process_memory_fraction(100 * mib / total)  # collected from 60 MiB on
        def make(size):
            return torch.empty(size * mib, dtype=torch.uint8, device="npu")
        old = make(30)
        del old
        torch.npu.synchronize()
        graph = torch.npu.NPUGraph()
        stream = torch.npu.Stream()
        with torch.npu.stream(stream):
            graph.capture_begin()
            kept = make(40)
            kept.fill_(1)
            graph.capture_end()
        in_capture = torch.npu.memory_reserved() // mib
        graph.reset()
        del kept, graph
        torch.npu.synchronize()
        new = make(32)
        print(json.dumps([in_capture, torch.npu.memory_reserved() // mib]))
    """
    in_capture, after = json.loads(output_of(code, PYTORCH_NPU_ALLOC_CONF="garbage_collection_threshold:0.6"))
    assert in_capture == 70
    assert after < 70 + 32


def test_TN_127_oversize_blocks_stay_whole():
    code = """
        import json, torch
        mib = 1 << 20
        def make(size):
            return torch.empty(size * mib, dtype=torch.uint8, device="npu")
        large = make(80)
        stats = torch.npu.memory_stats()
        counted = [stats["oversize_allocations.current"], stats["oversize_segments.current"], stats["max_split_size"]]
        address = large.data_ptr()
        del large
        small = make(12)
        stats = torch.npu.memory_stats()
        counted += [stats["oversize_allocations.current"], stats["oversize_segments.current"]]
        again = make(75)
        print(json.dumps([counted, small.data_ptr() != address, again.data_ptr() == address]))
    """
    counted, is_elsewhere, is_again = json.loads(output_of(code, PYTORCH_NPU_ALLOC_CONF="max_split_size_mb:64"))
    assert counted == [1, 1, 64 * MIB, 0, 1]
    assert is_elsewhere and is_again


def test_TN_128_expandable_segments_grow_by_pages():
    code = """
        import json, torch
        mib = 1 << 20
        kept, reserved = [], []
        for size in (30, 50, 90):
            kept.append(torch.empty(size * mib, dtype=torch.uint8, device="npu"))
            reserved.append(torch.npu.memory_reserved() // mib)
        source = torch.ones(1 << 20, device="npu")
        side = torch.npu.Stream()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            current = torch.npu.current_stream()
            here = source + 1
            side.wait_stream(current)
            with torch.npu.stream(side):
                there = source * 3
            current.wait_stream(side)
            result = here + there
        values = []
        for value in (1.0, 2.0):
            source.fill_(value)
            graph.replay()
            values.append(result[0].item())
        segments = torch.npu.memory_snapshot()
        print(json.dumps([reserved, values, all(s["is_expandable"] for s in segments),
                          len(torch.npu.memory_snapshot(graph.pool()))]))
    """
    reserved, values, are_expandable, in_pool = json.loads(
        output_of(code, PYTORCH_NPU_ALLOC_CONF="expandable_segments:True")
    )
    assert reserved == [40, 80, 180]
    assert values == [5, 9]
    assert are_expandable
    assert in_pool == 2


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"PYTORCH_NPU_ALLOC_CONF": "max_split_size_mb:64", "PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, "both"),
        ({"PYTORCH_NPU_ALLOC_CONF": "max_split_sizes_mb:64"}, "max_split_sizes_mb"),
        ({"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:64"}, "expandable_segments"),
    ],
    ids=["both", "unknown", "conflict"],
)
def test_TN_129_settings_of_the_environment_that_are_wrong(environment, named):
    code = """
        import torch
        try:
            torch.empty(1, device="npu")
        except ValueError as error:
            print("ValueError", str(error).replace(chr(10), " "))
    """
    found = output_of(code, **environment)
    assert found.startswith("ValueError") and named in found


def test_TN_129_settings_that_change_in_use():
    with pytest.raises(ValueError, match="max_split_sizes_mb"):
        torch.npu.memory._set_allocator_settings("max_split_sizes_mb:64")
    with pytest.raises(ValueError, match="garbage_collection_threshold"):
        torch.npu.memory._set_allocator_settings("garbage_collection_threshold:0.5")


# ---- Statistics ----


def test_TN_130_statistics_before_the_first_use():
    code = """
        import torch
        import torch_npu
        print([dict(torch.npu.memory_stats()), torch.npu.memory_allocated(), torch.npu.max_memory_reserved(),
               dict(torch.npu.host_memory_stats()), torch.npu.is_initialized()])
    """
    assert output_of(code) == "[{}, 0, 0, {}, False]"


def test_TN_131_names_of_the_statistics():
    kept = [torch.ones(100, device="npu"), torch.ones(1 << 20, device="npu")]
    stats = torch.npu.memory_stats()
    assert list(stats) == sorted(stats)
    names = set()
    for group in (
        "allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes inactive_split_bytes "
        "requested_bytes"
    ).split():
        names |= {
            f"{group}.{pool}.{kind}"
            for pool in ("all", "small_pool", "large_pool")
            for kind in ("current", "peak", "allocated", "freed")
        }
    for group in ("oversize_allocations", "oversize_segments"):
        names |= {f"{group}.{kind}" for kind in ("current", "peak", "allocated", "freed")}
    names |= set(
        "num_alloc_retries num_ooms num_oom_rejections max_split_size num_sync_all_streams num_device_alloc "
        "num_device_free".split()
    )
    assert set(stats) == names
    nested = torch.npu.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]
    assert nested["num_ooms"] == stats["num_ooms"]
    theirs = torch.accelerator.memory_stats()
    shared = set(theirs) & set(stats)
    assert len(shared) >= 100
    assert {name: theirs[name] for name in shared} == {name: stats[name] for name in shared}
    assert torch.accelerator.memory_allocated() == torch.npu.memory_allocated() > 0
    assert torch.accelerator.memory_reserved() == torch.npu.memory_reserved()
    assert torch.accelerator.max_memory_allocated() == torch.npu.max_memory_allocated()
    assert torch.accelerator.get_memory_info() == torch.npu.mem_get_info()
    del kept


def test_TN_131_peaks_and_totals_begin_anew():
    kept = torch.ones(1 << 20, device="npu")
    more = torch.ones(1 << 20, device="npu")
    now = torch.npu.memory_allocated()
    assert torch.npu.max_memory_allocated() >= now
    del more
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_allocated() == torch.npu.memory_allocated() == now - 4 * MIB
    torch.npu.reset_accumulated_memory_stats()
    stats = torch.npu.memory_stats()
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 0
    with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
        torch.npu.reset_max_memory_allocated()
    with pytest.warns(FutureWarning, match="memory_reserved"):
        assert torch.npu.memory_cached() == torch.npu.memory_reserved()
    for abbreviated in (False, True):
        assert "Reserved memory" in torch.npu.memory_summary(abbreviated=abbreviated)
    del kept


# ---- History ----


@pytest.fixture
def history():
    def record(**options):
        torch.npu.memory._record_memory_history(**options)

    yield record
    torch.npu.memory._record_memory_history(enabled=None)


def actions_on(address, trace):
    return [entry["action"] for entry in trace if entry.get("addr") == address]


def test_TN_132_history_with_places(history, tmp_path):
    settle()
    clock_at_start = time.time() - time.monotonic()
    history(max_entries=1000)
    made = torch.empty(30 * MIB, dtype=torch.uint8, device="npu")
    address = made.data_ptr()
    block = block_of(made)[1]
    assert block["frames"][0]["filename"] == __file__
    assert block["frames"][0]["name"] == "test_TN_132_history_with_places"
    del made
    graph = torch.npu.NPUGraph()
    result = capture(graph, lambda: torch.ones(8, device="npu") + 1)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="npu")
    path = tmp_path / "snapshot.pickle"
    torch.npu.memory._dump_snapshot(str(path))
    with open(path, "rb") as file:
        snapshot = pickle.load(file)
    assert set(snapshot) >= {"segments", "device_traces", "allocator_settings"}
    trace = snapshot["device_traces"][0]
    assert actions_on(address, trace)[:4] == ["segment_alloc", "alloc", "free_requested", "free_completed"]
    alloc = next(entry for entry in trace if entry["action"] == "alloc" and entry["addr"] == address)
    assert alloc["frames"][0]["filename"] == __file__ and alloc["frames"][0]["line"] > 0
    assert alloc["size"] == 30 * MIB and alloc["pool_id"] == (0, 0) and alloc["time_us"] > 0
    assert any(entry["action"] == "alloc" and entry["pool_id"] == graph.pool() for entry in trace)
    oom = next(entry for entry in trace if entry["action"] == "oom")
    assert oom["size"] == 1 << 50 and oom["device_free"] > 0 and "addr" not in oom
    times = [entry["time_us"] for entry in trace]
    was_set = abs(time.time() - time.monotonic() - clock_at_start) > 1e-4  # the system's clock, by somebody
    assert times == sorted(times) or was_set
    for name in ("usage.svg", "memory.svg"):
        (torch.npu.memory._save_segment_usage if name == "usage.svg" else torch.npu.memory._save_memory_usage)(
            str(tmp_path / name)
        )
        assert (tmp_path / name).read_text().startswith("<svg")
    for name in ("snapshot.json", "timeline.svg", "timeline.html"):
        torch.npu.memory._dump_snapshot(str(tmp_path / name))
        assert (tmp_path / name).stat().st_size > 100
    del result


@pytest.mark.parametrize(
    ("options", "has_trace", "on_alloc", "on_free", "on_block"),
    [
        ({"enabled": "state"}, False, False, False, True),
        ({"context": None}, True, False, False, False),
        ({"context": "state"}, True, False, False, True),
        ({"context": "alloc"}, True, True, False, True),
        ({"context": "all", "stacks": "python"}, True, True, True, True),
    ],
    ids=["state", "none", "blocks", "alloc", "all"],
)
def test_TN_132_how_much_is_remembered(history, options, has_trace, on_alloc, on_free, on_block):
    history(**options)
    kept = torch.empty(64, device="npu")
    gone = torch.empty(64, device="npu")
    del gone
    trace = torch.npu.memory._snapshot()["device_traces"][0]
    assert bool(trace) == has_trace
    if has_trace:
        framed = {entry["action"]: bool(entry["frames"]) for entry in trace}
        assert framed["alloc"] == on_alloc
        assert framed["free_completed"] == on_free
    assert bool(block_of(kept)[1]["frames"]) == on_block


def test_TN_132_history_is_bounded_and_off_again(history):
    history(max_entries=5)
    for _ in range(20):
        torch.empty(8, device="npu")
    assert len(torch.npu.memory._snapshot()["device_traces"][0]) == 5
    torch.npu.memory._record_memory_history(enabled=None)
    torch.empty(8, device="npu")
    assert torch.npu.memory._snapshot()["device_traces"][0] == []
    for wrong in ({"enabled": "some"}, {"context": "some"}, {"stacks": "cpp"}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            torch.npu.memory._record_memory_history(**wrong)


def test_TN_132_frees_have_the_place_of_the_free(history):
    history()
    holder = [torch.empty(64, device="npu")]
    address = holder[0].data_ptr()

    def let_go():
        holder.clear()

    let_go()
    trace = torch.npu.memory._snapshot()["device_traces"][0]
    names = {entry["action"]: entry["frames"][0]["name"] for entry in trace if entry.get("addr") == address}
    assert names["alloc"] == "test_TN_132_frees_have_the_place_of_the_free"
    assert names["free_requested"] == names["free_completed"] == "let_go"


def test_TN_132_actions_that_are_skipped(history):
    history(skip_actions=["free_requested", "segment_alloc"])
    torch.empty(64, device="npu")
    actions = {entry["action"] for entry in torch.npu.memory._snapshot()["device_traces"][0]}
    assert actions >= {"alloc", "free_completed"} and not actions & {"free_requested", "segment_alloc"}
    with pytest.raises(ValueError, match="'free'.*'free_requested'"):
        history(skip_actions=["free"])
    with pytest.raises(TypeError, match="skip_actions"):
        history(skip_actions="alloc")


@pytest.mark.parametrize("context", ["all", None])
def test_TN_132_metadata_and_stacks_in_snapshots(history, context):
    history(context=context)
    torch.npu.memory._set_memory_metadata("step 3")
    try:
        assert torch.npu.memory._get_memory_metadata() == "step 3"
        kept = torch.empty(64, device="npu")
        torch.npu.memory._set_memory_metadata("step 4")
        torch.empty(640, device="npu")
    finally:
        torch.npu.memory._set_memory_metadata("")
    other = torch.empty(64, device="npu")
    blocks = {
        block["address"]: block for segment in torch.npu.memory_snapshot() for block in segment["blocks"]
    }
    assert blocks[kept.data_ptr()]["user_metadata"] == "step 3"
    assert bool(blocks[kept.data_ptr()]["frames"]) == (context == "all")
    assert blocks[other.data_ptr()]["user_metadata"] == ""
    trace = torch.npu.memory._snapshot()["device_traces"][0]
    assert [entry["user_metadata"] for entry in trace if entry["action"] == "free_completed"] == ["step 4"]
    with pytest.raises(TypeError, match="metadata must be a str"):
        torch.npu.memory._set_memory_metadata(3)


def test_TN_133_observers_of_memory_shortage_may_allocate():
    calls = []

    def observer(device, size, total, free):
        if size == 1 << 49:
            calls.append((device, total, free, torch.ones(8, device="npu")))

    torch.npu.synchronize()
    torch.npu.memory._C._npu_attach_out_of_memory_observer(observer)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 49, dtype=torch.uint8, device="npu")
    assert len(calls) == 1
    assert calls[0][0] == 0 and calls[0][1] == torch.npu.mem_get_info()[1] >= calls[0][2] > 0
    assert calls[0][3].cpu().eq(1).all()
    with pytest.raises(TypeError, match="callable"):
        torch.npu.memory._C._npu_attach_out_of_memory_observer(3)


def test_TN_134_plain_addresses():
    before = torch.npu.memory_allocated()
    stream = torch.npu.Stream()
    blocks = [torch.npu.caching_allocator_alloc(1024, stream=s) for s in (None, stream, stream.npu_stream)]
    assert torch.npu.memory_allocated() - before == 3 * 1024
    owners = {}
    for segment in torch.npu.memory_snapshot():
        owners.update({block["address"]: segment["stream"] for block in segment["blocks"]})
    assert [owners[block] for block in blocks] == [
        torch.npu.current_stream().npu_stream, stream.npu_stream, stream.npu_stream
    ]
    for block in blocks:
        torch.npu.caching_allocator_delete(block)
    assert torch.npu.memory_allocated() == before
    with pytest.raises(RuntimeError, match="107000"):
        torch.npu.caching_allocator_delete(blocks[0])
    with pytest.raises(TypeError, match="stream"):
        torch.npu.caching_allocator_alloc(1024, stream="x")


def test_TN_135_fractions_that_are_none():
    with pytest.raises(TypeError, match="float"):
        torch.npu.set_per_process_memory_fraction(1)
    for wrong in (1.5, -0.1):
        with pytest.raises(ValueError, match="between 0 and 1"):
            torch.npu.set_per_process_memory_fraction(wrong)


def test_TN_137_live_blocks_of_a_pool():
    check = torch.npu.memory._C._npu_checkPoolLiveAllocations
    pool = torch.npu.MemPool()
    outside = torch.empty(8, device="npu")
    with torch.npu.use_mem_pool(pool):
        kept = torch.empty(8, device="npu")
        gone = torch.empty(8, device="npu")
    del gone
    assert check(0, pool.id, {kept.data_ptr()})
    assert not check(0, pool.id, {kept.data_ptr(), outside.data_ptr()})
    assert not check(0, pool.id, set())
    del kept
    assert check(0, pool.id, set())


def test_TN_136_a_pool_is_set_back():
    """As graph trees do it: another recording goes where the first one's dead tensors were, its live ones stay."""
    C = torch.npu.memory._C
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        kept = torch.full((300,), 3.0, device="npu")
        dead = torch.full((5000,), 4.0, device="npu")
        large = torch.full((1 << 20,), 5.0, device="npu")
    place = dead.data_ptr()
    del dead
    state = C._npu_getCheckpointState(0, pool.id)
    live = [block["ptr"] for blocks in state.segments for block in blocks if block["allocated"]]
    assert live == sorted([kept.data_ptr(), large.data_ptr()])
    before = figures()
    with torch.npu.use_mem_pool(pool):
        later = torch.full((5000,), 6.0, device="npu")
        more = torch.zeros(100, device="npu")
    assert later.data_ptr() == place

    stale = [tensor.untyped_storage()._cdata for tensor in (later, more)]
    alive = [tensor.untyped_storage()._cdata for tensor in (kept, large)]
    with pytest.raises(RuntimeError, match="held by somebody who has not been named"):
        C._npu_setCheckpointPoolState(0, state, stale[:1], alive)
    with pytest.raises(RuntimeError, match="no block was held"):
        C._npu_setCheckpointPoolState(0, state, stale[1:], [*alive, stale[0]])
    assert later.tolist() == [6.0] * 5000, "a refusal changes nothing"

    C._npu_setCheckpointPoolState(0, state, stale, alive)
    assert figures() == before
    assert C._npu_checkPoolLiveAllocations(0, pool.id, set(live))
    assert kept.tolist() == [3.0] * 300 and large.sum().item() == 5.0 * (1 << 20)
    del later, more  # own nothing any more
    assert C._npu_checkPoolLiveAllocations(0, pool.id, set(live))
    with torch.npu.use_mem_pool(pool):
        again = torch.zeros(5000, device="npu")
    assert again.data_ptr() == place
    del kept, large, again
    assert C._npu_checkPoolLiveAllocations(0, pool.id, set())


def test_TN_136_a_pool_is_set_back_to_more_than_there_is():
    C = torch.npu.memory._C
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        first = torch.full((300,), 1.0, device="npu")
        second = torch.full((300,), 2.0, device="npu")
    state = C._npu_getCheckpointState(0, pool.id)
    nobodys, address = first.data_ptr(), second.data_ptr()
    weak = C._weak_ref_tensor(second)
    del first, second
    C._npu_setCheckpointPoolState(0, state, [], [weak.untyped_storage()._cdata])
    assert C._npu_checkPoolLiveAllocations(0, pool.id, {address, nobodys})
    torch.npu.caching_allocator_delete(nobodys)
    assert C._npu_checkPoolLiveAllocations(0, pool.id, {address})
    assert weak.tolist() == [2.0] * 300
    del weak
    assert C._npu_checkPoolLiveAllocations(0, pool.id, set())
    with pytest.raises(RuntimeError, match="pool"):
        C._npu_getCheckpointState(0, (0, 1 << 40))


# ---- Waiting, streams, helpers ----


def test_who_waits_for_memory_lets_python_functions_of_the_device_run():
    """The last resort of an allocation waits for the device, which may be about to call Python."""
    settle()
    with open("/proc/self/maps") as maps:
        runtime = ctypes.CDLL(next(line.split()[-1] for line in maps if "libascendcl.so" in line))
    called = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: called.append(1))
    held = torch.empty(40 * MIB, dtype=torch.uint8, device="npu")
    total = torch.npu.mem_get_info()[1]
    torch.npu.set_per_process_memory_fraction((torch.npu.memory_reserved() + 24 * MIB) / total)
    try:
        stream = ctypes.c_void_p(torch.npu.current_stream().npu_stream)
        torch.npu._sleep(1_000_000)  # so that it is not called before somebody waits; if it is, nothing is lost
        assert runtime.aclrtLaunchHostFunc(stream, function, None) == 0
        del held
        larger = torch.empty(50 * MIB, dtype=torch.uint8, device="npu")
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)
    assert called == [1] and larger.numel() == 50 * MIB
    assert torch.npu.memory_stats()["num_alloc_retries"] > 0


def test_erase_stream_takes_a_use_back():
    import torch_npu

    side = torch.npu.Stream()
    gate = torch.npu.ExternalEvent()
    settle()
    made = torch.empty(30 * MIB, dtype=torch.uint8, device="npu")
    address = made.data_ptr()
    gate.wait(side)  # nothing on `side` ends before it is recorded
    try:
        made.record_stream(side)
        torch_npu.erase_stream(made, side)
        del made
        again = torch.empty(30 * MIB, dtype=torch.uint8, device="npu")
        assert again.data_ptr() == address
        again.record_stream(side)
        del again
        other = torch.empty(30 * MIB, dtype=torch.uint8, device="npu")
        assert other.data_ptr() != address
    finally:
        gate.record(torch.npu.current_stream())
    with pytest.raises(TypeError, match="tensor"):
        torch_npu.erase_stream(3, side)
    with pytest.raises(TypeError, match="stream"):
        torch_npu.erase_stream(torch.empty(1, device="npu"), 3)


def test_tensors_over_memory_that_they_do_not_own():
    from torch_npu import _C

    owner = torch.arange(12, device="npu").reshape(3, 4).t()
    weak = _C._weak_ref_tensor(owner)
    assert weak.data_ptr() == owner.data_ptr() and weak.stride() == owner.stride() and weak.dtype == owner.dtype
    assert weak.cpu().equal(owner.cpu())
    before = torch.npu.memory_allocated()
    del weak
    assert torch.npu.memory_allocated() == before

    storage = owner.untyped_storage()
    assert _C._has_Standard_Deleter(storage._cdata)
    borrowed = _C._construct_storage_from_data_pointer(storage.data_ptr(), owner.device, storage.nbytes())
    assert not _C._has_Standard_Deleter(borrowed._cdata)
    metadata = {"size": (4, 3), "stride": (1, 4), "dtype": owner.dtype, "storage_offset": 0}
    assert _C._construct_NPU_Tensor_From_Storage_And_Metadata(metadata, borrowed).cpu().equal(owner.cpu())
    assert _C._tensors_data_ptrs_at_indices_equal([owner, None], [owner.data_ptr(), 0], [0])
    assert not _C._tensors_data_ptrs_at_indices_equal([owner], [owner.data_ptr() + 4], [0])

    _C._free_And_Remove_DeleterFn(storage._cdata)
    assert torch.npu.memory_allocated() < before
    assert not _C._has_Standard_Deleter(storage._cdata)
    with pytest.raises(RuntimeError, match="does not own"):
        _C._free_And_Remove_DeleterFn(storage._cdata)
    del owner, storage

    cached = torch.ones(1, device="npu")
    _C._set_cached_tensors_enabled(True)
    _C._add_cached_tensor(cached)
    _C._remove_cached_tensor(cached)
    _C._set_cached_tensors_enabled(False)


def test_exit_with_a_history_and_an_observer():
    code = """
        import torch
        torch.npu.memory._record_memory_history()
        torch.npu.memory._C._npu_attach_out_of_memory_observer(print)
        kept = [torch.ones(8, device="npu") for _ in range(10)]
        pool = torch.npu.MemPool()
        with torch.npu.use_mem_pool(pool):
            kept.append(torch.ones(8, device="npu"))
        print("end")
    """
    assert run_script(code).returncode == 0
