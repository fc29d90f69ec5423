# SPDX-License-Identifier: Apache-2.0
"""Who wants to see the graphs that are compiled: ``torchair.explain``, and tests."""
import contextlib

_watchers = []


def note(graph):
    for watcher in _watchers:
        watcher.append(graph)


@contextlib.contextmanager
def watching():
    """A list that gets every graph that is compiled within the block."""
    found = []
    _watchers.append(found)
    try:
        yield found
    finally:
        _watchers.remove(found)
