# SPDX-License-Identifier: Apache-2.0
"""examples/decoder_block: compiled as a user would, small, its replays against PyTorch."""

import importlib.util
import os
import subprocess

import pytest

from aclnn import LIB_DIR, REPO

PATIENCE = 600  # seconds after which what hangs is ended


@pytest.fixture(scope="session")  # once, in whatever order tests run
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("decoder_block") / "decoder_block"
    libraries = ["-lascendcl", "-lnnopbase", "-lopapi", "-lreprise"]
    subprocess.run(["g++", "-std=c++17", REPO / "examples" / "decoder_block.cc", "-o", path, f"-I{REPO / 'include'}",
                    f"-L{LIB_DIR}", f"-Wl,-rpath,{LIB_DIR}", *libraries], check=True, timeout=PATIENCE)
    return path


@pytest.mark.parametrize("sizes", [(64, 4, 2, 96, 32, 20), (48, 3, 3, 40, 1100, 6)])
def test_decoder_block(program, tmp_path, sizes):
    """The second context is long enough for the attention to be cut into pieces: the group has two tasks."""
    env = dict(os.environ, ASCEND_PROCESS_LOG_PATH=str(tmp_path / "log"))
    done = subprocess.run([program, tmp_path, *map(str, sizes)], env=env, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal, bit for bit" in done.stdout
    spec = importlib.util.spec_from_file_location("decoder_block", REPO / "examples" / "decoder_block.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert reference.main(tmp_path) == 0
    outputs = tmp_path / "decoder_block.bin"
    changed = bytearray(outputs.read_bytes())
    changed[-1] ^= 0x40  # the exponent of the last output
    outputs.write_bytes(changed)
    assert reference.main(tmp_path) == 1, "a wrong output passes"
