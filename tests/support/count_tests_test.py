#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/count_tests.py on results of GoogleTest, of pytest, and of a program that died."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent.parent.parent / "scripts" / "count_tests.py"
GOOGLETEST = """<testsuites><testsuite name="Slot">
<testcase name="Opens" status="run" result="completed" classname="Slot"/>
<testcase name="DISABLED_Closes" status="notrun" result="suppressed" classname="Slot"/>
<testcase name="Waits" status="run" result="skipped" classname="Slot"><skipped message="no network"/></testcase>
<testcase name="Moves" status="run" result="completed" classname="Slot"><failure message="m">m</failure></testcase>
</testsuite></testsuites>"""
PYTEST = """<testsuites><testsuite name="pytest"><testcase classname="tests.test_add" name="test_sum">
<failure message="assert">def test_sum():
&gt;       assert 1 + 1 == 3
E       assert (1 + 1) == 3
tests/test_add.py:4: AssertionError</failure></testcase></testsuite></testsuites>"""
LOG = """ 1/3 Test #1: unit_slot ......***Failed    0.10 sec
tests/unit/slot_test.cc:7: Failure
Expected equality of these values:
  1
 2/3 Test #2: unit_dead ......***Exception: SegFault  0.01 sec
 3/3 Test #3: unit_alone .....   Passed    0.01 sec
"""


class Count(unittest.TestCase):
    def run_on(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            results = Path(folder) / "results"
            results.mkdir()
            (results / "unit_slot.xml").write_text(GOOGLETEST)
            (results / "torch.xml").write_text(PYTEST)
            log = Path(folder) / "log"
            log.write_text(LOG)
            return subprocess.run([sys.executable, PROGRAM, *arguments, results, log], check=True, text=True,
                                  capture_output=True).stdout

    def test_each_test_counts_once(self):
        self.assertEqual("2 3 1\n", self.run_on())

    def test_what_failed_is_named(self):
        told = self.run_on("--failed")
        for part in ("FAILED unit_slot: Slot.Moves\n", "FAILED unit_dead: ", "FAILED torch: tests.test_add.test_sum\n",
                     "E       assert (1 + 1) == 3\n", "slot_test.cc:7: Failure\n", "Expected equality of these values:"):
            self.assertIn(part, told)
        self.assertNotIn("Opens", told)
        self.assertNotIn("unit_alone", told)


if __name__ == "__main__":
    unittest.main()
