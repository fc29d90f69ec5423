#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the #include lines of src/, facade/ and python/csrc/ against the layers of the project, and the door of streams.

    scripts/check_layers.py             fail on an include that the tables below do not allow, or on another way into a
                                        stream than the functions of src/runtime/submission.h
    scripts/check_layers.py --table     print the tables as Markdown; docs/architecture.md shows them, which is checked too

Also sees that the facades stay thin: they check arguments, look handles up, make one call and map its error. What
computes, waits or keeps state belongs into src/; see HEAVY.

LAYERS is the one place that says which folder may include which. A new folder needs a row; a new third-party header
needs a row in THIRD_PARTY. Tests may also include GoogleTest, nlohmann's JSON and the layer that they test.
"""

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
PAGE = REPO / "docs" / "architecture.md"


@dataclass(frozen=True)
class Layer:
    what: str
    may: tuple = ()  # folders of src/, besides itself
    public: tuple = ()  # folders of include/


# Lowest first: a folder may include itself and only folders that stand above it here.
LAYERS = {
    "src/base": Layer("Status and the error table, environment, logs, handles, futex, fault points, names and lines of code"),
    "src/kernels": Layer("pure CPU kernels over strided memory; simd/ holds all Highway code"),
    "src/opdef": Layer("what operators are, as data: types, parameters, rows; shapes with symbols, inference", ("base", "kernels")),
    "src/plan": Layer("planner of static memory: problem, heuristics, search, check; a leaf", ("base",)),
    "src/ir": Layer("task, graph and its partial order, arena: what is recorded and replayed", ("base",), ("reprise",)),
    "src/device": Layer("scheduler with its workers, registry of memory, timeline", ("base", "ir")),
    "src/exec": Layer("plan (a graph made ready to run: lanes, steps, fusion) and its replay", ("base", "ir", "device")),
    "src/runtime": Layer(
        "device, context, stream, event, kernel launch, callbacks, errors of threads",
        ("base", "ir", "device", "kernels"),
        ("reprise",),
    ),
    "src/ops": Layer(
        "operators: argument objects, table, checks, executors",
        ("base", "ir", "device", "kernels", "opdef", "runtime"),
        ("reprise",),
    ),
    "src/memory": Layer("caching allocators of device and pinned memory, over a driver interface", ("base",), ("reprise",)),
    "src/rng": Layer("generators that survive capture and replay, and the tasks that draw", ("base", "ir", "device", "kernels", "runtime")),
    "src/model": Layer("what an aclmdlRI handle stands for: model, execution, changes, built programs, liveness", ("base", "ir", "device", "exec", "runtime")),
    "src/capture": Layer("capture session and its rules", ("base", "ir", "device", "runtime", "model")),
    "src/collective": Layer("communicators, how ranks meet, collective operators as tasks", ("base", "kernels", "ir", "device", "exec", "runtime")),
    "src/tdt": Layer("tensor channels, queues, queue buffers", ("base", "kernels", "runtime")),
    "src/profile": Layer("profiler, marks and ranges of the program", ("base", "ir", "device", "runtime")),
    "src/observe": Layer("JSON trace, SVG picture and DOT of a model", ("base", "ir", "device", "kernels", "runtime", "model")),
    "src/compiler": Layer(
        "graphs of operators: import, check, shapes, passes, memory, and what runs them",
        ("base", "kernels", "opdef", "plan", "ir", "device", "exec", "runtime", "ops"),
    ),
    "src/ge": Layer(
        "classes of the graph engine as callers see them",
        ("base", "opdef", "runtime", "compiler"),
        ("graph", "exe_graph", "ge", "register"),
    ),
    "src/engine": Layer(
        "the graph engine: process, sessions, graphs and their states, options, summaries",
        ("base", "kernels", "opdef", "plan", "runtime", "device", "memory", "ge", "compiler"),
        ("reprise", "hccl"),
    ),
    "src/api": Layer(
        "implementation of include/reprise",
        ("base", "kernels", "opdef", "ir", "device", "exec", "runtime", "ops", "memory", "rng", "model", "capture", "observe"),
        ("reprise",),
    ),
    "facade/acl": Layer(
        "libascendcl.so: checks arguments, calls the core",
        ("base", "ir", "device", "kernels", "runtime", "model", "capture", "tdt", "profile", "observe"),
        ("acl",),
    ),
    "facade/nnopbase": Layer("libnnopbase.so: tensors, scalars, lists, executors", ("base", "runtime", "ops"), ("acl", "aclnn")),
    "facade/opapi": Layer("libopapi.so: generated two-phase functions", ("base", "runtime", "ops"), ("acl", "aclnn", "aclnnop")),
    "facade/mdl": Layer("libacl_mdl.so: offline models that the graph engine has compiled", ("base", "runtime"), ("acl",)),
    "facade/tdt_channel": Layer("libacl_tdt_channel.so: tensor channels", ("base", "runtime", "tdt"), ("acl",)),
    "facade/tdt_queue": Layer("libacl_tdt_queue.so: queues, routes, queue buffers", ("base", "runtime", "tdt"), ("acl",)),
    "facade/msprofiler": Layer("libmsprofiler.so: recording, marks, ranges", ("base", "device", "runtime", "profile"), ("acl",)),
    "facade/ascend_dump": Layer("libascend_dump.so: arguments of kernels, tensors of failed operators", ("base", "device", "runtime"), ("acl",)),
    "facade/op_executor": Layer("libacl_op_executor.so: operators called by their type, attributes", ("base", "runtime", "ops"), ("acl",)),
    "facade/op_compiler": Layer("libacl_op_compiler.so: the same with compile options", ("base", "runtime", "ops"), ("acl",)),
    "facade/cblas": Layer("libacl_cblas.so: matrix products as BLAS has them", ("base", "runtime", "ops"), ("acl",)),
    "facade/rt": Layer("libruntime.so: kernels behind addresses of the program's choice", ("base", "runtime"), ("experiment",)),
    "facade/mstx": Layer("libms_tools_ext.so: marks and ranges of the program", ("base", "device", "runtime", "profile"), ("acl", "mstx")),
    "facade/profapi": Layer("libprofapi.so: reports of frameworks", ("base", "device", "runtime", "profile"), ("experiment",)),
    "facade/c_sec": Layer("libc_sec.so: copies and texts that know how large their destination is", (), ("securec.h",)),
    "facade/hccl": Layer("libhccl.so: collectives", ("base", "device", "runtime", "model", "capture", "collective"), ("acl", "hccl")),
    "facade/hcomm": Layer("libhcomm.so: another name under which libhccl.so is found"),
    "facade/graph": Layer("libgraph.so: the classes of src/ge", ("base", "runtime", "ge"), ("graph", "exe_graph")),
    "facade/graph_base": Layer("libgraph_base.so, libregister.so, libexe_graph.so, libopp_registry.so: other names under which libgraph.so is found"),
    "facade/ge_runner": Layer(
        "libge_runner.so: the graph engine", ("base", "opdef", "runtime", "ge", "compiler", "engine"), ("ge", "graph", "exe_graph")
    ),
    "facade/ge_compiler": Layer(
        "libge_compiler.so: graphs compiled ahead of time", ("base", "runtime", "ge", "compiler", "engine"), ("ge", "graph")
    ),
    "facade/aoe_tuning": Layer("libaoe_tuning.so: tuning of graphs", ("base", "runtime", "ge", "compiler", "engine"), ("ge", "graph")),
    "facade/fmk_parser": Layer("libfmk_parser.so: there to be found by the loader"),
    "facade/ascend_protobuf": Layer("libascend_protobuf.so: there to be found by the loader"),
    "facade/atb": Layer("libatb.so: operations of the transformer library", ("base", "kernels", "runtime", "ops"), ("acl", "atb")),
    "facade/ascend_hal": Layer("libascend_hal.so: what profilers ask of a driver", ("base", "runtime")),
    "python/csrc": Layer("torch_npu._C: the PyTorch layer, over the public interfaces alone; torchair/: graphs of the engine", (), ("reprise", "acl", "hccl", "ge", "graph", "exe_graph")),
}


@dataclass(frozen=True)
class ThirdParty:
    header: str  # pattern of the name between the angle brackets
    where: str  # pattern of the path of the file that includes it
    text: str


THIRD_PARTY = (
    ThirdParty(r"hwy/", r"src/kernels/simd/", "Highway: src/kernels/simd"),
    ThirdParty(r"(immintrin|cpuid)\.h", r"src/kernels/simd/(bfloat16_instructions\.h|matrix_unit\.cc)", "instructions that Highway lacks: src/kernels/simd/bfloat16_instructions.h, matrix_unit.cc"),
    ThirdParty(
        r"nlohmann/",
        r"facade/acl/(init|dump)\.cc|src/collective/(address|rank_table)\.cc|src/engine/json_files\.cc|src/compiler/(inference_rule|passes/switches|tuning_bank)\.cc|tests/|.*_test\.cc",
        "nlohmann JSON: facade/acl/init.cc, dump.cc, src/collective/address.cc, rank_table.cc, src/engine/json_files.cc, src/compiler/inference_rule.cc, passes/switches.cc, tuning_bank.cc and tests",
    ),
    ThirdParty(r"gtest/|gmock/", r"tests/|.*_test\.cc|src/kernels/test_tensor\.h", "GoogleTest: tests"),
    ThirdParty(r"(ATen|c10|torch|pybind11)/|Python\.h|structmember\.h", r"python/csrc/", "PyTorch and Python: python/csrc"),
    ThirdParty(r"backtrace\.h", r"src/base/source_line\.cc", "libbacktrace of GCC: src/base/source_line.cc"),
    ThirdParty(r"valgrind/", r"src/base/memory_checker\.cc", "valgrind's requests, where the header is there: src/base/memory_checker.cc"),
    ThirdParty(r"google/protobuf/|wire/ge\.pb\.h", r"src/compiler/(import|export)/", "protobuf: src/compiler/import and export"),
    ThirdParty(r"CLI/", r"tools/", "CLI11: tools"),
    ThirdParty(r"fmt/", r"(src|facade|tests|tools|python)/(?!kernels/)", "fmt: everywhere but include/ and src/kernels"),
)

# The door: tasks enter a stream, its store or the graph of its capture by the functions of submission.h alone. The
# compiler keeps others out of what is private in stream.h; this sees that it stays private, and what it cannot see.
STREAM = "src/runtime/stream.h"
DOOR = "src/runtime/submission.h"
KEYHOLES = (  # what a file says, where it may say so, why nowhere else
    (r"\bSubmitToSink\(", r"src/capture/|src/runtime/(stream\.h|submission\.(h|cc))$",
     "SubmitToSink needs the lock under which src/capture looks captures up; call Submit"),
    (r"[gG]raph\w*(\(\))?(\.|->)Add\(", r"src/capture/session\.cc$|src/runtime/task_store\.cc$",
     "adds a task to a graph past the door; call Submit of runtime/submission.h on the stream"),
    (r"(\.|->)Record\(|\bRecord\(stream", r"src/runtime/submission\.cc$",
     "gives a task to a sink past the door; call Submit, or in src/capture SubmitToSink, of runtime/submission.h"),
    (r"store\(\)->Add\(", r"$^", "adds a task to the store of a stream past the door; call Submit of runtime/submission.h"),
)
KEYHOLE_FOLDERS = re.compile(r"(src/(runtime|model|capture|ops|rng|profile|observe|tdt|api)|facade)/")

@dataclass(frozen=True)
class Heavy:
    pattern: str
    why: str


# What a facade does not do, as patterns of lines without comments and texts. MAY_BE_HEAVY names the exceptions.
HEAVY = (
    Heavy(r"std::(memmove|fill|fill_n|sort|stable_sort|transform|accumulate)\(", "computes"),
    Heavy(r"std::memset\((?!\w+, 0, )", "fills memory"),
    Heavy(r"std::(this_thread|thread|jthread|condition_variable|async|future)\b|\b(sleep|usleep|poll)\(", "waits"),
    Heavy(r"std::(shared_|recursive_)?mutex\b|std::atomic<[^>]*> \w+[{;=]", "keeps state"),
    Heavy(r"^\s*static (?!const\b|constexpr\b)[^()=]*(= new\b|\{.*\};$|;$)", "keeps state"),
)
# A loop of more lines does more than read an array of arguments.
LONGEST_LOOP = 25
MAY_BE_HEAVY = {
    "facade/c_sec": "the library itself: its functions are copies and texts",
    "facade/acl/allocator.cc": "allocators of the program: C functions by stream, which only aclnn and ATB ask for",
    "facade/acl/init.cc": "whether aclInit was called, and the callbacks of aclFinalize",
    "facade/acl/state_callbacks.cc": "callbacks of the program, C functions by name",
    "facade/acl/state_callbacks.h": "callbacks of the program, C functions by name",
    "facade/acl/stream.cc": "which configurations, plain C structures, are live",
    "facade/op_compiler/op_compiler.cc": "options that are only kept, as texts",
    "facade/tdt_queue/queue.cc": "tables of handles of plain C objects",
}

# Headers of the system that are not standard C++; everything else with a dot or a slash is a third party.
SYSTEM = re.compile(r"(sys|linux)/\w+\.h|(dirent|dlfcn|elf|execinfo|ifaddrs|link|pthread|poll|sched|signal|spawn|stddef|stdint|strings|unistd)\.h|(arpa/inet|net/if|netinet/(in|tcp))\.h|cxxabi\.h|fcntl\.h")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')
# Files that only generated or table text includes.
SUFFIXES = {".h", ".cc", ".cpp", ".c", ".def"}


@dataclass
class Findings:
    lines: list = field(default_factory=list)

    def add(self, path, number, header, why):
        self.lines.append(f"{path}:{number}: includes {header}: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the tables as Markdown")
    if parser.parse_args().table:
        print(render_table())
        return 0
    check_order()
    findings = Findings()
    count = 0
    for path in sources():
        count += 1
        check_file(path, findings)
    findings.lines += check_door()
    check_thin(findings)
    if render_table() not in PAGE.read_text(encoding="utf-8"):
        findings.lines.append(f"{PAGE.relative_to(REPO)}: shows another table of layers; paste that of --table")
    print("\n".join(findings.lines) or f"layers: {count} files keep to the table, and to the door of streams")
    return 1 if findings.lines else 0


def check_order():
    """The table itself has no cycle: a row names only folders above it."""
    seen = set()
    for folder, layer in LAYERS.items():
        for name in layer.may:
            if name not in seen:
                raise SystemExit(f"check_layers.py: {folder} may include {name}, which stands below it in the table")
        if folder.startswith("src/"):
            seen.add(folder.removeprefix("src/"))


def sources():
    for root in ("src", "facade", "include/reprise", "python/csrc"):
        yield from sorted(p for p in (REPO / root).rglob("*") if p.suffix in SUFFIXES and p.is_file())


def check_file(path, findings):
    name = path.relative_to(REPO).as_posix()
    folder = "/".join(name.split("/")[:2])
    layer = LAYERS.get(folder)
    if layer is None and folder != "include/reprise" and name.count("/") > 1:
        findings.lines.append(f"{name}: {folder} has no row in the table of scripts/check_layers.py")
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match is None:
            continue
        quoted, angled = match.groups()
        why = check_angled(name, folder, layer, angled) if angled else check_quoted(path, folder, layer, quoted)
        if why:
            findings.add(name, number, f'"{quoted}"' if quoted else f"<{angled}>", why)


def check_door(repo=None):
    """Ways into a stream that are not in submission.h."""
    repo = repo or REPO
    door = (repo / DOOR).read_text(encoding="utf-8")
    lines = []
    public = True
    for number, line in enumerate((repo / STREAM).read_text(encoding="utf-8").splitlines(), 1):
        section = re.match(r"\s*(public|protected|private):|(class|struct) \w+[^;]*\{", line)
        if section:
            public = section[1] == "public" or section[2] == "struct"
        friend = re.match(r"\s*friend\b(?P<what>[^(;]*?(?P<name>\w+))\s*[(;]", line)
        if friend and not re.search(rf"^(inline )?[\w:*&<> ]+[ *&]{friend['name']}\(", door, re.M):
            lines.append(f"{STREAM}:{number}: {friend['what'].strip()} is a friend, but no function of {DOOR}, the one door")
        if public and re.search(r"\bir::Task(&|\s)", line) and not line.lstrip().startswith("//"):
            lines.append(f"{STREAM}:{number}: takes a task and is public: make it private, for a function of {DOOR}")
    for path in sorted(p for root in ("src", "facade") for p in (repo / root).rglob("*") if p.suffix in (".h", ".cc")):
        name = path.relative_to(repo).as_posix()
        if not KEYHOLE_FOLDERS.match(name) or name.endswith("_test.cc"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for said, where, why in KEYHOLES:
                if re.search(said, line) and not re.match(where, name) and not line.lstrip().startswith("//"):
                    lines.append(f"{name}:{number}: {why}")
    return lines


def check_thin(findings):
    """Facades compute nothing; an exception that is no longer needed goes."""
    used = set()
    for path in sources():
        name = path.relative_to(REPO).as_posix()
        if not name.startswith("facade/") or "/generated" in name:
            continue
        for number, why in heavy_lines(path.read_text(encoding="utf-8").splitlines()):
            exception = next((prefix for prefix in MAY_BE_HEAVY if name.startswith(prefix)), None)
            used.add(exception)
            if exception is None:
                findings.lines.append(f"{name}:{number}: {why}; facades only check, look up and call: move it into src/")
    for name in sorted(set(MAY_BE_HEAVY) - used):
        findings.lines.append(f"scripts/check_layers.py: {name} needs no exception in MAY_BE_HEAVY any more")


def heavy_lines(lines):
    """(number, reason) of the lines of a facade that do more than they should."""
    for number, line in enumerate(lines, 1):
        code = re.sub(r"//.*|\"(\\\\.|[^\"])*\"", "", line)
        for heavy in HEAVY:
            if re.search(heavy.pattern, code):
                yield number, heavy.why
                break
        loop = re.match(r"( *)(for|while|do)\b.*\{$", line)
        if loop:
            rest = lines[number:]
            length = next((i for i, other in enumerate(rest, 1) if other.startswith(loop.group(1) + "}")), len(rest))
            if length > LONGEST_LOOP:
                yield number, f"a loop of {length} lines"


def check_angled(name, folder, layer, header):
    for party in THIRD_PARTY:
        if re.match(party.header, header):
            return None if re.match(party.where, name) else f"allowed is {party.text}"
    if "." not in header and "/" not in header:
        return None  # standard C++
    if SYSTEM.fullmatch(header):
        return None
    if (REPO / "include" / header).exists():
        return check_public(folder, layer, header)
    return "no row of THIRD_PARTY in scripts/check_layers.py allows this header"


def check_quoted(path, folder, layer, header):
    if header.startswith("hwy/"):  # Highway wants its foreach_target.h in quotes
        return check_angled(path.relative_to(REPO).as_posix(), folder, layer, header)
    if (path.parent / header).exists():
        return None  # beside the file
    if folder == "python/csrc" and (REPO / folder / header).exists():
        return None
    if (REPO / "src" / header).exists():
        target = header.split("/")[0]
        if folder == f"src/{target}" or (layer is not None and target in layer.may):
            return None
        if layer is None:
            return "public headers include no header of src"
        allowed = ", ".join(layer.may) or "no other layer"
        return f"{folder} may include {allowed}; see the table in scripts/check_layers.py"
    if (REPO / "include" / header).exists():
        return check_public(folder, layer, header)
    if header.startswith("facade/") and folder == "/".join(header.split("/")[:2]):
        return None
    return "no such header in the project"


def check_public(folder, layer, header):
    target = header.split("/")[0]
    if folder == f"include/{target}" or (layer is not None and target in layer.public):
        return None
    return f"{folder} may not include public headers of {target}/"


def render_table():
    lines = ["| Folder | What it is | May include |", "|---|---|---|"]
    for folder, layer in LAYERS.items():
        allowed = [*layer.may, *(f"include/{name}" for name in layer.public)]
        lines.append(f"| `{folder}` | {layer.what} | {', '.join(allowed) or 'nothing of the project'} |")
    lines += ["", "Third-party headers:", "", *(f"- {party.text}" for party in THIRD_PARTY)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
