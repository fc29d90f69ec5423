# SPDX-License-Identifier: Apache-2.0
"""PyTorch's table of operators on npu: one sample of each, or with REPRISE_TORCH_SWEEP=full more, and all types.

REPRISE_TEST_FORM=full adds all layouts of several samples in float32. Otherwise it is content with the quick sweep:
op_sweep_expected.txt does not say yet of everything that only the full one shows whether it may be. `python op_sweep.py --full` runs that without pytest.
"""
import os
import warnings

import op_sweep
import pytest
import torch

PARTS = 12
FULL = os.environ.get("REPRISE_TORCH_SWEEP") == "full"
ALL_LAYOUTS = FULL or os.environ.get("REPRISE_TEST_FORM") == "full"


def check(number, full, **options):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers = op_sweep.sweep(op_sweep.part(number, PARTS), full=full, **options)
    finally:
        torch.set_num_threads(threads)
    assert len(answers) > 50
    worse, better = op_sweep.differences(answers, full)
    assert not worse, "\n".join(worse)
    assert not better, "\n".join(better)


@pytest.mark.timeout(4 * 3600 if FULL else 3600)  # for what hangs, however busy the machine is
@pytest.mark.parametrize("number", range(PARTS))
def test_TN_309_operators_of_the_database(number):
    check(number, FULL)


@pytest.mark.skipif(not ALL_LAYOUTS, reason="one layout of each operator is enough for the short form")
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("number", range(PARTS))
def test_operators_of_the_database_in_all_layouts(number):
    check(number, True, modes=("layouts", "layouts_backward", "strides"), types="float32$")


def test_TN_309_most_operators_pass():
    """The list of what does not is kept short: at most one operator in fifty, eagerly and captured."""
    names = {op_sweep.name_of(op) for op in op_sweep.op_db}
    failures = op_sweep.expected_failures()
    assert all(name in names for _, name, _ in failures), "a line names no operator of this PyTorch"
    for mode in ("eager", "captured"):
        # What needs a value on the host is refused in captures by rule.
        failing = {
            name
            for (of, name, _), (_, reason) in failures.items()
            if of == mode and not reason.startswith("needs the value on the host")
        }
        assert len(failing) <= len(names) / 50, (mode, sorted(failing))
