# SPDX-License-Identifier: Apache-2.0
"""From an FX graph to a graph of the engine."""
import operator

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torchair._ge_concrete_graph import auto_converter, dumps, ge_ir_pb2, graph_pass, inference_rule, registry, views
from torchair._ge_concrete_graph.dtypes import DataType, ge_type
from torchair._ge_concrete_graph.graph import GeGraph, Input, Tensor, is_symbolic, set_shape, spec_of
from torchair._ge_concrete_graph.program import Program
from torchair._ge_concrete_graph.registry import find, register
from torchair.core._concrete_graph import ConcreteGraph
from torchair.core.utils import logger
from torchair.ge import attr as ge_attr


def register_fx_node_ge_converter(aten_op):
    """Registers a converter: a function with the arguments of ``aten_op`` and ``meta_outputs``."""
    return register(aten_op)


def has_converter(target):
    _load_converters()
    return find(target) is not None


def _load_converters():
    from torchair._ge_concrete_graph import ge_converter  # noqa: F401


_SCALAR_MATH = {
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.neg,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_, operator.not_,
    round, min, max, abs, int, float, bool, torch.sym_float, torch.sym_int, torch.sym_max, torch.sym_min, torch.sym_not,
    torch.sym_sum, torch.sym_ite,
}
# Operators that stay in the graph although nobody reads their results.
_KEPT_EMPTY = ("all_to_all_single_npu", "allgather_in_tensor_uneven", "reduce_scatter_tensor_uneven")


class GeConcreteGraph(ConcreteGraph):
    """A graph of the engine, and how a call feeds it."""

    def __init__(self, name, config):
        super().__init__(name, config)
        self.graph = GeGraph(name)
        self.results = []  # of the FX graph: see Program
        self.fx_code = ""
        self.is_inference = False
        self.program = None
        self.converting = None  # the node of the FX graph
        self.refused = None  # called with what the engine says when it refuses the graph: gives what runs instead, or None
        self.split = None  # that is in the place of this graph, if the engine refused it
        _load_converters()

    @property
    def fallbacks(self):
        return self.split.fallbacks if self.split else {}

    # ---- Building ----

    def build(self, gm, example_inputs, phase):
        self.fx_code = gm.print_readable(print_output=False)
        self.gm = gm
        self.view_optimize = bool(self.config.experimental_config.enable_view_optimize) and not _has_quantized_weights(gm)
        env = {}
        self.args = []
        # Sizes that only a run finds are numbers of the FX graph: their guards were dealt with when it was traced.
        mode = _fake_mode_of(gm, example_inputs)
        exported = self.config.export.experimental
        lite = registry.lite(bool(exported.enable_lite_export))
        with unset_fake_temporarily(), self.graph, views.deferred(self.view_optimize), lite:
            for node in gm.graph.nodes:
                count = len(self.graph.op)
                self.converting = self.graph.fx_node = node
                try:
                    env[node] = self._convert(node, env, example_inputs, mode)
                    if exported.enable_record_nn_module_stack:
                        _note_modules(node, self.graph.op[count:])
                except Exception as error:
                    error.add_note(f"while converting {node.format_node()}")
                    raise
        if self.graph.scopes:
            raise RuntimeError(
                f"{len(self.graph.scopes)} scopes were entered and not left (scope_enter without scope_exit): look for custom "
                "passes that removed the exit, and for graph breaks within the scope"
            )

    def _convert(self, node, env, example_inputs, mode):
        if node.op == "placeholder":
            return self._input(node, example_inputs)
        if node.op == "output":
            self._outputs(node, env)
            return None
        if node.op == "get_attr":
            return self._constant(node)
        return self._node(node, env, mode)

    def _input(self, node, example_inputs):
        place = len(self.args)
        example = example_inputs[place] if place < len(example_inputs) else None
        meta = node.meta.get("val", example)
        self.args.append(meta)
        if not isinstance(meta, torch.Tensor):
            return meta
        symbolic = any(not isinstance(each, int) for each in meta.shape)
        flag = ""
        if getattr(example, "_torchair_is_parameter", False) or isinstance(example, torch.nn.Parameter):
            flag = "PARAMETER"
        if getattr(example, "_dynamo_static_input_type", None) == "guarded":
            if symbolic:
                raise AssertionError(f"input {place} is marked as static, so that it must have a static shape, not {list(meta.shape)}")
            flag = "STATIC_TENSOR"
        host = meta.device.type == "cpu"
        data = self.graph.data(f"arg{place}_1", ge_type(meta.dtype), meta.shape, host=host)
        data.set_meta(meta)
        data.desc.device_type = "CPU" if host else "NPU"
        entry = Input("arg", place, data.node, flag)
        entry.is_contiguous = _is_contiguous(meta)
        entry.gears = getattr(example, "dim_gears", None)
        entry.example = meta
        self.graph.inputs[data.node.name] = entry
        return data

    def _constant(self, node):
        from torchair._ge_concrete_graph.ge_apis import Const

        value = self.gm
        for part in node.target.split("."):
            value = getattr(value, part)
        if isinstance(value, torch.fx.GraphModule):
            return value
        if isinstance(value, FakeTensor):
            raise RuntimeError(f"the constant {node.target} has no value")
        return Const(value).set_meta(node.meta.get("val", value)) if isinstance(value, torch.Tensor) else value

    def _node(self, node, env, mode):
        meta = _meta_of(node, mode)
        node.meta["val"] = meta
        if is_symbolic(meta) and not free_unbacked_symbols(meta):
            return meta
        if isinstance(meta, (bool, int, float)) and not isinstance(meta, torch.Tensor) and node.target in _SCALAR_MATH:
            return meta
        args = torch.fx.node.map_aggregate(node.args, lambda each: env[each] if isinstance(each, torch.fx.Node) else each)
        kwargs = torch.fx.node.map_aggregate(node.kwargs, lambda each: env[each] if isinstance(each, torch.fx.Node) else each)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if is_symbolic(meta) and node.target in _SCALAR_MATH:
            return meta
        result = self._call(node, args, kwargs, meta)
        if isinstance(result, (list, tuple)) and isinstance(meta, (list, tuple)):
            for each, own in zip(result, meta):
                _describe(each, own)
            self._note_sizes(result, meta)
            return result
        _describe(result, meta)
        self._note_sizes([result], [meta])
        return meta if is_symbolic(meta) else result

    def _call(self, node, args, kwargs, meta):
        target = node.target
        if _is_empty(meta) and getattr(target, "namespace", "") != "air" and not any(name in str(target) for name in _KEPT_EMPTY) and not _writes(target):
            from torchair._ge_concrete_graph.ge_apis import Const

            self.graph.has_empty = True
            return Const(torch.empty(meta.shape, dtype=meta.dtype))
        if any(_is_empty(each) for each in (meta if isinstance(meta, (list, tuple)) else [meta])):
            self.graph.has_empty = True
        deferred = views.defer(target, args, kwargs, meta) if self.view_optimize and not self._in_scope() else None
        if deferred is not None:
            return deferred
        args, kwargs = views.materialized((args, kwargs))
        count = len(self.graph.op)
        results = self._converted(target, args, kwargs, meta)
        if len(self.graph.op) > count:
            inference_rule.attach(self.graph, target, args, kwargs, results, self.graph.op[count:])
        return results

    def _converted(self, target, args, kwargs, meta):
        converter = find(target)
        if converter is None:
            return auto_converter.convert(target, args, kwargs, meta)
        if not converter.takes_symbols:
            args, kwargs = torch.fx.node.map_aggregate(
                (args, kwargs), lambda each: self.graph.number(each) if is_symbolic(each) else each
            )
        return converter(*args, **kwargs, meta_outputs=spec_of(meta))

    def _in_scope(self):
        return any(not getattr(scope, "keeps_views", False) for scope in self.graph.scopes)

    def _note_sizes(self, results, metas):
        """Symbols that come to life with these results."""
        for result, meta in zip(results, metas):
            if is_symbolic(meta) and isinstance(result, Tensor):
                symbols = free_unbacked_symbols(meta)
                expression = meta.node.expr
                if expression.is_Symbol and expression in symbols:
                    self.graph.unbacked.setdefault(expression, lambda result=result: result)
                elif symbols:
                    self.graph._numbers.setdefault(str(expression), result)
                continue
            if not isinstance(meta, torch.Tensor) or not isinstance(result, (Tensor, views.View)):
                continue
            for dim, size in enumerate(meta.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol and free_unbacked_symbols(size):
                    self.graph.unbacked.setdefault(size.node.expr, _size_getter(result, dim))

    # ---- Results ----

    def _outputs(self, node, env):
        storages = {}
        for entry in self.graph.inputs.values():
            if entry.kind == "arg":
                storages[entry.example.untyped_storage()._cdata] = entry
        edges = {}
        written = _written(self.gm)
        for source in node.args[0]:
            value = env[source] if isinstance(source, torch.fx.Node) else source
            meta = source.meta.get("val") if isinstance(source, torch.fx.Node) else source
            if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(meta, torch.Tensor)):
                self.results.append(("constant", value))
                continue
            if is_symbolic(meta):
                if free_unbacked_symbols(meta):
                    value = self.graph.number(meta)
                    self._edge(value, edges)
                    self.results.append(("item", edges[value.tensor]))
                else:
                    self.results.append(("sym", meta.node.expr))
                continue
            if isinstance(meta, torch.Tensor):
                entry = storages.get(meta.untyped_storage()._cdata)
                if entry is not None and (entry.is_contiguous or entry.value not in written):
                    self.results.append(_alias(entry, meta))
                    continue
            tensor = views.materialize(value)
            if not isinstance(tensor, Tensor):
                raise RuntimeError(f"result {len(self.results)} of the graph is {tensor!r}, which is not a tensor")
            if tensor.node.name in self.graph.inputs:
                tensor = _copy(tensor, meta)
            self._edge(tensor, edges)
            self.results.append(("edge", edges[tensor.tensor]))

    def _edge(self, tensor, edges):
        if tensor.tensor not in edges:
            edges[tensor.tensor] = len(self.graph.outputs)
            self.graph.outputs.append(tensor)

    # ---- Passes and program ----

    def optimize(self):
        graph_pass.add_net_output(self.graph)
        self.reuse = graph_pass.run(self.graph, None if self.files is None else lambda name: self._debug_file(f"graph_after_{name}"))
        self.executor = 1 if self._on_device() else 0
        graph_pass.set_attributes(self.graph, self.executor)
        self.program = Program(self)

    def _on_device(self):
        if any(isinstance(each, torch.Tensor) and each.device.type != "cpu" for each in self.args):
            return True
        for node in self.gm.graph.nodes:
            meta = node.meta.get("val")
            for each in meta if isinstance(meta, (list, tuple)) else [meta]:
                if isinstance(each, torch.Tensor) and each.device.type not in ("cpu", "meta"):
                    return True
        return False

    def dump(self, stage):
        dumps.dump(self.graph, stage, self.config, self.fx_code)
        if self.files is not None:
            self._debug_file(f"{stage}_ge_graph")

    def _debug_file(self, name):
        kind = self.config.debug.graph_dump.type.raw or "pbtxt"
        self.files.numbered(f"{name}.{kind}", dumps.as_text(self.graph, kind, self.fx_code))

    def runner(self):
        return self.program.runner()

    def codegen(self, extra_options=None, caches=False):
        return self.program.codegen(extra_options, caches)


def _note_modules(node, added):
    """Of which modules of the program the operators come, the outermost first."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return
    names = [f"{path}: {kind if isinstance(kind, str) else kind.__qualname__}" for path, kind in stack.values()]
    for op in added:
        ge_attr.Str("; ".join(names)).merge_to(op.attr["nn_module_stack"])


def _copy(tensor, meta):
    from torchair._ge_concrete_graph import ge_apis as ge

    made = ge.Clone(tensor)
    _describe(made, meta)
    return made


def _alias(entry, meta):
    """A result that is the memory of an input."""
    example = entry.example
    if meta.is_complex() and not example.is_complex():
        return ("view_as_complex", entry.value, meta)
    if example.is_complex() and not meta.is_complex():
        return ("view_as_real", entry.value, meta)
    same = (
        len(meta.shape) == len(example.shape)
        and all(str(a) == str(b) for a, b in zip(meta.shape, example.shape))
        and all(str(a) == str(b) for a, b in zip(meta.stride(), example.stride()))
        and str(meta.storage_offset()) == str(example.storage_offset())
    )
    return ("input", entry.value) if same else ("strided", entry.value, meta)


def _size_getter(result, dim):
    cache = []

    def get():
        from torchair._ge_concrete_graph import ge_apis as ge

        if not cache:
            shape = ge.operator("Shape")(views.materialize(result), dtype=DataType.DT_INT64)
            size = ge.operator("Gather")(shape, ge.Const(dim, DataType.DT_INT64))
            size.desc.dtype = ge_ir_pb2.DT_INT64
            cache.append(size)
        return cache[0]

    return get


def _describe(result, meta):
    if isinstance(result, Tensor) and result.meta is None and meta is not None and not isinstance(meta, (list, tuple)):
        result.set_meta(meta)
        if isinstance(meta, torch.Tensor):
            ge_attr.Str(f"{tuple(meta.shape)} {tuple(meta.stride()) if meta.layout == torch.strided else ''}").merge_to(result.desc.attr["_meta"])
    elif isinstance(result, (list, tuple)) and isinstance(meta, (list, tuple)):
        for each, own in zip(result, meta):
            _describe(each, own)


def _has_symbols(meta):
    return any(not isinstance(each, int) for each in meta.shape)


def _is_empty(meta):
    return isinstance(meta, torch.Tensor) and not _has_symbols(meta) and meta.numel() == 0


def _writes(target):
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _written(gm):
    """Places of the inputs that the graph writes."""
    places = {node: i for i, node in enumerate(gm.graph.find_nodes(op="placeholder"))}
    found = set()
    for node in gm.graph.nodes:
        if node.op == "call_function" and _writes(node.target) and node.args and node.args[0] in places:
            found.add(places[node.args[0]])
    return found


def _is_contiguous(meta):
    try:
        return bool(meta.is_contiguous())
    except Exception:  # sizes that only the run knows
        return True


def _has_quantized_weights(gm):
    return any("weight_quant_batchmatmul" in str(node.target) for node in gm.graph.nodes if node.op == "call_function")


def _fake_mode_of(gm, example_inputs):
    for value in [*example_inputs, *(node.meta.get("val") for node in gm.graph.nodes)]:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)


def _meta_of(node, mode):
    if "val" in node.meta:
        return node.meta["val"]
    take = lambda each: each.meta.get("val") if isinstance(each, torch.fx.Node) else each  # noqa: E731
    args = torch.fx.node.map_aggregate(node.args, take)
    kwargs = torch.fx.node.map_aggregate(node.kwargs, take)
    with mode:
        return node.target(*args, **kwargs)


__all__ = ["GeConcreteGraph", "register_fx_node_ge_converter", "has_converter", "set_shape", "logger", "sympy"]
