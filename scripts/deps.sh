#!/bin/bash
# Installs the Debian packages that a target needs and that are missing: deps.sh build [test] [torch] [lint] …
# Not root: prints the one command to run, and fails. On other systems it looks for the programs and headers themselves,
# and prints what such a system calls the packages.
set -euo pipefail

declare -A packages=(
  [build]="g++ cmake ninja-build make python3 libfmt-dev nlohmann-json3-dev libhwy-dev libcli11-dev libprotobuf-dev protobuf-compiler ccache"
  [torch]="python3-venv python3-dev"  # scripts/venv.sh, and headers for the extension
  [test]="libgtest-dev libgmock-dev valgrind"  # valgrind counts instructions; without it those tests are skipped
  [lint]="clang-format clang-tidy clang-14"  # clang: its analysis of locks
  [bench]="libtbb-dev pocl-opencl-icd ocl-icd-libopencl1 opencl-c-headers openmpi-bin libopenmpi-dev"  # what we are compared with
  [fuzz]="clang-14 libclang-rt-14-dev llvm-14"  # compiler; libFuzzer and sanitizers; names in stack traces
)

# Elsewhere: what shows that a package is there, a program or a header, and its name for dnf, pacman, zypper.
declare -A elsewhere=(
  [g++]="g++ gcc-c++ gcc gcc-c++"
  [cmake]="cmake cmake cmake cmake"
  [ninja-build]="ninja ninja-build ninja ninja"
  [make]="make make make make"
  [python3]="python3 python3 python python3"
  [libfmt-dev]="fmt/core.h fmt-devel fmt fmt-devel"
  [nlohmann-json3-dev]="nlohmann/json.hpp json-devel nlohmann-json nlohmann_json-devel"
  [libhwy-dev]="hwy/highway.h google-highway-devel highway highway-devel"
  [libcli11-dev]="CLI/CLI.hpp cli11-devel cli11 cli11-devel"
  [libprotobuf-dev]="google/protobuf/message.h protobuf-devel protobuf protobuf-devel"
  [protobuf-compiler]="protoc protobuf-compiler protobuf protobuf-devel"
  [libgtest-dev]="gtest/gtest.h gtest-devel gtest gtest"
  [libgmock-dev]="gmock/gmock.h gmock-devel gtest gmock"
  [python3-dev]="python3-config python3-devel python python3-devel"
  [clang-format]="clang-format clang-tools-extra clang clang-tools"
  [clang-tidy]="clang-tidy clang-tools-extra clang clang-tools"
  [libtbb-dev]="tbb/tbb.h tbb-devel onetbb tbb-devel"
)

is_there() {
  if command -v dpkg-query >/dev/null; then
    dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'ok installed'
    return
  fi
  local proof=${elsewhere[$1]:-}
  proof=${proof%% *}
  case "$proof" in
    "") return 0 ;;  # one that we can do without
    *.h | *.hpp) echo "#include <$proof>" | g++ -std=c++17 -E -x c++ - >/dev/null 2>&1 ;;
    *) command -v "$proof" >/dev/null ;;
  esac
}

missing=()
for group in "$@"; do
  for package in ${packages[$group]}; do
    is_there "$package" || missing+=("$package")
  done
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "What these Debian packages hold is missing: ${missing[*]}. Install it by the names of your system:" >&2
  column=1
  for command in "dnf install" "pacman -S" "zypper install"; do
    names=()
    for package in "${missing[@]}"; do
      read -ra row <<<"${elsewhere[$package]}"
      names+=("${row[$column]}")
    done
    echo "  sudo $command $(printf '%s\n' "${names[@]}" | sort -u | tr '\n' ' ')" >&2
    column=$((column + 1))
  done
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "These packages are missing. Install them with:" >&2
  echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
  exit 1
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
