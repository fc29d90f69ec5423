#!/bin/bash
# bench_collectives.sh [ARGUMENTS of collectives_bench]: collectives against goals, raw limits, Gloo through c10d and Open
# MPI, then a tensor-parallel decoder. Prints the tables and leaves them in build/release/bench. Without PyTorch its rows
# say so, and the decoder is left out; DECODER_ARGS are the decoder's (bench/collectives/decoder.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/release/bench
mkdir -p "$out"
python=
if scripts/deps.sh torch >"$out/torch.log" 2>&1 && python=$(scripts/venv.sh 2>>"$out/torch.log"); then
  TARGETS=torch_npu scripts/build.sh release -DREPRISE_TORCH=ON "-DREPRISE_PYTHON=$python"
  export PYTHONPATH=$PWD/build/release/python
else
  python=
  echo "PyTorch left out: $(tr -s '\n ' ' ' <"$out/torch.log")"
fi
TARGETS=collectives_bench scripts/build.sh release -DREPRISE_BUILD_BENCH=ON
build/release/bin/collectives_bench --markdown "$out/collectives.md" --json "$out/collectives.json" \
  ${python:+--python "$python"} "$@"
[ -n "$python" ] || exit 0
read -ra arguments <<<"${DECODER_ARGS:-}"
echo
"$python" bench/collectives/decoder.py --markdown "$out/decoder.md" "${arguments[@]}"
