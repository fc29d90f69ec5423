# SPDX-License-Identifier: Apache-2.0
"""Norms over features, channels, groups."""
from torchair._ge_concrete_graph import ge_apis as ge
from torchair._ge_concrete_graph.dtypes import DataType
from torchair._ge_concrete_graph.ge_apis import Cast, Const
from torchair._ge_concrete_graph.ge_apis import dtype_promote as promote
from torchair._ge_concrete_graph.ge_converter.common import reshape, sizes
from torchair._ge_concrete_graph.registry import converts

_FLOAT = DataType.DT_FLOAT


def _filled(shape, value, dtype):
    return ge.operator("Fill")(sizes(shape), Const(value, dtype))


@converts("native_layer_norm.default")
def _layer_norm(input, normalized_shape, weight, bias, eps, *, meta_outputs):  # noqa: A002
    dtype = input.dtype
    weight = _filled(normalized_shape, 1, dtype) if weight is None else weight
    bias = _filled(normalized_shape, 0, dtype) if bias is None else bias
    y, mean, rstd = ge.operator("LayerNormV4")(input, sizes(normalized_shape), weight, bias, epsilon=eps)
    return y, *(promote(each, target_dtype=spec.dtype) for each, spec in zip((mean, rstd), meta_outputs[1:]))


@converts("native_layer_norm_backward.default")
def _layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask, *, meta_outputs):  # noqa: A002
    weight = _filled(normalized_shape, 1, input.dtype) if weight is None else weight
    results = ge.operator("LayerNormGradV3")(grad_out, input, rstd, mean, weight)
    return [
        promote(each, target_dtype=spec.dtype) if wanted and spec is not None else None
        for each, wanted, spec in zip(results, output_mask, meta_outputs)
    ]


@converts("native_group_norm.default")
def _group_norm(input, weight, bias, N, C, HxW, group, eps, *, meta_outputs):  # noqa: A002, N803
    weight = _filled([C], 1, input.dtype) if weight is None else weight
    bias = _filled([C], 0, input.dtype) if bias is None else bias
    return ge.operator("GroupNormV2")(input, weight, bias, num_groups=group, data_format="NCHW", eps=eps, is_training=True)


def _channels(tensor, rank):
    """[C] as [1, C, 1, …]."""
    return reshape(tensor, [1, tensor.symsize[0], *[1] * (rank - 2)])


@converts("_native_batch_norm_legit_no_training.default")
def _batch_norm_inference(input, weight, bias, running_mean, running_var, momentum, eps, *, meta_outputs):  # noqa: A002
    rank = input.rank
    if rank < 2:
        raise RuntimeError(f"batch norm: at least two dims are expected, not {rank}")
    count = [input.symsize[1]]
    ones = [promote(each, target_dtype=_FLOAT) if each is not None else _filled(count, fill, _FLOAT)
            for each, fill in ((weight, 1), (bias, 0))]
    own = [*ones, promote(running_mean, target_dtype=_FLOAT), promote(running_var, target_dtype=_FLOAT)]
    x = input
    is_reshaped = rank not in (4, 5)
    if is_reshaped:
        rest = 1
        for each in input.symsize[2:]:
            rest = rest * each
        x = reshape(input, [input.symsize[0], input.symsize[1], 1, rest])  # as a convolution over one dim has it
    y = ge.operator("BNInfer")(x, *own, epsilon=eps)
    if is_reshaped:
        y = reshape(y, input.symsize)
    if all(spec.symsize == [0] for spec in meta_outputs[1:3]):
        return y, Const([], _FLOAT), Const([], _FLOAT)
    return y, own[2], ge.operator("Rsqrt")(ge.operator("Add")(own[3], Const(eps, _FLOAT)))


@converts("_native_batch_norm_legit_functional.default")
def _batch_norm_training(input, weight, bias, running_mean, running_var, training, momentum, eps, *, meta_outputs):  # noqa: A002
    if not training:
        results = _batch_norm_inference(input, weight, bias, running_mean, running_var, momentum, eps, meta_outputs=meta_outputs)
        return *results, running_mean, running_var
    rank, dims = input.rank, [i for i in range(input.rank) if i != 1]
    x = promote(input, target_dtype=_FLOAT)
    mean = ge.operator("ReduceMean")(x, Const(dims))
    mean.symsize = [input.symsize[1]]
    apart = ge.operator("Sub")(x, _channels(mean, rank))
    variance = ge.operator("ReduceMean")(ge.operator("Mul")(apart, apart), Const(dims))
    variance.symsize = mean.symsize
    rstd = ge.operator("Rsqrt")(ge.operator("Add")(variance, Const(eps, _FLOAT)))
    rstd.symsize = mean.symsize
    y = ge.operator("Mul")(apart, _channels(rstd, rank))
    if weight is not None:
        y = ge.operator("Mul")(y, _channels(promote(weight, target_dtype=_FLOAT), rank))
    if bias is not None:
        y = ge.operator("Add")(y, _channels(promote(bias, target_dtype=_FLOAT), rank))
    count = 1
    for dim in dims:
        count = count * input.symsize[dim]
    unbiased = ge.operator("Mul")(variance, ge.operator("RealDiv")(promote(count, target_dtype=_FLOAT), promote(count - 1, target_dtype=_FLOAT)))
    moved = []
    for old, new in ((running_mean, mean), (running_var, unbiased)):
        kept = ge.operator("Mul")(promote(old, target_dtype=_FLOAT), Const(1 - momentum, _FLOAT))
        moved.append(promote(ge.operator("Add")(kept, ge.operator("Mul")(new, Const(momentum, _FLOAT))), target_dtype=old.dtype))
    return promote(y, target_dtype=input.dtype), mean, rstd, *moved


@converts("native_batch_norm_backward.default")
def _batch_norm_backward(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask, *,  # noqa: A002
                         meta_outputs):
    rank, dims = input.rank, [i for i in range(input.rank) if i != 1]
    dy, x = promote(grad_out, target_dtype=_FLOAT), promote(input, target_dtype=_FLOAT)
    if train:
        mean, rstd = save_mean, save_invstd
    else:
        mean = promote(running_mean, target_dtype=_FLOAT)
        rstd = ge.operator("Rsqrt")(ge.operator("Add")(promote(running_var, target_dtype=_FLOAT), Const(eps, _FLOAT)))
        rstd.symsize = [input.symsize[1]]
    normal = ge.operator("Mul")(ge.operator("Sub")(x, _channels(mean, rank)), _channels(rstd, rank))
    dweight = ge.operator("ReduceSum")(ge.operator("Mul")(dy, normal), Const(dims))
    dbias = ge.operator("ReduceSum")(dy, Const(dims))
    dweight.symsize = dbias.symsize = [input.symsize[1]]
    scale = rstd if weight is None else ge.operator("Mul")(rstd, promote(weight, target_dtype=_FLOAT))
    scale.symsize = [input.symsize[1]]
    apart = dy
    if train:
        count = 1
        for dim in dims:
            count = count * input.symsize[dim]
        number = promote(count, target_dtype=_FLOAT)
        shifts = ge.operator("Add")(ge.operator("Mul")(normal, _channels(dweight, rank)), _channels(dbias, rank))
        apart = ge.operator("Sub")(dy, ge.operator("RealDiv")(shifts, number))
    dx = promote(ge.operator("Mul")(apart, _channels(scale, rank)), target_dtype=input.dtype)
    own = weight.dtype if weight is not None else _FLOAT
    return [each if wanted else None for each, wanted in
            zip((dx, promote(dweight, target_dtype=own), promote(dbias, target_dtype=own)), output_mask)]


@converts("npu.npu_rms_norm")
def _rms_norm(self, gamma, epsilon=1e-6, *, meta_outputs):
    return ge.operator("RmsNorm")(self, gamma, epsilon=epsilon)


@converts("npu.npu_add_rms_norm")
def _add_rms_norm(x1, x2, gamma, epsilon=1e-6, *, meta_outputs):
    return ge.operator("AddRmsNorm")(x1, x2, gamma, epsilon=epsilon)


_ = Cast
