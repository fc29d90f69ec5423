# SPDX-License-Identifier: Apache-2.0
"""What several test files need."""
import contextlib
import os
import signal
import subprocess
import sys
import textwrap


def run_script(code, timeout=100, **environment):
    """Runs Python code in a fresh interpreter and returns the completed process.

    ``environment``: variables to set; None removes one. A script that does not end in time fails the test with the
    stacks of its threads, and whatever it started ends with it.
    """
    here = os.path.dirname(os.path.abspath(__file__))  # scripts may import the test files
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), here)))
    variables = dict(os.environ, PYTHONFAULTHANDLER="1", PYTHONPATH=path)
    for name, value in environment.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = str(value)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    child = subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGABRT)
        try:
            out, err = child.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate(timeout=5)
        raise AssertionError(f"the script did not end within {timeout} s\n{out}\n{err}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def output_of(code, timeout=100, **environment):
    """The last line that the code prints; fails when it does not end well."""
    done = run_script(code, timeout, **environment)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else ""


def capture(graph, work, **options):
    """Captures ``work()`` into ``graph`` on a side stream and returns what it returned."""
    import torch  # not above: tests that only run scripts need not wait for it

    with torch.npu.graph(graph, **options):
        result = work()
    return result
