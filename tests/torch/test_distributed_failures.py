# SPDX-License-Identifier: Apache-2.0
"""Ranks of hccl that do not come, exit or are killed: what the others say, and how processes end. Names carry items of
the specification (HT)."""
import pickle
import signal

from ranks import run_case
from support import output_of, run_script


def test_ht_090_ht_096_ht_099_the_watchdog_ends_a_rank_that_waits_too_long(tmp_path):
    codes, said, files = run_case(
        "rank_failures",
        "timeout",
        TORCH_HCCL_DESYNC_DEBUG=1,
        TORCH_HCCL_DUMP_ON_TIMEOUT=1,
        TORCH_HCCL_COORD_CHECK_MILSEC=20,
        TORCH_HCCL_TRACE_BUFFER_SIZE=10,
        TORCH_HCCL_DEBUG_INFO_TEMP_FILE="{folder}/trace_",
    )
    assert codes == [-signal.SIGABRT, 0], said
    for text in (
        "Watchdog caught collective operation timeout: WorkHCCL(SeqNum=2, OpType=ALLREDUCE",
        "milliseconds before timing out",
        "Some HCCL operations have failed or timed out.",
        "To avoid data inconsistency, we are taking the entire process down.",
        # HT-096
        "rank 0: last called collective 2, HcclAllreduce of 2 elements",
        "rank 1 lags: last called collective 1, HcclAllreduce of 2 elements",
    ):
        assert text in said[0], said[0]
    # HT-099: the rank that lags has written its dump, too.
    states = [[entry["state"] for entry in pickle.loads(files[f"trace_{rank}"])["entries"]] for rank in range(2)]
    assert states == [["completed", "started"], ["completed"]]
    # PyTorch's own reader finds the rank that is missing.
    for name in ("trace_0", "trace_1"):
        (tmp_path / name).write_bytes(files[name])
    done = run_script(
        f"from torch.distributed.flight_recorder.fr_trace import main; main([{str(tmp_path)!r}])",
        FR_TRACE_VERBOSE_OUTPUT=1,
    )
    assert done.returncode == 0, done.stderr
    assert "all_reduce" in done.stdout + done.stderr and "{1}" in done.stdout + done.stderr, done.stdout + done.stderr


def test_ht_091_a_rank_exits():
    codes, said, _ = run_case("rank_failures", "exits", HCCL_EXEC_TIMEOUT=5)
    assert codes[0] == 1 and codes[1] == 0, said
    assert "NpuError: " in said[0] and "rank 1 (process" in said[0].rpartition("NpuError: ")[2], said[0]


def test_ht_092_a_rank_is_killed():
    codes, said, _ = run_case("rank_failures", "killed")
    assert codes == [7, -signal.SIGKILL], said
    assert "rank 1" in said[0].partition("raised: ")[2], said[0]


def test_ht_093_no_watchdog():
    codes, said, _ = run_case("rank_failures", "no_watchdog", TORCH_HCCL_ASYNC_ERROR_HANDLING=0)
    assert codes == [7, 0], said
    assert "rank 1" in said[0].partition("raised: ")[2] and "Watchdog" not in said[0], said[0]


def test_ht_094_a_wait_that_blocks():
    codes, said, _ = run_case("rank_failures", "blocking_wait", TORCH_HCCL_BLOCKING_WAIT=1)
    assert codes == [7, 0], said
    assert "timed out in blocking wait" in said[0] and "then: " in said[0], said[0]


def test_ht_014_a_store_that_answers_nobody():
    """The thread that looks for time-outs of others is caught in the store: its file is locked by somebody who never lets
    go, as after a rank that ended in the midst of a write. The group and the process end all the same."""
    said = output_of(
        """
        import fcntl, os, tempfile
        import torch, torch_npu
        import torch.distributed as dist

        path = os.path.join(tempfile.mkdtemp(), "store")
        store = dist.FileStore(path, 1)
        dist.init_process_group("hccl", store=store, rank=0, world_size=1)
        x = torch.ones(1, device="npu")
        dist.all_reduce(x)
        torch.npu.synchronize()
        holder = os.open(path, os.O_RDWR)
        fcntl.flock(holder, fcntl.LOCK_EX)
        inode = f":{os.stat(path).st_ino} "
        while not any("->" in line and inode in line for line in open("/proc/locks")):
            pass  # until the thread waits for the lock
        dist.destroy_process_group()
        torch_npu._C._distributed_c10d._stop_watchdogs()  # as at the end of the interpreter
        fcntl.flock(holder, fcntl.LOCK_UN)  # the program's own store would wait for it, too
        print("ended")
        """,
        TORCH_HCCL_DUMP_ON_TIMEOUT=1,
        TORCH_HCCL_COORD_CHECK_MILSEC=1,
    )
    assert said == "ended", said


def test_ht_014_the_interpreter_ends_without_destroy():
    """The two ranks are interpreters that end as programs do."""
    said = output_of(
        """
        import os, tempfile
        os.environ["REPRISE_TEST_FOLDER"] = tempfile.mkdtemp()
        child = os.fork()
        import rank_failures
        rank_failures.no_destroy(int(child == 0))
        if child:
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        REPRISE_DEVICES=1,
    )
    assert said == "0"
