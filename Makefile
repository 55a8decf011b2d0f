# Everything runs in .venv, which the first target makes. Another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
PY := .venv/bin/python
READY := .venv/ready-$(subst /,_,$(PYTHON))

.DEFAULT_GOAL := help
.PHONY: help demo test test-cassandra check bench clean

help:  ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

demo: $(READY)  ## index the Python standard library with real workers, one of which gets killed
	@$(PY) -m examples.stdlib_index

test: $(READY)  ## run every test that needs no server, and the conformance suite once more under python -O
	@echo "test: all tests"
	@$(PY) -m pytest -q --ignore=tests/cassandra
	@echo "test: conformance under python -O"
	@$(PY) -O -m pytest -q tests/conformance

test-cassandra: $(READY)  ## run what needs a real Cassandra, on nodes of its own
	@echo "test: on Cassandra"
	@$(PY) -m pytest -q tests/cassandra

check: $(READY)  ## formatting, lint, types, floors and budgets
	@echo "check: formatting"
	@.venv/bin/ruff format --quiet --check . || { echo "these files want 'ruff format':"; .venv/bin/ruff format --check .; exit 1; }
	@echo "check: lint"
	@.venv/bin/ruff check --quiet .
	@echo "check: types"
	@.venv/bin/mypy --no-error-summary
	@echo "check: floors"
	@.venv/bin/lint-imports --no-cache > .venv/floors.txt || { cat .venv/floors.txt; exit 1; }
	@echo "check: budgets"
	@$(PY) -m tests.house

bench: $(READY)  ## send and drain 100 000 messages on SQLite, as JSON
	@$(PY) -m benchmarks drain --store sqlite --messages 100000 --json

clean:  ## remove .venv and everything else that was made
	@rm -rf .venv build dist *.egg-info .*_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@echo "setting up .venv with $(PYTHON)"
	@test -e $@ || $(PYTHON) -m venv --clear .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
