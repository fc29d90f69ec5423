# SPDX-License-Identifier: Apache-2.0
"""Memory of the devices and pinned memory of the host: statistics, limits, snapshots, pools."""
import contextlib
import ctypes
import pickle
import sys
import warnings
from collections import OrderedDict

import torch
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu.npu.device import _get_device_index, _lazy_init, is_initialized
from torch_npu.npu.streams import _BaseStream
from torch_npu.npu.utils import mem_get_info

__all__ = [
    "MemPool",
    "NPUPluggableAllocator",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "change_current_allocator",
    "empty_cache",
    "empty_virt_addr_cache",
    "get_allocator_backend",
    "get_per_process_memory_fraction",
    "host_empty_cache",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def _index(device):
    """The device's index; initialises."""
    _lazy_init()
    return _get_device_index(device, optional=True)


def _check_stream(stream, what):
    if not isinstance(stream, _BaseStream):
        raise refused(TypeError(f"{what} must be a torch.npu.Stream, not {type(stream).__name__}"))


def _nested(flat):
    nested = {}
    for name, value in flat.items():
        *groups, last = name.split(".")
        place = nested
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return nested


# ---- Caches and limits ----


def empty_cache():
    """Returns cached device memory that nobody uses. Waits for the device, except in a capture."""
    if is_initialized():
        _C._npu_emptyCache()


def host_empty_cache():
    """Returns cached pinned memory that nobody uses."""
    if is_initialized():
        _C._npu_hostEmptyCache()


def empty_virt_addr_cache():
    """The same as empty_cache: ranges of expandable segments go back with their pages."""
    empty_cache()


def set_per_process_memory_fraction(fraction, device=None):
    """How much of the device's memory this process may reserve, from 0.0 to 1.0."""
    if not isinstance(fraction, float):
        raise refused(TypeError(f"fraction must be a float, not {type(fraction).__name__}"))
    if not 0 <= fraction <= 1:
        raise refused(ValueError(f"fraction must lie between 0 and 1, {fraction} does not"))
    _C._npu_setMemoryFraction(fraction, _index(device))


def get_per_process_memory_fraction(device=None):
    return _C._npu_getMemoryFraction(_index(device))


def _set_allocator_settings(settings):
    """Changes settings of the allocators in use: "key:value,key:value", all of them or none."""
    _lazy_init()
    try:
        _C._npu_setMemorySettings(settings)
    except RuntimeError as error:
        raise refused(ValueError(str(error))) from error


def caching_allocator_alloc(size, device=None, stream=None):
    """Device memory as a plain address, for work on ``stream``: a Stream, a raw handle, or None for the current one."""
    if stream is not None and not isinstance(stream, (int, _BaseStream)):
        raise refused(
            TypeError(f"stream must be a torch.npu.Stream or an int (its npu_stream), not {type(stream).__name__}")
        )
    index = _index(device)
    with torch.npu.device(index):
        if isinstance(stream, int) and stream != 0:
            return _C._npu_rawAllocByHandle(size, stream)
        return _C._npu_rawAlloc(size, stream if isinstance(stream, _BaseStream) else torch.npu.current_stream(index))


def caching_allocator_delete(mem_ptr):
    """Gives back what caching_allocator_alloc has returned."""
    _C._npu_rawDelete(mem_ptr)


def erase_stream(tensor, stream):
    """Takes back ``tensor.record_stream(stream)``: the work there that uses the tensor is known to be over."""
    if not isinstance(tensor, torch.Tensor):
        raise refused(TypeError(f"tensor must be a torch.Tensor, not {type(tensor).__name__}"))
    _check_stream(stream, "stream")
    _C._npu_eraseStream(tensor, stream)


# ---- Statistics ----


def memory_stats(device=None):
    """What the allocator counts, by flat names such as ``allocated_bytes.all.peak``. Empty before the first use."""
    if not is_initialized():
        return OrderedDict()
    return OrderedDict(sorted(_C._npu_memoryStats(_index(device)).items()))


def memory_stats_as_nested_dict(device=None):
    """The same as dictionaries in dictionaries."""
    return _nested(memory_stats(device))


def reset_accumulated_memory_stats(device=None):
    """Begins to count what was allocated and freed anew."""
    _C._npu_resetAccumulatedMemoryStats(_index(device))


def reset_peak_memory_stats(device=None):
    """Peaks are what there is now."""
    _C._npu_resetPeakMemoryStats(_index(device))


def _deprecated(old, new):
    warnings.warn(f"torch.npu.{old} is called torch.npu.{new} now", FutureWarning, stacklevel=3)


def reset_max_memory_allocated(device=None):
    _deprecated("reset_max_memory_allocated", "reset_peak_memory_stats, which resets all peaks")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device=None):
    _deprecated("reset_max_memory_cached", "reset_peak_memory_stats, which resets all peaks")
    reset_peak_memory_stats(device)


def memory_allocated(device=None):
    """Bytes that tensors hold."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device=None):
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device=None):
    """Bytes that the allocator has taken from the device, caches included."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device=None):
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def memory_cached(device=None):
    _deprecated("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device=None):
    _deprecated("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def host_memory_stats():
    """What the allocator of pinned memory counts. Empty before the first use."""
    if not is_initialized():
        return OrderedDict()
    return OrderedDict(sorted(_C._npu_hostMemoryStats().items()))


def host_memory_stats_as_nested_dict():
    return _nested(host_memory_stats())


def reset_accumulated_host_memory_stats():
    _lazy_init()
    _C._npu_resetAccumulatedHostMemoryStats()


def reset_peak_host_memory_stats():
    _lazy_init()
    _C._npu_resetPeakHostMemoryStats()


def _as_bytes(value):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 10240 or unit == "GiB":
            return f"{value} {unit}"
        value //= 1024
    return ""


def memory_summary(device=None, abbreviated=False):
    """The statistics as a table."""
    index = _index(device)
    stats = memory_stats(index)
    rows = [
        ("Allocated memory", "allocated_bytes", _as_bytes),
        ("Active memory", "active_bytes", _as_bytes),
        ("Requested memory", "requested_bytes", _as_bytes),
        ("Reserved memory", "reserved_bytes", _as_bytes),
        ("Non-releasable memory", "inactive_split_bytes", _as_bytes),
        ("Allocations", "allocation", str),
        ("Active allocations", "active", str),
        ("Segments", "segment", str),
        ("Non-releasable blocks", "inactive_split", str),
    ]
    pools = [("", "all")] if abbreviated else [("", "all"), ("  large", "large_pool"), ("  small", "small_pool")]
    kinds = ("current", "peak", "allocated", "freed")
    titles = ("Metric", "Now", "Peak", "Allocated in all", "Freed in all")
    lines = [f"{titles[0]:<24}" + "".join(f"{title:>18}" for title in titles[1:])]
    lines.append("-" * len(lines[0]))
    for title, name, show in rows:
        for prefix, pool in pools:
            label = title if pool == "all" else prefix
            values = (show(stats.get(f"{name}.{pool}.{kind}", 0)) for kind in kinds)
            lines.append(f"{label:<24}" + "".join(f"{value:>18}" for value in values))
    if not abbreviated:
        oversize = (("Oversize allocations", "oversize_allocations"), ("Oversize segments", "oversize_segments"))
        for title, name in oversize:
            values = (stats.get(f"{name}.{kind}", 0) for kind in kinds)
            lines.append(f"{title:<24}" + "".join(f"{value:>18}" for value in values))
    lines.append("-" * len(lines[0]))
    head = f"Memory of npu:{index}: out of memory {stats.get('num_ooms', 0)} times, cache flushed "
    return "\n".join([head + f"{stats.get('num_alloc_retries', 0)} times", *lines]) + "\n"


# ---- Snapshots and history ----


def memory_snapshot(mempool_id=None, include_traces=True):
    """The segments of all pools, or of one, with their blocks; with stacks and metadata while those are recorded."""
    _lazy_init()
    pool = (0, 0) if mempool_id is None else tuple(mempool_id)
    segments = _C._npu_memorySnapshot(pool)["segments"]
    if mempool_id is None:
        return segments
    return [segment for segment in segments if segment["segment_pool_id"] == pool]


def _record_memory_history(
    enabled="all",
    context="all",
    stacks="all",
    max_entries=sys.maxsize,
    device=None,
    clear_history=False,
    compile_context=False,
    global_record_annotations=False,
    skip_actions=None,
):
    """Remembers allocations and frees, with the Python stacks that made them.

    ``enabled``: None, "state" (live blocks) or "all" (the last ``max_entries`` events, too). ``context``: which of them
    have stacks; None, "state" (live blocks), "alloc" (allocations among the events, too) or "all" (frees, too).
    ``stacks``: "python" or "all", which are the same here. ``skip_actions``: events that are not kept, such as
    ``["free_requested"]``. Each call forgets what was recorded before. ``device``, ``compile_context`` and
    ``global_record_annotations`` change nothing: all devices are recorded.
    """
    if stacks not in ("python", "all"):
        raise refused(ValueError(f"stacks must be 'python' or 'all', not {stacks!r}"))
    if enabled is not None and enabled not in ("state", "all"):
        raise refused(ValueError(f"enabled must be None, 'state' or 'all', not {enabled!r}"))
    if context is not None and context not in ("state", "alloc", "all"):
        raise refused(ValueError(f"context must be None, 'state', 'alloc' or 'all', not {context!r}"))
    _lazy_init()
    if skip_actions is not None and (
        isinstance(skip_actions, str) or not all(isinstance(action, str) for action in skip_actions)
    ):
        raise refused(TypeError(f"skip_actions must be a list of names of actions, not {skip_actions!r}"))
    _C._npu_recordMemoryHistory(enabled, context, max_entries, list(skip_actions or ()))


def _set_memory_metadata(metadata):
    """Text that goes with every allocation and event recorded from now on, as ``user_metadata``."""
    if not isinstance(metadata, str):
        raise refused(TypeError(f"metadata must be a str, not {type(metadata).__name__}"))
    _C._npu_setMemoryMetadata(metadata)


def _get_memory_metadata():
    return _C._npu_getMemoryMetadata()


def _snapshot(device=None):
    """Everything that the allocator knows, in the form that PyTorch's memory viewer reads."""
    _lazy_init()
    snapshot = _C._npu_memorySnapshot((0, 0))
    if device is not None:
        index = _get_device_index(device, optional=True)
        snapshot["segments"] = [segment for segment in snapshot["segments"] if segment["device"] == index]
        snapshot["device_traces"] = [
            trace if number == index else [] for number, trace in enumerate(snapshot["device_traces"])
        ]
    return snapshot


def _dump_snapshot(filename="dump_snapshot.pickle"):
    """Writes a snapshot: .json, .svg and .html (a timeline) by the ending of the name, else a pickle for the viewer."""
    _lazy_init()
    if str(filename).endswith((".json", ".svg", ".html")):
        _C._npu_dumpSnapshot(str(filename))
        return
    snapshot = _snapshot()
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _save_segment_usage(filename="output.svg", snapshot=None):
    """A picture of the segments and of what is in use in them."""
    from torch_npu.npu._memory_picture import segments_svg

    with open(filename, "w") as file:
        file.write(segments_svg(_snapshot() if snapshot is None else snapshot, by_place=False))


def _save_memory_usage(filename="output.svg", snapshot=None):
    """A picture of the memory in use, by the places that allocated it."""
    from torch_npu.npu._memory_picture import segments_svg

    with open(filename, "w") as file:
        file.write(segments_svg(_snapshot() if snapshot is None else snapshot, by_place=True))


# ---- Pools, allocators ----


class _NPUAllocator:
    """An allocator of device memory, as C functions."""

    def __init__(self, allocator):
        self._allocator = allocator

    def allocator(self):
        return self._allocator


class NPUPluggableAllocator(_NPUAllocator):
    """Two functions of a shared library:

    ``void* alloc(ssize_t size, int device, aclrtStream stream)`` and
    ``void free(void* p, ssize_t size, int device, aclrtStream stream)``. A pool calls ``free`` when the device has
    nothing left to do with the memory; after change_current_allocator it is called as soon as the tensor is gone, and
    work that ``stream`` has still queued may use the memory.
    """

    def __init__(self, path_to_so_file, alloc_fn_name, free_fn_name):
        library = ctypes.CDLL(path_to_so_file)  # stays loaded, whatever becomes of this object
        functions = []
        for name in (alloc_fn_name, free_fn_name):
            try:
                functions.append(ctypes.cast(getattr(library, name), ctypes.c_void_p).value)
            except AttributeError as error:
                raise refused(RuntimeError(f"{path_to_so_file} has no function {name}; is it extern \"C\"?")) from error
        super().__init__(_C._npu_customAllocator(*functions))


def change_current_allocator(allocator):
    """Takes all device memory from this allocator. Once, before the first tensor is made."""
    _C._npu_changeCurrentAllocator(allocator.allocator())


def _get_current_allocator():
    """Its ``allocator()`` is None while memory comes from the caching allocator."""
    return _NPUAllocator(_C._npu_getAllocator())


def get_allocator_backend():
    """"native", or "pluggable" after change_current_allocator."""
    return _C._npu_getAllocatorBackend()


class MemPool(_C._MemPool):
    """A pool of device memory of its own; see use_mem_pool. What was allocated in it outlives it.

    ``allocator``: an NPUPluggableAllocator (or its ``allocator()``) that its memory comes from. ``use_on_oom``: others
    may use its free blocks when the device has no room. ``no_split``: blocks are handed out whole.
    """

    def __init__(self, allocator=None, use_on_oom=False, no_split=False):
        _lazy_init()
        if isinstance(allocator, _NPUAllocator):
            allocator = allocator.allocator()
        super().__init__(allocator, use_on_oom, no_split)

    def snapshot(self):
        """Its segments."""
        return memory_snapshot(self.id)


@contextlib.contextmanager
def use_mem_pool(pool, device=None):
    """Allocations of this thread come from the pool until the end of the scope. Scopes nest: the newest wins."""
    index = _index(device)
    _C._npu_beginAllocateCurrentThreadToPool(index, pool.id)
    try:
        yield
    finally:
        _C._npu_endAllocateToPool(index, pool.id)
        _C._npu_releasePool(index, pool.id)
