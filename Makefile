# make help   print these lines
# make dev    set up .venv, with an engine that suits this machine; run it again after
#             adding or renaming a module
# make check  format, lint and types; writes the map of folders, prints lines since a release
# make test   the quick tests
# make whole  the longer tests: the demo is trained, workers of a Ray cluster are killed, the pages
#             of the documentation are run, a script in studies runs on tiny models
# make test-all  both together, as CI runs them
# make long   every byte of a bank flipped, thousands of random steps, demos with several seeds,
#             more models and studies, the model of `make real` against plain transformers; an hour
# make anywhere  the quick tests under other instruction sets, on one core, beside a busy loop,
#             in random order, with other releases of transformers, and with Python 3.12
#             (UV_PYTHON names another one) and its newer packages; half an hour
# make docs   the site in build/docs/index.html; a broken link is an error
# make gallery  draw every chart of the documentation again
# make demo   train the demo's models, fill a bank and write its report, in demo/
# make real   the same with SmolLM2-135M and a BERT, fine-tuned here; ten minutes
# make bench  measure the figures of docs/benchmarks.md again, beside the last release
# make clean  remove what these commands made, and the environment

# With this variable, every process that a test starts would compile the sources again, and each
# worker of pytest would spend 11 s of its 28 s of collection on rewriting assertions.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TESTS := $(BIN)/python -m pytest -n 3 --dist worksteal --durations=10
READY := $(VENV)/.ready

.PHONY: help dev check test whole test-all anywhere gallery docs long demo real bench clean

help:
	@sed -n 's/^# \{0,1\}//p;/^$$/q' Makefile

dev:
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python scripts/install.py
	@touch $(READY)

$(READY): pyproject.toml scripts/install.py
	@$(MAKE) --no-print-directory dev

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p logitbank
	@$(BIN)/python -m scripts.source

test: $(READY)
	$(TESTS) -m "not whole and not long"

whole: $(READY)
	$(TESTS) -m "whole and not long"

test-all: $(READY)
	$(TESTS) -m "not long"

anywhere: $(READY)
	$(BIN)/python scripts/anywhere.py

gallery: $(READY)
	$(BIN)/python -m docs.gallery

docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going -n -b html docs build/docs

long: $(READY)
	$(BIN)/python -m pytest -m long

demo: $(READY)
	@rm -rf demo
	@$(BIN)/logitbank demo demo

real: $(READY)
	@$(BIN)/python -m scripts.real

bench: $(READY)
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) build demo real docs/_commands.md docs/commands *.egg-info .mypy_cache .pytest_cache .ruff_cache
