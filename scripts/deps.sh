#!/bin/bash
# Installs the Debian packages that a target needs and that are missing: deps.sh build [test] [lint] …
# Not root: prints the one command to run, and fails.
set -euo pipefail

declare -A packages=(
  [build]="g++ cmake ninja-build make python3 libgtest-dev libgmock-dev libfmt-dev nlohmann-json3-dev libhwy-dev"
  [test]="valgrind"  # counts instructions; the tests that need it are skipped without
  [lint]="clang-format clang-tidy"
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
