# SPDX-License-Identifier: Apache-2.0
"""Cases of operators against PyTorch on the CPU.

A function marked with @cases("Add", ...) yields Case(args, expect) for each operator that it names; test_operators.py
runs them. `args` has a value for each C parameter that is not an output, `expect` one for each output; a parameter
that is both is in both. Errors are measured in units of the spacing of the output's type and compared with the bound
in the operator's row of api/ops.
"""

import importlib
import os
import random
import zlib
from pathlib import Path

import torch

import aclnn
from aclnn import Scalar  # noqa: F401 - for the files of cases

torch.set_num_threads(1)  # the oracle; tests run side by side

CASES = {}  # operator -> functions
WORST = {}  # (operator, type) -> largest error, in units of its bound's scale
COUNTS = {}  # operator -> cases run

FORM = os.environ.get("REPRISE_TEST_FORM", "short")
if FORM not in ("short", "full"):
    raise ValueError(f"REPRISE_TEST_FORM is {FORM!r}, expected short or full")


def cases(*names):
    def register(function):
        for name in names:
            CASES.setdefault(name, []).append(function)
        return function
    return register


def load_cases():
    for path in sorted(Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(path.stem)
    unknown = sorted(set(CASES) - set(aclnn.TABLE))
    if unknown:
        raise LookupError(f"cases of operators without a row in api/ops: {', '.join(unknown)}")


class Ref:
    """What an output must be: `value`, of any precision, stored as `dtype`.

    allocated: shape that the caller provides where the operator finds out the true one.
    bound: instead of the row's, for outputs of another kind.
    """

    def __init__(self, value, dtype=None, allocated=None, bound=None):
        self.value = value
        self.dtype = dtype or value.dtype
        self.shape = list(value.shape)
        self.allocated = list(allocated) if allocated is not None else None
        self.bound = bound

    def verify(self, actual, op):
        compare(op, actual, self.value, self.dtype, self.bound or bound_of(op))


class Check:
    """An output that is looked at by `verify`: random numbers, layouts of our own."""

    allocated = None

    def __init__(self, shape, dtype, verify):
        self.shape, self.dtype, self._verify = list(shape), dtype, verify

    def verify(self, actual, op):
        result = self._verify(actual)
        assert result is None or result, f"{op}: the output is not as it should be"


class Case:
    """args: by parameter. expect: by parameter. any_shape: outputs that may have another shape than in `expect`."""

    def __init__(self, args, expect, any_shape=()):
        self.args, self.any_shape = args, any_shape
        self.expect = {name: as_expectation(value) for name, value in expect.items()}

    def waits_for_host(self):
        return any(getattr(item, "allocated", None) is not None
                   for value in self.expect.values() for item in (value if isinstance(value, list) else [value]))


def as_expectation(value):
    if isinstance(value, torch.Tensor):
        return Ref(value)
    if isinstance(value, (list, tuple)):
        return [as_expectation(item) for item in value]
    return value


def high(tensor):
    """The same numbers with more precision, for references."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


class Generator:
    """Makes inputs; the same ones in every run."""

    floating = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
    complex = (torch.complex64, torch.complex128)
    integers = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
    real = floating + integers
    numeric = real + complex
    all = numeric + (torch.bool,)
    shapes = ([], [0, 3], [1], [7], [5, 33], [2, 3, 65], [4, 1, 6, 5])

    def __init__(self, seed):
        self.torch = torch.Generator().manual_seed(seed)
        self.random = random.Random(seed)

    def tensor(self, shape, dtype, kind="normal"):
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=self.torch).to(torch.bool)
        if not dtype.is_floating_point and not dtype.is_complex:
            low, top = (0, 20) if not torch.iinfo(dtype).min or kind == "positive" else (-10, 11)
            if kind == "edge":
                info = torch.iinfo(dtype)
                return self.pick(shape, [info.min, info.max, 0, 1, 2, 3], dtype)
            return torch.randint(low + (kind == "positive"), top, shape, generator=self.torch).to(dtype)
        if dtype.is_complex:
            part = torch.float64 if dtype == torch.complex128 else torch.float32
            return torch.complex(self.tensor(shape, part, kind), self.tensor(shape, part, kind))
        if kind == "edge":
            info = torch.finfo(dtype)
            return self.pick(shape, [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, info.max, -info.max, info.tiny,
                                     1.0, -1.0, 0.5, -2.5, 3.0], dtype)
        value = torch.randn(shape, generator=self.torch, dtype=torch.float64)
        if kind == "positive":
            value = value.abs() + 0.01
        elif kind == "unit":
            value = torch.tanh(value)
        elif kind == "small":
            value = torch.randint(-8, 9, shape, generator=self.torch).to(torch.float64) / 2
        elif kind != "normal":
            raise ValueError(kind)
        return value.to(dtype)

    def pick(self, shape, values, dtype):
        index = torch.randint(0, len(values), shape, generator=self.torch)
        return torch.tensor(values, dtype=dtype)[index]

    def index(self, shape, limit, dtype=torch.int64):
        return torch.randint(0, max(1, limit), shape, generator=self.torch).to(dtype)

    def permutation(self, count, dtype=torch.int64):
        return torch.randperm(count, generator=self.torch).to(dtype)

    def mask(self, shape):
        return torch.randint(0, 2, shape, generator=self.torch).to(torch.bool)


def cases_of(name):
    for position, function in enumerate(CASES[name]):
        yield from function(name, Generator(zlib.crc32(f"{name}/{position}".encode())))


def chosen_cases_of(name):
    """All cases in the full form; in the short one those that bring something that no case before them had.

    Mistakes sit in what is chosen by type and in what is chosen by shape or attribute, or in two of these together. So
    what counts is each combination of types, each combination of ranks, of sizes that are 0 and of sizes that are 1,
    and, with each type of the first tensor, each value of an attribute, and each argument that is there or missing, has
    one or several tensors, NaN and infinities or none. Of cases that differ in random values alone, or in sizes that
    another type has had already, the first one runs.
    """
    seen = set()
    for case in cases_of(name):
        new = traits(case) - seen
        if FORM == "full" or new:
            seen |= new
            yield case


def traits(case):
    types, shapes, rest = [], [], set()
    for name, value in [*case.args.items(), *case.expect.items()]:
        items = value if isinstance(value, (list, tuple)) else [value]
        if not all(item is None or hasattr(item, "shape") for item in items):
            rest.add((name, (str(value.dtype), repr(value.value)) if isinstance(value, Scalar) else repr(value)))
            continue
        rest.add((name, min(len(items), 2), None in [item if item is None else 0 for item in items]))
        for item in items:
            if item is None:
                continue
            types.append(item.dtype)
            shapes.append(tuple(item.shape))
            if isinstance(item, torch.Tensor):
                rest.add((name, bool((item.float() if item.dtype in aclnn.SMALL else item).isfinite().all())))
    types = tuple(types[:12])  # long lists differ in length alone
    shapes = tuple((len(shape), 0 in shape, 1 in shape) for shape in shapes[:12])
    return {types, shapes} | {(types[:1], trait) for trait in rest}


# ---- Errors ----

def bound_of(name):
    return aclnn.TABLE[name].bound


def parse_bound(text):
    """'4/1 of max' -> (4.0, 1.0, True)."""
    numbers, _, scale = text.partition(" of ")
    wide, narrow = numbers.split("/")
    return float(wide), float(narrow), scale == "max"


def same(a, b):
    """Equal, where NaN is NaN; floats of 8 bits: bit by bit."""
    if a.dtype in aclnn.SMALL:
        return a.view(torch.uint8) == b.view(torch.uint8)
    if a.is_floating_point() or a.is_complex():
        return (a == b) | (a.isnan() & b.isnan())
    return a == b


def compare(name, actual, expected, dtype, bound):
    assert list(actual.shape) == list(expected.shape), f"{name}: shape {list(actual.shape)}, not {list(expected.shape)}"
    rounded = expected.to(dtype)
    inexact = dtype.is_floating_point or dtype.is_complex
    if bound == "exact" or not inexact:
        good = same(actual, rounded)
        assert good.all(), (f"{name} {dtype}: {int((~good).sum())} of {good.numel()} elements differ, the first is "
                            f"{actual[~good][:1].tolist()}, not {rounded[~good][:1].tolist()}")
        WORST.setdefault((name, str(dtype)), 0.0)
        return
    wide, narrow, of_max = parse_bound(bound)
    limit = narrow if dtype in (torch.float16, torch.bfloat16) else wide
    info = torch.finfo(dtype)
    got, want = actual, expected
    if dtype.is_complex:
        magnitude = want.abs().to(torch.float64).unsqueeze(-1)
        got, want, rounded = (torch.view_as_real(t.to(torch.complex128)) for t in (got, want, rounded))
        magnitude = magnitude.expand(want.shape)
    else:
        got, want, rounded = got.to(torch.float64), want.to(torch.float64), rounded.to(torch.float64)
        magnitude = want.abs()
    finite = rounded.isfinite() & want.isfinite()
    # Next to the largest number either side may be infinite.
    near = (got.abs() >= 0.99 * info.max) & (rounded.abs() >= 0.99 * info.max) & (got.sign() == rounded.sign())
    good = same(got, rounded) | near
    if of_max and bool(finite.any()):
        magnitude = magnitude[finite].max().expand(want.shape)
    unit = (magnitude * info.eps).clamp(min=info.tiny * info.eps)
    error = torch.where(finite, (got - want).abs() / unit, torch.zeros_like(want))
    good |= finite & (error <= limit)
    measured = good & finite & got.isfinite()
    worst = float(error[measured].max()) if bool(measured.any()) else 0.0
    key = (name, str(dtype))
    WORST[key] = max(WORST.get(key, 0.0), worst)
    if not good.all():
        at = int((~good).flatten().nonzero()[0])
        raise AssertionError(f"{name} {dtype}: {int((~good).sum())} of {good.numel()} elements are off, by up to "
                             f"{float(error[~good].max()):.3g} units (bound {bound}); the first, {at}, is "
                             f"{got.flatten()[at].item()}, not {want.flatten()[at].item()}")


# ---- Running ----

class Call:
    """One case in device memory."""

    def __init__(self, op, case, scatter=None):
        self.op, self.case, self.objects = op, case, aclnn.Objects()
        aclnn.device().reset()
        self.values, self.inputs, self.outputs = {}, [], []
        for (c_type, name), role in zip(op.parameters, op.roles):
            word = role.partition("=")[0].rstrip("?")
            is_tensor = "aclTensor*" in c_type or "aclTensorList*" in c_type
            if not is_tensor:
                self.values[name] = case.args[name]
                continue
            source = case.args[name] if word in ("in", "inout") else None
            wanted = case.expect[name] if word in ("out", "inout") else None
            self.values[name] = self.place(source, wanted, scatter)

    def place(self, source, wanted, scatter):
        model = source if source is not None else wanted
        if model is None:
            return None
        if isinstance(model, (list, tuple)):
            pairs = zip(source or [None] * len(model), wanted or [None] * len(model))
            return [self.place(s, w, scatter) for s, w in pairs]
        shape = getattr(model, "allocated", None) or list(model.shape)
        placed = aclnn.Placed(shape, model.dtype, scatter, getattr(model, "acl_number", None))
        if source is not None:
            self.inputs.append((placed, source))
        if wanted is not None:
            self.outputs.append((placed, wanted))
        return placed

    def write_inputs(self):
        for placed, source in self.inputs:
            placed.write(source)

    def packed(self):
        return aclnn.pack(self.op, self.values, self.objects)

    def results(self):
        results = []
        for placed, wanted in self.outputs:
            actual = placed.read()
            if wanted.allocated is not None:
                shape = aclnn.view_shape(placed.handle)
                flat = aclnn.memory(placed.address, placed.count, placed.dtype)[placed.offset:]
                count = int(torch.tensor(shape).prod()) if shape else 1
                actual = flat[:count].reshape(shape).clone()
            results.append(actual)
        return results

    def all_placed(self):
        return [placed for placed, _ in self.inputs + self.outputs]

    def verify(self):
        for actual, (_, wanted) in zip(self.results(), self.outputs):
            wanted.verify(actual, self.op.id)
        for placed in self.all_placed():
            assert placed.gaps_are_intact(), f"{self.op.id}: wrote outside of a view"
        written = {id(placed) for placed, _ in self.outputs}
        for placed, source in self.inputs:
            if id(placed) not in written:
                assert same(placed.read(), source).all(), f"{self.op.id}: changed an input"

    def destroy(self):
        self.objects.destroy()
