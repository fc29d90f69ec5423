# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own table of operators (op_db) through the published package, forward and backward, against the CPU.

    python op_table.py [--only REGEX] [--part 0/1] [--directions forward,backward] [--samples 24] [--write FILE]

A row is an operator and a direction, in float32 or, where that is not for it, in the first type that is. It passes if all
of its samples do: those of the table, or that many of them, taken evenly. Calls of the package are queued, and one that
fails makes later results stale: so rows run in processes that are forked from this one (forked_rows.py). What fails is
compared with op_table_expected.csv, whose lines say why: a new failure counts, and so does one that is gone.
"""
import argparse
import csv
import os
import pathlib
import re
import sys
import time
import warnings
from collections import Counter

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "torch"))
os.environ.pop("ASCEND_LAUNCH_BLOCKING", None)  # the package is run as its users run it

import forked_rows  # noqa: E402
import op_sweep  # noqa: E402
import torch  # noqa: E402
from op_sweep import PASS, SKIP, Sample, clone, is_dense, name_of, op_db, same, tensors_of, to_cpu, to_npu  # noqa: E402

EXPECTED = HERE / "op_table_expected.csv"
DIRECTIONS = ("forward", "backward")
TYPES = (torch.float32, torch.int64, torch.complex64, torch.bool, torch.float64, torch.float8_e4m3fn)
MOST_ELEMENTS = 20000
ALL = 1000  # samples; no row has so many
ROWS = {"forward": 692, "backward": 532}  # those of PyTorch 2.13 that the CPU computes
SECONDS = 300  # of a row that hangs


def type_of(op):
    supported = op.supported_dtypes("cpu")
    return next((dtype for dtype in TYPES if dtype in supported), None)


def only_type(name):
    """From now on all rows are in this type."""
    global TYPES
    TYPES = (getattr(torch, name),)


# What the package itself does not do, before it asks any library: samples that meet it are left out.
REFUSED_BY_PACKAGE = re.compile("Only contiguous_format or preserve_format is supported")


def in_float64(value):
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}

    def widen(leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in wide:
            return leaf
        return leaf.detach().to(wide[leaf.dtype]).requires_grad_(leaf.requires_grad)

    return op_sweep.pytree.tree_map(widen, value)


def near(actual, expected, exact):
    """Equal within the rounding of the largest value; or about as near to the float64 results as those of the CPU."""
    try:
        return same(dense(actual), dense(expected), relaid=True)
    except AssertionError as error:
        reason = error
    try:
        exact = tensors_of(dense(exact()))
    except Exception:  # noqa: BLE001  not in this type: the first answer stands
        raise reason from None
    ours, theirs = tensors_of(to_cpu(dense(actual))), tensors_of(dense(expected))
    if not len(ours) == len(theirs) == len(exact):
        raise reason
    for a, b, c in zip(ours, theirs, exact):
        if a.shape != b.shape or a.dtype != b.dtype or not a.is_floating_point():
            raise reason
        if a.numel() and not (a - c).abs().max() <= 16 * (b - c).abs().max():
            raise reason
    return None


def dense(value):
    """Sparse tensors as what they stand for."""
    return op_sweep.pytree.tree_map(
        lambda leaf: leaf.detach().to_dense() if isinstance(leaf, torch.Tensor) and leaf.is_sparse else leaf, value)


def samples_of(op, count, requires_grad):
    op_sweep.set_rng_seed(op_sweep.SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [Sample(op, sample) for sample in op.sample_inputs("cpu", type_of(op), requires_grad=requires_grad)]
    found = [
        each for each in found
        if each.size() <= MOST_ELEMENTS and all(is_dense(t) for t in tensors_of(each.arguments))
    ]
    if count >= len(found):
        return found
    # The first are often trivial: one sample is the middle one.
    return [found[(2 * i + 1) * len(found) // (2 * count)] for i in range(count)]


def is_random(op, sample):
    """Sparse results, which the other sweep does not compare, are never random."""
    try:
        return op_sweep.is_random(op, sample)
    except NotImplementedError:
        return False


def forward(op, sample):
    try:
        arguments = clone(sample.arguments)
        expected = sample.call(op.op, arguments)
    except Exception:  # noqa: BLE001  the CPU does not do it: nothing to compare with
        return SKIP
    random = op.name in op_sweep.LEFT_OUT or is_random(op, sample)
    moved = to_npu(sample.arguments)
    actual = sample.call(op.op, moved)
    for tensor in tensors_of(actual):
        wanted = "npu" if tensors_of(moved) or "device" in sample.arguments[2] else tensor.device.type
        assert tensor.device.type == wanted, f"a result is on {tensor.device}"
    if random:
        return op_sweep.like(to_cpu(actual), expected)
    # Singular vectors may have another sign; what the table makes of them for gradients does not depend on it.
    seen = sample.for_gradients if op.name.endswith("svd") else lambda results: results
    near(seen(actual), seen(expected), lambda: seen(sample.call(op.op, in_float64(sample.arguments))))
    return same(dense(moved), dense(arguments), relaid=True)  # what it wrote besides


def backward(op, sample):
    try:
        expected = op_sweep.gradients(op, sample, clone(sample.arguments))
    except Exception:  # noqa: BLE001  as above
        return SKIP
    if expected is None or is_random(op, sample):
        return SKIP
    actual = op_sweep.gradients(op, sample, to_npu(sample.arguments))
    assert [g is None for g in actual] == [g is None for g in expected], "gradients of other arguments"
    near([g for g in actual if g is not None], [g for g in expected if g is not None],
         lambda: [g for g in op_sweep.gradients(op, sample, in_float64(sample.arguments)) if g is not None])
    return PASS


def run_row(op, direction, count):
    """PASS, SKIP or why it failed."""
    if type_of(op) is None or direction == "backward" and not (op.supports_autograd and type_of(op).is_floating_point):
        return SKIP
    answer, refusal = SKIP, None
    try:
        samples = samples_of(op, count, direction == "backward")
    except Exception:  # noqa: BLE001  samples for other devices
        return SKIP
    for number, sample in enumerate(samples):
        torch.manual_seed(1)
        try:
            if (forward if direction == "forward" else backward)(op, sample) != SKIP:
                answer = PASS
            torch.npu.synchronize()
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            refusal = f"sample {number}: {reason_of(error)}"
            if not REFUSED_BY_PACKAGE.search(refusal):
                return refusal
    return refusal if answer == SKIP and refusal else answer


def reason_of(error):
    """One line: what the libraries say, where they say something, else what the package or the test says."""
    text = re.sub(r"\s+", " ", str(error).strip()) or type(error).__name__
    if said := re.search(r"E[A-Z0-9]\d{4}: (.*)", text):
        text = said[1]
    return f"{type(error).__name__}: {text}"[:400]


def run_rows(rows, count, report=None):
    """{(direction, name): answer} of pairs (index, direction)."""
    rows = list(rows)
    key_of = lambda row: (row[1], name_of(op_db[row[0]]))  # noqa: E731
    answers = forked_rows.run(
        rows, lambda row: run_row(op_db[row[0]], row[1], count), SECONDS,
        report and (lambda row, answer, seconds: report(key_of(row), answer, seconds)))
    return {key_of(row): answer for row, answer in zip(rows, answers)}


def rows_of(part="0/1", only="", directions=DIRECTIONS):
    number, of = map(int, part.split("/"))
    return [
        (index, direction) for index, op in enumerate(op_db) if index % of == number and re.search(only, name_of(op))
        for direction in directions
    ]


def expected_failures():
    """{(direction, name): reason}"""
    with open(EXPECTED, encoding="utf-8", newline="") as file:
        return {(row["direction"], row["operator"]): row["reason"] for row in csv.DictReader(file)}


def differences(answers, all_samples):
    """What is worse and what is better than expected, as lines. A few samples need not show a failure."""
    expected = expected_failures()
    lines = []
    for key, answer in answers.items():
        if answer not in (PASS, SKIP) and key not in expected:
            lines.append(" ".join(key) + ": " + answer)
        elif answer in (PASS, SKIP) and key in expected and all_samples:
            lines.append(" ".join(key) + ": passes now; take its line out of op_table_expected.csv")
    return lines


def summary(answers):
    lines = []
    for direction in DIRECTIONS:
        of = Counter(
            "skip" if answer == SKIP else "pass" if answer == PASS else "fail"
            for (of, _), answer in answers.items() if of == direction)
        rows = of["pass"] + of["fail"]
        if rows:
            lines.append(f"{direction:8} {of['pass']:4} of {rows:4} rows ({100 * of['pass'] / rows:.1f} %)")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose name matches")
    parser.add_argument("--directions", default=",".join(DIRECTIONS))
    parser.add_argument("--part", default="0/1", help="NUMBER/OF")
    parser.add_argument("--samples", type=int, default=ALL, help="at most so many of each row")
    parser.add_argument("--type", help="another type than float32; nothing is expected then")
    parser.add_argument("--write", help="writes the failures as lines of op_table_expected.csv")
    parser.add_argument("--slow", type=float, default=5.0, help="names what takes longer, in seconds")
    options = parser.parse_args()
    if options.type:
        only_type(options.type)

    def report(key, answer, seconds):
        if answer not in (PASS, SKIP):
            print("FAIL", *key, answer, flush=True)
        if seconds > options.slow:
            print(f"slow {seconds:.1f} s", *key, flush=True)

    begun = time.perf_counter()
    answers = run_rows(
        rows_of(options.part, options.only, options.directions.split(",")), options.samples, report)
    print(summary(answers))
    print(f"{time.perf_counter() - begun:.0f} s")
    if options.write:
        with open(options.write, "w", encoding="utf-8", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerows([*key, answer] for key, answer in answers.items() if answer not in (PASS, SKIP))
    lines = differences(answers, options.samples >= ALL) if EXPECTED.exists() and not options.type else []
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
