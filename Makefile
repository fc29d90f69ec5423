# The face of the project. Every target installs what it needs from the distribution when it is missing (as root;
# otherwise it prints the one command to run).
#
#   make demo                 capture a program, replay it, show result, gain and a picture
#   make test                 all tests: optimised, under AddressSanitizer and UBSan, under ThreadSanitizer
#   make test PRESETS=release one of these rows (release, asan, tsan; debug too)
#   make conformance          which items of the specification are covered and pass
#   make bench                benchmarks against goals and other systems: table and plot; BENCH_ARGS="--rows R1,R8"
#   make fuzz                 clang's libFuzzer on sequences of calls and on everything that reads input; FUZZ_SECONDS=60
#   make lint                 format, layers, generated files, clang-tidy
#   make install PREFIX=DIR   a toolkit tree: include/, lib64/, set_env.sh
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PREFIX ?= $(CURDIR)/prefix
JOBS ?= $(shell nproc)
PRESETS ?= release asan tsan

.PHONY: demo test conformance bench fuzz lint format install deps dev-deps clean

demo: deps
	@scripts/demo.sh "$(CURDIR)/build/demo"

test: deps
	@scripts/deps.sh test
	@scripts/run_tests.sh $(PRESETS)

conformance: deps
	@scripts/run_tests.sh --only conformance release
	@python3 scripts/conformance_report.py --spec-ids tests/conformance/items.csv build/release/results/conformance_*.xml
	@echo
	@python3 scripts/api_status.py --lib-dir build/release/lib64 --summary

bench: deps
	@scripts/deps.sh bench || echo "benchmarks: going on without the systems that are not installed" >&2
	@scripts/bench.sh $(BENCH_ARGS)

fuzz:
	@scripts/deps.sh build fuzz
	@scripts/fuzz.sh

lint: dev-deps
	@scripts/lint.sh

format: dev-deps
	@scripts/lint.sh --fix

install: deps
	@scripts/build.sh release -DREPRISE_BUILD_TESTS=OFF
	@cmake --install build/release --prefix "$(PREFIX)" >/dev/null
	@echo "installed into $(PREFIX); use it with: source $(PREFIX)/set_env.sh"

deps:
	@scripts/deps.sh build

dev-deps:
	@scripts/deps.sh build test lint

clean:
	rm -rf build prefix
