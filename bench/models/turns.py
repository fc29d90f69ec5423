# SPDX-License-Identifier: Apache-2.0
"""One contestant in a process of its own, that takes its turns when it is told to.

The process prints one line of JSON when it is ready, then reads one number of seconds a line, runs its step for about so
long, and prints one line of JSON for each. In between it waits for input, so that the machine belongs to the one whose turn
it is.
"""
import json
import sys
import time

WARM_UP = 5


def say(**words):
    sys.__stdout__.write(json.dumps(words) + "\n")
    sys.__stdout__.flush()


def take(step, **ready):
    """`step` runs the model once. `ready`: what to say first."""
    for _ in range(WARM_UP):
        step()
    begin = time.perf_counter()
    step()
    once = max(time.perf_counter() - begin, 1e-7)
    say(**ready)
    for line in sys.stdin:
        count = max(1, int(float(line) / once))
        step()  # brings what others have thrown out of the caches
        begin = time.perf_counter()
        for _ in range(count):
            step()
        once = (time.perf_counter() - begin) / count
        say(step=once)
