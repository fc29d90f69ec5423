# SPDX-License-Identifier: Apache-2.0
"""What the compiler of FX graphs asks of a mode: one class for graphs of the engine, one for captures."""
import abc


class ConcreteGraph(abc.ABC):
    """One compiled FX graph."""

    def __init__(self, name, config):
        self.name = name
        self.config = config
        self.files = None  # PhaseFiles of TORCH_COMPILE_DEBUG
        self.extra_options = None  # of the engine, from cache_compile

    @abc.abstractmethod
    def build(self, gm, example_inputs, phase):
        """Takes an FX graph on which the passes have run. ``example_inputs`` are fake tensors and numbers that may be
        symbolic, with the marks of the inputs of the program (see npu_fx_compiler)."""

    @abc.abstractmethod
    def dump(self, stage):
        """Writes the graph to a file, if the configuration asks for it. ``stage``: "original" or "optimized"."""

    @abc.abstractmethod
    def optimize(self):
        """What can be done before the first run."""

    @abc.abstractmethod
    def runner(self):
        """What is called with the list of arguments of the FX graph and gives the list of its results."""

    def codegen(self, extra_options=None, caches=False):
        """A Python program with a function ``kernel(*args)``, or None where there is none."""
        return None
