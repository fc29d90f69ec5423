#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links of documentation pages: the files that they name exist, and so do the headings."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^()\s]+)\)")


def text_of(page):
    """Without blocks of code, whose brackets are no links."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def headings(page):
    """As GitHub names them: lower case, words joined by hyphens; the second of a name ends in -1."""
    names = {}
    for line in text_of(page).splitlines():
        if match := re.match(r"#+\s+(.*)", line):
            title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match[1]).strip().lower()
            name = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            number = names[name] = names.get(name, -1) + 1
            yield f"{name}-{number}" if number else name
    yield from re.findall(r'<a (?:id|name)="([^"]+)"', page.read_text(encoding="utf-8"))


def main():
    top = [folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name != "build" and folder.name[0] != "."]
    pages = sorted([*ROOT.glob("*.md"), *(page for folder in top for page in folder.rglob("*.md"))])
    findings, count = [], 0
    for page in pages:
        name = page.relative_to(ROOT)
        for target in LINK.findall(text_of(page)):
            if re.match(r"[a-z]+:", target):
                continue
            count += 1
            file, _, heading = target.partition("#")
            other = (page.parent / file).resolve() if file else page
            if not other.exists():
                findings.append(f"{name} links to {target}, which does not exist")
            elif heading and other.suffix == ".md" and heading not in headings(other):
                findings.append(f"{name} links to {target}, which has no such heading")
    print(*findings, sep="\n") if findings else print(f"links: {count} in {len(pages)} pages lead somewhere")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
