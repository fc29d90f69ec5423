# SPDX-License-Identifier: Apache-2.0
"""Operators that move elements, and sequences."""

import math

import torch
import torch.nn.functional as F

from harness import Case, Ref, Scalar, cases

# One type for each size of an item.
SIZES = (torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.complex128)


def converted(x, dtype):
    return x.real.to(dtype) if x.is_complex() and not (dtype.is_complex or dtype == torch.bool) else x.to(dtype)


@cases("Cast")
def cast(op, g):
    for source in g.all:
        for target in g.all:
            x = g.tensor([5, 33], source, "positive" if target == torch.uint8 else "normal")
            yield Case({"self": x, "dtype": target}, {"out": converted(x, target)})
    for shape in g.shapes:
        x = g.tensor(shape, torch.float32)
        yield Case({"self": x, "dtype": torch.float64}, {"out": x.double()})
    x = g.tensor([200], torch.float64, "edge")
    for target in (torch.float32, torch.float16, torch.bfloat16, torch.bool):
        yield Case({"self": x, "dtype": target}, {"out": x.to(torch.float32).to(target) if target != torch.bool else x != 0})
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e10, -1e10, 2.9, -2.9])
    yield Case({"self": x, "dtype": torch.int32},
               {"out": torch.tensor([0, 2**31 - 1, -2**31, 2**31 - 1, -2**31, 2, -2], dtype=torch.int32)})


@cases("InplaceCopy")
def copy(op, g):
    for source in g.all:
        for target in SIZES:
            x, self = g.tensor([5, 33], source), g.tensor([5, 33], target)
            yield Case({"selfRef": self, "src": x}, {"selfRef": converted(x, target)})
    for shape, at in (([], []), ([0, 3], [3]), ([5, 33], [33]), ([5, 33], [5, 1]), ([2, 3, 65], [3, 1]), ([200, 300], [300])):
        x, self = g.tensor(at, torch.float32), g.tensor(shape, torch.float32)
        yield Case({"selfRef": self, "src": x}, {"selfRef": x.expand(shape).clone()})


@cases("InplaceFillScalar", "InplaceZero", "InplaceOne")
def fill(op, g):
    for dtype in g.all:
        for shape in ([], [0, 3], [5, 33], [2, 3, 4]):
            self = g.tensor(shape, dtype)
            if op == "InplaceFillScalar":
                for value in (Scalar(1, torch.int64), Scalar(True), Scalar(1.0)):
                    yield Case({"selfRef": self, "value": value}, {"selfRef": torch.full_like(self, 1)})
            else:
                yield Case({"selfRef": self}, {"selfRef": torch.full_like(self, int(op == "InplaceOne"))})


@cases("Cat")
def cat(op, g):
    for dtype in SIZES:
        for shape, dim, sizes in (([7], 0, [3, 0, 4]), ([5, 33], -1, [1, 2, 30]), ([5, 33], 0, [5]), ([2, 6, 9], 1, [1, 2, 3]),
                                  ([40, 50], 1, [20, 30]), ([4, 3, 40], -2, [1, 2]), ([0, 4], 1, [1, 3])):
            parts = [part.contiguous() for part in g.tensor(shape, dtype).split(sizes, dim)]
            yield Case({"tensors": parts, "dim": dim}, {"out": torch.cat(parts, dim)})
    parts = [g.tensor([3, 40], torch.int32), torch.zeros(0), g.tensor([2, 40], torch.float32)]
    yield Case({"tensors": parts, "dim": 0}, {"out": torch.cat([part.float() for part in (parts[0], parts[2])])})
    parts = [g.tensor([200, 60], torch.float32), g.tensor([200, 140], torch.float32)]
    yield Case({"tensors": parts, "dim": 1}, {"out": torch.cat(parts, 1)})


@cases("Permute")
def permute(op, g):
    for dtype in SIZES:
        for shape, dims in (([], []), ([7], [0]), ([5, 33], [1, 0]), ([5, 33], [-2, -1]), ([2, 3, 65], [2, 0, 1]),
                            ([2, 3, 65], [1, 0, 2]), ([4, 5, 3, 6], [0, 2, 1, 3]), ([4, 5, 3, 6], [3, 1, 2, 0]), ([0, 3], [1, 0])):
            x = g.tensor(shape, dtype)
            yield Case({"self": x, "dims": dims}, {"out": x.permute(dims).contiguous()})
    x = g.tensor([200, 300], torch.float32)
    yield Case({"self": x, "dims": [1, 0]}, {"out": x.t().contiguous()})


@cases("InplaceFillTensor")
def fill_tensor(op, g):
    for dtype in g.all:
        for shape in ([], [0, 3], [5, 33], [2, 3, 4]):
            self, value = g.tensor(shape, dtype), g.tensor([1], dtype)
            yield Case({"selfRef": self, "value": value}, {"selfRef": value.expand(shape).clone() if shape else value[0]})
    for source in (torch.int32, torch.float64, torch.bool):
        value = g.tensor([], source)
        self = g.tensor([40], torch.float32)
        yield Case({"selfRef": self, "value": value}, {"selfRef": self.fill_(float(value)).clone()})


@cases("Stack")
def stack(op, g):
    for dtype in SIZES:
        for shape, count in (([], 3), ([7], 1), ([5, 33], 4), ([0, 3], 2), ([2, 3, 65], 2)):
            for dim in sorted({0, len(shape), -1, -len(shape) - 1, len(shape) // 2}):
                tensors = [g.tensor(shape, dtype) for _ in range(count)]
                yield Case({"tensors": tensors, "dim": dim}, {"out": torch.stack(tensors, dim)})
    mixed = [g.tensor([5, 4], torch.int32), g.tensor([5, 4], torch.float32)]
    yield Case({"tensors": mixed, "dim": 1}, {"out": torch.stack([t.float() for t in mixed], 1)})


@cases("SplitWithSize")
def split_with_size(op, g):
    for dtype in SIZES:
        for shape, dim, sizes in (([7], 0, [3, 0, 4]), ([5, 33], -1, [1, 2, 30]), ([5, 33], 0, [5]),
                                  ([2, 6, 9], 1, [1, 2, 3]), ([0, 4], 1, [1, 3])):
            x = g.tensor(shape, dtype)
            yield Case({"self": x, "splitSize": sizes, "dim": dim}, {"out": list(torch.split(x, sizes, dim))})


def sliced(x, dim, start, end, step):
    step = min(step, 1000)  # with a huge one PyTorch's strides overflow
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]


@cases("Slice")
def slice_(op, g):
    for dtype in SIZES:
        for shape, dim, start, end, step in (([9], 0, 2, 7, 1), ([9], 0, -7, -1, 2), ([9], 0, 8, 3, 1),
                                             ([9], 0, -100, 100, 3), ([5, 33], 1, 3, 30, 4), ([5, 33], -2, 1, 4, 1),
                                             ([4, 3, 6], 1, 0, 2, 1), ([0, 3], 1, 1, 2, 1),
                                             ([5], 0, 1, 2**63 - 1, 1), ([5], 0, 1, 4, 2**63 - 1), ([5], 0, -2**62, -2**62, 1)):
            x = g.tensor(shape, dtype)
            yield Case({"self": x, "dim": dim, "start": start, "end": end, "step": step},
                       {"out": sliced(x, dim, start, end, step).clone()})


@cases("SliceV2")
def slice_v2(op, g):
    for dtype in SIZES:
        for shape, axes, starts, ends, steps in (([9], [0], [2], [7], [1]), ([5, 33], [1, 0], [3, -3], [30, 50], [4, 1]),
                                                 ([4, 3, 6], [-1, 0], [1, 1], [-1, 4], [2, 1]), ([4, 6], [], [], [], [])):
            x = g.tensor(shape, dtype)
            result = x
            for axis, start, end, step in zip(axes, starts, ends, steps):
                result = sliced(result, axis, start, end, step)
            yield Case({"self": x, "starts": starts, "ends": ends, "axes": axes, "steps": steps},
                       {"out": result.clone()})


@cases("Repeat")
def repeat(op, g):
    for dtype in SIZES:
        for shape, repeats in (([], [3]), ([], []), ([7], [2]), ([5, 33], [2, 1]), ([5, 33], [1, 2]), ([3, 4], [2, 3, 2]),
                               ([2, 3], [0, 2]), ([0, 3], [2, 2]), ([2, 2, 2, 2, 2], [2, 2, 2, 2, 2])):
            x = g.tensor(shape, dtype)
            yield Case({"self": x, "repeats": repeats}, {"out": x.repeat(repeats)})


@cases("RepeatInterleaveInt")
def repeat_interleave_int(op, g):
    for dtype in SIZES:
        for shape, repeats in (([], 3), ([7], 2), ([5, 33], 1), ([3, 4, 2], 5), ([3, 4], 0), ([0, 3], 2)):
            x = g.tensor(shape, dtype)
            out = torch.repeat_interleave(x, repeats)
            yield Case({"self": x, "repeats": repeats, "outputSize": out.numel()}, {"out": out})


@cases("RepeatInterleaveIntWithDim")
def repeat_interleave_dim(op, g):
    for dtype in SIZES:
        for shape, repeats, dim in (([7], 2, 0), ([5, 33], 3, 0), ([5, 33], 2, -1), ([3, 4, 2], 5, 1), ([3, 4], 0, 1),
                                    ([0, 3], 2, 1)):
            x = g.tensor(shape, dtype)
            out = torch.repeat_interleave(x, repeats, dim=dim)
            yield Case({"self": x, "repeats": repeats, "dim": dim, "outputSize": out.shape[dim]}, {"out": out})


@cases("RepeatInterleave")
def repeat_interleave(op, g):
    for dtype in SIZES:
        for index in (torch.int32, torch.int64) if dtype == torch.float32 else (torch.int64,):
            for shape, count in (([7], 7), ([5, 9], 45), ([5, 9], 1), ([], 1), ([0], 0), ([2, 3, 4], 24)):
                x, repeats = g.tensor(shape, dtype), g.index([count], 4, index)
                out = x.flatten().repeat_interleave(repeats.expand(x.numel()))
                yield Case({"self": x, "repeats": repeats, "outputSize": out.numel()}, {"out": out})
    # What the host said and what the device finds may differ.
    x, repeats = g.tensor([3], torch.float32), torch.tensor([2, -1, 3])
    full = torch.cat([x[:1].expand(2), x[2:].expand(3), torch.zeros(2)])
    for size in (3, 5, 7):
        yield Case({"self": x, "repeats": repeats, "outputSize": size}, {"out": full[:size].clone()})


@cases("ConstantPadNd")
def constant_pad(op, g):
    for dtype in SIZES + (torch.bool,):
        for shape, pad in (([7], [1, 2]), ([5, 33], [0, 3]), ([5, 33], [1, 2, 3, 4]), ([5, 33], [-1, 2, 0, -3]),
                           ([2, 3, 4], [1, 1, 0, 0, 2, 0]), ([2, 3, 4], []), ([0, 3], [1, 1, 1, 0]), ([4, 5], [-2, -3]),
                           ([2, 3, 6, 5], [1, 1, 1, 1])):
            x = g.tensor(shape, dtype)
            value = 1 if dtype == torch.bool else 3
            yield Case({"self": x, "pad": pad, "value": Scalar(value, torch.int64)},
                       {"out": F.pad(x, pad, value=value) if pad else x.clone()})


def mirrored(g, shapes, mode):
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.complex128):
        for shape, pad in shapes:
            x = g.tensor(shape, dtype)
            yield Case({"self": x, "padding": pad}, {"out": F.pad(x, pad, mode=mode)})
    for dtype in (torch.int8, torch.int64):
        shape, pad = shapes[-1]
        x = g.tensor(shape, dtype)
        yield Case({"self": x, "padding": pad}, {"out": F.pad(x.double(), pad, mode=mode).to(dtype)})


@cases("ReflectionPad1d")
def reflection_pad1d(op, g):
    yield from mirrored(g, (([2, 7], [3, 2]), ([2, 3, 33], [0, 32]), ([1, 5], [4, 4]), ([3, 2, 9], [-2, 3])), "reflect")


@cases("ReflectionPad2d")
def reflection_pad2d(op, g):
    yield from mirrored(g, (([2, 7, 5], [3, 2, 1, 4]), ([2, 3, 6, 33], [0, 32, 5, 0]), ([1, 4, 5], [-1, 2, 2, -1])),
                        "reflect")


@cases("ReplicationPad2d")
def replication_pad2d(op, g):
    yield from mirrored(g, (([2, 7, 5], [3, 2, 1, 4]), ([2, 3, 6, 33], [0, 40, 9, 0]), ([1, 4, 5], [-1, 2, 2, -1])),
                        "replicate")


@cases("Flip")
def flip(op, g):
    for dtype in SIZES:
        for shape, dims in (([7], [0]), ([5, 33], [0]), ([5, 33], [-1]), ([5, 33], [1, 0]), ([2, 3, 40], [2, -3]),
                            ([2, 3, 4], [1]), ([5, 33], []), ([0, 3], [1])):
            x = g.tensor(shape, dtype)
            yield Case({"self": x, "dims": dims}, {"out": torch.flip(x, dims)})


@cases("Roll")
def roll(op, g):
    for dtype in SIZES:
        for shape, shifts, dims in (([7], [3], [0]), ([5, 33], [-2], [0]), ([5, 33], [40], [1]), ([5, 33], [1, 2], [0, 1]),
                                    ([5, 33], [7], []), ([2, 3, 4], [1, 1, 3], [0, 0, -1]), ([0, 3], [1], [0])):
            x = g.tensor(shape, dtype)
            yield Case({"x": x, "shifts": shifts, "dims": dims}, {"out": torch.roll(x, shifts, dims)})


@cases("Tril", "Triu", "InplaceTril", "InplaceTriu")
def triangle(op, g):
    function = torch.tril if "Tril" in op else torch.triu
    for dtype in SIZES + (torch.bool,):
        for shape, diagonals in (([5, 33], (0, 2, -3)), ([33, 5], (1, -20, 50)), ([2, 6, 6], (0, -50)), ([2, 3, 4, 4], (1,)),
                                 ([0, 3], (0,)), ([3, 0], (0,))):
            for diagonal in diagonals:
                x = g.tensor(shape, dtype)
                out = function(x, diagonal)
                if op.startswith("Inplace"):
                    yield Case({"selfRef": x, "diagonal": diagonal}, {"selfRef": out})
                else:
                    yield Case({"self": x, "diagonal": diagonal}, {"out": out})


@cases("Eye")
def eye(op, g):
    for dtype in g.all:
        for n, m in ((1, 1), (5, 33), (33, 5), (0, 3), (40, 40)):
            yield Case({"n": n, "m": m}, {"out": torch.eye(n, m).to(dtype)})


def number(value):
    return Scalar(value, torch.float64 if isinstance(value, float) else torch.int64)


@cases("Arange")
def arange(op, g):
    for dtype in g.real:
        for start, end, step in ((0, 10, 1), (3, 90, 7), (20, 0, -3), (5, 5, 1), (1, 2, 10)):
            yield Case({"start": number(start), "end": number(end), "step": number(step)},
                       {"out": torch.arange(start, end, step, dtype=dtype)})
    for dtype in g.floating:
        for start, end, step in ((0.0, 1.0, 0.1), (-2.5, 40.0, 0.25), (1.0, -3.0, -0.3)):
            count = math.ceil((end - start) / step)
            yield Case({"start": number(start), "end": number(end), "step": number(step)},
                       {"out": Ref(start + step * torch.arange(count, dtype=torch.float64), dtype)})
    for dtype in (torch.int32, torch.int64):
        yield Case({"start": number(0.5), "end": number(9.5), "step": number(2.0)},
                   {"out": torch.arange(0.5, 9.5, 2.0, dtype=dtype)})
    top = 2**62
    yield Case({"start": number(top), "end": number(top + 700), "step": number(1)},
               {"out": torch.arange(top, top + 700)})


@cases("Range")
def range_(op, g):
    for dtype in g.real:
        for start, end, step in ((0, 10, 1), (3, 90, 7), (20, 0, -3), (5, 5, 1)):
            yield Case({"start": number(start), "end": number(end), "step": number(step)},
                       {"out": torch.arange(start, end + (1 if step > 0 else -1), step, dtype=dtype)})
    for dtype in g.floating:
        for start, end, step in ((0.0, 1.0, 0.25), (-2.5, 40.0, 0.25), (1.0, -3.0, -0.3)):
            count = math.floor((end - start) / step) + 1
            yield Case({"start": number(start), "end": number(end), "step": number(step)},
                       {"out": Ref(start + step * torch.arange(count, dtype=torch.float64), dtype)})


@cases("Linspace")
def linspace(op, g):
    for dtype in g.real:
        for start, end, steps in ((0, 10, 11), (3, 90, 7), (20, 0, 700), (5, 5, 1), (1, 2, 0), (0, 100, 2)):
            yield Case({"start": number(start), "end": number(end), "steps": steps},
                       {"out": torch.linspace(start, end, steps, dtype=dtype)
                        if not dtype.is_floating_point else
                        Ref(torch.linspace(start, end, steps, dtype=torch.float64), dtype)})
    for dtype in g.floating:
        for start, end, steps in ((0.0, 1.0, 9), (-2.5, 40.0, 513), (1.0, -1.0, 301)):
            yield Case({"start": number(start), "end": number(end), "steps": steps},
                       {"out": Ref(torch.linspace(start, end, steps, dtype=torch.float64), dtype)})


@cases("OneHot")
def one_hot(op, g):
    for dtype in SIZES + (torch.bool,):
        for index in (torch.int32, torch.int64) if dtype == torch.float32 else (torch.int64,):
            for shape, axis in (([7], -1), ([5, 3], -1), ([5, 3], 0), ([5, 3], 1), ([], -1), ([0, 3], -1)):
                classes = 6
                x = g.index(shape, classes + 2, index) - 1  # both ends stand for no class
                on, off = torch.ones(1).to(dtype), torch.zeros(1).to(dtype)
                hot = x.unsqueeze(-1) == torch.arange(classes)
                hot = hot.movedim(-1, axis) if shape else hot
                yield Case({"self": x, "numClasses": classes, "onValue": on, "offValue": off, "axis": axis},
                           {"out": torch.where(hot, on, off)})
    x = g.index([3, 4], 5)
    on, off = torch.tensor([2.5]), torch.tensor([-1.0])
    yield Case({"self": x, "numClasses": 5, "onValue": on, "offValue": off, "axis": -1},
               {"out": torch.where(F.one_hot(x, 5).bool(), on, off)})


@cases("Im2col")
def im2col(op, g):
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.complex64):
        for shape, kernel, dilation, padding, stride in (
                ([2, 3, 7, 9], [3, 3], [1, 1], [1, 1], [1, 1]), ([1, 2, 8, 8], [2, 3], [2, 1], [0, 2], [2, 3]),
                ([3, 6, 5], [1, 1], [1, 1], [0, 0], [1, 1]), ([2, 2, 4, 4], [4, 4], [1, 1], [3, 3], [2, 2]),
                ([1, 1, 3, 3], [2, 2], [1, 1], [4, 5], [1, 1])):
            x = g.tensor(shape, dtype)
            yield Case({"self": x, "kernelSize": kernel, "dilation": dilation, "padding": padding, "stride": stride},
                       {"out": F.unfold(x, kernel, dilation, padding, stride)})
