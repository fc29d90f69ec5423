# SPDX-License-Identifier: Apache-2.0
"""Graphs of the engine, for converters."""
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.graph import Tensor, TensorSpec
from torchair._ge_concrete_graph.ge_apis import Cast, Clone, Const
from torchair.ge import attr
from torchair.ge.custom import custom_op

__all__ = ["Cast", "Clone", "Const", "DataType", "Tensor", "TensorSpec", "attr", "custom_op"]
