# SPDX-License-Identifier: Apache-2.0
"""Events and streams by name: what the operators of ``_air.py`` mean while they run."""
import contextlib
import functools
import threading

import torch

_lock = threading.Lock()
_user_events = {}  # of ops.npu_create_tagged_event
_events = {}  # of compiled functions, by graph and node
_streams = {}  # by label: of scopes whose stream has no number
_tagged_streams = {}  # by tag: of npu_record_tagged_stream


# ---- Events ----


class TaggedEvent:
    """An event with a name."""

    def __init__(self, tag):
        self.tag = tag
        self.event = torch.npu.Event()

    def record(self, stream=None):
        self.event.record(stream)

    def wait(self, stream=None):
        self.event.wait(stream)

    def query(self):
        return self.event.query()

    def synchronize(self):
        self.event.synchronize()

    def __repr__(self):
        return f"<torchair event {self.tag!r}>"


def create_user_event(tag):
    if not isinstance(tag, str):
        raise TypeError(f"the tag of an event must be a str, not {type(tag).__name__}")
    with _lock:
        if tag in _user_events:
            raise ValueError(f"there is an event with the tag {tag!r} already: tags name one event in the whole process")
        event = _user_events[tag] = TaggedEvent(tag)
    return event


def tag_of(event):
    if not isinstance(event, TaggedEvent):
        raise ValueError(
            f"{event!r} was not made by torchair.ops.npu_create_tagged_event: compiled functions know only such events"
        )
    return event.tag


def add_events(names):
    """Events of a compiled function; those that exist stay."""
    with _lock:
        for name in names:
            if name not in _events:
                _events[name] = torch.npu.Event()


def _event(tag, created_inside):
    event = (_events if created_inside else _user_events).get(tag)
    if event is None:
        what = "made in the compiled function" if created_inside else "made by npu_create_tagged_event"
        raise AssertionError(f"there is no event {tag!r} among those that were {what}")
    return event


def event_record(tag, created_inside=False):
    _event(tag, created_inside).record(torch.npu.current_stream())


def event_wait(tag, created_inside=False):
    _event(tag, created_inside).wait(torch.npu.current_stream())


def event_record_on_stream(tag, stream_id, device_index, device_type, created_inside=False):
    _event(tag, created_inside).record(stream_of(stream_id, device_index, device_type))


def event_wait_on_stream(tag, stream_id, device_index, device_type, created_inside=False):
    _event(tag, created_inside).wait(stream_of(stream_id, device_index, device_type))


def record():
    """What ``torchair.ops.record()`` leaves in generated code: an event."""
    event = torch.npu.Event()
    event.record(torch.npu.current_stream())
    return event


def wait(events):
    stream = torch.npu.current_stream()
    for event in events:
        event.wait(stream)


# ---- Streams ----


@functools.lru_cache(maxsize=None)
def _stream(stream_id, device_index, device_type):
    return torch.npu.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)


CURRENT = "current"  # stands for the stream that is current when a graph begins to run, until the last pass


def stream_of(stream_id, device_index, device_type):
    if stream_id == CURRENT:
        return torch.npu.current_stream()
    if int(stream_id) == 0:  # the default stream has this number on all devices
        return torch.npu.default_stream(int(device_index))
    return _stream(int(stream_id), int(device_index), int(device_type))


def stream_wait_stream(stream_id, device_index, device_type, other_id, other_index, other_type):
    stream_of(stream_id, device_index, device_type).wait_stream(stream_of(other_id, other_index, other_type))


def _tagged_stream(tag):
    with _lock:
        if tag not in _tagged_streams:
            _tagged_streams[tag] = torch.npu.current_stream() if tag == "default" else torch.npu.Stream()
        return _tagged_streams[tag]


def record_stream(tensor, tag):
    stream = _streams.get(tag)
    tensor.record_stream(stream if stream is not None else _tagged_stream(tag))


def record_on_stream(tensor, stream_id, device_index, device_type):
    tensor.record_stream(stream_of(stream_id, device_index, device_type))


# ---- Scopes ----


def label_stream(label, priority="0"):
    """The stream of a scope: one for each label."""
    with _lock:
        if label not in _streams:
            _streams[label] = torch.npu.Stream(priority=int(priority))
        return _streams[label]


def scope_stream(attributes):
    """The stream that a scope with these attributes runs on, or None."""
    if "_user_stream_id" in attributes:
        return stream_of(
            attributes["_user_stream_id"],
            attributes["_user_stream_device_index"],
            attributes["_user_stream_device_type"],
        )
    label = attributes.get("_user_stream_label")
    return None if label is None else label_stream(label, attributes.get("_user_stream_priority", "0"))


@contextlib.contextmanager
def core_limit(cube, vector):
    """The current stream uses so many cores within the block."""
    stream = torch.npu.current_stream()
    before = torch.npu.get_stream_limit(stream)
    torch.npu.set_stream_limit(stream, int(cube), int(vector))
    try:
        yield
    finally:
        torch.npu.set_stream_limit(stream, before["cube_core_num"], before["vector_core_num"])


@contextlib.contextmanager
def scope_context(attributes):
    """A scope as code in Python: its stream and its core limits; a stream that is opened in a limit has the same one."""
    stream = scope_stream(attributes)
    with contextlib.ExitStack() as stack:
        if stream is not None:
            limits = torch.npu.get_stream_limit(torch.npu.current_stream())
            stack.enter_context(torch.npu.stream(stream))
            if _in_limit() and torch.npu.get_stream_limit(stream) != limits:
                stack.enter_context(core_limit(limits["cube_core_num"], limits["vector_core_num"]))
        cube, vector = attributes.get("_op_aicore_num"), attributes.get("_op_vectorcore_num")
        if cube is not None and vector is not None:
            stack.enter_context(core_limit(cube, vector))
            stack.enter_context(_limited())
        yield


_depth = threading.local()


def _in_limit():
    return getattr(_depth, "value", 0) > 0


@contextlib.contextmanager
def _limited():
    _depth.value = getattr(_depth, "value", 0) + 1
    try:
        yield
    finally:
        _depth.value -= 1


@contextlib.contextmanager
def same_stream(stream):
    """A scope that leads back to the stream on which the graph began."""
    with torch.npu.stream(stream):
        yield
