#!/bin/sh
# Build the wheel, install it into an empty environment, first alone and then with more extras, and try there what each brings. Run by scripts/run.sh.
#
# What is missing from the wheel (a notebook, a template, a requirement) is missing here too: nothing of the checkout is on the path.
# The sizes of README are those that are measured here, within a twentieth.
set -eu
root=$PWD
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$room" "$root"
python -m venv "$room/venv"
wheel=$(echo "$room"/icekit-*.whl)
cd "$room"
unset ICEKIT_LAKE PYTHONPATH PYTHONPYCACHEPREFIX  # pip compiles what it installs into the environment, as for everybody
PATH=$room/venv/bin:$PATH

pip_install() { python -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" "$1"; }

# The size of an environment, which README has after the command that installs it.
check_size() {
    size=$(du -sm "$2" | cut -f 1)
    stated=$(sed -n "s/^pip install $1 .*; \([0-9,]*\) MB\$/\1/p" "$root/README.md" | tr -d ,)
    echo "pip install $1: $size MB; README says $stated MB"
    test $((size * 20)) -le $((stated * 21))
    test $((size * 20)) -ge $((stated * 19))
}

refused() {
    status=0
    icekit $1 2>refused || status=$?
    test $status = 2
    echo "icekit: $2 needs $3, which is not installed: run \`pip install 'icekit[$4]'\`." | diff - refused
}

pip_install "$wheel"
icekit --version
check_size '\.' venv
test "$size" -le 350
python - <<END
import importlib.util

brought = [
    name
    for name in "IPython debugpy fontTools ipykernel ipywidgets jedi matplotlib numpy pandas papermill PIL pyspark sqlalchemy".split()
    if importlib.util.find_spec(name) is not None
]
assert not brought, brought
END
refused "report db.events" "icekit report" papermill report
refused notebook "icekit notebook" jupyterlab notebook
ICEKIT_LAKE=$room/demo icekit demo | grep 'icekit compact lab.small_files --trial'
ICEKIT_LAKE=$room/demo icekit look 'lab.*' --storage | grep 'lab.unmatched_deletes'
# The lake of a table, made by an environment that can write one.
python -m venv "$room/writing"
"$room/writing/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" "pyiceberg[sql-sqlite,pyarrow]"
"$room/writing/bin/python" - <<END
import os
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

os.mkdir("lake")
with SqlCatalog("lake", uri="sqlite:///$room/lake/catalog.db", warehouse="$room/lake/warehouse") as catalog:
    catalog.create_namespace("db")
    table = catalog.create_table("db.events", pa.schema([("id", pa.int64())]))
    for number in range(12):
        table.append(pa.table({"id": [number]}))
END
icekit look | grep '▲ warning .*db.events .*11 of 12 would go'
icekit look db.events | grep 'compaction would remove 11 of 12 data files'
icekit look db.events --storage | grep 'searched for missing and orphan files'
icekit plan db.events | grep 'icekit compact db.events --trial'
icekit compact db.events | grep 'Nothing has run.'
icekit compare db.events db.events --html compared.html
test -s compared.html
icekit demo | grep 'compaction would remove 107 of 112 data files'
refused "compact db.events --execute" This pyspark spark
rm -r "$room/writing"

pip_install "$wheel[report]"
check_size "'\.\[report\]'" venv
icekit report db.events --output without-spark
test -s without-spark/db.events.html

python -m venv spark
(PATH=$room/spark/bin:$PATH && pip_install "$wheel[spark]")
check_size "'\.\[spark\]'" spark
rm -r spark

pip_install "$wheel[all]"
check_size "'\.\[all\]'" venv
icekit lab
icekit report 'lab.*' --output reports
test -s reports/index.html
test -s reports/lab.small_files.html
ls "$room"/venv/share/icekit/notebooks
echo "the wheel is whole: $(basename "$wheel")"
