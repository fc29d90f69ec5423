#!/bin/bash
# build.sh PRESET [cmake options]: configures and builds into build/PRESET; TARGETS="a b" builds only these. Shows
# progress; keeps the compiler's words for the case that something fails.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
log=build/$preset.log
mkdir -p build
start=$SECONDS
targets=()
[ -z "${TARGETS:-}" ] || read -ra targets <<<"--target $TARGETS"
if ! cmake --preset "$preset" "$@" >"$log" 2>&1; then
  tail -40 "$log" >&2
  exit 1
fi
if [ -t 1 ]; then
  NINJA_STATUS="[$preset %f/%t] " cmake --build "build/$preset" -j "${JOBS:-$(nproc)}" "${targets[@]}"
elif ! cmake --build "build/$preset" -j "${JOBS:-$(nproc)}" "${targets[@]}" >>"$log" 2>&1; then
  grep -nE 'error|warning: |FAILED' "$log" | head -40 >&2
  tail -20 "$log" >&2
  exit 1
fi
echo "built $preset in $((SECONDS - start)) s"
