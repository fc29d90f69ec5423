# SPDX-License-Identifier: Apache-2.0
"""Pools of device memory: shared by graphs, of a thread, with allocators of the user."""
import ctypes
import gc
import shutil
import subprocess
import threading

import pytest
import torch
from support import capture, output_of

MIB = 1 << 20


def settle():
    gc.collect()
    torch.npu.synchronize()
    torch.npu.empty_cache()


def reserved():
    return torch.npu.memory_reserved()


def segment_of(tensor):
    address = tensor.data_ptr()
    for segment in torch.npu.memory_snapshot():
        if segment["address"] <= address < segment["address"] + segment["total_size"]:
            return segment
    raise AssertionError(f"{address:#x} is in no segment")


def pool_of(tensor):
    return segment_of(tensor)["segment_pool_id"]


# ---- Pools of graphs ----


def test_TN_138_handles_differ():
    first, second = torch.npu.graph_pool_handle(), torch.npu.graph_pool_handle()
    assert first != second
    assert first[0] == second[0] == 0 and first[1] >= 1 and second[1] >= 1


def test_TN_139_a_graph_makes_a_pool_of_its_own():
    source = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.pool()
    result = capture(graph, lambda: source + 1)
    assert graph.pool()[0] >= 1 and graph.pool()[1] == 0
    assert pool_of(result) == graph.pool()


@pytest.mark.parametrize("by_handle", [False, True], ids=["of_a_graph", "handle"])
def test_TN_140_a_shared_pool_takes_less(by_handle):
    source = torch.zeros(128, device="npu")

    def two(shared):
        settle()
        before = reserved()
        graphs = [torch.npu.NPUGraph(), torch.npu.NPUGraph()]
        handle = torch.npu.graph_pool_handle() if shared and by_handle else None
        first = capture(graphs[0], lambda: source + 1, pool=handle)
        second = capture(graphs[1], lambda: first * 2, pool=(handle or graphs[0].pool()) if shared else None)
        taken = reserved() - before
        for value in (1.0, 5.0):
            source.fill_(value)
            for graph in graphs:
                graph.replay()
            assert first.cpu().eq(value + 1).all() and second.cpu().eq(2 * value + 2).all()
        return taken

    assert two(shared=False) - two(shared=True) == 2 * MIB


def test_TN_141_a_dropped_result_may_be_overwritten_later_in_order():
    source = torch.zeros(128, device="npu")
    graphs = [torch.npu.NPUGraph(), torch.npu.NPUGraph()]
    first = capture(graphs[0], lambda: source + 1)
    address = first.data_ptr()
    kept = torch.npu.memory._C._weak_ref_tensor(first)
    del first
    second = capture(graphs[1], lambda: source * 10, pool=graphs[0].pool())
    assert second.data_ptr() == address  # which is the hazard
    for value in (1.0, 2.0):
        source.fill_(value)
        graphs[0].replay()
        consumed = kept.clone()
        graphs[1].replay()
        assert consumed.cpu().eq(value + 1).all() and second.cpu().eq(value * 10).all()


def test_TN_142_three_graphs_on_one_pool():
    source = torch.zeros(128, device="npu")
    graphs = [torch.npu.NPUGraph() for _ in range(3)]
    handle = torch.npu.graph_pool_handle()
    a = capture(graphs[0], lambda: source + 1, pool=handle)
    b = capture(graphs[1], lambda: a * 2, pool=handle)
    c = capture(graphs[2], lambda: a + b, pool=handle)
    for value in (1.0, 2.0, 3.0):
        source.fill_(value)
        for graph in graphs:
            graph.replay()
        assert c.cpu().eq(3 * (value + 1)).all()


def test_TN_143_the_pool_outlives_its_first_graph():
    source = torch.zeros(128, device="npu")
    graphs = [torch.npu.NPUGraph() for _ in range(2)]
    first = capture(graphs[0], lambda: source + 1)
    pool = graphs[0].pool()
    second = capture(graphs[1], lambda: source * 4, pool=pool)
    del graphs[0], first
    settle()
    assert torch.npu.memory_snapshot(pool)
    source.fill_(2)
    graphs[0].replay()
    assert second.cpu().eq(8).all()
    del graphs[0], second
    settle()
    assert torch.npu.memory_snapshot(pool) == []


@pytest.mark.parametrize("empties", [False, True], ids=["cached", "emptied"])
@pytest.mark.parametrize("is_pinned_alive", [False, True], ids=["free", "pinned"])
def test_TN_144_a_handle_lives_again(empties, is_pinned_alive):
    handle = torch.npu.graph_pool_handle()
    source = torch.zeros(128, device="npu")
    graph = torch.npu.NPUGraph()
    pinned = []

    def work():
        pinned.append(torch.full((128,), 3.0, pin_memory=True))
        source.copy_(pinned[-1], non_blocking=True)
        return source + 1

    capture(graph, work, pool=handle)
    graph.replay()
    torch.npu.synchronize()
    if not is_pinned_alive:
        pinned.clear()
    graph.reset()
    if empties:
        torch.npu.empty_cache()
        torch.npu.host_empty_cache()
    again = torch.npu.NPUGraph()
    result = capture(again, work, pool=handle)
    again.replay()
    assert result.cpu().eq(4).all()
    assert again.pool() == handle


def test_TN_145_a_token_with_two_halves():
    source = torch.zeros(8, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.stream(torch.npu.Stream()):
        with pytest.raises(RuntimeError, match="INTERNAL ASSERT|half"):
            graph.capture_begin(pool=(3, 4))
        assert not torch.npu.is_current_stream_capturing()
    result = capture(graph, lambda: source + 1)
    graph.replay()
    assert result.cpu().eq(1).all()


def test_TN_146_a_pool_is_routed_once():
    handle = torch.npu.graph_pool_handle()
    source = torch.zeros(8, device="npu")
    first, second = torch.npu.NPUGraph(), torch.npu.NPUGraph()
    streams = [torch.npu.Stream(), torch.npu.Stream()]
    torch.npu.synchronize()
    with torch.npu.stream(streams[0]):
        first.capture_begin(pool=handle, capture_error_mode="thread_local")
        one = source + 1
        with torch.npu.stream(streams[1]):
            with pytest.raises(RuntimeError, match="already recording"):
                second.capture_begin(pool=handle, capture_error_mode="thread_local")
            assert not torch.npu.is_current_stream_capturing()
        two = one * 2
        first.capture_end()
    first.replay()
    assert two.cpu().eq(2).all()


def test_TN_147_graphs_without_a_shared_pool_replay_side_by_side():
    sources = [torch.zeros(64, 64, device="npu") for _ in range(2)]

    def work(source):
        for _ in range(10):
            source = source @ source * 0.01 + 1
        return source

    graphs = [torch.npu.NPUGraph() for _ in range(2)]
    results = [capture(graph, lambda s=source: work(s)) for graph, source in zip(graphs, sources)]
    streams = [torch.npu.Stream() for _ in range(2)]
    for value in (0.1, 0.2):
        for source in sources:
            source.fill_(value)
        torch.npu.synchronize()
        for graph, stream in zip(graphs, streams):
            with torch.npu.stream(stream):
                graph.replay()
        torch.npu.synchronize()
        for source, result in zip(sources, results):
            assert result.cpu().equal(work(source).cpu())


# ---- Pools by hand ----


def test_TN_148_id_and_users():
    pool = torch.npu.MemPool()
    assert pool.id[0] == 0 and pool.id[1] >= 1
    assert pool.use_count() == 1
    with torch.npu.use_mem_pool(pool):
        assert pool.use_count() == 2
    assert pool.use_count() == 1
    assert pool.snapshot() == []
    with pytest.raises(RuntimeError, match="not currently recording"):
        torch.npu.memory._C._npu_endAllocateToPool(0, pool.id)


def test_TN_149_only_the_thread_of_the_scope():
    pool = torch.npu.MemPool()
    made = []
    with torch.npu.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: made.append(torch.empty(8, device="npu")))
        thread.start()
        thread.join()
        mine = torch.empty(8, device="npu")
    after = torch.empty(8, device="npu")
    assert pool_of(mine) == pool.id
    assert pool_of(made[0]) == pool_of(after) == (0, 0)


def test_TN_150_scopes_nest():
    outer, inner = torch.npu.MemPool(), torch.npu.MemPool()
    with torch.npu.use_mem_pool(outer):
        first = torch.empty(8, device="npu")
        with torch.npu.use_mem_pool(inner):
            second = torch.empty(8, device="npu")
            with pytest.raises(RuntimeError, match="already recording"), torch.npu.use_mem_pool(outer):
                pass
        third = torch.empty(8, device="npu")
    assert [pool_of(t) for t in (first, second, third)] == [outer.id, inner.id, outer.id]


def test_TN_150_scopes_by_stream_and_for_all():
    from torch_npu import _C

    pool = torch.npu.MemPool()
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        _C._npu_beginAllocateCurrentStreamToPool(0, pool.id)
        first = torch.empty(8, device="npu")
    second = torch.empty(8, device="npu")
    _C._npu_endAllocateToPool(0, pool.id)
    _C._npu_releasePool(0, pool.id)
    _C._npu_beginAllocateToPool(0, pool.id)
    third = torch.empty(8, device="npu")
    _C._npu_endAllocateToPool(0, pool.id)
    _C._npu_releasePool(0, pool.id)
    assert [pool_of(t) for t in (first, second, third)] == [pool.id, (0, 0), pool.id]
    assert pool.use_count() == 1


def test_TN_151_tensors_outlive_their_pool():
    settle()
    before = reserved()
    pool = torch.npu.MemPool()
    id_of_pool = pool.id
    with torch.npu.use_mem_pool(pool):
        kept = torch.full((1 << 20,), 7.0, device="npu")
    del pool
    settle()
    assert reserved() > before
    assert kept.cpu().eq(7).all()
    del kept
    settle()
    assert reserved() == before
    assert torch.npu.memory_snapshot(id_of_pool) == []


SOURCE = """
#include <sys/types.h>
#include <acl/acl.h>
int live, allocated, freed, mistakes;
static void* last_block; static ssize_t last_size; static void* last_stream;
void* my_alloc(ssize_t size, int device, aclrtStream stream) {
  void* block = 0;
  if (device != 0 || aclrtMalloc(&block, (size_t)size, 0) != 0) return 0;
  ++live; ++allocated;
  last_block = block; last_size = size; last_stream = stream;
  return block;
}
void my_free(void* block, ssize_t size, int device, aclrtStream stream) {
  if (device != 0 || (block == last_block && (size != last_size || stream != last_stream))) ++mistakes;
  aclrtSynchronizeStream(stream); /* its work may still use the block */
  if (aclrtFree(block) != 0) ++mistakes;
  --live; ++freed;
}
"""


@pytest.fixture(scope="session")  # once, in whatever order tests run
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    torch.npu.init()
    with open("/proc/self/maps") as maps:
        runtime = next(line.split()[-1] for line in maps if "libascendcl.so" in line)
    folder = tmp_path_factory.mktemp("allocator")
    (folder / "allocator.c").write_text(SOURCE.replace("#include <acl/acl.h>", DECLARATIONS))
    path = folder / "allocator.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, folder / "allocator.c", runtime], check=True)
    return str(path)


DECLARATIONS = """
#include <stddef.h>
typedef void* aclrtStream;
int aclrtMalloc(void** block, size_t size, int policy);
int aclrtFree(void* block);
int aclrtSynchronizeStream(aclrtStream stream);
"""


def counts(library):
    names = ("live", "allocated", "freed", "mistakes")
    return {name: ctypes.c_int.in_dll(ctypes.CDLL(library), name).value for name in names}


def test_TN_152_a_pool_with_an_allocator_of_the_user(library):
    before = counts(library)
    allocator = torch.npu.memory.NPUPluggableAllocator(library, "my_alloc", "my_free")
    pool = torch.npu.MemPool(allocator.allocator())
    with torch.npu.use_mem_pool(pool):
        made = torch.full((1 << 20,), 2.0, device="npu")
    assert counts(library)["live"] == before["live"] + 1
    assert pool_of(made) == pool.id
    assert (made + 1).cpu().eq(3).all()
    del made, pool
    settle()
    after = counts(library)
    assert after["live"] == before["live"] and after["mistakes"] == 0
    assert after["allocated"] - before["allocated"] == after["freed"] - before["freed"] == 1
    with pytest.raises(RuntimeError, match="no_such"):
        torch.npu.memory.NPUPluggableAllocator(library, "no_such", "my_free")


def test_TN_153_the_allocator_object_may_go_first(library):
    before = counts(library)
    allocator = torch.npu.memory.NPUPluggableAllocator(library, "my_alloc", "my_free")
    pool = torch.npu.MemPool(allocator)
    with torch.npu.use_mem_pool(pool):
        made = torch.ones(8, device="npu")
    del allocator, pool
    settle()
    assert made.cpu().eq(1).all()
    assert counts(library)["live"] == before["live"] + 1
    del made
    settle()
    after = counts(library)
    assert after["live"] == before["live"] and after["mistakes"] == 0


class limited_to:
    """Not more than what is reserved now, and `more` bytes."""

    def __init__(self, more):
        self.more = more

    def __enter__(self):
        total = torch.npu.mem_get_info()[1]
        torch.npu.set_per_process_memory_fraction((reserved() + self.more) / total)

    def __exit__(self, *_):
        torch.npu.set_per_process_memory_fraction(1.0)


def test_TN_154_a_pool_that_helps_out():
    settle()
    pool = torch.npu.MemPool(use_on_oom=True)
    with torch.npu.use_mem_pool(pool):
        cached = torch.empty(40 * MIB, dtype=torch.uint8, device="npu")
    del cached
    torch.npu.synchronize()
    with limited_to(MIB):
        made = torch.empty(30 * MIB, dtype=torch.uint8, device="npu")
        assert pool_of(made) == pool.id
        del made, pool
        torch.npu.synchronize()
        torch.npu.empty_cache()
    with limited_to(MIB), pytest.raises(torch.OutOfMemoryError):
        torch.empty(30 * MIB, dtype=torch.uint8, device="npu")


def test_TN_155_whole_blocks():
    pool = torch.npu.MemPool(no_split=True)
    with torch.npu.use_mem_pool(pool):
        large = torch.empty(MIB, dtype=torch.uint8, device="npu")
        del large
        small = torch.empty(512, dtype=torch.uint8, device="npu")
    segment = segment_of(small)
    assert segment["segment_pool_id"] == pool.id
    assert len(segment["blocks"]) == 1 and segment["blocks"][0]["size"] == segment["total_size"]


def test_TN_156_empty_cache_of_another_thread():
    settle()
    cached = torch.empty(30 * MIB, dtype=torch.uint8, device="npu")
    del cached
    before = reserved()
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        kept = [torch.full((1000,), float(i), device="npu") for i in range(10)]
        thread = threading.Thread(target=torch.npu.empty_cache)
        thread.start()
        kept += [torch.full((1000,), float(i), device="npu") for i in range(10, 50)]
        thread.join()
    for i, tensor in enumerate(kept):
        assert tensor.cpu().eq(i).all()
    assert {pool_of(tensor) for tensor in kept} == {pool.id}
    assert reserved() <= before - 30 * MIB + 4 * MIB


def test_TN_157_a_free_in_a_scope_is_no_free_in_a_capture():
    pool = torch.npu.MemPool()
    side = torch.npu.Stream()
    with torch.npu.use_mem_pool(pool):
        first = torch.empty(1000, device="npu")
        address = first.data_ptr()
        first.record_stream(side)
        del first
        side.synchronize()  # the free has recorded an event there
        second = torch.empty(1000, device="npu")
    assert second.data_ptr() == address


def test_TN_158_caches_of_the_default_pool_make_room():
    settle()
    cached = torch.empty(40 * MIB, dtype=torch.uint8, device="npu")
    del cached
    pool = torch.npu.MemPool()
    with limited_to(MIB), torch.npu.use_mem_pool(pool):
        made = torch.empty(40 * MIB, dtype=torch.uint8, device="npu")
    assert pool_of(made) == pool.id


def test_TN_159_a_snapshot_of_one_pool():
    pools = [torch.npu.MemPool() for _ in range(2)]
    kept = [torch.empty(8, device="npu")]
    for pool in pools:
        with torch.npu.use_mem_pool(pool):
            kept.append(torch.empty(8, device="npu"))
    for pool in pools:
        segments = torch.npu.memory_snapshot(mempool_id=pool.id)
        assert [segment["segment_pool_id"] for segment in segments] == [pool.id]
        assert pool.snapshot() == segments
    assert {segment["segment_pool_id"] for segment in torch.npu.memory_snapshot((0, 0))} == {(0, 0)}
    assert {pool.id for pool in pools} < {segment["segment_pool_id"] for segment in torch.npu.memory_snapshot()}
    with pytest.raises(ValueError, match="names no pool"):
        torch.npu.memory_snapshot((1, 1))


def test_TN_160_the_allocator_changes_before_the_first_tensor_only(library):
    torch.ones(1, device="npu")
    allocator = torch.npu.memory.NPUPluggableAllocator(library, "my_alloc", "my_free")
    with pytest.raises(RuntimeError, match="before the first tensor"):
        torch.npu.memory.change_current_allocator(allocator)
    assert torch.npu.memory.get_allocator_backend() == "native"
    assert torch.npu.memory._get_current_allocator().allocator() is None


def test_TN_160_all_memory_from_an_allocator_of_the_user(library):
    code = f"""
        import ctypes, torch
        path = {library!r}
        allocator = torch.npu.memory.NPUPluggableAllocator(path, "my_alloc", "my_free")
        torch.npu.memory.change_current_allocator(allocator)
        assert torch.npu.memory.get_allocator_backend() == "pluggable"
        live = ctypes.c_int.in_dll(ctypes.CDLL(path), "live")
        made = torch.ones(100, device="npu")
        made.record_stream(torch.npu.Stream())
        assert live.value == 1 and (made + 1).sum().item() == 200
        torch.npu.synchronize()
        del made
        torch.npu.empty_cache()
        assert live.value == 0, live.value
        refused = 0
        for call in (torch.npu.memory_stats, torch.npu.memory_snapshot, torch.npu.MemPool,
                     lambda: torch.npu.memory.change_current_allocator(allocator)):
            try:
                call()
            except RuntimeError:
                refused += 1
        source = torch.ones(8, device="npu")
        graph = torch.npu.NPUGraph()
        try:
            with torch.npu.graph(graph):
                source + 1
        except RuntimeError as error:
            refused += "pluggable" in str(error)
        print(refused)
    """
    assert output_of(code) == "5"
