# SPDX-License-Identifier: Apache-2.0
"""Collectives in compiled functions. Names carry items of the specification (HG, TA)."""
import inspect
import sys
from pathlib import Path

import collective_checks
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "torch"))
from ranks import run_ranks  # noqa: E402

CHECKS = [name for name, _ in inspect.getmembers(collective_checks, inspect.isfunction) if name.startswith("hg_")]


@pytest.fixture(scope="module")
def outcomes():
    return run_ranks("collective_checks", CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_two_ranks(outcomes, name):
    assert not outcomes[name], outcomes[name]
