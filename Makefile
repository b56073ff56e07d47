# Every target sets itself up: on a machine with Python 3.11 or newer, pip and a package registry,
# `make test` in a fresh clone is enough.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev

comma := ,
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRAS))
COMPAT := .venv-datasets3 .venv-datasets5
PYTEST := $(BIN)/pytest -n 2 --dist loadfile

# One thread a process: the workers share the cores among themselves.
export OMP_NUM_THREADS ?= 1

# Hundreds of tests start an interpreter; each would compile pandas and scipy anew.
unexport PYTHONDONTWRITEBYTECODE

# The routes test runs these interpreters where `make compat-venvs` has made them.
ifneq ($(wildcard .venv-datasets3/bin/python),)
export FEDA4FAIR_PYTHON_DATASETS3 ?= $(abspath .venv-datasets3/bin/python)
endif
ifneq ($(wildcard .venv-datasets5/bin/python),)
export FEDA4FAIR_PYTHON_DATASETS5 ?= $(abspath .venv-datasets5/bin/python)
endif

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-slow compat compat-venvs quality style golden pins clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## create .venv with the pinned development set (EXTRAS=dev,fl,models for more)

demo: $(STAMP)  ## build all four ACS configs from the built-in sample, offline, and show them
	$(BIN)/python scripts/build.py acs --sample --out build/acs --overwrite --show

test: $(STAMP)  ## run the tests
	$(PYTEST) -m "not slow"

test-slow: $(STAMP)  ## run the slow tests too
	$(PYTEST)

compat-venvs: $(COMPAT:=/.installed)  ## create .venv-datasets3 and .venv-datasets5

compat: $(STAMP) compat-venvs  ## run the routes test on datasets 3.6, 4.8 and 5.2
	FEDA4FAIR_PYTHON_DATASETS3=$(abspath .venv-datasets3/bin/python) \
	FEDA4FAIR_PYTHON_DATASETS5=$(abspath .venv-datasets5/bin/python) \
	$(BIN)/pytest tests/datasets/test_routes.py

quality: $(STAMP)  ## check lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

style: $(STAMP)  ## mend lint and format where a program can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: $(STAMP)  ## write the expected files of tests/golden anew; read the diff before a commit
	FEDA4FAIR_GOLDEN=write $(PYTEST) -m "not slow"

pins: $(STAMP)  ## resolve constraints.txt and .ci/constraints-*.txt anew
	$(BIN)/python .ci/pin.py

clean:  ## remove what these targets made
	rm -rf $(VENV) $(COMPAT) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(1) is the environment, $(2) its pins, $(3) what to install. Some systems ship venv without
# ensurepip; pip then installs itself from outside. A current pip is much faster than a bundled
# one, and modules are compiled when they are first imported.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv $(1) >/dev/null 2>&1 || { \
	  $(PYTHON) -m venv --clear --without-pip $(1) && \
	  $(PYTHON) -m pip --python $(1)/bin/python install --quiet pip; }
	$(1)/bin/python -m pip install --quiet --upgrade -c $(2) pip
	PYTHONWARNINGS=ignore $(1)/bin/python -m pip install --quiet --no-compile -c $(2) -e '$(3)'
	@touch $@
endef

$(STAMP): pyproject.toml constraints.txt
	$(call install,$(VENV),constraints.txt,.[$(EXTRAS)])

.venv-%/.installed: pyproject.toml .ci/constraints-%.txt
	$(call install,.venv-$*,.ci/constraints-$*.txt,.)
