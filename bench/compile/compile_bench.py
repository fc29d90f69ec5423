# SPDX-License-Identifier: Apache-2.0
"""What torch.compile costs with this package's torchair and with the published one's, on the same libraries: seconds of the
first call, and of later ones, of small models in both modes.

    python bench/compile/compile_bench.py --ours "PYTHON" --published "PYTHON" [--only REGEX] [--steps 200] [--json FILE]

Either interpreter may be left out. ``--ours`` needs PYTHONPATH=build/release/python, which is set for it; ``--published``
runs with the variables of set_env.sh, as its users have them (scripts/bench_compile.sh does all this). Both compute the same
models with the same numbers, and their results are compared with each other and with eager calls before anything is shown.
First calls are measured once in a process of their own per model, as seconds of CPU time of the whole process; later calls
as the median of wall time, since capture and engine work on other threads.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MODES = ("max-autotune", "npugraph_ex")
WARM_UP = 3


def measure(name, mode, steps, path):
    """In the interpreter that is measured: prints figures as JSON, and stores results."""
    import torch
    import torch_npu  # noqa: F401
    from torch_npu.dynamo import torchair

    sys.path.insert(0, str(ROOT / "tests" / "torchair"))
    import small_models

    torch.set_num_threads(1)
    torch.manual_seed(7)
    make, inputs = small_models.MODELS[name]
    model, given = make().eval().npu(), [each.npu() for each in inputs(2)]
    config = torchair.CompilerConfig()
    config.mode = mode
    step = torch.compile(model, backend=torchair.get_npu_backend(compiler_config=config), dynamic=False, fullgraph=True)
    with torch.no_grad():
        wanted = model(*given)
        torch.npu.synchronize()
        begun = time.process_time()
        result = step(*given)
        torch.npu.synchronize()
        first = time.process_time() - begun
        torch.testing.assert_close(result.cpu(), wanted.cpu(), rtol=2e-4, atol=2e-4)
        times = {}
        for kind, call in (("compiled", step), ("eager", model)):
            taken = []
            for number in range(steps + WARM_UP):
                begun = time.perf_counter()
                call(*given)
                torch.npu.synchronize()
                taken.append(time.perf_counter() - begun)
            times[kind] = statistics.median(taken[WARM_UP:])
    torch.save(result.cpu(), path)
    print(json.dumps({"first": first, "step": times["compiled"], "eager": times["eager"]}))


def run(python, ours, *arguments):
    environment = dict(os.environ)
    if ours:
        environment["PYTHONPATH"] = str(ROOT / "build" / "release" / "python")
    words = python.split()
    if os.path.exists(words[0]):  # relative to this folder, which is not that of the process
        words[0] = os.path.abspath(words[0])
    command = [*words, *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder:  # compilations leave files in the working folder
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=folder, timeout=600)
    if done.returncode != 0:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        return {"error": lines[-1][:160] if lines else f"ended with {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def compare(paths):
    """How far the results of the packages are from each other, or None."""
    import torch

    if len(paths) < 2:
        return None
    results = [torch.load(path, weights_only=True) for path in paths]
    return (results[0] - results[1]).abs().max().item()


def models():
    sys.path.insert(0, str(ROOT / "tests" / "torchair"))
    import small_models

    return list(small_models.MODELS)


def cell(row, key, scale):
    if row is None:
        return "-"
    return row["error"] if "error" in row and key == "first" else "-" if "error" in row else f"{row[key] * scale:.2f}"


def main():
    if len(sys.argv) > 1 and sys.argv[1] == "--measure":
        name, mode, steps, path = sys.argv[2:]
        return measure(name, mode, int(steps), path)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", help="an interpreter with PyTorch")
    parser.add_argument("--published", help="an interpreter with the published torch-npu package")
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--json", help="writes the figures")
    options = parser.parse_args()
    packages = [(kind, python) for kind, python in (("ours", options.ours), ("published", options.published)) if python]
    if not packages:
        parser.error("name an interpreter: --ours, --published or both")
    print("| model | mode | package | first call, s of CPU | step, ms | eager step, ms | apart |\n|---|---|---|---|---|---|---|")
    rows, status = [], 0
    for name in models():
        if not re.search(options.only, name):
            continue
        for mode in MODES:
            with tempfile.TemporaryDirectory() as folder:
                found, paths = {}, []
                for kind, python in packages:
                    path = os.path.join(folder, kind)
                    found[kind] = run(python, kind == "ours", HERE / "compile_bench.py", "--measure", name, mode, options.steps, path)
                    paths += [path] * os.path.exists(path)
                apart = compare(paths)
            for kind, row in found.items():
                print(f"| {name} | {mode} | {kind} | {cell(row, 'first', 1)} | {cell(row, 'step', 1e3)} | {cell(row, 'eager', 1e3)} | "
                      f"{'-' if apart is None else f'{apart:.1e}'} |", flush=True)
                rows.append({"model": name, "mode": mode, "package": kind, "apart": apart, **row})
            status |= apart is not None and not apart < 1e-3
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return int(status or any("error" in row for row in rows))


if __name__ == "__main__":
    sys.exit(main())
