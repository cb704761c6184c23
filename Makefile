# Two commands do everything: `make app` opens the lab, `make test` tests it.
PY     ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TESTED := $(VENV)/.installed-test

.PHONY: app test check bench share models help

app: $(STAMP)  ## open the lab in a browser
	@$(BIN)/python -m lab fetch smollm2-135m || { [ $$? = 1 ] && echo "The lab opens without it, with its bundled models."; }
	@$(BIN)/python -m lab.front
	@$(BIN)/marimo run app.py

test: $(TESTED)  ## everything CI runs
	@$(BIN)/python -m lab fetch smollm2-135m
	@$(BIN)/python -m pytest

check: $(TESTED)  ## lint, types, notebook grammar
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/marimo check --strict app.py $$(find notebooks -name '*.py')

bench: $(STAMP)  ## measure the CPU records anew; GPU=1 measures all of them
	@$(BIN)/python -m lab bench $(if $(GPU),--gpu,)

share: $(STAMP)  ## write the lab as offline HTML files into share/
	@$(BIN)/python -m lab share

models: $(STAMP)  ## train the bundled pocket models again (wants a GPU)
	@$(BIN)/python -m lab pocket

$(VENV)/bin/python:
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "looplab needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	@echo "Making the virtual environment in $(VENV)"
	@$(PY) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --upgrade pip

$(STAMP): pyproject.toml | $(VENV)/bin/python
	@echo "Installing the lab: a few minutes the first time"
	@$(BIN)/python -m pip install -e .
	@touch $@

$(TESTED): $(STAMP)
	@$(BIN)/python -m pip install -e '.[test]'
	@touch $@

help:
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10
