#!/bin/bash
# lint.sh [--fix] [--all]: what a reader should not have to find. One line per check; the details only where one fails.
#
#   --fix   reformat the sources and write the generated files instead of complaining about them
#   --all   clang-tidy over every source; without it over what differs from the last commit
#
# The preset `lint`, which is configured here, says how each source is compiled alone: builds put them together in batches
# and read headers precompiled, where a missing #include does not show.
set -euo pipefail
cd "$(dirname "$0")/.."
fix=false
all=false
for argument in "$@"; do
  case $argument in
    --fix) fix=true ;;
    --all) all=true ;;
    *) echo "usage: lint.sh [--fix] [--all]" >&2; exit 2 ;;
  esac
done

mkdir -p build
failures=0
details=$(mktemp)
trap 'rm -f "$details"' EXIT

# check NAME COMMAND…: prints "ok NAME", or "FAILED NAME" and what the command said.
check() {
  local name=$1
  shift
  if "$@" >"$details" 2>&1; then
    echo "ok      $name"
  else
    echo "FAILED  $name"
    sed 's/^/        /' "$details"
    failures=$((failures + 1))
  fi
}

# Written by scripts, and as wide as their tables want them.
generated='^(include/(acl|aclnn|aclnnop)/|facade/[a-z_]+/generated_[a-z]+\.cc$|facade/opapi/generated/|src/(ops|opdef)/generated/|src/opdef/graph_ops/|src/ge/generated/|include/op_proto/|python/csrc/ops/generated/|src/(ops/computations|opdef/functions|opdef/rules)\.def$)'

# Tracked files and new ones that git does not ignore, as they are on disk.
sources() {
  git ls-files --cached --others --exclude-standard "$@" | grep -vE "$generated" | while read -r file; do
    [ -f "$file" ] && echo "$file"
  done
}

format() {
  mapfile -t files < <(sources '*.cc' '*.cpp' '*.h')
  if $fix; then
    clang-format -i "${files[@]}"
    return
  fi
  local unformatted=()
  for file in "${files[@]}"; do
    clang-format --dry-run --Werror "$file" >/dev/null 2>&1 || unformatted+=("$file")
  done
  [ ${#unformatted[@]} -eq 0 ] && return
  echo "${#unformatted[@]} of ${#files[@]} files differ from .clang-format; scripts/lint.sh --fix (make format) rewrites them:"
  printf '%s\n' "${unformatted[@]}"
  return 1
}

shell() {
  local status=0
  while read -r file; do bash -n "$file" || status=1; done < <(sources '*.sh' '.ci/*')
  return $status
}

python() {
  local status=0
  while read -r file; do
    python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file" || status=1
  done < <(sources '*.py')
  return $status
}

# .gitattributes marks what scripts write, and nothing else.
attributes() {
  local status=0 file
  local pages='^docs/((api-status|environment|errors|graph-operators|operators|operator-table)\.md|[a-z]+\.svg)$'
  while read -r file; do
    echo "$file: .gitattributes and the list of generated files in scripts/lint.sh differ"
    status=1
  done < <(comm -3 <(git ls-files | grep -E "$generated|$pages" | sort) \
                   <(git ls-files | git check-attr --stdin linguist-generated | sed -n 's/: linguist-generated: set$//p' | sort))
  return $status
}

# The README shows one whole program; it has to compile.
readme() {
  awk '/^## The whole program/ {seen = 1} seen && /^```$/ {exit} code {print} seen && /^```cpp/ {code = 1}' README.md |
    g++ -std=c++17 -Wall -Werror -fsyntax-only -Iinclude -x c++ -
}

# A comment of a header stands for itself: it does not open by pointing to its neighbour.
comments() {
  mapfile -t files < <(sources 'src/*.h' 'include/reprise/*.h' 'facade/*.h' 'python/csrc/*.h')
  ! awk 'FNR == 1 { inside = 0 }
    /^ *\/\// { if (!inside && /^ *\/\/+ *(The same|That|Those)[ .,]/) print FILENAME ":" FNR ": name what it is:" $0
               inside = 1; next }
    { inside = 0 }' "${files[@]}" | grep .
}

# Blocks of HACKING.md that name a file show lines of it.
examples() {
  python3 - <<'PYTHON'
import re, sys
text, status = open("HACKING.md").read(), 0
for path, block in re.findall(r"^```\w+ (\S+)\n(.*?)^```$", text, re.M | re.S):
    lines = {line.rstrip() for line in open(path)}
    for line in block.splitlines():
        if line not in lines:
            print(f"HACKING.md shows a line that {path} does not have: {line}")
            status = 1
sys.exit(status)
PYTHON
}

# Sources for clang-tidy: those that differ from the last commit or are new; or all.
candidates() {
  if $all; then
    sources '*.cc'
  else
    { git diff --name-only --diff-filter=d HEAD -- '*.cc'; git ls-files --others --exclude-standard '*.cc'; } |
      sort -u | { grep -vE "$generated" || true; }
  fi
}

# A finding in a header comes once for every source that includes it; shown once.
tidy() {
  printf '%s\n' "${files[@]}" | xargs -P "${JOBS:-$(nproc)}" -n 1 clang-tidy -p build/lint --quiet 2>/dev/null |
    awk '!seen[$0]++'
}

check "clang-format" format
check "layers: #include lines" scripts/check_layers.py
for generator in gen_headers gen_ops gen_graph_ops gen_op_protos gen_refusals gen_torchair gen_docs; do
  if $fix; then
    check "$generator" "scripts/$generator.py"
  else
    check "$generator --check" "scripts/$generator.py" --check
  fi
done
check "functions of at most 80 lines" scripts/check_functions.py
if $fix; then check "rulers" scripts/check_rulers.py --fix; else check "rulers" scripts/check_rulers.py; fi
check "locks: what clang sees of them" scripts/check_locks.py
check "mutants fit the sources" scripts/mutants.py --check
check "shell syntax" shell
check "Python syntax" python
check "marks of generated files" attributes
check "comments of headers stand for themselves" comments
check "README program compiles" readme
check "links of documentation pages" scripts/check_links.py
check "lines that HACKING.md shows" examples

# Sources include what protoc writes.
if ! { cmake --preset lint && mkdir -p build/lint/generated &&
       protoc --proto_path=wire=api --cpp_out=build/lint/generated wire/ge.proto; } >build/lint.log 2>&1; then
  echo "FAILED  cmake --preset lint; see build/lint.log"
  failures=$((failures + 1))
else
  files=()
  left_out=()
  while read -r file; do
    if grep -qF "\"$PWD/$file\"" build/lint/compile_commands.json; then files+=("$file"); else left_out+=("$file"); fi
  done < <(candidates)
  # Both have to know how a source is compiled.
  [ ${#left_out[@]} -eq 0 ] || echo "skipped what the preset lint does not compile: ${left_out[*]}"
  if [ ${#files[@]} -gt 0 ]; then
    check "each source compiles alone, ${#files[@]} files" scripts/compile_alone.py "${files[@]}"
    check "clang-tidy, ${#files[@]} files" tidy
  elif [ ${#left_out[@]} -eq 0 ]; then
    echo "ok      clang-tidy: no source differs from the last commit (--all checks every one)"
  fi
fi
[ "$failures" -eq 0 ] || { echo "$failures checks failed"; exit 1; }
