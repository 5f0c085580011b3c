#!/bin/sh
# Build the wheel, install it into an empty environment, first without Spark and then with it, and report on tables from there. Run by scripts/run.sh.
#
# What is missing from the wheel (a notebook, a template, a requirement) is missing here too: nothing of the checkout is on the path.
set -eu
root=$PWD
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$room" "$root"
python -m venv "$room/venv"
wheel=$(echo "$room"/icekit-*.whl)
cd "$room"
unset ICEKIT_LAKE PYTHONPATH
PATH=$room/venv/bin:$PATH

pip_install() { python -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" "$1"; }

pip_install "$wheel"
icekit --version
python - <<END
import importlib.util, os
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

assert importlib.util.find_spec("pyspark") is None, "the base install brings Spark"
os.mkdir("lake")
with SqlCatalog("lake", uri="sqlite:///$room/lake/catalog.db", warehouse="$room/lake/warehouse") as catalog:
    catalog.create_namespace("db")
    table = catalog.create_table("db.events", pa.schema([("id", pa.int64())]))
    for number in range(12):
        table.append(pa.table({"id": [number]}))
END
icekit look db.events | grep 'compaction would remove 11 of 12 data files'
icekit report db.events --output without-spark
test -s without-spark/db.events.html
status=0
icekit compact db.events 2>refused || status=$?
test $status = 2
echo "icekit: This needs pyspark, which is not installed: run \`pip install 'icekit[spark]'\`." | diff - refused

pip_install "$wheel[spark,lab]"
icekit lab small_files position_deletes healthy_partitioned
icekit report 'lab.*' --output reports
test -s reports/index.html
test -s reports/lab.small_files.html
ls "$room"/venv/share/icekit/notebooks
echo "the wheel is whole: $(basename "$wheel")"
