# SPDX-License-Identifier: Apache-2.0
"""Operators by their type: rows of api/graph_ops, and calls of aclopInferShape and aclopExecuteV2 by operand name.

    call("TopKV2", {"x": x, "k": [3]}, {"dim": 1})  ->  {"values": ..., "indices": ...}
"""

import ctypes

import torch

import aclnn
from aclnn import LIB_DIR, AclError, check, device, memory
from graph_ops_numbers import close

import gen_graph_ops  # noqa: E402 - aclnn knows where it is

ROWS = {row.type: row for rows in gen_graph_ops.read_table().values() for row in rows}
FAMILIES = {row.type: family for family, rows in gen_graph_ops.read_table().items() for row in rows}
NUMBERS = {**aclnn.NUMBERS, torch.float8_e5m2: 35, torch.float8_e4m3fn: 36, torch.float8_e8m0fnu: 37}
HIFLOAT8 = 34  # which PyTorch does not have
TORCH_TYPES = {**{number: dtype for dtype, number in NUMBERS.items()}, HIFLOAT8: torch.uint8}
UNDEFINED, UNKNOWN_RANK, FORMAT_ND = -1, -2, 2

_executor = ctypes.CDLL(str(LIB_DIR / "libacl_op_executor.so"))
_acl = ctypes.CDLL(str(LIB_DIR / "libascendcl.so"))
for _name in ("aclCreateTensorDesc", "aclCreateDataBuffer"):
    getattr(_acl, _name).restype = ctypes.c_void_p
_executor.aclopCreateAttr.restype = ctypes.c_void_p
_acl.aclGetTensorDescNumDims.restype = ctypes.c_size_t
_acl.aclGetTensorDescDim.restype = ctypes.c_int64


def elements(address, count, dtype):
    return memory(address, count, dtype) if count else torch.empty(0, dtype=dtype)


class Known:
    """An input whose value is known at the call, although its operand is no value."""

    def __init__(self, value):
        self.value = value


class Bits:
    """An input of a type that PyTorch does not have, by its bytes."""

    def __init__(self, value, number):
        self.value, self.number = value, number


class Tensor:
    """A descriptor, and a buffer with device memory where there is some."""

    def __init__(self, dims, number, address=0, count=0):
        shape = (ctypes.c_int64 * max(1, len(dims)))(*dims)
        self.desc = ctypes.c_void_p(_acl.aclCreateTensorDesc(number, len(dims), shape, FORMAT_ND))
        self.address = address
        self.buffer = ctypes.c_void_p(_acl.aclCreateDataBuffer(ctypes.c_void_p(address), ctypes.c_size_t(count)))

    @classmethod
    def placed(cls, value):
        number = value.number if isinstance(value, Bits) else NUMBERS[value.dtype]
        value = (value.value if isinstance(value, Bits) else value).detach().contiguous()
        count = value.numel() * value.element_size()
        address = device().allocate(count)
        elements(address, value.numel(), value.dtype).copy_(value.reshape(-1))
        return cls(list(value.shape), number, address, count)

    @classmethod
    def constant(cls, value):
        tensor = cls(list(value.shape), NUMBERS[value.dtype])
        flat = value.contiguous().reshape(-1).view(torch.uint8)
        data = ctypes.create_string_buffer(flat.numpy().tobytes() or b"\0")
        check(_acl.aclSetTensorConst(tensor.desc, data, ctypes.c_size_t(max(1, value.numel() * value.element_size()))),
              "aclSetTensorConst")
        return tensor

    @classmethod
    def absent(cls):
        return cls([], UNDEFINED)

    def dims(self):
        return [_acl.aclGetTensorDescDim(self.desc, ctypes.c_size_t(d))
                for d in range(_acl.aclGetTensorDescNumDims(self.desc))]

    def dtype(self):
        return TORCH_TYPES[_acl.aclGetTensorDescType(self.desc)]

    def destroy(self):
        _acl.aclDestroyTensorDesc(self.desc)
        _acl.aclDestroyDataBuffer(self.buffer)


def arrays(tensors):
    count = max(1, len(tensors))
    return (len(tensors), (ctypes.c_void_p * count)(*[t.desc for t in tensors]),
            (ctypes.c_void_p * count)(*[t.buffer for t in tensors]))


def make_attributes(row, values):
    handle = ctypes.c_void_p(_executor.aclopCreateAttr())
    kinds = {attribute.name: attribute.kind for attribute in row.attributes}
    for name, value in values.items():
        kind, key = kinds[name], name.encode()
        if isinstance(value, torch.dtype):
            value = NUMBERS[value]
        if kind == "Bool":
            status = _executor.aclopSetAttrBool(handle, key, ctypes.c_uint8(value))
        elif kind == "Float":
            status = _executor.aclopSetAttrFloat(handle, key, ctypes.c_float(value))
        elif kind == "String":
            status = _executor.aclopSetAttrString(handle, key, value.encode())
        elif kind == "Ints":
            status = _executor.aclopSetAttrListInt(handle, key, len(value), (ctypes.c_int64 * max(1, len(value)))(*value))
        elif kind == "Bools":
            status = _executor.aclopSetAttrListBool(handle, key, len(value), (ctypes.c_uint8 * max(1, len(value)))(*value))
        elif kind == "Type":
            status = _executor.aclopSetAttrDataType(handle, key, value)
        else:
            status = _executor.aclopSetAttrInt(handle, key, ctypes.c_int64(value))
        check(status, f"attribute {name}")
    return handle


def make_inputs(row, values):
    """Descriptors in the order of the row; those of each operand. Lists of one call are padded to one length."""
    unknown = set(values) - {operand.name for operand in row.inputs}
    assert not unknown, f"{row.type} has no inputs {sorted(unknown)}"
    longest = max([len(values.get(operand.name) or []) for operand in row.inputs if operand.is_list] or [0])
    tensors, by_name = [], {}
    for operand in row.inputs:
        value = values.get(operand.name)
        if operand.is_list:
            made = [Tensor.absent() if item is None else Tensor.placed(item) for item in value or []]
            made += [Tensor.absent() for _ in range(longest - len(made))]
        elif value is None:
            made = [Tensor.absent()]
        elif isinstance(value, Known):
            made = [Tensor.constant(value.value)]
        elif operand.is_value:
            made = [Tensor.constant(value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=torch.int64))]
        else:
            made = [Tensor.placed(value)]
        by_name[operand.name] = made
        tensors += made
    return tensors, by_name


def call(type, inputs, attributes=None, types=None, lengths=None, apart=False, wanted=None):
    """Outputs by name, tensors or lists of them. Shapes are those that aclopInferShape finds out.

    types: of outputs, where the row leaves them to the caller. lengths: of lists of outputs. apart: outputs that are inputs
    written in place get memory of their own. wanted: how many outputs are asked for, all of them if not told.
    """
    row, types, lengths = ROWS[type], types or {}, lengths or {}
    device().reset()
    tensors, by_name = make_inputs(row, inputs)
    attribute_handle = make_attributes(row, attributes or {})
    found, outputs = {}, []
    try:
        for operand in row.outputs[:wanted]:
            ref = by_name.get(operand.name)
            count = lengths.get(operand.name, 1) if operand.is_list and ref is None else len(ref or [None])
            number = NUMBERS.get(types.get(operand.name), types.get(operand.name, UNDEFINED))
            found[operand.name] = [Tensor([UNKNOWN_RANK], number) for _ in range(count)]
            outputs += found[operand.name]
        count, descs, buffers = arrays(tensors)
        out_count, out_descs, out_buffers = arrays(outputs)
        name = type.encode()
        check(_executor.aclopInferShape(name, count, descs, buffers, out_count, out_descs, attribute_handle), type)
        for operand in row.outputs[:wanted]:
            for i, tensor in enumerate(found[operand.name]):
                _acl.aclDestroyDataBuffer(tensor.buffer)
                item = torch.empty((), dtype=tensor.dtype()).element_size()
                size = item
                for dim in tensor.dims():
                    size *= dim
                ref = None if apart else by_name.get(operand.name)
                tensor.address = ref[i].address if ref is not None else device().allocate(size)
                if ref is None:
                    memory(tensor.address, size).fill_(0x5B)
                tensor.buffer = ctypes.c_void_p(_acl.aclCreateDataBuffer(ctypes.c_void_p(tensor.address), ctypes.c_size_t(size)))
        out_count, out_descs, out_buffers = arrays(outputs)
        check(_executor.aclopExecuteV2(name, count, descs, buffers, out_count, out_descs, out_buffers, attribute_handle,
                                       device().stream), type)
        device().synchronize()
        return {operand.name: read(found[operand.name], operand.is_list) for operand in row.outputs[:wanted]}
    finally:
        for tensor in tensors + outputs:
            tensor.destroy()
        _executor.aclopDestroyAttr(attribute_handle)


def infer_nothing(type):
    """A call without operands, which fits no operator but is refused by the first thing that is wrong."""
    count, descs, buffers = arrays([])
    check(_executor.aclopInferShape(type.encode(), count, descs, buffers, count, descs, None), type)


def read(tensors, is_list):
    values = []
    for tensor in tensors:
        count = 1
        for dim in tensor.dims():
            count *= dim
        values.append(elements(tensor.address, count, tensor.dtype()).clone().reshape(tensor.dims()))
    return values if is_list else values[0]


def hold(type, cases):
    """Calls the operator with each case, of inputs, attributes, expectation, scale of the bound and options of the call."""
    for inputs, attributes, expected, scale, options in cases:
        shown = {name: getattr(value, "shape", value) for name, value in inputs.items()}
        try:
            found = call(type, inputs, attributes, **options)
            if isinstance(expected, dict):
                for name, one in expected.items():
                    close(found[name], one, scale)
            else:
                close(next(iter(found.values())), expected, scale)
        except (AssertionError, AclError) as error:
            raise AssertionError(f"{type} {shown} {attributes}: {error}") from None
