# SPDX-License-Identifier: Apache-2.0
"""PyTorch's table of operators through the published package; op_table.py is the harness, in an interpreter of its own,
since it forks, which a process that has used the device must not.

The short form takes every twelfth operator with up to three samples; REPRISE_TEST_FORM=full takes all operators with all
samples that are small, and holds the list of expected failures against them in both directions.
"""

import os
import pathlib

import op_table
import pytest

FULL = os.environ.get("REPRISE_TEST_FORM") == "full"
PARTS = 12
HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("part", range(PARTS if FULL else 1))
def test_operators_of_the_table(part, run):
    run(f"""
        import sys
        sys.path.insert(0, "{HERE}")
        import op_table
        answers = op_table.run_rows(op_table.rows_of("{part}/{PARTS}"), {op_table.ALL if FULL else 3})
        assert len(answers) > 100
        lines = op_table.differences(answers, {FULL})
        assert not lines, "\\n".join(lines)
    """)


def test_most_rows_pass():
    """Of the rows of PyTorch 2.13 at least 97 % forward and 95 % backward."""
    names = {op_table.name_of(op) for op in op_table.op_db}
    expected = op_table.expected_failures()
    assert all(name in names for _, name in expected), "a line names no operator of this PyTorch"
    for direction, share in (("forward", 0.97), ("backward", 0.95)):
        failing, rows = sum(of == direction for of, _ in expected), op_table.ROWS[direction]
        assert failing <= (1 - share) * rows, f"{direction}: {failing} of {rows} rows are expected to fail"


def test_a_failure_does_not_reach_later_rows(run):
    """A row that fails, ends or hangs is its own failure; the rows after it answer for themselves."""
    run(f"""
        import os, sys, time
        sys.path.insert(0, "{HERE}")
        import op_table

        def answers(names):
            rows = [row for name in names for row in op_table.rows_of(only=f"^{{name}}$", directions=("forward",))]
            return list(op_table.run_rows(rows, 3).values())

        first, second, third, fourth = answers(("float_power", "add", "double", "mul"))
        assert "float64" in first and "float64" in third and second == fourth == op_table.PASS

        run_row = op_table.run_row
        op_table.SECONDS = 30
        ways = {{"add": lambda: os._exit(3), "sub": lambda: time.sleep(1000)}}
        op_table.run_row = lambda op, *rest: ways.get(op.name, lambda: run_row(op, *rest))()
        ended, hung, passed = answers(("add", "sub", "mul"))
        assert ended == "the process ended with 3" and hung == "the process ended with -9" and passed == op_table.PASS
    """)
