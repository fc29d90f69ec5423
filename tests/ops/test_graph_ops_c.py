# SPDX-License-Identifier: Apache-2.0
"""Operators by type against PyTorch: those that other front ends have beside the ones of test_graph_ops_a.py and _b.py,
with attributes for values, other names, blocks, lists of places."""

import ctypes
import math
import os
import tempfile

import pytest
import torch
import torch.nn.functional as F

from aclnn import LIB_DIR, AclError
from graph_ops import HIFLOAT8, Bits, call, hold
from graph_ops_numbers import (FLOATS, HALF, SINGLES, b16, boolean, c64, close, f16, f32, f64, i8, i16, i32, i64,
                               numbers, u8, wide)

CASES = {}


def case(type, inputs, expected, attributes=None, scale=1, **options):
    """expected: a tensor, a list of tensors, or one of them for each output, by name."""
    CASES.setdefault(type, []).append((inputs, attributes, expected, scale, options))


# ---- Shapes ----

for _dtype in (f32, f16, i32, i8, i64, u8, boolean):
    _x = numbers(_dtype, 4, 6)
    case("SplitD", {"x": _x}, list(_x.split(2, 1)), {"split_dim": -1, "num_split": 3}, lengths={"y": 3})
    case("Split", {"split_dim": torch.tensor(1, dtype=i32), "x": _x}, list(_x.split(2, 1)), {"num_split": 3}, lengths={"y": 3})
    case("SplitVD", {"x": _x}, list(_x.split([1, 2, 3], 1)), {"size_splits": [1, -1, 3], "split_dim": 1, "num_split": 3},
         lengths={"y": 3})
    case("StridedSlice", {"x": _x, "begin": [1, 5], "end": [4, 0], "strides": [2, -2]}, _x[1:4:2].flip(1)[:, 0:5:2])
    case("StridedSliceD", {"x": _x}, _x[1:4:2, 3], {"begin": [1, 3], "end": [4, 4], "strides": [2, 1], "shrink_axis_mask": 2})
    case("Slice", {"x": _x, "offsets": [1, 2], "size": [2, -1]}, _x[1:3, 2:])
    case("SliceD", {"x": _x}, _x[0:0, 2:5], {"offsets": [0, 2], "size": [0, 3]})
    case("ExpandD", {"x": _x[:, :1].contiguous()}, _x[:, :1].expand(2, 4, 3), {"shape": [2, -1, 3]})
    case("BroadcastToD", {"x": _x[:1].contiguous()}, _x[:1].expand(4, 6), {"shape": [4, 6]})
    case("ReverseV2D", {"x": _x}, _x.flip(0), {"axis": [0]})
    case("FillD", {"value": _x[0, 0].clone()}, _x[0, 0].expand(2, 3), {"dims": [2, 3]})
    _deep = numbers(_dtype, 2, 8, 4, 6)
    case("BatchToSpaceND", {"x": _deep.reshape(8, 2, 4, 6), "block_shape": [2, 2], "crops": [1, 0, 0, 2]},
         _deep.reshape(2, 2, 2, 2, 4, 6).permute(2, 3, 0, 4, 1, 5).reshape(2, 4, 8, 6)[:, 1:, :6])
    case("BatchToSpaceNDD", {"x": _deep.reshape(8, 2, 4, 6)}, _deep.reshape(2, 4, 2, 4, 6).permute(1, 2, 0, 3, 4).reshape(4, 4, 4, 6),
         {"block_shape": [2], "crops": [0, 0]})
    if _dtype != boolean:
        _padded = F.pad(_deep.to(f64), (0, 0, 0, 2, 1, 1)).to(_dtype)
        case("SpaceToBatchND", {"x": _deep, "block_shape": [2, 3], "paddings": [1, 1, 0, 2]},
             _padded.reshape(2, 5, 2, 2, 3, 6).permute(2, 4, 0, 1, 3, 5).reshape(12, 5, 2, 6))
        case("TileD", {"x": _x}, _x.repeat(2, 1, 3), {"multiples": [2, 1, 3]}) if _dtype in (f32, f16, i32) else None
        case("ConcatV2D", {"x": [_x, _x[:, :2].contiguous()]}, torch.cat([_x, _x[:, :2]], 1), {"concat_dim": -1, "N": 2})
        case("Flatten", {"x": _deep}, _deep.reshape(16, 24), {"axis": 2})
        case("RollV2", {"input": _x, "shift": [1, -2], "axes": [0, 1]}, _x.roll((1, -2), (0, 1)))
        case("EnsureShape", {"input": _x}, _x, {"shape": [4, -1]})
    case("SpaceToBatchNDD", {"x": _deep}, _deep.reshape(2, 4, 2, 4, 6).permute(2, 0, 1, 3, 4).reshape(4, 4, 4, 6),
         {"block_shape": [2], "paddings": [0, 0]})
    _last = _deep.permute(0, 2, 3, 1).contiguous()  # NHWC, 8 channels
    case("DepthToSpace", {"x": _deep}, _deep.reshape(2, 2, 2, 2, 4, 6).permute(0, 3, 4, 1, 5, 2).reshape(2, 2, 8, 12),
         {"block_size": 2, "data_format": "NCHW"})
    case("DepthToSpace", {"x": _deep}, _deep.reshape(2, 2, 2, 2, 4, 6).permute(0, 1, 4, 2, 5, 3).reshape(2, 2, 8, 12),
         {"block_size": 2, "data_format": "NCHW", "mode": "CRD"})
    case("DepthToSpace", {"x": _last}, _last.reshape(2, 4, 6, 2, 2, 2).permute(0, 1, 3, 2, 4, 5).reshape(2, 8, 12, 2),
         {"block_size": 2})
    case("DepthToSpace", {"x": _last}, _last.reshape(2, 4, 6, 2, 2, 2).permute(0, 1, 4, 2, 5, 3).reshape(2, 8, 12, 2),
         {"block_size": 2, "mode": "CRD"})
    case("SpaceToDepth", {"x": _last}, _last.reshape(2, 2, 2, 3, 2, 8).permute(0, 1, 3, 2, 4, 5).reshape(2, 2, 3, 32), {"block_size": 2})
    case("SpaceToDepth", {"x": _deep}, _deep.reshape(2, 8, 2, 2, 3, 2).permute(0, 3, 5, 1, 2, 4).reshape(2, 32, 2, 3),
         {"block_size": 2, "data_format": "NCHW"})
    _thin = _x.reshape(4, 1, 6, 1)
    case("SqueezeV2", {"x": _thin}, _x, {"axis": [1, -1]})
    case("SqueezeV3", {"x": _thin, "axes": [1]}, _x.reshape(4, 6, 1))
    case("SqueezeV3", {"x": _thin}, _x)
    case("UnsqueezeV2", {"x": _x}, _thin, {"axis": [1, 3]})
    case("UnsqueezeV3", {"x": _x, "axes": [1, -1]}, _thin)
    case("Pad", {"x": _x, "paddings": torch.tensor([[1, 0], [0, 2]])}, F.pad(_x, (0, 2, 1, 0)))
    case("PadV2", {"x": _x, "paddings": torch.tensor([[1, 0], [0, 2]]), "constant_values": torch.tensor(1).to(_dtype)},
         F.pad(_x, (0, 2, 1, 0), value=1))
    case("StopGradient", {"x": _x}, _x)
    case("IdentityN", {"x": [_x, _deep, numbers(i32, 3)]}, [_x, _deep, numbers(i32, 3)], lengths={"y": 3})
case("Flatten", {"x": numbers(f32, 2, 3)}, numbers(f32, 2, 3).reshape(1, 6), {"axis": 0})
case("Eye", {}, torch.eye(3), {"num_rows": 3})
case("Eye", {}, torch.eye(2, 4, dtype=i32).expand(3, 2, 4), {"num_rows": 2, "num_columns": 4, "batch_shape": [3], "dtype": 3})
for _axis in (-1, 0):
    _x = torch.tensor([[0, 2], [1, 5]], dtype=i32)
    case("OneHotD", {"x": _x, "on_value": torch.tensor([1.5]), "off_value": torch.tensor([-1.0])},
         torch.where(_x.unsqueeze(-1) == torch.arange(4), torch.tensor(1.5), torch.tensor(-1.0)).movedim(-1, _axis),
         {"depth": 4, "axis": _axis})

# ---- Places ----

for _dtype in (f32, f16, i32, u8):
    _x, _places = numbers(_dtype, 3, 4, 5), torch.tensor([[0, 1], [2, 3], [0, 1]])
    case("GatherNd", {"x": _x, "indices": _places}, _x[_places[:, 0], _places[:, 1]])
    case("GatherNd", {"x": _x, "indices": _places.int().reshape(3, 1, 2)}, _x[_places[:, 0], _places[:, 1]].reshape(3, 1, 5))
    case("GatherNd", {"x": _x, "indices": torch.tensor([2, 1, 4])}, _x[2, 1, 4])
    case("GatherNd", {"x": _x, "indices": torch.empty(2, 0, dtype=i64)}, _x.expand(2, 3, 4, 5))
    case("GatherV2D", {"x": _x, "indices": torch.tensor([[2, 0], [1, 1]])}, _x[:, torch.tensor([[2, 0], [1, 1]])], {"axis": 1})
    _updates = numbers(_dtype, 3, 5, seed=4)
    _rows = (_places[:, 0], _places[:, 1])
    _added = _x.index_put(_rows, _updates, accumulate=True)
    case("ScatterNd", {"indices": _places, "x": _updates, "shape": [3, 4, 5]},
         torch.zeros_like(_x).index_put(_rows, _updates, accumulate=True), scale=2)
    for _type in ("TensorScatterAdd", "ScatterNdAdd"):
        case(_type, {("x" if _type[0] == "T" else "var"): _x, "indices": _places, "updates": _updates}, _added, scale=2)
    if _dtype != u8:
        _taken = _x.index_put(_rows, -_updates, accumulate=True)
        case("TensorScatterSub", {"x": _x, "indices": _places, "updates": _updates}, _taken, scale=2)
        case("ScatterNdSub", {"var": _x, "indices": _places, "updates": _updates}, _taken, scale=2)
        case("ScatterSub", {"var": _x, "indices": torch.tensor([2, 0]), "updates": _x[:2].contiguous()},
             _x.index_put((torch.tensor([2, 0]),), -_x[:2], accumulate=True), scale=2)
    case("TensorScatterUpdate", {"x": _x, "indices": _places[:2], "updates": _updates[:2]},
         _x.index_put((_places[:2, 0], _places[:2, 1]), _updates[:2]))
    case("ScatterUpdate", {"var": _x, "indices": torch.tensor([[2], [0]]), "updates": _x[:2].reshape(2, 1, 4, 5)},
         _x.index_put((torch.tensor([2, 0]),), _x[:2]))
    case("ScatterAdd", {"var": _x, "indices": torch.tensor([1, 1], dtype=i32), "updates": _x[:2].contiguous()},
         _x.index_put((torch.tensor([1, 1]),), _x[:2], accumulate=True), scale=2)
    _ids = torch.tensor([[0, 2, 2, 1], [0, 0, 1, 2], [2, 2, 2, 0]])
    case("UnsortedSegmentSum", {"x": _x, "segment_ids": _ids, "num_segments": [4]},
         torch.zeros(4, 5, dtype=_dtype).index_add(0, _ids.reshape(-1), _x.reshape(12, 5)), scale=4)

# ---- Reductions ----

for _dtype in SINGLES:
    _x = numbers(_dtype, 3, 4, 5)
    case("ArgMaxD", {"x": _x}, wide(_x).argmax(1), {"dimension": 1})
    case("ArgMinD", {"x": _x}, wide(_x).argmin(-1), {"dimension": -1, "dtype": i32})
    for _keep in (False, True):
        case("ReduceMaxD", {"x": _x}, wide(_x).amax((0, 2), _keep), {"axes": [0, -1], "keep_dims": _keep})
        case("ReduceMinD", {"x": _x}, wide(_x).amin(1, _keep), {"axes": [1], "keep_dims": _keep})
    _found = wide(_x).topk(2, 1)
    _expected = {"values": _found.values, "indices": _found.indices}
    _assist = torch.arange(16, dtype=f16)
    case("TopK", {"x": _x, "k": torch.tensor(2, dtype=i32)}, _expected, {"dim": 1})
    case("TopKD", {"x": _x, "assist_seq": _assist}, _expected, {"dim": 1, "k": 2})
    case("TopKV2D", {"x": _x, "k": torch.tensor(2, dtype=i32), "assist_seq": _assist}, _expected, {"dim": 1})
for _keep in (False, True):
    case("ReduceAllD", {"x": numbers(boolean, 3, 4)}, numbers(boolean, 3, 4).all(1, _keep), {"axes": [1], "keep_dims": _keep})
    case("ReduceAnyD", {"x": numbers(boolean, 3, 4)}, numbers(boolean, 3, 4).any(0, _keep), {"axes": [0], "keep_dims": _keep})
for _dtype in (f32, f16, i32, i64):
    _x = numbers(_dtype, 2, 3, 2)
    for _exclusive, _reverse in ((False, False), (True, False), (False, True), (True, True)):
        for _type, _function, _unit in (("Cumsum", torch.cumsum, 0), ("Cumprod", torch.cumprod, 1)):
            _turned = wide(_x).flip(1) if _reverse else wide(_x)
            if _exclusive:
                _turned = torch.cat([torch.full_like(_turned[:, :1], _unit), _turned[:, :-1]], 1)
            _scan = _function(_turned, 1)
            _scan = _scan.flip(1) if _reverse else _scan
            _how = {"exclusive": _exclusive, "reverse": _reverse}
            case(_type + "D", {"x": _x}, _scan, {"axis": 1, **_how}, scale=4)
            if _type == "Cumprod":
                case(_type, {"x": _x, "axis": [-2]}, _scan, _how, scale=4)

# ---- Functions ----

SHAPES = ((3, 5), (0, 3), ())


def unary(type, function, dtypes, name="x", attributes=None, low=-3.0, high=3.0, scale=1):
    for dtype in dtypes:
        for shape in SHAPES:
            x = numbers(dtype, *shape, low=low, high=high)
            case(type, {name: x}, function(wide(x)), attributes, scale)


def binary(type, function, dtypes, low=-3.0, high=3.0, names=("x1", "x2"), scale=1):
    for dtype in dtypes:
        for one, other in (((3, 5), (3, 5)), ((2, 3, 1), (7,)), ((0, 3), (1, 3))):
            a, b = numbers(dtype, *one, low=low, high=high), numbers(dtype, *other, low=low, high=high, seed=5)
            case(type, dict(zip(names, (a, b), strict=True)), function(wide(a), wide(b)), scale=scale)


unary("Erfc", torch.erfc, (f32, f64, f16))
unary("Inv", torch.reciprocal, (f32, f16, f64), low=0.5)
unary("Rint", torch.round, (f32, f16, f64))
unary("Relu6", F.relu6, (f32, f16, i32), low=-9, high=9)
unary("Selu", F.selu, (f32, f16), scale=2)
unary("Softplus", F.softplus, (f32, f16, f64))
unary("SoftplusV2", lambda x: F.softplus(x, 2.0, 3.0), SINGLES, attributes={"beta": 2.0, "threshold": 3.0})
unary("Softsign", F.softsign, (f32, f16, f64))
unary("ThresholdedRelu", lambda x: torch.where(x > 0.5, x, 0.0), SINGLES, attributes={"alpha": 0.5})
unary("Power", lambda x: (2 * x + 7) ** 1.5, HALF, attributes={"power": 1.5, "scale": 2.0, "shift": 7.0}, scale=4)
unary("L2Loss", lambda x: (x * x).sum() / 2, FLOATS, scale=4)
binary("SquaredDifference", lambda a, b: (a - b) ** 2, (f32, f16, f64, i32, i64, c64), scale=2)
binary("TruncateMod", torch.fmod, (f32, f16, f64, i32, i64), low=1.0, high=9.0)
binary("BitwiseXor", torch.bitwise_xor, (i8, i16, i32, i64, u8))
binary("LeftShift", lambda a, b: a << b, (i8, i32, i64, u8), low=0, high=3, names=("x", "y"))
binary("Xlogy", torch.xlogy, (f32, f16), low=0.5)
for _dtype in (f32, f16, f64):
    _x = torch.tensor([1.0, -2.0, 0.0, math.inf, math.nan]).to(_dtype)
    _y = torch.tensor([0.0, 4.0, 0.0, 0.0, 2.0]).to(_dtype)
    case("DivNoNan", {"x1": _x, "x2": _y}, torch.where(_y == 0, 0.0, wide(_x) / wide(_y)))
    case("MulNoNan", {"x1": _x, "x2": _y}, torch.where(_y == 0, 0.0, wide(_x) * wide(_y)))
    case("IsNan", {"x": _x}, _x.isnan())
for _dtype in (f32, f16, i32):
    _a, _b, _c, _d = (numbers(_dtype, 3, 5, seed=s) for s in range(4))
    case("FusedMulAdd", {"x1": _a, "x2": _b[0], "x3": _c}, wide(_a) * wide(_b[0]) + wide(_c))
    case("FusedMulAddAdd", {"x1": _a, "x2": _b, "x3": _c, "x4": _d}, wide(_a) * wide(_b) + wide(_c) + wide(_d), scale=2)
    _image = numbers(_dtype, 2, 3, 4, 5)
    case("BiasAdd", {"x": _image, "bias": numbers(_dtype, 5)}, _image + numbers(_dtype, 5))
    case("BiasAdd", {"x": _image, "bias": numbers(_dtype, 3)}, _image + numbers(_dtype, 3).reshape(3, 1, 1), {"data_format": "NCHW"})


def gradient(type, function, dtypes, names, attributes=None, by_result=False, extra=()):
    """names: of the gradient, of x or of the result."""
    for dtype in dtypes:
        x = numbers(dtype, 3, 5, low=0.3 if by_result == "positive" else -3.0)
        leaf = wide(x).clone().requires_grad_()
        out = function(leaf)
        grad = numbers(dtype, 3, 5, seed=4)
        expected = torch.autograd.grad(out, leaf, wide(grad))[0]
        second = out.detach().to(dtype) if by_result else x
        case(type, {names[0]: grad, names[1]: second, **dict.fromkeys(extra, x)}, expected, attributes, scale=8 if by_result else 3)


gradient("EluGrad", F.elu, (f32, f64, f16), ("grads", "activations"), by_result=True)
gradient("SeluGrad", F.selu, (f32, f16), ("gradients", "outputs"), by_result=True)
gradient("HardShrinkGrad", lambda x: F.hardshrink(x, 0.7), SINGLES, ("gradients", "features"), {"lambd": 0.7})
gradient("SoftShrinkGrad", lambda x: F.softshrink(x, 0.7), SINGLES, ("input_grad", "input_x"), {"lambd": 0.7})
gradient("MishGrad", F.mish, SINGLES, ("grad", "x"))
gradient("Relu6Grad", F.relu6, SINGLES, ("gradients", "features"))
gradient("SoftplusGrad", F.softplus, (f32, f16, f64), ("gradients", "features"))
gradient("SoftplusV2Grad", lambda x: F.softplus(x, 2.0, 3.0), SINGLES, ("input_gradients", "input_features"),
         {"beta": 2.0, "threshold": 3.0})
gradient("SwishGrad", F.silu, HALF, ("grad", "x"), extra=("y",))
gradient("SwishGrad", lambda x: x * torch.sigmoid(1.5 * x), (f32,), ("grad", "x"), {"scale": 1.5}, extra=("y",))
gradient("SqrtGrad", torch.sqrt, (f32, f64), ("dy", "y"), by_result="positive")
gradient("RsqrtGrad", torch.rsqrt, (f32, f64), ("dy", "y"), by_result="positive")
gradient("ReciprocalGrad", torch.reciprocal, (f32, f64), ("dy", "y"), by_result="positive")
gradient("InvGrad", torch.reciprocal, (f32,), ("grad", "x"), by_result="positive")

# ---- Losses ----

for _dtype in SINGLES:
    _a, _b = numbers(_dtype, 4, 6, low=0.1, high=0.9), numbers(_dtype, 4, 6, low=0.1, high=0.9, seed=3)
    for _how in ("none", "mean", "sum"):
        case("SmoothL1LossV2", {"predict": _a, "label": _b}, F.smooth_l1_loss(wide(_a), wide(_b), reduction=_how, beta=0.3),
             {"sigma": 0.3, "reduction": _how}, scale=4)
        case("BinaryCrossEntropy", {"x": _a, "y": _b}, F.binary_cross_entropy(wide(_a), wide(_b), reduction=_how),
             {"reduction": _how}, scale=4)
        case("KLDiv", {"x": _a, "target": _b}, F.kl_div(wide(_a), wide(_b), reduction="none").sum() / 4 if _how == "none"
             else F.kl_div(wide(_a), wide(_b), reduction=_how), {"reduction": "batchmean" if _how == "none" else _how}, scale=4)
    case("SigmoidCrossEntropyWithLogits", {"predict": _a, "target": _b},
         F.binary_cross_entropy_with_logits(wide(_a), wide(_b), reduction="none"), scale=2)


@pytest.mark.parametrize("type", sorted(CASES))
def test_as_pytorch(type):
    hold(type, CASES[type])


X = numbers(f32, 2, 6)
REFUSED = [
    ("SplitD", {"x": X}, {"split_dim": 1, "num_split": 4}, {"y": 4}, ("num_split", "divides")),
    ("SplitD", {"x": X}, {"split_dim": 2, "num_split": 2}, {"y": 2}, ("split_dim",)),
    ("SqueezeV3", {"x": X, "axes": [0]}, {}, {}, ("axes", "not 1")),
    ("UnsqueezeV3", {"x": X, "axes": [5]}, {}, {}, ("axes",)),
    ("SliceD", {"x": X}, {"offsets": [0, 4], "size": [2, 3]}, {}, ("size", "from 4 on")),
    ("Slice", {"x": X, "offsets": [0], "size": [1]}, {}, {}, ("offsets", "1 numbers")),
    ("EnsureShape", {"input": X}, {"shape": [2, 5]}, {}, ("[2, 5]",)),
    ("DepthToSpace", {"x": numbers(f32, 1, 6, 2, 2)}, {"block_size": 2, "data_format": "NCHW"}, {}, ("4 equal parts",)),
    ("SpaceToDepth", {"x": numbers(f32, 1, 3, 2, 2)}, {"block_size": 2}, {}, ("2 equal parts",)),
    ("BatchToSpaceND", {"x": numbers(f32, 3, 3, 2, 2), "block_shape": [2], "crops": [0, 0]}, {}, {}, ("2 equal parts",)),
    ("SpaceToBatchND", {"x": X, "block_shape": [2], "paddings": [0]}, {}, {}, ("paddings", "1 numbers")),
    ("GatherNd", {"x": X, "indices": torch.zeros(1, 3, dtype=i64)}, {}, {}, ("indices", "3 places")),
    ("TensorScatterAdd", {"x": X, "indices": torch.zeros(1, 1, dtype=i64), "updates": X}, {}, {}, ("updates", "12 elements")),
    ("BiasAdd", {"x": X, "bias": numbers(f32, 5)}, {}, {}, ("bias",)),
    ("TopKD", {"x": X, "assist_seq": numbers(f16, 4)}, {"k": 7}, {}, ("k", "no more")),
    ("FillD", {"value": numbers(f32)}, {"dims": [-2]}, {}, ("dims", "negative")),
    ("Eye", {}, {"num_rows": -1}, {}, ("num_rows",)),
]


@pytest.mark.parametrize("type, inputs, attributes, lengths, words", REFUSED)
def test_refusals_name_the_culprit(type, inputs, attributes, lengths, words):
    with pytest.raises(AclError) as refused:
        call(type, inputs, attributes, lengths=lengths)
    assert refused.value.status in (100021, 100023), refused.value.message
    for word in (type, *words):
        assert word in refused.value.message


# ---- Texts ----

def printed(tensors, **attributes):
    """What the operator writes to standard error."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            assert call("FormatAndPrint", {"x": tensors}, attributes) == {}
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        return file.read().decode()


def test_printed_texts():
    row = torch.arange(10.0) / 4
    assert printed([row, torch.tensor(3)], template="x {} of {}!", placeholder="{}") == "x [0 0.25 0.5 ... 1.75 2 2.25] of 3!\n"
    assert printed([row.half()], summarize=1) == "[0 ... 2.25]\n"
    assert printed([row[:7].bfloat16()], summarize=-1) == "[0 0.25 0.5 0.75 1 1.25 1.5]\n"
    assert printed([torch.arange(24, dtype=i32).reshape(4, 3, 2)], summarize=1) == (
        "[[[0 1]\n ...\n [4 5]]\n ...\n [[18 19]\n ...\n [22 23]]]\n")
    assert printed([torch.tensor([True, False]), torch.empty(0, 2), torch.tensor([math.inf, math.nan, 1 / 3, 1e20], dtype=f64)],
                   template="%s %s %s") == "[1 0] [] [inf nan 0.333333333 100000000000000000000]\n"
    for attributes, word in (({"template": "%s %s"}, "2 times"), ({"summarize": 0}, "summarize")):
        with pytest.raises(AclError, match=word):
            printed([row], **attributes)


def test_a_channel_gets_printed_texts():
    acl = ctypes.CDLL(str(LIB_DIR / "libacl_tdt_channel.so"))
    for name in ("acltdtCreateChannelWithCapacity", "acltdtCreateDataset", "acltdtGetDataItem", "acltdtGetDataAddrFromItem"):
        getattr(acl, name).restype = ctypes.c_void_p
    acl.acltdtGetDataSizeFromItem.restype = ctypes.c_size_t
    assert printed([torch.tensor([5])]) == "[5]\n"
    channel = ctypes.c_void_p(acl.acltdtCreateChannelWithCapacity(0, b"_npu_log", ctypes.c_size_t(4)))
    dataset = ctypes.c_void_p(acl.acltdtCreateDataset())
    try:
        for number in (1, 2):
            assert printed([torch.tensor([number])], template="number %s") == ""
        for number in (1, 2):  # in the order of the program
            assert acl.acltdtReceiveTensor(channel, dataset, 10000) == 0
            item = ctypes.c_void_p(acl.acltdtGetDataItem(dataset, ctypes.c_size_t(0)))
            data = ctypes.string_at(acl.acltdtGetDataAddrFromItem(item), acl.acltdtGetDataSizeFromItem(item))
            assert (acl.acltdtGetDataTypeFromItem(item), data) == (13, f"number [{number}]\n".encode())
    finally:
        acl.acltdtDestroyDataset(dataset)
        acl.acltdtDestroyChannel(channel)
    assert printed([torch.tensor([5])]) == "[5]\n"


# ---- Numbers of 8 bits with a point ----

E4M3, E5M2, E8M0 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e8m0fnu
ALL_BITS = torch.arange(256, dtype=u8)
REALS = torch.cat([torch.linspace(-600, 600, 4001), torch.logspace(-60, 60, 4001, base=2.0), -torch.logspace(-60, 60, 4001, base=2.0),
                   torch.tensor([0.0, -0.0, 448, 464, 464.1, 480, 57344, 61439, 61440, math.inf, -math.inf, math.nan])])


def same_bits(found, expected):
    assert found.dtype == expected.dtype and torch.equal(found.view(u8), expected.view(u8))


@pytest.mark.parametrize("small", (E4M3, E5M2, E8M0))
def test_small_floats_convert_as_in_pytorch(small):
    given = ALL_BITS.view(small)
    torch.testing.assert_close(call("Cast", {"x": given}, {"dst_type": f32})["y"], given.float(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(call("Cast", {"x": given}, {"dst_type": b16})["y"], given.bfloat16(), rtol=0, atol=0, equal_nan=True)
    every = torch.cat([REALS, (given.float()[:-1] + given.float()[1:]) / 2, given.float()])  # also what lies between two
    every = every[~every.isnan()]
    number = {E4M3: 36, E5M2: 35, E8M0: 37}[small]
    same_bits(call("Cast", {"x": every}, {"dst_type": number}, types={"y": small})["y"], every.to(small))
    assert call("Cast", {"x": torch.tensor([math.nan])}, {"dst_type": number}, types={"y": small})["y"].float().isnan().all()
    row = numbers(f16, 4, 6).to(small)
    same_bits(call("Transpose", {"x": row, "perm": [1, 0]})["y"], row.view(u8).t().contiguous().view(small))
    same_bits(call("ConcatV2", {"x": [row, row], "concat_dim": [0]})["y"], torch.cat([row.view(u8)] * 2).view(small))
    same_bits(call("Identity", {"x": row})["y"], row)
    assert torch.equal(call("Bitcast", {"x": row}, {"type": u8})["y"], row.view(u8))
    with pytest.raises(AclError, match="which the operator does not take"):
        call("Add", {"x1": row, "x2": row})


@pytest.mark.parametrize("small", (E4M3, E5M2))
def test_products_of_small_floats_are_added(small):
    left, right, sums = numbers(f32, 3, 8).to(small), numbers(f32, 8, 5).to(small), numbers(f32, 3, 5)
    rows, columns = numbers(f32, 3), numbers(f32, 5)
    product = left.float() @ right.float()
    names = {"x1": left, "x2": right, "x2_scale": columns, "y": sums}
    close(call("QuantBatchMatmulInplaceAdd", {**names, "x1_scale": rows})["y"], sums + product * columns * rows[:, None], 4)
    turned = {"x1": left.view(u8).t().contiguous().view(small), "x2": right.view(u8).t().contiguous().view(small),
              "x2_scale": columns[:1].clone(), "y": sums}
    found = call("QuantBatchMatmulInplaceAdd", turned, {"transpose_x1": True, "transpose_x2": True})["y"]
    close(found, sums + product * columns[0], 4)
    with pytest.raises(AclError, match="only one has exponents"):
        call("QuantBatchMatmulInplaceAdd", {**names, "x2_scale": columns.to(E8M0)})
    with pytest.raises(AclError, match=r"has shape \[4\], expected \[5\] or one number"):
        call("QuantBatchMatmulInplaceAdd", {**names, "x2_scale": columns[:4].clone()})
    powers = [torch.randint(125, 130, (1, n, 2), dtype=u8).view(E8M0) for n in (3, 5)]
    found = call("QuantBatchMatmulInplaceAdd", {**names, "x1_scale": powers[0], "x2_scale": powers[1]})["y"]
    close(found, sums + product * powers[0][0, :, 0].float()[:, None] * powers[1][0, :, 0].float(), 4)


@pytest.mark.parametrize("small", (E4M3, E5M2))
def test_products_of_groups_of_small_floats_are_added(small):
    left, right, sums = numbers(f32, 8, 3).to(small), numbers(f32, 8, 5).to(small), numbers(f32, 2, 3, 5)
    rows, columns = numbers(f32, 2), numbers(f32, 2, 5)
    expected = sums.clone()
    for group, part in enumerate((slice(0, 2), slice(2, 7))):
        expected[group] += left[part].float().t() @ right[part].float() * columns[group] * rows[group]
    given = {"x1": left, "x2": right, "scale2": columns, "group_list": torch.tensor([2, 7]), "y": sums, "scale1": rows}
    close(call("QuantGroupedMatmulInplaceAdd", given)["y"], expected, 4)
    given["group_list"] = torch.tensor([2, 5])
    close(call("QuantGroupedMatmulInplaceAdd", given, {"group_list_type": 1})["y"], expected, 4)


@pytest.mark.parametrize("small, number", ((E4M3, 36), (E5M2, 35)))
def test_blocks_of_groups_become_small_floats(small, number):
    x = numbers(f16, 5, 70)
    top = torch.finfo(small).max
    wanted, scale = torch.zeros(5, 70), torch.zeros(4, 2)
    for line, rows in ((0, slice(0, 2)), (1, slice(2, 3)), (2, slice(3, 5))):  # groups of 3 and 2 rows
        for column in range(2):
            block = x[rows, 64 * column:64 * column + 64].float()
            scale[line, column] = block.abs().max() / top
            wanted[rows, 64 * column:64 * column + 64] = block / scale[line, column]
    found = call("GroupedDynamicBlockQuant", {"x": x, "group_list": torch.tensor([3, 5], dtype=i32)},
                 {"dst_type": number, "row_block_size": 2, "col_block_size": 64}, types={"y": small})
    close(found["scale"], scale, 0)
    same_bits(found["y"], wanted.to(small))


@pytest.mark.parametrize("small, number", ((E4M3, 36), (E5M2, 35)))
def test_scaled_elements_become_small_floats(small, number):
    x, scale = numbers(f16, 5, 70), torch.tensor([2.0, 0.25])
    found = call("QuantMax", {"x": x, "scale": scale[:1]}, {"dst_type": number}, types={"y": small})
    same_bits(found["y"], (x.float() * 2).to(small))
    close(found["amax"], x.abs().max().view(1), 0)
    found = call("QuantMax", {"x": x, "scale": scale, "group_list": torch.tensor([3, 5])}, {"dst_type": number}, types={"y": small})
    same_bits(found["y"], (x.float() * torch.tensor([2.0] * 3 + [0.25] * 2).view(-1, 1)).to(small))
    close(found["amax"], torch.stack([x[:3].abs().max(), x[3:].abs().max()]), 0)


def test_queries_keys_and_values_are_turned_into_caches():
    b, s, heads, width = 2, 3, 2, 8
    x, cos, sin = numbers(f16, b, s, 4 * heads * width), numbers(f16, b, s, 1, width), numbers(f16, b, s, 1, width)
    caches = [torch.zeros(b, 6, heads, width, dtype=torch.int8) for _ in range(2)]
    q, k, v = (part.unflatten(-1, (-1, width)).double() for part in x.split([2 * heads * width, heads * width, heads * width], -1))

    def turn(part):
        return part * cos.double() + torch.cat([-part[..., width // 2:], part[..., :width // 2]], -1) * sin.double()

    scale = torch.full([width], 8.0)
    found = call("DequantRopeQuantKvcache", {"x": x, "cos": cos, "sin": sin, "k_cache": caches[0], "v_cache": caches[1],
                                             "indices": torch.tensor([0, 2], dtype=i32), "scale_k": scale, "scale_v": scale},
                 {"size_splits": [2 * heads * width, heads * width, heads * width]})
    for name, wanted in (("q", turn(q)), ("k", turn(k)), ("v", v)):
        close(found[name], wanted.half(), 2)
    for name, part in (("k_cache", turn(k)), ("v_cache", v)):
        wanted = torch.zeros(b, 6, heads, width)
        wanted[0, :3], wanted[1, 2:5] = (part[i] * 8 for i in range(2))
        assert ((found[name].double() - wanted).abs() <= 0.5005).all()


def test_hifloat8():
    """By its published definition: prefix, exponent as sign and digits behind a leading 1, the rest."""
    values = call("Cast", {"x": Bits(ALL_BITS, HIFLOAT8)}, {"dst_type": f32})["y"]
    expected = {0x00: 0.0, 0x01: 2.0**-22, 0x07: 2.0**-16, 0x08: 1.0, 0x0F: 1.875, 0x10: 2.0, 0x18: 0.5, 0x20: 4.0, 0x28: 8.0,
                0x30: 0.25, 0x40: 16.0, 0x43: 28.0, 0x50: 2.0**-4, 0x60: 256.0, 0x61: 384.0, 0x6E: 32768.0, 0x6F: math.inf,
                0x7E: 2.0**-15, 0x7F: 1.5 * 2.0**-15, 0x88: -1.0, 0xEF: -math.inf}
    assert {bits: values[bits].item() for bits in expected} == expected
    assert values.isnan().nonzero().tolist() == [[0x80]] and len(set(values[~values.isnan()].tolist())) == 255

    def bits(reals):
        return call("Cast", {"x": torch.tensor(reals)}, {"dst_type": HIFLOAT8}, types={"y": HIFLOAT8})["y"].tolist()

    finite = values[~values.isnan()]
    assert bits(finite.tolist()) == ALL_BITS[~values.isnan()].tolist()
    # Away from 0 at half; infinity from 40960 on; one zero.
    assert bits([1.0625, 1.06, -1.0625, 40959.0, 40960.0, 2.0**-24, -0.0, math.nan]) == [0x09, 0x08, 0x89, 0x6E, 0x6F, 0x00, 0x00, 0x80]
