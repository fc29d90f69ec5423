#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that the tests catch defects: builds mutants, which are small mistakes, and runs the tests that must notice.

    mutants.py [--only NAME]... [--build-dir DIR] [--jobs N]
    mutants.py --list           names and mistakes
    mutants.py --check          whether every mutant still fits the sources; builds nothing

tests/mutants/*.toml lists them:

    [[mutant]]
    name = "…"                  unique
    wrong = "…"                 the mistake, in words
    file = "src/…"              a .cc file if possible: a header rebuilds much
    old = '''…'''               stands in the file exactly once
    new = '''…'''
    caught_by = ["PROGRAM GTEST_FILTER", …]   each of them must fail

The sources are copied into DIR/source (DIR is build/mutants), and the preset release is built there, only the programs
that somebody names. Unmutated, all of them must pass. Then each mutant is built and its programs run; a program that
crashes or hangs has caught it, too. Exit status 1, and 'N passed, N failed' with N > 0 as the last line, if a program
fails without a mutant, or if a mutant survives, fits no more or does not compile.
"""
import argparse
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = "tests/mutants"
KEYS = {"name": str, "wrong": str, "file": str, "old": str, "new": str, "caught_by": list}
# A program that runs so many times as long as it did without a mutant hangs; but on a busy machine nothing is fast.
SLOWER, AT_LEAST_S = 20, 60
BASELINE_S = 600


class Problem(Exception):
    """What the user is told."""


def read_mutants(folder):
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise Problem(f"{path.name}: {error}") from error
        for mutant in table.get("mutant", []):
            name = mutant.get("name", "without a name")
            wrong = [key for key, kind in KEYS.items()
                     if not isinstance(mutant.get(key), kind) or (not mutant[key] and key != "new")]
            wrong += [key for key in mutant if key not in KEYS]
            if wrong:
                raise Problem(f"{path.name}: mutant {name}: missing, empty or unknown: {', '.join(wrong)}")
            if any(len(entry.split()) != 2 for entry in mutant["caught_by"]):
                raise Problem(f"{path.name}: mutant {name}: caught_by takes 'PROGRAM GTEST_FILTER'")
            mutants.append(mutant)
    names = [mutant["name"] for mutant in mutants]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise Problem(f"listed twice: {', '.join(repeated)}")
    if not mutants:
        raise Problem(f"no mutants in {folder}")
    return mutants


def apply(mutant, root):
    """The text of the file with the mistake in it."""
    path = root / mutant["file"]
    if not path.is_file():
        raise Problem(f"does not apply: there is no {mutant['file']}")
    text = path.read_text(encoding="utf-8")
    count = text.count(mutant["old"])
    if count != 1:
        raise Problem(f"does not apply: its old text stands {count} times in {mutant['file']}, not once")
    if mutant["old"] == mutant["new"]:
        raise Problem("does not apply: old and new are the same")
    return text.replace(mutant["old"], mutant["new"])


def checked_out_files():
    """Names of what git knows or would add, as far as it is there."""
    result = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, check=False)
    if result.returncode != 0:
        raise Problem(f"git ls-files: {result.stderr.decode().strip()}")
    names = sorted({name.decode() for name in result.stdout.split(b"\0") if name})
    return [name for name in names if (ROOT / name).is_file()]


def synchronise(source):
    """Makes `source` a copy; writes only what differs, so that a second run builds little."""
    wanted = checked_out_files()
    for name in wanted:
        content, target = (ROOT / name).read_bytes(), source / name
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        shutil.copymode(ROOT / name, target)
    known = set(wanted)
    for folder, folders, files in os.walk(source):
        if Path(folder) == source and "build" in folders:
            folders.remove("build")
        for file in files:
            path = Path(folder, file)
            if str(path.relative_to(source)) not in known:
                path.unlink()


class Tree:
    """The copy, and the build in it."""

    def __init__(self, folder, jobs, programs):
        self.source = folder / "source"
        self.build = self.source / "build" / "release"
        self.log = folder / "build.log"
        self.jobs, self.programs = jobs, programs
        self.seconds = {}  # without a mutant

    def configure(self):
        self.source.mkdir(parents=True, exist_ok=True)
        synchronise(self.source)
        self.log.write_text("")
        self.call("configure", ["cmake", "--preset", "release", "-DREPRISE_BUILD_TESTS=ON", "-DREPRISE_BUILD_BENCH=OFF",
                                "-DREPRISE_TORCH=OFF", f"-DREPRISE_MUTANT_PROGRAMS={';'.join(self.programs)}",
                                f"-DCMAKE_PROJECT_Reprise_INCLUDE={self.source / LISTS / 'core.cmake'}"])

    def compile(self, programs):
        self.call("compile", ["cmake", "--build", str(self.build), "-j", str(self.jobs), "--target", *programs])

    def call(self, what, command):
        result = subprocess.run(command, cwd=self.source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                errors="replace", check=False)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(result.stdout)
        if result.returncode != 0:
            lines = result.stdout.splitlines()
            errors = [line for line in lines if re.search(r"error\b|undefined reference", line, re.IGNORECASE)]
            shown = "\n".join("    " + line for line in (errors or lines)[:5])
            raise Problem(f"does not {what} (log: {self.log}):\n{shown}")

    def registered(self):
        """{program: (command, environment)} as ctest has them."""
        listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.build, capture_output=True, text=True,
                                check=True)
        tests = {}
        for test in json.loads(listed.stdout)["tests"]:
            properties = {each["name"]: each["value"] for each in test.get("properties", [])}
            environment = dict(variable.split("=", 1) for variable in properties.get("ENVIRONMENT", []))
            tests[test["name"]] = (test.get("command"), environment)
        return tests

    def run(self, program, test_filter, limit_s):
        """(what failed first or None, the output). Ends the whole process group of a program that hangs."""
        command, environment = self.tests[program]
        command = [argument for argument in command if not argument.startswith("--gtest_output")]
        command += [f"--gtest_filter={test_filter}", "--gtest_fail_fast", "--gtest_color=no"]
        process = subprocess.Popen(command, cwd=self.build, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   start_new_session=True)
        hangs = False
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            hangs = True
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        if hangs:
            output, _ = process.communicate()
        begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
        failed = re.findall(r"^\[  FAILED  \] ([\w/.]+)", output, re.MULTILINE)
        last = begun[-1] if begun else "before the first test"
        if hangs:
            return f"{last}, which hangs", output
        if failed:
            return failed[0], output
        if process.returncode < 0:
            return f"{last}, killed by {signal.Signals(-process.returncode).name}", output
        if process.returncode != 0:
            return f"{last}, exit status {process.returncode}", output
        if not begun:
            raise Problem(f"{program} has no test '{test_filter}'")
        return None, output

    def baseline(self, mutants):
        """Everything passes without a mutant."""
        self.compile(self.programs)
        self.tests = self.registered()
        for entry in sorted({entry for mutant in mutants for entry in mutant["caught_by"]}):
            program, test_filter = entry.split()
            if program not in self.tests:
                raise Problem(f"ctest knows no {program}")
            start = time.monotonic()
            failure, output = self.run(program, test_filter, BASELINE_S)
            if failure is not None:
                tail = "\n".join("    " + line for line in output.splitlines()[-30:])
                raise Problem(f"without a mutant {program} fails at {failure}\n{tail}")
            self.seconds[entry] = time.monotonic() - start

    def try_out(self, mutant):
        """(whether it was caught, by what)."""
        path = self.source / mutant["file"]
        original = path.read_text(encoding="utf-8")
        path.write_text(apply(mutant, self.source), encoding="utf-8")
        try:
            self.compile(sorted({entry.split()[0] for entry in mutant["caught_by"]}))
            caught = []
            for entry in mutant["caught_by"]:
                program, test_filter = entry.split()
                limit_s = max(AT_LEAST_S, SLOWER * self.seconds[entry])
                failure, _ = self.run(program, test_filter, limit_s)
                if failure is None:
                    return False, f"SURVIVED {program} {test_filter}"
                caught.append(f"{program} {failure}")
            return True, "; ".join(caught)
        finally:
            path.write_text(original, encoding="utf-8")  # the next build compiles it again


def select(mutants, patterns):
    if not patterns:
        return mutants
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(mutant["name"], pattern) for mutant in mutants):
            raise Problem(f"no mutant is called {pattern}; --list shows all")
    return [m for m in mutants if any(fnmatch.fnmatchcase(m["name"], pattern) for pattern in patterns)]


def check(mutants):
    failed = 0
    for mutant in mutants:
        try:
            apply(mutant, ROOT)
        except Problem as problem:
            print(f"{mutant['name']}: {problem}")
            failed += 1
    return failed


def prove(mutants, args):
    programs = sorted({entry.split()[0] for mutant in mutants for entry in mutant["caught_by"]})
    tree = Tree(args.build_dir.resolve(), args.jobs, programs)
    start = time.monotonic()
    tree.configure()
    tree.baseline(mutants)
    print(f"without a mutant all of {', '.join(programs)} pass; {time.monotonic() - start:.0f} s", flush=True)
    width = max(len(mutant["name"]) for mutant in mutants)
    failed = 0
    print(f"{'mutant':<{width}} | caught by", flush=True)
    for mutant in sorted(mutants, key=lambda each: each["file"]):  # one compiler run for each, of most files
        try:
            is_caught, what = tree.try_out(mutant)
        except Problem as problem:
            is_caught, what = False, str(problem)
        print(f"{mutant['name']:<{width}} | {what}", flush=True)
        failed += not is_caught
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--list", action="store_true", help="names, files and mistakes")
    parser.add_argument("--check", action="store_true", help="whether every mutant fits the sources")
    parser.add_argument("--only", metavar="NAME", action="append", help="this mutant, or those that match a pattern")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build" / "mutants", metavar="DIR")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leaves through finally: nothing stays behind
    try:
        mutants = select(read_mutants(ROOT / LISTS), args.only)
        if args.list:
            for mutant in mutants:
                print(f"{mutant['name']} ({mutant['file']}): {mutant['wrong']}")
            return 0
        failed = check(mutants) if args.check else prove(mutants, args)
    except Problem as problem:
        print(problem)
        print("0 passed, 1 failed")
        return 1
    print(f"{len(mutants) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
