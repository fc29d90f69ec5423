# SPDX-License-Identifier: Apache-2.0
"""Operators of users that write their arguments, as functional graphs have them: on copies, whose new values are results."""
import torch
from torch._higher_order_ops.auto_functionalize import get_mutable_args, read_view_information_from_args

from torchair._ge_concrete_graph import auto_converter, inference_rule
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.ge_converter.common import sizes
from torchair._ge_concrete_graph.graph import Tensor, default_graph, spec_of
from torchair._ge_concrete_graph.registry import find, register
from torchair.core.utils import logger


class _Written:
    """An argument that the operator writes: the copy of its base, or a view of it."""

    def __init__(self, base, copy, view):
        self.base, self.copy = base, copy
        meta = base.meta
        whole = all(str(getattr(meta, name)()) == str(getattr(view, name)()) for name in ("size", "stride", "storage_offset"))
        self.place = None if whole else [sizes(view.size()), sizes(view.stride()), sizes([view.storage_offset()])]
        self.value = copy if whole else ge.operator("AsStrided")(copy, *self.place).set_meta(view)

    def updated(self, operator):
        """The base behind the operator, which is the last one that was added; None: it was more than one."""
        if self.place is None:
            written = None if operator is None else _output_for(operator, self.value)
            if written is None:
                logger.warning("no output of the operator is %s once more; the copy itself stands for it", self.value.tensor)
                written = ge.operator("Identity")(self.copy, dependencies=_after())
            return written.set_meta(self.base.meta)
        step, strides = 1, []
        for size in reversed(self.value.symsize):
            strides.insert(0, step)
            step = step * size
        return ge.operator("ViewCopy")(
            self.copy, *self.place, self.value, self.place[0], sizes(strides), sizes([0]), dependencies=_after()).set_meta(self.base.meta)


def _after():
    return [Tensor(default_graph().op[-1])]


def _output_for(operator, tensor):
    """The output with the name of the input that this tensor feeds."""
    slots = [i for i, edge in enumerate(operator.input) if edge == tensor.tensor]
    for slot in slots:
        name = operator.input_desc[slot].name
        for i, desc in enumerate(operator.output_desc):
            if desc.name == name:
                return Tensor(operator, i)
    return None


@register(torch.ops.higher_order.auto_functionalized_v2, takes_symbols=True)
def _auto_functionalized(op, *, meta_outputs, _all_bases=(), **kwargs):
    names, types = get_mutable_args(op)
    kwargs = dict(kwargs)
    for name in [key for key in kwargs if key.startswith("_only_clone")]:
        del kwargs[name]
    views = read_view_information_from_args(names, types, kwargs, list(_all_bases))
    copies, metas = [], [base.meta for base in _all_bases]
    for base in _all_bases:
        if not base.meta.is_contiguous():
            raise NotImplementedError(f"{op} writes a tensor whose memory is not contiguous, which graphs cannot; call contiguous() first")
        copies.append(ge.Clone(base).set_meta(base.meta))
    written = []

    def value_of(info):
        if info is None:
            return None
        made = _Written(_all_bases[info.base_index], copies[info.base_index], info.regenerate_view(metas))
        written.append((info.base_index, made))
        return made.value

    for name, info in views.items():
        kwargs[name] = [value_of(each) for each in info] if isinstance(info, list) else value_of(info)
    count = len(default_graph().op)
    converter = find(op)
    result_metas = meta_outputs[: len(meta_outputs) - len(_all_bases)]
    if converter is None:
        results = auto_converter.convert(op, (), kwargs, None)
    else:
        results = converter(**kwargs, meta_outputs=result_metas[0] if len(result_metas) == 1 else result_metas)
    added = default_graph().op[count:]
    inference_rule.attach(default_graph(), op, (), kwargs, results, added)
    added = [each for each in added if each.type != "Const"]
    operator = added[-1] if len(added) == 1 else None
    if results is None or isinstance(results, type(default_graph().op[-1])):
        results = ()
    elif not isinstance(results, (tuple, list)):
        results = (results,)
    # AOT autograd has a None for an operator without results.
    lead = list(results[: len(result_metas)]) + [None] * (len(result_metas) - len(results))
    bases = list(copies)
    for index, each in written:
        if each.place is not None and bases[index] is not copies[index]:
            each.copy = bases[index]
        bases[index] = each.updated(operator)
    return [*lead, *bases]


_ = spec_of
