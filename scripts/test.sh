#!/bin/sh
# Run a tier of the tests: check, gate or all. Run by scripts/run.sh.
#
# What needs one core runs beside something else. Its output is shown when it has ended.
set -eu
tier=$1
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Start a command; `joined NAME` waits for it, shows what it said, and fails if it failed.
beside() {
    name=$1
    shift
    ("$@" >"$logs/$name" 2>&1 && echo 0 >"$logs/$name.status" || echo 1 >"$logs/$name.status") &
    echo $! >"$logs/$name.pid"
}

joined() {
    wait "$(cat "$logs/$1.pid")"
    cat "$logs/$1"
    return "$(cat "$logs/$1.status")"
}

lint() {
    python -m ruff check && python -m ruff format --check && python -m mypy
}

# One worker more than two cores: a test waits now and then, for a process or for a lock. What
# pytest makes of the tests' code is kept: made here, it is not made again by each worker.
tests() {
    beside a-to-p python -m pytest -p no:nbval --collect-only -q tests/[a-p]*/
    python -m pytest -p no:nbval --collect-only -q tests/[q-z]*/ tests/test_*.py rigs >/dev/null || true
    joined a-to-p >/dev/null || true
    python -m pytest -p no:nbval -n 3 --dist loadfile --no-loadscope-reorder --durations=10 -m "not browser and not soak and not servers and not cluster and $1"
}

case $tier in
    check)
        beside lint lint
        tests "not slow and not spark"
        joined lint
        ;;
    gate)
        tests "not slow and (core or not spark)"
        beside lint lint
        scripts/test-notebooks.sh 00_start_here 01_diagnose 02_compact 03_maintain
        joined lint
        ;;
    all)
        beside lint lint
        beside chromium scripts/test-browser.sh install
        tests "not soak"
        joined lint
        joined chromium
        beside browser scripts/test-browser.sh
        scripts/test-notebooks.sh
        joined browser
        scripts/test-servers.sh
        if [ -x scripts/test-lowest.sh ]; then scripts/test-lowest.sh; fi
        ;;
    *)
        echo "scripts/test.sh check, gate or all" >&2
        exit 2
        ;;
esac
