# SPDX-License-Identifier: Apache-2.0
"""Our PyTorch package beside the published torch-npu package, both on the libraries of this tree.

    python3 bench/torch/packages_bench.py [--rounds 15] [--seconds 8] [--imports 7] [--markdown FILE] [--json FILE]

Each package runs in an interpreter of its own, which stays for the whole run and works only when it is its turn; rounds
take the packages and the steps in another order each. Figures are medians over the rounds; a ratio is that of the times
of one round, with the quartiles of these ratios beside it. Imports are timed in fresh interpreters, in turns, too. Before
anything is timed the results of both packages are held against each other.

`make test-wheel` makes both: build/venv-wheel and build/wheel; `make test PRESETS=torch` our package. Other places:
--ours PYTHON --ours-path FOLDER --published PYTHON --prefix FOLDER.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("ours", "published")


# ---- A worker: one interpreter with one of the packages ----


def training(torch, make, capture):
    """A step of AdamW on one batch; gives the loss."""
    torch.manual_seed(1)
    model = make().npu()
    x = make.example().npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=capture)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    if not capture:
        return step
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        for _ in range(3):
            step()
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.npu.graph(graph):
        loss = step()

    def replay(kept=(model, x, optimizer)):  # noqa: ARG001  a graph only knows addresses
        graph.replay()
        return loss

    return replay


def inference(torch, make, capture):
    torch.manual_seed(1)
    model = make().eval().npu()
    x = make.example().npu()
    if not capture:
        return lambda: model(x)
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        for _ in range(3):
            model(x)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = model(x)

    def replay(kept=(model, x)):  # noqa: ARG001
        graph.replay()
        return result

    return replay


def steps(torch, models):
    """{name: function that computes a step and waits for it}"""
    made = {}
    for name, make in models.items():
        for form, capture in (("eager", False), ("captured", True)):
            with torch.no_grad():
                made[f"{name}, {form}"] = inference(torch, make, capture), True
            if name != "decode":  # which only ever decodes
                made[f"{name}, training {form}"] = training(torch, make, capture), False

    def waiting(function, without_gradients):
        def step():
            with torch.set_grad_enabled(not without_gradients):
                result = function()
            torch.npu.synchronize()
            return result

        return step

    return {name: waiting(*each) for name, each in made.items()}


def work():
    """Answers lines of "name|count" with the seconds that so many steps take; 0: with the sum of the step's result."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print is no answer
    import torch
    import torch_npu
    from torch_bench import MODELS

    torch.set_num_threads(1)  # the host's part of a step is one thread's work in both packages
    made = steps(torch, MODELS)
    print(json.dumps({"version": torch_npu.__version__, "steps": list(made)}), file=answers, flush=True)
    for line in sys.stdin:
        name, count = line.rstrip("\n").split("|")
        if count == "0":
            answer = made[name]().double().sum().item()
        else:
            begun = time.perf_counter()
            for _ in range(int(count)):
                made[name]()
            answer = time.perf_counter() - begun
        print(json.dumps(answer), file=answers, flush=True)


# ---- The run ----


class Package:
    def __init__(self, python, environment):
        self.python, self.environment = python, environment

    def start(self):
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [self.python, __file__, "--worker"], env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self.said, text=True)
        return self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.said.seek(0)
            sys.exit(f"{self.python} ended with {status}:\n{self.said.read()[-2000:]}")
        return json.loads(line)

    def ask(self, name, count):
        self.process.stdin.write(f"{name}|{count}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait()

    def import_seconds(self):
        begun = time.perf_counter()
        subprocess.run([self.python, "-c", "import torch, torch_npu"], env=self.environment, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - begun


def environment_of(prefix):
    """The variables after `source PREFIX/set_env.sh`."""
    shown = subprocess.run(["bash", "-c", f'source "{prefix}/set_env.sh" && env -0'], capture_output=True, check=True)
    return dict(entry.split("=", 1) for entry in shown.stdout.decode().split("\0") if "=" in entry)


def summary(times):
    """times: {package: [of each round]}"""
    ratios = [ours / theirs for ours, theirs in zip(times["ours"], times["published"])]
    first, median, third = statistics.quantiles(ratios, n=4)
    return {"ours": statistics.median(times["ours"]), "published": statistics.median(times["published"]),
            "ratio": median, "first": first, "third": third}


def measure(packages, names, rounds, seconds):
    counts, times = {}, {name: {package: [] for package in PACKAGES} for name in names}
    for name in names:
        results = {package: packages[package].ask(name, 0) for package in PACKAGES}
        if "training" not in name and abs(results["ours"] - results["published"]) > 1e-3 * (1 + abs(results["ours"])):
            sys.exit(f"{name}: the packages differ: {results}")
        for package in PACKAGES:
            packages[package].ask(name, 10)
            counts[name, package] = max(3, int(seconds / rounds / (packages[package].ask(name, 10) / 10)))
    for _ in range(rounds):
        for name in random.sample(names, len(names)):
            for package in random.sample(PACKAGES, 2):
                count = counts[name, package]
                times[name][package].append(packages[package].ask(name, count) / count * 1e6)
    return {name: summary(each) for name, each in times.items()}


def table(results):
    lines = ["| Step | Ours, µs | Published, µs | Ours / published | quartiles |", "|---|--:|--:|--:|--:|"]
    for name, f in results.items():
        lines.append(f"| {name} | {f['ours']:.0f} | {f['published']:.0f} | {f['ratio']:.2f} "
                     f"| {f['first']:.2f} to {f['third']:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--ours", default=ROOT / "build/venv/bin/python")
    parser.add_argument("--ours-path", default=ROOT / "build/release/python")
    parser.add_argument("--published", default=os.environ.get("REPRISE_WHEEL_PYTHON", ROOT / "build/venv-wheel/bin/python"))
    parser.add_argument("--prefix", default=ROOT / "build/wheel")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=2, help="of one package on one step, in all rounds together")
    parser.add_argument("--imports", type=int, default=7)
    parser.add_argument("--markdown", help="write the table here, too")
    parser.add_argument("--json", help="write the figures here, too")
    options = parser.parse_args()
    if options.worker:
        return work()
    here = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    packages = {
        "ours": Package(options.ours, {**here, "PYTHONPATH": str(options.ours_path)}),
        "published": Package(options.published, {**environment_of(options.prefix), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
    }
    imports = {package: [] for package in PACKAGES}
    for number in range(options.imports + 1):
        for package in random.sample(PACKAGES, 2):
            taken = packages[package].import_seconds()
            if number > 0:  # the first one reads the disk
                imports[package].append(taken * 1e6)
    results = {"import torch, torch_npu": summary(imports)}
    started = {package: packages[package].start() for package in PACKAGES}
    print(", ".join(f"{package}: torch_npu {started[package]['version']}" for package in PACKAGES))
    results |= measure(packages, started["ours"]["steps"], options.rounds, options.seconds)
    for package in packages.values():
        package.end()
    text = table(results)
    print(text, end="")
    if options.markdown:
        pathlib.Path(options.markdown).write_text(text, encoding="utf-8")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
