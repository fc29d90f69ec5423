# SPDX-License-Identifier: Apache-2.0
"""Operators by type against PyTorch: attention, images, indexing, norms, products, quantisation, routing."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import graph_ops
import graph_ops_borrowed
import graph_ops_images  # noqa: F401 - brings its checks
import test_graph_ops_c
import test_graph_ops_d
from aclnn import AclError
from graph_ops import call
from graph_ops_checks import CHECKS, HALF, Numbers, checks, close, gradients, leaves

NO_STEPS = 100024


@pytest.mark.parametrize("key", graph_ops_borrowed.BORROWED)
def test_as_the_function(key):
    *_, unknown = graph_ops_borrowed.names_of(key)
    assert not unknown, f"nothing is said of {unknown}"
    graph_ops_borrowed.verify(key)


# ---- Indexing ----

@checks("EmbeddingBag")
def bags(type, random):
    weight = random(7, 4)
    for number, (mode, dtype) in enumerate(itertools.product(("sum", "mean", "max"), HALF)):
        table = weight.to(dtype)
        kind = (torch.int64, torch.int32)[number % 2]
        indices, offsets = random.whole(9, low=0, high=7, dtype=kind), torch.tensor([0, 3, 3, 7], dtype=kind)
        scales = random(9, dtype=dtype) if mode == "sum" and number % 2 else None
        last = number % 3 == 1
        if last:
            offsets = torch.cat([offsets, torch.tensor([9], dtype=kind)])
        wide = None if scales is None else scales.double()
        expected = F.embedding_bag(indices, table.double(), offsets, mode=mode, per_sample_weights=wide, include_last_offset=last)
        result = call(type, {"weight": table, "indices": indices, "offsets": offsets, "per_sample_weights": scales},
                      {"mode": mode, "include_last_offset": last})
        close(result["y"], expected, dtype)
        close(result["bag_size"], torch.tensor([3, 0, 4, 2]), kind)
        close(result["offset2bag"], torch.tensor([0, 0, 0, 2, 2, 2, 2, 3, 3]), kind)
    indices = random.whole(3, 4, low=0, high=7, dtype=torch.int64)
    close(call(type, {"weight": weight, "indices": indices}, {"mode": "mean"})["y"], F.embedding_bag(indices, weight, mode="mean"))


@checks("IndexByTensor")
def index_by_tensor(type, random):
    x = random(4, 5, 6, 3)
    i, j, k = (random.whole(*shape, low=0, high=3, dtype=torch.int64) for shape in ((2, 1), (3,), (2, 3)))
    cases = [([1], [i], x[i]), ([0, 1, 1], [i, j], x[:, i, j]), ([1, 0, 1], [i, j], x[i, :, j]),
             ([0, 0, 0, 1], [k], x[..., k]), ([1, 1, 1, 1], [i, j, k, j], x[i, j, k, j]),
             ([0, 1], [torch.zeros(0, dtype=torch.int64)], x[:, torch.zeros(0, dtype=torch.int64)])]
    for mask, indices, expected in cases:
        close(call(type, {"x": x, "indices": indices}, {"indices_mask": mask})["y"], expected)
    words = random.whole(4, 5, dtype=torch.int8)
    close(call(type, {"x": words, "indices": [j]}, {"indices_mask": [0, 1]})["y"], words[:, j])


@checks("InplaceIndexAdd")
def index_add(type, random):
    for dtype, alpha, axis in ((torch.float32, None, 1), (torch.int32, 3, 0), (torch.float16, 2, -1)):
        var = random.whole(4, 5, 3, dtype=dtype)
        indices = torch.tensor([2, 0, 2], dtype=torch.int32)
        shape = list(var.shape)
        shape[axis] = 3
        updates = random.whole(*shape, dtype=dtype)
        expected = var.index_add(axis, indices, updates, alpha=1 if alpha is None else alpha)
        given = None if alpha is None else torch.tensor([alpha], dtype=dtype)
        close(call(type, {"var": var, "indices": indices, "updates": updates, "alpha": given}, {"axis": axis})["var"], expected)


@checks("MapIndex")
def map_index(type, random):
    table = torch.tensor([[1, 2, 3], [4, 5, 6], [1, 2, 3], [7, 8, 9]], dtype=torch.int32)
    for x, expected in (([4, 5, 6], 1), ([1, 2, 3], 0), ([7, 8, 9], 3), ([7, 8, 8], -1)):
        result = call(type, {"x": torch.tensor(x, dtype=torch.int32), "data_seq": table.flatten()})["y"]
        assert result.flatten().tolist() == [expected]


@checks("ScatterElements")
def scatter_elements(type, random):
    for dtype, word in ((torch.float32, "none"), (torch.int32, "none"), (torch.float32, "mul"), (torch.int64, "add")):
        data, updates = random.whole(4, 5, dtype=dtype), random.whole(2, 5, dtype=dtype)
        indices = torch.stack([torch.randperm(4, generator=random.generator)[:2] for _ in range(5)], 1)
        expected = data.clone()
        expected = expected.scatter(0, indices, updates) if word == "none" else expected.scatter_reduce(
            0, indices, updates, {"mul": "prod", "add": "sum"}[word])
        close(call(type, {"data": data, "indices": indices, "updates": updates}, {"axis": 0, "reduction": word})["y"], expected)


# ---- Norms ----

def each(values, x):
    return values.view([-1] + [1] * (x.dim() - 2)) if values.dim() == 1 else values


def over_channels(x):
    return x.transpose(0, 1).flatten(1)


@checks("BatchNormV3", "BatchNormGradV3")
def batch_norm(type, random):
    for dtype, other, training in ((torch.float32, torch.float32, True), (torch.float16, torch.float32, True),
                                   (torch.bfloat16, torch.float32, False)):
        x = random(3, 4, 5, 2, dtype=dtype)
        weight, bias, mean = (random(4, dtype=other) for _ in range(3))
        variance = random(4, dtype=other).abs() + 0.1
        wide, wide_weight, wide_bias = leaves(x, weight, bias)
        running_mean, running_var = mean.double(), variance.double()
        expected = F.batch_norm(wide, running_mean, running_var, wide_weight, wide_bias, training, 0.3, 1e-4)
        if training:
            used = over_channels(x.double()).mean(1), over_channels(x.double()).var(1, unbiased=False)
        else:
            used = mean.double(), variance.double()
        result = call("BatchNormV3", {"x": x, "weight": weight, "bias": bias, "running_mean": mean, "running_var": variance},
                      {"epsilon": 1e-4, "momentum": 0.3, "is_training": training})
        if type == "BatchNormV3":
            close(result["y"], expected.detach(), dtype)
            close(result["running_mean"], running_mean, other)
            close(result["running_var"], running_var, other)
            close(result["save_mean"], used[0], torch.float32)
            close(result["save_rstd"], (used[1] + 1e-4).rsqrt(), torch.float32)
            continue
        dy = random(*x.shape, dtype=dtype)
        actual = call(type, {"dy": dy, "x": x, "weight": weight, "running_mean": mean, "running_var": variance,
                             "save_mean": result["save_mean"], "save_rstd": result["save_rstd"]},
                      {"is_training": training, "epsilon": 1e-4})
        for name, wanted, kind in zip(("dx", "dweight", "dbias"), gradients(expected, dy, (wide, wide_weight, wide_bias)),
                                      (dtype, other, other)):
            close(actual[name], wanted, kind, 4)


@checks("BNInfer", "BNInferGrad", "BNTrainingUpdateGrad", "BN3DTrainingUpdateGrad", "BNTrainingReduceGrad")
def batch_norm_parts(type, random):
    for dtype, shape, wide_statistics in ((torch.float32, (3, 4, 5, 2), False), (torch.float16, (2, 3, 4, 2, 2), True)):
        x, grads = random(*shape, dtype=dtype), random(*shape, dtype=dtype)
        channels, eps = shape[1], 1e-3
        view = [1, channels] + [1] * (len(shape) - 2)
        mean, scale, offset = (random(channels) for _ in range(3))
        variance = random(channels).abs() + 0.1
        told = {"mean": mean, "variance": variance, "scale": scale, "offset": offset}
        if wide_statistics:
            told = {name: value.view(view) for name, value in told.items()}
        centred = x.double() - mean.double().view(view)
        root = (variance.double() + eps).rsqrt()
        sums = over_channels(grads.double() * centred).sum(1) * root, over_channels(grads.double()).sum(1)
        statistics = {"batch_mean": told["mean"], "batch_variance": told["variance"]}
        if type == "BNInfer":
            expected = centred * (root * scale.double()).view(view) + offset.double().view(view)
            close(call(type, {"x": x, **told}, {"epsilon": eps})["y"], expected, dtype)
        elif type == "BNInferGrad":
            actual = call(type, {"grads": grads, "scale": told["scale"], "batch_variance": told["variance"]}, {"epsilon": eps})
            close(actual["x_backprop"], grads.double() * (root * scale.double()).view(view), dtype)
        elif type == "BNTrainingReduceGrad":
            count = x.numel() / channels
            expected = (grads.double() - sums[1].view(view) / count - centred * (root * sums[0]).view(view) / count)
            expected = expected * (root * scale.double()).view(view)
            inputs = {"grads": grads, "x": x, "diff_scale": sums[0].float(), "diff_offset": sums[1].float(),
                      "scale": told["scale"], **statistics}
            close(call(type, inputs, {"epsilon": eps})["y"], expected, dtype, 4)
        else:
            result = call(type, {"grads": grads, "x": x, **statistics}, {"epsilon": eps})
            close(result["diff_scale"].flatten(), sums[0], torch.float32, 4)
            close(result["diff_offset"].flatten(), sums[1], torch.float32, 4)


@checks("SyncBatchNormBackwardElemt", "SyncBatchNormBackwardReduce")
def sync_norm_gradients(type, random):
    for dtype in (torch.float32, torch.float16):
        mean, invstd, weight, first_mean, second_mean = (random(4, dtype=dtype) for _ in range(5))
        if type.endswith("Reduce"):
            result = call(type, {"sum_dy": weight, "sum_dy_dx_pad": first_mean, "mean": mean, "invert_std": invstd})
            expected = first_mean.double() - weight.double() * mean.double()
            close(result["sum_dy_xmu"], expected, dtype)
            close(result["y"], expected * invstd.double(), dtype)
            continue
        dy, x = random(3, 4, 5, dtype=dtype), random(3, 4, 5, dtype=dtype)
        m, r, w, a, b = (value.double().view(1, 4, 1) for value in (mean, invstd, weight, first_mean, second_mean))
        expected = (dy.double() - a - (x.double() - m) * r * r * b) * r * w
        actual = call(type, {"grad_output": dy, "save_input": x, "mean": mean, "invstd": invstd, "weight": weight,
                             "mean_dy": first_mean, "mean_dy_xmu": second_mean})
        close(actual["grad_input"], expected, dtype, 4)


@checks("GroupNorm", "GroupNormV2", "GroupNormGrad")
def group_norm(type, random):
    for number, (dtype, shape, groups) in enumerate([(torch.float32, (2, 6, 5, 3), 3), (torch.float16, (1, 4, 7), 1),
                                                     (torch.float32, (3, 4), 2)]):
        x, gamma, beta = random(*shape, dtype=dtype), random(shape[1], dtype=dtype), random(shape[1], dtype=dtype)
        wide, wide_gamma, wide_beta = leaves(x, gamma, beta)
        expected = F.group_norm(wide, groups, wide_gamma, wide_beta, 1e-3)
        grouped = x.double().reshape(shape[0], groups, -1)
        mean, variance = grouped.mean(2), grouped.var(2, unbiased=False)
        rstd = (variance + 1e-3).rsqrt()
        if type != "GroupNormGrad":
            result = call(type, {"x": x, "gamma": gamma, "beta": beta}, {"num_groups": groups, "eps": 1e-3})
            close(result["y"], expected.detach(), dtype)
            close(result["mean"], mean, dtype)
            close(result["variance" if type == "GroupNorm" else "rstd"], variance if type == "GroupNorm" else rstd, dtype, 2)
            continue
        dy = random(*shape, dtype=dtype)
        flags = {name: number != i for i, name in enumerate(("dx_is_require", "dgamma_is_require", "dbeta_is_require"))}
        result = call(type, {"dy": dy, "mean": mean.to(dtype), "rstd": rstd.to(dtype), "x": x, "gamma": gamma},
                      {"num_groups": groups, **flags})
        wanted = gradients(expected, dy, (wide, wide_gamma, wide_beta))
        for name, value, flag in zip(("dx", "dgamma", "dbeta"), wanted, flags.values()):
            close(result[name], value if flag else torch.zeros_like(value), dtype, 6)


@checks("LayerNormGradV3")
def layer_norm_gradient(type, random):
    for dtype, shape, normed in ((torch.float32, (3, 5), 1), (torch.float16, (2, 3, 4), 2), (torch.bfloat16, (4, 33), 1)):
        x, gamma, dy = random(*shape, dtype=dtype), random(*shape[-normed:], dtype=dtype), random(*shape, dtype=dtype)
        wide, wide_gamma = leaves(x, gamma)
        wide_beta = torch.zeros_like(wide_gamma, requires_grad=True)
        expected = F.layer_norm(wide, shape[-normed:], wide_gamma, wide_beta, 1e-5)
        dims = list(range(len(shape) - normed, len(shape)))
        mean = x.double().mean(dims, keepdim=True)
        rstd = (x.double().var(dims, unbiased=False, keepdim=True) + 1e-5).rsqrt()
        result = call(type, {"dy": dy, "x": x, "rstd": rstd.float(), "mean": mean.float(), "gamma": gamma})
        for name, value in zip(("pd_x", "pd_gamma", "pd_beta"), gradients(expected, dy, (wide, wide_gamma, wide_beta))):
            close(result[name], value, dtype, 4)


@checks("FFT", "FFT2D")
def transforms(type, random):
    for shape, dtype in (((3, 12), torch.complex64), ((2, 7, 8), torch.complex128), ((1, 36), torch.complex64),
                         ((2, 3, 1, 5), torch.complex64), ((0, 4), torch.complex64), ((64, 60), torch.complex64)):
        x = torch.complex(random(*shape, dtype=torch.float64), random(*shape, dtype=torch.float64)).to(dtype)
        expected = x if not x.numel() else torch.fft.fft(x) if type == "FFT" else torch.fft.fft2(x)
        actual = call(type, {"x": x})["y"]
        assert actual.dtype == dtype and actual.shape == expected.shape
        scale = float(expected.abs().max()) if x.numel() else 1
        assert torch.allclose(actual, expected, rtol=0, atol=scale * (1e-6 if dtype == torch.complex64 else 1e-13))


@checks("Cmo")
def hint(type, random):
    call(type, {"src": random(4)}, {"max_size": 16})


IMAGE = torch.zeros(1, 2, 5, 5)
REFUSED = [  # type, inputs, attributes, number, words of the message
    ("GridSampler2D", {"x": IMAGE, "grid": torch.zeros(1, 3, 3, 2)}, {"interpolation_mode": "cubic"}, 100023,
     ("interpolation_mode", "bilinear, nearest, bicubic")),
    ("GridSampler3D", {"x": IMAGE.unsqueeze(2), "grid": torch.zeros(1, 1, 3, 3, 3)}, {"data_format": "NDHWC"}, 100023,
     ("data_format", "NCDHW")),
    ("ResizeNearestNeighborV2", {"x": IMAGE, "size": [2, 2]}, {"align_corners": True, "half_pixel_centers": True}, 100023,
     ("half_pixel_centers", "align_corners")),
    ("EmbeddingBag", {"weight": IMAGE[0, 0], "indices": torch.zeros(2, 2, dtype=torch.int64)}, {"mode": "median"}, 100023,
     ("mode", "sum, mean or max")),
    ("Scatter", {"var": IMAGE, "indices": torch.zeros(1, dtype=torch.int64), "updates": IMAGE}, {"reduce": "add"}, 100023,
     ("reduce", "use update")),
    ("ScatterElements", {"data": IMAGE, "indices": torch.zeros(1, 2, 5, 5, dtype=torch.int64), "updates": IMAGE},
     {"reduction": "max"}, 100023, ("reduction", "none, add or mul")),
    ("MaxPool3DWithArgmaxV2", {"x": IMAGE.unsqueeze(2)}, {"ksize": [1, 2, 2], "strides": [1, 1, 1], "pads": [0, 0, 0, 1, 0, 0]},
     100023, ("pads", "behind")),
    ("Conv2D", {"x": IMAGE, "filter": torch.zeros(3, 2, 1, 1)},
     {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NCHW", "offset_x": 3}, 100023, ("offset_x", "only 0")),
    ("Conv2DBackpropInput", {"input_size": [1, 2, 5, 5], "filter": torch.zeros(3, 2, 1), "out_backprop": IMAGE},
     {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NCHW"}, 100021, ("filter", "has 3 dims", "pass 4 dims")),
    ("Conv2DBackpropFilter", {"filter_size": [2, 5], "x": IMAGE, "out_backprop": IMAGE},
     {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NCHW"}, 100022, ("gets 2 dims",)),
    ("MapIndex", {"x": torch.zeros(3, dtype=torch.int32), "data_seq": torch.zeros(4, dtype=torch.int32)}, {}, 100021,
     ("data_seq", "rows as long as x")),
    ("BNInfer", {"x": IMAGE, **{name: torch.zeros(3) for name in ("scale", "offset", "mean", "variance")}}, {"epsilon": 0.1},
     100021, ("scale has 3 elements", "each channel")),
    ("GroupNormGrad", {"dy": IMAGE, "mean": torch.zeros(3), "rstd": torch.zeros(3), "x": IMAGE, "gamma": torch.zeros(2)},
     {"num_groups": 2}, 100021, ("mean", "[n, num_groups]")),
    ("MaskedCausalConv1d", {"input": IMAGE[0].half(), "weight": torch.zeros(2, 4).half()}, {}, 100021, ("weight", "[window, h]")),
    ("DynamicBlockQuant", {"x": IMAGE[0, 0].half()}, {}, 100023, ("dst_type", "no type that can be written")),
    ("HcomBroadcast", {"x": [IMAGE]}, {"root_rank": 0, "group": "g"}, 100024, ("HcomBroadcast has no kernel", "graphs of the engine", "libhccl.so")),
    ("FusedCausalConv1d", {"x": IMAGE[0].half(), "weight": torch.zeros(3, 4).half(), "conv_states": IMAGE[0].half()}, {}, 100000,
     ("weight", "[window, ")),
]


@pytest.mark.parametrize("type, inputs, attributes, number, words", REFUSED)
def test_refusals_say_why(type, inputs, attributes, number, words):
    with pytest.raises(AclError) as refused:
        call(type, inputs, attributes)
    assert refused.value.status == number, refused.value.message
    for word in (type, *words):
        assert word in refused.value.message


FAMILIES = ("attention", "convolution", "indexing", "matmul", "normalization", "quantization", "routing", "collective")
OF_C = {"DequantRopeQuantKvcache", "FormatAndPrint", "GroupedDynamicBlockQuant", "QuantBatchMatmulInplaceAdd",
        "QuantGroupedMatmulInplaceAdd", "QuantMax"}  # functions of test_graph_ops_c.py
BY_OTHER_TESTS = {"BatchMatMul", "BatchMatMulV2", "MatMul", "MatMulV2"}  # tests/aclop/operator_test.cc


def has_steps(type):
    try:
        graph_ops.infer_nothing(type)
    except AclError as error:
        return error.status != NO_STEPS
    return True


def test_every_type_with_steps_has_a_case():
    types = {type for type, family in graph_ops.FAMILIES.items() if family in FAMILIES and has_steps(type)}
    tested = set(CHECKS) | {key.partition("/")[0] for key in graph_ops_borrowed.BORROWED} | BY_OTHER_TESTS
    assert not types - tested - set(test_graph_ops_c.CASES) - set(test_graph_ops_d.CASES) - OF_C
    assert not tested - types - {"FFT", "FFT2D"}


@pytest.mark.parametrize("type", CHECKS)
def test_against_torch(type):
    for number, check in enumerate(CHECKS[type]):
        check(type, Numbers(number + len(type)))
