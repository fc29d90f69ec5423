# SPDX-License-Identifier: Apache-2.0
"""The package as it was built: what it exports, loads and drags in; and the tools that the other tests stand on."""
import importlib.metadata
import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

PACKAGE = Path(importlib.util.find_spec("torch_npu").origin).parent
EXTENSION = next(PACKAGE.glob("_C*.so"))


def test_torch_finds_the_backend_by_its_metadata():
    points = [point for point in importlib.metadata.entry_points(group="torch.backends") if point.name == "torch_npu"]
    assert [point.value for point in points] == ["torch_npu:_autoload"]


@pytest.mark.parametrize("first", ["import torch", "import torch_npu", "import torch, torch_npu", "import torch_npu, torch"])
def test_package_can_be_imported(run_script, first):
    run_script(f"""
        {first}
        import sys
        assert "torch_npu._C" in sys.modules, "the extension was not loaded"
        """)


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


def test_process_has_one_openmp_and_our_libraries_from_the_package(run_script):
    finished = run_script("""
        import torch, torch_npu
        torch.ones(1 << 16).exp().sum()  # starts OpenMP
        print(open("/proc/self/maps").read())
        """)
    loaded = sorted({line.split()[-1] for line in finished.out.splitlines() if ".so" in line})
    assert len([path for path in loaded if re.search(r"lib(g|i)omp", path)]) <= 1, loaded
    ours = [Path(path) for path in loaded if re.search(r"/lib(reprise|ascendcl)\.so", path)]
    folder = (PACKAGE / "lib").resolve()
    assert all(path.resolve().parent == folder for path in ours), ours


def test_script_that_fails_fails_the_test(run_script):
    with pytest.raises(pytest.fail.Exception, match="exit status 1(.|\n)*AssertionError: seven"):
        run_script("assert 2 + 2 == 5, 'seven'")
    assert run_script("raise SystemExit(3)", status=3).status == 3


def test_script_that_crashes_tells_the_signal(run_script):
    with pytest.raises(pytest.fail.Exception, match="killed by SIGSEGV"):
        run_script("import ctypes; ctypes.string_at(0)")


def test_script_that_hangs_is_ended_and_shows_where(run_script):
    with pytest.raises(pytest.fail.Exception, match="did not end within 3 s(.|\n)*in stuck"):
        run_script("""
            import threading
            def stuck():
                threading.Event().wait()
            stuck()
            """, timeout=3)


def test_script_gets_its_environment(run_script):
    code = "import os; print(os.environ.get('REPRISE_DEVICES'))"
    assert run_script(code, env={"REPRISE_DEVICES": "2"}).out == "2\n"
    assert run_script(code, env={"REPRISE_DEVICES": "2"}, unset=["REPRISE_DEVICES"]).out == "2\n"
    assert run_script(code, unset=["REPRISE_DEVICES"]).out == "None\n"
