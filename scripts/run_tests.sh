#!/bin/bash
# run_tests.sh [--only LABEL] [--build] ROW…: builds and runs the tests of each row, one line per row; on failure the
# output of what failed. Then what builds and tests cost, the names and first words of what failed, and 'N passed, N
# failed'. A row is a preset; or torch: the PyTorch layer, in the release build, and the operators, with PyTorch on the
# CPU as the oracle; or wheel: the published torch-npu package, which is downloaded, on the installed libraries of the
# release build.
#
#   --build                  builds what the rows need and runs nothing
#   REPRISE_TEST_FORM=full   the full form of tests that have a short one, and all programs in all rows (`make test-all`)
#   REPRISE_TORCH_TESTS="tests/torch/test_memory.py -k pool"   what the row torch runs; otherwise all of tests/torch
#   and, in processes of their own, of tests/ops
set -euo pipefail
cd "$(dirname "$0")/.."
only=()
if [ "${1:-}" = --only ]; then
  only=(-L "$2")
  shift 2
fi
build_only=false
if [ "${1:-}" = --build ]; then
  build_only=true
  shift
fi
passed=0
failed=0
export REPRISE_TEST_FORM=${REPRISE_TEST_FORM:-short}
export REPRISE_COSTS=default  # plans of graphs do not depend on what else the machine does
full=OFF
[ "$REPRISE_TEST_FORM" = short ] || full=ON
options=(-DREPRISE_BUILD_TESTS=ON "-DREPRISE_FULL_TESTS=$full")
mkdir -p build
costs=build/cpu_rows.tsv
digest=build/failed_tests.txt  # of all rows, for the end: the output of a row may lie far above it
! $build_only || costs=/dev/null  # the table is that of the last run
: >"$costs"
: >"$digest"

# Sets `cpu`: seconds of all processes so far that this shell has waited for. Not in a subshell, which has its own.
note_cpu() {
  times >build/cpu_times
  cpu=$(awk 'NR == 2 {split($0, part, /[ms ]+/); print part[1] * 60 + part[2] + part[3] * 60 + part[4]}' build/cpu_times)
}

# cost ROW PHASE COMMAND…: runs it and notes what it cost.
cost() {
  local name=$1 phase=$2 start=$SECONDS before cpu status=0
  shift 2
  note_cpu
  before=$cpu
  "$@" || status=$?
  note_cpu
  printf '%s\t%s\t%s\t%s\n' "$name" "$phase" "$(awk "BEGIN {print $cpu - $before}")" "$((SECONDS - start))" >>"$costs"
  return "$status"
}

# row NAME RESULTS LOG COMMAND…: runs the tests, counts them, prints the line; on failure what is of interest of the log.
row() {
  local name=$1 results=$2 log=$3 start=$SECONDS status=0 counts row_passed row_failed row_skipped
  shift 3
  ! $build_only || return 0
  rm -rf "$results"
  mkdir -p "$results"
  cost "$name" test "$@" >"$log" 2>&1 || status=$?
  counts=$(python3 scripts/count_tests.py "$results" "$log")
  read -r row_passed row_failed row_skipped <<<"$counts"
  # Also where nothing was counted: a run that found no test, or died before it wrote its results.
  [ "$status" -eq 0 ] || [ "$row_failed" -gt 0 ] || row_failed=1
  passed=$((passed + row_passed))
  failed=$((failed + row_failed))
  echo "$name: $row_passed passed, $row_failed failed, $row_skipped not there yet, in $((SECONDS - start)) s"
  if [ "$status" -ne 0 ]; then
    python3 scripts/count_tests.py --failed "$results" "$log" | sed "s/^FAILED /&$name: /" >>"$digest"
    grep -vE '^\s*[0-9]+/[0-9]+ Test.*Passed|^\s+Start ' "$log" | tail -150
  fi
}

# The extension is built in the tree of the row release, whose libraries it takes.
build_torch() {
  python=$(scripts/venv.sh) || return
  TARGETS="torch_npu opapi nnopbase opdef_infer" scripts/build.sh release "${options[@]}" -DREPRISE_TORCH=ON "-DREPRISE_PYTHON=$python"
}

# Results beside those of the row release.
torch_row() {
  local python= status=0
  cost torch build build_torch || status=$?
  if [ -z "$python" ]; then
    failed=$((failed + 1))
    echo "torch: 0 passed, 1 failed: no PyTorch, see above"
    return
  fi
  [ "$status" -eq 0 ] || exit "$status"  # an extension that was built before would be tested in its place
  local selected=(tests/torch tests/torchair)
  [ ${#only[@]} -eq 0 ] || selected+=(-k TN_)
  # shellcheck disable=SC2206
  [ -z "${REPRISE_TORCH_TESTS:-}" ] || selected=($REPRISE_TORCH_TESTS)
  local results=build/release/results/torch
  # Modules are compiled once, not by each of the interpreters that tests start.
  unset PYTHONDONTWRITEBYTECODE
  # What torch.compile has compiled is kept for the next run of this tree.
  TORCHINDUCTOR_CACHE_DIR=$PWD/build/inductor PYTHONPATH=$PWD/build/release/python ASCEND_PROCESS_LOG_PATH=$PWD/$results/log \
    row torch "$results" build/release/tests-torch.log \
    "$python" -m pytest -q -n 2 --dist worksteal "--junitxml=$results/torch.xml" "${selected[@]}"
  [ ${#only[@]} -eq 0 ] && [ -z "${REPRISE_TORCH_TESTS:-}" ] || return 0
  results=build/release/results/ops
  ASCEND_PROCESS_LOG_PATH=$PWD/$results/log \
    row ops "$results" build/release/tests-ops.log \
    "$python" -m pytest -q -n 2 --dist worksteal "--junitxml=$results/ops.xml" tests/ops
}

# The libraries as `make install` installs them, below build/: those of the row release, however its tree is set up.
build_wheel() {
  wheel_python=$(scripts/wheel_venv.sh) || return
  rm -rf build/wheel
  TARGETS=reprise_libraries scripts/build.sh release &&
    cmake --install build/release --prefix "$PWD/build/wheel" --strip >/dev/null
}

# The package as its users run it: set_env.sh and nothing else.
wheel_row() {
  local wheel_python= status=0 results=build/release/results/wheel
  cost wheel build build_wheel || status=$?
  if [ -z "$wheel_python" ]; then
    failed=$((failed + 1))
    echo "wheel: 0 passed, 1 failed: no published package, see above"
    return
  fi
  [ "$status" -eq 0 ] || exit "$status"
  unset PYTHONDONTWRITEBYTECODE  # as above
  # shellcheck disable=SC2016
  ASCEND_PROCESS_LOG_PATH=$PWD/$results/log row wheel "$results" build/release/tests-wheel.log \
    bash -c 'source build/wheel/set_env.sh; exec "$@"' wheel \
    "$wheel_python" -m pytest -q -n 2 --dist loadfile --timeout=900 "--junitxml=$results/wheel.xml" tests/wheel
}

# shellcheck source=scripts/sanitizer_env.sh
source scripts/sanitizer_env.sh
for preset in "$@"; do
  if [ "$preset" = torch ]; then
    torch_row
    continue
  fi
  if [ "$preset" = wheel ]; then
    wheel_row
    continue
  fi
  cost "$preset" build scripts/build.sh "$preset" "${options[@]}" -DREPRISE_TORCH=OFF
  row "$preset" "build/$preset/results" "build/$preset/tests.log" \
    ctest --test-dir "build/$preset" "${only[@]}" -j 2 --output-on-failure
done
rm -f build/cpu_times
! $build_only || exit "$failed"
scripts/cpu_report.py
cat "$digest"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
