# SPDX-License-Identifier: Apache-2.0
"""Scopes on streams of their own: events before and behind them, and for tensors that others wait for."""
import torch
from torchair._fx_passes.labels import STREAM_LABEL, is_scope_enter, scope_attributes, scopes
from torchair.ops import _air  # noqa: F401  torch.ops.air

air = torch.ops.air


def _stream_ids(attributes):
    names = ("_user_stream_id", "_user_stream_device_index", "_user_stream_device_type")
    return tuple(attributes[name] for name in names) if all(name in attributes for name in names) else None


def close_with_events(gm, graph_name, once_per_stream):
    """Streams of scopes begin behind what ran before the graph; the graph ends when they have.

    ``once_per_stream``: scopes whose stream is known by its numbers need one wait and one record for each stream.
    Returns the names of the events.
    """
    graph = gm.graph
    labelled = [pair for pair in scopes(graph) if STREAM_LABEL in scope_attributes(pair[0])]
    if not labelled:
        return []
    first = next(node for node in graph.nodes if node.op not in ("placeholder", "get_attr"))
    output = next(iter(reversed(graph.nodes)))
    begin = f"{graph_name}_{first.name}"
    names = [begin]
    with graph.inserting_before(first):
        graph.call_function(air.tagged_event_record.default, (begin, True))
    known = {}
    for enter, exit_ in labelled:
        ids = _stream_ids(scope_attributes(enter)) if once_per_stream else None
        if ids is not None:
            known.setdefault(ids, []).append((enter, exit_))
            continue
        with graph.inserting_after(enter):
            graph.call_function(air.tagged_event_wait.default, (begin, True))
        if exit_ is None:
            continue
        end = f"{graph_name}_{exit_.name}"
        names.append(end)
        with graph.inserting_before(exit_):
            graph.call_function(air.tagged_event_record.default, (end, True))
        with graph.inserting_before(output):
            graph.call_function(air.tagged_event_wait.default, (end, True))
    for ids, pairs in known.items():
        with graph.inserting_before(pairs[0][0]):
            graph.call_function(air.tagged_event_wait_on_stream.default, (begin, *ids, True))
        end = f"{graph_name}_{pairs[-1][0].name}_end"
        names.append(end)
        with graph.inserting_before(output):
            graph.call_function(air.tagged_event_record_on_stream.default, (end, *ids, True))
            graph.call_function(air.tagged_event_wait.default, (end, True))
    return names


def record_before_waits(gm):
    """Tensors that a wait names get a record behind the operator that makes them."""
    graph = gm.graph
    records = {}
    for wait in list(graph.find_nodes(op="call_function", target=air.wait.default)):
        replaced = []
        for each in wait.args[0]:
            if each.target is air.record.default:
                replaced.append(each)
                continue
            if each not in records:
                place = each
                if each.op == "placeholder":
                    place = list(graph.find_nodes(op="placeholder"))[-1]
                with graph.inserting_after(place):
                    records[each] = graph.call_function(air.record.default)
            replaced.append(records[each])
        wait.args = (replaced,)


def labels_of(gm):
    """All labels of scopes with a stream."""
    found = []
    for node in gm.graph.nodes:
        if is_scope_enter(node):
            label = scope_attributes(node).get(STREAM_LABEL)
            if label is not None and label not in found:
                found.append(label)
    return found


def streams_of(gm):
    """{label: what its stream is made of}, for scopes whose stream is known."""
    found = {}
    for node in gm.graph.nodes:
        if is_scope_enter(node):
            attributes = scope_attributes(node)
            if STREAM_LABEL in attributes and _stream_ids(attributes) is not None:
                found[attributes[STREAM_LABEL]] = _stream_ids(attributes)
    return found
