# `make demo` and `make test` set up everything they need.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
BIN := .venv/bin
# Node.js, if set-up installed it from PyPI; last, so that another one takes precedence.
export PATH := $(PATH):$(CURDIR)/$(BIN)
# Container images set it; hundreds of processes of the tests would compile the same modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test coverage test-long mutants asan fuzz bench lint style format setup kubernetes runtimes clean

help:
	@echo "make demo       a night in four minutes: cause a real incident here, diagnose it, undo it"
	@echo "make test       run linters, type and import checks, and the test suite"
	@echo "make test-long  run the long tests, in an hour"
	@echo "make mutants    apply each change of tests/mutants.toml (ONLY=part of a path): its tests must fail"
	@echo "make coverage   run the test suite and show line and branch coverage"
	@echo "make asan       test the C code with AddressSanitizer and UBSan"
	@echo "make fuzz       fuzz each reader for FUZZ_SECONDS (default 60)"
	@echo "make bench      run the benchmarks, also of comparable tools"
	@echo "make lint       run linters, type and import checks"
	@echo "make format     format the code and apply the fixes of ruff"
	@echo "make clean      remove the files of set-up and tests"

demo:
	@scripts/setup demo
	@scripts/demo

setup:
	@scripts/setup test

# A test of `needs_kubernetes` is skipped without it, and a skip fails in CI.
kubernetes:
	@ci=$${CI:-}; case $${ci,,} in 1 | true | yes) scripts/kubernetes build ;; esac

# Docker and containerd, for long tests of `needs_docker`.
runtimes:
	@ci=$${CI:-}; case $${ci,,} in 1 | true | yes) scripts/container-runtimes unpack ;; esac

lint: style
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

style: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check

# Two phases: tests that can run in parallel (JOBS at a time), then tests that need the machine to themselves.
# The second phase runs even if the first fails.
# Twice the cores of a small machine: the tests wait for processes and timers a third of the time.
JOBS ?= 4
TOGETHER := -m "not long and not alone" -n $(JOBS) --dist loadfile --no-loadscope-reorder
ALONE := -m "not long and alone" tests/docs tests/integration

# Failed tests run once more, one by one: a test on a real kernel can fail because of other work on the machine. This also
# hides faults that show only at times, so the first failure must be read. Other exit codes than 1 are broken runs.
# Import contracts and types take half a minute on one core: they are checked beside the first phase.
test: style kubernetes
	@failed=0 linted=0; \
	found=$$(mktemp); { $(BIN)/lint-imports --no-logo && $(BIN)/mypy; } >$$found 2>&1 & lint=$$!; \
	echo "== tests that run in parallel"; $(BIN)/pytest --cache-clear $(TOGETHER) || failed=$$?; \
	echo "== import contracts and types"; wait $$lint || linted=$$?; cat $$found; rm $$found; \
	echo "== tests that need the machine to themselves"; $(BIN)/pytest $(ALONE) || failed=$$((failed | $$?)); \
	if [ $$failed = 1 ]; then \
	  echo "== failed tests once more, one by one"; failed=0; \
	  $(BIN)/pytest -m "not long" --last-failed --last-failed-no-failures none -v || failed=$$?; \
	fi; \
	exit $$((failed | linted))

# Separate, because tracing every branch doubles the time of pure Python code.
coverage: setup kubernetes
	@failed=0; \
	$(BIN)/pytest $(TOGETHER) --cov --cov-report= || failed=1; \
	$(BIN)/pytest $(ALONE) --cov --cov-append --cov-report=term:skip-covered || failed=1; \
	exit $$failed

# Its commands run as a user's do: not beside other tests, and not in the cgroup of those that run alone.
CLONE := tests/integration/test_fresh_clone.py

# Ray (630 MB) is installed for the tests of its cluster alone; without it they are skipped.
test-long: setup kubernetes runtimes
	$(BIN)/python -c 'import ray' 2>/dev/null || $(BIN)/pip install -qq -c constraints.txt 'ray[tune]==2.60.0'
	@failed=0; \
	echo "== tests that run in parallel"; \
	$(BIN)/pytest -m "long and not alone" -n $(JOBS) --dist loadfile --ignore $(CLONE) || failed=1; \
	echo "== tests that need the machine to themselves"; $(BIN)/pytest -m "long and alone" || failed=1; \
	echo "== both commands in a fresh clone"; $(BIN)/pytest -m long $(CLONE) || failed=1; \
	exit $$failed

mutants: setup
	$(BIN)/python tools/mutants.py --jobs $(JOBS) --only "$(ONLY)"

asan: setup
	@scripts/sanitized $(BIN)/python

fuzz: setup
	@scripts/fuzz

bench: setup
	$(BIN)/python -m benchmarks

format: setup
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf .venv .venv-fuzz build dist out .coverage .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src -name '*.so' -delete
