# Each target works in an empty clone: scripts/setup.sh makes .venv with the extras that it needs, and finds or installs Java.
.DEFAULT_GOAL := help
.PHONY: help help-dev report lab lab-archive notebook check test test-all test-browser screenshots test-airflow test-wheel test-lowest test-matrix test-servers test-cluster lock bench bench-headline bench-equality-deletes soak mutants api docs clean

RUN := scripts/run.sh
# Each names what is public in its __all__.
PUBLIC := icekit icekit.engine.lake icekit.health icekit.health.diagnose icekit.maintain.policy icekit.maintain.planning.table_plan icekit.maintain.planning.conversion icekit.maintain.planning.maintenance icekit.rows.proof.proof icekit.sandbox.trial \
	icekit.tune.write_mode icekit.tune.merge icekit.tune.layout icekit.tune.metrics_columns icekit.tune.planning icekit.tune.answer \
	icekit.report.history.store icekit.report.service icekit.report.schedule icekit.show.widgets icekit.learn.lab icekit.learn.lessons icekit.notebook icekit.common.errors

# A target for people who use icekit has ##, one for developers has #+.
help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "make %-22s %s\n", $$1, $$2 }'

help-dev:  ## list the targets for developers
	@sed -n 's/^\([a-z-]*\):.*#+ /\1|/p' Makefile | awk -F'|' '{ printf "make %-22s %s\n", $$1, $$2 }'

report:  ## report on the lab's tables into reports/
	@scripts/setup.sh report
	@$(RUN) icekit lab
	@$(RUN) icekit report 'lab.*' --storage --output reports --history reports/history.db

lab:  ## put the lab's tables, one per problem, into the embedded lake
	@scripts/setup.sh
	@$(RUN) icekit lab --all

notebook:  ## open the notebooks in JupyterLab (JUPYTER_FLAGS="--no-browser --port 8888" on a server)
	@scripts/setup.sh notebook,spark
	@$(RUN) icekit notebook -- $(JUPYTER_FLAGS)

check:  #+ lint, types, and the quick tests that need no Spark; takes two minutes
	@scripts/setup.sh test
	@$(RUN) scripts/test.sh check

test:  ## what a change must pass: check, the Spark tests that protect data, three notebooks; 4 to 8 minutes
	@scripts/setup.sh test
	@$(RUN) scripts/test.sh gate

test-all:  #+ everything, before a release: also the other Spark tests, notebooks, lessons and browser tests, and real servers; 45 minutes
	@scripts/setup.sh dev
	@$(RUN) scripts/test.sh all

test-browser:  #+ use the notebooks' controls in JupyterLab and Chromium
	@scripts/setup.sh dev
	@$(RUN) scripts/test-browser.sh

screenshots:  #+ picture every notebook, as its page and in JupyterLab, into build/screenshots
	@scripts/setup.sh dev
	@$(RUN) scripts/test-browser.sh --screenshots

bench:  #+ measure what has a goal, as ratios to the alternatives of the same run; 20 minutes
	@scripts/setup.sh dev
	$(RUN) python -m rigs.bench

bench-headline:  #+ measure the figures of README: icekit compact and Spark's own rewrite, from the command to the prompt; up to 25 minutes
	@scripts/setup.sh dev
	$(RUN) python -m rigs.bench.headline

bench-equality-deletes:  #+ measure compactions under equality deletes beside Spark's own rewrite, in all sizes; goes on where it was interrupted
	@scripts/setup.sh dev
	$(RUN) python -m rigs.bench.equality_deletes --long

soak:  #+ kill compactions at random moments, write while they run, run long random histories, and read random tables by every reader
	@scripts/setup.sh dev
	$(RUN) python -m rigs.soak
	$(RUN) python -m rigs.soak --writer
	$(RUN) python -m rigs.soak --convert
	$(RUN) python -m rigs.model
	$(RUN) python -m rigs.torture --rounds 100
	$(RUN) python -m pytest -m soak

mutants:  #+ make one small change at a time to the pure modules, and list those that no test notices; takes about an hour
	@scripts/setup.sh dev
	@# An editable install would bring the code as it is; the changed copy comes first.
	@# Python takes a folder that is not there when it starts for one that never will be.
	@mkdir -p mutants
	PYTHONPATH=$(CURDIR)/mutants $(RUN) python -m mutmut run
	@echo 'python -m mutmut show NAME tells what was changed:'
	@$(RUN) python -m mutmut results

test-airflow:  #+ execute the recipe's DAG in a real Airflow, in an environment of its own; installing it takes minutes
	@scripts/setup.sh dev
	$(RUN) scripts/test-airflow.sh

test-lowest:  #+ install the lowest versions that pyproject.toml allows into an environment of its own, and run the tests without Spark and a report there
	@scripts/setup.sh dev
	$(RUN) scripts/test-lowest.sh

test-matrix:  #+ run the core Spark tests on Spark 3.5, 4.0 and 4.1, and on an older Iceberg, and write the support matrix; an hour
	@scripts/setup.sh dev
	$(RUN) scripts/test-matrix.sh

test-servers:  #+ run every command against real servers on this machine: a REST catalog over S3, and PostgreSQL
	@scripts/setup.sh dev
	@$(RUN) scripts/test-servers.sh

test-cluster:  #+ run on a standalone Spark cluster of two workers in a network of their own, and kill executors; needs root
	@scripts/setup.sh dev
	@$(RUN) python -m pytest -m cluster rigs/cluster

lab-archive:  #+ build the lab's tables with Spark, and write both archives anew; takes some minutes
	@scripts/setup.sh dev
	$(RUN) python -m rigs.lab

lock:  #+ put the newest versions that pyproject.toml allows into constraints.txt, for each Python and platform
	@# Where constraints.txt does not fit pyproject.toml any more, the uv of the last set-up does.
	@test -x .venv/bin/uv || scripts/setup.sh dev
	.venv/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --fork-strategy fewest --all-extras --no-annotate \
		--custom-compile-command 'make lock' --output-file constraints.txt pyproject.toml

docs:  #+ build the documentation, with a sample report and the notebooks as they are stored, into build/docs
	@scripts/setup.sh docs,report,spark
	@$(RUN) scripts/docs.sh

api:  #+ write the reference of the public packages, from their docstrings, to build/api
	@scripts/setup.sh dev
	rm -rf build/api
	$(RUN) python -m pdoc --docformat restructuredtext --output-directory build/api $(PUBLIC)
	@echo "HTML  $(CURDIR)/build/api/index.html"

test-wheel:  #+ install the wheel into an empty environment and report on the lab from there
	@scripts/setup.sh dev
	$(RUN) scripts/test-wheel.sh

clean:  ## remove .venv and caches; lake/, reports/ and my-notebooks/ are yours and stay
	rm -rf .venv build dist mutants *.egg-info .mypy_cache .ruff_cache .pytest_cache spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -type d -prune -exec rm -rf {} +
