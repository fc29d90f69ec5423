# SPDX-License-Identifier: Apache-2.0
"""Matrix products."""

import torch

from harness import Case, Ref, Scalar, cases, high

PRODUCT_TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int32, torch.int64,
                 torch.complex64, torch.complex128)


def straight(g, shape, dtype):
    return g.tensor(shape, dtype)


def transposed(g, shape, dtype):
    """A tensor of `shape` whose last two dims lie the other way round, as the weights of a linear layer."""
    return g.tensor([*shape[:-2], shape[-1], shape[-2]], dtype).transpose(-1, -2)


# m, n, k on both sides of the sizes at which the way of computing changes.
SIZES = [(1, 1, 1), (3, 5, 7), (1, 40, 300), (2, 33, 65), (5, 70, 33), (9, 17, 128), (17, 40, 96), (70, 33, 40),
         (4, 0, 3), (0, 4, 3), (2, 3, 0)]


@cases("Mm", "Matmul", "MatmulWeightNz")
def matrices(op, g):
    for dtype in PRODUCT_TYPES:
        for m, n, k in SIZES if dtype.is_floating_point else SIZES[1:5]:
            for right in (straight, transposed):
                a, b = g.tensor([m, k], dtype), right(g, [k, n], dtype)
                yield Case({"self": a, "mat2": b, "cubeMathType": 0}, {"out": Ref(high(a) @ high(b), dtype)})
    a, b = g.tensor([6, 9], torch.float32), transposed(g, [9, 4], torch.bfloat16)
    yield Case({"self": a, "mat2": b, "cubeMathType": 1}, {"out": Ref(high(a) @ high(b), torch.float32)})
    # A column of NaN and one of Inf meet zeros.
    a, b = torch.zeros(2, 3), torch.ones(3, 4)
    b[1, 2], b[0, 1] = float("nan"), float("inf")
    yield Case({"self": a, "mat2": b, "cubeMathType": 0}, {"out": Ref(high(a) @ high(b), torch.float32)})


@cases("Matmul", "MatmulWeightNz")
def broadcast_products(op, g):
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int32):
        for a, b in [([5], [5]), ([5], [5, 3]), ([4, 5], [5]), ([2, 1, 4, 5], [3, 5, 6]), ([3, 1, 33], [33, 7]),
                     ([2, 3, 4, 33], [33]), ([33], [2, 33, 5])]:
            x, y = g.tensor(a, dtype), g.tensor(b, dtype)
            yield Case({"self": x, "mat2": y, "cubeMathType": 0}, {"out": Ref(high(x) @ high(y), dtype)})


@cases("BatchMatMul")
def batches(op, g):
    for dtype in PRODUCT_TYPES:
        for b, m, n, k in [(3, 4, 5, 6), (2, 1, 33, 40), (5, 8, 8, 1), (2, 20, 17, 9), (0, 2, 3, 4)]:
            for right in (straight, transposed):
                x, y = g.tensor([b, m, k], dtype), right(g, [b, k, n], dtype)
                yield Case({"self": x, "mat2": y, "cubeMathType": 0}, {"out": Ref(high(x) @ high(y), dtype)})


FACTORS = [(1, 1), (0.5, 2.0), (0, 1.5), (2, 0)]


def factor(value, dtype):
    if dtype.is_floating_point or dtype.is_complex:
        return Scalar(float(value), torch.float32)
    return Scalar(int(value), torch.int64)


def sum_case(dtype, names, self, left, right, beta, alpha):
    product = high(left) @ high(right) * alpha
    whole = product + (high(self) * beta if beta else 0)
    return Case({"self": self, names[0]: left, names[1]: right, "beta": factor(beta, dtype),
                 "alpha": factor(alpha, dtype), "cubeMathType": 0}, {"out": Ref(whole, dtype)})


def factors_for(dtype):
    return FACTORS if dtype.is_floating_point or dtype.is_complex else [(1, 1), (3, -2), (0, 1)]


@cases("Addmm")
def addmm(op, g):
    for dtype in PRODUCT_TYPES:
        for m, n, k in SIZES if dtype.is_floating_point else SIZES[1:5]:
            for number, (beta, alpha) in enumerate(factors_for(dtype)):
                shape = ([n], [m, n], [m, 1], [])[number % 4]
                self = g.tensor(shape, dtype)
                if beta == 0 and dtype.is_floating_point:
                    self = self * float("nan")
                right = transposed if number % 2 else straight
                a, b = g.tensor([m, k], dtype), right(g, [k, n], dtype)
                yield sum_case(dtype, ("mat1", "mat2"), self, a, b, beta, alpha)


@cases("Baddbmm")
def baddbmm(op, g):
    for dtype in PRODUCT_TYPES:
        for b, m, n, k in [(3, 4, 5, 6), (2, 1, 33, 40), (2, 20, 17, 9), (2, 3, 4, 0)]:
            for number, (beta, alpha) in enumerate(factors_for(dtype)):
                shape = ([n], [b, m, n], [b, m, 1], [1, n])[number % 4]
                right = transposed if number % 2 else straight
                x, y = g.tensor([b, m, k], dtype), right(g, [b, k, n], dtype)
                yield sum_case(dtype, ("batch1", "batch2"), g.tensor(shape, dtype), x, y, beta, alpha)


@cases("Addmv")
def addmv(op, g):
    for dtype in PRODUCT_TYPES:
        for m, k in [(5, 6), (33, 40), (4, 300), (3, 0)]:
            for number, (beta, alpha) in enumerate(factors_for(dtype)):
                self = g.tensor(([m], [1], [])[number % 3], dtype)
                left = transposed if number % 2 else straight
                yield sum_case(dtype, ("mat", "vec"), self, left(g, [m, k], dtype), g.tensor([k], dtype), beta, alpha)


@cases("Mv")
def mv(op, g):
    for dtype in PRODUCT_TYPES:
        for m, k in [(5, 6), (33, 40), (4, 300), (3, 0)]:
            for left in (straight, transposed):
                a, b = left(g, [m, k], dtype), g.tensor([k], dtype)
                yield Case({"self": a, "vec": b, "cubeMathType": 0}, {"out": Ref(high(a) @ high(b), dtype)})


@cases("Dot")
def dot(op, g):
    for dtype in PRODUCT_TYPES:
        for k in (1, 7, 300, 5000, 0):
            # Of one sign: the error of a sum that cancels is any multiple of the sum.
            kind = "positive" if dtype.is_floating_point else "normal"
            a, b = g.tensor([k], dtype, kind), g.tensor([k], dtype, kind)
            yield Case({"self": a, "tensor": b}, {"out": Ref(high(a) @ high(b), dtype)})


@cases("Ger")
def ger(op, g):
    for dtype in g.all:
        for m, n in [(5, 7), (1, 33), (0, 3)]:
            a, b = g.tensor([m], dtype), g.tensor([n], dtype)
            yield Case({"self": a, "vec2": b}, {"out": Ref(torch.outer(high(a), high(b)), dtype)})


@cases("TransMatmulWeight")
def trans_matmul_weight(op, g):
    for dtype in (torch.float32, torch.float16, torch.int8):
        weight = g.tensor([5, 33], dtype)
        yield Case({"mmWeightRef": weight}, {"mmWeightRef": weight})


@cases("NpuFormatCast")
def npu_format_cast(op, g):
    for dtype in g.all:
        for shape in g.shapes:
            x = g.tensor(shape, dtype)
            yield Case({"srcTensor": x}, {"dstTensor": x})
