# SPDX-License-Identifier: Apache-2.0
"""Rows of a table, answered in processes that are forked from this one, which must never ask for the device.

Such a process ends with the first row that fails, since a failure may leave the device unwell (``ends_with`` may know
better), and the row is answered again in a process of its own, whose answer counts. A process that ends or hangs is the
failure of the row it was at.
"""
import json
import os
import select
import signal
import sys
import time
import warnings

import torch

PASS, SKIP = "", "skip"
ENDED = "the process ended with"


def is_failure(answer):
    return answer not in (PASS, SKIP)


def _work(rows, answer, ends_with, pipe):
    """In a process of its own: answers as lines, until one fails."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with os.fdopen(pipe, "w", encoding="utf-8") as out:
        for row in rows:
            begun = time.perf_counter()
            found = answer(row)
            out.write(json.dumps([found, time.perf_counter() - begun]) + "\n")
            out.flush()
            if ends_with(found):
                break


def _start(rows, answer, ends_with):
    read, write = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(read)
            _work(rows, answer, ends_with, write)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    return process, read


def _lines_of(process, pipe, seconds):
    """What the process writes, line by line; a row that takes too long ends it."""
    rest = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], seconds)
        if not ready:
            os.kill(process, signal.SIGKILL)
            return
        more = os.read(pipe, 1 << 16)
        if not more:
            return
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _answers(rows, answer, seconds, ends_with):
    """(answer, seconds) of the rows, up to the first that ends the process."""
    process, pipe = _start(rows, answer, ends_with)
    done = 0
    for found in _lines_of(process, pipe, seconds):
        done += 1
        yield found
    os.close(pipe)
    _, status = os.waitpid(process, 0)
    if status != 0 and done < len(rows):
        yield f"{ENDED} {os.waitstatus_to_exitcode(status)}", 0.0


def run(rows, answer, seconds, report=None, ends_with=is_failure):
    """The answers of all rows, in order: of ``answer(row)``, or that its process ended. ``seconds``: of a row that hangs.
    ``report``: called with each row, its answer, and the seconds it took. ``ends_with``: whether the process of an answer
    takes no more rows."""
    rows, answers = list(rows), []
    while rows:
        number = 0
        for number, (found, took) in enumerate(_answers(rows, answer, seconds, ends_with)):
            if ends_with(found) and number > 0:
                alone = next(_answers([rows[number]], answer, seconds, ends_with))[0]
                found = alone if is_failure(alone) else f"only after other rows: {found}"
            answers.append(found)
            if report:
                report(rows[number], found, took)
        rows = rows[number + 1:]
    return answers
