# SPDX-License-Identifier: Apache-2.0
import torch
import torch.nn.functional as F

from harness import Case, Ref, cases, high

# shape, kernel, stride, padding, dilation, ceil
WINDOWS = (
    ([2, 3, 8, 9], [2, 2], [], [0], [1], False),
    ([3, 7, 21], [3], [2], [1], [1], False),
    ([1, 2, 11, 13], [3, 2], [2, 3], [1, 0], [1, 1], True),
    ([2, 1, 12, 10], [3, 3], [1, 1], [1, 1], [2, 1], False),
    ([1, 2, 9, 40], [2, 5], [3, 4], [1, 2], [1, 2], True),
    ([0, 2, 5, 5], [2], [2], [0], [1], False),
)


def reference(x, kernel, stride, padding, dilation, ceil):
    values = x if x.dtype not in (torch.float16, torch.bfloat16) else x.float()
    out, index = F.max_pool2d(values, kernel, stride or None, padding, dilation, ceil, return_indices=True)
    return out.to(x.dtype), index


@cases("MaxPool2dWithIndices")
def max_pool_with_indices(op, g):
    for dtype in g.real:
        for shape, *window in WINDOWS if dtype.is_floating_point else WINDOWS[:2]:
            x = g.tensor(shape, dtype)
            yield max_pool_case(x, window, torch.int64 if dtype != torch.float32 else torch.int32)
    for dtype in g.floating:
        yield max_pool_case(g.tensor([2, 2, 9, 11], dtype, "edge"), ([3], [2], [1], [1], False), torch.int64)
    nothing = torch.full([1, 1, 4, 4], -float("inf"))
    yield max_pool_case(nothing, ([3], [2], [1], [1], False), torch.int64)


def max_pool_case(x, window, index_dtype):
    kernel, stride, padding, dilation, ceil = window
    out, index = reference(x, *window)
    return Case({"self": x, "kernelSize": kernel, "stride": stride, "padding": padding, "dilation": dilation,
                 "ceilMode": ceil}, {"out": out, "indices": index.to(index_dtype)})


@cases("MaxPool2dWithMask")
def max_pool_with_mask(op, g):
    for dtype in g.floating:
        for shape, *window in WINDOWS:
            x = g.tensor(shape, dtype)
            kernel, stride, padding, dilation, ceil = window
            out, index = reference(x, *window)
            kh, kw = (kernel * 2)[:2]
            sh, sw = ((stride or kernel) * 2)[:2]
            ph, pw = (padding * 2)[:2]
            dh, dw = (dilation * 2)[:2]
            oh, ow = out.shape[-2:]
            h0 = (torch.arange(oh) * sh - ph)[:, None]
            w0 = (torch.arange(ow) * sw - pw)[None, :]
            tap = (index // x.shape[-1] - h0) // dh * kw + (index % x.shape[-1] - w0) // dw
            lead = list(x.shape[:-2])
            mask = torch.zeros(lead + [kh * kw, (-(-oh * ow // 16) + 1) * 32], dtype=torch.int8)
            tap = tap.reshape(lead + [1, oh * ow])
            mask[..., :oh * ow] = (tap == torch.arange(kh * kw)[:, None]).to(torch.int8)
            yield Case({"self": x, "kernelSize": kernel, "stride": stride, "padding": padding, "dilation": dilation,
                        "ceilMode": ceil}, {"out": out, "indices": mask})


@cases("MaxPool2dWithIndicesBackward")
def max_pool_backward(op, g):
    for dtype in g.floating:
        for shape, *window in WINDOWS:
            x = g.tensor(shape, dtype)
            out, index = reference(x, *window)
            grad = g.tensor(list(out.shape), dtype)
            want = torch.zeros(list(shape[:-2]) + [shape[-2] * shape[-1]], dtype=torch.float64)
            want.scatter_add_(-1, index.flatten(-2), high(grad).flatten(-2))
            kernel, stride, padding, dilation, ceil = window
            yield Case({"gradOutput": grad, "self": x, "indices": index.to(torch.int32 if ceil else torch.int64),
                        "kernelSize": kernel, "stride": stride, "padding": padding, "dilation": dilation,
                        "ceilMode": ceil}, {"gradInput": Ref(want.reshape(shape), dtype)})
    grad = torch.ones([1, 2, 2])
    outside = torch.tensor([[[0, -1], [16, 1 << 40]]])
    yield Case({"gradOutput": grad, "self": torch.zeros([1, 4, 4]), "indices": outside, "kernelSize": [2], "stride": [],
                "padding": [0], "dilation": [1], "ceilMode": False},
               {"gradInput": torch.zeros([1, 4, 4]).index_put((torch.tensor(0), torch.tensor(0), torch.tensor(0)),
                                                              torch.tensor(1.0))})


@cases("MaxPool")
def max_pool(op, g):
    for dtype in g.real:
        for shape, *window in WINDOWS if dtype.is_floating_point else WINDOWS[:2]:
            x = g.tensor(shape, dtype)
            kernel, stride, padding, dilation, ceil = window
            out, _ = reference(x, *window)
            yield Case({"self": x, "kernelShape": kernel, "strides": stride, "autoPad": 0, "pads": padding,
                        "dilations": dilation, "ceilMode": int(ceil)}, {"out": out})
    x = g.tensor([1, 2, 6, 7], torch.float32)
    padded = F.pad(x, (0, 2, 1, 0), value=-float("inf"))
    yield Case({"self": x, "kernelShape": [3, 4], "strides": [2, 1], "autoPad": 0, "pads": [1, 0, 0, 2],
                "dilations": [], "ceilMode": 0}, {"out": F.max_pool2d(padded, [3, 4], [2, 1])})


@cases("AvgPool2d")
def avg_pool(op, g):
    for dtype in g.floating:
        for shape, kernel, stride, padding, dilation, ceil in WINDOWS:
            if dilation != [1] and dilation != [1, 1]:
                continue
            for include, divisor in ((True, 0), (False, 0), (True, 7)):
                x = g.tensor(shape, dtype)
                out = F.avg_pool2d(high(x), kernel, stride or None, padding, ceil, include, divisor or None)
                yield Case({"self": x, "kernelSize": kernel, "strides": stride, "paddings": padding, "ceilMode": ceil,
                            "countIncludePad": include, "divisorOverride": divisor, "cubeMathType": 0},
                           {"out": Ref(out, dtype)})
    x = g.tensor([1, 2, 9, 9], torch.float32, "edge")
    yield Case({"self": x, "kernelSize": [3], "strides": [2], "paddings": [1], "ceilMode": False,
                "countIncludePad": True, "divisorOverride": 0, "cubeMathType": 0},
               {"out": Ref(F.avg_pool2d(x, 3, 2, 1), x.dtype)})


@cases("AdaptiveAvgPool2d")
def adaptive_avg_pool2d(op, g):
    for dtype in g.floating:
        for shape, size in (([2, 3, 7, 9], [1, 1]), ([3, 14, 10], [4, 7]), ([1, 2, 5, 40], [5, 40]),
                            ([2, 2, 3, 4], [7, 3]), ([0, 2, 3, 4], [2, 2]), ([1, 2, 3, 4], [0, 2])):
            x = g.tensor(shape, dtype)
            out = F.adaptive_avg_pool2d(high(x), size) if 0 not in size else torch.zeros(shape[:-2] + size)
            yield Case({"self": x, "outputSize": size}, {"out": Ref(out, dtype)})


@cases("AdaptiveAvgPool3d")
def adaptive_avg_pool3d(op, g):
    for dtype in g.floating:
        for shape, size in (([2, 3, 4, 7, 9], [1, 1, 1]), ([3, 5, 14, 10], [3, 4, 7]), ([1, 2, 2, 5, 9], [2, 5, 9])):
            x = g.tensor(shape, dtype)
            yield Case({"self": x, "outputSize": size}, {"out": Ref(F.adaptive_avg_pool3d(high(x), size), dtype)})


@cases("AdaptiveAvgPool2dBackward")
def adaptive_avg_pool2d_backward(op, g):
    for dtype in g.floating:
        for shape, size in (([2, 3, 7, 9], [1, 1]), ([3, 14, 10], [4, 7]), ([2, 2, 3, 4], [7, 3])):
            x = g.tensor(shape, dtype)
            grad = g.tensor(shape[:-2] + size, dtype)
            leaf = high(x).requires_grad_()
            (want,) = torch.autograd.grad(F.adaptive_avg_pool2d(leaf, size), leaf, high(grad))
            yield Case({"gradOutput": grad, "self": x}, {"out": Ref(want, dtype)})
