# SPDX-License-Identifier: Apache-2.0
"""The package loads, unmodified, and finds every name that it links."""

import ctypes
import os
import pathlib
import subprocess
import sys

import torch
import torch_npu

REPO = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(torch_npu.__file__).parent
LIBRARIES = pathlib.Path(os.environ["ASCEND_HOME_PATH"]) / "lib64"


def test_is_the_published_package():
    assert (PACKAGE / "lib" / "libtorch_npu.so").exists()
    assert not os.environ.get("LD_PRELOAD")


def test_adds():
    assert torch.npu.is_available()
    x = torch.ones(2, 3).npu()
    assert torch.equal((x + x).cpu(), torch.full((2, 3), 2.0))


def test_all_names_are_there():
    done = subprocess.run(
        [sys.executable, REPO / "scripts" / "wheel_names.py", "--fail", "--lib-dir", LIBRARIES, PACKAGE],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "linked and missing: 0" in done.stdout


def test_the_script_sees_what_is_missing(tmp_path):
    """Without one library the script names it and its functions."""
    for library in LIBRARIES.glob("lib*.so"):
        if library.name != "libgraph.so":
            (tmp_path / library.name).symlink_to(library)
    done = subprocess.run(
        [sys.executable, REPO / "scripts" / "wheel_names.py", "--fail", "--lib-dir", tmp_path, PACKAGE],
        capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "libraries that are missing: libgraph.so" in done.stdout
    assert "_ZN2ge6TensorC1Ev" in done.stdout


def test_torchair_loads(run):
    """Every library of torchair binds all of its names when it is loaded."""
    assert run("""
        import ctypes, pathlib, torch, torch_npu
        from torch_npu.dynamo import torchair
        core = pathlib.Path(torch_npu.__file__).parent / "dynamo" / "torchair" / "core"
        libraries = sorted(core.glob("*.so"))
        for library in libraries:
            ctypes.CDLL(str(library))
        print([library.name for library in libraries])
    """) == "['_abi_compat_ge_apis.so', '_npu_graph_executor.so', '_npu_utils.so', '_torchair.so']"


def test_the_operators_of_the_transformer_library_load():
    ctypes.CDLL(str(PACKAGE / "lib" / "libop_plugin_atb.so"))


def test_no_name_of_protobuf_comes_along():
    for library in ("libascend_protobuf.so", "libge_runner.so", "libgraph.so"):
        assert b"google8protobuf" not in (LIBRARIES / library).read_bytes()


def test_collectives_of_one_rank(run):
    assert run("""
        import torch, torch_npu, torch.distributed as dist
        dist.init_process_group("hccl", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        tensor = torch.ones(2).npu()
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
        print(tensor.cpu().tolist())
    """).strip().splitlines()[-1] == "[1.0, 1.0]"
