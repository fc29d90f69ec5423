# SPDX-License-Identifier: Apache-2.0
"""Passes of both modes: operators that do nothing, sizes that are inputs, views."""
import operator

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torchair.core.utils import logger

aten = torch.ops.aten

_IN_PLACE = {}  # functional operator: its twin


def _twins():
    """Operators whose functional form B.6 turns back, by what this package of operators has."""
    if not _IN_PLACE:
        for name, twin in (
            ("scatter_update", "scatter_update_"),
            ("npu_scatter_nd_update", "npu_scatter_nd_update_"),
            ("npu_quant_scatter", "npu_quant_scatter_"),
        ):
            if hasattr(torch.ops.npu, name) and hasattr(torch.ops.npu, twin):
                _IN_PLACE[getattr(torch.ops.npu, name).default] = getattr(torch.ops.npu, twin).default
    return _IN_PLACE


def remove_noop_ops(gm):
    """Full slices, repeats by one, casts to the same type and the like."""
    try:
        from torch._inductor.fx_passes.post_grad import remove_noop_ops as remove
    except ImportError:
        logger.warning("Skip removing noop ops: this PyTorch has no torch._inductor.fx_passes.post_grad.remove_noop_ops")
        return
    kept = _clones_before_writes(gm.graph)
    remove(gm.graph)
    for clone, target in kept:  # a name for something that is written must stay a copy
        clone.target = target


def _is_written(node):
    """Whether some user writes the node's memory."""
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if schema is None:
            continue
        for argument, value in zip(schema.arguments, user.args):
            if argument.alias_info is not None and argument.alias_info.is_write and value is node:
                return True
    return False


def _kept_clone(x, *, memory_format=None):
    return torch.clone(x, memory_format=memory_format)


def _clones_before_writes(graph):
    """Takes clones that are written, or that are made of something that is, out of sight of the removal."""
    kept = []
    for node in graph.find_nodes(op="call_function", target=aten.clone.default):
        if _is_written(node) or (isinstance(node.args[0], torch.fx.Node) and _is_written(node.args[0])):
            kept.append((node, node.target))
            node.target = _kept_clone
    return kept


def recover_view_inplace(gm, kind):
    """placeholder → view → operator → view → copy_ into the placeholder: the operator writes in place again.

    ``kind``: "GE" or "ACL", for the log.
    """
    graph = gm.graph
    found = 0
    for copy in list(graph.find_nodes(op="call_function", target=aten.copy_.default)):
        node = _functional_update(copy)
        if node is None:
            continue
        found += 1
        with graph.inserting_before(node):
            twin = graph.create_node(
                "call_function", _twins()[node.target], node.args, node.kwargs, name=f"{node.name}_inplace"
            )
        twin.meta.update(node.meta)
        node.replace_all_uses_with(twin)
        logger.info("success to replace non_inplace node %s with %s In %s graph", node.name, twin.name, kind)
        graph.erase_node(node)
        if not copy.users:
            view = copy.args[1]
            graph.erase_node(copy)
            if not view.users:
                graph.erase_node(view)
    logger.info("In fx_graph, find %s matched patterns for view inplace optimization", found)


_SAME_VALUE = (aten.lift_fresh_copy.default, aten.lift_fresh.default, aten.alias.default, aten.clone.default, aten.detach.default)


def place_constants(gm):
    """Copies of constants of the host to the device (``torch.tensor(0, device="npu")``) are made once, ahead of the capture, which
    could not record them; the graph copies what lies on the device. Gives how many there were."""
    graph = gm.graph
    count = 0
    for node in list(graph.find_nodes(op="call_function", target=aten._to_copy.default)):
        source = node.args[0]
        while isinstance(source, torch.fx.Node) and source.target in _SAME_VALUE:
            source = source.args[0]
        if not isinstance(source, torch.fx.Node) or source.op != "get_attr" or _is_written(source) or _is_written(node.args[0]):
            continue
        value = getattr(gm, source.target, None) if isinstance(source.target, str) and "." not in source.target else None
        device = node.kwargs.get("device")
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or device is None or device.type != "npu":
            continue
        with unset_fake_temporarily():
            placed = aten._to_copy.default(value, **{**node.kwargs, "non_blocking": False})
            torch.npu.current_stream(placed.device).synchronize()  # any stream may read it
        name = f"_placed_constant{count}"
        while hasattr(gm, name):
            name += "_"
        gm.register_buffer(name, placed, persistent=False)
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
            copy = graph.call_function(aten.clone.default, (constant,))
        constant.meta["val"] = copy.meta["val"] = node.meta.get("val")
        copy.meta.update(node.meta)
        node.replace_all_uses_with(copy)
        graph.erase_node(node)
        count += 1
    if count:
        graph.eliminate_dead_code()
        gm.recompile()
    return count


def place_inputs(gm):
    """Inputs of the host that the graph uses by nothing but one copy to the device are inputs of the device: whoever calls it
    makes the copy, which a capture could not record. Gives {place among the inputs: (device, type)}, as texts."""
    placed = {}
    for index, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        value = node.meta.get("val")
        users = list(node.users)
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu" or not users:
            continue
        first = users[0]
        is_placed = all(
            user.target is aten._to_copy.default and len(user.args) == 1 and user.kwargs == first.kwargs for user in users
        )
        device = first.kwargs.get("device") if is_placed else None
        if device is None or device.type != "npu" or first.kwargs.get("memory_format") is not None or any(map(_is_written, users)):
            continue
        placed[index] = (str(device), str(first.meta["val"].dtype).removeprefix("torch."))
        for user in users:
            user.replace_all_uses_with(node)
            gm.graph.erase_node(user)
        node.meta["val"] = first.meta["val"]
    if placed:
        gm.recompile()
    return placed


def _is_view(node):
    return isinstance(node, torch.fx.Node) and node.op == "call_function" and node.target is aten.view.default


def _shape(node):
    value = node.meta.get("val")
    return list(value.shape) if isinstance(value, torch.Tensor) else None


def _functional_update(copy):
    if len(copy.args) != 2:
        return None
    place, source = copy.args
    if not isinstance(place, torch.fx.Node) or place.op != "placeholder" or not _is_view(source):
        return None
    if _shape(place) is None or _shape(place) != _shape(source):
        return None
    node = source.args[0]
    if not isinstance(node, torch.fx.Node) or node.target not in _twins():
        return None
    view = node.args[0]
    if not _is_view(view) or view.args[0] is not place:
        return None
    return node if len(view.users) == 1 and len(place.users) == 2 else None


def sizes_of_inputs(gm):
    """An input that is the size of another input is asked of that one, so that it need not be passed."""
    graph = gm.graph
    tensors, numbers = [], []
    for node in graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            tensors.append((node, value))
        elif isinstance(value, torch.SymInt) and node.users:
            numbers.append((node, value))
    if not tensors or not numbers:
        return
    last = list(graph.find_nodes(op="placeholder"))[-1]
    for number, value in numbers:
        text = str(value.node.expr)
        for tensor, like in tensors:
            sizes = [str(size.node.expr) if isinstance(size, torch.SymInt) else None for size in like.shape]
            if text in sizes:
                with graph.inserting_after(last):
                    size = graph.call_function(aten.sym_size.int, (tensor, sizes.index(text)))
                size.meta.update(number.meta)
                number.replace_all_uses_with(size)
                break


def view_to_reshape(gm):
    """Results of a graph may be laid out otherwise than what the tracing has seen."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.view.default):
        node.target = aten.reshape.default


def is_getitem(node, index=None):
    return node.target is operator.getitem and (index is None or node.args[1] == index)
