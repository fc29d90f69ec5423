# SPDX-License-Identifier: Apache-2.0
"""Captures a compiled function once for each kind of inputs, and replays it."""
import dataclasses
import gc
import threading
import typing
import warnings

import torch
import torch_npu
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
from torchair._acl_concrete_graph import dump_files, progress
from torchair._acl_concrete_graph.inputs import Inputs
from torchair._acl_concrete_graph.results import Pool, Results
from torchair._acl_concrete_graph.settings import Settings
from torchair._acl_concrete_graph.static_kernel import StaticKernels
from torchair._acl_concrete_graph.updatable import Updater
from torchair.core.utils import logger
from torchair.ops import _tables as tables

__all__ = ["AclGraph", "AclGraphCacheInfo"]

_MODES = ("global", "thread_local", "relaxed")


@dataclasses.dataclass
class AclGraphCacheInfo:
    """What generated code tells about its graph. Files that were written before are read with this class."""

    pool: typing.Any = None
    stream: typing.Any = None
    capture_error_mode: str = "global"
    num_warmup_iters: int = 0
    fx_graph_name: str = "graph"
    user_inputs_mapping: typing.Dict[str, int] = dataclasses.field(default_factory=dict)
    unupdated_sym_input_index: typing.List[int] = dataclasses.field(default_factory=list)
    updated_ops_param: typing.Dict[str, typing.List] = dataclasses.field(default_factory=dict)
    ops_update_rulers: typing.Dict[str, typing.Dict] = dataclasses.field(default_factory=dict)
    mutated_user_inputs: typing.List[str] = dataclasses.field(default_factory=list)
    tagged_event_names: typing.List[str] = dataclasses.field(default_factory=list)
    parameter_user_inputs: typing.List[int] = dataclasses.field(default_factory=list)
    user_stream_label: typing.List[str] = dataclasses.field(default_factory=list)
    user_stream_info: typing.Dict[str, typing.Tuple] = dataclasses.field(default_factory=dict)
    userinput_ref_with_output: typing.Dict[int, int] = dataclasses.field(default_factory=dict)
    placed_inputs: typing.Dict[int, typing.Tuple[str, str]] = dataclasses.field(default_factory=dict)  # from the host to the device


def check_pool(pool):
    """Pools are named by two numbers, one of which is 0."""
    if pool is None:
        return
    if (
        not isinstance(pool, tuple)
        or len(pool) != 2
        or not all(isinstance(half, int) and not isinstance(half, bool) for half in pool)
        or pool[0] * pool[1] != 0
    ):
        raise TypeError(
            f"the handle of a pool is a tuple of two ints, one of which is 0, as torch.npu.graph_pool_handle() gives it, "
            f"not {pool!r} of type {type(pool)}"
        )


@dataclasses.dataclass
class _Record:
    """One captured graph."""

    key: str
    name: str  # of the compiled function
    graph: typing.Any
    results: Results
    state: typing.Any  # of the pool, after the capture
    filled: tuple  # numbers of the inputs that are copied in at replays
    statics: list  # where to
    mutated: list  # addresses of inputs that the graph writes
    limits: tuple
    captured: list  # operators that replays update
    done: typing.Any = None  # event: the last replay is over
    number: int = 0  # of the last replay

    def title(self):
        return f"replay {self.number} of {self.name} (key {self.key})"


class AclGraph:
    """A function of tensors that runs as captured graphs.

    ``fx_forward``: generated code, called ``forward(*args, node_info=list, is_capturing=bool)``; or ``fx_graph``: a
    module that is called with the arguments.
    """

    def __init__(self, fx_forward=None, fx_graph=None, config=None):
        assert (fx_forward is None) != (fx_graph is None), (
            "AclGraph takes either fx_forward, generated code, or fx_graph, a module: exactly one of them"
        )
        self._forward = fx_forward if fx_forward is not None else lambda *args, **_: fx_graph(*args)
        self.settings = Settings.of(config)
        self._records = {}
        self._last = None
        self._is_eager = self.settings.run_eagerly
        self._is_ready = False
        self._lock = threading.RLock()
        self._replays = 0
        self._info = None
        self._is_training = False
        self._kernels = None
        self.dump_folder = None  # where to a picture of each captured graph is written

    # ---- What others ask ----

    @property
    def name(self):
        return self._info.fx_graph_name

    @property
    def graphs(self):
        """The captured graphs by key."""
        return {key: record.graph for key, record in self._records.items()}

    @property
    def pool(self):
        """The handle of the pool; None before the first capture."""
        return self._pool.handle if self._is_ready else self._info.pool

    @property
    def is_fallen_back(self):
        """Whether there were too many keys, so that nothing is captured any more."""
        return self._is_eager and not self.settings.run_eagerly

    def load(self, info):
        """Must come before the first call."""
        check_pool(info.pool)
        if info.capture_error_mode not in _MODES:
            raise ValueError(
                f"capture_error_mode is {info.capture_error_mode!r}, expected one of {', '.join(_MODES)}"
            )
        self._info = info
        tables.add_events(info.tagged_event_names)
        self._updater = Updater(info.ops_update_rulers)
        self._inputs = Inputs(info, self.settings)
        self._kernels = StaticKernels(self.settings, info.fx_graph_name)
        return self

    # ---- Calls ----

    def __call__(self, *args):
        if _is_watched():
            with _disable_current_modes():
                return self._enter(args)
        return self._enter(args)

    def _enter(self, args):
        if self._info.placed_inputs:
            args = list(args)
            for index, (device, dtype) in self._info.placed_inputs.items():
                args[index] = args[index].to(device=device, dtype=getattr(torch, dtype))
        if self._is_eager:
            return self._run_eagerly(args)
        with self._lock:
            # In a capture of the caller, the operators belong to that one.
            if torch.npu.is_current_stream_capturing():
                return self._forward(*args)
            if torch.is_grad_enabled():
                with torch.no_grad():
                    return self._call(args)
            return self._call(args)

    def _run_eagerly(self, args):
        if self._kernels is not None and self.settings.run_eagerly:
            self._kernels.before_eager_run(args, self._info.unupdated_sym_input_index)
        return self._forward(*args)

    def _call(self, args):
        if not self._is_ready:
            self._begin(args)
        why = self._inputs.why_not(args)
        if why is not None:
            _say(f"{self.name} runs without a graph: {why}")
            self._is_eager = True
            return self._forward(*args)
        key = self._inputs.key(args)
        record = self._records.get(key)
        changed = None if record is None else self._what_changed(record, args)
        if record is None or changed is not None:
            record, args = self._capture(key, args, changed)
            if record is None:
                return self._forward(*args)
            tensors = record.results.held
            self._inputs.copy(record, args)
        else:
            logger.debug("Find captured AclGraph of %s with key %s", self.name, key)
            logger.debug("The current AclGraph no needs to be recaptured")
            if self._shares_memory(record):
                args = self._inputs.copy(record, args, pool=self._pool)
                self._pool.clear(self._records.values(), by=self._next_replay(record))
                tensors = self._pool.restore(record)
                if self._last is not None and self._last is not record:
                    self._last.results.let_go()
            else:
                self._inputs.copy(record, args)
                tensors = record.results.held
        self._replay(record, args)
        self._last = record
        return record.results.give(args, self._fresh(tensors), self.settings.enable_output_clone)

    def _next_replay(self, record):
        return f"replay {self._replays + 1} of {self._short_title(record.key)}"

    def _short_title(self, key):
        return f"{self.name} (key {key})"

    def _shares_memory(self, record):
        """Whether another graph has run in the memory of this one since it ran."""
        if not self._pool.is_shared:
            logger.debug("memory pool reuse is disable, no mempool reuse in fx_graph %s", self.name)
            return False
        if self._pool.is_strict:
            return True
        return self._last is not record and len(self._records) > 1

    def _fresh(self, tensors):
        """For training: results that belong to a graph of autograd already are not handed out twice."""
        if not self._is_training:
            if not any(tensor.grad_fn is not None for tensor in tensors):
                return tensors
            self._is_training = True
        torch._C._increment_version([tensor for tensor in tensors if not tensor.is_inference()])
        return [tensor.detach() for tensor in tensors]

    # ---- Capture ----

    def _begin(self, args):
        info = self._info
        for _ in range(info.num_warmup_iters):
            self._forward(*args)
        torch.npu.synchronize()
        self._kernels.before_capture()
        for label in info.user_stream_label:
            if label not in info.user_stream_info:
                tables.label_stream(label)
        self._inputs.begin(args)
        device = self._inputs.device(args)
        self._stream = info.stream if info.stream is not None else torch.npu.Stream(device)
        handle = info.pool if info.pool is not None else torch.npu.graph_pool_handle()
        is_shared = info.pool is None and not self.settings.disable_mempool_reuse_in_same_fx
        self._pool = Pool(info.fx_graph_name, handle, device, is_shared)
        self._holder = torch.npu.NPUGraph()  # empty: the pool is there as long as this is
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.npu.graph(self._holder, pool=handle, stream=self._stream):
                pass
        self._pool.original = self._pool.state()
        self._is_ready = True

    def _what_changed(self, record, args):
        """Why the graph of a key must be captured again; None: it need not."""
        why = None
        if self.settings.force_recapture:
            why = "force_recapture"
        elif not self._inputs.are_mutated_at(record.mutated, args):
            why = "mutated_input_change"
        elif record.limits != _core_limits():
            why = "global_limit_core_change"
        if why is not None:
            logger.debug("The current AclGraph needs to be recaptured, because of %s", why)
        return why

    def _count(self, name, number=None):
        group = counters["npugraph_ex"]
        group[name] = group[name] + 1 if number is None else number

    def _capture(self, key, args, changed):
        if changed is None:
            logger.debug("No find captured AclGraph of %s with key %s", self.name, key)
        if len(self._records) >= self.settings.static_capture_size_limit:
            self._fall_back()
            return None, args
        if self._pool.is_shared and self._records:
            others = [record for record in self._records.values() if not (changed and record.key == key)]
            if others or changed:
                args = self._inputs.outside_of(self._pool, args)
                for record in self._records.values():
                    record.results.let_go()
                self._pool.clear(self._records.values(), by=f"the capture of {self._short_title(key)}")
            logger.debug("When mempool reuse is enabled in fx_graph %s, %s graphs share it", self.name, len(others) + 1)
        try:
            record = self._capture_into(key, args)
        except Exception as error:
            error.add_note(
                f"while {self._short_title(key)} was captured: what cannot be captured belongs outside of the compiled "
                "function (torch._dynamo.disable, torch._dynamo.graph_break), or compile with debug.run_eagerly "
                "(npugraph_ex: force_eager)"
            )
            raise
        before = self._records.pop(key, None)
        self._records[key] = record
        if before is not None:
            before.graph.reset()
            before.results.forget()
        if changed is not None:
            self._count(f"recapture_due_to_{changed}_{self.name}")
        self._count(f"captured_{self.name}", len(self._records))
        logger.info("Success to capture fx_graph %s with key %s", self.name, key)
        progress.captured(self.name, key, len(self._records), self.settings.static_capture_size_limit)
        return record, args

    def _capture_into(self, key, args):
        info = self._info
        graph = torch.npu.NPUGraph()
        captured = []
        limits = _core_limits()
        with _Limits(self._stream, limits):
            with torch.npu.graph(
                graph, pool=self._pool.handle, stream=self._stream, capture_error_mode=info.capture_error_mode
            ):
                statics = self._inputs.statics(args)
                values = self._forward(*statics, node_info=captured, is_capturing=True)
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        if self.dump_folder is not None:
            dump_files.write_capture(graph, self.dump_folder, info.fx_graph_name)
        graph._forget_uses()  # what lies outside is compared with the inputs of each call
        if captured:
            graph._set_waits_for_update(True)
        if self.settings.super_kernel_optimize:
            graph.super_kernel_optimize(
                self.settings.super_kernel_optimize_options, self.settings.super_kernel_debug_options
            )
        results = Results(values, statics)
        filled, places = self._inputs.places(statics)
        del statics, values
        return _Record(
            key=key,
            name=self.name,
            graph=graph,
            results=results,
            state=self._pool.state() if self._pool.is_shared else None,
            filled=filled,
            statics=places,
            mutated=self._inputs.mutated_addresses(args),
            limits=limits,
            captured=captured,
        )

    def _fall_back(self):
        limit = self.settings.static_capture_size_limit
        _say(
            f"{self.settings.limit_phrase} reached: {self.name} has {limit} captured graphs, as many as it may; from now on "
            "it runs eagerly. Raise the limit, or call it with fewer shapes"
        )
        self._is_eager = True
        self.reset()
        for name in [name for name in counters["npugraph_ex"] if name.endswith("_" + self.name)]:
            del counters["npugraph_ex"][name]

    def reset(self):
        """Drops all graphs. Results that the program holds stay valid."""
        with self._lock:
            torch.npu.synchronize()
            for record in self._records.values():
                record.graph.reset()
                record.results.forget()
            self._records.clear()
            self._last = None
            gc.collect()
            torch.npu.empty_cache()

    # ---- Replay ----

    def _replay(self, record, args):
        record.graph.replay()
        self._replays += 1
        record.number = self._replays
        if not record.captured or not self._updater:
            return
        self._updater.update(record.captured, args, record.done)
        if record.done is None:
            record.done = torch.npu.Event()
        record.done.record(torch.npu.current_stream())


def _say(text):
    """The program runs on, but not as it was meant to: also seen where nobody reads the log."""
    logger.warning("%s", text)
    warnings.warn(text, UserWarning, stacklevel=6)


def _is_watched():
    """Whether AOT looks for results of operators that are their inputs, as it does in the first call of what it compiled:
    with CI set it raises for operators that write into `out`, which captured graphs call on purpose."""
    if not torch._C._len_torch_dispatch_stack():
        return False
    modes = _get_current_dispatch_mode_stack()
    return all(type(mode).__name__ == "_AnalyzeCustomOpInputOutputMode" for mode in modes)


class _Limits:
    """The capturing stream has the core limits of the caller's."""

    def __init__(self, stream, limits):
        self._stream, self._limits = stream, limits

    def __enter__(self):
        if self._limits:
            torch.npu.set_stream_limit(self._stream, *self._limits)

    def __exit__(self, *_):
        if self._limits:
            torch.npu.reset_stream_limit(self._stream)


def _core_limits():
    """(cube, vector) of the current stream; empty while nobody has set limits."""
    state = torch_npu.npu._compat._state
    if not state["stream_limit"] and not state["device_limit"]:
        return ()
    limits = torch.npu.get_stream_limit(torch.npu.current_stream())
    return limits["cube_core_num"], limits["vector_core_num"]
