# SPDX-License-Identifier: Apache-2.0
"""What every graph must keep to, whatever passes have done."""
from torchair._fx_passes.labels import is_scope_enter, is_scope_exit


def check_scopes(gm):
    """Each scope_enter has its scope_exit."""
    hint = "; look at custom passes that move or drop nodes, and at graph breaks within the scope"
    stack = []
    for node in gm.graph.nodes:
        if is_scope_enter(node):
            stack.append(node)
        elif is_scope_exit(node):
            if not stack:
                raise RuntimeError(f"scope_exit {node.name} has no scope_enter before it{hint}")
            stack.pop()
    if stack:
        raise RuntimeError(f"scope_enter {stack[-1].name} {stack[-1].args} has no scope_exit behind it{hint}")
