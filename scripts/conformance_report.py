#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Says which items of a conformance checklist are covered, and how they fared.

    conformance_report.py --spec-ids tests/conformance/items.csv build/results/conformance_*.xml
    conformance_report.py --spec-ids items.csv --require 240 --markdown docs/conformance.md RESULT.xml...

The list is a CSV file with the columns id, section, text, and perhaps rank, which then gets a table of its own. Results
are XML files of GoogleTest programs (--gtest_output=xml) or pytest (--junitxml); a test covers every item whose id it
carries in its name, written AG_036 for AG-036. An item may have several
tests: it passed when all of them passed, failed when one failed, and otherwise counts as skipped, which our tests do
when a function is not there yet. An item without a result is missing.

Exit status: 0; 1 when fewer than --require items passed, or, with --require, an item failed; 2 for unreadable input.
"""
import argparse
import csv
import re
import signal
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

STATES = ("passed", "failed", "skipped", "missing")
ID_IN_NAME = re.compile(r"(?<![A-Za-z0-9])(AG|TN|TA|GE)_(\d{3})(?!\d)")

PREAMBLE = re.compile(r"\S+:\d+$|unknown file$|Skipped$|Failed$")


def read_items(path):
    """[(id, section, text)] in the order of the file, and {id: rank} if the file has ranks."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    items = [(row["id"], row["section"], row["text"]) for row in rows]
    ranks = {row["id"]: row["rank"] for row in rows if row.get("rank")}
    ids = [item[0] for item in items]
    repeated = sorted({i for i in ids if ids.count(i) > 1})
    if repeated:
        raise ValueError(f"{path}: listed twice: {', '.join(repeated)}")
    if not items:
        raise ValueError(f"{path}: no items")
    if ranks and len(ranks) < len(items):
        raise ValueError(f"{path}: without a rank: {', '.join(item[0] for item in items if item[0] not in ranks)}")
    return items, ranks


def state_of(case):
    """(state, reason) of one <testcase>."""
    failure = case.find("failure")
    if failure is None:
        failure = case.find("error")
    if failure is not None:
        return "failed", (failure.get("message") or failure.text or "").strip()
    skipped = case.find("skipped")
    if skipped is not None or case.get("result") in ("skipped", "suppressed") or case.get("status") == "notrun":
        return "skipped", ((skipped.get("message") or skipped.text or "") if skipped is not None else "").strip()
    return "passed", ""


def read_results(paths):
    """{id: [(test name, state, reason)]}"""
    results = {}
    for path in paths:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            state, reason = state_of(case)
            for prefix, number in ID_IN_NAME.findall(case.get("name") or ""):
                results.setdefault(f"{prefix}-{number}", []).append((name, state, reason))
    return results


def judge(tests):
    """State of an item from the states of its tests."""
    states = {state for _, state, _ in tests}
    if not states:
        return "missing"
    if "failed" in states:
        return "failed"
    return "skipped" if "skipped" in states else "passed"


def why(tests, state):
    """The beginning of the message that says why, for the lists."""
    for _, test_state, reason in tests:
        if test_state == state and reason:
            lines = [line.strip() for line in reason.splitlines() if line.strip()]
            # GoogleTest puts the place and, for a skip, the word first.
            while len(lines) > 1 and PREAMBLE.match(lines[0]):
                lines = lines[1:]
            text = "; ".join(lines[:4])
            return text if len(text) <= 160 else text[:157] + "..."
    return ""


def tabulate(group_of, verdicts):
    """Rows (group, number of items, covered, {state: count}) from {id: group}, the last one being the sum."""
    rows = []
    for name in [*dict.fromkeys(group_of.values()), "all"]:
        counts = dict.fromkeys(STATES, 0)
        for item, group in group_of.items():
            if name in (group, "all"):
                counts[verdicts[item]] += 1
        total = sum(counts.values())
        rows.append((name, total, total - counts["missing"], counts))
    return rows


def print_report(items, ranks, results, verdicts, out):
    sections = {item: section for item, section, _ in items}
    width = max(len(section) for section in sections.values())
    tables = {"section": sections}
    if ranks:
        tables["rank"] = dict(sorted(ranks.items(), key=lambda pair: pair[1]))
    for number, (title, group_of) in enumerate(tables.items()):
        if number > 0:
            print(file=out)
        print(f"{title:<{width}}  items  covered  passed  failed  skipped  missing", file=out)
        for name, total, covered, counts in tabulate(group_of, verdicts):
            print(f"{name:<{width}}  {total:>5}  {covered:>7}  {counts['passed']:>6}  {counts['failed']:>6}  "
                  f"{counts['skipped']:>7}  {counts['missing']:>7}", file=out)
    for state, title in (("failed", "failed"), ("missing", "missing (no result)")):
        listed = [(item, text) for item, _, text in items if verdicts[item] == state]
        if listed:
            print(f"\n{title}: {len(listed)}", file=out)
            for item, text in listed:
                reason = why(results.get(item, []), state)
                print(f"  {item}  {text}" + (f" -- {reason}" if reason else ""), file=out)
    waiting = {}
    for item, _, _ in items:
        if verdicts[item] == "skipped":
            waiting.setdefault(why(results[item], "skipped") or "no reason given", []).append(item)
    if waiting:
        print("\nskipped:", file=out)
        for reason, ids in sorted(waiting.items()):
            print(f"  {reason}: {', '.join(ids)}", file=out)
    unknown = sorted(set(results) - set(verdicts))
    if unknown:
        print(f"\nresults for ids that the list does not have: {', '.join(unknown)}", file=out)


def markdown(items, results, verdicts, source):
    lines = ["# Conformance", "",
             f"Written by `scripts/conformance_report.py` from the test results; the items are in `{source}`.",
             "An item passed when every test that carries its id passed; skipped means that a function it needs is not",
             "there yet.", "",
             "| section | items | covered | passed | failed | skipped | missing |", "|---|--:|--:|--:|--:|--:|--:|"]
    for name, total, covered, counts in tabulate({item: section for item, section, _ in items}, verdicts):
        strong = "**" if name == "all" else ""
        cells = [name, total, covered, *(counts[state] for state in STATES)]
        lines.append("| " + " | ".join(f"{strong}{cell}{strong}" for cell in cells) + " |")
    section = None
    for item, item_section, text in items:
        if item_section != section:
            section = item_section
            lines += ["", f"## {section[:1].upper()}{section[1:]}", "", "| item | what | state |", "|---|---|---|"]
        state = verdicts[item]
        reason = why(results.get(item, []), state) if state in ("failed", "skipped") else ""
        shown = state if not reason else f"{state}: {reason}"
        lines.append(f"| {item} | {text} | " + shown.replace("|", "\\|") + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec-ids", required=True, type=Path, metavar="CSV", help="the checklist: id,section,text[,rank]")
    parser.add_argument("--require", type=int, metavar="N", help="fail unless N items passed and none failed")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write a page for the documentation")
    parser.add_argument("results", nargs="*", type=Path, metavar="RESULT.xml", help="XML files of GoogleTest or pytest")
    options = parser.parse_args()

    try:
        items, ranks = read_items(options.spec_ids)
    except (OSError, ValueError, KeyError, csv.Error) as error:
        print(f"conformance_report: cannot read the checklist: {error}", file=sys.stderr)
        return 2
    results = {}
    for path in options.results:
        try:
            for item, tests in read_results([path]).items():
                results.setdefault(item, []).extend(tests)
        except FileNotFoundError:
            # The program did not run, or died before it wrote: its items show as missing.
            print(f"conformance_report: no result file {path}; run ctest first", file=sys.stderr)
        except (OSError, ElementTree.ParseError) as error:
            print(f"conformance_report: cannot read {path}: {error}", file=sys.stderr)
            return 2
    verdicts = {item: judge(results.get(item, [])) for item, _, _ in items}
    print_report(items, ranks, results, verdicts, sys.stdout)
    if options.markdown:
        root = Path(__file__).resolve().parent.parent
        source = options.spec_ids.resolve()
        source = source.relative_to(root) if source.is_relative_to(root) else options.spec_ids
        options.markdown.write_text(markdown(items, results, verdicts, source), encoding="utf-8")
    if options.require is not None:
        passed = sum(verdict == "passed" for verdict in verdicts.values())
        failed = sum(verdict == "failed" for verdict in verdicts.values())
        if passed < options.require or failed:
            print(f"\nconformance_report: {passed} passed, {options.require} required; {failed} failed",
                  file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # a reader that stops early (head) is no error
    sys.exit(main())
