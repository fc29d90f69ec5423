# SPDX-License-Identifier: Apache-2.0
"""Modules and functions whose forward and backward are replays of graphs."""
import functools

import torch
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree
from torch_npu._errors import refused

__all__ = ["make_graphed_callables"]


class _Callable:
    """One of the callables on its way to graphs."""

    def __init__(self, function, sample_args):
        self.function = function
        self.sample_args = sample_args
        self.user_inputs, self.input_structure = pytree.tree_flatten(sample_args)
        for index, value in enumerate(self.user_inputs):
            if not isinstance(value, torch.Tensor):
                raise refused(
                    RuntimeError(
                        f"sample argument {index} of {_name(function)} is of type {type(value).__name__}: "
                        "graphed callables take only tensors, in any nesting"
                    )
                )
        parameters = tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()
        self.inputs = (*self.user_inputs, *parameters)
        if self.inputs and all(value.device.type == "cpu" for value in self.inputs):
            raise refused(
                RuntimeError(
                    f"{_name(function)} would compute on the CPU, which graphs of npu do not capture: its arguments and "
                    "parameters are all on the CPU; move them first, with module.npu() and tensor.npu()"
                )
            )
        self.parameters = parameters
        self.forward = torch.npu.NPUGraph()
        self.backward = None  # when no result requires grad
        self.results = ()
        self.grad_results = ()
        self.grad_inputs = ()

    def grads(self, results, grad_results, allow_unused):
        return torch.autograd.grad(
            outputs=[result for result in results if result.requires_grad],
            inputs=[value for value in self.inputs if value.requires_grad],
            grad_outputs=[grad for grad in grad_results if grad is not None],
            only_inputs=True,
            allow_unused=allow_unused,
        )

    def has_backward(self, results):
        return any(result.requires_grad for result in results) and any(value.requires_grad for value in self.inputs)

    def warm_up(self, iterations, allow_unused):
        for _ in range(iterations):
            results = pytree.tree_leaves(self.function(*self.sample_args))
            if self.has_backward(results):
                self.grads(results, _grads_like(results), allow_unused)

    def capture_forward(self, pool):
        with torch.npu.graph(self.forward, pool=pool):
            results = self.function(*self.sample_args)
        self.results, self.result_structure = pytree.tree_flatten(results)

    def capture_backward(self, pool, allow_unused):
        self.grad_results = _grads_like(self.results)  # the callers' memory, not the graph's
        if not self.has_backward(self.results):
            return
        self.backward = torch.npu.NPUGraph()
        with torch.npu.graph(self.backward, pool=pool):
            grads = iter(self.grads(self.results, self.grad_results, allow_unused))
        self.grad_inputs = tuple(next(grads) if value.requires_grad else None for value in self.inputs)

    def graphed(self):
        """The function that replays."""
        call = self

        class Graphed(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *inputs):
                for static, value in zip(call.user_inputs, inputs):
                    _fill(static, value)
                call.forward.replay()
                results = tuple(result.detach() for result in call.results)
                ctx.mark_non_differentiable(
                    *(result for result, static in zip(results, call.results) if not static.requires_grad)
                )
                return results

            @staticmethod
            @once_differentiable
            def backward(ctx, *grads):
                for static, grad in zip(call.grad_results, grads):
                    if static is not None and grad is not None:
                        _fill(static, grad)
                call.backward.replay()
                return tuple(None if grad is None else grad.detach() for grad in call.grad_inputs)

        def run(*args):
            values, structure = pytree.tree_flatten(args)
            if structure != call.input_structure:
                raise refused(
                    RuntimeError(
                        f"{_name(call.function)} was graphed for arguments {call.input_structure}, not {structure}"
                    )
                )
            results = Graphed.apply(*values, *call.parameters)
            return pytree.tree_unflatten(results, call.result_structure)

        return run


def _name(function):
    return getattr(function, "__name__", type(function).__name__)


def _grads_like(results):
    return tuple(torch.empty_like(result) if result.requires_grad else None for result in results)


def _fill(static, value):
    if static.data_ptr() != value.data_ptr():
        static.copy_(value)


def _check_module(module):
    if module._backward_hooks or module._forward_hooks or module._forward_pre_hooks:
        raise refused(
            RuntimeError(
                f"{type(module).__name__} has hooks: a graph would not call them; register hooks after graphing it"
            )
        )
    for name, buffer in module.named_buffers():
        if buffer.requires_grad:
            raise refused(RuntimeError(f"buffer {name} of {type(module).__name__} requires grad: make it a parameter"))


def _install(module, graphed):
    """The module's forward replays while it is in the mode (training or not) that was captured."""
    eager = module.forward
    training = module.training

    @functools.wraps(eager)
    def forward(*args, **kwargs):
        if module.training == training and not kwargs:
            return graphed(*args)
        return eager(*args, **kwargs)

    module.forward = forward
    return module


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """Callables (modules, functions; one or a tuple) whose forward and backward replay graphs.

    ``sample_args``: for each callable a tuple of tensors, nested as the real arguments will be; the same shapes, types
    and ``requires_grad``. The callables must be used in the order given, and their backwards in reverse.
    """
    if torch.is_autocast_enabled("npu") and torch.is_autocast_cache_enabled():
        raise refused(
            RuntimeError(
                "make_graphed_callables does not work with the cache of autocast; "
                "use torch.autocast(..., cache_enabled=False)"
            )
        )
    is_single = not isinstance(callables, tuple)
    if is_single:
        callables, sample_args = (callables,), (sample_args,)
    if len(callables) != len(sample_args):
        raise refused(RuntimeError(f"{len(callables)} callables, but sample arguments for {len(sample_args)}"))
    for function in callables:
        if isinstance(function, torch.nn.Module):
            _check_module(function)
    calls = [_Callable(function, tuple(args)) for function, args in zip(callables, sample_args)]

    torch.npu.synchronize()
    with torch.npu.stream(torch.npu.Stream()):
        for call in calls:
            call.warm_up(num_warmup_iters, allow_unused_input)
    torch.npu.synchronize()

    pool = torch.npu.graph_pool_handle() if pool is None else pool
    for call in calls:
        call.capture_forward(pool)
    for call in reversed(calls):
        call.capture_backward(pool, allow_unused_input)

    graphed = [
        _install(call.function, call.graphed()) if isinstance(call.function, torch.nn.Module) else call.graphed()
        for call in calls
    ]
    return graphed[0] if is_single else tuple(graphed)
