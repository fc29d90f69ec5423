#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Captures a small network of PyTorch once and replays it: the same numbers, less time for each step.

    torch_capture.py [FOLDER]     the trace and the picture of the graph go there
"""
import statistics
import sys
import time
from pathlib import Path

import torch  # finds torch_npu by itself

STEPS = 200
ROUNDS = 7


def seconds(step):
    """Time of one step, launched STEPS times and awaited once: median of ROUNDS."""
    samples = []
    for _ in range(ROUNDS):
        torch.npu.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            step()
        torch.npu.synchronize()
        samples.append((time.perf_counter() - start) / STEPS)
    return statistics.median(samples)


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    torch.manual_seed(0)
    layers = []
    for _ in range(8):
        layers += [torch.nn.Linear(64, 64), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10)).to("npu").eval()
    inputs = torch.randn(3, 16, 64)

    with torch.no_grad():
        # Captured work runs on the memory that it was captured with: new input is copied into `static_input`, and
        # `static_output` is overwritten by each replay. Warm-up is for what runs once and shall not be captured.
        static_input = torch.empty(16, 64, device="npu")
        warm_up = torch.npu.Stream()
        warm_up.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(warm_up):
            model(static_input)
        torch.npu.current_stream().wait_stream(warm_up)
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            static_output = model(static_input)

        for number, values in enumerate(inputs):
            static_input.copy_(values)
            eager = model(static_input)
            graph.replay()
            if not torch.equal(eager.cpu(), static_output.cpu()):
                sys.exit(f"input {number}: replay and eager differ")
        print(f"{len(inputs)} inputs: replay and eager give the same bits")

        eager, replayed = seconds(lambda: model(static_input)), seconds(graph.replay)
        print(f"a step of {len(model)} layers: eager {eager * 1e6:.0f} us, replayed {replayed * 1e6:.0f} us, "
              f"{eager / replayed:.1f} times as fast")

    for name in ("torch_capture.json", "torch_capture.svg"):
        graph.debug_dump(str(folder / name))
        print(f"wrote {folder / name}")


if __name__ == "__main__":
    main()
