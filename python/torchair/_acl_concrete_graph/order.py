# SPDX-License-Identifier: Apache-2.0
"""What runs before what in a graph of several streams."""
from torchair._fx_passes.labels import stream_labels
from torchair.core.utils import logger


def _name(node):
    return getattr(node.target, "__name__", "").split(".")[0] if node.op == "call_function" else ""


class StreamOrder:
    """``accepts_events``: users on several streams will do if events order them; otherwise they must be on one."""

    def __init__(self, graph, accepts_events):
        self._labels = stream_labels(graph)
        self._accepts_events = accepts_events
        self._nodes = list(graph.nodes)
        self._after = None  # node → numbers of the nodes that it comes behind, as bits

    @property
    def has_scopes(self):
        return len(set(self._labels.values())) > 1

    def label(self, node):
        return self._labels.get(node)

    def is_safe(self, kind, op, users):
        labels = {self._labels.get(user) for user in users}
        phrase = "multi stream users"
        safe = len(users) < 2 or len(labels) == 1
        if not safe and self._accepts_events:
            phrase = "stream safety"
            mine = self._labels.get(op)
            safe = all(self._labels.get(user) == mine or self._is_ordered(op, user) for user in users)
        if self.has_scopes:
            word = "success" if safe else "failed"
            logger.debug("[%s] check %s %s for reinplace of %s", kind, self._phrase(phrase), word, op.name)
        return safe

    def _phrase(self, phrase):
        if self._accepts_events:
            return "stream safety"
        return "no " + phrase

    def _is_ordered(self, left, right):
        after = self._reach()
        first, second = self._number[left], self._number[right]
        return bool(after[second] >> first & 1) or bool(after[first] >> second & 1)

    def _reach(self):
        if self._after is not None:
            return self._after
        self._number = {node: index for index, node in enumerate(self._nodes)}
        after, last, recorded = [], {}, {}
        for index, node in enumerate(self._nodes):
            behind = 1 << index
            label, name = self._labels.get(node), _name(node)
            if name.endswith("_on_stream"):
                label = ("stream", *node.args[1:4])
                label = self._label_of_stream(label)
            if label in last:
                behind |= after[last[label]]
            for each in node.all_input_nodes:
                if name == "wait":
                    behind |= after[self._number[each]]
            if name.startswith("tagged_event_wait") and node.args[0] in recorded:
                behind |= recorded[node.args[0]]
            after.append(behind)
            last[label] = index
            if name.startswith("tagged_event_record"):
                recorded[node.args[0]] = behind
        self._after = after
        return after

    def _label_of_stream(self, stream):
        """The label of the scope that runs on this very stream, if there is one."""
        for node in self._nodes:
            if _name(node) == "scope_enter":
                attributes = dict(zip(node.args[0], node.args[1]))
                ids = tuple(attributes.get(f"_user_stream_{part}") for part in ("id", "device_index", "device_type"))
                if ids == stream[1:]:
                    return attributes.get("_user_stream_label", stream)
        return None if stream[1] == "current" else stream
