#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libgraph.so exports what compiled programs link: symbols_test.py LIBRARY symbols.txt

symbols.txt lists the names that the published packages of PyTorch link, and functions with std::string in both forms."""

import subprocess
import sys
from pathlib import Path

library, table = map(Path, sys.argv[1:])
lines = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
there = {line.split()[-1] for line in lines.splitlines()}
missing = [name for name in table.read_text().split() if name not in there]
foreign = [name for name in there if not name.startswith(("_ZN2ge", "_ZNK2ge", "_ZN4gert", "_ZNK4gert", "_ZTVN2ge", "_ZTIN2ge", "_ZTSN2ge"))]
if missing or foreign:
    sys.exit(f"{library.name} lacks {missing}, and exports what is none of its own: {foreign}")
