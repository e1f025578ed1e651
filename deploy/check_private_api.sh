#!/usr/bin/env bash
# Fails when a Cython source names a private interface of CPython (_Py..., pythonapi): those come and go with
# each version of Python.
#   deploy/check_private_api.sh [FOLDER]
set -uo pipefail
cd "${1:-$(dirname "$0")/..}" || exit 2
found=$(grep -rnE '\b_Py_?[A-Z]\w+|\bpythonapi\b' \
  --include='*.pyx' --include='*.pxd' --exclude-dir=.venv --exclude-dir=build .)
[ -z "$found" ] && exit 0
printf 'a private interface of CPython, which another version may not have:\n%s\n' "$found"
exit 1
