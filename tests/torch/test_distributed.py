# SPDX-License-Identifier: Apache-2.0
"""The backend hccl of torch.distributed. Names carry items of the specification (HT)."""
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rank_checks
from ranks import run_ranks

CHECKS = [name for name, _ in inspect.getmembers(rank_checks, inspect.isfunction) if name.startswith("ht_")]


@pytest.fixture(scope="module")
def outcomes():
    return run_ranks("rank_checks", CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_two_ranks(outcomes, name):
    assert not outcomes[name], outcomes[name]


def test_the_example_of_a_captured_step():
    example = Path(__file__).parents[2] / "examples" / "ddp_capture.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(example)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0 and "2 ranks, 20 replays" in done.stdout, done.stdout + done.stderr
