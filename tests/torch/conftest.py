# SPDX-License-Identifier: Apache-2.0
"""For all test files; functions that they call are in support.py.

A test of an item of items.csv carries its id in its name, several if it covers several: test_TN_041_… What does not
exist yet is named, and the test is skipped until it does:

    @pytest.mark.needs("NPUGraph.update", "graph_task_group_begin")  # of torch.npu
"""
import gc

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", 'needs(name, …): skipped as "not there yet" while torch.npu lacks one of them')


def pytest_runtest_setup(item):
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            owner = _module()
            for part in name.split("."):
                if not hasattr(owner, part):
                    pytest.skip(f"not there yet: torch.npu.{name}")
                owner = getattr(owner, part)


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
