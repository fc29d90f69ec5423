# SPDX-License-Identifier: Apache-2.0
"""A recording as an SQLite database, with the tables that tools for profiles of this toolkit query."""

import socket

from records import Refused
from tables import Shapes, graph_numbers

LEVELS = {"node": 10000, "acl": 20000, "model": 15000, "runtime": 5000, "communication": 5500}
NO_GRAPH = 4294967295
NO_CONNECTION = 4294967295

COLUMNS = {
    "STRING_IDS": "id INTEGER PRIMARY KEY, value TEXT",
    "ENUM_API_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "ENUM_MSTX_EVENT_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "CANN_API": "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER",
    "TASK": "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER, "
            "globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER",
    "COMPUTE_TASK_INFO": "name INTEGER, globalTaskId INTEGER, blockNum INTEGER, mixBlockNum INTEGER, taskType INTEGER, "
                         "opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER, "
                         "outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER",
    "MSTX_EVENTS": "startNs INTEGER, endNs INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, message INTEGER, "
                   "globalTid INTEGER, endGlobalTid INTEGER, domainId INTEGER, connectionId INTEGER",
    "NPU_INFO": "id INTEGER, name TEXT",
    "HOST_INFO": "hostUid TEXT, hostName TEXT",
    "SESSION_TIME_INFO": "startTimeNs INTEGER, endTimeNs INTEGER",
}


class Strings:
    """Texts and their numbers, from 1: readers take 0 for none."""

    def __init__(self):
        self.numbers = {}

    def __call__(self, text):
        return self.numbers.setdefault(text, len(self.numbers) + 1)


def rows(recording):
    """The rows of each table."""
    strings, made = Strings(), {name: [] for name in COLUMNS}
    thread = lambda number: recording.process << 32 | number  # noqa: E731
    for one in recording.submissions:
        made["CANN_API"].append((one.begin, one.end, LEVELS["node"], thread(one.thread), one.connection, strings("launch")))
    graphs = graph_numbers(recording.tasks)
    for number, task in enumerate(recording.tasks):
        connection = NO_CONNECTION if task.submission is None else task.submission.connection
        graph = graphs[task.graph]
        made["TASK"].append((
            task.begin, task.end, task.device, connection, number, recording.process, strings(task.core or task.kind),
            NO_CONNECTION, task.stream, task.number, NO_GRAPH if graph < 0 else graph))
        if task.core:
            shapes, types, formats, out_shapes, out_types, out_formats = map(strings, Shapes(task.shapes).row())
            made["COMPUTE_TASK_INFO"].append((
                strings(task.name), number, task.blocks, 0, strings(task.core), strings(task.name), formats, types,
                shapes, out_formats, out_types, out_shapes, strings("")))
    for number, span in enumerate(recording.spans):
        if span.device < 0:
            made["MSTX_EVENTS"].append((
                span.begin, span.end, int(span.end > span.begin), number, NO_CONNECTION, strings(span.name),
                thread(span.track), thread(span.track), strings("default"), NO_CONNECTION))
    made["ENUM_API_TYPE"] = [(number, name) for name, number in LEVELS.items()]
    made["ENUM_MSTX_EVENT_TYPE"] = [(0, "marker"), (1, "start/end")]
    made["NPU_INFO"] = [(device, "CPU") for device in recording.devices]
    made["HOST_INFO"] = [("0", socket.gethostname())]
    made["SESSION_TIME_INFO"] = [(recording.begin, recording.end)]
    made["STRING_IDS"] = [(number, text) for text, number in strings.numbers.items()]
    return made


def write(recording, path):
    """Writes the file anew; tables without rows are not there."""
    try:
        import sqlite3
    except ImportError:
        raise Refused("this Python has no module sqlite3; set REPRISE_MSPROF_PYTHON to one that has, or export as text") from None
    unfinished = path.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    try:
        connection = sqlite3.connect(unfinished)
        try:
            for name, lines in rows(recording).items():
                if lines:
                    connection.execute(f"CREATE TABLE {name} ({COLUMNS[name]})")
                    connection.executemany(f"INSERT INTO {name} VALUES ({','.join('?' * len(lines[0]))})", lines)
            connection.commit()
        finally:
            connection.close()
        unfinished.replace(path)
    except sqlite3.Error as error:
        raise Refused(f"{path} cannot be written: {error}; make room, or make the folder writable") from None
