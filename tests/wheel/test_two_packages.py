# SPDX-License-Identifier: Apache-2.0
"""The published package's torchair as an oracle for ours: the same models with the same numbers through both, on these
libraries. Each package runs in an interpreter of its own; bench/compile does it and measures, too."""
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench" / "compile"))

import compile_bench  # noqa: E402

OURS = os.environ.get("REPRISE_PYTHON", str(ROOT / "build" / "venv" / "bin" / "python"))
# Of tests/torchair/small_models.py; the published package does not compile "decoder" in the mode max-autotune.
MODELS = ["lstm"]


@pytest.mark.skipif(
    not list((ROOT / "build" / "release" / "python" / "torch_npu").glob("_C*.so")), reason="the row torch builds our package: make test PRESETS=\"torch wheel\"")
@pytest.mark.parametrize("mode", compile_bench.MODES)
@pytest.mark.parametrize("name", MODELS)
def test_both_packages_compile_the_same(name, mode, tmp_path):
    paths = []
    for kind, python in (("ours", OURS), ("published", sys.executable)):
        paths.append(str(tmp_path / kind))
        script = ROOT / "bench" / "compile" / "compile_bench.py"
        found = compile_bench.run(python, kind == "ours", script, "--measure", name, mode, 2, paths[-1])
        assert "error" not in found, f"{kind}: {found['error']}"
    assert compile_bench.compare(paths) < 1e-4
