#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which operators there are, how often each is tested, and how far off it was at worst.

    scripts/ops_report.py                 summary; fails when an operator of api/ops_wanted.csv is missing or untested
    scripts/ops_report.py --write PAGE    the page docs/operators.md as well

Reads the table (api/ops), what is wanted (api/ops_wanted.csv), and what the last run of tests/ops left in build/ops.
"""

import argparse
import csv
import json
import sys
import textwrap
from collections import defaultdict
from pathlib import Path

import gen_ops
import op_tables

REPO = gen_ops.REPO
WANTED = REPO / "api" / "ops_wanted.csv"
SINGLE_PHASE = {"aclnnCalculateMatmulWeightSizeV2"}  # a function of its own, without phases
TYPES = ["float32", "float16", "bfloat16", "float64", "complex64", "complex128"]


def load(folder):
    counts, worst = defaultdict(int), {}
    for path in sorted(folder.glob("*.json")):
        data = json.loads(path.read_text())
        for name, count in data["counts"].items():
            counts[name] = max(counts[name], count)
        for name, dtype, error in data["worst"]:
            key = (name, dtype.removeprefix("torch."))
            worst[key] = max(worst.get(key, 0.0), error)
    return counts, worst


def exported(name):
    headers = REPO / "include" / "aclnnop"
    return any(name + "(" in path.read_text() for path in headers.glob("*.h"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="PAGE")
    parser.add_argument("--results", type=Path, default=REPO / "build" / "ops")
    options = parser.parse_args()

    families = gen_ops.read_table()
    operators = {op.name: op for ops in families.values() for op in ops}
    with open(WANTED, newline="") as file:
        wanted = {row["operator"]: row["rank"] for row in csv.DictReader(file)}
    missing = [name for name in wanted if name not in operators and not (name in SINGLE_PHASE and exported(name))]
    counts, worst = load(options.results)
    untested = [name for name in operators if counts.get(op_tables.short_name(name), 0) == 0]

    summary = (f"{len(wanted) - len(missing)} of {len(wanted)} wanted operators, {len(operators)} in all; "
               f"{len(operators) - len(untested)} tested against PyTorch, {sum(counts.values())} cases")
    print(summary)
    largest = {dtype: max(((error, name) for (name, of), error in worst.items() if of == dtype), default=(0, "-"))
               for dtype in TYPES}
    for dtype, (error, name) in largest.items():
        print(f"  {dtype:10} at worst {error:.3g} units of its spacing ({name})")
    for title, names in (("missing", missing), ("untested", untested)):
        if names:
            print(f"{title}: {' '.join(op_tables.short_name(name) for name in names)}")
    if options.write:
        options.write.write_text(page(summary, families, counts, worst))
    return 1 if missing or untested else 0


def page(summary, families, counts, worst):
    lines = ["# Operators", "",
             "The operators of `libopapi.so`, by family (`api/ops`). Written by `scripts/ops_report.py --write "
             "docs/operators.md` from the last run of `tests/ops`, which holds each against PyTorch on the CPU: eagerly on "
             "row-major and on scattered memory, captured and replayed, and with arguments that must be refused.", "",
             f"{summary}.", "",
             "Bound: the error that the tests allow, in units of the spacing of numbers of the type (wide types / 16-bit "
             "types), for each element or of the largest element. Worst: the largest error seen, in the same units.", ""]
    for family, ops in families.items():
        lines += [f"## {family.replace('_', ' ').capitalize()}", "",
                  "| Operator | Types | Bound | Cases | Worst |", "|---|---|---|--:|---|"]
        for op in ops:
            seen = [f"{dtype} {worst[op.id, dtype]:.2g}" for dtype in TYPES if worst.get((op.id, dtype))]
            lines.append(f"| `{op.name}` | {gen_ops.TYPES[op.types]} | {op.bound} | {counts.get(op.id, 0)} | "
                         f"{', '.join(seen) or '0'} |")
        lines.append("")
    return "\n".join(lines + declared_section({op.name for ops in families.values() for op in ops}))


def declared_section(has):
    rows, _ = gen_ops.read_declared(has)
    refused = gen_ops.read_refused(rows)
    rows = [row for row in rows if row["operator"] not in refused]
    names = ", ".join(op_tables.short_name(row["operator"]) for row in rows)
    text = (f"The headers of `include/aclnnop` declare {len(rows)} more functions (`api/ops_declared.csv`), so that programs "
            "which include them compile; a program that calls one does not link, and the linker names it:")
    told = [f"| `{name}` | {row['reason']} | {row['advice']} |" for name, row in refused.items()]
    return ["## Refused", "", "These are exported, and always fail (`api/ops_refused.csv`):", "",
            "| Operator | Why | Instead |", "|---|---|---|", *told, "",
            "## Declared, not there yet", "", text, "", *textwrap.wrap(names, 120, break_on_hyphens=False), ""]


if __name__ == "__main__":
    sys.exit(main())
