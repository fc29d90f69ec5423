#!/bin/bash
# install_test.sh BUILD_DIR CMAKE: installs what is built into a folder of its own and uses that as other people's build
# scripts do: set_env.sh in several shells, a line of g++, a Makefile, CMake in its ways, projects with kernels.
set -euo pipefail
build=$1
cmake=$2
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
home=$folder/toolkit

fail() {
  echo "FAILED: $*" >&2
  exit 1
}
# quietly COMMAND…: its output only where it fails.
quietly() {
  "$@" >"$folder/log" 2>&1 || { cat "$folder/log" >&2; fail "$*"; }
}

quietly "$cmake" --install "$build" --prefix "$home"
quietly "$cmake" --install "$build" --prefix "$home"  # over itself
unset ASCEND_HOME_PATH ASCEND_TOOLKIT_HOME LD_LIBRARY_PATH CMAKE_PREFIX_PATH Reprise_DIR PYTHONPATH PKG_CONFIG_PATH

# ---- set_env.sh ----

show='printf "%s\n" "$ASCEND_HOME_PATH" "$ASCEND_TOOLKIT_HOME" "$ASCEND_OPP_PATH" "$ASCEND_AICPU_PATH" \
  "$LD_LIBRARY_PATH" "$CMAKE_PREFIX_PATH" "$Reprise_DIR" "${PATH%%:*}" "${PYTHONPATH%%:*}"'
# environment HOME: what is expected of a shell that had LD_LIBRARY_PATH=/one::/two and nothing else.
environment() {
  printf '%s\n' "$1" "$1" "$1/opp" "$1" "$1/lib64:/one::/two" "$1" "$1/lib/cmake/Reprise" "$1/bin" \
    "$1/python/site-packages"
}
# sourced WHERE HOME SCRIPT SHELL…: sources the script twice in that folder.
sourced() {
  local where=$1 expected got script=$3
  expected=$(environment "$2")
  shift 3
  (cd "$where" && env -i PATH=/usr/bin:/bin LD_LIBRARY_PATH=/one::/two "$@" ". $script; . $script; $show; set") \
    >"$folder/set" || fail "$* cannot source $script"
  got=$(head -9 "$folder/set")
  [ "$got" = "$expected" ] || fail "$* sources $script: $(diff <(echo "$expected") <(echo "$got"))"
  ! grep -q '^_reprise' "$folder/set" || fail "$* sources $script: variables stay"
}
shells=("bash -euc" "sh -euc")
[ -z "$(command -v dash)" ] || shells+=("dash -euc")
[ -z "$(command -v zsh)" ] || shells+=("zsh -euc")
for shell in "${shells[@]}"; do
  read -ra words <<<"$shell"
  for script in set_env.sh bin/setenv.bash bin/setenv.sh; do sourced / "$home" "$home/$script" "${words[@]}"; done
  sourced "$home" "$home" ./set_env.sh "${words[@]}"
  sourced "$home/bin" "$home" ./setenv.bash "${words[@]}"
done
sourced "$home" "$home" set_env.sh bash -euc  # found through the folder of the shell
ln -s toolkit "$folder/latest"
sourced / "$folder/latest" "$folder/latest/set_env.sh" bash -euc
mkdir "$folder/a b"
mv "$home" "$folder/a b/moved"
for shell in "${shells[@]}"; do
  read -ra words <<<"$shell"
  sourced / "$folder/a b/moved" "'$folder/a b/moved/set_env.sh'" "${words[@]}"
done
ln -s "a b/moved/set_env.sh" "$folder/set_env.sh"
sourced "$folder" "$folder/a b/moved" ./set_env.sh bash -euc
mv "$folder/a b/moved" "$home"
# shellcheck source=/dev/null
source "$home/set_env.sh"

# ---- Projects ----

mkdir "$folder/work"
quietly g++ -Wall -Werror "$here/plain/main.cpp" -o "$folder/work/line" -I"$ASCEND_HOME_PATH/include" \
  -L"$ASCEND_HOME_PATH/lib64" -lacl_rt
quietly "$folder/work/line"
# A graph of operators, with either form of std::string.
for form in 0 1; do
  for library in graph graph_base; do
    quietly g++ -std=c++11 -D_GLIBCXX_USE_CXX11_ABI=$form -Wall -Werror "$here/plain/graph.cpp" -o "$folder/work/graph" \
      -I"$ASCEND_HOME_PATH/include" -L"$ASCEND_HOME_PATH/lib64" -l$library -lgraph
    quietly "$folder/work/graph"
  done
done
# The example of the graph engine, which holds what it computes against loops, and its picture.
quietly g++ -std=c++17 -Wall -Werror "$here/../../examples/ge_graph.cc" -o "$folder/work/ge_graph" \
  -I"$ASCEND_HOME_PATH/include" -L"$ASCEND_HOME_PATH/lib64" -lge_runner -lgraph -lascendcl
quietly "$folder/work/ge_graph" "$folder/work"
grep -q '>LayerNormV4<' "$folder/work/linear_gelu_norm_1.svg" || fail "the picture of the compiled graph"
# Every header, under the strictest warnings.
headers=$(cd "$home/include" && find . -name '*.h' | sort)
sed 's/.*/#include <&>/' <<<"$headers" >"$folder/work/all.cc"
quietly g++ -std=c++17 -pedantic -Wall -Wextra -Werror -I"$home/include" -fsyntax-only "$folder/work/all.cc"
grep -vE '^./(reprise|atb|ge|graph|exe_graph|register|external|op_proto)/|^./all_ops.h' <<<"$headers" | sed 's/.*/#include <&>/' >"$folder/work/all.c"
quietly gcc -std=c11 -pedantic -Wall -Wextra -Werror -I"$home/include" -fsyntax-only "$folder/work/all.c"

cp -r "$here/plain" "$folder/work/make"
quietly env -u LD_LIBRARY_PATH make -C "$folder/work/make"  # what libraries need is found beside them
quietly env REPRISE_PROFILE="$folder/work/trace.json" "$folder/work/make/tool"
for event in "from_c: here" "from_c: work"; do
  grep -q "\"$event\"" "$folder/work/trace.json" || fail "the timeline has no \"$event\""
done

# Headers that no table describes compile alone, in C and in C++.
for header in securec.h mstx/ms_tools_ext.h runtime/rt.h experiment/runtime/runtime/rt.h \
  experiment/msprof/toolchain/prof_api.h; do
  for language in "c -std=c99" "c++ -std=c++11"; do
    read -ra words <<<"$language"
    quietly gcc -fsyntax-only -Wall -Wextra -pedantic -Werror -I"$ASCEND_HOME_PATH/include" -x "${words[@]}" - <<END
#include "$header"
typedef int header_compiled_alone;
END
  done
done

if [ -n "$(command -v pkg-config)" ]; then
  flags=$(pkg-config --cflags --libs reprise)
  case "$flags" in *"-I"*"/include"*"-L"*"/lib64"*"-lascendcl"*) : ;; *) fail "pkg-config says: $flags" ;; esac
fi

# The package is where every CMake looks, too.
quietly env -u Reprise_DIR "$cmake" -S "$here/cmake" -B "$folder/work/cmake"
quietly "$cmake" --build "$folder/work/cmake"
for program in by_name by_path by_package; do quietly "$folder/work/cmake/$program"; done

cp -r "$here/kernels" "$folder/work/kernels"
quietly "$cmake" -S "$folder/work/kernels" -B "$folder/work/kernels/build"
quietly "$cmake" --build "$folder/work/kernels/build"
quietly "$cmake" --install "$folder/work/kernels/build"
quietly "$folder/work/kernels/build/main" "$folder/work/kernels/build/out"
[ -f "$folder/work/kernels/build/out/include/ascendc_kernels_npu/aclrtlaunch_add_custom.h" ] ||
  fail "the launch header is not installed"

# Without host versions the configuration says what to write.
rm "$folder/work/kernels/add_custom.reprise.cpp"
if "$cmake" -S "$folder/work/kernels" -B "$folder/work/kernels/build" >"$folder/log" 2>&1; then
  fail "kernels for the vendor's processor were accepted"
fi
for words in "add_custom.reprise.cpp is missing" "kernels: add_custom, scale_custom" reprise_add_kernels; do
  grep -q "$words" "$folder/log" || { cat "$folder/log" >&2; fail "no \"$words\" in the message"; }
done
# So do the packages of the vendor's compiler.
for package in ASC tikicpulib; do
  cat >"$folder/work/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.16)
project(vendor LANGUAGES NONE)
find_package($package REQUIRED HINTS \$ENV{ASCEND_HOME_PATH}/compiler/tikcpp/ascendc_kernel_cmake)
END
  ! "$cmake" -S "$folder/work" -B "$folder/work/$package" >"$folder/log" 2>&1 || fail "there is a package $package"
  grep -q "reprise_add_kernels" "$folder/log" || { cat "$folder/log" >&2; fail "no reason why there is no $package"; }
done

# ---- The programs of the cookbook ----

mkdir "$folder/cookbook"
quietly python3 "$here/cookbook.py" "$here/../../docs/cookbook.md" "$folder/cookbook" cpp

# ---- The program of the README, and the picture of its graph ----

mkdir "$folder/readme"
quietly python3 "$here/readme.py" "$here/../../README.md" "$folder/readme"

# ---- Uninstalling takes everything but what others put there. ----

scripts=$here/../../scripts
mkdir "$home/opp/vendors/mine" "$home/empty"
touch "$home/opp/vendors/mine/op"
quietly "$scripts/uninstall.sh" "$home"
left=$(cd "$home" && find . -mindepth 1 | sort)
[ "$left" = "$(printf '%s\n' ./empty ./opp ./opp/vendors ./opp/vendors/mine ./opp/vendors/mine/op)" ] ||
  fail "uninstall.sh left: $left"
! "$scripts/uninstall.sh" "$home" >"$folder/log" 2>&1 || fail "uninstall.sh removes what is not there"
grep -q "nothing of Reprise is installed in" "$folder/log" || fail "uninstall.sh does not say why"
quietly "$cmake" --install "$build" --prefix "$home" --strip
# What says where it is installed is left out: that may be below the sources.
places=$(grep -rlF -e "$build" -e "$(cd "$here/../.." && pwd)" "$home/lib64" "$home/lib" "$home/include" || true)
[ -z "$places" ] || fail "the folder of the sources stands in $places"
quietly "$scripts/uninstall.sh" "$home"
[ "$(find "$home" -type f)" = "$home/opp/vendors/mine/op" ] || fail "uninstall.sh leaves what was installed again"
echo "all projects build and run"
