#!/bin/sh
# Report on some tables of the lab, as the documentation shows it. Run by scripts/run.sh.
#
#   scripts/sample-report.sh [FOLDER]
#
# Into build/sample-report, unless a folder is named. The lake is build/sample-lake, or ICEKIT_SAMPLE_LAKE.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/sample-report}
tables="small_files skewed_small_files position_deletes equality_deletes fragmented_manifests skewed_partitions unclustered healthy_partitioned"
ICEKIT_LAKE=${ICEKIT_SAMPLE_LAKE:-$PWD/build/sample-lake}
export ICEKIT_LAKE
# shellcheck disable=SC2086
python -m icekit lab $tables
rm -rf "$folder"
# shellcheck disable=SC2046
python -m icekit report $(printf 'lab.%s ' $tables) --output "$folder" --history "$folder/history.db"
