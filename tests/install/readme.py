"""Takes the whole program out of README.md, builds and runs it as the page says, compares what it prints, and its graph
with the picture that stands beside it.

    readme.py PAGE FOLDER             against the toolkit that ASCEND_HOME_PATH names; FOLDER is for what is built
    readme.py PAGE FOLDER --write     draws the picture anew
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


def run(command, folder):
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def structure(picture):
    """What is the same in each process: not the addresses, nor how much memory a graph takes."""
    text = re.sub(r"0x[0-9a-f]{6,}", "0x…", picture)
    return re.sub(r"(tasks? on \d+ streams?), [^<]*", r"\1", text)


def main():
    page, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    text = page.read_text()
    program = re.search(r"^## The whole program\n\n```cpp\n(.*?)^```$", text, re.MULTILINE | re.DOTALL).group(1)
    printed = re.search(r"^```console\n\$ g\+\+ [^\n]*program\.cc[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL).group(1)
    shown = page.parent / re.search(r"^!\[[^\]]*\]\((\S+\.svg)\)$", text, re.MULTILINE).group(1)

    drawing = program.replace("#include <acl/acl.h>\n", "#include <acl/acl.h>\n#include <reprise/reprise.h>\n", 1)
    drawing = re.sub(r"\n\}\n$", '\n  return reprise::WriteGraphPicture(graph, "readme.svg");\n}\n', drawing)
    if drawing.count("reprise") != 3:
        sys.exit("FAILED: the program in README.md has no place where its graph could be drawn")
    home = os.environ["ASCEND_HOME_PATH"]
    for name, source in (("program", program), ("drawing", drawing)):
        (folder / f"{name}.cc").write_text(source)
        run(["g++", "-std=c++17", f"{name}.cc", "-o", name, f"-I{home}/include", f"-L{home}/lib64", "-lascendcl",
             "-lnnopbase", "-lopapi", "-lreprise"], folder)
        if (got := run([f"./{name}"], folder)) != printed:
            sys.exit(f"FAILED: the program prints\n{got}and README.md says\n{printed}")
    drawn = folder / "readme.svg"
    if sys.argv[3:] == ["--write"]:
        shutil.copyfile(drawn, shown)
    elif structure(drawn.read_text()) != structure(shown.read_text()):
        sys.exit(f"FAILED: {shown} is not the graph of the program in README.md any more: "
                 f"diff {drawn} {shown}; {sys.argv[0]} PAGE FOLDER --write draws it anew")


if __name__ == "__main__":
    main()
