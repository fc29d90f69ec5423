# SPDX-License-Identifier: Apache-2.0
"""Collectives in compiled functions: the operators npu_define, what dynamo makes of the functions of torch.distributed that
PyTorch itself does not trace, and the names under which graphs of the engine find communicators."""
import functools

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed import distributed_c10d

from torchair.core.utils import logger

# ---- Groups ----


def tag_and_ranks(group):
    """A group as operators take it: (tag, ranks, size)."""
    group = group if group is not None else dist.group.WORLD
    return dist.distributed_c10d._get_group_tag(group), dist.get_process_group_ranks(group), dist.get_world_size(group)


def find_group(tag, ranks, size):
    found = _there(tag, list(ranks), 0) if len(ranks) == size else None
    return found or distributed_c10d._find_or_create_pg_by_ranks_and_tag(tag, list(ranks), size)


def name_of(group):
    """The name of the group's communicator, which is created where it is missing; of a group without devices of its own, what
    stands for one."""
    if isinstance(group, str):
        group = distributed_c10d._resolve_process_group(group)
    return _communicator_name(group, True) or stand_in(*record_of(group))


def _communicator_name(group, creates):
    try:
        backend = group._get_backend(torch.device("npu"))
    except RuntimeError:
        return None
    name = getattr(backend, "get_hccl_comm_name", None)
    return name(dist.get_rank(group), init_comm=creates) if name is not None else None


# ---- Groups in other processes ----


def record_of(group):
    """What finds a group in another process: (tag, ranks, which of the groups of these ranks that have no tag of the program).
    Such groups are numbered by their process: their tags may be others in the next one."""
    ranks = dist.get_process_group_ranks(group)
    alike = _alike(ranks)
    return distributed_c10d._get_group_tag(group), ranks, alike.index(group) if group in alike else 0


def stand_in(tag, ranks, place=0):
    """What stands for the name of a communicator where no process has one."""
    return f"tag={tag};rank_list={','.join(map(str, ranks))}"


def _alike(ranks):
    """Groups of these ranks that the program has given no tag, in the order in which they were made."""
    return [each for each in distributed_c10d._world.tags_to_pg.get("", ()) if dist.get_process_group_ranks(each) == list(ranks)]


def _there(tag, ranks, place):
    found = distributed_c10d._find_pg_by_ranks_and_tag(tag, ranks)
    if found is None and tag.startswith("ptd:"):
        found = next(iter(_alike(ranks)[place:]), None)
    return found


def recorded(tag, ranks, place):
    """The group of a record."""
    if not dist.is_initialized():
        raise AssertionError(
            f"the compiled function has collectives of the group {stand_in(tag, ranks)}: call torch.distributed.init_process_group first"
        )
    found = _there(tag, list(ranks), place)
    if found is None:
        raise AssertionError(
            f"the compiled function has collectives of the group {stand_in(tag, ranks)}, which this process does not have: make it "
            "(torch.distributed.new_group) before the first call, or remove the cache"
        )
    return found


def recorded_name(tag, ranks, place):
    """The name that PyTorch has for the group of a record."""
    return recorded(tag, ranks, place).group_name


def communicators():
    """Groups that have a communicator, by its name."""
    if not dist.is_available() or not dist.is_initialized():
        return {}
    named = ((_communicator_name(group, False), group) for group in list(distributed_c10d._world.pg_map))
    return {name: group for name, group in named if name}


def resolve(graph, groups, keeps_names=False):
    """Names of communicators of this process in the place of those of ``groups``: {name in the graph: record, with the name that
    the communicator had}. ``keeps_names``: what the engine has compiled holds these, so that communicators get them."""
    names = {}
    for text, (*record, name) in groups.items():
        group = recorded(*record)
        if keeps_names:
            _rename(group, record, name)
        names[text] = name_of(group)
    for op in graph.op:
        if "group" in op.attr and op.attr["group"].s.decode() in names:
            op.attr["group"].s = names[op.attr["group"].s.decode()].encode()


def _rename(group, record, name):
    own = _communicator_name(group, False)
    if own == "":
        group._get_backend(torch.device("npu"))._set_hccl_comm_name(name)
    elif own != name:
        raise AssertionError(
            f"the graph that the engine has kept names the communicator of the group {stand_in(*record)} {name}, but it is {own} in "
            "this process: name communicators (pg_options.hccl_config = {'group_name': …}), or remove the cache"
        )


def _position(group, rank, group_rank):
    """The place in the group of a rank of the job, or of a rank of the group."""
    if group_rank is not None:
        return group_rank
    return dist.get_group_rank(group, rank)


# ---- Operators ----

_TAIL = "str tag, int[] ranks, int group_size"
_library = torch.library.Library("npu_define", "FRAGMENT")


def _define(name, arguments, result):
    def keep(function):
        _library.define(f"{name}({arguments}) -> {result}")
        _library.impl(name, function, "CompositeExplicitAutograd")
        return function

    return keep


def _meta(name):
    return lambda function: _library.impl(name, function, "Meta")


@_define("allgather", f"Tensor[] tensor_list, Tensor input, {_TAIL}", "Tensor[]")
def _allgather(tensor_list, input, tag, ranks, group_size):
    made = [torch.empty_like(each) for each in tensor_list]
    dist.all_gather(made, input, group=find_group(tag, ranks, group_size))
    return made


@_meta("allgather")
def _(tensor_list, input, tag, ranks, group_size):
    return [torch.empty_like(each) for each in tensor_list]


@_define("allgather_in_tensor", f"Tensor out, Tensor input, {_TAIL}", "Tensor")
def _allgather_in_tensor(out, input, tag, ranks, group_size):
    made = torch.empty_like(out)
    dist.all_gather_into_tensor(made, input, group=find_group(tag, ranks, group_size))
    return made


@_meta("allgather_in_tensor")
def _(out, input, tag, ranks, group_size):
    return torch.empty_like(out)


@_define("_allgather_in_tensor_shape", "Tensor input, SymInt[] output_shape, str tag, int[] ranks, int group_size", "Tensor")
def _allgather_in_tensor_shape(input, output_shape, tag, ranks, group_size):
    made = input.new_empty(output_shape)
    dist.all_gather_into_tensor(made, input, group=find_group(tag, ranks, group_size))
    return made


@_meta("_allgather_in_tensor_shape")
def _(input, output_shape, tag, ranks, group_size):
    return input.new_empty(output_shape)


def _rows(tensor, elements):
    """The shape of so many elements of the tensor's rows."""
    rest = tensor.shape[1:]
    row = 1
    for size in rest:
        row = row * size
    return [elements // row, *rest]


@_define(
    "allgather_in_tensor_uneven",
    "Tensor input_tensor, SymInt send_count, SymInt[] recv_counts, str tag, int[] rank_list, int group_size, SymInt[] recv_displacements",
    "Tensor",
)
def _allgather_in_tensor_uneven(input_tensor, send_count, recv_counts, tag, rank_list, group_size, recv_displacements):
    flat = [input_tensor.new_empty(count) for count in recv_counts]
    dist.all_gather(flat, input_tensor.flatten()[:send_count], group=find_group(tag, rank_list, group_size))
    return _placed(flat, recv_displacements).view(_rows(input_tensor, _end(recv_counts, recv_displacements)))


def _end(counts, places):
    end = 0
    for count, place in zip(counts, places):
        if place + count > end:
            end = place + count
    return end


def _placed(parts, places):
    made = parts[0].new_zeros(_end([len(part) for part in parts], places))
    for part, place in zip(parts, places):
        made[place : place + len(part)] = part
    return made


@_meta("allgather_in_tensor_uneven")
def _(input_tensor, send_count, recv_counts, tag, rank_list, group_size, recv_displacements):
    return input_tensor.new_empty(_rows(input_tensor, sum(recv_counts)))


@_define("broadcast", "Tensor self, int? src, str tag, int[] ranks, int group_size, int? group_src=None", "Tensor")
def _broadcast(self, src, tag, ranks, group_size, group_src=None):
    group = find_group(tag, ranks, group_size)
    made = self.clone()
    dist.broadcast(made, group=group, group_src=_position(group, src, group_src))
    return made


@_meta("broadcast")
def _(self, src, tag, ranks, group_size, group_src=None):
    return torch.empty_like(self)


@_define(
    "all_to_all_single_npu",
    "Tensor input, SymInt[] send_counts, SymInt[] send_displacements, SymInt[] recv_counts, SymInt[] recv_displacements, " + _TAIL,
    "Tensor",
)
def _all_to_all_single_npu(input, send_counts, send_displacements, recv_counts, recv_displacements, tag, ranks, group_size):
    flat = input.flatten()
    sent = torch.cat([flat[place : place + count] for count, place in zip(send_counts, send_displacements)])
    made = flat.new_empty(sum(recv_counts))
    dist.all_to_all_single(made, sent, list(recv_counts), list(send_counts), group=find_group(tag, ranks, group_size))
    return _placed(list(made.split(list(recv_counts))), recv_displacements).view(_rows(input, _end(recv_counts, recv_displacements)))


@_meta("all_to_all_single_npu")
def _(input, send_counts, send_displacements, recv_counts, recv_displacements, tag, ranks, group_size):
    return input.new_empty(_rows(input, sum(recv_counts)))


@_define(
    "reduce_scatter_tensor_uneven",
    "Tensor input_tensor, SymInt[] send_counts, SymInt recv_count, str reduce_type, str tag, int[] rank_list, int group_size, "
    "SymInt[] send_displacements",
    "Tensor",
)
def _reduce_scatter_tensor_uneven(input_tensor, send_counts, recv_count, reduce_type, tag, rank_list, group_size, send_displacements):
    flat = input_tensor.flatten()
    parts = [flat[place : place + count].clone() for count, place in zip(send_counts, send_displacements)]
    made = flat.new_empty(recv_count)
    op = getattr(dist.ReduceOp, {"sum": "SUM", "min": "MIN", "max": "MAX", "product": "PRODUCT", "prod": "PRODUCT"}[reduce_type])
    dist.reduce_scatter(made, parts, op, group=find_group(tag, rank_list, group_size))
    return made.view(_rows(input_tensor, recv_count))


@_meta("reduce_scatter_tensor_uneven")
def _(input_tensor, send_counts, recv_count, reduce_type, tag, rank_list, group_size, send_displacements):
    return input_tensor.new_empty(_rows(input_tensor, recv_count))


_PAIR = "int[] ranks, str pg_tag, int tag, int? group_{}=None, int[]? shape=None"


@_define("_send", f"Tensor self, int? dst, {_PAIR.format('dst')}", "()")
def _send(self, dst, ranks, pg_tag, tag, group_dst=None, shape=None):
    group = find_group(pg_tag, ranks, len(ranks))
    dist.send(self, group=group, tag=tag, group_dst=_position(group, dst, group_dst))


@_meta("_send")
def _(self, dst, ranks, pg_tag, tag, group_dst=None, shape=None):
    return None


@_define("_recv", f"Tensor out_tensor, int? src, {_PAIR.format('src')}", "Tensor")
def _recv(out_tensor, src, ranks, pg_tag, tag, group_src=None, shape=None):
    group = find_group(pg_tag, ranks, len(ranks))
    made = torch.empty_like(out_tensor)
    dist.recv(made, group=group, tag=tag, group_src=_position(group, src, group_src))
    return made


@_meta("_recv")
def _(out_tensor, src, ranks, pg_tag, tag, group_src=None, shape=None):
    return torch.empty_like(out_tensor)


for _name in ("_send", "_recv"):
    torch.fx.node.has_side_effect(getattr(torch.ops.npu_define, _name).default)
del _name

# ---- What functions of torch.distributed are while they are traced ----


def _traced_all_gather(tensor_list, tensor, group=None, async_op=False):
    _not_later(async_op)
    if all(each.shape == tensor.shape for each in tensor_list):
        functional.all_gather_inplace(tensor_list, tensor, group)
        return
    tag, ranks, size = tag_and_ranks(group)
    for to, each in zip(tensor_list, torch.ops.npu_define.allgather(tensor_list, tensor, tag, ranks, size)):
        to.copy_(each)


def _traced_broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    _not_later(async_op)
    tag, ranks, size = tag_and_ranks(group)
    tensor.copy_(torch.ops.npu_define.broadcast(tensor, src, tag, ranks, size, group_src))


def _traced_all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    _not_later(async_op)
    tag, ranks, size = tag_and_ranks(group)
    send = [each.numel() for each in input_tensor_list]
    receive = [each.numel() for each in output_tensor_list]
    made = torch.ops.npu_define.all_to_all_single_npu(
        torch.cat([each.flatten() for each in input_tensor_list]), send, _places(send), receive, _places(receive), tag, ranks, size
    )
    for to, each in zip(output_tensor_list, torch.split(made, receive)):
        to.copy_(each.view(to.shape))


def _traced_send(tensor, dst=None, group=None, tag=0, group_dst=None):
    pg_tag, ranks, _ = tag_and_ranks(group)
    torch.ops.npu_define._send(tensor, dst, ranks, pg_tag, tag, group_dst, None)


def _traced_recv(tensor, src=None, group=None, tag=0, group_src=None):
    pg_tag, ranks, _ = tag_and_ranks(group)
    tensor.copy_(torch.ops.npu_define._recv(tensor, src, ranks, pg_tag, tag, group_src, None))
    return src if src is not None else group_src


def _traced_all_reduce(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
    _not_later(async_op)
    functional.all_reduce_inplace(tensor, functional.REDUCE_OP_TO_STR[op] if not isinstance(op, str) else op, group)


def _traced_all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    _not_later(async_op)
    functional.all_gather_tensor_inplace(output_tensor, input_tensor, group)


def _traced_all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    _not_later(async_op)
    functional.all_to_all_inplace(output, input, output_split_sizes, input_split_sizes, group)


def _places(counts):
    places = []
    place = 0
    for count in counts:
        places.append(place)
        place = place + count
    return places


def _not_later(async_op):
    if async_op:
        raise AssertionError("a collective in a compiled function has no async_op=True: its result is there when it returns")


_TRACED = {
    "all_reduce": _traced_all_reduce,
    "all_gather": _traced_all_gather,
    "all_gather_into_tensor": _traced_all_gather_into_tensor,
    "broadcast": _traced_broadcast,
    "all_to_all_single": _traced_all_to_all_single,
    "all_to_all": _traced_all_to_all,
}
_ORIGINAL = {name: getattr(dist, name) for name in _TRACED}


def _teach_dynamo():
    """Dynamo puts functions of its own in the place of collectives; these it does not have, or not for tensors of different sizes."""
    remaps = functional.traceable_collective_remaps
    for original, traced in (
        (dist.all_gather, _traced_all_gather),
        (dist.broadcast, _traced_broadcast),
        (dist.all_to_all, _traced_all_to_all),
        (dist.send, _traced_send),
        (dist.recv, _traced_recv),
    ):
        if not hasattr(functional, traced.__name__):
            setattr(functional, traced.__name__, traced)
        remaps[original] = traced


_teach_dynamo()


def _replaced(original, traced):
    @functools.wraps(original)
    def call(*args, **kwargs):
        if torch.compiler.is_compiling():
            return traced(*args, **kwargs)
        return original(*args, **kwargs)

    call._original = original
    return call


def patch_for_hcom():
    """Puts functions that can be traced in the place of collectives of torch.distributed. Needed by old releases of PyTorch."""
    logger.warning("For versions 2.3.1 and above of PyTorch, there is no need to call patch_for_hcom anymore.")
    for name, traced in _TRACED.items():
        if getattr(getattr(dist, name), "_original", None) is None:
            setattr(dist, name, _replaced(_ORIGINAL[name], traced))
    _patch_deepspeed()


def _patch_deepspeed():
    try:
        from deepspeed import comm
    except ImportError:
        return
    for name in ("all_reduce", "inference_all_reduce"):
        original = getattr(comm, name, None)
        if original is not None and getattr(original, "_original", None) is None:
            setattr(comm, name, _replaced(original, _traced_all_reduce))
