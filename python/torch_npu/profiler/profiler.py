# SPDX-License-Identifier: Apache-2.0
"""``torch_npu.profiler.profile``: PyTorch's, with a recording of the device for each cycle."""
import csv
import enum
import gzip
import json
import os
import shutil
import socket
import tempfile
import time

import torch
import torch.profiler
from torch.profiler import ProfilerAction
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu.profiler.experimental_config import ProfilerLevel, _ExperimentalConfig

# Numbers of the device's processes in a trace, beyond those that the system gives out.
_FIRST_PROCESS = 1 << 30


class ProfilerActivity(enum.Enum):
    CPU = 0
    NPU = 1


def supported_activities():
    return set(ProfilerActivity)


def schedule(wait, active, warmup=0, repeat=0, skip_first=0, skip_first_wait=0):
    """``torch.profiler.schedule``, whose arguments may be given in this order."""
    return torch.profiler.schedule(
        wait=wait,
        warmup=warmup,
        active=active,
        repeat=repeat,
        skip_first=skip_first,
        skip_first_wait=skip_first_wait,
    )


def _wanted(activities):
    """Whether the host and the device are; names of PyTorch's activities are understood, too."""
    if activities is None:
        return True, True
    names = set()
    for activity in activities:
        if not isinstance(activity, (ProfilerActivity, torch._C._profiler.ProfilerActivity)):
            raise refused(TypeError(f"activities are of torch_npu.profiler.ProfilerActivity, not {activity!r}"))
        names.add(activity.name)
    if not names:
        raise refused(ValueError("activities is empty; ask for ProfilerActivity.CPU, ProfilerActivity.NPU or both"))
    return "CPU" in names, bool(names & {"NPU", "CUDA", "PrivateUse1"})


class _Recording:
    """What the device did between begin and end."""

    def __init__(self):
        self.folder = None
        self.trace = None

    def begin(self):
        torch.npu._lazy_init()
        self.trace = None
        self.folder = tempfile.mkdtemp(prefix="npu_profile_")
        try:
            _C._npu_startRecording(self.folder, list(range(torch.npu.device_count())))
        except BaseException:
            self.drop()
            raise

    def end(self):
        if self.folder is None:
            return
        try:
            if not torch.npu.is_current_stream_capturing():
                torch.npu.synchronize()  # what was called in this cycle is seen in it
            _C._npu_stopRecording()
            files = sorted(os.listdir(self.folder))
            with open(os.path.join(self.folder, files[-1]), encoding="utf-8") as file:
                self.trace = json.load(file)
        finally:
            self.drop()

    def drop(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

    def events(self, begin_unix_ns):
        """Events of a Chrome trace whose microseconds count from then."""
        if self.trace is None:
            return []
        shift = (self.trace["otherData"]["start_unix_ns"] - begin_unix_ns) / 1000
        made = []
        for event in self.trace["traceEvents"]:
            event = dict(event, pid=_FIRST_PROCESS + event["pid"])
            if "ts" in event:
                event["ts"] += shift
            made.append(event)
        return made

    def tasks(self):
        return [event for event in (self.trace or {}).get("traceEvents", []) if event.get("cat") == "task"]


class _WithDevice:
    """What the two classes of profiles add to PyTorch's."""

    def _prepare(self, activities, experimental_config):
        if experimental_config is not None and not isinstance(experimental_config, _ExperimentalConfig):
            raise refused(
                TypeError(
                    f"experimental_config takes a torch_npu.profiler._ExperimentalConfig, not {experimental_config!r}"
                )
            )
        self._host, self._device = _wanted(activities)
        if experimental_config is not None and experimental_config.profiler_level is ProfilerLevel.Level_none:
            self._device = False
        self._recording = _Recording()

    def start_trace(self):
        super().start_trace()
        if self._device:
            self._recording.begin()

    def stop_trace(self):
        try:
            self._recording.end()
        finally:
            super().stop_trace()

    def export_chrome_trace(self, path, *arguments, **options):
        """One trace of host and device, for chrome://tracing and ui.perfetto.dev; ``.gz`` at the end packs it."""
        path = os.fspath(path)
        with tempfile.TemporaryDirectory() as folder:
            host = os.path.join(folder, "host.json")
            super().export_chrome_trace(host, *arguments, **options)
            with open(host, encoding="utf-8") as file:
                trace = json.load(file)
        if not self._host:
            trace["traceEvents"] = []
        trace["traceEvents"] += self._recording.events(int(trace.get("baseTimeNanoseconds", 0)))
        with (gzip.open if path.endswith(".gz") else open)(path, "wt", encoding="utf-8") as file:
            json.dump(trace, file)

    def npu_events(self):
        """Tasks of the device in the last cycle, as dicts of a Chrome trace; times in microseconds."""
        return self._recording.tasks()


class _KinetoProfile(_WithDevice, torch.profiler._KinetoProfile):
    def __init__(self, *, activities=None, experimental_config=None, **options):
        self._prepare(activities, experimental_config)
        super().__init__(activities=[torch.profiler.ProfilerActivity.CPU], **options)


class profile(_WithDevice, torch.profiler.profile):
    """``torch.profiler.profile`` with a timeline of the devices."""

    def __init__(self, *, activities=None, experimental_config=None, use_cuda=None, **options):
        self._prepare(activities, experimental_config)
        super().__init__(activities=[torch.profiler.ProfilerActivity.CPU], **options)


def _write_kernels(prof, path):
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["Device_id", "Name", "Type", "Stream ID", "Start Time(us)", "Duration(us)"])
        for task in prof.npu_events():
            facts = task.get("args", {})
            rows.writerow(
                [task["pid"], task["name"], facts.get("type", ""), task["tid"], task["ts"], task.get("dur", 0)]
            )


def tensorboard_trace_handler(dir_name=None, worker_name=None, analyse_flag=True, async_mode=False):
    """For ``on_trace_ready``: writes each cycle into a folder of its own below ``dir_name``, or below
    ASCEND_WORK_PATH, or here: ``<worker>_<time>_ascend_pt/ASCEND_PROFILER_OUTPUT`` with ``trace_view.json`` (host and
    device) and ``kernel_details.csv`` (tasks of the device)."""

    def handle(prof):
        parent = dir_name or os.environ.get("ASCEND_WORK_PATH") or "."
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        stamp = time.strftime("%Y%m%d%H%M%S") + f"{time.time_ns() // 1000 % 1_000_000:06d}"
        folder = os.path.join(parent, f"{worker}_{stamp}_ascend_pt", "ASCEND_PROFILER_OUTPUT")
        os.makedirs(folder)
        prof.export_chrome_trace(os.path.join(folder, "trace_view.json"))
        _write_kernels(prof, os.path.join(folder, "kernel_details.csv"))

    return handle


def analyse(profiler_path, max_process_number=None, export_type=None):
    """Results are complete when they are written: only looks whether they are there."""
    if not any("ASCEND_PROFILER_OUTPUT" in folders for _, folders, _ in os.walk(profiler_path)):
        raise refused(RuntimeError(f"{profiler_path} holds no profile that tensorboard_trace_handler wrote"))
