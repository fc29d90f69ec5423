# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the runtime."""
import sys

from torch_npu import _C


class NpuError(RuntimeError):
    """A call that the runtime refused, or work of the device that failed.

    Attributes: ``code`` (int, ACL_ERROR_...), ``cause`` (one sentence), ``culprit`` (object or call to blame, may be
    empty), ``hint`` (next step, may be empty), ``place`` (the Python line of the call, may be empty).
    ``torch.OutOfMemoryError`` carries the same attributes.
    """

    code = 0
    cause = ""
    culprit = ""
    hint = ""
    place = ""


_PARAM_INVALID = 107000
_NOT_SUPPORTED = 207000


def refused(error):
    """For each exception that Python code of this package raises: writes it to REPRISE_ERROR_JSON, returns it."""
    if not _C._writes_refusals():
        return error
    said = sys.exception()
    if said is not None and str(said) == str(error):  # raised anew, as another type
        return error
    code = _NOT_SUPPORTED if isinstance(error, NotImplementedError) else _PARAM_INVALID
    call = sys._getframe(1)
    name = f"{call.f_globals.get('__name__', '')}.{call.f_code.co_qualname}"
    _C._write_refusal(type(error).__name__, code, name, str(error))
    return error
