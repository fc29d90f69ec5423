# SPDX-License-Identifier: Apache-2.0
"""Operators that stand for streams, events and scopes in FX graphs: ``torch.ops.air``.

Code that is generated for a captured graph does what they say. Run one by one, as in eager mode, they keep to the
order of the program: streams change nothing about results.
"""
import threading

import torch
from torch.fx.node import has_side_effect
from torchair.ops import _tables as tables
from torchair.ops._print import run_print

_SCHEMAS = (
    "scope_enter(str[] keys, str[] values, bool need_execute=False) -> ()",
    "scope_exit(bool need_execute=False) -> ()",
    "record(*, Device? device=None) -> Tensor",
    "wait(Tensor[] x) -> ()",
    "tagged_event_record(str tag, bool created_inside=False) -> ()",
    "tagged_event_wait(str tag, bool created_inside=False) -> ()",
    "tagged_event_record_on_stream(str tag, str stream_id, str device_index, str device_type, "
    "bool created_inside=False) -> ()",
    "tagged_event_wait_on_stream(str tag, str stream_id, str device_index, str device_type, "
    "bool created_inside=False) -> ()",
    "tagged_stream_wait_stream(str stream_id, str device_index, str device_type, str other_id, str other_index, "
    "str other_type) -> ()",
    "npu_print(Tensor[] tensors, str template, int summarize_size, bool tensor_detail) -> ()",
    "wait_tensor(Tensor x, Tensor dependency) -> Tensor",
    "record_tagged_stream(Tensor input, str tag) -> ()",
    "record_tagged_stream_(Tensor(a!) input, str tag) -> ()",
    "record_tagged_on_stream(Tensor input, str stream_id, str device_index, str device_type) -> ()",
    "record_tagged_on_stream_(Tensor(a!) input, str stream_id, str device_index, str device_type) -> ()",
)

library = torch.library.Library("air", "FRAGMENT")
_state = threading.local()  # contexts of scopes that were entered with need_execute


def _scope_enter(keys, values, need_execute=False):
    if not need_execute:
        return
    open_scopes = _state.__dict__.setdefault("scopes", [])
    context = tables.scope_context(dict(zip(keys, values)))
    context.__enter__()
    open_scopes.append(context)


def _scope_exit(need_execute=False):
    if need_execute:
        _state.scopes.pop().__exit__(None, None, None)


def _record(*, device=None):
    return torch.empty(0, device=device)


def _nothing(*args, **kwargs):
    pass


def _refuse_wait(x, dependency):
    raise NotImplementedError(
        "npu_wait_tensor orders operators of graphs of the engine (mode max-autotune) and does nothing elsewhere; use "
        "ops.record() and ops.wait() in captured graphs"
    )


_FAKES = {"record": lambda *, device=None: torch.empty(0, device=device), "wait_tensor": lambda x, dependency: torch.empty_like(x)}

_RUN = {
    "scope_enter": _scope_enter,
    "scope_exit": _scope_exit,
    "record": _record,
    "wait": _nothing,
    "npu_print": run_print,
    "wait_tensor": _refuse_wait,
    "tagged_event_record": tables.event_record,
    "tagged_event_wait": tables.event_wait,
    "tagged_event_record_on_stream": tables.event_record_on_stream,
    "tagged_event_wait_on_stream": tables.event_wait_on_stream,
    "tagged_stream_wait_stream": tables.stream_wait_stream,
    "record_tagged_stream": tables.record_stream,
    "record_tagged_stream_": tables.record_stream,
    "record_tagged_on_stream": tables.record_on_stream,
    "record_tagged_on_stream_": tables.record_on_stream,
}


def _define():
    for schema in _SCHEMAS:
        name = schema.split("(")[0]
        library.define(schema)
        # Without tensors the key that picks a device is asked; with tensors, that of the device.
        for key in ("BackendSelect", "PrivateUse1", "CPU") if name != "record" else ("CompositeExplicitAutograd",):
            library.impl(name, _RUN[name], key)
        torch.library.register_fake(f"air::{name}", _FAKES.get(name, _nothing), lib=library)
        if name not in _FAKES:
            has_side_effect(getattr(torch.ops.air, name).default)


def _functional(name, written):
    """An operator that writes its tensor in name only stands in functional graphs as it is: nothing is copied back."""

    @getattr(torch.ops.air, written).default.py_functionalize_impl
    def run(ctx, tensor, *rest):
        with ctx.redispatch_to_next():
            getattr(torch.ops.air, name).default(ctx.unwrap_tensors(tensor), *rest)


_define()
_functional("record_tagged_stream", "record_tagged_stream_")
_functional("record_tagged_on_stream", "record_tagged_on_stream_")
