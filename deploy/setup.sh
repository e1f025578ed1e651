#!/usr/bin/env bash
# Sets up Waylog in .venv, from Debian's packages and PyPI alone. Every step is skipped when it is done.
#   deploy/setup.sh run     what `waylog up` needs
#   deploy/setup.sh test    that, and what the tests need (a headless browser among it)
# Debian's packages are installed by apt where this user may (root, or sudo without a password);
# otherwise the one command to type is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-run}
venv=.venv
stamps=$venv/.setup
say() { printf 'setup: %s\n' "$*" >&2; }

debian_packages() {
  local missing=()
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    || { say "Python 3.11 or newer is needed as python3"; exit 1; }
  [ -x $venv/bin/pip ] || python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  command -v cc >/dev/null || missing+=(gcc libc6-dev)
  [ -f "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] \
    || missing+=(python3-dev)
  if [ "$purpose" = test ] && ! browser_there && apt-cache show chromium-headless-shell >/dev/null 2>&1; then
    missing+=(chromium-headless-shell)
  fi
  [ ${#missing[@]} -eq 0 ] && return
  local install="apt-get install -y --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" = 0 ]; then
    say "installing ${missing[*]}"
    (apt-get update -qq && DEBIAN_FRONTEND=noninteractive $install -qq) >/dev/null || optional
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    say "installing ${missing[*]} (sudo)"
    (sudo apt-get update -qq && sudo DEBIAN_FRONTEND=noninteractive $install -qq) >/dev/null || optional
  elif [ "${missing[*]}" = chromium-headless-shell ]; then
    say "the browser test will be skipped; for it, type: sudo $install"
  else
    say "please type this, then start again: sudo $install"
    exit 1
  fi
}

# Without the browser only one test is skipped; without the compiler nothing works.
optional() { command -v cc >/dev/null && say "a package could not be installed; going on"; }

browser_there() {
  command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null \
    || command -v google-chrome >/dev/null
}

# done_for NAME FILE...: was step NAME done for exactly these contents?
done_for() { [ "$(cat "$stamps/$1" 2>/dev/null)" = "$(cat "${@:2}" | sha256sum)" ]; }
mark_done() { mkdir -p $stamps; cat "${@:2}" | sha256sum >"$stamps/$1"; }

python_packages() {
  local extras=world,geo,replay,avro,protobuf,streams,spark,load inputs=(pyproject.toml deploy/constraints.txt deploy/setup.sh)
  [ "$purpose" = test ] && extras+=,test
  done_for "packages-$purpose" "${inputs[@]}" && return
  [ -x $venv/bin/pip ] || { say "creating $venv"; python3 -m venv $venv; }
  say "installing Python packages from PyPI (the first time takes minutes: Spark alone is 450 MB)"
  $venv/bin/pip install -q --disable-pip-version-check -c deploy/constraints.txt setuptools wheel Cython
  # "compat": a path, not a finder of modules, which costs each start 50 ms of processor time.
  WAYLOG_SKIP_EXTENSIONS=1 $venv/bin/pip install -q --disable-pip-version-check --no-build-isolation \
    -c deploy/constraints.txt --config-settings editable_mode=compat -e ".[$extras]"
  mark_done "packages-$purpose" "${inputs[@]}"
  [ "$purpose" = test ] && mark_done packages-run "${inputs[@]}"
  return 0
}

extensions() {
  local sources
  sources=$(git ls-files '*.pyx' '*.pxd' 2>/dev/null || find . -name '*.p[yx][xd]' -not -path './.venv/*')
  # shellcheck disable=SC2086
  done_for extensions setup.py $sources && return
  say "compiling Cython extensions"
  local compiled
  # What an older version has left: its sources are elsewhere now.
  while read -r compiled; do
    [ -f "${compiled%%.*}.pyx" ] || rm -f "$compiled"
  done < <(find waylog broker_core gateway geoservice consumers spark load_tests -name '*.so')
  $venv/bin/python setup.py -q build_ext --inplace -j 2 >build-extensions.log 2>&1 \
    || { tail -n 40 build-extensions.log >&2; exit 1; }
  rm -f build-extensions.log
  # shellcheck disable=SC2086
  mark_done extensions setup.py $sources
}

# The user of a service may not write where its code is, and would compile all of it at each start.
bytecode() {
  $venv/bin/python -m compileall -q waylog broker_core gateway geoservice consumers spark load_tests
}

# pytest rewrites the asserts of each file that it imports, and keeps the result. Without this, each
# of the processes that `make test` starts at once would rewrite all files of a fresh checkout.
rewritten_tests() {
  [ "$purpose" = test ] || return 0
  [ -n "$(find tests -name '*-pytest-*.pyc' -print -quit)" ] && return
  say "compiling the tests"
  local half halves=()
  for half in 'a-f' 'g-z'; do
    # shellcheck disable=SC2086
    env -u PYTHONDONTWRITEBYTECODE $venv/bin/python -m pytest --collect-only -qq tests/[$half]*/ >/dev/null 2>&1 &
    halves+=($!)
  done
  # What cannot be collected is told when the tests run.
  wait "${halves[@]}" || true
}

world() {
  local inputs=(pyproject.toml geoservice/{index,search,world}/*.py geoservice/index/index.pyx gateway/web/*.py)
  done_for world "${inputs[@]}" && [ -f geoservice/world/world.bin ] && [ -d gateway/web/vendor ] \
    && [ -d gateway/web/world ] && return
  say "building the embedded world: towns, borders, base map"
  $venv/bin/waylog geo world --output geoservice/world/world.bin >&2
  $venv/bin/python -m gateway.web.vendor >&2
  $venv/bin/python -m gateway.web.base_map >&2
  mark_done world "${inputs[@]}"
}

debian_packages
python_packages
extensions
bytecode
world
rewritten_tests
