# SPDX-License-Identifier: Apache-2.0
"""One contestant of compile_bench.py on one model of bench/ge/models.py, in the interpreter that runs this file.

    python contestants.py MODEL CONTESTANT STEPS

Prints JSON: seconds of CPU of the first call, the median of a step in seconds, the largest difference from PyTorch on the
CPU, and for what dynamo compiles the number of graphs that it compiles anew for twice the rows, and once more for three times
(None where the model has no rows to add, or the contestant no dynamo).
"""
import json
import os
import pathlib
import statistics
import sys
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "ge"))
import ge_bench  # noqa: E402

WARM_UP = 3
OF_TORCHAIR = {"max-autotune", "reduce-overhead"}
WITHOUT_ROWS = {"decoder", "decoder bf16"}  # their caches belong to layers, not to rows


def of_torchair(mode):
    def make(model, inputs):
        model, inputs = ge_bench.on_device(model, inputs)
        from torch_npu.dynamo import torchair

        config = torchair.CompilerConfig()
        config.mode = mode
        step = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config), fullgraph=True)
        return _called(step, inputs, "npu")

    return make


def of_inductor(mode):
    return lambda model, inputs: _called(torch.compile(model, mode=mode), inputs, "cpu")


def _called(compiled, inputs, device):
    def step(given=inputs):
        with torch.no_grad():
            result = compiled(*given)
        if device == "npu":
            torch.npu.synchronize()
        return result

    step.larger = lambda times: step([torch.cat([x] * times) for x in inputs])
    return step


CONTESTANTS = {
    "max-autotune": of_torchair("max-autotune"), "reduce-overhead": of_torchair("reduce-overhead"), "eager": ge_bench.eager,
    "inductor": of_inductor("default"), "inductor max-autotune": of_inductor("max-autotune"), "ort": ge_bench.ort, "openvino": ge_bench.openvino,
}


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def recompiled(step):
    counts = []
    for times in (2, 3):
        before = graphs()
        step.larger(times)
        counts.append(graphs() - before)
    return counts


def main():
    name, contestant, steps = sys.argv[1:]
    torch.set_num_threads(len(os.sched_getaffinity(0)))  # as many as the device has workers
    torch.manual_seed(1)
    model, inputs = ge_bench.MODELS[name]()
    expected = ge_bench.first(ge_bench.eager(model, inputs)()).float()
    begun = time.process_time()
    step = CONTESTANTS[contestant](model, inputs)
    result = ge_bench.first(step()).cpu().float()
    row = {"first": time.process_time() - begun}
    row["apart"] = ((result - expected).abs().max() / expected.abs().max().clamp(min=1e-6)).item()
    if not row["apart"] <= ge_bench.BOUND[name]:
        sys.exit(f"differs from PyTorch by {row['apart']:.2e}, more than {ge_bench.BOUND[name]:.0e}")
    taken = []
    for _ in range(int(steps) + WARM_UP):
        begun = time.perf_counter()
        step()
        taken.append(time.perf_counter() - begun)
    row["step"] = statistics.median(taken[WARM_UP:])
    row["recompiled"] = recompiled(step) if hasattr(step, "larger") and name not in WITHOUT_ROWS else None
    print(json.dumps(row))


if __name__ == "__main__":
    main()
