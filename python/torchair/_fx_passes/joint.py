# SPDX-License-Identifier: Apache-2.0
"""The patterns of npu_fx_pass: norms, rotations of positions and attention as programs write them, each as one operator.

Only graphs without gradients have them: a backward pass wants what lies between.
"""
import operator

import torch
from torchair.core.utils import logger

aten = torch.ops.aten
npu = torch.ops.npu

_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)
_CASTS = (aten._to_copy.default, torch.ops.prims.convert_element_type.default)


def apply(gm):
    """Replaces all places. Returns how many there were."""
    count = 0
    for target, match in ((aten.mul.Tensor, _norm), (aten.add.Tensor, _rotation), (aten._softmax.default, _attention)):
        for node in list(gm.graph.find_nodes(op="call_function", target=target)):
            found = match(node)
            if found is not None and _replace(gm.graph, *found):
                count += 1
    if count:
        gm.graph.eliminate_dead_code()
    return count


def _replace(graph, last, target, args, kwargs, index):
    """``last``: the node whose value is the result, or the result of this index, of the operator."""
    take = lambda each: each.meta["val"] if isinstance(each, torch.fx.Node) else each  # noqa: E731
    own = last.meta["val"]
    try:
        with own.fake_mode:
            made = target(*[take(each) for each in args], **kwargs)
    except Exception as error:  # what the operator does not take stays as it is
        logger.debug("%s is not fused: %s", last.name, error)
        return False
    made = made if index is None else made[index]
    if made.dtype != own.dtype or not _same(made.shape, own.shape):
        return False
    with graph.inserting_before(last):
        result = graph.call_function(target, args, kwargs)
        if index is not None:
            result = graph.call_function(operator.getitem, (result, index))
    result.meta.update(last.meta)
    last.replace_all_uses_with(result)
    return True


def _is(node, *targets):
    return isinstance(node, torch.fx.Node) and node.op == "call_function" and node.target in targets


def _alone(node, *targets):
    return _is(node, *targets) and len(node.users) == 1


def _user(node):
    return next(iter(node.users)) if len(node.users) == 1 else None


def _shape(node):
    return node.meta["val"].shape


def _dtype(node):
    return node.meta["val"].dtype


def _same(left, right):
    return [str(each) for each in left] == [str(each) for each in right]


def _without_cast(node):
    while _is(node, *_CASTS):
        node = node.args[0]
    return node


def _pairs(node):
    """Both orders of two tensors."""
    if len(node.args) == 2 and all(isinstance(each, torch.fx.Node) for each in node.args):
        yield node.args
        yield node.args[::-1]


# ---- Weight * x * rsqrt(mean(x ** 2) + eps) ----


def _norm(last):
    for weight, normed in _pairs(last):
        normed = _without_cast(normed)
        if not _is(normed, aten.mul.Tensor):
            continue
        for x, factor in _pairs(normed):
            source, eps = _mean_of_squares(factor)
            x = _without_cast(x)
            if source is not x or source is None or len(_shape(weight)) != 1 or not _dtype(weight) == _dtype(x) == _dtype(last):
                continue
            return last, npu.npu_rms_norm.default, (x, weight, eps), {}, 0
    return None


def _mean_of_squares(factor):
    """x and eps of rsqrt(mean(x ** 2) + eps)."""
    if not _alone(factor, aten.rsqrt.default) or not _alone(factor.args[0], aten.add.Tensor):
        return None, None
    mean, eps = factor.args[0].args[:2]
    if not isinstance(eps, float) or not _alone(mean, aten.mean.dim) or list(mean.args[1]) != [-1] or mean.args[2:3] != (True,):
        return None, None
    power = mean.args[0]
    if not _alone(power, aten.pow.Tensor_Scalar) or power.args[1] != 2:
        return None, None
    return _without_cast(power.args[0]), eps


# ---- X * cos + rotated(x) * sin ----


def _rotation(last):
    if last.kwargs:
        return None
    for straight, turned in _pairs(last):
        if not _alone(straight, aten.mul.Tensor) or not _alone(turned, aten.mul.Tensor):
            continue
        for half, sin in _pairs(turned):
            x = _turned(half)
            for source, cos in _pairs(straight):
                if x is not None and source is x and _fits(x, cos) and _fits(x, sin) and _same(_shape(cos), _shape(sin)):
                    return last, npu.npu_rotary_mul.default, (x, cos, sin), {}, None
    return None


def _fits(x, factor):
    shape, own = _shape(x), _shape(factor)
    return len(own) == len(shape) == 4 and _dtype(x) == _dtype(factor) and all(str(b) in ("1", str(a)) for a, b in zip(shape, own))


def _turned(node):
    """x of cat(-x[..., n:], x[..., :n])."""
    if not _alone(node, aten.cat.default) or len(node.args[0]) != 2 or not _alone(node.args[0][0], aten.neg.default):
        return None
    upper, lower = node.args[0][0].args[0], node.args[0][1]
    if not _is(upper, aten.slice.Tensor) or not _is(lower, aten.slice.Tensor) or upper.args[0] is not lower.args[0]:
        return None
    x = lower.args[0]
    rank, size = len(_shape(x)), _shape(x)[-1]
    dims = [each % rank for each in (node.args[1] if len(node.args) > 1 else 0, upper.args[1], lower.args[1])]
    if not isinstance(size, int) or size % 2 or dims != [rank - 1] * 3 or len(lower.args) != 4 or len(upper.args) < 3:
        return None
    is_half = upper.args[2] == size // 2 and lower.args[2:4] == (0, size // 2) and _shape(upper)[-1] == size // 2
    return x if is_half else None


# ---- softmax(q @ k^T * scale) @ v ----


def _attention(softmax):
    if softmax.args[1] not in (-1, len(_shape(softmax)) - 1) or len(_shape(softmax)) != 4:
        return None
    halves = (torch.float16, torch.bfloat16)  # what the operator of the device takes
    scores, scale = _without_cast(softmax.args[0]), 1.0
    if _is(scores, aten.mul.Tensor, aten.div.Tensor) and isinstance(scores.args[1], (int, float)):
        scale = float(scores.args[1] if scores.target is aten.mul.Tensor else 1 / scores.args[1])
        scores = _without_cast(scores.args[0])
    found = _product(scores)
    last = _behind(softmax)
    if found is None or last is None:
        return None
    product = _product(last)
    q, k, v = found[0], found[1], product[1] if product is not None else None
    if v is None or not _is(k, aten.transpose.int) or {each % 4 for each in k.args[1:3]} != {2, 3}:
        return None
    k = k.args[0]
    shapes = [_shape(each) for each in (q, k, v)]
    heads = shapes[0][1]
    if not isinstance(heads, int) or not all(_same(each[:2], shapes[0][:2]) for each in shapes) or not _same(shapes[1], shapes[2]):
        return None
    if not _same(shapes[0][3:], shapes[1][3:]) or _dtype(q) not in halves or not _dtype(q) == _dtype(k) == _dtype(v) == _dtype(last):
        return None
    return last, npu.npu_fusion_attention.default, (q, k, v, heads, "BNSD"), {"scale": scale}, 0


def _product(view):
    """Two tensors of four dims whose product this is."""
    if not _is(view, *_VIEWS) or not _alone(view.args[0], aten.bmm.default) or len(_shape(view)) != 4:
        return None
    parts = [_source(each) for each in view.args[0].args]
    return None if None in parts else parts


def _source(node):
    """What PyTorch has made a batch of matrices of."""
    matrices = _shape(node)[1:]
    while _is(node, *_VIEWS, aten.expand.default, aten.clone.default) and len(_shape(node)) in (3, 4):
        source = node.args[0]
        if node.target is aten.expand.default and not _same(_shape(source), _shape(node)):
            return None  # one head for several
        if len(_shape(node)) == 4 and node.target in _VIEWS:
            break
        node = source
    return node if len(_shape(node)) == 4 and _same(_shape(node)[2:], matrices) else None


def _behind(softmax):
    """The view behind the product that the weights go into, on their own."""
    node = _user(softmax)
    while _alone(node, *_CASTS, *_VIEWS, aten.expand.default):
        node = _user(node)
    if not _alone(node, aten.bmm.default) or _source_of_weights(node.args[0]) is not softmax:
        return None
    return _user(node)


def _source_of_weights(node):
    while _is(node, *_CASTS, *_VIEWS, aten.expand.default):
        node = node.args[0]
    return node
