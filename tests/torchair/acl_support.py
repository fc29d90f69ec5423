# SPDX-License-Identifier: Apache-2.0
"""For tests of captured graphs."""
import contextlib
import logging

import torch
import torchair


def config(mode="npugraph_ex", **options):
    """A CompilerConfig; options by their path, with __ for dots."""
    made = torchair.CompilerConfig()
    made.mode = mode
    for path, value in options.items():
        made.assign(path.replace("__", "."), value)
    return made


def backend(mode="npugraph_ex", **options):
    return torchair.get_npu_backend(compiler_config=config(mode, **options))


def compiled(function, dynamic=False, mode="npugraph_ex", **options):
    return torch.compile(function, backend=backend(mode, **options), dynamic=dynamic, fullgraph=True)


class _Lines(logging.Handler):
    def __init__(self):
        super().__init__(logging.DEBUG)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())

    def count(self, text):
        return sum(text in line for line in self.lines)


@contextlib.contextmanager
def log():
    """The lines that the package logs within the block."""
    logger, handler = torchair.logger, _Lines()
    level, others = logger.level, logger.handlers[:]
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        logger.handlers[:] = others
        logger.setLevel(level)


@contextlib.contextmanager
def graphs():
    """The graphs that are compiled within the block: AclConcreteGraph."""
    from torchair import _watch

    with _watch.watching() as found:
        yield found


def operators(graph):
    """How often each operator stands in a compiled graph."""
    found = {}
    for node in graph.gm.graph.nodes:
        if node.op == "call_function":
            found[str(node.target)] = found.get(str(node.target), 0) + 1
    return found
