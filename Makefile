# The lab book. `make help` lists the words; two of them are enough: `make book` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3.11
VENV ?= .venv
PROFILE ?= cpu
# Where torch comes from. Empty: pip's own choice (on Linux a CUDA build of several GB). Without a GPU set the CPU index, see README.
TORCH_INDEX ?=
# A folder with others' collections, for `make verify`, and which part of it (empty: all).
DATA ?=
ONLY ?=
# More words for `make bench`.
ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DVC := PATH="$(abspath $(BIN)):$$PATH" $(BIN)/dvc
PIP_FLAGS := --disable-pip-version-check -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))

.PHONY: help install book render rerun lab pair snapshot test lint check-html verify bench clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

install: $(STAMP) ## set up .venv from constraints.txt and nothing else

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "make: Python 3.11 is needed: set PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) --quiet --progress-bar off -e '.[book,test]'
	@touch $@

book: install ## rerun what a change made stale (cpu profile), then build the HTML into _build/html
	$(DVC) repro --quiet --glob '*@cpu*'
	@$(MAKE) render

render: install ## only build the HTML from what is stored
	$(BIN)/python -m ragkit.lab.build

rerun: install ## measure everything again on this machine (PROFILE=cpu); an unfinished rerun goes on where it stopped
	$(BIN)/python -m ragkit.rerun $(PROFILE)

lab: install pair ## JupyterLab on the notebooks
	$(BIN)/jupyter lab --notebook-dir notebooks

pair: install ## write the paired .ipynb of every notebooks/NN_name.py
	$(BIN)/python -m ragkit.lab.runner notebooks

snapshot: install ## write data/articles_snapshot.parquet from data/articles
	$(BIN)/ragkit snapshot data/articles data/articles_snapshot.parquet --overwrite

test: install ## every check but the browser's
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

check-html: install ## every page of the built book in a headless browser, network off
	$(BIN)/python tests/check_html.py

verify: install ## the same code on others' collections: make verify DATA=folder with scifact/, cranfield/, ... [ONLY=reproduce|squad]
	@test -n "$(DATA)" || { echo "make verify: give DATA=folder"; exit 2; }
	$(BIN)/python -m ragkit.verify $(DATA) $(ONLY)

bench: install ## times and ratios against FAISS, numpy, LanceDB and a bare encode [ARGS="--million --hnsw"]
	$(BIN)/python benchmarks/run.py $(ARGS)

clean: ## remove what was built (never what was measured)
	rm -rf _build book/labs .ragkit-work .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
