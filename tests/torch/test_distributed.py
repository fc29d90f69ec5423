# SPDX-License-Identifier: Apache-2.0
"""The backend hccl of torch.distributed. Names carry items of the specification (HT)."""
import inspect

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
