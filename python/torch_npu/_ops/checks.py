# SPDX-License-Identifier: Apache-2.0
"""What several operators ask of their arguments."""
import torch
from torch_npu._errors import refused


def refuse(name, **given):
    """Arguments that the real operator takes and this one does not yet: they must be left out."""
    for argument, value in given.items():
        if value is not None:
            raise refused(NotImplementedError(f"{name}: {argument} is not supported yet; leave it out"))


def check(condition, name, text):
    if not condition:
        raise refused(RuntimeError(f"{name}: {text}"))


def check_dims(name, argument, tensor, *dims):
    check(
        tensor.dim() in dims,
        name,
        f"{argument} has shape {list(tensor.shape)}, expected {' or '.join(map(str, dims))} dims",
    )


def check_same(name, **tensors):
    """Shapes that nothing may broadcast."""
    first, *rest = tensors.items()
    for argument, tensor in rest:
        check(
            tensor.shape == first[1].shape,
            name,
            f"{argument} has shape {list(tensor.shape)}, expected that of {first[0]}, {list(first[1].shape)}",
        )


def check_type(name, argument, tensor, *types):
    check(
        tensor.dtype in types,
        name,
        f"{argument} has type {tensor.dtype}, expected {' or '.join(map(str, types))}",
    )


DEVICE_TYPES = 256  # numbers of types beyond these are the device's own
INT4 = DEVICE_TYPES + 29

# By the numbers that torch has for types; what an ``int? dst_type`` holds.
_TYPES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    11: torch.bool,
    12: torch.int8,
    13: torch.uint8,
    14: torch.int32,
    15: torch.bfloat16,
}
_INT4_NUMBERS = (INT4, 16, DEVICE_TYPES + 16)
_NAMES = {
    23: "float8_e5m2",
    24: "float8_e4m3fn",
    290: "hifloat8",
    291: "float8_e5m2",
    292: "float8_e4m3fn",
    293: "float8_e8m0fnu",
    296: "float4_e2m1fn_x2",
    297: "float4_e1m2fn_x2",
}


def is_int4(number):
    return number in _INT4_NUMBERS


def type_of(name, argument, number, default):
    """The type that a number stands for."""
    if number is None:
        return default
    if number >= DEVICE_TYPES:
        number = {0: 6, 1: 5, 2: 1, 3: 3, 4: 0, 6: 2, 9: 4, 11: 7, 12: 11, 27: 15}.get(number - DEVICE_TYPES, number)
    if number not in _TYPES:
        raise refused(
            NotImplementedError(f"{name}: {argument} is {_NAMES.get(number, number)}, which is not supported yet")
        )
    return _TYPES[number]


def host_list(name, argument, values):
    """Lengths that the host needs: a list, or a tensor, which should be on the host."""
    if values is None or isinstance(values, (list, tuple)):
        return values
    if values.device.type != "cpu" and torch.npu.is_current_stream_capturing():
        raise refused(
            RuntimeError(
                f"{name}: {argument} is on {values.device}, but its values are needed on the host, for which a capture "
                "cannot wait; pass a tensor of the host"
            )
        )
    return values.tolist()
