# SPDX-License-Identifier: Apache-2.0
"""What several families of converters need."""
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.ge_apis import Const
from torchair._ge_concrete_graph.graph import default_graph


def all_dims(tensor):
    return list(range(tensor.rank))


def dims_of(tensor, dim):
    """As a list of dims that are not negative; all for None and for an empty list."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return all_dims(tensor)
    if isinstance(dim, int):
        dim = [dim]
    return [each % max(tensor.rank, 1) for each in dim] if tensor.rank else []


def is_empty(tensor):
    return any(isinstance(each, int) and each == 0 for each in tensor.symsize)


def sizes(values):
    return default_graph().sizes(values)


def reshape(tensor, shape):
    result = ge.operator("Reshape")(tensor, sizes(shape))
    return result


def full(spec, value, shape=None):
    """A constant of the type and shape of a result."""
    shape = spec.symsize if shape is None else shape
    number = value if not isinstance(value, (bool, int, float)) else Const(value, spec.dtype)
    if not shape:
        return ge.operator("Reshape")(number, Const([], dtype=9)) if not isinstance(value, (bool, int, float)) else number
    return ge.operator("Fill")(sizes(shape), number)


def transpose(tensor, perm):
    return tensor if list(perm) == sorted(perm) else ge.operator("Transpose")(tensor, Const(list(perm)))
