# SPDX-License-Identifier: Apache-2.0
"""Operators of the engine by their type: ``ge_apis.Add(x, y)``. Inputs and attributes by place or name; numbers become constants."""
import torch

from torchair._ge_concrete_graph import dtypes
from torchair._ge_concrete_graph._operators import build, definition, is_known, operator  # noqa: F401
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.graph import Tensor, default_graph, is_symbolic, set_shape
from torchair.ge import attr as ge_attr


def Const(v, dtype=None, node_name=None, readable=True):  # noqa: N802
    """A constant."""
    if isinstance(v, Tensor):
        raise ValueError(f"the value of a Const is a constant, not the Tensor {v.tensor}")
    dtype = dtypes.natural_type(v) if dtype is None else dtypes.ge_type(dtype)
    content, shape = dtypes.tensor_bytes(v, dtype)
    op = default_graph().add("Const", [], ["y"], {}, node_name)
    value = op.attr["value"].t
    value.data = content
    value.desc.dtype = dtypes.to_proto(dtype)
    value.desc.layout = "ND"
    set_shape(value.desc, shape)
    op.output_desc[0].dtype = value.desc.dtype
    set_shape(op.output_desc[0], shape)
    if readable:
        ge_attr.Str(repr(v)[:1000]).merge_to(op.attr["_readable_value"])
    made = Tensor(op)
    made.symsize = shape
    return made


def Cast(x, *, dst_type, dependencies=(), node_name=None):  # noqa: N802
    made = build("Cast", x, dst_type=int(dtypes.ge_type(dst_type)), dependencies=dependencies, node_name=node_name)
    made.symsize = x.symsize if isinstance(x, Tensor) else None
    return made


def Clone(x, *, dependencies=(), node_name=None):  # noqa: N802
    """A copy."""
    if not isinstance(x, Tensor):
        raise AssertionError(f"Clone: x is {x!r} of {type(x)}, and not a Tensor")
    for i, each in enumerate(dependencies):
        if not isinstance(each, Tensor):
            raise AssertionError(f"Clone: element {i} of dependencies is {each!r} of {type(each)}, and not a Tensor")
    made = build("TensorMove", x, dependencies=dependencies, node_name=node_name)
    made.symsize = x.symsize
    return made


def dtype_promote(*values, target_dtype):
    """Each in this type: tensors cast where they have another, numbers as constants."""
    target = dtypes.ge_type(target_dtype)
    result = [promoted(each, target) for each in values]
    return result[0] if len(result) == 1 else result


def promoted(value, target):
    if is_symbolic(value):
        value = default_graph().number(value)
    if isinstance(value, Tensor):
        return value if value.dtype == target else Cast(value, dst_type=target)
    if isinstance(value, torch.Tensor) or value is not None:
        return Const(value, dtype=target)
    return None


def __getattr__(name):
    if name.startswith("DT_"):
        return DataType[name]
    return operator(name)
