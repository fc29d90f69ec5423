# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the runtime."""


class NpuError(RuntimeError):
    """A call that the runtime refused, or work of the device that failed.

    Attributes: ``code`` (int, ACL_ERROR_...), ``cause`` (one sentence), ``culprit`` (object or call to blame, may be
    empty), ``hint`` (next step, may be empty). ``torch.OutOfMemoryError`` carries the same attributes.
    """

    code = 0
    cause = ""
    culprit = ""
    hint = ""
