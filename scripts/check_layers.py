#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the #include lines of src/, facade/ and python/csrc/ against the layers of the project.

    scripts/check_layers.py             fail on an include that the tables below do not allow
    scripts/check_layers.py --table     print the tables as Markdown; docs/architecture.md shows them, which is checked too

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
    "src/ir": Layer("task, graph, arena: what is recorded and replayed", ("base",), ("reprise",)),
    "src/device": Layer("scheduler with its workers, registry of memory, timeline", ("base", "ir")),
    "src/exec": Layer("plan (a graph made ready to run) and its replay", ("base", "ir", "device")),
    "src/runtime": Layer(
        "device, context, stream, event, kernel launch, callbacks, errors of threads",
        ("base", "ir", "device", "kernels"),
        ("reprise",),
    ),
    "src/ops": Layer(
        "operators: argument objects, table, checks, executors",
        ("base", "ir", "device", "kernels", "runtime"),
        ("reprise",),
    ),
    "src/memory": Layer("caching allocators of device and pinned memory, over a driver interface", ("base",), ("reprise",)),
    "src/rng": Layer("generators that survive capture and replay, and the tasks that draw", ("base", "ir", "device", "kernels", "runtime")),
    "src/model": Layer("what an aclmdlRI handle stands for: model, execution, changes, built programs, liveness", ("base", "ir", "device", "exec", "runtime")),
    "src/capture": Layer("capture session and its rules", ("base", "ir", "device", "runtime", "model")),
    "src/tdt": Layer("tensor channels, queues, queue buffers", ("base", "kernels", "runtime")),
    "src/profile": Layer("profiler, marks and ranges of the program", ("base", "device", "runtime")),
    "src/observe": Layer("JSON trace, SVG picture and DOT of a model", ("base", "ir", "device", "kernels", "runtime", "model")),
    "src/ge": Layer("classes of the graph engine as callers see them"),
    "src/api": Layer(
        "implementation of include/reprise",
        ("base", "kernels", "ir", "device", "exec", "runtime", "ops", "memory", "rng", "model", "capture", "observe"),
        ("reprise",),
    ),
    "facade/acl": Layer(
        "libascendcl.so: checks arguments, calls the core",
        ("base", "ir", "device", "kernels", "runtime", "model", "capture", "tdt", "profile", "observe"),
        ("acl",),
    ),
    "facade/nnopbase": Layer("libnnopbase.so: tensors, scalars, lists, executors", ("base", "runtime", "ops"), ("acl", "aclnn")),
    "facade/opapi": Layer("libopapi.so: generated two-phase functions", ("base", "runtime", "ops"), ("acl", "aclnn", "aclnnop")),
    "facade/mdl": Layer("libacl_mdl.so: offline models, all refused", ("base", "runtime"), ("acl",)),
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
    "facade/hccl": Layer("libhccl.so: collectives, refused; what is configured for the whole process", ("base", "runtime")),
    "facade/hcomm": Layer("libhcomm.so: another name under which libhccl.so is found"),
    "facade/graph": Layer("libgraph.so: texts, shapes, tensors and graphs of the graph engine", ("base", "runtime", "ge")),
    "facade/ge_runner": Layer("libge_runner.so: the graph engine, refused", ("base", "runtime", "ge")),
    "facade/fmk_parser": Layer("libfmk_parser.so: there to be found by the loader"),
    "facade/ascend_protobuf": Layer("libascend_protobuf.so: there to be found by the loader"),
    "facade/atb": Layer("libatb.so: operations of the transformer library, refused", ("base", "runtime")),
    "facade/ascend_hal": Layer("libascend_hal.so: what profilers ask of a driver", ("base", "runtime")),
    "python/csrc": Layer("torch_npu._C: the PyTorch layer, over the public interfaces alone", (), ("reprise", "acl")),
}


@dataclass(frozen=True)
class ThirdParty:
    header: str  # pattern of the name between the angle brackets
    where: str  # pattern of the path of the file that includes it
    text: str


THIRD_PARTY = (
    ThirdParty(r"hwy/", r"src/kernels/simd/", "Highway: src/kernels/simd"),
    ThirdParty(r"nlohmann/", r"facade/acl/(init|dump)\.cc|tests/|.*_test\.cc", "nlohmann JSON: facade/acl/init.cc, dump.cc and tests"),
    ThirdParty(r"gtest/|gmock/", r"tests/|.*_test\.cc|src/kernels/test_tensor\.h", "GoogleTest: tests"),
    ThirdParty(r"(ATen|c10|torch|pybind11)/|Python\.h|structmember\.h", r"python/csrc/", "PyTorch and Python: python/csrc"),
    ThirdParty(r"backtrace\.h", r"src/base/source_line\.cc", "libbacktrace of GCC: src/base/source_line.cc"),
    ThirdParty(r"valgrind/", r"src/base/memory_checker\.cc", "valgrind's requests, where the header is there: src/base/memory_checker.cc"),
    ThirdParty(r"fmt/", r"(src|facade|tests|python)/(?!kernels/)", "fmt: everywhere but include/ and src/kernels"),
)

# Headers of the system that are not standard C++; everything else with a dot or a slash is a third party.
SYSTEM = re.compile(r"(sys|linux)/\w+\.h|(dirent|dlfcn|elf|execinfo|link|pthread|sched|signal|spawn|stddef|stdint|strings|unistd)\.h|cxxabi\.h|fcntl\.h")
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
    if render_table() not in PAGE.read_text(encoding="utf-8"):
        findings.lines.append(f"{PAGE.relative_to(REPO)}: shows another table of layers; paste that of --table")
    print("\n".join(findings.lines) or f"layers: {count} files keep to the table")
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
