# `make demo` and `make test` need nothing but Python 3.11 or later, make and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := demo-output
# The number of processes that run tests; some wait for others, so more than there are cores keeps these busy.
PROCESSES ?= 3
PYTEST := $(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal

.PHONY: demo test test-full coverage test-slow lint format bench soak docs wheel clean help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.package  ## the main job in small: simulate -> store -> verify -> info -> fit, and as the paper has it
	rm -rf $(DEMO)
	$(BIN)/plmix simulate $(DEMO)/rankings --rankings 200000 --items 12 --components 3 --seed 1 --workers 2
	$(BIN)/plmix verify $(DEMO)/rankings --workers 2
	$(BIN)/plmix info $(DEMO)/rankings
	$(BIN)/plmix fit $(DEMO)/rankings --components 3 --out $(DEMO)/model --workers 2
	$(BIN)/plmix fit $(DEMO)/rankings --components 3 --alpha 0 --out $(DEMO)/default --workers 2
	$(BIN)/plmix fit $(DEMO)/rankings --components 3 --method paper --svd-rank 3 --out $(DEMO)/paper --workers 2
	$(BIN)/python -m benchmarks.agreement $(DEMO)/rankings $(DEMO)/default $(DEMO)/paper

test: $(VENV)/.test  ## the tests to run before every change
	$(PYTEST) -m "not slow and not full"

test-full: $(VENV)/.test  ## what `make test` leaves out, and properties with more examples
	HYPOTHESIS_PROFILE=full $(PYTEST) -m "(full or hypothesis) and not slow"

coverage: $(VENV)/.test  ## both, and which lines they reach
	$(PYTEST) -m "not slow" --cov --cov-report=term

test-slow: $(VENV)/.deploy  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.test  ## ruff, mypy and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.test  ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench  ## every figure in docs/benchmarks.md, into benchmarks/results
	$(BIN)/python -m benchmarks

soak: $(VENV)/.bench  ## fits for PLMIX_SOAK_MINUTES (20) on a cluster whose workers are killed, frozen, added and removed
	$(BIN)/python -m benchmarks soak

docs: $(VENV)/.docs  ## the site, into docs/_build/html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -n -b html docs docs/_build/html

wheel: $(VENV)/.test  ## build wheel and sdist, and try the wheel in a clean environment
	rm -rf dist $(VENV)-wheel
	$(BIN)/python -m build --outdir dist
	$(BIN)/python tests/whole/test_releases.py dist/*.whl
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet dist/*.whl
	cd dist && ../$(VENV)-wheel/bin/plmix simulate smoke --rankings 1000 --items 5 --components 2
	cd dist && ../$(VENV)-wheel/bin/python -m plmix_dist verify smoke
	rm -rf $(VENV)-wheel dist/smoke dist/smoke.truth

clean:  ## remove what these commands made
	rm -rf $(VENV) $(VENV)-wheel $(DEMO) dist benchmarks/results docs/_build docs/notebooks .coverage

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "plmix_dist needs Python 3.11 or later; say which with make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"

$(VENV)/.package: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --group test --group lint --group release
	@touch $@

$(VENV)/.deploy: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --group deploy
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

$(VENV)/.docs: $(VENV)/.package
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@
