# SPDX-License-Identifier: Apache-2.0
"""Types of elements: those of PyTorch, of ge::DataType, of models; their bytes."""
import enum

import numpy as np
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torchair._ge_concrete_graph import ge_ir_pb2


class DataType(enum.IntEnum):
    """ge::DataType."""

    DT_FLOAT = 0
    DT_FLOAT16 = 1
    DT_INT8 = 2
    DT_INT32 = 3
    DT_UINT8 = 4
    DT_INT16 = 6
    DT_UINT16 = 7
    DT_UINT32 = 8
    DT_INT64 = 9
    DT_UINT64 = 10
    DT_DOUBLE = 11
    DT_BOOL = 12
    DT_STRING = 13
    DT_DUAL_SUB_INT8 = 14
    DT_DUAL_SUB_UINT8 = 15
    DT_COMPLEX64 = 16
    DT_COMPLEX128 = 17
    DT_QINT8 = 18
    DT_QINT16 = 19
    DT_QINT32 = 20
    DT_QUINT8 = 21
    DT_QUINT16 = 22
    DT_RESOURCE = 23
    DT_STRING_REF = 24
    DT_DUAL = 25
    DT_VARIANT = 26
    DT_BF16 = 27
    DT_UNDEFINED = 28
    DT_INT4 = 29
    DT_UINT1 = 30
    DT_INT2 = 31
    DT_UINT2 = 32
    DT_COMPLEX32 = 33
    DT_HIFLOAT8 = 34
    DT_FLOAT8_E5M2 = 35
    DT_FLOAT8_E4M3FN = 36
    DT_FLOAT8_E8M0 = 37
    DT_FLOAT6_E3M2 = 38
    DT_FLOAT6_E2M3 = 39
    DT_FLOAT4_E2M1 = 40
    DT_FLOAT4_E1M2 = 41


globals().update(DataType.__members__)

# Types that PyTorch cannot name: what a converter says of them stays.
SPECIAL = {DataType.DT_HIFLOAT8, DataType.DT_FLOAT8_E8M0, DataType.DT_FLOAT4_E2M1, DataType.DT_FLOAT4_E1M2}

_TORCH = {
    torch.float32: DataType.DT_FLOAT,
    torch.float16: DataType.DT_FLOAT16,
    torch.bfloat16: DataType.DT_BF16,
    torch.float64: DataType.DT_DOUBLE,
    torch.int8: DataType.DT_INT8,
    torch.int16: DataType.DT_INT16,
    torch.int32: DataType.DT_INT32,
    torch.int64: DataType.DT_INT64,
    torch.uint8: DataType.DT_UINT8,
    torch.uint16: DataType.DT_UINT16,
    torch.uint32: DataType.DT_UINT32,
    torch.uint64: DataType.DT_UINT64,
    torch.bool: DataType.DT_BOOL,
    torch.complex32: DataType.DT_COMPLEX32,
    torch.complex64: DataType.DT_COMPLEX64,
    torch.complex128: DataType.DT_COMPLEX128,
    torch.qint8: DataType.DT_QINT8,
    torch.quint8: DataType.DT_QUINT8,
    torch.qint32: DataType.DT_QINT32,
    torch.float8_e5m2: DataType.DT_FLOAT8_E5M2,
    torch.float8_e4m3fn: DataType.DT_FLOAT8_E4M3FN,
    torch.float8_e8m0fnu: DataType.DT_FLOAT8_E8M0,
}
_BACK = {number: dtype for dtype, number in _TORCH.items()}
_TABLE_NAMES = {str(dtype).removeprefix("torch."): number for dtype, number in _TORCH.items()} | {
    "string": DataType.DT_STRING,
    "int4": DataType.DT_INT4,
    "undefined": DataType.DT_UNDEFINED,
}
FLOATING = {DataType.DT_FLOAT, DataType.DT_FLOAT16, DataType.DT_BF16, DataType.DT_DOUBLE}
INTEGERS = {DataType.DT_INT8, DataType.DT_UINT8, DataType.DT_INT32, DataType.DT_UINT32, DataType.DT_INT64}


def ge_type(dtype):
    """Of a torch.dtype, a number, or a DataType."""
    if isinstance(dtype, torch.dtype):
        if dtype not in _TORCH:
            raise ValueError(f"the graph engine has no type for tensors of {dtype}")
        return _TORCH[dtype]
    return DataType(dtype)


def torch_type(dtype):
    """Of a DataType; None where PyTorch has none."""
    return _BACK.get(dtype)


def named_type(name):
    """By its name in the table of operators; None where the table has another kind of word."""
    return _TABLE_NAMES.get(name)


def to_proto(dtype):
    return getattr(ge_ir_pb2, DataType(dtype).name)


_FROM_PROTO = {getattr(ge_ir_pb2, each.name): each for each in DataType}


def from_proto(number):
    return _FROM_PROTO.get(number, DataType.DT_UNDEFINED)


_QUANTIZED = {
    DataType.DT_QINT8: torch.int8,
    DataType.DT_QINT16: torch.int16,
    DataType.DT_QINT32: torch.int32,
    DataType.DT_QUINT8: torch.uint8,
    DataType.DT_QUINT16: torch.uint16,
}


def natural_type(value):
    """The type that a constant has where nobody says one."""
    if isinstance(value, torch.Tensor):
        return ge_type(value.dtype)
    if isinstance(value, bool):
        return DataType.DT_BOOL
    if isinstance(value, int):
        return DataType.DT_INT64
    if isinstance(value, float):
        return DataType.DT_FLOAT
    if isinstance(value, complex):
        return DataType.DT_COMPLEX64
    if isinstance(value, (list, tuple)) and len(value) == 0:
        return DataType.DT_INT32
    return ge_type(torch.from_numpy(np.ascontiguousarray(value)).dtype)


def tensor_bytes(value, dtype):
    """(bytes of the elements in C order, shape) of a value in a type."""
    with unset_fake_temporarily():
        return _tensor_bytes(value, dtype)


def _tensor_bytes(value, dtype):
    wanted = torch_type(dtype) or _QUANTIZED.get(dtype)
    if dtype in _QUANTIZED:
        wanted = _QUANTIZED[dtype]
    if wanted is None:
        raise ValueError(f"a constant cannot be made of type {DataType(dtype).name}")
    if isinstance(value, torch.Tensor):
        tensor = value.detach()
        if tensor.is_quantized:
            tensor = tensor.int_repr()
        tensor = tensor.cpu().to(wanted)
    elif isinstance(value, np.ndarray):
        tensor = torch.from_numpy(np.ascontiguousarray(value)).to(wanted).reshape(value.shape)
    else:
        tensor = torch.tensor(value, dtype=wanted)
    shape = list(tensor.shape)
    if tensor.is_complex() and tensor.dtype != torch.complex32:
        tensor = torch.view_as_real(tensor.contiguous().resolve_conj())
    flat = tensor.contiguous().reshape(-1)
    if flat.numel() == 0:
        return b"", shape
    return flat.view(torch.uint8).numpy().tobytes(), shape
