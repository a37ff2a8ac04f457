# Everything a newcomer needs. `make demo` and `make test` do their own set-up, inside this folder only.
SHELL := /bin/sh
BIN := $(CURDIR)/.venv/bin
CACHE := $(CURDIR)/.cache

# Caches and logs of the tools stay in the project folder.
export MPLCONFIGDIR := $(CACHE)/matplotlib
export ROS_LOG_DIR := $(CACHE)/ros
export COLCON_HOME := $(CACHE)/colcon
# PYTHON=/path/to/python3.12 chooses the interpreter; empty: the first that fits
export PYTHON

.PHONY: help demo test test-robot coverage fuzz chaos lint bench docs
.PHONY: setup setup-dev setup-docs setup-robot lock sbom clean distclean

help:
	@echo 'make demo       set up, drive a rover around a loop, map it live over ROS 2, close the loop, show the report'
	@echo 'make test       set up and run the tests'
	@echo 'make test-robot the tests with the versions that a robot has (Ubuntu 24.04, Python 3.12), in .venv-robot'
	@echo 'make coverage   the tests, and which lines of the packages they execute'
	@echo 'make fuzz       ten minutes of damaged files against every reader (ARGS="--seed 7 --seconds 600")'
	@echo 'make chaos      fifteen minutes of kills, storms and full disks against the running node'
	@echo 'make lint       ruff, and mypy (strict) on both packages'
	@echo 'make bench      measure speed and accuracy, peers in the same run'
	@echo 'make docs       write what is made from the code, then build the documentation site (out/site)'
	@echo 'make setup      only the set-up (.venv); every other target calls it'
	@echo 'make lock       pin the dependencies anew from requirements/*.in'
	@echo 'make sbom       list every package that make setup installs, as CycloneDX (out/sbom.json)'
	@echo 'make clean      remove what was built or drawn; make distclean: .venv and caches too'

demo: setup
	@"$(BIN)/gpgmap" demo --out out/demo

# Three workers suit two cores: tests of nodes wait more than they compute. Tests of a file stay together for the most
# part, because they share what is costly to make; loadfile and loadscope would keep all of them together, but wait
# forever after a worker has crashed (xdist 3.8).
WORKERS := 3
test: setup-dev
	@"$(BIN)/python" -m pytest -n $(WORKERS) --dist worksteal --basetemp="$(CACHE)/pytest" $(ARGS)

test-robot: setup-robot
	@"$(CURDIR)/.venv-robot/bin/python" -m pytest -n $(WORKERS) --dist worksteal --basetemp="$(CACHE)/pytest-robot" $(ARGS)

# Coverage sees Python only: functions that numba compiles are left out (pyproject.toml).
coverage: setup-dev
	@mkdir -p "$(CACHE)/coverage"
	@"$(BIN)/python" -m pytest -n $(WORKERS) --dist worksteal --basetemp="$(CACHE)/pytest" --cov --cov-report=term $(ARGS)

fuzz: setup-dev
	@"$(BIN)/python" -P test/campaigns/fuzz.py $(ARGS)

chaos: setup-dev
	@"$(BIN)/python" -P test/campaigns/chaos.py $(ARGS)

lint: setup-dev
	@"$(BIN)/ruff" check .
	@"$(BIN)/ruff" format --check .
	@"$(BIN)/mypy"

bench: setup-dev
	@"$(BIN)/python" -m benchmark

docs: setup-docs
	@"$(BIN)/python" tools/make_docs.py
	@PYTHONPATH=. "$(BIN)/python" docs/make_gallery.py
	@NO_MKDOCS_2_WARNING=1 "$(BIN)/python" -P -m mkdocs --quiet build --strict --clean

setup:
	@sh tools/setup.sh run

setup-dev:
	@sh tools/setup.sh dev

setup-docs:
	@sh tools/setup.sh docs

setup-robot:
	@sh tools/setup.sh robot

sbom: setup
	@sh tools/sbom.sh out/sbom.json

lock: setup
	@sh tools/lock.sh

clean:
	rm -rf out build install log *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache/pytest* .cache/colcon
	find . -name __pycache__ -not -path './.venv*/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .venv-robot .cache
