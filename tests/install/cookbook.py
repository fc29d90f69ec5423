"""Takes the programs out of docs/cookbook.md, builds and runs them as the page says, and compares what they print.

    cookbook.py PAGE FOLDER cpp       those in C++, against the toolkit that ASCEND_HOME_PATH names
    cookbook.py PAGE FOLDER python    those in Python, with this interpreter

A block of code begins with ```cpp NAME [VARIABLE=VALUE …] and is followed by a block ```text with what it prints; one
without is a header, or a kernel, which is compiled to NAME.so.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

FENCE = re.compile(r"^```(\w+) (\S+\.\w+)(?: ([^\n]*))?\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def run(command, folder, variables=()):
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300,
                          env={**os.environ, **dict(word.split("=", 1) for word in variables)})
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


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
        if ending == "cpp":
            run([*compiler, "-O2", "-shared", "-fPIC", name, "-o", f"{stem}.so"], folder)
        if expected is None:
            continue
        if ending == "cc":
            run([*compiler, name, "-o", stem, *libraries], folder)
        command = [f"./{stem}"] if ending == "cc" else [sys.executable, name]
        printed = run(command, folder, (variables or "").split())
        if printed != expected:
            sys.exit(f"FAILED: {name} prints\n{printed}and docs/cookbook.md says\n{expected}")
        programs += 1
    # As many as the page has headings of that kind; none is lost to a mistake in a fence.
    if programs != sum(1 for line in page.splitlines() if line.startswith(f"```{wanted} ") and
                       line.split()[1].rsplit(".", 1)[1] in ("cc", "py")):
        sys.exit(f"FAILED: {programs} programs in {wanted} were run, fewer than the page has")
    print(f"{programs} programs")


if __name__ == "__main__":
    main()
