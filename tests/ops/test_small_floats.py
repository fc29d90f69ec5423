# SPDX-License-Identifier: Apache-2.0
"""Floats of 8 bits beyond tables of cases: layouts that strides tell, NaN, gradients, whole sentences of refusals."""

import pytest
import torch

import aclnn
from cases_small_floats import E4M3, E5M2, E8M0, gated
from test_matmul_refusals import fresh_memory, placed  # noqa: F401 - the fixture

NUMBERS = torch.Generator().manual_seed(11)


def randn(*shape):
    return torch.randn(shape, generator=NUMBERS)


def view_of(tensor):
    """The transposed view of what lies in memory."""
    result = aclnn.Placed(list(tensor.shape), tensor.dtype)
    result.write(tensor)
    shape, strides = result.shape, result.strides
    shape[0], shape[1], strides[0], strides[1] = shape[1], shape[0], strides[1], strides[0]
    aclnn._base.aclDestroyTensor(aclnn.ctypes.c_void_p(result.handle))
    result.handle = aclnn.create_tensor(shape, tensor.dtype, strides, 0, result.count, result.address)
    return result


def run(name, **values):
    aclnn.run(aclnn.TABLE[name], aclnn.pack(aclnn.TABLE[name], values, aclnn.Objects()))
    aclnn.device().synchronize()


def empty(dtype, *shape):
    return aclnn.Placed(list(shape), dtype)


@pytest.mark.parametrize("put", (placed, view_of), ids=("as_it_lies", "view"))
def test_strides_tell_square_matrices_apart(put):
    """In groups the first matrix lies as [k, m], whether it is told so or turned."""
    k = m = 8
    x1, x2 = randn(k, m).to(E4M3), randn(k, 5).to(E4M3)
    y = placed(torch.zeros(8, m, 5))
    powers = [torch.randint(120, 131, (8, n, 2), generator=NUMBERS).to(torch.uint8).view(E8M0) for n in (m, 5)]
    run("QuantGroupedMatmulInplaceAdd", x1=put(x1), x2=placed(x2), scale1Optional=put(powers[0]), scale2=placed(powers[1]),
        groupList=placed(torch.arange(1, 9)), yRef=y, groupListType=0, groupSize=0)
    for e in range(8):
        factors = powers[0][e, :, 0].float()[:, None] * powers[1][e, :, 0].float()
        torch.testing.assert_close(y.read()[e], x1[e].float()[:, None] * x2[e].float() * factors)


def test_nan_spoils_its_block_alone():
    x = torch.ones(2, 64)
    x[0, 3] = float("nan")
    y, scale = empty(E5M2, 2, 64), empty(torch.float32, 3, 2)
    run("GroupedDynamicBlockQuant", x=placed(x), groupList=placed(torch.tensor([2])), minScale=0.0, roundModeOptional=None, dstType=35,
        rowBlockSize=1, colBlockSize=32, groupListType=0, yOut=y, scaleOut=scale)
    assert y.read().float()[0, :32].isnan().all() and (y.read().float()[0, 32:] == 57344).all()
    assert scale.read()[0].isnan().tolist() == [True, False] and (scale.read()[1:] == torch.tensor([[1 / 57344], [0]])).all()


def test_what_is_quantized_is_what_autograd_takes_apart():
    """The gradient without yOriginOptional is that of the forward pass, weight included."""
    x, weight, grad = randn(5, 32), randn(5, 1), randn(5, 16)
    origin, y, scale = empty(torch.float32, 5, 16), empty(E4M3, 5, 16), empty(torch.float32, 5, 1)
    run("SwigluGroupQuant", x=placed(x), weightOptional=placed(weight), groupIndexOptional=placed(torch.tensor([1, 3])), scaleOptional=None,
        dstType=36, quantMode=0, blockSize=0, roundScale=False, clampLimit=0.5, dstTypeMax=0.0, outputOrigin=True, yOut=y, yScaleOut=scale,
        yOriginOut=origin)
    leaves = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    v = gated(leaves[0], 0.5) * leaves[1].double()
    torch.testing.assert_close(origin.read()[:4], v[:4].detach().float())
    assert (y.read().float() * scale.read() - origin.read()).abs().max() <= origin.read().abs().max() / 16
    assert not y.read().view(torch.uint8)[4].any() and not scale.read()[4].any() and not origin.read()[4].any()
    (v[:4] * grad[:4]).sum().backward()
    results = empty(torch.float32, 5, 32), empty(torch.float32, 5, 1)
    run("SwigluGroupQuantGrad", gradY=placed(grad), x=placed(x), weightOptional=placed(weight), yOriginOptional=None,
        groupIndexOptional=placed(torch.tensor([1, 3])), clampLimit=0.5, gradXOut=results[0], gradWeightOutOptional=results[1])
    for found, leaf in zip(results, leaves, strict=True):
        torch.testing.assert_close(found.read(), leaf.grad, rtol=1e-5, atol=1e-6)


SENTENCES = [
    ({"x1": torch.ones(4, 8, dtype=torch.int8)}, "x1 has int8, expected float8_e4m3fn, float8_e5m2 or hifloat8"),
    ({"x1Scale": torch.ones(4).half()}, "x1ScaleOptional has float16, expected float32 or float8_e8m0"),
    ({"x2Scale": torch.ones(1, 5, 2).to(E8M0)}, "of x1ScaleOptional and x2Scale only one has exponents"),
    ({"x2": torch.ones(7, 5).to(E5M2)}, "x1 has a depth of 8, x2 of 7"),
    ({"y": torch.ones(4, 6)}, "yRef has shape [4, 6], expected that of the products, [4, 5]"),
]


@pytest.mark.parametrize("changed, sentence", SENTENCES, ids=[next(iter(changed)) for changed, _ in SENTENCES])
def test_sentences(changed, sentence):
    values = {"x1": torch.ones(4, 8).to(E4M3), "x2": torch.ones(8, 5).to(E5M2), "x1Scale": torch.ones(4), "x2Scale": torch.ones(5),
              "y": torch.ones(4, 5)} | changed
    with pytest.raises(aclnn.AclError) as refused:
        run("QuantBatchMatmulInplaceAdd", x1=placed(values["x1"]), x2=placed(values["x2"]), x1ScaleOptional=placed(values["x1Scale"]),
            x2Scale=placed(values["x2Scale"]), yRef=placed(values["y"]), transposeX1=False, transposeX2=False, groupSize=0)
    assert refused.value.status == aclnn.PARAM_INVALID and sentence in refused.value.message, refused.value.message
