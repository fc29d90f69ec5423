# SPDX-License-Identifier: Apache-2.0
"""What all test files use.

`run_script` runs code in an interpreter of its own: for imports, environment variables, crashes, exits, and everything
that can be done once in a process; with env={"REPRISE_DEVICES": "2"} it has two devices. `npu` gives a device that nothing
of another test is left on. `capture` captures a function. A test of an item of items.csv carries its id in its name:
test_TN_041_…; several, if it covers several. What does not exist yet is named, and the test is skipped until it does:

    @pytest.mark.needs("NPUGraph.update", "graph_task_group_begin")   # of torch.npu
"""
import gc
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest

# Hangs must end, also those of a child: below the limit of a whole test (pyproject.toml), above what a slow machine takes.
CHILD_SECONDS = 60


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(name, …): skipped as \"not there yet\" while torch.npu lacks one of them")


def pytest_runtest_setup(item):
    for marker in item.iter_markers("needs"):
        for name in marker.args:
            owner = _module()
            for part in name.split("."):
                if not hasattr(owner, part):
                    pytest.skip(f"not there yet: torch.npu.{name}")
                owner = getattr(owner, part)


@dataclass(frozen=True)
class Finished:
    """A child process that ended. `status` is the exit status, or minus the number of the signal that killed it."""

    status: int
    out: str
    err: str

    def __str__(self):
        ended = f"exit status {self.status}" if self.status >= 0 else f"killed by {signal.Signals(-self.status).name}"
        return f"{ended}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def _run_script(code, *, env=None, unset=(), status=0, timeout=CHILD_SECONDS):
    """Runs `code` in a fresh interpreter that sees torch_npu; `env` adds to the environment, `unset` removes from it.

    Fails unless the child ends with `status` (None: any) in time. Assertions in `code` fail the test with their text.
    """
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= env or {}
    environment["PYTHONFAULTHANDLER"] = "1"
    # A group of its own: what the child starts ends with it.
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        # The stacks of all threads, before the end.
        child.send_signal(signal.SIGABRT)
        try:
            out, err = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate(timeout=5)
        pytest.fail(f"the script did not end within {timeout} s\n--- stdout\n{out}\n--- stderr\n{err}", pytrace=False)
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nobody is left
    finished = Finished(child.returncode, out, err)
    if status is not None and finished.status != status:
        pytest.fail(f"the script should have ended with status {status}: {finished}", pytrace=False)
    return finished


@pytest.fixture(scope="session")
def run_script():
    return _run_script


@pytest.fixture
def npu():
    """The module torch.npu, before and after which the device is idle, its caches empty, and nothing is captured."""
    module = _module()
    _clean(module)
    stream = module.current_stream()
    yield module
    try:
        # A capture that a failing test left open would fail all that follow.
        assert not module.is_current_stream_capturing(), "the test left a capture open"
    finally:
        module.set_stream(stream)
        _clean(module)


def _module():
    # Here and not above: tests that only run scripts need not import PyTorch, which takes seconds.
    import torch
    import torch_npu  # noqa: F401  for runs without the entry point

    return torch.npu


def _clean(module):
    gc.collect()
    module.synchronize()
    module.empty_cache()
    module.reset_peak_memory_stats()


@pytest.fixture
def capture(npu):
    """capture(body, *, pool=None, stream=None, warmup=0, graph=None, **options) -> (graph, what body returned).

    Runs `body` `warmup` times on a side stream, then captures it with torch.npu.graph, which gets the options. Not
    replayed: outputs hold nothing yet. The graphs are reset after the test, before the device is looked at.
    """
    graphs = []

    def run(body, *, pool=None, stream=None, warmup=0, graph=None, **options):
        graph = npu.NPUGraph() if graph is None else graph
        graphs.append(graph)
        if warmup > 0:
            side = npu.Stream()
            side.wait_stream(npu.current_stream())
            with npu.stream(side):
                for _ in range(warmup):
                    body()
            npu.current_stream().wait_stream(side)
        with npu.graph(graph, pool=pool, stream=stream, **options):
            result = body()
        return graph, result

    yield run
    npu.synchronize()
    while graphs:
        graphs.pop().reset()
