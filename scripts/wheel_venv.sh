#!/bin/bash
# wheel_venv.sh: makes build/venv-wheel, a Python with the published torch-npu package and the PyTorch that it is made for
# (tests/wheel/requirements.txt), and prints the path of its interpreter. It sees what build/venv has, too (scripts/venv.sh),
# so that a PyTorch that both pin is downloaded and unpacked once: then it takes seconds the first time. The log is
# build/venv-wheel.log.
#
#   REPRISE_WHEEL_PYTHON=PATH   use this interpreter, which has all that already
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -n "${REPRISE_WHEEL_PYTHON:-}" ]; then
  "$REPRISE_WHEEL_PYTHON" -c 'import importlib.metadata as m; m.version("torch"), m.version("torch-npu")' 2>/dev/null ||
    { echo "REPRISE_WHEEL_PYTHON=$REPRISE_WHEEL_PYTHON lacks torch or torch-npu; install them there: pip install -r" \
           "tests/wheel/requirements.txt" >&2
      exit 1; }
  echo "$REPRISE_WHEEL_PYTHON"
  exit
fi
base=$(scripts/venv.sh)
requirements=tests/wheel/requirements.txt
venv=$PWD/build/venv-wheel
log=$PWD/build/venv-wheel.log
shared=$("$base" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if cat "$requirements" <(echo "# $shared") | cmp -s - "$venv/requirements.txt"; then
  echo "$venv/bin/python"
  exit
fi
mkdir -p build
rm -rf "$venv"
"$base" -m venv "$venv" >"$log" 2>&1 || { echo "$base -m venv failed; see build/venv-wheel.log" >&2; exit 1; }
echo "$shared" >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/shared.pth"
# Wheels only, and no .pyc files: see venv.sh. An index that does not answer is given up within minutes.
pip=(timeout 900 "$venv/bin/pip" --disable-pip-version-check --timeout 20 --retries 3 install --quiet --no-compile
     --only-binary :all: -r "$requirements")
"${pip[@]}" >>"$log" 2>&1 ||
  "${pip[@]}" --extra-index-url https://download.pytorch.org/whl/cpu >>"$log" 2>&1 ||
  { echo "torch-npu cannot be had: pip found neither its package index nor download.pytorch.org with what" \
         "$requirements pins (build/venv-wheel.log); get online, or set REPRISE_WHEEL_PYTHON to an interpreter that" \
         "has it, or leave this row out: make test PRESETS=\"release torch asan tsan\"" >&2
    exit 1; }
cat "$requirements" <(echo "# $shared") >"$venv/requirements.txt"  # last: marks it as complete
echo "$venv/bin/python"
