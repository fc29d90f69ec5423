# SPDX-License-Identifier: Apache-2.0
"""Traces of graphs."""
import shutil

__all__ = ["align_trace_json"]


def align_trace_json(input, output, merge_gap=0.0):
    """Copies the trace: host and device of this package's traces have one clock, so that nothing is to be aligned."""
    shutil.copyfile(input, output)
