# From a fresh clone, with only python3 and make: `make demo` shows what it does, `make test` checks everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export NUMBA_CACHE_DIR ?= $(CURDIR)/.cache/numba
export RAREHMM_DATA ?= $(CURDIR)/../shared/data

.PHONY: help demo test lint types unit nojit packaged reproduce bench columns calibrate finding detection cost comparison automatic bench-long docs screenshots clean

help:  ## show these lines
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

$(VENV)/bench: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,bench]'
	@touch $@

demo: $(VENV)/ready  ## simulate a series with a rare regime, find it, draw a picture
	$(BIN)/rarehmm demo

test: lint types unit nojit  ## lint, types and every test

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/mypy

unit: $(VENV)/ready
	$(BIN)/pytest -n auto --dist loadfile -m "not cluster"
	$(BIN)/pytest -m cluster

nojit: $(VENV)/ready  ## the same tests on small inputs without the compiler, with line coverage of src
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n auto --dist loadfile -m "not jit" --cov --cov-report=term-missing:skip-covered

packaged:  ## the wheel in empty environments, with the newest and the lowest versions of what it needs (seven minutes)
	$(PYTHON) tests/packaged.py

reproduce: $(VENV)/ready  ## the paper's tables and figures, in full, to the folder reproduction
	$(BIN)/rarehmm reproduce all

bench: $(VENV)/bench  ## time the kernels beside hmmlearn and dynamax; writes benchmarks/results
	$(BIN)/python benchmarks/full_pass.py

calibrate: $(VENV)/ready  ## the default rule beside exact references and over the prior (an hour or two); writes benchmarks/results
	$(BIN)/python benchmarks/simulation_based.py
	$(BIN)/python benchmarks/calibrate.py

finding: $(VENV)/ready  ## are rare states found, and only those (ten minutes); writes benchmarks/results
	$(BIN)/python benchmarks/finding.py

detection: $(VENV)/ready  ## solar flares and NAB beside a threshold and hmmlearn (ten minutes); writes benchmarks/results
	$(BIN)/python benchmarks/detection.py

cost: $(VENV)/bench  ## what an effective draw costs, beside peers (a quarter of an hour); writes benchmarks/results
	$(BIN)/python benchmarks/cost.py

columns: $(VENV)/ready  ## what a window costs in several columns, beside its arithmetic (a minute); writes benchmarks/results
	$(BIN)/python benchmarks/columns.py

automatic: $(VENV)/ready  ## scores that are worked out beside scores by hand (a minute); writes benchmarks/results
	$(BIN)/python benchmarks/automatic.py

bench-long: $(VENV)/bench  ## a billion observations from file to posterior (a quarter of an hour, 9 GB of disk); writes benchmarks/results
	$(BIN)/python benchmarks/long.py

docs: $(VENV)/ready  ## the documentation, to the folder site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

screenshots: $(VENV)/ready  ## the pictures of README and docs, in chromium
	$(BIN)/python docs/screenshots.py

comparison: $(VENV)/bench  ## beside hmmlearn, dynamax and NumPyro, over 20 seeds (half an hour); writes benchmarks/results
	$(BIN)/python benchmarks/comparison.py

clean:  ## remove everything that make built
	rm -rf $(VENV) .cache .coverage .mypy_cache .ruff_cache .pytest_cache rarehmm-demo reproduction site docs/reproduction/*.json
