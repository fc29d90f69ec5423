# SPDX-License-Identifier: Apache-2.0
"""What several test files need."""
import os
import subprocess
import sys
import textwrap

import torch


def run_script(code, timeout=60, **environment):
    """Runs Python code in a fresh interpreter and returns the completed process.

    ``environment``: variables to set; None removes one.
    """
    variables = dict(os.environ)
    for name, value in environment.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = str(value)
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def output_of(code, timeout=60, **environment):
    """The last line that the code prints; fails when it does not end well."""
    done = run_script(code, timeout, **environment)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else ""


def capture(graph, work, **options):
    """Captures ``work()`` into ``graph`` on a side stream and returns what it returned."""
    with torch.npu.graph(graph, **options):
        result = work()
    return result
