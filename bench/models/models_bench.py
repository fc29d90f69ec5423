# SPDX-License-Identifier: Apache-2.0
"""Whole models, compiled and captured, beside PyTorch, its inductor and the engines for CPUs.

    make bench-models BENCH_ARGS="[--wider] [--models REGEX] [--contestants REGEX] [--rounds 11] [--seconds 0.15] [--threads 2]
        [--llama PYTHON] [--published PYTHON] [--markdown FILE] [--svg FILE] [--json FILE]"

Each contestant (contestants.py) is a process that waits until it is its turn; each round gives a turn to all, in another
order. A figure is the median over the rounds; a ratio is ours over the best of the others in one round, with the quartiles
of these ratios beside it; which other is the best of a model is decided by the medians. Results are held against PyTorch on
the CPU before anything is timed; a contestant that differs, or cannot do the model, is left out with its reason.

--wider takes the models of wider.py, for which no kernel was written, in place of those of definitions.py.
--llama names a Python that has xllamacpp and gguf (pip install xllamacpp gguf), which runs llama.cpp on the decoders.
--published names a Python with the published torch-npu package: its torchair, compiled and captured, on the same libraries.
"""
import argparse
import json
import math
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
OURS = ("compiled", "replayed", "captured")
OTHERS = ("eager", "inductor", "ort", "openvino", "llama.cpp")
PUBLISHED = ("published compiled", "published captured")
NAMES = {"ort": "ONNX Runtime", "openvino": "OpenVINO", "eager": "PyTorch"}
START = 600  # seconds that a contestant has to be ready


class Contestant:
    """A process, and what it has said."""

    def __init__(self, model, name, options):
        self.name, self.times, self.error = name, [], None
        environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads), REPRISE_WORKERS=str(options.threads))
        if name == "llama.cpp":
            command = [options.llama, str(HERE / "llama_cpp.py"), model, str(options.threads)]
        else:
            python = options.ours if name in OURS else options.published if name in PUBLISHED else options.others
            command = [python, str(HERE / "contestants.py"), model, name.split()[-1], str(options.threads)]
            if name in OURS:
                environment["PYTHONPATH"] = str(ROOT / "build" / "release" / "python")
            elif name in OTHERS:
                environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        self.folder = tempfile.TemporaryDirectory()  # compilations leave files in the working folder
        self.log = open(os.path.join(self.folder.name, "log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, env=environment, cwd=self.folder.name, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log)
        self.ready = {}

    def wait(self):
        """Until it is ready, or has ended: then `error` says why."""
        self.ready = self._hear()
        return self

    def _hear(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait(START)
        self.log.seek(0)
        said = [each.strip() for each in self.log if each.strip()]
        named = [line for line in said if re.match(r"[\w.]*(Error|Exception|Unsupported)\b[^:]*: ?\S", line)]
        self.error = (named or said)[-1][:200] if said else f"ended with {self.process.returncode}"
        return {}

    def turn(self, seconds):
        """False: it has ended."""
        try:
            self.process.stdin.write(f"{seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        heard = self._hear()
        if heard:
            self.times.append(heard["step"])
        return bool(heard)

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait(60)
        self.log.close()
        self.folder.cleanup()


def contestants(model, options):
    """Those that are asked for and can be had here."""
    names = [*OURS, *(PUBLISHED if options.published else ()), *OTHERS]
    for name in names:
        if name == "llama.cpp" and not (options.llama and model.startswith("decoder")):
            continue
        if re.fullmatch(options.contestants, name):
            yield name


def start(model, options):
    """(those that are ready, {the others: reason})"""
    ready, left_out = [], {}
    names = list(contestants(model, options))
    at_once = os.cpu_count() or 1  # most of what they do before their first turn takes one core
    for first in range(0, len(names), at_once):
        for each in [each.wait() for each in [Contestant(model, name, options) for name in names[first:first + at_once]]]:
            if each.error is None:
                ready.append(each)
            else:
                left_out[each.name] = each.error
                each.end()
    return ready, left_out


def play(playing, options):
    """Gives turns. Those that end on the way are taken out: {contestant: reason}"""
    left_out = {}
    for _ in range(options.rounds):
        random.shuffle(playing)
        for each in [each for each in playing if not each.turn(options.seconds)]:
            left_out[each.name] = each.error
            playing.remove(each)
            each.end()
    return left_out


def measure(model, options):
    """{"times": {contestant: seconds of a step, by round}, "first": ..., "apart": ..., "left_out": {contestant: reason}}"""
    playing, left_out = start(model, options)
    left_out |= play(playing, options)
    for name, reason in left_out.items():
        print(f"{model}: {name} is left out: {reason}", flush=True)
    result = {"times": {}, "first": {}, "apart": {}, "left_out": left_out}
    for each in sorted(playing, key=lambda x: [*OURS, *PUBLISHED, *OTHERS].index(x.name)):
        result["times"][each.name], result["first"][each.name], result["apart"][each.name] = each.times, each.ready["first"], each.ready["apart"]
        print(f"{model}: {each.name} {milliseconds(each.times)} ms", flush=True)
        each.end()
    return result


def milliseconds(times):
    value = statistics.median(times) * 1e3
    return f"{value:.3f}" if value < 1 else f"{value:.2f}"


def best_of_others(result):
    others = [name for name in result["times"] if name in OTHERS]
    return min(others, key=lambda name: statistics.median(result["times"][name]), default=None)


def ratio(result, ours, theirs):
    """(lower quartile, median, upper quartile) of the rounds' ratios, or None."""
    mine, other = result["times"].get(ours), result["times"].get(theirs)
    if not mine or not other:
        return None
    ratios = [a / b for a, b in zip(mine, other)]
    return tuple(statistics.quantiles(ratios, n=4)) if len(ratios) > 1 else (ratios[0],) * 3


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def markdown(results):
    shown = [name for name in (*OURS, *PUBLISHED, *OTHERS) if any(name in result["times"] for result in results.values())]
    ours = [name for name in OURS if name in shown]
    head = ["Model", *(NAMES.get(name, name) for name in shown), "best of the others", *(f"{name} / best" for name in ours)]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(shown)) + "---|" + "--:|" * len(ours)]
    for model, result in results.items():
        best = best_of_others(result)
        cells = [milliseconds(result["times"][name]) if name in result["times"] else "–" for name in shown]
        ratios = [ratio(result, name, best) for name in ours]
        lines.append("| " + " | ".join([model, *cells, NAMES.get(best, best or "–"),
                                       *("–" if r is None else f"{r[1]:.2f} ({r[0]:.2f}–{r[2]:.2f})" for r in ratios)]) + " |")
    lines.append("")
    for name in ours:
        found = [r[1] for r in (ratio(result, name, best_of_others(result)) for result in results.values()) if r]
        if found:
            lines.append(f"{name}, over the best of the others: geometric mean {geometric_mean(found):.2f} over {len(found)} models, "
                         f"{sum(value <= 1 for value in found)} of them at most 1.")
    return "\n".join(lines)


# How contestants are drawn: shape and colour. Ours are filled and stand above the line of their model, the others below it.
MARKS = {"compiled": ("circle", "#2a7"), "replayed": ("diamond", "#2a7"), "captured": ("circle", "#27a"),
         "eager": ("square", "#e80"), "inductor": ("diamond", "#e80"), "ort": ("circle", "#a3a"), "openvino": ("square", "#c22"),
         "llama.cpp": ("diamond", "#666")}


def mark(name, x, y):
    shape, color = MARKS[name]
    paint = f'fill="{color}"' if name in OURS else f'fill="none" stroke="{color}" stroke-width="1.6"'
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" {paint}/>'
    if shape == "square":
        return f'<rect x="{x - 3.2:.1f}" y="{y - 3.2:.1f}" width="6.4" height="6.4" {paint}/>'
    return f'<path d="M{x:.1f} {y - 4.6:.1f}l4.6 4.6l-4.6 4.6l-4.6 -4.6z" {paint}/>'


def svg(results):
    """For each model the times of all over that of the best of the others: marks on a logarithmic scale."""
    step, left, width, top = 28, 110, 680, 74
    height = top + step * len(results) + 8

    def x(value):
        return left + width * (math.log2(min(8, max(1 / 2, value))) + 1) / 4
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 30}" height="{height}" font-family="sans-serif" font-size="10">',
             '<rect width="100%" height="100%" fill="white"/>',
             '<text x="8" y="16" font-size="13">Time of a step over that of the best other engine (line at 1); left of the line is faster</text>']
    place = 12
    for name in MARKS:
        if any(name in result["times"] for result in results.values()):
            text = NAMES.get(name, name)
            parts.append(mark(name, place + 4, 35) + f'<text x="{place + 13}" y="38.5">{text}</text>')
            place += 30 + 6 * len(text)
    for value in (1 / 2, 0.7, 1, 1.4, 2, 4, 8):
        parts.append(f'<line x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{top - 8}" y2="{height - 8}" '
                     f'stroke="{"#333" if value == 1 else "#ccc"}" stroke-width="{1.5 if value == 1 else 1}"/>'
                     f'<text x="{x(value):.1f}" y="{top - 12}" text-anchor="middle">{value:g}</text>')
    for i, (model, result) in enumerate(results.items()):
        y = top + i * step + step / 2
        if i % 2:
            parts.insert(2, f'<rect x="{left}" y="{y - step / 2:.1f}" width="{width}" height="{step}" fill="#f4f4f4"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 3.5:.1f}" text-anchor="end">{model}</text>')
        best = best_of_others(result)
        for name in MARKS if best else ():
            if found := ratio(result, name, best):
                parts.append(mark(name, x(found[1]), y - 6 if name in OURS else y + 6))
    return "\n".join([*parts, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=".*", help="a regular expression for whole names")
    parser.add_argument("--contestants", default=".*", help="a regular expression for whole names")
    parser.add_argument("--wider", action="store_true", help="the models of wider.py, in place of those of definitions.py")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=0.15, help="of a turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--ours", default=sys.executable, help="a Python with PyTorch")
    parser.add_argument("--others", default=sys.executable, help="a Python with PyTorch, ONNX Runtime and OpenVINO")
    parser.add_argument("--llama")
    parser.add_argument("--published")
    for kind in ("markdown", "svg", "json"):
        parser.add_argument(f"--{kind}", type=pathlib.Path)
    options = parser.parse_args()
    for name in ("ours", "others", "llama", "published"):  # processes have another working folder
        if getattr(options, name):
            setattr(options, name, os.path.abspath(getattr(options, name)))
    models = "wider" if options.wider else "definitions"
    names = subprocess.run([options.others, "-c", f"import {models}; print(*{models}.MODELS, sep='\\n')"], cwd=HERE, check=True,
                           capture_output=True, text=True, env=dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")).stdout.split("\n")
    results = {}
    for model in filter(None, names):
        if not re.fullmatch(options.models, model):
            continue
        results[model] = measure(model, options)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    text = markdown(results)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    if options.svg:
        options.svg.write_text(svg(results), encoding="utf-8")


if __name__ == "__main__":
    main()
