# SPDX-License-Identifier: Apache-2.0
"""Which operators a model has, as a table in a file."""
import csv
import os
import time

import torch

_HEADER = ["目标函数", "函数类型", "支持状态", "调用次数", "输入统计", "输出统计"]


def _text(value):
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(each) for each in value)}]"
    return str(value)


def summarize(gm, example_inputs):
    """Writes summary_….csv into the working folder."""
    from torchair._ge_concrete_graph.fx2ge_converter import has_converter

    rows = {}
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        row = rows.setdefault(str(node.target), [type(node.target).__name__, has_converter(node.target), 0, set(), set()])
        row[2] += 1
        take = lambda each: each.meta.get("val") if isinstance(each, torch.fx.Node) else each  # noqa: E731
        row[3].add(_text(torch.fx.node.map_aggregate(list(node.args), take)))
        row[4].add(_text(node.meta.get("val")))
    path = os.path.join(os.getcwd(), f"summary_{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}_{id(gm)}.csv")
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(_HEADER)
        for target, (kind, known, count, inputs, outputs) in rows.items():
            writer.writerow([target, kind, "已支持" if known else "未实现", count, "; ".join(sorted(inputs)), "; ".join(sorted(outputs))])
    return path
