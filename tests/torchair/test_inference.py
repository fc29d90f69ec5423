# SPDX-License-Identifier: Apache-2.0
"""Compiled methods in files, sizes in gears, models in files."""
import json
import math
import os
import pathlib
import pickle
import warnings

import pytest
import torch
import torchair
from acl_support import log
from support_ge import compiled, config_of, equal, graphs_of, numbers
from torch import nn
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph import registry
from torchair.inference import cache_compile, readable_cache, set_dim_gears


class Totals(nn.Module):
    """Writes its arguments."""

    def add(self, x, total, other=None):
        total.add_(x)
        if other is not None:
            other.mul_(3)
        return total * 2


class Model(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("shift", torch.full((3,), scale))
        self.step = self.forward_step

    def forward_step(self, x, y=None, *, flag=True):
        result = self.linear(x) + self.shift
        return {"sum": result + (0 if y is None else y), "view": x.view(-1), "rows": x.shape[0]}


def models():
    first = Model().eval().npu()
    second = Model().eval().npu()
    second.load_state_dict(first.state_dict())
    return first, second


def test_TA_179_187_targets(tmp_path):
    with pytest.raises(ValueError):
        cache_compile(lambda x: x)
    model = Model()
    backend = torchair.get_npu_backend(compiler_config=config_of(frozen_parameter=True))
    with pytest.raises(ValueError, match="differ"):
        cache_compile(model.forward_step, config=torchair.CompilerConfig(), backend=backend)
    made = cache_compile(model.forward_step, backend=backend, cache_dir=str(tmp_path))
    assert made.config is backend.config


def test_TA_180_181_182_183_184_185_files(tmp_path, monkeypatch):
    first, second = models()
    step = cache_compile(first.forward_step, cache_dir=str(tmp_path))
    with torch.no_grad():
        for rows in (2, 5):
            x = numbers(rows, 4)
            equal(step(x), first.forward_step(x))
    assert os.stat(step.path).st_mode & 0o777 == 0o600
    assert "def kernel" in readable_cache(step.path, print_output=False)
    link = tmp_path / "link"
    link.symlink_to(step.path)
    for path in (link, tmp_path / "absent"):
        with pytest.raises(ValueError):
            readable_cache(str(path))
    # Another object finds it, and compiles nothing.
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", None)
    again = cache_compile(second.forward_step, cache_dir=str(tmp_path))
    assert again.run is not None
    with torch.no_grad():
        for rows in (3, 4):
            x = numbers(rows, 4)
            result = again(x)
            equal(result, second.forward_step(x))
            assert result["view"].data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="Backward cache compilation is not supported yet"):
        again(numbers(3, 4).requires_grad_())
    fresh = cache_compile(second.forward_step, cache_dir=str(tmp_path))
    with torch.no_grad(), pytest.raises(AssertionError, match=r"expected size|wrong number of dimensions"):
        fresh(numbers(3, 5))
    monkeypatch.undo()
    # What cannot be trusted goes.
    os.chmod(step.path, 0o644)
    with pytest.warns(UserWarning, match="Clear broken cache"):
        cache_compile(second.forward_step, cache_dir=str(tmp_path))
    assert not os.path.exists(step.path)
    os.makedirs(step.folder, exist_ok=True)
    with open(os.open(step.path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        pickle.dump(os.system, file)
    with pytest.warns(UserWarning, match="Clear broken cache"):
        cache_compile(second.forward_step, cache_dir=str(tmp_path))


@pytest.mark.parametrize("devices", ["npu npu", "cpu cpu", "npu npu cpu"])
def test_TA_058_cached_code_writes_its_inputs(tmp_path, devices):
    model, places = Totals(), devices.split()

    def checked(step, rows):
        x, total, *rest = [torch.randn(rows, 3).to(place) for place in places]
        expected = [total + x, *(each * 3 for each in rest)]
        equal(step(x, total, *rest), expected[0] * 2)
        equal([total, *rest], expected)

    step = cache_compile(model.add, cache_dir=str(tmp_path))
    with torch.no_grad():
        for rows in (2, 5):
            checked(step, rows)
        assert ("ge.exec.outputReuseInputMemIndexes" in readable_cache(step.path, print_output=False)) is ("cpu" not in places)
        torch._dynamo.reset()
        again = cache_compile(model.add, cache_dir=str(tmp_path))
        assert again.run is not None
        for rows in (4, 3):
            checked(again, rows)


def test_TA_183_compiled_twice(tmp_path):
    model = Model().eval().npu()
    step = cache_compile(model.forward_step, cache_dir=str(tmp_path), dynamic=False)
    with torch.no_grad():
        step(numbers(2, 4))
        assert os.path.exists(step.path)
        with pytest.warns(UserWarning, match="compiled once more"):
            step(numbers(3, 4), numbers(3, 3))
    assert not os.path.exists(step.folder)


def test_TA_186_folders(tmp_path):
    model = Model()

    def folder(model=model, config=None, **kwargs):
        return cache_compile(model.forward_step, config=config, cache_dir=str(tmp_path), **kwargs).folder

    config = torchair.CompilerConfig()
    config.post_grad_custom_pre_pass = lambda gm, inputs, config: None
    other = torchair.CompilerConfig()
    other.post_grad_custom_pre_pass = lambda gm, inputs, config: print(gm)
    capture = torchair.CompilerConfig()
    capture.mode = "npugraph_ex"
    folders = [folder(), folder(config=config), folder(config=other), folder(config=config_of(frozen_parameter=True)), folder(dynamic=False),
               folder(config=capture), folder(ge_cache=True), folder(global_rank=1), folder(global_rank=1, tp_rank=2),
               folder(model=nn.Sequential(nn.Linear(1, 1))) if hasattr(nn.Sequential, "forward_step") else "none"]
    assert len(set(folders)) == len(folders)
    assert "_aclgraphcache_" in folders[5] and "_gecache_" in folders[6] and "global_rank1_tp_rank2" in folders[8]


def test_TA_193_gears_are_checked():
    x = torch.ones(4, 2)
    set_dim_gears(x, {0: [2, 4]})
    set_dim_gears(x, {0: [2, 4]})
    for gears in ({0: [2, 8]}, {"0": [1, 2]}, {2: [1, 2]}, {-1: [1, 2]}, {0: 3}, {0: ["a", "b"]}, {0: [0, 1]}, {0: [1]}, {0: list(range(1, 102))}):
        with pytest.raises(AssertionError, match="set_dim_gears"):
            set_dim_gears(x if gears == {0: [2, 8]} else torch.ones(4, 2), gears)


def test_TA_194_gears_of_several_dims():
    from torchair._ge_concrete_graph.gears import merged

    assert merged([[1, 2], [3, 4]], "zip") == [(1, 3), (2, 4)]
    assert merged([[1, 2], [3, 4]], "product") == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert merged([[1, 1], [3, 3]], "product") == [(1, 3)]
    with pytest.raises(AssertionError, match="zip"):
        merged([[1, 2], [3]], "zip")
    with pytest.raises(AssertionError, match="more than 100"):
        merged([list(range(1, 12)), list(range(1, 12))], "product")


def test_TA_195_gears_run():
    model = Model().eval().npu()
    step, count = compiled(lambda x: model.linear(x).relu(), dynamic=True), None
    with torch.no_grad():
        for rows in (2, 4, 2):
            x = numbers(rows, 4)
            set_dim_gears(x, {0: [2, 4]})
            equal(step(x), model.linear(x).relu())
            count = count or step.backend.count
    assert step.backend.count == count


def test_TA_182_gradients_are_refused(tmp_path):
    model = Model().eval().npu()
    step = cache_compile(model.forward_step, cache_dir=str(tmp_path))
    x = numbers(2, 4)
    for _ in range(2):  # compiled, and from then on
        with pytest.raises(RuntimeError, match="Backward cache compilation is not supported yet"):
            step(x.clone().requires_grad_())
        result = step(x)["sum"]
        equal(result, model.forward_step(x)["sum"])
        assert not result.requires_grad
    again = cache_compile(model.forward_step, cache_dir=str(tmp_path))
    assert again.run is not None
    with pytest.raises(RuntimeError, match="Backward cache compilation is not supported yet"):
        again(x.clone().requires_grad_())


def test_TA_188_random_numbers_are_not_kept(tmp_path):
    class Noisy(nn.Module):
        def step(self, x):
            return x + torch.rand_like(x)

    step = cache_compile(Noisy().step, cache_dir=str(tmp_path))
    with torch.no_grad(), pytest.raises(AssertionError, match="cannot be cached: its input 1 holds offsets"):
        step(numbers(3))
    assert not os.path.exists(step.path)


def test_TA_189_programs_of_graphs():
    made, _ = graphs_of(lambda x, y: (x.view(-1), (x @ y).relu(), x.shape[0] * 2), numbers(3, 4), numbers(4, 2), dynamic=True)
    text = made[0].codegen()
    for part in ("serialized_graph = b", "global_compile_options = {", "local_compile_options = {", "npu_graph.load(",
                 "npu_graph.compile()", ".as_strided((", "'ge.exec.allTensorNotEmpty': '1'"):
        assert part in text, part
    names = {}
    exec(compile(text, "program", "exec"), names)  # noqa: S102
    for rows in (3, 5):
        x, y = numbers(rows, 4), numbers(4, 2)
        view, product, size = names["kernel"](*_arguments(made[0], x, y))
        equal((view, product, size), (x.view(-1), (x @ y).relu(), rows * 2))
        assert view.data_ptr() == x.data_ptr()
    with pytest.raises(AssertionError, match="expected size|wrong number of dimensions|stride"):
        fresh = {}
        exec(compile(text, "program", "exec"), fresh)  # noqa: S102
        fresh["kernel"](*_arguments(made[0], numbers(4, 3).t(), numbers(4, 2)))
    made, result = graphs_of(lambda x: (x[:0] + 1, x * 2), numbers(3))
    assert "'ge.exec.allTensorNotEmpty': '0'" in made[0].codegen() and result[0].shape == (0,)


def _arguments(graph, *tensors):
    """Of the FX graph: sizes before the tensors that have them."""
    known = {}
    rest = iter(tensors)
    values = [next(rest) if isinstance(arg, torch.Tensor) else None for arg in graph.args]
    for arg, value in zip(graph.args, values):
        if value is not None:
            known.update({str(size): own for size, own in zip(arg.shape, value.shape)})
    return [known[str(arg)] if value is None else value for arg, value in zip(graph.args, values)]


def test_TA_190_compiled_graphs_are_kept_by_the_engine(tmp_path):
    first, second = models()
    step = cache_compile(first.forward_step, cache_dir=str(tmp_path), ge_cache=True)
    x = numbers(2, 4)
    with torch.no_grad():
        equal(step(x), first.forward_step(x))
    kept = sorted(path.name for path in pathlib.Path(step.folder).iterdir() if path.suffix in (".om", ".idx"))
    assert len(kept) == 2, kept
    torch._dynamo.reset()
    again = cache_compile(second.forward_step, cache_dir=str(tmp_path), ge_cache=True)
    assert again.run is not None
    with torch.no_grad():
        equal(again(x), second.forward_step(x))
    assert sorted(path.name for path in pathlib.Path(step.folder).iterdir() if path.suffix in (".om", ".idx")) == kept
    capture = torchair.CompilerConfig()
    capture.mode = "npugraph_ex"
    with log() as lines:
        made = cache_compile(second.forward_step, cache_dir=str(tmp_path), config=capture, ge_cache=True)
    assert lines.count("ge_cache has no effect") == 1 and "_gecache" not in made.folder


def exported(folder, function, *args, **kwargs):
    """The graph in the file."""
    torchair.dynamo_export(*args, model=function, export_path=str(folder), export_name="model", **kwargs)
    from torchair._ge_concrete_graph.graph import GeGraph

    return GeGraph(serialized_model_def=(folder / "model.air").read_bytes())


def test_TA_198_types_and_sizes_of_exports(tmp_path):
    graph = exported(tmp_path / "a", lambda x, y: (x.view(x.shape[1], x.shape[0]) + 1, y.view(y.shape[0], -1, 2) * 2),
                     numbers(2, 3), numbers(4, 6), dynamic=True)
    data = [op for op in graph.op if op.type == "Data"]
    assert [op.attr["index"].i for op in data] == list(range(len(data))) and [-1, -1] in [list(op.output_desc[0].shape.dim) for op in data]
    assert "Pack" not in [op.type for op in graph.op]
    for dtype, number in ((torch.bfloat16, 27), (torch.float8_e5m2, 35), (torch.uint16, 7), (torch.uint32, 8), (torch.uint64, 10)):
        from torchair._ge_concrete_graph.dtypes import from_proto

        x = torch.arange(4).npu().to(dtype)
        graph = exported(tmp_path / str(number), lambda x: (x.to(torch.float32) + 1).to(x.dtype), x)
        assert from_proto(graph.nodes["arg0_1"].output_desc[0].dtype) == number
        assert from_proto(graph.nodes["NetOutput"].input_desc[0].dtype) == number


def test_TA_198_written_inputs_have_one_name_in_all_graphs(tmp_path):
    cache, x = torch.zeros(4, 2, device="npu"), numbers(4, 2)
    names = []
    for i, function in enumerate((lambda cache, x: cache.add_(x), lambda cache, x: cache.mul_(x) + 1)):
        graph = exported(tmp_path / str(i), function, cache, x)
        names.append([op.name for op in graph.op if op.type == "RefData"])
    assert names[0] == names[1] == [f"RefData_4_2_2_1_0_{id(cache)}"]


def test_TA_199_weights_in_files(tmp_path, monkeypatch):
    from torchair import npu_export

    model = Model().eval().npu()
    model.forward = model.forward_step
    x = numbers(2, 4)
    small = exported(tmp_path / "small", model, x)
    kinds = [op.type for op in small.op]
    assert "FileConstant" not in kinds and kinds.count("Const") >= 3
    monkeypatch.setattr(npu_export, "_LARGEST", 100)
    large = exported(tmp_path / "large", model, x)
    files = {op.attr["file_path"].s.decode(): op for op in large.op if op.type == "FileConstant"}
    assert sorted(pathlib.Path(path).name for path in files) == ["linear_bias", "linear_weight", "shift"]
    for path, op in files.items():
        assert pathlib.Path(path).stat().st_size == 4 * math.prod(op.attr["shape"].list.i)
    weight = (tmp_path / "large" / "linear_weight").read_bytes()
    assert weight == model.linear.weight.detach().cpu().numpy().tobytes()


def test_TA_200_options_of_exports(tmp_path):
    config = torchair.CompilerConfig()
    config.export.experimental.enable_record_nn_module_stack = True
    config.export.experimental.enable_lite_export = True
    registry.register(torch.ops.aten.relu.default, lite=True)(lambda x, *, meta_outputs: ge.LeakyRelu(x, negative_slope=0.0))
    try:
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval().npu()
        graph = exported(tmp_path / "lite", model, numbers(2, 4), config=config)
        kinds = {op.type: op for op in graph.op}
        assert "LeakyRelu" in kinds and "Relu" not in kinds
        stack = kinds["LeakyRelu"].attr["nn_module_stack"].s.decode()
        assert "ReLU" in stack and "Sequential" in stack
        plain = {op.type: op for op in exported(tmp_path / "plain", model, numbers(2, 4)).op}
        assert "Relu" in plain and "nn_module_stack" not in plain["Relu"].attr
    finally:
        registry._lite.clear()


def test_TA_197_198_199_export(tmp_path):
    model = Model().eval().npu()
    model.forward = model.forward_step
    folder = tmp_path / "exported"
    torchair.dynamo_export(numbers(2, 4), model=model, export_path=str(folder), export_name="some/model", dynamic=True)
    text = (folder / "dynamo.pbtxt").read_text()
    assert (folder / "model.air").stat().st_size > 0
    assert text.count('type: "Const"') >= 3 and text.count('type: "RefData"') + text.count('type: "Data"') == 1


# ---- Exported programs ----


def test_TA_201_exported_programs():
    from torchair.ge.ge_graph_ascend import _optimize_and_convert

    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2)).eval()
    found = _optimize_and_convert(torch.export.export(model, (torch.randn(1, 3, 3, 3),)))
    kinds = [op.type for op in found.proto.op]
    assert {"Conv2D", "Relu", "NetOutput"} <= set(kinds) and kinds.count("Data") >= 7
    relu = found.ascend_ir_map["relu"]
    assert relu.source == "converter" and [op["type"] for op in relu.ops] == ["Relu"] and relu.mapping == {"outputs": ["Relu:0"]}
    assert found.original is not found.optimized and all(each.source == "converter" for each in found.ascend_ir_map.values())

    class Unknown(nn.Module):
        def forward(self, x):
            values, vectors = torch.linalg.eigh(x @ x.t())
            return values.relu(), vectors * 2

    found = _optimize_and_convert(torch.export.export(Unknown(), (torch.randn(3, 3),)))
    mock = next(each for each in found.ascend_ir_map.values() if each.source == "")
    assert mock.ops[0]["type"] == "aten._linalg_eigh.default" and mock.mapping["outputs"][1].endswith(":1")
    text = json.dumps(found.to_json_dict())
    constants = [op for op in found.proto.op if op.type == "Const"]
    assert all(op.attr["value"].t.data.hex() in text for op in constants) and '"ascend_ir_map"' in text
    own = {torch.ops.aten.relu.default: lambda x: x.clamp_min(0)}
    found = _optimize_and_convert(torch.export.export(nn.ReLU(), (torch.randn(3),)), custom_decompositions=own)
    assert "Relu" not in [op.type for op in found.proto.op]


def test_joint_graphs_are_refused():
    with pytest.raises(NotImplementedError, match="aot_config_enable_joint_graph.*leave it False"):
        torchair.get_npu_backend(compiler_config=config_of(aot_config_enable_joint_graph=True))


_ = graphs_of, warnings
