# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own table of operators (op_db) through torch.compile with torchair, in both of its modes, against eager
calls on npu.

    python compiled_table.py [--only REGEX] [--part 0/1] [--modes max-autotune,npugraph_ex] [--types float32,int64]
                             [--samples 3] [--dynamic] [--write FILE] [--table FILE]

A row is an operator, a mode and a type. It passes if all of its samples that run eagerly are compiled and give the eager
results. Rows that dynamo does not hand to the backend at all, whatever the backend is, are counted apart. Rows run in
processes that are forked from this one (forked_rows.py). What fails is compared with compiled_table_expected.csv, whose lines
say why: a new failure counts, and so does one that is gone, unless fewer samples were tried. With ``--dynamic`` the list is not
asked: SHARE of the rows must pass in each mode. ``--table`` writes all rows: operator, mode, type, result, reason.
"""
import argparse
import csv
import itertools
import pathlib
import re
import sys
import time
import warnings
from collections import Counter

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "torch"))

import forked_rows  # noqa: E402
import op_sweep  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402
import torchair  # noqa: E402
from op_sweep import PASS, SKIP, Sample, clone, is_dense, name_of, op_db, same, tensors_of, to_npu  # noqa: E402

EXPECTED = HERE / "compiled_table_expected.csv"
MODES = ("max-autotune", "npugraph_ex")
# The quick form takes the first type that an operator has of each; the second ones are for operators without the first.
TYPES = ("float32,complex64,bool", "int64,float16,bfloat16")
SHARE = 0.95
ROWS = 1197  # of each mode, with PyTorch 2.13: those that run eagerly and that dynamo hands over
SAMPLES = 3
MOST_ELEMENTS = 20000
SECONDS = 120  # of a row that hangs
DYNAMO, UNWELL = "dynamo: ", "device: "


def types_of(op, wanted=TYPES):
    supported = op.supported_dtypes("cpu")
    chosen = []
    for group in wanted:
        found = next((name for name in group.split(",") if getattr(torch, name) in supported), None)
        if found and found not in chosen:
            chosen.append(found)
    return chosen


def samples_of(op, dtype, count):
    op_sweep.set_rng_seed(op_sweep.SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [Sample(op, sample) for sample in itertools.islice(op.sample_inputs("cpu", dtype), 60)]
    found = [
        each for each in found
        if each.size() <= MOST_ELEMENTS and all(is_dense(t) for t in tensors_of(each.arguments))
    ]
    if count >= len(found):
        return found
    return [found[(2 * i + 1) * len(found) // (2 * count)] for i in range(count)]  # the first are often trivial


class Backend:
    """A backend that counts the graphs it gets."""

    def __init__(self, backend):
        self.backend = backend
        self.graphs = 0

    def __call__(self, *args, **kwargs):
        self.graphs += 1
        return self.backend(*args, **kwargs)


def backend_of(mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    return torchair.get_npu_backend(compiler_config=config)


def compiled(op, backend, dynamic):
    def call(first, args, kwargs):
        return op.op(first, *args, **kwargs)

    torch._dynamo.reset()
    return torch.compile(call, backend=backend, dynamic=dynamic)


def wide(value):
    """The same in float64, for how far the eager results are from the exact ones."""
    types = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
             torch.complex64: torch.complex128}

    def widen(leaf):
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in types:
            return leaf
        return leaf.detach().cpu().to(types[leaf.dtype])

    return op_sweep.pytree.tree_map(widen, value)


def near(actual, expected, exact):
    """Equal within the rounding of the largest value; or about as near to the float64 results as the eager ones."""
    try:
        return same(actual, expected, relaid=True)
    except AssertionError as error:
        reason = error
    try:
        exact = tensors_of(exact())
    except Exception:  # noqa: BLE001  not in this type: the first answer stands
        raise reason from None
    ours, theirs = (tensors_of(op_sweep.to_cpu(each)) for each in (actual, expected))
    if not len(ours) == len(theirs) == len(exact):
        raise reason
    for a, b, c in zip(ours, theirs, exact):
        if not a.shape == b.shape == c.shape or a.dtype != b.dtype or not a.is_floating_point():
            raise reason
        if a.numel() and not (a.double() - c).abs().max() <= 16 * (b.double() - c).abs().max():
            raise reason
    return None


def check(op, sample, mode, dynamic):
    arguments = to_npu(sample.arguments)
    kept = clone(arguments)
    try:
        expected = sample.call(op.op, arguments)
        torch.npu.synchronize()
    except Exception:  # noqa: BLE001  not eagerly either: nothing to compare with
        return SKIP
    if not tensors_of(expected) and not tensors_of(kept):
        return SKIP
    random = op.name in op_sweep.LEFT_OUT or op_sweep.is_random(op, sample)
    own, backend = clone(kept), Backend(backend_of(mode))
    first, args, kwargs = own
    step = compiled(op, backend, dynamic)
    actual = step(first, args, kwargs)
    torch.npu.synchronize()
    if backend.graphs == 0:
        return DYNAMO + "gives no graph to the backend"
    compare(op, sample, random, actual, expected, own, arguments)
    if mode != "max-autotune":  # the replay of what was captured
        again = clone(kept)
        actual = step(*again)
        torch.npu.synchronize()
        compare(op, sample, random, actual, expected, again, arguments)
    return PASS


def compare(op, sample, random, actual, expected, own, arguments):
    for a, b in zip(tensors_of(actual), tensors_of(expected)):
        assert a.device == b.device, f"a result is on {a.device} instead of {b.device}"
    if random:
        return op_sweep.like(actual, expected)
    seen = sample.for_gradients if op.name.endswith("svd") else lambda results: results
    if "native_batch_norm" in op.name and any(each is False for each in (*sample.arguments[1], *sample.arguments[2].values())):
        seen = lambda results: results[0]  # noqa: E731  without training, nothing says what the saved statistics are
    if op.name == "topk" and actual[1].shape == expected[1].shape:
        # Which of several equal elements are taken, nothing says.
        seen = lambda results: (results[0], taken(sample, results[1]))  # noqa: E731
    near(seen(actual), seen(expected), lambda: seen(sample.call(op.op, wide(sample.arguments))))
    return same(own, arguments, relaid=True)  # what it wrote besides


def taken(sample, indices):
    """The elements of the first argument that ``indices`` names, along the dim that topk was given."""
    first, args, kwargs = sample.arguments
    dim = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    return first.gather(dim, indices.cpu()) if first.dim() else first[None].gather(0, indices.cpu().view(-1))


def is_unwell():
    """Whether the device still complains of what came before."""
    try:
        torch.npu.synchronize()
    except RuntimeError:
        return True
    return False


def run_row(op, mode, dtype, count, dynamic):
    """PASS, SKIP or why it failed."""
    answer, of_dynamo = SKIP, None
    try:
        samples = samples_of(op, getattr(torch, dtype), count)
    except Exception:  # noqa: BLE001  samples for other devices
        return SKIP
    for number, sample in enumerate(samples):
        torch.manual_seed(1)
        try:
            found = check(op, sample, mode, dynamic)
        except Exception as error:  # noqa: BLE001  whatever it is, it is the answer
            return f"{UNWELL * is_unwell()}sample {number}: {reason_of(error)}"
        if found.startswith(DYNAMO):
            of_dynamo = found
        elif found != SKIP:
            answer = PASS
    return of_dynamo if answer == SKIP and of_dynamo else answer


def reason_of(error):
    """One line: what the libraries say, where they say something, else what the package or the test says."""
    text = re.sub(r"\s+", " ", str(error).strip()) or type(error).__name__
    text = text.split(" Set TORCHDYNAMO_VERBOSE")[0].split(" Traceback (most recent")[0]
    if said := re.search(r"E[A-Z0-9]\d{4}: (.*)", text):
        text = said[1]
    return f"{type(error).__name__}: {text}"[:400]


def rows_of(part="0/1", only="", modes=MODES, types=TYPES):
    number, of = map(int, part.split("/"))
    return [
        (index, mode, dtype)
        for index, op in enumerate(op_db) if index % of == number and re.search(only, name_of(op))
        for dtype in types_of(op, types) for mode in modes
    ]


def key_of(row):
    index, mode, dtype = row
    return name_of(op_db[index]), mode, dtype


def run_rows(rows, count, dynamic=False, report=None):
    """{(operator, mode, type): answer}"""
    rows = list(rows)
    answers = forked_rows.run(
        rows, lambda row: run_row(op_db[row[0]], *row[1:], count, dynamic), SECONDS,
        report and (lambda row, answer, seconds: report(key_of(row), answer, seconds)),
        lambda answer: answer.startswith((UNWELL, forked_rows.ENDED)))
    return {key_of(row): answer for row, answer in zip(rows, answers)}


def kind_of(answer):
    if answer in (PASS, SKIP):
        return answer or "pass"
    return "dynamo" if DYNAMO in answer else "fail"


def summary(answers):
    lines = []
    for mode in MODES:
        for dtype in sorted({each[2] for each in answers}):
            of = Counter(kind_of(answer) for (_, own, kind), answer in answers.items() if own == mode and kind == dtype)
            rows = of["pass"] + of["fail"]
            if rows:
                share = 100 * of["pass"] / rows
                lines.append(f"{mode:12} {dtype:10} {of['pass']:4} of {rows:4} rows ({share:.1f} %), {of['dynamo']} not handed over")
        of = Counter(kind_of(answer) for (_, own, _), answer in answers.items() if own == mode)
        if rows := of["pass"] + of["fail"]:
            lines.append(f"{mode:12} {'all':10} {of['pass']:4} of {rows:4} rows ({100 * of['pass'] / rows:.1f} %)")
    return "\n".join(lines)


def expected_failures():
    """{(operator, mode, type): reason}"""
    with open(EXPECTED, encoding="utf-8", newline="") as file:
        return {(row["operator"], row["mode"], row["type"]): row["reason"] for row in csv.DictReader(file)}


def differences(answers, all_samples=True):
    """What is worse and what is better than expected, as lines. Fewer samples need not show a failure."""
    expected = expected_failures()
    lines = []
    for key, answer in answers.items():
        if kind_of(answer) == "fail" and key not in expected:
            lines.append(" ".join(key) + ": " + answer)
        elif kind_of(answer) == "pass" and key in expected and all_samples:
            lines.append(" ".join(key) + ": passes now; take its line out of compiled_table_expected.csv")
    return lines


def shortfalls(answers):
    """Modes in which too few rows pass, as lines."""
    lines = []
    for mode in MODES:
        of = Counter(kind_of(answer) for (_, own, _), answer in answers.items() if own == mode)
        rows = of["pass"] + of["fail"]
        if of["pass"] < SHARE * rows:
            lines.append(f"{mode}: {of['pass']} of {rows} rows pass, fewer than {100 * SHARE:.0f} %")
    return lines


def write(path, answers, all_rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["operator", "mode", "type", *(["result"] if all_rows else []), "reason"])
        for key, answer in answers.items():
            kind = kind_of(answer)
            if all_rows:
                out.writerow([*key, kind, "" if kind in ("pass", "skip") else answer])
            elif kind == "fail":
                out.writerow([*key, answer])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operators whose name matches")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--types", help="one type, or several: each is taken where an operator has it")
    parser.add_argument("--part", default="0/1", help="NUMBER/OF")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="at most so many of each row")
    parser.add_argument("--dynamic", action="store_true", help="sizes are symbols; the list of failures is not asked then")
    parser.add_argument("--write", help="writes the failures as lines of compiled_table_expected.csv")
    parser.add_argument("--table", help="writes all rows")
    parser.add_argument("--slow", type=float, default=30.0, help="names what takes longer, in seconds")
    options = parser.parse_args()
    types = options.types.split(",") if options.types else TYPES
    rows = rows_of(options.part, options.only, options.modes.split(","), types)
    begun, done = time.perf_counter(), itertools.count(1)

    def report(key, answer, seconds):
        number = next(done)
        if kind_of(answer) == "fail":
            print("FAIL", *key, answer, flush=True)
        if seconds > options.slow:
            print(f"slow {seconds:.1f} s", *key, flush=True)
        if number % 100 == 0:
            print(f"{number} of {len(rows)} rows, {time.perf_counter() - begun:.0f} s", flush=True)

    answers = run_rows(rows, options.samples, options.dynamic, report)
    print(summary(answers))
    print(f"{time.perf_counter() - begun:.0f} s")
    for path, all_rows in ((options.write, False), (options.table, True)):
        if path:
            write(path, answers, all_rows)
    lines = shortfalls(answers) if options.dynamic else differences(answers, options.samples >= SAMPLES)
    print("\n".join(lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
