# SPDX-License-Identifier: Apache-2.0
"""Converters of operators of PyTorch, by family."""
from torchair._ge_concrete_graph.ge_converter import (  # noqa: F401
    collectives,
    convolution,
    creation,
    elementwise,
    foreach,
    functionalized,
    gradients,
    indexing,
    matmul,
    movement,
    normalization,
    npu,
    npu_table,
    reduction,
    scopes,
)
