# Every entry point; `make help` lists them.
SHELL := /bin/bash
BUILD := build
CC ?= gcc
CXX ?= g++
CLANG ?= clang-19
CLANG_FORMAT ?= clang-format-19
PYTHON := $(BUILD)/venv/bin/python
CFLAGS := -std=gnu11 -O2 -g -Wall -Wextra -Werror -I.
CXXFLAGS := -std=c++20 -O2 -g -Wall -Wextra -Werror -I.
PROGRAMS :=
TEST_PROGRAMS :=

.DEFAULT_GOAL := build

include $(wildcard */build.mk */*/build.mk)

.PHONY: help
help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 16

.PHONY: setup
setup: ## install what building and testing need (Debian 12 or 13; root or sudo)
	@./setup.sh

# make decides what to include before setup could install a compiler, so what builds
# after setup runs in a make of its own.
.PHONY: ready
ready: setup
	@$(MAKE) --no-print-directory -j2 build

.PHONY: build
build: $(PROGRAMS) ## compile the programs and the BPF objects into build/

.PHONY: test-programs
test-programs: $(TEST_PROGRAMS)

.PHONY: demo
demo: ready ## A/B of epoll and bpf with a report in build/demo/ (starts a VM where needed)
	@$(PYTHON) -m experiments demo

.PHONY: test
test: ready ## lint, all tests on this machine, and those that need Linux 7.3 in the VM
	@$(MAKE) --no-print-directory -j3 test-programs lint vm-root
	@$(PYTHON) tests/run.py

.PHONY: vm-root
vm-root: # once, and outside any test's time limit
	@$(PYTHON) -m vm build

.PHONY: conformance
conformance: ready ## the conformance suite alone, every transport
	@$(PYTHON) tests/run.py --only conformance

.PHONY: bench
bench: ready ## what a request costs each transport, as ratios within one run
	@$(PYTHON) -m experiments bench

.PHONY: exact
exact: ready ## instructions of a request at three rates, counted in the VM
	@$(PYTHON) -m experiments exact

.PHONY: calibrate
calibrate: ready ## whether experiments find what is there, and nothing else (five minutes)
	@$(PYTHON) -m experiments calibrate

C_SOURCES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cpp' '*.hpp' '*.cu' '*.cuh')
PYTHON_PACKAGES = loader shared_page gpu_scheduler vm experiments

.PHONY: lint
lint: ## formatting, types and sizes; changes nothing
	$(CLANG_FORMAT) --dry-run -Werror $(C_SOURCES)
	$(BUILD)/venv/bin/ruff check --quiet .
	$(BUILD)/venv/bin/ruff format --check --quiet .
	$(BUILD)/venv/bin/mypy --no-error-summary $(PYTHON_PACKAGES)
	$(PYTHON) tests/layout/sizes.py

.PHONY: format
format: ## rewrite the sources in the house's format
	$(CLANG_FORMAT) -i $(C_SOURCES)
	$(BUILD)/venv/bin/ruff check --quiet --fix .
	$(BUILD)/venv/bin/ruff format --quiet .

.PHONY: clean
clean: ## remove what was compiled; the VM's root and the Python environment stay
	rm -rf $(BUILD)/bin $(BUILD)/obj $(BUILD)/bpf $(BUILD)/tests
