# SPDX-License-Identifier: Apache-2.0
"""Graphs: captured once on a stream, replayed often."""
import functools
import gc
import logging
import os
import threading
import warnings

import torch
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu.npu import memory
from torch_npu.npu.device import is_current_stream_capturing

__all__ = ["NPUGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"]

_log = logging.getLogger(__name__)

# Collect garbage before each capture: dead cycles may hold memory that the capture needs.
force_npugraph_gc = os.environ.get("TORCH_NPUGRAPH_GC", "0").lower() in ("1", "true", "on")


def graph_pool_handle():
    """A name for a pool that graphs may share: ``(0, n)``, never given twice."""
    return _C._graph_pool_handle()


class NPUGraph(_C._NPUGraph):
    """A captured graph.

    A failed capture leaves a graph that cannot be replayed until it is captured again.

    ``keep_graph=True``: capturing does not instantiate; the recorded graph (``raw_npu_graph()``) can be changed
    through runtime functions before ``instantiate()`` or the first ``replay()``.
    """

    auto_dispatch_capture = False

    # The C++ part is made here, so that subclasses are free in what their __init__ takes and calls.
    def __new__(cls, keep_graph=False):
        self = super().__new__(cls)
        _C._NPUGraph.__init__(self, bool(keep_graph))
        return self

    def __init__(self, *args, **kwargs):
        self.auto_dispatch_capture = False

    @functools.cached_property
    def graph_dispatch_mode(self):
        """Records what ``update`` changes; made at first use."""
        from torch_npu.npu import _graph_dispatch

        return _graph_dispatch.GraphDispatchMode()

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Starts to capture the current stream. ``pool``: of another graph or of ``graph_pool_handle()``."""
        super().capture_begin(pool=pool, capture_error_mode=capture_error_mode, report_shape=True)

    def capture_end(self):
        """Ends the capture, on the stream and (but in mode "relaxed") in the thread that began it."""
        super().capture_end()
        mode = self.__dict__.get("graph_dispatch_mode")
        self._set_waits_for_update(mode is not None and bool(mode.graph_dispatch_records))

    def instantiate(self):
        """With ``keep_graph=True``: makes the recorded graph ready for replays, also after changes."""
        super().instantiate()

    def replay(self):
        """Queues one execution on the current stream.

        Refused after the body of the capture has raised, and when a tensor that was captured has been freed: a graph
        knows addresses, not tensors.
        """
        super().replay()

    def reset(self):
        """Drops the captured graph; the object can capture again. Memory that tensors hold stays valid."""
        super().reset()
        mode = self.__dict__.get("graph_dispatch_mode")
        if mode is not None:
            mode.reset()

    def pool(self):
        """The name of the graph's memory pool, for other graphs to share it."""
        return super().pool()

    def update(self, cpu_update_input):
        """Gives the recorded updatable operators new host arguments: one dict for each, or one for all."""
        if not self.auto_dispatch_capture:
            raise refused(
                RuntimeError(
                    "update() needs a graph that was captured with auto_dispatch_capture=True: "
                    "use torch.npu.graph(g, auto_dispatch_capture=True)"
                )
            )
        self.graph_dispatch_mode.update(cpu_update_input)

    def debug_dump(self, debug_path, *, every_task=False, aligned=False):
        """Writes what was captured, by the ending of the name; others are refused.

        ==========  ===========================================================================================
        .json       all tasks, those of bodies included, for trace viewers; with ``aligned=True`` also
                    ``<stem>.aligned.json``, in which waits come after what they wait for
        .svg        a picture; tasks of long streams share boxes by line or name unless ``every_task=True``
        .dot        all tasks, for Graphviz
        ==========  ===========================================================================================
        """
        from torch_npu.npu import _graph_trace

        debug_path = os.fspath(debug_path)
        if aligned and not debug_path.endswith(".json"):
            raise refused(ValueError(f"aligned=True goes with a name that ends in .json, not with {debug_path!r}"))
        if not super().debug_dump(debug_path, every_task) or not aligned:
            return
        try:
            _graph_trace.write_aligned(debug_path)
        except Exception as error:  # the dump itself is there
            _log.warning("%s was written, but not its aligned form: %s", debug_path, error)

    def raw_npu_graph(self):
        """Handle (``aclmdlRI``) of the recorded graph; only with ``keep_graph=True``."""
        return super().raw_npu_graph()

    def raw_npu_graph_exec(self):
        """Handle (``aclmdlRI``) of the instantiated graph."""
        return super().raw_npu_graph_exec()

    raw_cuda_graph = raw_npu_graph
    raw_cuda_graph_exec = raw_npu_graph_exec

    def super_kernel_optimize(self, optimize_options=None, debug_options=None):
        """Checks the options; there are no super kernels here, so the graph stays as it is."""
        from torch_npu.npu import _super_kernel

        _super_kernel.check_options(optimize_options, debug_options)
        self.pool()  # raises unless something was captured

    def register_generator_state(self, generator):
        """Deprecated, does nothing: generators that draw in a capture are found by themselves."""
        warnings.warn(
            "NPUGraph.register_generator_state is deprecated and does nothing: generators register themselves",
            DeprecationWarning,
            stacklevel=2,
        )


class graph:  # noqa: N801  the name is part of the interface
    """``with torch.npu.graph(g): ...`` captures the body into ``g``, on a stream of its own or on ``stream``.

    Entering waits for the device and empties the caches, so it is refused while anything captures. Captures in
    several threads at once use ``capture_begin`` and ``capture_end``.
    """

    default_capture_stream = None  # the one that was used last; each device has its own
    _capture_streams = {}
    _lock = threading.Lock()

    def __init__(self, npu_graph, pool=None, stream=None, auto_dispatch_capture=False, capture_error_mode="global"):
        if not isinstance(npu_graph, _C._NPUGraph):
            what = repr(npu_graph) if isinstance(npu_graph, type) else type(npu_graph).__name__
            raise refused(
                TypeError(
                    f"torch.npu.graph captures into a torch.npu.NPUGraph object, not {what}; "
                    "write g = torch.npu.NPUGraph(), then `with torch.npu.graph(g):`"
                )
            )
        if stream is None:
            stream = self._default_stream()
        self.npu_graph = npu_graph
        self.pool = () if pool is None else (pool,)
        self.capture_stream = stream
        self.stream_ctx = torch.npu.stream(stream)
        self.capture_error_mode = capture_error_mode
        self.auto_dispatch_capture = auto_dispatch_capture
        npu_graph.auto_dispatch_capture = auto_dispatch_capture

    @classmethod
    def _default_stream(cls):
        index = torch.npu.current_device()
        with graph._lock:
            stream = graph.default_capture_stream
            if stream is None or stream.device.index != index:
                if index not in graph._capture_streams:
                    graph._capture_streams[index] = torch.npu.Stream(index)
                stream = graph.default_capture_stream = graph._capture_streams[index]
        return stream

    def __enter__(self):
        if is_current_stream_capturing():
            raise refused(
                RuntimeError(
                    f"torch.npu.graph: captures do not nest, and {torch.npu.current_stream()} is being captured already; "
                    "leave the outer `with torch.npu.graph(...)` block first, or capture both parts into one graph"
                )
            )
        # Work that is meant for the current device would not be captured, and replays would do nothing.
        index = torch.npu.current_device()
        if self.capture_stream.device.index != index:
            raise refused(
                RuntimeError(
                    f"torch.npu.graph: the stream to capture belongs to {self.capture_stream.device}, but npu:{index} is "
                    f"the current device; capture within `with torch.npu.device({self.capture_stream.device.index}):`, or "
                    "pass a stream of the current device"
                )
            )
        torch.npu.synchronize()
        if force_npugraph_gc:
            gc.collect()
        memory.empty_cache()
        memory.host_empty_cache()
        self.stream_ctx.__enter__()
        try:
            if self.auto_dispatch_capture:
                self.npu_graph.graph_dispatch_mode.__enter__()
            try:
                self.npu_graph.capture_begin(*self.pool, capture_error_mode=self.capture_error_mode)
            except BaseException:
                if self.auto_dispatch_capture:
                    self.npu_graph.graph_dispatch_mode.__exit__(None, None, None)
                raise
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(self, exc_type, exc_value, traceback):
        if exc_type is not None:
            _log.warning("the body of a capture raised %s: the graph is not whole", exc_type.__name__)
        failure = None
        try:
            if exc_type is not None:
                text = str(exc_value).strip().split("\n")[0]
                self.npu_graph._mark_partial(f"{exc_type.__name__}: {text}" if text else exc_type.__name__)
            self.npu_graph.capture_end()
        except BaseException as error:  # noqa: B036  raised below, unless the body's own comes first
            failure = error
        finally:
            try:
                if self.auto_dispatch_capture:
                    self.npu_graph.graph_dispatch_mode.__exit__(exc_type, exc_value, traceback)
            finally:
                self.stream_ctx.__exit__(exc_type, exc_value, traceback)
        if failure is None:
            return
        if exc_value is None:
            raise failure
        if exc_value.__context__ is None:
            exc_value.__context__ = failure
