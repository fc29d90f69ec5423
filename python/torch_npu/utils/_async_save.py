# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that are written to the disk while the program goes on."""
import concurrent.futures
import io
import os
import pickle
import threading
import warnings

import torch
from torch.serialization import DEFAULT_PROTOCOL
from torch_npu._errors import refused

__all__ = ["save_async"]

_lock = threading.Lock()
_writer = None  # one thread: files come to be in the order of the calls. The process waits for it when it ends
_pending = []  # writes that were not over when the last one was asked for


def _forget():
    """Of a forked process, which has no such thread."""
    global _writer, _lock
    _writer, _lock = None, threading.Lock()
    _pending.clear()


os.register_at_fork(after_in_child=_forget)


def _write_file(data, file, part, path):
    try:
        with file:
            file.write(data.getbuffer())
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise


def _write_to(data, f):
    f.write(data.getbuffer())
    if hasattr(f, "flush"):
        f.flush()


def _complain(where):
    def look(write):
        if error := write.exception():
            warnings.warn(f"torch_npu.utils.save_async: {where} was not written: {error}", stacklevel=1)

    return look


def save_async(
    obj,
    f,
    pickle_module=pickle,
    pickle_protocol=DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization=True,
    _disable_byteorder_record=False,
    model=None,
):
    """``torch.save`` whose file is written in the background.

    What is saved is the state at the call: it is copied to host memory before the call returns, so that the program may
    go on to train. A file appears under its name when it is complete. ``model`` needs no hooks here. Returns a
    ``concurrent.futures.Future``, whose ``result()`` waits for the file.
    """
    global _writer
    if model is not None and not isinstance(model, torch.nn.Module):
        raise refused(TypeError(f"save_async: model is {type(model).__name__}, expected a torch.nn.Module or None"))
    is_path = isinstance(f, (str, os.PathLike))
    if not is_path and not hasattr(f, "write"):
        raise AttributeError(f"save_async: f is {type(f).__name__}, expected a path or a file that is open for writing")
    data = io.BytesIO()
    torch.save(
        obj,
        data,
        pickle_module=pickle_module,
        pickle_protocol=pickle_protocol,
        _use_new_zipfile_serialization=_use_new_zipfile_serialization,
        _disable_byteorder_record=_disable_byteorder_record,
    )
    with _lock:
        # One write may wait for another one; more would fill the memory where the disk is slow.
        _pending[:] = [write for write in _pending if not write.done()]
        if len(_pending) > 1:
            concurrent.futures.wait(_pending[:-1])
        if _writer is None:
            _writer = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="save_async")
        if is_path:
            path = os.path.abspath(os.fspath(f))
            part = f"{path}.{os.getpid()}.{id(data):x}.part"
            file = open(part, "wb")  # a folder that is not there is an error of the call
            write = _writer.submit(_write_file, data, file, part, path)
        else:
            path = repr(f)
            write = _writer.submit(_write_to, data, f)
        _pending.append(write)
    write.add_done_callback(_complain(path))
    return write
