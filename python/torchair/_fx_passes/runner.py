# SPDX-License-Identifier: Apache-2.0
"""Runs passes over an FX graph, and shows what each of them has done."""
import collections
import logging

from torchair._fx_passes.labels import _name
from torchair.core.utils import logger


def _operators(graph):
    return collections.Counter(str(node.target) for node in graph.nodes if node.op == "call_function")


class PassRunner:
    """``dump(name, gm)`` is called after each pass, if given; ``TORCH_COMPILE_DEBUG`` writes files that way."""

    def __init__(self, gm, dump=None):
        self.gm = gm
        self._dump = dump
        self._is_shown = logger.isEnabledFor(logging.DEBUG)
        self._first = self._picture()
        self.done = []  # names of the passes that changed something

    def _picture(self):
        return [node.name for node in self.gm.graph.nodes], _operators(self.gm.graph)

    def run(self, name, function, *args):
        """Runs ``function(gm, *args)`` in place; returns what it returns."""
        before = self._picture()
        result = function(self.gm, *args)
        after = self._picture()
        if before != after:
            self.done.append(name)
        if self._is_shown:
            logger.debug("After fx graph pass(%s) optimization: %s", name, self._difference(before, after))
        if self._dump is not None:
            self._dump(name, self.gm)
        return result

    def finish(self, title):
        """Lints and recompiles; logs the sum of all passes."""
        self.gm.graph.lint()
        self.gm.recompile()
        if self._is_shown:
            whole = self._difference(self._first, self._picture())
            logger.debug("After fx graph pass(all %s pass) optimization: %s", title, whole)

    @staticmethod
    def _difference(before, after):
        names, operators = before
        new_names, new_operators = after
        removed = [name for name in names if name not in set(new_names)]
        added = [name for name in new_names if name not in set(names)]
        return (
            f"nodes before {len(names)}, after {len(new_names)}; removed {removed}; added {added}; "
            f"operators less {dict(operators - new_operators)}, more {dict(new_operators - operators)}"
        )
