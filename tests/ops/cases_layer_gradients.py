# SPDX-License-Identifier: Apache-2.0
"""Gradients of layers with parameters, against those that PyTorch derives."""

import torch

from harness import Case, Ref, cases, high

CONVOLUTIONS = (  # input, weight, stride, padding, dilation, transposed, output padding, groups
    ([2, 4, 13], [6, 4, 3], [1], [1], [1], False, [0], 1),
    ([2, 4, 9, 11], [6, 2, 3, 2], [2, 1], [1, 0], [1, 2], False, [0, 0], 2),
    ([1, 4, 6, 7], [4, 3, 3, 3], [2, 2], [1, 1], [1, 1], True, [1, 0], 2),
    ([2, 2, 4, 5, 6], [3, 2, 2, 2, 3], [1, 2, 1], [0, 1, 1], [1, 1, 1], False, [0, 0, 0], 1),
    ([3, 5, 8, 8], [5, 1, 1, 1], [1, 1], [0, 0], [1, 1], False, [0, 0], 5),
)
MASKS = ([True, True, True], [True, False, False], [False, True, True])


@cases("ConvolutionBackward")
def convolution(op, g):
    for dtype in g.floating:
        for number, (shape, kernel, stride, padding, dilation, transposed, extra, groups) in enumerate(CONVOLUTIONS):
            x, weight = g.tensor(shape, dtype), g.tensor(kernel, dtype)
            channels = kernel[1] * groups if transposed else kernel[0]
            leaves = [t.clone().requires_grad_() for t in (high(x), high(weight), torch.zeros(channels).double())]
            out = torch.convolution(*leaves, stride, padding, dilation, transposed, extra, groups)
            grad = g.tensor(list(out.shape), dtype)
            of = torch.autograd.grad(out, leaves, high(grad))
            mask = MASKS[number % 3]
            results = {name: Ref(value, dtype) if wanted else None
                       for name, value, wanted in zip(("gradInput", "gradWeight", "gradBias"), of, mask)}
            yield Case({"gradOutput": grad, "input": x, "weight": weight, "biasSizes": [channels], "stride": stride,
                        "padding": padding, "dilation": dilation, "transposed": transposed, "outputPadding": extra,
                        "groups": groups, "outputMask": mask, "cubeMathType": 0}, results)


@cases("BatchNormBackward")
def batch_norm(op, g):
    for dtype in g.floating:
        for number, shape in enumerate(([6, 3], [2, 3, 7], [2, 5, 4, 6], [1, 2, 3, 4, 5])):
            for training in (True, False):
                x, grad = g.tensor(shape, dtype), g.tensor(shape, dtype)
                wide = torch.float32 if number % 2 else dtype
                weight = g.tensor(shape[1:2], wide) if number != 2 else None
                running = g.tensor(shape[1:2], wide), g.tensor(shape[1:2], wide, "positive")
                dims = [d for d in range(len(shape)) if d != 1]
                mean = high(x).mean(dims)
                invstd = (high(x).var(dims, unbiased=False) + 1e-5).rsqrt()
                saved = mean.to(torch.float32 if dtype != torch.float64 else dtype), invstd.to(
                    torch.float32 if dtype != torch.float64 else dtype)
                mask = MASKS[(number + training) % 3]
                of = torch.ops.aten.native_batch_norm_backward(
                    high(grad), high(x), None if weight is None else high(weight), *(high(t) for t in running),
                    *(high(t) for t in saved), training, 1e-5, [True, True, True])
                results = {name: Ref(value, out) if wanted else None
                           for name, value, wanted, out in zip(("gradInput", "gradWeight", "gradBias"), of, mask,
                                                               (dtype, wide, wide))}
                yield Case({"gradOut": grad, "input": x, "weight": weight, "runningMean": None if training else running[0],
                            "runningVar": None if training else running[1], "saveMean": saved[0] if training else None,
                            "saveInvstd": saved[1] if training else None, "training": training, "eps": 1e-5,
                            "outputMask": mask}, results)
