# SPDX-License-Identifier: Apache-2.0
"""Several processes: tensors of npu in messages, and collectives on them."""
import subprocess
import sys
import textwrap
import threading
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
import torch_npu
from support import PATIENCE, Gate


def run_file(folder, code):
    """A program of its own file, as processes that are spawned need it; what it printed."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(code))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_tensors_go_through_queues(tmp_path):
    """Both sides have the same memory, for as long as the receiver keeps it."""
    out = run_file(
        tmp_path,
        """
        import gc, torch, torch_npu
        import torch.multiprocessing as mp
        from torch_npu.multiprocessing import reductions

        def receive(inbox, outbox):
            whole, part, weight, empty = inbox.get(timeout=600)
            assert whole.device == torch.device("npu", 0) and part.device.type == "npu"
            assert whole.tolist() == [0, 1, 2, 3, 4, 5] and part.tolist() == [[1.0, 3.0], [2.0, 4.0]], (whole, part)
            assert part.stride() == (1, 2) and isinstance(weight, torch.nn.Parameter) and weight.requires_grad
            assert empty.shape == (0, 3)
            whole += 10            # the sender sees it
            torch.npu.synchronize()
            again = inbox.get(timeout=600)   # the same storage once more
            again[0] = 70
            torch.npu.synchronize()
            outbox.put(weight.sum().item())
            inbox.get(timeout=600)
            try:
                reductions._reduce_tensor(whole)
                outbox.put(None)
            except RuntimeError as error:
                outbox.put(str(error))
            del whole, part, weight, again, empty
            gc.collect()
            outbox.put("gone")
            inbox.get(timeout=600)

        if __name__ == "__main__":
            spawn = mp.get_context("spawn")
            inbox, outbox = spawn.Queue(), spawn.Queue()
            child = spawn.Process(target=receive, args=(inbox, outbox))
            child.start()
            whole = torch.arange(6, device="npu")
            part = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="npu").t()
            weight = torch.nn.Parameter(torch.full((4,), 2.0, device="npu"))
            inbox.put((whole, part, weight, torch.empty(0, 3, device="npu")))
            inbox.put(whole)
            assert outbox.get(timeout=600) == 8.0
            assert whole.tolist() == [70, 11, 12, 13, 14, 15], whole
            # What is lent is kept though the sender has let go of it.
            kept = part.data_ptr()
            assert len(reductions._lent) == 4
            del part
            gc.collect()
            assert torch.empty(2, 2, device="npu").data_ptr() != kept
            inbox.put("go on")
            refused = outbox.get(timeout=600)
            assert "received from another process" in refused, refused
            assert outbox.get(timeout=600) == "gone"
            torch.npu.ipc_collect()
            assert len(reductions._lent) == 0, reductions._lent
            inbox.put("end")
            child.join()
            assert child.exitcode == 0
            print("done")
        """,
    )
    assert "done" in out


def test_what_cannot_be_sent_is_refused(npu):
    send = ForkingPickler.dumps
    leaf = torch.ones(2, device="npu", requires_grad=True)
    with pytest.raises(RuntimeError, match="no leaf"):
        send(leaf * 2)
    graph = npu.NPUGraph()
    side = npu.Stream()
    with npu.stream(side):
        graph.capture_begin()
        try:
            with pytest.raises(RuntimeError, match="in a capture; send it after"):
                send(leaf)
        finally:
            graph.capture_end()
    borrowed = torch_npu._C._construct_storage_from_data_pointer(leaf.data_ptr() - 4096 * 4096, leaf.device, 8)
    with pytest.raises(RuntimeError, match="not of the caching allocator"):
        torch_npu.multiprocessing.reductions._reduce_storage(borrowed)
    # Within a process the storage itself comes back.
    rebuild, lent = torch_npu.multiprocessing.reductions._reduce_storage(leaf.detach().untyped_storage())
    assert rebuild(*lent).data_ptr() == leaf.data_ptr()
    npu.ipc_collect()
    assert not torch_npu.multiprocessing.reductions._lent


def test_messages_wait_for_work_on_all_streams(npu):
    """Queues send in a thread of their own, whose current stream is another one."""
    tensor = torch.zeros(4, device="npu")
    npu.synchronize()
    side = npu.Stream()
    with Gate(side) as gate:
        with npu.stream(side):
            tensor.add_(1)
        sender = threading.Thread(target=ForkingPickler.dumps, args=(tensor,))
        sender.start()
        sender.join(0.2)
        assert sender.is_alive(), "the message was made before what it carries"
        gate.open()
        sender.join(PATIENCE)
    assert not sender.is_alive() and tensor.tolist() == [1] * 4
    lent = torch_npu.multiprocessing.reductions._lent
    for page, index in list(lent):  # nobody received it
        torch_npu.multiprocessing.reductions._pages[page][index] = 1
    npu.ipc_collect()
    assert not lent


def test_gloo_works_on_tensors_of_the_device(tmp_path):
    out = run_file(
        tmp_path,
        f"""
        import sys, torch, torch_npu
        import torch.distributed as dist
        import torch.multiprocessing as mp

        def work(rank, backend, file):
            dist.init_process_group(backend, init_method="file://" + file, rank=rank, world_size=2)
            there = lambda *numbers: torch.tensor(numbers, dtype=torch.float32, device="npu")
            one = there(1 + rank, 10)
            torch.npu._sleep(20_000_000)
            one.add_(1)                              # pending when the collective is called
            dist.all_reduce(one)
            assert one.is_npu and one.tolist() == [5, 22], one
            handle = dist.all_reduce(one, op=dist.ReduceOp.MAX, async_op=True)
            handle.wait()
            assert [part.is_npu for part in handle.get_future().value()] == [True]
            dist.broadcast(one.mul_(rank + 1), 1)
            assert one.tolist() == [10, 44], one
            parts = [torch.zeros(2, device="npu") for _ in range(2)]
            dist.all_gather(parts, there(rank, rank))
            assert [part.tolist() for part in parts] == [[0, 0], [1, 1]]
            whole = torch.zeros(4, device="npu")
            dist.all_gather_into_tensor(whole, there(rank, 5))
            assert whole.tolist() == [0, 5, 1, 5]
            dist.reduce(one, 0)
            target = torch.zeros(2, device="npu")
            dist.scatter(target, [there(1, 2), there(3, 4)] if rank == 0 else None, src=0)
            assert target.tolist() == ([3, 4] if rank else [1, 2])
            gathered = [torch.zeros(2, device="npu") for _ in range(2)] if rank == 0 else None
            dist.gather(target, gathered, dst=0)
            assert rank or [part.tolist() for part in gathered] == [[1, 2], [3, 4]]
            out = torch.zeros(2, device="npu")
            dist.all_to_all_single(out, there(rank, rank + 10))
            assert out.tolist() == ([10, 11] if rank else [0, 1]), out
            if rank:
                dist.send(there(7, 8), 0)
            else:
                assert dist.recv(out) == 1 and out.tolist() == [7, 8]
            names = [None, None]
            dist.all_gather_object(names, f"rank {{rank}}")
            assert names == ["rank 0", "rank 1"]
            dist.barrier()
            torch.manual_seed(0)
            for options in ({{}}, {{"gradient_as_bucket_view": True}}):
                model = torch.nn.Linear(3, 2).npu()
                plain = torch.nn.Linear(3, 2).npu()
                plain.load_state_dict(model.state_dict())
                both = torch.nn.parallel.DistributedDataParallel(model, **options)
                rows = torch.arange(12.0, device="npu").view(4, 3)
                both(rows[2 * rank : 2 * rank + 2]).square().sum().backward()
                plain(rows).square().sum().backward()
                torch.testing.assert_close(model.weight.grad * 2, plain.weight.grad)
                assert model.weight.grad.is_npu
            graph = torch.npu.NPUGraph()
            side = torch.npu.Stream()
            with torch.npu.stream(side):
                graph.capture_begin()
                try:
                    dist.all_reduce(one)
                except RuntimeError as error:
                    assert "cannot be captured" in str(error), error
                else:
                    raise SystemExit("a collective was captured")
                graph.capture_end()
            dist.destroy_process_group()
            print("rank", rank, backend)

        if __name__ == "__main__":
            for count, backend in enumerate(("gloo", "cpu:gloo,npu:gloo")):
                mp.spawn(work, args=(backend, {str(tmp_path)!r} + f"/store{{count}}"), nprocs=2)
        """,
    )
    assert out.count("rank") == 4, out
