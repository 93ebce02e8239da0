# rostam's chores; `make` alone lists them. Needs python >= 3.11, a C++17 compiler and make.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help install demo test test-changed test-extra test-slow test-part test-asan durations bench calibrate judge validate docs stubs lint format clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS ?= constraints.txt
DEMO_ARGS ?=
PART ?= 1
TEST_ARGS ?=
WORKERS ?= logical
BENCH_ARGS ?=
VALIDATE_ARGS ?=
ASAN_TESTS ?= tests/sim tests/circuits tests/fabric tests/fabrics tests/routing tests/analytic tests/flow tests/packet tests/collectives \
  tests/runtime tests/spread tests/properties tests/placement/test_spatial.py

CORE_SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h' -o -name '*.inc')
PACKAGE_FILES := pyproject.toml setup.py constraints.txt
# A test process on each core (WORKERS=4, or 0 for one without pytest-xdist). One that has run out of tests takes over
# half of what another has left: neighbours share the traces of their fixtures, and no file keeps a core to itself.
PARALLEL := -n $(WORKERS) --dist worksteal
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet -c $(CONSTRAINTS)

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(VENV)/.core ## Make .venv, install rostam (editable) and build the C++ core; repeat it after any change

$(VENV)/bin/pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rostam needs python >= 3.11")'
	$(PYTHON) -m venv $(VENV)

# Build tools first and no build isolation: every build of the core uses the same ones, and needs no index again.
$(VENV)/.installed: $(PACKAGE_FILES) | $(VENV)/bin/pip
	$(PIP) 'setuptools>=77' 'pybind11>=3.1,<4' wheel
	$(PIP) 'torch>=2.13,<2.14'
	$(PIP) --no-build-isolation -e '.[all,test,dev]'
	touch $@

# The stamp is as old as the start of the build: a source saved meanwhile is built the next time.
$(VENV)/.core: $(VENV)/.installed $(CORE_SOURCES)
	touch $@.started
	$(BIN)/python setup.py --quiet build_ext --inplace
	mv $@.started $@

demo: install ## Best strategies and time-to-accuracy on six fabrics (DEMO_ARGS="short=true out=DIR")
	$(BIN)/rostam demo $(DEMO_ARGS)

test: install test-extra ## Run the tests, except slow, long and gpu ones (TEST_ARGS="-k ring" WORKERS=2)
	$(BIN)/python -m pytest -q $(PARALLEL) $(TEST_ARGS)

# Which functions each test runs is kept in .testmondata: the first time all tests run, later those that a change of a
# Python file reaches. A change of the C++ core is not seen: make test. -m of pyproject.toml would switch choosing off.
test-changed: install ## Run the tests that changed Python modules reach (the first time all of them)
	$(BIN)/python -m pytest -q $(PARALLEL) --testmon --testmon-forceselect $(TEST_ARGS)

# A second copy of the package whose core also holds the parts of tests/csrc, linked from the first core's objects.
test-extra: install ## Run the tests of added parts: a fabric, a routing, an algorithm, an engine, a controller
	rm -rf build/extra/lib
	ROSTAM_EXTRA=1 $(BIN)/python setup.py --quiet build --build-base build/extra --build-lib build/extra/lib \
	  build_ext --build-temp build/extra/core
	PYTHONPATH=build/extra/lib ROSTAM_EXPECT_CORE=extra $(BIN)/pytest -q $(PARALLEL) -p no:cacheprovider tests/extra

test-slow: install ## Run the slow tests: published figures, long runs, what takes over 0.75 s
	$(BIN)/python -m pytest -q $(PARALLEL) -m '(slow or long) and not gpu' $(TEST_ARGS)

test-part: install ## Run one of eight parts of them, of equal recorded durations (PART=3)
	$(BIN)/python -m pytest -q $(PARALLEL) -m 'drawn and not gpu' --durations-path tests/durations.json \
	  --splitting-algorithm least_duration --splits 8 --group $(PART) $(TEST_ARGS)

durations: install ## Record what tests take, which says what runs by default (TEST_ARGS="tests/packet")
	$(BIN)/python -m pytest -q $(PARALLEL) -m 'not gpu' --record-durations $(TEST_ARGS)

# A second copy of the package with a sanitized core in build/asan; it goes before the editable one on the path.
test-asan: install ## Run the tests of the C++ core under the address and undefined-behaviour sanitizers
	rm -rf build/asan/lib
	ROSTAM_SANITIZE=1 $(BIN)/python setup.py --quiet build --build-base build/asan --build-lib build/asan/lib \
	  build_ext --build-temp build/asan/core
	LD_PRELOAD="$$($${CXX:-g++} -print-file-name=libasan.so) $$($${CXX:-g++} -print-file-name=libubsan.so)" \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=build/asan/lib ROSTAM_EXPECT_CORE=asan \
	  $(BIN)/pytest -q $(PARALLEL) -m 'not slow and not gpu' -p no:cacheprovider $(ASAN_TESTS) $(TEST_ARGS)

validate: install ## Predict published measurements, hold tables to their bounds (VALIDATE_ARGS="tables=V1,V2")
	$(BIN)/rostam validate bounds=true $(VALIDATE_ARGS)

bench: install ## Measure speed and memory, compare with stored results (BENCH_ARGS="--only ring")
	$(BIN)/python -m benchmarks --date "$$(date +%F)" --out build/bench.json $(BENCH_ARGS)

calibrate: install ## Distil measured kernels into the cost tables that are shipped (docs/calibration.md)
	$(PIP) "$$($(BIN)/python -c 'from calibration.library import REQUIREMENT as it; print(it)')"
	$(BIN)/python -m calibration
	$(BIN)/python -m calibration.row_exchanges

judge: install ## Print the errors of those tables on shapes that were held out
	$(PIP) "$$($(BIN)/python -c 'from calibration.library import REQUIREMENT as it; print(it)')"
	$(BIN)/python -m calibration judge

docs: install ## Write the API reference into build/docs, and draw the picture of the README anew
	$(PIP) 'pdoc>=15,<17'
	$(BIN)/python docs/api.py build/docs
	$(BIN)/python docs/picture.py
	$(BIN)/python docs/software.py

stubs: install ## Write rostam_py/_core.pyi, the core's signatures for editors and mypy, from the built core
	$(BIN)/python csrc/bindings/stubs.py rostam_py/_core.pyi

lint: install ## Check style and types: ruff, mypy, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	find csrc -name '*.cpp' -o -name '*.h' | xargs $(BIN)/clang-format --dry-run --Werror

format: install ## Format Python and C++
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	find csrc -name '*.cpp' -o -name '*.h' | xargs $(BIN)/clang-format -i

clean: ## Remove what was built, the virtual environment included
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f rostam_py/_core*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
