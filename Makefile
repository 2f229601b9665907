# What a contributor runs. `make test` is all of it, from a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup chromium test quick lint types layers unit reference demo bench bench-engine bench-functions bench-http bench-jobs bench-bpmn bench-nats bench-scale bench-scale-quick bench-check bench-migrate bench-compare format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) chromium  ## create .venv with Hark (editable) and everything the tests need

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	test -x .venv/generator/bin/python || $(PYTHON) -m venv .venv/generator  # it needs an older typer than Hark
	.venv/generator/bin/python -m pip install --quiet openapi-python-client
	@touch $@

chromium:  ## the browser of tests/browser: the system's own package
	@for browser in $(HARK_CHROMIUM) chromium chromium-browser google-chrome google-chrome-stable; do \
		command -v $$browser >/dev/null && exit 0; \
	done; \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium; \
	else echo "tests/browser needs Chromium: install the package chromium, or set HARK_CHROMIUM to one." >&2; fi

test: lint types layers unit  ## lint, types, layers and tests

# What most changes can break, on SQLite, and on PostgreSQL where a test needs it; races, doors and examples take longer.
QUICK := tests/model tests/store tests/kernel tests/engine tests/views tests/promises tests/docs $(wildcard tests/test_*.py)
quick: lint types layers  ## lint, types, layers and the fast tests: under a minute on two idle cores, once .venv is there
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m 'not slow and not crash and not browser' -k 'not postgres' $(QUICK)

lint: $(STAMP)  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy, strict
	$(BIN)/mypy

layers: $(STAMP)  ## import-linter: which layer may import which
	$(BIN)/lint-imports

unit: $(STAMP) chromium  ## pytest; WORKERS=4 for more processes, ARGS='-k signal' for a part
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

reference: $(STAMP)  ## write docs/reference.md from the docstrings
	@$(BIN)/python docs/make_reference.py

demo: $(STAMP)  ## a server, and a deploy that waits for your approval; Ctrl-C, run it again: it still waits
	@$(BIN)/python examples/02_deploy.py $(ARGS)

bench: bench-engine bench-functions bench-jobs bench-bpmn bench-nats bench-scale-quick  ## all benchmarks

bench-engine: $(STAMP)  ## the engine beside its peers, as ratios
	$(BIN)/python bench/engine.py

bench-functions: $(STAMP)  ## durable functions, awakeables and HTTP beside their peers, as ratios (one peer is installed with npm)
	$(BIN)/python bench/functions.py

bench-jobs: $(STAMP)  ## jobs beside machines and beside a peer, as ratios
	$(BIN)/python bench/jobs.py

bench-bpmn: $(STAMP)  ## BPMN processes beside machines and beside peers, as ratios
	$(BIN)/python bench/bpmn.py

bench-nats: $(STAMP)  ## signals that are put on NATS beside signals over the store, as ratios
	$(BIN)/python bench/nats.py

bench-http: $(STAMP)  ## resolving an awakeable over HTTP beside a trivial POST (a part of bench-functions)
	$(BIN)/python bench/functions.py --only http

bench-scale: $(STAMP)  ## a million parked instances: latencies, broadcasts, tables, as ratios to idle; ARGS='--parked 100000'
	$(BIN)/python bench/scale.py $(ARGS)

bench-scale-quick: $(STAMP)  ## the same with 20,000 parked instances
	$(BIN)/python bench/scale.py --quick

bench-check: $(STAMP)  ## `hark check` of 100,000 live functions on both stores, beside a worker; ARGS=--quick for a tenth
	$(BIN)/python bench/check.py $(ARGS)

bench-migrate: $(STAMP)  ## the migration of 10,000 machines on both stores, beside starts
	$(BIN)/python bench/migrate.py

BASE ?= origin/main
bench-compare: $(STAMP)  ## this tree beside an earlier revision of it: BASE=revision, ARGS='--rounds 9 --only steps'
	$(BIN)/python bench/compare.py $(BASE) $(ARGS)

format: $(STAMP)  ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv, caches and build output
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find src tests examples docs bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
