#!/usr/bin/env python3
"""check_locks.py [FILE…]: clang's analysis of locks over the core, or over some of its sources.

Members say which lock guards them, functions which they need (src/base/thread_annotations.h); clang finds the access
that does not hold it. Sources are read in batches, which pays for their headers once; a batch whose names collide is read
file by file. src/kernels has no locks. A lint of the whole core takes a CPU minute or two.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BATCH = 8
# Sources that are left out, and why.
LEFT_OUT = {
    "src/compiler/export/export.cc": "reads a header that protoc writes; no locks",
    "src/compiler/import/entry.cc": "as export.cc",
    "src/compiler/import/fields.cc": "as export.cc",
    "src/compiler/import/import.cc": "as export.cc",
    "src/ops/op_call.cc": "clang 14 does not read the views of libstdc++ 12",
    "src/runtime/stream.cc": "TryReserve hands the producer's lock on to Commit",
}
FLAGS = ["-std=c++20", "-fsyntax-only", "-Isrc", "-Iinclude", "-DREPRISE_VERSION=\"\"", "-ferror-limit=0", "-Wno-everything",
         "-Wthread-safety", "-Werror=thread-safety"]


def find_clang():
    for version in ["", *(f"-{number}" for number in range(21, 13, -1))]:
        if path := shutil.which(f"clang++{version}"):
            return path
    sys.exit("no clang++ found; scripts/deps.sh lint installs it")


def analyse(clang, files):
    """What clang says about the locks of `files`; as one source if they are several."""
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as batch:
        batch.writelines(f'#include "{ROOT / file}"\n' for file in files)
        batch.flush()
        done = subprocess.run([clang, *FLAGS, batch.name], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        return []
    others = [line for line in done.stderr.splitlines() if " error: " in line and "-Wthread-safety" not in line]
    if others and len(files) > 1:
        return [line for file in files for line in analyse(clang, [file])]
    return done.stderr.replace(f"{ROOT}/", "").splitlines()


def batches(files):
    by_folder = {}
    for file in files:
        by_folder.setdefault(os.path.dirname(file), []).append(file)
    for folder in sorted(by_folder):
        group = by_folder[folder]
        for i in range(0, len(group), BATCH):
            yield group[i:i + BATCH]


def main():
    files = sys.argv[1:]
    if not files:
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/*.cc"], cwd=ROOT,
                                capture_output=True, text=True, check=True).stdout.split()
        files = [file for file in listed if not re.search(r"^src/kernels/|_test\.cc$", file) and (ROOT / file).exists()]
    files = [file for file in files if file not in LEFT_OUT]
    clang = find_clang()
    with ThreadPoolExecutor(int(os.environ.get("JOBS") or os.cpu_count())) as pool:
        told = [line for lines in pool.map(lambda group: analyse(clang, group), batches(files)) for line in lines]
    print("\n".join(dict.fromkeys(told)) if told else f"{len(files)} sources hold the locks that they say")
    return 1 if told else 0


sys.exit(main())
