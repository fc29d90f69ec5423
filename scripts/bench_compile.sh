#!/bin/bash
# bench_compile.sh [ARGUMENTS of bench/compile/compile_bench.py]: what torch.compile costs with this package's torchair and
# with the published one's, on the same libraries.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/venv.sh)
TARGETS="torch_npu opapi nnopbase" scripts/build.sh release -DREPRISE_TORCH=ON "-DREPRISE_PYTHON=$python"
scripts/build.sh release
rm -rf build/bench-prefix
cmake --install build/release --prefix "$PWD/build/bench-prefix" >/dev/null
wheel=$(scripts/wheel_venv.sh)
set +u
source build/bench-prefix/set_env.sh >/dev/null
set -u
exec "$python" bench/compile/compile_bench.py --ours "$python" --published "$wheel" "$@"
