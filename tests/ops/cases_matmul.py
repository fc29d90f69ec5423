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


@cases("BatchMatMul", "BatchMatMulWeightNz")
def batches(op, g):
    for dtype in PRODUCT_TYPES:
        for b, m, n, k in [(3, 4, 5, 6), (2, 1, 33, 40), (5, 8, 8, 1), (2, 20, 17, 9), (0, 2, 3, 4)]:
            for right in (straight, transposed):
                x, y = g.tensor([b, m, k], dtype), right(g, [b, k, n], dtype)
                yield Case({"self": x, "mat2": y, "cubeMathType": 0}, {"out": Ref(high(x) @ high(y), dtype)})


@cases("BatchMatMul", "BatchMatMulWeightNz")
def broadcast_batches(op, g):
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        for left, right in ((1, 3), (3, 1), (1, 0)):
            x, y = g.tensor([left, 4, 33], dtype), g.tensor([right, 33, 5], dtype)
            yield Case({"self": x, "mat2": y, "cubeMathType": 0}, {"out": Ref(high(x) @ high(y), dtype)})


@cases("Matmul", "BatchMatMul")
def one_matrix_for_all(op, g):
    """Rows of all matrices become rows of one product, where they lie at one distance."""
    for dtype in (torch.float32, torch.bfloat16):
        y = g.tensor([33, 20], dtype)
        for x in (g.tensor([6, 4, 33], dtype), g.tensor([4, 6, 33], dtype).transpose(0, 1), g.tensor([6, 5, 33], dtype)[:, :4],
                  g.tensor([6, 1, 33], dtype).expand(6, 4, 33)):
            yield Case({"self": x, "mat2": y.expand(6, 33, 20), "cubeMathType": 0}, {"out": Ref(high(x) @ high(y), dtype)})


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


@cases("Addmm", "AddmmWeightNz")
def addmm(op, g):
    for dtype in PRODUCT_TYPES:
        for size, (m, n, k) in enumerate(SIZES if dtype.is_floating_point else SIZES[1:5]):
            for number, (beta, alpha) in enumerate(factors_for(dtype)):
                if (number + size) % 2:
                    continue
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
    x, y = g.tensor([1, 4, 6], torch.float32), g.tensor([3, 6, 5], torch.float32)
    yield sum_case(torch.float32, ("batch1", "batch2"), g.tensor([5], torch.float32), x, y, 1, 2)
    x, y = g.tensor([3, 4, 33], torch.float32), g.tensor([33, 5], torch.float32).expand(3, 33, 5)  # one for all
    for shape in ([5], [3, 4, 5], [3, 1, 5], [4, 5], [1, 4, 1], []):
        yield sum_case(torch.float32, ("batch1", "batch2"), g.tensor(shape, torch.float32), x, y, 2, 0.5)


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


# ---- Weights of few bits ----

SHORT = (torch.float16, torch.bfloat16, torch.float32)


def pack_int4(numbers, dim):
    """Eight 4-bit numbers along `dim` in an int32, the first in the lowest bits."""
    parts = numbers.movedim(dim, -1).to(torch.int64)
    parts = parts.reshape(*parts.shape[:-1], parts.shape[-1] // 8, 8) & 15
    words = (parts << (4 * torch.arange(8))).sum(-1)
    return torch.where(words >= 2 ** 31, words - 2 ** 32, words).to(torch.int32).movedim(-1, dim)


def integers(g, shape, bits):
    return torch.randint(-2 ** (bits - 1), 2 ** (bits - 1), shape, generator=g.torch).to(torch.int8)


def per_row(scale, k):
    """[parts, n] as [k, n]."""
    part = -(-k // scale.shape[0])
    return high(scale).repeat_interleave(part, 0)[:k]


def quantized_weight(g, k, n, form):
    """What is passed and the numbers that it stands for."""
    if form == "int8":
        weight = integers(g, [k, n], 8)
        return weight, weight
    if form == "int8 transposed":
        weight = integers(g, [n, k], 8).t()
        return weight, weight
    weight = integers(g, [k, n], 4)
    return pack_int4(weight, 1 if form == "int4 rows" else 0), weight


@cases("WeightQuantBatchMatmulV2", "WeightQuantBatchMatmulV3", "WeightQuantBatchMatmulNz")
def weight_quant(op, g):
    number = 0
    for dtype in SHORT:
        for m, k, n in ((1, 64, 40), (5, 264, 72), (140, 32, 16), (3, 0, 8)):
            # Without rows nobody can tell how 4-bit numbers are packed.
            for form in ("int8", "int8 transposed", "int4 rows", "int4 columns")[:4 if k else 2]:
                group = (0, 32, 24)[number % 3] if k else 0
                weight, numbers = quantized_weight(g, k, n, form)
                parts = 1 if group == 0 else -(-k // group)
                shape = [n] if group == 0 and number % 2 else [parts, n]
                scale = g.tensor(shape, dtype, "positive")
                offset = None if number % 5 == 0 else g.tensor(shape, dtype)
                bias = None if number % 3 == 1 else g.tensor([n], dtype)
                x = g.tensor([m, k], dtype)
                wide = numbers.to(torch.float64)
                rows = group or max(k, 1)

                def lines(t):
                    return high(t).reshape(-1, n).repeat_interleave(rows, 0)[:k]

                if offset is not None:
                    wide = wide + lines(offset)
                y = high(x) @ (wide * lines(scale)) + (0 if bias is None else high(bias))
                args = {"x": x, "weight": weight, "antiquantScale": scale, "antiquantOffsetOptional": offset,
                        "quantScaleOptional": None, "quantOffsetOptional": None, "biasOptional": bias,
                        "antiquantGroupSize": group}
                if op.endswith("V3"):
                    args["innerPrecise"] = number % 2
                yield Case(args, {"y": Ref(y, dtype)})
                number += 1


# ---- Groups ----

def grouped_case(op, x, weight, out, bias=None, groups=None, split_item=3, group_type=0, list_type=0, scale=None,
                 offset=None):
    args = {"x": x, "weight": weight, "biasOptional": bias, "scaleOptional": None, "offsetOptional": None,
            "antiquantScaleOptional": scale, "antiquantOffsetOptional": offset, "groupListOptional": groups,
            "splitItem": split_item, "groupType": group_type}
    expect = {"y": out}
    if not op.endswith("V3"):
        args.update({"perTokenScaleOptional": None, "activationInputOptional": None, "activationQuantScaleOptional": None,
                     "activationQuantOffsetOptional": None, "groupListType": list_type, "actType": 0})
        expect = {"out": out, "activationFeatureOutOptional": None, "dynQuantScaleOutOptional": None}
    if op.endswith(("V5", "WeightNz")):
        args["tuningConfigOptional"] = None
    if op.endswith("WeightNz"):
        args["quantGroupSize"] = 0
    return Case(args, expect)


def rows_by_group(x, sizes, weights, biases):
    parts, at = [], 0
    for size, weight, bias in zip(sizes, weights, biases):
        parts.append(high(x[at:at + size]) @ weight + (0 if bias is None else high(bias)))
        at += size
    return parts


@cases("GroupedMatmulV3", "GroupedMatmulV4", "GroupedMatmulV5", "GroupedMatmulWeightNz")
def grouped_rows(op, g):
    sizes_list = ([3, 0, 20, 1], [1, 1, 0, 0], [0, 150, 2, 5])
    number = 0
    for dtype in g.floating:
        for sizes in sizes_list:
            k, n = 33, (40, 260, 7)[number % 3]
            count, m = len(sizes), sum(sizes)
            x = g.tensor([m, k], dtype)
            stacked = g.tensor([count, k, n], dtype) if number % 2 else transposed(g, [count, k, n], dtype)
            bias = None if number % 3 == 0 else g.tensor([count, n], dtype)
            biases = [None] * count if bias is None else list(bias)
            parts = rows_by_group(x, sizes, [high(w) for w in stacked], biases)
            ends = torch.tensor(sizes).cumsum(0)
            whole = [Ref(torch.cat(parts), dtype)]
            several = [w.clone() for w in stacked]
            one_bias = None if bias is None else [bias]
            many_bias = None if bias is None else [b.clone() for b in bias]
            # Groups that the device reads.
            ways = [lambda: grouped_case(op, [x], [stacked], whole, one_bias, ends),
                    lambda: grouped_case(op, [x], several, whole, many_bias, ends)]
            if not op.endswith("V3"):
                order = torch.tensor([2, 0, 3, 1])
                pairs = torch.stack([order, torch.tensor(sizes)], 1)
                mixed = rows_by_group(x, sizes, [high(stacked[e]) for e in order], [biases[e] for e in order])
                ways += [lambda: grouped_case(op, [x], [stacked], whole, one_bias, torch.tensor(sizes), list_type=1),
                         lambda: grouped_case(op, [x], [stacked], [Ref(torch.cat(mixed), dtype)], one_bias, pairs,
                                              list_type=2)]
            # Groups that the shapes tell.
            results = [Ref(part, dtype) for part in parts]
            xs = [part.clone() for part in x.split(sizes)]
            ways += [lambda: grouped_case(op, [x], [stacked], results, one_bias, None, split_item=0),
                     lambda: grouped_case(op, xs, several, whole, many_bias, None, split_item=2),
                     lambda: grouped_case(op, xs, several, results, many_bias, None, split_item=0, group_type=-1)]
            for way, make in enumerate(ways):
                if dtype == torch.float32 or (way + number) % 3 == 0:
                    yield make()
            number += 1


@cases("GroupedMatmulV3", "GroupedMatmulV4", "GroupedMatmulV5", "GroupedMatmulWeightNz")
def grouped_depth(op, g):
    for number, dtype in enumerate(g.floating):
        sizes, m, n = [3, 0, 20], 5, (40, 260)[number % 2]
        k = sum(sizes)
        x = transposed(g, [m, k], dtype)
        weight = g.tensor([k, n], dtype)
        whole = torch.stack([high(a) @ high(b) for a, b in zip(x.split(sizes, 1), weight.split(sizes))])
        yield grouped_case(op, [x], [weight], [Ref(whole, dtype)], None, torch.tensor(sizes).cumsum(0), group_type=2)


@cases("GroupedMatmulV3", "GroupedMatmulV4", "GroupedMatmulV5", "GroupedMatmulWeightNz")
def grouped_quantized(op, g):
    number = 0
    for dtype in SHORT:
        for form in ("int8", "int8 transposed", "int4 rows", "int4 columns"):
            sizes, k, n = [3, 0, 20], 48, 72
            x = g.tensor([sum(sizes), k], dtype)
            pairs = [quantized_weight(g, k, n, form) for _ in sizes]
            parts = (1, 3)[number % 2]
            scale = g.tensor([len(sizes), n] if parts == 1 else [len(sizes), parts, n], dtype, "positive")
            offset = None if number % 5 == 0 else g.tensor(list(scale.shape), dtype)
            bias = None if number % 4 == 0 else g.tensor([len(sizes), n], dtype)
            weights = []
            for e, (_, numbers) in enumerate(pairs):
                wide = numbers.to(torch.float64)
                if offset is not None:
                    wide = wide + per_row(offset[e].reshape(-1, n), k)
                weights.append(wide * per_row(scale[e].reshape(-1, n), k))
            outs = rows_by_group(x, sizes, weights, [None] * 3 if bias is None else list(bias))
            whole = [Ref(torch.cat(outs), dtype)]
            ends = torch.tensor(sizes).cumsum(0)

            def separate(t):
                return None if t is None else [part.clone() for part in t]
            if number % 3 == 0:
                yield grouped_case(op, [x], [torch.stack([w for w, _ in pairs])], whole,
                                   None if bias is None else [bias], ends, scale=[scale],
                                   offset=None if offset is None else [offset])
            elif number % 3 == 1:
                yield grouped_case(op, [x], [w for w, _ in pairs], whole, separate(bias), ends, scale=separate(scale),
                                   offset=separate(offset))
            else:
                yield grouped_case(op, [x], [w for w, _ in pairs], [Ref(part, dtype) for part in outs], separate(bias),
                                   None, split_item=0, scale=separate(scale), offset=separate(offset))
            number += 1


@cases("TransposeBatchMatMul", "TransposeBatchMatMulWeightNz")
def permuted_matrices(op, g):
    def undo(order):
        return [order.index(d) for d in range(3)]
    base = {"bias": None, "scale": None, "cubeMathType": 0}
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        for batch, m, n, k in ((4, 5, 7, 9), (2, 1, 33, 70), (6, 70, 20, 33), (1, 3, 0, 2), (2, 3, 4, 0)):
            a, b = g.tensor([batch, m, k], dtype), g.tensor([batch, k, n], dtype)
            product = high(a) @ high(b)
            for one, two, out in (([1, 0, 2], [0, 1, 2], [1, 0, 2]), ([0, 2, 1], [2, 0, 1], None), (None, None, [2, 1, 0])):
                x1 = a if one is None else a.permute(undo(one)).contiguous()
                x2 = b if two is None else b.permute(undo(two)).contiguous()
                yield Case(base | {"x1": x1, "x2": x2, "permX1": one, "permX2": two, "permY": out, "batchSplitFactor": 1},
                           {"out": Ref(product if out is None else product.permute(out), dtype)})
            if batch % 2 == 0:
                split = product.reshape(2, batch // 2, m, n).transpose(1, 2).reshape(2, m, batch // 2 * n)
                yield Case(base | {"x1": a.transpose(0, 1).contiguous(), "x2": b, "permX1": [1, 0, 2], "permX2": [0, 1, 2],
                                   "permY": [1, 0, 2], "batchSplitFactor": 2}, {"out": Ref(split, dtype)})


@cases("GroupedMatmulV4", "GroupedMatmulV5", "GroupedMatmulWeightNz")
def grouped_integers(op, g):
    """int8 by int8: sums in int32, which become numbers again."""
    for number, out_type in enumerate((torch.bfloat16, torch.float16, torch.float32, torch.int32) * 2):
        for m, k, n, counts in ((9, 16, 8, [4, 0, 5]), (3, 70, 300, [1, 2]), (0, 8, 4, [0, 0]), (40, 33, 5, [40])):
            groups = len(counts)
            x = torch.randint(-128, 128, [m, k], generator=g.torch).to(torch.int8)
            weights = torch.randint(-128, 128, [groups, k, n], generator=g.torch).to(torch.int8)
            scale = g.tensor([groups, n], torch.bfloat16 if number % 3 == 1 else torch.float32, "positive") / 400
            rows = g.tensor([m], torch.float32, "positive") if number % 2 else None
            kind = (None, torch.int32, torch.float32)[number % 3] if out_type != torch.int32 else (None, torch.int32)[number // 4]
            bias = None if kind is None else g.tensor([groups, n], kind) * (50 if kind == torch.int32 else 1)
            which = torch.repeat_interleave(torch.arange(groups), torch.tensor(counts))
            sums = torch.stack([x[i].long() @ weights[e].long() for i, e in enumerate(which.tolist())]) if m else (
                torch.zeros(0, n, dtype=torch.int64))
            if kind == torch.int32:
                sums = sums + bias[which]
            out = sums
            if out_type != torch.int32:
                out = sums.float() * scale.float()[which]
                if rows is not None:
                    out = out * rows.unsqueeze(-1)
                if kind == torch.float32:
                    out = out + bias[which]
            listed = number >= 4
            case = grouped_case(op, [x], [w.contiguous() for w in weights] if listed else [weights],
                                [Ref(out, out_type, bound="4/1 of max")],
                                bias=None if bias is None else list(bias) if listed else [bias],
                                groups=torch.tensor(counts), list_type=1)
            case.args["scaleOptional"] = None if out_type == torch.int32 else list(scale) if listed else [scale]
            case.args["perTokenScaleOptional"] = None if rows is None else [rows]
            yield case
