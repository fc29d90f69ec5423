# SPDX-License-Identifier: Apache-2.0
"""Reads a record folder: what ran on which device and stream, and what the host did, in nanoseconds since 1970."""

import json
import re
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import List, Optional

FOLDER = re.compile(r"PROF_\d+_\d+_[0-9a-zA-Z]+$")
FIRST_DEVICE = 2  # number of device 0's process in a timeline


class Refused(Exception):
    """What cannot be done: the message says why, and what to do instead."""


@dataclass
class Submission:
    name: str
    thread: int
    begin: int
    end: int
    connection: int  # number of the arrow from here to the tasks


@dataclass
class Task:
    name: str
    kind: str  # of task: "KERNEL_AIVEC", "MEMCPY_ASYNC"
    device: int
    stream: int
    number: int
    begin: int
    end: int
    blocks: int = 0
    shapes: str = ""
    graph: str = ""  # that it is part of
    is_graph: bool = False  # a whole replay
    failed: bool = False
    submission: Optional[Submission] = None

    @property
    def core(self):
        """The core that a kernel runs on; empty for what is no kernel."""
        return CORES.get(self.kind, "")


CORES = {
    "KERNEL_AICORE": "AI_CORE",
    "KERNEL_AIVEC": "AI_VECTOR_CORE",
    "KERNEL_MIX_AIC": "MIX_AIC",
    "KERNEL_MIX_AIV": "MIX_AIV",
    "KERNEL_AICPU": "AI_CPU",
}


@dataclass
class Span:
    """A range or a mark of the program; on a stream if `device` is not negative."""

    name: str
    track: int  # thread, or stream
    begin: int
    end: int
    device: int = -1


@dataclass
class Recording:
    folder: Path
    process: int
    begin: int
    end: int
    dropped: int = 0
    devices: List[int] = field(default_factory=list)
    tasks: List[Task] = field(default_factory=list)
    submissions: List[Submission] = field(default_factory=list)
    spans: List[Span] = field(default_factory=list)

    def kernels(self):
        return [task for task in self.tasks if task.core]


def folders_in(path):
    """The record folders at a path: itself, or those in it."""
    path = Path(path)
    if not path.is_dir():
        raise Refused(f"{path} is no folder; pass the folder of a recording, or one with such folders, as --output")
    found = [path] if FOLDER.match(path.resolve().name) else sorted(p for p in path.iterdir() if FOLDER.match(p.name))
    if not found:
        raise Refused(
            f"there is no recording in {path}; pass a folder PROF_..., which aclprofStop writes and "
            "msprof --output=FOLDER PROGRAM, too"
        )
    return found


class Clock:
    """Turns microseconds of a timeline into nanoseconds since 1970.

    Frameworks compute such times from the raw clock and what start_info says of it, timelines run on another clock: it
    is mapped to the raw one by the two instants at which both were read.
    """

    def __init__(self, start, end, origin):
        self._unix = int(start["collectionTimeBegin"]) * 1000
        self._raw = int(start["clockMonotonicRaw"])
        self._monotonic = int(start["clockMonotonic"])
        passed = int(end["clockMonotonic"]) - self._monotonic
        self._gain = (int(end["clockMonotonicRaw"]) - self._raw - passed) / passed if passed > 0 else 0.0
        self._origin = origin

    def ns(self, microseconds):
        passed = self._origin + round(microseconds * 1000) - self._monotonic
        return self._unix + passed + round(passed * self._gain)

    def unix(self, monotonic):
        return self.ns((monotonic - self._origin) / 1000)


def _load(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Refused(f"{path} is missing: the recording was not stopped, or it is not one of this runtime") from None
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {error}; record again") from None


def read(folder):
    """The recording in a record folder."""
    start, end = _load(folder / "host" / "start_info"), _load(folder / "host" / "end_info")
    trace = _load(folder / "host" / "data" / "timeline.json")
    try:
        return _convert(folder, start, end, trace)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"{folder} is no recording of this runtime ({type(error).__name__}: {error}); record again") from None


def _convert(folder, start, end, trace):
    about = trace["otherData"]
    clock = Clock(start, end, int(about["start_monotonic_ns"]))
    made = Recording(
        folder, int(about["process"]), clock.unix(int(start["clockMonotonic"])), clock.unix(int(end["clockMonotonic"])),
        int(about.get("dropped_events", 0)), sorted(start.get("devices", [])),
    )
    submitted, by_place, arrows, opened = {}, {}, defaultdict(dict), {}
    for event in trace["traceEvents"]:
        phase, kind = event["ph"], event.get("cat")
        if phase == "M":
            continue
        place = (event["pid"], event["tid"], event["ts"])
        begin = clock.ns(event["ts"])
        finish = clock.ns(event["ts"] + event.get("dur", 0))
        if kind in ("task", "graph"):
            arguments = event["args"]
            task = Task(
                event["name"], arguments["type"], event["pid"] - FIRST_DEVICE, arguments["stream"], arguments["task"],
                begin, finish, arguments.get("blocks", 0), arguments.get("shapes", ""), arguments.get("graph", ""),
                kind == "graph", arguments.get("failed", False),
            )
            made.tasks.append(task)
            by_place[place] = task
        elif kind == "submission":
            submission = Submission(event["name"].replace("submit ", "", 1), event["tid"], begin, finish, 0)
            made.submissions.append(submission)
            submission.connection = len(made.submissions)
            submitted[place] = submission
        elif kind == "flow":
            arrows[event["id"]][phase] = place
        elif phase in "be":  # ranges that need not nest
            if phase == "b":
                opened[event["id"]] = Span(event["name"], event["tid"], begin, made.end)
                made.spans.append(opened[event["id"]])
            else:
                opened[event["id"]].end = begin
        else:
            device = event["pid"] - FIRST_DEVICE
            track = event["tid"] - (1 if device >= 0 else 0)
            made.spans.append(Span(event["name"], track, begin, made.end if phase == "B" else finish, device))
    for arrow in arrows.values():
        task, submission = by_place.get(arrow.get("f")), submitted.get(arrow.get("s"))
        if task is not None:
            task.submission = submission
    _connect_replays(made.tasks)
    made.devices = sorted(set(made.devices) | {task.device for task in made.tasks})
    return made


def _connect_replays(tasks):
    """Kernels of a graph belong to the replay that they ran in; replays of a graph never overlap."""
    replays = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.begin):
        if task.is_graph:
            replays[task.name].append(task)
    begins = {name: [replay.begin for replay in those] for name, those in replays.items()}
    for task in tasks:
        if task.graph in replays:
            at = bisect_right(begins[task.graph], task.begin) - 1
            if at >= 0:
                task.submission = replays[task.graph][at].submission
