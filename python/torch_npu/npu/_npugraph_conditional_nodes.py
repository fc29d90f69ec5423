# SPDX-License-Identifier: Apache-2.0
"""``torch.ops.higher_order.cond`` in captures: each branch is the body of a condition of the graph."""
import contextlib

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch_npu._errors import refused

__all__ = ["ControlFlowOpWarmupDispatchMode", "NPUGraphCaptureControlFlowOpDispatchMode", "if_else_node"]


@contextlib.contextmanager
def _body(graph, predicate):
    graph.begin_capture_to_if_node(predicate)
    try:
        yield
    except BaseException as error:
        # Restores streams and pools; the capture is of no use any more, and its end says so.
        with contextlib.suppress(RuntimeError):
            graph._abandon_conditional_node(f"{type(error).__name__}: {error}")
        raise
    graph.end_capture_to_conditional_node()


def if_else_node(pred, true_fn, false_fn, operands):
    """Captures both branches; a replay runs the one that ``pred``, a bool tensor on the device, chooses then."""
    if not isinstance(pred, torch.Tensor) or pred.device.type != "npu":
        where = pred.device if isinstance(pred, torch.Tensor) else type(pred).__name__
        raise refused(ValueError(f"the predicate of a condition in a graph must be on an npu device, not {where}"))
    graph = torch.npu.NPUGraph.get_currently_capturing_graph()
    with _body(graph, pred):
        results, structure = tree_flatten(true_fn(*operands))
        # Copies, because a branch may return what it was given, and the other branch writes here.
        results = [value.clone() if isinstance(value, torch.Tensor) else value for value in results]
    otherwise = torch.logical_not(pred)
    with _body(graph, otherwise):
        others, other_structure = tree_flatten(false_fn(*operands))
        if structure != other_structure:
            raise refused(
                RuntimeError(f"the branches of a condition return {structure} and {other_structure}: they must agree")
            )
        for index, (result, other) in enumerate(zip(results, others)):
            if not isinstance(result, torch.Tensor):
                if result != other:
                    raise refused(
                        RuntimeError(f"result {index} of a condition is {result} or {other}: make it a tensor")
                    )
                continue
            if result.shape != other.shape or result.dtype != other.dtype or result.device != other.device:
                raise refused(
                    RuntimeError(
                        f"result {index} of a condition is {_kind(result)} in one branch and {_kind(other)} in the other"
                    )
                )
            result.copy_(other)
    return tree_unflatten(results, structure)


def _kind(tensor):
    return f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"


@torch.ops.higher_order.cond.py_impl(torch._C.DispatchKey.PrivateUse1)
def _cond(pred, true_fn, false_fn, operands):
    """``torch.cond`` over tensors of npu: a condition of the graph while one is captured, else a choice of the host."""
    on_device = isinstance(pred, torch.Tensor) and pred.device.type == "npu"
    if on_device and torch.npu.is_current_stream_capturing():
        return if_else_node(pred, true_fn, false_fn, operands)
    return true_fn(*operands) if pred else false_fn(*operands)


class NPUGraphCaptureControlFlowOpDispatchMode(TorchDispatchMode):
    """In captures: ``cond`` becomes conditions of the graph, also within branches."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.ops.higher_order.cond:
            with self:
                return if_else_node(*args, **kwargs)
        return func(*args, **kwargs)


class ControlFlowOpWarmupDispatchMode(TorchDispatchMode):
    """Before captures: runs ``cond`` eagerly, and captures it once to no purpose but that both branches are warm."""

    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.capture_stream = torch.npu.Stream()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is not torch.ops.higher_order.cond:
            return func(*args, **kwargs)
        if torch.npu.is_current_stream_capturing():
            with self:
                return if_else_node(*args, **kwargs)
        return self._warm_up(*args, **kwargs)

    def _warm_up(self, pred, true_fn, false_fn, operands):
        graph = torch.npu.NPUGraph()
        try:
            with torch.npu.graph(graph, stream=self.capture_stream, capture_error_mode="relaxed"), self:
                if_else_node(pred, true_fn, false_fn, operands)
        finally:
            graph.reset()
        with self:
            return true_fn(*operands) if pred else false_fn(*operands)
