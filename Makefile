# Tests and checks run in .venv, with all that developing takes. The demos need far less, and have an environment of their own
# in build/venv unless .venv is there and ready. Another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
PY := .venv/bin/python
NAMED := $(subst /,_,$(PYTHON))
READY := .venv/ready-$(NAMED)

# What the demos run in, once it has what they need: nothing but astyqueue, or astyqueue with Spark.
LIGHT := $(if $(wildcard $(READY)),.venv,build/venv)
DEMO_READY := $(if $(wildcard $(READY)),$(READY),build/venv/ready-$(NAMED))
SPARK_READY := $(if $(wildcard $(READY)),$(READY),build/venv/ready-spark-$(NAMED))

# Tests of one file run in one process, so that nodes of a file are started once; all tests on Spark count as one file.
BY_FILE := -q --dist loadfile --no-loadscope-reorder
# Tests wait for other processes half of their time, so more of them than processors run at a time.
EMBEDDED := $(BY_FILE) -n 4 --ignore=tests/cassandra --ignore=tests/ring --ignore=tests/triggers
# All processes use one node.
ON_CASSANDRA := $(BY_FILE) -n 3 --store cassandra
# The file of a step is where it is kept how long its tests took. Some take longer than faulthandler_timeout of pyproject.toml,
# and a dump of a thread that runs can crash the interpreter (Python 3.11): here it comes after the limit of every test.
ALL = -m "" --all-stores -o faulthandler_timeout=1000 --durations-to tests/durations/$(1).txt
CHOSEN = --durations=20
TESTS := CHOSEN

# Hundreds of processes start in a run: without the bytecode of the first, each of them compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo demo-cassandra pipeline test test-full test-cassandra test-triggers test-kills test-ring simulate simulate-planted check aio bench clean

help:  ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

demo: $(DEMO_READY)  ## index the Python standard library with real workers, one of which gets killed
	@$(LIGHT)/bin/python -m examples.stdlib_index

demo-cassandra: $(DEMO_READY)  ## the same on a real Cassandra node, started for it and gone afterwards: needs Java 17 and Maven
	@$(LIGHT)/bin/python -m examples.stdlib_index --cassandra

PIPELINE := build/pipeline

pipeline: $(SPARK_READY)  ## run the demo with all of its history, make tables of that by Spark, and a report: needs Java 17 or 21
	@rm -rf $(PIPELINE)/tables
	@STDLIB_INDEX_FOLDER=$(PIPELINE)/demo $(LIGHT)/bin/python -m examples.stdlib_index --history
	@$(LIGHT)/bin/python -m astyqueue pipeline run --url sqlite:///$(PIPELINE)/demo/queue.db --out $(PIPELINE)/tables --slo 'end<=1m' --report $(PIPELINE)/report.html
	@echo "look at it: file://$(CURDIR)/$(PIPELINE)/report.html"

test: $(READY)  ## run the tests of a change, in 12 minutes: in memory, on SQLite, with Spark and on a real Cassandra
	@echo "test: in memory, on SQLite and with Spark"
	@$(PY) -m pytest $(EMBEDDED) $(call $(TESTS),embedded)
	@echo "test: on Cassandra"
	@$(PY) -m pytest $(ON_CASSANDRA) $(call $(TESTS),cassandra)

test-full: $(READY)  ## run every test there is on each store, every world and every fault: more than an hour
	@$(MAKE) --no-print-directory test TESTS=ALL
	@echo "test: conformance and the journal under python -O"
	@$(PY) -O -m pytest $(BY_FILE) -n 2 tests/stores/conformance tests/queue_service tests/unit/journal
	@$(MAKE) --no-print-directory test-triggers

test-cassandra: $(READY)  ## run every test that needs a store on Cassandra, on nodes started for it
	@$(PY) -m pytest $(ON_CASSANDRA) $(call ALL,cassandra)

test-kills: $(READY)  ## kill 200 workers on SQLite and 100 on Cassandra, and a stream of Spark ten times on each, and see that nothing is lost: 25 minutes
	@$(PY) -m pytest -q --all-stores tests/killed_processes/test_messages.py --store sqlite --kills 200
	@$(PY) -m pytest -q --all-stores tests/killed_processes/test_messages.py --store cassandra --kills 100
	@$(PY) -m pytest -q -m "" --all-stores tests/spark/test_kills.py --store sqlite --kills 10
	@$(PY) -m pytest -q -m "" --all-stores tests/spark/test_kills.py --store cassandra --kills 10

test-triggers: $(READY)  ## see that cron fires as every minute of ten zones shows, around changes of clocks and in whole years
	@$(PY) -m pytest -q -s tests/triggers

MESSAGES ?= 1000000

test-ring: $(READY)  ## send MESSAGES=1000000 through a ring of three real nodes that are frozen, killed, wiped and cut off meanwhile
	@$(PY) -m tests.ring --messages $(MESSAGES)

SEEDS ?= 10000

simulate: $(READY)  ## play SEEDS=10000 simulations full of faults, and check every promise
	@$(PY) -m tests.simulation --seeds $(SEEDS)

simulate-planted: $(READY)  ## measure how many seeds the simulation takes to detect each mutant of the protocol
	@$(PY) -m tests.simulation.mutants.measure

check: $(READY)  ## formatting, lint, types, layers, budgets, and whether astyqueue.aio is up to date
	@echo "check: formatting"
	@.venv/bin/ruff format --quiet --check . || { echo "these files want 'ruff format':"; .venv/bin/ruff format --check .; exit 1; }
	@echo "check: lint"
	@.venv/bin/ruff check --quiet .
	@echo "check: types"
	@.venv/bin/mypy --no-error-summary
	@echo "check: layers"
	@.venv/bin/lint-imports --no-cache > .venv/layers.txt || { cat .venv/layers.txt; exit 1; }
	@echo "check: budgets"
	@$(PY) -m tests.style
	@echo "check: astyqueue.aio"
	@$(PY) -m tools.async_classes --check

aio: $(READY)  ## write the classes of astyqueue.aio from those for threads
	@$(PY) -m tools.async_classes

bench: $(READY)  ## send and drain 100 000 messages on SQLite, as JSON
	@$(PY) -m benchmarks drain --store sqlite --messages 100000 --json

clean:  ## remove everything that was made here, .venv too if make made it
	@if [ -e .venv/made-by-make ]; then rm -rf .venv; elif [ -e .venv ]; then echo "left .venv: make did not make it"; fi
	@rm -rf build dist *.egg-info .*_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@.ci/environment .venv $(PYTHON) '.[dev]'
	@touch $@

build/venv/ready-$(NAMED): pyproject.toml
	@.ci/environment build/venv $(PYTHON) .
	@touch $@

build/venv/ready-spark-$(NAMED): pyproject.toml
	@.ci/environment build/venv $(PYTHON) '.[spark]'
	@touch $@
