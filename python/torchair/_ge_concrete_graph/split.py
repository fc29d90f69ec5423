# SPDX-License-Identifier: Apache-2.0
"""FX graphs with operators that the engine does not have: graphs of the engine, and PyTorch's operators between them.

An operator of PyTorch that has no converter, or that its converter or the engine refuses (for its types, say), is called as
it is; what lies between two such calls is a graph of the engine. With REPRISE_STRICT=1 the operator is refused, as a device
does; and compiled methods in files, exported models and graphs with scopes are one graph always.
"""
import operator
import os
import re

import torch
from torch.fx.passes.split_module import split_module

from torchair._ge_concrete_graph.registry import find
from torchair.core._concrete_graph import ConcreteGraph
from torchair.core.utils import logger

_REFUSED = re.compile(r"CompileGraph failed: node (\S+?):")
_EFFECTS = torch.ops.higher_order.with_effects  # around operators that check what others found, and raise
_SCOPES = ("air", "npugraph_ex", "npu_define")


def build(make, name, gm, examples, phase):
    """A graph of the engine that is built, or several of them. ``make``: makes one of a name."""
    graph = make(name)
    if not _may_split(gm, graph.config):
        graph.build(gm, examples, phase)
        return graph
    alone = dict.fromkeys(node for node in gm.graph.nodes if _can_be_called(node) and find(node.target) is None)
    if not alone:
        try:
            graph.build(gm, examples, phase)
            graph.refused = lambda error: _instead(make, graph, examples, phase, error)
            return graph
        except NotImplementedError as error:
            if graph.converting is None or not _can_be_called(graph.converting):
                raise
            alone = [graph.converting]
            _tell(name, graph.converting, error)
    else:
        for node in alone:
            _tell(name, node, "there is no converter")
    graph = SplitGraph(name, graph.config, make, alone)
    graph.build(gm, examples, phase)
    return graph


def _tell(name, node, why):
    logger.warning("graph %s: PyTorch itself runs %s: %s", name, node.target, str(why).splitlines()[0])


def _may_split(gm, config):
    if os.environ.get("REPRISE_STRICT", "0") == "1" or config.export.export_mode:
        return False
    return not any(getattr(node.target, "namespace", "") in _SCOPES for node in gm.graph.nodes)


def _can_be_called(node):
    """Whether it is an operator of PyTorch that computes tensors and writes nothing, without a converter of the program's."""
    target = node.target
    if target is _EFFECTS:
        return getattr(node.args[1], "namespace", "") == "aten"
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return False
    if target.namespace not in ("aten", "prims", "torch_nn") or not any(isinstance(each, torch.Tensor) for each in _leaves(node)):
        return False
    converter = find(target)
    return converter is None or converter.function.__module__.startswith("torchair.")


def _leaves(node):
    value = node.meta.get("val")
    return value if isinstance(value, (list, tuple)) else [value]


def _instead(make, graph, examples, phase, error):
    """What runs in the place of a graph that the engine refused, or None. Nothing of the graph has run by then."""
    found = _REFUSED.search(str(error))
    culprit = graph.graph.made_for.get(found[1]) if found else None
    if culprit is None or not _can_be_called(culprit):
        return None
    _tell(graph.name, culprit, error)
    graph.split = SplitGraph(graph.name, graph.config, make, {culprit})
    graph.split.build(graph.gm, examples, phase)
    graph.split.optimize()
    return graph.split.runner()


class SplitGraph(ConcreteGraph):
    """Graphs of the engine and calls of operators, in the order of the FX graph. ``alone``: the nodes that are calls."""

    def __init__(self, name, config, make, alone):
        super().__init__(name, config)
        self.make, self.alone = make, set(alone)
        self.steps = []

    @property
    def fallbacks(self):
        """How often PyTorch runs which operator."""
        found = {}
        for name in [str(node.target).removesuffix(".default") for node in self.gm.graph.nodes if node in self.alone]:
            found[name] = found.get(name, 0) + 1
        for step in self.steps:
            for name, count in (step.graph.fallbacks if isinstance(step, _Run) else {}).items():
                found[name] = found.get(name, 0) + count
        return found

    def build(self, gm, examples, phase):
        self.gm, self.phase = gm, phase
        number, numbers = 0, {}
        for node in gm.graph.nodes:
            if node.target is operator.getitem:  # beside what it takes a result of
                numbers[node] = numbers[node.args[0]]
                continue
            number += 2 * (node in self.alone)
            numbers[node] = number - 1 if node in self.alone else number
        parts = split_module(gm, None, numbers.__getitem__, keep_original_order=True)
        self.inputs = parts.graph.find_nodes(op="placeholder")
        metas, self.constants = dict(zip(self.inputs, examples)), {}
        known = {node.name: node.meta.get("val") for node in gm.graph.nodes if node.op == "get_attr"}
        taken_over = _storages(self.inputs) if _writes(gm) else set()
        for node in parts.graph.nodes:
            if node.op == "get_attr":
                self.constants[node] = _attribute(parts, node.target)
                metas[node] = known.get(node.name, self.constants[node])
            if node.op == "call_function":  # a result of several
                metas[node] = metas[node.args[0]][node.args[1]]
            if node.op != "call_module":
                continue
            part, own = getattr(parts, node.target), [metas.get(each, each) for each in node.args]
            for place, source in zip(part.graph.find_nodes(op="placeholder"), node.args):
                place.meta["val"] = source.meta.get("val", metas[source]) if source.op == "placeholder" else metas[source]
            results, is_one = _results_of(part)
            if int(node.target.removeprefix("submod_")) % 2:
                step = _Call(node, part)
            else:
                if is_one:
                    output = next(iter(reversed(part.graph.nodes)))
                    output.args = ((output.args[0],),)
                step = _Run(node, build(self.make, f"{self.name}_{len(self.steps)}", part, own, phase), is_one, results, taken_over)
            self.steps.append(step)
            metas[node] = results[0] if is_one else results
        self.results = next(iter(reversed(parts.graph.nodes))).args[0]

    def dump(self, stage):
        for step in self.steps:
            if isinstance(step, _Run):
                step.graph.dump(stage)

    def optimize(self):
        for step in self.steps:
            if isinstance(step, _Run):
                step.graph.optimize()
                step.kernel = step.graph.runner()

    def runner(self):
        def run(args):
            values = dict(zip(self.inputs, args))
            values.update(self.constants)
            args.clear()
            for step in self.steps:
                values[step.node] = step(values)
            return [_value(each, values) for each in self.results]

        run._boxed_call = True
        run.graph = self
        return run

    def codegen(self, extra_options=None, caches=False):
        raise NotImplementedError(
            f"graph {self.name} cannot be stored, since it is not one graph of the engine: PyTorch itself runs "
            f"{', '.join(sorted(self.fallbacks))}; use mode npugraph_ex, or register converters with "
            "@torchair.register_fx_node_ge_converter"
        )


class _Call:
    """An operator of PyTorch."""

    def __init__(self, node, part):
        self.node, self.part = node, part

    def __call__(self, values):
        return self.part(*[_value(each, values) for each in self.node.args])


class _Run:
    """A graph of the engine. ``is_one``: its FX graph gave a result, not several."""

    def __init__(self, node, graph, is_one, results, taken_over):
        self.node, self.graph, self.is_one, self.kernel = node, graph, is_one, None
        self.orders = [_order(each) for each in results]
        # Parts of an input that a later graph writes: what they hold now is what is meant.
        self.copied = [isinstance(each, torch.Tensor) and _storage(each) in taken_over for each in results]

    def __call__(self, values):
        results = self.kernel([_value(each, values) for each in self.node.args])
        results = [_in_order(each, order) for each, order in zip(results, self.orders)]
        results = [each.clone() if copied else each for each, copied in zip(results, self.copied)]
        return results[0] if self.is_one else results


def _value(source, values):
    if not isinstance(source, torch.fx.Node):
        return source
    if source not in values:  # one of several results
        return values[source.args[0]][source.args[1]]
    return values[source]


def _attribute(module, path):
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _results_of(part):
    """What PyTorch knows of a part's results, and whether it is one that is given as it is; graphs of the engine give lists."""
    output = next(iter(reversed(part.graph.nodes)))
    is_one = not isinstance(output.args[0], (tuple, list))
    results = [output.args[0]] if is_one else list(output.args[0])
    return [each.meta.get("val") if isinstance(each, torch.fx.Node) else each for each in results], is_one


def _writes(gm):
    return any(getattr(getattr(node.target, "_schema", None), "is_mutable", False) for node in gm.graph.nodes)


def _storage(meta):
    return meta.untyped_storage()._cdata


def _storages(inputs):
    return {_storage(node.meta["val"]) for node in inputs if isinstance(node.meta.get("val"), torch.Tensor)}


def _order(meta):
    """The dims as they lie in memory, outermost first; None where that is their order."""
    if not isinstance(meta, torch.Tensor) or meta.dim() < 2:
        return None
    strides = [stride if isinstance(stride, int) else stride.node.hint for stride in meta.stride()]
    if None in strides or 0 in strides:
        return None
    order = sorted(range(meta.dim()), key=lambda dim: -strides[dim])
    return None if order == sorted(order) else order


def _in_order(value, order):
    """Results of the engine lie in the order of their shape; what follows relies on what PyTorch has worked out."""
    if order is None or not value.is_contiguous():
        return value
    back = [order.index(dim) for dim in range(len(order))]
    return value.permute(order).contiguous().permute(back)
