# SPDX-License-Identifier: Apache-2.0
"""A rank of torch.distributed that does what the benchmark asks for (acts.h): peer.py BACKEND FOLDER RANK RANKS."""
import resource
import sys
import time

import torch
import torch.distributed as dist

BACKEND, FOLDER, RANK, RANKS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if BACKEND == "hccl":
    import torch_npu  # noqa: F401
DEVICE = "npu" if BACKEND == "hccl" else "cpu"


def synchronize():
    if DEVICE == "npu":
        torch.npu.synchronize()


def values(rank, count):
    return torch.arange(count) % 7 + float(rank + 1)


class Act:
    """An operator on so many bytes: its call, and what this rank must have afterwards."""

    def __init__(self, name, size):
        count = size // 4
        block = count // RANKS
        own = values(RANK, count)
        mine = slice(RANK * block, (RANK + 1) * block)
        self.send = own.to(DEVICE)
        self.receive = torch.empty(count, device=DEVICE)
        if name == "allreduce":
            # In place, as torch.distributed has it. The values change; the time does not depend on them.
            self.call = lambda: dist.all_reduce(self.send)
            self.result, self.wanted = self.send, sum(values(rank, count) for rank in range(RANKS))
        elif name == "allgather":
            part = self.send[:block]
            self.result = self.receive[: block * RANKS]
            self.call = lambda: dist.all_gather_into_tensor(self.result, part)
            self.wanted = torch.cat([values(rank, count)[:block] for rank in range(RANKS)])
        elif name == "reduce_scatter":
            whole = self.send[: block * RANKS]
            self.result = self.receive[:block]
            self.call = lambda: dist.reduce_scatter_tensor(self.result, whole)
            self.wanted = sum(values(rank, count)[mine] for rank in range(RANKS))
        elif name == "all_to_all":
            whole = self.send[: block * RANKS]
            self.result = self.receive[: block * RANKS]
            self.call = lambda: dist.all_to_all_single(self.result, whole)
            self.wanted = torch.cat([values(rank, count)[mine] for rank in range(RANKS)])
        elif name == "broadcast":
            self.call = lambda: dist.broadcast(self.send, 0)
            self.result, self.wanted = self.send, values(0, count)
        else:
            raise ValueError(f"{name} is not known")

    def check(self):
        self.call()
        synchronize()
        if not torch.equal(self.result.cpu(), self.wanted):
            raise ValueError(f"rank {RANK} has a wrong result")
        if self.result is self.send:
            self.send.zero_()  # sums stay finite


def timed(act, repetitions):
    dist.barrier()
    synchronize()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    begin = time.monotonic_ns()
    for _ in range(repetitions):
        act.call()
        synchronize()
    end = time.monotonic_ns()
    return begin, end, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before


def main():
    torch.set_num_threads(1)
    dist.init_process_group(BACKEND, init_method=f"file://{FOLDER}/store.{BACKEND}", rank=RANK, world_size=RANKS)
    acts = {}
    with open(f"{FOLDER}/out.{RANK}", "w") as answers, open(f"{FOLDER}/in.{RANK}") as lines:
        for line in iter(lines.readline, ""):
            try:
                name, size, repetitions = line.split()
                if (name, size) not in acts:
                    acts[name, size] = Act(name, int(size))
                    acts[name, size].check()
                answer = "ok {} {} {}".format(*timed(acts[name, size], int(repetitions)))
            except Exception as error:
                answer = "error " + " ".join(f"{type(error).__name__}: {error}".split())[:400]
            print(answer, file=answers, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
