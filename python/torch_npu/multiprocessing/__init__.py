# SPDX-License-Identifier: Apache-2.0
"""Tensors of ``npu`` in messages between processes; see reductions.py."""
