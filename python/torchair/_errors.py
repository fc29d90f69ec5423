# SPDX-License-Identifier: Apache-2.0
"""The end of messages: when, in which process, on which device, and a code."""
import functools
import os
import sys
import time
import traceback

_PARAM, _INTERNAL, _NOT_SUPPORTED, _NOT_FOUND = (
    ("01", "invalid parameter"),
    ("05", "internal error"),
    ("07", "feature not supported"),
    ("08", "not found"),
)
_KINDS = {NotImplementedError: _NOT_SUPPORTED, ValueError: _PARAM, AssertionError: _PARAM, FileNotFoundError: _NOT_FOUND}


def _trailer(kind):
    device = rank = -1
    code, words = _INTERNAL
    torch_npu = sys.modules.get("torch_npu")
    if torch_npu is not None:
        code, words = _KINDS.get(kind, _INTERNAL)
        rank = int(os.environ.get("RANK", -1))
        if torch_npu.npu.is_initialized():
            device = torch_npu.npu.current_device()
    now = time.strftime("%Y-%m-%d-%H:%M:%S")
    return f"[ERROR] {now} (PID:{os.getpid()}, Device:{device}, RankID:{rank}) ERR030{code} GRAPH {words}"


def decorated(error):
    """An exception of the same type whose text ends with where it was raised and the trailer."""
    text = str(error)
    if " GRAPH " in text and "[ERROR]" in text:
        return error
    frames = "".join(traceback.format_exception(error))
    whole = f"{text}\n{frames.rstrip()}\n{_trailer(type(error))}"
    try:
        other = type(error)(whole)
    except Exception:  # its constructor wants something else
        return error
    return other.with_traceback(error.__traceback__)


def pretty(function):
    """What it raises is decorated."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except Exception as error:
            raise decorated(error) from error.__cause__

    return call
