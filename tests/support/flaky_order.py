# SPDX-License-Identifier: Apache-2.0
"""pytest plugin of scripts/flaky.py: tests in the order of a seed, at most so many of them, and a journal.

The journal has a line when a test begins and one for each of its outcomes, written at once: it is all that is left of a
process that dies.
"""
import random

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("flaky")
    group.addoption("--flaky-seed", type=int, default=0)
    group.addoption("--flaky-most", type=int, default=0, help="run so many tests, chosen by the seed; 0: all")
    group.addoption("--flaky-journal", metavar="FILE", default="/dev/null")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: item.nodeid)
    random.Random(config.option.flaky_seed).shuffle(items)
    left_out = items[config.option.flaky_most :] if config.option.flaky_most else []
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        del items[config.option.flaky_most :]


def pytest_configure(config):
    config.pluginmanager.register(_Journal(config.option.flaky_journal))


class _Journal:
    def __init__(self, path):
        self._file = open(path, "a", buffering=1)

    def pytest_runtest_logstart(self, nodeid):
        self._write("begin", nodeid)

    def pytest_runtest_logreport(self, report):
        # A call that passes, and any part that does not.
        if report.when == "call" or report.outcome != "passed":
            self._write(report.outcome, report.nodeid)

    def pytest_collectreport(self, report):
        if report.outcome != "passed":
            self._write(report.outcome, report.nodeid)

    def _write(self, what, nodeid):
        print(what, nodeid, file=self._file)
