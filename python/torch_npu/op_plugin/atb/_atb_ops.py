# SPDX-License-Identifier: Apache-2.0
"""Operators of ``torch.ops.atb`` are there from the start."""


def _register_atb_extensions():
    """Has nothing to load."""
