# SPDX-License-Identifier: Apache-2.0
"""Streams and events."""
import ctypes

import torch
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu.npu.device import _get_device_index, _lazy_init

# Programs put the device's own classes in the place of torch.Stream and torch.Event: what these were is needed here.
_BaseStream = torch.Stream
_BaseEvent = torch.Event

_EXTERNAL = 0x20  # flags of events, as aclrtCreateEventExWithFlag takes them
_IPC = 0x40


def _index(device):
    return _get_device_index(device, optional=True)


class Stream(_BaseStream):
    """A queue of work. ``priority``: negative numbers come before the others.

    ``stream_id``, ``device_index`` and ``device_type`` together rebuild a stream that exists; ``stream_ptr`` wraps a
    stream of the runtime.
    """

    def __new__(
        cls,
        device=None,
        priority=0,
        *,
        is_sync_launch=0,
        stream_id=0,
        device_index=0,
        device_type=0,
        stream_ptr=0,
    ):
        _lazy_init()
        if stream_ptr:
            if priority or is_sync_launch:
                raise refused(
                    RuntimeError("a stream that is wrapped has the priority and the launch mode it was made with")
                )
            parts = _C._npu_streamFromExternal(stream_ptr, _index(device))
        elif stream_id or device_index or device_type:
            parts = _C._npu_streamFromParts(stream_id, device_index, device_type)
        else:
            parts = _C._npu_streamFromPool(_index(device), priority, bool(is_sync_launch))
        return cls._of(parts)

    @classmethod
    def _of(cls, parts):
        return _BaseStream.__new__(cls, stream_id=parts[0], device_index=parts[1], device_type=parts[2])

    @property
    def npu_stream(self):
        """The handle of the runtime's stream."""
        return self.native_handle

    @property
    def _as_parameter_(self):
        return ctypes.c_void_p(self.native_handle)

    @property
    def priority(self):
        raise refused(RuntimeError("the priority of an npu stream cannot be asked for: not supported"))

    @staticmethod
    def priority_range():
        raise refused(RuntimeError("the range of priorities of npu streams cannot be asked for: not supported"))

    def wait_event(self, event):
        """Makes all later work of this stream wait for the event."""
        _C._npu_streamWaitEvent(self, event)

    def wait_stream(self, stream):
        """Makes all later work of this stream wait for what the other one has got so far."""
        event = Event()
        _C._npu_eventRecord(event, stream)
        _C._npu_streamWaitEvent(self, event)

    def record_event(self, event=None):
        if event is None:
            event = Event()
        _C._npu_eventRecord(event, self)
        return event

    def set_data_preprocess_stream(self, flag=False):
        """Marks the stream as one that prepares data; that changes nothing here."""
        self.is_data_preprocess_stream = bool(flag)

    def __eq__(self, other):
        return isinstance(other, Stream) and super().__eq__(other)

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash((self.npu_stream, self.device))

    def __repr__(self):
        return f"<torch.npu.{type(self).__name__} device={self.device} stream_id={self.stream_id}>"


class SyncLaunchStream(Stream):
    """A stream of a small pool of its own."""

    def __new__(cls, device=None, priority=0, **kwargs):
        return super().__new__(cls, device, priority, is_sync_launch=1, **kwargs)


class ExternalStream(Stream):
    """A stream of the runtime that somebody else made, and who keeps it alive and waits for it."""

    def __new__(cls, stream_ptr, device=None, **kwargs):
        if not stream_ptr:
            raise refused(RuntimeError("stream_ptr is null; pass the handle of an existing stream"))
        return super().__new__(cls, device, stream_ptr=stream_ptr, **kwargs)


class Event(_BaseEvent):
    """A mark in a stream. It comes into being when it is first recorded, on the device of that stream.

    ``external=True``: an ExternalEvent, which graphs wait for and record as one from outside of them.
    """

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False, external=False):
        if interprocess and enable_timing:
            raise refused(RuntimeError("an event that is shared between processes cannot have timing"))
        if external and (enable_timing or interprocess):
            what = "have timing: measure with two events of enable_timing=True, recorded outside of the graph"
            if interprocess:
                what = "be shared between processes: use one of interprocess=True, recorded outside of the graph"
            raise refused(RuntimeError(f"an external event cannot {what}"))
        if external:
            event = _BaseEvent.__new__(cls, device="npu", blocking=bool(blocking))
            _C._npu_eventSetFlags(event, _EXTERNAL)
            return event
        event = _BaseEvent.__new__(cls, device="npu", enable_timing=bool(enable_timing), blocking=bool(blocking))
        if interprocess:
            _C._npu_eventSetFlags(event, _IPC)
        return event

    @classmethod
    def from_ipc_handle(cls, device, handle):
        """The event that another process exported."""
        _lazy_init()
        event = _BaseEvent.__new__(cls, device="npu")
        _C._npu_eventSetFlags(event, _IPC)
        _C._npu_eventOpenIpcHandle(event, _index(device), handle)
        return event

    def ipc_handle(self):
        """Bytes by which another process opens this event."""
        _lazy_init()
        return _C._npu_eventIpcHandle(self)

    def record(self, stream=None):
        """Marks what the stream (default: the current one) has got so far."""
        _C._npu_eventRecord(self, stream)

    def wait(self, stream=None):
        """Makes all later work of the stream (default: the current one) wait for the event."""
        _C._npu_streamWaitEvent(stream, self)

    def elapsed_time(self, end_event):
        """Milliseconds until the other event; waits for both."""
        return _C._npu_eventElapsedTime(self, end_event)

    def recorded_time(self):
        """When it was recorded, in microseconds of the device's clock."""
        return _C._npu_eventRecordedTime(self)

    @property
    def device(self):
        return _BaseEvent.device.__get__(self) if self.event_id else None

    @property
    def npu_event(self):
        """The handle of the runtime's event; 0 before it exists."""
        return self.event_id

    @property
    def _as_parameter_(self):
        return ctypes.c_void_p(self.event_id)

    def reset(self, stream=None):
        """External events only: makes it unrecorded again, in stream order."""
        _C._npu_eventReset(self, stream)

    def __repr__(self):
        return f"<torch.npu.{type(self).__name__} {self.event_id:#x}>"


class ExternalEvent(Event):
    """An event that streams may wait for before it is recorded; in a graph, one from outside of it.

    One record serves one wait; ``reset`` it before the next round.
    """

    def __new__(cls):
        event = _BaseEvent.__new__(cls, device="npu")
        _C._npu_eventSetFlags(event, _EXTERNAL)
        return event


def current_stream(device=None):
    """The stream that this thread's work on the device goes to."""
    _lazy_init()
    return Stream._of(_C._npu_getCurrentStream(_index(device)))


def default_stream(device=None):
    _lazy_init()
    return Stream._of(_C._npu_getDefaultStream(_index(device)))


def set_stream(stream):
    """Makes a stream, and its device, current in this thread; None changes nothing."""
    if stream is None:
        return
    _lazy_init()
    _C._npu_setStream(stream)


class StreamContext:
    """A current stream for a ``with`` block; None changes nothing. Blocks may nest, also of one object."""

    def __init__(self, stream):
        if stream is not None and not isinstance(stream, _BaseStream):
            raise refused(
                RuntimeError(
                    f"expected a torch.npu.Stream, not {type(stream).__name__}; make one with torch.npu.Stream()"
                )
            )
        self.stream = stream
        self._before = []

    def __enter__(self):
        if self.stream is None:
            return
        source = current_stream()
        elsewhere = self.stream.device_index != source.device_index
        target = current_stream(self.stream.device) if elsewhere else source
        set_stream(self.stream)
        self._before.append((source, target))

    def __exit__(self, *_):
        if self.stream is None:
            return
        source, target = self._before.pop()
        if target is not source:
            set_stream(target)
        set_stream(source)


def stream(stream):
    return StreamContext(stream)
