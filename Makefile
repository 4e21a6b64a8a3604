# make arena   time and train every mechanism, draw the page (ten minutes on two cores, first times in the first)
# make install  .venv with all that the other commands need, which they make too
# make test    the laws and the tests
# make quick   the tests whose code has changed since they were last run (all of them in the first)
# make data    fetch the open sources of up to 20 MB, which some tests read (64 MB)
# make faults  faults on purpose, with counts: kills, flips, damaged files (about five minutes)
# make hf-before   the tests of regard.hf with the release of Transformers before the pinned one
# make package wheel and sdist, installed into an empty environment and used there
# make oldest  a handful of laws with the oldest versions of what the library needs
# make newest  the laws with the newest versions of everything
# make site    the documentation, in build/site; broken links and references are errors
# make notebooks   run two of the examples, and write them as notebooks
# make check   formatting, lint, types, docs freshness, tests
# make format  rewrite the code in the house format

PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready
BIN := $(VENV)/bin
# Many processes import torch: compiled once, that takes half of the time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: arena install data quick test hf-before package oldest newest site notebooks faults check static format format-check lint types docs docs-check

arena: $(READY)
	$(BIN)/regard arena
	$(BIN)/regard report

install: $(READY)

data: $(READY)
	$(BIN)/regard data get --all-open --up-to 20 --if-reachable

test: $(READY)
	OMP_NUM_THREADS=1 PYTHONWARNDEFAULTENCODING=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal $(if $(LAWS),--laws-to=$(LAWS))

quick: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --quiet --testmon --numprocesses auto --maxprocesses 8

faults: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults

hf-before: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/hf-before transformers==5.22.2
	OMP_NUM_THREADS=1 PYTHONPATH=$(VENV)/hf-before $(BIN)/python -m pytest --quiet --numprocesses auto --maxprocesses 8 tests/hf

package: $(READY)
	$(BIN)/python tests/packaging.py

oldest: $(READY)
	$(PYTHON) -m venv $(VENV)/oldest
	$(VENV)/oldest/bin/python -m pip install --quiet --disable-pip-version-check pytest pytest-socket $$($(BIN)/python tests/packaging.py --oldest)
	OMP_NUM_THREADS=1 $(VENV)/oldest/bin/python -m pytest --quiet tests/laws/test_laws.py -k "([softmax-default or [linear-default or [local-default) and not (compiled or exported or free_length)"

newest: $(READY)
	$(PYTHON) -m venv $(VENV)/newest
	$(VENV)/newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade -e '.[dev]'
	OMP_NUM_THREADS=1 $(VENV)/newest/bin/python -m pytest --quiet --numprocesses auto --maxprocesses 8 tests/laws tests/hf

site: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/site

notebooks: $(READY)
	$(BIN)/python docs/notebooks.py

check: static test

static: $(READY)
	$(MAKE) --jobs 2 --output-sync=target --keep-going types site docs-check lint format-check

format: $(READY)
	$(BIN)/ruff check --quiet --fix-only .
	$(BIN)/ruff format .

format-check: $(READY)
	$(BIN)/ruff format --check .

lint: $(READY)
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

docs: $(READY)
	$(BIN)/python docs/tables.py

docs-check: $(READY)
	$(BIN)/python docs/tables.py --check

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Regard needs Python 3.11 or later; name one: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --no-compile -e '.[dev]' -c constraints.txt
	@touch $@
