#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles sources one by one, with nothing but what they include: compile_alone.py FILE…

Takes the commands of build/lint (cmake --preset lint), stops behind the analysis, and fails with the compiler's words.
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent


def command(entry: dict) -> list[str]:
    """Without launchers and output, and without code to be made: -O0 is enough for the analysis."""
    words = shlex.split(entry["command"])
    compiler = next(i for i, word in enumerate(words) if pathlib.Path(word).name in ("c++", "g++", "clang++"))
    words = words[compiler:]
    output = words.index("-o")
    del words[output:output + 2]
    return [*words, "-O0", "-fsyntax-only"]


def main() -> int:
    asked = {str(ROOT / name) for name in sys.argv[1:]}
    entries = json.loads((ROOT / "build/lint/compile_commands.json").read_text())
    chosen = {entry["file"]: entry for entry in entries if entry["file"] in asked}

    def run(entry: dict) -> str:
        done = subprocess.run(command(entry), cwd=entry["directory"], capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stderr

    with ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 1))) as pool:
        words = [text for text in pool.map(run, chosen.values()) if text]
    print("".join(words), end="")
    return 1 if words else 0


if __name__ == "__main__":
    sys.exit(main())
