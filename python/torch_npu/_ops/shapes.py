# SPDX-License-Identifier: Apache-2.0
"""Operators that move, choose, mark and pack elements."""
import torch
from torch_npu._ops.checks import check, check_dims, check_type
from torch_npu._ops.registry import composite, kernel, meta

ops = torch.ops.npu
functional = torch.nn.functional

# ---- Views and types ----


@composite("npu_dtype_cast_")
def _(input, src):
    return input.copy_(src)


@composite("npu_view_copy")
def _(input, other, non_blocking):
    return input.copy_(other, non_blocking)


@composite("npu_stride_copy")
def _(input, shape, stride, storage_offset):
    name = "npu_stride_copy"
    offset = int(storage_offset)
    check(len(shape) == len(stride), name, f"shape is {list(shape)} and stride {list(stride)}")
    check(min([0, *stride, *shape, offset]) >= 0, name, "shape, stride and storage_offset are not negative")
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride))
    if 0 not in shape:
        check(last < input.numel(), name, f"element {last} is wanted of the {input.numel()} of input")
    return torch.as_strided(input.contiguous(), shape, stride, offset).clone(memory_format=torch.contiguous_format)


def _into(name, out, result):
    check(
        out.shape == result.shape and out.dtype == result.dtype,
        name,
        f"out has shape {list(out.shape)} and type {out.dtype}, expected {list(result.shape)} and {result.dtype}",
    )
    return out.copy_(result)


@composite("npu_stride_copy.out")
def _(input, shape, stride, storage_offset, *, out):
    return _into("npu_stride_copy", out, ops.npu_stride_copy(input, shape, stride, storage_offset))


@composite("npu_indexing")
def _(
    input, begin, end, strides, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0
):
    name = "npu_indexing"
    check(
        ellipsis_mask == new_axis_mask == 0, name, "ellipsis_mask and new_axis_mask are not supported yet; pass 0"
    )
    check(
        len(begin) == len(end) == len(strides) <= input.dim(),
        name,
        f"begin, end and strides are {list(begin)}, {list(end)} and {list(strides)}, for {input.dim()} dims",
    )
    gone = 0
    for place, (first, last, step) in enumerate(zip(begin, end, strides)):
        dim = place - gone
        size = input.size(dim)
        check(step > 0, name, f"strides is {list(strides)}, expected values above 0")
        if shrink_axis_mask >> place & 1:
            check(-size <= first < size, name, f"begin is {list(begin)}, for shape {list(input.shape)}")
            input = input.select(dim, first)
            gone += 1
            continue
        first = 0 if begin_mask >> place & 1 else first
        last = size if end_mask >> place & 1 else last
        first, last, step = slice(first, last, step).indices(size)
        input = torch.ops.aten.slice.Tensor(input, dim, first, max(first, last), step)
    return input.clone(memory_format=torch.contiguous_format)


@composite("npu_indexing.out")
def _(
    input, begin, end, strides, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0, shrink_axis_mask=0, *, out
):
    result = ops.npu_indexing(
        input, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask
    )
    return _into("npu_indexing", out, result)


@composite("npu_pad")
def _(input, paddings):
    name = "npu_pad"
    check(
        len(paddings) == 2 * input.dim() and min([0, *paddings]) >= 0,
        name,
        f"paddings is {list(paddings)}, expected two sizes for each of {input.dim()} dims, the first dim first",
    )
    pairs = [paddings[2 * dim : 2 * dim + 2] for dim in reversed(range(input.dim()))]
    return functional.pad(input, [size for pair in pairs for size in pair])


@composite("npu_stride_add")
def _(input, other, offset1, offset2, c1_len):
    name = "npu_stride_add"
    channels = 16 * int(c1_len)

    def part(argument, tensor, offset):
        check_dims(name, argument, tensor, 5)
        check(
            0 <= offset and tensor.size(1) - offset <= channels,
            name,
            f"{argument} has shape {list(tensor.shape)} and its offset is {offset}, for {channels} channels",
        )
        tensor = tensor[:, int(offset) :]
        return functional.pad(tensor, (0, 0, 0, 0, 0, 0, 0, channels - tensor.size(1)))

    return part("input", input, offset1) + part("other", other, offset2)


@composite("npu_transpose.out")
def _(input, perm, require_contiguous=True, *, out):
    return _into("npu_transpose", out, input.permute(perm))


@composite("npu_reshape.out")
def _(input, shape, can_refresh=False, *, out):
    return _into("npu_reshape", out, input.reshape(shape))


@composite("npu_broadcast.out")
def _(input, size, *, out):
    return _into("npu_broadcast", out, input.expand(size))


@composite("npu_slice.out")
def _(input, offsets, size, *, out):
    return _into("npu_slice", out, ops.npu_slice(input, offsets, size))


# ---- Choices ----


@composite("npu_max.dim", differentiable=True)
def _(input, dim, keepdim=False):
    values, indices = input.max(dim, keepdim)
    return values, indices.to(torch.int32)


@composite("npu_min.dim", differentiable=True)
def _(input, dim, keepdim=False):
    values, indices = input.min(dim, keepdim)
    return values, indices.to(torch.int32)


@composite("npu_sort_v2")
def _(input, dim=-1, descending=False):
    return input.sort(dim=dim, descending=descending).values


@composite("npu_sort_v2.out")
def _(input, dim=-1, descending=False, *, out):
    return _into("npu_sort_v2", out, ops.npu_sort_v2(input, dim, descending))


@composite("npu_gather_sparse_index")
def _(input, index):
    check(input.dim() > 0, "npu_gather_sparse_index", "input has no dims")
    rows = input.index_select(0, index.reshape(-1).to(torch.int64))
    return rows.reshape([*index.shape, *input.shape[1:]])


@composite("npu_gather_sparse_index_backward")
def _(grad, self_sizes, index):
    rows = grad.reshape([index.numel(), *self_sizes[1:]])
    return grad.new_zeros(self_sizes).index_add(0, index.reshape(-1).to(torch.int64), rows)


@composite("npu_one_hot")
def _(input, num_classes=-1, depth=1, on_value=1, off_value=0):
    name = "npu_one_hot"
    check_type(name, "input", input, torch.uint8, torch.int8, torch.int32, torch.int64)
    size = depth if num_classes == -1 else num_classes
    check(size > 0, name, f"depth is {size}, expected a value above 0")
    on, off = (torch.full([], float(value), device=input.device) for value in (on_value, off_value))
    classes = torch.arange(size, device=input.device)
    return torch.where(input.unsqueeze(-1) == classes, on, off)


@composite("npu_masked_fill_range")
def _(input, start, end, value, axis=-1):
    name = "npu_masked_fill_range"
    check_dims(name, "input", input, 1, 2, 3)
    check_dims(name, "start", start, 2)
    check(-input.dim() <= axis < input.dim(), name, f"axis is {axis}, for {input.dim()} dims")
    axis %= input.dim()
    check(
        start.shape == end.shape and value.shape == start.shape[:1] and value.dtype == input.dtype,
        name,
        f"start has shape {list(start.shape)}, end {list(end.shape)} and value {list(value.shape)} of {value.dtype}",
    )
    place = torch.arange(input.size(axis), device=input.device)
    by_row = input.dim() > 1 and axis == input.dim() - 1
    rows = input.size(0) if by_row else start.size(1)
    check(start.size(1) == rows or not by_row, name, f"start has shape {list(start.shape)}, for {rows} rows")
    for number in range(start.size(0)):
        low, high = start[number].unsqueeze(1), end[number].unsqueeze(1)
        marked = (place >= low) & (place < high)  # [rows, size]
        if by_row:
            marked = marked.view(rows, *[1] * (input.dim() - 2), -1)
        else:
            marked = marked.any(0).view(-1, *[1] * (input.dim() - 1 - axis))
        input = torch.where(marked, value[number], input)
    return input.clone(memory_format=torch.contiguous_format)


@composite("npu_scatter")
def _(input, indices, updates, dim):
    name = "npu_scatter"
    check(-input.dim() <= dim < input.dim(), name, f"dim is {dim}, for {input.dim()} dims")
    size = input.size(dim)
    rows = input.numel() // size if size else 0
    check(
        indices.numel() == updates.numel() <= rows,
        name,
        f"there are {indices.numel()} indices and {updates.numel()} updates for {rows} rows of {size}",
    )
    place = torch.arange(indices.numel(), device=input.device) * size + indices.reshape(-1).to(torch.int64)
    return input.reshape(-1).scatter(0, place, updates.reshape(-1).to(input.dtype)).view(input.shape)


@composite("_npu_index_add")
def _(input, index, source, *, alpha=1):
    return input.index_add(0, index.to(torch.int64), source, alpha=alpha)


@composite("_npu_index_add_")
def _(input, index, source, *, alpha=1):
    return input.index_add_(0, index.to(torch.int64), source, alpha=alpha)


def _scatter_list(name, input, indices, updates, mask, reduce, axis):
    check(reduce == "update", name, f"reduce is '{reduce}', expected update")
    check(
        len(input) > 0 and updates.size(0) == len(input) and indices.size(0) == len(input),
        name,
        f"there are {len(input)} tensors, for updates of {list(updates.shape)} and indices of {list(indices.shape)}",
    )
    check(indices.dim() == 1, name, f"indices has shape {list(indices.shape)}, expected [{len(input)}]")
    results = []
    for number, tensor in enumerate(input):
        dim = axis % updates.dim() - 1 if axis >= 0 else axis % tensor.dim()
        update = updates[number]
        check(
            update.dim() == tensor.dim() and update.size(dim) <= tensor.size(dim),
            name,
            f"updates has shape {list(updates.shape)}, for tensors of {list(tensor.shape)}",
        )
        place = torch.arange(update.size(dim), device=tensor.device) + indices[number].to(torch.int64)
        changed = tensor.index_copy(dim, place, update)
        results.append(changed if mask is None else torch.where(mask[number] != 0, changed, tensor))
    return results


@composite("npu_scatter_list")
def _(input, indices, updates, mask=None, reduce="update", axis=-2):
    return _scatter_list("npu_scatter_list", input, indices, updates, mask, reduce, axis)


@composite("npu_scatter_list_")
def _(input, indices, updates, mask=None, reduce="update", axis=-2):
    changed = _scatter_list("npu_scatter_list_", input, indices, updates, mask, reduce, axis)
    for tensor, value in zip(input, changed):
        tensor.copy_(value)


# ---- Bits ----


@composite("npu_sign_bits_pack")
def _(input, size):
    name = "npu_sign_bits_pack"
    check_dims(name, "input", input, 1)
    check_type(name, "input", input, torch.float16, torch.float32)
    count = (input.numel() + 7) // 8
    check(size > 0 and count % size == 0, name, f"size is {size}, which does not divide {count} bytes")
    # What is missing in the last byte counts as -1.
    signs = functional.pad((input >= 0).to(torch.int32), (0, -input.numel() % 8)).view(-1, 8)
    weights = 2 ** torch.arange(8, device=input.device, dtype=torch.int32)
    return (signs * weights).sum(1).to(torch.uint8).view(size, -1)


@composite("npu_sign_bits_unpack")
def _(input, size, dtype):
    name = "npu_sign_bits_unpack"
    check_dims(name, "input", input, 1)
    check_type(name, "input", input, torch.uint8)
    check(dtype in (torch.float16, torch.float32), name, f"dtype is {dtype}, expected torch.float16 or torch.float32")
    count = input.numel() * 8
    check(size > 0 and count % size == 0, name, f"size is {size}, which does not divide {count} elements")
    places = torch.arange(8, device=input.device, dtype=torch.int32)
    bits = (input.to(torch.int32).unsqueeze(1) >> places).bitwise_and(1)
    return (bits * 2 - 1).to(dtype).view(size, -1)


# ---- By length ----


@composite("npu_normalize_batch")
def _(input, seq_len, normalize_type=0):
    name = "npu_normalize_batch"
    check_dims(name, "input", input, 3)
    check(seq_len.shape == input.shape[:1], name, f"seq_len has shape {list(seq_len.shape)}")
    check(normalize_type in (0, 1), name, f"normalize_type is {normalize_type}, expected 0 (by feature) or 1 (all)")
    dims = [2] if normalize_type == 0 else [1, 2]
    length = seq_len.to(torch.int64).clamp(0, input.size(2)).view(-1, 1, 1)
    known = (torch.arange(input.size(2), device=input.device) < length).float()
    count = length.float() * (1 if normalize_type == 0 else input.size(1))
    wide = input.float()
    mean = (wide * known).sum(dims, keepdim=True) / count
    spread = (((wide - mean) * known).square().sum(dims, keepdim=True) / (count - 1)).sqrt()
    return ((wide - mean) / (spread + 1e-5)).to(input.dtype)


@kernel("npu_prefetch")
def _(input, dependency, max_size, offset=0):
    check(max_size > 0, "npu_prefetch", f"max_size is {max_size}, expected a value above 0")
    check(offset >= 0, "npu_prefetch", f"offset is {offset}, expected no negative value")


@meta("npu_prefetch")
def _(input, dependency, max_size, offset=0):
    return None
