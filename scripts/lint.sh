#!/bin/sh
# Runs every check of `make lint`, also after one has failed, with one line for each and the whole output of those that
# fail. None but actionlint needs the network.
set -u
cd "$(dirname -- "$0")/.." || exit 2
bin=$PWD/.venv/bin

PATH=$bin:$PATH
VIRTUAL_ENV=$PWD/.venv # ansible-lint keeps its own files there instead of making a folder .ansible
ANSIBLE_HOME=${ANSIBLE_HOME:-$PWD/.cache/ansible}
NO_COLOR=1
UV_CACHE_DIR=${TURB_KUB_CACHE_DIR:-$PWD/.cache}/uv
# The user's settings for uv are for other projects: with another index the lock would seem stale.
UV_NO_CONFIG=1
unset UV_INDEX_URL UV_EXTRA_INDEX_URL UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS UV_FROZEN UV_LOCKED UV_PYTHON
export PATH VIRTUAL_ENV ANSIBLE_HOME NO_COLOR UV_CACHE_DIR UV_NO_CONFIG

# ansible-lint leaves files in the folder for temporary ones.
TMPDIR=$(mktemp -d) || exit 2
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
trap 'exit 130' INT TERM
output=$TMPDIR/output
failed=0

check() {
    name=$1
    shift
    started=$(date +%s)
    if "$@" >"$output" 2>&1 </dev/null; then
        printf 'ok      %-26s %3d s\n' "$name" $(($(date +%s) - started))
    else
        printf 'FAILED  %-26s %3d s: %s\n' "$name" $(($(date +%s) - started)) "$*"
        sed 's/^/    /' "$output"
        failed=$((failed + 1))
    fi
}

# Waits for a check that was started before, and says what it said.
finished() {
    code=0
    wait "$1" || code=$?
    cat "$2"
    return "$code"
}

# It takes as long as all others together, on one processor.
ansible-lint --offline -q >"$TMPDIR/ansible-lint" 2>&1 </dev/null &
ansible_lint=$!
trap 'kill "$ansible_lint" 2>/dev/null; exit 130' INT TERM

shell_scripts=$(find scripts .ci roles -type f \( -name "*.sh" -o -name run -o -path "*/kind_node/entrypoint" -o -path "*/shim/docker" \))

check 'lock is up to date' uv lock --check --offline
check 'ruff check' ruff check --quiet --output-format concise
check 'ruff format' ruff format --check --quiet --output-format concise
check 'mypy --strict' mypy
check 'import-linter' lint-imports --cache-dir .cache/import-linter
# shellcheck disable=SC2086 # a list of names without spaces
check 'shellcheck' shellcheck $shell_scripts
check 'yamllint' yamllint --strict .
check 'ansible-lint' finished "$ansible_lint" "$TMPDIR/ansible-lint"
# Built by the user's Go, once: with an empty cache that alone of all checks asks the network.
workflows() (
    go=${TURB_KUB_CACHE_DIR:-$PWD/.cache}/go
    GOMODCACHE=$go/mod GOCACHE=$go/build GOPATH=$go/path GOFLAGS=-modcacherw GOWORK=off CGO_ENABLED=0
    export GOMODCACHE GOCACHE GOPATH GOFLAGS GOWORK CGO_ENABLED
    files=$(find "$PWD/.github/workflows" -name '*.yml' 2>/dev/null)
    # shellcheck disable=SC2086 # a list of names
    cd tools/actionlint && go tool actionlint $files
)
if command -v go >/dev/null; then
    check 'actionlint' workflows
else
    echo 'skipped actionlint: there is no go on PATH'
fi
if [ -d changelogs ]; then
    check 'antsibull-changelog' antsibull-changelog lint
fi

if [ "$failed" -ne 0 ]; then
    echo "$failed of the checks failed"
    exit 1
fi
