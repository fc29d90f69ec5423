# SPDX-License-Identifier: Apache-2.0
"""The engine below compiled functions: its options, beginning and end, memory, tuning, dumps, gears, the host."""
import json

import pytest
import torch
import torchair
from support_ge import compiled, config_of, equal, graphs_of, numbers
from torchair import scope
from torchair.core import _backend, _torchair
from torchair.inference import set_dim_gears


def configured(**options):
    """A CompilerConfig; options by their path, with __ for dots."""
    made = torchair.CompilerConfig()
    for path, value in options.items():
        made.assign(path.replace("__", "."), value)
    return made


@pytest.fixture
def fresh_engine():
    """The process has no engine before and afterwards, so that options of its own may hold."""
    torch._dynamo.reset()
    _backend.finalize_graph_engine()
    yield
    torch._dynamo.reset()
    _backend.finalize_graph_engine()


# ---- Beginning and end ----


def test_TA_016_other_options_of_the_process_are_refused(fresh_engine, monkeypatch):
    x = numbers(3)
    equal(compiled(lambda x: x + 1)(x), x + 1)
    with pytest.raises(ValueError, match="(?s)ge.exportCompileStat is '0' now.*'ge.exportCompileStat': '2'"):
        _backend.initialize_graph_engine({"ge.exportCompileStat": "0"})
    with pytest.raises(Exception, match="(?s)ge.exportCompileStat.*'0'"):
        compiled(lambda x: x + 2, config=configured(ge_config__export_compile_stat="0"))(x)
    # Options that are as before, and fewer of them, pass; so does what belongs to one graph.
    _backend.initialize_graph_engine({"ge.exportCompileStat": "2"})
    equal(compiled(lambda x: x + 3, config=config_of(memory_efficiency=True, topology_sorting_strategy="BFS"))(x), x + 3)
    monkeypatch.setattr(torch.npu.matmul, "allow_hf32", not torch.npu.matmul.allow_hf32)
    with pytest.raises(Exception, match="ge.exec.allow_hf32"):
        compiled(lambda x: x + 4)(x)


def test_TA_112_ended_and_begun_again(fresh_engine):
    x = numbers(3)
    made, _ = graphs_of(lambda x: x + 1, x)
    graph = made[0].program.engine_graph
    assert len(graph.run([x])) == 1
    _backend.finalize_graph_engine()
    _backend.finalize_graph_engine()
    with pytest.raises(RuntimeError):
        graph.run([x])
    with pytest.raises(RuntimeError, match="not initialised"):
        _backend.TorchNpuGraph("late").load(made[0].graph, {})
        late = _backend.TorchNpuGraph("late")
        late.load(made[0].graph, {})
        late.compile()
    torch._dynamo.reset()
    equal(compiled(lambda x: x + 2)(x), x + 2)


def test_TA_113_a_device_is_needed(fresh_engine):
    for options in ({}, {"ge.exec.deviceId": ""}, {"ge.exec.deviceId": "-1"}):
        with pytest.raises(RuntimeError, match="ge.exec.deviceId must be the number of a device"):
            _torchair.InitializeGraphEngine(options)


# ---- Where graphs run ----


def test_TA_111_graphs_of_the_host():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    for dynamic in (False, True):
        made, result = graphs_of(lambda x, y: (x @ y.t(), x + 1), x, y, dynamic=dynamic)
        assert made[0].graph.attr["_executor_type"].i == 0
        assert all(each.device.type == "cpu" for each in result)
        equal(result, (x @ y.t(), x + 1))
        torch._dynamo.reset()
    made, _ = graphs_of(lambda x: x + 1, x)
    graph = made[0].program.engine_graph
    equal(graph.run([x], [None]), [x + 1])
    with pytest.raises(RuntimeError, match="runs on the host, where outputs cannot be assigned"):
        graph.run([x], [torch.empty(3, 4)])


def test_TA_109_graphs_share_the_memory_between_operators():
    def chain(x):
        for _ in range(4):
            x = torch.softmax(x @ x, -1)
        return x

    large, small = numbers(64, 64), numbers(16, 16)
    made, result = graphs_of(chain, large)
    others, other_result = graphs_of(chain, small)
    equal((result, other_result), (chain(large), chain(small)), 1e-3)
    graphs = [each[0].program.engine_graph for each in (made, others)]
    assert graphs[0].feature_address == graphs[1].feature_address != 0
    for _ in range(2):
        equal(graphs[0].run([large])[0], result, 1e-3)
        equal(graphs[1].run([small])[0], other_result, 1e-3)
    stream = torch.npu.Stream()
    torch.npu.synchronize()
    with torch.npu.stream(stream):
        elsewhere, _ = graphs_of(chain, small)
    assert elsewhere[0].program.engine_graph.feature_address != graphs[0].feature_address


def test_TA_017_memory_that_moves():
    def chain(x):
        return torch.softmax(torch.softmax(x @ x, -1) @ x, -1)

    x = numbers(32, 32)
    made, result = graphs_of(chain, x, config=config_of(memory_efficiency=True))
    program = made[0].program
    assert program.last_options[0]["ge.featureBaseRefreshable"] == "1" and program.engine_graph.feature_address == 0
    taken = []  # so that the next run cannot have the memory of the last one
    for _ in range(3):
        equal(program.engine_graph.run([x])[0], chain(x), 1e-3)
        taken.append(torch.empty(1 << 16, device="npu"))


def test_TA_034_frozen_inputs_are_not_read_again():
    weight = torch.nn.Linear(4, 4, bias=False).npu()
    x = numbers(2, 4)
    with torch.no_grad():
        expected = weight(x)
        made, result = graphs_of(weight, x, config=config_of(frozen_parameter=True))
        equal(result, expected)
        program = made[0].program
        place = program.last_options[0]["frozenInput"].split(",").index("1")
        inputs = [numbers(4, 4) if i == place else x for i in range(2)]
        equal(program.engine_graph.run(inputs)[0], expected)
        plain, _ = graphs_of(weight, x)
        other = plain[0].program.engine_graph.run(inputs)[0]
        equal(other, x @ inputs[place].t())


# ---- Tuning ----


def test_TA_114_tuned_once_before_it_is_compiled(tmp_path, monkeypatch):
    calls = []
    for name in ("auto_tune", "compile"):
        function = getattr(_backend.TorchNpuGraph, name)
        monkeypatch.setattr(_backend.TorchNpuGraph, name, lambda self, *args, f=function, n=name: (calls.append(n), f(self, *args))[1])
    options = dict(aoe_config__aoe_mode="2", aoe_config__work_path=str(tmp_path), debug__graph_dump__type="pbtxt",
                   debug__graph_dump__path=str(tmp_path / "dump"))
    x = numbers(4, 4)
    step = compiled(lambda x: (x @ x).relu(), config=configured(**options))
    for _ in range(2):
        equal(step(x), (x @ x).relu())
    assert calls == ["auto_tune", "compile"] and len(list((tmp_path / "dump").iterdir())) == 2
    calls.clear()
    step = compiled(lambda x: (x @ x.t()).relu(), dynamic=True, config=configured(**options))
    equal(step(x), (x @ x.t()).relu())
    assert calls == ["compile"]


# ---- Dumps and reports ----


def test_TA_102_117_dumps_of_marked_operators(tmp_path):
    def f(x):
        y = x + 1
        with scope.data_dump():
            y = y.relu()
        return y * 2

    config = configured(dump_config__enable_dump=True, dump_config__dump_path=str(tmp_path), dump_config__dump_mode="output",
                        dump_config__dump_step="0")
    x = numbers(3, 4)
    step = compiled(f, config=config)
    for _ in range(2):
        equal(step(x), f(x))
    torch.npu.synchronize()
    files = list((tmp_path / "worldsize1_global_rank0").rglob("*.npy"))
    assert len(files) == 1 and files[0].name.startswith("Relu."), files
    listed = list((tmp_path / "ge_dump_data_json").iterdir())
    assert len(listed) == 1 and listed[0].name.startswith("dump_options_worldsize1_rank0_pid")
    content = json.loads(listed[0].read_text())["dump"]
    assert content["dump_mode"] == "output" and content["dump_step"] == "0"
    assert [entry["layer"] for entry in content["dump_list"]] == [["Relu"]]
    # Dumps are options of a graph: the next one needs none, and one behind it may have others.
    equal(compiled(lambda x: x - 1)(x), x - 1)
    config.dump_config.dump_layer = "Sub"
    equal(compiled(lambda x: x - 2, config=config)(x), x - 2)
    torch.npu.synchronize()
    entries = json.loads(listed[0].read_text())["dump"]["dump_list"]
    assert [entry["layer"] for entry in entries] == [["Relu"], ["Sub"]] and entries[0]["model_name"] != entries[1]["model_name"]


def test_TA_107_streams_are_told(capfd, monkeypatch):
    def f(x):
        with scope.npu_stream_switch("side", 3):
            y = x + 1
        return y * 2

    compiled(f)(numbers(3))
    assert "stream allocation" not in capfd.readouterr().err
    torch._dynamo.reset()
    monkeypatch.setenv("TNG_LOG_LEVEL", "1")
    compiled(f)(numbers(3))
    text = capfd.readouterr().err
    assert "[INFO] TORCHAIR(" in text and "stream allocation of graph graph_" in text and "side" in text


def test_TA_108_communication_that_may_block(tmp_path):
    from torchair._ge_concrete_graph import deadlock
    from torchair._ge_concrete_graph import ge_apis as ge
    from torchair._ge_concrete_graph.graph import GeGraph
    from torchair.ge import attr, custom_op

    x = numbers(3)
    equal(compiled(lambda x: x + 1, config=configured(debug__deadlock_check=True))(x), x + 1)
    files = list(tmp_path.glob("debug_output_*.json"))
    assert len(files) == 1 and any(event["args"].get("op name") == "Add" for event in json.loads(files[0].read_text()))
    for cores, ordered, count in ((20, False, 0), (30, False, 1), (30, True, 0)):
        with GeGraph("graph_7") as graph:
            data = graph.data("x", 0, [2], index=0)
            parts = []
            for i in range(2):
                made = custom_op("HcomAllReduce", inputs={"x": parts[0] if ordered and i else data}, outputs=["y"],
                                 attrs={"reduction": attr.Str("sum"), "group": attr.Str("g")})
                attr.Str(str(cores)).merge_to(made.node.attr["_op_vectorcore_num"])
                parts.append(made)
            ge.operator("Add")(*parts)
        timeline = [{"args": {"op name": part.node.name, "stream id": i}} for i, part in enumerate(parts)]
        found = deadlock.check(graph, json.dumps(timeline))
        assert len(found) == count and all("HcomAllReduce_1 (stream 1)" in text for text in found)


# ---- Formats and gears ----


def test_TA_032_formats_of_inputs():
    x = torch.ops.npu.npu_format_cast(numbers(16, 16), 29)
    made, result = graphs_of(lambda x: x + 1, x)
    equal(result, x + 1)
    data = made[0].graph.nodes["arg0_1"]
    assert data.output_desc[0].attr["format_for_int"].i == 29 and data.output_desc[0].attr["origin_format_for_int"].i == 2
    plain, _ = graphs_of(lambda x: x + 1, numbers(16, 16))
    assert "format_for_int" not in plain[0].graph.nodes["arg0_1"].output_desc[0].attr
    torch._dynamo.reset()
    with pytest.raises(Exception, match="input 0 of graph .* has format 27"):
        compiled(lambda x: x + 1)(torch.ops.npu.npu_format_cast(numbers(2, 2, 2, 2, 2), 27))


def test_TA_196_gears_with_assigned_and_several_outputs():
    def f(x, cache):
        cache.add_(1)
        return x * 2, x.sum(0), x.shape[0]

    cache = torch.zeros(3, device="npu")
    step = compiled(f, dynamic=True)
    for i, rows in enumerate((2, 4, 2)):
        x = numbers(rows, 4)
        set_dim_gears(x, {0: [2, 4]})
        equal(step(x, cache), (x * 2, x.sum(0), rows))
        equal(cache, torch.full((3,), i + 1.0))
    made, _ = graphs_of(lambda x: (x * 2, x + 1), _geared(numbers(2, 4)), dynamic=True)
    engine = made[0].program.engine_graph
    assert "ge.dynamicDims" in made[0].program.last_options[0]
    for rows in (4, 2):
        x, out = numbers(rows, 4), torch.empty(rows, 4, device="npu")
        results = engine.run([x], [None, out])
        assert results[1] is out or results[1].data_ptr() == out.data_ptr()
        equal(results, [x * 2, x + 1])


def _geared(x):
    set_dim_gears(x, {0: [2, 4]})
    return x


def test_TA_196_gears_on_the_host_and_in_formats():
    with pytest.raises(Exception, match="input 1 of graph .* has gears .* and is on the host"):
        compiled(lambda x, y: x.sum() + y.sum().npu(), dynamic=True)(numbers(2, 4), _geared(torch.ones(2, 4)))
    torch._dynamo.reset()
    x = torch.ops.npu.npu_format_cast(numbers(2, 16), 29)
    with pytest.raises(Exception, match="input 0 of graph .* has gears .* and format FRACTAL_NZ"):
        compiled(lambda x: x + 1, dynamic=True)(_geared(x))
