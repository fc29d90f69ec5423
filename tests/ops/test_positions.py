# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements or find them by indices: what they refuse beyond null, types and shapes of outputs."""

import pytest
import torch

import aclnn
from aclnn import Scalar
from harness import Call, Case


def t(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def i(*shape):
    return torch.zeros(shape, dtype=torch.int64)


# Operator, inputs and attributes, outputs, words of the message.
REFUSED = [
    ("Stack", {"tensors": [t(2), t(3)], "dim": 0}, {"out": t(2, 2)}, "tensors[1] has shape [3], expected [2]"),
    ("Stack", {"tensors": [t(2), t(2)], "dim": 2}, {"out": t(2, 2)}, "dim is 2, expected a value from -2 to 1"),
    ("SplitWithSize", {"self": t(5), "splitSize": [2, 2], "dim": 0}, {"out": [t(2), t(2)]}, "splitSize is [2, 2]"),
    ("SplitWithSize", {"self": t(5), "splitSize": [2, 3], "dim": 0}, {"out": [t(5)]}, "out has 1 tensors"),
    ("SplitWithSize", {"self": t(5), "splitSize": [6, -1], "dim": 0}, {"out": [t(6), t(0)]}, "splitSize is [6, -1]"),
    ("Slice", {"self": t(5), "dim": 1, "start": 0, "end": 1, "step": 1}, {"out": t(1)}, "a sliced dim is 1"),
    ("Slice", {"self": t(5), "dim": 0, "start": 0, "end": 1, "step": 0}, {"out": t(1)}, "the step of dim 0 is 0"),
    ("SliceV2", {"self": t(5), "starts": [0], "ends": [1, 2], "axes": [0], "steps": [1]}, {"out": t(1)},
     "1, 2, 1 and 1 entries"),
    ("SliceV2", {"self": t(5), "starts": [0, 0], "ends": [1, 2], "axes": [0, -1], "steps": [1, 1]}, {"out": t(1)},
     "dim 0 is sliced twice"),
    ("Repeat", {"self": t(2, 3), "repeats": [2]}, {"out": t(2, 6)}, "repeats is [2], expected at least 2 entries"),
    ("Repeat", {"self": t(3), "repeats": [-1]}, {"out": t(0)}, "repeats is [-1]"),
    ("RepeatInterleaveInt", {"self": t(3), "repeats": 2, "outputSize": 5}, {"out": t(5)}, "outputSize is 5, expected 6"),
    ("RepeatInterleaveInt", {"self": t(3), "repeats": -2, "outputSize": 5}, {"out": t(5)}, "repeats is -2"),
    ("RepeatInterleave", {"self": t(3), "repeats": i(2), "outputSize": 5}, {"out": t(5)}, "repeats has shape [2]"),
    ("RepeatInterleave", {"self": t(3), "repeats": i(3), "outputSize": 5}, {"out": t(4)}, "out has shape [4]"),
    ("ConstantPadNd", {"self": t(3), "pad": [1], "value": Scalar(0)}, {"out": t(4)}, "pad is [1]"),
    ("ConstantPadNd", {"self": t(3), "pad": [1, 1, 1, 1], "value": Scalar(0)}, {"out": t(5)}, "pad is [1, 1, 1, 1]"),
    ("ConstantPadNd", {"self": t(3), "pad": [-2, -2], "value": Scalar(0)}, {"out": t(0)}, "pad [-2, -2] takes more"),
    ("ConstantPadNd", {"self": t(3), "pad": [1, 1], "value": Scalar(1j)}, {"out": t(5)}, "value is complex64"),
    ("ReflectionPad1d", {"self": t(2, 3), "padding": [3, 0]}, {"out": t(2, 6)}, "padding is [3, 0], expected less than"),
    ("ReflectionPad1d", {"self": t(3), "padding": [1, 0]}, {"out": t(4)}, "self has shape [3], expected rank 2 or 3"),
    ("ReflectionPad2d", {"self": t(2, 3, 3), "padding": [1, 1]}, {"out": t(2, 3, 5)}, "expected 4 entries"),
    ("ReplicationPad2d", {"self": t(2, 0, 3), "padding": [1, 1, 1, 1]}, {"out": t(2, 2, 5)}, "no elements in dim 1"),
    ("Flip", {"self": t(2, 3), "dims": [0, -2]}, {"out": t(2, 3)}, "names dim 0 twice"),
    ("Roll", {"x": t(2, 3), "shifts": [1, 1], "dims": []}, {"out": t(2, 3)}, "shifts is [1, 1] and dims is []"),
    ("Tril", {"self": t(3), "diagonal": 0}, {"out": t(3)}, "self has shape [3], expected rank 2 or more"),
    ("InplaceFillTensor", {"selfRef": t(3), "value": t(2)}, {"selfRef": t(3)}, "value has shape [2], expected one element"),
    ("Eye", {"n": 2, "m": -1}, {"out": t(2, 0)}, "m is -1"),
    ("Eye", {"n": 2, "m": 3}, {"out": t(3, 2)}, "out has shape [3, 2]"),
    ("Arange", {"start": Scalar(0), "end": Scalar(5), "step": Scalar(0)}, {"out": t(5)}, "step is 0"),
    ("Arange", {"start": Scalar(0), "end": Scalar(5), "step": Scalar(-1)}, {"out": t(5)}, "does not lead from start 0"),
    ("Arange", {"start": Scalar(0), "end": Scalar(5), "step": Scalar(2)}, {"out": t(2)}, "out has shape [2]"),
    ("Arange", {"start": Scalar(0), "end": Scalar(float("nan")), "step": Scalar(2)}, {"out": t(2)}, "end is nan"),
    ("Range", {"start": Scalar(0), "end": Scalar(4), "step": Scalar(2)}, {"out": t(2)}, "expected for the sequence"),
    ("Linspace", {"start": Scalar(0), "end": Scalar(4), "steps": -1}, {"out": t(0)}, "steps is -1"),
    ("Linspace", {"start": Scalar(1j), "end": Scalar(4), "steps": 2}, {"out": t(2)}, "start is complex64"),
    ("OneHot", {"self": i(3), "numClasses": -1, "onValue": t(1), "offValue": t(1), "axis": -1}, {"out": t(3, 2)},
     "numClasses is -1"),
    ("OneHot", {"self": i(3), "numClasses": 2, "onValue": t(2), "offValue": t(1), "axis": -1}, {"out": t(3, 2)},
     "onValue has shape [2]"),
    ("OneHot", {"self": i(3), "numClasses": 2, "onValue": t(1), "offValue": i(1), "axis": -1}, {"out": t(3, 2)},
     "offValue has int64"),
    ("OneHot", {"self": i(3), "numClasses": 2, "onValue": t(1), "offValue": t(1), "axis": 2}, {"out": t(3, 2)}, "axis is 2"),
    ("Im2col", {"self": t(1, 2, 2), "kernelSize": [3, 3], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]},
     {"out": t(9, 1)}, "the window [3, 3]"),
    ("Im2col", {"self": t(1, 2, 2), "kernelSize": [1, 1], "dilation": [1, 1], "padding": [0, 0], "stride": [0, 1]},
     {"out": t(1, 4)}, "stride is [0, 1]"),
    ("Gather", {"self": t(2, 3), "dim": 0, "index": i(4)}, {"out": t(4)}, "index has shape [4]"),
    ("Gather", {"self": t(2, 3), "dim": 0, "index": i(4, 4)}, {"out": t(4, 4)}, "not within self [2, 3] but for dim 0"),
    ("Gather", {"self": t(2, 3), "dim": 2, "index": i(1, 1)}, {"out": t(1, 1)}, "dim is 2"),
    ("IndexSelect", {"self": t(2, 3), "dim": 0, "index": i(2, 2)}, {"out": t(2, 2, 3)}, "index has shape [2, 2]"),
    ("GatherV3", {"self": t(2, 3), "dim": 1, "index": i(3, 3), "batchDims": 1, "mode": 0}, {"out": t(2, 3)},
     "differ in dim 0"),
    ("GatherV3", {"self": t(2, 3), "dim": 1, "index": i(2, 3), "batchDims": 2, "mode": 0}, {"out": t(2, 3)},
     "batchDims is 2"),
    ("Embedding", {"weight": t(3), "indices": i(2)}, {"out": t(2)}, "weight has shape [3], expected rank 2"),
    ("EmbeddingDenseBackward", {"grad": t(2, 3), "indices": i(3), "numWeights": 4, "paddingIdx": 0,
                                "scaleGradByFreq": False}, {"out": t(4, 3)}, "grad has shape [2, 3]"),
    ("Index", {"self": t(2, 3), "indices": [i(2), i(3)]}, {"out": t(2)}, "does not broadcast"),
    ("Index", {"self": t(2), "indices": [i(2), i(2)]}, {"out": t(2)}, "indices[1] has no dim in self [2]"),
    ("Index", {"self": t(2), "indices": [None]}, {"out": t(2)}, "indices has no tensor"),
    ("Index", {"self": t(2), "indices": [t(2, dtype=torch.bool)]}, {"out": t(2)}, "indices[0] has bool"),
    ("IndexPutImpl", {"selfRef": t(2, 3), "indices": [i(2)], "values": t(3, 3), "accumulate": False, "unsafe": False},
     {"selfRef": t(2, 3)}, "values has shape [3, 3]"),
    ("IndexPutImpl", {"selfRef": t(2, 3), "indices": [i(2)], "values": i(2, 3), "accumulate": False, "unsafe": False},
     {"selfRef": t(2, 3)}, "values has int64, expected the type float32"),
    ("Scatter", {"self": t(2, 3), "dim": 0, "index": i(2, 3), "src": t(1, 3), "reduce": 0}, {"out": t(2, 3)},
     "not within src [1, 3]"),
    ("Scatter", {"self": t(2, 3), "dim": 0, "index": i(2, 3), "src": t(2, 3), "reduce": 3}, {"out": t(2, 3)},
     "reduce is 3"),
    ("Scatter", {"self": t(2, 3), "dim": 0, "index": i(2, 3), "src": i(2, 3), "reduce": 0}, {"out": t(2, 3)},
     "src has int64"),
    ("ScatterValue", {"self": t(2, 3), "dim": 0, "index": i(2, 3), "value": Scalar(1j), "reduce": 0}, {"out": t(2, 3)},
     "value is complex64"),
    ("ScatterAdd", {"self": t(2, 3), "dim": -3, "index": i(2, 3), "src": t(2, 3)}, {"out": t(2, 3)}, "dim is -3"),
    ("IndexAdd", {"self": t(2, 3), "dim": 0, "index": i(2), "source": t(3, 3), "alpha": Scalar(1)}, {"out": t(2, 3)},
     "source has shape [3, 3]"),
    ("IndexAdd", {"self": i(2, 3), "dim": 0, "index": i(2), "source": i(2, 3), "alpha": Scalar(0.5)}, {"out": i(2, 3)},
     "alpha is float32"),
    ("IndexCopy", {"selfRef": t(2, 3), "dim": 0, "index": i(2, 2), "source": t(2, 3)}, {"outRef": t(2, 3)},
     "index has shape [2, 2]"),
    ("IndexFillTensor", {"self": t(2, 3), "dim": 0, "index": [2], "value": Scalar(1)}, {"out": t(2, 3)}, "index has 2"),
    ("ScatterNdUpdate", {"varRef": t(2, 3), "indices": i(4, 3), "updates": t(4)}, {"varRef": t(2, 3)},
     "indices has shape [4, 3]"),
    ("ScatterNdUpdate", {"varRef": t(2, 3), "indices": i(4, 1), "updates": t(4)}, {"varRef": t(2, 3)},
     "updates has shape [4], expected the indexed shape [4, 3]"),
    ("InplaceMaskedFillTensor", {"selfRef": t(2, 3), "mask": t(2, dtype=torch.bool), "value": t(1)},
     {"selfRef": t(2, 3)}, "mask has shape [2]"),
    ("InplaceMaskedFillTensor", {"selfRef": t(2, 3), "mask": t(3, dtype=torch.bool), "value": t(2)},
     {"selfRef": t(2, 3)}, "value has shape [2]"),
    ("InplaceMaskedScatter", {"selfRef": t(2, 3), "mask": t(4, 2, 3, dtype=torch.bool), "source": t(6)},
     {"selfRef": t(2, 3)}, "mask has shape [4, 2, 3]"),
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
