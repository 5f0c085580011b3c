#!/bin/sh
# Run the core Spark tests, those marked matrix, and some commands, on each Spark that icekit runs on, on an older Iceberg, and on Python 3.13 if it is there, and
# write the support matrix of README.md and docs/limits.md from that. Run by scripts/run.sh.
#
#   scripts/run.sh scripts/test-matrix.sh                            # all
#   scripts/run.sh scripts/test-matrix.sh 3.5 4.1:1.11.0 4.1::3.13   # Spark[:Iceberg[:Python]]; the other rows stay
set -eu
runs=$PWD/build/matrix
mkdir -p "$runs"
before=$PATH
failures=

# Run a command of icekit; the matrix names those that succeed.
tried() {
    name=$1
    shift
    if icekit "$@" >"$run.log" 2>&1; then
        echo "$name" >>"$run.commands"
    else
        cat "$run.log"
        failures="$failures $pair: $name."
    fi
}

newer=
python3.13 --version >/dev/null 2>&1 && newer=4.1::3.13
for pair in ${*:-3.5 4.0 4.1 4.1:1.11.0 $newer}; do
    IFS=: read -r spark iceberg python <<-END
	$pair
	END
    # Hadoop takes no colon in a path.
    run=$runs/$spark-${iceberg:-newest}${python:+-python$python}
    PATH=$before
    python=$("python$python" -c 'import sys; print(sys.executable)')
    venv=$runs/venv-$spark
    uv venv --quiet --clear --python "$python" "$venv"
    uv pip install --quiet --python "$venv" "pyspark==$spark.*" --editable '.[spark,notebook,sql]' pytest pytest-xdist hypothesis packaging nbval
    PATH=$venv/bin:$PATH
    # Empty: the newest.
    export ICEKIT_ICEBERG="$iceberg"
    rm -rf "$run" "$run".*
    # What older versions warn of is no error of icekit's.
    python -m pytest -n 2 --dist loadfile -m 'spark and (matrix or core and not variant and not slow) and not browser and not soak' --junitxml "$run.xml" \
        --ignore tests/browser --ignore tests/test_docs_site.py -o filterwarnings=default || failures="$failures $pair: tests."
    # Of an Iceberg that icekit only reads with, the types.
    case $spark:$iceberg in
        3.5:|4.0:) ICEKIT_ICEBERG=1.10.1 python -m pytest -m matrix tests/engine/test_column_types.py -o filterwarnings=default || failures="$failures $spark:1.10.1: types." ;;
    esac
    export ICEKIT_LAKE="$run/lake" ICEKIT_LEDGER="$run/ledger.db"
    tried lab lab small_files long_upsert_stream position_deletes
    tried look look lab.position_deletes --collector spark
    tried 'compact --execute' compact lab.small_files --execute
    tried 'compact --execute (equality deletes)' compact lab.long_upsert_stream --execute
    tried 'tune file-sizes' tune file-sizes lab.small_files --output "$run"
    tried report report lab.small_files --output "$run/reports"
    unset ICEKIT_LAKE ICEKIT_LEDGER
done
unset ICEKIT_ICEBERG
PATH=$before
python scripts/support-matrix.py
if [ -n "$failures" ]; then
    echo "failed:$failures" >&2
    exit 1
fi
