#!/bin/sh
# Makes .venv for the rest of the Makefile: finds a Python that will do and hands over to environment.py.
#
#     scripts/bootstrap.sh ansible|dev
#
# Exit code 3 means that there is no Python that will do.
#
# It is POSIX sh and not Python because the Python that it would need is what it looks for. All output goes to
# standard error: `eval "$(make env)"` reads standard output.
set -eu

if [ $# -ne 1 ]; then
    echo "usage: scripts/bootstrap.sh ansible|dev" >&2
    exit 2
fi
group=$1
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
environment=$root/scripts/environment.py
cache=${TURB_KUB_CACHE_DIR:-${XDG_CACHE_HOME:-${HOME:-/}/.cache}/turb-kub}

# Another environment's settings would have Python read that environment's packages, or uv work on that one.
unset PYTHONHOME PYTHONPATH PYTHONSTARTUP VIRTUAL_ENV CONDA_PREFIX

# The everyday case first, since every target of the Makefile passes through here.
own=$root/.venv/bin/python
if [ -x "$own" ] && "$own" -I -S -B "$environment" check "$group" 2>/dev/null; then
    exit 0
fi

# Sets `python` and succeeds where $1 is a Python that will do; `lacks_venv` and `too_old` are for the message at the end.
# Each candidate is run, since a name says little: pyenv's shim python3.12 exists and refuses, Debian's python3 may have
# no ensurepip, a virtual environment's Python may have been removed under it. The test itself must parse everywhere.
python='' lacks_venv='' too_old=''
will_do() {
    status=0
    "$1" -I -c '
import sys
if sys.version_info < (3, 12) or sys.version_info[3] != "final" or sys.implementation.name != "cpython":
    sys.exit(3)
try:
    import ensurepip, ssl, venv
except ImportError:
    sys.exit(4)
' </dev/null >/dev/null 2>&1 || status=$?
    case $status in
        0) python=$1 ;;
        3) too_old=${too_old:-$1} ;;
        4) lacks_venv=${lacks_venv:-$1} ;;
    esac
    return "$status"
}

on_path_or_in_pyenv() {
    # The environment's own Python first: a stale .venv is brought up to date, not made anew.
    will_do "$own" && return
    for name in python3.14 python3.13 python3.12 python3; do
        found=$(command -v "$name") || continue
        will_do "$found" && return
    done
    for versions in "${PYENV_ROOT:-${HOME:-/}/.pyenv}/versions" "$(pyenv root 2>/dev/null || :)/versions" \
        "${HOME:-/}/.pyenv/versions" "$cache/python"; do
        for found in "$versions"/*/bin/python3; do
            [ -x "$found" ] && will_do "$found" && return
        done
    done
    return 1
}

from_uv() {
    command -v uv >/dev/null || return 1
    # The user's uv may be set up for another project. The system's certificates: a company's own authority lies there.
    for name in $(env | sed -n 's/^\(UV_[A-Z0-9_]*\)=.*/\1/p'); do
        case $name in
            UV_HTTP_TIMEOUT | UV_PYTHON_INSTALL_DIR | UV_PYTHON_INSTALL_MIRROR) ;;
            *) unset "$name" ;;
        esac
    done
    export UV_NO_CONFIG=1 UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 UV_CACHE_DIR="$cache/uv"
    found=$(uv python find --no-project --no-python-downloads '>=3.12' 2>/dev/null) && will_do "$found" && return
    echo "No Python 3.12 or newer found: uv downloads one (about 30 MB) into $cache/python" >&2
    uv python install --quiet --no-bin --install-dir "$cache/python" 3.13 >&2 || return 1
    for found in "$cache"/python/*/bin/python3; do
        [ -x "$found" ] && will_do "$found" && return
    done
    return 1
}

if on_path_or_in_pyenv || from_uv; then
    exec "$python" -I -B "$environment" make "$group"
fi

if [ -n "$lacks_venv" ]; then
    echo "turb-kub: $lacks_venv is new enough but lacks its venv module: install it" \
        "(on Debian and Ubuntu: apt-get install python3-venv) and run the same command again." >&2
else
    echo "turb-kub: Python 3.12 or newer is needed and none was found${too_old:+ ($too_old is older)}: install one," \
        "for example with 'pyenv install 3.13' or by installing uv, and run the same command again." >&2
fi
exit 3
