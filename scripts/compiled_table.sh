#!/bin/bash
# compiled_table.sh [ARGUMENTS of tests/torchair/compiled_table.py]: PyTorch's table of operators through torch.compile with
# torchair, in both modes. The rows are written to build/release/compiled_table.csv; a quarter of an hour on one core.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(scripts/venv.sh)
TARGETS="torch_npu opapi nnopbase" scripts/build.sh release -DREPRISE_TORCH=ON "-DREPRISE_PYTHON=$python"
export PYTHONPATH=$PWD/build/release/python OMP_NUM_THREADS=1
exec "$python" tests/torchair/compiled_table.py --table build/release/compiled_table.csv "$@"
