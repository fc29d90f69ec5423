# SPDX-License-Identifier: Apache-2.0
"""For all test files; functions that they call are in support.py.

A test of an item of items.csv carries its id in its name, several if it covers several: test_TN_041_… What does not
exist yet is named, and the test is skipped until it does:

    @pytest.mark.needs("NPUGraph.update", "graph_task_group_begin")  # of torch.npu

Tests run in any order, alone or beside others.
"""
import gc
import sys

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", 'needs(name, …): skipped as "not there yet" while torch.npu lacks one of them')


def pytest_collection_finish():
    # What PyTorch has made by now stays; looking through it would take most of the time of each collection.
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            owner = _module()
            for part in name.split("."):
                if not hasattr(owner, part):
                    pytest.skip(f"not there yet: torch.npu.{name}")
                owner = getattr(owner, part)


@pytest.fixture(autouse=True)
def nothing_of_other_tests():
    """What earlier tests did is not seen: their garbage does not go during this one, random numbers begin anew.

    Streams are handed out in turn, 32 of them, one of which torch.npu.graph has taken. That one comes last, or else a
    test's side stream would be the one that captures, in one order of tests out of many. An error that this test leaves
    behind, or a capture, is its own failure.
    """
    torch = sys.modules.get("torch")  # tests that only run scripts need not import it, which takes seconds
    if torch is None:
        yield
        return
    gc.collect()
    torch.manual_seed(1)
    if torch.npu.is_initialized() and torch.npu.graph.default_capture_stream is not None:
        for _ in range(32):
            if torch.npu.Stream() == torch.npu.graph.default_capture_stream:
                break
    yield
    if torch.npu.is_initialized():
        assert not torch.npu.is_current_stream_capturing(), "the test left a capture open"
        torch.npu.synchronize()


@pytest.fixture
def npu():
    """The module torch.npu; before and after the test the device is idle, its caches are empty, nothing is captured."""
    module = _module()
    _clean(module)
    stream = module.current_stream()
    yield module
    try:
        # A capture that is left open would fail the tests that follow, in words that do not name this one.
        assert not module.is_current_stream_capturing(), "the test left a capture open"
    finally:
        module.set_stream(stream)
        _clean(module)


def _module():
    # Here and not above: tests that only run scripts need not import PyTorch, which takes seconds.
    import torch
    import torch_npu  # noqa: F401  where there is no entry point

    return torch.npu


def _clean(module):
    gc.collect()
    module.synchronize()
    module.empty_cache()
    module.reset_peak_memory_stats()
