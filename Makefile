# The two commands: `make demo` and `make test`. Each does all of its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
BIN := .venv/bin
# Where Node.js is, when set-up took it from PyPI; behind everything else.
export PATH := $(PATH):$(CURDIR)/$(BIN)

.PHONY: help demo test coverage test-long asan fuzz bench lint format setup clean

help:
	@echo "make demo       run overnight's main job on this machine"
	@echo "make test       lint, types, imports and the whole test suite"
	@echo "make test-long  the heavier proofs"
	@echo "make coverage   the test suite, and which lines and branches it reaches"
	@echo "make asan       the C code under AddressSanitizer"
	@echo "make fuzz       damaged input without end, or for FUZZ_SECONDS (60) a reader"
	@echo "make bench      measure, beside the peers"
	@echo "make format     format and mend what ruff can"
	@echo "make clean      remove what set-up and tests made"

demo:
	@scripts/setup demo
	@scripts/demo

setup:
	@scripts/setup test

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Two phases: JOBS at a time what may run beside others, then what needs the machine to itself. The
# second runs whatever the first says; each names its failures, and one is enough to fail.
JOBS ?= 2
TOGETHER := -m "not long and not alone" -n $(JOBS) --dist loadfile --no-loadscope-reorder
ALONE := -m "not long and alone"

test: lint
	@failed=0; \
	echo "== tests that run beside each other"; $(BIN)/pytest $(TOGETHER) || failed=1; \
	echo "== tests that need the machine to themselves"; $(BIN)/pytest $(ALONE) || failed=1; \
	exit $$failed

# By itself: tracing every branch doubles the time of what is pure Python.
coverage: setup
	@failed=0; \
	$(BIN)/pytest $(TOGETHER) --cov --cov-report= || failed=1; \
	$(BIN)/pytest $(ALONE) --cov --cov-append --cov-report=term:skip-covered || failed=1; \
	exit $$failed

test-long: setup
	$(BIN)/pytest -m long

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
