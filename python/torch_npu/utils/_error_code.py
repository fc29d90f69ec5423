# SPDX-License-Identifier: Apache-2.0
"""Codes that programs append to their messages. The messages of this package carry none."""
import enum


class ErrCode(enum.IntEnum):
    SUC = 0
    PARAM = 1
    TYPE = 2
    VALUE = 3
    PTR = 4
    INTERNAL = 5
    MEMORY = 6
    NOT_SUPPORT = 7
    NOT_FOUND = 8
    UNAVAIL = 9
    SYSCALL = 10
    TIMEOUT = 11
    PERMISSION = 12


def pta_error(code):
    """The text that goes to the end of a message: none."""
    return ""
