# SPDX-License-Identifier: Apache-2.0
"""Scopes, order between streams, and prints, which compiled functions ask for."""
import string

import torch

from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Cast, Const
from torchair._ge_concrete_graph.graph import default_graph
from torchair._ge_concrete_graph.registry import converts
from torchair.ge import attr as ge_attr

_SUPER_KERNEL = ("_super_kernel_scope", "_super_kernel_options")
# Types that the engine shows as they are.
_PRINTED = {
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64,
    torch.float16, torch.float32, torch.float64,
}
_SWITCHES = ("_enable_inner_parallel", "_op_exec_never_timeout")


class _Scope:
    """Attributes of all operators of a scope."""

    def __init__(self, keys, values):
        self.values = dict(zip(keys, values))
        self.keeps_views = bool(self.values) and all(key in _SUPER_KERNEL for key in self.values)
        self.removes = "_super_kernel_scope" in self.values and self.values["_super_kernel_scope"] == ""

    def __call__(self, op):
        if self.removes:
            for key in _SUPER_KERNEL:
                if key in op.attr:
                    del op.attr[key]
            return
        for key, value in self.values.items():
            if key in _SWITCHES:
                op.attr[key].b = str(value) == "True"
            else:
                ge_attr.Str(str(value)).merge_to(op.attr[key])


@converts("air.scope_enter")
def _enter(keys, values, need_execute=False, *, meta_outputs):
    default_graph().scopes.append(_Scope(keys, values))


@converts("air.scope_exit")
def _exit(need_execute=False, *, meta_outputs):
    graph = default_graph()
    if not graph.scopes:
        raise RuntimeError(
            "a scope is left that was not entered (scope_exit without scope_enter): look for custom passes that removed the "
            "entry, and for graph breaks within the scope"
        )
    graph.scopes.pop()


# ---- Order ----


@converts("air.record")
def _record(*, device=None, meta_outputs):
    """Stands for the operator that was added last on this stream; an empty tensor is what the program sees of it."""
    graph = default_graph()
    label = _label(graph)
    last = next((op for op in reversed(graph.op) if _label_of(op) == label and op.type != "Data"), None)
    empty = Const(torch.empty(0))
    if last is not None:
        graph.records[empty.tensor] = f"{last.name}:-1"
    return empty


@converts("air.wait")
def _wait(x, *, meta_outputs):
    """The next operator comes behind these."""
    graph = default_graph()
    for each in x:
        edge = graph.records.get(each.tensor)
        if edge is None:
            if each.node.type == "Const" and each.meta is not None and each.meta.numel() == 0:
                continue  # a record before which there was nothing
            edge = each.controller
        if edge not in graph.controls:
            graph.controls.append(edge)


def _label(graph):
    found = ""
    for scope in graph.scopes:
        found = getattr(scope, "values", {}).get("_user_stream_label", found)
    return str(found)


def _label_of(op):
    return op.attr["_user_stream_label"].s.decode() if "_user_stream_label" in op.attr else ""


@converts("air.wait_tensor")
def _wait_tensor(x, dependency, *, meta_outputs):
    return ge.operator("Identity")(x, dependencies=[dependency])


def _refused(name):
    def convert(*args, meta_outputs, **kwargs):
        raise NotImplementedError(
            f"torch.ops.air.{name}: tagged events and streams belong to captured graphs (modes reduce-overhead and npugraph_ex); in "
            "graphs of the engine use torchair.ops.record and wait"
        )

    return convert


for _name in ("tagged_event_record", "tagged_event_wait", "tagged_event_record_on_stream", "tagged_event_wait_on_stream",
              "tagged_stream_wait_stream", "record_tagged_stream", "record_tagged_stream_", "record_tagged_on_stream",
              "record_tagged_on_stream_"):
    converts(f"air.{_name}")(_refused(_name))


# ---- Prints ----


@converts("air.npu_print")
def _print(tensors, template, summarize_size, tensor_detail, *, meta_outputs):
    """One text of constant parts and of tensors, which the engine prints when they are there."""
    parts, rest = [], iter(tensors)
    for text, field, *_ in string.Formatter().parse(template):
        parts.append(text)
        if field is not None:
            parts += _shown(next(rest), tensor_detail)
    token = "{}"
    while token in "".join(part if isinstance(part, str) else "\0" for part in parts):
        token = f"{{{token}}}"
    text = ge.operator("StringFormat")(
        [part for part in parts if not isinstance(part, str)], placeholder=token, summarize=summarize_size,
        template="".join(part if isinstance(part, str) else token for part in parts),
    )
    printed = ge.operator("PrintV2")(text, output_stream="stdout")
    ge_attr.Str("extend").merge_to(printed.attr["_kernel"])


def _shown(tensor, in_detail):
    """Texts, and tensors that are shown in them: sizes, too, where only runs know them."""
    dtype = tensor.meta.dtype
    if dtype.is_complex:
        raise NotImplementedError("graphs of the engine print no complex tensors: print torch.view_as_real(x)")
    values = tensor if dtype in _PRINTED else Cast(tensor, dst_type=DataType.DT_FLOAT)
    if not in_detail:
        return [values]
    found = ["tensor(", values, ", shape=["]
    for i, size in enumerate(tensor.symsize):
        found += [", " if i else "", str(size) if isinstance(size, int) else default_graph().number(size)]
    return [*found, f"], dtype={dtype})"]


# ---- What only checks ----


@converts("_assert_async.default", "_assert_async.msg", "_assert_scalar.default", "_assert_tensor_metadata.default", "sym_constrain_range.default",
          "sym_constrain_range_for_size.default")
def _check(*args, meta_outputs, **kwargs):
    """Not in graphs: the eager program refuses what is wrong."""
