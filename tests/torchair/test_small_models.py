# SPDX-License-Identifier: Apache-2.0
"""Whole models, small ones without other packages, and PyTorch's table of operators in the full form; tests/models has
those of other people's packages."""
import copy
import os
import pathlib
import re
import subprocess
import sys

import acl_support
import pytest
import small_models
import torch
from support_ge import equal

FULL = os.environ.get("REPRISE_TEST_FORM") == "full"
HERE = pathlib.Path(__file__).resolve().parent
PARTS = 8


def _npu(tensors):
    return [each.npu() for each in tensors]


@pytest.mark.parametrize("mode", ["max-autotune", "npugraph_ex"])
@pytest.mark.parametrize("name", small_models.MODELS if FULL else ["decoder"])
def test_a_model_with_batches_that_change(name, mode):
    make, inputs = small_models.MODELS[name]
    model = make().eval().npu()
    step = acl_support.compiled(model, dynamic=None, mode=mode)
    with torch.no_grad():
        for batch in (2, 3, 2):
            given = _npu(inputs(batch))
            for each in given:
                torch._dynamo.maybe_mark_dynamic(each, 0)
            equal(step(*given), model(*given))


@pytest.mark.parametrize("mode", ["max-autotune", "npugraph_ex"])
@pytest.mark.parametrize("name", small_models.MODELS if FULL else ["mobilenet"])
def test_a_model_that_trains(name, mode):
    make, inputs = small_models.MODELS[name]
    model = make().train().npu()
    other = copy.deepcopy(model)
    given = _npu(inputs(3))
    losses = []
    for one, call in ((model, acl_support.compiled(model, mode=mode)), (other, other)):
        optimizer = torch.optim.SGD(one.parameters(), lr=1e-2)
        losses.append([])
        for _ in range(2):
            optimizer.zero_grad()
            loss = small_models.loss_of(call(*given))
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-5)


def test_most_rows_of_the_table_pass():
    """In each mode at least SHARE of what runs eagerly; what does not is listed by names of this PyTorch, with a reason."""
    import compiled_table

    expected = compiled_table.expected_failures()
    names = {compiled_table.name_of(op) for op in compiled_table.op_db}
    assert all(name in names and mode in compiled_table.MODES and reason for (name, mode, _), reason in expected.items())
    for mode in compiled_table.MODES:
        failing = sum(of == mode for _, of, _ in expected)
        assert failing <= (1 - compiled_table.SHARE) * compiled_table.ROWS, f"{mode}: {failing} rows are expected to fail"


def _table(*arguments):
    """In an interpreter of its own, since it forks, which a process that has used the device must not."""
    done = subprocess.run([sys.executable, str(HERE / "compiled_table.py"), *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(not FULL, reason="many minutes: REPRISE_TEST_FORM=full")
@pytest.mark.parametrize("part", range(PARTS))
def test_operators_of_the_table(part):
    _table("--part", f"{part}/{PARTS}")


# Operators of one converter each, of a decomposition, of none, in place, with results of several types.
SAMPLE = "add amax cumsum fft_rfft gather index_put logsumexp native_layer_norm nn_functional_conv2d sort take_along_dim var_mean"


def test_a_sample_of_the_table():
    names = "|".join(re.escape(name.replace("nn_functional_", "nn.functional.").replace("fft_", "fft.")) for name in SAMPLE.split())
    said = _table("--only", f"^({names})$", "--types", "float32", "--samples", "1")
    for mode in ("max-autotune", "npugraph_ex"):
        assert re.search(rf"{mode} +all +12 of +12 rows", said), said
