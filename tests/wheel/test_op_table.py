# SPDX-License-Identifier: Apache-2.0
"""PyTorch's table of operators through the published package; op_table.py is the harness.

The short form takes every twelfth operator with up to three samples; REPRISE_TEST_FORM=full takes all operators with all
samples that are small, and holds the list of expected failures against them in both directions.
"""

import os

import op_table
import pytest

FULL = os.environ.get("REPRISE_TEST_FORM") == "full"
PARTS = 12


@pytest.mark.parametrize("part", range(PARTS if FULL else 1))
def test_operators_of_the_table(part):
    answers = op_table.run_rows(op_table.rows_of(f"{part}/{PARTS}"), 1000 if FULL else 3)
    assert len(answers) > 100
    lines = op_table.differences(answers, FULL)
    assert not lines, "\n".join(lines)


def test_most_rows_pass():
    """Of the rows of PyTorch 2.13 at least 97 % forward and 95 % backward."""
    names = {op_table.name_of(op) for op in op_table.op_db}
    expected = op_table.expected_failures()
    assert all(name in names for _, name in expected), "a line names no operator of this PyTorch"
    for direction, rows, share in (("forward", 692, 0.97), ("backward", 532, 0.95)):
        failing = sum(of == direction for of, _ in expected)
        assert failing <= (1 - share) * rows, f"{direction}: {failing} of {rows} rows are expected to fail"


def test_a_failure_does_not_reach_later_rows():
    """A row that cannot pass ends its process; the rows after it, and the same row alone, answer for themselves."""
    rows = [row for name in ("float_power", "add", "double", "mul") for row in op_table.rows_of(only=f"^{name}$")]
    answers = op_table.run_rows([row for row in rows if row[1] == "forward"], 1000)
    assert [answer == op_table.PASS for answer in answers.values()] == [False, True, False, True]
    assert "float64" in answers["forward", "float_power"]


def test_processes_that_end_or_hang_are_answers(monkeypatch):
    add = op_table.rows_of(only="^(add|mul)$", directions=("forward",))
    monkeypatch.setattr(op_table, "run_row", lambda op, *_: os._exit(3) if op.name == "add" else op_table.PASS)
    assert op_table.run_rows(add, 1) == {("forward", "add"): "the process ended with 3", ("forward", "mul"): ""}
