# SPDX-License-Identifier: Apache-2.0
"""Transposed weights of small types: products that have an attribute for it read the weight as it lies in memory."""
from torchair._ge_concrete_graph import dtypes
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.graph import is_control, node_of, set_shape

# Attribute, the weight, and what must be transposed with it: one of these.
_ATTRIBUTES = {
    "GroupedMatmul": ("transpose_weight", "weight", ("antiquant_scale", "scale")),
    "QuantBatchMatmulV4": ("transpose_x2", "x2", ("x2_scale",)),
    "GroupedMatmulFinalizeRouting": ("transpose_w", "w", ("scale",)),
}
_BITS = {DataType.DT_INT4: 4, DataType.DT_FLOAT4_E2M1: 4, DataType.DT_FLOAT4_E1M2: 4, DataType.DT_INT2: 2, DataType.DT_UINT1: 1,
         DataType.DT_INT32: 32, DataType.DT_UINT32: 32, DataType.DT_FLOAT: 32, DataType.DT_FLOAT16: 16, DataType.DT_BF16: 16,
         DataType.DT_INT16: 16, DataType.DT_UINT16: 16, DataType.DT_INT64: 64, DataType.DT_UINT64: 64, DataType.DT_DOUBLE: 64}


class _Turned:
    """An input that is a bitcast of a transposition by a constant."""

    def __init__(self, bitcast, transpose, perm):
        self.bitcast, self.transpose, self.perm = bitcast, transpose, perm


def _data_users(graph, name):
    return [op for op in graph.op for edge in op.input if not is_control(edge) and node_of(edge) == name]


def _turned(graph, op, slot):
    bitcast = graph.nodes.get(node_of(op.input[slot])) if slot is not None else None
    if bitcast is None or bitcast.type != "Bitcast" or len(_data_users(graph, bitcast.name)) != 1:
        return None
    transpose = graph.nodes.get(node_of(bitcast.input[0]))
    if transpose is None or transpose.type != "Transpose" or len(_data_users(graph, transpose.name)) != 1:
        return None
    constant = graph.nodes.get(node_of(transpose.input[1]))
    if constant is None or constant.type != "Const":
        return None
    width = 4 if dtypes.from_proto(constant.output_desc[0].dtype) == DataType.DT_INT32 else 8
    content = constant.attr["value"].t.data
    perm = [int.from_bytes(content[i : i + width], "little", signed=True) for i in range(0, len(content), width)]
    return _Turned(bitcast, transpose, [each % len(perm) for each in perm])


def _slot(op, name):
    """The place of an input by its name; of a list, if it has one tensor."""
    names = [desc.name for desc in op.input_desc]
    if f"{name}1" in names:
        return None
    found = [i for i, each in enumerate(names) if each in (name, f"{name}0")]
    return found[0] if found and found[0] < len(op.input) and op.input[found[0]] else None


def _swaps(perm, first):
    """Whether only the dims ``first`` and the one behind it change places."""
    wanted = list(range(len(perm)))
    if first < 0 or first + 1 >= len(perm):
        return False
    wanted[first], wanted[first + 1] = wanted[first + 1], wanted[first]
    return perm == wanted


def transposes_into_attributes(graph):
    for op in [op for op in graph.op if op.type in _ATTRIBUTES]:
        attribute, weight, others = _ATTRIBUTES[op.type]
        one = _turned(graph, op, _slot(op, weight))
        other = next((found for name in others if (found := _turned(graph, op, _slot(op, name))) is not None), None)
        if one is None or other is None or one.bitcast.name == other.bitcast.name:
            continue
        place = len(one.perm) - 2
        if not _swaps(one.perm, place) or not _swaps(other.perm, place):
            continue
        for each in (one, other):
            _skip(graph, op, each)
        op.attr[attribute].b = not op.attr[attribute].b


def _skip(graph, op, turned):
    bitcast, transpose = turned.bitcast, turned.transpose
    bitcast.input[0] = transpose.input[0]
    bitcast.input_desc[0].CopyFrom(transpose.input_desc[0])
    bitcast.input_desc[0].name = "x"
    _set_bitcast_shape(bitcast)
    _tell(graph, bitcast)
    _remove_with_constant(graph, transpose)


def _remove_with_constant(graph, transpose):
    constant = node_of(transpose.input[1])
    graph.remove(transpose)
    if not _data_users(graph, constant) and constant in graph.nodes:
        graph.remove(graph.nodes[constant])


def _set_bitcast_shape(bitcast):
    source, result = bitcast.input_desc[0], bitcast.output_desc[0]
    sizes = list(source.shape.dim)
    before, after = (_BITS.get(dtypes.from_proto(desc.dtype), 8) for desc in (source, result))
    if sizes and sizes[-1] > 0:
        sizes[-1] = sizes[-1] * before // after
    set_shape(result, sizes)


def _tell(graph, op):
    """Readers of a node see the shape that it has now."""
    for reader in graph.op:
        slots = [edge for edge in reader.input if not is_control(edge)]
        for i, edge in enumerate(slots):
            if node_of(edge) == op.name and i < len(reader.input_desc):
                set_shape(reader.input_desc[i], list(op.output_desc[int(edge.rpartition(":")[2])].shape.dim))


def bitcasts_before_transposes(graph):
    """Of the weight of QuantBatchMatmulV3: elements that share bytes must be taken apart before they are moved."""
    for op in [op for op in graph.op if op.type == "QuantBatchMatmulV3"]:
        turned = _turned(graph, op, 1 if len(op.input) > 1 and op.input[1] else None)
        if turned is None:
            continue
        bitcast, transpose = turned.bitcast, turned.transpose
        source = transpose.input[0]
        op.input[1] = f"{transpose.name}:0"
        transpose.input[0] = f"{bitcast.name}:0"
        bitcast.input[0] = source
        bitcast.input_desc[0].CopyFrom(transpose.input_desc[0])
        bitcast.input_desc[0].name = "x"
        _set_bitcast_shape(bitcast)
        sizes = list(bitcast.output_desc[0].shape.dim)
        for desc in (transpose.input_desc[0], transpose.output_desc[0]):
            desc.dtype = bitcast.output_desc[0].dtype
        set_shape(transpose.input_desc[0], sizes)
        set_shape(transpose.output_desc[0], [sizes[each] for each in turned.perm])
        _tell(graph, transpose)
        _in_order(graph, bitcast, transpose)


def _in_order(graph, first, second):
    """The nodes of a model stand in an order in which they can run; these two change places if they must."""
    places = {op.name: i for i, op in enumerate(graph.op)}
    one, other = places[second.name], places[first.name]
    if one > other:
        return
    names = first.name, second.name
    copies = [type(first).FromString(op.SerializeToString()) for op in (graph.op[one], graph.op[other])]
    graph.op[one].CopyFrom(copies[1])
    graph.op[other].CopyFrom(copies[0])
    graph.nodes[names[0]], graph.nodes[names[1]] = graph.op[one], graph.op[other]
