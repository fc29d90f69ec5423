# SPDX-License-Identifier: Apache-2.0
"""The backend hccl of torch.distributed. Names carry items of the specification (HT)."""
import fcntl
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import run_ranks
from support import run_script

# Modules whose functions ht_… two ranks call, one after the other, in one pair of processes.
MODULES = {
    "rank_checks": {},
    "rank_training": {},
    "rank_starts": {"REPRISE_DEVICES": 2},
    "rank_debug": {
        "TORCH_HCCL_HIGH_PRIORITY": 1,
        "TORCH_HCCL_TRACE_BUFFER_SIZE": 12,
        "TORCH_HCCL_DEBUG_INFO_PIPE_FILE": "{folder}/pipe_",
        "TORCH_HCCL_DEBUG_INFO_TEMP_FILE": "{folder}/trace_",
    },
    "rank_places": {"REPRISE_DEVICES": 2, "RANK_TABLE_FILE": "{folder}/table.json", "HCCL_CONNECT_TIMEOUT": 200},
}


def _names(module):
    """Those of its functions, in their order."""
    source = Path(__file__).with_name(f"{module}.py").read_text()
    return [line[4:].partition("(")[0] for line in source.splitlines() if line.startswith("def ht_")]


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory, request):
    """outcomes(module): what became of its functions. Run once, also where tests are spread over several processes."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent  # of all of them

    @functools.cache
    def of(module):
        results = folder / f"{module}.json"
        with open(folder / f"{module}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not results.exists():
                results.write_text(json.dumps(run_ranks(module, _names(module), **MODULES[module])))
        return json.loads(results.read_text())

    return of


@pytest.mark.parametrize("module, name", [(module, name) for module in MODULES for name in _names(module)])
def test_two_ranks(outcomes, module, name):
    assert not outcomes(module)[name], outcomes(module)[name]


def test_ht_008_torchrun_and_the_example_of_a_captured_step():
    example = Path(__file__).parents[2] / "examples" / "ddp_capture.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(example)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=variables)
    assert done.returncode == 0 and "2 ranks, 20 replays" in done.stdout, done.stdout + done.stderr


def rank_of_spawn(rank, size, folder):
    import torch
    import torch.distributed as dist
    import torch_npu  # noqa: F401

    dist.init_process_group("hccl", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    x = torch.tensor([rank + 1.0], device="npu")
    dist.all_reduce(x)
    with open(f"{folder}/{rank}", "w") as file:
        file.write(str(x.item()))
    dist.destroy_process_group()


def test_ht_009_spawned_processes_end_cleanly(tmp_path):
    done = run_script(
        f"""
        import sys, torch.multiprocessing, test_distributed
        del sys.modules["__main__"].__file__  # that of fork_server.py, which children would run, too
        torch.multiprocessing.spawn(test_distributed.rank_of_spawn, (2, {str(tmp_path)!r}), nprocs=2)
        """,
        OMP_NUM_THREADS=1,
    )
    assert done.returncode == 0, done.stderr
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["3.0", "3.0"]
    assert not done.stderr, done.stderr
