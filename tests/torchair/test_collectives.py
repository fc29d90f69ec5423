# SPDX-License-Identifier: Apache-2.0
"""Collectives in compiled functions. Names carry items of the specification (HG, TA)."""
import fcntl
import functools
import json
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "torch"))
from ranks import run_ranks  # noqa: E402
from support import run_script  # noqa: E402

# Of collective_checks.py, in their order. Two ranks call them one after the other, in one pair of processes.
CHECKS = [
    line[4:].partition("(")[0] for line in (HERE / "collective_checks.py").read_text().splitlines() if line.startswith(("def hg_", "def ta_"))
]


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory, request):
    """What became of each check. Run once, also where tests are spread over several processes."""
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent  # of all of them

    @functools.cache
    def all_of_them():
        results = folder / "collective_checks.json"
        with open(folder / "collective_checks.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not results.exists():
                results.write_text(json.dumps(run_ranks("collective_checks", CHECKS, path=str(HERE))))
        return json.loads(results.read_text())

    return all_of_them


@pytest.mark.parametrize("name", CHECKS)
def test_two_ranks(outcomes, name):
    assert not outcomes()[name], outcomes()[name]


@pytest.mark.skipif(os.environ.get("REPRISE_TEST_FORM") != "full", reason="eight ranks take a minute; in the full form")
def test_hg_017_eight_ranks():
    outcome = run_ranks("collective_checks", ["hg_017_layers"], size=8, path=str(HERE))
    assert not outcome["hg_017_layers"], outcome


def test_hg_004_deterministic_algorithms():
    outcome = run_ranks("collective_checks", ["deterministic_algorithms"], path=str(HERE))
    assert not outcome["deterministic_algorithms"], outcome


def test_hg_015_groups_of_the_host_use_no_device(tmp_path):
    done = run_script(
        f"""
        import torch, torchair
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)

        def function(x):
            y = x * 2
            dist.all_reduce(y)
            return y + 1

        torchair.dynamo_export(torch.ones(4), model=function, export_path="{tmp_path}/exported")
        assert torch.npu.memory_reserved() == 0 and not torchair._hcom.communicators()  # dynamo asks for the stream, no more
        """
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "exported" / "dynamo.pbtxt").read_text()
    assert text.count('type: "HcomAllReduce"') == 1 and ";rank_list=0" in text
