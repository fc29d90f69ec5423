#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts single tests of a run: cases of GoogleTest and pytest from their XML files, other tests from ctest's own log.

Prints "passed failed skipped". A program that died before it wrote its XML counts as one failure.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def main() -> None:
    results, log = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text()
    passed = failed = skipped = 0
    counted = set()
    for path in sorted(results.glob("*.xml")):
        counted.add(path.stem)
        for case in ElementTree.parse(path).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
            elif case.find("skipped") is not None or case.get("result") == "skipped":
                skipped += 1
            elif case.get("status") != "notrun":
                passed += 1
    for name, verdict in re.findall(r"Test\s+#\d+: (\S+) \.*\s*(Passed|\*\*\*\S+)", log):
        if name in counted:
            continue
        passed, failed = (passed + 1, failed) if verdict == "Passed" else (passed, failed + 1)
    print(passed, failed, skipped)


main()
