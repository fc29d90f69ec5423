# SPDX-License-Identifier: Apache-2.0
"""The patterns that come with the package: a norm with what follows it, products of batches that are transposed."""
import operator

import torch
from torchair._fx_passes.labels import stream_labels
from torchair.core.utils import logger

aten = torch.ops.aten
npu = torch.ops.npu

_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_CASTS = (aten._to_copy.default, torch.ops.prims.convert_element_type.default)
_INT8 = (1, 12, torch.int8, torch.qint8)
_MOST_INNER = 65536  # what the device's operator takes of the inner dimension


def apply(graph, kind):
    """Replaces all places. Returns how many there were."""
    labels = stream_labels(graph)
    count = 0
    for norm in list(graph.find_nodes(op="call_function", target=npu.npu_add_rms_norm.default)):
        found = _quantised(norm) or _cast(norm) or (kind == "ACL" and _quantised_by_scale(norm))
        if found and _on_one_stream(found[0], labels):
            count += _replace_norm(graph, norm, *found)
    if kind == "ACL":
        for product in list(graph.find_nodes(op="call_function", target=aten.bmm.default)):
            found = _transposed_product(product)
            if found and _on_one_stream(found[0], labels):
                _replace_product(graph, *found)
                count += 1
    if count:
        graph.eliminate_dead_code()
    return count


def _on_one_stream(nodes, labels):
    if len({labels.get(node) for node in nodes}) == 1:
        return True
    logger.debug(
        "cross-stream operation detected: %s are not fused, since they run on several streams",
        [node.name for node in nodes],
    )
    return False


def _value(node):
    return node.meta["val"]


def _shape(node):
    return tuple(_value(node).shape)


def _same(left, right):
    return len(left) == len(right) and all(bool(a == b) for a, b in zip(left, right))


def _only_user(node):
    return next(iter(node.users)) if len(node.users) == 1 else None


def _argument(node, index, name, default=None):
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


# ---- add_rms_norm and what follows ----


def _results(norm):
    """The nodes of y and of x, if nobody needs the statistics; None for one that nobody needs."""
    results = {}
    for user in norm.users:
        if user.target is not operator.getitem or user.args[1] in results:
            return None
        results[user.args[1]] = user
    if 0 not in results or (1 in results and results[1].users):
        return None
    return results[0], results.get(2)


def _behind(norm):
    """y, x, a view between y and its only user or None, and that user."""
    results = _results(norm)
    if results is None:
        return None
    y, x = results
    user, view = _only_user(y), None
    if user is not None and user.target in _VIEWS:
        view, user = user, _only_user(user)
    return None if user is None else (y, x, view, user)


def _quantised(norm):
    found = _behind(norm)
    if found is None:
        return None
    y, x, view, user = found
    if user.target is not npu.npu_dynamic_quant.default or set(user.kwargs) - {"smooth_scales"}:
        return None
    if view is not None:
        before, after = _shape(y), _shape(view)
        if len(before) != 3 or not _same((before[0] * before[1], before[2]), after):
            return None
    smooth = user.kwargs.get("smooth_scales")
    arguments = {"output_mask": [True, False]}
    if smooth is not None:
        arguments["smooth_scale1"] = smooth
    outputs = {each.args[1]: each for each in user.users if each.target is operator.getitem}
    # result of the fused operator: (what it replaces, whether it goes through the view)
    results = {0: (outputs.get(0), view), 3: (outputs.get(1), view), 2: (x, None)}
    return [norm, y, user] + ([view] if view else []), npu.npu_add_rms_norm_dynamic_quant.default, (), arguments, results


def _quantised_by_scale(norm):
    found = _behind(norm)
    if found is None or found[2] is not None:
        return None
    y, x, _, user = found
    if user.target is not npu.npu_quantize.default or _argument(user, 4, "axis", 1) != -1:
        return None
    scales, zero_points = _argument(user, 1, "scales"), _argument(user, 2, "zero_points")
    left, right, gamma = (_value(node) for node in norm.args[:3])
    if left.dtype != right.dtype or left.dtype not in (torch.float16, torch.bfloat16):
        return None
    if _argument(user, 3, "dtype") not in _INT8:
        return None
    if zero_points is not None and _value(zero_points).dtype in (torch.uint8, torch.int8):
        return None
    size = right.shape[-1]
    if not isinstance(size, int) or size * right.element_size() % 32 or not _same(gamma.shape, _shape(scales)):
        return None
    arguments = {"axis": -1, "div_mode": _argument(user, 5, "div_mode", True)}
    results = {0: (user, None), 2: (x, None)}
    return [norm, y, user], npu.npu_add_rms_norm_quant.default, (scales, zero_points), arguments, results


def _cast(norm):
    found = _behind(norm)
    if found is None:
        return None
    y, x, view, user = found
    if user.target not in _CASTS or _argument(user, 1, "dtype") is not torch.float32:
        return None
    if set(user.kwargs) - {"dtype"}:
        return None
    if view is not None and not (len(_shape(view)) == 2 and bool(_shape(view)[-1] == _shape(y)[-1])):
        return None
    results = {0: (user, view), 3: (x, None)}
    return [norm, y, user] + ([view] if view else []), npu.npu_add_rms_norm_cast.default, (), {}, results


def _place(graph, norm, nodes, more, x):
    """Where the fused operator goes, as a node that it comes before; None: there is no such place."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    last = max(nodes, key=order.get)
    if x is None or all(order[user] > order[last] for user in x.users):
        return last
    inputs = [each for each in more if isinstance(each, torch.fx.Node)]
    return norm if all(order[each] < order[norm] for each in inputs) else None


def _replace_norm(graph, norm, nodes, target, more, arguments, results):
    epsilon = _argument(norm, 3, "epsilon")
    if epsilon is not None:
        arguments["epsilon"] = epsilon
    x = next((node for node, _ in results.values() if node is not None and node.args == (norm, 2)), None)
    place = _place(graph, norm, nodes, (*more, *arguments.values()), x)
    if place is None:
        return False
    with graph.inserting_before(place):
        fused = graph.call_function(target, (*norm.args[:3], *more), arguments)
        for index, (node, view) in results.items():
            if node is None:
                continue
            result = graph.call_function(operator.getitem, (fused, index))
            if view is not None:
                sizes = view.args[1] if len(_shape(node)) == 2 else view.args[1][:-1]
                result = graph.call_function(aten.reshape.default, (result, list(sizes)))
            result.meta.update(node.meta)
            node.replace_all_uses_with(result)
    return True


# ---- Bmm and transposes around it ----


def _swaps_first_two(node):
    if node.target is aten.transpose.int:
        dims = {dim % len(_shape(node)) for dim in node.args[1:3]}
        return len(_shape(node)) == 3 and dims == {0, 1}
    return node.target is aten.permute.default and [dim % 3 for dim in node.args[1]] == [1, 0, 2]


def _through_idle(node, passed):
    """What a chain of views and expansions that change nothing is made of."""
    while node.op == "call_function" and node.target in (*_VIEWS, aten.expand.default):
        source = node.args[0]
        if not _same(_shape(node), _shape(source)):
            break
        passed.append(node)
        node = source
    return node


def _transposed_product(product):
    nodes = [product]
    behind = _only_user(product)
    while behind is not None and behind.target in _VIEWS and _same(_shape(behind), _shape(product)):
        nodes.append(behind)
        behind = _only_user(behind)
    if behind is None or not _swaps_first_two(behind):
        return None
    nodes.append(behind)
    left = _through_idle(product.args[0], [])
    right = _through_idle(product.args[1], [])
    order = [0, 1, 2]
    if left.op == "call_function" and _swaps_first_two(left):
        nodes.append(left)
        left, order = left.args[0], [1, 0, 2]
    if _value(left).dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return None
    if _value(left).dtype != _value(right).dtype:
        return None
    batch, inner, columns = _shape(right)
    if not all(isinstance(size, int) for size in (batch, inner, columns)):
        return None
    if inner % 128 or columns % 128:
        return None
    fits = 1 <= inner * batch < _MOST_INNER if order[0] == 1 else inner < _MOST_INNER
    return (nodes, behind, left, right, order) if fits else None


def _replace_product(graph, nodes, last, left, right, order):
    with graph.inserting_before(last):
        fused = graph.call_function(npu.npu_transpose_batchmatmul.default, (left, right), {"perm_x1": order})
    fused.meta.update(last.meta)
    last.replace_all_uses_with(fused)
