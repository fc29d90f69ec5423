# SPDX-License-Identifier: Apache-2.0
"""The engine from Python: begun with the first graph, ended with the process."""
import atexit
import os
import signal
import sys

from torchair._errors import pretty
from torchair.core import _torchair
from torchair.core.utils import logger

_global_options = None


@pretty
def initialize_graph_engine(global_options=None):
    """The options of the first call hold for the process; another one that wants something else is refused."""
    global _global_options
    options = dict(global_options or {})
    if _global_options is None:
        _begin(options)
        _global_options = options
        return
    for key, value in options.items():
        if _global_options.get(key) != value:
            raise ValueError(
                f"global option {key} is {value!r} now, but the graph engine of this process was begun with {_global_options}; "
                "use the same options for all graphs, or another process"
            )


def _begin(options):
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is not None:
        torch_npu.npu._lazy_init() if hasattr(torch_npu.npu, "_lazy_init") else torch_npu.npu.init()
    logger.debug("initialising the graph engine with %s", options)
    _torchair.InitializeGraphEngine(options)
    if options.get("ge_dump_with_acl_config"):
        _torchair.AclmdlSetDump(options["ge_dump_with_acl_config"])


def finalize_graph_engine():
    global _global_options
    _torchair.FinalizeGraphEngine()
    _global_options = None


def device_id():
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is not None:
        return torch_npu.npu.current_device()
    return int(os.environ.get("ASCEND_DEVICE_ID", "0"))


class TorchNpuGraph:
    """A graph of the engine: load, compile, run."""

    def __init__(self, name="graph"):
        self._graph = _torchair.TorchNpuGraphBase(name)
        self.run_base = self._graph.run

    @pretty
    def load(self, ge_graph, options=None):
        from torchair._ge_concrete_graph import formats

        attr = ge_graph.proto.attr
        placements = list(attr["_input_placements"].list.i)
        dtypes = list(attr["_output_dtypes"].list.i)
        executor = attr["_executor_type"].i
        self._graph.load(
            formats.plain(ge_graph), {key: str(value) for key, value in (options or {}).items()}, placements, dtypes, executor
        )
        inputs = sorted(
            (op for op in ge_graph.op if op.type in ("Data", "RefData")), key=lambda op: op.attr["index"].i
        )
        outputs = [list(desc.shape.dim) for op in ge_graph.op if op.type == "NetOutput" for desc in op.input_desc]
        self._graph.set_hint_shape([list(op.output_desc[0].shape.dim) for op in inputs], outputs)

    @pretty
    def compile(self):
        self._graph.compile()

    @pretty
    def auto_tune(self, example_inputs=(), stream=None):
        self._graph.auto_tune((example_inputs, stream))

    @pretty
    def run(self, inputs, assigned_outputs=(), stream=None):
        return self._graph.run((inputs, assigned_outputs, stream))

    def set_on_load(self, function):
        """``function`` is called with the tasks as JSON, once, before the first run."""
        self._graph.set_on_load(function)

    @property
    def feature_address(self):
        """Of the memory between operators that graphs of a stream share; 0: this one uses none."""
        return self._graph.feature_address

    def summary(self):
        return self._graph.summary()

    @property
    def is_static(self):
        return self._graph.is_static


def _end():
    import torch

    if _global_options is None:
        return
    torch._dynamo.reset()
    _torchair.FinalizeGraphEngine()


atexit.register(_end)


def _end_and_raise(number, frame):
    _end()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    try:
        signal.signal(signal.SIGTERM, _end_and_raise)
    except ValueError:  # not on the main thread
        pass
