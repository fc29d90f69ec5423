# SPDX-License-Identifier: Apache-2.0
"""Graphs as text that people read."""
import os
import time

import torch


def text_of(gm):
    """The code of an FX graph, with what each value is in comments."""
    lines = ["## FX Code"]
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            lines.append(f"## {node.name}: {value.dtype}{[str(size) for size in value.shape]}{value.device}".replace("'", ""))
    return "\n".join(lines) + "\n" + gm.print_readable(print_output=False) + "\n"


def _name(name):
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    return f"{name}_rank_{rank}_pid_{os.getpid()}_ts_{time.time_ns()}"


def write_capture(graph, folder, name):
    """The tasks of a captured graph, as a trace."""
    graph.debug_dump(os.path.join(folder, _name(f"{name}_id_{id(graph)}") + ".json"))


def write(gm, folder, stage, name):
    """``dynamo_<stage>_graph_<id>_rank_<r>_pid_<p>_ts_<t>.py`` in the folder; links are refused."""
    folder = folder or os.getcwd()
    os.makedirs(folder, exist_ok=True)
    number = name.rsplit("_", 1)[-1]
    file = _name(f"dynamo_{stage}_graph_{number}") + ".py"
    path = os.path.join(folder, file)
    if os.path.islink(path):
        raise ValueError(f"{path} is a link: graphs are not written through links")
    with open(path, "w") as out:
        out.write(text_of(gm))
    return path
