#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libhccl.so and libhcomm.so as those find them who look names up at run time. Names carry items of the specification.

    library_test.py LIBRARY_FOLDER
"""

import csv
import ctypes
import re
import subprocess
import sys
import unittest
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FOLDER = None
with open(REPO / "api" / "hccl_functions.csv", newline="") as table:
    ROWS = list(csv.DictReader(table))
INLINE = {"HcclCommConfigInit"}  # in the header alone
OF_HCOMM = {"HcclGroupStart", "HcclGroupEnd", "HcommMemAlloc", "HcommMemFree"}  # looked up in libhcomm.so


def names(ranks):
    return [row["function"] for row in ROWS if row["rank"] in ranks and row["function"] not in INLINE]


def loaded():
    """The files that this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}


class Library(unittest.TestCase):
    def test_hc_001_names_of_rank_a_without_torch_or_mpi(self):
        before = loaded()
        hccl = ctypes.CDLL(str(FOLDER / "libhccl.so"))
        hcomm = ctypes.CDLL(str(FOLDER / "libhcomm.so"))
        self.assertGreater(len(names("A")), 40)
        for name in names("A"):
            library = hcomm if name in OF_HCOMM else hccl
            self.assertTrue(hasattr(library, name), name)
        new = loaded() - before
        self.assertTrue(any("libhccl.so" in path for path in new), new)
        foreign = [path for path in new if re.search(r"torch|libc10|mpi|libpython", Path(path).name)]
        self.assertEqual([], foreign)

    def test_hc_003_every_function_has_c_linkage(self):
        exported = set()
        for library in ("libhccl.so", "libhcomm.so"):
            command = ["nm", "-D", "--defined-only", str(FOLDER / library)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            exported |= {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines()}
        self.assertEqual([], [name for name in names("ABC") if name not in exported])
        # Nothing else leaves the libraries: no C++ symbol.
        self.assertEqual([], [name for name in exported if not re.match(r"Hccl|Hcomm|reprise_hcomm$", name)])

    def test_hc_003_what_is_inline_stands_in_the_header(self):
        text = (REPO / "include" / "hccl" / "hccl_comm.h").read_text()
        for name in INLINE:
            self.assertRegex(text, rf"static inline void {name}\(")


if __name__ == "__main__":
    FOLDER = Path(sys.argv.pop(1))
    unittest.main()
