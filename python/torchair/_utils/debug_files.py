# SPDX-License-Identifier: Apache-2.0
"""What TORCH_COMPILE_DEBUG=1 writes, beside the files of dynamo: the graph of each model behind each pass, and a log."""
import itertools
import logging
import os

import torch
from torchair.core.utils import debugs, logger

_models = itertools.count()
_model = None  # the folder of the model that is compiled
_handler = None


def _rank():
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else None


def _root():
    """The folder of this package within dynamo's, with the log."""
    global _handler
    from torch._dynamo.utils import get_debug_dir

    folder = get_debug_dir()
    if _rank() is not None:
        folder += f"-rank_{_rank()}"
    folder = os.path.join(folder, "torchair")
    os.makedirs(folder, exist_ok=True)
    if _handler is None:
        _handler = logging.FileHandler(os.path.join(folder, "debug.log"))
        _handler.setFormatter(logging.Formatter("[%(levelname)s] %(asctime)s [%(filename)s:%(lineno)d] %(message)s"))
        logger.addHandler(_handler)
        logger.setLevel(logging.DEBUG)
    return folder


def open_log():
    """When a backend is made."""
    if debugs():
        _root()


def begin_model(gm):
    """A graph of dynamo is about to be compiled."""
    global _model
    if not debugs():
        return
    _model = os.path.join(_root(), f"model__{next(_models)}")
    os.makedirs(_model, exist_ok=True)
    _write(os.path.join(_model, "dynamo_out_graph.txt"), gm.print_readable(print_output=False))


def _write(path, text):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


class PhaseFiles:
    """The files of one graph: numbered in the order of writing."""

    def __init__(self, folder, phase):
        os.makedirs(folder, exist_ok=True)
        self.folder = folder
        self._phase = phase
        self._numbers = itertools.count()

    def begin(self, gm):
        self.numbered("graph.txt", gm.print_readable(print_output=False))

    def after(self, name, gm):
        """Behind a pass."""
        self.numbered(f"graph_after_{name}.txt", gm.print_readable(print_output=False))

    def numbered(self, name, text):
        self.write(f"{next(self._numbers):03}_aot_{self._phase}_{name}", text)

    def write(self, name, text):
        _write(os.path.join(self.folder, name), text)


def phase(name):
    """The files of "forward", "backward", "joint" or "compile_fx"; None: nothing is written."""
    if not debugs():
        return None
    model = _model
    if model is None:
        model = os.path.join(_root(), f"model__{next(_models)}")
    return PhaseFiles(os.path.join(model, name), name)
