.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SERVES := $(VENV)/.serves
FUZZES := $(VENV)/.fuzzes
BROWSES := $(VENV)/.browses
# Errors are shown; that an index lacks a package, or that there is a newer pip, is not.
PIP    := $(BIN)/pip --quiet --quiet --disable-pip-version-check install --editable
ARGS   ?=
SEARCH_ROUNDS ?= 5
FUZZ_SECONDS ?= 120
FLOOD_SECONDS ?= 60
SOAK_MINUTES ?= 30

.PHONY: help venv test test-slow coverage test-real test-clients test-dist test-vllm test-metrics test-browser picture dist run config docs dashboards check-dashboards golden search fuzz flood soak scale bench budget check-budget bench-peers lock audit format clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Create .venv and install Loopline with its development tools

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Loopline needs Python 3.11 or newer, $(PYTHON) is %d.%d: make PYTHON=python3.12" % sys.version_info[:2])'
	@echo 'Creating $(VENV).'
	@$(PYTHON) -m venv $(VENV)

# Installed again only when pyproject.toml has changed. To serve, the tools of development are not needed.
$(SERVES): pyproject.toml | $(BIN)/pip
	@echo 'Installing Loopline into $(VENV), once: about half a minute.'
	@$(PIP) .
	@touch $@

$(STAMP): pyproject.toml | $(BIN)/pip
	@echo 'Installing Loopline and its development tools into $(VENV), once: about a minute.'
	@$(PIP) '.[dev]'
	@touch $(SERVES) $@

test: $(STAMP) ## Lint, format check, types, tests (all but those that have a target of their own)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n auto --dist loadfile $(ARGS)

test-slow: $(STAMP) ## The tests that take a core many seconds each
	$(BIN)/pytest -n auto --dist loadfile -m slow $(ARGS)

coverage: $(STAMP) ## The same tests with the lines that they reach, which takes longer
	$(BIN)/pytest -n auto --dist loadfile --cov --cov-report=term $(ARGS)

test-real: $(STAMP) ## Tests against a real inference server
	$(BIN)/pytest -m real $(ARGS)

test-clients: $(STAMP) ## Tests that drive real client programs
	$(BIN)/pytest -m clients $(ARGS)

test-dist: $(STAMP) ## Build wheel and sdist, install the wheel into a new environment, and serve a turn from it
	$(BIN)/pytest -m dist $(ARGS)

test-vllm: $(STAMP) ## Tests against vLLM: LOOPLINE_VLLM is a command that serves it on port {port}
	$(BIN)/pytest -m vllm $(ARGS)

test-metrics: $(STAMP) ## Queries of dashboards and alerts against a real Prometheus (Debian's package, on the path)
	$(BIN)/pytest -m metrics tests/metrics $(ARGS)

$(BROWSES): $(STAMP)
	@$(PIP) '.[dev,browser]'
	@touch $@

test-browser: $(BROWSES) ## The status page in the system's Chromium, or LOOPLINE_CHROMIUM; pictures in build/screenshots
	$(BIN)/pytest -m browser $(ARGS)

picture: $(BROWSES) ## Take docs/images/waterfall-*.png anew, light and dark, of an agent loop that runs
	@$(BIN)/python -m tests.browser.picture docs/images

search: $(STAMP) ## Draw other examples for the tests that hold for any input, SEARCH_ROUNDS=5 times over
	@for round in $$(seq $(SEARCH_ROUNDS)); do \
		$(BIN)/pytest -q -n auto --hypothesis-profile search -m hypothesis $(ARGS) || exit 1; done

$(FUZZES): $(STAMP)
	@$(PIP) '.[dev,fuzz]'
	@touch $@

fuzz: $(FUZZES) ## Fuzz requests, then streams, for FUZZ_SECONDS=120 each; findings go to build/fuzz
	@$(BIN)/python -m tests.fuzz.run fuzz $(FUZZ_SECONDS)

flood: $(STAMP) ## Floods against a process, FLOOD_SECONDS=60 of each kind or a third: latency, memory, sessions
	@$(BIN)/python -m tests.adversity.flood $(FLOOD_SECONDS)

scale: $(STAMP) ## Sockets by the thousand: 1,000 that stream at once, 10,000 that are open and quiet
	@ulimit -S -n "$$(ulimit -H -n)" && $(BIN)/python -m tests.soak.streams 1000
	@ulimit -S -n "$$(ulimit -H -n)" && $(BIN)/loopline bench --scenes idle --sockets 10000

bench: $(STAMP) ## Time each function of the hot path, as a table
	$(BIN)/pytest -p no:xdist -q --benchmark-columns=min,median,ops --benchmark-sort=name tests/bench/micro.py $(ARGS)

check-budget: $(STAMP) ## Hold each function of the hot path to its budget (tests/bench/budget.toml)
	@$(BIN)/python -m tests.bench.budget check

budget: $(STAMP) ## Write the budgets anew from what the functions take now: read the diff
	@$(BIN)/python -m tests.bench.budget write

soak: $(STAMP) ## Clients of every habit for SOAK_MINUTES=30: memory, sockets and tasks come back; build/soak.json
	@$(BIN)/python -m tests.soak.run $(SOAK_MINUTES)

bench-peers: $(STAMP) ## Other gateways, bare relays and Loopline side by side, and the agent loop; writes docs/benchmarks.md
	@$(BIN)/python -m tests.bench.peers docs/benchmarks.md $(ARGS)
	@$(BIN)/python -m tests.bench.loop docs/benchmarks.md

run: $(SERVES) ## Serve in front of a small real model, of UPSTREAM=http://host:8000/v1, or scripted with SIMULATE=1
	@$(BIN)/loopline serve $(if $(UPSTREAM),--upstream $(UPSTREAM),$(if $(SIMULATE),--simulate,--embedded)) $(ARGS)

config: $(STAMP) ## Write config/loopline.example.toml from the settings
	$(BIN)/python -c 'from proxy.settings import example; print(example(), end="")' > config/loopline.example.toml.tmp
	mv config/loopline.example.toml.tmp config/loopline.example.toml

format: $(STAMP) ## Format and fix what can be fixed
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(STAMP) ## Write docs/settings.md, docs/errors.md, and the tables of docs/upstreams.md and docs/metrics.md
	$(BIN)/python -m proxy.tools.reference docs
	$(BIN)/python -m proxy.tools.metrics_table docs/metrics.md
	$(BIN)/python -m proxy.tools.profile_table docs/upstreams.md
	$(BIN)/python -m tests.golden.features docs/upstreams.md

dist: $(STAMP) ## Build the sdist, and from it the wheel, into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

dashboards: $(STAMP) ## Write dashboards/*.json, and the tables of docs/dashboards.md, from their pages
	$(BIN)/python -m dashboards.build

check-dashboards: ## Check dashboards/*.json against the types of @grafana/schema (needs node; asks registry.npmjs.org)
	@node dashboards/check/check.mjs

golden: $(STAMP) ## Write the golden corpus anew from what the code does now: read the diff
	$(BIN)/python -m tests.golden.corpus

lock: $(STAMP) ## Write config/requirements.lock, what the image installs, from pyproject.toml
	@$(BIN)/pip --quiet --disable-pip-version-check install 'pip-tools>=7.5,<8'
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-header --no-emit-index-url --no-emit-find-links \
	  --no-emit-trusted-host --output-file config/requirements.lock pyproject.toml

audit: $(STAMP) ## Look for known vulnerabilities in what the image installs (asks pypi.org)
	@$(BIN)/pip --quiet --disable-pip-version-check install 'pip-audit>=2.9,<3'
	$(BIN)/pip-audit --strict --progress-spinner off --disable-pip --require-hashes -r config/requirements.lock

clean: ## Remove caches, builds and .venv
	rm -rf $(VENV) build dist *.egg-info .coverage htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find proxy tests -name __pycache__ -type d -prune -exec rm -rf {} +
