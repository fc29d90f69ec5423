#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/flaky.py on a build tree of small programs, of which one is sound, one fails at odd seeds, one hangs and one
crashes; and that the slow disk is slow where it should be and nowhere else."""
import importlib.util
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
FLAKY = SUPPORT.parent.parent / "scripts" / "flaky.py"
spec = importlib.util.spec_from_file_location("flaky", FLAKY)
flaky = importlib.util.module_from_spec(spec)
sys.modules["flaky"] = flaky
spec.loader.exec_module(flaky)

# Speaks like GoogleTest; its name says what it does.
PROGRAM = """#!%s
import os, re, sys, time
options = dict(argument.lstrip("-").partition("=")[::2] for argument in sys.argv[1:])
name, seed = os.path.basename(sys.argv[0]), int(options["gtest_random_seed"])
assert "gtest_shuffle" in options
print("[ RUN      ] Suite.First\\n[       OK ] Suite.First (0 ms)\\n[ RUN      ] Suite.Second", flush=True)
while name == "hangs":
    time.sleep(60)
if name == "crashes":
    os.abort()
fails = name == "flaky" and seed %% 2
failure = '<failure message="one is not two&#x0A;at all"/>' if fails else ""
with open(re.sub("^xml:", "", options["gtest_output"]), "w") as file:
    file.write('<testsuites><testsuite>'
               '<testcase name="First" classname="Suite" status="run" result="completed"/>'
               '<testcase name="Second" classname="Suite" status="run" result="completed">' + failure + '</testcase>'
               '<testcase name="Third" classname="Suite" status="run" result="skipped"/>'
               '</testsuite></testsuites>')
sys.exit(1 if fails else 0)
""" % sys.executable  # fmt: skip


class Tree(unittest.TestCase):
    """A build tree as ctest knows it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build, self.out = Path(folder.name) / "build", Path(folder.name) / "out"

    def programs(self, *names):
        row = self.build / "release"
        row.mkdir(parents=True)
        lines = []
        for name in names:
            path = row / name
            path.write_text(PROGRAM)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
            lines += [f'add_test({name} "{path}" "--gtest_output=xml:{row}/{name}.xml")']
            # Only what hangs has a limit that a loaded machine could reach.
            lines += [f"set_tests_properties({name} PROPERTIES TIMEOUT {2 if name == 'hangs' else 3000})"]
        (row / "CTestTestfile.cmake").write_text("\n".join(lines) + "\n")

    def command(self, *arguments):
        options = ["--build-dir", str(self.build), "--out", str(self.out), "--hogs", "1", "--timeout-factor", "1"]
        return [sys.executable, str(FLAKY), *arguments, *options]

    def run_flaky(self, *arguments):
        return subprocess.run(self.command(*arguments), capture_output=True, text=True)

    def report(self):
        return json.loads((self.out / "report.json").read_text())


class Campaign(Tree):
    def test_what_fails_now_and_then_is_found(self):
        self.programs("flaky")
        # Four runs: each condition once. Of two copies one has an odd seed.
        run = self.run_flaky("release", "--runs", "4", "--minutes", "60")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        failures, (program,) = self.report()["failures"], self.report()["programs"]
        self.assertIn("several", {failure["condition"] for failure in failures})
        self.assertEqual({(f["test"], f["reason"]) for f in failures}, {("Suite.Second", "one is not two at all")})
        for failure in failures:
            self.assertIn("Suite.Second", Path(failure["output"]).read_text())
            self.assertIn(failure["repeat"], run.stdout)
        self.assertRegex(run.stdout, r"failing: release/flaky Suite\.Second: \d+ times in \d+ runs \(.*several: seed")

        runs, failed = program["runs"], len(failures)
        self.assertEqual((program["passed"], program["skipped"]), (2 * runs - failed, runs))
        self.assertIn(f"release: 1 programs, {runs} runs, {2 * runs} tests, {failed} failures", run.stdout)
        self.assertEqual(run.stdout.splitlines()[-1], f"{2 * runs - failed} passed, {failed} failed")

    def test_hangs_and_crashes_are_found(self):
        self.programs("sound", "hangs", "crashes")
        run = self.run_flaky("release", "--runs", "3", "--minutes", "60")  # each once: who has not run yet comes first
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        failures = self.report()["failures"]
        crashes = {(f["test"], f["reason"], f["hang"]) for f in failures if f["program"] == "crashes"}
        self.assertEqual(crashes, {("Suite.Second", "killed by SIGABRT", False)})
        # How far it came in its two seconds depends on the machine.
        hangs = {(f["reason"], f["hang"]) for f in failures if f["program"] == "hangs"}
        self.assertEqual(hangs, {("hang: longer than 2 s", True)})
        self.assertFalse([f for f in failures if f["program"] == "sound"])

    def test_sound_programs_pass(self):
        self.programs("sound")
        run = self.run_flaky("release", "--runs", "4", "--minutes", "60")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertRegex(run.stdout.splitlines()[-1], r"^\d+ passed, 0 failed$")

    def test_a_failure_is_repeated_by_its_seed(self):
        self.programs("flaky")
        for condition in flaky.CONDITIONS[:-1]:  # copies have seeds of their own
            odd = self.run_flaky("--repeat", f"release/flaky/{condition}/7", "--times", "2")
            self.assertEqual((odd.returncode, odd.stdout.splitlines()[-1]), (1, "2 passed, 2 failed"), odd.stderr)
            even = self.run_flaky("--repeat", f"release/flaky/{condition}/8", "--times", "2")
            self.assertEqual((even.returncode, even.stdout.splitlines()[-1]), (0, "4 passed, 0 failed"), even.stderr)

    def test_nothing_that_ran_is_no_success(self):
        self.programs("sound")
        run = self.run_flaky("release", "--minutes", "0")
        self.assertEqual(run.returncode, 1)
        self.assertIn("1 programs did not run in the time: release/sound", run.stdout)
        self.assertEqual(run.stdout.splitlines()[-1], "0 passed, 0 failed")

    def test_an_interrupt_shows_what_there_is(self):
        self.programs("crashes")
        run = subprocess.Popen(
            self.command("release", "--minutes", "60"),
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as a shell does in the background
        )
        for line in run.stdout:
            if line.startswith("FAILED"):
                break
        run.send_signal(signal.SIGINT)
        text, _ = run.communicate()
        self.assertEqual(run.returncode, 1)
        self.assertRegex(text.splitlines()[-1], r"^\d+ passed, [1-9]\d* failed$")

    def test_all_processes_end_with_the_runner(self):
        self.programs("hangs")
        arguments = ["--minutes", "60", "--timeout-factor", "3000"]
        run = subprocess.Popen(self.command("release") + arguments, stdout=subprocess.DEVNULL)
        started = wait_for(lambda: busy_loop_and_program(run.pid))
        run.kill()
        run.wait()
        wait_for(lambda: not any(alive(pid) for pid in started))


def wait_for(condition):
    end = time.monotonic() + 300
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError("waited for five minutes")


def status_line(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def alive(pid):
    line = status_line(pid)
    return line is not None and line[0] not in "ZX"


def busy_loop_and_program(parent):
    """The children that are one or the other, once both are there and have become what they were started as."""
    found = {}
    for entry in Path("/proc").iterdir():
        line = status_line(entry.name) if entry.name.isdigit() else None
        if line is None or line[1] != str(parent):
            continue
        try:
            command = (entry / "cmdline").read_text()  # empty where a child has ended
        except (FileNotFoundError, ProcessLookupError):
            continue
        for what in ("prctl", "/hangs\0"):
            if what in command:
                found[what] = int(entry.name)
    return found.values() if len(found) == 2 else None


class Outcomes(unittest.TestCase):
    """What is made of the remains of a process."""

    def outcome(self, kind, status, output="", results=None):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results"
            if results is not None:
                path.write_text(results)
            outcome = flaky.outcome_of(kind, status, output, path)
        return outcome.passed, outcome.skipped, outcome.failed

    def test_plain(self):
        self.assertEqual(self.outcome("plain", 0), (1, 0, {}))
        self.assertEqual(self.outcome("plain", 3), (0, 0, {"(program)": "exit status 3"}))
        self.assertEqual(self.outcome("plain", -11), (0, 0, {"(program)": "killed by SIGSEGV"}))

    def test_a_death_after_the_last_test(self):
        xml = '<t><testcase name="A" classname="S" status="run" result="completed"/></t>'
        self.assertEqual(self.outcome("googletest", 23, "", xml), (1, 0, {"(program)": "exit status 23"}))

    def test_a_program_that_exits_in_a_test(self):
        output = "[ RUN      ] S/T.A/0\nnoise[       OK ] S/T.A/0 (3 ms)\n[ RUN      ] S.B\n"
        expected = (1, 0, {"S.B": "ended the program, with exit status 0"})
        self.assertEqual(self.outcome("googletest", 0, output), expected)

    def test_a_hang_is_that_of_the_test_that_had_begun(self):
        output = "[ RUN      ] S.A\n[       OK ] S.A (3 ms)\n[ RUN      ] S.B\n"
        self.assertEqual(self.outcome("googletest", "hang: …", output), (1, 0, {"S.B": "hang: …"}))

    def test_parameters_do_not_end_a_test(self):
        output = "[ RUN      ] S.A\n[  FAILED  ] S.A, where GetParam() = 3 (1 ms)\n[ RUN      ] S.B\n"
        self.assertEqual(self.outcome("googletest", -6, output), (0, 0, {"S.A": "failed", "S.B": "killed by SIGABRT"}))

    def test_pytest(self):
        journal = (
            "begin tests/t.py::a\npassed tests/t.py::a\nfailed tests/t.py::a\n"  # its end fails
            "begin tests/t.py::b[x/y]\npassed tests/t.py::b[x/y]\nbegin tests/t.py::c\nskipped tests/t.py::c\n"
        )
        self.assertEqual(self.outcome("pytest", 1, "", journal), (1, 1, {"t.py::a": "failed"}))
        self.assertEqual(
            self.outcome("pytest", -11, "", journal + "begin tests/t.py::d[x/y]\n"),
            (1, 1, {"t.py::a": "failed", "t.py::d[x/y]": "killed by SIGSEGV"}),
        )
        self.assertEqual(self.outcome("pytest", 5, "", ""), (0, 0, {}))
        self.assertEqual(self.outcome("pytest", 4), (0, 0, {"(program)": "exit status 4"}))


class SlowDisk(unittest.TestCase):
    CHILD = """
import ctypes, os, sys
folder = sys.argv[1]
for i in range(5):
    os.mkdir(folder + "/d")
    with open(folder + "/d/f", "w") as file: print("x", file=file)
    os.rename(folder + "/d/f", folder + "/d/g")
    os.unlink(folder + "/d/g")
    os.rmdir(folder + "/d")
os.chdir(folder)
open("relative", "w").close()
print(ctypes.CDLL(None).reprise_slow_disk_waits())
"""

    def waits(self, shim, slow, folder):
        folder.mkdir(exist_ok=True)
        env = {**os.environ, "LD_PRELOAD": str(shim), "REPRISE_SLOW_DISK": str(slow), "REPRISE_SLOW_DISK_SEED": "3"}
        start = time.monotonic()
        command = [sys.executable, "-I", "-c", self.CHILD, str(folder)]
        count = int(subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout)
        return count, time.monotonic() - start

    def test_waits_only_below_its_folder(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name).resolve()
            shim = flaky.compile_shim(folder)
            slow = folder / "slow"
            count, seconds = self.waits(shim, slow, slow)
            self.assertEqual(count, 5 * 6 + 1)  # mkdir, open, write, rename, unlink, rmdir; the relative one
            self.assertGreater(seconds, 0.1)
            self.assertEqual(self.waits(shim, slow, slow / "deeper")[0], 5 * 6 + 1)
            self.assertEqual(self.waits(shim, slow, folder / "slower")[0], 0)
            self.assertEqual(self.waits(shim, slow, folder / "fast")[0], 0)


class Plugin(unittest.TestCase):
    def test_order_follows_the_seed(self):
        if importlib.util.find_spec("pytest") is None:
            self.skipTest("this interpreter has no pytest")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            names = "".join(f"def test_{i}(): assert {i} != 3\n" for i in range(10))
            (folder / "test_ten.py").write_text(names)
            orders = [self.begun(folder, "--flaky-seed", seed) for seed in ("1", "1", "2")]
            self.assertEqual(orders[0], orders[1])
            self.assertNotEqual(orders[0], orders[2])
            self.assertEqual(sorted(orders[0]), sorted(orders[2]))
            self.assertEqual(self.begun(folder, "--flaky-seed", "2", "--flaky-most", "4"), orders[2][:4])

    def begun(self, folder, *options):
        journal = folder / "journal"
        journal.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "flaky_order"]
        command += ["--flaky-journal", str(journal), *options, str(folder)]
        subprocess.run(command, env={**os.environ, "PYTHONPATH": str(SUPPORT)}, capture_output=True)
        text = journal.read_text()
        self.assertEqual("failed" in text, "test_3" in text)
        return re.findall(r"begin .*::(\w+)", text)


if __name__ == "__main__":
    unittest.main()
