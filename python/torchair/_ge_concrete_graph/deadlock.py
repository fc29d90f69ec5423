# SPDX-License-Identifier: Apache-2.0
"""Communication that may run at one time and wants more cores than there are (deadlock_check)."""
import itertools
import json
import os
import time

from torchair._ge_concrete_graph.graph import node_of
from torchair.core.utils import logger

_CORES = "_op_vectorcore_num"
_COMMUNICATES = ("Hcom", "AllGatherMatmul", "AlltoAll", "MatmulAllReduce", "MatmulReduceScatter", "MatmulAlltoAll", "MoeDistribute",
                 "GroupedMatMulAlltoAll", "DistributeBarrier")


def check(graph, timeline):
    """``timeline``: the tasks of the loaded graph. They are written to a file, and pairs that may block each other are logged.
    Gives the texts of what was found."""
    stamp = time.strftime("%Y%m%d%H%M%S")
    path = os.path.join(os.getcwd(), f"debug_output_{graph.name}_timestamp{stamp}_pid{os.getpid()}.json")
    with open(path, "w") as file:
        file.write(timeline)
    streams = {}
    for event in json.loads(timeline):
        args = event.get("args", {})
        if "op name" in args:
            streams[args["op name"]] = args["stream id"]
    tasks = [op for op in graph.op if op.type.startswith(_COMMUNICATES) and _CORES in op.attr and op.name in streams]
    before = _predecessors(graph) if len(tasks) > 1 else {}
    found = []
    total = _vector_cores()
    for one, other in itertools.combinations(tasks, 2):
        if streams[one.name] == streams[other.name] or one.name in before[other.name] or other.name in before[one.name]:
            continue
        wanted = [int(op.attr[_CORES].s) for op in (one, other)]
        if sum(wanted) > total:
            found.append(
                f"graph {graph.name}: {one.name} (stream {streams[one.name]}) and {other.name} (stream {streams[other.name]}) may run at "
                f"one time and want {wanted[0]} + {wanted[1]} vector cores of {total}: they may wait for each other for ever; use "
                "limit_core_num, or order them"
            )
            logger.error(found[-1])
    return found


def _vector_cores():
    import torch

    limit = getattr(torch.npu, "get_device_limit", None)
    return limit(torch.npu.current_device())["vector_core_num"] if limit is not None else 48


def _predecessors(graph):
    """Names of all nodes that come before each node."""
    found = {}
    for op in graph.op:  # in the order of the program
        own = set()
        for edge in op.input:
            name = node_of(edge)
            if name:
                own |= {name} | found.get(name, set())
        found[op.name] = own
    return found
