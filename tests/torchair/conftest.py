# SPDX-License-Identifier: Apache-2.0
"""For tests of torchair. A test of an item of the checklist carries its id in its name: test_TA_041_…

The graph engine keeps the global options of the first graph of a process, so that tests that compile leave them alone."""
import gc

import pytest


def pytest_collection_finish():
    # What PyTorch has made by now stays; looking through it would take most of the time of each collection.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_compiled_before(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # compilations leave fusion_result.json in the working folder
    import torch
    import torch_npu  # noqa: F401

    torch._dynamo.reset()
    torch.manual_seed(3)
    yield
    torch._dynamo.reset()
    gc.collect()
    gc.freeze()  # what is left, modules that this test has imported mostly, stays as well
    if torch.npu.is_initialized():
        torch.npu.synchronize()


@pytest.fixture
def split(monkeypatch):
    """The graphs that are taken apart: a list of what PyTorch runs in each."""
    from torchair._ge_concrete_graph.split import SplitGraph

    made, build = [], SplitGraph.build

    def note(self, *args):
        build(self, *args)
        made.append(self)

    monkeypatch.setattr(SplitGraph, "build", note)
    return made
