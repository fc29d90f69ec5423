# SPDX-License-Identifier: Apache-2.0
"""One FX graph to a captured function, without dynamo."""
import torch
from torchair.npu_fx_compiler import _FxCompiler, compile_with_aot


def _inputs_of(gm):
    found = []
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val", node.meta.get("example_value"))
        if value is None:
            raise ValueError(
                f"compile_fx: nothing is known of the input {node.name}: pass example_inputs, or a graph that was traced with them"
            )
        found.append(value)
    return found


def _is_of_operators(gm):
    return all(
        isinstance(node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator))
        or getattr(node.target, "__module__", "") in ("_operator", "math", "builtins")
        for node in gm.graph.nodes
        if node.op == "call_function"
    ) and not any(node.op in ("call_method", "call_module") for node in gm.graph.nodes)


def _with_values(gm, example_inputs):
    """Passes ask nodes for what they hold: fake tensors, where the graph has none."""
    if all("val" in node.meta for node in gm.graph.nodes if node.op not in ("output", "get_attr")):
        return gm
    from torch._subclasses import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*example_inputs)
    return gm


def compile_fx(gm, example_inputs, config):
    inputs = list(example_inputs) if example_inputs is not None else _inputs_of(gm)
    if _is_of_operators(gm):
        compiled = _FxCompiler(config, "compile_fx")(_with_values(gm, inputs), inputs)
    else:
        compiled = compile_with_aot(gm, inputs, config)
    is_boxed = getattr(compiled, "_boxed_call", False)

    def call(*args):
        values = list(args[0]) if len(args) == 1 and isinstance(args[0], list) else list(args)
        return compiled(values) if is_boxed else compiled(*values)

    call._boxed_call = False
    return call
