#!/bin/bash
# run_tests.sh [--only LABEL] ROW…: builds and runs the tests of each row, one line per row; on failure the output of
# what failed. Ends with 'N passed, N failed'. A row is a preset, or torch: the PyTorch layer, in the release build, and
# the operators, with PyTorch on the CPU as the oracle.
#
#   REPRISE_TORCH_TESTS="tests/torch/test_memory.py -k pool"   what the row torch runs; otherwise all of tests/torch
#   and, in processes of their own, of tests/ops
set -euo pipefail
cd "$(dirname "$0")/.."
only=()
if [ "${1:-}" = --only ]; then
  only=(-L "$2")
  shift 2
fi
passed=0
failed=0
options=(-DREPRISE_BUILD_TESTS=ON)
[ -z "${CI:-}" ] || options+=(-DREPRISE_WERROR=ON)

# row NAME RESULTS LOG COMMAND…: runs the tests, counts them, prints the line; on failure what is of interest of the log.
row() {
  local name=$1 results=$2 log=$3 start=$SECONDS status=0 counts row_passed row_failed row_skipped
  shift 3
  rm -rf "$results"
  mkdir -p "$results"
  "$@" >"$log" 2>&1 || status=$?
  counts=$(python3 scripts/count_tests.py "$results" "$log")
  read -r row_passed row_failed row_skipped <<<"$counts"
  # Also where nothing was counted: a run that found no test, or died before it wrote its results.
  [ "$status" -eq 0 ] || [ "$row_failed" -gt 0 ] || row_failed=1
  passed=$((passed + row_passed))
  failed=$((failed + row_failed))
  echo "$name: $row_passed passed, $row_failed failed, $row_skipped not there yet, in $((SECONDS - start)) s"
  if [ "$status" -ne 0 ]; then
    grep -vE '^\s*[0-9]+/[0-9]+ Test.*Passed|^\s+Start ' "$log" | tail -150
  fi
}

# The extension is built in the tree of the row release, whose libraries it takes. Results beside those of that row.
torch_row() {
  local python
  python=$(scripts/venv.sh) || { failed=$((failed + 1)); echo "torch: 0 passed, 1 failed: no PyTorch, see above"; return; }
  TARGETS="torch_npu opapi nnopbase" scripts/build.sh release "${options[@]}" -DREPRISE_TORCH=ON "-DREPRISE_PYTHON=$python"
  local selected=(tests/torch)
  [ ${#only[@]} -eq 0 ] || selected+=(-k TN_)
  # shellcheck disable=SC2206
  [ -z "${REPRISE_TORCH_TESTS:-}" ] || selected=($REPRISE_TORCH_TESTS)
  local results=build/release/results/torch
  # Modules are compiled once, not by each of the interpreters that tests start.
  unset PYTHONDONTWRITEBYTECODE
  PYTHONPATH=$PWD/build/release/python ASCEND_PROCESS_LOG_PATH=$PWD/$results/log \
    row torch "$results" build/release/tests-torch.log \
    "$python" -m pytest -q -n 2 --dist worksteal "--junitxml=$results/torch.xml" "${selected[@]}"
  [ ${#only[@]} -eq 0 ] && [ -z "${REPRISE_TORCH_TESTS:-}" ] || return 0
  results=build/release/results/ops
  ASCEND_PROCESS_LOG_PATH=$PWD/$results/log \
    row ops "$results" build/release/tests-ops.log \
    "$python" -m pytest -q -n 2 --dist worksteal "--junitxml=$results/ops.xml" tests/ops
}

for preset in "$@"; do
  if [ "$preset" = torch ]; then
    torch_row
    continue
  fi
  scripts/build.sh "$preset" "${options[@]}" -DREPRISE_TORCH=OFF
  # Sanitizers: every finding fails the test; a death of the checked program must not hide a leak.
  export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1"
  export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
  export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp"
  export LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0"
  row "$preset" "build/$preset/results" "build/$preset/tests.log" \
    ctest --test-dir "build/$preset" "${only[@]}" -j 2 --output-on-failure
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
