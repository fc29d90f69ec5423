# SPDX-License-Identifier: Apache-2.0
"""Registers the backend ``hccl``, which is the one of ``npu`` unless a program names another."""
import functools
import os
import sys
import warnings

import torch
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu.distributed import _host_backends


@functools.cache
def _check_patience():
    """Says once when ranks of a rank table are not waited for as long as they may take."""
    seconds = os.environ.get("HCCL_CONNECT_TIMEOUT", "")
    if os.environ.get("RANK_TABLE_FILE") and seconds.isdigit() and int(seconds) < 300:
        warnings.warn(
            f"HCCL_CONNECT_TIMEOUT is {seconds} s; with a rank table (RANK_TABLE_FILE), let it be 300 or more: ranks "
            "that start late are not waited for longer",
            stacklevel=2,
        )


def _make(dist_backend_opts, pg_options):
    """A group of ranks. Options of another class are those of another backend of the same group."""
    _check_patience()
    group_class = _C._distributed_c10d.ProcessGroupHCCL
    options = group_class.Options()
    if isinstance(pg_options, group_class.Options):
        options = pg_options
    options.is_high_priority_stream = False
    options._timeout = dist_backend_opts.timeout
    options.global_ranks_in_group = dist_backend_opts.global_ranks_in_group
    options.group_id = dist_backend_opts.group_id
    return group_class(
        dist_backend_opts.store, dist_backend_opts.group_rank, dist_backend_opts.group_size, options
    )


def _refuse_lccl(dist_backend_opts, pg_options):
    raise refused(
        NotImplementedError('the backend "lccl" is for the hardware alone; use "hccl", which has the same operators')
    )


def unwrapped(backend):
    """The backend inside the one that checks calls (TORCH_DISTRIBUTED_DEBUG=DETAIL), or the backend itself."""
    while hasattr(backend, "wrapped_pg"):
        backend = backend.wrapped_pg
    return backend


def serving_npu(group):
    """The backend that a process group has for ``npu``; None when it has none."""
    try:
        return unwrapped(group._get_backend(torch.device("npu")))
    except RuntimeError:
        return None


def is_hccl(backend):
    return isinstance(backend, _C._distributed_c10d.ProcessGroupHCCL)


def _with_default_backends(make_group):
    """``_new_process_group_helper`` of torch, for which an unnamed backend is hccl on npu and gloo on the CPU."""

    @functools.wraps(make_group)
    def new_process_group_helper(group_size, group_rank, global_ranks_in_group, backend, *args, **kwargs):
        from torch.distributed.distributed_c10d import Backend, ProcessGroup

        if backend is None or backend == Backend.UNDEFINED:
            backend = "cpu:gloo,npu:hccl" if torch.distributed.is_gloo_available() else "hccl"
        made = make_group(group_size, group_rank, global_ranks_in_group, backend, *args, **kwargs)
        group = made[0] if isinstance(made, tuple) else made
        if isinstance(group, ProcessGroup):
            if "," in str(backend) and is_hccl(serving_npu(group)):
                group._set_default_backend(ProcessGroup.BackendType.CUSTOM)  # torch does not find it, and warns
            _host_backends.serve(group)
        return made

    return new_process_group_helper


def _with_sequence_number(original):
    @functools.wraps(original)
    def get_sequence_number(group):
        backend = serving_npu(group)
        return backend._get_sequence_number_for_group() if is_hccl(backend) else original(group)

    return get_sequence_number


def _gathered(numbers, group, device):
    """The numbers of all ranks, which have equally many."""
    mine = torch.tensor(numbers, dtype=torch.int64, device=device)
    parts = [torch.empty_like(mine) for _ in range(group.size())]
    torch.distributed.all_gather(parts, mine, group=group)
    return [part.tolist() for part in parts]


def _with_all_ranks_told(original):
    """torch compares the parameters of ranks with those of rank 0, which itself goes on and waits for the others."""

    @functools.wraps(original)
    def verify_params_across_processes(process_group, params, logger=None):
        if not params or params[0].device.type != "npu" or not is_hccl(serving_npu(process_group)):
            return original(process_group, params, logger)
        device, rank = params[0].device, process_group.rank()
        shapes = [(*param.shape, *param.stride()) for param in params]
        mine = [number for shape in shapes for number in (len(shape), *shape)]
        counts = _gathered([len(params), len(mine)], process_group, device)
        for other, (count, _) in enumerate(counts):
            if count != len(params):
                raise refused(
                    RuntimeError(
                        f"DDP expects same model across all ranks, but Rank {rank} has {len(params)} params, "
                        f"while rank {other} has inconsistent {count} params."
                    )
                )
        longest = max(length for _, length in counts)
        everywhere = _gathered(mine + [0] * (longest - len(mine)), process_group, device)
        for other, theirs in enumerate(everywhere):
            at = 0
            for index, shape in enumerate(shapes):
                if theirs[at : at + len(shape) + 1] != [len(shape), *shape]:
                    raise refused(
                        RuntimeError(
                            f"[Rank {rank}]: params[{index}] in this process with sizes {list(params[index].shape)} "
                            f"appears not to match sizes of the same param in process {other}."
                        )
                    )
                at += len(shape) + 1
        return None

    return verify_params_across_processes


def _with_unwrapped_batches(original):
    @functools.wraps(original)
    def batch_isend_irecv(p2p_op_list):
        from torch.distributed import distributed_c10d

        if not p2p_op_list or not all(isinstance(each, distributed_c10d.P2POp) for each in p2p_op_list):
            return original(p2p_op_list)  # says what is wrong
        group = p2p_op_list[0].group or distributed_c10d._get_default_group()
        if distributed_c10d._rank_not_in_group(group) or p2p_op_list[0].tensor.device.type != "npu":
            return original(p2p_op_list)
        backend = serving_npu(group)
        if not is_hccl(backend) or group._get_backend(torch.device("npu")) is backend:
            return original(p2p_op_list)
        # The one that checks calls knows no batches, and one message after the other may wait for ever.
        distributed_c10d._check_p2p_op_list(p2p_op_list)
        backend._start_coalescing()
        try:
            for each in p2p_op_list:
                call = backend.send if each.op is distributed_c10d.isend else backend.recv
                call([each.tensor], each.group_peer, each.tag)
        finally:
            work = backend._end_coalescing()
        return [work]

    return batch_isend_irecv


def register():
    """Once, when the package is imported, before any other backend for the device."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    distributed_c10d.Backend.register_backend("hccl", _make, extended_api=True, devices=["npu"])
    distributed_c10d.Backend.register_backend("lccl", _refuse_lccl, extended_api=True, devices=["npu"])
    _host_backends.announce()
    distributed_c10d._new_process_group_helper = _with_default_backends(distributed_c10d._new_process_group_helper)
    group_class = distributed_c10d.ProcessGroup
    group_class._get_sequence_number_for_group = _with_sequence_number(group_class._get_sequence_number_for_group)
    from torch_npu.distributed import distributed_c10d as ours

    distributed_c10d.batch_isend_irecv = _with_unwrapped_batches(distributed_c10d.batch_isend_irecv)
    dist.batch_isend_irecv = distributed_c10d.batch_isend_irecv
    verify = _with_all_ranks_told(dist._verify_params_across_processes)
    dist._verify_params_across_processes = verify
    sys.modules["torch._C._distributed_c10d"]._verify_params_across_processes = verify
    _C._distributed_c10d._verify_params_across_processes = verify
    dist.is_hccl_available = ours.is_hccl_available
    dist.reinit_process_group = ours.reinit_process_group
