"""Takes the programs out of docs/cookbook.md, builds and runs them as the page says, and compares what they print.

    cookbook.py PAGE FOLDER cpp       those in C++, against the toolkit that ASCEND_HOME_PATH names
    cookbook.py PAGE FOLDER python    those in Python, with this interpreter

A block of code begins with ```cpp NAME [VARIABLE=VALUE …] and is followed by a block ```text with what it prints; one
without is a header, or a kernel, which is compiled to NAME.so. CXXFLAGS=… is for the compiler. A program with STATUS=1
ends with that status, and prints the lines of the block in their order, among others and on standard error, too; … in
a line stands for any text.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

FENCE = re.compile(r"^```(\w+) (\S+\.\w+)(?: ([^\n]*))?\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def run(command, folder, variables=None, status=0):
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300,
                          env={**os.environ, **(variables or {})})
    if done.returncode != status:
        sys.exit(f"FAILED: {' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stdout + done.stderr


def has_lines(printed, expected):
    """Whether the lines of `expected` are in `printed`, in their order, … being any text."""
    lines = iter(printed.splitlines())
    return all(any(re.fullmatch(".*".join(map(re.escape, wanted.split("…"))), line) for line in lines)
               for wanted in expected.splitlines())


def main():
    page, folder, wanted = Path(sys.argv[1]).read_text(), Path(sys.argv[2]), sys.argv[3]
    recipes = [found.groups() for found in FENCE.finditer(page) if found.group(1) == wanted]
    for _, name, _, code, _ in recipes:
        (folder / name).write_text(code)
    home = os.environ.get("ASCEND_HOME_PATH", "")
    compiler = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{home}/include"]
    libraries = [f"-L{home}/lib64", "-lascendcl", "-lnnopbase", "-lopapi", "-lreprise"]
    programs = 0
    for _, name, variables, _, expected in sorted(recipes, key=lambda recipe: recipe[4] is not None):
        stem, ending = name.rsplit(".", 1)
        variables = dict(word.split("=", 1) for word in (variables or "").split())
        flags = variables.pop("CXXFLAGS", "").split(",") if "CXXFLAGS" in variables else []
        status = int(variables.pop("STATUS", "0"))
        if ending == "cpp":
            run([*compiler, "-O2", *flags, "-shared", "-fPIC", name, "-o", f"{stem}.so"], folder)
        if expected is None:
            continue
        if ending == "cc":
            run([*compiler, *flags, name, "-o", stem, *libraries], folder)
        command = [f"./{stem}"] if ending == "cc" else [sys.executable, name]
        printed = run(command, folder, variables, status)
        if printed != expected if status == 0 else not has_lines(printed, expected):
            sys.exit(f"FAILED: {name} prints\n{printed}and docs/cookbook.md says\n{expected}")
        programs += 1
    # As many as the page has headings of that kind; none is lost to a mistake in a fence.
    if programs != sum(1 for line in page.splitlines() if line.startswith(f"```{wanted} ") and
                       line.split()[1].rsplit(".", 1)[1] in ("cc", "py")):
        sys.exit(f"FAILED: {programs} programs in {wanted} were run, fewer than the page has")
    print(f"{programs} programs")


if __name__ == "__main__":
    main()
