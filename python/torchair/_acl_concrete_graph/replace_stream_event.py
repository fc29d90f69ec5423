# SPDX-License-Identifier: Apache-2.0
"""Streams and events of the traced program, which dynamo leaves as numbers, become operators with names."""
import itertools

import torch
from torchair._fx_passes.labels import STREAM_LABEL
from torchair.ops import _air  # noqa: F401  torch.ops.air
from torchair.ops._tables import CURRENT

air = torch.ops.air

_runs = itertools.count()
_CURRENT_NUMBER = 0  # dynamo's, of the stream on which the function is called


def _object(index):
    from torch._dynamo.graph_bytecode_inputs import get_external_object_by_index

    return get_external_object_by_index(index)


def _is_object(node):
    return getattr(node.target, "__name__", "") == "get_external_object_by_index"


def _packet(node):
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        target = target.overloadpacket
    name = getattr(target, "_qualified_op_name", "")
    return name.split("::")[1] if name.startswith("streams::") else None


def _number(node):
    """The stream that the node is for, as dynamo counts; None: that of the caller."""
    number = (node.meta.get("custom") or {}).get("stream")
    return None if number == _CURRENT_NUMBER else number


def _parts(number):
    """The texts that stand for a stream."""
    if number is None or number == _CURRENT_NUMBER:
        return CURRENT, CURRENT, CURRENT
    stream = _object(number)
    if not isinstance(stream, torch.Stream) or stream.device.type != "npu":
        raise RuntimeError(f"the function uses {stream!r} as a stream: expected a torch.npu.Stream")
    if stream == torch.npu.current_stream(stream.device):
        return CURRENT, CURRENT, CURRENT
    return str(stream.stream_id), str(stream.device_index), str(stream.device_type)


class _Replacement:
    def __init__(self, gm):
        self._graph = gm.graph
        self._prefix = f"graph_{next(_runs)}_"
        self._events = {}  # dynamo's number: name

    def run(self):
        nodes = list(self._graph.nodes)
        open_number = None
        for node in nodes:
            if node.op in ("placeholder", "get_attr"):
                continue
            number = open_number if _is_object(node) else _number(node)
            if node.op == "output":
                number = None
            if number != open_number:
                with self._graph.inserting_before(node):
                    if open_number is not None:
                        self._graph.call_function(air.scope_exit.default, ())
                    if number is not None:
                        self._enter(node, number)
                open_number = number
            name = _packet(node)
            if name is not None:
                self._replace(node, name, number)
        for node in reversed(nodes):
            if _is_object(node) and not node.users:
                self._graph.erase_node(node)
            elif node.op != "placeholder" and isinstance(node.meta.get("custom"), dict):
                node.meta["custom"] = {key: value for key, value in node.meta["custom"].items() if key != "stream"}

    def _enter(self, node, number):
        parts = _parts(number)
        if parts[0] == CURRENT:
            label = self._prefix + "current"
        else:
            label = f"{self._prefix}stream_{number}"
        keys = [STREAM_LABEL, "_user_stream_priority", "_user_stream_id", "_user_stream_device_index",
                "_user_stream_device_type"]  # fmt: skip
        self._graph.call_function(air.scope_enter.default, (keys, [label, "0", *parts]))

    def _event(self, number):
        if number not in self._events:
            self._events[number] = f"{self._prefix}event_{number}"
        return self._events[number]

    def _replace(self, node, name, here):
        with self._graph.inserting_before(node):
            if name in ("record_event", "wait_event"):
                event, stream = node.args
                tag = self._event(event)
                kind = "record" if name == "record_event" else "wait"
                if stream == (here if here is not None else _CURRENT_NUMBER):
                    new = self._call(f"tagged_event_{kind}", tag, True)
                else:
                    new = self._call(f"tagged_event_{kind}_on_stream", tag, *_parts(stream), True)
            elif name == "wait_stream":
                new = self._call("tagged_stream_wait_stream", *_parts(node.args[0]), *_parts(node.args[1]))
            elif name == "record_stream":
                new = self._call("record_tagged_on_stream_", node.args[0], *_parts(node.args[1]))
            else:
                raise RuntimeError(
                    f"the function calls {name} of a stream or an event, which waits on the host: a captured graph cannot. "
                    "Take it out of the compiled function"
                )
        node.replace_all_uses_with(new)
        self._graph.erase_node(node)

    def _call(self, name, *args):
        return self._graph.call_function(getattr(air, name).default, args)


def replace(gm):
    """Changes a graph of dynamo, before AOT autograd sees it. Returns it."""
    from torch_npu.npu import _dynamo_set_stream

    if _dynamo_set_stream.open_streams():
        raise RuntimeError(
            "the function ends, or is cut, on another stream than it began on: set the first stream again before "
            "(torch.npu.set_stream), or use `with torch.npu.stream(stream):`, which does so itself"
        )
    if any(_is_object(node) or _packet(node) is not None for node in gm.graph.nodes):
        _Replacement(gm).run()
        gm.graph.lint()
        gm.recompile()
    return gm
