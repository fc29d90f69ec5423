# SPDX-License-Identifier: Apache-2.0
"""What callers pass beside the plain way: fractal formats, ones in shapes, 4-bit numbers, types that are only moved."""

import ctypes

import pytest
import torch

import aclnn
from cases_attention import arguments
from cases_matmul import pack_int4
from harness import Call, Case, Generator, cases_of, compare
from test_attention import FUSED, call_of
from test_operators import NAMES, representative

FRACTAL_NZ, INT4, COMPLEX32, FLOAT8 = 29, 29, 33, 36


@pytest.fixture(autouse=True)
def fresh_memory():
    aclnn.device().reset()


class Given:
    """Memory with the bytes of `data`, described as the caller likes."""

    def __init__(self, data, shape=None, strides=None, offset=0, number=None, fmt=aclnn.FORMAT_ND, storage=None):
        data = data.contiguous()
        self.bytes = data.numel() * data.element_size()
        self.dtype = data.dtype
        address = aclnn.device().allocate(max(1, self.bytes))
        self.raw = aclnn.memory(address, self.bytes)
        self.raw.copy_(data.reshape(-1).view(torch.uint8))
        self.shape = list(data.shape if shape is None else shape)
        strides = torch.empty(self.shape, device="meta").stride() if strides is None else strides
        storage = self.shape if storage is None else storage

        def dims(values):
            return (ctypes.c_int64 * max(1, len(values)))(*values)
        self.handle = aclnn._base.aclCreateTensor(
            dims(self.shape), ctypes.c_uint64(len(self.shape)), aclnn.NUMBERS[data.dtype] if number is None else number,
            dims(strides), ctypes.c_int64(offset), fmt, dims(storage), ctypes.c_uint64(len(storage)),
            ctypes.c_void_p(address))
        assert self.handle

    def read(self):
        return self.raw.clone().view(self.dtype)


def run(name, values):
    op, objects = aclnn.TABLE[name], aclnn.Objects()
    aclnn.run(op, aclnn.pack(op, values, objects))
    aclnn.device().synchronize()


def refused(name, values, *words):
    op, objects = aclnn.TABLE[name], aclnn.Objects()
    with pytest.raises(aclnn.AclError) as error:
        aclnn.plan(op, aclnn.pack(op, values, objects))
    assert error.value.status == aclnn.PARAM_INVALID
    assert all(word in error.value.message for word in (op.name, *words)), error.value.message


# ---- FRACTAL_NZ ----

def fractal(tensor, shape=None):
    """The shape of the storage that a caller describes: blocks of 16 rows and 32 bytes."""
    *batch, rows, columns = tensor.shape
    width = 32 // tensor.element_size()
    storage = [*batch, -(-columns // width), -(-rows // 16), 16, width]
    return Given(tensor, fmt=FRACTAL_NZ, storage=storage, shape=shape)


@pytest.mark.parametrize("name, weight", [
    ("Mm", "mat2"), ("Matmul", "mat2"), ("MatmulWeightNz", "mat2"), ("BatchMatMul", "mat2"), ("BatchMatMulWeightNz", "mat2"),
    ("Addmm", "mat2"), ("AddmmWeightNz", "mat2"), ("Baddbmm", "batch2"), ("Addmv", "mat"), ("Mv", "self"),
    ("WeightQuantBatchMatmulV2", "weight"), ("WeightQuantBatchMatmulV3", "weight"), ("GroupedMatmulV3", "weight"),
    ("GroupedMatmulV4", "weight"), ("GroupedMatmulV5", "weight"), ("TransposeBatchMatMulWeightNz", "x2"), ("GroupedMatmul", "weight"),
    ("GroupedMatmulWeightNz", "weight"), ("WeightQuantBatchMatmulNz", "weight"), ("FusedQuantMatmulWeightNz", "x2"),
    ("TransposeQuantBatchMatMulWeightNz", "x2"), ("QuantMatmulReduceSumWeightNz", "x2"),
    ("GroupedMatmulSwigluQuantWeightNZ", "weight"), ("GroupedMatmulSwigluQuantWeightNzV2", "weight"),
    ("GroupedMatmulFinalizeRoutingWeightNz", "x2"), ("GroupedMatmulFinalizeRoutingWeightNzV2", "x2"),
    ("QuantGroupedMatmulDequantWeightNZ", "weight")])
def test_weights_in_the_fractal_format(name, weight):
    op, count = aclnn.TABLE[name], 0
    for case in cases_of(name):
        tensors = case.args[weight] if isinstance(case.args[weight], list) else [case.args[weight]]
        if any(t.dim() < 2 or t.numel() == 0 for t in tensors):
            continue
        call = Call(op, case)
        call.write_inputs()
        given = [fractal(t) for t in tensors]
        values = dict(call.values, **{weight: given if isinstance(case.args[weight], list) else given[0]})
        objects = aclnn.Objects()
        aclnn.run(op, aclnn.pack(op, values, objects))
        aclnn.device().synchronize()
        for actual, (_, wanted) in zip(call.results(), call.outputs):
            wanted.verify(actual, name)
        count += 1
        if count == 4:
            break
    assert count > 0


def test_a_weight_goes_there_and_back():
    weight = torch.randn(40, 33)
    there = fractal(torch.zeros(40, 33))
    run("NpuFormatCast", {"srcTensor": Given(weight), "dstTensor": there})
    assert torch.equal(there.read().view(40, 33), weight)
    again = fractal(there.read().view(40, 33))
    run("TransMatmulWeight", {"mmWeightRef": again})
    back = Given(torch.zeros(40, 33))
    run("NpuFormatCast", {"srcTensor": fractal(again.read().view(40, 33)), "dstTensor": back})
    assert torch.equal(back.read().view(40, 33), weight)
    copied = fractal(torch.zeros(40, 33))
    run("InplaceCopy", {"selfRef": copied, "src": back})
    assert torch.equal(copied.read().view(40, 33), weight)


def test_other_operators_refuse_the_fractal_format():
    refused("Relu", {"self": fractal(torch.ones(4, 4)), "out": Given(torch.ones(4, 4))}, "self", "FRACTAL_NZ")
    odd = Given(torch.ones(4, 4), fmt=4, storage=[1, 1, 16, 16])
    refused("Mm", {"self": Given(torch.ones(4, 4)), "mat2": odd, "out": Given(torch.ones(4, 4)), "cubeMathType": 0},
            "mat2", "FRACTAL_Z")


# ---- Ones in shapes ----



def more_ones(shape):
    return [1, *shape[:1], 1, *shape[1:]]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_may_have_more_ones(name):
    """An output of the right sizes with ones among them gets the same elements; or a refusal, never anything else."""
    op, case = aclnn.TABLE[name], representative(name)
    if case is None or case.waits_for_host():
        pytest.skip("no case with elements and shapes that are known")
    call = Call(op, case)
    call.write_inputs()
    values, changed = dict(call.values), []
    for (c_type, parameter), role in zip(op.parameters, op.roles):
        placed = call.values[parameter]
        if not role.startswith("out") or parameter in case.any_shape or not isinstance(placed, aclnn.Placed):
            continue
        if len(placed.shape) <= 6:
            other = aclnn.Placed(more_ones(placed.shape), placed.dtype, aclnn.layout_source(3))
            values[parameter] = other
            changed.append((other, placed))
    if not changed:
        pytest.skip("no output of its own")
    objects = aclnn.Objects()
    try:
        aclnn.run(op, aclnn.pack(op, values, objects))
    except aclnn.AclError as error:
        assert name in REFUSES_ONES and error.status == aclnn.PARAM_INVALID, error
        return
    assert name not in REFUSES_ONES
    aclnn.device().synchronize()
    for other, placed in changed:
        assert other.gaps_are_intact()
        placed.write(other.read().reshape(placed.shape))
    for actual, (_, wanted) in zip(call.results(), call.outputs):
        wanted.verify(actual, name)


# Whose outputs have shapes from which other things follow: layouts, a length that the caller chooses, groups.
REFUSES_ONES = {name for name in aclnn.TABLE
                if ("FlashAttention" in name or "InferAttention" in name) and "Grad" not in name} | {"Bincount"} | {
    "BlockSparseAttention", "DenseLightningIndexerSoftmaxLse", "LightningIndexer", "MlaPrologV2WeightNz",
    "MlaPrologV3WeightNz", "NsaCompressAttention", "NsaCompressAttentionInfer", "NsaSelectedAttention",
    "NsaSelectedAttentionInfer", "QuantLightningIndexer"}


def means_something_else(op):
    """With more dims: where an argument counts them, or the answer is about shapes."""
    return op.id in ("Cumprod", "Equal") or any(
        c_type.removeprefix("const ") in ("int64_t", "aclIntArray*") for c_type, _ in op.parameters)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_with_more_ones_are_refused_or_the_same(name):
    """One input at a time, of a single tensor or the first of a list; nothing is written outside of the views."""
    op, case = aclnn.TABLE[name], representative(name)
    if case is None or case.waits_for_host():
        pytest.skip("no case with elements and shapes that are known")
    for (_, parameter), role in zip(op.parameters, op.roles):
        source = case.args.get(parameter)
        is_list = isinstance(source, list) and bool(source) and isinstance(source[0], torch.Tensor)
        if not role.startswith("in") or role.startswith("inout") or not (is_list or isinstance(source, torch.Tensor)):
            continue
        aclnn.device().reset()
        call = Call(op, case, aclnn.layout_source(2))
        call.write_inputs()
        first = source[0] if is_list else source
        if first.dim() > 6:
            continue
        other = aclnn.Placed(more_ones(list(first.shape)), first.dtype, aclnn.layout_source(5))
        other.write(first.reshape(other.shape))
        values = dict(call.values, **{parameter: [other, *call.values[parameter][1:]] if is_list else other})
        try:
            aclnn.run(op, aclnn.pack(op, values, aclnn.Objects()))
        except aclnn.AclError as error:
            assert error.status == aclnn.PARAM_INVALID and op.name in error.message, error
            continue
        aclnn.device().synchronize()
        for actual, (placed, wanted) in zip(call.results(), call.outputs):
            assert placed.gaps_are_intact()
            if not means_something_else(op):
                wanted.verify(actual, name)


def rms_norm():
    g = torch.Generator().manual_seed(3)
    x = torch.randn(3, 4, 5, 64, generator=g)
    gamma = torch.randn(64, generator=g)
    rstd = torch.rsqrt(x.double().square().mean(-1) + 1e-6)
    y = x * rstd.unsqueeze(-1) * gamma
    return x, gamma, y, rstd


@pytest.mark.parametrize("statistics", [[3, 4, 5], [3, 4, 5, 1], [60], [12, 5], [1, 3, 4, 5], [3, 20, 1]])
@pytest.mark.parametrize("scatter", [False, True])
def test_statistics_of_any_shape(statistics, scatter):
    x, gamma, y, rstd = rms_norm()

    def place(tensor):
        result = aclnn.Placed(list(tensor.shape), tensor.dtype)
        result.write(tensor)
        return result
    # Padded rows: there is a view as [3, 4, 5, 1] only if its dims are split.
    source = aclnn.layout_source(1) if scatter and statistics in ([3, 4, 5], [1, 3, 4, 5]) else None
    out, stats = place(torch.zeros_like(x)), aclnn.Placed(statistics, torch.float32, source)
    for gamma_shape in ([64], [1, 64], [1, 1, 1, 64]):
        stats.write(torch.zeros(statistics))
        run("RmsNorm", {"x": place(x), "gamma": place(gamma.reshape(gamma_shape)), "epsilon": 1e-6, "yOut": out,
                        "rstdOut": stats})
        compare("RmsNorm", out.read(), y, torch.float32, "8/2 of max")
        compare("RmsNorm", stats.read(), rstd.reshape(statistics), torch.float32, "8/2 of max")
        assert stats.gaps_are_intact()
        out = place(torch.zeros_like(x))
        stats = aclnn.Placed(statistics, torch.float32, aclnn.layout_source(1) if source else None)
    # And back into the gradient, in the same shape.
    dy = torch.randn(x.shape, generator=torch.Generator().manual_seed(4))
    results = []
    for rstd_shape in (statistics, [3, 4, 5, 1]):
        dx, dgamma = place(torch.zeros_like(x)), place(torch.zeros(64))
        run("RmsNormGrad", {"dy": place(dy), "x": place(x), "rstd": place(rstd.float().reshape(rstd_shape)),
                            "gamma": place(gamma), "dxOut": dx, "dgammaOut": dgamma})
        results.append((dx.read(), dgamma.read()))
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("name, inputs, stats", [
    ("AddRmsNorm", {"x1": [3, 4, 64], "x2": [3, 4, 64], "gamma": [64], "epsilon": 1e-5}, {"rstdOut": [3, 4]}),
    ("LayerNorm", {"input": [3, 4, 64], "normalizedShape": [64], "weightOptional": [64], "biasOptional": [1, 64], "eps": 1e-5},
     {"meanOutOptional": [12], "rstdOutOptional": [3, 4]}),
    ("GroupNorm", {"self": [2, 6, 5], "gamma": [1, 6, 1], "beta": [6, 1], "N": 2, "C": 6, "HxW": 5, "group": 3, "eps": 1e-5},
     {"meanOut": [6], "rstdOut": [2, 3, 1]}),
])
def test_norms_take_statistics_of_any_shape(name, inputs, stats):
    """The same as with the shapes of the table, bit for bit."""
    op = aclnn.TABLE[name]
    first = next(name for name, value in inputs.items() if isinstance(value, list))
    whole = inputs[first]
    plain_stats = {"AddRmsNorm": [3, 4, 1], "LayerNorm": [3, 4, 1], "GroupNorm": [2, 3]}[name]
    results = []
    for plain in (False, True):
        g = torch.Generator().manual_seed(1)
        values = {}
        for (c_type, parameter), role in zip(op.parameters, op.roles):
            if role.startswith("out"):
                shape = stats.get(parameter, whole)
                values[parameter] = Given(torch.zeros(plain_stats if plain and parameter in stats else shape))
            elif "aclTensor" in c_type:
                data = torch.randn(inputs[parameter], generator=g)
                values[parameter] = Given(data.reshape(-1) if plain and data.numel() in (6, 64) else data)
            else:
                values[parameter] = inputs[parameter]
        run(name, values)
        results.append([values[n].read() for (_, n), role in zip(op.parameters, op.roles) if role.startswith("out")])
    assert all(torch.equal(a, b) for a, b in zip(*results)) and bool(results[0][0].any())
    wrong = dict(values, **{next(iter(stats)): Given(torch.zeros(13))})
    refused(name, wrong, next(iter(stats)))


def test_reductions_and_sequences_into_any_rank():
    x = torch.arange(12.0).view(3, 4)
    out = Given(torch.zeros(1))
    run("ReduceSum", {"self": Given(x), "dims": [0, 1], "keepDims": False, "dtype": torch.float32, "out": out})
    assert out.read().item() == 66
    out = Given(torch.zeros(1, 1, 1, 10, dtype=torch.int64))
    run("Arange", {"start": aclnn.Scalar(0), "end": aclnn.Scalar(10), "step": aclnn.Scalar(1), "out": out})
    assert out.read().tolist() == list(range(10))
    refused("Arange", {"start": aclnn.Scalar(0), "end": aclnn.Scalar(10), "step": aclnn.Scalar(1),
                       "out": Given(torch.zeros(2, 5, dtype=torch.int64))}, "out has shape [2, 5]")
    out = Given(torch.zeros(2, 4))
    run("IndexSelect", {"self": Given(x), "dim": 0, "index": Given(torch.tensor([[2], [0]])), "out": out})
    assert torch.equal(out.read().view(2, 4), x[[2, 0]])
    # Another order of the same sizes is another result.
    refused("Relu", {"self": Given(torch.ones(2, 3)), "out": Given(torch.ones(3, 2))}, "out has shape [3, 2]")
    refused("Relu", {"self": Given(torch.ones(2, 3)), "out": Given(torch.ones(6))}, "out has shape [6]")


# ---- 4-bit numbers ----

def pack_bytes(numbers):
    """Two 4-bit numbers of the last dim in a byte, the first in the lower bits."""
    parts = numbers.contiguous().view(*numbers.shape[:-1], -1, 2).to(torch.int16) & 15
    return (parts[..., 0] | parts[..., 1] << 4).to(torch.uint8)


def weight_values(x, weight, scale, offset, y, group=0):
    return {"x": Given(x), "weight": weight, "antiquantScale": Given(scale), "antiquantOffsetOptional": Given(offset),
            "quantScaleOptional": None, "quantOffsetOptional": None, "biasOptional": None, "antiquantGroupSize": group, "y": y}


@pytest.mark.parametrize("k, n", [(64, 40), (264, 600), (2, 2), (300, 7)])
@pytest.mark.parametrize("form", ["rows", "columns", "int32", "int32 columns"])
def test_int4_is_as_int8(form, k, n):
    """The same numbers in 4 and in 8 bits give the same results, but for the order of sums."""
    g = torch.Generator().manual_seed(k)
    numbers = torch.randint(-8, 8, [k, n], generator=g).to(torch.int8)
    x = torch.randn(5, k, generator=g)
    scale, offset = torch.rand(n, generator=g) + 0.1, torch.randn(n, generator=g)
    if form == "rows":
        if n % 2:
            refused("WeightQuantBatchMatmulV2", weight_values(
                x, Given(torch.zeros(k * n, dtype=torch.int8), [k, n], number=INT4), scale, offset,
                Given(torch.zeros(5, n))), "weight", "int4")
            return
        weight = Given(pack_bytes(numbers), [k, n], number=INT4)
    elif form == "columns":
        weight = Given(pack_bytes(numbers.t()), [k, n], [1, k], number=INT4)
    else:
        packed = n if form == "int32" else k
        if packed % 8:
            pytest.skip("no whole words")
        if form == "int32":
            # The words of the other order of dims, seen through strides [1, k].
            words = pack_int4(numbers, 1)
            weight = Given(words.t(), [k, n // 8], [1, k])
        else:
            weight = Given(pack_int4(numbers, 0).t(), [k // 8, n], [1, k // 8])
    y, expected = Given(torch.zeros(5, n)), Given(torch.zeros(5, n))
    run("WeightQuantBatchMatmulV2", weight_values(x, weight, scale, offset, y))
    plain = numbers if form in ("rows", "int32") else numbers.t().contiguous().t()
    plain = Given(plain.t(), [k, n], [1, k]) if "columns" in form else Given(plain)
    run("WeightQuantBatchMatmulV2", weight_values(x, plain, scale, offset, expected))
    torch.testing.assert_close(y.read(), expected.read(), rtol=1e-5, atol=1e-4)
    assert bool(y.read().any())


def test_int4_in_groups():
    g = torch.Generator().manual_seed(9)
    groups, k, n = 3, 48, 72
    numbers = torch.randint(-8, 8, [groups, k, n], generator=g).to(torch.int8)
    x, scale = torch.randn(10, k, generator=g), torch.rand(groups, n, generator=g) + 0.1
    results = []
    weights = [Given(numbers), Given(pack_bytes(numbers), [groups, k, n], number=INT4),
               Given(pack_bytes(numbers.transpose(1, 2)), [groups, k, n], [k * n, 1, k], number=INT4)]
    for weight in weights:
        absent = [name for _, name in aclnn.TABLE["GroupedMatmulV4"].parameters]
        out = Given(torch.zeros(10, n))
        run("GroupedMatmulV4", dict.fromkeys(absent) | {
            "x": [Given(x)], "weight": [weight], "antiquantScaleOptional": [Given(scale)],
            "groupListOptional": Given(torch.tensor([[2], [2], [10]])), "splitItem": 3, "groupType": 0, "groupListType": 0,
            "actType": 0, "out": [out]})
        results.append(out.read())
    torch.testing.assert_close(results[0], results[1], rtol=1e-5, atol=1e-4)
    assert bool(results[0].any())
    compare("GroupedMatmulV4", results[2], results[0].double(), torch.float32, "8/1 of max")


def test_int4_where_nothing_takes_it():
    whole = Given(torch.zeros(8, dtype=torch.uint8), [4, 4], number=INT4)
    refused("Relu", {"self": whole, "out": Given(torch.ones(4, 4))}, "self has type 29")
    odd = Given(torch.zeros(64, dtype=torch.uint8), [8, 8], [8, 1], offset=1, number=INT4)
    refused("WeightQuantBatchMatmulV2", weight_values(torch.ones(2, 8), odd, torch.ones(8), torch.ones(8),
                                                      Given(torch.zeros(2, 8))), "weight", "offset 1")


# ---- Types that are moved ----

@pytest.mark.parametrize("number, bits", [(COMPLEX32, torch.int32), (FLOAT8, torch.uint8)])
def test_bits_are_copied(number, bits):
    data = torch.arange(12, dtype=bits)
    to = Given(torch.zeros(12, dtype=bits), [3, 4], number=number)
    run("InplaceCopy", {"selfRef": to, "src": Given(data, [3, 4], [1, 3], number=number)})
    assert torch.equal(to.read(), data.view(4, 3).t().reshape(-1))
    whole = Given(torch.zeros(12, dtype=bits), [3, 4], number=number)
    if number == FLOAT8:
        run("InplaceCopy", {"selfRef": whole, "src": Given(torch.arange(12.0) / 3, [3, 4])})
        assert torch.equal(whole.read(), (torch.arange(12.0) / 3).to(torch.float8_e4m3fn).view(torch.uint8))
        return
    refused("InplaceCopy", {"selfRef": whole, "src": Given(torch.zeros(3, 4))}, "src", f"type {number}", "float32")
    refused("InplaceCopy", {"selfRef": Given(torch.zeros(3, 4)), "src": Given(data, [3, 4], number=number)},
            "src", f"type {number}")


# ---- Absent operands ----

def test_an_empty_index_of_another_type_is_none():
    x = torch.arange(24.0).view(2, 3, 4)
    out = Given(torch.zeros(2, 2, 4))
    empty = Given(torch.zeros(0))
    run("Index", {"self": Given(x), "indices": [empty, Given(torch.tensor([2, 0]))], "out": out})
    assert torch.equal(out.read().view(2, 2, 4), x[:, [2, 0]])
    target = Given(x)
    run("IndexPutImpl", {"selfRef": target, "indices": [Given(torch.zeros(0)), Given(torch.tensor([1]))],
                         "values": Given(torch.tensor([5.0])), "accumulate": False, "unsafe": False})
    expected = x.clone()
    expected[:, 1] = 5
    assert torch.equal(target.read().view(2, 3, 4), expected)
    refused("Index", {"self": Given(x), "indices": [Given(torch.zeros(2))], "out": Given(torch.zeros(2, 3, 4))},
            "indices[0] has float32")


@pytest.mark.parametrize("value, rows", [(3.0, 1), (0.0, 0)])
def test_nonzero_of_a_number(value, rows):
    op, objects = aclnn.TABLE["Nonzero"], aclnn.Objects()
    for shape in ([1, 0],):
        out = aclnn.Placed(shape, torch.int64)
        aclnn.run(op, aclnn.pack(op, {"self": Given(torch.tensor(value)), "out": out}, objects))
        assert aclnn.view_shape(out.handle) == [rows, 0]


# ---- Attention ----

@pytest.mark.parametrize("name", ["FusedInferAttentionScore", "FusedInferAttentionScoreV4"])
def test_lengths_of_a_single_query_play_no_part(name):
    results = []
    for lengths in (None, [900, 0], [7]):
        given = {} if lengths is None else {
            next(n for _, n in aclnn.TABLE[name].parameters if n in ("actualSeqLengths", "actualSeqLengthsOptional")): lengths}
        op, call = call_of(name, queries=1)
        call.write_inputs()
        call.values.update(given)
        aclnn.run(op, call.packed())
        aclnn.device().synchronize()
        results.append(call.results()[0])
        call.destroy()
    assert bool(results[0].any()) and torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32, torch.int64])
def test_the_sums_of_a_call_without_them_have_any_type(dtype):
    op, call = call_of(FUSED)
    call.write_inputs()
    values = dict(call.values, softmaxLse=Given(torch.ones(1, dtype=dtype)), softmaxLseFlag=False)
    aclnn.run(op, aclnn.pack(op, values, aclnn.Objects()))
    aclnn.device().synchronize()
    assert bool(call.results()[0].any())
    if dtype != torch.float32:
        wrong = dict(values, softmaxLse=Given(torch.ones(2, 4, 4, 1, dtype=dtype)), softmaxLseFlag=True)
        refused(FUSED, wrong, "softmaxLse", "float32")


@pytest.mark.parametrize("name", [f"FusedInferAttentionScoreV{number}" for number in (3, 4, 5)])
@pytest.mark.parametrize("queries", [1, 4, 70])
def test_the_largest_workspace_holds_all_lengths(name, queries):
    op, call = call_of(name, queries=queries)
    objects = aclnn.Objects()
    packed = aclnn.pack(op, dict(call.values, actualSeqLengthsKvOptional=[999]), objects)
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    tell = getattr(aclnn._ops, op.name + "GetMaxWorkspaceSize")
    aclnn.check(tell(*packed, ctypes.byref(size), ctypes.byref(executor)), "GetMaxWorkspaceSize")
    most = size.value
    with pytest.raises(aclnn.AclError) as error:
        aclnn.check(getattr(aclnn._ops, op.name)(ctypes.c_void_p(aclnn.device().allocate(most)), ctypes.c_uint64(most),
                                                 executor, aclnn.device().stream), op.name)
    assert error.value.status == aclnn.PARAM_INVALID and "GetMaxWorkspaceSize" in error.value.message
    for lengths in ({}, {"actualSeqLengthsKvOptional": [1, 16]}, {"actualSeqLengthsOptional": [1, 2]} if queries > 1 else {}):
        needed, executor = aclnn.plan(op, aclnn.pack(op, dict(call.values, **lengths), aclnn.Objects()))
        aclnn.drop(executor)
        assert needed <= most


@pytest.mark.parametrize("name", [FUSED, "FlashAttentionVarLenScoreV5"])
@pytest.mark.parametrize("kv_tokens, depth", [(32, 8), (5000, 128)])
def test_the_largest_workspace_of_sequences_end_to_end(name, kv_tokens, depth):
    """Asked without lengths, which calls with the layout TND must have. Little memory would be the operator's own."""
    g = Generator(2)
    q, k, v = (g.tensor([tokens, heads, depth], torch.float32) for tokens, heads in ((8, 4), (kv_tokens, 2), (kv_tokens, 2)))
    op = aclnn.TABLE[name]
    outputs = {n: None for (_, n), role in zip(op.parameters, op.roles) if role.startswith("out?")}
    if name == FUSED:
        outputs["attentionOut"] = torch.zeros_like(q)
    else:
        outputs |= {"attentionOutOut": torch.zeros_like(q), "softmaxMaxOut": torch.zeros(8, 4, 8),
                    "softmaxSumOut": torch.zeros(8, 4, 8)}
    call = Call(op, Case(arguments(name, q, k, v, "TND", 4, 2, 0.3), outputs))
    size, executor = ctypes.c_uint64(), ctypes.c_void_p()
    tell = getattr(aclnn._ops, op.name + "GetMaxWorkspaceSize")
    aclnn.check(tell(*call.packed(), ctypes.byref(size), ctypes.byref(executor)), "GetMaxWorkspaceSize")
    aclnn.drop(executor)
    for queries, keys in (([8], [kv_tokens]), ([1, 8], [10, 20]), (list(range(1, 9)), [4 * i for i in range(1, 9)]),
                          ([1, 1, 1, 8], [kv_tokens] * 4), ([1], [kv_tokens])):
        names = (("actualSeqLengthsOptional", "actualSeqLengthsKvOptional") if name == FUSED else
                 ("actualSeqQLenOptional", "actualSeqKvLenOptional"))
        if name != FUSED and len(queries) == 4:
            keys = [kv_tokens // 4 * i for i in range(1, 5)]
        lengths = dict(zip(names, (queries, keys)))
        needed, executor = aclnn.plan(op, aclnn.pack(op, dict(call.values, **lengths), aclnn.Objects()))
        aclnn.drop(executor)
        assert needed <= size.value
    assert (size.value != 0) == (kv_tokens > 32)
