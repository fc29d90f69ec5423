#!/bin/bash
# venv.sh: makes build/venv, a Python with what python/requirements.txt pins (PyTorch for the CPU, pytest), and prints
# the path of its interpreter. Takes a minute and 200 MB of download the first time, nothing when it is up to date.
#
#   REPRISE_PYTHON=PATH   use this interpreter, which has all that already
#
# PyTorch comes from the package index that pip is set up for, or else from download.pytorch.org. Without either it says
# so in one line and fails; the log is build/venv.log.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${REPRISE_PYTHON:-}" ]; then
  "$REPRISE_PYTHON" -c 'import torch' 2>/dev/null ||
    { echo "REPRISE_PYTHON=$REPRISE_PYTHON does not import torch; install it there: pip install -r python/requirements.txt" >&2
      exit 1; }
  echo "$REPRISE_PYTHON"
  exit
fi
venv=$PWD/build/venv
log=$PWD/build/venv.log
if cmp -s python/requirements.txt "$venv/requirements.txt"; then
  echo "$venv/bin/python"
  exit
fi
mkdir -p build
python=
for candidate in python3.11 python3; do
  if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] ||
  { echo "no Python 3.11 with venv; install it (Debian: scripts/deps.sh torch) or set REPRISE_PYTHON" >&2; exit 1; }
rm -rf "$venv"
"$python" -m venv "$venv" >"$log" 2>&1 || { echo "$python -m venv failed; see build/venv.log" >&2; exit 1; }
# Wheels only: nothing of this is to be compiled here. No .pyc files: most of PyTorch's modules are never imported.
pip=("$venv/bin/pip" --disable-pip-version-check install --quiet --no-compile --only-binary :all:
     -r python/requirements.txt)
"${pip[@]}" >>"$log" 2>&1 ||
  "${pip[@]}" --extra-index-url https://download.pytorch.org/whl/cpu >>"$log" 2>&1 ||
  { echo "PyTorch cannot be had: pip found no torch==2.13.0+cpu on its package index and none on download.pytorch.org" \
         "(build/venv.log); get online, or set REPRISE_PYTHON to an interpreter that has it" >&2
    exit 1; }
cp python/requirements.txt "$venv/requirements.txt"  # last: marks it as complete
echo "$venv/bin/python"
