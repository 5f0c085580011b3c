#!/bin/sh
# Test the lower bounds of pyproject.toml in an environment of their own. Run by scripts/run.sh.
#
# Every direct dependency has the lowest version that is allowed there: the tests that need no Spark run with them, and
# a table of the lab is built, looked at and reported on, which starts Spark and runs a notebook. Takes some minutes.
set -eu
venv=build/lowest
ICEKIT_LAKE=$PWD/build/lowest-lake
export ICEKIT_LAKE
uv venv --quiet --clear --python "$(command -v python)" "$venv"
uv pip install --quiet --python "$venv" --resolution lowest-direct --editable '.[spark,notebook,sql]'
# The tests' own tools have the versions of all other tests.
uv pip install --quiet --python "$venv" --constraint constraints.txt pytest pytest-xdist hypothesis packaging
uv pip list --quiet --python "$venv" | grep -iE '^(pyspark|pyiceberg|pyarrow|pandas|numpy|pydantic|matplotlib|papermill) '
PATH=$PWD/$venv/bin:$PATH

# Old libraries warn of what has changed since, which is not an error of icekit's. Sphinx is not here: the documentation is built with pinned versions, and
# so are the published schemas. The builders of the lab need the extra `dev`. An older debugger warns on standard error, which tests read.
PYDEVD_DISABLE_FILE_VALIDATION=1 python -m pytest -n 2 --dist loadfile -m 'not spark and not browser and not soak' --ignore tests/browser --ignore tests/test_docs_site.py --ignore rigs/lab --deselect tests/test_json.py::test_the_published_schema_of_a_document_is_current_and_describes_it -o filterwarnings=default
icekit lab small_files
icekit look lab.small_files --collector spark
icekit report lab.small_files --output build/lowest-reports --junit build/lowest-reports/junit.xml
