# SPDX-License-Identifier: Apache-2.0
"""The tables and the trace that a recording is exported to, as tools for profiles of this toolkit read them."""

import csv
import json
import re
import shutil
from collections import defaultdict

NOT_KNOWN = "N/A"
# Names of types as tables spell them, where that is not the type in capitals.
TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "bfloat16": "DT_BF16"}
TENSOR = re.compile(r"([A-Za-z0-9_]+)\[([0-9,\-]*)\]")


def us(ns):
    """Microseconds as a decimal text: a float has not digits enough."""
    return f"{ns // 1000}.{ns % 1000:03d}"


class Shapes:
    """Shapes and types of a call: "float32[2,3], int64[4] -> float32[2]"."""

    def __init__(self, text):
        inputs, _, outputs = text.partition(" -> ")
        self.known = bool(text)
        self.inputs, self.outputs = TENSOR.findall(inputs), TENSOR.findall(outputs)

    def row(self):
        """Shapes, types, formats of inputs, then of outputs."""
        cells = []
        for tensors in (self.inputs, self.outputs):
            if not tensors:
                cells += [NOT_KNOWN] * 3
                continue
            cells.append('"' + ";".join(sizes for _, sizes in tensors) + '"')
            cells.append(";".join(TYPES.get(name, name.upper()) for name, _ in tensors))
            cells.append(";".join("ND" for _ in tensors))
        return cells


SUMMARY = ["Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "OP State", "Task Type",
           "Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)", "Block Num", "Mix Block Num"]
SHAPES = ["Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats"]
STATISTIC = ["Device_id", "OP Type", "Core Type", "Count", "Total Time(us)", "Min Time(us)", "Avg Time(us)",
             "Max Time(us)", "Ratio(%)"]
CALLS = ["Device_id", "Level", "API Name", "Time(us)", "Count", "Avg(us)", "Min(us)", "Max(us)", "Variance"]
TIMES = ["Device_id", "kernel_name", "kernel_type", "stream_id", "task_id", "task_time(us)", "task_start(us)",
         "task_stop(us)"]


def graph_numbers(tasks):
    """A number for each graph; -1 for what is in none."""
    numbers = {"": -1}
    for task in tasks:
        numbers.setdefault(task.graph, len(numbers))
    return numbers


def op_summary(recording):
    kernels = sorted(recording.kernels(), key=lambda task: task.begin)
    graphs = graph_numbers(kernels)
    with_shapes = any(task.shapes for task in kernels)
    rows, ends = [SUMMARY + (SHAPES if with_shapes else [])], {}
    for task in kernels:
        place = task.device, task.stream
        waited = max(0, task.begin - ends.get(place, task.begin))
        ends[place] = task.end
        graph = graphs[task.graph]
        rows.append([
            task.device, 4294967295 if graph < 0 else graph, task.number, task.stream, task.name, task.name,
            "dynamic" if graph < 0 else "static", task.core, us(task.begin), us(task.end - task.begin), us(waited),
            task.blocks, 0, *(Shapes(task.shapes).row() if with_shapes else []),
        ])
    return rows


def _summed(values):
    return us(sum(values)), us(min(values)), us(round(sum(values) / len(values))), us(max(values))


def op_statistic(recording):
    groups, totals = defaultdict(list), defaultdict(int)
    for task in recording.kernels():
        groups[task.device, task.name, task.core].append(task.end - task.begin)
        totals[task.device] += task.end - task.begin
    rows = []
    for (device, name, core), times in groups.items():
        total, least, average, most = _summed(times)
        share = 100 * sum(times) / totals[device] if totals[device] else 0
        rows.append([device, name, core, len(times), total, least, average, most, f"{share:.3f}"])
    return [STATISTIC, *sorted(rows, key=lambda row: (row[0], -float(row[4]), row[1]))]


def api_statistic(recording):
    groups = defaultdict(list)
    for submission in recording.submissions:
        groups["launch"].append(submission.end - submission.begin)
    rows = [CALLS]
    for name, times in sorted(groups.items()):
        total, least, average, most = _summed(times)
        mean = sum(times) / len(times)
        variance = sum((time - mean) ** 2 for time in times) / len(times) / 1e6
        rows.append(["host", "node", name, total, len(times), average, least, most, f"{variance:.3f}"])
    return rows


def task_time(recording):
    return [TIMES] + [
        [task.device, task.name, task.kind, task.stream, task.number, us(task.end - task.begin), us(task.begin), us(task.end)]
        for task in sorted(recording.tasks, key=lambda task: task.begin)
    ]


# ---- The trace ----

HOST, MARKS, HARDWARE, OVERLAP = 8, 9, 10, 11  # kinds of processes; part of their numbers


def _process(recording, kind, device=0):
    return recording.process << 10 | kind << 5 | device


def _names(process, name, labels, order, threads):
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_labels", "pid": process, "tid": 0, "args": {"labels": labels}}
    yield {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": order}}
    for thread, text in sorted(threads.items()):
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": text}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": thread, "args": {"sort_index": thread}}


def _event(process, thread, name, begin, end, arguments):
    return {"ph": "X", "name": name, "pid": process, "tid": thread, "ts": us(begin), "dur": (end - begin) / 1000,
            "args": arguments}


def _host(recording):
    process = _process(recording, HOST)
    threads = {submission.thread: f"Thread {submission.thread}" for submission in recording.submissions}
    yield from _names(process, "CANN", "CPU", HOST, threads)
    for one in recording.submissions:
        yield _event(process, one.thread, "Node@launch", one.begin, one.end, {
            "Thread Id": one.thread, "Mode": "launch", "level": "node", "id": "0", "item_id": one.name,
            "connection_id": one.connection,
        })


def _marks(recording):
    spans = [span for span in recording.spans if span.device < 0]
    if not spans:
        return
    process = _process(recording, MARKS)
    yield from _names(process, "msprof_tx", "CPU", MARKS, {span.track: f"Thread {span.track}" for span in spans})
    for span in spans:
        yield _event(process, span.track, span.name, span.begin, span.end, {"event_type": "start/end" if span.end > span.begin else "marker"})


def _hardware(recording, device):
    process = _process(recording, HARDWARE, device)
    tasks = [task for task in recording.tasks if task.device == device]
    spans = [span for span in recording.spans if span.device == device]
    streams = {task.stream for task in tasks} | {span.track for span in spans}
    yield from _names(process, "Ascend Hardware", f"NPU {device}", HARDWARE, {stream: f"Stream {stream}" for stream in streams})
    graphs = graph_numbers(recording.tasks)
    arrow = 0
    for task in tasks:
        graph = graphs[task.graph]
        arguments = {"Model Id": 4294967295 if graph < 0 else graph, "Task Type": task.core or task.kind,
                     "Physic Stream Id": task.stream, "Task Id": task.number, "Batch Id": 0}
        if task.graph:
            arguments["Graph"] = task.graph
        if task.failed:
            arguments["Failed"] = True
        yield _event(process, task.stream, task.name, task.begin, task.end, arguments)
        if task.submission is None or task.is_graph:
            continue
        arguments["connection_id"] = task.submission.connection
        arrow += 1
        name = {"name": f"HostToDevice{task.submission.connection}", "cat": "HostToDevice", "id": f"{device}-{arrow}"}
        yield {"ph": "s", **name, "pid": _process(recording, HOST), "tid": task.submission.thread,
               "ts": us(task.submission.begin)}
        yield {"ph": "f", **name, "pid": process, "tid": task.stream, "ts": us(task.begin), "bp": "e"}
    for span in spans:
        yield _event(process, span.track, span.name, span.begin, span.end, {"Task Type": "MARK"})


def busy(tasks):
    """When at least one of the tasks ran: disjoint intervals in order."""
    merged = []
    for task in sorted(tasks, key=lambda task: task.begin):
        if merged and task.begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], task.end)
        else:
            merged.append([task.begin, task.end])
    return merged


COMPUTING, FREE = 0, 3  # tracks


def _overlap(recording, device):
    process = _process(recording, OVERLAP, device)
    yield from _names(process, "Overlap Analysis", f"NPU {device}", OVERLAP, {
        COMPUTING: "Computing", 1: "Communication", 2: "Communication(Not Overlapped)", FREE: "Free"})
    last = None
    for begin, end in busy(task for task in recording.kernels() if task.device == device):
        if last is not None:
            yield _event(process, FREE, "Free", last, begin, {"analysis_type": "Free"})
        yield _event(process, COMPUTING, "Computing", begin, end, {"analysis_type": "Computing"})
        last = end


def trace(recording):
    events = [*_host(recording), *_marks(recording)]
    for device in recording.devices:
        events += [*_hardware(recording, device), *_overlap(recording, device)]
    return events


TABLES = {"op_summary": op_summary, "op_statistic": op_statistic, "api_statistic": api_statistic, "task_time": task_time}


# Written also without rows: readers wait until a table is there.
ALWAYS = "task_time"


def write(recording, folder, stamp):
    """The trace and the tables, each with the stamp in its name, all at once; a table without rows is not written."""
    unfinished = folder.with_name(folder.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    with open(unfinished / f"msprof_{stamp}.json", "w", encoding="utf-8") as file:
        json.dump(trace(recording), file)
    for name, make in TABLES.items():
        rows = make(recording)
        if len(rows) > 1 or name == ALWAYS:
            with open(unfinished / f"{name}_{stamp}.csv", "w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(rows)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)
