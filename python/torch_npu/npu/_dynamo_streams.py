# SPDX-License-Identifier: Apache-2.0
"""Streams and events of npu in functions that dynamo traces: they become nodes of torch.ops.streams."""
import functools

import torch
from torch_npu.npu import streams


@functools.lru_cache(None)
def register():
    """Before the first trace, or at any time."""
    from torch_npu.npu import _inductor  # noqa: F401  what dynamo asks of the device

    from torch._dynamo import decorators, trace_rules
    from torch._dynamo.variables import torch as of_torch
    from torch._dynamo.variables import user_defined

    trace_rules.add("torch_npu.npu.random")  # states of generators are no tensors of a graph
    classes = user_defined.UserDefinedClassVariable._in_graph_classes()
    classes.update({streams.Stream, streams.Event, torch.npu.Stream, torch.npu.Event})
    of_torch.TorchInGraphFunctionVariable._get_handlers.cache_clear()  # the interface of npu may be newer

    from torch._dynamo import trace_rules
    from torch_npu.npu import _dynamo_set_stream

    trace_rules._allowed_callable_ids.add(id(streams.set_stream))
    of_torch.TorchInGraphFunctionVariable._get_handlers()[streams.set_stream] = _dynamo_set_stream.handle

    @decorators.substitute_in_graph(streams.current_stream, skip_signature_check=True)
    def current_stream(device=None):
        return torch.accelerator.current_stream()

    @decorators.substitute_in_graph(streams.stream, skip_signature_check=True)
    def stream(stream):
        return torch.cuda.stream(stream)
