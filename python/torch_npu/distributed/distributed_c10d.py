# SPDX-License-Identifier: Apache-2.0
"""Collectives that only the backend ``hccl`` has, and its life."""
import torch
from torch_npu._errors import refused
from torch_npu.distributed import _backend


def is_available():
    """Whether torch.distributed can be used with tensors of the device."""
    import torch.distributed

    return torch.distributed.is_available()


def is_hccl_available():
    """Whether groups can be made with ``backend="hccl"``."""
    return is_available()


def _backend_of(group, what):
    """The backend of a group; None when this rank is no member."""
    from torch.distributed import distributed_c10d

    if distributed_c10d._rank_not_in_group(group):
        distributed_c10d._warn_not_in_group(what)
        return None
    group = group or distributed_c10d._get_default_group()
    backend = _backend.unwrapped(group._get_backend(torch.device("npu")))
    if not _backend.is_hccl(backend):
        raise refused(
            RuntimeError(f'{what} needs a process group of the backend "hccl", not "{backend.name()}"; make one with it')
        )
    return backend


def _finished(work, async_op):
    if async_op:
        return work
    work.wait()
    return None


def reduce_scatter_tensor_uneven(output, input, input_split_sizes=None, op=None, group=None, async_op=False):
    """As reduce_scatter_tensor with rows of different numbers: rank r gets ``input_split_sizes[r]`` rows of the
    reduction. Without sizes all get the same."""
    from torch.distributed import ReduceOp, ReduceScatterOptions

    backend = _backend_of(group, "reduce_scatter_tensor_uneven")
    if backend is None:
        return None
    options = ReduceScatterOptions()
    options.reduceOp = ReduceOp.SUM if op is None else op
    return _finished(
        backend.reduce_scatter_tensor_uneven(output, input, list(input_split_sizes or []), options), async_op
    )


def all_gather_into_tensor_uneven(output, input, output_split_sizes=None, group=None, async_op=False):
    """As all_gather_into_tensor with rows of different numbers: rank r contributes ``output_split_sizes[r]`` rows."""
    backend = _backend_of(group, "all_gather_into_tensor_uneven")
    if backend is None:
        return None
    return _finished(backend.all_gather_into_tensor_uneven(output, input, list(output_split_sizes or [])), async_op)


def all_to_all_vc(output, input, send_count_matrix, group=None, async_op=False):
    """All to all with a matrix that all ranks know: rank i sends ``send_count_matrix[i][j]`` rows to rank j. Blocks lie
    in the order of ranks."""
    backend = _backend_of(group, "all_to_all_vc")
    if backend is None:
        return None
    if isinstance(send_count_matrix, torch.Tensor):
        send_count_matrix = send_count_matrix.tolist()
    return _finished(backend.alltoallvc(output, input, [list(row) for row in send_count_matrix]), async_op)


def reinit_process_group(group=None, rebuild_link=True):
    """Makes a group usable again after an operator of it has failed or was aborted; all ranks call it.

    ``rebuild_link``: forget the communicators, so that the next operators make new ones; else resume those that are
    there.
    """
    backend = _backend_of(group, "reinit_process_group")
    if backend is None:
        return
    if rebuild_link:
        backend.abort_hccl_comm("reinit_process_group")
        backend._delete_tcpstore_key()
        backend.clear_workmeta_list()
    else:
        backend.resume_hccl_comm()
