#!/bin/bash
# bench_models.sh [ARGUMENTS of bench/models/models_bench.py]: whole models, compiled and captured, beside PyTorch, ONNX Runtime
# and OpenVINO. Builds the libraries and the PyTorch package, and makes build/venv-bench with what the comparison needs.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/venv.sh)
TARGETS="torch_npu opapi nnopbase" scripts/build.sh release -DREPRISE_TORCH=ON "-DREPRISE_PYTHON=$python"
scripts/build.sh release
venv=$PWD/build/venv-bench
base=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
wanted=$(cat bench/models/requirements.txt && printf '%s\n' "$base")
if [ "$wanted" != "$(cat "$venv/made_of" 2>/dev/null)" ]; then
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" --disable-pip-version-check install --quiet --no-compile --only-binary :all: -r bench/models/requirements.txt
  printf '%s\n' "$base" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
  printf '%s\n' "$wanted" >"$venv/made_of"
fi
options=()
if [ -n "${REPRISE_BENCH_PUBLISHED:-}" ]; then
  rm -rf build/bench-prefix
  cmake --install build/release --prefix "$PWD/build/bench-prefix" >/dev/null
  options+=(--published "$(scripts/wheel_venv.sh)")
  set +u
  source build/bench-prefix/set_env.sh >/dev/null
  set -u
fi
exec "$python" bench/models/models_bench.py --others "$venv/bin/python" "${options[@]}" "$@"
