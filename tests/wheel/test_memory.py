# SPDX-License-Identifier: Apache-2.0
"""Streams, events, pinned memory, the allocators with their settings, statistics and snapshots, as users write it."""

import gc
import pickle
import textwrap

import pytest
import torch

MIB = 1 << 20


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the package writes what it knows when memory is short
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()


def mib(count):
    """A tensor of so many MiB, which has a segment of its own from 20 on."""
    return torch.empty(count * MIB, dtype=torch.uint8, device="npu")


# ---- Streams and events ----


def test_a_stream_runs_what_is_queued_in_its_context():
    side = torch.npu.Stream()
    assert torch.npu.current_stream() == torch.npu.default_stream() != side
    with torch.npu.stream(side):
        assert torch.npu.current_stream() == side
        x = torch.ones(1000, device="npu") * 3
    assert torch.npu.current_stream() == torch.npu.default_stream()
    side.synchronize()
    assert side.query() and x.sum().item() == 3000
    assert torch.npu.Stream(stream_id=side.stream_id, device_index=side.device_index, device_type=side.device_type) == side
    assert isinstance(torch.npu.Stream(priority=-1).npu_stream, int)


def test_streams_wait_for_each_other():
    streams = [torch.npu.Stream() for _ in range(4)]
    x = torch.zeros(100_000, device="npu")
    for round_ in range(8):
        stream, last = streams[round_ % 4], streams[(round_ - 1) % 4] if round_ else torch.npu.current_stream()
        stream.wait_stream(last)
        with torch.npu.stream(stream):
            x = x * 2 + 1
            x.record_stream(stream)
    torch.npu.current_stream().wait_stream(streams[3])
    assert torch.equal(x.cpu(), torch.full((100_000,), 255.0))


def test_memory_is_not_given_away_while_a_stream_uses_it():
    side, ready = torch.npu.Stream(), torch.npu.Event()
    x = torch.full((200_000,), 7.0, device="npu")
    ready.record()
    with torch.npu.stream(side):
        side.wait_event(ready)
        total = torch.zeros(200_000, device="npu")
        for _ in range(20):
            total += x
    x.record_stream(side)
    del x
    for _ in range(20):  # would take the memory at once without the record
        torch.full((200_000,), -1.0, device="npu")
    side.synchronize()
    assert torch.equal(total.cpu(), torch.full((200_000,), 140.0))


def test_events_tell_times_and_ends():
    begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
    begin.record()
    x = torch.ones(400, 400, device="npu")
    for _ in range(5):
        x = x @ x / 400
    end.record()
    end.synchronize()
    assert begin.query() and end.query()
    assert begin.elapsed_time(end) > 0
    untimed = [torch.npu.Event() for _ in range(2)]
    for event in untimed:
        event.record()
    torch.npu.synchronize()
    with pytest.raises(RuntimeError):
        untimed[0].elapsed_time(untimed[1])


# ---- Pinned memory ----


def test_pinned_memory_is_used_again():
    first = torch.empty(MIB, dtype=torch.uint8).pin_memory()
    place = first.data_ptr()
    assert first.is_pinned() and not torch.empty(4).is_pinned()
    del first
    torch.npu.synchronize()
    assert torch.empty(MIB, dtype=torch.uint8, pin_memory=True).data_ptr() == place


def test_copies_that_do_not_wait():
    host = [torch.arange(100_000.0).add(i).pin_memory() for i in range(4)]
    back = [torch.empty(100_000).pin_memory() for _ in range(4)]
    for one, other in zip(host, back):
        other.copy_(one.to("npu", non_blocking=True) * 2, non_blocking=True)
    torch.npu.synchronize()
    for one, other in zip(host, back):
        assert torch.equal(other, one * 2)


def test_a_loader_pins_its_batches():
    data = torch.utils.data.TensorDataset(torch.arange(12.0).reshape(6, 2))
    seen = []
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True):
        assert batch.is_pinned()
        seen.append(batch.npu(non_blocking=True).sum().item())
    assert seen == [6.0, 22.0, 38.0]


# ---- Statistics ----


def test_statistics_follow_what_is_allocated():
    before = torch.npu.memory_allocated()
    torch.npu.reset_peak_memory_stats()
    x, y = mib(32), mib(64)
    assert torch.npu.memory_allocated() - before == pytest.approx(96 * MIB, abs=4096)  # a few bytes of padding
    assert torch.npu.memory_reserved() >= torch.npu.memory_allocated()
    del y
    assert torch.npu.memory_allocated() - before == pytest.approx(32 * MIB, abs=4096)
    assert torch.npu.max_memory_allocated() - before == pytest.approx(96 * MIB, abs=4096)
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_allocated() == torch.npu.memory_allocated()
    reserved = torch.npu.memory_reserved()
    torch.npu.empty_cache()
    assert reserved - torch.npu.memory_reserved() >= 64 * MIB
    del x
    stats = torch.npu.memory_stats()
    assert stats["allocated_bytes.all.current"] == before
    assert stats["allocation.all.allocated"] - stats["allocation.all.freed"] == stats["allocation.all.current"]
    assert "Allocated memory" in torch.npu.memory_summary()


def test_memory_of_the_device_is_taken_and_given_back():
    free, total = torch.npu.mem_get_info()
    x = mib(256)
    now, same = torch.npu.mem_get_info()
    assert total == same and 0 < free - now < 300 * MIB and free - now >= 200 * MIB
    del x
    torch.npu.empty_cache()
    assert torch.npu.mem_get_info()[0] > now


def test_a_request_that_is_too_large():
    total = torch.npu.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        torch.empty(2 * total, dtype=torch.uint8, device="npu")
    assert torch.ones(4, device="npu").sum().item() == 4  # goes on


def test_a_share_of_the_memory():
    total = torch.npu.mem_get_info()[1]
    try:
        torch.npu.set_per_process_memory_fraction(0.01)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(total // 50, dtype=torch.uint8, device="npu")
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)
    assert torch.empty(total // 50, dtype=torch.uint8, device="npu").numel() == total // 50


# ---- Settings: in a process of their own, since they are read once ----

PROGRAM = """
    import torch, torch_npu
    MIB = 1 << 20
    mib = lambda count: torch.empty(count * MIB, dtype=torch.uint8, device="npu")
    {}
"""


@pytest.mark.parametrize("setting, code", [
    # One segment grows; what is freed in its middle serves a larger tensor.
    ("expandable_segments:True", """
        parts = [mib(20) for _ in range(6)]
        reserved = torch.npu.memory_reserved()
        del parts[1:3]
        wide = mib(40)
        print(len(torch.npu.memory_snapshot()) == 1 and torch.npu.memory_reserved() == reserved)
    """),
    # A free block above the limit serves only requests of about its size; what was free for long goes when memory is short.
    ("garbage_collection_threshold:0.5,max_split_size_mb:32", """
        mib(100)
        other = mib(40)
        print(torch.npu.memory_reserved() >= 140 * MIB)
        torch.npu.set_per_process_memory_fraction(200 * MIB / torch.npu.mem_get_info()[1])
        for size in (70, 75, 80, 85, 90):
            mib(size)
        print(torch.npu.memory_reserved() <= 200 * MIB and torch.npu.memory_stats()["num_ooms"] == 0)
    """),
])
def test_settings(run, setting, code):
    lines = textwrap.dedent(code).strip().replace("\n", "\n    ")
    assert set(run(PROGRAM.format(lines), PYTORCH_NPU_ALLOC_CONF=setting).split()) == {"True"}


def test_a_wrong_setting_is_named(run):
    said = run("""
        import torch, torch_npu
        try:
            torch.ones(1, device="npu")
        except Exception as error:
            print(error)
    """, PYTORCH_NPU_ALLOC_CONF="no_such_setting:1")
    assert "no_such_setting" in said


# ---- Snapshots ----


def test_a_snapshot_shows_blocks_and_their_history(tmp_path):
    torch.npu.memory._record_memory_history(max_entries=1000, stacks="python")
    try:
        kept = mib(24)
        del (gone := [mib(28)])[:]
        snapshot = torch.npu.memory._snapshot()
        torch.npu.memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    finally:
        torch.npu.memory._record_memory_history(enabled=None)
    for data in (snapshot, pickle.loads((tmp_path / "snapshot.pickle").read_bytes())):
        blocks = [block for segment in data["segments"] for block in segment["blocks"]]
        mine = [block for block in blocks if block["state"] == "active_allocated" and block["requested_size"] == 24 * MIB]
        assert len(mine) == 1
        assert any("test_memory.py" in frame["filename"] for frame in mine[0]["frames"])
        actions = [entry["action"] for trace in data["device_traces"] for entry in trace if entry["size"] >= 24 * MIB]
        assert actions.count("alloc") >= 2 and "free_requested" in actions and "free_completed" in actions
    assert kept.numel() == 24 * MIB


def test_a_pool_of_its_own():
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        x = mib(24)
    y = mib(24)
    ours = [segment for segment in torch.npu.memory_snapshot() if tuple(segment["segment_pool_id"]) == tuple(pool.id)]
    assert [segment["address"] for segment in ours] == [x.data_ptr()] and y.data_ptr() != x.data_ptr()
    del x


def test_memory_that_a_program_takes_by_hand():
    before = torch.npu.memory_allocated()
    place = torch.npu.caching_allocator_alloc(4 * MIB)
    assert place and torch.npu.memory_allocated() - before >= 4 * MIB
    torch.npu.caching_allocator_delete(place)
    assert torch.npu.memory_allocated() == before
