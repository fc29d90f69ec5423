#!/bin/bash
# uninstall.sh PREFIX: removes what `make install PREFIX=…` put there, and the folders that are empty then. Other files
# stay.
set -euo pipefail
prefix=$(realpath -- "$1")
list=$prefix/share/doc/reprise/installed.txt
[ -f "$list" ] || { echo "nothing of Reprise is installed in $prefix: there is no share/doc/reprise/installed.txt" >&2; exit 1; }
mapfile -t ours <"$list"
folders=(opp/vendors opp/built-in/op_impl/ai_core/tbe python/site-packages)
for path in "${ours[@]}"; do
  rm -f -- "$prefix/$path"
  folders+=("${path%/*}")
done
# Only folders that held something of ours, and only empty ones.
for folder in "${folders[@]}"; do
  while [ -d "$prefix/$folder" ]; do
    rmdir -- "$prefix/$folder" 2>/dev/null || break
    [[ $folder == */* ]] || break
    folder=${folder%/*}
  done
done
rmdir -- "$prefix" 2>/dev/null || true
if [ -d "$prefix" ]; then
  echo "removed from $prefix; what else was in it has stayed"
else
  echo "removed $prefix"
fi
