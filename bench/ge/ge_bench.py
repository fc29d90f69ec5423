# SPDX-License-Identifier: Apache-2.0
"""Models compiled by the graph engine beside the same models captured, in PyTorch, and in the engines for CPUs.

    make bench-ge BENCH_ARGS="[--models mlp,decoder] [--engines compiled,captured,eager] [--rounds 15] [--seconds 3]
        [--threads 2] [--markdown FILE] [--json FILE]"

All engines live in one process and take turns: each round runs each engine for a while, in another order. A figure is
the median over the rounds; a ratio is compiled (second table: replayed) over the other in one round, with the quartiles
of these ratios beside it. Results are held against PyTorch on the CPU before anything is timed.

    compiled   torch.compile with the published package's torchair, mode max-autotune: our graph engine
    replayed   the same in an NPUGraph: without the time that Python takes to call it
    captured   NPUGraph of the same package
    eager      PyTorch on the CPU
    inductor   torch.compile on the CPU
    ort        ONNX Runtime, CPU, all optimisations
    openvino   OpenVINO, CPU, latency hint

scripts/bench_ge.sh installs the libraries and makes the Python with bench/ge/requirements.txt; an engine that is not
there is left out with a word.
"""
import argparse
import io
import json
import os
import pathlib
import random
import statistics
import sys
import time
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from models import MODELS  # noqa: E402

BOUND = {"mlp": 2e-3, "recommendation": 1e-4, "decoder": 1e-3, "decoder bf16": 6e-2, "encoder": 1e-3, "resnet50": 1e-3, "mobilenet": 1e-3, "unet": 1e-3}


def first(result):
    return result[0] if isinstance(result, (tuple, list)) else result


def eager(model, inputs):
    def step():
        with torch.inference_mode():
            return model(*inputs)

    return step


def inductor(model, inputs):
    torch._dynamo.reset()
    compiled = torch.compile(model)

    def step():
        with torch.no_grad():
            return compiled(*inputs)

    return step


def on_device(model, inputs):
    import copy

    import torch_npu  # noqa: F401

    return copy.deepcopy(model).npu(), tuple(x.npu() for x in inputs)


def captured(model, inputs):
    model, inputs = on_device(model, inputs)
    with torch.no_grad():
        side = torch.npu.Stream()
        with torch.npu.stream(side):
            for _ in range(3):
                model(*inputs)
        torch.npu.synchronize()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            result = model(*inputs)

    def step(kept=(model, inputs)):  # noqa: ARG001  a graph only knows addresses
        graph.replay()
        torch.npu.synchronize()
        return result

    return step


def compiled(model, inputs):
    model, inputs = on_device(model, inputs)
    import torchair

    torch._dynamo.reset()
    config = torchair.CompilerConfig()
    config.experimental_config.frozen_parameter = True
    compiled_model = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config), dynamic=False, fullgraph=True)

    def call():
        with torch.no_grad():
            return compiled_model(*inputs)

    def step():
        result = call()
        torch.npu.synchronize()
        return result

    step.call = call
    return step


def replayed(model, inputs):
    step = compiled(model, inputs)
    side = torch.npu.Stream()  # the package runs a compiled graph on one stream only
    with torch.npu.stream(side):
        for _ in range(3):
            step()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=side):
        result = step.call()

    def replay(kept=step):  # noqa: ARG001  a graph only knows addresses
        graph.replay()
        torch.npu.synchronize()
        return result

    return replay


def onnx_bytes(model, inputs):
    program = torch.onnx.export(model, inputs, dynamo=True, verbose=False)
    out = io.BytesIO()
    program.save(out)
    return out.getvalue()


def ort(model, inputs):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = onnxruntime.InferenceSession(onnx_bytes(model, inputs), options, providers=["CPUExecutionProvider"])
    feed = {each.name: x.numpy() for each, x in zip(session.get_inputs(), inputs)}
    return lambda: torch.from_numpy(session.run(None, feed)[0])


def openvino(model, inputs):
    import openvino as ov

    core = ov.Core()
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(onnx_bytes(model, inputs)), "CPU", settings).create_infer_request()
    feed = {i: x.numpy() for i, x in enumerate(inputs)}
    return lambda: torch.from_numpy(request.infer(feed, share_inputs=True, share_outputs=True)[0])


ENGINES = {"compiled": compiled, "replayed": replayed, "captured": captured, "eager": eager, "inductor": inductor, "ort": ort, "openvino": openvino}


def prepare(name, engines):
    """{engine: (step, seconds of the first call)} of those that can do the model; the others with their reason."""
    torch.manual_seed(1)
    model, inputs = MODELS[name]()
    expected = first(eager(model, inputs)()).float()
    steps, left_out = {}, {}
    for engine in engines:
        begin = time.perf_counter()
        try:
            step = ENGINES[engine](model, inputs)
            result = first(step()).cpu().float()
        except Exception as error:  # noqa: BLE001  another engine's reason, whatever it is
            left_out[engine] = f"{type(error).__name__}: {str(error).splitlines()[0][:160] if str(error) else ''}"
            continue
        seconds = time.perf_counter() - begin
        difference = ((result - expected).abs().max() / expected.abs().max().clamp(min=1e-6)).item()
        if not difference <= BOUND[name]:
            left_out[engine] = f"differs from PyTorch by {difference:.2e}, more than {BOUND[name]:.0e}"
            continue
        steps[engine] = (step, seconds)
    return steps, left_out


def measure(steps, rounds, seconds):
    """{engine: [seconds of a step, by round]}"""
    counts = {}
    for engine, (step, _) in steps.items():
        for _ in range(3):
            step()
        begin = time.perf_counter()
        step()
        counts[engine] = max(1, int(seconds / rounds / max(time.perf_counter() - begin, 1e-7)))
    times = {engine: [] for engine in steps}
    order = list(steps)
    for _ in range(rounds):
        random.shuffle(order)
        for engine in order:
            step, count = steps[engine][0], counts[engine]
            begin = time.perf_counter()
            for _ in range(count):
                step()
            times[engine].append((time.perf_counter() - begin) / count)
    return times


def text_of(seconds):
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.0f} us"


def table(results, ours):
    """Rows: models; columns: time of `ours`, and that time over each of the others."""
    others = [e for e in ENGINES if e != ours and (ours == "compiled" or e != "compiled")]
    lines = [f"| Model | {ours} | " + " | ".join(f"over {e}" for e in others) + " |", "|---|--:|" + "--:|" * len(others)]
    for name, result in results.items():
        mine = result["times"].get(ours)
        cells = []
        for engine in others:
            theirs = result["times"].get(engine)
            if mine is None or theirs is None:
                cells.append("–")
                continue
            low, middle, high = statistics.quantiles([a / b for a, b in zip(mine, theirs)], n=4)
            cells.append(f"{middle:.2f} ({low:.2f}–{high:.2f})")
        lines.append(f"| {name} | {text_of(statistics.median(mine)) if mine else '–'} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def tables(results):
    """Called from Python, and replayed, which is the engine without Python."""
    return "\n\n".join(table(results, ours) for ours in ("compiled", "replayed"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=3, help="of each engine for each model")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--markdown")
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    results = {}
    for name in options.models.split(","):
        steps, left_out = prepare(name, options.engines.split(","))
        for engine, reason in left_out.items():
            print(f"{name}: {engine} is left out: {reason}", flush=True)
        times = measure(steps, options.rounds, options.seconds)
        results[name] = {"times": times, "first": {e: s for e, (_, s) in steps.items()}, "left_out": left_out}
        for engine, values in times.items():
            print(f"{name}: {engine} {text_of(statistics.median(values))}, first call {steps[engine][1]:.2f} s", flush=True)
    print(tables(results))
    if options.markdown:
        pathlib.Path(options.markdown).write_text(tables(results) + "\n")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
