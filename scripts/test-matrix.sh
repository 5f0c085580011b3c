#!/bin/sh
# Run the core Spark tests, and some commands, on each Spark that icekit runs on and on an older Iceberg, and write the support matrix of
# README.md and docs/limits.md from that. Run by scripts/run.sh.
#
#   scripts/run.sh scripts/test-matrix.sh                 # all
#   scripts/run.sh scripts/test-matrix.sh 3.5 4.1:1.11.0  # Spark, or Spark:Iceberg; the other rows stay
set -eu
runs=$PWD/build/matrix
mkdir -p "$runs"
before=$PATH
failures=

# Run a command of icekit; the matrix names those that succeed.
tried() {
    name=$1
    shift
    if icekit "$@" >"$runs/$pair.log" 2>&1; then
        echo "$name" >>"$runs/$pair.commands"
    else
        cat "$runs/$pair.log"
        failures="$failures $pair: $name."
    fi
}

for pair in ${*:-3.5 4.0 4.1 4.1:1.11.0}; do
    spark=${pair%%:*}
    iceberg=${pair#"$spark"}
    venv=$runs/venv-$spark
    PATH=$before
    uv venv --quiet --clear --python "$(command -v python)" "$venv"
    uv pip install --quiet --python "$venv" "pyspark==$spark.*" --editable '.[schedule,lab]' pytest pytest-xdist hypothesis aiosmtpd packaging nbval
    PATH=$venv/bin:$PATH
    # Empty: the newest.
    export ICEKIT_ICEBERG="${iceberg#:}"
    rm -rf "$runs/$pair" "$runs/$pair".*
    # What older versions warn of is no error of icekit's.
    python -m pytest -n 2 --dist loadfile -m 'spark and core and not slow and not browser and not soak' --junitxml "$runs/$pair.xml" \
        --ignore tests/browser --ignore tests/test_docs_site.py -o filterwarnings=default || failures="$failures $pair: tests."
    export ICEKIT_LAKE="$runs/$pair/lake" ICEKIT_LEDGER="$runs/$pair/ledger.db"
    tried lab lab small_files long_upsert_stream position_deletes
    tried look look lab.position_deletes --collector spark
    tried 'compact --execute' compact lab.small_files --execute
    tried 'compact --execute (equality deletes)' compact lab.long_upsert_stream --execute
    tried 'tune file-sizes' tune file-sizes lab.small_files --output "$runs/$pair"
    tried report report lab.small_files --output "$runs/$pair/reports"
    unset ICEKIT_LAKE ICEKIT_LEDGER
done
unset ICEKIT_ICEBERG
PATH=$before
python scripts/support-matrix.py
if [ -n "$failures" ]; then
    echo "failed:$failures" >&2
    exit 1
fi
