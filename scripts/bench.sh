#!/bin/bash
# bench.sh [options of reprise_bench]: builds the benchmarks (release) and runs them; prints the table and leaves it in
# build/release/bench as Markdown, JSON and a plot. Other systems that are installed are measured beside ours. Optional
# ones are named by environment variables: REPRISE_BENCH_TASKFLOW (folder that holds taskflow/taskflow.hpp),
# REPRISE_BENCH_GGML and REPRISE_BENCH_GGML_LIB (folders of ggml's headers and libraries), REPRISE_BENCH_TORCH (an
# installed torch: site-packages/torch).
set -euo pipefail
cd "$(dirname "$0")/.."
options=(-DREPRISE_BUILD_BENCH=ON)
for name in REPRISE_BENCH_TASKFLOW REPRISE_BENCH_GGML REPRISE_BENCH_GGML_LIB REPRISE_BENCH_TORCH; do
  [ -z "${!name:-}" ] || options+=("-D$name=${!name}")
done
TARGETS="reprise_bench alloc_bench rng_bench conv_bench" scripts/build.sh release "${options[@]}"
out=build/release/bench
mkdir -p "$out"
build/release/bin/reprise_bench --markdown "$out/table.md" --svg "$out/plot.svg" --json "$out/table.json" "$@"
echo
build/release/bin/alloc_bench
echo
build/release/bin/rng_bench
echo
build/release/bin/conv_bench
echo
# PyTorch: steps of small models, eager and captured, beside PyTorch on the CPU. Left out where PyTorch cannot be had.
if scripts/deps.sh torch >"$out/torch.log" 2>&1 && python=$(scripts/venv.sh 2>>"$out/torch.log"); then
  TARGETS=torch_npu scripts/build.sh release -DREPRISE_TORCH=ON "-DREPRISE_PYTHON=$python"
  PYTHONPATH=$PWD/build/release/python "$python" bench/torch/torch_bench.py --markdown "$out/torch.md" --json "$out/torch.json"
  echo
  PYTHONPATH=$PWD/build/release/python "$python" bench/torch/calls_bench.py --markdown "$out/calls.md" --json "$out/calls.json"
  echo
  TARGETS="opapi ops_loop" scripts/build.sh release
  "$python" bench/ops/ops_bench.py --markdown "$out/ops.md" --svg "$out/ops.svg" --json "$out/ops.json"
else
  echo "PyTorch left out: $(tr -s '\n ' ' ' <"$out/torch.log")"
fi
echo
echo "table: $out/table.md   plot: $out/plot.svg   data: $out/table.json"
