# SPDX-License-Identifier: Apache-2.0
"""Values that gradients, lists, resizes, pools and padding refuse."""

import torch

from aclnn import Scalar
from test_matmul_refusals import fresh_memory, placed, refused  # noqa: F401 - the fixture


def ones(*shape, dtype=torch.float32):
    return placed(torch.ones(*shape, dtype=dtype))


def test_lists_refuse_numbers():
    x, out = [ones(3), ones(2)], [ones(3), ones(2)]
    refused("ForeachAddScalarList", {"x": x, "scalars": [Scalar(1.0)], "out": out}, "scalars has 1 numbers")
    refused("ForeachMaximumScalarV2", {"x": [ones(3, dtype=torch.int32)], "scalar": Scalar(0.5),
                                       "out": [ones(3, dtype=torch.int32)]}, "scalar is a float32")
    refused("ForeachRoundOffNumberV2", {"x": x, "roundMode": Scalar(8), "out": out}, "roundMode is 8")


def test_activations_refuse_numbers():
    x, out = ones(4), ones(4)
    refused("Softshrink", {"self": x, "lambd": Scalar(-0.5), "out": out}, "lambd")
    refused("Celu", {"self": x, "alpha": Scalar(0.0), "out": out}, "alpha is 0")
    refused("EluBackward", {"gradOutput": x, "alpha": Scalar(-1.0), "scale": Scalar(1.0), "inputScale": Scalar(1.0),
                            "isResult": True, "selfOrResult": x, "gradInput": out}, "isResult")
    refused("LeakyReluBackward", {"gradOutput": x, "self": x, "negativeSlope": Scalar(-1.0), "selfIsResult": True,
                                  "out": out}, "selfIsResult")
    refused("Prelu", {"self": ones(2, 3), "weight": ones(2), "out": ones(2, 3)}, "weight has shape [2]")
    refused("Prelu", {"self": ones(2, 3), "weight": ones(3, 1), "out": ones(2, 3)}, "weight has shape [3, 1]")
    refused("Prelu", {"self": ones(2, 3, 4), "weight": ones(1, 3), "out": ones(2, 3, 4)}, "weight has shape [1, 3]")
    refused("Addr", {"self": ones(3), "vec1": ones(2, 2), "vec2": ones(3), "betaOptional": None, "alphaOptional": None,
                     "out": ones(2, 3)}, "vec1")
    refused("Logit", {"input": x, "eps": float("nan"), "out": out}, "eps")


def test_gradients_of_angles_come_together():
    dy, cos = ones(1, 2, 3, 8), ones(1, 2, 1, 8)
    args = {"dy": dy, "cos": cos, "sin": cos, "xOptional": dy, "mode": 0, "dxOut": ones(1, 2, 3, 8)}
    refused("RotaryPositionEmbeddingGrad", args | {"dcosOut": None, "dsinOut": ones(1, 2, 1, 8)}, "dcosOut is null")
    refused("RotaryPositionEmbeddingGrad", args | {"dcosOut": ones(1, 2, 1, 8), "dsinOut": None}, "dsinOut is null")


def test_maps_of_volumes_refuse_attributes():
    rows, out = ones(2, 3, 5), ones(2, 3, 8)
    refused("UpsampleNearest1d", {"self": rows, "outputSize": [8, 8], "out": out}, "outputSize")
    refused("UpsampleLinear1d", {"self": ones(3, 5), "outputSize": [8], "alignCorners": False, "scale": 0.0, "out": out},
            "self has shape [3, 5]")
    refused("UpsampleNearest1dBackward", {"gradOut": out, "outputSize": [8], "inputSize": [2, 3], "scales": 0.0,
                                          "out": rows}, "inputSize")
    refused("UpsampleNearest1dV2", {"self": rows, "outputSize": [8], "scaleL": float("inf"), "out": out}, "scale")
    refused("ReflectionPad1dBackward", {"gradOutput": ones(2, 3, 15), "self": rows, "padding": [5, 5],
                                        "gradInput": rows}, "padding")
    refused("ReplicationPad1d", {"self": rows, "padding": [1], "out": out}, "padding")
    refused("AvgPool3d", {"self": ones(1, 4, 4, 4), "kernelSize": [5], "stride": [1], "padding": [0], "ceilMode": False,
                          "countIncludePad": True, "divisorOverride": 0, "out": ones(1, 1, 1, 1)}, "does not fit")
    refused("AdaptiveMaxPool2d", {"self": ones(1, 4, 4), "outputSize": [0, 1], "outputOut": ones(1, 0, 1),
                                  "indicesOut": ones(1, 0, 1, dtype=torch.int64)}, "outputSize")


def test_layers_refuse_masks():
    x = ones(2, 3, 4)
    values = {"gradOut": x, "input": x, "weight": None, "runningMean": None, "runningVar": None, "saveMean": None,
              "saveInvstd": None, "training": True, "eps": 1e-5, "outputMask": [True, False, False],
              "gradInput": ones(2, 3, 4), "gradWeight": None, "gradBias": None}
    refused("BatchNormBackward", values, "saveMean is null")
    line = ones(3)
    refused("BatchNormBackward", dict(values, saveMean=line, saveInvstd=line, outputMask=[True]), "outputMask has 1")
    refused("BatchNormBackward", dict(values, saveMean=line, saveInvstd=line, outputMask=[True, True, False]),
            "gradWeight is null")
    convolution = {"gradOutput": ones(1, 2, 5), "input": ones(1, 2, 5), "weight": ones(2, 2, 1), "biasSizes": [2],
                   "stride": [1], "padding": [0], "dilation": [1], "transposed": False, "outputPadding": [0], "groups": 1,
                   "outputMask": [True, True, False], "cubeMathType": 0, "gradInput": ones(1, 2, 5), "gradWeight": None,
                   "gradBias": None}
    refused("ConvolutionBackward", convolution, "gradWeight is null")
    refused("ConvolutionBackward", dict(convolution, gradOutput=ones(1, 2, 4)), "gradOutput has shape")
