# SPDX-License-Identifier: Apache-2.0
"""What a step of a small model costs: eager npu, captured npu, PyTorch on the CPU, torch.compile on the CPU.

    python bench/torch/torch_bench.py [--seconds 2] [--only mlp,decode,cnn] [--markdown FILE] [--json FILE] [--no-inductor]

The contestants take turns within one process, in rounds of a different order each; a figure is the median over rounds
of the time per step, with the quartiles beside it. Every contestant computes the same step on the same values, and the
results are compared before anything is timed. PyTorch's CPU contestants run with the threads that PyTorch chooses, and
with one thread.
"""
import argparse
import json
import random
import statistics
import time

import torch
import torch.nn.functional as F

import torch_npu  # noqa: F401


class Mlp(torch.nn.Module):
    """Three linear layers, batch 8."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )

    def forward(self, x):
        return self.layers(x)

    @staticmethod
    def example():
        return torch.randn(8, 64)


class DecodeStep(torch.nn.Module):
    """One token through two transformer blocks with a cache of 64 positions, width 64, 4 heads."""

    WIDTH, HEADS, POSITIONS, BLOCKS = 64, 4, 64, 2

    def __init__(self):
        super().__init__()
        width = self.WIDTH
        self.blocks = torch.nn.ModuleList(
            torch.nn.ModuleDict(
                {
                    "norm1": torch.nn.LayerNorm(width),
                    "qkv": torch.nn.Linear(width, 3 * width),
                    "out": torch.nn.Linear(width, width),
                    "norm2": torch.nn.LayerNorm(width),
                    "up": torch.nn.Linear(width, 4 * width),
                    "down": torch.nn.Linear(4 * width, width),
                }
            )
            for _ in range(self.BLOCKS)
        )
        for index in range(self.BLOCKS):
            shape = (1, self.HEADS, self.POSITIONS, width // self.HEADS)
            self.register_buffer(f"keys{index}", torch.randn(shape))
            self.register_buffer(f"values{index}", torch.randn(shape))

    def forward(self, x):
        for index, block in enumerate(self.blocks):
            query, key, value = block["qkv"](block["norm1"](x)).chunk(3, dim=-1)

            def heads(t):
                return t.view(1, 1, self.HEADS, -1).transpose(1, 2)

            keys = torch.cat([getattr(self, f"keys{index}")[:, :, 1:], heads(key)], dim=2)
            values = torch.cat([getattr(self, f"values{index}")[:, :, 1:], heads(value)], dim=2)
            scores = torch.matmul(heads(query), keys.transpose(-1, -2)) / (self.WIDTH // self.HEADS) ** 0.5
            mixed = torch.matmul(torch.softmax(scores, dim=-1), values)
            x = x + block["out"](mixed.transpose(1, 2).reshape(1, 1, -1))
            x = x + block["down"](F.gelu(block["up"](block["norm2"](x))))
        return x

    @classmethod
    def example(cls):
        return torch.randn(1, 1, cls.WIDTH)


class Cnn(torch.nn.Module):
    """Two convolutions with batch norm and pooling on 16 x 16 pictures, batch 4."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 16, 3, padding=1),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
        )
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))

    @staticmethod
    def example():
        return torch.randn(4, 3, 16, 16)


MODELS = {"mlp": Mlp, "decode": DecodeStep, "cnn": Cnn}


def captured(model, x):
    """A function that replays the captured step and waits for it."""
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        for _ in range(3):
            model(x)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = model(x)

    def step():
        graph.replay()
        torch.npu.synchronize()
        return result

    return step


def contestants(make, with_inductor):
    """(name, threads of PyTorch, step) for each."""
    torch.manual_seed(1)
    model = make().eval()
    x = make.example()
    on_npu = make().eval()
    on_npu.load_state_dict(model.state_dict())
    on_npu = on_npu.npu()
    x_npu = x.npu()

    def eager_npu():
        result = on_npu(x_npu)
        torch.npu.synchronize()
        return result

    threads = torch.get_num_threads()
    rows = [
        ("npu captured", threads, captured(on_npu, x_npu)),
        ("npu eager", threads, eager_npu),
        ("CPU eager", threads, lambda: model(x)),
        ("CPU eager, 1 thread", 1, lambda: model(x)),
    ]
    if with_inductor:
        compiled = torch.compile(model)
        rows.append(("CPU torch.compile", threads, lambda: compiled(x)))
        rows.append(("CPU torch.compile, 1 thread", 1, lambda: compiled(x)))
    wanted = model(x)
    for name, count, step in rows:
        torch.set_num_threads(count)
        torch.testing.assert_close(step().cpu(), wanted, msg=lambda text, name=name: f"{name}: {text}")
    torch.set_num_threads(threads)
    return rows


def measure(rows, seconds):
    """Microseconds per step by name: [rounds]."""
    rounds = 15
    per_turn = seconds / rounds / len(rows)
    counts = {}
    for name, threads, step in rows:
        torch.set_num_threads(threads)
        for _ in range(20):
            step()
        start = time.perf_counter()
        for _ in range(10):
            step()
        counts[name] = max(5, int(per_turn / ((time.perf_counter() - start) / 10)))
    times = {name: [] for name, _, _ in rows}
    for _ in range(rounds):
        for name, threads, step in random.sample(rows, len(rows)):
            torch.set_num_threads(threads)
            step()
            start = time.perf_counter()
            for _ in range(counts[name]):
                step()
            times[name].append((time.perf_counter() - start) / counts[name] * 1e6)
    return times


def summary(times):
    """Median, quartiles, and the ratio to the captured step of the same round."""
    figures = {}
    for name, values in times.items():
        quartiles = statistics.quantiles(values, n=4)
        ratios = [value / own for value, own in zip(values, times["npu captured"])]
        figures[name] = {
            "median_us": statistics.median(values),
            "quartile1_us": quartiles[0],
            "quartile3_us": quartiles[2],
            "times_captured": statistics.median(ratios),
        }
    return figures


def table(results):
    lines = ["| Model | Contestant | µs per step | quartiles | times the captured step |", "|---|---|---:|---:|---:|"]
    for model, figures in results.items():
        for name, f in figures.items():
            lines.append(
                f"| {model} | {name} | {f['median_us']:.1f} | {f['quartile1_us']:.1f} to {f['quartile3_us']:.1f} "
                f"| {f['times_captured']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def report(text, figures, arguments):
    """Prints the table, and writes what --markdown and --json name."""
    print(text, end="")
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file:
            file.write(text)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4, help="to spend on each model")
    parser.add_argument("--only", default=",".join(MODELS), help="models, by comma")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--markdown", help="write the table here, too")
    parser.add_argument("--json", help="write the figures here, too")
    arguments = parser.parse_args()
    results = {}
    with torch.no_grad():
        for name in arguments.only.split(","):
            print(f"{name} ...", flush=True)
            results[name] = summary(measure(contestants(MODELS[name], not arguments.no_inductor), arguments.seconds))
    report(table(results), results, arguments)


if __name__ == "__main__":
    main()
