# SPDX-License-Identifier: Apache-2.0
"""Keys and values that are kept in pages, writes by index, and formats."""
import enum

import torch
from torch_npu import _C
from torch_npu._errors import refused
from torch_npu._ops.checks import check, check_dims, check_type, refuse
from torch_npu._ops.registry import composite, declare, kernel, meta

ops = torch.ops.npu


@meta("npu_scatter_nd_update_")
def _(input, indices, updates):
    count = indices.size(-1) if indices.dim() else 0
    shape = [*indices.shape[:-1], *input.shape[count:]]
    check(
        indices.dim() > 0 and count <= input.dim() and list(updates.shape) == shape,
        "npu_scatter_nd_update_",
        f"updates has shape {list(updates.shape)}, expected {shape}",
    )
    return input


@composite("npu_scatter_nd_update")
def _(input, indices, updates):
    return ops.npu_scatter_nd_update_(input.clone(), indices, updates)


def places_of(slots, block_size):
    """Block and place in it, a row for each token. A slot below 0 is none: its block is one that there is not."""
    slots = slots.reshape(-1).to(torch.int64)
    block = torch.where(slots < 0, torch.full_like(slots, 2**31 - 1), slots.div(block_size, rounding_mode="floor"))
    return torch.stack([block, slots.remainder(block_size)], -1)


def write_pages(name, argument, cache, rows, slots):
    """cache[block, place] = rows[token], for the slots of all tokens. cache: [blocks, block size, ..]."""
    check(cache.dim() >= 2, name, f"{argument} has shape {list(cache.shape)}, expected blocks of tokens")
    check(
        rows.size(0) == slots.numel() and rows.shape[1:].numel() == cache.shape[2:].numel(),
        name,
        f"{argument} has shape {list(cache.shape)} and takes no rows of {list(rows.shape[1:])} for "
        f"{slots.numel()} slots; there are {rows.size(0)} of them",
    )
    check_type(name, argument, cache, rows.dtype)
    check_type(name, "slots", slots, torch.int32, torch.int64)
    ops.npu_scatter_nd_update_(cache, places_of(slots, cache.size(1)), rows.reshape(-1, *cache.shape[2:]))


def _pages(name, argument, cache, rows, cache_mode):
    """The cache as [blocks, block size, ..], with rows to match."""
    check_dims(name, argument, cache, 3, 4)
    if cache.dim() == 4:
        count = rows.shape[1:].numel()
        tiled = cache.size(1) * cache.size(3) == count
        plain = cache.size(2) * cache.size(3) == count
        check(
            tiled or plain,
            name,
            f"{argument} has shape {list(cache.shape)}, which has no room for rows of {list(rows.shape[1:])}",
        )
        if tiled and (cache_mode == "PA_NZ" or not plain):
            return cache.transpose(1, 2)  # [blocks, tiles, block size, size of a tile]
    return cache


declare(
    "_scatter_pages(Tensor key, Tensor(a!) key_cache, Tensor slots, Tensor value, Tensor(b!) value_cache, str mode) "
    "-> ()"
)
declare("_scatter_page(Tensor key, Tensor(a!) key_cache, Tensor slots, str mode) -> ()")


@meta("_scatter_pages", "_scatter_page")
def _(*args):
    return None


def _plain_rows(rows, cache):
    """As [tokens, heads, size], for pages that lie row by row; none where they do not."""
    if cache.dim() != 4 or rows.dim() not in (2, 3) or rows.dtype != cache.dtype:
        return None
    return rows.reshape(rows.size(0), *cache.shape[2:]) if rows.shape[1:].numel() == cache.shape[2:].numel() else None


def _write_both(name, key, value, key_cache, value_cache, slots, cache_mode):
    """One task where both caches lie row by row."""
    # A tiled cache may have the shape of a plain one, too.
    tiled = any(
        cache_mode != "Norm" and cache.dim() == 4 and cache.size(1) * cache.size(3) == rows.shape[1:].numel()
        for cache, rows in ((key_cache, key), (value_cache, value))
    )
    plain = slots.dim() == 1 and slots.dtype in (torch.int32, torch.int64) and not tiled
    keys, values = _plain_rows(key, key_cache), _plain_rows(value, value_cache)
    if plain and keys is not None and values is not None and slots.numel() == keys.size(0) == values.size(0):
        ops._scatter_pages(keys, key_cache, slots, values, value_cache, "Norm")
        return
    _write(name, key, key_cache, slots, cache_mode, "key_cache")
    _write(name, value, value_cache, slots, cache_mode, "value_cache")


def _write(name, key, key_cache, slots, cache_mode, argument):
    check(key.dim() in (2, 3), name, f"rows of {argument} have shape {list(key.shape)}, expected [tokens, heads, size]")
    rows = _plain_rows(key, key_cache) if cache_mode == "Norm" and slots.dim() == 1 else None
    if rows is not None and slots.numel() == rows.size(0) and slots.dtype in (torch.int32, torch.int64):
        ops._scatter_page(rows, key_cache, slots, "Norm")
        return
    write_pages(name, argument, _pages(name, argument, key_cache, key, cache_mode), key, slots)


@composite("npu_scatter_pa_kv_cache")
def npu_scatter_pa_kv_cache(
    key, value, key_cache, value_cache, slot_mapping, *, compress_lens=None, compress_seq_offsets=None, seq_lens=None,
    cache_mode="PA_NZ",
):  # fmt: skip
    name = "npu_scatter_pa_kv_cache"
    refuse(name, compress_lens=compress_lens, compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens)
    check(cache_mode in (None, "Norm", "PA_NZ"), name, f"cache_mode is '{cache_mode}', expected Norm or PA_NZ")
    _write_both(name, key, value, key_cache, value_cache, slot_mapping, cache_mode)


@composite("npu_scatter_pa_cache.value")
def _(key, slot_mapping, *, compress_lens=None, compress_seq_offsets=None, seq_lens=None, key_cache):
    name = "npu_scatter_pa_cache"
    refuse(name, compress_lens=compress_lens, compress_seq_offsets=compress_seq_offsets, seq_lens=seq_lens)
    _write(name, key, key_cache, slot_mapping, "Norm", "key_cache")
    return key_cache


@composite("atb._npu_reshape_and_cache")
def _npu_reshape_and_cache(key, value, key_cache, value_cache, slot_indices):
    _write_both("_npu_reshape_and_cache", key, value, key_cache, value_cache, slot_indices, "Norm")


@composite("atb._npu_reshape_and_cache_siso")
def _npu_reshape_and_cache_siso(key, key_cache, slot_indices):
    _write("_npu_reshape_and_cache_siso", key, key_cache, slot_indices, "Norm", "key_cache")


def read_pages(name, cache, table, lengths, tokens, offsets, is_cumulative):
    """Rows of the pages of all sequences, end to end, and which of the ``tokens`` rows there are."""
    check_dims(name, "block_table", table, 2)
    check_type(name, "block_table", table, torch.int32, torch.int64)
    lengths = lengths.to(cache.device, torch.int64)
    if is_cumulative:
        ends = lengths[1:] if lengths.numel() == table.size(0) + 1 else lengths
    else:
        ends = lengths.cumsum(0)
    check(ends.numel() == table.size(0), name, f"there are {ends.numel()} lengths for {table.size(0)} rows of pages")
    row = torch.arange(tokens, device=cache.device)
    sequence = torch.searchsorted(ends, row, right=True)
    is_there = sequence < ends.numel()
    if ends.numel() == 0 or table.size(1) == 0 or cache.size(0) == 0:
        return cache.new_zeros([tokens, *cache.shape[2:]]), torch.zeros_like(is_there)
    sequence = sequence.clamp(max=ends.numel() - 1)
    begins = torch.cat([ends.new_zeros(1), ends[:-1]])
    place = row - begins[sequence]
    if offsets is not None:
        place = place + offsets.to(cache.device, torch.int64)[sequence]
    page = place.div(cache.size(1), rounding_mode="floor").clamp(0, table.size(1) - 1)
    block = table[sequence, page].to(torch.int64).clamp(0, cache.size(0) - 1)
    return cache[block, place.remainder(cache.size(1))], is_there


def _read_into(name, argument, cache, table, lengths, out, offsets, is_cumulative):
    check(
        out.shape[1:].numel() == cache.shape[2:].numel() and out.dtype == cache.dtype,
        name,
        f"{argument} has shape {list(out.shape)} and type {out.dtype}, but rows of the cache have "
        f"{list(cache.shape[2:])} and {cache.dtype}",
    )
    rows, is_there = read_pages(name, cache, table, lengths, out.size(0), offsets, is_cumulative)
    rows = rows.reshape(out.shape)
    out.copy_(torch.where(is_there.view(-1, *[1] * (out.dim() - 1)), rows, out))


declare(
    "_gather_pages(Tensor key_cache, Tensor value_cache, Tensor block_tables, Tensor seq_lens, Tensor(a!) key, "
    "Tensor(b!) value, Tensor? seq_offset, str mode, bool is_cumulative) -> ()"
)


@meta("_gather_pages")
def _(*args):
    return None


@composite("npu_gather_pa_kv_cache")
def npu_gather_pa_kv_cache(
    key_cache, value_cache, block_tables, seq_lens, key, value, *, seq_offset=None, is_seq_lens_cumsum=False
):
    name = "npu_gather_pa_kv_cache"
    sequences = block_tables.size(0) + (1 if is_seq_lens_cumsum else 0)
    plain = key_cache.dim() == value_cache.dim() == 4 and block_tables.dim() == 2 and seq_lens.numel() == sequences
    plain = plain and all(each.device == key.device for each in (seq_lens, block_tables))
    if plain and all(
        out.dim() == 3 and out.shape[1:] == cache.shape[2:] and out.dtype == cache.dtype
        for out, cache in ((key, key_cache), (value, value_cache))
    ):
        ops._gather_pages(
            key_cache, value_cache, block_tables, seq_lens, key, value, seq_offset, "Norm", is_seq_lens_cumsum
        )
        return
    for argument, cache, out in (("key", key_cache, key), ("value", value_cache, value)):
        cache = _pages(name, argument + "_cache", cache, out, "Norm")
        _read_into(name, argument, cache, block_tables, seq_lens, out, seq_offset, is_seq_lens_cumsum)


@composite("atb.npu_paged_cache_load.out")
def _(key_cache, value_cache, block_table, context_lens, *, seq_starts=None, cumsum=False, key, value):
    for argument, cache, out in (("key", key_cache, key), ("value", value_cache, value)):
        _read_into("npu_paged_cache_load", argument, cache, block_table, context_lens, out, seq_starts, cumsum)
    return key, value


@kernel("atb.npu_paged_cache_load")
def _(key_cache, value_cache, block_table, context_lens, *, seq_starts=None, cumsum=False):
    # How many rows there are depends on the lengths: the host waits for them.
    tokens = int(context_lens[-1] if cumsum else context_lens.sum())
    key = key_cache.new_empty([tokens, *key_cache.shape[2:]])
    value = value_cache.new_empty([tokens, *value_cache.shape[2:]])
    return torch.ops.atb.npu_paged_cache_load.out(
        key_cache, value_cache, block_table, context_lens, seq_starts=seq_starts, cumsum=cumsum, key=key, value=value
    )


@meta("atb.npu_paged_cache_load")
def _(key_cache, value_cache, block_table, context_lens, *, seq_starts=None, cumsum=False):
    raise refused(
        NotImplementedError(
            "npu_paged_cache_load: the sizes of its results depend on data, so it cannot be traced; use the form with out"
        )
    )


# ---- Formats: remembered, the memory stays row by row ----


@kernel("get_npu_format")
def get_npu_format(input):
    return _C._get_npu_format(input)


@meta("get_npu_format")
def _(input):
    return 0 if input.dim() == 4 else 2


def _cast(input, acl_format):
    result = input.clone(memory_format=torch.contiguous_format)
    _C._set_npu_format(result, acl_format)
    return result


class Format(enum.IntEnum):
    """How the hardware lays tensors out. Here the number is remembered, and the memory stays row by row."""

    UNDEFINED = -1
    NCHW = 0
    NHWC = 1
    ND = 2
    NC1HWC0 = 3
    FRACTAL_Z = 4
    NC1HWC0_C04 = 12
    HWCN = 16
    NDHWC = 27
    FRACTAL_NZ = 29
    NCDHW = 30
    NDC1HWC0 = 32
    FRACTAL_Z_3D = 33


_FORMATS = (5, *map(int, Format))


def _check_format(name, acl_format):
    check(acl_format in _FORMATS, name, f"acl_format is {acl_format}, expected one of {_FORMATS}")


def empty_with_format(
    size, dtype=None, layout=torch.strided, device=None, pin_memory=False, acl_format=Format.ND, base_addr_aligned_kb=16
):
    """``torch.empty`` on the device ("npu" unless said otherwise), with a format of the hardware that is remembered."""
    _check_format("empty_with_format", acl_format)
    made = torch.empty(size, dtype=dtype, layout=layout, device=device or "npu", pin_memory=bool(pin_memory))
    check(made.device.type == "npu", "empty_with_format", f"device is {made.device}, expected npu")
    _C._set_npu_format(made, int(acl_format))
    return made


@kernel("npu_format_cast")
def npu_format_cast(input, acl_format, *, customize_dtype=None, input_dtype=None):
    _check_format("npu_format_cast", acl_format)
    return _cast(input, acl_format)


@kernel("npu_format_cast.Tensor")
def _(input, dst, *, customize_dtype=None, input_dtype=None):
    return _cast(input, _C._get_npu_format(dst))


@meta("npu_format_cast", "npu_format_cast.Tensor")
def _(input, acl_format=2, *, dst=None, customize_dtype=None, input_dtype=None):
    return input.new_empty(input.shape)


@kernel("npu_format_cast_.acl_format")
def _(input, acl_format, *, customize_dtype=None, input_dtype=None):
    _check_format("npu_format_cast_", acl_format)
    _C._set_npu_format(input, acl_format)
    return input


@kernel("npu_format_cast_")
def _(input, src, *, customize_dtype=None, input_dtype=None):
    input.copy_(src)
    _C._set_npu_format(input, _C._get_npu_format(src))
    return input


@meta("npu_format_cast_", "npu_format_cast_.acl_format")
def _(input, other, *, customize_dtype=None, input_dtype=None):
    return input
