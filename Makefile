PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# As pyproject.toml asks for; a wheel without CUDA is smaller: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
OLDEST := 2.6.0

.DEFAULT_GOAL := help
# The report is looked at in a real browser; Debian's is installed where that is allowed.
CHROMIUM = command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null

.PHONY: help demo test test-oldest quick docs browser chromium lint format types release clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[lab,dev]'
	@touch $@

demo: $(STAMP)  ## Compare SGD, SAM, vSAM (budget 0.2) and the paper's vSAM on real images: a table and a report (minutes)
	@echo "1,000 images of Fashion-MNIST, 20 % of their labels wrong: SGD memorises them by the end of the run."
	$(BIN)/vsam compare --methods sgd,sam,vsam-budget,vsam --seeds 1
	$(BIN)/vsam report runs/fashion-mini --out runs/report.html

test: $(STAMP) lint types  ## Set-up, then lint, types and all tests
	$(BIN)/pytest -n 2

test-oldest:  ## The contract table on the oldest torch that we support, in .venv-oldest (downloads 3 GB)
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check torch==$(OLDEST) numpy pytest pytest-xdist hypothesis
	PYTHONPATH=src .venv-oldest/bin/pytest -n 2 tests/contracts

quick: $(STAMP)  ## Only the fast tests
	$(BIN)/pytest -n 2 -m 'not slow'

docs: $(STAMP)  ## The documentation site in docs/_build/html; warnings are errors
	$(BIN)/sphinx-build -E -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

browser: $(STAMP) chromium  ## Only the tests of the report in a real Chromium
	$(BIN)/pytest -rs tests/browser

chromium:  ## Install Debian's Chromium if there is no browser and we may
	@$(CHROMIUM) || { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1 \
	  || echo "No Chromium, and it cannot be installed here: the tests in a browser will be skipped."

lint: $(STAMP)  ## Style and formatting, without changing anything
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP)  ## Format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP)  ## Static types, strict
	$(BIN)/mypy

release:  ## Build wheel and sdist, check them, and try them in empty environments
	$(PYTHON) scripts/release.py

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) .venv-oldest .mypy_cache .ruff_cache .pytest_cache dist build docs/_build
