# SPDX-License-Identifier: Apache-2.0
"""Graphs of the engine while they are built: nodes, edges, constants, values of symbols."""
import contextlib
import sys
import threading

import sympy
import torch

from torchair._ge_concrete_graph import dtypes, ge_ir_pb2
from torchair._ge_concrete_graph.dtypes import DataType
from torchair.ge import attr as ge_attr

_local = threading.local()


def default_graph():
    """The graph that is being built on this thread."""
    graph = getattr(_local, "graph", None)
    if graph is None:
        raise AssertionError("no graph is being built: call this within a converter, or with GeGraph() as a context")
    return graph


class Tensor:
    """An output of a node."""

    def __init__(self, node, index=0):
        self.node = node
        self.index = index
        self.meta = None  # the fake tensor of PyTorch
        self.symsize = None

    @property
    def desc(self):
        return self.node.output_desc[self.index]

    @property
    def tensor(self):
        return f"{self.node.name}:{self.index}"

    @property
    def controller(self):
        return f"{self.node.name}:-1"

    @property
    def dtype(self):
        return dtypes.from_proto(self.desc.dtype)

    @property
    def rank(self):
        if self.meta is not None:
            return len(self.meta.shape)
        if self.symsize is None:
            raise AssertionError(f"the rank of {self.tensor} is not known")
        return len(self.symsize)

    def get_numel(self):
        if self.meta is None:
            raise AssertionError(f"the number of elements of {self.tensor} is not known")
        return self.meta.numel()

    def set_meta(self, meta):
        """What PyTorch knows of it. The type is PyTorch's, but for types that PyTorch has no name for."""
        self.meta = meta
        if isinstance(meta, torch.Tensor):
            self.symsize = list(meta.shape)
            if self.dtype not in dtypes.SPECIAL:
                self.desc.dtype = dtypes.to_proto(dtypes.ge_type(meta.dtype))
            set_shape(self.desc, meta.shape)
        elif isinstance(meta, torch.SymInt):
            self.desc.dtype = ge_ir_pb2.DT_INT64
        return self

    def __repr__(self):
        return f"Tensor({self.tensor}, {self.dtype.name})"


class TensorSpec:
    """What PyTorch knows of a result, for converters."""

    def __init__(self, meta):
        self.meta = meta

    @property
    def dtype(self):
        if isinstance(self.meta, torch.Tensor):
            return dtypes.ge_type(self.meta.dtype)
        return dtypes.natural_type(self.meta) if not isinstance(self.meta, torch.SymInt) else DataType.DT_INT64

    @property
    def torch_dtype(self):
        return self.meta.dtype

    @property
    def rank(self):
        return len(self.meta.shape)

    @property
    def symsize(self):
        return list(self.meta.shape)

    @property
    def size(self):
        sizes = list(self.meta.shape)
        if any(not isinstance(each, int) for each in sizes):
            raise AssertionError(f"the size {sizes} is symbolic: it is known when the graph runs; use symsize")
        return sizes


def spec_of(value):
    if isinstance(value, (tuple, list)):
        return tuple(spec_of(each) for each in value)
    return TensorSpec(value) if value is not None else None


def set_shape(desc, sizes):
    del desc.shape.dim[:]
    desc.shape.dim.extend(each if isinstance(each, int) else _known(each) for each in sizes)
    desc.shape.SetInParent()


def _known(size):
    """A symbolic size that guards hold at one value; -1 for others."""
    expression = size.node.expr
    return int(expression) if expression.is_Integer else -1


def is_symbolic(value):
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


class Input:
    """Where an engine input comes from in a call: ``kind`` is "arg", "sym" (a number), "pack" (numbers) or "rng"."""

    def __init__(self, kind, value, node, flag=""):
        self.kind, self.value, self.node = kind, value, node
        self.flag = flag  # of tensors: "PARAMETER", "STATIC_TENSOR" or nothing
        self.is_contiguous = True
        self.gears = None
        self.example = None

    @property
    def is_host(self):
        return self.node.output_desc[0].device_type == "CPU"


class GeGraph:
    """A graph of the engine. As a context it is the one that ``torchair.ge`` builds."""

    def __init__(self, name="graph", serialized_model_def=None):
        self.model = ge_ir_pb2.ModelDef(name=name)
        if serialized_model_def is not None:
            self.model.ParseFromString(serialized_model_def)
        self.proto = self.model.graph[0] if self.model.graph else self.model.graph.add(name=name)
        self.nodes = {op.name: op for op in self.proto.op}
        self.inputs = {}  # Input by name of the Data node
        self.outputs = []  # Tensors that are edges into NetOutput, once there are some
        self.scopes = []  # attributes of the scopes that are open, outer first
        self.records = {}  # edges of operators by the tensor that stands for them
        self.controls = []  # of the nodes that a wait holds back: edges
        self.rng = None
        self.unbacked = {}  # sympy symbol to Tensor
        self.has_empty = False
        self._counts = {}
        self._numbers = {}  # Tensor by text of an expression
        self._packs = {}
        self.ref_data = set()
        self.groups = {}  # of collectives: (tag, ranks, place) by the name of their communicator; see _hcom.record_of
        self.fx_node = None  # that is converted now
        self.made_for = {}  # node of the FX graph by name of the operator

    @property
    def name(self):
        return self.proto.name

    @property
    def op(self):
        return self.proto.op

    @property
    def attr(self):
        return self.proto.attr

    def __enter__(self):
        self._outer = getattr(_local, "graph", None)
        _local.graph = self
        return self

    def __exit__(self, *_):
        _local.graph = self._outer

    def SerializeToString(self):  # noqa: N802  as messages have it
        return self.model.SerializeToString(deterministic=True)

    # ---- Nodes ----

    def unique_name(self, base):
        count = self._counts.get(base, -1) + 1
        while (name := base if count == 0 else f"{base}_{count}") in self.nodes:
            count += 1
        self._counts[base] = count
        return name

    def add(self, kind, inputs=(), outputs=("y",), attrs=None, name=None, dependencies=()):
        """A node. ``inputs``: (name, Tensor or None); ``outputs``: names; ``attrs``: values of torchair.ge.attr by name."""
        if name is None:
            name = self.unique_name(kind)
        elif not name.strip() or name in self.nodes:
            raise AssertionError(f"the name {name!r} of a node of type {kind} is blank or there already")
        op = self.proto.op.add(name=name, type=kind)
        self.nodes[name] = op
        self.made_for[name] = self.fx_node
        for desc_name, tensor in inputs:
            desc = op.input_desc.add()
            if tensor is None:
                op.input.append("")
                desc.dtype = ge_ir_pb2.DT_UNDEFINED
                desc.attr["_is_unfed_optional"].i = 1
            else:
                op.input.append(tensor.tensor)
                desc.CopyFrom(tensor.desc)
                if "_fx_tensor_name" in desc.attr:
                    desc.ClearField("attr")
            desc.name = desc_name
        for tensor in dependencies:
            op.input.append(tensor.controller if isinstance(tensor, Tensor) else tensor)
        for desc_name in outputs:
            op.output_desc.add(name=desc_name, layout="ND")
        for key, value in (attrs or {}).items():
            value.merge_to(op.attr[key])
        for scope in self.scopes:
            scope(op)
        if self.controls and kind not in ("Const", "Data"):
            op.input.extend(self.controls)
            self.controls = []
        return op

    def remove(self, op):
        del self.nodes[op.name]
        self.proto.op.remove(op)

    def data(self, name, dtype, shape, index=None, host=False, kind="Data"):
        op = self.add(kind, [], ["y"], {"index": ge_attr.Int(len(self.inputs) if index is None else index)}, name)
        desc = op.output_desc[0]
        desc.dtype = dtypes.to_proto(dtype)
        desc.device_type = "CPU" if host else "NPU"
        set_shape(desc, shape)
        op.input_desc.add().CopyFrom(desc)
        op.input_desc[0].name = "x"
        return Tensor(op)

    # ---- Numbers ----

    def number(self, value):
        """A Tensor of a symbolic number: fed by the host, or taken from shapes where only the run knows it."""
        expression = value.node.expr if is_symbolic(value) else sympy.sympify(value)
        text = str(expression)
        if text in self._numbers:
            return self._numbers[text]
        if any(str(symbol).startswith(("u", "zuf")) for symbol in expression.free_symbols):
            found = self._computed(expression)
        else:
            kinds = {torch.SymFloat: DataType.DT_FLOAT, torch.SymBool: DataType.DT_BOOL}
            found = self.data(self.unique_name("sym_" + _word(text)), kinds.get(type(value), DataType.DT_INT64), [], host=True)
            found.symsize = []
            self.inputs[found.node.name] = Input("sym", expression, found.node)
        self._numbers[text] = found
        return found

    def _computed(self, expression):
        from torchair._ge_concrete_graph import ge_apis as ge

        if expression.is_Integer:
            return ge.Const(int(expression), DataType.DT_INT64)
        if expression.is_Symbol:
            if expression in self.unbacked:
                return self.unbacked[expression]()
            return self.number_of_symbol(expression)
        parts = [self.number_of_symbol(each) if each.is_Symbol else self._computed(each) for each in expression.args]
        kind = {"Add": "Add", "Mul": "Mul", "Pow": "Pow", "FloorDiv": "FloorDiv", "CleanDiv": "FloorDiv", "PythonMod": "FloorMod",
                "Mod": "FloorMod", "Max": "Maximum", "Min": "Minimum"}.get(type(expression).__name__)
        if kind is None:
            raise NotImplementedError(
                f"the size {expression} is known only when the graph runs, and {type(expression).__name__} of such sizes cannot "
                "be computed in a graph"
            )
        result = parts[0]
        for part in parts[1:]:
            result = ge.operator(kind)(result, part)
            result.desc.dtype = ge_ir_pb2.DT_INT64
        return result

    def number_of_symbol(self, symbol):
        if symbol in self.unbacked:
            return self.unbacked[symbol]()
        text = str(symbol)
        if text not in self._numbers:
            found = self.data(self.unique_name("sym_" + _word(text)), DataType.DT_INT64, [], host=True)
            found.symsize = []
            self.inputs[found.node.name] = Input("sym", symbol, found.node)
            self._numbers[text] = found
        return self._numbers[text]

    def sizes(self, values, dtype=DataType.DT_INT64):
        """A Tensor of one dim of numbers, of which some may be symbolic."""
        from torchair._ge_concrete_graph import ge_apis as ge

        values = list(values)
        if not any(isinstance(each, Tensor) or is_symbolic(each) for each in values):
            return ge.Const(values, dtype=dtype)
        tensors = [each if isinstance(each, Tensor) else self.number(each) for each in values]
        key = tuple(each.tensor for each in tensors), dtype
        if key in self._packs:
            return self._packs[key]
        packed = ge.Pack(tensors, N=len(tensors), axis=0)
        packed.desc.dtype = ge_ir_pb2.DT_INT64
        packed.symsize = [len(tensors)]
        ge_attr.Bool(True).merge_to(packed.node.attr["_force_unknown_shape"])
        if all(each.node.name in self.inputs and self.inputs[each.node.name].is_host for each in tensors):
            ge_attr.Bool(True).merge_to(packed.node.attr["_inputs_all_sym"])
        if dtype != DataType.DT_INT64:
            packed = ge.Cast(packed, dst_type=dtype)
        self._packs[key] = packed
        return packed

    @contextlib.contextmanager
    def scope(self, apply):
        self.scopes.append(apply)
        try:
            yield
        finally:
            self.scopes.pop()


def _word(text):
    return "".join(each if each.isalnum() else "_" for each in text)[:60]


def node_of(edge):
    return edge.rpartition(":")[0]


def is_control(edge):
    return edge.endswith(":-1")


def data_inputs(op):
    """Edges that carry data, with their places in ``op.input``."""
    return [(i, edge) for i, edge in enumerate(op.input) if not is_control(edge)]


sys.modules.setdefault("torchair.ge._ge_graph", sys.modules[__name__])
