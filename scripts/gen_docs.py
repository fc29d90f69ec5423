#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of docs/ that follow from tables.

    docs/errors.md         from src/base/errors.def, library_errors.def and tests/runtime/error_examples.txt
    docs/environment.md    from src/base/env.def
    docs/api-status.md     from api/*.csv and the built libraries; skipped while build/release has none

    scripts/gen_docs.py                     write the pages
    scripts/gen_docs.py --check             fail when a page on disk differs
    scripts/gen_docs.py --lib-dir DIR       libraries for the status page (default build/release/lib64)
"""

import argparse
import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import api_tables as api

REPO = Path(__file__).resolve().parent.parent
DOCS = REPO / "docs"
LIBRARIES = sorted({f"{f.library}.so" for f in api.Tables().functions if "/" not in f.library})

# First digits of a number -> heading. Every number finds one, the last by its catch-all.
FAMILIES = (
    (r"100\d{3}", "Usage of the interface (100xxx)"),
    (r"107\d{3}", "Usage of the runtime (107xxx)"),
    (r"20[07]\d{3}", "Resources and features (200xxx, 207xxx)"),
    (r"50\d{4}", "Execution and inner errors (500xxx, 507xxx)"),
    (r"[135]61\d{3}", "Operators (161xxx, 361xxx, 561xxx)"),
    (r"\d\d?", "Collectives (`libhccl.so`)"),
    (r"\d{8,}|-1", "Graph engine (`libge_runner.so`, `libgraph.so`)"),
    (r"\d+", "Other"),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the pages on disk, write nothing")
    parser.add_argument("--lib-dir", type=Path, default=REPO / "build" / "release" / "lib64", metavar="DIR")
    options = parser.parse_args()

    pages = {DOCS / "errors.md": render_errors(), DOCS / "environment.md": render_environment()}
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if not options.check:
        DOCS.mkdir(exist_ok=True)
        for path in stale:
            path.write_text(pages[path], encoding="utf-8")
            print(f"wrote {path.relative_to(REPO)}")
    else:
        for path in stale:
            print(f"{path.relative_to(REPO)} is stale; run scripts/gen_docs.py")
    status = api_status(options)
    return status or (1 if options.check and stale else 0)


def api_status(options):
    if not all((options.lib_dir / name).exists() for name in LIBRARIES):
        print(f"docs/api-status.md skipped: {options.lib_dir} has not all libraries; build first")
        return 0
    command = [sys.executable, REPO / "scripts" / "api_status.py", "--lib-dir", options.lib_dir]
    command += ["--write", DOCS / "api-status.md", *(["--check"] if options.check else [])]
    return subprocess.run(command, check=False).returncode


def rows_of(path, macro):
    """Arguments of each macro(…) line; C string and number literals read as Python ones, names as text."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(rf"{macro}\((.*)\)", line.strip()):
            arguments = re.findall(r'"(?:[^"\\]|\\.)*"|[^,\s][^,]*', match[1])
            yield [ast.literal_eval(a) if a[0] in '"0123456789' else a.strip() for a in arguments]


def cell(text):
    return str(text).replace("|", "\\|")


def sentence(text):
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def examples_of(path):
    """Number -> (lines of the program, lines of the message), or the reason why there is no example."""
    examples = {}
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        code, *lines = block.strip().splitlines()
        calls = [line[2:] for line in lines if line.startswith("> ")]
        words = [line[2:] for line in lines if line.startswith("< ")]
        examples[int(code)] = (calls, words) if calls else lines[0][2:]
    return examples


def render_example(example):
    if isinstance(example, str):
        return [example]
    calls, words = example
    lines = ["```c++", *calls, "```", "```text"]
    for line in words:
        lines += textwrap.wrap(line, 118, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return [*lines, "```"]


def render_errors():
    examples = examples_of(REPO / "tests" / "runtime" / "error_examples.txt")
    rows = [row[1:] for row in rows_of(REPO / "src" / "base" / "errors.def", "REPRISE_ERROR")]  # without our name
    libraries = rows_of(REPO / "src" / "base" / "library_errors.def", "REPRISE_LIBRARY_ERROR")
    libraries = [[int(str(row[0]), 0), *row[1:]] for row in libraries]
    rows += libraries
    codes = [row[0] for row in rows]
    if len(set(codes)) != len(codes):
        raise SystemExit("errors.def lists a number twice")
    parts = [
        "# Errors",
        "Made by `scripts/gen_docs.py` from `src/base/errors.def`, `library_errors.def` beside it and "
        "`tests/runtime/error_examples.txt`; do not edit. "
        "Every call returns one of these numbers or 0. `aclGetRecentErrMsg` has the words: what failed and why, the next "
        "step, and the culprit: which object is to blame, and where it came from. The advice of the tables is "
        "shown when an error has no better one of its own.",
        "Behind each table stands a small example for each number, with the words of its message. A test makes these "
        "calls and compares the words (`tests/runtime/error_examples_test.cc`); it runs with room for 16 streams, "
        "events, notifies and tasks of a stream, and with 1 GiB of device memory. `stream` and `side` are streams of "
        "aclrtCreateStream, `event` is one of `aclrtCreateEventExWithFlag(&event, ACL_EVENT_SYNC)`, `memory` is 4096 "
        "bytes of aclrtMalloc, `host` 4096 bytes of the program's own, `context` the current context, `other` a variable "
        "for another one, `events` and `notifies` are lists of handles. `NewTensor` makes an aclTensor of ACL_FLOAT, "
        "`Compile` calls aclopCompileAndExecute with as many inputs and outputs of four numbers as it is told, "
        "`\"mine\"` is a kernel table that holds the kernel `add`.",
    ]
    for pattern, title in FAMILIES:
        family = sorted(row for row in rows if re.fullmatch(pattern, str(row[0])))
        rows = [row for row in rows if row not in family]
        if not family:
            continue
        lines = [f"## {title}", "", "| Number | Name | Message code | Meaning | What to do |", "|--:|---|---|---|---|"]
        for code, name, category, meaning, solution in family:
            lines.append(f"| {code % 2**32} | `{name}` | {category} | {cell(meaning)} | {cell(advice(solution))} |")
        parts.append("\n".join(lines))
        for code, name, *_ in family:
            if code in (row[0] for row in libraries):
                continue
            parts.append("\n".join([f"### {code} {name}", "", *render_example(examples[code])]))
    return "\n\n".join(parts) + "\n"


def advice(solution):
    return sentence(solution) if solution else "As the message says: it depends on the call."


def render_environment():
    lines = [
        "# Environment variables",
        "",
        "Made by `scripts/gen_docs.py` from `src/base/env.def`; do not edit. Each variable is read once, at its first "
        "use in the process; changing it later has no effect. A misspelt name, "
        "a number that is none or out of range, and a file that cannot be written are said on standard error, once. "
        "No other variable is read.",
        "",
        "| Variable | Default | Meaning |",
        "|---|---|---|",
    ]
    for _, name, default, meaning in rows_of(REPO / "src" / "base" / "env.def", "REPRISE_ENV"):
        lines.append(f"| `{name}` | {f'`{default}`' if default else 'empty'} | {cell(sentence(meaning))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
