#!/bin/bash
# demo.sh DIR: builds, installs into DIR/prefix, compiles examples against it the way a user would, runs them:
# mlp_capture.cc (the C interface: eager against replayed), graph_pool.cc (the C++ interface: memory, random numbers),
# decoder_block.cc (operators: a transformer decoder block, token by token), ge_graph.cc (the graph engine: a graph
# compiled, with a picture of what became of it), torch_capture.py (PyTorch: the same network eager and replayed) and
# decoder_block.py (the decoder block in PyTorch on the CPU, held against ours). The last two are left out where PyTorch
# cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
mkdir -p "$out"
echo "== build"
scripts/build.sh release -DREPRISE_BUILD_TESTS=OFF -DREPRISE_TORCH=OFF
echo "== install into $out/prefix"
rm -rf "$out/prefix"
cmake --install build/release --prefix "$out/prefix" >/dev/null
# shellcheck source=/dev/null
source "$out/prefix/set_env.sh"

# example NAME LIBRARIES…: compiles and runs one.
example() {
  local name=$1
  shift
  local command=(g++ -std=c++17 -O2 "examples/$name.cc" -o "$out/$name" "-I$ASCEND_HOME_PATH/include"
                 "-L$ASCEND_HOME_PATH/lib64" "$@")
  echo "== compile as a user does:"
  echo "   ${command[*]//$out/DIR}"
  "${command[@]}"
  echo "== run"
  "$out/$name" "$out"
}

example mlp_capture -lascendcl -lnnopbase -lopapi -lreprise
echo
example graph_pool -lascendcl -lreprise
echo
example decoder_block -lascendcl -lnnopbase -lopapi -lreprise
echo
example ge_graph -lge_runner -lgraph -lascendcl
echo
echo "== PyTorch"
# Only what is missing is forgiven: when PyTorch is there, the extension has to build and the example has to work.
if ! scripts/deps.sh torch >"$out/torch.log" 2>&1 || ! python=$(scripts/venv.sh 2>>"$out/torch.log"); then
  echo "skipped torch_capture.py and decoder_block.py: $(tr -s '\n ' ' ' <"$out/torch.log")"
  exit 0
fi
TARGETS=torch_npu scripts/build.sh release -DREPRISE_TORCH=ON "-DREPRISE_PYTHON=$python"
PYTHONPATH=$PWD/build/release/python "$python" examples/torch_capture.py "$out"
"$python" examples/decoder_block.py "$out"
