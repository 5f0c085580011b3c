#!/bin/sh
# Build the documentation into build/docs, with a report on tables of the lab. Run by scripts/run.sh.
#
# A report that is newer than the code stays. Every warning is an error.
set -eu
cd "$(dirname "$0")/.."
sample=build/sample-report
if [ ! -s "$sample/index.html" ] || [ -n "$(find icekit notebooks/01_diagnose.ipynb \( -name '*.py' -o -name '*.html' -o -name '*.ipynb' \) -newer "$sample/index.html")" ]; then
    scripts/sample-report.sh "$sample"
fi
rm -rf build/docs build/docs-extra
mkdir -p build/docs-extra/sample
cp "$sample"/*.html "$sample"/*.json build/docs-extra/sample/
ICEKIT_DOCS_EXTRA=$PWD/build/docs-extra python -m sphinx --builder html --conf-dir docs --doctree-dir build/docs-read --nitpicky --fail-on-warning --keep-going --quiet . build/docs
echo "HTML  $PWD/build/docs/index.html"
