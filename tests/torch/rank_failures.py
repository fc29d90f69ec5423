# SPDX-License-Identifier: Apache-2.0
"""Ranks that fail, one function for each rank of a case; test_distributed_failures.py runs them and looks at how they
end. What a rank prints to standard error is kept for the test."""
import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
from support import wait_until

FOLDER = os.environ["REPRISE_TEST_FOLDER"]


def _there(name):
    return os.path.exists(f"{FOLDER}/{name}")


def _tell(name):
    with open(f"{FOLDER}/{name}", "w"):
        pass


def _start(rank, **options):
    # The time limit is that of operators; ranks may come late.
    store = dist.FileStore(f"{FOLDER}/store", 2)
    dist.init_process_group("hccl", store=store, rank=rank, world_size=2, **options)
    backend = dist.group.WORLD._get_backend(torch.device("npu"))
    backend.get_hccl_comm_name(rank)  # makes the communicator, for which the ranks meet
    return backend


def _together(backend, x):
    """An all_reduce that has all the time that it needs."""
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(minutes=30)
    backend.allreduce([x], options).wait()


def timeout(rank):
    backend = _start(rank, timeout=datetime.timedelta(seconds=2))
    x = torch.ones(2, device="npu")
    _together(backend, x)
    torch.npu.synchronize()
    _tell(f"together {rank}")
    wait_until(lambda: _there(f"together {1 - rank}"))
    if rank == 0:
        _tell(f"process {os.getpid()}")
        dist.all_reduce(x)  # rank 1 does not call it
        while True:
            time.sleep(1)  # the program has something else to do
    wait_until(lambda: _there("trace_0") and _there("trace_1"))
    # It uses the store as long as rank 0 may ask it.
    other = next(int(name.split()[1]) for name in os.listdir(FOLDER) if name.startswith("process "))
    wait_until(lambda: not os.path.exists(f"/proc/{other}"))
    os._exit(0)


def exits(rank):
    backend = _start(rank)
    x = torch.ones(2, device="npu")
    _together(backend, x)
    torch.npu.synchronize()
    if rank == 0:
        dist.all_reduce(x)
        torch.npu.synchronize()


def killed(rank):
    backend = _start(rank)
    x = torch.ones(2, device="npu")
    _together(backend, x)
    torch.npu.synchronize()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.all_reduce(x)
        torch.npu.synchronize()
    except RuntimeError as error:
        print(f"raised: {error}", file=sys.stderr)
        os._exit(7)


def no_watchdog(rank):
    backend = _start(rank, timeout=datetime.timedelta(milliseconds=200))
    x = torch.ones(2, device="npu")
    _together(backend, x)
    torch.npu.synchronize()
    if rank == 1:
        wait_until(lambda: _there("late"))
        os._exit(0)
    dist.all_reduce(x)
    time.sleep(2.5)  # a watchdog would have looked twice
    _tell("late")
    try:
        torch.npu.synchronize()
    except RuntimeError as error:
        print(f"raised: {error}", file=sys.stderr)
        os._exit(7)


def blocking_wait(rank):
    backend = _start(rank, timeout=datetime.timedelta(minutes=30))
    x = torch.ones(2, device="npu")
    dist.all_reduce(x)
    assert x.tolist() == [2, 2]
    if rank == 1:
        wait_until(lambda: _there("over"))
        os._exit(0)
    work = dist.all_reduce(x, async_op=True)
    try:
        work.wait(datetime.timedelta(milliseconds=300))
    except RuntimeError as error:
        print(f"raised: {error}", file=sys.stderr)
    # The communicator is gone with it.
    try:
        dist.all_reduce(x)
        torch.npu.synchronize()
    except RuntimeError as error:
        print(f"then: {error}", file=sys.stderr)
        _tell("over")
        os._exit(7)


def no_destroy(rank):
    backend = _start(rank)
    x = torch.ones(2, device="npu")
    _together(backend, x)
    print(x.tolist(), file=sys.stderr)
