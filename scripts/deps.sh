#!/bin/bash
# Installs the Debian packages that a target needs and that are missing: deps.sh build [test] [torch] [lint] …
# Not root: prints the one command to run, and fails.
set -euo pipefail

declare -A packages=(
  [build]="g++ cmake ninja-build make python3 libgtest-dev libgmock-dev libfmt-dev nlohmann-json3-dev libhwy-dev ccache"
  [torch]="python3-venv python3-dev"  # scripts/venv.sh, and headers for the extension
  [test]="valgrind"  # counts instructions; without it those tests are skipped
  [lint]="clang-format clang-tidy"
  [bench]="libtbb-dev pocl-opencl-icd ocl-icd-libopencl1 opencl-c-headers"  # what we are compared with
  [fuzz]="clang-14 libclang-rt-14-dev llvm-14"  # compiler; libFuzzer and sanitizers; names in stack traces
)

missing=()
for group in "$@"; do
  for package in ${packages[$group]}; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "These packages are missing. Install them with:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
  exit 1
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
