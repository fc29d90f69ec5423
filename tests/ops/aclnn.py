# SPDX-License-Identifier: Apache-2.0
"""The operators through their C functions: libraries, device memory, objects, both phases, capture.

Signatures come from the operator table (api/ops), so an operator is callable here as soon as it has a row.
"""

import ctypes
import os
import random
import sys
from pathlib import Path

import torch

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "scripts"))
import gen_ops  # noqa: E402

LIB_DIR = Path(os.environ.get("REPRISE_LIB_DIR", REPO / "build" / "release" / "lib64"))
TABLE = {op.id: op for ops in gen_ops.read_table().values() for op in ops}

PARAM_NULLPTR, PARAM_INVALID, RUNTIME_ERROR = 161001, 161002, 361001
FORMAT_ND = 2
THREAD_LOCAL_CAPTURE = 1

NUMBERS = {  # torch type -> aclDataType
    torch.float32: 0, torch.float16: 1, torch.int8: 2, torch.int32: 3, torch.uint8: 4, torch.int16: 6,
    torch.uint16: 7, torch.uint32: 8, torch.int64: 9, torch.uint64: 10, torch.float64: 11, torch.bool: 12,
    torch.complex64: 16, torch.complex128: 17, torch.bfloat16: 27,
}
SMALL = {torch.float8_e5m2: 35, torch.float8_e4m3fn: 36, torch.float8_e8m0fnu: 37}  # types that few operators know
HIFLOAT8 = 34  # PyTorch has no such type: tensors of uint8 with an attribute `acl_number`
C_SCALARS = {
    torch.float32: ctypes.c_float, torch.float64: ctypes.c_double, torch.int8: ctypes.c_int8,
    torch.int16: ctypes.c_int16, torch.int32: ctypes.c_int32, torch.int64: ctypes.c_int64,
    torch.uint8: ctypes.c_uint8, torch.bool: ctypes.c_bool,
}
C_TYPES = {
    "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "int32_t": ctypes.c_int32, "int": ctypes.c_int,
    "int8_t": ctypes.c_int8, "bool": ctypes.c_bool, "float": ctypes.c_float, "double": ctypes.c_double,
    "aclDataType": ctypes.c_int, "char*": ctypes.c_char_p,
}

_acl = ctypes.CDLL(str(LIB_DIR / "libascendcl.so"))
_base = ctypes.CDLL(str(LIB_DIR / "libnnopbase.so"))
_ops = ctypes.CDLL(str(LIB_DIR / "libopapi.so"))
_acl.aclGetRecentErrMsg.restype = ctypes.c_char_p
for _name in ("Tensor", "Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList"):
    getattr(_base, "aclCreate" + _name).restype = ctypes.c_void_p
    getattr(_base, "aclDestroy" + _name).argtypes = [ctypes.c_void_p]


class AclError(Exception):
    def __init__(self, status, what):
        self.status = status
        self.message = (_acl.aclGetRecentErrMsg() or b"").decode(errors="replace")
        super().__init__(f"{what}: {status}: {self.message}")


def check(status, what):
    if status != 0:
        raise AclError(status, what)


class Device:
    """One context with a stream and an arena of device memory that every case uses from its begin."""

    ARENA = 256 << 20

    def __init__(self):
        check(_acl.aclInit(None), "aclInit")
        check(_acl.aclrtSetDevice(0), "aclrtSetDevice")
        self.stream = ctypes.c_void_p()
        check(_acl.aclrtCreateStream(ctypes.byref(self.stream)), "aclrtCreateStream")
        base = ctypes.c_void_p()
        check(_acl.aclrtMalloc(ctypes.byref(base), ctypes.c_size_t(self.ARENA), 0), "aclrtMalloc")
        self.base, self.used = base.value, 0

    def reset(self):
        self.used = 0

    def allocate(self, count):
        """Address of `count` bytes."""
        address = self.base + self.used
        self.used += (count + 127) // 64 * 64
        if self.used > self.ARENA:
            raise MemoryError("the case needs more than the arena of tests/ops/aclnn.py")
        return address

    def synchronize(self):
        check(_acl.aclrtSynchronizeStream(self.stream), "aclrtSynchronizeStream")


_device = None


def device():
    global _device
    if _device is None:
        _device = Device()
    return _device


def memory(address, count, dtype=torch.uint8):
    """Device memory as a tensor: the device is the CPU."""
    size = max(1, count * torch.empty((), dtype=dtype).element_size())
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=dtype)[:count]


class Placed:
    """A tensor in device memory, with a layout of its own and guarded gaps."""

    PATTERN = 0x5B

    def __init__(self, shape, dtype, scatter=None, number=None):
        """scatter: a random.Random that chooses order of dims, gaps and offset; None: row-major. number: aclDataType, if
        it is not that of dtype."""
        self.shape, self.dtype = list(shape), dtype
        order = list(range(len(self.shape)))
        self.offset = 0
        if scatter:
            scatter.shuffle(order)
            self.offset = scatter.randrange(4)
        strides, step = [0] * len(order), 1
        for d in reversed(order):
            if scatter:
                step *= scatter.choice((1, 1, 2))
            strides[d] = step
            step *= max(1, self.shape[d])
            if scatter:
                step += scatter.choice((0, 0, 1, 3))
        self.strides = strides
        self.count = self.offset + step + (2 if scatter else 0)  # elements of the storage
        self.item = torch.empty((), dtype=dtype).element_size()
        self.address = device().allocate(self.count * self.item)
        self.raw = memory(self.address, self.count * self.item)
        self.raw.fill_(self.PATTERN)
        self.view = memory(self.address, self.count, dtype).as_strided(self.shape, self.strides, self.offset)
        self.handle = create_tensor(self.shape, dtype if number is None else number, self.strides, self.offset, self.count,
                                    self.address)

    def write(self, value):
        self.view.copy_(value)

    def read(self):
        return self.view.clone()

    def gaps_are_intact(self):
        inside = torch.zeros(self.count, dtype=torch.bool)
        inside.as_strided(self.shape, self.strides, self.offset).fill_(True)
        gaps = self.raw.view(self.count, self.item)[~inside]
        return bool((gaps == self.PATTERN).all())


def create_tensor(shape, dtype, strides, offset, count, address):
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    steps = (ctypes.c_int64 * max(1, len(shape)))(*strides)
    storage = (ctypes.c_int64 * 1)(count)
    number = (NUMBERS | SMALL)[dtype] if isinstance(dtype, torch.dtype) else dtype
    handle = _base.aclCreateTensor(dims, ctypes.c_uint64(len(shape)), number, steps, ctypes.c_int64(offset), FORMAT_ND,
                                   storage, ctypes.c_uint64(1), ctypes.c_void_p(address))
    if not handle:
        raise AclError(-1, "aclCreateTensor")
    return handle


def view_shape(handle):
    dims, count = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64()
    check(_base.aclGetViewShape(ctypes.c_void_p(handle), ctypes.byref(dims), ctypes.byref(count)), "aclGetViewShape")
    return [dims[i] for i in range(count.value)]


class Scalar:
    """An aclScalar of a given type."""

    def __init__(self, value, dtype=None):
        if dtype is None:
            dtype = (torch.bool if isinstance(value, bool) else torch.int64 if isinstance(value, int)
                     else torch.complex64 if isinstance(value, complex) else torch.float32)
        self.value, self.dtype = value, dtype


class Objects:
    """Meta objects that are destroyed together."""

    def __init__(self):
        self.owned = []

    def keep(self, kind, handle):
        if not handle:
            raise AclError(-1, "aclCreate" + kind)
        self.owned.append((kind, handle))
        return handle

    def scalar(self, value, keep=True):
        value = value if isinstance(value, Scalar) else Scalar(value)
        data = torch.tensor([value.value], dtype=value.dtype)
        handle = _base.aclCreateScalar(ctypes.c_void_p(data.data_ptr()), NUMBERS[value.dtype])
        return self.keep("Scalar", handle) if keep else handle

    def array(self, kind, c_type, values):
        data = (c_type * max(1, len(values)))(*values)
        return self.keep(kind, getattr(_base, "aclCreate" + kind)(data, ctypes.c_uint64(len(values))))

    def object_list(self, kind, handles):
        data = (ctypes.c_void_p * max(1, len(handles)))(*handles)
        return self.keep(kind, getattr(_base, "aclCreate" + kind)(data, ctypes.c_uint64(len(handles))))

    def tensor(self, placed):
        return self.keep("Tensor", placed.handle)

    def destroy(self):
        for kind, handle in self.owned:
            getattr(_base, "aclDestroy" + kind)(ctypes.c_void_p(handle))
        self.owned.clear()


def pack(op, values, objects):
    """C arguments of `op` from a dict by parameter: Placed or None, lists of those, Scalar, numbers, ..."""
    packed = []
    for c_type, name in op.parameters:
        base, value = c_type.removeprefix("const "), values[name]
        if base in C_TYPES:
            if base == "aclDataType":
                value = NUMBERS[value] if isinstance(value, torch.dtype) else value
            elif base == "char*":
                value = None if value is None else value.encode()
            packed.append(C_TYPES[base](value))
            continue
        if value is None or isinstance(value, ctypes.c_void_p):
            handle = value
        elif base == "aclTensor*":
            handle = objects.tensor(value)
        elif base == "aclScalar*":
            handle = objects.scalar(value)
        elif base == "aclIntArray*":
            handle = objects.array("IntArray", ctypes.c_int64, value)
        elif base == "aclFloatArray*":
            handle = objects.array("FloatArray", ctypes.c_float, value)
        elif base == "aclBoolArray*":
            handle = objects.array("BoolArray", ctypes.c_bool, value)
        elif base == "aclTensorList*":
            handle = objects.object_list("TensorList", [None if item is None else item.handle for item in value])
        elif base == "aclScalarList*":
            handle = objects.object_list("ScalarList", [objects.scalar(item, keep=False) for item in value])
        else:
            raise TypeError(f"{op.name}: parameter {name} of type {c_type}")
        packed.append(handle if isinstance(handle, ctypes.c_void_p) else ctypes.c_void_p(handle))
    return packed


def plan(op, packed):
    """Phase one: bytes of workspace and executor."""
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    status = getattr(_ops, op.name + "GetWorkspaceSize")(*packed, ctypes.byref(size), ctypes.byref(executor))
    check(status, op.name + "GetWorkspaceSize")
    return size.value, executor


def run(op, packed):
    """Both phases, queued on the stream of the device."""
    size, executor = plan(op, packed)
    workspace = ctypes.c_void_p(device().allocate(size) if size else None)
    check(getattr(_ops, op.name)(workspace, ctypes.c_uint64(size), executor, device().stream), op.name)


def drop(executor):
    _base.aclDestroyAclOpExecutor(executor)


class Capture:
    """Everything queued inside the `with` becomes a graph."""

    def __enter__(self):
        check(_acl.aclmdlRICaptureBegin(device().stream, THREAD_LOCAL_CAPTURE), "aclmdlRICaptureBegin")
        self.graph = ctypes.c_void_p()
        return self

    def __exit__(self, kind, error, trace):
        status = _acl.aclmdlRICaptureEnd(device().stream, ctypes.byref(self.graph))
        if kind is None:
            check(status, "aclmdlRICaptureEnd")

    def replay(self):
        check(_acl.aclmdlRIExecuteAsync(self.graph, device().stream), "aclmdlRIExecuteAsync")
        device().synchronize()

    def destroy(self):
        if self.graph:
            check(_acl.aclmdlRIDestroy(self.graph), "aclmdlRIDestroy")


def layout_source(seed):
    return random.Random(seed)
