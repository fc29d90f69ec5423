# SPDX-License-Identifier: Apache-2.0
"""Values that matrix products and quantization refuse, and lists of groups that say too much."""

import pytest
import torch

import aclnn
from aclnn import Scalar


def placed(tensor):
    result = aclnn.Placed(list(tensor.shape), tensor.dtype)
    result.write(tensor)
    return result


def refused(name, values, word):
    op, objects = aclnn.TABLE[name], aclnn.Objects()
    with pytest.raises(aclnn.AclError) as error:
        aclnn.plan(op, aclnn.pack(op, values, objects))
    assert error.value.status == aclnn.PARAM_INVALID
    assert op.name in error.value.message and word in error.value.message, error.value.message


@pytest.fixture(autouse=True)
def fresh_memory():
    aclnn.device().reset()


def addmm(dtype, **changed):
    one = Scalar(1, torch.int64)
    values = {"self": placed(torch.zeros(3, dtype=dtype)), "mat1": placed(torch.ones(2, 4, dtype=dtype)),
              "mat2": placed(torch.ones(4, 3, dtype=dtype)), "beta": one, "alpha": one,
              "out": placed(torch.zeros(2, 3, dtype=dtype)), "cubeMathType": 0}
    return dict(values, **changed)


def test_addmm_refuses_factors_and_shapes():
    refused("Addmm", addmm(torch.int32, alpha=Scalar(0.5, torch.float32)), "alpha")
    refused("Addmm", addmm(torch.float32, beta=Scalar(1j, torch.complex64)), "beta")
    refused("Addmm", addmm(torch.float32, cubeMathType=9), "cubeMathType")
    refused("Addmm", addmm(torch.float32, self=placed(torch.zeros(5))), "self")
    refused("Addmm", addmm(torch.float32, self=placed(torch.zeros(1, 2, 3))), "self")
    refused("Addmm", addmm(torch.float32, mat1=placed(torch.zeros(2, 5))), "mat1")
    refused("Addmm", addmm(torch.float32, mat1=placed(torch.zeros(4))), "mat1")


def quant(**changed):
    values = {"x": placed(torch.ones(2, 8)), "scale": placed(torch.ones(8)), "offset": None, "sqrtMode": False,
              "roundMode": "round", "dstType": 2, "y": placed(torch.zeros(2, 8, dtype=torch.int8))}
    return dict(values, **changed)


def test_quantization_refuses_attributes_and_shapes():
    refused("AscendQuant", quant(roundMode="half"), "roundMode")
    refused("AscendQuant", quant(dstType=3), "dstType")
    refused("AscendQuant", quant(scale=placed(torch.ones(7))), "scale")
    refused("AscendQuant", quant(offset=placed(torch.ones(2, 8))), "offset")
    refused("AscendQuant", quant(dstType=3, y=placed(torch.zeros(2, 8, dtype=torch.int32))), "y has shape")
    refused("AscendQuantV3", dict(quant(), axis=2), "axis")


def weight_quant(**changed):
    values = {"x": placed(torch.ones(2, 16)), "weight": placed(torch.ones(16, 8, dtype=torch.int8)),
              "antiquantScale": placed(torch.ones(8)), "antiquantOffsetOptional": None, "quantScaleOptional": None,
              "quantOffsetOptional": None, "biasOptional": None, "antiquantGroupSize": 0, "y": placed(torch.zeros(2, 8))}
    return dict(values, **changed)


def test_quantized_weights_refuse_what_does_not_fit():
    name = "WeightQuantBatchMatmulV2"
    refused(name, weight_quant(quantScaleOptional=placed(torch.ones(8))), "quantScaleOptional")
    refused(name, weight_quant(antiquantGroupSize=4), "antiquantScale")
    refused(name, weight_quant(antiquantGroupSize=-1), "antiquantGroupSize")
    refused(name, weight_quant(weight=placed(torch.ones(15, 8, dtype=torch.int8))), "weight")
    refused(name, weight_quant(biasOptional=placed(torch.ones(7))), "biasOptional")
    refused(name, weight_quant(y=placed(torch.zeros(2, 8, dtype=torch.float16))), "y")


def grouped(**changed):
    values = {"x": [placed(torch.ones(5, 4))], "weight": [placed(torch.ones(3, 4, 6))],
              "groupListOptional": placed(torch.tensor([2, 2, 5])), "splitItem": 3, "groupType": 0, "groupListType": 0,
              "actType": 0, "out": [placed(torch.full((5, 6), -1.0))]}
    absent = [name for _, name in aclnn.TABLE["GroupedMatmulV4"].parameters if name not in values]
    return dict.fromkeys(absent) | values | changed


def test_groups_refuse_what_does_not_fit():
    name = "GroupedMatmulV4"
    refused(name, grouped(groupListOptional=None), "groupListOptional")
    refused(name, grouped(groupListOptional=placed(torch.tensor([2, 5]))), "groupListOptional")
    refused(name, grouped(actType=1), "actType")
    refused(name, grouped(splitItem=7), "splitItem")
    refused(name, grouped(splitItem=0), "splitItem")
    refused(name, grouped(groupType=1), "groupType")
    refused(name, grouped(groupListType=5), "groupListType")
    refused(name, grouped(weight=[placed(torch.ones(3, 5, 6))]), "weight")
    refused(name, grouped(biasOptional=[placed(torch.ones(3, 5))]), "biasOptional")
    refused(name, grouped(perTokenScaleOptional=[placed(torch.ones(5))]), "perTokenScaleOptional")
    refused(name, grouped(weight=[placed(torch.ones(3, 4, 6, dtype=torch.int8))]), "antiquantScaleOptional")


@pytest.mark.parametrize("list_type, numbers, rows", [
    (0, [2, 1, 900], [0, 0, 2, 2, 2]), (0, [-7, 2, 2], [1, 1, -1, -1, -1]), (1, [2, 10 ** 12, 10 ** 18], [0, 0, 1, 1, 1]),
    (1, [-5, 1, 1], [1, 2, -1, -1, -1]), (2, [[9, 2], [1, 2], [-1, 1]], [-1, -1, 1, 1, -1])])
def test_lists_of_groups_are_clamped_to_what_there_is(list_type, numbers, rows):
    """rows: the group of each row of the result, -1 for one that stays as it was."""
    weight = torch.stack([torch.full((4, 6), float(e + 1)) for e in range(3)])
    values = grouped(weight=[placed(weight)], groupListType=list_type, groupListOptional=placed(torch.tensor(numbers)))
    op, objects = aclnn.TABLE["GroupedMatmulV4"], aclnn.Objects()
    aclnn.run(op, aclnn.pack(op, values, objects))
    aclnn.device().synchronize()
    wanted = torch.tensor([4.0 * (e + 1) if e >= 0 else -1.0 for e in rows]).unsqueeze(1).expand(5, 6)
    assert torch.equal(values["out"][0].read(), wanted)
    assert all(item.gaps_are_intact() for item in (values["x"][0], values["out"][0]))
