# SPDX-License-Identifier: Apache-2.0
"""Values and operators of a compiled model, in files."""
import csv
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchair
from support_ge import compiled, equal, numbers

sys.path.append(str(Path(__file__).parents[1] / "torch"))
from support import run_script  # noqa: E402


def test_TA_116_values_of_operators(tmp_path):
    config = torchair.CompilerConfig()
    config.debug.data_dump.type = "npy"
    config.debug.data_dump.path = str(tmp_path)
    step = compiled(lambda x: x.to(torch.bfloat16).relu() + 1, config=config, dynamic=True)
    for rows in (2, 3):
        x = numbers(rows, 4)
        equal(step(x), x.to(torch.bfloat16).relu() + 1)
    files = sorted(tmp_path.rglob("*.npy"))
    assert len({path.parent for path in files}) == 2
    results = [path for path in files if path.name.startswith("relu.OUTPUT")]
    assert len(results) == 2 and np.load(results[0]).dtype == np.float32


def test_TA_118_operators_of_a_model(tmp_path):
    for skips in (True, False):
        config = torchair.CompilerConfig()
        config.debug.fx_summary.type = "csv"
        config.debug.fx_summary.skip_compile = skips
        x = numbers(2, 4)
        equal(compiled(lambda x: x.relu().relu().sinc(), config=config)(x), x.relu().relu().sinc())
        torch._dynamo.reset()
    tables = list(tmp_path.glob("*.csv"))
    assert len(tables) == 2
    with tables[0].open(encoding="utf-8") as file:
        rows = {row[0]: row for row in csv.reader(file)}
    assert rows["aten.relu.default"][2:4] == ["已支持", "2"]


# ---- TORCH_COMPILE_DEBUG ----

PROGRAM = """
import torch, torch_npu, torchair

def f(x):
    x.add_(1)
    return (x.reshape(-1) * 2).relu().sum()

backend = torchair.get_npu_backend()
x = torch.randn(3, 4, device="npu")
step = torch.compile(f, backend=backend, dynamic=False)
step(x), step(x)
weight = torch.ones(4, device="npu", requires_grad=True)
torch.compile(lambda x: (x * weight).sum(), backend=backend, dynamic=False)(x).backward()
torch.compile(f, backend="npugraph_ex", dynamic=False)(x)
"""


@pytest.mark.parametrize("value", ["0", "true", None])
def test_TA_120_nothing_is_written_for_others(tmp_path, monkeypatch, value):
    monkeypatch.delenv("TORCH_COMPILE_DEBUG", raising=False)
    if value is not None:
        monkeypatch.setenv("TORCH_COMPILE_DEBUG", value)
    x = numbers(3)
    with torch._dynamo.config.patch(debug_dir_root=str(tmp_path)):
        equal(compiled(lambda x: x + 1)(x), x + 1)
        equal(torch.compile(lambda x: x * 2, backend="npugraph_ex", dynamic=False)(x), x * 2)
    assert not list(tmp_path.rglob("torchair*")) and not list(tmp_path.rglob("*aot_*"))


def test_TA_120_files_for_who_looks_for_a_fault(tmp_path):
    done = run_script(PROGRAM, TORCH_COMPILE_DEBUG="1", TORCH_COMPILE_DEBUG_DIR=tmp_path)
    assert done.returncode == 0, done.stderr
    roots = list(tmp_path.rglob("torchair"))
    assert len(roots) == 1 and roots[0].parent.name.startswith("run_")
    root = roots[0]
    assert "After fx graph pass(view_to_reshape)" in (root / "debug.log").read_text()
    assert sorted(path.name for path in root.iterdir()) == ["debug.log", "model__0", "model__1", "model__2"]
    assert "relu" in (root / "model__0" / "dynamo_out_graph.txt").read_text()
    passes = ["optimize_noop_ops", "recover_view_inplace_pattern", "optimize_sym_input", "apply_pattern_passes", "view_to_reshape"]
    engine = ["optimize_sym_pack", "record_groups", "drop_unused_data", "elide_copies_of_refs", "map_assigns", "order_effects", "order_in_chain",
              "transposes_into_attributes", "bitcasts_before_transposes", "drop_unused_data", "normalize"]
    names = ["graph.txt", *(f"graph_after_{name}.txt" for name in passes), "original_ge_graph.pbtxt",
             *(f"graph_after_{name}.pbtxt" for name in engine), "optimized_ge_graph.pbtxt"]
    for model, phase in ((0, "forward"), (1, "forward"), (1, "backward")):
        files = sorted(path.name for path in (root / f"model__{model}" / phase).iterdir())
        assert files == [f"{i:03}_aot_{phase}_{name}" for i, name in enumerate(names)]
    folder = root / "model__0" / "forward"
    assert "aten.view" in (folder / "004_aot_forward_graph_after_apply_pattern_passes.txt").read_text()
    assert 'type: "Assign"' in (folder / "006_aot_forward_original_ge_graph.pbtxt").read_text()
    assert 'type: "Assign"' not in (folder / "018_aot_forward_optimized_ge_graph.pbtxt").read_text()
    captured = {path.name for path in (root / "model__2" / "forward").iterdir()}
    code = root / "model__2" / "forward" / "output_code.py"
    assert code.name in captured and code.stat().st_mode & 0o777 == 0o600
    assert len([name for name in captured if name.endswith(".json")]) == 1
    tasks = next(Path(root).rglob("graph_*_id_*_rank_*_pid_*_ts_*.json"))
    assert tasks.read_text()
