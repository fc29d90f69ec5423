#!/bin/bash
# test_models.sh [pytest arguments]: runs tests/models, other people's packages on the device npu. They are installed into
# build/venv-models as tests/models/requirements.txt pins them, beside what build/venv has: a minute and 500 MB of
# download the first time. Offline it says so in one line, and that is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."
requirements=tests/models/requirements.txt
venv=$PWD/build/venv-models
log=$PWD/build/venv-models.log

skip() {
  echo "models: skipped: $1 (build/venv-models.log); get online and run make test-models again"
  exit 0
}

if ! cat python/requirements.txt "$requirements" tests/models/cuda_stand_ins.py | cmp -s - "$venv/requirements.txt"; then
  base=$(scripts/venv.sh 2>"$log") || skip "PyTorch cannot be had"
  rm -rf "$venv"
  "$base" -m venv "$venv" >"$log" 2>&1 || { echo "$base -m venv failed; see build/venv-models.log" >&2; exit 1; }
  pip=("$venv/bin/pip" --disable-pip-version-check --retries 1 install --quiet --no-compile --only-binary :all:)
  wheels=https://download.pytorch.org/whl/cpu
  "${pip[@]}" -r python/requirements.txt >>"$log" 2>&1 ||
    "${pip[@]}" -r python/requirements.txt --extra-index-url "$wheels" >>"$log" 2>&1 || skip "PyTorch cannot be had"
  # torchvision for the CPU, where it can be had; PyPI has the one for CUDA, which cuda_stand_ins.py makes load.
  "${pip[@]}" --no-deps --index-url "$wheels" "$(grep ^torchvision "$requirements")" >>"$log" 2>&1 ||
    echo "torchvision is taken from PyPI" >>"$log"
  "${pip[@]}" -c python/requirements.txt -r "$requirements" >>"$log" 2>&1 || skip "the packages cannot be downloaded"
  "$venv/bin/python" tests/models/cuda_stand_ins.py >>"$log" 2>&1 ||
    { echo "torchvision does not load; see build/venv-models.log" >&2; exit 1; }
  cat python/requirements.txt "$requirements" tests/models/cuda_stand_ins.py >"$venv/requirements.txt"
fi
python=$(scripts/venv.sh)
TARGETS="torch_npu opapi nnopbase" scripts/build.sh release -DREPRISE_TORCH=ON "-DREPRISE_PYTHON=$python"
export PYTHONPATH=$PWD/build/release/python OMP_NUM_THREADS=1
unset PYTHONDONTWRITEBYTECODE
"$venv/bin/python" -m pytest -q -n 2 --dist worksteal tests/models "$@"
