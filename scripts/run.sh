#!/bin/sh
# Run a command in what scripts/setup.sh made: .venv's Python and, if it was needed, a Java that Spark runs on.
#
#   scripts/run.sh icekit report 'lab.*'
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
PATH=$root/.venv/bin:$PATH
export PATH
if [ -f "$root/.venv/java-home" ]; then
    JAVA_HOME=$(cat "$root/.venv/java-home")
    export JAVA_HOME
fi
# The Spark that is tested is the one in .venv, whichever else this machine has.
unset SPARK_HOME PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON
# Set-up compiles no module; what is imported is compiled once, whatever this machine's Python is told.
unset PYTHONDONTWRITEBYTECODE
PYTHONPYCACHEPREFIX=$root/.venv/bytecode
export PYTHONPYCACHEPREFIX
exec "$@"
