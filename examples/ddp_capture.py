# SPDX-License-Identifier: Apache-2.0
"""A training step of DistributedDataParallel, captured once with its collectives and replayed:

    torchrun --nproc-per-node=2 examples/ddp_capture.py

Each rank trains on its part of the batch; the losses are those of one process that trains on all of it.
"""
import os

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401  the device npu and the backend hccl
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

ROWS, STEPS, WARMUP = 24, 20, 11  # DistributedDataParallel settles its buckets in the first steps


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 4)).npu()


def batches():
    """The batch of each step: all rows, on the host."""
    random = torch.Generator().manual_seed(1)
    for _ in range(WARMUP + STEPS):
        rows = torch.randn(ROWS, 16, generator=random)
        yield rows, rows[:, :4].sin()


def alone():
    """The losses of one process."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for rows, wanted in batches():
        optimizer.zero_grad()
        loss = mse_loss(model(rows.npu()), wanted.npu())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    dist.init_process_group("hccl")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.npu.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    side = torch.npu.Stream()
    with torch.npu.stream(side):  # gradients are added up on the stream that this is made on
        model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    own = slice(rank * ROWS // size, (rank + 1) * ROWS // size)
    x = torch.zeros(ROWS // size, 16, device="npu")
    y = torch.zeros(ROWS // size, 4, device="npu")

    def step():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        loss = loss.detach().clone()
        dist.all_reduce(loss)
        return loss / size

    losses = []
    graph = torch.npu.NPUGraph()
    for number, (rows, wanted) in enumerate(batches()):
        x.copy_(rows[own])
        y.copy_(wanted[own])
        if number < WARMUP:
            side.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(side):
                loss = step()
            torch.npu.current_stream().wait_stream(side)
        else:
            if number == WARMUP:
                with torch.npu.graph(graph, stream=side):  # records; nothing runs
                    loss = step()
            graph.replay()
        losses.append(loss.item())

    if rank == 0:
        wanted = alone()
        worst = max(abs(a - b) for a, b in zip(losses, wanted))
        print(f"{size} ranks, {STEPS} replays: loss {losses[0]:.4f} to {losses[-1]:.4f}, from one process at most {worst:.1e}")
        if worst > 1e-4:
            raise SystemExit("the losses differ")
    graph.reset()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
