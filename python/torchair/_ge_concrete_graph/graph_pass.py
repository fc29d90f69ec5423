# SPDX-License-Identifier: Apache-2.0
"""Changes of a graph of the engine between its conversion and its first run."""
from torchair import _hcom
from torchair._ge_concrete_graph import dtypes, ge_ir_pb2, weight_pass
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.graph import Input, Tensor, data_inputs, is_control, node_of, set_shape
from torchair.core.utils import logger
from torchair.ge import attr as ge_attr

_DATA = ("Data", "RefData")
_EFFECTS = ("PrintV2", "AttentionToFFN", "FFNToAttention")

# Operators that write an input: output by input.
REF_OPS = {
    "Scatter": {0: 0},
    "QuantUpdateScatter": {0: 0},
    "ScatterNdUpdate": {0: 0},
    "FfnWorkerScheduler": {0: 0},
    "AttentionWorkerScheduler": {0: 0},
    "ScatterList": None,  # each output the input of its number
    "ScatterPaKvCache": {0: 1, 1: 4},
    "MlaPrologV3": {2: 9, 3: 10},
    "KvRmsNormRopeCache": {0: 5, 1: 6},
    "GatherSelectionKvCache": {0: 0, 1: 1, 2: 2, 3: 3},
    "RecurrentGatedDeltaRule": {1: 4},
    "QkvRmsNormRopeCache": {0: 6, 1: 7, 2: 8},
}


def add_net_output(graph):
    if "NetOutput" in graph.nodes:
        return
    graph.controls, graph.scopes = [], []
    op = graph.add("NetOutput", [(f"input{i}", tensor) for i, tensor in enumerate(graph.outputs)], [])
    for desc, tensor in zip(op.input_desc, graph.outputs):
        desc.ClearField("attr")
        if tensor.meta is not None and hasattr(tensor.meta, "shape"):
            set_shape(desc, tensor.meta.shape)


def net_output(graph):
    return graph.nodes.get("NetOutput") or next((op for op in graph.op if op.type == "NetOutput"), None)


def run(graph, after=None):
    """All passes in their order; ``after(name)`` is called behind each. Gives which outputs are inputs that the graph writes:
    {output: input}."""

    def step(function, *args):
        result = function(graph, *args)
        if after is not None:
            after(function.__name__)
        return result

    step(optimize_sym_pack)
    step(record_groups)
    step(drop_unused_data)
    refs = step(elide_copies_of_refs)
    bound = step(map_assigns)
    step(order_effects)
    step(order_in_chain, "Cmo")
    step(weight_pass.transposes_into_attributes)
    step(weight_pass.bitcasts_before_transposes)
    step(drop_unused_data, refs)
    step(normalize)
    graph.ref_data = refs
    return bound


# ---- Inputs ----


def optimize_sym_pack(graph):
    """Packs of numbers of the host become one input each, which the host fills."""
    vectors = {}
    for op in [op for op in graph.op if op.type == "Pack" and op.attr["_inputs_all_sym"].b]:
        if op.attr["axis"].i != 0:
            raise AssertionError(f"{op.name} packs sizes along axis {op.attr['axis'].i}, not 0")
        names = []
        for _, edge in data_inputs(op):
            source = graph.nodes[node_of(edge)]
            if source.type != "Data" or source.output_desc[0].device_type != "CPU":
                raise AssertionError(f"{op.name} packs {source.name}, a {source.type} that is not a number of the host")
            names.append(source.name)
        key = tuple(names)
        if key not in vectors:
            data = graph.data(graph.unique_name(f"{op.name}_vector"), DataType.DT_INT64, [len(names)], host=True,
                              index=_next_index(graph))
            vectors[key] = data
            graph.inputs[data.node.name] = Input("pack", [graph.inputs[name].value for name in names], data.node)
        replace_edges(graph, f"{op.name}:0", vectors[key].tensor)
        graph.remove(op)


def record_groups(graph):
    """Which groups have the communicators that operators name."""
    used = {op.attr["group"].s.decode() for op in graph.op if "group" in op.attr}
    if used:
        graph.groups = {name: _hcom.record_of(group) for name, group in _hcom.communicators().items() if name in used}


def _next_index(graph):
    return 1 + max((op.attr["index"].i for op in graph.op if op.type in _DATA), default=-1)


def replace_edges(graph, old, new):
    for op in graph.op:
        for i, edge in enumerate(op.input):
            if edge == old:
                op.input[i] = new


def drop_unused_data(graph, keep=()):
    """Data nodes without a reader go; the others are numbered anew, in their order."""
    used = {node_of(edge) for op in graph.op for edge in op.input if not is_control(edge)}
    gone = [op for op in graph.op if op.type in _DATA and op.name not in used and op.name not in keep]
    names = {op.name for op in gone}
    for op in gone:
        graph.remove(op)
        graph.inputs.pop(op.name, None)
    for op in graph.op:
        kept = [edge for edge in op.input if not (is_control(edge) and node_of(edge) in names)]
        if len(kept) != len(op.input):
            del op.input[:]
            op.input.extend(kept)
    for i, op in enumerate(op for op in graph.op if op.type in _DATA):
        op.attr["index"].i = i


# ---- What is written in place ----


def _consumers(graph, edge):
    return [(op, i) for op in graph.op for i, each in enumerate(op.input) if each == edge]


def elide_copies_of_refs(graph):
    """Operators that write an input get a Data that is written anyway, in the place of a copy of it. Gives the names of the
    Data that some Assign writes."""
    refs = set()
    for assign in [op for op in graph.op if op.type == "Assign"]:
        target = graph.nodes[node_of(assign.input[0])]
        if target.type not in _DATA:
            continue
        refs.add(target.name)
        writer = graph.nodes[node_of(assign.input[1])]
        if writer.type not in REF_OPS:
            continue
        output = int(assign.input[1].rpartition(":")[2])
        table = REF_OPS[writer.type]
        place = output if table is None else table.get(output)
        slots = data_inputs(writer)
        if place is None or place >= len(slots):
            continue
        slot, edge = slots[place]
        move = graph.nodes.get(node_of(edge))
        if move is None or move.type != "TensorMove" or move.input[0] != f"{target.name}:0":
            continue
        readers = [op for op, _ in _consumers(graph, f"{target.name}:0") if op.type != "Cmo"]
        if len(readers) != 2:
            continue
        writer.input[slot] = f"{target.name}:0"
        if not _consumers(graph, f"{move.name}:0"):
            graph.remove(move)
        value = assign.input[1]
        returned = any(op.type == "NetOutput" for op, _ in _consumers(graph, value))
        alone = len(_consumers(graph, value)) == 1
        if not returned and not alone:
            graph.remove(assign)
    return refs


def map_assigns(graph):
    """Assignments to inputs become outputs that are these inputs: {output: input}."""
    net = net_output(graph)
    bound = {}
    for assign in [op for op in graph.op if op.type == "Assign"]:
        data = graph.nodes[node_of(assign.input[0])]
        if data.type not in _DATA:
            net.input.append(f"{assign.name}:-1")
            continue
        index, value, result = data.attr["index"].i, assign.input[1], f"{assign.name}:0"
        if value == f"{data.name}:0":
            graph.remove(assign)
            continue
        for slot, edge in data_inputs(net):
            if edge == result:
                net.input[slot] = value
        replace_edges(graph, result, value)
        found = False
        for position, (_, edge) in enumerate(data_inputs(net)):
            if edge == value and position not in bound:
                bound[position] = index
                found = True
        if not found:
            position = len(data_inputs(net))
            bound[position] = index
            net.input.append(value)
            desc = net.input_desc.add()
            desc.CopyFrom(assign.output_desc[0])
            desc.name = f"input{position}"
            desc.dtype = data.output_desc[0].dtype
            set_shape(desc, list(data.output_desc[0].shape.dim))
            graph.outputs.append(Tensor(graph.nodes[node_of(value)], int(value.rpartition(":")[2])))
        controls = [f"{assign.name}:-1", *(edge for edge in assign.input if is_control(edge))]
        for op in graph.op:
            for i in range(len(op.input) - 1, -1, -1):
                if op.input[i] == controls[0]:
                    op.input[i] = f"{node_of(value)}:-1"
        graph.remove(assign)
    return bound


def name_ref_data(graph, bound, inputs):
    """What is written becomes RefData, named for its tensor: graphs that write one tensor have one name for it."""
    ops = sorted((op for op in graph.op if op.type in _DATA), key=lambda op: op.attr["index"].i)
    places = set(bound.values()) | {i for i, op in enumerate(ops) if op.name in graph.ref_data}
    for place in sorted(places):
        op, tensor = ops[place], inputs[place]
        parts = ["_".join(str(each) for each in part) for part in (tensor.shape, tensor.stride())]
        name = f"RefData_{parts[0]}_{parts[1]}_{tensor.storage_offset()}_{id(tensor)}"
        if name in graph.nodes:
            logger.warning("graph %s: the name %s is there already, so that %s stays Data", graph.name, name, op.name)
            continue
        old = op.name
        op.type = "RefData"
        ge_attr.Str(old).merge_to(op.attr["_origin_data_name"])
        for each in graph.op:
            for i, edge in enumerate(each.input):
                if node_of(edge) == old:
                    each.input[i] = f"{name}:{edge.rpartition(':')[2]}"
        graph.nodes[name] = graph.nodes.pop(old)
        op.name = name
        if old in graph.inputs:
            graph.inputs[name] = graph.inputs.pop(old)
        if old in graph.ref_data:
            graph.ref_data = (graph.ref_data - {old}) | {name}


# ---- Order ----


def order_effects(graph):
    """Prints in the order of the program, and none of them lost; writes of what is printed come where they stood."""
    effects = [op for op in graph.op if op.type in _EFFECTS]
    if not effects:
        return
    net = net_output(graph)
    places = {op.name: i for i, op in enumerate(graph.op)}
    writers = {node_of(edge) for _, edge in data_inputs(net)}
    written = {}
    for name in writers:
        op = graph.nodes[name]
        for _, edge in data_inputs(op):
            if node_of(edge) and graph.nodes[node_of(edge)].type in _DATA:
                written.setdefault(node_of(edge), []).append(op)
    for op in effects:
        sources = [op]
        for _, edge in data_inputs(op):
            if node_of(edge) and graph.nodes[node_of(edge)].type == "StringFormat":
                sources.append(graph.nodes[node_of(edge)])
        names = {node_of(edge) for source in sources for _, edge in data_inputs(source)}
        for name in names:
            for writer in written.get(name, ()):
                if writer.type == "StringFormat" or writer is op:
                    continue
                first, second = (writer, op) if places[writer.name] < places[op.name] else (op, writer)
                _control(first, second)
    _chain(graph, effects)


def order_in_chain(graph, kind):
    _chain(graph, [op for op in graph.op if op.type == kind])


def _chain(graph, ops):
    for before, after in zip(ops, ops[1:]):
        _control(before, after)
    if ops:
        net = net_output(graph)
        if all(node_of(edge) != ops[-1].name for _, edge in data_inputs(net)):
            net.input.insert(0, f"{ops[-1].name}:-1")


def _control(before, after):
    edge = f"{before.name}:-1"
    if edge not in after.input:
        after.input.append(edge)


# ---- Attributes ----


def normalize(graph):
    for op in graph.op:
        for kind, descs in (("input", op.input_desc), ("output", op.output_desc)):
            for name in (f"_{kind}_name_key", f"_{kind}_name_value"):
                op.attr.pop(name, None)
            if descs:
                ge_attr.ListStr([desc.name for desc in descs]).merge_to(op.attr[f"_{kind}_name_key"])
                ge_attr.ListInt(list(range(len(descs)))).merge_to(op.attr[f"_{kind}_name_value"])
        for desc in [*op.input_desc, *op.output_desc]:
            if desc.dtype == ge_ir_pb2.DT_UNDEFINED and "_is_unfed_optional" not in desc.attr:
                desc.dtype = ge_ir_pb2.DT_FLOAT
            if not desc.layout:
                desc.layout = "ND"
        for kind, descs in (("input", op.input_desc), ("output", op.output_desc)):
            _set_layouts(op, f"{kind}_layout_info", descs)


def _set_layouts(op, name, descs):
    """What a converter says of layouts: places and, for each, its layout."""
    if name not in op.attr:
        return
    said = op.attr[name].list
    if len(said.i) != len(said.s) or any(not 0 <= place < len(descs) for place in said.i):
        raise ValueError(f"{op.name} ({op.type}): {name} has places {list(said.i)} and {len(said.s)} layouts for {len(descs)} tensors")
    for place, layout in zip(said.i, said.s):
        descs[place].layout = layout.decode()


def set_attributes(graph, executor):
    data = sorted((op for op in graph.op if op.type in _DATA), key=lambda op: op.attr["index"].i)
    placements = [0 if op.output_desc[0].device_type == "CPU" else 1 for op in data]
    ge_attr.ListInt(placements).merge_to(graph.attr["_input_placements"])
    types = [_type_of_output(graph, edge) for _, edge in data_inputs(net_output(graph))]
    ge_attr.ListInt([int(each) for each in types]).merge_to(graph.attr["_output_dtypes"])
    ge_attr.Int(executor).merge_to(graph.attr["_executor_type"])


def _type_of_output(graph, edge):
    name, _, index = edge.rpartition(":")
    return dtypes.from_proto(graph.nodes[name].output_desc[int(index)].dtype)
