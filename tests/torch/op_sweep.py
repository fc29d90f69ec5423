# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own table of operators (op_db) on the CPU and on npu: eagerly, in place, with out=, backward, captured;
and with arguments that lie in memory in other ways (LAYOUTS): forward, backward, and how the results lie.

    python op_sweep.py [--full] [--only REGEX] [--modes eager,captured] [--write FILE]

What fails is compared with op_sweep_expected.txt, whose lines say why: both a new failure and one that is gone count.
"""
import argparse
import functools
import itertools
import logging
import os
import re
import sys
import time
import warnings
import zlib
from collections import Counter
from unittest import mock

import torch
import torch_npu  # noqa: F401
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import set_rng_seed
from torch.utils import _pytree as pytree

EXPECTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "op_sweep_expected.txt")
MODES = ("eager", "inplace", "out", "backward", "captured", "layouts", "layouts_backward", "strides")
# What the quick sweep does of every operator; the others in turn, each of every third.
ALWAYS = ("eager", "captured", "layouts")
# The quick sweep takes float32, and for each third operator one of these in turn; the full one takes all.
OTHER_DTYPES = (torch.int64, torch.bfloat16, torch.complex64, torch.bool, torch.float64, torch.float16)
MOST_ELEMENTS = 20000
PASS, SKIP = "", "skip"
SEED = 42  # the one that the database's functions set

# Not a matter of the device: they leave memory as it is, or answer where things are.
LEFT_OUT = {
    "empty": "values are whatever was there",
    "empty_like": "values are whatever was there",
    "empty_permuted": "values are whatever was there",
    "empty_strided": "values are whatever was there",
    "new_empty": "values are whatever was there",
    "new_empty_strided": "values are whatever was there",
}


def name_of(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def is_dense(tensor):
    return tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_nested


def tensors_of(value):
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def to_npu(value):
    """The arguments of a sample for npu; strides are kept."""

    def move(leaf):
        if isinstance(leaf, torch.Tensor):
            # Numbers of dimension 0 move, too: that they may stay is tested elsewhere.
            moved = leaf.detach().to("npu")
            return moved.requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.device) and leaf.type == "cpu" or isinstance(leaf, str) and leaf == "cpu":
            return torch.device("npu")
        return leaf

    return pytree.tree_map(move, value)


def lying_like(tensor, device):
    """The same values on the device, in a storage of the same size, at the same place of it."""
    plain = tensor.detach()
    if plain.is_conj():
        return lying_like(plain.conj(), device).conj()
    if plain.is_neg():
        return lying_like(torch._neg_view(plain), device)._neg_view()
    whole = plain.as_strided((plain.untyped_storage().nbytes() // plain.element_size(),), (1,), 0)
    moved = torch.empty(whole.shape, dtype=whole.dtype, device=device)
    moved.copy_(whole)
    return moved.as_strided(plain.size(), plain.stride(), plain.storage_offset())


def permuted(tensor):
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


def strided(tensor):
    if tensor.dim() == 0:
        return offset(tensor)
    wide = torch.zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]), dtype=tensor.dtype)
    return wide[..., ::2].copy_(tensor)


def channels_last(tensor):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats[tensor.dim()]) if tensor.dim() in formats else tensor


def expanded(tensor):
    """Other values: the first ones of the last dimension that has several, again and again."""
    for dim in reversed(range(tensor.dim())):
        if tensor.shape[dim] > 1:
            return tensor.narrow(dim, 0, 1).clone().expand(tensor.shape)
    return tensor


def offset(tensor):
    long = torch.zeros(tensor.numel() + 3, dtype=tensor.dtype)
    return long[3:].view(tensor.shape).copy_(tensor)


# Equal rows make singular matrices, whose results are noise.
OF_MATRICES = re.compile("linalg|inv|qr|lstsq|eig|svd|lu_|det|solve|cholesky|pca|matrix_")
LAYOUTS = {f.__name__: f for f in (permuted, strided, channels_last, expanded, offset)}
LAYOUTS["mixed"] = None  # the first argument as the first of these, and so on


def laid_out(arguments, layout):
    """The arguments of a sample in other places of memory; None: nothing changes."""
    number = 0
    changed = False

    def move(leaf):
        nonlocal number, changed
        if not isinstance(leaf, torch.Tensor):
            return leaf
        make = LAYOUTS[layout] or tuple(LAYOUTS.values())[number % 3]
        number += 1
        plain = leaf.detach()
        if plain.is_conj() or plain.is_neg():
            return leaf
        moved = make(plain)
        changed |= moved.stride() != plain.stride() or moved.storage_offset() != plain.storage_offset()
        return moved.requires_grad_(leaf.requires_grad)

    moved = pytree.tree_map(move, arguments)
    return moved if changed else None


def layouts_of(op, full):
    """All of them; the quick sweep takes the first that changes something, by turns of the operators."""
    names = tuple(LAYOUTS)
    first = zlib.crc32(name_of(op).encode()) % len(names)
    return names if full else names[first:] + names[:first]


def relaid(op, sample, full):
    """(layout, arguments) of the layouts that count."""
    for layout in layouts_of(op, full):
        if layout == "expanded" and OF_MATRICES.search(op.name):
            continue
        arguments = laid_out(sample.arguments, layout)
        if arguments is None:
            continue
        yield layout, arguments
        if not full:
            return


def to_npu_as_it_lies(value):
    def move(leaf):
        if isinstance(leaf, torch.Tensor):
            return lying_like(leaf, "npu").requires_grad_(leaf.requires_grad)
        return to_npu(leaf)

    return pytree.tree_map(move, value)


def copy_as_it_lies(value):
    def copy(leaf):
        return lying_like(leaf, "cpu").requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf

    return pytree.tree_map(copy, value)


def to_cpu(value):
    def move(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().cpu()

    return pytree.tree_map(move, value)


def clone(value):
    def copy(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return pytree.tree_map(copy, value)


def roundings(tensor):
    """Tolerances for sums that are added up in another order, as other strides have it."""
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return {}
    sizes = tensor.detach().abs().double()
    most = sizes[torch.isfinite(sizes)].max().item() if torch.isfinite(sizes).any() else 0.0
    info = torch.finfo(tensor.dtype)
    few = 2 if info.eps > 1e-4 else 16
    return {"rtol": 4 * info.eps if info.eps > 1e-4 else 1e-5, "atol": 1e-5 + few * info.eps * most}


def same(actual, expected, exact=False, relaid=False):
    """Raises AssertionError unless both trees have equal leaves."""
    a, b = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    assert len(a) == len(b), f"{len(a)} results instead of {len(b)}"
    for x, y in zip(a, b):
        if not isinstance(y, torch.Tensor):
            if isinstance(y, float) and y != y:
                assert x != x, f"{x} instead of nan"
            elif isinstance(y, (int, float, complex, bool)):
                torch.testing.assert_close(x, y)
            continue
        if not is_dense(y):
            raise NotImplementedError(f"a result with layout {y.layout}")
        tolerance = {"rtol": 0, "atol": 0} if exact else roundings(y) if relaid else {}
        torch.testing.assert_close(x.detach().cpu(), y.detach().cpu(), equal_nan=True, **tolerance)


def equal(a, b):
    try:
        same(a, b, exact=True)
    except AssertionError:
        return False
    return True


class Sample:
    """One call: of the operator, or of its form that works in place."""

    def __init__(self, op, sample):
        self.op = op
        self.arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
        self.for_gradients = sample.output_process_fn_grad

    def size(self):
        return sum(tensor.numel() for tensor in tensors_of(self.arguments))

    @staticmethod
    def call(function, arguments, **more):
        first, args, kwargs = arguments
        return function(first, *args, **kwargs, **more)


def samples_of(op, dtype, full, requires_grad=False):
    """The first samples that are small; in the quick sweep the third, since the first are often trivial."""
    found = []
    count = 6 if full else 3
    set_rng_seed(SEED)  # the same samples, whatever ran before
    for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=requires_grad), 2 * count):
        each = Sample(op, sample)
        if each.size() > MOST_ELEMENTS or not all(is_dense(t) for t in tensors_of(each.arguments)):
            continue
        found.append(each)
        if len(found) == count:
            break
    return found if full else found[-1:]


def is_random(op, sample):
    """Whether calls with two seeds differ on the CPU. The database's own functions set a seed, always the same."""
    if op.name in ("bernoulli", "multinomial"):
        return True  # with few elements two seeds often agree
    set_seed = torch.manual_seed
    results = []
    with mock.patch.object(torch, "manual_seed", lambda seed: None):
        for seed in (1, 2):
            set_seed(seed)
            results.append(sample.call(op.op, clone(sample.arguments)))
    return not equal(*results)


def like(actual, expected):
    a, b = tensors_of(actual), tensors_of(expected)
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert x.shape == y.shape and x.dtype == y.dtype, f"{x.dtype}{list(x.shape)} instead of {y.dtype}{list(y.shape)}"


def check_eager(op, sample):
    arguments, moved = clone(sample.arguments), to_npu(sample.arguments)
    expected = sample.call(op.op, arguments)
    actual = sample.call(op.op, moved)
    for tensor in tensors_of(actual):
        wanted = "npu" if tensors_of(moved) or "device" in sample.arguments[2] else tensor.device.type
        assert tensor.device.type == wanted, f"a result is on {tensor.device}"
    if is_random(op, sample):
        return like(to_cpu(actual), expected)
    same(actual, expected)
    return same(moved, arguments)  # what it wrote besides


def check_inplace(op, sample):
    if op.inplace_variant is None or not isinstance(sample.arguments[0], torch.Tensor):
        return SKIP
    arguments, moved = clone(sample.arguments), to_npu(sample.arguments)
    try:
        expected = sample.call(op.inplace_variant, arguments)
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError):
        return SKIP  # not for this sample
    actual = sample.call(op.inplace_variant, moved)
    assert actual is moved[0]
    if is_random(op, sample):
        return like(to_cpu(actual), expected)
    return same(actual, expected)


def check_out(op, sample):
    if not op.supports_out:
        return SKIP
    plain = sample.call(op.op, clone(sample.arguments))
    leaves = tensors_of(plain)
    if not leaves or not isinstance(plain, (torch.Tensor, tuple)):
        return SKIP

    def outs(device):
        made = [torch.empty(0, dtype=leaf.dtype, device=device) for leaf in leaves]
        return made[0] if isinstance(plain, torch.Tensor) else tuple(made)

    expected, actual = outs("cpu"), outs("npu")
    kwargs = {k: v for k, v in sample.arguments[2].items() if k != "out"}
    arguments = (*sample.arguments[:2], kwargs)
    try:
        sample.call(op.op, clone(arguments), out=expected)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return SKIP
    sample.call(op.op, to_npu(arguments), out=actual)
    if is_random(op, sample):
        return like(to_cpu(actual), expected)
    return same(actual, expected)


def gradients(op, sample, arguments):
    result = sample.call(op.op, arguments)
    result = sample.for_gradients(result)
    parts = [leaf for leaf in tensors_of(result) if leaf.requires_grad]
    if not parts:
        return None
    total = sum((part.abs() if part.is_complex() else part).sum().to(torch.float64) for part in parts)
    wanted = [leaf for leaf in tensors_of(arguments) if leaf.requires_grad]
    return torch.autograd.grad(total, wanted, allow_unused=True)


def check_backward(op, sample):
    if is_random(op, sample):
        return SKIP
    try:
        expected = gradients(op, sample, clone(sample.arguments))
    except (RuntimeError, NotImplementedError):
        return SKIP
    if expected is None:
        return SKIP
    actual = gradients(op, sample, to_npu(sample.arguments))
    return same([g for g in actual if g is not None], [g for g in expected if g is not None])


OVERLAP = "more than one element of the written-to tensor"
REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError)


def check_layouts(op, sample, full):
    if is_random(op, sample):
        return SKIP
    answer = SKIP
    for layout, arguments in relaid(op, sample, full):
        for function in (op.op, op.inplace_variant):
            if function is None:
                continue
            on_cpu = copy_as_it_lies(arguments)
            try:
                expected = sample.call(function, on_cpu)
            except REFUSALS:
                continue
            moved = to_npu_as_it_lies(arguments)
            try:
                same(sample.call(function, moved), expected, relaid=True)
                same(moved, on_cpu, relaid=True)
            except Exception as error:
                if function is op.inplace_variant and OVERLAP in str(error):
                    continue  # the CPU lets some do this, whose results depend on the order of its loops
                raise type(error)(f"{layout}: {error}") from None
            answer = PASS
    return answer


def check_layouts_backward(op, sample, full):
    if is_random(op, sample):
        return SKIP
    answer = SKIP
    for layout, arguments in relaid(op, sample, full):
        try:
            expected = gradients(op, sample, copy_as_it_lies(arguments))
        except REFUSALS:
            continue
        if expected is None:
            continue
        try:
            actual = gradients(op, sample, to_npu_as_it_lies(arguments))
            same([g for g in actual if g is not None], [g for g in expected if g is not None], relaid=True)
        except Exception as error:
            raise type(error)(f"{layout}: {error}") from None
        answer = PASS
    return answer


def strides_of(tensor):
    """Those that matter: dimensions of one element have any."""
    if tensor.numel() == 0:
        return None
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride()) if size != 1)


def lie_alike(actual, expected, what):
    a, b = tensors_of(actual), tensors_of(expected)
    assert len(a) == len(b), f"{what}: {len(a)} results instead of {len(b)}"
    for x, y in zip(a, b):
        assert x.shape == y.shape, f"{what}: shape {list(x.shape)} instead of {list(y.shape)}"
        assert x.dtype == y.dtype, f"{what}: {x.dtype} instead of {y.dtype}"
        assert strides_of(x) == strides_of(y), f"{what}: strides {x.stride()} of {list(x.shape)} instead of {y.stride()}"


def lies_as(actual, announced, on_cpu, what):
    try:
        return lie_alike(actual, announced, what)
    except AssertionError as error:
        reason = error
    try:
        lie_alike(actual, on_cpu(), what)
    except (AssertionError, *REFUSALS):
        raise reason from None


def check_strides(op, sample, full):
    """Results and gradients lie as FakeTensors said, which torch.compile relies on, or as those of the CPU."""
    answer = SKIP
    for layout, arguments in [("plain", sample.arguments), *relaid(op, sample, full)]:
        moved = to_npu_as_it_lies(arguments)
        with_gradients = any(tensor.requires_grad for tensor in tensors_of(moved))
        with FakeTensorMode(allow_non_fake_inputs=False) as mode:
            fakes = pytree.tree_map(lambda x: mode.from_tensor(x) if isinstance(x, torch.Tensor) else x, moved)
            try:
                announced = sample.call(op.op, fakes)
                gradients_announced = gradients(op, sample, fakes) if with_gradients else None
            except Exception:  # noqa: BLE001  data-dependent, or not known to torch
                continue
        try:
            actual = sample.call(op.op, moved)
            torch.accelerator.synchronize()
        except REFUSALS:
            continue  # a matter of the other ways of calling
        lies_as(actual, announced, lambda: sample.call(op.op, copy_as_it_lies(arguments)), f"{layout}, result")
        if gradients_announced is not None:
            try:
                of_npu = gradients(op, sample, moved)
                torch.accelerator.synchronize()
            except REFUSALS:
                continue
            of_cpu = functools.partial(gradients, op, sample, copy_as_it_lies(arguments))
            lies_as(of_npu, gradients_announced, of_cpu, f"{layout}, gradient")
        answer = PASS
    return answer


def check_captured(op, sample):
    moved = to_npu(sample.arguments)
    if not tensors_of(moved) and "device" not in sample.arguments[2]:
        return SKIP
    kept = clone(moved)
    sample.call(op.op, clone(moved))  # first uses allocate what stays
    graph, stream = torch.npu.NPUGraph(), capture_stream()
    before = torch.accelerator.current_stream()
    stream.wait_stream(before)
    result = None
    torch.manual_seed(SEED)  # a capture refuses another one
    with stream:
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            result = sample.call(op.op, moved)
        finally:
            graph.capture_end()
    before.wait_stream(stream)
    try:
        for scale in (1.0, 0.96875):
            for static, first in zip(tensors_of(moved), tensors_of(kept)):
                # Nothing inside a view of itself; values stay in the operator's domain.
                static.copy_(first * scale if first.is_floating_point() and scale != 1.0 else first)
            now = clone(moved)
            torch.manual_seed(SEED)
            graph.replay()
            torch.manual_seed(SEED)
            expected = sample.call(op.op, now)
            same(result, expected, exact=True)
            same(moved, now, exact=True)
    finally:
        del result
        torch.accelerator.synchronize()
        graph.reset()
    return PASS


_stream = None


def capture_stream():
    global _stream
    if _stream is None:
        _stream = torch.Stream(device="npu")
    return _stream


CHECKS = {
    "eager": check_eager,
    "inplace": check_inplace,
    "out": check_out,
    "backward": check_backward,
    "captured": check_captured,
    "layouts": check_layouts,
    "layouts_backward": check_layouts_backward,
    "strides": check_strides,
}
logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)  # which says what it then raises
TAKE_FORM = ("layouts", "layouts_backward", "strides")  # do more in the full sweep


def reason_of(error):
    text = re.sub(r"\s+", " ", str(error).strip()) or type(error).__name__
    if waits := re.match(r"(\S+) cannot run while the current stream is capturing", text):
        return f"needs the value on the host: {waits[1]}"
    if late := re.search(r"operation (\S+ failed: .*)", text):
        text = late[1]
    return f"{type(error).__name__}: {text}"[:160]


def run_one(mode, op, samples, full):
    """PASS, SKIP or why it failed."""
    answers = set()
    for sample in samples:
        torch.manual_seed(1)
        try:
            form = (full,) if mode in TAKE_FORM else ()
            answers.add(SKIP if CHECKS[mode](op, sample, *form) == SKIP else PASS)
            torch.accelerator.synchronize()
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            try:
                torch.accelerator.synchronize()
            except RuntimeError as late:
                error = late
            return reason_of(error)
    return SKIP if answers <= {SKIP} else PASS


def dtypes_of(op, index, full):
    supported = op.supported_dtypes("cpu")
    others = [dtype for dtype in OTHER_DTYPES if dtype in supported]
    chosen = [torch.float32] if torch.float32 in supported else []
    if full:
        return chosen + others
    if others and (index % 3 == 0 or not chosen):
        chosen.append(others[index // 3 % len(others)])
    return chosen


def sweep(operators, modes=MODES, full=False, report=None, types=""):
    """{(mode, name, dtype): answer} of (index, operator) pairs."""
    answers = {}
    for index, op in operators:
        name = name_of(op)
        if op.name in LEFT_OUT:
            continue
        for dtype in dtypes_of(op, index, full):
            if not re.search(types, str(dtype)):
                continue
            try:
                samples = samples_of(op, dtype, full)
                for sample in samples:
                    sample.call(op.op, clone(sample.arguments))
            except Exception:  # noqa: BLE001  the CPU does not do it here: nothing to compare with
                continue
            if not samples:
                continue
            for mode in modes:
                if not full and mode not in ALWAYS and index % 3 != 1:
                    continue  # these in turn, too
                if mode.endswith("backward") and (dtype != torch.float32 or not op.supports_autograd):
                    continue
                if mode.endswith("backward") or mode == "strides" and dtype == torch.float32 and op.supports_autograd:
                    of_mode = samples_of(op, dtype, full, requires_grad=True)
                else:
                    of_mode = samples
                begun = time.perf_counter()
                key = (mode, name, str(dtype).replace("torch.", ""))
                if os.environ.get("REPRISE_TORCH_SWEEP_TRACE"):
                    print(*key, flush=True)  # for those that end the process
                answers[key] = run_one(mode, op, of_mode, full)
                if report is not None:
                    report(key, answers[key], time.perf_counter() - begun)
    return answers


def part(number, of):
    """Each of `of` parts takes every so-manieth operator, so that they take equally long."""
    return [(i, op) for i, op in enumerate(op_db) if i % of == number]


def expected_failures():
    """{(mode, name, dtype): (scope, reason)}; scope "full": the quick sweep has no sample that shows it."""
    failures = {}
    with open(EXPECTED, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                scope, mode, name, dtype, reason = line.rstrip("\n").split(maxsplit=4)
                failures[(mode, name, dtype)] = (scope, reason)
    return failures


def differences(answers, full=False):
    """What got worse, and what got better, as lines."""
    expected = expected_failures()
    worse, better = [], []
    for key, answer in answers.items():
        scope, _ = expected.get(key, (None, None))
        if answer not in (PASS, SKIP) and scope is None:
            worse.append(" ".join(key) + " " + answer)
        if answer == PASS and (scope == "quick" or scope == "full" and full):
            better.append(" ".join(key) + " passes now: take its line out of op_sweep_expected.txt")
    return worse, better


def summary(answers):
    """Operators (all their dtypes together) that pass, by mode."""
    lines = []
    for mode in MODES:
        by_name = {}
        for (of, name, _), answer in answers.items():
            if of == mode and answer != SKIP:
                by_name[name] = by_name.get(name, True) and answer == PASS
        if by_name:
            passed = sum(by_name.values())
            lines.append(f"{mode:16} {passed:4} of {len(by_name):4} operators ({100 * passed / len(by_name):.1f} %)")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="all types, more samples; many minutes")
    parser.add_argument("--only", default="", help="operators whose name matches")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--types", default="", help="names that are matched by this REGEX")
    parser.add_argument("--part", default="0/1", help="NUMBER/OF")
    parser.add_argument("--write", help="writes the failures as lines of op_sweep_expected.txt")
    parser.add_argument("--slow", type=float, default=5.0, help="names what takes longer, in seconds")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    number, of = map(int, options.part.split("/"))
    operators = [(i, op) for i, op in part(number, of) if re.search(options.only, name_of(op))]

    def report(key, answer, seconds):
        if answer not in (PASS, SKIP):
            print("FAIL", *key, answer, flush=True)
        if seconds > options.slow:
            print(f"slow {seconds:.1f} s", *key, flush=True)

    begun = time.perf_counter()
    answers = sweep(operators, options.modes.split(","), options.full, report, options.types)
    print(summary(answers))
    print(Counter("pass" if a == PASS else "skip" if a == SKIP else "fail" for a in answers.values()))
    print(f"{time.perf_counter() - begun:.0f} s")
    if options.write:
        with open(options.write, "w", encoding="utf-8") as file:
            for key, answer in answers.items():
                if answer not in (PASS, SKIP):
                    print("full" if options.full else "quick", *key, answer, file=file)
    worse, better = differences(answers, options.full) if os.path.exists(EXPECTED) else ([], [])
    print("\n".join(["worse:", *worse, "better:", *better]))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
