# SPDX-License-Identifier: Apache-2.0
"""Element-wise operators and lists of tensors: what they refuse beyond null, types and shapes of outputs."""

import pytest
import torch

import aclnn
from aclnn import Scalar
from harness import Call, Case


def t(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def i(*shape):
    return torch.zeros(shape, dtype=torch.int32)


def adamw(**changed):
    args = {name: t(3) for name in ("varRef", "mRef", "vRef", "grad")}
    args.update(maxGradNormOptionalRef=None, step=t(1), lr=0.1, beta1=0.9, beta2=0.99, weightDecay=0.0, eps=1e-8,
                amsgrad=False, maximize=False)
    args.update(changed)
    return args, {name: args[name] for name in ("varRef", "mRef", "vRef", "maxGradNormOptionalRef")}


# Operator, inputs and attributes, outputs, words of the message.
REFUSED = [
    ("Adds", {"self": i(3), "other": Scalar(1), "alpha": Scalar(0.5)}, {"out": i(3)}, "alpha is a float32"),
    ("Addcmul", {"self": i(3), "tensor1": i(3), "tensor2": i(3), "value": Scalar(0.5)}, {"out": i(3)}, "value is a float32"),
    ("Rsub", {"self": i(3), "other": i(3), "alpha": Scalar(0.5)}, {"out": i(3)}, "alpha is a float32"),
    ("Lerps", {"self": t(3), "end": t(3), "weight": Scalar(1j)}, {"out": t(3)}, "weight is a complex64"),
    ("DivMod", {"self": t(3), "other": t(3), "mode": 3}, {"out": t(3)}, "mode is 3"),
    ("DivMod", {"self": t(3), "other": t(3), "mode": -1}, {"out": t(3)}, "mode is -1"),
    ("DivMod", {"self": i(3), "other": i(3), "mode": 0}, {"out": i(3)}, "out has int32, which cannot hold"),
    ("DivMod", {"self": t(3, dtype=torch.complex64), "other": t(3), "mode": 2}, {"out": t(3, dtype=torch.complex64)},
     "is not defined for complex64"),
    ("Maximum", {"self": t(3), "other": t(4)}, {"out": t(3)}, "do not broadcast"),
    ("Clamp", {"self": t(3), "clipValueMin": None, "clipValueMax": None}, {"out": t(3)}, "are both null"),
    ("ClampTensor", {"self": t(3), "clipValueMin": None, "clipValueMax": None}, {"out": t(3)}, "are both null"),
    ("ClampMax", {"self": t(3, dtype=torch.int8), "clipValueMax": Scalar(300)}, {"out": t(3, dtype=torch.int8)},
     "clipValueMax is a int64 whose value"),
    ("PowTensorScalar", {"self": i(3), "exponent": Scalar(-2)}, {"out": i(3)}, "integers have no negative powers"),
    ("Complex", {"real": t(3), "imag": t(3)}, {"out": t(3, dtype=torch.complex128)}, "expected complex64"),
    ("GtScalar", {"self": t(3, dtype=torch.uint64), "other": Scalar(-1)}, {"out": t(3, dtype=torch.bool)},
     "other is a int64 whose value"),
    ("IsClose", {"self": t(3), "other": t(3), "rtol": -1.0, "atol": 0.0, "equalNan": False},
     {"out": t(3, dtype=torch.bool)}, "rtol is -1"),
    ("Equal", {"self": t(3), "other": t(3)}, {"out": t(2, dtype=torch.bool)}, "out has shape [2], expected [1] or []"),
    ("SWhere", {"condition": t(2, dtype=torch.bool), "self": t(3), "other": t(3)}, {"out": t(3)}, "do not broadcast"),
    ("ForeachMulList", {"x1": [t(3)], "x2": [t(3), t(3)]}, {"out": [t(3)]}, "x2 has 2 tensors, out has 1"),
    ("ForeachMulList", {"x1": [t(3)], "x2": [t(4)]}, {"out": [t(3)]}, "x2[0] has shape [4], expected the shape of x1[0], [3]"),
    ("ForeachMulList", {"x1": [t(3), i(2)], "x2": [t(3), i(2)]}, {"out": [t(3), t(2)]}, "out[1] has float32, expected the type"),
    ("ForeachMulScalar", {"x": [t(3)], "scalar": t(2)}, {"out": [t(3)]}, "scalar has shape [2], expected 1 element"),
    ("ForeachAddList", {"x1": [t(3)], "x2": [t(3)], "alpha": t(2)}, {"out": [t(3)]}, "alpha has shape [2]"),
    ("ForeachAddcdivScalarList", {"x1": [t(3)], "x2": [t(3)], "x3": [t(3)], "scalars": t(2)}, {"out": [t(3)]},
     "scalars has shape [2], expected 1 element"),
    ("ForeachNorm", {"x": [t(3)], "scalar": Scalar(2)}, {"out": [t(3)]}, "out[0] has shape [3], expected [] or [1]"),
    ("ForeachNorm", {"x": [t(3)], "scalar": Scalar(float("nan"))}, {"out": [t(1)]}, "scalar is NaN"),
    ("ApplyAdamWV2", *adamw(amsgrad=True), "maxGradNormOptionalRef is null, but amsgrad is true"),
    ("ApplyAdamWV2", *adamw(grad=t(4)), "grad has shape [4], expected the shape of varRef, [3]"),
    ("ApplyAdamWV2", *adamw(step=t(2)), "step has shape [2], expected one element"),
]


@pytest.mark.parametrize("name, args, outputs, words", REFUSED, ids=[f"{row[0]}-{n}" for n, row in enumerate(REFUSED)])
def test_refused(name, args, outputs, words):
    op = aclnn.TABLE[name]
    call = Call(op, Case(args, outputs))
    with pytest.raises(aclnn.AclError) as refused:
        aclnn.plan(op, call.packed())
    call.destroy()
    assert refused.value.status == aclnn.PARAM_INVALID
    assert op.name in refused.value.message and words in refused.value.message, refused.value.message


@pytest.mark.parametrize("count", [3, 200])
def test_lists_may_be_written_in_place(count):
    """An output may be the very tensor of an input, however long the lists are; a part of it may not."""
    op = aclnn.TABLE["ForeachMulList"]
    call = Call(op, Case({"x1": [t(4)] * count, "x2": [t(4)] * count}, {"out": [t(4)] * count}))
    objects = aclnn.Objects()
    for placed in call.values["x1"]:
        placed.write(torch.full([4], 3.0))
    own = dict(call.values, out=call.values["x1"], x2=call.values["x1"])
    aclnn.run(op, aclnn.pack(op, own, objects))
    aclnn.device().synchronize()
    assert all(bool((placed.read() == 9).all()) for placed in call.values["x1"])
    call.destroy()
