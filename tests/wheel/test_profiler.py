# SPDX-License-Identifier: Apache-2.0
"""Profiles of the published package: its own analysis finds our records by msprof, and says of them what ran."""

import collections
import csv
import itertools
import json
import sqlite3
import subprocess
import sys

import pytest
import torch
import torch_npu
from torch_npu import profiler
from torch_npu.profiler import ExportType, ProfilerLevel

CPU, NPU = profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU
STEPS = 2
# Kernels of a step, in their order where one waits for the other.
KERNELS = ["Addmm", "Relu", "Mean"]


class Results:
    """What the analysis wrote."""

    def __init__(self, folder):
        self.profile = next(path for path in folder.iterdir() if path.name.endswith("_ascend_pt"))
        self.folder = self.profile / "ASCEND_PROFILER_OUTPUT"
        assert (self.folder / "analyse.done").exists()

    def table(self, name):
        with open(self.folder / name, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def trace(self):
        return json.loads((self.folder / "trace_view.json").read_text())

    def database(self, query):
        connection = sqlite3.connect(self.folder / "ascend_pytorch_profiler.db")
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def complaints(self):
        return [line for log in (self.profile / "logs").iterdir() for line in log.read_text().splitlines() if "[ERROR]" in line]


def record(folder, work, steps=1, activities=(CPU, NPU), level=ProfilerLevel.Level1, export=ExportType.Text, settings=(), **options):
    config = profiler._ExperimentalConfig(profiler_level=level, export_type=export, **dict(settings))
    handler = profiler.tensorboard_trace_handler(str(folder))
    with profiler.profile(
            activities=list(activities), schedule=profiler.schedule(wait=0, warmup=1, active=steps, repeat=1),
            on_trace_ready=handler, experimental_config=config, **options) as running:
        for _ in range(1 + steps):
            work()
            torch.npu.synchronize()
            running.step()
    return Results(folder)


def times(rows, column="Type"):
    return collections.Counter(row[column] for row in rows)


@pytest.fixture(scope="module")
def layer():
    torch.manual_seed(0)
    model, x = torch.nn.Linear(8, 4).npu(), torch.randn(3, 8).npu()

    def work():
        with torch.no_grad():
            return torch.relu(model(x)).mean()

    work()
    return work


@pytest.fixture(scope="module")
def training(tmp_path_factory, layer):
    """Two steps with all that can be asked for."""
    return record(tmp_path_factory.mktemp("training"), layer, STEPS, export=[ExportType.Text, ExportType.Db],
                  record_shapes=True, profile_memory=True, with_stack=True)


def test_nothing_complains(training):
    assert training.complaints() == []


def test_kernels_with_their_names_times_and_shapes(training):
    rows = training.table("kernel_details.csv")
    assert [row["Name"] for row in rows] == KERNELS * STEPS
    assert [row["Step Id"] for row in rows] == [str(1 + i // len(KERNELS)) for i in range(len(rows))]
    for row in rows:
        assert float(row["Duration(us)"]) > 0 and float(row["Wait Time(us)"]) >= 0
        assert row["Device_id"] == "0" and int(row["Block Num"]) >= 1
    cores = {row["Type"]: row["Accelerator Core"] for row in rows}
    assert cores == {"Addmm": "AI_CORE", "Relu": "AI_VECTOR_CORE", "Mean": "AI_VECTOR_CORE"}
    assert rows[0]["Input Shapes"] == '"4;3,8;8,4"' and rows[0]["Input Data Types"] == "FLOAT;FLOAT;FLOAT"
    assert rows[0]["Output Shapes"] == '"3,4"' and rows[1]["Input Shapes"] == '"3,4"'
    begins = [(float(row["Start Time(us)"]), float(row["Duration(us)"])) for row in rows]
    assert all(one[0] + one[1] <= other[0] + 0.5 for one, other in itertools.pairwise(begins))  # floats of 16 digits


def test_sums_agree_with_the_kernels(training):
    kernels, sums = training.table("kernel_details.csv"), training.table("op_statistic.csv")
    assert {row["OP Type"]: int(row["Count"]) for row in sums} == times(kernels)
    for row in sums:
        whole = sum(float(kernel["Duration(us)"]) for kernel in kernels if kernel["Type"] == row["OP Type"])
        assert float(row["Total Time(us)"]) == pytest.approx(whole, abs=1e-3)
    assert sum(float(row["Ratio(%)"]) for row in sums) == pytest.approx(100, abs=0.1)
    assert times(training.table("task_time.csv"), "kernel_name") == times(kernels)
    assert {row["API Name"]: int(row["Count"]) for row in training.table("api_statistic.csv")} == {"launch": len(kernels)}


def test_steps_take_the_time_of_their_kernels(training):
    kernels, steps = training.table("kernel_details.csv"), training.table("step_trace_time.csv")
    assert [row["Step"] for row in steps] == ["1", "2"]
    for row in steps:
        whole = sum(float(kernel["Duration(us)"]) for kernel in kernels if kernel["Step Id"] == row["Step"])
        assert float(row["Computing"]) == pytest.approx(whole, abs=0.01)
        assert float(row["Free"]) >= 0 and float(row["Communication"]) == 0 and row["Device_id"] == "0"


def test_operators_take_the_time_of_their_kernels(training):
    kernels, operators = training.table("kernel_details.csv"), training.table("operator_details.csv")
    for name, kernel in (("aclnnAddmm", "Addmm"), ("aclnnRelu", "Relu")):  # ranges of the package within its operators
        on_device = [float(row["Device Self Duration(us)"]) for row in operators if row["Name"] == name]
        assert on_device == [float(row["Duration(us)"]) for row in kernels if row["Type"] == kernel]
    linear = [row for row in operators if row["Name"] == "aten::linear"]
    assert len(linear) == STEPS
    for row in linear:
        assert float(row["Device Total Duration(us)"]) == float(row["Device Total Duration With AICore(us)"]) > 0
        assert "test_profiler.py" in row["Call Stack"] and "3,8" in row["Input Shapes"]


def test_memory_is_shown(training):
    assert {row["Name"] for row in training.table("operator_memory.csv")} >= {"aten::addmm"}
    assert len(training.table("memory_record.csv")) >= STEPS


def test_the_trace_connects_operators_with_kernels(training):
    events = training.trace()
    tracks = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert set(tracks.values()) >= {"Python", "CANN", "Ascend Hardware", "Overlap Analysis"}
    kernels = [event for event in events if event["ph"] == "X" and tracks[event["pid"]] == "Ascend Hardware"]
    assert sorted(event["name"] for event in kernels) == sorted(KERNELS * STEPS)
    for kind in ("torch_to_npu", "HostToDevice"):
        ends = {(event["pid"], event["tid"], event["ts"]) for event in events
                if event["ph"] == "f" and event["name"].startswith(kind)}
        assert ends == {(event["pid"], event["tid"], event["ts"]) for event in kernels}
    operators = {(event["pid"], event["tid"], event["ts"]): event["name"] for event in events if event.get("cat") == "cpu_op"}
    begins = collections.Counter(operators[event["pid"], event["tid"], event["ts"]] for event in events
                                 if event["ph"] == "s" and event["name"] == "torch_to_npu")
    assert begins == {f"aclnn{name}": STEPS for name in KERNELS}


def test_the_database_says_the_same(training):
    rows = training.database(
        "SELECT name.value, task.endNs - task.startNs, core.value FROM COMPUTE_TASK_INFO AS info "
        "JOIN TASK AS task ON info.globalTaskId = task.globalTaskId JOIN STRING_IDS AS name ON info.name = name.id "
        "JOIN STRING_IDS AS core ON info.taskType = core.id ORDER BY task.startNs")
    kernels = training.table("kernel_details.csv")
    assert [(name, f"{time / 1000:.3f}", core) for name, time, core in rows] == [
        (row["Name"], row["Duration(us)"], row["Accelerator Core"]) for row in kernels]
    # Operators of the framework, calls of the runtime and tasks are joined by the same numbers.
    joined = training.database(
        "SELECT name.value, COUNT(*) FROM PYTORCH_API AS api JOIN CONNECTION_IDS AS ids ON api.connectionId = ids.id "
        "JOIN TASK AS task ON task.connectionId = ids.connectionId JOIN STRING_IDS AS name ON api.name = name.id "
        "GROUP BY name.value")
    assert dict(joined)["aclnnAddmm"] == STEPS


def test_replays_show_each_kernel(tmp_path, layer):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        layer()
    results = record(tmp_path, lambda: [graph.replay() for _ in range(3)], STEPS)
    rows = results.table("kernel_details.csv")
    assert [row["Name"] for row in rows] == KERNELS * 3 * STEPS
    assert {row["OP State"] for row in rows} == {"static"}
    assert rows[0]["Input Shapes"] == '"4;3,8;8,4"'
    tasks = times(results.table("task_time.csv"), "kernel_type")
    assert tasks["MODEL_EXECUTE"] == 3 * STEPS
    events = results.trace()
    begins = collections.Counter(event["ts"] for event in events if event["ph"] == "s" and event.get("cat") == "HostToDevice")
    assert list(begins.values()) == [len(KERNELS)] * 3 * STEPS  # all kernels of a replay hang on its call


COMMON = {"trace_view.json", "analyse.done"}
OF_DEVICE = {"kernel_details.csv", "step_trace_time.csv", "task_time.csv"}


@pytest.mark.parametrize("level, files, headers", [
    (ProfilerLevel.Level0, OF_DEVICE | {"operator_details.csv"}, 10),
    (ProfilerLevel.Level1, OF_DEVICE | {"operator_details.csv", "op_statistic.csv", "api_statistic.csv"}, 20),
    (ProfilerLevel.Level2, OF_DEVICE | {"operator_details.csv", "op_statistic.csv", "api_statistic.csv"}, 20),
])
def test_levels(tmp_path, layer, level, files, headers):
    results = record(tmp_path, layer, level=level)
    assert {path.name for path in results.folder.iterdir()} == files | COMMON
    rows = results.table("kernel_details.csv")
    assert [row["Name"] for row in rows] == KERNELS and len(rows[0]) == headers
    assert results.complaints() == []


def test_the_device_alone(tmp_path, layer):
    results = record(tmp_path, layer, activities=[NPU])
    assert [row["Name"] for row in results.table("kernel_details.csv")] == KERNELS
    assert not (results.folder / "operator_details.csv").exists()


def test_as_a_database_alone(tmp_path, layer):
    results = record(tmp_path, layer, export=ExportType.Db)
    assert {path.name for path in results.folder.iterdir()} == {"analyse.done", "analysis.db", "ascend_pytorch_profiler.db"}
    assert results.database("SELECT COUNT(*) FROM COMPUTE_TASK_INFO") == [(len(KERNELS),)]


def test_a_step_in_which_nothing_runs(tmp_path):
    results = record(tmp_path, lambda: None)
    assert (results.folder / "trace_view.json").exists()
    assert not (results.folder / "op_statistic.csv").exists()


def test_marks_of_the_program(tmp_path, layer):
    def work():
        with_stream = torch_npu.npu.mstx.range_start("all of it", torch.npu.current_stream())
        layer()
        torch_npu.npu.mstx.range_end(with_stream)
        torch_npu.npu.mstx.mark("done")

    results = record(tmp_path, work, export=[ExportType.Text, ExportType.Db], settings={"mstx": True})
    names = collections.Counter(event["name"] for event in results.trace() if event["ph"] == "X")
    assert names["all of it"] == 2 and names["done"] == 1  # on the thread and on the stream
    rows = results.database("SELECT value, eventType FROM MSTX_EVENTS JOIN STRING_IDS ON message = id "
                            "WHERE value NOT LIKE 'ProfilerStep#%'")
    assert sorted(rows) == [("all of it", 1), ("done", 0)]  # the stream may reach the range behind the mark of the thread


def test_one_trace_for_chrome(tmp_path, monkeypatch, layer):
    monkeypatch.chdir(tmp_path)  # records are kept where the program runs, unless a handler says where
    with profiler.profile(activities=[CPU, NPU]) as running:
        layer()
    running.export_chrome_trace(str(tmp_path / "trace.json"))
    names = times(json.loads((tmp_path / "trace.json").read_text()), "name")
    assert all(names[name] == 1 for name in KERNELS) and names["aten::linear"] == 1


# ---- The command ----


def msprof(*arguments):
    return subprocess.run(["msprof", *arguments], capture_output=True, text=True, check=False)


def test_the_command_records_any_program(tmp_path):
    program = "import torch, torch_npu; x = torch.ones(4).npu(); print((x + x).sum().item())"
    done = msprof(f"--output={tmp_path}", "--ascendcl=on", "--aic-metrics=Memory", sys.executable, "-c", program)
    assert done.returncode == 0 and "8.0" in done.stdout, done.stderr
    folder = next(tmp_path.iterdir())
    with open(next((folder / "mindstudio_profiler_output").glob("op_summary_*.csv")), encoding="utf-8") as file:
        names = times(csv.DictReader(file), "Op Name")
    assert names["Add"] == 1 and names["ReduceSum"] == 1
    assert len(list(folder.glob("msprof_*.db"))) == 1
    again = msprof("--export=on", f"--output={tmp_path}")
    assert again.returncode == 0 and "exported" in again.stdout
    parsed = msprof("--parse=on", f"--output={folder}")
    assert "on devices 0; 0 events dropped" in parsed.stdout
    (folder / "host" / "end_info").write_text("[]")
    broken = msprof("--export=on", f"--output={folder}")
    assert broken.returncode == 1 and "is no recording of this runtime" in broken.stderr


@pytest.mark.parametrize("arguments, message", [
    ([], None),
    (["--help"], None),
    (["--export=on"], "--export has no recording; name its folder with --output=FOLDER"),
    (["--export=yes", "--output=."], "--export is 'yes'; write --export=on"),
    (["--export=on", "--output=/no/such"], "/no/such is no folder"),
    (["--export=on", "--type=csv", "--output=."], "write --type=text or --type=db"),
    (["--export=on", "ls"], "--export takes a recording, not a program"),
    (["--dynamic=on"], "--dynamic is not supported here; record a program from its beginning"),
    (["--colour=on"], "there is no option --colour; see msprof --help"),
    (["--output=."], "nothing is asked for"),
    (["--application=ls", "ls"], "name one"),
])
def test_the_command_says_what_is_wrong(arguments, message):
    done = msprof(*arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (0 if message is None else 1, False)
    assert message in done.stderr if message else "--type=text|db" in done.stdout


def test_a_program_without_the_runtime_leaves_a_reason(tmp_path):
    done = msprof(f"--output={tmp_path}", "true")
    assert done.returncode == 1 and "called nothing of the runtime" in done.stderr
    assert "cannot be run" in msprof(f"--output={tmp_path}", "no-such-program").stderr
