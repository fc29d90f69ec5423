#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No exported function is a stand-in: one that returns success, or a constant, and does nothing.

    stand_ins_test.py LIBRARY_FOLDER

Two looks, since each sees what the other does not: at the machine code of every exported function, and at the bodies of
the facades, where a check alone is no effect either. What does nothing on purpose stands in MEANS_NOTHING with the
reason; a row that is no longer needed fails, too.
"""

import platform
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FOLDER = None

MEANS_NOTHING = {
    "aclnnInit": "operators need no preparation",
    "aclnnFinalize": "operators need no preparation",
    "aclnnReselectStaticKernel": "kernels are chosen at each call; none is kept that could be chosen anew",
    "aclrtMemUceRepair": "the memory of this device has no errors that could be repaired",
    "aclrtRepairError": "the device has no errors that could be repaired",
    "aclprofRegisterDeviceCallback": "devices that are set later are recorded anyway",
    "HcclGetCommConfigCapability": "tells a number that never changes",
    "MsprofRegisterCallback": "nobody commands a framework here: it is asked for nothing that it could be called for",
    # Libraries that are there to be found; their one name has an address and does nothing.
    "reprise_ascend_protobuf": "library without functions",
    "reprise_ge_proto_functions": "a table of functions, where libreprise_compiler.so finds it",
    "reprise_offline_models": "a table of functions, where libreprise_engine.so finds it",
    "reprise_fmk_parser": "library without functions",
    "reprise_graph_base": "library without functions",
    "reprise_hcomm": "library without functions",
}

# Instructions that read no argument, write no memory and call nothing.
EMPTY = re.compile(r"(ret|endbr64|nop|nopw|nopl|cs nopw|xchg %ax,%ax|data16.*)\b.*|xor +%(e[a-d]x),%\2|mov +\$0x[0-9a-f]+,%[er]?a[xl]"
                   r"|or +\$0xffffffffffffffff,%rax|lea +0x[0-9a-f]+\(%rip\),%rax")
LARGEST = 32  # bytes of a function that may be empty


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def empty_functions(library):
    """Names of exported functions whose code does nothing."""
    places = {}
    for line in run("nm", "-D", "--defined-only", "-S", str(library)).splitlines():
        parts = line.split()
        if len(parts) == 4 and parts[2] in "TWi" and int(parts[1], 16) <= LARGEST:
            places[int(parts[0], 16)] = parts[3]
    if not places:
        return
    code, name = {}, None
    for line in run("objdump", "-d", "--no-show-raw-insn", "-j", ".text", str(library)).splitlines():
        if begin := re.match(r"([0-9a-f]+) <.*>:$", line):
            name = places.get(int(begin[1], 16))
        elif name and (instruction := re.match(r" +[0-9a-f]+:\t(.*)", line)):
            code.setdefault(name, []).append(re.sub(r"\s+", " ", instruction[1].split("#")[0]).strip())
    for name, instructions in code.items():
        ends = next((i for i, text in enumerate(instructions) if text.startswith("ret")), len(instructions) - 1)
        if all(EMPTY.fullmatch(text) for text in instructions[:ends + 1]):
            yield name


BODY = re.compile(r'\breturn (?:[a-z_]+::)*Api\(\s*"([\w:]+)",\s*\[[&=\w, ]*\]\s*(?:\(\))?\s*(?:->\s*Status)?\s*\{')
CHECK = re.compile(r"return (\{\}|Status\(\)|(reprise::runtime::)?NotNull\(.*|Check\w*\(.*|.*\.status\(\))"
                   r"|REPRISE_RETURN_IF_ERROR\(.*|REPRISE_ASSIGN_OR_RETURN\(\[\[maybe_unused\]\].*|REPRISE_LOG\(.*|\(void\).*",
                   re.DOTALL)


def checking_functions(text):
    """Names of functions in a source whose bodies check arguments, at most, and then return success."""
    for match in BODY.finditer(text):
        at, depth = match.end(), 1
        while depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        body = re.sub(r"//.*", "", text[match.end():at - 1])
        if all(CHECK.fullmatch(statement.strip()) for statement in body.split(";") if statement.strip()):
            yield match[1]


def found():
    names = set()
    for library in sorted(FOLDER.glob("lib*.so")):
        if not library.is_symlink() and library.name != "libreprise_compiler.so":  # as libreprise.so: no interface
            names.update(empty_functions(library))
    for source in sorted((REPO / "facade").rglob("*.cc")):
        names.update(checking_functions(source.read_text(encoding="utf-8")))
    return names


@unittest.skipUnless(platform.machine() == "x86_64" and shutil.which("objdump"), "reads the code of x86-64 by objdump")
class StandIns(unittest.TestCase):
    def test_there_are_none(self):
        names = found()
        self.assertEqual(sorted(names - set(MEANS_NOTHING)), [], "these do nothing: give them their meaning, or refuse")
        self.assertEqual(sorted(set(MEANS_NOTHING) - names), [], "these do something now: take their rows away")

    def test_they_would_be_found(self):
        source = """
            int nothing(void) { return 0; }
            int constant(int x) { return 5; }
            long minus(void) { return -1; }
            void empty(void *x) { }
            int argument(int x) { return x; }
            int reads(int *x) { return *x; }
            int writes(int *x) { *x = 1; return 0; }
            int reads(int *x); int calls(int *x) { return reads(x) + 1; }
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            (path / "some.c").write_text(source)
            run("cc", "-O2", "-fPIC", "-shared", "-o", str(path / "libsome.so"), str(path / "some.c"))
            self.assertEqual(set(empty_functions(path / "libsome.so")), {"nothing", "constant", "minus", "empty"})

    def test_they_would_be_found_in_sources(self):
        text = """
            return Api("one", []() -> Status { return {}; });
            return Api("two", [&]() -> Status { REPRISE_RETURN_IF_ERROR(NotNull(x, "x")); /**/ return {}; });
            return Api("three", [&]() -> Status { return NotNull(x, "x"); });
            return Api("four", [&]() -> Status { *x = 1; return {}; });
            return Api("five", [&] { return Write(x); });
        """.replace("/**/", "// nothing else\n")
        self.assertEqual(list(checking_functions(text)), ["one", "two", "three"])


if __name__ == "__main__":
    FOLDER = Path(sys.argv.pop(1))
    unittest.main()
