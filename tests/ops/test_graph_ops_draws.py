# SPDX-License-Identifier: Apache-2.0
"""Operators by type that draw numbers, find out the shapes of their results, or are refused."""

import pytest
import torch

from aclnn import AclError
from graph_ops import Known, call
from graph_ops_numbers import FLOATS, HALF, boolean, c64, close, f16, f32, f64, i16, i32, i64, numbers, u8, wide

INPUT, OUTPUT, ATTRIBUTE = 100021, 100022, 100023

# ---- Drawn numbers ----

SEED, COUNTER = torch.tensor([17], dtype=torch.uint64), torch.tensor([0, 40], dtype=torch.uint64)
MANY = [64, 64]


def draw(type, inputs, attributes=None):
    """The only output; equal inputs draw equal numbers."""
    first, second = (next(iter(call(type, inputs, attributes).values())) for _ in range(2))
    assert torch.equal(first, second)
    return first


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("type", ("StatelessRandomUniformV2", "StatelessRandomNormalV2"))
def test_numbers_follow_key_and_counter(type, dtype):
    inputs = {"shape": MANY, "key": SEED, "counter": COUNTER, "alg": torch.tensor(1, dtype=i32)}
    found = draw(type, inputs, {"dtype": dtype})
    assert found.dtype == dtype and list(found.shape) == MANY
    is_uniform = "Uniform" in type
    mean, deviation = (0.5, 12 ** -0.5) if is_uniform else (0.0, 1.0)
    assert abs(found.double().mean() - mean) < 5 * deviation / 64
    assert abs(found.double().std() - deviation) < 0.05
    if is_uniform and dtype in (f32, f64):
        assert 0 <= found.min() and found.max() < 1
    assert not torch.equal(found, draw(type, {**inputs, "key": SEED.view(i64).add(1).view(torch.uint64)}, {"dtype": dtype}))
    assert not torch.equal(found, draw(type, {**inputs, "counter": torch.tensor([0, 44], dtype=torch.uint64)}, {"dtype": dtype}))
    assert draw(type, {**inputs, "shape": [0, 3]}, {"dtype": dtype}).shape == (0, 3)


@pytest.mark.parametrize("dtype", (f32, f16, i32, boolean, f64))
def test_bernoulli(dtype):
    inputs = {"shape": MANY, "prob": torch.tensor(0.25), "seed": torch.tensor(3), "offset": torch.tensor([8])}
    found = draw("StatelessBernoulli", inputs, {"dtype": dtype})
    assert set(found.double().unique().tolist()) == {0.0, 1.0}
    assert abs(found.double().mean() - 0.25) < 0.04
    assert draw("StatelessBernoulli", {**inputs, "prob": torch.tensor([0.0])}, {"dtype": dtype}).sum() == 0
    each = torch.tensor([0.0, 1.0]).repeat(32)
    assert torch.equal(draw("StatelessBernoulli", {**inputs, "prob": each}, {"dtype": f32}), each.expand(64, 64))


def test_masks_keep_and_scale():
    shape, keep = [33, 40], 0.75
    inputs = {"shape": shape, "prob": torch.tensor(keep), "seed": torch.tensor(3), "seed1": torch.tensor(0),
              "offset": torch.tensor([0, 12])}
    mask = draw("StatelessDropOutGenMask", {**inputs, "prob": Known(torch.tensor(keep))})
    bits = torch.tensor([[byte >> i & 1 for i in range(8)] for byte in mask.tolist()]).reshape(-1)[: 33 * 40].reshape(shape)
    assert abs(bits.double().mean() - keep) < 0.06
    with pytest.raises(AclError) as refused:
        call("StatelessDropOutGenMask", inputs)
    assert refused.value.status == INPUT
    assert torch.equal(mask, draw("StatelessDropOutGenMask", {**inputs, "prob": Known(torch.tensor(keep)), "offset": None,
                                                              "seed1": torch.tensor(12)}))
    for dtype in HALF:
        x = numbers(dtype, *shape)
        for known in (torch.tensor(keep), Known(torch.tensor(keep))):
            found = call("DropOutDoMask", {"x": x, "mask": mask, "keep_prob": known})["y"]
            close(found, wide(x) * bits / keep, 1)


def test_dropout_without_a_seed():
    x = torch.ones(64, 64)
    first, second = (call("Dropout", {"x": x}, {"dropout_ratio": 0.25})["y"] for _ in range(2))
    assert set(first.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()} and not torch.equal(first, second)
    assert torch.equal(call("Dropout", {"x": x}, {"dropout_ratio": 0.0, "alpha": 2.0, "beta": 0.5})["y"], x * 2.5)


@pytest.mark.parametrize("dtype", (i32, i64, f32, f16, i16, f64))
def test_permutations(dtype):
    inputs = {"n": [100], "seed": torch.tensor(3), "offset": torch.tensor(0)}
    found = draw("StatelessRandperm", inputs, {"dtype": dtype})
    assert torch.equal(found.sort().values, torch.arange(100).to(dtype)) and not torch.equal(found, torch.arange(100).to(dtype))
    assert not torch.equal(found, draw("StatelessRandperm", {**inputs, "offset": torch.tensor(400)}, {"dtype": dtype}))
    one, two = (call("Randperm", {}, {"n": 100, "dtype": dtype})["out"] for _ in range(2))
    assert torch.equal(one.sort().values, two.sort().values) and not torch.equal(one, two)


@pytest.mark.parametrize("dtype", (f32, f16, f64))
def test_samples(dtype):
    weights = torch.tensor([[0.0, 1.0, 3.0], [5.0, 0.0, 0.0]]).to(dtype)
    inputs = {"x": weights, "seed": torch.tensor(3), "offset": torch.tensor(0)}
    found = draw("MultinomialWithReplacement", inputs, {"numsamples": 400, "replacement": True})
    assert found.dtype == i64 and (found[1] == 0).all() and (found[0] != 0).all()
    assert abs((found[0] == 2).double().mean() - 0.75) < 0.1
    both = draw("MultinomialWithReplacement", {**inputs, "x": weights[:1]}, {"numsamples": 2})
    assert both.sort().values.tolist() == [[1, 2]]


# ---- Shapes that kernels find out ----

@pytest.mark.parametrize("dtype", (f32, f16, i32, boolean, u8, i64))
def test_found_shapes(dtype):
    x = numbers(dtype, 5, 7, low=0, high=2)
    x[2:] = 0
    assert torch.equal(call("NonZero", {"x": x})["y"], x.nonzero())
    assert torch.equal(call("NonZero", {"x": x}, {"dtype": i32})["y"], x.nonzero().int())
    assert torch.equal(call("NonZero", {"x": x}, {"transpose": True})["y"], x.nonzero().t())
    assert torch.equal(call("Where", {"x": x})["y"], x.nonzero())
    assert call("Where", {"x": torch.zeros(3).to(dtype)})["y"].shape == (0, 1)
    if dtype in (f32, f16, i32, u8, i64):
        x = numbers(dtype, 40, low=0, high=5).round()
        found = call("Unique", {"x": x})
        values, places = x.unique(return_inverse=True)
        assert torch.equal(found["y"], values) and torch.equal(found["idx"], places.int())


# ---- Refusals ----

@pytest.mark.parametrize("number, type, inputs, attributes", [
    (INPUT, "Acosh", {"x": numbers(i32, 3)}, None),
    (INPUT, "AsStrided", {"x": numbers(f32, 4), "size": [2, 3], "stride": [3, 1], "storage_offset": [0]}, None),
    (INPUT, "AsStrided", {"x": numbers(f32, 4), "size": [2], "stride": [-1], "storage_offset": [3]}, None),
    (INPUT, "AsStrided", {"x": numbers(f32, 4), "size": [2], "stride": [1 << 62], "storage_offset": [1 << 62]}, None),
    (INPUT, "ViewCopy", {"dst": numbers(f32, 4), "dst_size": [4], "dst_stride": [1], "dst_storage_offset": [1],
                         "src": numbers(f32, 4), "src_size": [4], "src_stride": [1], "src_storage_offset": [0]}, None),
    (INPUT, "MirrorPad", {"x": numbers(f32, 2), "paddings": [2, 0]}, {"mode": "REFLECT"}),
    (INPUT, "PadV3", {"x": numbers(f32, 0), "paddings": [2, 0]}, {"mode": "edge"}),
    (ATTRIBUTE, "PadV3", {"x": numbers(f32, 2), "paddings": [2, 0]}, {"mode": "wrap"}),
    (ATTRIBUTE, "GeluV2", {"x": numbers(f32, 2)}, {"approximate": "sigmoid"}),
    (ATTRIBUTE, "MseLoss", {"predict": numbers(f32, 2), "label": numbers(f32, 2)}, {"reduction": "median"}),
    (ATTRIBUTE, "TransData", {"src": numbers(f32, 2, 3)}, {"src_format": "NCHW", "dst_format": "NHWC"}),
    (ATTRIBUTE, "Dropout", {"x": numbers(f32, 2)}, {"dropout_ratio": 1.5}),
    (INPUT, "ForeachAddScalarList", {"x": [numbers(f32, 2)], "scalars": torch.tensor([1.0, 2.0])}, None),
    (INPUT, "ForeachNorm", {"x1": [numbers(f32, 2)], "scalar": torch.tensor(2.0)}, None),
    (INPUT, "ForeachDivScalar", {"x": [numbers(i32, 2)], "scalar": torch.tensor(2, dtype=i32)}, None),
    (INPUT, "Range", {"start": torch.tensor(0), "limit": torch.tensor(1), "delta": torch.tensor(0)}, None),
    (INPUT, "FFT", {"x": numbers(c64)}, None),
    (OUTPUT, "ForeachAbs", {"x": [numbers(f32, 2), numbers(f32, 2)]}, None),
    (INPUT, "StatelessRandperm", {"n": [3], "seed": torch.empty(0, dtype=i64), "offset": torch.tensor(0)}, None),
    (INPUT, "ThresholdV2", {"x": numbers(f32, 2), "threshold": torch.empty(0)}, None),
    (INPUT, "PadV3", {"x": numbers(f32, 2), "paddings": [1 << 62, -(1 << 62)]}, None),
])
def test_refusals(number, type, inputs, attributes):
    with pytest.raises(AclError) as refused:
        call(type, inputs, attributes, lengths={"y": 1})
    assert refused.value.status == number, refused.value
