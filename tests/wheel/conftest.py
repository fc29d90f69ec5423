# SPDX-License-Identifier: Apache-2.0
"""The published torch-npu package on the installed libraries: `make test-wheel` sources set_env.sh, nothing else is set.

Operators of the package are queued: one that fails makes later results stale, so every test ends with a
synchronisation that belongs to it. No module sets ASCEND_LAUNCH_BLOCKING: it holds for the whole process, and replays
then wait for their graph, also for one that waits for an update behind the replay.
"""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
import torch_npu  # noqa: F401: registers the device


@pytest.fixture(autouse=True)
def own_failures():
    yield
    torch.npu.synchronize()


@pytest.fixture
def run():
    """run(code, NAME=value…): the code in an interpreter of its own, with these variables; gives what it printed."""

    def start(code, **environment):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, **environment}, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    return start
