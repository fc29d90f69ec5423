# SPDX-License-Identifier: Apache-2.0
"""Shapes of operators of users, told to the engine: the function that says an operator's shapes to PyTorch is run once more
with symbols for sizes, and what it gives becomes the attribute ``_inference_rule`` of the node."""
import json

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, free_unbacked_symbols

from torchair._ge_concrete_graph import dtypes
from torchair._ge_concrete_graph._operators import is_known
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.graph import Tensor, data_inputs, is_symbolic, node_of
from torchair.core.utils import logger
from torchair.ge import attr as ge_attr

_SAME_SHAPE = ("TensorMove", "Cast", "Identity")


class _NoRule(Exception):
    pass


def attach(graph, target, args, kwargs, results, added):
    """Gives a rule to each node of ``added`` whose type the table of operators does not have. ``args``, ``kwargs``: of the
    converter of ``target``; ``results``: what it gave. Where there is no rule, a warning says why."""
    nodes = [op for op in added if not is_known(op.type) and op.type != "Const"]
    if not nodes:
        return
    try:
        run = _Run(graph, target, args, kwargs, results)
        for op in added:
            if op in nodes:
                ge_attr.Str(run.rule(op)).merge_to(op.attr["_inference_rule"])
            else:
                run.follow(op)
    except Exception as error:  # without a rule the engine says itself what it does not know
        logger.warning("no shapes of %s are told to the graph engine, since they could not be found: %s", target, error)


class _Run:
    """Of the function of shapes, with symbols."""

    def __init__(self, graph, target, args, kwargs, results):
        self.graph = graph
        self.env = ShapeEnv(duck_shape=False, specialize_zero_one=False)
        self.mode = torch._subclasses.FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.shapes = {}  # by edge: expressions
        self.values = {}  # by edge: expressions, of numbers of the host
        self.sources = 0
        args, kwargs = torch.utils._pytree.tree_map_only(
            (Tensor, torch.SymInt), self._fake, (args, kwargs), is_leaf=lambda each: isinstance(each, Tensor)
        )
        with self.mode:
            made = target(*args, **kwargs)
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        self.results = {}  # by edge: expressions of its shape
        self.types = {}  # by edge
        for result, fake in zip(_flat(results), _flat(made)):
            if isinstance(result, Tensor) and isinstance(fake, torch.Tensor):
                self.results[result.tensor] = [self._expression(size) for size in fake.shape]
                self.types[result.tensor] = dtypes.ge_type(fake.dtype)
        self._trace_back()

    def _source(self):
        from torch._dynamo.source import ConstantSource

        self.sources += 1
        return ConstantSource(f"operand_{self.sources}")

    def _fake(self, value):
        if isinstance(value, torch.SymInt):
            return self._number(value)
        if is_symbolic(value.meta):
            return self._number(value.meta)
        meta = value.meta
        if not isinstance(meta, torch.Tensor):
            raise _NoRule(f"nothing is known of {value.tensor}")
        sizes = [size if isinstance(size, int) else self._symbol(_hint(size)) for size in meta.shape]
        with self.mode:
            fake = torch.empty(sizes, dtype=meta.dtype, device=meta.device)
        self.shapes[value.tensor] = [self._expression(size) for size in fake.shape]
        return fake

    def _symbol(self, hint, is_size=True):
        source = self._source()
        symbol = self.env.create_symbol(hint, source, DimDynamic.DYNAMIC, positive=is_size or None)
        return self.env.create_symintnode(symbol, hint=hint, source=source)

    def _number(self, value):
        made = self._symbol(_hint(value), is_size=False)
        known = self.graph._numbers.get(str(value.node.expr))
        if known is not None:
            self.values[known.tensor] = [made.node.expr]
        return made

    def _expression(self, size):
        return size.node.expr if isinstance(size, torch.SymInt) else sympy.Integer(size)

    # ---- Between the operators that a converter adds ----

    def follow(self, op):
        """An operator of the table: those that keep shapes hand them on."""
        if op.type == "Const":
            desc = op.attr["value"].t.desc
            self.shapes[f"{op.name}:0"] = [sympy.Integer(size) for size in desc.shape.dim]
        elif op.type in _SAME_SHAPE and op.input and op.input[0] in self.shapes:
            self.shapes[f"{op.name}:0"] = self.shapes[op.input[0]]

    def _trace_back(self):
        """What a result is cast or copied from has its shape, too."""
        for edge, shape in list(self.results.items()):
            op = self.graph.nodes[node_of(edge)]
            while op.type in _SAME_SHAPE and op.input:
                self.results.setdefault(op.input[0], shape)
                op = self.graph.nodes[node_of(op.input[0])]

    def _value(self, edge):
        """Expressions of a tensor of integers that the host fills; None: its values are not known."""
        if edge in self.values:
            return self.values[edge]
        op = self.graph.nodes.get(node_of(edge))
        if op is None:
            return None
        if op.type == "Pack":
            parts = [self._value(each) for _, each in data_inputs(op)]
            return None if any(part is None for part in parts) else [each for part in parts for each in part]
        if op.type == "Cast":
            return self._value(op.input[0])
        if op.type == "Const" and op.output_desc[0].dtype == dtypes.to_proto(DataType.DT_INT64):
            content = op.attr["value"].t.data
            return [sympy.Integer(int.from_bytes(content[i : i + 8], "little", signed=True)) for i in range(0, len(content), 8)]
        return None

    # ---- The rule of a node ----

    def rule(self, op):
        edges = [edge for _, edge in data_inputs(op)]
        names = [desc.name for desc in op.input_desc]
        outputs, types = [], []
        for i, desc in enumerate(op.output_desc):
            shape = self.results.get(f"{op.name}:{i}")
            if shape is None and desc.name in names:
                edge = edges[names.index(desc.name)]
                shape = self.shapes.get(edge)
            if shape is None:
                raise _NoRule(f"output {desc.name} of {op.name} is no result of the operator")
            self.shapes[f"{op.name}:{i}"] = shape
            outputs.append(shape)
            types.append(int(self._type(f"{op.name}:{i}", desc)))
        return self._text(edges, outputs, types)

    def _type(self, edge, desc):
        own = dtypes.from_proto(desc.dtype)
        if own != DataType.DT_UNDEFINED:
            return own
        return self.types.get(edge, DataType.DT_FLOAT)

    def _text(self, edges, outputs, types):
        wanted = set().union(*(size.free_symbols for shape in outputs for size in shape))
        names, inputs = {}, []
        for edge in edges:
            values = self._value(edge) if edge not in self.shapes else None
            known, letter = (self.shapes.get(edge), "s") if values is None else (values, "v")
            plain = [each for each in known or () if each.is_Symbol and each in wanted and each not in names]
            if not plain:
                inputs.append(None)
                continue
            for each in plain:
                names.setdefault(each, sympy.Symbol(f"{letter}{len(names)}", integer=True))
            inputs.append(known)
        lost = [str(each) for each in wanted if each not in names]
        if lost:
            raise _NoRule(f"the sizes {', '.join(sorted(lost))} are those of no input of the node")
        written = [
            None if entry is None else [_word(size, names) for size in entry] for entry in inputs
        ]
        return json.dumps(
            {"shape": {"inputs": written, "outputs": [[_word(size, names) for size in shape] for shape in outputs]}, "dtype": types}
        )


def _flat(values):
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _hint(value):
    if isinstance(value, int):
        return value
    if free_unbacked_symbols(value):
        raise _NoRule(f"the size {value} is known only when the graph runs")
    return value.node.hint


def _word(size, names):
    """An expression as the engine reads it; of an input, sizes that nobody needs are written as they are, if they can be."""
    unknown = [each for each in size.free_symbols if each not in names]
    if unknown:
        names = {**names, **{each: sympy.Symbol(f"s{1000 + i}") for i, each in enumerate(sorted(unknown, key=str))}}
    return _printed(size.xreplace(names))


def _printed(size):
    if size.is_Integer or size.is_Symbol:
        return str(size)
    if size.is_Rational:
        return f"Div({size.p}, {size.q})"
    kind = type(size).__name__
    parts = [_printed(each) for each in size.args]
    if kind == "Add":
        return f"({' + '.join(parts)})"
    if kind == "Mul":
        return f"({' * '.join(parts)})"
    if kind == "Pow":
        base, power = size.args
        if not power.is_Integer:
            raise _NoRule(f"the engine reads no power {size}")
        return f"Pow({parts[0]}, {power})" if power > 0 else f"Div(1, {_printed(base**-power)})"
    if kind in ("FloorDiv", "CleanDiv"):
        return f"Floor(Div({parts[0]}, {parts[1]}))"
    if kind == "CeilDiv":
        return f"Ceil(Div({parts[0]}, {parts[1]}))"
    if kind in ("Mod", "PythonMod"):
        return f"Mod({parts[0]}, {parts[1]})"
    if kind == "ModularIndexing":
        return f"Mod(Floor(Div({parts[0]}, {parts[1]})), {parts[2]})"
    if kind in ("IntTrueDiv", "FloatTrueDiv"):
        return f"Div({parts[0]}, {parts[1]})"
    if kind in ("FloorToInt", "floor"):
        return f"Floor({parts[0]})"
    if kind in ("CeilToInt", "ceiling"):
        return f"Ceil({parts[0]})"
    if kind in ("ToFloat", "Identity"):
        return parts[0]
    raise _NoRule(f"the engine reads no {kind}, as in {size}")
