# SPDX-License-Identifier: Apache-2.0
"""Names that programs import from the package, what they do, and what they say where there is nothing to do."""
import csv
import importlib
import importlib.metadata
import io
import json
import os
import pickle
import re
import subprocess
import sys

import numpy
import pytest
import torch
import torch_npu
from support import output_of, run_script


def test_version_says_which_pytorch_and_which_package():
    assert torch_npu.__version__ == f"2.13.0+reprise{importlib.metadata.version('reprise-torch')}"
    assert torch.__version__.startswith(torch_npu.__version__.partition("+")[0])
    assert re.match(r"\d+\.\d", torch_npu.utils.get_cann_version())
    assert torch_npu.npu.get_cann_version("no such part") == ""


def test_distribution_has_a_name_of_its_own():
    # An own process: entry points of the build tree alone count, whatever else is on this interpreter's path.
    names = importlib.metadata.packages_distributions()["torch_npu"]
    assert names == ["reprise-torch"]


@pytest.mark.parametrize("installed", [True, False])
def test_two_distributions_are_told_apart(installed, tmp_path):
    if installed:
        metadata = tmp_path / "torch_npu-2.13.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.13.0\n")
    done = run_script(
        f"""
        import sys
        sys.path.append({str(tmp_path)!r})
        import warnings
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            import torch
        print([str(one.message) for one in seen if "distributions" in str(one.message)])
        """,
        fresh=True,
    )
    assert done.returncode == 0, done.stderr
    if installed:
        assert "reprise-torch 0" in done.stdout and "torch-npu 2.13.0" in done.stdout and "is in use" in done.stdout
        assert done.stdout.count("two distributions") == 1
    else:
        assert done.stdout.strip() == "[]"


def test_types_of_data_have_their_names():
    assert torch_npu.float8_e4m3fn is torch.float8_e4m3fn
    # Numbers, for arguments such as dst_type of operators.
    names = ["int4", "hifloat8", "float8_e8m0fnu", "float4_e2m1fn_x2", "float4_e1m2fn_x2"]
    assert [getattr(torch_npu, name) for name in names] == [285, 290, 293, 296, 297]
    with pytest.raises(TypeError):
        torch.empty(2, dtype=torch_npu.hifloat8)


@pytest.mark.parametrize(
    "module, name",
    [
        ("torch_npu", "HiFloat8Tensor"),
        ("torch_npu", "matmul_checksum"),
        ("torch_npu.utils", "npu_combine_tensors"),
        ("torch_npu.npu", "lightning_indexer"),
        ("torch_npu.profiler", "with_modules"),
        ("torch_npu.contrib", "ROIAlign"),
        ("torch_npu.optim", "NpuFusedLamb"),
        ("torch_npu.npu._graph_tree", "npugraphify"),
        ("torch_npu.npu._aclgraph_update_plan", "resolve_aclgraph_update_plan"),
    ],
)
def test_what_is_absent_says_so_in_a_sentence(module, name):
    owner = importlib.import_module(module)
    assert not hasattr(owner, name)
    with pytest.raises(AttributeError, match=f"{name} does not exist in Reprise.*: "):
        getattr(owner, name)
    with pytest.raises(ImportError, match=f"{name} does not exist in Reprise.*: "):
        exec(f"from {module} import {name}")
    with pytest.raises(AttributeError, match="^module '[a-zA-Z0-9_.]*' has no attribute 'no_such_name'"):
        owner.no_such_name  # noqa: B018


def test_formats_are_remembered():
    made = torch_npu.empty_with_format(
        size=(2, 16, 16), dtype=torch.float16, device="npu", acl_format=torch_npu.Format.FRACTAL_NZ
    )
    assert made.device.type == "npu" and made.shape == (2, 16, 16) and made.is_contiguous()
    assert torch_npu.get_npu_format(made) == torch_npu.Format.FRACTAL_NZ == 29
    assert torch_npu.get_npu_format(torch_npu.npu_format_cast(made, torch_npu.Format.ND)) == 2
    with pytest.raises(RuntimeError, match="acl_format is 99"):
        torch_npu.empty_with_format((2,), acl_format=99)


@pytest.mark.parametrize("name, number", [("Ascend910B3", 223), ("Ascend910_9392", 251), ("Ascend310P3", 202),
                                          ("Ascend950PR_9589", 260), ("Newer", -1)])  # fmt: skip
def test_generations_of_the_hardware_have_their_numbers(monkeypatch, name, number):
    assert torch_npu.npu.get_soc_version() == 223
    monkeypatch.setattr("torch_npu.npu.utils.get_device_name", lambda: name)
    assert torch.npu.get_soc_version() == number


def test_checkpoints_are_written_in_the_background(tmp_path):
    model = torch.nn.Linear(4, 2).npu()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    kept = []
    for step in range(4):
        model(torch.ones(3, 4, device="npu")).sum().backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        kept.append(model.weight.detach().cpu().clone())
        saved = torch_npu.utils.save_async(state, tmp_path / f"{step}.pt", model=model)
        with torch.no_grad():
            model.weight.add_(1)  # too late to be saved
    saved.result(60)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.pt", "1.pt", "2.pt", "3.pt"]
    for step, weight in enumerate(kept):
        state = torch.load(tmp_path / f"{step}.pt")
        assert state["step"] == step and state["model"]["weight"].device.type == "npu"
        assert torch.equal(state["model"]["weight"].cpu(), weight)
    into = io.BytesIO()
    torch_npu.utils.save_async(torch.ones(2).npu(), into).result(60)
    into.seek(0)
    assert torch.load(into, map_location="cpu").tolist() == [1, 1]


def test_a_process_ends_when_its_checkpoints_are_written(tmp_path):
    path = tmp_path / "last.pt"
    assert output_of(
        f"""
        import torch, torch_npu
        torch_npu.utils.save_async(torch.arange(1 << 20).npu(), {str(path)!r})
        print("over")
        """
    ) == "over"
    assert torch.load(path, map_location="cpu")[-1] == (1 << 20) - 1


def test_checkpoints_that_cannot_be_written_say_so(tmp_path):
    save = torch_npu.utils.save_async
    with pytest.raises(FileNotFoundError):
        save(torch.ones(2), tmp_path / "none" / "x.pt")
    with pytest.raises(TypeError, match="model is int"):
        save(torch.ones(2), tmp_path / "x.pt", model=3)
    with pytest.raises(AttributeError, match="f is NoneType"):
        save(torch.ones(2), None)
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        save(lambda: 0, tmp_path / "x.pt")
    closed = open(tmp_path / "closed", "wb")
    closed.close()
    with pytest.warns(UserWarning, match="was not written: .*closed"):
        write = save(torch.ones(2), closed)
        with pytest.raises(ValueError, match="closed"):
            write.result(60)
        save(torch.ones(2), io.BytesIO()).result(60)  # behind the warning, which the writer gives
    assert [path.name for path in tmp_path.iterdir()] == ["closed"]


def test_modules_are_reached_without_an_import():
    assert output_of(
        """
        import torch_npu
        names = ("profiler.profile", "multiprocessing.reductions.rebuild_npu_tensor", "utils.get_cann_version",
                 "op_plugin.__name__", "testing.__name__", "optim.NpuFusedAdamW", "contrib.__name__")
        for name in names:
            owner = torch_npu
            for part in name.split("."):
                owner = getattr(owner, part)
        from torch_npu.npu._npugraph_handlers import NpuGraphOpHandler, register_npu_graph_handler
        from torch_npu.npu._npugraph_utils import align_trace_json
        from torch_npu.op_plugin.atb._atb_ops import _register_atb_extensions
        import torch_npu.profiler.dynamic_profile
        assert torch_npu.super_kernel_scope_begin("a") is None and torch_npu.super_kernel_scope_end("a") is None
        torch_npu.print_npugraph_tensor(torch_npu.npu.FloatTensor([1.5]), tensor_name="x")
        torch_npu.npu.synchronize()
        print("all there")
        """
    ) == "all there"


def test_paths_are_checked(tmp_path):
    from torch_npu.utils._path_manager import PathManager

    folder, file = str(tmp_path / "folder"), str(tmp_path / "folder" / "file")
    PathManager.make_dir_safety(folder)
    PathManager.create_file_safety(file)
    PathManager.check_input_file_path(file)
    PathManager.check_directory_path_writeable(folder)
    (tmp_path / "link").symlink_to(file)
    for check, path, why in (
        (PathManager.check_input_file_path, folder, "is a folder"),
        (PathManager.check_input_directory_path, file, "is a file"),
        (PathManager.check_input_file_path, str(tmp_path / "link"), "is a link"),
        (PathManager.check_directory_path_readable, str(tmp_path / "none"), "does not exist"),
        (PathManager.check_input_file_path, "a" * 5000, "too long"),
        (PathManager.check_input_file_path, "", "not empty"),
    ):
        with pytest.raises(RuntimeError, match=why):
            check(path)
    PathManager.remove_file_safety(file)
    PathManager.remove_path_safety(folder)
    assert not (tmp_path / "folder").exists()


def test_dlpack_shares_memory():
    numbers = torch.arange(6.0, device="npu")
    assert numbers.__dlpack_device__() == (torch.utils.dlpack.DLDeviceType.kDLExtDev, 0)
    again = torch.from_dlpack(numbers)
    again[0] = 7
    assert again.is_npu and again.data_ptr() == numbers.data_ptr() and numbers[0].item() == 7
    capsule = torch.utils.dlpack.to_dlpack(numbers)
    assert torch.from_dlpack(capsule).data_ptr() == numbers.data_ptr()
    # NumPy takes memory of the CPU: the same bytes.
    here = numpy.from_dlpack(numbers, device="cpu")
    assert here.ctypes.data == numbers.data_ptr() and here[0] == 7
    there = torch.from_dlpack(numpy.arange(3.0)).npu()
    assert there.tolist() == [0, 1, 2]
    moved = torch.from_dlpack(numbers, device="cpu")
    assert moved.device.type == "cpu" and torch.equal(moved, numbers.cpu())
    with pytest.raises(BufferError, match="gradient"):
        numbers.clone().requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="stream"):
        numbers.__dlpack__(stream=4)


def test_dlpack_waits_for_what_is_pending(npu):
    numbers = torch.zeros(4, device="npu")
    npu._sleep(20_000_000)
    numbers.add_(1)
    assert numpy.from_dlpack(numbers, device="cpu").tolist() == [1] * 4


def test_optimizers_are_those_of_torch():
    def train(make, **options):
        weight = torch.nn.Parameter(torch.full((3,), 2.0, device="npu"))
        optimizer = make([weight], **options)
        for _ in range(2):
            optimizer.zero_grad()
            weight.square().sum().backward()
            if hasattr(optimizer, "clip_grad_norm_fused_"):
                assert optimizer.clip_grad_norm_fused_(1e6) > 0
            optimizer.step()
        return weight.detach().cpu()

    for name, options in (("SGD", {"lr": 0.1}), ("Adam", {}), ("AdamW", {}), ("Adadelta", {}), ("RMSprop", {})):
        ours = getattr(torch_npu.optim, f"NpuFused{name}")
        torch.testing.assert_close(train(ours, **options), train(getattr(torch.optim, name), **options))
    with pytest.raises(RuntimeError, match="amsgrad"):
        torch_npu.optim.NpuFusedAdam([torch.ones(1, requires_grad=True)], amsgrad=True)


@pytest.mark.parametrize("ci", [False, True])
def test_tests_of_operators_have_their_helpers(tmp_path, ci):
    script = tmp_path / "op_test.py"
    script.write_text(
        "import numpy, torch, torch_npu\n"
        "from torch_npu.testing.testcase import TestCase, run_tests\n"
        "from torch_npu.testing.common_utils import create_common_tensor\n"
        "class Abs(TestCase):\n"
        "    def test_right(self):\n"
        "        here, there = create_common_tensor((numpy.float16, 0, (3, 4)), -2, 2)\n"
        "        self.assertRtolEqual(torch.abs(here).numpy(), torch.abs(there).cpu().numpy())\n"
        "    def test_wrong(self):\n"
        "        here, there = create_common_tensor((numpy.float32, 0, (3, 4)), 1, 2)\n"
        "        self.assertRtolEqual(here, there + 1)\n"
        "run_tests()\n"
    )
    environment = {**os.environ, "CI": "true"} if ci else {key: os.environ[key] for key in os.environ if key != "CI"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert re.search(r"Ran 2 tests(.|\n)*FAILED \(failures=1\)", done.stderr), done.stderr


def _work():
    numbers = torch.ones(64, 64, device="npu")
    for _ in range(3):
        numbers = torch.relu(numbers @ numbers).softmax(0)
    torch.npu.synchronize()


def test_profile_shows_host_and_device(tmp_path):
    profiler = torch_npu.profiler
    _work()
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(tmp_path, worker_name="me"),
        record_shapes=True,
        experimental_config=profiler._ExperimentalConfig(
            profiler_level=profiler.ProfilerLevel.Level1, aic_metrics=profiler.AiCMetrics.PipeUtilization
        ),
    ) as prof:
        for _ in range(5):
            _work()
            prof.step()
    folders = list(tmp_path.glob("me_*_ascend_pt/ASCEND_PROFILER_OUTPUT"))
    assert len(folders) == 1
    trace = json.loads((folders[0] / "trace_view.json").read_text())
    host = [one for one in trace["traceEvents"] if one.get("cat") == "cpu_op" and one["name"] == "aten::matmul"]
    tasks = [one for one in trace["traceEvents"] if one.get("cat") == "task"]
    assert len(host) == 6 and len(tasks) >= 18  # two steps, each three products, their clamps and normalisations
    # One clock: the work lies within the steps that called it, give or take what clocks differ by.
    steps = [one for one in trace["traceEvents"] if one["name"].startswith("ProfilerStep")]
    begin, end = min(one["ts"] for one in steps), max(one["ts"] + one["dur"] for one in steps)
    assert all(begin - 1e4 <= one["ts"] <= end + 1e4 for one in tasks)
    with (folders[0] / "kernel_details.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(tasks) and all(float(row["Duration(us)"]) >= 0 for row in rows)
    assert any(row.key == "aten::mm" for row in prof.key_averages())
    profiler.profiler.analyse(str(tmp_path))


def test_profile_of_replays(tmp_path, npu):
    numbers = torch.ones(8, device="npu")
    graph = npu.NPUGraph()
    with npu.graph(graph):
        result = numbers.exp() + 1
    with torch_npu.profiler.profile(activities=[torch_npu.profiler.ProfilerActivity.NPU]) as prof:
        graph.replay()
    prof.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    assert any(task["args"].get("graph") is not None for task in prof.npu_events())
    assert result.isfinite().all()


def test_profile_shows_what_the_program_called():
    rows = torch.ones(3, 7, 11, 13, device="npu")  # of a shape that no other test has: its results are not known yet
    with torch_npu.profiler.profile(activities=[torch_npu.profiler.ProfilerActivity.CPU]) as prof:
        torch.relu(rows)
    assert {event.key for event in prof.key_averages()} == {"aten::relu"}


def test_profiles_are_refused_with_reasons():
    profiler = torch_npu.profiler
    with pytest.raises(TypeError, match="ProfilerActivity"):
        profiler.profile(activities=["NPU"])
    with pytest.raises(ValueError, match="empty"):
        profiler.profile(activities=[])
    with pytest.raises(TypeError, match="profiler_level takes"):
        profiler._ExperimentalConfig(profiler_level=1)
    with pytest.raises(RuntimeError, match="Text"):
        profiler._ExperimentalConfig(export_type=[profiler.ExportType.Db])
    with profiler.profile(), pytest.raises(RuntimeError, match="being recorded"):
        profiler.profile().start()
    with profiler.profile(experimental_config=profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level_none)) as prof:
        _work()
    assert prof.npu_events() == []


def test_profile_is_asked_for_while_the_program_runs(tmp_path):
    output_of(
        f"""
        import json, os, torch
        from torch_npu.profiler import dynamic_profile
        folder = {str(tmp_path)!r}
        def steps(count):
            for _ in range(count):
                torch.ones(4, device="npu").exp()
                dynamic_profile.step()
        try:
            dynamic_profile.step()
        except RuntimeError as error:
            assert "init" in str(error)
        dynamic_profile.init(folder)
        steps(3)
        assert os.listdir(folder) == []
        with open(folder + "/new", "w") as file:
            json.dump({{"active": 2, "activities": ["NPU"]}}, file)
        os.rename(folder + "/new", folder + "/profiler_config.json")
        steps(5)
        assert len(os.listdir(folder)) == 2, os.listdir(folder)
        with open(folder + "/wrong.json", "w") as file:
            json.dump({{"activ": 2}}, file)
        try:
            dynamic_profile.start(folder + "/wrong.json")
        except ValueError as error:
            assert "activ" in str(error)
        else:
            raise SystemExit("a wrong setting was accepted")
        """
    )
