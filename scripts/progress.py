#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows what ninja says, piped in with NINJA_STATUS="%f %t %e ", as one line with the time that is left.

    NINJA_STATUS="%f %t %e " ninja 2>&1 | scripts/progress.py NAME

The time left is that of the steps so far, carried on. What is no step (words of a compiler) is printed as it is.
"""
import re
import shutil
import sys

STEP = re.compile(r"(\d+) (\d+) ([0-9.]+) (.*)")


def left(done: int, steps: int, elapsed: float) -> str:
    """In words; empty as long as nothing can be said."""
    if done < 8 or done >= steps:
        return ""
    seconds = elapsed / done * (steps - done)
    return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


def main() -> None:
    name, shown = sys.argv[1], False
    for line in sys.stdin:
        step = STEP.match(line)
        if step is None:
            print(("\n" if shown else "") + line.rstrip("\n"), flush=True)
            shown = False
            continue
        done, steps, elapsed = int(step[1]), int(step[2]), float(step[3])
        text = f"[{name} {done}/{steps}{left(done, steps, elapsed)}] {step[4]}"
        width = shutil.get_terminal_size().columns - 1
        print("\r\033[K" + text[:width], end="", flush=True)
        shown = True
    if shown:
        print()


if __name__ == "__main__":
    main()
