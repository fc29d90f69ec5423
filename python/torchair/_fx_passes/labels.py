# SPDX-License-Identifier: Apache-2.0
"""Which stream each node of an FX graph runs on: scopes between ``scope_enter`` and ``scope_exit``."""

STREAM_LABEL = "_user_stream_label"


def _name(target):
    return getattr(target, "__name__", "").split(".")[0]


def _is_scope_op(node, name):
    return (
        node.op == "call_function"
        and _name(node.target) == name
        and getattr(node.target, "namespace", "") in ("air", "npugraph_ex")
    )


def is_scope_enter(node):
    return _is_scope_op(node, "scope_enter")


def is_scope_exit(node):
    return _is_scope_op(node, "scope_exit")


def scope_attributes(node):
    """What a ``scope_enter`` sets, as a dict."""
    return dict(zip(node.args[0], node.args[1]))


def scopes(graph):
    """Pairs ``(enter, exit)`` in the order in which they open. An enter without exit has None; stray exits are left out."""
    pairs, open_scopes = [], []
    for node in graph.nodes:
        if is_scope_enter(node):
            open_scopes.append([node, None])
            pairs.append(open_scopes[-1])
        elif is_scope_exit(node) and open_scopes:
            open_scopes.pop()[1] = node
    return [tuple(pair) for pair in pairs]


def stream_labels(graph):
    """``{node: label}``: the innermost stream of each node, None for that of the caller."""
    labels, stack = {}, [None]
    for node in graph.nodes:
        if is_scope_exit(node) and len(stack) > 1:
            stack.pop()
        labels[node] = stack[-1]
        if is_scope_enter(node):
            stack.append(scope_attributes(node).get(STREAM_LABEL, stack[-1]))
    return labels
