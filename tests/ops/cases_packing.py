# SPDX-License-Identifier: Apache-2.0
"""Floating numbers that are packed without loss, against a plain writer of the same stream; products that are checked."""

import torch

from harness import Case, Check, cases, high

TYPES = (torch.float32, torch.float16, torch.bfloat16)
WIDE = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def parts(x):
    """The 8 bits behind the sign, and what is left, as bytes."""
    width = x.element_size() * 8
    bits = x.flatten().view(WIDE[x.dtype]).long() & ((1 << width) - 1)
    rest = (bits & ((1 << (width - 9)) - 1)) | (bits >> (width - 1) << (width - 9))
    others = torch.stack([rest >> (8 * i) & 255 for i in range(width // 8 - 1)], -1).to(torch.uint8)
    return (bits >> (width - 9)) & 255, others.flatten()


def stream_of(exponents, counts):
    """Widths of groups of 64, and the ranks of the exponents in so many bits each."""
    order = torch.sort(counts.flatten().long(), descending=True, stable=True).indices
    ranks = torch.empty(256, dtype=torch.long)
    ranks[order] = torch.arange(256)
    groups = ranks[exponents].view(-1, 64)
    widths = [int(most).bit_length() for most in groups.amax(-1)]
    body = []
    for group, width in zip(groups.tolist(), widths):
        whole = sum(rank << (i * width) for i, rank in enumerate(group))
        body.append(whole.to_bytes(8 * width, "little"))
    return torch.tensor([*widths, *b"".join(body)], dtype=torch.uint8)


def begins_with(wanted):
    """As bytes; what is behind them does not matter."""
    return lambda actual: torch.equal(torch.cat([actual.flatten()]).view(torch.uint8)[:len(wanted)], wanted)


def numbers(g, dtype, shape, plain=True):
    x = g.tensor(shape, dtype)
    if not plain:  # every pattern that there is, NaN and denormals among them
        bits = torch.randint(-2 ** 15, 2 ** 15, shape, generator=g.torch)
        bits = bits * 65536 + torch.randint(0, 65536, shape, generator=g.torch) if dtype == torch.float32 else bits
        x = bits.to(WIDE[dtype]).view(dtype)
    return x


def packings(g):
    """Numbers, their counts before and after, whether they are counted, whether all must be in the first part, its bytes."""
    for dtype in TYPES:
        for shape, plain, statistic, reshuff, room in (([256, 128], True, True, False, 4096), ([32832], False, True, True, 40000),
                                                       ([2, 129, 128], True, False, False, 512), ([128, 256], False, False, False, 33000)):
            x = numbers(g, dtype, shape, plain)
            exponents, rest = parts(x)
            counts = torch.bincount(exponents, minlength=256).to(torch.int32)
            before = torch.randint(0, 9, [1, 256], generator=g.torch).to(torch.int32)
            after = counts.view(1, 256) if statistic else before
            yield x, rest.view(dtype), stream_of(exponents, after), before, after, statistic, reshuff, room


@cases("HansEncode")
def encode(op, g):
    for x, rest, stream, before, after, statistic, reshuff, room in packings(g):
        each = x.element_size()
        room = room // each * each
        left = 1 if reshuff else max(x.numel() * 65 // 64 - room, 0) // each + 1
        yield Case({"inputTensor": x, "pdfRef": before, "statistic": statistic, "reshuff": reshuff},
                   {"pdfRef": after, "mantissaOut": Check([rest.numel()], x.dtype, begins_with(rest.view(torch.uint8))),
                    "fixedOut": Check([room // each], x.dtype, begins_with(stream[:room])),
                    "varOut": Check([left], x.dtype, begins_with(stream[room:]))}, any_shape=("fixedOut", "varOut"))


@cases("HansDecode")
def decode(op, g):
    for x, rest, stream, _, after, _, reshuff, room in packings(g):
        each = x.element_size()
        room = room // each * each
        whole = torch.cat([stream, torch.full([max(x.numel() * 65 // 64 + each, room) - len(stream)], 0xA5, dtype=torch.uint8)])
        fixed, var = whole[:room], whole[room:]
        var = var[:len(var) // each * each] if len(var) >= each else torch.zeros(each, dtype=torch.uint8)
        yield Case({"mantissa": rest, "fixed": fixed.view(x.dtype), "var": var.contiguous().view(x.dtype), "pdf": after.view(256),
                    "reshuff": reshuff}, {"out": Check(list(x.shape), x.dtype, begins_with(x.flatten().view(torch.uint8)))})


# ---- Products that are checked ----


def verdicts(right):
    """Bits [rows, parts] by eight rows, part by part; those of rows that there are not are 1."""
    rows = torch.cat([right, right.new_ones(-len(right) % 8, right.shape[1])])
    bits = rows.t().reshape(right.shape[1], -1, 8).long()
    return (bits << torch.arange(8)).sum(-1).flatten().to(torch.uint8)


@cases("MatmulAbftVerify")
def checked_product(op, g):
    for dtype in TYPES:
        for rows, inner, columns, most, ones in ((8, 16, 16, 0.001, True), (13, 40, 600, 0.001, True), (3, 70, 256, 0.002, False), (9, 5, 300, 2e-5, True)):
            a, b = g.tensor([rows, inner], dtype) + 0.5, g.tensor([inner, columns], dtype)
            weight = torch.ones(columns, dtype=dtype) if ones else g.tensor([columns], dtype, "positive")
            c = (high(a) @ high(b)).float()
            right = torch.ones(rows, -(-columns // 256), dtype=torch.bool)
            for row, column, off in ((1, 3, 1000.0), (rows - 1, columns - 1, float("nan")), (2, columns // 2, -500.0)):
                c[row, column] += off
                right[row, column // 256] = False
            yield Case({"a": a, "b": b, "c": c, "checksumWeight": weight, "eMax": most}, {"compRow": verdicts(right)})
