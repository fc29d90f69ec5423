#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says which functions of the public interface the built libraries export.

    scripts/api_status.py --lib-dir build/lib                               print the page
    scripts/api_status.py --lib-dir build/lib --write docs/api-status.md    write it
    scripts/api_status.py --lib-dir build/lib --write docs/api-status.md --check
    scripts/api_status.py --lib-dir build/lib --summary                     short table for the README

--check writes nothing. It fails when a library exports an acl* symbol that no table declares, or when the page
on disk differs. Operators are compared with api/ops.csv once that table exists.
"""

import argparse
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import api_tables as api

LIBRARIES = ("libascendcl.so", "libnnopbase.so", "libopapi.so", "libacl_op_executor.so", "libacl_op_compiler.so",
             "libacl_cblas.so")
OPERATORS = api.API_DIR / "ops.csv"
RANKS = {"A": "needed by samples and frameworks", "B": "common", "C": "rare"}
PAGE = api.REPO / "docs" / "api-status.md"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib-dir", type=Path, required=True, help="folder with the built libraries")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="file to write, or to compare with --check")
    parser.add_argument("--check", action="store_true", help="fail on unknown symbols or a stale page")
    parser.add_argument("--summary", action="store_true", help="print a short table instead of the page")
    options = parser.parse_args()

    tables = api.Tables()
    operators = [row["operator"] for row in api.read_csv(OPERATORS)] if OPERATORS.exists() else None
    exported = exported_symbols(options.lib_dir)
    page = render_page(tables, operators, exported)
    if options.check:
        return check(options.write or PAGE, page, unknown_symbols(tables, operators, exported))
    if options.summary:
        print(render_summary(tables, operators, exported))
    elif options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(page)
    else:
        print(page, end="")
    return 0


def check(path, page, unknown):
    for symbol in unknown:
        print(f"{symbol} is exported, but no table declares it")
    stale = not path.exists() or path.read_text() != page
    if stale:
        print(f"{path} is stale, write it again with --write")
    return 1 if unknown or stale else 0


# Facts


def exported_symbols(directory):
    libraries = [directory / name for name in LIBRARIES if (directory / name).exists()]
    if not libraries:
        raise SystemExit(f"{directory} has none of {', '.join(LIBRARIES)}")
    return set().union(*map(symbols_of, libraries))


def symbols_of(library):
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", library], check=True, capture_output=True, text=True
    ).stdout
    # A versioned symbol reads name@@version.
    return {line.split()[0].split("@")[0] for line in listing.splitlines()}


def unknown_symbols(tables, operators, exported):
    known = {f.name for f in tables.functions}
    for operator in operators or ():
        known |= {operator, f"{operator}GetWorkspaceSize"}
    candidates = {s for s in exported if s.startswith(("acl", "Acl"))}
    if operators is None:
        candidates = {s for s in candidates if not s.startswith("aclnn")}
    return sorted(candidates - known)


@dataclass
class Count:
    declared: int = 0
    exported: int = 0

    def add(self, is_exported):
        self.declared += 1
        self.exported += is_exported

    def __str__(self):
        return f"{self.exported}/{self.declared}" if self.declared else "-"


def count_by(tables, exported, key):
    """{key(function): {rank: Count}}, in the order of the headers; "all" sums the ranks."""
    counts = defaultdict(lambda: defaultdict(Count))
    for function in tables.functions:
        for rank in (function.rank, "all"):
            counts[key(function)][rank].add(function.name in exported)
    return counts


def exported_operators(operators, exported):
    return [o for o in operators if o in exported and f"{o}GetWorkspaceSize" in exported]


# Page


def render_page(tables, operators, exported):
    parts = [
        "# Which calls exist",
        "Made by `scripts/api_status.py` from the tables under `api/` and the symbols of the built libraries; "
        "do not edit. A cell reads exported/declared. Ranks: "
        + ", ".join(f"{rank} {meaning}" for rank, meaning in RANKS.items())
        + ".",
        render_area_table(tables, exported),
        *operator_section(operators, exported),
        "## Declared, not exported",
        *missing_sections(tables, exported),
    ]
    return "\n\n".join(parts) + "\n"


def render_area_table(tables, exported):
    counts = count_by(tables, exported, lambda f: (f"`{f.header}`" if f.header else "none", f.area))
    total = count_by(tables, exported, lambda f: "total")["total"]
    lines = ["| Header | Area | Declared | Exported | Not yet | A | B | C |", "|---|---|--:|--:|--:|--:|--:|--:|"]
    for (header, area), ranks in counts.items():
        lines.append(area_row(header, tables.area_titles[area], ranks))
    return "\n".join([*lines, area_row("**all**", "", total)])


def area_row(header, title, ranks):
    every = ranks["all"]
    cells = [header, title, every.declared, every.exported, every.declared - every.exported]
    return f"| {' | '.join(map(str, [*cells, *(ranks[rank] for rank in RANKS)]))} |"


def operator_section(operators, exported):
    if operators is None:
        return []
    done = exported_operators(operators, exported)
    text = f"{len(done)} of {len(operators)} known aclnn operators are exported, both phases of each."
    names = [", ".join(f"`{name}`" for name in sorted(done))] if done else []
    return ["## Operators", text, *names]


def missing_sections(tables, exported):
    missing = defaultdict(list)
    for function in tables.functions:
        if function.name not in exported:
            missing[function.area].append(function)
    if not missing:
        return ["Nothing: every declared function is exported."]
    return [
        f"### {tables.area_titles[area]}\n\n"
        + "\n".join(f"- {f.rank} `{f.name}`: {f.summary}" for f in sorted(functions, key=lambda f: f.rank))
        for area, functions in missing.items()
    ]


def render_summary(tables, operators, exported):
    ranks = count_by(tables, exported, lambda f: "total")["total"]
    lines = ["| Functions | Exported |", "|---|--:|"]
    lines += [f"| rank {rank}, {meaning} | {ranks[rank]} |" for rank, meaning in RANKS.items()]
    if operators is not None:
        lines.append(f"| aclnn operators | {len(exported_operators(operators, exported))}/{len(operators)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
