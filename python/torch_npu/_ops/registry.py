# SPDX-License-Identifier: Apache-2.0
"""The table of operators: what each name of ``schemas.py`` is made of. Rows are added by the modules beside this one.

A row is one of

    native      an operator of the device, called by a boxed kernel (python/csrc/ops) as its row of api/torch_ops.csv
                says, which is compiled in; and a function on Meta tensors that tells the results
    composite   a function over other operators; it tells the results on Meta tensors, too, by running there
    host kernel a kernel of the CPU in python/csrc/ops, as a task of a stream; and a function on Meta tensors
    kernel      a function for tensors of the device, and another one for Meta tensors

and may have a derivative. Names that have no row are refused when they are called.
"""
import dataclasses
import typing

import torch
from torch.fx.node import has_side_effect
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu._ops.refused import REASONS
from torch_npu._ops.schemas import SCHEMAS

__all__ = ["composite", "declare", "derivative", "host_kernel", "kernel", "meta", "workspace"]


@dataclasses.dataclass
class Row:
    function: str = ""  # C name of the device's operator
    functions: typing.Dict[str, typing.Callable] = dataclasses.field(default_factory=dict)  # by dispatch key
    derivative: typing.Optional[tuple] = None
    workspace_of: str = ""
    runs_on_host: bool = False


# Those of api/torch_ops.csv come first: operators that tell a workspace look for the one that they tell it of.
ROWS: typing.Dict[str, Row] = {full: Row(function) for full, function in _C._declared_operators()}
# Write tensors that their signatures do not mark as written: compilers must not drop calls whose results nobody uses.
WRITES_IN_SILENCE = (
    "atb::_npu_group_topk",
    "npu::npu_apply_adam.out",
    "npu::npu_apply_adam_w.out",
    "npu::npu_bert_apply_adam.out",
    "npu::npu_fusion_attention_grad_v3.out",
    "npu::npu_fusion_attention_v3.out",
    "npu::npu_hans_encode.out",
    "npu::npu_kv_rmsnorm_rope_cache",
    "npu::npu_mla_prolog",
    "npu::npu_mla_prolog_v2",
)
OURS = []  # schemas of operators that rows are made of, and that programs do not call


def _full(name):
    return name if "::" in name else "atb::" + name[4:] if name.startswith("atb.") else "npu::" + name


def _row(name):
    return ROWS.setdefault(_full(name), Row())


def declare(schema):
    """An operator of our own, which others are made of."""
    OURS.append(schema)


def host_kernel(name):
    """``name`` has a kernel for the CPU (python/csrc/ops/npu_kernels.cc)."""
    _row(name).runs_on_host = True


def meta(*names):
    """Decorator: the function tells the results of these operators, on Meta tensors, and refuses wrong arguments."""

    def add(function):
        for name in names:
            _row(name).functions["Meta"] = function
        return function

    return add


def kernel(*names):
    """Decorator: the function computes on tensors of the device."""

    def add(function):
        for name in names:
            _row(name).functions["PrivateUse1"] = function
        return function

    return add


def composite(*names, differentiable=False):
    """Decorator: the function is written over other operators. ``differentiable``: and so are its gradients."""

    def add(function):
        key = "CompositeImplicitAutograd" if differentiable else "CompositeExplicitAutograd"
        for name in names:
            _row(name).functions[key] = function
        return function

    return add


def derivative(name, backward, arguments, gradients):
    """``backward(arguments)`` returns the gradients of the arguments ``gradients``, for that of the first result (the
    word ``grad``) or of others (``grad@2``)."""
    _row(name).derivative = (_full(backward), arguments.split(), gradients.split())


def workspace(name, of):
    """``name`` tells the workspace of the operator ``of``."""
    _row(name).workspace_of = _full(of)


def parse():
    """Rank, namespace, name with overload and signature of every operator of the published package."""
    for line in SCHEMAS.splitlines():
        rank, text = line.split(" ", 1)
        name, signature = text.split("(", 1)
        space, name = name.split(".", 1) if name.startswith("atb.") else ("npu", name)
        yield rank, space, name, "(" + signature


_libraries = {}  # for ever: an operator goes with the library that defined it


def _library(space):
    if space not in _libraries:
        _libraries[space] = torch.library.Library(space, "FRAGMENT")
    return _libraries[space]


def _define(space, schema):
    _library(space).define(schema)


def _implement(full, row):
    space, name = full.split("::")
    for key, function in row.functions.items():
        _library(space).impl(name, function, key)
    if row.function and not _C._bind_operator(full):
        raise refused(RuntimeError(f"libreprise.so has no operator {row.function}, which {full} is made of"))
    if row.runs_on_host:
        _C._bind_host_kernel(full)
    if row.workspace_of:
        _C._bind_workspace(full, row.workspace_of)
    if row.derivative:
        _C._bind_derivative(full, *row.derivative)


def install():
    """Defines all names, binds the rows, and makes the rest refuse. Returns the names by namespace, with ranks."""
    names = {}
    for schema in OURS:
        _define("npu", schema)
    for rank, space, name, signature in parse():
        _define(space, name + signature)
        full = f"{space}::{name}"
        if full not in ROWS:
            why = REASONS.get(name.split(".")[0], "it needs 4- or 8-bit floats or several devices")
            _C._refuse_operator(full, f"{full}: Reprise does not have this operator yet: {why}")
        names.setdefault((space, name.split(".")[0]), (rank, full in ROWS))
    for full, row in ROWS.items():
        _implement(full, row)
    for full in WRITES_IN_SILENCE:
        space, name = full.split("::")
        name, _, overload = name.partition(".")
        has_side_effect(getattr(getattr(getattr(torch.ops, space), name), overload or "default"))
    return names
