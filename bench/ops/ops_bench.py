# SPDX-License-Identifier: Apache-2.0
"""Operators against PyTorch's on the CPU: the same problems, the same number of threads, in turns in one process.

    python bench/ops/ops_bench.py [--only TEXT,TEXT] [--threads 2] [--seconds 0.2] [--markdown FILE] [--svg FILE] [--json FILE]

Ours: both phases of the C function (`eager`), of small problems many times before a wait, of large ones with a wait
after each call; a graph of the operator
(16 times when the problem is small) replayed with a wait after each replay (`replay`, per operator). PyTorch: n calls from Python, with out=
where PyTorch has it. A figure is the median over rounds in which the contestants take turns; a ratio is the median of
the rounds' ratios, with the quartiles beside it. Below 1 is faster than PyTorch. Small rows have less than 64 KiB of
data. Whether the values are right is asked by tests/ops.
"""

import argparse
import ctypes
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "ops"))
os.environ.setdefault("REPRISE_WORKERS", "2")

import torch  # noqa: E402

import aclnn  # noqa: E402

SMALL = 64 << 10
REST = 0.03  # seconds; threads of either side spin for a while after their work, on the other's cores
GRAPH_NODES = 16  # of small problems; neighbours of large ones would share the cache, so those have one


class Placement:
    """Memory of the device that lives as long as the row, outside of the arena of the tests."""

    def __init__(self):
        self.blocks = []

    def tensor(self, value):
        """A copy of `value` with its strides, as an object and as a tensor that sees the same memory."""
        span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride())) if value.numel() else 0
        count, item = max(1, span), value.element_size()
        pointer = ctypes.c_void_p()
        aclnn.check(aclnn._acl.aclrtMalloc(ctypes.byref(pointer), ctypes.c_size_t(count * item + 64), 0), "aclrtMalloc")
        self.blocks.append(pointer)
        view = aclnn.memory(pointer.value, count, value.dtype).as_strided(value.shape, value.stride())
        view.copy_(value)
        handle = aclnn.create_tensor(list(value.shape), value.dtype, list(value.stride()), 0, count, pointer.value)
        return handle, view

    def free(self):
        for block in self.blocks:
            aclnn._acl.aclrtFree(block)


class Contestant:
    """The operator with its arguments as machine words."""

    def __init__(self, operator, arguments, loop):
        self.op, self.loop, self.placement, self.objects = aclnn.TABLE[operator], loop, Placement(), aclnn.Objects()
        self.views, self.bytes, words, reals = {}, 0, [], []
        values = {}
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                handle, self.views[name] = self.placement.tensor(value)
                self.bytes += value.numel() * value.element_size()
                values[name] = ctypes.c_void_p(self.objects.keep("Tensor", handle))
            elif isinstance(value, list) and value and isinstance(value[0], torch.Tensor):
                placed = [self.placement.tensor(item) for item in value]
                self.bytes += sum(item.numel() * item.element_size() for item in value)
                handle = self.objects.object_list("TensorList", [each for each, _ in placed])
                values[name] = ctypes.c_void_p(handle)
            else:
                values[name] = value
        for argument in aclnn.pack(self.op, values, self.objects):
            if isinstance(argument, ctypes.c_double):
                reals.append(argument.value)
            elif isinstance(argument, ctypes.c_float):
                bits = ctypes.c_uint32.from_buffer_copy(argument).value
                reals.append(ctypes.c_double.from_buffer_copy(ctypes.c_uint64(bits)).value)
            elif isinstance(argument, ctypes.c_char_p):
                self.text = argument
                words.append(ctypes.cast(argument, ctypes.c_void_p).value or 0)
            else:
                words.append(int(argument.value or 0))
        self.words = (ctypes.c_int64 * max(1, len(words)))(*words)
        self.word_count, self.real_count = len(words), len(reals)
        self.reals = (ctypes.c_double * max(1, len(reals)))(*reals)
        packed = aclnn.pack(self.op, values, self.objects)
        self.workspace_bytes, executor = aclnn.plan(self.op, packed)
        aclnn.drop(executor)
        self.workspace = ctypes.c_void_p()
        if self.workspace_bytes:
            aclnn.check(aclnn._acl.aclrtMalloc(ctypes.byref(self.workspace), ctypes.c_size_t(self.workspace_bytes), 0),
                        "aclrtMalloc")
        self.one = ctypes.cast(getattr(aclnn._ops, self.op.name + "GetWorkspaceSize"), ctypes.c_void_p)
        self.two = ctypes.cast(getattr(aclnn._ops, self.op.name), ctypes.c_void_p)
        self.nodes = GRAPH_NODES if self.bytes < SMALL else 1
        self.graph = aclnn.Capture()
        with self.graph:
            self.record(self.nodes)

    def record(self, n):
        """Queues the operator n times into the capture that is open."""
        words = [ctypes.c_int64(word) for word in self.words[: self.word_count]]
        reals = [ctypes.c_double(real) for real in self.reals[: self.real_count]]
        plan, launch = getattr(aclnn._ops, self.op.name + "GetWorkspaceSize"), getattr(aclnn._ops, self.op.name)
        for _ in range(n):
            size, executor = ctypes.c_uint64(), ctypes.c_void_p()
            # Registers of integers and of reals are filled apart, so their order here does not matter.
            aclnn.check(plan(*words, ctypes.byref(size), ctypes.byref(executor), *reals), self.op.name)
            aclnn.check(launch(self.workspace, size, executor, aclnn.device().stream), self.op.name)

    def eager(self, n):
        # Many small calls are waited for together, a large one by itself, as a call of PyTorch is.
        together = n if self.bytes < SMALL else 1
        total = 0.0
        for _ in range(n // together):
            seconds = self.loop.reprise_time_calls(self.one, self.two, self.words, self.word_count, self.reals,
                                                   self.real_count, self.workspace, ctypes.c_uint64(self.workspace_bytes),
                                                   aclnn.device().stream, ctypes.c_int64(together))
            if seconds < 0:
                raise aclnn.AclError(int(-seconds), self.op.name)
            total += seconds
        return total

    def replay(self, n):
        replays = max(1, n // self.nodes)
        seconds = self.loop.reprise_time_replays(self.graph.graph, aclnn.device().stream, ctypes.c_int64(replays))
        if seconds < 0:
            raise aclnn.AclError(int(-seconds), self.op.name)
        return seconds * n / (replays * self.nodes)

    def close(self):
        self.graph.destroy()
        self.objects.destroy()
        self.placement.free()
        if self.workspace:
            aclnn._acl.aclrtFree(self.workspace)


def time_torch(call, n):
    begin = time.perf_counter()
    for _ in range(n):
        call()
    return time.perf_counter() - begin


def measure(name, operator, arguments, call, loop, seconds):
    ours = Contestant(operator, arguments, loop)
    time_torch(call, 3)
    ours.eager(3)
    once = max(min(time_torch(call, 5), ours.eager(5)) / 5, 1e-7)
    n = max(3, min(20000, int(seconds / 15 / once)))
    rounds = []
    for _ in range(7):
        time.sleep(REST)
        mine = ours.eager(n) / n, ours.replay(n) / n
        time.sleep(REST)
        rounds.append((*mine, time_torch(call, n) / n))
    ours.close()
    eager, replay, theirs = (statistics.median(column) for column in zip(*rounds))

    def ratio(position):
        ratios = sorted(r[position] / r[2] for r in rounds)
        return statistics.median(ratios), ratios[1], ratios[5]
    return {"name": name, "small": ours.bytes < SMALL, "eager_us": eager * 1e6, "replay_us": replay * 1e6,
            "torch_us": theirs * 1e6, "eager_ratio": ratio(0), "replay_ratio": ratio(1)}


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def markdown(results, threads):
    lines = [f"Operators against PyTorch {torch.__version__} on {threads} threads; ratios below 1 are faster than PyTorch.",
             ""]
    for small, title in ((True, "Less than 64 KiB of data"), (False, "Larger problems")):
        rows = [r for r in results if r["small"] == small]
        if not rows:
            continue
        lines += [f"{title}: geometric mean of the ratios {geometric_mean(r['eager_ratio'][0] for r in rows):.2f} eager, "
                  f"{geometric_mean(r['replay_ratio'][0] for r in rows):.2f} replayed, over {len(rows)} rows.", "",
                  "| Problem | eager us | replay us | PyTorch us | eager / PyTorch | replay / PyTorch |",
                  "|---|--:|--:|--:|--:|--:|"]
        for r in rows:
            lines.append(f"| {r['name']} | {r['eager_us']:.2f} | {r['replay_us']:.2f} | {r['torch_us']:.2f} | "
                         "{:.2f} ({:.2f}..{:.2f}) | {:.2f} ({:.2f}..{:.2f}) |".format(*r["eager_ratio"], *r["replay_ratio"]))
        lines.append("")
    return "\n".join(lines)


def svg(results):
    """One bar for each row, from 1 to its ratio, on a logarithmic scale."""
    step, left, width, top = 14, 330, 520, 40
    rows = sorted(results, key=lambda r: (not r["small"], r["eager_ratio"][0]))
    height = top + step * len(rows) + 20

    def x(ratio):
        return left + width * (math.log2(min(4, max(1 / 16, ratio))) + 4) / 6
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" height="{height}" '
             'font-family="sans-serif" font-size="10">', '<rect width="100%" height="100%" fill="white"/>',
             f'<text x="8" y="16" font-size="13">Time of an operator over that of PyTorch on the CPU: eager (bar), '
             'replayed (mark)</text>']
    for ratio in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4):
        parts.append(f'<line x1="{x(ratio):.1f}" x2="{x(ratio):.1f}" y1="{top - 8}" y2="{height - 16}" '
                     f'stroke="{"black" if ratio == 1 else "#ccc"}"/>'
                     f'<text x="{x(ratio):.1f}" y="{top - 11}" text-anchor="middle">{ratio:g}</text>')
    for i, r in enumerate(rows):
        y, ratio = top + i * step, r["eager_ratio"][0]
        begin, end = sorted((x(1), x(ratio)))
        color = "#2a7" if ratio <= 1 else "#c52"
        parts.append(f'<text x="{left - 6}" y="{y + 9}" text-anchor="end">{r["name"]}</text>'
                     f'<rect x="{begin:.1f}" y="{y + 2}" width="{max(1, end - begin):.1f}" height="{step - 5}" fill="{color}"/>'
                     f'<circle cx="{x(r["replay_ratio"][0]):.1f}" cy="{y + step / 2 - 0.5}" r="2.5" fill="#225"/>')
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts of row names, comma-separated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each row, about")
    parser.add_argument("--loop", default=str(REPO / "build" / "release" / "bin" / "libops_loop.so"))
    for kind in ("markdown", "svg", "json"):
        parser.add_argument(f"--{kind}", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    loop = ctypes.CDLL(options.loop)
    loop.reprise_time_calls.restype = loop.reprise_time_replays.restype = ctypes.c_double
    aclnn.device()
    import rows
    wanted = [part for part in options.only.split(",") if part]
    results = []
    for name, operator, arguments, call in rows.ROWS:
        if wanted and not any(part in name for part in wanted):
            continue
        if operator not in aclnn.TABLE:
            print(f"{name}: left out, there is no aclnn{operator}", file=sys.stderr)
            continue
        result = measure(name, operator, arguments, call, loop, options.seconds)
        results.append(result)
        print("{name:46} {eager_us:10.2f} {replay_us:10.2f} {torch_us:10.2f} us   ".format(**result)
              + "{:5.2f} {:5.2f}".format(result["eager_ratio"][0], result["replay_ratio"][0]), flush=True)
    text = markdown(results, options.threads)
    print("\n".join(line for line in text.splitlines() if "geometric mean" in line))
    if options.markdown:
        options.markdown.write_text(text)
    if options.svg:
        options.svg.write_text(svg(results))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
