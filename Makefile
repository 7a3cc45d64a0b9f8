# From a fresh clone, with only python3 and make: `make demo` shows what it does, `make test` checks everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export NUMBA_CACHE_DIR ?= $(CURDIR)/.cache/numba
export PYTHONDONTWRITEBYTECODE :=# bytecode is written on first use: half of what is installed is never imported
export RAREHMM_DATA ?= $(CURDIR)/../shared/data

.PHONY: help demo test lint types unit cluster nojit nightly packaged reproduce bench columns calibrate few-rare regimes regime-posterior regime-finding regime-cost finding detection comparison automatic compile model-check suggest bench-long docs screenshots architecture autoregression clean

help:  ## show these lines
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]'
	@touch $@

$(VENV)/bench: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,bench]'
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pomegranate>=1.1'  # 3 GB; done without where it fails
	@touch $@

demo: $(VENV)/ready  ## simulate a series with a rare regime, fit it, write a report
	$(BIN)/rarehmm demo

test:  ## linter, types and tests; twelve minutes on two cores, set-up included
	@started=$$(date +%s) && \
	$(MAKE) --no-print-directory lint unit && \
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target types cluster && \
	$(MAKE) --no-print-directory nojit && \
	echo "make test took $$(($$(date +%s) - started)) s"

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/ready
	$(BIN)/mypy

TESTS := $(BIN)/pytest -n auto --dist worksteal

unit: $(VENV)/ready  ## tests of what is compiled
	$(TESTS) -m "not nightly and not cluster and (jit or not plain)"

cluster: $(VENV)/ready  ## tests that start and kill processes
	$(BIN)/pytest -m "cluster and not nightly"

nojit: $(VENV)/ready  ## tests without the compiler, with line coverage of src
	NUMBA_DISABLE_JIT=1 $(TESTS) -m "not nightly and not jit" --cov --cov-report=term-missing:skip-covered

nightly: export HYPOTHESIS_PROFILE := nightly
nightly: $(VENV)/ready  ## every test in every size, with and without the compiler, and 10,000 hostile cases (hours)
	$(TESTS) -o faulthandler_timeout=14400 -m "not cluster"
	$(BIN)/pytest -m cluster
	NUMBA_DISABLE_JIT=1 $(TESTS) -o faulthandler_timeout=14400 -m "not jit"

packaged:  ## the wheel in empty environments: newest dependencies, a middle numba, lowest dependencies (ten minutes)
	$(PYTHON) tests/packaged.py

reproduce: $(VENV)/ready  ## all of the paper's tables and figures, to the folder reproduction
	$(BIN)/rarehmm reproduce all

bench: $(VENV)/bench comparison  ## compare with hmmlearn, dynamax, pomegranate, NumPyro and BlackJAX, T = 1e4 to 1e7 (two hours); writes benchmarks/results
	$(BIN)/python benchmarks/full_pass.py
	$(BIN)/python benchmarks/cost.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/regime_comparison.py

calibrate: $(VENV)/ready  ## calibration of the default method, against exact references and over the prior (an hour or two); writes benchmarks/results
	$(BIN)/python benchmarks/simulation_based.py
	$(BIN)/python benchmarks/calibrate.py

few-rare: $(VENV)/ready  ## coverage of intervals where few rare observations decide (an hour); writes benchmarks/results
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/few_rare.py

regimes: $(VENV)/ready  ## gradients with season, autocorrelation, inputs and phases (a minute); writes benchmarks/results
	$(BIN)/python benchmarks/regimes.py

regime-posterior: $(VENV)/ready  ## calibration with season, autocorrelation, inputs and phases, beside Hamiltonian Monte Carlo and over the prior (an hour); writes benchmarks/results
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/simulation_based.py --kind regimes
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/regime_posterior.py

regime-finding: $(VENV)/ready  ## are rare states found in autocorrelated noise with a season (half an hour); writes benchmarks/results
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/regime_finding.py

regime-cost: $(VENV)/ready  ## cost of a posterior with season and autocorrelated noise, T = 1e5 to 1e7 (half an hour); writes benchmarks/results
	$(BIN)/python benchmarks/regime_cost.py

finding: $(VENV)/ready  ## are rare states found, without false ones (ten minutes); writes benchmarks/results
	$(BIN)/python benchmarks/finding.py

detection: $(VENV)/ready  ## solar flares and labelled anomalies, compared with what others use (an hour); writes benchmarks/results
	$(BIN)/python benchmarks/detection.py
	$(BIN)/python benchmarks/anomalies.py

columns: $(VENV)/ready  ## cost of a window with several columns, relative to its arithmetic (a minute); writes benchmarks/results
	$(BIN)/python benchmarks/columns.py

automatic: $(VENV)/ready  ## automatically derived scores against handwritten ones (a minute); writes benchmarks/results
	$(BIN)/python benchmarks/automatic.py

compile: $(VENV)/ready  ## what compiling inlined functions only inside kernels saves on a first fit (three minutes); writes benchmarks/results
	$(BIN)/python benchmarks/compile.py

model-check: $(VENV)/ready  ## time and false alarms of the check whether the model fits (five minutes); writes benchmarks/results
	$(BIN)/python benchmarks/model_check.py

suggest: $(VENV)/ready  ## terms chosen for 60 simulated series of 12 kinds (ten minutes); writes benchmarks/results
	$(BIN)/python benchmarks/suggest.py

bench-long: $(VENV)/bench  ## a billion observations from file to posterior (15 minutes, 9 GB of disk); writes benchmarks/results
	$(BIN)/python benchmarks/long.py

docs: $(VENV)/ready  ## build the documentation to the folder site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

screenshots: $(VENV)/ready  ## take the screenshots in README and docs, with chromium
	$(BIN)/python docs/screenshots.py

architecture: $(VENV)/ready  ## draw the packages and one fit through them, for docs/contributing.md
	$(BIN)/python docs/architecture.py

autoregression: $(VENV)/ready  ## draw both forms of autoregression, for docs/explanation
	$(BIN)/python docs/autoregression.py

comparison: $(VENV)/bench  ## do other tools find the rare state, over 20 seeds (half an hour); writes benchmarks/results
	$(BIN)/python benchmarks/comparison.py

clean:  ## remove everything that make built
	rm -rf $(VENV) .cache .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis rarehmm-demo reproduction site docs/reproduction/*.json
