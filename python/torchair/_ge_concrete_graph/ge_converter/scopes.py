# SPDX-License-Identifier: Apache-2.0
"""Scopes, order between streams, and prints, which compiled functions ask for."""
from torchair._ge_concrete_graph.graph import default_graph
from torchair._ge_concrete_graph.registry import converts
from torchair.ge import attr as ge_attr

_SUPER_KERNEL = ("_super_kernel_scope", "_super_kernel_options")
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
