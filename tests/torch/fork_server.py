# SPDX-License-Identifier: Apache-2.0
"""An interpreter that has imported torch and forks for each script that a test runs: a script starts in milliseconds.

It forks before it has the extension or any thread, so that a script finds what it finds in an interpreter of its own:
the libraries of the device are loaded by the script's process and read the script's environment. support.run_script is
the other end; scripts whose subject is the import itself do not come here.
"""
import builtins
import contextlib
import faulthandler
import gc
import json
import os
import signal
import socket
import sys

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # of NumPy, whose threads would be there before the first fork

import torch  # noqa: E402, F401


def next_script():
    """Forks for each request until nobody can send one. Returns in the children: the code that they run."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    while True:
        message, files, _, _ = socket.recv_fds(requests, 1 << 20, 2)
        if not message:
            sys.exit()
        request = json.loads(message)
        child = os.fork()
        os.setpgid(child, child)  # here and there: nobody may come too early to end the group
        if child == 0:
            requests.close()
            for number, file in zip((1, 2), files):
                os.dup2(file, number)
                os.close(file)
            os.chdir(request["folder"])
            os.environ.clear()
            os.environ.update(request["variables"])
            faulthandler.enable()
            sys.argv[:] = ["-c"]
            import torch_npu  # noqa: F401  as `import torch` does elsewhere

            return request["code"]
        for file in files:
            os.close(file)
        requests.send(json.dumps(child).encode())
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # whatever it started ends with it; before its number may be another's
        _, status = os.waitpid(child, 0)
        requests.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())


assert "torch_npu" not in sys.modules and len(os.listdir("/proc/self/task")) == 1
gc.freeze()  # children need not copy what they only look at
# Here and not in a function: the script ends as a program does, with what it raises.
exec(compile(next_script(), "<string>", "exec"), {"__name__": "__main__", "__builtins__": builtins})
