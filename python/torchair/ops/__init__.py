# SPDX-License-Identifier: Apache-2.0
"""Operators for use within compiled functions."""
import torch
from torchair.ops import _air, _tables  # noqa: F401

__all__ = [
    "npu_create_tagged_event",
    "npu_fused_infer_attention_score",
    "npu_fused_infer_attention_score_v2",
    "npu_print",
    "npu_record_tagged_stream",
    "npu_tagged_event_record",
    "npu_tagged_event_wait",
    "record",
    "wait",
]


def npu_print(*args, summarize_size=3, tensor_detail=False):
    """Prints tensors, texts and numbers, also from compiled functions: at each run.

    ``summarize_size``: so many values of each dimension are shown at its begin and its end, -1: all.
    """
    if not isinstance(summarize_size, int) or isinstance(summarize_size, bool):
        raise TypeError(f"summarize_size must be int, got {type(summarize_size).__name__}")
    if summarize_size < 1 and summarize_size != -1:
        raise ValueError(f"summarize_size must be greater than or equal to 1, or -1, got {summarize_size}")
    if not isinstance(tensor_detail, bool):
        raise TypeError(f"tensor_detail must be bool, got {type(tensor_detail).__name__}")
    words, tensors = [], []
    for place, value in enumerate(args):
        if isinstance(value, torch.Tensor):
            words.append("{}")
            tensors.append(value)
        elif isinstance(value, (str, bool, float, int)):
            words.append(str(value).replace("{", "{{").replace("}", "}}"))
        else:
            raise TypeError(f"argument {place} of npu_print must be a Tensor, str, bool, float or int, got {type(value).__name__}")
    if not tensors:
        raise ValueError("npu_print needs at least one tensor")
    torch.ops.air.npu_print(tensors, " ".join(words), summarize_size, tensor_detail)


# ---- Order of streams ----


def record():
    """What has been submitted to the current stream so far, for ``wait``."""
    return torch.ops.air.record()


def wait(tensors):
    """What follows on the current stream comes behind these: results of ``record``, or tensors that others make."""
    if not isinstance(tensors, (list, tuple)) or not tensors:
        raise ValueError(f"wait takes a list of tensors that is not empty, got {tensors!r}")
    if not all(isinstance(each, torch.Tensor) for each in tensors):
        raise ValueError("wait takes a list of tensors, but one of its items is something else")
    torch.ops.air.wait(list(tensors))


def npu_create_tagged_event(tag):
    """An event that compiled functions know by its tag."""
    return _tables.create_user_event(tag)


def npu_tagged_event_record(event):
    """Records it on the current stream."""
    torch.ops.air.tagged_event_record(_tables.tag_of(event))


def npu_tagged_event_wait(event):
    """The current stream waits for it."""
    torch.ops.air.tagged_event_wait(_tables.tag_of(event))


def npu_record_tagged_stream(input, tag):
    """The memory of ``input`` is used on the stream with this tag, too; "default" is that of the caller."""
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"npu_record_tagged_stream takes a tensor, not {type(input).__name__}")
    torch.ops.air.record_tagged_stream_(input, tag)


# ---- Attention whose lengths replays update ----


def npu_fused_infer_attention_score(*args, **kwargs):
    return torch.ops.npu.npu_fused_infer_attention_score(*args, **kwargs)


def npu_fused_infer_attention_score_v2(*args, **kwargs):
    return torch.ops.npu.npu_fused_infer_attention_score_v2(*args, **kwargs)
