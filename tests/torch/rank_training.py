# SPDX-License-Identifier: Apache-2.0
"""Training and decoding on two ranks of hccl: what is captured, what is sharded, what is saved. test_distributed.py
runs them."""
import copy
import os

import torch
import torch.distributed as dist
from rank_checks import there
from torch import nn
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

FOLDER = os.environ["REPRISE_TEST_FOLDER"]


def _model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def _rows(step, rank):
    random = torch.Generator().manual_seed(100 * step + rank)
    rows = torch.randn(6, 8, generator=random)
    return rows.npu(), rows[:, :4].sin().npu()


def _equal_on_all_ranks(parameters):
    mine = torch.cat([each.detach().flatten() for each in parameters])
    both = [torch.empty_like(mine) for _ in range(2)]
    dist.all_gather(both, mine)
    return torch.equal(both[0], both[1])


def _train(model, steps, rank):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        x, y = _rows(step, rank)
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()


def ht_075_graphed_callables(rank, size):
    """A model whose forward and backward passes are graphs, inside DistributedDataParallel."""
    eager = DistributedDataParallel(_model().npu())
    _train(eager, 4, rank)
    sample = _rows(0, rank)[0].clone()
    graphed = torch.npu.make_graphed_callables(_model().npu(), (sample,))
    model = DistributedDataParallel(graphed)
    _train(model, 4, rank)
    for mine, wanted in zip(model.parameters(), eager.parameters()):
        assert torch.equal(mine, wanted)
    assert _equal_on_all_ranks(model.parameters())


def ht_075_a_whole_step(rank, size):
    """Forward, backward with its all_reduce of gradients, and optimizer as one graph."""
    warmup, steps = 11, 5
    eager = DistributedDataParallel(_model().npu())
    _train(eager, warmup + steps, rank)
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        model = DistributedDataParallel(_model().npu())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.zeros(6, 8, device="npu"), torch.zeros(6, 4, device="npu")

    def step():
        optimizer.zero_grad()
        mse_loss(model(x), y).backward()
        optimizer.step()

    graph = torch.npu.NPUGraph()
    for number in range(warmup + steps):
        rows, wanted = _rows(number, rank)
        x.copy_(rows)
        y.copy_(wanted)
        if number < warmup:
            side.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(side):
                step()
            torch.npu.current_stream().wait_stream(side)
            continue
        if number == warmup:
            with torch.npu.graph(graph, stream=side):
                step()
        graph.replay()
    for mine, wanted in zip(model.parameters(), eager.parameters()):
        assert torch.equal(mine, wanted)
    assert _equal_on_all_ranks(model.parameters())


def ht_076_tensor_parallel_decoding(rank, size):
    """A decode step of an MLP whose matrices are split between the ranks: by columns, then by rows."""
    torch.manual_seed(5)
    up, down = torch.randn(16, 32) / 4, torch.randn(32, 16) / 6
    own = slice(16 * rank, 16 * rank + 16)
    up, down = up[:, own].contiguous().npu(), down[own].contiguous().npu()

    def step(x):
        y = torch.nn.functional.silu(x @ up) @ down
        dist.all_reduce(y)
        return torch.nn.functional.rms_norm(x + y, (16,))

    token = torch.zeros(2, 16, device="npu")
    step(token)
    graph = torch.npu.NPUGraph()
    with torch.no_grad(), torch.npu.graph(graph):
        state = step(token)
        token.copy_(state)
    random = torch.Generator().manual_seed(6)
    start = torch.randn(2, 16, generator=random).npu()
    token.copy_(start)
    eager = start
    for number in range(200):
        graph.replay()
        eager = step(eager)
        assert torch.equal(token, eager), number


def ht_085_batch_norm_of_all_ranks(rank, size):
    """Statistics over the batches of all ranks, as SyncBatchNorm makes them, forward and backward."""
    random = torch.Generator().manual_seed(7)
    whole = torch.randn(8, 3, 4, generator=random)
    weights = torch.randn(8, 3, 4, generator=random)
    own = slice(0, 3) if rank == 0 else slice(3, 8)
    torch.manual_seed(1)
    wanted = nn.BatchNorm1d(3)
    with torch.no_grad():
        wanted.weight.uniform_(0.5, 1.5)
        wanted.bias.uniform_(-1, 1)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(wanted)).npu()
    x = whole.clone().requires_grad_()
    (wanted(x) * weights).sum().backward()
    mine = whole[own].npu().requires_grad_()
    got = model(mine)
    (got * weights[own].npu()).sum().backward()
    for parameter in model.parameters():  # as DistributedDataParallel does, but for the mean
        dist.all_reduce(parameter.grad)
    torch.testing.assert_close(got.cpu(), wanted(whole)[own], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(mine.grad.cpu(), x.grad[own], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.weight.grad.cpu(), wanted.weight.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.bias.grad.cpu(), wanted.bias.grad, rtol=1e-4, atol=1e-5)
    wanted_again = nn.BatchNorm1d(3)
    wanted_again(whole)
    torch.testing.assert_close(model.running_mean.cpu(), wanted_again.running_mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.running_var.cpu(), wanted_again.running_var, rtol=1e-4, atol=1e-5)
    half = copy.deepcopy(model).half()  # statistics are float32 inside
    mine = whole[own].npu().half().requires_grad_()
    got_half = half(mine)
    (got_half * weights[own].npu().half()).sum().backward()
    assert got_half.dtype == mine.grad.dtype == torch.float16
    torch.testing.assert_close(got_half.float(), got.detach(), rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(mine.grad.float().cpu(), x.grad[own], rtol=1e-2, atol=1e-2)


def ht_083_fsdp1(rank, size):
    from torch.distributed.fsdp import FullyShardedDataParallel

    alone = _model()
    alone_steps = torch.optim.SGD(alone.parameters(), lr=0.05)
    model = FullyShardedDataParallel(_model().npu(), device_id=torch.device("npu", 0))
    steps = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(3):
        losses = []
        alone_steps.zero_grad()
        for other in range(size):
            x, y = (part.cpu() for part in _rows(step, other))
            losses.append(mse_loss(alone(x), y) / size)
        sum(losses).backward()
        alone_steps.step()
        x, y = _rows(step, rank)
        steps.zero_grad()
        mse_loss(model(x), y).backward()
        steps.step()
    with FullyShardedDataParallel.summon_full_params(model):
        for mine, wanted in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(mine.cpu(), wanted)


def ht_083_zero_redundancy_optimizer(rank, size):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    models = [DistributedDataParallel(_model().npu()) for _ in range(2)]
    optimizers = [
        torch.optim.Adam(models[0].parameters(), lr=0.01),
        ZeroRedundancyOptimizer(models[1].parameters(), optimizer_class=torch.optim.Adam, lr=0.01),
    ]
    for step in range(3):
        x, y = _rows(step, rank)
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            mse_loss(model(x), y).backward()
            optimizer.step()
    for mine, wanted in zip(models[1].parameters(), models[0].parameters()):
        torch.testing.assert_close(mine, wanted)
    held = sum(value.numel() for state in optimizers[1].optim.state.values() for value in state.values())
    whole = sum(value.numel() for state in optimizers[0].state.values() for value in state.values())
    assert 0 < held < whole
    optimizers[1].consolidate_state_dict(0)
    if rank == 0:
        assert len(optimizers[1].state_dict()["state"]) == 4


def ht_083_redistribution(rank, size):
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = dist.init_device_mesh("npu", (size,))
    whole = torch.arange(20.0).view(5, 4)  # of five rows one rank has more
    sources = {
        "rows": distribute_tensor(whole.npu(), mesh, [Shard(0)]),
        "columns": distribute_tensor(whole.npu(), mesh, [Shard(1)]),
        "whole": distribute_tensor(whole.npu(), mesh, [Replicate()]),
        "sum": DTensor.from_local(whole.npu() * (0.25 if rank == 0 else 0.75), mesh, [Partial()]),
    }
    for name, source in sources.items():
        for target in (Shard(0), Shard(1), Replicate()):
            moved = source.redistribute(mesh, [target])
            assert torch.equal(moved.full_tensor().cpu(), whole), (name, target)
            part = moved.to_local().cpu()
            wanted = whole if target == Replicate() else whole.chunk(2, target.dim)[rank]
            assert torch.equal(part, wanted), (name, target)
    product = sources["rows"] @ sources["whole"].t()
    assert torch.equal(product.full_tensor().cpu(), whole @ whole.t())


def ht_083_checkpoints(rank, size):
    import torch.distributed.checkpoint as checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import fully_shard

    mesh = dist.init_device_mesh("npu", (size,))
    saved, loaded = _model().npu(), _model().npu()
    for model in (saved, loaded):
        fully_shard(model, mesh=mesh)
    with torch.no_grad():
        for parameter in saved.parameters():
            parameter.mul_(3).add_(1)
    checkpoint.save({"model": get_model_state_dict(saved), "step": 7}, checkpoint_id=f"{FOLDER}/checkpoint")
    state = {"model": get_model_state_dict(loaded), "step": 0}
    checkpoint.load(state, checkpoint_id=f"{FOLDER}/checkpoint")
    set_model_state_dict(loaded, state["model"])
    assert state["step"] == 7
    for mine, wanted in zip(loaded.parameters(), saved.parameters()):
        assert torch.equal(mine.full_tensor(), wanted.full_tensor())
    whole = _model()  # and on one process, without ranks
    plain = {"model": whole.state_dict(), "step": 0}
    checkpoint.load(plain, checkpoint_id=f"{FOLDER}/checkpoint", no_dist=True)
    for mine, wanted in zip(plain["model"].values(), saved.parameters()):
        assert torch.equal(mine, wanted.full_tensor().cpu())


def ht_102_profiles_name_operators(rank, size):
    x, whole = there(rank, 1), torch.zeros(4, device="npu")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(x)
        dist.broadcast(x, 0)
        dist.all_gather_into_tensor(whole, x)
        dist.reduce_scatter_tensor(x, whole)
        dist.all_to_all_single(x, x.clone())
        dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
    names = {event.name for event in profile.events()}
    wanted = {"HcclAllreduce", "HcclBroadcast", "HcclAllgatherBase", "HcclReduceScatterBase", "HcclAlltoAll"}
    assert wanted | {"HcclSend" if rank == 0 else "HcclRecv"} <= names, names
