#!/bin/bash
# wheel_venv.sh: makes build/venv-wheel, a Python with the published torch-npu package and the PyTorch that it is made for
# (tests/wheel/requirements.txt), and prints the path of its interpreter. Takes a minute and 250 MB of download the first
# time, nothing when it is up to date; the log is build/venv-wheel.log.
#
#   REPRISE_WHEEL_PYTHON=PATH   use this interpreter, which has all that already
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${REPRISE_WHEEL_PYTHON:-}" ]; then
  echo "$REPRISE_WHEEL_PYTHON"
  exit
fi
requirements=tests/wheel/requirements.txt
venv=$PWD/build/venv-wheel
log=$PWD/build/venv-wheel.log
if cmp -s "$requirements" "$venv/requirements.txt"; then
  echo "$venv/bin/python"
  exit
fi
mkdir -p build
rm -rf "$venv"
python3.11 -m venv "$venv" >"$log" 2>&1 || { echo "python3.11 -m venv failed; see build/venv-wheel.log" >&2; exit 1; }
pip=("$venv/bin/pip" --disable-pip-version-check --retries 1 install --quiet --no-compile --only-binary :all:)
wheels=https://download.pytorch.org/whl/cpu
"${pip[@]}" -r "$requirements" >>"$log" 2>&1 ||
  "${pip[@]}" -r "$requirements" --extra-index-url "$wheels" >>"$log" 2>&1 ||
  { echo "torch-npu cannot be downloaded (build/venv-wheel.log); get online, or set REPRISE_WHEEL_PYTHON to an" \
         "interpreter that has it" >&2
    exit 1; }
cp "$requirements" "$venv/requirements.txt"  # last: marks it as complete
echo "$venv/bin/python"
