# SPDX-License-Identifier: Apache-2.0
"""Collectives of the published package on libhccl.so, in functions that its torchair compiles: two ranks, in both modes."""

import os
import subprocess
import sys

RANK = '''
import pathlib
import sys

import torch
import torch.distributed as dist
import torch_npu
import torchair

rank, store = int(sys.argv[1]), sys.argv[2]
torch.npu.set_device(0)
dist.init_process_group("hccl", init_method=f"file://{store}", rank=rank, world_size=2)


def reduced(x):
    y = x * 2
    dist.all_reduce(y)
    return y @ y.t() + x.sum()


def gathered(x):
    out = torch.empty(2 * x.shape[0], x.shape[1], device=x.device)
    dist.all_gather_into_tensor(out, x + 1)
    return out * 2


def exchanged(x):
    send, receive = ([1, 3], [1, 2]) if rank == 0 else ([2, 2], [3, 2])
    out = torch.empty(sum(receive), x.shape[1], device=x.device)
    dist.all_to_all_single(out, x, receive, send)
    return out * 2


def sent(x):
    y = torch.empty_like(x)
    if rank == 0:
        dist.send(x * 2, 1)
        dist.recv(y, 1)
    else:
        dist.recv(y, 0)
        dist.send(x + 1, 0)
    dist.broadcast(y, 1)
    return y * x


for function in (reduced, gathered, exchanged, sent):
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(rank)).npu()
    wanted = function(x.clone())
    for mode in ("max-autotune", "reduce-overhead"):
        torch._dynamo.reset()
        config = torchair.CompilerConfig()
        config.mode = mode
        compiled = torch.compile(function, backend=torchair.get_npu_backend(compiler_config=config), fullgraph=True, dynamic=False)
        for _ in range(2):
            assert torch.equal(compiled(x.clone()), wanted), (function.__name__, mode)
dist.destroy_process_group()
pathlib.Path(f"equal{rank}").touch()
'''


def test_compiled_collectives_equal_eager_ones(tmp_path):
    (tmp_path / "rank.py").write_text(RANK)
    # With CI set PyTorch makes errors of its warnings about operators that return an input, as the package's _recv does.
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "rank.py", str(rank), str(tmp_path / "store")],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [rank.communicate(timeout=600)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    # The package's threads write logs until the end of the process, so a rank says in a file, not in them, that it came to its end.
    for number, (rank, text) in enumerate(zip(ranks, said)):
        assert rank.returncode == 0 and (tmp_path / f"equal{number}").exists(), text[-4000:]
