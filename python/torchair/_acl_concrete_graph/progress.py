# SPDX-License-Identifier: Apache-2.0
"""A line on the terminal while a program captures many graphs. TORCHAIR_PROGRESS=1 shows it elsewhere, 0 never."""
import os
import sys
import time

_FROM = 4  # graphs of one function
_began = {}


def _is_shown():
    word = os.environ.get("TORCHAIR_PROGRESS", "")
    return word == "1" or (word != "0" and sys.stderr.isatty())


def captured(name, key, count, limit):
    _began.setdefault(name, time.monotonic())
    if count < _FROM or not _is_shown():
        return
    width = 24
    filled = "#" * (width * count // limit)
    seconds = time.monotonic() - _began[name]
    sys.stderr.write(f"\r{name}: [{filled:<{width}}] {count} graphs of at most {limit}, {seconds:.1f} s, key {key[:40]:<40}")
    sys.stderr.write("\n" if count == limit else "")
    sys.stderr.flush()
