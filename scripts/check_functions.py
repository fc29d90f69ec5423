#!/usr/bin/env python3
"""check_functions.py: functions longer than 80 lines hold several thoughts, unless EXCEPTIONS names them with a reason.

C++ is read by counting braces, which comments, literals and lines of the preprocessor cannot disturb; a lambda counts as
part of the function that holds it. Python is read by its own parser. An exception that is not needed any more fails, too.
"""
import ast
import re
import subprocess
import sys
from pathlib import Path

LIMIT = 80
ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["src", "facade", "python", "scripts"]
GENERATED = re.compile(r"^(facade/[a-z_]+/generated_[a-z]+\.cc|facade/opapi/generated/|src/(ops|opdef)/generated/)")

# (path, function): why it stays in one piece.
EXCEPTIONS = {
    ("src/capture/events.cc", "WaitEvent"): "the rules of a wait, in the order in which they decide",
    ("src/exec/replay.cc", "Replay::RunSteps"): "the loop that runs steps: calls in it would cost what replays save",
    ("src/kernels/indexed.cc", "ForEachIndexed"): "nested loops that share a dozen of pointers and counts",
    ("src/kernels/remap.cc", "RemapWords"): "an odometer whose parts share a dozen of pointers and counts",
    ("src/ops/op_call.cc", "OpCall::Bind"): "one loop over the parameters, a case for each role",
}

NOISE = re.compile(
    r'//(?:\\\n|[^\n])*'  # comment to the end of its line
    r'|/\*.*?\*/'
    r'|R"([^()\\\s]{0,16})\(.*?\)\1"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"  # not the separator of digits
    r'|^[ \t]*\#(?:\\\n|[^\n])*',
    re.S | re.M)
CONTROL = {"if", "for", "while", "switch", "catch", "return", "sizeof", "alignof", "decltype", "noexcept", "requires",
           "alignas", "static_assert", "__attribute__"}
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b")


def blank(match):
    """What the compiler does not read as code, without its braces, with its lines."""
    return re.sub(r"[^\n]", " ", match.group(0))


def name_of(head):
    """The name of the function whose signature is `head`; None where `head` opens something else."""
    head = re.sub(r"\[\[.*?\]\]", " ", head)
    head = re.sub(r"\btemplate\s*<[^;{}]*?>\s*(?=[\w:])", " ", head)
    depth = 0
    for i, c in enumerate(head):  # an initialiser at namespace scope is data
        if c in "(<[":
            depth += 1
        elif c in ")>]":
            depth = max(0, depth - 1)
        elif c == "=" and depth == 0 and not re.search(r"operator\s*[=!<>+\-*/%&|^]*$", head[:i]) and head[i + 1:i + 2] != "=":
            return None
    for match in re.finditer(r"([\w:~]*\boperator\s*(?:\(\)|\[\]|[^\s\w(]+|\s\w+)|[\w:~]+)\s*\(", head):
        name = re.sub(r"\s+", "", match.group(1))
        if name not in CONTROL:
            return name
    return None


def functions_of_cpp(text):
    """(name, first line, last line) of each function that is defined in a namespace or in a class."""
    text = NOISE.sub(blank, text)
    stack = []  # for each open brace: "scope", or (name, line) of a function, or "data"
    inside = 0  # open braces at and below the innermost function
    start = 0  # where the present declaration began
    for match in re.finditer(r"[{};]", text):
        at, c = match.start(), match.group(0)
        if c == ";":
            if inside == 0 and text.count("(", start, at) <= text.count(")", start, at):
                start = at + 1
        elif c == "{":
            if inside:
                stack.append("block")
                inside += 1
                continue
            head = text[start:at]
            name = name_of(head)
            if name is None and (SCOPE.search(head) or 'extern ' in head):
                stack.append("scope")
                start = at + 1
            else:
                first = start + len(head) - len(head.lstrip())
                stack.append((name, text.count("\n", 0, first) + 1) if name else "data")
                inside = 1
        else:
            opened = stack.pop() if stack else "scope"
            if opened == "scope":
                start = at + 1
                continue
            inside -= 1
            if inside == 0:
                # `: member_{1}, other_{2} {` is all head of a constructor.
                rest = text[at + 1:at + 40].lstrip()
                if isinstance(opened, tuple) and rest[:1] in (",", "{"):
                    continue
                start = at + 1
                if isinstance(opened, tuple):
                    yield opened[0], opened[1], text.count("\n", 0, at) + 1


def functions_of_python(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    long, count = {}, 0
    for path in listed:
        if GENERATED.match(path) or not (ROOT / path).exists():
            continue
        if path.endswith((".cc", ".h")):
            functions = functions_of_cpp((ROOT / path).read_text())
        elif path.endswith(".py"):
            functions = functions_of_python((ROOT / path).read_text())
        else:
            continue
        for name, first, last in functions:
            count += 1
            if last - first + 1 > LIMIT:
                long[path, name] = (first, last - first + 1)
    status = 0
    for (path, name), (line, lines) in sorted(long.items()):
        if (path, name) not in EXCEPTIONS:
            print(f"{path}:{line}: {name} has {lines} lines, more than {LIMIT}: break it where a thought ends")
            status = 1
    for path, name in sorted(set(EXCEPTIONS) - set(long)):
        print(f"{path}: {name} has at most {LIMIT} lines, or is gone: take it out of EXCEPTIONS in {Path(__file__).name}")
        status = 1
    if status == 0:
        print(f"{count} functions, {len(EXCEPTIONS)} of them with more than {LIMIT} lines for a reason")
    return status


sys.exit(main())
