# SPDX-License-Identifier: Apache-2.0
"""The package as it was built: what it exports, loads and drags in; and the tools that the other tests stand on."""
import importlib.metadata
import importlib.util
import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from support import PATIENCE, output_of, run_script

PACKAGE = Path(importlib.util.find_spec("torch_npu").origin).parent
EXTENSION = next(PACKAGE.glob("_C*.so"))


def test_torch_finds_the_backend_by_its_metadata():
    points = [point for point in importlib.metadata.entry_points(group="torch.backends") if point.name == "torch_npu"]
    assert [point.value for point in points] == ["torch_npu:_autoload"]


@pytest.mark.parametrize("first", ["import torch", "import torch_npu", "import torch, torch_npu", "import torch_npu, torch"])
def test_package_can_be_imported(first):
    assert output_of(f"""
        {first}
        import sys
        print("torch_npu._C" in sys.modules)
        """, fresh=True) == "True"


def test_extension_exports_its_init_function_and_nothing_else():
    symbols = subprocess.run(["nm", "-D", "--defined-only", EXTENSION], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[-1]: line.split()[-2] for line in symbols.splitlines()}
    # Weak and unique ones (V, W, u) are those of templates of PyTorch and the standard library, meant to be shared. The
    # linker adds its own marks.
    ours = {name for name, kind in exported.items() if kind not in "uVW"} - {"__bss_start", "_edata", "_end"}
    assert ours == {"PyInit__C"}


def test_extension_looks_for_libraries_in_its_own_package_only():
    dynamic = subprocess.run(["readelf", "-d", EXTENSION], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"(?:RPATH|RUNPATH).*\[(.*)\]", dynamic) == ["$ORIGIN/lib"]
    needed = re.findall(r"NEEDED.*\[(.*)\]", dynamic)
    assert not [name for name in needed if re.match(r"lib(g|i)omp|libpython|libfmt", name)], needed


def test_process_has_one_openmp_and_our_libraries_from_the_package():
    maps = run_script("""
        import torch, torch_npu
        torch.ones(1 << 16).exp().sum()  # starts OpenMP
        print(open("/proc/self/maps").read())
        """, fresh=True).stdout
    loaded = sorted({line.split()[-1] for line in maps.splitlines() if ".so" in line})
    assert len([path for path in loaded if re.search(r"lib(g|i)omp", path)]) <= 1, loaded
    ours = [Path(path).resolve() for path in loaded if re.search(r"/lib(reprise|ascendcl)\.so", path)]
    assert ours and {path.parent for path in ours} == {(PACKAGE / "lib").resolve()}, ours


def test_example_runs_and_writes_the_graph(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "torch_capture.py"
    done = run_script(f"""
        import runpy, sys
        sys.argv = [{str(example)!r}, {str(tmp_path)!r}]
        runpy.run_path(sys.argv[0], run_name="__main__")
        """)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "replay and eager give the same bits" in done.stdout
    assert json.loads((tmp_path / "torch_capture.json").read_text())
    assert "<svg" in (tmp_path / "torch_capture.svg").read_text()


ways_to_start = pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "forked"])


@ways_to_start
def test_script_that_fails_fails_who_reads_its_output(fresh):
    with pytest.raises(AssertionError, match="exit 1(.|\n)*AssertionError: seven"):
        output_of("assert 2 + 2 == 5, 'seven'", fresh=fresh)
    assert run_script("raise SystemExit(3)", fresh=fresh).returncode == 3


@ways_to_start
def test_script_that_crashes_tells_the_signal_and_the_line(fresh):
    done = run_script("import ctypes; ctypes.string_at(0)", fresh=fresh)
    assert done.returncode == -signal.SIGSEGV
    assert "string_at" in done.stderr


@ways_to_start
def test_script_that_hangs_is_ended_and_shows_where(fresh):
    for timeout in (1, 10, 100, PATIENCE):  # the machine may be too busy for the script to get there
        with pytest.raises(AssertionError, match=f"did not end within {timeout} s") as failed:
            run_script("""
                import threading
                def stuck():
                    threading.Event().wait()
                stuck()
                """, timeout, fresh)
        if "in stuck" in str(failed.value):
            return
    pytest.fail(str(failed.value))


@ways_to_start
def test_script_gets_its_environment(fresh):
    code = "import os; print(os.environ.get('REPRISE_DEVICES'))"
    assert output_of(code, fresh=fresh, REPRISE_DEVICES=2) == "2"
    assert output_of(code, fresh=fresh, REPRISE_DEVICES=None) == "None"


@ways_to_start
def test_libraries_read_the_environment_of_the_script(fresh):
    """Nothing has read it before: neither the extension nor the libraries below it."""
    code = """
        import torch
        npu = torch.npu
        print(npu.device_count(), len({npu.Stream() for _ in range(33)}), npu.mem_get_info()[1] >> 20)
        """
    variables = {"REPRISE_DEVICES": 3, "REPRISE_TORCH_STREAMS": 8, "REPRISE_MEMORY": "768M"}
    assert output_of(code, fresh=fresh, **variables) == "3 8 768"
