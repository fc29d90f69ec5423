#!/bin/bash
# bench_ge.sh [ARGUMENTS of bench/ge/ge_bench.py]: compiled graphs beside captured ones, PyTorch, ONNX Runtime and OpenVINO.
# Installs the libraries to build/bench-prefix, and makes build/venv-bench with what the comparison needs.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh release
rm -rf build/bench-prefix
cmake --install build/release --prefix "$PWD/build/bench-prefix" >/dev/null
wheel=$(scripts/wheel_venv.sh)
venv=$PWD/build/venv-bench
shared=$("$wheel" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
base=$("$(scripts/venv.sh)" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
wanted=$(cat bench/ge/requirements.txt && printf '%s\n%s\n' "$shared" "$base")
if [ "$wanted" != "$(cat "$venv/made_of" 2>/dev/null)" ]; then
  rm -rf "$venv"
  "$wheel" -m venv "$venv"
  "$venv/bin/pip" --disable-pip-version-check install --quiet --no-compile --only-binary :all: -r bench/ge/requirements.txt
  printf '%s\n%s\n' "$shared" "$base" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
  printf '%s\n' "$wanted" >"$venv/made_of"
fi
set +u
source build/bench-prefix/set_env.sh >/dev/null
set -u
exec "$venv/bin/python" bench/ge/ge_bench.py "$@"
