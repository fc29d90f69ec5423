#!/bin/bash
# fuzz.sh [TARGET…]: builds the fuzz targets with clang and runs each for FUZZ_SECONDS (60). A finding ends the run; its
# input stays in build/fuzz/findings, and how to repeat it is printed. New inputs of interest are kept in
# build/fuzz/corpus; the small corpus in tests/fuzz/corpus is only read.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(calls binary config keys model compiled options values arguments collective)

find_clang() {
  local version
  for version in "" -19 -18 -17 -16 -15 -14; do
    if command -v "clang++$version" >/dev/null && command -v "clang$version" >/dev/null; then
      echo "$version"
      return
    fi
  done
  echo "no clang++ found; make fuzz installs it" >&2
  return 1
}
version=$(find_clang)
mkdir -p build
log=build/fuzz.log
if ! { cmake --preset fuzz "-DCMAKE_C_COMPILER=clang$version" "-DCMAKE_CXX_COMPILER=clang++$version" &&
       cmake --build build/fuzz -j "${JOBS:-$(nproc)}" --target fuzzers; } >"$log" 2>&1; then
  grep -nE 'error|FAILED' "$log" | head -40 >&2
  tail -20 "$log" >&2
  exit 1
fi

export ASAN_OPTIONS="detect_leaks=1:handle_abort=1:detect_stack_use_after_return=1"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export LSAN_OPTIONS="suppressions=$PWD/tests/lsan.supp:print_suppressions=0"
findings=build/fuzz/findings
mkdir -p "$findings"
failed=0
for target in "${targets[@]}"; do
  program=build/fuzz/bin/fuzz_$target
  [ -x "$program" ] || { echo "no fuzz target $target" >&2; exit 1; }
  kept=build/fuzz/corpus/$target
  mkdir -p "$kept"
  options=(-max_total_time="$seconds" -timeout=25 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0
           -artifact_prefix="$findings/$target-")
  [ "$target" = calls ] && options+=(-max_len=1500 -len_control=0)
  [ "$target" = binary ] && options+=(-max_len=40000 -len_control=0)
  dictionary=tests/fuzz/$target.dict
  [ -f "$dictionary" ] && options+=(-dict="$dictionary")
  corpus=("$kept" "tests/fuzz/corpus/$target")
  [ "$target" = binary ] && corpus+=(build/fuzz/tests/fuzz/seeds)  # shared objects, which the build makes
  output=build/fuzz/$target.log
  status=0
  # libFuzzer ends by itself; the outer limit is for a process that hangs in a way that its alarm cannot end.
  timeout -k 10 $((seconds + 180)) "$program" "${options[@]}" "${corpus[@]}" >"$output" 2>&1 ||
    status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$output")
  if [ "$status" -eq 0 ]; then
    echo "$target: no finding in ${runs:-?} runs"
    continue
  fi
  failed=1
  echo "$target: FOUND SOMETHING (exit code $status)"
  grep -vE '^(#|INFO:)' "$output" | head -60
  input=$(sed -n 's/.*Test unit written to //p' "$output" | tail -1)
  [ -n "$input" ] && echo "Repeat: REPRISE_FUZZ_TRACE=1 $program $input"
done
exit "$failed"
