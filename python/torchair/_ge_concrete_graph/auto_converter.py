# SPDX-License-Identifier: Apache-2.0
"""Converters of operators that have none: the operator of the engine with the same name, inputs and attributes by place."""
import inspect

import torch

from torchair._ge_concrete_graph.graph import Tensor
from torchair.ge import custom

_HINT = (
    "register a converter with @torchair.register_fx_node_ge_converter, which makes operators of the engine of it "
    "(torchair.ge.custom_op)"
)


def camel(name):
    return "".join(word[:1].upper() + word[1:] for word in name.removesuffix("_functional").split("_") if word)


def convert(target, args, kwargs, meta):
    if not isinstance(target, torch._ops.OpOverload):
        raise RuntimeError(f"{target} is not an OpOverload, so that no converter can be made of it; {_HINT}")
    if target.namespace in ("aten", "prim", "prims"):
        raise NotImplementedError(
            f"torch.ops.{target} has no converter to the graph engine: ge_converter is not implemented "
            f"(built-in ops not support auto-generate); {_HINT}"
        )
    schema = target._schema
    for argument in schema.arguments:
        if str(argument.type) == "number":
            raise RuntimeError(f"{target}: no converter can be made, since its argument {argument.name} is a scalar (Number); {_HINT}")
    kind = camel(schema.name.split("::")[1])
    own = custom.ir_of(kind)
    if own is None:
        raise RuntimeError(
            f"{target} has no converter, and the graph engine has no operator {kind} either (ASCEND_GLOBAL_LOG_LEVEL=1 says what "
            f"it looked for); {_HINT}"
        )
    inputs, outputs, attributes = own
    tensors = [each for each in schema.arguments if "Tensor" in str(each.type)]
    others = [each for each in schema.arguments if "Tensor" not in str(each.type)]
    if len(tensors) != len(inputs):
        raise RuntimeError(
            f"{target} has the {len(tensors)} tensor arguments {[each.name for each in tensors]}, but {kind} has the {len(inputs)} "
            f"inputs {[name for name, _ in inputs]}: make them equal, or {_HINT}"
        )
    if len(others) > len(attributes):
        raise RuntimeError(
            f"{target} has the {len(others)} other arguments {[each.name for each in others]}, but {kind} has the "
            f"{len(attributes)} attributes {[name for name, _ in attributes]}: make them equal, or {_HINT}"
        )
    places = {name: i for i, (name, _) in enumerate(inputs)}
    shared = [name for name, _ in outputs if name in places]
    written = [each for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]
    if written and len(written) != len(shared):
        raise RuntimeError(
            f"{target} writes its arguments {[each.name for each in written]}, but {kind} writes {shared} in place: make them "
            f"equal, or {_HINT}"
        )
    returns = len(schema.returns)
    if len(written) + returns != len(outputs):
        raise RuntimeError(
            f"{target} has {returns} results and writes {len(written)} arguments, but {kind} has the {len(outputs)} outputs "
            f"{[name for name, _ in outputs]}: make them equal, or {_HINT}"
        )
    bound = bind(schema, args, kwargs)
    values = [bound[each.name] for each in tensors]
    if not written:
        for name in shared:
            value = values[places[name]]
            if isinstance(value, Tensor):
                values[places[name]] = custom.Clone(value)
    results = custom.custom_op(kind, *values, *[bound[each.name] for each in others], *[None] * (len(attributes) - len(others)))
    if written:
        results = results if isinstance(results, tuple) else (results,)
        results = tuple(each for each, (name, _) in zip(results, outputs) if name not in places)
        if len(results) == 1:
            results = results[0]
    return results


def bind(schema, args, kwargs):
    """Values of all arguments by name, defaults included."""
    bound = {}
    for i, argument in enumerate(schema.arguments):
        if i < len(args):
            bound[argument.name] = args[i]
        elif argument.name in kwargs:
            bound[argument.name] = kwargs[argument.name]
        else:
            bound[argument.name] = argument.default_value if argument.has_default_value() else None
    return bound


__all__ = ["bind", "camel", "convert", "inspect"]
