# SPDX-License-Identifier: Apache-2.0
"""Functions without a second phase, and what has no tensors to compare."""

import ctypes
import time

import pytest
import torch

import aclnn

FRACTAL_NZ, NC1HWC0 = 29, 3
FLOAT16 = 1


def weight_size(sizes, dtype=None):
    objects, count = aclnn.Objects(), ctypes.c_uint64(77)
    array = ctypes.c_void_p(objects.array("IntArray", ctypes.c_int64, sizes))
    if dtype is None:
        name, args = "aclnnCalculateMatmulWeightSize", (array, ctypes.byref(count))
    else:
        name, args = "aclnnCalculateMatmulWeightSizeV2", (array, ctypes.c_int(dtype), ctypes.byref(count))
    try:
        aclnn.check(getattr(aclnn._ops, name)(*args), name)
    finally:
        objects.destroy()
    return count.value


@pytest.mark.parametrize("dtype", [None, FLOAT16])
def test_a_weight_takes_as_many_elements_as_its_shape_has(dtype):
    assert weight_size([33, 17], dtype) == 33 * 17
    assert weight_size([2, 3, 5], dtype) == 30
    assert weight_size([0, 4], dtype) == 0
    for sizes in ([7], [1] * 7, [3, -1], [2 ** 40, 2 ** 40]):
        with pytest.raises(aclnn.AclError) as refused:
            weight_size(sizes, dtype)
        assert refused.value.status == aclnn.PARAM_INVALID and "tensorShape" in refused.value.message


def test_a_weight_has_a_known_type():
    with pytest.raises(aclnn.AclError) as refused:
        weight_size([3, 3], 999)
    assert refused.value.status == aclnn.PARAM_INVALID and "dataType" in refused.value.message


def test_sizes_need_their_arguments():
    count = ctypes.c_uint64()
    function = aclnn._ops.aclnnCalculateMatmulWeightSize
    assert function(None, ctypes.byref(count)) == aclnn.PARAM_NULLPTR
    objects = aclnn.Objects()
    assert function(ctypes.c_void_p(objects.array("IntArray", ctypes.c_int64, [2, 2])), None) == aclnn.PARAM_NULLPTR
    objects.destroy()


def target(tensor, wanted):
    shape, count, actual = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_uint64(), ctypes.c_int(-5)
    name = "aclnnNpuFormatCastCalculateSizeAndFormat"
    status = getattr(aclnn._ops, name)(ctypes.c_void_p(tensor), ctypes.c_int(wanted), ctypes.c_int(-1),
                                       ctypes.byref(shape), ctypes.byref(count), ctypes.byref(actual))
    aclnn.check(status, name)
    return [shape[i] for i in range(count.value)], actual.value


def test_every_format_of_weights_is_the_plain_one():
    aclnn.device().reset()
    placed = aclnn.Placed([5, 33], torch.float16)
    for wanted in (aclnn.FORMAT_ND, FRACTAL_NZ):
        assert target(placed.handle, wanted) == ([5, 33], aclnn.FORMAT_ND)
    with pytest.raises(aclnn.AclError) as refused:
        target(placed.handle, NC1HWC0)
    assert refused.value.status == aclnn.PARAM_INVALID and "dstFormat" in refused.value.message
    with pytest.raises(aclnn.AclError) as refused:
        target(None, FRACTAL_NZ)
    assert refused.value.status == aclnn.PARAM_NULLPTR


def test_there_are_no_static_kernels_to_choose_among():
    assert aclnn._ops.aclnnReselectStaticKernel() == 0
    assert aclnn._ops.aclnnReselectStaticKernelWithPath(b"/no/such/folder") == 0
    assert aclnn._ops.aclnnReselectStaticKernelWithPath(None) == aclnn.PARAM_NULLPTR


def test_a_stream_sleeps_as_long_as_it_is_told():
    op, objects = aclnn.TABLE["Sleep"], aclnn.Objects()
    begin = time.monotonic()
    aclnn.run(op, aclnn.pack(op, {"cycles": [15_000_000, 5_000_000]}, objects))
    aclnn.device().synchronize()
    assert time.monotonic() - begin >= 0.02  # at least; a busy machine makes it more
    with pytest.raises(aclnn.AclError) as refused:
        aclnn.run(op, aclnn.pack(op, {"cycles": [-1]}, objects))
    assert refused.value.status == aclnn.PARAM_INVALID and "cycles" in refused.value.message
    objects.destroy()
