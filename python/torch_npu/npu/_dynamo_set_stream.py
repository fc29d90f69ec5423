# SPDX-License-Identifier: Apache-2.0
"""``torch.npu.set_stream`` in functions that dynamo traces for captures: as if a block of torch.npu.stream began, which ends
where the stream before it is set again."""
import torch
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables import ConstantVariable
from torch._dynamo.variables.streams import StreamContextVariable, StreamVariable

_HINT = "use `with torch.npu.stream(stream):` instead"


def _captures(backend):
    """Whether a backend of torch.compile captures programs; the others run what they compile on the caller's stream."""
    for _ in range(10):
        if backend is None:
            return False
        if getattr(backend, "captures", False):
            return True
        config = getattr(backend, "config", None)
        if config is not None and hasattr(config, "captures"):
            return config.captures()
        backend = getattr(backend, "compiler_fn", None) or getattr(backend, "_torchdynamo_orig_backend", None)
    return False


def _cut(text):
    unimplemented(gb_type="torch.npu.set_stream", context="set_stream", explanation=text, hints=[_HINT])


def open_streams():
    """The streams that were set and are not left yet, in the function that is traced or compiled."""
    context = torch._guards.TracingContext.try_get()
    if context is None:
        return []
    if not hasattr(context, "npu_open_streams"):
        context.npu_open_streams = []
    return context.npu_open_streams


def handle(self, tx, *args, **kwargs):
    """What dynamo does for the call."""
    given = [*args, *kwargs.values()]
    if len(given) != 1:
        _cut(f"torch.npu.set_stream takes one stream, not {len(given)} arguments")
    stream = given[0].realize() if hasattr(given[0], "realize") else given[0]
    if stream.is_python_constant() and stream.as_python_constant() is None:
        return ConstantVariable.create(None)
    if not _captures(tx.output.compiler_fn):
        _cut("only captured functions (backend npugraph_ex) know the current stream when they end")
    if not isinstance(stream, StreamVariable):
        _cut(f"the argument of torch.npu.set_stream is {stream}, which is no stream")
    state, entered = tx.symbolic_stream_state, open_streams()
    if len(state.cur_stream_stack) != 1 + len(entered):
        _cut("torch.npu.set_stream stands within a block of torch.npu.stream")
    values = [each.realize().value if hasattr(each, "realize") else each.value for each in state.cur_stream_stack]
    if stream.value in values:
        for _ in range(len(values) - 1 - values.index(stream.value)):
            entered.pop().exit(tx)
        return ConstantVariable.create(None)
    block = StreamContextVariable.create(tx, stream)
    block.enter(tx)
    entered.append(block)
    return ConstantVariable.create(None)
