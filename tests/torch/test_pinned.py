# SPDX-License-Identifier: Apache-2.0
"""Pinned memory: what captured copies read, pools, statistics."""
import gc
import threading

import pytest
import torch
from support import capture, output_of, run_script

SIZE = 1000


def current():
    return torch.npu.host_memory_stats()["allocations.current"]


def settle():
    gc.collect()
    torch.npu.synchronize()
    torch.npu.host_empty_cache()


def pinned(value):
    return torch.full((SIZE,), float(value), pin_memory=True)


def upload(target, value):
    """In a capture: a pinned block that only the graph knows afterwards. Its address."""
    block = pinned(value)
    address = block.data_ptr()
    target.copy_(block, non_blocking=True)
    return address


def test_TN_161_a_pinned_block_of_the_capture():
    target = torch.zeros(SIZE, device="npu")
    graph = torch.npu.NPUGraph()
    capture(graph, lambda: upload(target, 5))
    assert target.cpu().eq(0).all()
    graph.replay()
    assert target.cpu().eq(5).all()


def test_TN_162_is_never_handed_out_while_the_graph_lives():
    target = torch.zeros(SIZE, device="npu")
    graph = torch.npu.NPUGraph()
    address = capture(graph, lambda: upload(target, 5))
    before = current()
    torch.npu.host_empty_cache()
    fresh = [pinned(-1) for _ in range(32)]
    assert address not in {block.data_ptr() for block in fresh}
    assert current() >= before
    graph.replay()
    assert target.cpu().eq(5).all()
    del fresh


def test_TN_163_two_blocks_in_one_capture():
    targets = [torch.zeros(SIZE, device="npu") for _ in range(2)]
    graph = torch.npu.NPUGraph()
    addresses = capture(graph, lambda: [upload(target, i + 1) for i, target in enumerate(targets)])
    assert addresses[0] != addresses[1]
    for _ in range(2):
        for target in targets:
            target.zero_()
        graph.replay()
        assert targets[0].cpu().eq(1).all() and targets[1].cpu().eq(2).all()


def test_TN_164_an_unused_block_is_used_again_in_the_capture():
    target = torch.zeros(SIZE, device="npu")
    graph = torch.npu.NPUGraph()

    def work():
        unused = pinned(9)
        address = unused.data_ptr()
        del unused
        return address, upload(target, 4)

    unused, used = capture(graph, work)
    assert unused == used
    graph.replay()
    assert target.cpu().eq(4).all()


def test_TN_165_graphs_on_one_pool_do_not_share_blocks():
    targets = [torch.zeros(SIZE, device="npu") for _ in range(2)]
    handle = torch.npu.graph_pool_handle()
    graphs = [torch.npu.NPUGraph() for _ in range(2)]
    addresses = [
        capture(graph, lambda t=target, v=i + 1: upload(t, v), pool=handle)
        for i, (graph, target) in enumerate(zip(graphs, targets))
    ]
    assert addresses[0] != addresses[1]
    for order in ((0, 1), (1, 0), (1, 1, 0)):
        for target in targets:
            target.zero_()
        for index in order:
            graphs[index].replay()
        assert targets[0].cpu().eq(1).all() and targets[1].cpu().eq(2).all()


@pytest.mark.parametrize("is_used", [False, True], ids=["TN_166_unused", "TN_167_used"])
def test_TN_166_TN_167_rounds_leave_no_blocks(is_used):
    target = torch.zeros(SIZE, device="npu")
    torch.npu.synchronize()

    def round_trip():
        graph = torch.npu.NPUGraph()

        def work():
            if is_used:
                upload(target, 3)
            else:
                pinned(3)
            return target + 1

        capture(graph, work)
        graph.replay()
        torch.npu.synchronize()
        graph.reset()
        settle()
        return current()

    found = [round_trip() for _ in range(10)]
    assert found[-1] == found[0]


def test_TN_168_a_setting_that_excludes_captures():
    code = """
        import torch
        target = torch.zeros(8, device="npu")
        target.copy_(torch.ones(8, pin_memory=True), non_blocking=True)
        assert target.cpu().eq(1).all()
        graph = torch.npu.NPUGraph()
        try:
            with torch.npu.graph(graph):
                target + 1
        except RuntimeError as error:
            print("pin_memory_expandable_segments" in str(error))
    """
    assert output_of(code, PYTORCH_NPU_ALLOC_CONF="pin_memory_expandable_segments:True") == "True"


def test_TN_169_from_the_device_to_pinned_memory():
    source = torch.zeros(SIZE, device="npu")
    target = torch.empty(SIZE, pin_memory=True)
    graph = torch.npu.NPUGraph()
    capture(graph, lambda: target.copy_(source + 1, non_blocking=True))
    for value in (1.0, 7.0):
        source.fill_(value)
        graph.replay()
        torch.npu.synchronize()
        assert target.eq(value + 1).all()


def test_TN_170_static_pinned_input():
    source = pinned(0)
    target = torch.zeros(SIZE, device="npu")
    graph = torch.npu.NPUGraph()
    capture(graph, lambda: target.copy_(source, non_blocking=True))
    for value in (1.0, 2.0):
        source.fill_(value)
        graph.replay()
        assert target.cpu().eq(value).all()


def test_TN_171_a_block_from_before_the_capture_freed_in_it():
    target = torch.zeros(SIZE, device="npu")
    graph = torch.npu.NPUGraph()
    holder = [pinned(6)]
    address = holder[0].data_ptr()

    def work():
        target.copy_(holder[0], non_blocking=True)
        holder.clear()

    capture(graph, work)
    torch.npu.host_empty_cache()
    fresh = [pinned(-1) for _ in range(32)]
    assert address not in {block.data_ptr() for block in fresh}
    graph.replay()
    assert target.cpu().eq(6).all()
    before = current()
    graph.reset()
    settle()
    assert current() == before - 1
    del fresh


def test_TN_172_other_threads_pin_in_the_default_pool():
    settle()
    before = current()
    source = torch.zeros(SIZE, device="npu")
    graph = torch.npu.NPUGraph()
    made = []

    def work():
        thread = threading.Thread(target=lambda: made.append(torch.ones(SIZE).pin_memory()))
        thread.start()
        thread.join()
        return source + 1

    result = capture(graph, work)
    assert made[0].is_pinned() and current() == before + 1
    made.clear()
    torch.npu.host_empty_cache()  # of a pool in use nothing would go
    assert current() == before
    del result


def test_TN_173_what_is_pinned():
    block = pinned(1)
    assert block.is_pinned() and block[10:20].is_pinned() and torch.ones(5).pin_memory().is_pinned()
    assert not torch.ones(SIZE).is_pinned()
    assert not torch.ones(SIZE, device="npu").is_pinned()


def test_TN_173_asking_initialises_nothing():
    code = """
        import torch
        print(torch.ones(8).is_pinned(), torch.npu.is_initialized())
    """
    assert output_of(code) == "False False"


def test_TN_174_to_the_cpu_in_a_capture():
    source = torch.zeros(SIZE, device="npu")
    graph = torch.npu.NPUGraph()
    result = capture(graph, lambda: (source + 1).to("cpu", non_blocking=True))
    assert result.is_pinned()
    for value in (1.0, 2.0):
        source.fill_(value)
        graph.replay()
        torch.npu.synchronize()
        assert result.eq(value + 1).all()


def test_TN_175_host_statistics():
    settle()
    first = torch.npu.host_memory_stats()
    names = {"num_host_alloc", "num_host_free"}
    for group in ("allocations", "active_requests", "allocated_bytes", "active_bytes"):
        names |= {f"{group}.{kind}" for kind in ("current", "peak", "allocated", "freed")}
    for group in ("host_alloc_time", "host_free_time"):
        names |= {f"{group}.{kind}" for kind in ("total", "max", "min", "count", "avg")}
    assert set(first) == names

    block = torch.empty(5000, dtype=torch.uint8, pin_memory=True)
    held = torch.npu.host_memory_stats()
    for group, grown in (("allocations", 1), ("active_requests", 1), ("allocated_bytes", 8192), ("active_bytes", 8192)):
        assert held[f"{group}.current"] - first[f"{group}.current"] == grown, group
    assert held["num_host_alloc"] - first["num_host_alloc"] == 1
    assert held["host_alloc_time.count"] - first["host_alloc_time.count"] == 1
    nested = torch.npu.memory.host_memory_stats_as_nested_dict()
    assert nested["active_bytes"]["current"] == held["active_bytes.current"]

    del block
    cached = torch.npu.host_memory_stats()
    assert cached["active_bytes.current"] == first["active_bytes.current"]
    assert cached["allocated_bytes.current"] == held["allocated_bytes.current"]
    torch.npu.host_empty_cache()
    freed = torch.npu.host_memory_stats()
    assert freed["allocations.current"] == first["allocations.current"]
    assert freed["num_host_free"] - first["num_host_free"] == 1
    assert freed["active_bytes.peak"] >= held["active_bytes.current"]
    torch.npu.reset_peak_host_memory_stats()
    torch.npu.reset_accumulated_host_memory_stats()
    reset = torch.npu.host_memory_stats()
    assert reset["active_bytes.peak"] == reset["active_bytes.current"]
    assert reset["active_bytes.allocated"] == reset["num_host_alloc"] == 0


def test_blocks_are_used_again_when_their_copies_are_done():
    settle()
    stream = torch.npu.Stream()
    gate = torch.npu.ExternalEvent()
    target = torch.zeros(SIZE, device="npu")
    torch.npu.synchronize()
    with torch.npu.stream(stream):
        gate.wait(stream)  # the copy waits, too
        address = upload(target, 8)
    waiting = pinned(-1)
    assert waiting.data_ptr() != address
    gate.record(torch.npu.current_stream())
    stream.synchronize()
    again = pinned(-2)
    assert again.data_ptr() == address
    assert target.cpu().eq(8).all()


def test_exit_with_copies_under_way():
    code = """
        import torch
        target = torch.zeros(1 << 20, device="npu")
        for _ in range(5):
            target.copy_(torch.ones(1 << 20, pin_memory=True), non_blocking=True)
        kept = torch.ones(8, pin_memory=True)
    """
    assert run_script(code).returncode == 0
