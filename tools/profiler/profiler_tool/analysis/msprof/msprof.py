# SPDX-License-Identifier: Apache-2.0
"""msprof: tables and traces of what was recorded, and recordings of any program.

    msprof [--output=FOLDER] PROGRAM ARGUMENT...           records the program, then exports both forms
    msprof --application="PROGRAM ARGUMENT..."             likewise
    msprof --export=on --output=FOLDER [--type=text|db]    exports: text: trace and tables into
                                                           FOLDER/mindstudio_profiler_output; db: FOLDER/msprof_TIME.db
    msprof --analyze=on --output=FOLDER [--type=text|db]   analyses communication: there is none on this device, so that
                                                           nothing is written
    msprof --parse=on --output=FOLDER                      says whether the recording can be read, and what is in it

FOLDER is a folder PROF_..., or one with such folders. Switches that choose what is recorded (--ascendcl, --task-time,
--aicpu, --model-execution, --runtime-api, --msproftx and others, =on or =off) are accepted: calls, tasks, marks and
ranges are recorded always, counters of hardware never, since a CPU has none.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import database
import records
import tables
from records import Refused

ACTIONS = ("export", "analyze", "parse")
# What chooses data: recorded always, or never.
KINDS = {
    "ascendcl", "model-execution", "runtime-api", "task-time", "hccl", "msproftx", "ge-api", "aicpu", "task-trace",
    "ai-core", "aic-mode", "aic-freq", "aic-metrics", "l2", "sys-hardware-mem", "sys-hardware-mem-freq", "llc-profiling",
    "sys-io-profiling", "sys-io-sampling-freq", "sys-interconnection-profiling", "sys-interconnection-freq",
    "dvpp-profiling", "dvpp-freq", "sys-cpu-profiling", "sys-cpu-freq", "sys-profiling", "sys-sampling-freq",
    "sys-pid-profiling", "sys-pid-sampling-freq", "host-sys", "host-sys-pid", "host-sys-usage", "host-sys-usage-freq",
    "instr-profiling", "instr-profiling-freq", "sys-devices", "storage-limit", "environment", "python-path",
    "summary-format", "iteration-id", "model-id", "reports", "clear", "rule",
}
# The package's analysis looks for our files every 0.1 s while this command runs, and fails when it has ended before.
READERS_LOOK_AGAIN_S = 0.5
NEEDS_DEVICE = ("dynamic", "pid", "sys-period", "delay", "duration", "query", "import")


class Options:
    def __init__(self, arguments):
        self.output = self.type = self.application = None
        self.actions = []
        self.program = []
        for at, argument in enumerate(arguments):
            if not argument.startswith("-"):
                self.program = arguments[at:]
                break
            self._take(argument)
        if self.application is not None:
            if self.program:
                raise Refused(f"--application names a program, and so does the end of the line: {self.program[0]}; name one")
            self.program = shlex.split(self.application)

    def _take(self, argument):
        name, _, value = argument.partition("=")
        key = name.lstrip("-")
        if key in ("output", "application"):
            if not value:
                raise Refused(f"{name} has no value; write {name}=...")
            setattr(self, key, value)
        elif key == "type":
            if value not in ("text", "db"):
                raise Refused(f"--type is {value!r}; write --type=text or --type=db")
            self.type = value
        elif key in ACTIONS:
            if value not in ("on", "off"):
                raise Refused(f"{name} is {value!r}; write {name}=on")
            self.actions += [key] if value == "on" else []
        elif key in NEEDS_DEVICE:
            raise Refused(f"{name} is not supported here; record a program from its beginning: msprof PROGRAM")
        elif key not in KINDS:
            raise Refused(f"there is no option {name}; see msprof --help")


def now():
    """The clocks of a record folder."""
    return {"clockMonotonicRaw": str(time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)),
            "clockMonotonic": str(time.clock_gettime_ns(time.CLOCK_MONOTONIC))}


def stamp():
    return datetime.now().strftime("%Y%m%d%H%M%S")


def export(folder, kind):
    recording = records.read(folder)
    if recording.dropped:
        print(f"{folder}: {recording.dropped} events did not fit into the recording", file=sys.stderr)
    try:
        if kind == "db":
            database.write(recording, folder / f"msprof_{stamp()}.db")
        else:
            tables.write(recording, folder / "mindstudio_profiler_output", stamp())
    except OSError as error:
        raise Refused(f"{folder} cannot be written to: {error}; make room, or make the folder writable") from None
    if not sys.stdout.isatty():
        time.sleep(READERS_LOOK_AGAIN_S)
    print(f"{folder}: exported {len(recording.kernels())} kernels, {len(recording.tasks)} tasks")


def parse(folder):
    recording = records.read(folder)
    names = ", ".join(str(device) for device in recording.devices)
    print(f"{folder}: {len(recording.tasks)} tasks on devices {names}; {recording.dropped} events dropped")


def collect(program, output):
    """Runs the program with a recording of the whole process; its own exit status is that of this one."""
    name = f"PROF_000001_{datetime.now().strftime('%Y%m%d%H%M%S%f')[:-3]}_M{os.getpid()}"
    folder = (Path(output or ".") / name).resolve()
    host = folder / "host"
    try:
        (host / "data").mkdir(parents=True)
    except OSError as error:
        raise Refused(f"{folder} cannot be made: {error}; name another folder with --output") from None
    begin = {"collectionTimeBegin": str(time.time_ns() // 1000), **now()}
    timeline = host / "data" / "timeline.json"
    try:
        status = subprocess.run(program, env={**os.environ, "REPRISE_PROFILE": str(timeline)}, check=False).returncode
    except OSError as error:
        raise Refused(f"{program[0]} cannot be run: {error}") from None
    end = {"collectionTimeEnd": str(time.time_ns() // 1000), **now()}
    (host / "start_info").write_text(json.dumps(begin) + "\n")
    (host / "end_info").write_text(json.dumps(end) + "\n")
    if not timeline.exists():
        raise Refused(f"{program[0]} ended with {status} and called nothing of the runtime: there is nothing to export")
    for device in records.read(folder).devices:
        (folder / f"device_{device}" / "data").mkdir(parents=True, exist_ok=True)
    for kind in ("text", "db"):
        export(folder, kind)
    return status if status >= 0 else 128 - status


def main(arguments):
    if not arguments or {"--help", "-h", "help"} & {arguments[0]}:
        print(__doc__.strip())
        return 0
    options = Options(arguments)
    if options.program:
        if options.actions:
            raise Refused(f"--{options.actions[0]} takes a recording, not a program; leave one of them away")
        return collect(options.program, options.output)
    if not options.actions:
        raise Refused("nothing is asked for: name a program, or --export=on with --output; see msprof --help")
    if options.output is None:
        raise Refused(f"--{options.actions[0]} has no recording; name its folder with --output=FOLDER")
    for folder in records.folders_in(options.output):
        for action in options.actions:
            if action == "export":
                export(folder, options.type)
            else:
                parse(folder)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as refusal:
        sys.exit(f"msprof: {refusal}")
