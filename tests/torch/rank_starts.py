# SPDX-License-Identifier: Apache-2.0
"""Groups of hccl from their beginning to their end: ways to make them, to make them anew, to lose them. Two ranks on a
machine with two devices; each function makes its own groups. test_distributed.py runs them."""
import datetime
import os
import re

import pytest
import torch
import torch.distributed as dist
import torch_npu
from rank_checks import backend, refused, there
from support import wait_until
from torch.distributed import ReduceOp

NEEDS_GROUP = False
FOLDER = os.environ["REPRISE_TEST_FOLDER"]


def _file(name):
    return f"file://{FOLDER}/{name}"


def _start(name, rank, size, **options):
    dist.init_process_group("hccl", init_method=_file(name), rank=rank, world_size=size, **options)


def _port(rank):
    """Of a store that rank 0 serves as long as its process lives: rendezvous in the same process share it."""
    shared = dist.FileStore(f"{FOLDER}/port", 2)
    if rank == 0:
        _port.store = dist.TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False, multi_tenant=True)
        shared.set("port", str(_port.store.port))
    return int(shared.get("port"))


def ht_002_ways_to_begin(rank, size):
    port = _port(rank)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    ways = {
        "env": {},
        "env://": {"init_method": "env://"},
        "tcp": {"init_method": f"tcp://127.0.0.1:{port}", "rank": rank, "world_size": size},
        "file": {"init_method": _file("way"), "rank": rank, "world_size": size},
        "FileStore": {"store": dist.FileStore(f"{FOLDER}/own", size), "rank": rank, "world_size": size},
        "TCPStore": {"store": dist.TCPStore("127.0.0.1", port, size), "rank": rank, "world_size": size},
    }
    for name, options in ways.items():
        dist.init_process_group("hccl", **options)
        tensor = there(rank + 1)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [3], name
        dist.destroy_process_group()


def ht_002_010_one_rank(rank, size):
    """Every operator of a group that has one rank, each of the two processes for itself."""
    dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
    x, out = there(1, 2), torch.zeros(2, device="npu")
    for reduction in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG):
        dist.all_reduce(x, reduction)
        dist.reduce(x, 0, reduction)
    dist.broadcast(x, 0)
    assert x.tolist() == [1, 2]
    lists = [torch.zeros(2, device="npu")]
    calls = {
        "all_gather": lambda: dist.all_gather(lists, x),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(out, x),
        "reduce_scatter": lambda: dist.reduce_scatter(out, [x]),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(out, x),
        "scatter": lambda: dist.scatter(out, [x]),
        "gather": lambda: dist.gather(x, lists),
        "all_to_all_single": lambda: dist.all_to_all_single(out, x),
        "all_to_all_single with splits": lambda: dist.all_to_all_single(out, x, [2], [2]),
        "all_to_all": lambda: dist.all_to_all(lists, [x]),
        "reduce_scatter_tensor_uneven": lambda: torch_npu.distributed.reduce_scatter_tensor_uneven(out, x, [2]),
        "all_gather_into_tensor_uneven": lambda: torch_npu.distributed.all_gather_into_tensor_uneven(out, x, [2]),
        "all_to_all_vc": lambda: torch_npu.distributed.all_to_all_vc(out, x, [[2]]),
    }
    for name, call in calls.items():
        out.zero_()
        lists[0].zero_()
        call()
        assert [1, 2] in (out.tolist(), lists[0].tolist()), name
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(out)
    manager.wait()
    dist.barrier()
    things = [None]
    dist.all_gather_object(things, "mine")
    assert things == ["mine"] and x.tolist() == [1, 2]
    dist.broadcast_object_list(things)
    # A message to oneself is torch's error, or the backend's.
    refused("self|rank", dist.send, x, 0, kind=(ValueError, RuntimeError))
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        doubled = x * 2
        dist.all_reduce(doubled)
    graph.replay()
    assert doubled.tolist() == [2, 4]
    graph.reset()
    dist.destroy_process_group()


def ht_070_hc_091_a_condition_that_differs(rank, size):
    from torch_npu.npu._npugraph_conditional_nodes import NPUGraphCaptureControlFlowOpDispatchMode

    _start("condition", rank, size)
    torch.npu.set_device(rank)
    x, flag = torch.ones(4, device="npu"), torch.tensor(True, device="npu")
    dist.all_reduce(x)

    def added(x):
        x = x + 1
        dist.all_reduce(x)
        return x

    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph), NPUGraphCaptureControlFlowOpDispatchMode():
        total = torch.ops.higher_order.cond(flag, added, lambda x: x * 2, (x,))
    graph.replay()
    assert total.tolist() == [6] * 4
    flag.fill_(rank == 0)
    graph.replay()
    refused("EI0005.*a condition", torch.npu.synchronize)
    graph.reset()
    dist.destroy_process_group()
    torch.npu.set_device(0)


def ht_003_004_backends_of_both_devices(rank, size):
    for name, which in (("none", ()), ("both", ("cpu:gloo,npu:hccl",))):
        dist.init_process_group(*which, init_method=_file(name), rank=rank, world_size=size)
        assert type(backend()) is torch_npu._C._distributed_c10d.ProcessGroupHCCL
        assert dist.get_backend_config() == "cpu:gloo,npu:hccl"
        of_npu, of_cpu = there(rank + 1), torch.tensor([rank + 1.0])
        for tensor in (of_npu, of_cpu):
            dist.all_reduce(tensor)
            assert tensor.tolist() == [3], (name, tensor.device)
        part = dist.new_group([0, 1])
        for tensor in (of_npu, of_cpu):
            dist.broadcast(tensor.fill_(rank), 1, group=part)
            assert tensor.tolist() == [1], (name, tensor.device)
        names = [None] * size
        dist.all_gather_object(names, rank)
        assert names == [0, 1]
        dist.barrier()
        dist.destroy_process_group()


def ht_013_again_and_again(rank, size):
    for turn in range(5):
        _start(f"turn {turn}", rank, size)
        tensor = there(rank, turn)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [1, 2 * turn], turn
        if rank == 0:
            dist.send(tensor, 1)
        else:
            dist.recv(tensor.zero_(), 0)
        assert tensor.tolist() == [1, 2 * turn], turn
        dist.destroy_process_group()
        assert not dist.is_initialized()


def ht_046_two_devices(rank, size):
    _start("devices", rank, size)
    here, away = there(1, 2), torch.zeros(2, device="npu:1")
    dist.all_reduce(here)
    refused("one device per process only", dist.all_reduce, away)
    same = "must all reside on the same device"
    refused(same, dist.reduce_scatter, away, [here, here])
    refused(same, dist.reduce_scatter_tensor, away, there(1, 2, 3, 4))
    refused("on same NPU device", dist.all_gather_into_tensor, torch.zeros(4, device="npu:1"), here)
    refused("on same NPU device", dist.all_to_all_single, away, here)
    other = dist.new_group()  # another group may be for the other device
    dist.all_reduce(away.fill_(rank), group=other)
    dist.all_reduce(here)
    assert away.tolist() == [1, 1] and here.tolist() == [4, 8]
    dist.destroy_process_group()


def ht_079_a_graph_outlives_its_group(rank, size):
    _start("outlived", rank, size)
    x = there(rank)
    graph, later = torch.npu.NPUGraph(), torch.npu.NPUGraph()
    for each in (graph, later):
        with torch.npu.graph(each):
            y = x * 3
            dist.all_reduce(y)
    later.replay()
    assert y.tolist() == [3]
    dist.destroy_process_group()
    graph.reset()
    with pytest.raises(RuntimeError, match="destroyed"):
        later.replay()
        torch.npu.synchronize()
    del later, y
    torch.npu.synchronize()


def ht_084_parameters_are_compared(rank, size):
    from torch.nn.parallel import DistributedDataParallel

    _start("compared", rank, size)
    like, unlike = [there(1, 2)], [torch.zeros(2, 2 + rank, device="npu")]
    for verify in (
        dist._verify_params_across_processes,
        torch_npu._C._distributed_c10d._verify_params_across_processes,
    ):
        verify(dist.group.WORLD, like, None)
        refused("appears not to match|[Ss]hape", verify, dist.group.WORLD, unlike, None)
    with pytest.raises(RuntimeError, match="appears not to match|[Ss]hape"):
        DistributedDataParallel(torch.nn.Linear(2, 2 + rank).npu())
    dist.destroy_process_group()


def ht_100_calls_are_checked(rank, size):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: groups are wrapped by torch, whose wrapper compares the calls of ranks."""
    before = dist.get_debug_level()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        _start("checked", rank, size)
        assert type(backend()).__name__ == "_ProcessGroupWrapper"
        x = there(rank, 1)
        dist.all_reduce(x)
        assert x.tolist() == [1, 2]
        refused("mismatch", dist.all_reduce, torch.zeros(2 + rank, device="npu"))
        refused("mismatch", (dist.all_reduce, lambda y: dist.broadcast(y, 0))[rank], x)
        out = torch.zeros(2, device="npu")
        both = [dist.P2POp(dist.isend, x + rank, 1 - rank), dist.P2POp(dist.irecv, out, 1 - rank)]
        works = dist.batch_isend_irecv(both)
        assert len(works) == 1
        works[0].wait()
        assert out.tolist() == [2 - rank, 3 - rank]
        rows = torch.full((1 + rank, 2), float(rank), device="npu")
        whole = torch.zeros(3, 2, device="npu")
        torch_npu.distributed.all_gather_into_tensor_uneven(whole, rows, [1, 2])
        assert whole.tolist() == [[0, 0], [1, 1], [1, 1]]
        dist.barrier()
        dist.destroy_process_group()
    finally:
        dist.set_debug_level(before)


def ht_062_a_time_limit_of_a_group(rank, size):
    _start("limited", rank, size)
    options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
    options.hccl_config = {"hccl_exec_timeout": 1}
    hasty = dist.new_group(pg_options=options)
    backend(hasty).get_hccl_comm_name(rank)  # makes the communicator, for which the ranks meet
    x = there(rank)
    if rank == 0:
        with pytest.raises(RuntimeError, match="EI0002(.|\n)*rank 1"):
            dist.all_reduce(x, group=hasty)  # rank 1 does not call it
            torch.npu.synchronize()
    # The group of all has no such limit, and is not touched.
    dist.barrier()
    dist.all_reduce(x.fill_(rank))
    assert x.tolist() == [1]
    dist.destroy_process_group()


def ht_062_who_synchronises_after_the_watchdog_is_told(rank, size):
    _start("watched", rank, size)
    options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
    options.hccl_config = {"hccl_exec_timeout": 1}
    hasty = dist.new_group(pg_options=options)
    backend(hasty).get_hccl_comm_name(rank)
    if rank == 0:
        work = dist.all_reduce(there(rank), group=hasty, async_op=True)  # rank 1 does not call it
        wait_until(lambda: work.exception() is not None)  # the watchdog has seen it
        with pytest.raises(RuntimeError, match="EI0002(.|\n)*rank 1"):
            torch.npu.synchronize()
        torch.npu.synchronize()  # what was told is over
        with pytest.raises(RuntimeError, match="EI0002(.|\n)*rank 1"):
            work.wait()
    dist.barrier()
    dist.destroy_process_group()


def ht_062_a_work_keeps_its_words(rank, size):
    """Whoever else was told of the failure, and in whatever order."""
    _start("words", rank, size)
    options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
    options.hccl_config = {"hccl_exec_timeout": 1}
    hasty = dist.new_group(pg_options=options)
    backend(hasty).get_hccl_comm_name(rank)
    if rank == 0:
        work = dist.all_reduce(there(rank), group=hasty, async_op=True)  # rank 1 does not call it
        with pytest.raises(RuntimeError, match="EI0002(.|\n)*rank 1"):
            torch.npu.synchronize()  # takes the stream's error
        for _ in range(2):
            with pytest.raises(RuntimeError, match="EI0002(.|\n)*rank 1"):
                work.wait()
            assert re.search("EI0002(.|\n)*rank 1", str(work.exception()))
        torch.npu.synchronize()
    dist.barrier()
    dist.destroy_process_group()


def ht_095_different_sizes(rank, size):
    _start("sizes", rank, size, timeout=datetime.timedelta(minutes=10))
    with pytest.raises(RuntimeError) as caught:  # at the wait of the call, or later
        dist.all_reduce(torch.zeros(5 + 3 * rank, device="npu"))
        torch.npu.synchronize()
    for part in ("EI0005", "5", "8", "rank 0", "rank 1"):
        assert part in str(caught.value), str(caught.value)
    dist.destroy_process_group()
