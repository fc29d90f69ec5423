# SPDX-License-Identifier: Apache-2.0
"""What two ranks of hccl do together, one function after the other; test_distributed.py runs them."""
import datetime
import os
import pickle
import signal
import threading
import time
import warnings

import pytest
import torch
import torch.distributed as dist
import torch_npu
from torch.distributed import ReduceOp

OTHERS = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64]
WIDE = [torch.uint16, torch.uint32, torch.uint64]


def there(*numbers, dtype=torch.float32):
    return torch.tensor(numbers, dtype=dtype, device="npu")


def backend(group=None):
    return (group or dist.group.WORLD)._get_backend(torch.device("npu"))


def refused(match, call, *arguments, kind=RuntimeError, **options):
    with pytest.raises(kind, match=match):
        call(*arguments, **options)


def ht_001_007_011_registration(rank, size):
    assert torch.npu.device_count() == 1  # both ranks are on the one device that there is
    assert dist.Backend.HCCL == "hccl" and "hccl" in dist.Backend.backend_list and dist.is_hccl_available()
    assert dist.Backend.default_device_backend_map["npu"] == "hccl"
    assert dist.get_backend() == "hccl" and (dist.get_rank(), dist.get_world_size()) == (rank, size)
    assert type(backend()) is torch_npu._C._distributed_c10d.ProcessGroupHCCL
    refused("No backend type associated with device type cpu", dist.all_reduce, torch.zeros(1))
    refused("twice", dist.init_process_group, "hccl", kind=ValueError)
    refused("for the hardware alone", dist.new_group, backend="lccl", kind=NotImplementedError)


def ht_020_all_reduce(rank, size):
    reductions = {ReduceOp.SUM: [3, 12], ReduceOp.PRODUCT: [2, 35], ReduceOp.MIN: [1, 5], ReduceOp.MAX: [2, 7]}
    for dtype in [torch.float32, *OTHERS, *WIDE]:
        for reduction, wanted in reductions.items():
            tensor = there(*([1, 5] if rank == 0 else [2, 7]), dtype=dtype)
            dist.all_reduce(tensor, reduction)
            assert tensor.tolist() == wanted, (dtype, reduction, tensor)
    long = torch.arange(100_003, dtype=torch.float32, device="npu")
    dist.all_reduce(long)
    assert torch.equal(long.cpu(), torch.arange(100_003.0) * 2)


def ht_021_024_other_reductions(rank, size):
    truth = there(rank == 0, False, True, dtype=torch.bool)
    dist.all_reduce(truth)
    assert truth.tolist() == [True, False, True]
    small = there(200, 7, dtype=torch.uint8)
    dist.all_reduce(small)
    assert small.tolist() == [400 - 256, 14]
    tensor = there(rank, 4.0)
    dist.all_reduce(tensor, ReduceOp.AVG)
    assert tensor.tolist() == [0.5, 4]
    whole = there(rank, -4 - rank, dtype=torch.int32)
    dist.all_reduce(whole, ReduceOp.AVG)
    assert whole.tolist() == [0, -4]
    for factor in (3.0, there(3.0)):
        for dtype in (torch.float16, torch.float32, torch.float64):
            tensor = there(1 + rank, dtype=dtype)
            dist.all_reduce(tensor, torch_npu.distributed._make_hccl_premul_sum(factor))
            assert tensor.tolist() == [9], (factor, dtype)
    for reduction in ("BAND", "BOR", "BXOR"):
        refused(f"Cannot use ReduceOp.{reduction}", dist.all_reduce, whole, getattr(ReduceOp, reduction))
    number = torch.tensor([1 + 2j], device="npu") * (rank + 1)
    dist.all_reduce(number)
    assert number.tolist() == [3 + 6j]
    single = torch.tensor(float(rank), device="npu")
    dist.all_reduce(single)
    assert single.item() == 1


def ht_025_026_reduce_broadcast(rank, size):
    for root in range(size):
        tensor = there(rank + 1, 10)
        dist.reduce(tensor, root)
        assert tensor.shape == (2,) and (rank != root or tensor.tolist() == [3, 20])
        for dtype in (torch.float32, torch.bool, torch.uint8, torch.float8_e4m3fn):
            tensor = there(float(rank == root), 0).to(dtype)
            dist.broadcast(tensor, root)
            assert tensor.float().tolist() == [1, 0]
    into = torch.zeros(2, device="npu")
    backend()._reduce_oop(into, there(rank, 1)).wait()
    assert into.tolist() == ([1, 2] if rank == 0 else [0, 0])
    refused("same numel", backend()._reduce_oop, into, there(1))
    first = dist.new_group([0])
    if rank == 1:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            dist.broadcast(into, 0, group=first)
        assert "does not belong to the given group" in str(caught[0].message)
    else:
        dist.broadcast(into, 0, group=first)
        dist.destroy_process_group(first)


def ht_027_028_all_gather(rank, size):
    for shape, dtype in (((2, 3), torch.float32), ((0,), torch.float32), ((), torch.int64), ((3,), torch.uint8)):
        mine = torch.full(shape, rank + 1, dtype=dtype, device="npu")
        parts = [torch.zeros(shape, dtype=dtype, device="npu") for _ in range(size)]
        dist.all_gather(parts, mine)
        for other in range(size):
            assert torch.equal(parts[other].cpu(), torch.full(shape, other + 1, dtype=dtype)), shape
    for rows in ([1, 3], [0, 2]):
        parts = [torch.zeros(count, 2, device="npu") for count in rows]
        dist.all_gather(parts, torch.full((rows[rank], 2), rank + 1.0, device="npu"))
        assert [part.tolist() for part in parts] == [[[1.0, 1.0]] * rows[0], [[2.0, 2.0]] * rows[1]]
    mine = there(rank, rank + 10)
    for shape in ((4,), (2, 2)):
        whole = torch.zeros(shape, device="npu")
        dist.all_gather_into_tensor(whole, mine)
        assert whole.flatten().tolist() == [0, 10, 1, 11]
    refused("world_size times input", dist.all_gather_into_tensor, torch.zeros(3, device="npu"), mine)
    refused("same type as input", dist.all_gather_into_tensor, torch.zeros(4, device="npu").half(), mine)
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):  # HT-047
        whole = torch.zeros(4, device="npu").to(dtype)
        dist.all_gather_into_tensor(whole, mine.to(dtype))
        assert whole.float().tolist() == there(0, 10, 1, 11).to(dtype).float().tolist()


def ht_029_reduce_scatter(rank, size):
    out = torch.zeros(2, device="npu")
    dist.reduce_scatter(out, [there(1, 2), there(3, 4)])
    assert out.tolist() == ([6, 8] if rank else [2, 4])
    sizes = [1, 3]
    out = torch.zeros(sizes[rank], device="npu")
    dist.reduce_scatter(out, [torch.full((count,), rank + 1.0, device="npu") for count in sizes])
    assert out.tolist() == [3.0] * sizes[rank]
    out = torch.zeros(2, device="npu")
    source = there(1, 2, 3, 4) * (rank + 1)
    for reduction, wanted in (
        (ReduceOp.SUM, [3, 6, 9, 12]),
        (ReduceOp.AVG, [1.5, 3, 4.5, 6]),
        (ReduceOp.MAX, [2, 4, 6, 8]),
        (torch_npu.distributed._make_hccl_premul_sum(2.0), [6, 12, 18, 24]),
    ):
        dist.reduce_scatter_tensor(out, source, reduction)
        assert out.tolist() == wanted[2 * rank : 2 * rank + 2], reduction
    assert source.tolist() == [value * (rank + 1) for value in (1, 2, 3, 4)]
    refused("output size times world size", dist.reduce_scatter_tensor, out, there(1, 2))
    refused("same type as the output", dist.reduce_scatter_tensor, out, source.half())


def ht_030_scatter_gather(rank, size):
    for root in range(size):
        out = torch.zeros(2, device="npu")
        dist.scatter(out, [there(1, 2), there(3, 4)] if rank == root else None, src=root)
        assert out.tolist() == ([3, 4] if rank else [1, 2])
        parts = [torch.zeros(2, device="npu") for _ in range(size)] if rank == root else None
        work = dist.gather(out, parts, dst=root, async_op=True)
        work.wait()
        assert rank != root or [part.tolist() for part in parts] == [[1, 2], [3, 4]]
        parts = [torch.zeros(1, device="npu"), torch.zeros(3, device="npu")] if rank == root else None
        dist.gather(torch.full((1 + 2 * rank,), rank + 5.0, device="npu"), parts, dst=root)
        assert rank != root or [part.tolist() for part in parts] == [[5], [6, 6, 6]]


def ht_031_043_all_to_all(rank, size):
    out = torch.zeros(2, device="npu")
    dist.all_to_all_single(out, there(rank, rank + 10))
    assert out.tolist() == ([10, 11] if rank else [0, 1])
    send, receive = ([1, 2], [1, 0]) if rank == 0 else ([0, 3], [2, 3])
    out = torch.full((sum(receive), 2), -1.0, device="npu")
    rows = torch.arange(sum(send) * 2.0, device="npu").view(-1, 2) + 100 * rank
    dist.all_to_all_single(out, rows, receive, send)
    assert out.tolist() == ([[0, 1]] if rank == 0 else [[2, 3], [4, 5], [100, 101], [102, 103], [104, 105]])
    nothing = torch.zeros(0, 2, device="npu")
    dist.all_to_all_single(nothing, nothing.clone(), [0, 0], [0, 0])
    parts = [torch.zeros(1 + rank, device="npu") for _ in range(size)]
    dist.all_to_all(parts, [torch.full((1 + other,), rank + 1.0, device="npu") for other in range(size)])
    assert [part.tolist() for part in parts] == [[1.0] * (1 + rank), [2.0] * (1 + rank)]
    fp8 = there(rank, 2).to(torch.float8_e5m2)
    out8 = torch.zeros_like(fp8)
    dist.all_to_all_single(out8, fp8)
    assert out8.float().tolist() == ([2, 2] if rank else [0, 1])
    single = torch.tensor(1.0, device="npu")
    refused("dimension", dist.all_to_all_single, single.clone(), single)
    refused("different dtypes", dist.all_to_all_single, there(1, 2).half(), there(1, 2), kind=ValueError)
    refused("not equal in size or data type", dist.all_to_all_single, there(1, 2, 3, 4), there(1, 2))
    refused("Split sizes doesn't match", dist.all_to_all_single, there(1, 2), there(1, 2), [1, 2], [1, 1])
    refused("0 or more", dist.all_to_all_single, there(1, 2), there(1, 2), [-1, 3], [1, 1])


def ht_032_033_uneven(rank, size):
    ours = torch_npu.distributed
    rows = [1, 3]
    whole = torch.zeros(4, 2, device="npu")
    ours.all_gather_into_tensor_uneven(whole, torch.full((rows[rank], 2), rank + 1.0, device="npu"), rows)
    assert whole.tolist() == [[1, 1]] + [[2, 2]] * 3
    out = torch.zeros(rows[rank], 2, device="npu")
    work = ours.reduce_scatter_tensor_uneven(out, whole, rows, async_op=True)
    work.wait()
    assert out.tolist() == ([[4, 4]] * 3 if rank else [[2, 2]])
    refused("Split sizes doesn't match total dim 0 size", ours.reduce_scatter_tensor_uneven, out, whole, [1, 2])
    refused("Number of tensor splits not equal", ours.all_gather_into_tensor_uneven, whole, out, [4])
    refused("does not divide equally", ours.all_gather_into_tensor_uneven, whole[:3], out)
    matrix = [[1, 2], [0, 3]]
    out = torch.zeros(1 if rank == 0 else 5, device="npu")
    ours.all_to_all_vc(out, torch.arange(3.0, device="npu") + 10 * rank, torch.tensor(matrix))
    assert out.tolist() == ([0] if rank == 0 else [1, 2, 10, 11, 12])
    refused("rows", ours.all_to_all_vc, out, whole, [[1, 2]], kind=ValueError)
    refused("numbers", ours.all_to_all_vc, out, whole, [[1], [0, 3]], kind=ValueError)


def ht_034_038_transfers(rank, size):
    other = 1 - rank
    for count in (1, 1000, 4 << 20):
        tensor = torch.full((count,), float(rank), device="npu")
        if rank == 0:
            dist.send(tensor, other)
            dist.recv(tensor, other)
            assert tensor[-1].item() == 1
        else:
            got = torch.empty_like(tensor)
            dist.recv(got, other, tag=7)  # tags are ignored
            assert got[-1].item() == 0
            dist.send(tensor, other)
    out, mine = torch.zeros(2, device="npu"), there(rank, 5)
    works = [dist.isend(mine, other), dist.irecv(out, other)]
    for work in works:
        work.wait()
    assert out.tolist() == [other, 5]
    refused("does not support recv", dist.recv, out)
    operations = [dist.P2POp(dist.isend, mine, other), dist.P2POp(dist.irecv, out.zero_(), other)]
    works = dist.batch_isend_irecv(operations)
    assert isinstance(works, list) and len(works) == 1
    works[0].wait()
    assert out.tolist() == [other, 5]
    tensors = [there(rank, value) for value in range(5)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert [tensor.tolist() for tensor in tensors] == [[1, 2 * value] for value in range(5)]
    wholes = [torch.zeros(4, device="npu") for _ in range(2)]
    with dist._coalescing_manager(device=torch.device("npu")):
        for whole in wholes:
            dist.all_gather_into_tensor(whole, mine)
    assert all(whole.tolist() == [0, 5, 1, 5] for whole in wholes)
    with dist._coalescing_manager(device=torch.device("npu"), async_ops=True):
        pass
    group = backend()
    group._group_start()
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors[:2]]
    dist.all_reduce(tensors[2])  # waits at once: for what the end of the group submits
    assert not works[0].is_completed()
    group._group_end()
    for work in works:
        work.wait()
    assert [tensor.tolist() for tensor in tensors[:3]] == [[2, 0], [2, 4], [2, 8]]
    group._group_start()
    works = [dist.isend(mine, other), dist.irecv(out.zero_(), other)]
    group._group_end()
    for work in works:
        work.wait()
    assert out.tolist() == [other, 5]
    refused("no group of calls", group._group_end)


def ht_039_041_barrier_objects(rank, size):
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.set("late", "yes")
    dist.barrier()
    assert store.check(["late"])  # rank 0 has come after rank 1
    dist.barrier(async_op=True).wait()
    refused("only implemented for GLOO", dist.monitored_barrier, kind=ValueError)
    names = [None] * size
    dist.all_gather_object(names, {"rank": rank})
    assert names == [{"rank": 0}, {"rank": 1}]
    things = [rank, "a" * (rank + 1)]
    dist.broadcast_object_list(things, 1)
    assert things == [1, "aa"]
    gathered = [None] * size if rank == 0 else None
    dist.gather_object("x" * (rank + 1), gathered)
    assert rank or gathered == ["x", "xx"]
    mine = [None]
    dist.scatter_object_list(mine, ["zero", "one"] if rank == 0 else None)
    assert mine == [["zero", "one"][rank]]
    box = ["sent"] if rank == 0 else [None]
    if rank == 0:
        dist.send_object_list(box, 1)
    else:
        dist.recv_object_list(box, 0)
    assert box == ["sent"]


def ht_042_048_tensors(rank, size):
    wide = torch.ones(2, 3, device="npu")
    refused("Tensors must be contiguous", dist.all_reduce, wide.t())
    image = torch.ones(1, 2, 3, 4, device="npu").to(memory_format=torch.channels_last)
    dist.all_reduce(image)
    assert image.sum().item() == 48
    tail = torch.arange(6.0, device="npu")[3:]
    dist.all_reduce(tail)
    assert tail.tolist() == [6, 8, 10]
    empty = torch.zeros(0, device="npu")
    for call in (
        lambda: dist.all_reduce(empty),
        lambda: dist.all_reduce(empty, ReduceOp.AVG),
        lambda: dist.broadcast(empty, 0),
        lambda: dist.reduce(empty, 0),
        lambda: dist.all_gather_into_tensor(empty, empty.clone()),
        lambda: dist.reduce_scatter_tensor(empty, empty.clone()),
        lambda: dist.all_to_all_single(empty, empty.clone()),
        lambda: dist.scatter(empty, [empty, empty] if rank == 0 else None),
        lambda: dist.gather(empty, [empty.clone(), empty.clone()] if rank == 0 else None),
        lambda: dist.send(empty, 1) if rank == 0 else dist.recv(empty, 0),
    ):
        call()
    refused("Unsupported data type", backend().allreduce, [torch.zeros(1, dtype=torch.complex64, device="npu")])
    refused("must be NPU and dense", backend().allreduce, [torch.zeros(1)])
    refused("nonempty", backend().allreduce, [])
    refused("larger than the number of available", backend().broadcast, [wide, wide], dist.BroadcastOptions())


def ht_050_053_works(rank, size):
    from support import Gate

    tensor = there(rank, 1)
    with Gate() as gate:
        started = time.monotonic()
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()  # in the stream
        assert not work.is_completed()
        later = tensor * 2
        gate.open()
    assert later.tolist() == [2, 4] and work.is_completed() and time.monotonic() - started < 100
    assert work.exception() is None and work.result()[0].tolist() == [1, 2]
    seen = []
    future = work.get_future().then(lambda done: seen.append(done.value()[0] + 1) or done.value()[0] * 3)
    future.wait()
    assert seen[0].tolist() == [2, 3] and future.value().tolist() == [3, 6]
    side = torch.npu.Stream()
    value = there(rank, 1)
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side), Gate(side) as gate:
        dist.all_reduce(value)
        doubled = value * 2
        gate.open()
    side.synchronize()
    assert doubled.tolist() == [2, 4]
    counted = threading.Event()  # HT-101: who waits does not keep the GIL
    with Gate() as gate:
        work = dist.barrier(async_op=True)
        helper = threading.Thread(target=lambda: (counted.set(), gate.open()))
        helper.start()
        work.wait()
        helper.join()
    assert counted.is_set()
    total = 0
    for step in range(20):  # HT-052: memory of what was freed is used again only after the operator
        big = torch.full((1 << 14,), float(step), device="npu")
        result = torch.zeros(1 << 15, device="npu")
        dist.all_gather_into_tensor(result, big, async_op=True)
        del big
        torch.full((1 << 14,), -1.0, device="npu")
        torch.npu.synchronize()
        total += result.sum().item()
    assert total == sum(range(20)) * (1 << 15)


def ht_056_058_059_060_groups(rank, size):
    both, again, mine = dist.new_group([0, 1]), dist.new_group([0, 1]), dist.new_group([1])
    tensor = there(rank)
    for group in (both, again):
        tensor.fill_(rank)
        dist.broadcast(tensor, 1, group=group)
        assert tensor.tolist() == [1]
    if rank == 1:
        tensor.fill_(5)
        dist.all_reduce(tensor, group=mine)
        dist.broadcast(tensor, 1, group=mine)  # global rank 1 is rank 0 there
        assert tensor.tolist() == [5]
        assert backend(mine).get_hccl_comm_name(0) not in ("", backend(both).get_hccl_comm_name(0))
    names = {backend(group).get_hccl_comm_name(rank) for group in (None, both, again)}
    assert len(names) == 3 and "" not in names
    assert backend(both).get_hccl_comm(rank) != 0
    refused("Invalid rank", backend(both).get_hccl_comm_name, -1)
    named = dist.new_group([0, 1])
    assert backend(named).get_hccl_comm_name(rank, init_comm=False) == "" and backend(named)._get_stream_id() == -1
    refused("1 to 127 characters", backend(named)._set_hccl_comm_name, "")
    refused("1 to 127 characters", backend(named)._set_hccl_comm_name, "n" * 128)
    backend(named)._set_hccl_comm_name("of the test")
    refused("cannot become", backend(named)._set_hccl_comm_name, "another")
    assert backend(named).get_hccl_comm_name(rank) == "of the test"
    refused("has an HCCL communicator already", backend(named)._set_hccl_comm_name, "late")
    assert backend(named)._get_stream_id() >= 0 and backend(named)._get_stream_id(p2p=True, peer=1 - rank) == -1
    mesh = dist.init_device_mesh("npu", (2,), mesh_dim_names=("tp",))  # HT-057
    tensor.fill_(1)
    dist.all_reduce(tensor, group=mesh.get_group("tp"))
    assert tensor.tolist() == [2]
    dist.destroy_process_group(named)


def ht_061_options(rank, size):
    group_class = torch_npu._C._distributed_c10d.ProcessGroupHCCL
    options = group_class.Options()
    assert (options.is_high_priority_stream, options.op_timeout) == (False, datetime.timedelta(seconds=10))
    options.hccl_config = {"hccl_buffer_size": 300, "group_name": "text", "unknown": "ignored"}
    group = dist.new_group(pg_options=options)
    options.hccl_config = {}
    assert backend(group).options.hccl_config == {
        "hccl_buffer_size": 300,
        "group_name": "text",
        "unknown": "ignored",
    }
    tensor = there(rank)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [1]
    for key, value, match in (
        ("hccl_buffer_size", "300", "Value type of hccl_buffer_size should be int."),
        ("group_name", 3, "Value type of group_name should be string."),
        ("hccl_exec_timeout", 2**31, "the most is 2147483647"),
        ("qos_service_level", 1.5, "Value type of qos_service_level should be int."),
    ):
        options = group_class.Options()
        options.hccl_config = {key: value}
        bad = dist.new_group(pg_options=options)
        refused(match, dist.all_reduce, tensor, group=bad)


def ht_064_groups_that_share_a_buffer(rank, size):
    group_class = torch_npu._C._distributed_c10d.ProcessGroupHCCL
    groups = []
    for name in ("mine", "mine", "other"):
        options = group_class.Options()
        options.hccl_config = {"hccl_buffer_name": name}
        groups.append(dist.new_group(pg_options=options))
    for turn in range(2):
        for number, group in enumerate(groups):
            value = there(rank, number)
            dist.all_reduce(value, group=group)
            assert value.tolist() == [1, 2 * number], (turn, number)
    first, second, other = (backend(group)._get_stream_id() for group in groups)
    assert first == second != other
    for group in groups:
        dist.destroy_process_group(group)


def ht_097_nothing_is_recorded(rank, size):
    dist.all_reduce(there(rank))
    for only_active in (False, True):
        trace = pickle.loads(torch_npu._C._distributed_c10d._dump_hccl_trace(onlyActive=only_active))
        assert trace["entries"] == [] and trace["version"] == "2.4"


def ht_070_074_capture(rank, size):
    source = torch.zeros(2, device="npu")
    graph = torch.npu.NPUGraph()
    fresh = dist.new_group()  # HT-072: its first operator is captured
    with torch.npu.graph(graph):
        value = source * 2
        work = dist.all_reduce(value, async_op=True)
        beside = source + 1
        work.wait()
        total = value + beside
        dist.all_reduce(total, group=fresh)
    for step in range(50):
        source.fill_(step + rank)
        graph.replay()
        wanted = 2 * (2 * (2 * step + 1)) + (2 * step + 1) + 2
        assert total.tolist() == [wanted] * 2, step
    many = torch.npu.NPUGraph()
    with torch.npu.graph(many):
        whole = torch.zeros(4, device="npu")
        dist.all_gather_into_tensor(whole, source)
        part = torch.zeros(2, device="npu")
        dist.reduce_scatter_tensor(part, whole)
        counts = ([1, 3], [1, 0]) if rank == 0 else ([0, 4], [3, 4])
        swapped = torch.zeros(sum(counts[1]), device="npu")
        dist.all_to_all_single(swapped, whole, counts[1], counts[0])
        told = source.clone()
        dist.broadcast(told, 1)
        got = torch.zeros(2, device="npu")
        pair = [dist.P2POp(dist.isend, source, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)]
        for work in dist.batch_isend_irecv(pair):
            work.wait()
        sums = [source.clone(), source + 1]
        with dist._coalescing_manager():
            for tensor in sums:
                dist.all_reduce(tensor)
        listed = [torch.zeros(1, device="npu"), torch.zeros(3, device="npu")]
        dist.all_gather(listed, source[:1].repeat(1 + 2 * rank))
        dist.barrier()
    for step in (3, 8):
        source.copy_(there(step, rank))
        many.replay()
        gathered = [step, 0, step, 1]
        assert whole.tolist() == gathered and part.tolist() == [2 * value for value in gathered[2 * rank :][:2]]
        wanted = gathered[:1] if rank == 0 else gathered[1:] + gathered
        assert swapped.tolist() == wanted
        assert told.tolist() == [step, 1] and got.tolist() == [step, 1 - rank]
        assert [tensor.tolist() for tensor in sums] == [[2 * step, 1], [2 * step + 2, 3]]
        assert [tensor.tolist() for tensor in listed] == [[step], [step] * 3]
    lost = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match="107025"), torch.npu.graph(lost):
        dist.all_reduce(source, async_op=True)
    refused("107030|captured", _object_in_capture)
    source.fill_(rank)
    graph.replay()
    assert total.tolist() == [7, 7]
    # HT-077: one rank replays what the other one calls.
    if rank == 0:
        many_sums = torch.npu.NPUGraph()
        with torch.npu.graph(many_sums):
            result = source + 3
            dist.all_reduce(result)
            dist.all_reduce(result)
        many_sums.replay()
    else:
        result = source + 3
        dist.all_reduce(result)
        dist.all_reduce(result)
    assert result.tolist() == [14, 14]


def ht_070_hc_090_conditions_in_captures(rank, size):
    from torch_npu.npu._npugraph_conditional_nodes import NPUGraphCaptureControlFlowOpDispatchMode

    cond = torch.ops.higher_order.cond
    small, large = there(1, 2), torch.ones(100_000, device="npu")

    def added(x):
        x = x + rank
        dist.all_reduce(x)
        return x

    def twice(x):
        return cond(x.sum() > 3, lambda x: added(added(x)), lambda x: x - 1, (x,))

    for x in (small, large):
        graph, flag = torch.npu.NPUGraph(), torch.tensor(True, device="npu")
        with torch.npu.graph(graph), NPUGraphCaptureControlFlowOpDispatchMode():
            total = cond(flag, added, twice, (x,))
            dist.all_reduce(total)
        for value, first in ((True, 0), (False, 0), (False, 5), (True, 5), (False, 5)):
            flag.fill_(value)
            x.fill_(first)
            graph.replay()
            once = 2 * first + 1
            other = 2 * once + 1 if first * len(x) > 3 else first - 1
            assert total[-1].item() == 2 * (once if value else other), (value, first)
            dist.all_reduce(x)  # in turns with what is called
            assert x[0].item() == 2 * first
        graph.reset()


def _object_in_capture():
    with torch.npu.graph(torch.npu.NPUGraph()):
        dist.all_gather_object([None, None], "x")


def ht_080_functional(rank, size):
    from torch.distributed import _functional_collectives as functional

    group = dist.group.WORLD

    def compute(x):
        total = functional.all_reduce(x * 2, "sum", group)
        whole = functional.all_gather_tensor(total + x, 0, group)
        return functional.reduce_scatter_tensor(whole * 3, "sum", 0, group) + functional.broadcast(x, 1, group)

    x = there(rank, 2)
    eager = compute(x).tolist()
    total = [2, 8]
    parts = [[total[0] + r, total[1] + 2] for r in range(2)]
    wanted = [6 * value + told for value, told in zip(parts[rank], [1, 2])]
    assert eager == wanted, (eager, wanted)
    for name in ("eager", "aot_eager", "npugraphs", "npugraph_ex"):
        torch._dynamo.reset()
        compiled = torch.compile(compute, backend=name, fullgraph=True)
        for _ in range(3):
            assert compiled(x).tolist() == wanted, name


def ht_098_reinit(rank, size):
    group = dist.new_group()
    for turn in range(4):
        value = there(rank + turn)
        dist.all_reduce(value, group=group)
        assert value.tolist() == [2 * turn + 1], turn
        message = there(turn)
        if rank == 0:
            dist.send(message, 1, group=group)
        else:
            received = there(-1)
            dist.recv(received, 0, group=group)
            assert received.tolist() == [turn]
        torch.npu.synchronize()
        torch_npu.distributed.reinit_process_group(group)


def ht_001_forked(rank, size):
    """A child of fork has no watchdogs to wait for when it ends."""
    dist.all_reduce(there(rank))
    torch.npu.synchronize()
    for _ in range(20):  # whatever the watchdog does at that moment
        child = os.fork()
        if child == 0:
            torch_npu._C._distributed_c10d._stop_watchdogs()
            os._exit(7)
        end = time.monotonic() + 120
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(status) == 7, status


def _mlp():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 8))


def _losses(model, rows):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(rows).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack([getattr(loss, "full_tensor", lambda loss=loss: loss)() for loss in losses]).cpu()


def ht_082_fully_shard(rank, size):
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("npu", (size,))
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    model = _mlp().npu()
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    torch.testing.assert_close(_losses(model, rows.npu()), _losses(_mlp(), rows))


def ht_082_tensor_parallel(rank, size):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = dist.init_device_mesh("npu", (size,))
    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    model = parallelize_module(_mlp().npu(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(_losses(model, rows.npu()), _losses(_mlp(), rows))
    with torch.no_grad():
        static = rows.npu()
        model(static)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            captured = model(static) * 2  # uses, and so waits for, what the ranks have added up
        for step in range(3):
            static.copy_(rows + step)
            graph.replay()
            torch.testing.assert_close(captured, model(static) * 2)


def ht_082_pipeline(rank, size):
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rows = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    whole = _mlp()
    stage = PipelineStage((whole[:2] if rank == 0 else whole[2:]).npu(), rank, size, torch.device("npu:0"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda out, wanted: (out - wanted).square().mean())
    if rank == 0:
        schedule.step(rows.npu())
    else:
        losses = []
        schedule.step(target=torch.zeros(8, 8, device="npu"), losses=losses)
        torch.testing.assert_close(torch.stack(losses).mean().cpu().detach(), _mlp()(rows).square().mean().detach())
