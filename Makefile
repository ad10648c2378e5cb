# make demo    install into .venv, check the built-in digit classifier and run it on held-out digits
# make test    what CI runs: formatting, lint, types, all tests (real models included)
# Needs Python >= 3.11 and a C++20 compiler; everything else is fetched into .venv by name and version.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
JOBS ?= 2

NATIVE := pyproject.toml CMakeLists.txt $(wildcard native/*)
SOURCES := $(NATIVE) $(shell find src -type f -not -name '*.pyc' -not -name '*.so')
# The editable install of `make test` serves the demo too; without it the demo installs the package as a user would.
INSTALLED := $(if $(wildcard $(VENV)/.dev),$(VENV)/.dev,$(VENV)/.user)

.PHONY: demo test lint types format models conformance clean

demo: $(INSTALLED)
	@$(BIN)/hexforge demo

test: lint types models
	@echo "tests: pytest on $(JOBS) processes"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

lint: $(VENV)/.dev
	@echo "lint: ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@echo "types: mypy --strict src"
	@$(BIN)/mypy

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

models: $(VENV)/.dev
	@$(BIN)/python -m tests.models.fetch

conformance: $(VENV)/.dev
	@$(BIN)/python -m benchmarks.conformance

$(VENV)/pyvenv.cfg:
	@echo "venv: $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.user: $(SOURCES) | $(VENV)/pyvenv.cfg
	@echo "install: hexforge and its dependencies (first time: a minute or two)"
	@$(PIP) install .
	@touch $@

$(VENV)/.dev: $(NATIVE) | $(VENV)/pyvenv.cfg
	@echo "install: hexforge, editable, with the tools of its tests (first time: a few minutes)"
	@$(PIP) install -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .models .mypy_cache .pytest_cache .ruff_cache .hypothesis
