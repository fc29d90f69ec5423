# SPDX-License-Identifier: Apache-2.0
"""Symbolic sizes as nodes: numbers stay, symbols become inputs of the graph, expressions become arithmetic."""
import operator

import sympy
import torch
from torch.utils._sympy import functions

_BINARY = {
    functions.FloorDiv: operator.floordiv,
    functions.CleanDiv: operator.floordiv,
    functions.PythonMod: operator.mod,
    functions.Mod: operator.mod,
}


class SizeNodes:
    """One node for each expression of a graph. New nodes go right behind the inputs."""

    def __init__(self, graph):
        self._graph = graph
        self._nodes = {}  # by the text of the expression
        self._last = None
        for node in graph.find_nodes(op="placeholder"):
            self._last = node
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                self._nodes.setdefault(str(value.node.expr), node)

    def is_known(self, size):
        if isinstance(size, int):
            return True
        expression = size.node.expr
        return str(expression) in self._nodes or all(str(symbol) in self._nodes for symbol in expression.free_symbols)

    def node(self, size):
        """An int, or the node that has this value."""
        if isinstance(size, int):
            return size
        return self._of(size.node.expr)

    def _of(self, expression):
        if expression.is_Integer:
            return int(expression)
        text = str(expression)
        if text in self._nodes:
            return self._nodes[text]
        if expression.is_Symbol:
            raise RuntimeError(
                f"the size {text} is not an input of the graph, so no code can be made for it; known are "
                f"{sorted(self._nodes) or 'none'}"
            )
        made = self._make(expression)
        self._nodes[text] = made
        return made

    def _make(self, expression):
        if isinstance(expression, (sympy.Add, sympy.Mul)):
            function = operator.add if isinstance(expression, sympy.Add) else operator.mul
            result, *rest = [self._of(each) for each in expression.args]
            for each in rest:
                result = self._call(function, result, each)
            return result
        if isinstance(expression, sympy.Pow) and expression.exp.is_Integer and expression.exp > 0:
            return self._call(operator.pow, self._of(expression.base), int(expression.exp))
        for kind, function in _BINARY.items():
            if isinstance(expression, kind):
                return self._call(function, *(self._of(each) for each in expression.args))
        if isinstance(expression, (functions.Max, functions.Min)):
            function = torch.sym_max if isinstance(expression, functions.Max) else torch.sym_min
            result, *rest = [self._of(each) for each in expression.args]
            for each in rest:
                result = self._call(function, result, each)
            return result
        raise RuntimeError(f"the size {expression} cannot be told from the inputs of the graph")

    def _call(self, function, *arguments):
        place = self._last
        with self._graph.inserting_after(place):
            self._last = self._graph.call_function(function, arguments)
        return self._last
