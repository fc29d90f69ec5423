# SPDX-License-Identifier: Apache-2.0
"""Collectives: operators of torch.distributed and of npu_define."""
from torchair import _hcom
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Const
from torchair._ge_concrete_graph.ge_converter.common import reshape
from torchair._ge_concrete_graph.graph import default_graph, is_symbolic
from torchair._ge_concrete_graph.registry import converts

_WORDS = {"sum": "sum", "min": "min", "max": "max", "product": "prod", "prod": "prod"}


def _word(reduction):
    word = _WORDS.get(reduction.lower())
    if word is None:
        raise ValueError(f"a graph reduces by sum, min, max and product, and not by {reduction}")
    return word


def _counts(values):
    if any(is_symbolic(value) for value in values):
        return default_graph().sizes(list(values))
    return Const(list(values), dtype=DataType.DT_INT64)


def _of(tag, ranks, size):
    return _hcom.find_group(tag, ranks, size)


@converts("_c10d_functional.all_reduce", "_c10d_functional.all_reduce_")
def _all_reduce(input, reduce_op, group_name, *, meta_outputs):
    return ge.operator("HcomAllReduce")(input, reduction=_word(reduce_op), group=_hcom.name_of(group_name), fusion=0)


@converts("c10d_functional.all_reduce")
def _old_all_reduce(self, reduce_op, tag, ranks, group_size, *, meta_outputs):
    return ge.operator("HcomAllReduce")(self, reduction=_word(reduce_op), group=_hcom.name_of(_of(tag, ranks, group_size)), fusion=0)


@converts("_c10d_functional.all_reduce_coalesced", "_c10d_functional.all_reduce_coalesced_")
def _all_reduce_coalesced(inputs, reduce_op, group_name, *, meta_outputs):
    return [_all_reduce(each, reduce_op, group_name, meta_outputs=None) for each in inputs]


@converts("_c10d_functional.all_gather_into_tensor")
def _all_gather(input, group_size, group_name, *, meta_outputs):
    return ge.operator("HcomAllGather")(input, group=_hcom.name_of(group_name), rank_size=group_size)


@converts("_c10d_functional.all_gather_into_tensor_coalesced")
def _all_gather_coalesced(inputs, group_size, group_name, *, meta_outputs):
    return [_all_gather(each, group_size, group_name, meta_outputs=None) for each in inputs]


@converts("c10d_functional.all_gather_into_tensor")
def _old_all_gather(shard, tag, ranks, group_size, *, meta_outputs):
    return ge.operator("HcomAllGather")(shard, group=_hcom.name_of(_of(tag, ranks, group_size)), rank_size=group_size)


@converts("_c10d_functional.reduce_scatter_tensor")
def _reduce_scatter(input, reduce_op, group_size, group_name, *, meta_outputs):
    return ge.operator("HcomReduceScatter")(input, reduction=_word(reduce_op), group=_hcom.name_of(group_name), rank_size=group_size)


@converts("_c10d_functional.reduce_scatter_tensor_coalesced")
def _reduce_scatter_coalesced(inputs, reduce_op, group_size, group_name, *, meta_outputs):
    return [_reduce_scatter(each, reduce_op, group_size, group_name, meta_outputs=None) for each in inputs]


@converts("c10d_functional.reduce_scatter_tensor")
def _old_reduce_scatter(input, reduce_op, tag, ranks, group_size, *, meta_outputs):
    return ge.operator("HcomReduceScatter")(
        input, reduction=_word(reduce_op), group=_hcom.name_of(_of(tag, ranks, group_size)), rank_size=group_size
    )


def _broadcast_from(tensor, root, group):
    """``root``: a place in the group."""
    return ge.operator("HcomBroadcast")([tensor], root_rank=root, group=group, size_of_y=1)[0]


@converts("_c10d_functional.broadcast")
def _functional_broadcast(input, src, group_name, *, meta_outputs):
    return _broadcast_from(input, src, _hcom.name_of(group_name))


@converts("npu_define.broadcast")
def _broadcast(self, src, tag, ranks, group_size, group_src=None, *, meta_outputs):
    group = _of(tag, ranks, group_size)
    return _broadcast_from(self, _hcom._position(group, src, group_src), _hcom.name_of(group))


@converts("_c10d_functional.wait_tensor", "c10d_functional.wait_tensor")
def _wait(tensor, *, meta_outputs):
    return ge.operator("Identity")(tensor)


@converts("_c10d_functional.all_to_all_single")
def _all_to_all_single(input, output_split_sizes, input_split_sizes, group_name, *, meta_outputs):
    row = 1
    for size in input.symsize[1:]:
        row = row * size
    send = [size * row for size in input_split_sizes]
    receive = [size * row for size in output_split_sizes]
    return _all_to_all(input, send, _hcom._places(send), receive, _hcom._places(receive), _hcom.name_of(group_name))


@converts("npu_define.all_to_all_single_npu")
def _all_to_all_single_npu(
    input, send_counts, send_displacements, recv_counts, recv_displacements, tag, ranks, group_size, *, meta_outputs
):
    return _all_to_all(
        input, send_counts, send_displacements, recv_counts, recv_displacements, _hcom.name_of(_of(tag, ranks, group_size))
    )


def _all_to_all(input, send, send_places, receive, receive_places, group):
    every = [*send, *receive]
    is_even = not any(is_symbolic(each) for each in every) and len(set(every)) == 1
    if is_even and list(send_places) == _hcom._places(send) and list(receive_places) == _hcom._places(receive):
        return ge.operator("HcomAllToAll")(input, group=group)
    return ge.operator("HcomAllToAllV")(input, _counts(send), _counts(send_places), _counts(receive), _counts(receive_places), group=group)


@converts("npu_define.allgather")
def _allgather(tensor_list, input, tag, ranks, group_size, *, meta_outputs):
    group = _of(tag, ranks, group_size)
    own = _hcom.dist.get_rank(group)
    name = _hcom.name_of(group)
    return [_broadcast_from(input if rank == own else each, rank, name) for rank, each in enumerate(tensor_list)]


@converts("npu_define.allgather_in_tensor")
def _allgather_in_tensor(out, input, tag, ranks, group_size, *, meta_outputs):
    made = ge.operator("HcomAllGather")(input, group=_hcom.name_of(_of(tag, ranks, group_size)), rank_size=group_size)
    return reshape(made, meta_outputs.symsize)


@converts("npu_define._allgather_in_tensor_shape")
def _allgather_in_tensor_shape(input, output_shape, tag, ranks, group_size, *, meta_outputs):
    made = ge.operator("HcomAllGather")(input, group=_hcom.name_of(_of(tag, ranks, group_size)), rank_size=group_size)
    return reshape(made, meta_outputs.symsize)


@converts("npu_define.allgather_in_tensor_uneven")
def _allgather_uneven(input_tensor, send_count, recv_counts, tag, rank_list, group_size, recv_displacements, *, meta_outputs):
    return ge.operator("HcomAllGatherV")(
        input_tensor, _counts([send_count]), _counts(recv_counts), _counts(recv_displacements),
        group=_hcom.name_of(_of(tag, rank_list, group_size)),
    )


@converts("npu_define.reduce_scatter_tensor_uneven")
def _reduce_scatter_uneven(
    input_tensor, send_counts, recv_count, reduce_type, tag, rank_list, group_size, send_displacements, *, meta_outputs
):
    return ge.operator("HcomReduceScatterV")(
        input_tensor, _counts([recv_count]), _counts(send_counts), _counts(send_displacements),
        reduction=_word(reduce_type), group=_hcom.name_of(_of(tag, rank_list, group_size)),
    )


@converts("npu_define._send")
def _send(self, dst, ranks, pg_tag, tag, group_dst=None, shape=None, *, meta_outputs):
    group = _of(pg_tag, ranks, len(ranks))
    ge.operator("HcomSend")(self, group=_hcom.name_of(group), sr_tag=tag, dest_rank=_hcom._position(group, dst, group_dst))


@converts("npu_define._recv")
def _recv(out_tensor, src, ranks, pg_tag, tag, group_src=None, shape=None, *, meta_outputs):
    group = _of(pg_tag, ranks, len(ranks))
    return ge.operator("HcomReceive")(
        group=_hcom.name_of(group), sr_tag=tag, src_rank=_hcom._position(group, src, group_src),
        shape=list(meta_outputs.symsize), dtype=int(meta_outputs.dtype),
    )
