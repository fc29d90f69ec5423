#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks for tests that fail now and then: runs the test programs of built rows again and again for an hour.

    scripts/flaky.py release torch          these rows, as they are built; without names all that are built
    scripts/flaky.py --only /stress tsan    some programs
    scripts/flaky.py --repeat release/unit_slot/one-core/123    one run again, as a failure prints it; --times 20

Two busy loops per core run all the time. Each run has a seed, which decides the order of the tests and all else that is
drawn, and one of these conditions:

    plain      nothing else
    one-core   one core, shared with busy loops
    slow-disk  temporary, log and working folder on a disk whose calls take up to 20 ms (tests/support/slow_disk.c)
    several    two or three copies at once, which share these folders

A failure is printed at once, with how to repeat it; its output stays in build/flaky/failures. At the end: a line per
row, the failing tests, and 'N passed, N failed' in executions of tests; build/flaky/report.txt has every program,
report.json all of it. Ctrl-C ends early. Status 1: something failed, or nothing ran.
"""
import argparse
import ctypes
import dataclasses
import json
import math
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
SUPPORT = REPO / "tests" / "support"
ROWS = ("release", "torch", "asan", "tsan")
CONDITIONS = ("plain", "one-core", "slow-disk", "several")
PYTEST_ROWS = {"torch": ("torch", "ops")}  # a row of run_tests.sh to its folders below tests/; each is a row here
PYTEST_MOST = 200  # tests of a file in one run; another sample each time
PYTEST_SECONDS = 300  # in the place of ctest's TIMEOUT; single tests have a limit in pyproject.toml
CTEST_SECONDS = 120  # where a test has no TIMEOUT
LARGEST_SEED = 90000  # GoogleTest takes up to 99999, and copies count on from theirs
OUTPUT_KEPT = 1 << 20  # bytes of the output of a failing run, from its end
PROGRAM = "(program)"  # in the place of a test: the process failed, and none of its tests is to blame

# Programs, as regular expressions, that a condition would change beyond what their tests are about.
NOT_UNDER = {
    "slow-disk": {
        r"engine_counts": "replaces functions of the C library and counts system calls",
        r"engine_instructions|runtime_update_cost": "runs itself under valgrind, which counts our instructions, too",
    },
}

HOG = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
while os.getppid() == int(sys.argv[1]):
    for _ in range(100000): pass
"""
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


# ---- Programs ----


@dataclasses.dataclass
class Program:
    """What is run as a whole: a test of ctest or a file of pytest; and what its runs came to."""

    row: str
    name: str
    kind: str  # googletest, pytest, or plain: one test, its exit status
    command: list
    env: dict
    folder: str | None  # where it runs; None: a fresh folder
    limit: float  # seconds, on an idle machine

    runs: int = 0
    passed: int = 0
    skipped: int = 0
    failed: int = 0
    cut_off: int = 0
    seconds: float = 0
    longest: float = 0
    deck: list = dataclasses.field(default_factory=list)

    @property
    def id(self):
        return f"{self.row}/{self.name}"

    def conditions(self):
        left_out = {
            condition
            for condition, table in NOT_UNDER.items()
            if any(re.fullmatch(pattern, self.name) for pattern in table)
        }
        return [condition for condition in CONDITIONS if condition not in left_out]

    def next_condition(self, rng):
        """All of them in random order, then again, so that a program that has few runs meets each."""
        if not self.deck:
            self.deck = self.conditions()
            rng.shuffle(self.deck)
        return self.deck.pop()


def discover(rows, build):
    """Programs of the rows, and names of those that are not built."""
    programs, missing = [], []
    for row in rows:
        if row in PYTEST_ROWS:
            programs += pytest_programs(row, build)
            continue
        if not (build / row / "CTestTestfile.cmake").exists():
            raise SystemExit(f"row {row} is not built: no {build / row}; scripts/build.sh {row} builds it")
        found, not_built = ctest_programs(row, build / row)
        programs += found
        missing += not_built
    return programs, missing


def ctest_programs(row, folder):
    command = ["ctest", "--test-dir", str(folder), "--show-only=json-v1"]
    tests = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["tests"]
    sanitizers = sanitizer_env()
    # A program of which one test is GoogleTest's is GoogleTest's in the others as well.
    google = {test["command"][0] for test in tests if any(a.startswith("--gtest_") for a in test.get("command", ()))}
    programs, missing = [], []
    for test in tests:
        properties = {item["name"]: item["value"] for item in test.get("properties", ())}
        if properties.get("DISABLED"):
            continue
        if not test.get("command") or not Path(test["command"][0]).exists():
            missing.append(f"{row}/{test['name']}")
            continue
        is_google = test["command"][0] in google and all(a.startswith("--gtest_") for a in test["command"][1:])
        programs.append(
            Program(
                row=row,
                name=test["name"].replace("/", "-"),
                kind="googletest" if is_google else "plain",
                command=[a for a in test["command"] if not a.startswith("--gtest_output")],
                env={**sanitizers, **dict(entry.split("=", 1) for entry in properties.get("ENVIRONMENT", ()))},
                folder=None if is_google else properties.get("WORKING_DIRECTORY"),
                limit=properties.get("TIMEOUT") or CTEST_SECONDS,
            )
        )
    return programs, missing


def pytest_programs(row, build):
    """The files of the row's suites, in the tree that the build folder belongs to."""
    package = build / "release" / "python"
    python = Path(os.environ.get("REPRISE_PYTHON") or build / "venv" / "bin" / "python")
    if not package.exists() or not python.exists():
        raise SystemExit(f"row {row} is not built: {package} and {python} must be there; make test PRESETS={row}")
    programs = []
    for suite in PYTEST_ROWS[row]:
        # As in run_tests.sh: the operators are tested without the package.
        path = [str(package)] if suite == "torch" else []
        for file in sorted((build.parent / "tests" / suite).glob("test_*.py")):
            command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "flaky_order", str(file)]
            command += ["--flaky-most", str(PYTEST_MOST)]
            env = {"PYTHONPATH": os.pathsep.join([*path, str(SUPPORT)])}
            programs.append(Program(suite, file.name, "pytest", command, env, None, PYTEST_SECONDS))
    return programs


def sanitizer_env():
    """What sanitizer_env.sh exports; run_tests.sh sources it, too."""
    script = "set -a; . scripts/sanitizer_env.sh; env -0"
    shell = ["env", "-i", f"PATH={os.environ['PATH']}", "bash", "-c", script]
    text = subprocess.run(shell, check=True, capture_output=True, text=True, cwd=REPO).stdout
    pairs = dict(entry.split("=", 1) for entry in text.split("\0") if entry)
    return {name: value for name, value in pairs.items() if name.endswith("SAN_OPTIONS")}


# ---- Results ----


@dataclasses.dataclass
class Outcome:
    """Of one process: tests that passed and were skipped, and the failing ones with the reason."""

    passed: int = 0
    skipped: int = 0
    failed: dict = dataclasses.field(default_factory=dict)


def outcome_of(kind, status, output, results):
    """status: as of Popen, or 'hang: …'; results: the XML of GoogleTest, the journal of the plugin."""
    if kind == "googletest":
        outcome, unfinished = googletest_outcome(output, results)
    elif kind == "pytest":
        outcome, unfinished = events_outcome(journal_events(results))
        if status == 5:  # pytest: no tests, all of them deselected or missing what they need
            status = 0
    else:
        outcome, unfinished = Outcome(passed=int(status == 0)), None
    if status != 0 and (unfinished or not outcome.failed):
        outcome.failed[unfinished or PROGRAM] = in_words(status)
    elif status == 0 and unfinished:
        outcome.failed[unfinished] = "ended the program, with exit status 0"
    return outcome


def in_words(status):
    if isinstance(status, str):
        return status
    return f"exit status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"


def googletest_outcome(output, results):
    """The outcome, and the test that had begun last where the process did not come to write its XML."""
    try:
        cases = list(ElementTree.parse(results).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return events_outcome(googletest_events(output))
    outcome = Outcome()
    for case in cases:
        failures = case.findall("failure")
        if failures:
            message = " ".join((failures[0].get("message") or "").split())
            outcome.failed[f"{case.get('classname')}.{case.get('name')}"] = message[:200]
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            outcome.skipped += 1
        elif case.get("status") != "notrun":
            outcome.passed += 1
    return outcome, None


def googletest_events(output):
    # Not only at the beginning of a line: tests print without an end of theirs.
    names = {"RUN": "begin", "OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}
    for what, test, end in re.findall(r"\[ +(RUN|OK|FAILED|SKIPPED) +\] ([\w./]+\.[\w/]+)(.*)", output):
        if what == "RUN" or end.endswith(" ms)"):  # the list of failures at the end has no times
            yield names[what], test


def journal_events(path):
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        what, _, test = line.partition(" ")
        yield what, test.rsplit("/", 1)[-1] if "[" not in test else test[test[: test.index("[")].rfind("/") + 1 :]


def events_outcome(events):
    """Outcome of (begin, passed, failed, skipped; test) in their order, and the test that had begun and not ended."""
    verdicts, begun = {}, None
    for what, test in events:
        if what == "begin":
            begun = test
            continue
        begun = None if begun == test else begun
        if verdicts.get(test) != "failed":
            verdicts[test] = what
    counts = Counter(verdicts.values())
    failed = {test: "failed" for test, verdict in verdicts.items() if verdict == "failed"}
    return Outcome(counts["passed"], counts["skipped"], failed), begun


# ---- Runs ----


class Run:
    """A program under a condition: one process, or several copies of it. All that is drawn follows the seed."""

    def __init__(self, program, condition, seed, folder, factor, shim):
        self.program, self.condition, self.seed = program, condition, seed
        self.folder = folder
        self.limit = program.limit * factor
        self.started = time.monotonic()
        self.ended = None
        rng = random.Random(seed)
        self._core = rng.choice(sorted(os.sched_getaffinity(0))) if condition == "one-core" else None
        copies = rng.choice((2, 3)) if condition == "several" else 1
        self._disk = folder / "disk"
        for name in ("tmp", "log", "work"):
            (self._disk / name).mkdir(parents=True)
        self._env = self._environment(shim)
        self.copies = [Copy(self, index) for index in range(copies)]

    @property
    def id(self):
        return f"{self.program.id}/{self.condition}/{self.seed}"

    def done(self):
        """Whether all copies have ended; ends those that hang."""
        late = time.monotonic() - self.started > self.limit
        open_copies = [copy for copy in self.copies if not copy.poll()]
        for copy in open_copies if late else ():
            copy.end_hanging(f"hang: longer than {self.limit:.0f} s")
        if late or not open_copies:
            self.ended = time.monotonic()
        return self.ended is not None

    def kill(self):
        for copy in self.copies:
            copy.kill()

    def _environment(self, shim):
        """What differs from ours."""
        env = dict(self.program.env)
        env.update(TMPDIR=f"{self._disk}/tmp", TEST_TMPDIR=f"{self._disk}/tmp")
        env.update(ASCEND_PROCESS_LOG_PATH=f"{self._disk}/log", REPRISE_OPS_REPORT_DIR=f"{self.folder}/ops")
        if self.condition == "slow-disk":
            env.update(LD_PRELOAD=str(shim), REPRISE_SLOW_DISK=str(self._disk), REPRISE_SLOW_DISK_SEED=str(self.seed))
            options = env.get("ASAN_OPTIONS", "")
            env["ASAN_OPTIONS"] = f"{options}:verify_asan_link_order=0".lstrip(":")
        return env

    def working_folder(self):
        return self.program.folder or str(self._disk / "work")

    def by_hand(self, command):
        """The same for a shell, without busy loops and copies."""
        folders = f"mkdir -p {shlex.quote(str(self._disk))}/{{tmp,log,work}}"
        values = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(self._env.items()))
        pinned = f"taskset -c {self._core} " if self._core is not None else ""
        return f"{folders} && cd {shlex.quote(self.working_folder())} && env {values} {pinned}{shlex.join(command)}"

    def start(self, command, output):
        env = {name: value for name, value in os.environ.items() if not name.startswith("GTEST_")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, not by each interpreter
        env.update(self._env)

        runner = os.getpid()

        def prepare():
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != runner:
                os._exit(1)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if self._core is not None:
                os.sched_setaffinity(0, {self._core})

        # We have no threads, so that prepare is safe, and the signal comes when we end and not before.
        with open(output, "wb") as file:
            return subprocess.Popen(
                command, env=env, cwd=self.working_folder(), stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=prepare,
            )  # fmt: skip


class Copy:
    """One process of a run, with all that it starts."""

    def __init__(self, run, index):
        self.run, self.status = run, None
        self.output = run.folder / f"output.{index}"
        self.results = run.folder / f"results.{index}"
        self.command = run.program.command + self._arguments(run.seed + index)
        self._process = run.start(self.command, self.output)

    def _arguments(self, seed):
        if self.run.program.kind == "googletest":
            return ["--gtest_shuffle", f"--gtest_random_seed={seed}", f"--gtest_output=xml:{self.results}"]
        if self.run.program.kind == "pytest":
            return ["--flaky-seed", str(seed), "--flaky-journal", str(self.results)]
        return []

    def poll(self):
        if self.status is None and os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self.status = self._reap()
        return self.status is not None

    def end_hanging(self, reason):
        self._show_stacks()
        self.status = reason
        self._reap()

    def kill(self):
        if self.status is None:
            self._reap()

    def outcome(self):
        return outcome_of(self.run.program.kind, self.status, read_end(self.output), self.results)

    def _reap(self):
        """Ends what is left of the group while its leader, which is not waited for yet, keeps the number taken."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self._process.wait()

    def _show_stacks(self):
        """Appends the stacks of all threads, as gdb has them, and lets Python and sanitizers print theirs."""
        with open(self.output, "ab") as file:
            if shutil.which("gdb"):
                command = ["gdb", "-p", str(self._process.pid), "-batch", "-nx", "-ex", "thread apply all bt"]
                try:
                    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=60)
                except subprocess.TimeoutExpired:
                    file.write(b"\ngdb took too long\n")
        self._process.send_signal(signal.SIGABRT)
        end = time.monotonic() + 5
        while time.monotonic() < end:
            if os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return
            time.sleep(0.05)


def read_end(path):
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - OUTPUT_KEPT))
        return file.read().decode(errors="replace")


class Hogs:
    """Busy loops, at the priority of the tests, that end when we do, however that is."""

    def __init__(self, count):
        command = [sys.executable, "-c", HOG, str(os.getpid())]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) for _ in range(count)
        ]

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        for process in self._processes:
            process.kill()
            process.wait()


# ---- Campaign ----


class Campaign:
    """Runs programs until the time is over, and keeps what failed."""

    def __init__(self, programs, options, out, work, shim):
        self.programs, self.options = programs, options
        self.failures = []
        self.interrupted = False
        self.seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1, 1 << 30)
        self._rng = random.Random(self.seed)
        self._out, self._work, self._shim = out, work, shim
        self._running = []
        self._started = 0
        self._begin = time.monotonic()
        self._end = self._begin + options.minutes * 60
        self._show = Progress(self)

    def run_for_a_while(self):
        """Runs of what choose() says, side by side; those that the end finds at work do not count."""
        self._attend(lambda: self.choose() if self.left() and self._started < self.options.runs else None, self._end)

    def repeat(self, program, condition, seed, times):
        queue = [(program, condition, seed)] * times
        self.options.jobs = 1
        self._attend(lambda: queue.pop() if queue else None, math.inf)

    def left(self):
        return max(0.0, self._end - time.monotonic())

    def running(self):
        return [run.id for run in self._running]

    def elapsed(self):
        return time.monotonic() - self._begin

    def choose(self):
        """Who has not run yet, at random; then who had least, where runs of a cheap program count less."""
        busy = {id(run.program) for run in self._running}
        left = self.left()
        free = [program for program in self.programs if id(program) not in busy and program.longest < left]
        if not free:
            return None
        fresh = [program for program in free if program.runs == 0]
        program = self._rng.choice(fresh) if fresh else min(free, key=self._share)
        return program, program.next_condition(self._rng), self._rng.randrange(1, LARGEST_SEED)

    def _share(self, program):
        return (program.runs + self._rng.random()) * math.sqrt(max(program.seconds / program.runs, 0.5))

    def _attend(self, next_run, end):
        try:
            while True:
                while len(self._running) < self.options.jobs and (chosen := next_run()):
                    self._start(*chosen)
                if not self._running:
                    break
                if time.monotonic() >= end:
                    break
                time.sleep(0.02)
                for run in [run for run in self._running if run.done()]:
                    self._running.remove(run)
                    self._finish(run)
                self._show.refresh()
        except KeyboardInterrupt:
            self.interrupted = True
        self._show.clear()
        for run in self._running:
            run.kill()
            run.program.cut_off += 1
        self._running = []

    def _start(self, program, condition, seed):
        folder = self._work / str(self._started)
        self._started += 1
        self._running.append(Run(program, condition, seed, folder, self.options.timeout_factor, self._shim))

    def _finish(self, run):
        program, seconds = run.program, run.ended - run.started
        program.seconds += seconds
        program.longest = max(program.longest, seconds)
        program.runs += len(run.copies)
        for copy in run.copies:
            outcome = copy.outcome()
            program.passed += outcome.passed
            program.skipped += outcome.skipped
            program.failed += len(outcome.failed)
            if outcome.failed:
                self._report_failures(run, copy, outcome.failed)
        shutil.rmtree(run.folder, ignore_errors=True)

    def _report_failures(self, run, copy, failed):
        kept = self._out / "failures" / f"{run.id.replace('/', '-')}-{copy.output.suffix[1:]}.txt"
        kept.parent.mkdir(parents=True, exist_ok=True)
        again = f"scripts/flaky.py --repeat {shlex.quote(run.id)}{self.options.elsewhere}"
        head = [f"{run.id}: {test}: {reason}" for test, reason in failed.items()]
        kept.write_text("\n".join([*head, again, run.by_hand(copy.command), "", read_end(copy.output)]))
        self._show.clear()
        for test, reason in failed.items():
            hang = isinstance(copy.status, str)
            self.failures.append(
                {"row": run.program.row, "program": run.program.name, "test": test, "condition": run.condition,
                 "seed": run.seed, "hang": hang, "reason": reason, "output": str(kept), "repeat": again}
            )  # fmt: skip
            print(f"FAILED {run.program.id} {test}, {run.condition}, seed {run.seed}: {reason}", flush=True)
        print(f"       {again}; output: {os.path.relpath(kept)}", flush=True)


class Progress:
    """A line on a terminal that rewrites itself."""

    def __init__(self, campaign):
        self._campaign = campaign
        self._terminal = sys.stdout.isatty()
        self._next = 0.0

    def refresh(self):
        if not self._terminal or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + 0.5
        programs, left = self._campaign.programs, self._campaign.left()
        tests = sum(program.passed + program.failed for program in programs)
        line = (
            f"{left // 60:.0f}:{left % 60:02.0f} left; {sum(p.runs for p in programs):,} runs, {tests:,} tests, "
            f"{len(self._campaign.failures)} failures; {', '.join(self._campaign.running())}"
        )
        print("\r\033[K" + line[: shutil.get_terminal_size().columns - 1], end="", flush=True)

    def clear(self):
        if self._terminal:
            print("\r\033[K", end="", flush=True)


# ---- Report ----


def report(campaign, out, missing):
    """Prints the summary, writes the files, returns (passed, failed)."""
    passed = sum(program.passed for program in campaign.programs)
    failed = sum(program.failed for program in campaign.programs)
    summary = [*row_lines(campaign.programs), *failing_lines(campaign)]
    never = [program.id for program in campaign.programs if program.runs == 0]
    if never:
        summary.append(f"{len(never)} programs did not run in the time: {', '.join(never)}")
    if missing:
        summary.append(f"{len(missing)} programs are not built: {', '.join(missing)}")
    cut_off = sum(program.cut_off for program in campaign.programs)
    if cut_off:
        summary.append(f"{cut_off} runs were cut off by the end and do not count")
    print("\n".join(summary))
    if campaign.options.repeat:
        return passed, failed
    (out / "report.txt").write_text("\n".join([*summary, "", *program_lines(campaign.programs)]) + "\n")
    (out / "report.json").write_text(json.dumps(as_data(campaign, never, missing), indent=1) + "\n")
    print(f"every program: {os.path.relpath(out / 'report.txt')}; as data: {os.path.relpath(out / 'report.json')}")
    return passed, failed


def totals(programs):
    count = Counter()
    for program in programs:
        count.update(
            programs=1, runs=program.runs, tests=program.passed + program.failed, skipped=program.skipped,
            failures=program.failed,
        )  # fmt: skip
    return count


def by_row(programs):
    rows = defaultdict(list)
    for program in programs:
        rows[program.row].append(program)
    return rows


def row_lines(programs):
    for row, members in by_row(programs).items():
        count = totals(members)
        yield (
            f"{row}: {count['programs']:,} programs, {count['runs']:,} runs, {count['tests']:,} tests, "
            f"{count['failures']:,} failures"
        )


def failing_lines(campaign):
    """Of each failing test how often, and under what with which seeds."""
    runs = {program.id: program.runs for program in campaign.programs}
    tests = defaultdict(lambda: defaultdict(list))
    for failure in campaign.failures:
        program = f"{failure['row']}/{failure['program']}"
        tests[program, failure["test"]][failure["condition"]].append(str(failure["seed"]))
    for (program, test), conditions in sorted(tests.items()):
        seeds = "; ".join(f"{condition}: seed {', '.join(seeds)}" for condition, seeds in sorted(conditions.items()))
        count = sum(len(seeds) for seeds in conditions.values())
        yield f"failing: {program} {test}: {count} times in {runs[program]} runs ({seeds})"


def program_lines(programs):
    yield f"{'row/program':<50} {'runs':>6} {'tests':>9} {'failures':>8} {'longest s':>9}"
    for program in sorted(programs, key=lambda program: program.id):
        tests = program.passed + program.failed
        yield f"{program.id:<50} {program.runs:>6,} {tests:>9,} {program.failed:>8,} {program.longest:>9.1f}"


def as_data(campaign, never, missing):
    fields = ("row", "name", "runs", "passed", "skipped", "failed", "cut_off", "seconds", "longest")
    return {
        "seed": campaign.seed,
        "minutes": round(campaign.elapsed() / 60, 2),
        "interrupted": campaign.interrupted,
        "hogs": campaign.options.hogs,
        "jobs": campaign.options.jobs,
        "rows": {row: totals(members) for row, members in by_row(campaign.programs).items()},
        "programs": [{field: getattr(program, field) for field in fields} for program in campaign.programs],
        "failures": campaign.failures,
        "never_ran": never,
        "not_built": missing,
    }


# ---- Main ----


def arguments():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="release, torch, asan, tsan, or another preset")
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("FLAKY_MINUTES") or 60))
    parser.add_argument("--only", metavar="REGEX", default="", help="programs whose ROW/NAME it matches somewhere")
    parser.add_argument("--repeat", metavar="RUN", help="ROW/PROGRAM/CONDITION/SEED")
    parser.add_argument("--times", type=int, default=1, help="with --repeat: so often")
    parser.add_argument("--seed", type=int, help="of what is run when; drawn, if not given")
    parser.add_argument("--runs", type=float, default=math.inf, help="end after so many")
    parser.add_argument("--jobs", type=int, default=cores + 1, help="runs side by side")
    parser.add_argument("--hogs", type=int, default=2 * cores, help="busy loops")
    parser.add_argument("--timeout-factor", type=float, default=5, help="a run hangs after so many times its TIMEOUT")
    parser.add_argument("--build-dir", type=Path, default=REPO / "build", help="holds a folder for each preset")
    parser.add_argument("--out", type=Path, default=REPO / "build" / "flaky")
    options = parser.parse_args()
    if options.repeat:
        row = options.repeat.split("/")[0]
        options.rows = [next((name for name, suites in PYTEST_ROWS.items() if row in suites), row)]
    options.build_dir = options.build_dir.resolve()
    options.elsewhere = ""  # for the command that repeats a run
    if options.build_dir != parser.get_default("build_dir").resolve():
        options.elsewhere = f" --build-dir {shlex.quote(str(options.build_dir))}"
    return options


def built_rows(build):
    rows = [row for row in ROWS if (build / row / "CTestTestfile.cmake").exists()]
    if (build / "release" / "python").exists() and (build / "venv").exists():
        rows.insert(1, "torch")
    return rows


def compile_shim(work):
    shim = work / "slow_disk.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(shim), str(SUPPORT / "slow_disk.c"), "-ldl"], check=True)
    return shim


def conduct(options, programs, out, work):
    campaign = Campaign(programs, options, out, work, compile_shim(work))
    with Hogs(options.hogs):
        if options.repeat:
            row, name, condition, seed = options.repeat.split("/")
            program = next((p for p in programs if (p.row, p.name) == (row, name)), None)
            if program is None or condition not in CONDITIONS:
                raise SystemExit(f"no such run: {options.repeat}")
            campaign.repeat(program, condition, int(seed), options.times)
            campaign.programs = [program]
        else:
            campaign.run_for_a_while()
    return campaign


def stop(*unused):
    raise KeyboardInterrupt


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)  # also where a shell started it in the background, which ignores the signal
    programs, missing = discover(options.rows or built_rows(options.build_dir), options.build_dir)
    programs = [program for program in programs if re.search(options.only, program.id)]
    if not programs:
        raise SystemExit("no programs: nothing is built, or --only matches none")
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if not options.repeat:
        shutil.rmtree(out / "failures", ignore_errors=True)
        print(f"{len(programs)} programs for {options.minutes:g} minutes, {options.hogs} busy loops", flush=True)
    with tempfile.TemporaryDirectory(prefix="work-", dir=out, ignore_cleanup_errors=True) as work:
        campaign = conduct(options, programs, out, Path(work))
    passed, failed = report(campaign, out, missing)
    print(f"{passed} passed, {failed} failed")
    if failed or not any(program.runs for program in campaign.programs):
        return 1
    return 130 if campaign.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
