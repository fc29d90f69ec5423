# SPDX-License-Identifier: Apache-2.0
"""cat of results of operators: each operator writes its part of the result, and nothing is copied."""
import operator

import torch
from torchair._acl_concrete_graph.sizes import SizeNodes
from torchair._fx_passes.labels import is_scope_enter, is_scope_exit
from torchair.core.utils import logger
from torchair.ops import _air  # noqa: F401  torch.ops.air

aten = torch.ops.aten


def out_form(target):
    """The overload that writes into ``out`` and otherwise takes the same arguments; None: there is none."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    schema = target._schema
    if schema.is_mutable or len(schema.returns) != 1:
        return None
    mine = [(argument.name, str(argument.type)) for argument in schema.arguments]
    for name in target.overloadpacket.overloads():
        form = getattr(target.overloadpacket, name)
        outs = [argument for argument in form._schema.arguments if argument.is_out]
        if len(outs) != 1 or outs[0].name != "out" or not isinstance(outs[0].type, torch.TensorType):
            continue
        if [(a.name, str(a.type)) for a in form._schema.arguments if not a.is_out] == mine:
            return form
    return None


class _Refusal(Exception):
    pass


def _parts(cat):
    inputs = cat.args[0] if cat.args else cat.kwargs.get("tensors")
    dim = cat.args[1] if len(cat.args) > 1 else cat.kwargs.get("dim", 0)
    if not isinstance(inputs, (list, tuple)) or len(inputs) < 2:
        raise _Refusal("it has fewer than two inputs")
    result = cat.meta.get("val")
    if not isinstance(result, torch.Tensor):
        raise _Refusal("the shape of its result is not known")
    if dim != 0:
        raise _Refusal(f"its dimension is {dim}, and only parts along dimension 0 lie in one piece")
    if len(set(inputs)) != len(inputs):
        raise _Refusal("an input comes twice")
    forms = []
    for each in inputs:
        if each.op != "call_function":
            raise _Refusal(f"{each.name} is not made by an operator of the graph")
        value = each.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise _Refusal(f"the shape of {each.name} is not known")
        if value.dtype != result.dtype:
            raise _Refusal(f"{each.name} has another type than the result")
        form = out_form(each.target)
        if form is None:
            raise _Refusal(f"{each.target} has no form with out= that takes the same arguments")
        if any(user is not cat and user.target is aten.cat.default for user in each.users):
            raise _Refusal(f"{each.name} is an input of another cat, too")
        if value.dim() != result.dim() or any(str(a) != str(b) for a, b in zip(value.shape[1:], result.shape[1:])):
            raise _Refusal(f"{each.name} has other dimensions than the result")
        forms.append(form)
    return list(inputs), forms, result


def _replace(gm, cat, sizes):
    graph = gm.graph
    inputs, forms, result = _parts(cat)
    order = {node: index for index, node in enumerate(graph.nodes)}
    first = min(inputs, key=order.get)
    if not all(sizes.is_known(size) for size in result.shape):
        raise _Refusal("its sizes cannot be told from the inputs of the graph")
    if not all(sizes.is_known(each.meta["val"].shape[0]) for each in inputs):
        raise _Refusal("the sizes of its parts cannot be told from the inputs of the graph")
    around = _scope_of(graph, cat)
    with graph.inserting_before(first):
        shape = [sizes.node(size) for size in result.shape]
        if around is not None:
            graph.call_function(around.target, around.args, around.kwargs)
        whole = graph.call_function(
            aten.empty.memory_format, (shape,), {"dtype": result.dtype, "device": result.device}
        )
        whole.meta.update(cat.meta)
        if around is not None:
            graph.call_function(torch.ops.air.scope_exit.default, ())
        offsets = [0]
        for each in inputs:
            size = sizes.node(each.meta["val"].shape[0])
            offsets.append(_add(graph, offsets[-1], size))
    for index, (each, form) in enumerate(zip(inputs, forms)):
        with graph.inserting_before(each):
            part = graph.call_function(aten.slice.Tensor, (whole, 0, offsets[index], offsets[index + 1]))
            part.meta["val"] = each.meta["val"]
            new = graph.call_function(form, each.args, {**each.kwargs, "out": part})
            new.meta.update(each.meta)
        each.replace_all_uses_with(new)
        graph.erase_node(each)
    cat.replace_all_uses_with(whole)
    graph.erase_node(cat)


def _add(graph, left, right):
    if isinstance(left, int) and isinstance(right, int):
        return left + right
    if left == 0:
        return right
    return graph.call_function(operator.add, (left, right))


def _scope_of(graph, node):
    """The scope_enter of the innermost scope around the node."""
    found, stack = None, []
    for each in graph.nodes:
        if is_scope_enter(each):
            stack.append(each)
        elif is_scope_exit(each) and stack:
            stack.pop()
        if each is node:
            found = stack[-1] if stack else None
            break
    return found


def remove_cat_ops(gm):
    """Returns how many cats are gone."""
    count = 0
    sizes = SizeNodes(gm.graph)
    for cat in list(gm.graph.find_nodes(op="call_function", target=aten.cat.default)):
        try:
            _replace(gm, cat, sizes)
            count += 1
        except _Refusal as why:
            logger.debug("Skip %s: %s", cat.name, why)
    if count:
        logger.info("Optimized %s cat node(s)", count)
    return count
