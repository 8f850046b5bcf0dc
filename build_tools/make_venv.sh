#!/usr/bin/env bash
# Makes .venv hold exactly what requirements.txt pins, and find the package in frontends/python.
# An existing .venv is kept, so that one made with another supported Python stays.
set -euo pipefail
cd "$(dirname "$0")/.."

supported() { "$1" -c 'import sys; sys.exit(sys.version_info[:2] not in [(3, 11), (3, 12)])' 2>/dev/null; }

if ! supported .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  for python in python3 python3.12 python3.11 ''; do
    supported "$python" && break
  done
  if [[ -z $python ]]; then
    echo "stretto: needs Python 3.11 or 3.12; found $(python3 --version 2>&1)" >&2
    exit 1
  fi
  echo "Creating .venv with $($python --version)"
  "$python" -m venv --clear .venv
fi

# pip fetches uv, uv fetches the rest: minutes become seconds. Both check every file's hash.
awk '/^[^ ]/ { wanted = /^uv==/ } wanted' requirements.txt >.venv/uv.txt
.venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --require-hashes -r .venv/uv.txt
UV_HTTP_TIMEOUT=300 .venv/bin/uv pip install --python .venv/bin/python --require-hashes -r requirements.txt

site_packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/frontends/python" >"$site_packages/stretto.pth"
