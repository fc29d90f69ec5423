# SPDX-License-Identifier: Apache-2.0
"""Inputs in formats of the hardware: the graph is told of them. Here their memory is that of the plain format."""
import sys

from torchair.ge import attr as ge_attr

_NAMES = {
    -1: "UNDEFINED", 0: "NCHW", 1: "NHWC", 2: "ND", 3: "NC1HWC0", 4: "FRACTAL_Z", 29: "FRACTAL_NZ", 30: "NCDHW", 32: "NDC1HWC0",
    33: "FRACTAL_Z_3D", 50: "FRACTAL_NZ_C0_16", 52: "FRACTAL_NZ_C0_2", 53: "FRACTAL_NZ_C0_4", 54: "FRACTAL_NZ_C0_8",
}
_DATA = ("Data", "RefData")
_PLAIN = {-1, 0, 1, 2, 30}


def of(tensor):
    """The number of a tensor's format."""
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is None or tensor.device.type != "npu":
        return 2
    return int(torch_npu.get_npu_format(tensor))


def plain(ge_graph):
    """The model for the engine, which takes inputs as they lie in memory, row by row."""
    marked = [op for op in ge_graph.op if op.type in _DATA and "format_for_int" in op.output_desc[0].attr]
    if not marked:
        return ge_graph.SerializeToString()
    kept = [(desc, number) for op in marked for desc in (*op.output_desc, *op.input_desc) if (number := desc.attr["format_for_int"].i)]
    try:
        for desc, _ in kept:
            del desc.attr["format_for_int"]
        return ge_graph.SerializeToString()
    finally:
        for desc, number in kept:
            ge_attr.Int(number).merge_to(desc.attr["format_for_int"])


def describe(graph_name, entries, tensors):
    """``entries``: inputs of the graph, ``tensors``: those of its first call."""
    for i, (entry, tensor) in enumerate(zip(entries, tensors)):
        if entry.kind != "arg" or entry.is_host:
            continue
        number = of(tensor)
        if number not in _NAMES:
            raise RuntimeError(
                f"input {i} of graph {graph_name} has format {number}, which graphs of the engine do not take; formats are "
                f"{', '.join(f'{name} ({key})' for key, name in _NAMES.items())}: cast it with npu_format_cast"
            )
        if number in _PLAIN:
            continue
        if entry.gears and any(entry.node.output_desc[0].shape.dim[dim] == -1 for dim in entry.gears):
            raise RuntimeError(
                f"input {i} of graph {graph_name} has gears (set_dim_gears) and format {_NAMES[number]} ({number}), which only "
                "inputs of one shape can have: cast it with npu_format_cast(x, 2)"
            )
        rank = len(entry.node.output_desc[0].shape.dim)
        origin = {4: 0, 5: 30}.get(rank, 2)
        for desc in (*entry.node.output_desc, *entry.node.input_desc):
            ge_attr.Int(number).merge_to(desc.attr["format_for_int"])
            ge_attr.Int(origin).merge_to(desc.attr["origin_format_for_int"])
        ge_attr.Bool(False).merge_to(entry.node.attr["_enable_storage_format_spread"])
