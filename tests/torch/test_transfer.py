# SPDX-License-Identifier: Apache-2.0
"""``torch_npu.contrib.transfer_to_npu``: programs written for cuda. In processes of their own: it cannot be undone."""

from support import output_of


def test_program_for_cuda_runs_on_npu(tmp_path):
    assert output_of(
        f"""
        import pickle, warnings
        import torch
        real = torch.device
        here = torch.device("cpu")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            from torch_npu.contrib import transfer_to_npu
        assert [str(one.message) for one in seen if "transfer_to_npu" in str(one.message)], seen

        # Devices
        assert torch.cuda.is_available() and torch.cuda.device_count() == torch.npu.device_count()
        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        assert device.type == "npu" and device == torch.device("npu", 0) and torch.device("cuda").index is None
        assert isinstance(device, torch.device) and isinstance(here, torch.device) and not isinstance(3, torch.device)
        assert type(device) is real and issubclass(real, torch.device)
        assert pickle.loads(pickle.dumps(device)) == device
        assert torch.device(type="cuda", index=0) == device and torch.device("cpu") == here
        torch.cuda.set_device(device); torch.cuda.set_device("cuda:0"); torch.cuda.set_device(0)
        assert torch.cuda.current_device() == 0 and torch.cuda.get_device_name("cuda:0")

        # Tensors
        for made in (
            torch.zeros(2, device="cuda"), torch.tensor([1.0], device="cuda:0"), torch.arange(3, device=device),
            torch.ones(2).cuda(), torch.ones(2).cuda(0), torch.ones(2).cuda(device="cuda:0", non_blocking=True),
            torch.ones(2).to("cuda"), torch.ones(2).to(device="cuda:0", dtype=torch.float16), torch.ones(2).to(device),
            torch.ones(2).new_zeros(3, device="cuda"), torch.rand_like(torch.ones(2), device="cuda"),
            torch.cuda.FloatTensor([1.0]), torch.full((2,), 1.0, device="cuda"), torch.eye(2, device="cuda"),
            torch.linspace(0, 1, 3, device=device), torch.randn(2, generator=torch.Generator("cuda"), device="cuda"),
            torch.as_tensor([1], device="cuda"), torch.empty_like(torch.ones(1), device="cuda"),
        ):
            assert made.device.type == "npu" and made.is_cuda, made
        assert not torch.ones(1).is_cuda and torch.ones(1).to("cpu").device == here
        torch.set_default_device("cuda")
        assert torch.ones(1).is_cuda
        torch.set_default_device("cpu")
        with torch.device("cuda"):
            assert torch.ones(1).is_cuda

        # Training, as examples write it
        torch.cuda.manual_seed(3); torch.cuda.manual_seed_all(3)
        model = torch.nn.Linear(4, 2, device="cuda").cuda().to("cuda:0")
        assert next(model.parameters()).is_cuda
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.cuda.amp.GradScaler()
        other = torch.amp.GradScaler("cuda")
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        stream = torch.cuda.Stream()
        start.record()
        with torch.cuda.stream(stream), torch.cuda.amp.autocast(), torch.cuda.device(0):
            pass
        for kind in (torch.autocast("cuda", dtype=torch.bfloat16), torch.amp.autocast(device_type="cuda")):
            with kind:
                loss = model(torch.randn(3, 4, device="cuda")).float().square().mean()
            assert model(torch.randn(1, 4).cuda()).dtype == torch.float32
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        end.record()
        torch.cuda.synchronize()
        assert start.elapsed_time(end) >= 0
        assert torch.cuda.memory_allocated() > 0 and torch.cuda.max_memory_allocated("cuda:0") > 0
        torch.cuda.empty_cache()
        torch.cuda.nvtx.range_push("here"); torch.cuda.nvtx.range_pop()

        # Files
        path = {str(tmp_path)!r} + "/model.pt"
        torch.save(model.state_dict(), path)
        for place in ("cuda", "cuda:0", torch.device("cuda"), {{"npu:0": "cuda:0"}}, lambda storage, place: storage.cuda()):
            loaded = torch.load(path, map_location=place)
            assert loaded["weight"].is_cuda and torch.equal(loaded["weight"], model.weight)
        assert torch.load(path, map_location="cpu")["weight"].device == here

        # Graphs
        static = torch.ones(3, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = static * 2
        static.fill_(4)
        graph.replay()
        assert result.tolist() == [8, 8, 8]

        # Loaders
        rows = torch.utils.data.TensorDataset(torch.arange(4.0))
        for batch, in torch.utils.data.DataLoader(rows, 2, pin_memory=True):
            assert batch.cuda(non_blocking=True).is_cuda
        import torch_npu.contrib.transfer_to_npu  # once more: nothing happens
        print("runs")
        """
    ) == "runs"


def test_backend_nccl_is_hccl(tmp_path):
    assert output_of(
        f"""
        import warnings
        warnings.simplefilter("ignore")
        import torch, torch.distributed as dist
        from torch_npu.contrib import transfer_to_npu
        assert dist.is_nccl_available()
        dist.init_process_group(backend="nccl", init_method="file://{tmp_path}/store", rank=0, world_size=1)
        one = torch.ones(2, device="cuda")
        dist.all_reduce(one)
        assert one.tolist() == [1, 1] and dist.get_backend() == "hccl"
        dist.destroy_process_group()
        print("one")
        """
    ) == "one"
