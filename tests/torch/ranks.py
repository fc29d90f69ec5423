# SPDX-License-Identifier: Apache-2.0
"""Ranks for tests of torch.distributed: processes that are forked from one that has imported torch, so that a rank
costs little. As a program: ranks.py MODULE NAMES SIZE RESULTS, run by ``run_ranks``."""
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback

from support import run_script

# Seconds after which ranks that have not ended are; a rank has failed: the others, which may wait for it, get less.
LIMIT = 300
AFTER_FAILURE = 5


def _run(call, folder, environment, path=None):
    """In variables, {folder} is one that all ranks have (REPRISE_TEST_FOLDER), which goes afterwards."""
    environment = {"REPRISE_DEVICES": 1, "REPRISE_TEST_FOLDER": folder, **environment}
    variables = {name: str(value).format(folder=folder) for name, value in environment.items()}
    return run_script(f"import ranks, sys; sys.path += {[path] if path else []!r}; ranks.{call}", **variables)


def run_ranks(module, names, size=2, path=None, **environment):
    """Calls the functions of these names, one after the other, in ``size`` ranks with a process group of hccl.

    ``path``: the folder of the module, if it is not this one. Returns {name: "" or what went wrong}. The first function
    that fails on a rank is the last that it calls.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = _run(f"main({module!r}, {list(names)!r}, {size}, {folder!r})", folder, environment, path)
        results = {}
        for name in names:
            said = []
            for rank in range(size):
                try:
                    with open(os.path.join(folder, f"{rank}.{name}")) as file:
                        said.append(json.load(file))
                except FileNotFoundError:
                    said.append(f"rank {rank} did not end it")
            results[name] = "\n".join(filter(None, said))
        if any(results.values()):
            tail = f"\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            results = {name: text and text + tail for name, text in results.items()}
        elif done.returncode:
            results = {name: f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}" for name in names}
        return results


def _rank(module, names, rank, size, folder):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
    checks = importlib.import_module(module)
    if getattr(checks, "NEEDS_GROUP", True):
        dist.init_process_group("hccl", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    for name in names:
        text = ""
        try:
            getattr(checks, name)(rank, size)
            torch.npu.synchronize()
        except BaseException:
            text = f"rank {rank}: {traceback.format_exc()}"
        with open(f"{folder}/{rank}.{name}.part", "w") as file:
            json.dump(text, file)
        os.rename(f"{folder}/{rank}.{name}.part", f"{folder}/{rank}.{name}")
        if text:
            return 1
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0


def run_case(module, name, size=2, **environment):
    """Calls a function with the number of each rank, in processes that may fail.

    Returns their exit codes, what each has written to standard error, and {name: bytes} of the files of the folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = _run(f"main_case({module!r}, {name!r}, {size}, {folder!r})", folder, environment)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        files = {}
        for file in os.scandir(folder):
            if file.is_file():
                with open(file, "rb") as content:
                    files[file.name] = content.read()
        said = [files.pop(f"{rank}.err").decode(errors="replace") for rank in range(size)]
        return json.loads(done.stdout.splitlines()[-1]), said, files


def fork(work, size, after_failure=AFTER_FAILURE):
    """Calls work(rank) in ``size`` forked processes; the exit codes. All have ended when it returns."""
    children = {}
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = work(rank)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            import atexit

            atexit._run_exitfuncs()
            os._exit(code)
        children[pid] = rank
    codes = [None] * size
    end = time.monotonic() + LIMIT
    while children and time.monotonic() < end:
        for pid in list(children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[children.pop(pid)] = os.waitstatus_to_exitcode(status)
                if status:
                    end = min(end, time.monotonic() + after_failure)
        time.sleep(0.005)
    for number in (signal.SIGABRT, signal.SIGKILL):  # the first shows where they are
        for pid in list(children):
            os.kill(pid, number)
            for _ in range(100):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    codes[children.pop(pid)] = -number
                    break
                time.sleep(0.02)
    return codes


def main(module, names, size, folder):
    importlib.import_module(module)  # once, and not in each rank
    codes = fork(lambda rank: _rank(module, names, rank, size, folder), size)
    sys.exit(0 if codes == [0] * size else f"exit codes of ranks: {codes}")


def _rank_of_case(module, name, rank, folder):
    errors = os.open(f"{folder}/{rank}.err", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(errors, 2)
    import torch

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    getattr(importlib.import_module(module), name)(rank)
    return 0


def main_case(module, name, size, folder):
    print(json.dumps(fork(lambda rank: _rank_of_case(module, name, rank, folder), size, LIMIT)))
