# SPDX-License-Identifier: Apache-2.0
"""Operators of the engine by their type, with inputs, outputs and attributes as the program names them."""
import torch

from torchair._ge_concrete_graph import dtypes
from torchair._ge_concrete_graph.ge_apis import Cast, Clone, Const  # noqa: F401
from torchair._ge_concrete_graph.graph import Tensor, default_graph
from torchair.ge import attr as ge_attr

_KINDS = {
    "VT_INT": ge_attr.Int,
    "VT_FLOAT": ge_attr.Float,
    "VT_BOOL": ge_attr.Bool,
    "VT_STRING": ge_attr.Str,
    "VT_DATA_TYPE": ge_attr.DataType,
    "VT_LIST_INT": ge_attr.ListInt,
    "VT_LIST_FLOAT": ge_attr.ListFloat,
    "VT_LIST_BOOL": ge_attr.ListBool,
    "VT_LIST_STRING": ge_attr.ListStr,
    "VT_LIST_DATA_TYPE": ge_attr.ListDataType,
    "VT_LIST_LIST_INT": ge_attr.ListListInt,
    "VT_LIST_LIST_FLOAT": ge_attr.ListListFloat,
}


def ir_of(kind):
    """(inputs, outputs, attributes) of an operator, names with their kinds in order; None where there is no such operator."""
    try:
        from torchair.core import _torchair
    except ImportError as error:
        raise RuntimeError(
            f"operators of the graph engine cannot be looked up: torchair.core._torchair does not load ({error}), whose library is "
            "libge_runner.so"
        ) from error
    status, inputs, outputs, attributes = _torchair.get_registered_ir_def(kind)
    return (inputs, outputs, attributes) if status == "SUCCESS" else None


def custom_op(op_type, *args, inputs=None, outputs=None, attrs=None, node_name=None):
    """Adds an operator. By keywords: ``inputs`` {name: Tensor, list or None}, ``outputs`` [name or (name, count)], ``attrs``
    {name: torchair.ge.attr}. By place: all inputs and attributes of the operator, in its order."""
    own = ir_of(op_type)
    if own is None:
        raise RuntimeError(f"the graph engine has no operator {op_type}: check its name, and that it is registered")
    if args or (inputs is None and outputs is None and attrs is None):
        return _by_place(op_type, own, args, node_name)
    return _by_name(op_type, inputs or {}, outputs or [], attrs or {}, node_name)


def _add(op_type, inputs, outputs, attrs, node_name):
    """``outputs``: (name, count or None)."""
    names = []
    for name, count in outputs:
        names += [name] if count is None else [f"{name}{i}" for i in range(count)]
    node = default_graph().add(op_type, inputs, names, attrs, node_name)
    results, place = [], 0
    by_name = {name: tensor for name, tensor in inputs if tensor is not None}
    for name, count in outputs:
        if count is None:
            results.append(Tensor(node, place))
            if name in by_name:
                results[-1].desc.dtype = by_name[name].desc.dtype
            place += 1
        else:
            results.append([Tensor(node, place + i) for i in range(count)])
            place += count
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def _tensors(values, where):
    for i, each in enumerate(values):
        if not isinstance(each, Tensor):
            raise AssertionError(f"{where}: element {i} must be a Tensor, not {each!r} of {type(each)}")
    return values


def _by_name(op_type, inputs, outputs, attrs, node_name):
    bound = []
    for i, (name, value) in enumerate(inputs.items()):
        where = f"{op_type}: input {i} ({name})"
        if isinstance(value, (list, tuple)):
            bound += [(f"{name}{k}", each) for k, each in enumerate(_tensors(value, where))]
        elif value is None or isinstance(value, Tensor):
            bound.append((name, value))
        else:
            raise AssertionError(f"{where} must be a Tensor, a list of Tensors or None, not {value!r} of {type(value)}")
    wanted = []
    for i, entry in enumerate(outputs):
        if isinstance(entry, str):
            wanted.append((entry, None))
        elif isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], int):
            wanted.append(entry)
        else:
            raise AssertionError(f"{op_type}: output {i} must be a name or a pair of name and count, not {entry!r}")
    for i, (name, value) in enumerate(attrs.items()):
        if not isinstance(value, ge_attr._Attr):
            raise AssertionError(f"{op_type}: attribute {i} ({name}) must be one of torchair.ge.attr, not {value!r} of {type(value)}")
    return _add(op_type, bound, wanted, attrs, node_name)


def _by_place(op_type, own, args, node_name):
    inputs, outputs, attributes = own
    if len(args) != len(inputs) + len(attributes):
        raise IndexError(
            f"{op_type} has {len(inputs)} inputs {[name for name, _ in inputs]} and {len(attributes)} attributes "
            f"{[name for name, _ in attributes]}, but {len(args)} arguments are given"
        )
    bound = []
    for i, ((name, kind), value) in enumerate(zip(inputs, args)):
        where = f"{op_type}: argument {i}, the {kind} input {name},"
        if kind == "dynamic":
            if not isinstance(value, (list, tuple)) or not all(isinstance(each, Tensor) for each in value):
                raise TypeError(f"{where} must be a list of Tensors, not {value!r}")
            bound += [(f"{name}{k}", each) for k, each in enumerate(value)]
        elif isinstance(value, Tensor) or (kind == "optional" and value is None):
            bound.append((name, value))
        else:
            raise TypeError(f"{where} must be a Tensor{' or None' if kind == 'optional' else ''}, not {value!r} of {type(value)}")
    attrs = {}
    for (name, kind), value in zip(attributes, args[len(inputs) :]):
        if value is None:
            continue
        if kind not in _KINDS:
            raise ValueError(f"{op_type}: attribute {name} is of kind {kind}, which cannot be set")
        if isinstance(value, torch.dtype):
            value = int(dtypes.ge_type(value))
        if isinstance(value, ge_attr._Attr):
            attrs[name] = value
        else:
            attrs[name] = _KINDS[kind](value)
    results = []
    for name, kind in outputs:
        if kind == "dynamic":
            raise ValueError(f"{op_type}: output {name} is a list; name the outputs: custom_op(..., outputs=[({name!r}, count)])")
        results.append((name, None))
    return _add(op_type, bound, results, attrs, node_name)
