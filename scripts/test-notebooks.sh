#!/bin/sh
# Run notebooks from top to bottom as tests, on the tests' own lab. Run by scripts/run.sh.
#
#   scripts/test-notebooks.sh [NAME ...]    for example 00_start_here; without a name all of them, and the lessons
#
# The lake that a person works in is not touched, and its state does not decide the outcome.
set -eu
ICEKIT_LAKE=$PWD/build/lake
export ICEKIT_LAKE
# Compiled lightly, as in conftest.py: many short queries, each run once.
ICEKIT_SPARK_CONF="'spark.driver.extraJavaOptions=-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC'"
export ICEKIT_SPARK_CONF
# One kernel, and so one JVM, for all of them.
python -m tests.notebooks.joined build/notebooks.ipynb "$@"
python -m pytest --nbval-lax --nbval-cell-timeout=600 build/notebooks.ipynb
if [ $# -gt 0 ]; then exit; fi
# Last, since they change lab tables and put them back: the lessons with their exercises solved, in one kernel.
exec python -m pytest tests/learn/lessons/unattended.py
