# SPDX-License-Identifier: Apache-2.0
"""Exported programs as graphs of the engine, with which operators stand for which node. What has no converter is there in name."""
import copy
import dataclasses

import torch
from google.protobuf.json_format import MessageToDict

from torchair import _fx_passes
from torchair._ge_concrete_graph import graph_pass
from torchair._ge_concrete_graph.fx2ge_converter import GeConcreteGraph, has_converter
from torchair._ge_concrete_graph.graph import Tensor
from torchair._utils.decompositions import decompositions_of
from torchair.configs.compiler_config import CompilerConfig


@dataclasses.dataclass
class NodeIR:
    """Of one FX node. ``source``: "converter", or nothing where a node of its name stands for it; ``ops``: the operators, as
    dicts; ``mapping``: {"outputs": ["name:index"]}, "None" for results that are no tensors of the graph."""

    source: str
    ops: list
    mapping: dict


class GeGraphAscend:
    def __init__(self, proto, ascend_ir_map, original, optimized):
        self.proto, self.ascend_ir_map, self.original, self.optimized = proto, ascend_ir_map, original, optimized

    def to_json_dict(self):
        """All of it but the programs, without bytes: they become hexadecimal text."""
        nodes = {name: dataclasses.asdict(each) for name, each in self.ascend_ir_map.items()}
        return {**_as_dict(self.proto), "ascend_ir_map": nodes}


def _as_dict(message):
    return _with_hex(MessageToDict(message), message)


def _with_hex(found, message):
    """Bytes, which protobuf writes in base 64, in hexadecimal digits."""
    for field, value in message.ListFields():
        key = field.json_name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for name in value:
                if hasattr(value[name], "ListFields"):
                    _with_hex(found[key][name], value[name])
        elif field.type == field.TYPE_BYTES:
            found[key] = value.hex() if isinstance(value, bytes) else [each.hex() for each in value]
        elif field.type == field.TYPE_MESSAGE:
            if isinstance(found[key], list):
                for part, each in zip(found[key], value):
                    _with_hex(part, each)
            else:
                _with_hex(found[key], value)
    return found


class _Converted(GeConcreteGraph):
    """Notes what becomes of each node."""

    def __init__(self, name, config):
        super().__init__(name, config)
        self.nodes = {}
        self._is_mock = False

    def _convert(self, node, env, example_inputs, mode):
        count, self._is_mock = len(self.graph.op), False
        result = super()._convert(node, env, example_inputs, mode)
        if node.op == "call_function":
            results = result if isinstance(result, (list, tuple)) else [result]
            outputs = [each.tensor if isinstance(each, Tensor) else "None" for each in results]
            ops = [_as_dict(op) for op in self.graph.op[count:]]
            self.nodes[node.name] = NodeIR("" if self._is_mock else "converter", ops, {"outputs": outputs})
        return result

    def _call(self, node, args, kwargs, meta):
        count = len(self.graph.op)
        try:
            return super()._call(node, args, kwargs, meta)
        except (NotImplementedError, RuntimeError):  # there is no converter, or not for these arguments
            for op in list(self.graph.op[count:]):
                self.graph.remove(op)
        self._is_mock = True
        tensors = [each for each in torch.utils._pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        metas = meta if isinstance(meta, (list, tuple)) else [meta]
        kind = str(node.target)
        op = self.graph.add(
            kind, [(f"input_{i}", each) for i, each in enumerate(tensors)], [f"output_{i}" for i in range(len(metas))]
        )
        results = [Tensor(op, i) for i in range(len(metas))]
        return results if isinstance(meta, (list, tuple)) else results[0]


def _optimize_and_convert(exported_program, config=None, custom_decompositions=None):
    """Takes a torch.export.ExportedProgram."""
    config = copy.deepcopy(config or CompilerConfig())
    config.experimental_config.enable_view_optimize = False  # each node has operators of its own
    table = torch.export.default_decompositions()  # takes apart what keeps its name in exported programs, such as conv2d
    for op in [op for op in table if has_converter(op)]:
        table.pop(op)
    table.update(decompositions_of(config, custom_decompositions))
    optimized = exported_program.run_decompositions(table)
    gm = copy.deepcopy(optimized.graph_module)
    example_inputs = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    _fx_passes.optimize(gm, example_inputs, config)
    converted = _Converted("ascend_ir_graph", config)
    converted.build(gm, example_inputs, "forward")
    graph_pass.add_net_output(converted.graph)
    graph_pass.run(converted.graph)
    return GeGraphAscend(converted.graph.proto, converted.nodes, exported_program, optimized)
