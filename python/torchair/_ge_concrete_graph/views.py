# SPDX-License-Identifier: Apache-2.0
"""Views that are worked out only where a value is needed: a chain of them becomes one transposition at most."""
import contextlib
import threading

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from torchair._ge_concrete_graph.graph import Tensor, default_graph, is_symbolic

aten = torch.ops.aten
_RESHAPES = {aten.view.default, aten.reshape.default, aten._unsafe_view.default}
_DEFERRED = {aten.permute.default, aten.transpose.int, aten.t.default, *_RESHAPES}
_local = threading.local()


class View:
    """What a value would be: ``meta`` of PyTorch, and ``layout``, a tensor without data over the contiguous base."""

    def __init__(self, base, layout, meta):
        self.base, self.layout, self.meta = base, layout, meta
        self.symsize = list(meta.shape)

    @property
    def dtype(self):
        return self.base.dtype


@contextlib.contextmanager
def deferred(is_on):
    outer = getattr(_local, "made", None)
    _local.made = {} if is_on else None
    try:
        yield
    finally:
        _local.made = outer


def defer(target, args, kwargs, meta):
    """A View where the operator is one of those that only look at memory in another way, else None."""
    if getattr(_local, "made", None) is None:
        return None
    value = args[0] if args else None
    if target is aten.clone.default and isinstance(value, View):
        return View(value.base, value.layout, meta)  # values have no memory of their own in a graph
    if target not in _DEFERRED or kwargs:
        return None
    if isinstance(value, View):
        base, layout = value.base, value.layout
    elif isinstance(value, Tensor) and isinstance(value.meta, torch.Tensor):
        base = value
        if _has_unbacked(value.meta.shape):
            return None
        with _mode(value.meta):
            layout = torch.empty(value.meta.shape, dtype=value.meta.dtype, device="meta")
    else:
        return None
    if _has_unbacked(meta.shape):
        return None
    try:
        with _mode(layout):
            if target in _RESHAPES:
                layout = aten.view.default(layout, list(meta.shape))
            else:
                layout = target(layout, *args[1:])
    except Exception:  # not a view of this layout: the chain so far is made, and a new one begins
        if not isinstance(value, View):
            return None
        return defer(target, (materialize(value), *args[1:]), kwargs, meta)
    return View(base, layout, meta)


def _mode(meta):
    mode = getattr(meta, "fake_mode", None)
    return mode if mode is not None else contextlib.nullcontext()


def _has_unbacked(sizes):
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return any(is_symbolic(each) and free_unbacked_symbols(each) for each in sizes)


def materialized(values):
    """The same arguments with Tensors in the place of Views."""
    return torch.fx.node.map_aggregate(values, materialize)


def materialize(value):
    if not isinstance(value, View):
        return value
    made = _local.made if getattr(_local, "made", None) is not None else {}
    key = value.base.tensor, str(tuple(value.layout.shape)), str(tuple(value.layout.stride()))
    if key not in made:
        made[key] = _make(value)
    return made[key]


def _make(view):
    from torchair._ge_concrete_graph import ge_apis as ge

    base, layout = view.base, view.layout
    sizes, strides = list(layout.shape), list(layout.stride())
    if _same(sizes, base.symsize) and (_same(strides, _contiguous(sizes)) or len(sizes) == 0):
        return base
    if layout.is_contiguous():
        return _reshape(base, sizes, view.meta)
    # In the order of memory, without dims of one element.
    dims = [i for i, size in enumerate(sizes) if not statically_known_true(size == 1)]
    order = _by_stride(dims, strides)
    stored = [sizes[i] for i in order]
    result = base if _same(stored, base.symsize) else _reshape(base, stored, None)
    rank = {dim: place for place, dim in enumerate(order)}
    perm = [rank[i] for i in dims]
    if perm != list(range(len(perm))):
        result = ge.operator("Transpose")(result, ge.Const(perm))
        result.desc.dtype = base.desc.dtype
    if len(dims) != len(sizes):
        result = _reshape(result, sizes, view.meta)
    result.set_meta(view.meta)
    return result


def _by_stride(dims, strides):
    """Dims, those of large strides first."""
    hints = {i: strides[i] if isinstance(strides[i], int) else strides[i].node.hint for i in dims}
    return sorted(dims, key=lambda i: -hints[i])


def _reshape(base, sizes, meta):
    from torchair._ge_concrete_graph import ge_apis as ge

    result = ge.operator("Reshape")(base, default_graph().sizes(sizes))
    result.desc.dtype = base.desc.dtype
    if meta is not None:
        result.set_meta(meta)
    return result


def _contiguous(sizes):
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return list(reversed(strides))


def _same(left, right):
    return right is not None and len(left) == len(right) and all(statically_known_true(a == b) for a, b in zip(left, right))
