# SPDX-License-Identifier: Apache-2.0
"""Captures updatable operators as groups of tasks, and gives them new host arguments later."""
import copy
import dataclasses
import threading

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu.npu._graph_handlers import find_handler, without_ownership

__all__ = [
    "graph_task_group_begin",
    "graph_task_group_end",
    "graph_task_update_begin",
    "graph_task_update_end",
]


def graph_task_group_begin(stream):
    """On a capturing stream: the operators that follow belong to a group of tasks that can be updated."""
    _C._graph_task_group_begin(stream)


def graph_task_group_end(stream):
    """Ends the group and returns its handle, which lives as long as the graph."""
    return _C._graph_task_group_end(stream)


def graph_task_update_begin(stream, handle):
    """What follows on ``stream`` does not run: it replaces the tasks of the group, one after another."""
    _C._graph_task_update_begin(stream, handle)


def graph_task_update_end(stream):
    """The replacements take effect in stream order. An error when tasks of the group are left over."""
    _C._graph_task_update_end(stream)


@dataclasses.dataclass
class GraphDispatchRecord:
    """One captured call that can be updated. Device tensors are places in memory, not references."""

    event: object
    handle: object
    op_name: str  # as the program called it
    op: object  # as it was captured
    args: list
    kwargs: dict


class GraphDispatchMode(TorchDispatchMode):
    """Active while a graph captures with ``auto_dispatch_capture=True``.

    A replay waits before each recorded operator until ``update`` has been called for it: once per replay, before or
    after it.
    """

    _update_stream = None
    _lock = threading.Lock()

    @classmethod
    def is_infra_mode(cls):
        return True

    def __init__(self):
        super().__init__()
        self.graph_dispatch_records = []
        self._events_of_failures = []  # replays wait for these as well
        with GraphDispatchMode._lock:
            if GraphDispatchMode._update_stream is None:
                GraphDispatchMode._update_stream = torch.npu.Stream()

    @property
    def update_stream(self):
        """One for the process."""
        return GraphDispatchMode._update_stream

    def reset(self):
        self.graph_dispatch_records.clear()
        self._events_of_failures.clear()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        handler = find_handler(func.__name__)
        if handler is None or not handler.should_handle(func, args, kwargs):
            return func(*args, **kwargs)
        return self._capture(handler, func, args, kwargs)

    def _capture(self, handler, func, args, kwargs):
        stream = torch.npu.current_stream()
        event = torch.npu.ExternalEvent()
        event.wait(stream)
        event.reset(stream)
        try:
            op, args, kwargs = handler.prepare_capture(func, args, kwargs)
            graph_task_group_begin(stream)
            try:
                result = op(*args, **kwargs)
            finally:
                handle = graph_task_group_end(stream)
        except BaseException:
            self._events_of_failures.append(event)
            raise
        tensors = {argument.name for argument in op._schema.arguments if "Tensor" in str(argument.real_type)}
        self.graph_dispatch_records.append(
            GraphDispatchRecord(
                event=event,
                handle=handle,
                op_name=func.__name__,
                op=op,
                args=[without_ownership(value) for value in args],
                kwargs={key: handler.record_wrap_kwarg(key, value, tensors) for key, value in kwargs.items()},
            )
        )
        if result is None and op is not func:  # the results are arguments of what was captured instead
            made = [kwargs[argument.name] for argument in op._schema.arguments if argument.is_out]
            result = made[0] if len(made) == 1 else tuple(made)
        return handler.postprocess_result(result, kwargs)

    def update(self, inputs):
        """New host arguments, a dict for each record or one for all; lets one replay pass."""
        records = self.graph_dispatch_records
        if len(inputs) == 1:
            inputs = [copy.copy(inputs[0]) for _ in records]
        if len(inputs) != len(records):
            raise refused(
                RuntimeError(
                    f"update() got {len(inputs)} dictionaries for {len(records)} recorded operators; "
                    "pass one for each of them, or a single one for all"
                )
            )
        handlers = [find_handler(record.op_name) for record in records]
        for record, handler in zip(records, handlers):
            if handler is None:
                raise refused(
                    RuntimeError(
                        f"no handler is registered for {record.op_name} any more; "
                        "register it with torch.npu.register_npu_graph_handler before update()"
                    )
                )
        stream = self.update_stream
        with torch.npu.stream(stream):
            for record, handler, values in zip(records, handlers, inputs):
                self._update_one(stream, record, handler, values)
            # Only now: after a failure above no replay has been let pass, so update() can be called again.
            for event in (*(record.event for record in records), *self._events_of_failures):
                event.record(stream)

    @staticmethod
    def _update_one(stream, record, handler, values):
        for key in record.kwargs.keys() & values.keys():
            record.kwargs[key] = values[key]
        handler.update_args(record, values)
        graph_task_update_begin(stream, record.handle)
        try:
            record.op(*record.args, **record.kwargs)
        except BaseException:
            try:
                graph_task_update_end(stream)  # leaves the update state; that tasks are missing is known
            except RuntimeError:
                pass
            raise
        graph_task_update_end(stream)
