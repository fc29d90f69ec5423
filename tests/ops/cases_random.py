# SPDX-License-Identifier: Apache-2.0
"""Random numbers: against the sequence that src/kernels/philox.h describes, and their moments."""

import bisect
import math

import torch

from harness import Case, Check, Scalar, cases, high

LAYOUTS = ([], [0, 3], [7], [5, 33], [2, 3, 5])
MANY = [20, 1000]


def philox(seed, offset, count):
    """The first `count` words of a draw."""
    mask, words = 0xFFFFFFFF, []
    seed, offset = seed & (1 << 64) - 1, offset & (1 << 64) - 1
    for block in range((count + 3) // 4):
        c = [offset & mask, offset >> 32, block & mask, block >> 32]
        k0, k1 = seed & mask, seed >> 32
        for _ in range(10):
            first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [second >> 32 ^ c[1] ^ k0, second & mask, first >> 32 ^ c[3] ^ k1, first & mask]
            k0, k1 = k0 + 0x9E3779B9 & mask, k1 + 0xBB67AE85 & mask
        words += c
    return words[:count]


def philox64(seed, offset, count):
    words = philox(seed, offset, 2 * count)
    return [words[2 * i] | words[2 * i + 1] << 32 for i in range(count)]


def count_of(shape):
    return math.prod(shape)


def close(expected, tolerance):
    def verify(actual):
        expected_now = torch.tensor(expected, dtype=torch.float64).reshape(actual.shape)
        return bool(((high(actual) - expected_now).abs() <= tolerance * (1 + expected_now.abs())).all())
    return verify


def moments(mean, deviation):
    """Whether many numbers have them, within 5 standard errors."""
    def verify(actual):
        numbers = high(actual).flatten().to(torch.float64)
        error = 5 * deviation / math.sqrt(numbers.numel()) + 0.005 * deviation
        return abs(float(numbers.mean()) - mean) <= error and abs(float(numbers.std()) - deviation) <= 0.03 * deviation
    return verify


def exactly(values):
    values = list(values)
    return lambda actual: actual.flatten().tolist() == values


def seeds(name, seed, offset):
    """Arguments; of an operator that takes tensors, those of which a part of the offset is one."""
    if not name.endswith("Tensor") or name == "InplaceBernoulliTensor":
        return {"seed": seed, "offset": offset}
    return {"seedTensor": torch.tensor([seed]), "offsetTensor": torch.tensor(offset - 1), "offset": 1}


def draw(name, args, shape, dtype, verify, source):
    """A case of an operator that writes over `selfRef`, or of one with an output."""
    args = {key: value for key, value in args.items() if key not in ("seed", "offset")} | seeds(
        name, args["seed"], args["offset"])
    if name.startswith("Inplace"):
        return Case({"selfRef": source} | args, {"selfRef": Check(shape, dtype, verify)})
    return Case(args, {"out": Check(shape, dtype, verify)}, any_shape=("out",))


@cases("InplaceUniform", "InplaceUniformTensor")
def uniform(op, g):
    for dtype in g.floating:
        for number, shape in enumerate(LAYOUTS):
            seed, offset, n = 5 + number, 3 << 33 | number, count_of(shape)
            if dtype == torch.float64:
                numbers = [(word >> 11) * 2.0 ** -53 for word in philox64(seed, offset, n)]
            else:
                numbers = [(word >> 8) * 2.0 ** -24 for word in philox(seed, offset, n)]
            args = {"from": -1.0, "to": 3.0, "seed": seed, "offset": offset}
            expected = [number * 4 - 1 for number in numbers]
            yield draw(op, args, shape, dtype, close(expected, 2 * torch.finfo(dtype).eps), g.tensor(shape, dtype))
        args = {"from": 2.0, "to": 4.0, "seed": 1, "offset": 0}
        inside = moments(3.0, 2 / math.sqrt(12))
        yield draw(op, args, MANY, dtype, lambda a: inside(a) and bool(((a >= 2) & (a < 4)).all()), g.tensor(MANY, dtype))


@cases("InplaceNormal", "InplaceNormalTensor", "NormalFloatFloat")
def normal(op, g):
    for dtype in g.floating:
        for number, shape in enumerate(LAYOUTS):
            seed, offset, n = -7 - number, 11 + number, count_of(shape)
            args = {"mean": 0.5, "std": 2.0, "seed": seed, "offset": offset}
            expected = [0.5 + 2 * z for z in normals(dtype, seed, offset, n)]
            tolerance = max(4e-6, 2 * torch.finfo(dtype).eps) if dtype != torch.float64 else 1e-12
            yield draw(op, args, shape, dtype, close(expected, tolerance), g.tensor(shape, dtype))
        args = {"mean": -3.0, "std": 0.5, "seed": 2, "offset": 9}
        yield draw(op, args, MANY, dtype, moments(-3.0, 0.5), g.tensor(MANY, dtype))


def normals(dtype, seed, offset, count):
    even = count + count % 2
    if dtype == torch.float64:
        words = philox64(seed, offset, even)
        pairs = [(((words[i] >> 12) + 0.5) * 2.0 ** -52, (words[i + 1] >> 11) * 2.0 ** -53) for i in range(0, even, 2)]
    else:
        words = philox(seed, offset, even)
        pairs = [((words[i] + 0.5) * 2.0 ** -32, words[i + 1] * 2.0 ** -32) for i in range(0, even, 2)]
    numbers = []
    for u, turn in pairs:
        radius = math.sqrt(-2 * math.log(u))
        numbers += [radius * math.cos(2 * math.pi * turn), radius * math.sin(2 * math.pi * turn)]
    return numbers[:count]


@cases("NormalTensorTensor")
def normal_tensors(op, g):
    for dtype in g.floating:
        for mean_shape, std_shape in (([7], [7]), ([5, 1], [33]), ([], [4]), ([0, 3], [3])):
            mean, std = g.tensor(mean_shape, dtype), g.tensor(std_shape, dtype, "positive")
            shape = list(torch.broadcast_shapes(mean.shape, std.shape))
            z = torch.tensor(normals(dtype, 4, 6, count_of(shape)), dtype=torch.float64).reshape(shape)
            expected = (high(mean) + high(std) * z).flatten().tolist()
            tolerance = max(1e-5, 2 * torch.finfo(dtype).eps) if dtype != torch.float64 else 1e-12
            yield Case({"mean": mean, "std": std, "seed": 4, "offset": 6},
                       {"out": Check(shape, dtype, close(expected, tolerance))})


@cases("InplaceRandom", "InplaceRandomTensor")
def random_integers(op, g):
    for dtype in g.real + (torch.bool,):
        for number, shape in enumerate(LAYOUTS):
            low, top = (0, 2) if dtype == torch.bool else (3, 100)
            words = philox64(number, 1 << 40, count_of(shape))
            expected = exactly(low + (word * (top - low) >> 64) for word in words)
            yield draw(op, {"from": low, "to": top, "seed": number, "offset": 1 << 40}, shape, dtype, expected,
                       g.tensor(shape, dtype))
    wide = lambda actual: bool((actual < 0).any() and (actual > 1 << 60).any())  # noqa: E731
    yield draw(op, {"from": -(1 << 63), "to": (1 << 63) - 1, "seed": 1, "offset": 0}, MANY, torch.int64, wide,
               g.tensor(MANY, torch.int64))


@cases("InplaceRandomWithoutFromTo", "InplaceRandomWithoutFromToTensor")
def random_of_type(op, g):
    for dtype in g.real + (torch.bool,):
        if dtype == torch.bool:
            count = 2
        elif dtype.is_floating_point:
            count = {torch.float16: 1 << 11, torch.bfloat16: 1 << 8, torch.float32: 1 << 24, torch.float64: 1 << 53}[dtype] + 1
        else:
            count = torch.iinfo(dtype).max + 1
        for number, shape in enumerate(LAYOUTS):
            words = philox64(number, 1 << 40, count_of(shape) * (1 if count <= 1 << 32 else 2))
            if count > 1 << 32:
                words = [fine | coarse << 64 for fine, coarse in zip(words[::2], words[1::2])]
            expected = exactly(word * count >> (64 if count <= 1 << 32 else 128) for word in words)
            yield draw(op, {"seed": number, "offset": 1 << 40}, shape, dtype, expected, g.tensor(shape, dtype))


@cases("InplaceBernoulli")
def bernoulli(op, g):
    for dtype in g.real + (torch.bool,):
        for number, shape in enumerate(LAYOUTS):
            p = (0.25, 0.0, 1.0, 0.5, 0.9)[number]
            expected = exactly(int(word < round(p * 2 ** 32)) for word in philox(number, 77, count_of(shape)))
            yield draw(op, {"prob": Scalar(p, torch.float64), "seed": number, "offset": 77}, shape, dtype, expected,
                       g.tensor(shape, dtype))
    yield draw(op, {"prob": Scalar(0.3, torch.float32), "seed": 0, "offset": 0}, MANY, torch.float32,
               moments(0.3, math.sqrt(0.21)), g.tensor(MANY, torch.float32))


@cases("InplaceBernoulliTensor")
def bernoulli_tensor(op, g):
    for number, dtype in enumerate(g.real + (torch.bool,)):
        for shape, p_shape in (([7], [7]), ([5, 33], [33]), ([5, 33], [5, 33]), ([], []), ([0, 3], [3])):
            p = torch.sigmoid(g.tensor(p_shape, g.floating[number % 4]))
            wide = p.expand(shape).flatten().to(torch.float64).tolist()
            words = philox(number, 8, count_of(shape))
            expected = exactly(int(word < each * 2 ** 32) for word, each in zip(words, wide))
            yield draw(op, {"prob": p, "seed": number, "offset": 8}, shape, dtype, expected, g.tensor(shape, dtype))


@cases("Randperm")
def randperm(op, g):
    for dtype in g.integers:
        for n in (0, 1, 2, 100):
            expected = [0] * n
            for i, word in enumerate(philox64(3, n, n)):
                place = word * (i + 1) >> 64
                expected[i] = expected[place]
                expected[place] = i
            yield Case({"n": n, "seed": 3, "offset": n}, {"out": Check([n], dtype, exactly(expected))})
    every = lambda actual: actual.sort().values.tolist() == list(range(5000))  # noqa: E731
    yield Case({"n": 5000, "seed": 0, "offset": 0}, {"out": Check([5000], torch.int64, every)})


def mask_bytes(words, p, count):
    size = (count + 127) // 128 * 16
    bits = [int(word >= round(p * 2 ** 32)) for word in words[:count]] + [0] * (size * 8 - count)
    return [sum(bits[8 * b + k] << k for k in range(8)) for b in range(size)]


@cases("DropoutGenMask", "DropoutGenMaskV2", "DropoutGenMaskV2Tensor")
def dropout_gen_mask(op, g):
    for number, shape in enumerate(([7], [], [0, 3], [128], [5, 33], [2, 3, 100])):
        for p in (0.0, 0.3, 1.0):
            count = count_of(shape)
            expected = mask_bytes(philox(number, 12, count), p, count)
            args = {"shape": shape, "prob": p} | seeds(op, number, 12)
            if op != "DropoutGenMask":
                args["probDataType"] = torch.float16
            yield Case(args, {"out": Check([len(expected)], torch.uint8, exactly(expected))})


@cases("DropoutDoMask")
def dropout_do_mask(op, g):
    for dtype in g.floating:
        for number, shape in enumerate(([7], [], [0, 3], [128], [5, 33], [2, 3, 700])):
            p = (0.5, 0.25, 0.9)[number % 3]
            x, count = g.tensor(shape, dtype), count_of(shape)
            mask = torch.randint(0, 256, [(count + 127) // 128 * 16], generator=g.torch).to(torch.uint8)
            kept = (mask.unsqueeze(1) >> torch.arange(8) & 1).flatten()[:count].reshape(shape)
            expected = torch.where(kept == 1, high(x) / (1 - p), 0.0)
            yield Case({"self": x, "mask": mask, "prob": p}, {"out": expected.to(dtype)})
        x, mask = g.tensor([5], dtype), torch.full([16], 255, dtype=torch.uint8)
        yield Case({"self": x, "mask": mask, "prob": 1.0}, {"out": torch.zeros(5, dtype=dtype)})


@cases("Multinomial", "MultinomialTensor")
def multinomial(op, g):
    for dtype in g.floating:
        for shape, samples, replacement in (([5], 9, True), ([3, 6], 4, True), ([6], 6, False), ([4, 7], 3, False),
                                            ([2, 300], 300, False), ([300], 600, True), ([0, 4], 2, True)):
            weights = g.tensor(shape, dtype, "positive")
            if shape[-1] > 5 and weights.numel():
                weights[..., 2] = 0
            rows = high(weights).reshape(-1, shape[-1]).tolist()
            out = list(shape[:-1]) + [samples]
            expected = categories(rows, samples, replacement, 5, 1)
            yield Case({"self": weights, "numsamples": samples, "replacement": replacement} | seeds(op, 5, 1),
                       {"out": Check(out, torch.int64, exactly(expected))})
    weights = torch.tensor([1.0, 2.0, 0.0, 5.0])
    share = lambda a: all(abs(float((a == c).float().mean()) - p) < 0.02  # noqa: E731
                          for c, p in enumerate((0.125, 0.25, 0, 0.625)))
    yield Case({"self": weights, "numsamples": 10000, "replacement": True} | seeds(op, 9, 0),
               {"out": Check([10000], torch.int64, share)})


def categories(rows, samples, replacement, seed, offset):
    chosen, count = [], len(rows[0]) if rows else 0
    words = philox64(seed, offset, len(rows) * (samples if replacement else count))
    for number, row in enumerate(rows):
        if replacement:
            sums, total = [], 0.0
            for weight in row:
                total += weight
                sums.append(total)
            for word in words[number * samples:(number + 1) * samples]:
                chosen.append(bisect.bisect_right(sums, (word >> 11) * 2.0 ** -53 * total))
        else:
            keys = [(-math.log(((word >> 12) + 0.5) * 2.0 ** -52) / weight if weight > 0 else math.inf, c)
                    for c, (word, weight) in enumerate(zip(words[number * count:], row))]
            chosen += [c for _, c in sorted(keys)[:samples]]
    return chosen
