# SPDX-License-Identifier: Apache-2.0
"""Profiles that are asked for while a program runs.

The program calls ``init(folder)`` once and ``step()`` in each iteration. Whenever ``folder/profiler_config.json`` has been
written anew, the next ``"active"`` steps (1) are profiled and written below ``"prof_dir"`` (the folder itself):

    {"prof_dir": "/tmp/profiles", "active": 3, "activities": ["CPU", "NPU"], "with_stack": false,
     "record_shapes": false, "profile_memory": false}

``start(file)`` asks for one from within.
"""
import json
import os

from torch_npu._errors import refused
from torch_npu.profiler.profiler import ProfilerActivity, profile, tensorboard_trace_handler

__all__ = ["init", "start", "step"]

_CONFIG = "profiler_config.json"
_SWITCHES = ("with_stack", "record_shapes", "profile_memory", "with_flops", "with_modules")
_KNOWN = {"prof_dir", "active", "activities", "start_step", "is_rank", "rank_list", *_SWITCHES}


class _Dynamic:
    def __init__(self):
        self.path = None
        self.seen = None
        self.running = None
        self.left = 0

    def init(self, path):
        os.makedirs(path, exist_ok=True)
        self.path = os.path.join(path, _CONFIG)
        self.seen = self._stamp()

    def _stamp(self):
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def step(self):
        if self.path is None and self.running is None:
            raise refused(RuntimeError("dynamic_profile.step: call dynamic_profile.init(folder) or start(file) first"))
        if self.running is not None:
            self.running.step()
            self.left -= 1
            if self.left == 0:
                self.running.stop()
                self.running = None
            return
        stamp = self._stamp()
        if stamp is not None and stamp != self.seen:
            self.seen = stamp
            self.start(self.path)

    def start(self, path):
        if self.running is not None:
            raise refused(RuntimeError("dynamic_profile.start: a profile is being taken already"))
        path = path or self.path
        if path is None:
            raise refused(
                RuntimeError("dynamic_profile.start: name a file, or call dynamic_profile.init(folder) first")
            )
        with open(path, encoding="utf-8") as file:
            wanted = json.load(file)
        unknown = sorted(set(wanted) - _KNOWN)
        if unknown:
            raise refused(ValueError(f"{path} has settings that this profiler does not know: {', '.join(unknown)}"))
        active = wanted.get("active", 1)
        if not isinstance(active, int) or active < 1:
            raise refused(ValueError(f'{path}: "active" is a number of steps, 1 or more, not {active!r}'))
        folder = wanted.get("prof_dir") or os.path.dirname(os.path.abspath(path))
        self.running = profile(
            activities=[ProfilerActivity[name] for name in wanted.get("activities", ["CPU", "NPU"])],
            on_trace_ready=tensorboard_trace_handler(folder),
            **{name: bool(wanted[name]) for name in _SWITCHES if name in wanted},
        )
        self.left = active
        self.running.start()


_dynamic = _Dynamic()


def init(path):
    """Looks for requests in this folder from now on."""
    _dynamic.init(path)


def step():
    """An iteration has ended."""
    _dynamic.step()


def start(config_path=None):
    """Begins a profile as the file says."""
    _dynamic.start(config_path)
