# SPDX-License-Identifier: Apache-2.0
"""How tensors of ``npu`` go through queues and pipes of ``torch.multiprocessing``: by a key to their memory.

Both processes then have the same bytes. The sender waits for its device first, and keeps the memory until the receiver
has let go of it: each message has a ticket, a number in memory that both see, which the receiver sets. Tickets are looked
through at the next message and by ``torch.npu.ipc_collect()``. A receiver must have been started with "spawn" or
"forkserver": a forked process cannot use the device. A message must be received while its sender lives.
"""
import multiprocessing.reduction
import os
import threading

import torch
from torch.multiprocessing import reductions as _torch_reductions
from torch_npu import _C
from torch_npu._errors import refused

__all__ = []

_TICKETS = 256  # of one page
_lock = threading.RLock()
_pages = []  # tensors of the CPU in shared memory; a number is 0 while the receiver may use the memory
_free = []  # (page, index)
_lent = {}  # (page, index) -> (storage, key): what was sent and is not back yet
_opened = {}  # key -> [address, how many storages are over it]
_unreleased = []  # functions that could not wait when they were called


def _after_fork():
    for table in (_pages, _free, _lent, _opened, _unreleased):
        table.clear()


os.register_at_fork(after_in_child=_after_fork)


def _release_rest():
    while _unreleased and not torch.npu.is_current_stream_capturing():
        _unreleased.pop()()


def _collect():
    """Frees what receivers have let go of."""
    _release_rest()
    with _lock:
        back = [ticket for ticket in _lent if _pages[ticket[0]][ticket[1]].item()]
        for ticket in back:
            _, key = _lent.pop(ticket)
            _pages[ticket[0]][ticket[1]] = 0
            _free.append(ticket)
            _C._npu_closeMemory(key)


def _ticket():
    if not _free:
        _pages.append(torch.zeros(_TICKETS, dtype=torch.int64).share_memory_())
        _free.extend((len(_pages) - 1, index) for index in range(_TICKETS))
    return _free.pop()


def _segment_of(address, size):
    for segment in torch.npu.memory_snapshot():
        if segment["address"] <= address and address + size <= segment["address"] + segment["total_size"]:
            if segment.get("is_expandable"):
                raise refused(
                    RuntimeError(
                        "this tensor of npu cannot be sent to another process: it lies in an expandable segment; unset "
                        "expandable_segments in PYTORCH_NPU_ALLOC_CONF, or send tensor.cpu()"
                    )
                )
            return segment["address"], segment["total_size"]
    raise refused(
        RuntimeError(
            "this tensor of npu cannot be sent to another process: its memory is not of the caching allocator (it "
            "was received from another process, or made over memory of the host); send tensor.clone()"
        )
    )


def _lend(storage):
    """What a receiver needs to have the storage."""
    size = storage.nbytes()
    device = storage.device.index
    if size == 0:
        return None, device, 0, 0, None, 0
    with torch.npu.device(device):
        if torch.npu.is_current_stream_capturing():
            raise refused(
                RuntimeError(
                    "a tensor of npu cannot be sent to another process in a capture; send it after the capture"
                )
            )
        torch.npu.synchronize()  # all streams: queues call this in a thread of their own, whose current stream says nothing
        _collect()
        with _lock:
            base, extent = _segment_of(storage.data_ptr(), size)
            key = _C._npu_exportMemory(base, extent)
            page, index = _ticket()
            _lent[page, index] = storage, key
    return (os.getpid(), key), device, storage.data_ptr() - base, size, _pages[page], index


def _storage_from(handle, device, offset, size, page, index):
    if handle is None:
        return torch.UntypedStorage(0, device=f"npu:{device}")
    owner, key = handle
    torch.npu._lazy_init()
    if owner == os.getpid():
        with _lock:
            storage = next(
                held for ticket, (held, _) in _lent.items() if _pages[ticket[0]].data_ptr() == page.data_ptr()
                and ticket[1] == index
            )
        page[index] = 1
        return storage
    with _lock, torch.npu.device(device):
        if key not in _opened:
            _opened[key] = [_C._npu_importMemory(key), 0]
        _opened[key][1] += 1
        address = _opened[key][0]

    def release():
        torch.npu.synchronize(device)  # work that still reads or writes it
        with _lock:
            _opened[key][1] -= 1
            if _opened[key][1] == 0:
                del _opened[key]
                with torch.npu.device(device):
                    _C._npu_closeMemory(key)
        page[index] = 1

    def release_now_or_later():
        try:
            release()
        except RuntimeError:  # a capture is going on, which forbids to wait
            _unreleased.append(release)

    _release_rest()
    return _C._npu_storageOver(address + offset, size, torch.device("npu", device), release_now_or_later)


def rebuild_npu_tensor(cls, size, stride, offset, dtype, requires_grad, lent):
    """A tensor over the memory of the process that sent it."""
    typed = torch.storage.TypedStorage(wrap_storage=_storage_from(*lent), dtype=dtype, _internal=True)
    tensor = torch._utils._rebuild_tensor(typed, offset, size, stride)
    if cls is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad=requires_grad)
    return tensor.requires_grad_(requires_grad)


def _reduce_tensor(tensor):
    if tensor.device.type != "npu" or tensor.layout != torch.strided or tensor.is_nested:
        return _torch_reductions.reduce_tensor(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        raise refused(
            RuntimeError(
                "a tensor that requires grad and is no leaf cannot be sent: gradients do not go from process to "
                "process; send tensor.detach()"
            )
        )
    torch.utils.hooks.warn_if_has_hooks(tensor)
    lent = _lend(tensor.untyped_storage())
    return rebuild_npu_tensor, (
        type(tensor),
        tensor.size(),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.dtype,
        tensor.requires_grad,
        lent,
    )


def _reduce_storage(storage):
    if storage.device.type != "npu":
        return _torch_reductions.reduce_storage(storage)
    return _storage_from, _lend(storage)


def rebuild_npu_event(device, handle):
    raise refused(
        RuntimeError("events of npu cannot be received from another process; synchronize before the tensor is sent")
    )


def _register():
    for kind in (torch.Tensor, torch.nn.Parameter):
        multiprocessing.reduction.ForkingPickler.register(kind, _reduce_tensor)
    multiprocessing.reduction.ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


_register()
