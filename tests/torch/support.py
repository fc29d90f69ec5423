# SPDX-License-Identifier: Apache-2.0
"""What several test files need."""
import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

# Seconds after which what hangs is ended. No test may come near it, however busy the machine is.
PATIENCE = 600


class Gate:
    """Holds back what comes next on a stream until it is opened: work is pending for as long as a test wants.

    Open it also when the test fails: ``with Gate(stream) as gate``.
    """

    def __init__(self, stream=None):
        import torch

        self.event = torch.npu.ExternalEvent()
        # Of a pool from which tests take nothing, so that it is never a stream that waits.
        self.key = torch.npu.Stream(priority=-1)
        self.is_open = False
        self.event.wait(stream or torch.npu.current_stream())

    def open(self):
        if not self.is_open:
            self.is_open = True
            self.event.record(self.key)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open()


def wait_until(condition):
    """Waits for what another thread does in its own time."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "what the test waits for did not happen"
        time.sleep(0.001)


class _Fresh:
    """A script in an interpreter that starts with it."""

    def __init__(self, code, variables, out, err):
        command = [sys.executable, "-c", code]
        self.child = subprocess.Popen(command, env=variables, stdout=out, stderr=err, start_new_session=True)
        self.pid = self.child.pid

    def wait(self, timeout):
        try:
            code = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return code


class _Forked:
    """A script in a fork of an interpreter that has imported torch; see fork_server.py."""

    server = None

    def __init__(self, code, variables, out, err):
        if _Forked.server is None:
            _Forked.server = self.start()
        request = json.dumps({"code": code, "variables": variables, "folder": os.getcwd()})
        socket.send_fds(self.server, [request.encode()], [out.fileno(), err.fileno()])
        self.pid = self.receive(PATIENCE)

    @staticmethod
    def start():
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, os.path.join(_HERE, "fork_server.py"), str(theirs.fileno())]
        server = subprocess.Popen(command, env=_variables(), pass_fds=[theirs.fileno()])
        theirs.close()
        atexit.register(lambda: (ours.close(), server.wait()))
        return ours

    def receive(self, timeout):
        self.server.settimeout(timeout)
        message = self.server.recv(1 << 10)
        assert message, "fork_server.py has ended"
        return json.loads(message)

    def wait(self, timeout):
        return self.receive(timeout)


_HERE = os.path.dirname(os.path.abspath(__file__))
# Scripts may import the test files; they may run in another folder than the tests began in.
_PATH = os.pathsep.join([*map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))), _HERE])


def _variables(**changed):
    variables = dict(os.environ, PYTHONFAULTHANDLER="1", PYTHONPATH=_PATH)
    for name, value in changed.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = str(value)
    return variables


def run_script(code, timeout=PATIENCE, fresh=False, **environment):
    """Runs Python code in a process of its own and returns the completed process.

    ``fresh``: in an interpreter that has imported nothing yet; otherwise in one that has imported torch and not used
    the device, which costs a tenth. ``environment``: variables to set; None removes one. A script that does not end in
    time fails the test with the stacks of its threads, and whatever it started ends with it.
    """
    code = textwrap.dedent(code)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:

        def written(file):
            file.seek(0)
            return file.read()

        child = (_Fresh if fresh else _Forked)(code, _variables(**environment), out, err)
        try:
            status = child.wait(timeout)
        except TimeoutError:
            for number in (signal.SIGABRT, signal.SIGKILL):
                os.killpg(child.pid, number)
                with contextlib.suppress(TimeoutError):
                    child.wait(PATIENCE / 10)
                    break
            raise AssertionError(f"the script did not end within {timeout} s\n{written(out)}\n{written(err)}") from None
        return subprocess.CompletedProcess(code, status, written(out), written(err))


def output_of(code, timeout=PATIENCE, fresh=False, **environment):
    """The last line that the code prints; fails when it does not end well."""
    done = run_script(code, timeout, fresh, **environment)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    lines = done.stdout.strip().splitlines()
    return lines[-1] if lines else ""


def capture(graph, work, **options):
    """Captures ``work()`` into ``graph`` on a side stream and returns what it returned."""
    import torch  # not above: tests that only run scripts need not wait for it

    with torch.npu.graph(graph, **options):
        result = work()
    return result
