# SPDX-License-Identifier: Apache-2.0
"""Results of captured graphs: where they lie, who holds them, and what becomes of them when another graph runs in the
same memory."""
import warnings

import torch
import torch_npu
from torch.multiprocessing.reductions import StorageWeakRef
from torchair._acl_concrete_graph.settings import stale_mode
from torchair._acl_concrete_graph.weak import WeakRef
from torchair.core.utils import logger

_C = torch_npu._C


def _is_npu(value):
    return isinstance(value, torch.Tensor) and value.device.type == "npu"


class Results:
    """Those of one captured graph."""

    def __init__(self, values, statics):
        """``values``: what the capture returned; ``statics``: what it was called with."""
        self.values = []  # for each result: ("value", it), ("input", number, view or None), ("own", number in self.tensors)
        self.tensors = []  # (number of the storage, dtype, size, stride, offset)
        self.storages = []  # (address, bytes)
        self.held = []  # the tensors while this graph was the last to run, else None
        self.weak = []  # the same
        self.alive = []  # StorageWeakRef by storage
        self.owns = True  # its memory: no other graph has run there since
        inputs = {}
        for index, each in enumerate(statics):
            if _is_npu(each) and each.numel():
                inputs.setdefault(each.untyped_storage().data_ptr(), index)
        numbers = {}
        for value in values:
            self.values.append(self._place(value, statics, inputs, numbers))
        self.hold(self.held)

    def _place(self, value, statics, inputs, numbers):
        if not _is_npu(value):
            for index, each in enumerate(statics):
                if value is each and isinstance(value, torch.Tensor):
                    return "input", index, None
            return "value", value
        storage = value.untyped_storage()
        index = inputs.get(storage.data_ptr()) if value.numel() else None
        if index is not None:
            base = statics[index]
            if value is base or (
                value.size() == base.size() and value.stride() == base.stride() and value.dtype == base.dtype
                and value.storage_offset() == base.storage_offset()
            ):  # fmt: skip
                return "input", index, None
            if value.dtype == base.dtype:
                behind = value.storage_offset() - base.storage_offset()
                return "input", index, (value.size(), value.stride(), behind)
        if storage._cdata not in numbers:
            numbers[storage._cdata] = len(self.storages)
            self.storages.append((storage.data_ptr(), storage.nbytes()))
        self.tensors.append(
            (numbers[storage._cdata], value.dtype, tuple(value.size()), tuple(value.stride()), value.storage_offset())
        )
        self.held.append(value)
        return "own", len(self.tensors) - 1

    # ---- Who holds them ----

    def hold(self, tensors):
        self.held = tensors
        self.owns = True
        self.weak = [WeakRef(tensor) for tensor in tensors]
        found = {}
        for (number, *_), tensor in zip(self.tensors, tensors):
            found.setdefault(number, tensor)
        self.alive = [StorageWeakRef(found[number].untyped_storage()) for number in range(len(self.storages))]

    def let_go(self):
        """Only the program holds them from now on."""
        self.held = None

    def living_storages(self):
        """Addresses of the StorageImpl objects that the program still holds."""
        return [each.cdata for each in self.alive if not each.expired()]

    def living(self):
        """The tensors, if all of them are still held by somebody; else None."""
        if self.held is not None:
            return self.held
        tensors = [each() for each in self.weak]
        return None if any(tensor is None for tensor in tensors) else tensors

    def forget(self):
        self.held, self.weak, self.alive = None, [], []

    # ---- Made anew ----

    def rebuild(self, device):
        """New tensors over the same memory. Results that shared a storage share one again."""
        made = [_C._construct_storage_from_data_pointer(address, device, size) for address, size in self.storages]
        tensors = []
        for number, dtype, size, stride, offset in self.tensors:
            metadata = {"dtype": dtype, "size": size, "stride": stride, "storage_offset": offset}
            tensors.append(_C._construct_NPU_Tensor_From_Storage_And_Metadata(metadata, made[number]))
        return tensors, [storage._cdata for storage in made]

    def give(self, args, tensors, clones):
        """What the caller gets."""
        given = []
        for kind, what, *view in self.values:
            if kind == "own":
                given.append(tensors[what].clone() if clones else tensors[what])
            elif kind == "value":
                given.append(what)
            elif view[0] is None:
                given.append(args[what])
            else:
                size, stride, behind = view[0]
                base = args[what]
                given.append(torch.as_strided(base, size, stride, base.storage_offset() + behind))
        return given


class Pool:
    """The memory of all captured graphs of one compiled function, in which each of them overwrites the others."""

    def __init__(self, name, pool, device, is_shared):
        self.name = name
        self.handle = pool
        self.device = torch.device("npu", device)
        self.is_shared = is_shared  # graphs may lie over each other
        self.original = None
        self._stale = stale_mode()
        self._warned = False

    @property
    def is_strict(self):
        return self._stale == "strict"

    def state(self):
        return _C._npu_getCheckpointState(self.device.index, self.handle)

    def clear(self, records, by):
        """All memory is free again. What the program still holds is stale: it loses the memory, and says so when read.

        ``by``: who will overwrite it, as a text.
        """
        stale = []
        for record in records:
            if record.results.owns:
                stale += [(storage, record) for storage in record.results.living_storages()]
            record.results.owns = False
        _C._npu_setCheckpointPoolState(self.device.index, self.original, [storage for storage, _ in stale], [])
        if stale:
            self._warn([record for _, record in stale], by)
        if self._stale in ("error", "strict"):
            for storage, record in stale:
                _C._npu_setStorageError(
                    storage,
                    f"this tensor is a result of {record.title()}, and {by} has overwritten it: captured graphs of one "
                    "compiled function share memory. Use or clone() results before the next call, or compile with "
                    "config.debug.aclgraph.enable_output_clone = True (npugraph_ex: clone_output), or with "
                    "disable_mempool_reuse_in_same_fx = True. REPRISE_TORCH_STALE=warn lets such reads pass",
                )
        logger.debug("After setting to original memory state for fx_graph %s: %s stale storages", self.name, len(stale))

    def _warn(self, records, by):
        if self._warned or self._stale == "off":
            return
        self._warned = True
        warnings.warn(
            f"results of {records[0].title()} that the program still holds may be overwritten by {by}: drop them before, or "
            "set enable_output_clone (npugraph_ex: clone_output)",
            stacklevel=5,
        )

    def restore(self, record):
        """The memory is as after the record's capture; its results own their blocks. Returns the tensors."""
        results = record.results
        tensors = results.living()
        if tensors is not None and not self.is_strict:
            storages = results.living_storages()
            for storage in storages:
                _C._npu_clearStorageError(storage)
            logger.debug("no need to reconstruct output tensors for %s", record.title())
        else:
            tensors, storages = results.rebuild(self.device)
            logger.debug("After reconstructing fx_graph %s: %s output tensors", record.title(), len(tensors))
        _C._npu_setCheckpointPoolState(self.device.index, record.state, [], storages)
        results.hold(tensors)
        return tensors
