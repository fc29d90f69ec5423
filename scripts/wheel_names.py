#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the names that a published torch-npu package links or looks up, and which of them our libraries lack.

    scripts/wheel_names.py torch_npu-2.13.0-cp311-….whl    a wheel, also one for another Python or processor
    scripts/wheel_names.py …/site-packages/torch_npu       an installed package
    scripts/wheel_names.py 2.13.0 2.9.0                    releases: pip downloads them into build/wheels
    scripts/wheel_names.py --table 2.13.0 2.9.0            one line of Markdown for each, as in docs/published_package.md
    scripts/wheel_names.py --fail 2.13.0                   status 1 where a file or a linked name is missing

The package is read as files: nothing is loaded, so neither PyTorch nor the right Python is needed. *Linked* are the
names without which the dynamic linker refuses a library of the package, *looked up* those that it asks for by dlsym;
these show as texts in its read-only data, so that a name that it only mentions in a message counts, too.
"""

import argparse
import csv
import fnmatch
import pathlib
import re
import struct
import subprocess
import sys
import zipfile

REPO = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = REPO / "build" / "release" / "lib64"
WHEELS = REPO / "build" / "wheels"

# Libraries that the system or PyTorch brings.
FOREIGN = ("libc.so*", "libm.so*", "libdl.so*", "librt.so*", "libpthread.so*", "libgcc_s.so*", "libstdc++.so*",
           "ld-linux*", "libtorch*", "libc10*", "libgomp*", "libshm*", "libutil.so*")
# What a name of the toolkit looks like; everything else that a library lacks comes from the system or from PyTorch.
# The first library is the one where the package asks for it.
OWNERS = [
    (r"aclnn[A-Z]\w+|acl(?:Rfft1D|Stft)(?:GetWorkspaceSize)?", ["libopapi"]),
    (r"aclop(?:Start|Stop)DumpArgs", ["libacl_op_compiler"]),
    (r"aclrt(?:Get|Set|CtxSet|CtxGet)SysParamOpt", ["libacl_op_compiler"]),
    (r"acl(?:Set|Get)Compileopt\w*|aclop(?:Compile|SetCompile)\w*|aclGenGraphAndDumpForOp|acl\w+GraphDumpOpt",
     ["libacl_op_compiler"]),
    (r"aclop[A-Z]\w+", ["libascendcl", "libacl_op_compiler"]),
    (r"aclprof(?:GetSupportedFeatures\w*|MarkEx|RegisterDeviceCallback|SetConfig|Warmup)", ["libmsprofiler"]),
    (r"aclprof[A-Z]\w+", ["libascendcl"]),
    (r"acltdt[A-Z]\w+", ["libacl_tdt_channel", "libacl_tdt_queue"]),
    (r"aclsk[A-Z]\w+", ["libascendsk"]),
    (r"aclshmemx?_[a-z]\w+|shmem_[a-z]\w+", ["libshmem"]),
    (r"acl(?:Create|Destroy)(?:Tensor|Scalar|IntArray|BoolArray|FloatArray|TensorList|ScalarList)", ["libnnopbase"]),
    (r"aclGet(?:ViewShape|ViewStrides|ViewOffset|StorageShape|DataType|Format|RawTensorAddr)", ["libnnopbase"]),
    (r"(?:Init|UnInit)\w*ThreadLocal|\w+HugeMem\w*|\w*PTA\w+|AddTensorAddrToCachedList", ["libnnopbase"]),
    (r"acl(?:rt|mdl|dump|sys|data|vdec|cblas|blas|graph)?[A-Z]\w+", ["libascendcl", "libacl_mdl", "libnnopbase"]),
    (r"Hccl[A-Z]\w+", ["libhccl", "libhcomm"]),
    (r"Hcom[A-Z]\w+|Hcomm[A-Z]\w+", ["libhcomm", "libhccl"]),
    (r"Lcc?al?[A-Z]\w+", ["liblcal"]),
    (r"Aoe[A-Z]\w+", ["libaoe_tuning"]),
    (r"Aml(?:Aicore|P2P)DetectOnline", ["libascend_ml"]),
    (r"hal[A-Z]\w+", ["libascend_hal"]),
    (r"Msprof[A-Z]\w+", ["libprofapi"]),
    (r"mspti[A-Z]\w+", ["libmspti"]),
    (r"mstx[A-Z]\w+", ["libms_tools_ext"]),
    (r"dcmi(?:v2)?_\w+", ["libdcmi"]),
    (r"rt[A-Z]\w+", ["libruntime"]),
    (r"Ge[A-Z]\w+|GE[A-Z]\w+|GetRegisteredIrDef", ["libge_runner"]),
    (r"_ZNK?2ge\d+(?:Session|CompiledGraphSummary|GeSession|GE|Ge)\w*", ["libge_runner"]),
    (r"_Z\w*(?:2ge|4gert)\d\w+", ["libgraph", "libge_runner"]),
    (r"_Z\w*3atb\w+", ["libatb"]),
    (r"\w+_s", ["libc_sec"]),
]
OWNERS = [(re.compile(pattern), libraries) for pattern, libraries in OWNERS]
# Texts of the package that look like names and are none: messages, keys of options, functions and labels of its own.
NOT_LOOKED_UP = re.compile(
    r"\w+_s|rt[A-Z]\w+|GE[A-Z]\w+|Msprof\w+|Hccl(?:Allg\w+|Allr\w+|\w+Base|\w+_SendRecv|\w+Face|CommList|Scattr\w*)|"
    r"hal\w+hal\w+|aclProfiling\w+|aclQueryEvent\w+|aclStressDetect|mstxDomain(?:Include|Exclude)|"
    r"acl(?:Tensor|Scalar|IntArray|BoolArray|FloatArray|TensorList|ScalarList|OpExecutor)")
# Allowed to be absent: the package asks whether they are there and goes another way (docs/published_package.md).
OPTIONAL = {"libascend_ml", "libascendsk", "libdcmi", "liblcal", "libmspti", "libshmem"}
OPTIONAL_NAMES = re.compile(
    r"GeSession\w+|GetRegisteredIrDef|\w*(?:Init|UnInit)\w*ThreadLocal|\w*HugeMem\w*|\w*PTA\w+|AddTensorAddrToCachedList")


class Elf:
    """The dynamic section of a 64-bit little-endian ELF file: needed libraries, symbols, texts."""

    def __init__(self, data):
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("no 64-bit little-endian ELF file")
        self.data = data
        offset, entry, count, names = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HHH", data, 58)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * entry) for i in range(count)]
        table = self.sections[names][4]
        self.by_name = {self._text(table + section[0]): section for section in self.sections}
        self.needed, self.defined, self.undefined = [], set(), set()
        self._read_dynamic()
        self._read_symbols()

    def _text(self, at):
        return self.data[at : self.data.index(b"\0", at)].decode("ascii", "replace")

    def _read_dynamic(self):
        dynamic = self.by_name.get(".dynamic")
        if dynamic is None:
            return
        strings = self.sections[dynamic[6]][4]
        for at in range(dynamic[4], dynamic[4] + dynamic[5], 16):
            tag, value = struct.unpack_from("<qQ", self.data, at)
            if tag == 1:  # DT_NEEDED
                self.needed.append(self._text(strings + value))

    def _read_symbols(self):
        table = self.by_name.get(".dynsym")
        if table is None:
            return
        strings = self.sections[table[6]][4]
        for at in range(table[4] + 24, table[4] + table[5], 24):
            name, info, _, section = struct.unpack_from("<IBBH", self.data, at)
            text = self._text(strings + name)
            if section != 0:
                self.defined.add(text)
            elif info >> 4 != 2:  # a weak name may stay unbound
                self.undefined.add(text)

    def texts(self):
        """All texts of the read-only data that could be a C name."""
        found = set()
        for name, section in self.by_name.items():
            if name.startswith(".rodata"):
                block = self.data[section[4] : section[4] + section[5]]
                found.update(text.decode() for text in re.findall(rb"(?<=\0)[A-Za-z_]\w{4,120}(?=\0)", block))
        return found


def owners(name):
    """The libraries where a name of the toolkit may be; empty for a name that is none."""
    return next((libraries for pattern, libraries in OWNERS if pattern.fullmatch(name)), [])


def files_of(package):
    """{path: bytes} of the shared objects of a wheel or of an installed package."""
    path = pathlib.Path(package)
    if path.is_dir():
        return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*.so"))}
    with zipfile.ZipFile(path) as wheel:
        return {name: wheel.read(name) for name in sorted(wheel.namelist()) if re.search(r"\.so(\.\d+)*$", name)}


def fetch(release):
    """The wheel of a release for x86-64, of whichever Python there is one for."""
    for python in ("3.11", "3.10", "3.12", "3.9", "3.13"):
        WHEELS.mkdir(parents=True, exist_ok=True)
        have = sorted(WHEELS.glob(f"torch_npu-{release}-cp{python.replace('.', '')}-*x86_64.whl"))
        if have:
            return have[0]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", f"--python-version={python}",
             "--platform=manylinux_2_28_x86_64", "-d", str(WHEELS), f"torch-npu=={release}"],
            check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        have = sorted(WHEELS.glob(f"torch_npu-{release}-cp{python.replace('.', '')}-*x86_64.whl"))
        if have:
            return have[0]
    raise SystemExit(f"wheel_names.py: pip cannot download torch-npu {release}; pass the path of its wheel")


class Ours:
    """What the libraries of a folder export, each with what it needs: that is where dlsym and the loader look."""

    def __init__(self, folder):
        self.elf = {}
        for file in sorted(folder.glob("lib*.so")):
            self.elf[file.name] = Elf(file.read_bytes())
        if not self.elf:
            raise SystemExit(f"wheel_names.py: no libraries in {folder}; build them, or name their folder by --lib-dir")
        self.all = set().union(*(elf.defined for elf in self.elf.values()))

    def reachable(self, libraries):
        """Names that a search from these libraries finds."""
        seen, names = set(), set()
        todo = list(libraries)
        while todo:
            library = todo.pop()
            if library in seen or library not in self.elf:
                continue
            seen.add(library)
            names |= self.elf[library].defined
            todo += self.elf[library].needed
        return names


class Report:
    def __init__(self, package, ours):
        objects = {name: Elf(data) for name, data in files_of(package).items()}
        if not objects:
            raise SystemExit(f"wheel_names.py: no shared objects in {package}")
        own = set().union(*(elf.defined for elf in objects.values()))
        packaged = {pathlib.PurePath(name).name for name in objects}
        needed = {file for elf in objects.values() for file in elf.needed} - packaged
        self.files = {f for f in needed if not any(fnmatch.fnmatch(f, foreign) for foreign in FOREIGN)}
        self.linked = {name for elf in objects.values() for name in elf.undefined - own if owners(name)}
        texts = set().union(*(elf.texts() for elf in objects.values()))
        self.looked_up = {n for n in texts - own - self.linked if owners(n) and not NOT_LOOKED_UP.fullmatch(n)}
        self.missing_files = {file for file in self.files if file not in ours.elf}
        # The loader looks through all that is loaded: the needed libraries of all objects and what these need.
        self.missing_linked = self.linked - ours.reachable({file for elf in objects.values() for file in elf.needed})
        self.missing_looked_up = {
            n for n in self.looked_up if n not in ours.reachable(f"{library}.so" for library in owners(n))}

    def by_library(self, names):
        grouped = {}
        for name in sorted(names):
            grouped.setdefault(owners(name)[0], []).append(name)
        return grouped

    def operators(self):
        """Operators that are looked up, and those that are missing, without their names of two phases."""
        def stems(names):
            return {n.removesuffix("GetWorkspaceSize") for n in names if owners(n) == ["libopapi"]}
        wanted = stems(self.looked_up)
        # Those that are there by name alone are not there.
        with (REPO / "api" / "ops_refused.csv").open() as rows:
            refused = {row["operator"] for row in csv.DictReader(rows)}
        return wanted, stems(self.missing_looked_up) | wanted & refused


def needed_names(report):
    """Looked up and missing, without operators and without libraries that may be absent."""
    grouped = report.by_library({n for n in report.missing_looked_up if not OPTIONAL_NAMES.fullmatch(n)})
    return {k: v for k, v in grouped.items() if k not in OPTIONAL and k != "libopapi"}


def show(package, report):
    wanted, absent = report.operators()
    print(f"{package}: {len(report.files)} libraries, {len(report.linked)} linked names, {len(report.looked_up)} looked up")
    print(f"  libraries that are missing: {', '.join(sorted(report.missing_files)) or 'none'}")
    for title, names in (("linked", report.missing_linked), ("looked up", report.missing_looked_up)):
        names = {n for n in names if owners(n) != ["libopapi"]}
        print(f"  {title} and missing: {len(names)}")
        for library, members in report.by_library(names).items():
            optional = library in OPTIONAL or all(OPTIONAL_NAMES.fullmatch(n) for n in members)
            note = " (may be absent)" if optional else ""
            print(f"    {library}{note}: {' '.join(members)}")
    print(f"  operators: {len(wanted)} looked up, {len(wanted) - len(absent)} here")


def row(package, report):
    wanted, absent = report.operators()
    names = sorted(n for members in needed_names(report).values() for n in members)
    release = re.search(r"torch_npu-([^-]+)-", str(package))
    return (f"| {release.group(1) if release else package} | {len(report.linked)} | {len(report.missing_linked)} | "
            f"{len(report.looked_up) - len(wanted)} | {', '.join(f'`{n}`' for n in names) or 'none'} | "
            f"{len(wanted) - len(absent)} of {len(wanted)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", nargs="+", help="a wheel, an installed package, or a release")
    parser.add_argument("--lib-dir", type=pathlib.Path, default=LIBRARIES, help="our libraries (build/release/lib64)")
    parser.add_argument("--operators", action="store_true", help="also print the operators that are missing")
    parser.add_argument("--table", action="store_true", help="a line of Markdown for each package")
    parser.add_argument("--fail", action="store_true", help="status 1 where a file or a linked name is missing")
    options = parser.parse_args()
    ours = Ours(options.lib_dir)
    status = 0
    for package in options.packages:
        path = pathlib.Path(package) if pathlib.Path(package).exists() else fetch(package)
        report = Report(path, ours)
        if options.table:
            print(row(path, report))
        else:
            show(path, report)
            if options.operators:
                print("  operators that are missing: " + " ".join(sorted(report.operators()[1])))
        if options.fail and (report.missing_files or report.missing_linked):
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
