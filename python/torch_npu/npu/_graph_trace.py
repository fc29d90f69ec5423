# SPDX-License-Identifier: Apache-2.0
"""The aligned form of a graph's dump: one time line, in which waits come after what they wait for.

The dump has a clock of its own for each stream. Here every task begins when the one before it on its stream has ended,
and a wait begins after its record at the earliest; arrows lead from records to waits. A conditional task lasts as long
as its bodies, which follow each other.
"""
import collections
import json
import os
import re

_GAP = 0.2  # between tasks of a stream
_HASH = re.compile(r"_[0-9a-f]{16,}(?=_|$)")
# What signals, and what waits for it. The end of their names says for which event or address.
_SIGNALS = {"EVENT_RECORD", "NOTIFY_RECORD", "MEM_WRITE_VALUE"}
_WAITS = {"EVENT_WAIT": "EVENT_RECORD", "NOTIFY_WAIT": "NOTIFY_RECORD", "MEM_WAIT_VALUE": "MEM_WRITE_VALUE"}


def aligned_path(path):
    return os.path.splitext(path)[0] + ".aligned.json"


def _mark(event):
    tail = event["name"].rpartition("_")[2]
    return tail if tail.isdigit() else None


def _streams(events):
    """The events by stream. One that another stream starts is shown as a part of that."""
    streams = {}
    starter = {}
    for event in events:
        streams.setdefault(event["tid"], []).append(event)
        started = event["args"].get("Active Stream Id")
        if started is not None:
            starter[f"stream{started}"] = event["tid"]

    def shown_as(tid):
        seen = set()
        while tid in starter and tid not in seen:
            seen.add(tid)
            tid = starter[tid]
        return tid

    return streams, shown_as


def align(events):
    """The events of a dump, and arrows, on one time line."""
    models = {}
    for event in events:
        models.setdefault(event["args"].get("Model Id"), []).append(event)
    bodies = {body["Model Id"] for event in events for body in event["args"].get("Bodies", ())}
    arrows = []
    aligned = []
    for model in models:
        if model not in bodies:
            aligned += _align_model(models, model, 0.0, arrows)
    return aligned + arrows


def _align_model(models, model, begin, arrows):
    """The events of a model that begins then, with those of the bodies of its conditional tasks."""
    events = models[model]
    streams, shown_as = _streams(events)
    clock = dict.fromkeys(streams, begin)
    at = dict.fromkeys(streams, 0)
    signals = {}  # (type, mark) -> the newest that has run
    to_come = collections.Counter((e["args"]["Task Type"], _mark(e)) for e in events)
    begun = {f"stream{e['args']['Active Stream Id']}" for e in events if "Active Stream Id" in e["args"]}
    blocked = set(begun)  # until somebody starts them
    aligned = []

    def place(tid, event, signal):
        if signal is not None:
            clock[tid] = max(clock[tid], signal["ts"] + signal["dur"] + _GAP)
        shown = dict(event, tid=shown_as(tid), ts=round(clock[tid], 3), name=_HASH.sub("", event["name"]))
        aligned.append(shown)
        end = clock[tid] + shown["dur"]
        for body in event["args"].get("Bodies", ()):
            if body["Model Id"] in models and body["Model Id"] != model:
                inside = _align_model(models, body["Model Id"], end + _GAP, arrows)
                end = max([end, *(task["ts"] + task["dur"] for task in inside)])
                aligned.extend(inside)
        shown["dur"] = round(end - shown["ts"], 3)
        clock[tid] = end + _GAP
        kind = event["args"]["Task Type"]
        if kind in _SIGNALS:
            signals[kind, _mark(event)] = shown
            to_come[kind, _mark(event)] -= 1
        if "Active Stream Id" in event["args"]:
            started = f"stream{event['args']['Active Stream Id']}"
            blocked.discard(started)
            if started in clock:
                clock[started] = max(clock[started], clock[tid])
        if signal is not None:
            number = len(arrows) // 2
            common = {"name": "wait", "cat": "wait", "id": number, "pid": event["pid"]}
            arrows.append(dict(common, ph="s", tid=signal["tid"], ts=signal["ts"]))
            arrows.append(dict(common, ph="f", bp="e", tid=shown["tid"], ts=shown["ts"]))

    while True:
        moved = False
        for tid, tasks in streams.items():
            while tid not in blocked and at[tid] < len(tasks):
                event = tasks[at[tid]]
                signal = None
                if event["args"]["Task Type"] in _WAITS:
                    key = (_WAITS[event["args"]["Task Type"]], _mark(event))
                    signal = signals.get(key)
                    if signal is None and to_come[key] > 0:
                        break
                place(tid, event, signal)
                at[tid] += 1
                moved = True
        if moved:
            continue
        # What is left waits in a circle, or for somebody outside: each stream's next task goes as it is.
        stuck = [tid for tid, tasks in streams.items() if at[tid] < len(tasks)]
        if not stuck:
            return aligned
        blocked.clear()
        place(stuck[0], streams[stuck[0]][at[stuck[0]]], None)
        at[stuck[0]] += 1


def write_aligned(path):
    """Writes ``<stem>.aligned.json`` beside the dump at ``path``; returns its name."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)
    target = aligned_path(path)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(align(events), file, indent=0)
    return target
