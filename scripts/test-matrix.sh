#!/bin/sh
# Run the core Spark tests on each Spark that icekit runs on, each in an environment of its own. Run by scripts/run.sh.
#
#   scripts/run.sh scripts/test-matrix.sh        # 3.5, 4.0 and 4.1
#   scripts/run.sh scripts/test-matrix.sh 3.5
set -eu
for spark in ${*:-3.5 4.0 4.1}; do
    venv=build/matrix-$spark
    uv venv --quiet --clear --python "$(command -v python)" "$venv"
    uv pip install --quiet --python "$venv" "pyspark==$spark.*" --editable '.[schedule,lab]' pytest pytest-xdist hypothesis aiosmtpd packaging nbval
    uv pip list --quiet --python "$venv" | grep -iE '^(pyspark|pyiceberg|pyarrow|pandas|numpy) '
    # What older versions warn of is no error of icekit's.
    PATH=$PWD/$venv/bin:$PATH python -m pytest -n 2 --dist loadfile -m 'spark and core and not slow and not browser and not soak' \
        --ignore tests/browser --ignore tests/test_docs_site.py -o filterwarnings=default
done
