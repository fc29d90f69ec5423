# SPDX-License-Identifier: Apache-2.0
"""Compiled methods in files, sizes in gears, models in files."""
import os
import pickle
import warnings

import pytest
import torch
import torchair
from support_ge import compiled, config_of, equal, graphs_of, numbers
from torch import nn
from torchair.inference import cache_compile, readable_cache, set_dim_gears


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


def test_TA_197_198_199_export(tmp_path):
    model = Model().eval().npu()
    model.forward = model.forward_step
    folder = tmp_path / "exported"
    torchair.dynamo_export(numbers(2, 4), model=model, export_path=str(folder), export_name="some/model", dynamic=True)
    text = (folder / "dynamo.pbtxt").read_text()
    assert (folder / "model.air").stat().st_size > 0
    assert text.count('type: "Const"') >= 3 and text.count('type: "RefData"') + text.count('type: "Data"') == 1


_ = graphs_of, warnings
