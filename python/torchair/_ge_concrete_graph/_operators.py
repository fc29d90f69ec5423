# SPDX-License-Identifier: Apache-2.0
"""Functions that add a node of each type of operator: ``operator("Add")(x, y)``."""
import functools
import re

import torch

from torchair._ge_concrete_graph import dtypes
from torchair._ge_concrete_graph._ir import OPERATORS
from torchair._ge_concrete_graph.dtypes import FLOATING, INTEGERS, DataType
from torchair._ge_concrete_graph.graph import Tensor, default_graph, is_symbolic
from torchair.ge import attr as ge_attr

_OPERAND = re.compile(r"(\w+)(\?|\[\])?(?::(\w+))?(?:@(\w+))?")
_ATTRIBUTE = re.compile(r"(\w+):(\w+)(?:([!?])|=(.*))")
_KINDS = {
    "Bool": ge_attr.Bool,
    "Int": ge_attr.Int,
    "Float": ge_attr.Float,
    "String": ge_attr.Str,
    "Type": ge_attr.DataType,
    "Ints": ge_attr.ListInt,
    "Bools": ge_attr.ListBool,
    "Floats": ge_attr.ListFloat,
}
_TENSOR_KINDS = {"x": None}


class Operand:
    """``mark``: "", "?" (may be left out) or "[]" (a list). ``type``: a variable, a DataType or None."""

    def __init__(self, text):
        self.name, mark, kind, self.attribute = _OPERAND.fullmatch(text).groups()
        self.mark = mark or ""
        self.type = dtypes.named_type(kind) if kind else None
        self.letter = kind if kind and self.type is None else None


def _default(kind, text):
    if kind == "Bool":
        return text == "true"
    if kind == "Float":
        return float(text)
    if kind == "String":
        return text[1:-1]
    if kind in ("Ints", "Bools", "Floats"):
        return [int(word) for word in text[1:-1].split()]
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return int(dtypes.named_type(text))


class Definition:
    """An operator of the table."""

    def __init__(self, kind):
        inputs, outputs, attributes = OPERATORS[kind]
        self.kind = kind
        self.inputs = [Operand(text) for text in inputs.split()]
        self.outputs = [Operand(text) for text in outputs.split()]
        self.attributes = {}
        for text in attributes:
            name, attr_kind, mark, default = _ATTRIBUTE.fullmatch(text).groups()
            value = _default(attr_kind, default) if mark is None and attr_kind in _KINDS else None
            self.attributes[name] = (attr_kind, mark, value)


    def is_optional(self, name):
        return any(operand.name == name and operand.mark == "?" for operand in self.inputs)


@functools.lru_cache(None)
def _check_installed(kind, inputs, attributes):
    """What the engine that is installed does not have yet is refused, where it is used."""
    from torchair.core import _torchair

    why = _torchair.check_cann_compat(kind, list(inputs), list(attributes))
    if why:
        raise AssertionError(f"{kind}: the graph engine that is installed is older than this package: {why}")


@functools.lru_cache(None)
def definition(kind):
    return Definition(kind)


def is_known(kind):
    return kind in OPERATORS


def _promoted_type(value, operands, kind):
    """The type of a constant among operands that are tensors."""
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    if isinstance(value, (list, tuple)) and not value:
        return DataType.DT_INT32
    if isinstance(first, torch.Tensor):
        return dtypes.ge_type(first.dtype)
    is_float = isinstance(first, float) or isinstance(first, torch.SymFloat)
    candidates = {each.dtype for each in operands if each.dtype in (FLOATING if is_float else INTEGERS)}
    if len(candidates) > 1:
        names = sorted(each.name for each in candidates)
        raise AssertionError(f"{kind}: the constant {value!r} may be of any of the types {', '.join(names)} of the other inputs")
    if candidates:
        return candidates.pop()
    return DataType.DT_FLOAT if is_float else dtypes.natural_type(value)


def _as_tensor(value, operand, tensors, kind):
    from torchair._ge_concrete_graph.ge_apis import Const

    if isinstance(value, Tensor):
        return value
    graph = default_graph()
    if is_symbolic(value):
        return graph.number(value)
    if isinstance(value, (list, tuple)) and any(is_symbolic(each) or isinstance(each, Tensor) for each in value):
        return graph.sizes(value)
    if isinstance(value, (bool, int, float, complex, list, tuple, torch.Tensor)):
        if operand.letter is None and operand.type is not None:
            return Const(value, dtype=operand.type)
        if operand.letter is None:  # one of the types of indices
            return Const(value, dtype=DataType.DT_INT64 if _is_whole(value) else None)
        return Const(value, dtype=_promoted_type(value, tensors, kind))
    raise TypeError(f"{kind}: input {operand.name} is {value!r} of {type(value)}, and not a Tensor or a constant")


def _is_whole(value):
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    return isinstance(first, int) and not isinstance(first, bool)


def _bind(own, args, kwargs):
    names = [operand.name for operand in own.inputs] + list(own.attributes)
    if len(args) > len(names):
        raise TypeError(f"{own.kind} takes {len(names)} inputs and attributes, not {len(args)}")
    bound = dict(zip(names, args))
    for name, value in kwargs.items():
        if name in bound:
            raise TypeError(f"{own.kind}: {name} is given twice")
        if name not in names:
            raise TypeError(f"{own.kind} has no input or attribute {name!r}; it has {', '.join(names)}")
        bound[name] = value
    return bound


def build(kind, *args, dependencies=(), node_name=None, output_sizes=None, **kwargs):
    """Adds a node. ``output_sizes``: of outputs that are lists, how many tensors, by name."""
    own = definition(kind)
    counts = dict(output_sizes or {})
    for name in [key for key in kwargs if key.startswith("size_of_")]:
        counts[name.removeprefix("size_of_")] = kwargs.pop(name)
    bound = _bind(own, args, kwargs)
    tensors = []
    for operand in own.inputs:
        value = bound.get(operand.name)
        for each in value if operand.mark == "[]" and isinstance(value, (list, tuple)) else [value]:
            if isinstance(each, Tensor):
                tensors.append(each)
    inputs, letters = [], {}
    for operand in own.inputs:
        value = bound.get(operand.name)
        if operand.mark == "[]":
            for i, each in enumerate(value if isinstance(value, (list, tuple)) else [value]):
                inputs.append((f"{operand.name}{i}", _as_tensor(each, operand, tensors, kind)))
                letters.setdefault(operand.letter, inputs[-1][1])
            continue
        if value is None:
            if operand.mark != "?":
                raise TypeError(f"{kind}: input {operand.name} is missing")
            # Behind the last input that is there nothing is written; before it a gap is.
            inputs.append((operand.name, None))
            continue
        inputs.append((operand.name, _as_tensor(value, operand, tensors, kind)))
        letters.setdefault(operand.letter, inputs[-1][1])
    while inputs and inputs[-1][1] is None:
        inputs.pop()
    attrs = {}
    for name, (attr_kind, mark, default) in own.attributes.items():
        value = bound.get(name)
        if value is None:
            if mark == "!":
                raise TypeError(f"{kind}: attribute {name} is missing")
            continue
        if attr_kind == "Bools":
            value = [bool(each) for each in value]
        made = _KINDS[attr_kind](value)
        if mark is None and made.value == _KINDS[attr_kind](default).value:
            continue
        attrs[name] = made
    _check_installed(kind, tuple(name for name, tensor in inputs if tensor is not None and own.is_optional(name)), tuple(attrs))
    outputs, owners = [], []
    for operand in own.outputs:
        if operand.mark == "[]":
            count = counts.get(operand.name, bound.get("N") or bound.get("num") or bound.get("num_split"))
            if count is None:
                raise TypeError(f"{kind}: say how many tensors the output {operand.name} has, with size_of_{operand.name}")
            outputs.extend(f"{operand.name}{i}" for i in range(count))
            owners.append(count)
        else:
            outputs.append(operand.name)
            owners.append(None)
    node = default_graph().add(kind, inputs, outputs, attrs, node_name, dependencies)
    results, place = [], 0
    by_name = {name: tensor for name, tensor in inputs if tensor is not None}
    for operand, count in zip(own.outputs, owners):
        made = [Tensor(node, place + i) for i in range(1 if count is None else count)]
        place += len(made)
        for each in made:
            dtype = _output_type(operand, by_name, letters, bound)
            if dtype is not None:
                each.desc.dtype = dtypes.to_proto(dtype)
        results.append(made[0] if count is None else made)
    if len(results) == 1:
        return results[0]
    return tuple(results) if results else node


def _output_type(operand, by_name, letters, bound):
    if operand.attribute is not None:
        value = bound.get(operand.attribute)
        return None if value is None else dtypes.ge_type(value)
    if operand.name in by_name and operand.letter is None and operand.type is None:
        return by_name[operand.name].dtype
    if operand.type is not None:
        return operand.type
    tensor = letters.get(operand.letter) if operand.letter else None
    return None if tensor is None or tensor.dtype == DataType.DT_UNDEFINED else tensor.dtype


@functools.lru_cache(None)
def operator(kind):
    """The function that adds nodes of this type."""
    if not is_known(kind):
        raise AttributeError(f"the graph engine has no operator {kind!r}")
    function = functools.partial(build, kind)
    function.__name__ = kind
    return function
