# SPDX-License-Identifier: Apache-2.0
"""What a call of one operator on small tensors costs from Python: on npu, and by PyTorch on the CPU.

    python bench/torch/calls_bench.py [--rounds 15] [--calls 1000] [--only add,sum] [--markdown FILE] [--json FILE]

A turn is that many calls, then a synchronisation; the two take turns within one process, first one and then the other. A
figure is the median over the rounds of the time per call. The ratio is that of the two turns of a round: median, quartiles.
"""
import argparse
import statistics
import time

import torch
from torch_bench import report

import torch_npu  # noqa: F401


def operators(device):
    a, b = torch.randn(8, 8, device=device), torch.randn(8, 8, device=device)
    x, own = torch.randn(1, 64, device=device), torch.zeros(8, 8, device=device)
    linear = torch.nn.Linear(64, 64).to(device)
    return {
        "add": lambda: a + b,
        "mul": lambda: a * b,
        "relu": lambda: torch.relu(a),
        "matmul": lambda: a @ b,
        "linear": lambda: linear(x),
        "add_": lambda: own.add_(b),
        "sum": lambda: a.sum(),
        "cat": lambda: torch.cat((a, b)),
    }


def turn(call, calls, synchronize):
    """Microseconds per call."""
    start = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def measure(ours, cpu, rounds, calls):
    sides = {"npu": (ours, torch.npu.synchronize), "cpu": (cpu, lambda: None)}
    times = {name: [] for name in sides}
    for round_ in range(-1, rounds):
        for name in sorted(sides, reverse=round_ % 2 == 0):
            took = turn(sides[name][0], calls, sides[name][1])
            if round_ >= 0:
                times[name].append(took)
    ratios = [a / b for a, b in zip(times["npu"], times["cpu"])]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "npu_us": statistics.median(times["npu"]),
        "cpu_us": statistics.median(times["cpu"]),
        "ratio": middle,
        "quartile1": low,
        "quartile3": high,
    }


def table(figures):
    lines = ["| Operator | npu, µs | CPU, µs | npu / CPU | quartiles |", "|---|---:|---:|---:|---:|"]
    for name, f in figures.items():
        lines.append(
            f"| {name} | {f['npu_us']:.2f} | {f['cpu_us']:.2f} | {f['ratio']:.2f} | {f['quartile1']:.2f} to {f['quartile3']:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=1000, help="in a turn")
    parser.add_argument("--only", help="operators, by comma")
    parser.add_argument("--markdown", help="write the table here, too")
    parser.add_argument("--json", help="write the figures here, too")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    ours, cpu = operators("npu"), operators("cpu")
    figures = {}
    with torch.no_grad():
        for name in arguments.only.split(",") if arguments.only else ours:
            figures[name] = measure(ours[name], cpu[name], arguments.rounds, arguments.calls)
    report(table(figures), figures, arguments)


if __name__ == "__main__":
    main()
