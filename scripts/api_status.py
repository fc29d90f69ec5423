#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says which functions of the public interface the built libraries offer: implemented, refused with a reason, or not
there yet.

    scripts/api_status.py --lib-dir build/lib                               print the page
    scripts/api_status.py --lib-dir build/lib --write docs/api-status.md    write it
    scripts/api_status.py --lib-dir build/lib --write docs/api-status.md --check
    scripts/api_status.py --lib-dir build/lib --summary                     short table

--check writes nothing. It fails when a library exports an acl* symbol that no table declares, or when the page
on disk differs. --summary fails when a function of rank A is refused or missing.
"""

import argparse
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import api_tables as api
import gen_ops
import gen_refusals

OPERATORS = sorted((api.API_DIR / "ops").glob("*.csv"))
SINGLE_PHASE = api.API_DIR / "single_phase.csv"
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
    operators = [row["operator"] for path in OPERATORS for row in api.read_csv(path)]
    exported = exported_symbols(options.lib_dir)
    page = render_page(tables, operators, exported)
    if options.check:
        return check(options.write or PAGE, page, unknown_symbols(tables, operators, exported))
    if options.summary:
        print(render_summary(tables, operators, exported))
        return 1 if rank_a_without(tables, exported) else 0
    if options.write:
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
    libraries = [path for path in sorted(directory.glob("lib*.so")) if path.name != "libreprise.so"]
    if not libraries:
        raise SystemExit(f"{directory} has no libraries; build first")
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
    known |= {f"{operator}GetMaxWorkspaceSize" for operator in gen_ops.WITH_MOST}
    known |= {row["function"] for row in api.read_csv(SINGLE_PHASE)}
    known |= {row["operator"] + phase for row in api.read_csv(gen_ops.REFUSED) for phase in ("", "GetWorkspaceSize")}
    candidates = {s for s in exported if s.startswith(("acl", "Acl"))}
    if operators is None:
        candidates = {s for s in candidates if not s.startswith("aclnn")}
    return sorted(candidates - known)


@dataclass
class Count:
    declared: int = 0
    implemented: int = 0
    refused: int = 0

    def add(self, state):
        self.declared += 1
        self.implemented += state == "implemented"
        self.refused += state == "refused"

    @property
    def missing(self):
        return self.declared - self.implemented - self.refused

    def __str__(self):
        return f"{self.implemented}/{self.declared}" if self.declared else "-"


def states(tables, exported):
    """{function name: implemented, refused or missing}"""
    refused = {function.name for function, _ in gen_refusals.refusals(tables)}
    return {
        f.name: "missing" if f.name not in exported else "refused" if f.name in refused else "implemented"
        for f in tables.declared_functions
    }


def rank_a_without(tables, exported):
    state = states(tables, exported)
    return [f.name for f in tables.declared_functions if f.rank == "A" and state[f.name] != "implemented"]


def count_by(tables, exported, key):
    """{key(function): {rank: Count}}, in the order of the headers; "all" sums the ranks."""
    state = states(tables, exported)
    counts = defaultdict(lambda: defaultdict(Count))
    for function in tables.declared_functions:
        for rank in (function.rank, "all"):
            counts[key(function)][rank].add(state[function.name])
    return counts


def exported_operators(operators, exported):
    return [o for o in operators if o in exported and f"{o}GetWorkspaceSize" in exported]


# Page


def render_page(tables, operators, exported):
    parts = [
        "# Which calls exist",
        "Made by `scripts/api_status.py` from the tables under `api/` and the symbols of the built libraries; "
        "do not edit. Refused: the function can be linked and says why it does nothing. The last three columns read "
        "implemented/declared. Ranks: " + ", ".join(f"{rank} {meaning}" for rank, meaning in RANKS.items()) + ".",
        render_area_table(tables, exported),
        *operator_section(operators, exported),
        *refused_section(tables),
        "## Declared, not there yet",
        *missing_sections(tables, exported),
        *absent_section(tables),
    ]
    return "\n\n".join(parts) + "\n"


def render_area_table(tables, exported):
    counts = count_by(tables, exported, lambda f: (f"`{f.header}`" if f.header else "none", f.area))
    total = count_by(tables, exported, lambda f: "total")["total"]
    lines = [
        "| Header | Area | Declared | Implemented | Refused | Not yet | A | B | C |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for (header, area), ranks in counts.items():
        lines.append(area_row(header, tables.area_titles[area], ranks))
    return "\n".join([*lines, area_row("**all**", "", total)])


def area_row(header, title, ranks):
    every = ranks["all"]
    cells = [header, title, every.declared, every.implemented, every.refused, every.missing]
    return f"| {' | '.join(map(str, [*cells, *(ranks[rank] for rank in RANKS)]))} |"


def operator_section(operators, exported):
    if operators is None:
        return []
    done = exported_operators(operators, exported)
    text = f"{len(done)} of {len(operators)} known aclnn operators are exported, both phases of each."
    names = [", ".join(f"`{name}`" for name in sorted(done))] if done else []
    return ["## Operators", text, *names]


def refused_section(tables):
    """The table of refusals, patterns as one row."""
    counts = defaultdict(int)
    for _, row in gen_refusals.refusals(tables):
        counts[row["function"]] += 1
    lines = ["| Function | Count | Number | Reason | Instead |", "|---|--:|--:|---|---|"]
    for row in api.read_csv(gen_refusals.TABLE):
        name = row["function"]
        lines.append(f"| `{name}` | {counts[name]} | {row['number']} | {row['reason']} | {row['advice']} |")
    return ["## Refused", "\n".join(lines)]


def missing_sections(tables, exported):
    missing = defaultdict(list)
    for function in tables.declared_functions:
        if function.name not in exported:
            missing[function.area].append(function)
    if not missing:
        return ["Nothing."]
    return [
        f"### {tables.area_titles[area]}\n\n"
        + "\n".join(f"- {f.rank} `{f.name}`: {f.summary}" for f in sorted(functions, key=lambda f: f.rank))
        for area, functions in missing.items()
    ]


def absent_section(tables):
    """Functions without a header, which programs look up by name and can do without."""
    names = ", ".join(f"`{f.name}`" for f in tables.functions if not f.header)
    text = "Programs look these up by name and take their other way when there is none, which is right here: "
    return ["## Absent on purpose", f"{text}{names}."]


def render_summary(tables, operators, exported):
    ranks = count_by(tables, exported, lambda f: "total")["total"]
    rows = [(f"rank {rank}, {meaning}", ranks[rank]) for rank, meaning in RANKS.items()]
    width = max(len(title) for title, _ in rows) + 1
    lines = [f"{'functions':<{width}} declared  implemented  refused  missing"]
    lines += [
        f"{title:<{width}} {c.declared:>8}  {c.implemented:>11}  {c.refused:>7}  {c.missing:>7}" for title, c in rows
    ]
    without = rank_a_without(tables, exported)
    lines.append(f"rank A refused or missing: {', '.join(without) or 'none'}")
    if operators is not None:
        lines.append(f"aclnn operators: {len(exported_operators(operators, exported))} of {len(operators)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
