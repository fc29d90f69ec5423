#!/usr/bin/env python3
"""check_rulers.py [--fix] [FILE…]: rulers have one form, `// ---- Words ----`, or `# ---- Words ----`.

--fix rewrites the others: those that are filled up with dashes, that begin with many of them, or that a formatter has
broken into two lines.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ["*.cc", "*.cpp", "*.h", "*.py", "*.sh", "*.cmake", "*CMakeLists.txt"]
GENERATED = re.compile(r"^(include/(acl|aclnn|aclnnop)/|facade/[a-z_]+/generated_[a-z]+\.cc$|facade/opapi/generated/|"
                       r"src/(ops|opdef)/generated/|tests/abi/)")

RULER = re.compile(r"^(\s*)(//|#) ?-{3,} ?([^\s-].*?)(?: -{2,}/?)?$")
DASHES = re.compile(r"^(\s*)(//|#) ?-{4,}$")
WORDS = re.compile(r"^(\s*)(//|#) (\w.*)$")


def capital(words):
    """`words` with a capital letter, unless it begins with a name."""
    return words if re.match(r"[a-z]*[A-Z_(:.\d]|[a-z]+_", words) else words[:1].upper() + words[1:]


def rewritten(lines):
    result, i = [], 0
    while i < len(lines):
        match = RULER.match(lines[i])
        if match is None and DASHES.match(lines[i]) and i + 1 < len(lines):  # the words are on the line below
            match = WORDS.match(lines[i + 1])
            i += match is not None
        if match is None:
            result.append(lines[i])
        else:
            if i + 1 < len(lines) and DASHES.match(lines[i + 1]):  # the dashes are
                i += 1
            indent, sign, words = match.groups()
            title, _, more = words.partition(". ")
            result.append(f"{indent}{sign} ---- {capital(title)} ----")
            if more:
                result.append(f"{indent}{sign} {more}")
        i += 1
    return result


def main():
    fix = "--fix" in sys.argv
    files = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    if not files:
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *SOURCES],
                                cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        files = [file for file in listed if not GENERATED.match(file)]
    status = 0
    for file in files:
        path = ROOT / file
        if not path.exists():
            continue
        lines = path.read_text().split("\n")
        wanted = rewritten(lines)
        if wanted == lines:
            continue
        if fix:
            path.write_text("\n".join(wanted))
            continue
        at = next(i for i, (a, b) in enumerate(zip(lines, wanted)) if a != b)
        print(f"{file}:{at + 1}: write {wanted[at].strip()} (scripts/check_rulers.py --fix does)")
        status = 1
    return status


sys.exit(main())
