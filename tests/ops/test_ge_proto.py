# SPDX-License-Identifier: Apache-2.0
"""Models are read and written in a process that holds PyTorch, whose library exports names of another protobuf."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BUILD = Path(__file__).resolve().parents[2] / "build" / "release"
TORCH = Path(torch.__file__).parent / "lib"

pytestmark = pytest.mark.skipif(not (BUILD / "bin" / "unit_compiler_graph").exists(), reason="the row release is not built")


def test_models_beside_libtorch():
    """The library of PyTorch comes first in the order in which names are looked up."""
    program = BUILD / "bin" / "unit_compiler_graph"
    result = subprocess.run(
        [program, "--gtest_filter=ProtoPlugin.*:Wire.*"], capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "LD_PRELOAD": str(TORCH / "libtorch_cpu.so"), "LD_LIBRARY_PATH": str(TORCH)},
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert "[  PASSED  ]" in result.stdout


def test_the_plugin_opens_beside_torch():
    script = f"""
import ctypes
ctypes.CDLL({str(TORCH / "libtorch_cpu.so")!r}, mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL({str(BUILD / "lib64" / "libreprise_compiler.so")!r})
plugin = ctypes.CDLL({str(BUILD / "lib64" / "libreprise_ge_proto.so")!r}, mode={os.RTLD_NOW | os.RTLD_DEEPBIND})
plugin.reprise_ge_proto_functions.restype = ctypes.c_void_p
assert plugin.reprise_ge_proto_functions()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
