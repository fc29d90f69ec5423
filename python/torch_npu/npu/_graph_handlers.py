# SPDX-License-Identifier: Apache-2.0
"""Which operators of a captured graph can be given new host arguments, and how."""
import copy
import warnings

import torch
from torch_npu import _C
from torch_npu._errors import refused

__all__ = ["NpuGraphOpHandler", "register_npu_graph_handler"]

_handlers = {}


def register_npu_graph_handler(names):
    """Class decorator: the class handles the operators of these names, such as ``"my_op.default"``."""
    names = [names] if isinstance(names, str) else list(names)

    def register(cls):
        for name in names:
            if name in _handlers:
                before = _handlers[name].__name__
                warnings.warn(f"the handler of {name}, {before}, gives way to {cls.__name__}", stacklevel=2)
            _handlers[name] = cls
        return cls

    return register


def find_handler(name):
    return _handlers.get(name)


def without_ownership(value):
    """What a record keeps of an argument: the place of a device tensor, not its life; copies of everything else."""
    if isinstance(value, torch.Tensor) and value.device.type == "npu":
        return _C._weak_ref_tensor(value)
    if isinstance(value, (list, tuple)):
        items = [without_ownership(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return None if value is None else copy.deepcopy(value)


def to_out_variant(func, args, kwargs):
    """The ``.out`` form of a call, with new tensors for its results: ``(func, args, kwargs)``.

    Every run of the task writes the same memory then, also the one that an update submits.
    """
    packet = func.overloadpacket
    if "out" not in packet.overloads():
        raise refused(RuntimeError(f"{func} has no overload .out, so an update could not write the same results again"))
    out = packet.out

    def to_meta(value):
        if isinstance(value, torch.Tensor) and value.device.type == "npu":
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        return value

    device = next(
        value.device for value in torch.utils._pytree.tree_leaves((args, kwargs)) if getattr(value, "is_npu", False)
    )
    announced = func(
        *torch.utils._pytree.tree_map(to_meta, tuple(args)),
        **torch.utils._pytree.tree_map(to_meta, dict(kwargs)),
    )
    made = [torch.empty_like(meta, device=device) for meta in torch.utils._pytree.tree_leaves(announced)]
    arguments = {argument.name: argument for argument in out._schema.arguments}
    if "workspace" in arguments and "workspace" not in kwargs:
        # Of the graph, since an update could not make one that lasts until the graph runs.
        room = f"_{packet._qualified_op_name.split('::')[1]}_get_max_workspace"
        kwargs = {**kwargs, "workspace": getattr(torch.ops.npu, room)(*args, **kwargs)}
    if "out" in arguments and not arguments["out"].is_out:
        return out, args, {**kwargs, "out": made}  # a list that is written without saying so
    places = [argument for argument in arguments.values() if argument.is_out]
    if len(places) == 1 and not isinstance(places[0].type, torch.TensorType):
        results = {places[0].name: made}
    else:
        if len(places) != len(made):
            raise refused(RuntimeError(f"{func} makes {len(made)} results, but {out} takes {len(places)}"))
        results = {place.name: tensor for place, tensor in zip(places, made)}
    return out, args, {**kwargs, **results}


class NpuGraphOpHandler:
    """How calls of an operator are recorded and updated. Classes are registered, never instances.

    ``UPDATE_SPECS``: ``{"my_op.default": [("arg", 1, "length"), ("kwarg", "scale", "scale")]}`` says that the key
    ``length`` of an update replaces positional argument 1, and ``scale`` the keyword argument ``scale``.
    """

    UPDATE_SPECS = {}

    @classmethod
    def should_handle(cls, func, args, kwargs):
        """False: this call is captured like any other."""
        return True

    @classmethod
    def prepare_capture(cls, func, args, kwargs):
        """The call that is captured, and made again by updates."""
        return func, args, kwargs

    @classmethod
    def postprocess_result(cls, result, kwargs):
        """What the caller gets."""
        return result

    @classmethod
    def get_update_specs(cls, op):
        return cls.UPDATE_SPECS.get(op if isinstance(op, str) else op.__name__, [])

    @classmethod
    def update_args(cls, record, update_input):
        """Puts the values of ``update_input`` into ``record.args`` and ``record.kwargs``."""
        specs = cls.get_update_specs(record.op_name) or cls.get_update_specs(record.op)
        for kind, place, key in specs:
            if key not in update_input:
                continue
            if kind == "kwarg":
                record.kwargs[place] = update_input[key]
            elif place < len(record.args):
                record.args[place] = update_input[key]

    @classmethod
    def record_wrap_kwarg(cls, key, value, tensor_param_names):
        """What a record keeps of a keyword argument."""
        return without_ownership(value) if key in tensor_param_names else copy.deepcopy(value)


def _built_in(names, *specs):
    """A handler for operators that other packages bring: it binds once they exist."""

    class Handler(NpuGraphOpHandler):
        UPDATE_SPECS = {name: [("arg", index, key) for index, key in specs] for name in names}

        @classmethod
        def prepare_capture(cls, func, args, kwargs):
            if func._overloadname == "out":
                return func, args, kwargs
            if "out" not in func.overloadpacket.overloads():
                return func, args, kwargs
            return to_out_variant(func, args, kwargs)

        @classmethod
        def postprocess_result(cls, result, kwargs):
            return kwargs.get("out") if result is None else result

    Handler.__name__ = Handler.__qualname__ = names[0].split(".")[0] + "_handler"
    register_npu_graph_handler(names)(Handler)


def _forms(name):
    return [name, name + ".default", name + ".out"]


_built_in(_forms("npu_fused_infer_attention_score"), (5, "actual_seq_lengths"), (6, "actual_seq_lengths_kv"))
_built_in(_forms("npu_fused_infer_attention_score_v2"), (7, "actual_seq_qlen"), (8, "actual_seq_kvlen"))
_built_in(["_npu_paged_attention.default"], (7, "context_lens"))


def _paged_attention_with_room(cls, func, args, kwargs):
    if kwargs.get("workspace") is None:
        kwargs = {**kwargs, "workspace": torch.ops.atb._npu_paged_attention_get_workspace(*args, **kwargs)}
    return func, args, kwargs


find_handler("_npu_paged_attention.default").prepare_capture = classmethod(_paged_attention_with_room)
_built_in(["npu_multi_head_latent_attention.out"], (5, "context_lens"))
_built_in(_forms("npu_fusion_attention_v3")[1:], (14, "actual_seq_qlen"), (15, "actual_seq_kvlen"))
_built_in(_forms("npu_fusion_attention_grad_v3"), (21, "actual_seq_qlen"), (22, "actual_seq_kvlen"))
