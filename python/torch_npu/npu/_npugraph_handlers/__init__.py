# SPDX-License-Identifier: Apache-2.0
"""Handlers of operators whose arguments in a graph can change, under the name that programs import them by."""
from torch_npu.npu._graph_handlers import NpuGraphOpHandler, register_npu_graph_handler

__all__ = ["NpuGraphOpHandler", "register_npu_graph_handler"]
