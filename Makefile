# Targets for people; `make help` lists them. Everything is set up on first use (deploy/setup.sh).
.DEFAULT_GOAL := help
.PHONY: help run setup setup-test test test-long test-kafka explore sim lint bench fuzz docs clean

PYTHON := .venv/bin/python
SOURCES := waylog broker_core gateway geoservice consumers spark load_tests tests
# The tests start hundreds of processes, and pytest rewrites each of its files: once, if it may keep them.
unexport PYTHONDONTWRITEBYTECODE

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

run: setup  ## set up what is missing and start the platform; Ctrl-C stops it
	@exec .venv/bin/waylog up $(UP)

setup:  ## install what `make run` needs
	@deploy/setup.sh run

setup-test:  ## install what the tests need
	@deploy/setup.sh test

# A process that dies ends the run: with loadfile, pytest-xdist 3.8 would give the files that it had
# finished to the others again, which then wait for ever.
test: setup-test  ## the tests, in less than 15 minutes on two cores
	$(PYTHON) -m pytest -n 7 --dist loadfile --no-loadscope-reorder --max-worker-restart=0 -m "not long and not kafka" $(PYTEST)

test-long: setup-test  ## the long tests too
	$(PYTHON) -m pytest -m "not kafka" --hypothesis-profile=explore $(PYTEST)

test-kafka: setup-test  ## contract and end-to-end tests on Apache Kafka (Java 17, Maven Central)
	$(PYTHON) -m pytest -m kafka $(PYTEST)

explore: setup-test  ## the property tests with new examples each time, `make explore ROUNDS=20`
	for round in $$(seq $(or $(ROUNDS),10)); do \
	  $(PYTHON) -m pytest -q -n 3 -m "hypothesis and not kafka" --hypothesis-profile=explore $(PYTEST) || exit 1; \
	done

sim: setup-test  ## the platform and its parts under simulated faults, `make sim SEEDS=10000`
	$(PYTHON) -m tests.simulation.joined.run --seeds $(or $(SEEDS),1000)
	$(PYTHON) -m tests.simulation.simulate --seeds $(or $(SEEDS),1000)
	$(PYTHON) -m tests.simulation.replication 0 $(or $(SEEDS),1000)
	$(PYTHON) -m tests.simulation.simulate --of controller --seeds $(or $(SEEDS),1000)

lint: setup-test  ## ruff, mypy --strict, the rules of who imports whom
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	deploy/check_private_api.sh

bench: setup-test  ## rates of the parts and CPU per fix, as docs/performance.md has them
	$(PYTHON) -m load_tests.benches.bench $(BENCH)

fuzz: setup-test  ## fuzz all parsers for a minute each (needs clang; FUZZ="--seconds 600")
	.venv/bin/pip install -q --disable-pip-version-check -c deploy/constraints.txt atheris
	$(PYTHON) tests/fuzz/run.py $(FUZZ)

docs: setup-test  ## check the commands of README.md and docs/
	$(PYTHON) -m pytest tests/docs $(PYTEST)

clean:  ## remove the environment and everything that was built; data stays
	rm -rf .venv build *.egg-info geoservice/world/*.bin gateway/web/vendor gateway/web/world
	find $(SOURCES) -name '*.so' -delete
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
