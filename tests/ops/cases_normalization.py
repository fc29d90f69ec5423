# SPDX-License-Identifier: Apache-2.0
"""Softmax, its relatives, and the norms over the last dims."""

import torch

from harness import Case, Ref, cases, high

ROWS = ([], [0, 3], [7], [5, 33], [2, 3, 65], [4, 1, 6, 5], [3, 2100], [300, 21])
NORMS = (([7], 1), ([5, 33], 1), ([2, 3, 65], 2), ([4, 1, 6, 5], 1), ([0, 3], 1), ([40, 24], 1), ([2, 2, 2100], 1))


def rows_of(dtype):
    return ROWS if dtype == torch.float32 else ([5, 33], [2, 3, 65], [3, 2100])


def norms_of(dtype):
    return NORMS if dtype == torch.float32 else NORMS[:4]


def dims_of(shape):
    return [0, -1] if len(shape) < 2 else [-1, 0, len(shape) // 2]


@cases("Softmax", "LogSoftmax")
def softmax(op, g):
    function = torch.softmax if op == "Softmax" else torch.log_softmax
    for dtype in g.floating:
        for shape in rows_of(dtype):
            for dim in dims_of(shape):
                x = g.tensor(shape, dtype)
                yield Case({"self": x, "dim": dim}, {"out": Ref(function(high(x), dim), dtype)})
        x = g.tensor([40, 4], dtype, "edge")
        yield Case({"self": x, "dim": 1}, {"out": Ref(function(high(x), 1), dtype)})


@cases("SoftmaxBackward", "LogSoftmaxBackward")
def softmax_backward(op, g):
    function = torch.softmax if op == "SoftmaxBackward" else torch.log_softmax
    backward = torch._softmax_backward_data if op == "SoftmaxBackward" else torch._log_softmax_backward_data
    for dtype in g.floating:
        for shape in rows_of(dtype):
            for dim in dims_of(shape):
                grad = g.tensor(shape, dtype)
                output = function(high(g.tensor(shape, dtype)), dim).to(dtype)
                expected = backward(high(grad), high(output), dim, torch.float64)
                yield Case({"gradOutput": grad, "output": output, "dim": dim}, {"out": Ref(expected, dtype)})


def statistics(x, inner, eps, centered=True):
    dims = list(range(x.dim() - inner, x.dim()))
    mean = high(x).mean(dims, keepdim=True)
    rest = high(x) - mean if centered else high(x)
    return mean, (rest.square().mean(dims, keepdim=True) + eps).rsqrt()


@cases("LayerNorm")
def layer_norm(op, g):
    for dtype in g.floating:
        for number, (shape, inner) in enumerate(norms_of(dtype)):
            x = g.tensor(shape, dtype) + 3
            normalized = shape[len(shape) - inner:]
            weight, bias = g.tensor(normalized, dtype), g.tensor(normalized, dtype)
            weight, bias = (weight, bias) if number % 3 == 0 else (weight, None) if number % 3 == 1 else (None, None)
            mean, rstd = statistics(x, inner, 1e-5)
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            expected = torch.nn.functional.layer_norm(high(x), normalized, None if weight is None else high(weight),
                                                      None if bias is None else high(bias), 1e-5)
            wanted = number % 2 == 0
            yield Case({"input": x, "normalizedShape": normalized, "weightOptional": weight, "biasOptional": bias,
                        "eps": 1e-5},
                       {"out": Ref(expected, dtype), "meanOutOptional": Ref(mean, wide) if wanted else None,
                        "rstdOutOptional": Ref(rstd, wide) if wanted else None})


@cases("LayerNorm")
def layer_norm_of_columns(op, g):
    """Rows that are columns in memory: some are turned at a time, up to a length."""
    for dtype in g.floating:
        for batch, rows, length in ((2, 37, 5), (1, 16, 96), (3, 7, 300), (1, 40, 1500)):
            x = (g.tensor([batch, length, rows], dtype) + 3).transpose(1, 2)
            weight, bias = g.tensor([length], dtype), g.tensor([length], dtype)
            expected = torch.nn.functional.layer_norm(high(x), [length], high(weight), high(bias), 1e-5)
            yield Case({"input": x, "normalizedShape": [length], "weightOptional": weight, "biasOptional": bias, "eps": 1e-5},
                       {"out": Ref(expected, dtype), "meanOutOptional": None, "rstdOutOptional": None})


@cases("LayerNormBackward")
def layer_norm_backward(op, g):
    for dtype in g.floating:
        for number, (shape, inner) in enumerate(norms_of(dtype)):
            x, grad = g.tensor(shape, dtype), g.tensor(shape, dtype)
            normalized = shape[len(shape) - inner:]
            weight, bias = g.tensor(normalized, dtype), g.tensor(normalized, dtype)
            mask = [True, True, True] if number < 3 else [number % 2 == 0, number % 3 == 0, number % 3 != 1]
            has_weight = number != 2
            mean, rstd = statistics(x, inner, 1e-5)
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            mean, rstd = mean.to(wide), rstd.to(wide)
            gradients = torch.ops.aten.native_layer_norm_backward(
                high(grad), high(x), normalized, high(mean), high(rstd), high(weight) if has_weight else None, high(bias),
                [True, has_weight, True])
            if not has_weight:
                centered = (high(x) - high(mean)) * high(rstd) * high(grad)
                rows = list(range(len(shape) - inner))
                gradients = (gradients[0], centered.sum(rows) if rows else centered, gradients[2])
            yield Case({"gradOut": grad, "input": x, "normalizedShape": normalized, "mean": mean, "rstd": rstd,
                        "weightOptional": weight if has_weight else None, "biasOptional": bias, "outputMask": mask},
                       {name: Ref(value, dtype) if wanted else None for name, value, wanted in
                        zip(("gradInputOut", "gradWeightOut", "gradBiasOut"), gradients, mask)})


@cases("RmsNorm")
def rms_norm(op, g):
    for dtype in g.floating:
        for shape, inner in norms_of(dtype):
            normalized = shape[len(shape) - inner:]
            x, gamma = g.tensor(shape, dtype), g.tensor(normalized, dtype)
            _, rstd = statistics(x, inner, 1e-6, centered=False)
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            expected = torch.nn.functional.rms_norm(high(x), normalized, high(gamma), 1e-6)
            yield Case({"x": x, "gamma": gamma, "epsilon": 1e-6}, {"yOut": Ref(expected, dtype), "rstdOut": Ref(rstd, wide)})


@cases("AddRmsNorm")
def add_rms_norm(op, g):
    for dtype in g.floating:
        for shape, inner in norms_of(dtype):
            x1, x2, gamma = g.tensor(shape, dtype), g.tensor(shape, dtype), g.tensor(shape[len(shape) - inner:], dtype)
            x = x1 + x2
            _, rstd = statistics(x, inner, 1e-6, centered=False)
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            yield Case({"x1": x1, "x2": x2, "gamma": gamma, "epsilon": 1e-6},
                       {"yOut": Ref(high(x) * rstd * high(gamma), dtype), "rstdOut": Ref(rstd, wide),
                        "xOut": Ref(x, dtype, bound="exact")})


@cases("InplaceAddRmsNorm")
def inplace_add_rms_norm(op, g):
    for dtype in g.floating:
        for shape, inner in norms_of(dtype):
            x1, x2, gamma = g.tensor(shape, dtype), g.tensor(shape, dtype), g.tensor(shape[len(shape) - inner:], dtype)
            x = x1 + x2
            _, rstd = statistics(x, inner, 1e-6, centered=False)
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            yield Case({"x1Ref": x1, "x2Ref": x2, "gamma": gamma, "epsilon": 1e-6},
                       {"x1Ref": Ref(high(x) * rstd * high(gamma), dtype), "rstdOut": Ref(rstd, wide),
                        "x2Ref": Ref(x, dtype, bound="exact")})


def deep_inputs(g):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for shape, inner in norms_of(dtype):
            normalized = shape[len(shape) - inner:]
            yield (dtype, shape, inner, g.tensor(shape, dtype), g.tensor(shape, dtype), g.tensor(normalized, dtype),
                   g.tensor(normalized, dtype))


@cases("DeepNorm")
def deep_norm(op, g):
    for dtype, shape, inner, x, gx, gamma, beta in deep_inputs(g):
        total = 0.3 * high(x) + high(gx)
        mean, rstd = statistics(total, inner, 1e-5)
        yield Case({"x": x, "gx": gx, "beta": beta, "gamma": gamma, "alpha": 0.3, "epsilon": 1e-5},
                   {"yOut": Ref((total - mean) * rstd * high(gamma) + high(beta), dtype),
                    "meanOut": Ref(mean, torch.float32), "rstdOut": Ref(rstd, torch.float32)})


@cases("DeepNormGrad")
def deep_norm_grad(op, g):
    for dtype, shape, inner, x, gx, gamma, beta in deep_inputs(g):
        dy = g.tensor(shape, dtype)
        leaves = [high(t).requires_grad_() for t in (x, gx, gamma, beta)]
        total = 0.3 * leaves[0] + leaves[1]
        mean, rstd = (t.float() for t in statistics(total.detach(), inner, 1e-5))
        torch.nn.functional.layer_norm(total, shape[len(shape) - inner:], leaves[2], leaves[3], 1e-5).backward(high(dy))
        yield Case({"dy": dy, "x": x, "gx": gx, "gamma": gamma, "mean": mean, "rstd": rstd, "alpha": 0.3},
                   {"dxOut": Ref(leaves[0].grad, dtype), "dgxOut": Ref(leaves[1].grad, dtype),
                    "dbetaOut": Ref(leaves[3].grad, torch.float32), "dgammaOut": Ref(leaves[2].grad, torch.float32)})


@cases("RmsNormGrad")
def rms_norm_grad(op, g):
    for dtype in g.floating:
        for shape, inner in norms_of(dtype):
            x, gamma, dy = g.tensor(shape, dtype), g.tensor(shape[len(shape) - inner:], dtype), g.tensor(shape, dtype)
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            rstd = statistics(x, inner, 1e-6, centered=False)[1].to(wide)
            own_x, own_gamma = high(x).requires_grad_(), high(gamma).requires_grad_()
            torch.nn.functional.rms_norm(own_x, shape[len(shape) - inner:], own_gamma, 1e-6).backward(high(dy))
            yield Case({"dy": dy, "x": x, "rstd": rstd, "gamma": gamma},
                       {"dxOut": Ref(own_x.grad, dtype), "dgammaOut": Ref(own_gamma.grad, wide)})
