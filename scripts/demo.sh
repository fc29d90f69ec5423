#!/bin/bash
# demo.sh DIR: builds, installs into DIR/prefix, compiles examples/mlp_capture.cc against it the way a user would, runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$1
mkdir -p "$out"
echo "== build"
scripts/build.sh release -DREPRISE_BUILD_TESTS=OFF
echo "== install into $out/prefix"
rm -rf "$out/prefix"
cmake --install build/release --prefix "$out/prefix" >/dev/null
# shellcheck source=/dev/null
source "$out/prefix/set_env.sh"
command=(g++ -std=c++17 -O2 examples/mlp_capture.cc -o "$out/mlp_capture" "-I$ASCEND_HOME_PATH/include"
         "-L$ASCEND_HOME_PATH/lib64" -lascendcl -lnnopbase -lopapi -lreprise)
echo "== compile as a user does:"
echo "   ${command[*]//$out/DIR}"
"${command[@]}"
echo "== run"
"$out/mlp_capture" "$out"
