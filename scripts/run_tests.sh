#!/bin/bash
# run_tests.sh [--only LABEL] PRESET…: builds and runs the tests of each preset, one line per row; on failure the output
# of what failed. Ends with 'N passed, N failed'.
set -euo pipefail
cd "$(dirname "$0")/.."
only=()
if [ "${1:-}" = --only ]; then
  only=(-L "$2")
  shift 2
fi
passed=0
failed=0
for preset in "$@"; do
  options=()
  [ -n "${CI:-}" ] && options+=(-DREPRISE_WERROR=ON)
  scripts/build.sh "$preset" -DREPRISE_BUILD_TESTS=ON "${options[@]}"
  rm -rf "build/$preset/results"
  mkdir -p "build/$preset/results"
  # Sanitizers: every finding fails the test; a death of the checked program must not hide a leak.
  export ASAN_OPTIONS="detect_leaks=1:abort_on_error=0:detect_stack_use_after_return=1"
  export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
  export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/tsan.supp"
  export LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0"
  start=$SECONDS
  status=0
  ctest --test-dir "build/$preset" "${only[@]}" -j 2 --output-on-failure >"build/$preset/tests.log" 2>&1 || status=$?
  counts=$(python3 scripts/count_tests.py "build/$preset/results" "build/$preset/tests.log")
  read -r row_passed row_failed row_skipped <<<"$counts"
  passed=$((passed + row_passed))
  failed=$((failed + row_failed))
  echo "$preset: $row_passed passed, $row_failed failed, $row_skipped not there yet, in $((SECONDS - start)) s"
  if [ "$status" -ne 0 ]; then
    [ "$row_failed" -gt 0 ] || failed=$((failed + 1))
    grep -vE '^\s*[0-9]+/[0-9]+ Test.*Passed|^\s+Start ' "build/$preset/tests.log" | tail -150
  fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
