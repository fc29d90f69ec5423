#!/bin/bash
# Builds and runs the benchmarks; the table is printed and left in build/bench/table.md. Comparison with other systems is
# not here yet: the yardsticks are a flat loop over function pointers and a futex round trip, in the same process.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh release -DREPRISE_BUILD_TESTS=OFF -DREPRISE_BUILD_BENCH=ON
mkdir -p build/bench
build/release/bin/replay_bench build/bench/table.md
echo
echo "table: build/bench/table.md"
