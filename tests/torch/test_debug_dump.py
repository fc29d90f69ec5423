# SPDX-License-Identifier: Apache-2.0
"""Dumps of graphs, and options of graphs that change nothing here."""
import json
import warnings
from xml.etree import ElementTree

import pytest
import torch
from support import capture, output_of
from torch_npu.npu import _graph_trace


def two_streams():
    x = torch.ones(16, device="npu")
    side = torch.npu.Stream()

    def work():
        main = torch.npu.current_stream()
        side.wait_stream(main)
        with torch.npu.stream(side):
            y = x * 2
        z = x + 1
        main.wait_stream(side)
        return y + z

    graph = torch.npu.NPUGraph()
    graph.x = x  # which it reads
    return graph, capture(graph, work)


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_TN_319_dump_and_aligned_dump(tmp_path):
    graph, _ = two_streams()
    assert graph.debug_dump(str(tmp_path / "x.json"), aligned=True) is None
    events = load(tmp_path / "x.json")
    assert len(events) >= 5 and all(event["ph"] == "X" for event in events)
    aligned = load(tmp_path / "x.aligned.json")
    tasks = [event for event in aligned if event["ph"] == "X"]
    assert len(tasks) == len(events)
    # Every wait comes after a record, and tasks of a stream do not overlap.
    starts = [event for event in aligned if event["ph"] == "s"]
    ends = [event for event in aligned if event["ph"] == "f"]
    assert len(starts) == len(ends) >= 2
    for start, end in zip(starts, ends):
        assert start["id"] == end["id"] and start["ts"] < end["ts"]
    for tid in {event["tid"] for event in tasks}:
        row = sorted((event["ts"], event["dur"]) for event in tasks if event["tid"] == tid)
        for (ts, dur), (after, _) in zip(row, row[1:]):
            assert ts + dur < after


def test_reductions_over_dims_are_kernels_of_the_device(tmp_path):
    x = torch.randn(3, 5, 4, 4, device="npu")
    mask = x > 0
    graph = torch.npu.NPUGraph()
    means, alls, anys = capture(graph, lambda: (x.mean((2, 3)), mask.all(1), mask.any(-1, keepdim=True)))
    graph.replay()
    torch.testing.assert_close(means.cpu(), x.cpu().mean((2, 3)))
    assert torch.equal(alls.cpu(), mask.cpu().all(1)) and torch.equal(anys.cpu(), mask.cpu().any(-1, keepdim=True))
    graph.debug_dump(tmp_path / "x.json")
    events = load(tmp_path / "x.json")
    assert len(events) == 3 and all("Kernel Args" in event["args"] for event in events)


def test_TN_319_paths_and_pictures(tmp_path):
    graph, _ = two_streams()
    graph.debug_dump(tmp_path / "p.json")  # a path object
    assert [path.name for path in tmp_path.iterdir()] == ["p.json"], "the aligned form is only for those who ask"
    graph.debug_dump(str(tmp_path / "picture.dot"))
    assert "digraph" in (tmp_path / "picture.dot").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="ends in .json"):
        graph.debug_dump(tmp_path / "picture.svg", aligned=True)
    with pytest.raises(RuntimeError) as info:
        graph.debug_dump(str(tmp_path / "none" / "x.json"))
    assert info.value.code != 0 and "none" in str(info.value)


@pytest.mark.parametrize("name", ["graph.png", "graph", "graph.txt"])
def test_unknown_endings_are_refused(tmp_path, name):
    graph, _ = two_streams()
    with pytest.raises(RuntimeError, match=r"\.json .*\.svg .*\.dot") as info:
        graph.debug_dump(tmp_path / name)
    assert info.value.code == 107000
    assert list(tmp_path.iterdir()) == []


def test_picture_of_a_training_step_fits_a_screen(tmp_path):
    torch.manual_seed(0)
    blocks = [torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(2)]
    model = torch.nn.Sequential(*blocks).to("npu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    x = torch.randn(2, 5, 16, device="npu")

    def step():
        optimizer.zero_grad(set_to_none=False)
        y = model(x)
        loss = y.square().mean()
        loss.backward()
        optimizer.step()

    step()
    graph = torch.npu.NPUGraph()
    capture(graph, step)
    boxes = {}
    for name, every_task in (("short.svg", False), ("long.svg", True)):
        graph.debug_dump(tmp_path / name, every_task=every_task)
        boxes[name] = ElementTree.parse(tmp_path / name).getroot().findall("{http://www.w3.org/2000/svg}g")
    assert len(boxes["short.svg"]) <= 24
    assert len(boxes["long.svg"]) > 200
    graph.debug_dump(tmp_path / "all.json")
    tasks = load(tmp_path / "all.json")
    assert len(tasks) >= len(boxes["long.svg"])
    titles = [box[0].text for box in boxes["short.svg"]]
    assert any("test_debug_dump.py" in title and "aten::" in title for title in titles)
    shapes = {task["name"]: task["args"].get("Shapes") for task in tasks}
    assert any("float32[2,5,16]" in (shape or "") for shape in shapes.values()), shapes


def test_bodies_of_conditions_are_on_the_time_line():
    def task(model, stream, kind, **args):
        return {"name": kind, "pid": "1", "tid": f"stream{stream}", "ts": 0, "dur": 9.5, "ph": "X",
                "args": {"Model Id": model, "Stream Id": stream, "Task Id": 0, "Task Type": kind, **args}}

    bodies = [{"Model Id": 2, "Runs When": "value != 0"}, {"Model Id": 3, "Runs When": "value == 0"}]
    aligned = _graph_trace.align([
        task(1, 1, "CONDITION_OP", Bodies=bodies),
        task(1, 1, "AFTER"),
        task(2, 2, "THEN"),
        task(3, 3, "ELSE"),
    ])
    at = {event["name"]: (event["ts"], event["ts"] + event["dur"]) for event in aligned}
    assert at["CONDITION_OP"][0] < at["THEN"][0] < at["THEN"][1] < at["ELSE"][0]
    assert at["ELSE"][1] <= at["CONDITION_OP"][1] < at["AFTER"][0]


def test_TN_320_nothing_captured(tmp_path):
    graph = torch.npu.NPUGraph()
    with pytest.warns(UserWarning, match="no captured graph"):
        assert graph.debug_dump(str(tmp_path / "x.json")) is None
    assert list(tmp_path.iterdir()) == []


def test_TN_321_stale_file_is_left_alone(tmp_path):
    stale = tmp_path / "x.json"
    stale.write_text("[]", encoding="utf-8")
    with pytest.warns(UserWarning, match="no captured graph"):
        torch.npu.NPUGraph().debug_dump(str(stale))
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    assert stale.read_text(encoding="utf-8") == "[]"


def test_TN_322_alignment_fails(tmp_path, monkeypatch):
    def broken(_):
        raise ValueError("broken")

    monkeypatch.setattr(_graph_trace, "align", broken)
    graph, _ = two_streams()
    graph.debug_dump(str(tmp_path / "x.json"), aligned=True)
    assert len(load(tmp_path / "x.json")) >= 5


def test_TN_323_debug_mode(tmp_path):
    code = f"""
        import json, torch
        torch.npu.NPUGraph().enable_debug_mode()
        g = torch.npu.NPUGraph(keep_graph=False)
        x = torch.ones(4, device="npu")
        with torch.npu.graph(g):
            y = x.add(1).mul(2).sub(3)
        g.debug_dump({str(tmp_path / "x.json")!r})
        names = [event["name"] for event in json.load(open({str(tmp_path / "x.json")!r}))]
        print(all(any(op in name for name in names) for op in ("add", "mul", "sub")))
    """
    assert output_of(code) == "True"


def line_of_the_program(x):
    return x * 3  # the dump names this line


def test_stacks_of_captured_operators(tmp_path):
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph()
    capture(graph, lambda: line_of_the_program(x))
    graph.debug_dump(str(tmp_path / "x.json"))
    stacks = [event["args"].get("Call Stack") for event in load(tmp_path / "x.json")]
    stack = next(stack for stack in stacks if stack)
    assert "line_of_the_program" in stack[0] and "test_debug_dump.py" in stack[0]


def test_stacks_can_be_switched_off(tmp_path):
    code = f"""
        import json, torch
        g = torch.npu.NPUGraph()
        x = torch.ones(4, device="npu")
        with torch.npu.graph(g):
            y = x + 1
        g.debug_dump({str(tmp_path / "x.json")!r})
        print(any("Call Stack" in event["args"] for event in json.load(open({str(tmp_path / "x.json")!r}))))
    """
    assert output_of(code, REPRISE_TORCH_STACKS=0) == "False"


def test_alignment_of_streams_that_start_others_and_of_circles():
    def task(stream, kind, name=None, **args):
        return {
            "name": name or kind,
            "pid": "1 aclGraph",
            "tid": f"stream{stream}",
            "ts": 0,
            "dur": 9.5,
            "ph": "X",
            "args": {"Model Id": 1, "Stream Id": stream, "Task Id": 0, "Task Type": kind, **args},
        }

    events = [
        task(2, "KERNEL_AIVEC", "op_0123456789abcdef0"),
        task(1, "KERNEL_AIVEC", "first"),
        task(1, "STREAM_ACTIVE", **{"Active Stream Id": 2}),
    ]
    aligned = {event["name"]: event for event in _graph_trace.align(events)}
    assert aligned["op"]["tid"] == "stream1"
    assert aligned["op"]["ts"] >= aligned["STREAM_ACTIVE"]["ts"]
    # Two streams that wait for each other: nothing hangs, nothing is lost.
    circle = [
        task(1, "EVENT_WAIT", "EVENT_WAIT_1"),
        task(1, "EVENT_RECORD", "EVENT_RECORD_2"),
        task(2, "EVENT_WAIT", "EVENT_WAIT_2"),
        task(2, "EVENT_RECORD", "EVENT_RECORD_1"),
    ]
    assert sum(event["ph"] == "X" for event in _graph_trace.align(circle)) == 4
    assert _graph_trace.align([]) == []


def test_TN_324_super_kernel_scopes():
    begin, end = torch.ops.npu.super_kernel_scope_begin, torch.ops.npu.super_kernel_scope_end
    x = torch.zeros(4, device="npu")

    def work():
        begin("outer")
        begin()
        x.add_(1)
        end()
        end("outer")

    graph = torch.npu.NPUGraph()
    capture(graph, work)
    graph.replay()
    torch.npu.synchronize()
    assert x.tolist() == [1.0] * 4
    for call in (begin, end):
        with pytest.raises(RuntimeError, match="non-empty string"):
            call("  ")


@pytest.mark.parametrize(
    ("optimize", "debug"),
    [
        ([], None),
        (None, "x"),
        ({"unknown": 1}, None),
        ({"split_mode": "1"}, None),
        ({"opt_extend": 1}, None),
        ({"dcci_before_kernel_start": "x"}, None),
        ({"dcci_before_kernel_start": ["x", 1]}, None),
        ({"aggressive_opt_strategies": 1}, None),
        ({"aggressive_opt_strategies": {"unknown": 1}}, None),
        ({"aggressive_opt_strategies": {"event_breaker_bypass": "1"}}, None),
        (None, {"unknown": 1}),
        (None, {"debug_sync_all": "1"}),
        (None, {"debug_extend": 1}),
    ],
)
def test_TN_325_wrong_options(optimize, debug):
    graph, _ = two_streams()
    with pytest.raises(RuntimeError, match="options"):
        graph.super_kernel_optimize(optimize, debug)


def test_TN_325_right_options():
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        torch.npu.NPUGraph().super_kernel_optimize({"split_mode": 1})
    graph, y = two_streams()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graph.super_kernel_optimize(
            {
                "preload_code": 1,
                "opt_extend": "x",
                "dcci_disable_on_kernel": ["a", "b"],
                "aggressive_opt_strategies": {"task_breaker_bypass": 1},
            },
            {"debug_sync_all": 1, "debug_extend": ""},
        )
        graph.super_kernel_optimize()
    graph.replay()
    torch.npu.synchronize()
    assert y.tolist() == [4.0] * 16


def test_kernels_of_the_cpu_list_the_memory_that_they_touch(tmp_path):
    x, table = torch.randn(3, 5, device="npu"), torch.zeros(4, 5, device="npu")
    places = torch.tensor([1, 3, 1], device="npu")
    graph = torch.npu.NPUGraph()

    def work():
        y = torch.special.bessel_j0(x)
        table.index_add_(0, places, y)
        table.fill_(2.0)
        return y

    y = capture(graph, work)
    graph.debug_dump(str(tmp_path / "x.json"))
    x, y, table, places = (tensor.data_ptr() for tensor in (x, y, table, places))
    touched = [{(int(each["Address"], 0), each["Access"]) for each in event["args"]["Operands"]} for event in load(tmp_path / "x.json")]
    both = "read and write"
    assert touched == [{(x, "read"), (y, both)}, {(table, "read"), (places, "read"), (y, "read"), (table, both)}, {(table, both)}]
