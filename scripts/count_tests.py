#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts single tests of a run: cases of GoogleTest and pytest from their XML files, other tests from ctest's own log.

    scripts/count_tests.py RESULTS LOG            prints "passed failed skipped"
    scripts/count_tests.py --failed RESULTS LOG   the names of tests that failed, and the first lines of why

A program that died before it wrote its XML counts as one failure.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

# What is shown of a run that fails: for all of it there is the log.
MOST_CASES, MOST_LINES, MOST_COLUMNS = 10, 6, 300


def outcome(case: ElementTree.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    if case.find("skipped") is not None or case.get("result") == "skipped":
        return "skipped"
    return "passed" if case.get("status") != "notrun" else ""


def exception_of(case: ElementTree.Element) -> list[str]:
    """What pytest shows of the exception."""
    found = case.find("failure")
    found = found if found is not None else case.find("error")
    lines = (found.text or "").splitlines()
    return [line for line in lines if line.startswith("E  ")][:MOST_LINES]


def expectations(log: str) -> list[str]:
    """Of GoogleTest: where it failed first and what was expected, also in processes that a test has started."""
    lines = log.splitlines()
    told = []
    for i in [i for i, line in enumerate(lines) if line.endswith(": Failure")][:MOST_CASES]:
        told.append(lines[i])
        for line in lines[i + 1:i + MOST_LINES]:
            if re.match(r"\s*\d+/\d+ Test|\[ ", line) or line.endswith(": Failure"):
                break
            told.append(line)
    return [line for line in told if line.strip()]


def read(results: pathlib.Path, log: str) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """The outcomes of all tests; the names of those that failed, each with its exception if it has one."""
    outcomes, failed, counted = [], [], set()
    for path in sorted(results.glob("*.xml")):
        counted.add(path.stem)
        for case in ElementTree.parse(path).iter("testcase"):
            outcomes.append(outcome(case))
            if outcomes[-1] == "failed":
                failed.append((f"{path.stem}: {case.get('classname')}.{case.get('name')}", exception_of(case)))
    for name, verdict in re.findall(r"Test\s+#\d+: (\S+) \.*\s*(Passed|\*\*\*\S+)", log):
        if name in counted:
            continue
        outcomes.append("passed" if verdict == "Passed" else "failed")
        if verdict != "Passed":
            failed.append((f"{name}: {verdict.strip('*:')}, and it left no results", []))
    return outcomes, failed


def main() -> None:
    results, log_path = [word for word in sys.argv[1:] if word != "--failed"]
    log = pathlib.Path(log_path).read_text(errors="replace")
    outcomes, failed = read(pathlib.Path(results), log)
    if "--failed" not in sys.argv:
        print(*(outcomes.count(each) for each in ("passed", "failed", "skipped")))
        return
    for name, words in failed[:MOST_CASES]:
        print(f"FAILED {name}", *words, sep="\n    ")
    if len(failed) > MOST_CASES:
        print(f"    … and {len(failed) - MOST_CASES} more")
    for line in expectations(log):
        print(f"    {line[:MOST_COLUMNS]}")


main()
