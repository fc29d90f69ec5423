# SPDX-License-Identifier: Apache-2.0
"""Operators that save what each node of a graph computes, at each run."""
import os

import torch
from torchair.core.utils import logger

_SAVES = "save_npugraph_tensor"


def _is_save(node):
    return getattr(node.target, "__name__", "").startswith(_SAVES)


def insert_saves(gm, name, folder):
    """One behind each operator that makes a tensor. Returns how many were put in."""
    if any(_is_save(node) and name in str(node.kwargs.get("save_path")) for node in gm.graph.nodes):
        return 0
    count = 0
    for node in list(gm.graph.nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(value, torch.Tensor) or value.device.type != "npu":
            continue
        if any(_is_save(user) for user in node.users):
            continue
        path = os.path.join(folder, name, f"{node.name}.pt")
        with gm.graph.inserting_after(node):
            gm.graph.call_function(torch.ops.npu.save_npugraph_tensor.default, (node,), {"save_path": path})
        count += 1
    return count


def is_wanted(config, stage):
    dump = config.dump_config
    if not dump.enable_dump or dump.data_dump_stage.value != stage:
        return False
    if config.experimental_config.aclgraph._super_kernel_optimize:
        logger.warning("tensors are not dumped: super_kernel_optimize is on")
        return False
    return True
