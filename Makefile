# make help   these lines
# make dev    an environment in .venv with an engine that suits this machine; again after adding
#             or renaming a module
# make test   the tests            make check   format, lint, types
# make whole  the tests that take two seconds or more: the demo is trained, workers of a Ray cluster
#             are killed, the pages of the documentation that start engines are run
# make anywhere  the numerical tests under other instruction sets and thread counts, in a quarter
#             of an hour
# make docs   the site in build/docs/index.html; a link that leads nowhere is an error
# make long   every byte flipped, thousands of random steps, demos of several seeds, further models
#             on two ranks, and that of `make real` against plain transformers, in an hour
# make demo   the main job, from nothing to a report
# make real   the same on SmolLM2-135M, fine-tuned here, in ten minutes
# make bench  the figures of docs/benchmarks.md, measured again
# make clean  remove what these made, the environment too

# Where it is set, every process that a test starts would compile the sources anew, and each worker of
# pytest would spend 11 s of its 28 s of collecting on rewriting assertions.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help dev check test whole anywhere docs long demo real bench clean

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

test: $(READY)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not whole and not long"

whole: $(READY)
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "whole and not long"

anywhere: $(READY)
	$(BIN)/python scripts/anywhere.py

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
	rm -rf $(VENV) build demo real docs/_gallery docs/_*.md docs/commands *.egg-info .mypy_cache .pytest_cache .ruff_cache
