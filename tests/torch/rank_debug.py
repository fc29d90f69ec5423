# SPDX-License-Identifier: Apache-2.0
"""What a program that looks for a fault asks of hccl: the flight recorder, streams of high priority. In the environment
that test_distributed.py sets."""
import json
import os
import pickle

import torch
import torch.distributed as dist
from rank_checks import backend, there
from support import Gate, wait_until
from torch_npu._C import _distributed_c10d as c10d

FOLDER = os.environ["REPRISE_TEST_FOLDER"]
CAPACITY = 12  # TORCH_HCCL_TRACE_BUFFER_SIZE

ENTRY = set(
    "record_id pg_id process_group collective_seq_id p2p_seq_id op_id profiling_name time_created_ns input_sizes "
    "input_dtypes output_sizes output_dtypes state duration_ms time_discovered_started_ns "
    "time_discovered_completed_ns retired timeout_ms is_p2p frames".split()
)


def ht_055_streams_of_high_priority(rank, size):
    dist.all_reduce(there(rank))
    assert backend()._get_stream_id() >> 5 == torch.npu.Stream(priority=-1).stream_id >> 5
    assert torch.npu.Stream().stream_id >> 5 != torch.npu.Stream(priority=-1).stream_id >> 5


def ht_097_flight_recorder(rank, size):
    x, whole = there(1, 2), torch.zeros(2, 2, dtype=torch.float16, device="npu")
    dist.all_reduce(x)
    dist.all_gather_into_tensor(whole, x.half())
    dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    torch.npu.synchronize()
    with Gate() as gate:
        work = dist.all_reduce(x, async_op=True)
        active = pickle.loads(c10d._dump_hccl_trace(onlyActive=True))["entries"]
        gate.open()
    assert [entry["state"] for entry in active] == ["started"] and not active[0]["retired"]
    work.wait()
    torch.npu.synchronize()
    trace = pickle.loads(c10d._dump_hccl_trace())
    assert {"version", "pg_config", "pg_status", "entries", "hccl_comm_state"} <= set(trace)
    assert trace["version"] == "2.4"
    (key,) = trace["pg_config"]
    assert trace["pg_config"][key] == {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
    entries = trace["entries"]
    assert len(entries) == 5 and all(set(entry) == ENTRY for entry in entries)
    assert [entry["profiling_name"] for entry in entries] == [
        "hccl:all_reduce",
        "hccl:all_reduce",
        "hccl:_all_gather_base",
        "hccl:send 0->1" if rank == 0 else "hccl:recv 1<-0",
        "hccl:all_reduce",
    ]
    assert [(entry["collective_seq_id"], entry["p2p_seq_id"]) for entry in entries] == [
        (1, 0), (2, 0), (3, 0), (0, 1), (4, 0)
    ]  # fmt: skip
    assert [entry["op_id"] for entry in entries] == [1, 2, 3, 4, 5]
    gather = entries[2]
    assert (gather["input_sizes"], gather["output_sizes"]) == ([[2]], [[2, 2]])
    assert (gather["input_dtypes"], gather["output_dtypes"]) == (["Half"], ["Half"])
    assert gather["process_group"] == ("0", "default_pg") and not gather["is_p2p"] and entries[3]["is_p2p"]
    assert gather["frames"][0]["name"] == "ht_097_flight_recorder" and gather["frames"][0]["line"] > 0
    assert gather["frames"][0]["filename"].endswith("rank_debug.py")
    for entry in entries:
        assert entry["state"] == "completed" and entry["retired"]
        times = [entry[f"time_{what}_ns"] for what in ("created", "discovered_started", "discovered_completed")]
        assert times == sorted(times) and times[0] > 0 and entry["duration_ms"] >= 0
    assert trace["pg_status"][key] == {
        "last_enqueued_collective": 4,
        "last_started_collective": 4,
        "last_completed_collective": 4,
    }
    assert pickle.loads(c10d._dump_hccl_trace(onlyActive=True))["entries"] == []
    assert "entries" not in pickle.loads(c10d._dump_hccl_trace(includeCollectives=False))
    assert "frames" not in pickle.loads(c10d._dump_hccl_trace(includeStackTraces=False))["entries"][0]
    text = json.loads(c10d._dump_hccl_trace_json())
    assert set(text) == set(trace) and len(text["entries"]) == 5 and "frames" not in text["entries"][0]
    assert text["entries"][2]["process_group"] == ["0", "default_pg"]
    assert json.loads(c10d._dump_hccl_trace_json(onlyActive=True))["entries"] == []
    for _ in range(2 * CAPACITY):
        dist.all_reduce(x)
    numbers = [entry["record_id"] for entry in pickle.loads(c10d._dump_hccl_trace())["entries"]]
    assert numbers == list(range(5 + CAPACITY, 5 + 2 * CAPACITY))


def ht_097_captured_operators(rank, size):
    x = there(rank)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        dist.all_reduce(x)
    newest = pickle.loads(c10d._dump_hccl_trace())["entries"][-1]
    assert (newest["state"], newest["retired"]) == ("scheduled", True)
    graph.replay()
    assert x.tolist() == [1]


def ht_099_a_pipe_asks_for_a_dump(rank, size):
    with open(f"{FOLDER}/pipe_{rank}.pipe", "w") as pipe:
        pipe.write("dump, please\n")
    wait_until(lambda: os.path.exists(f"{FOLDER}/trace_{rank}"))
    with open(f"{FOLDER}/trace_{rank}", "rb") as file:
        trace = pickle.load(file)
    assert [set(entry) for entry in trace["entries"]] == [ENTRY] * CAPACITY
    dist.barrier()
    if rank == 0:  # PyTorch's own reader understands the two files
        from torch.distributed.flight_recorder.components.loader import read_dump

        for other in range(size):
            read = read_dump("trace_", f"{FOLDER}/trace_{other}")
            assert read["rank"] == other and len(read["entries"]) == CAPACITY
