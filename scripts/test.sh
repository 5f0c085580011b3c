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

others() {
    tests "not spark and $1" && lint
}

lint() {
    python -m ruff check && python -m ruff format --check && python -m mypy
}

# Marks, and then files and options.
tests() {
    marks=$1
    shift
    python -m pytest -p no:nbval --durations=10 -m "not browser and not soak and not servers and not cluster and $marks" "$@"
}

# Two workers, each with a Spark of its own: starting one takes as long as ten tests. Workers collect only the files that they are given.
spark() {
    marks=$1
    shift
    tests "spark and $marks" -n 2 --dist loadfile "$@"
}

failed=
case $tier in
    check)
        beside lint lint
        tests "not slow and not spark" -n 2
        joined lint
        ;;
    gate)
        beside others others "not slow"
        # shellcheck disable=SC2046
        spark "core and not variant and not slow" $(grep -rl --include 'test_*.py' 'pytest\.mark\.core' tests rigs) &&
            scripts/test-notebooks.sh 01_diagnose 02_compact 03_maintain || failed=yes
        joined others || failed=yes
        ;;
    all)
        beside others others "not soak"
        beside chromium scripts/test-browser.sh install
        spark "not soak" || failed=yes
        joined others || failed=yes
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
[ -z "$failed" ]
