#!/bin/sh
# Build the wheel, install it into an empty environment, and report on the lab from there. Run by scripts/run.sh.
#
# What is missing from the wheel (a notebook, a template, a requirement) is missing here too: nothing of the checkout is on the path.
set -eu
root=$PWD
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$room" "$root"
python -m venv "$room/venv"
wheel=$(echo "$room"/icekit-*.whl)
"$room/venv/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$root/constraints.txt" "$wheel[lab]"
cd "$room"
unset ICEKIT_LAKE
PATH=$room/venv/bin:$PATH
icekit --version
icekit lab small_files position_deletes healthy_partitioned
icekit report 'lab.*' --output reports
test -s reports/index.html
test -s reports/lab.small_files.html
ls "$room"/venv/share/icekit/notebooks
echo "the wheel is whole: $(basename "$wheel")"
