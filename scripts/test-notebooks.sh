#!/bin/sh
# Run every notebook from top to bottom as a test, on a lab of its own. Run by scripts/run.sh.
#
# The lake that a person works in is not touched, and its state does not decide the outcome.
set -eu
ICEKIT_LAKE=$PWD/build/lake
export ICEKIT_LAKE
# Compiled lightly, as in tests/conftest.py: many short queries, each run once.
ICEKIT_SPARK_CONF="'spark.driver.extraJavaOptions=-Djava.util.concurrent.ForkJoinPool.common.parallelism=8 -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC'"
export ICEKIT_SPARK_CONF
icekit lab
# Two at a time: a notebook is mostly one thread that plans.
python -m pytest -n 2 --dist loadfile --nbval-lax --nbval-current-env --ignore=notebooks/lessons notebooks
# Last, since they change lab tables and put them back: the lessons with their exercises solved, in one kernel.
python -m pytest tests/lessons/unattended.py
