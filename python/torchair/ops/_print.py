# SPDX-License-Identifier: Apache-2.0
"""Tensors as text, as npu_print writes them."""
import math

import torch


def _number(value):
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    if isinstance(value, complex):
        return f"{_number(value.real)}{'+' if value.imag >= 0 or math.isnan(value.imag) else ''}{_number(value.imag)}j"
    if math.isfinite(value) and value == int(value):
        return f"{value:.0f}"
    return f"{value:.9g}"


def _rows(values, ends):
    """Nested lists; between the first and the last ``ends`` rows stands a mark if there are more. -1: all rows."""
    if not isinstance(values, list):
        return _number(values)
    shown = list(values)
    if 0 <= ends and len(values) > 2 * ends:
        shown = [*values[:ends], None, *values[-ends:]]
    texts = ["..." if each is None else _rows(each, ends) for each in shown]
    is_flat = not values or not isinstance(values[0], list)
    return "[" + (" " if is_flat else "\n ").join(texts) + "]"


def text_of(tensor, summarize_size, tensor_detail):
    values = tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
    if values.is_floating_point() and values.dtype not in (torch.float32, torch.float64):
        values = values.float()
    data = _rows(values.tolist(), summarize_size)
    if not tensor_detail:
        return data
    return f"tensor({data}, shape={list(tensor.shape)}, dtype={tensor.dtype})"


def _write(tensors, template, summarize_size, tensor_detail):
    texts = [text_of(tensor, summarize_size, tensor_detail) for tensor in tensors]
    print(template.format(*texts), flush=True)


def run_print(tensors, template, summarize_size, tensor_detail):
    """At once; within a capture: at each replay, by a function of the host in stream order."""
    is_captured = any(tensor.device.type == "npu" for tensor in tensors) and torch.npu.is_current_stream_capturing()
    if not is_captured:
        _write([tensor.detach().cpu() for tensor in tensors], template, summarize_size, tensor_detail)
        return
    copies = []
    for tensor in tensors:
        if tensor.device.type == "npu":
            copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            copy.copy_(tensor.contiguous(), non_blocking=True)
            copies.append(copy)
        else:
            copies.append(tensor.clone())
    torch.npu._launch_host_func(
        torch.npu.current_stream(), lambda data: _write(*data), (copies, template, summarize_size, tensor_detail)
    )
