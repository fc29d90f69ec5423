# SPDX-License-Identifier: Apache-2.0
"""Dumps of values while graphs run (dump_config): options of each graph, and the file that lists them."""
import json
import os

import torch
from torchair.core.utils import logger

_SCOPE = "torchair_enable_data_dump"
_NAMES = {
    "dump_path": "ge.exec.dumpPath",
    "dump_mode": "ge.exec.dumpMode",
    "dump_data": "ge.exec.dumpData",
    "dump_step": "ge.exec.dumpStep",
    "quant_dumpable": "ge.quant_dumpable",
}
_KEYS = {*_NAMES.values(), "ge.exec.enableDump", "ge.exec.dumpLayer"}


def rank_and_world():
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


def of_process(folder):
    """The folder of this process below ``folder``."""
    rank, world = rank_and_world()
    return os.path.join(folder, f"worldsize{world}_global_rank{rank}")


def take(graph, glob):
    """Takes the options of dumps out of those of the process, since each graph has its own. Gives them for this graph."""
    found = {key: glob.pop(key) for key in _KEYS & set(glob)}
    if not found:
        return {}
    marked = {op.type for op in graph.op if _SCOPE in op.attr and op.type != "Const"}
    layers = [*dict.fromkeys([*found.get("ge.exec.dumpLayer", "").split(), *sorted(marked)])]
    if layers:
        found["ge.exec.dumpLayer"] = " ".join(layers)
    os.makedirs(found["ge.exec.dumpPath"], exist_ok=True)
    try:
        _write(graph.name, found, layers)
    except OSError as error:
        logger.warning("the options of the dump of graph %s are not written: %s", graph.name, error)
    return found


def _write(name, found, layers):
    """All graphs of a process are entries of one list."""
    rank, world = rank_and_world()
    folder = os.path.join(os.getcwd(), "ge_dump_data_json")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"dump_options_worldsize{world}_rank{rank}_pid{os.getpid()}.json")
    entries = []
    if os.path.exists(path):
        with open(path) as file:
            entries = json.load(file)["dump"]["dump_list"]
    own = {key: found.get(option, "") for key, option in _NAMES.items()}
    with open(path, "w") as file:
        json.dump({"dump": {**own, "dump_list": [*entries, {"model_name": name, "layer": layers}]}}, file, indent=2)
