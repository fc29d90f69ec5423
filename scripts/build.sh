#!/bin/bash
# build.sh PRESET [cmake options]: configures and builds into build/PRESET; TARGETS="a b" builds only these. Shows
# progress and the time left on a terminal; keeps the compiler's words for the case that something fails.
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
  NINJA_STATUS="%f %t %e " cmake --build "build/$preset" -j "${JOBS:-$(nproc)}" "${targets[@]}" 2>&1 |
    tee -a "$log" | scripts/progress.py "$preset"
elif ! cmake --build "build/$preset" -j "${JOBS:-$(nproc)}" "${targets[@]}" >>"$log" 2>&1; then
  grep -nE 'error|warning: |FAILED' "$log" | head -40 >&2
  tail -20 "$log" >&2
  exit 1
fi
echo "built $preset in $((SECONDS - start)) s"
