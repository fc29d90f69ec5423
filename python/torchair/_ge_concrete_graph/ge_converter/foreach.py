# SPDX-License-Identifier: Apache-2.0
"""Operators over lists of tensors: the operator of one tensor, for each."""
import torch

from torchair._ge_concrete_graph.graph import spec_of
from torchair._ge_concrete_graph.registry import converts, find, overload

_UNARY = ("abs", "neg", "exp", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sigmoid", "erf", "expm1", "log", "log2", "log10", "log1p",
          "reciprocal", "sign", "floor", "ceil", "round", "trunc", "acos", "asin", "atan", "cosh", "sinh")
_BINARY = {"add": "add.Tensor", "sub": "sub.Tensor", "mul": "mul.Tensor", "div": "div.Tensor", "maximum": "maximum.default",
           "minimum": "minimum.default", "pow": "pow.Tensor_Tensor", "clamp_min": "clamp_min.default", "clamp_max": "clamp_max.default"}


def _at(value, i):
    return value[i] if isinstance(value, (list, tuple)) else value


def _each(target):
    def convert(tensors, *others, meta_outputs, **kwargs):
        converter = find(overload(target))
        return [
            converter(tensor, *(_at(other, i) for other in others), **{key: _at(value, i) for key, value in kwargs.items()},
                      meta_outputs=spec)
            for i, (tensor, spec) in enumerate(zip(tensors, meta_outputs))
        ]

    return convert


def _register():
    for name in _UNARY:
        if find(overload(f"{name}.default")) is not None:
            converts(f"_foreach_{name}.default")(_each(f"{name}.default"))
    for name, target in _BINARY.items():
        for kind in ("List", "Scalar", "ScalarList", "Tensor"):
            converts(f"_foreach_{name}.{kind}")(_each(target))


def _weighted(name):
    def convert(tensors, tensor1, tensor2, value=1, *, meta_outputs):
        converter = find(overload(f"{name}.default"))
        return [
            converter(tensor, tensor1[i], tensor2[i], value=_at(value, i), meta_outputs=spec)
            for i, (tensor, spec) in enumerate(zip(tensors, meta_outputs))
        ]

    return convert


from torchair._ge_concrete_graph.ge_converter import elementwise  # noqa: E402,F401  what is looked up here

_register()
for _name in ("addcmul", "addcdiv"):
    converts(f"_foreach_{_name}.Scalar", f"_foreach_{_name}.ScalarList")(_weighted(_name))


@converts("_foreach_lerp.List", "_foreach_lerp.Scalar")
def _lerp(tensors, ends, weight, *, meta_outputs):
    converter = find(overload("lerp.Scalar"))
    return [converter(tensor, ends[i], _at(weight, i), meta_outputs=spec) for i, (tensor, spec) in enumerate(zip(tensors, meta_outputs))]


_ = torch, spec_of
