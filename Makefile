# The face of the project. Every target installs what it needs from the distribution when it is missing (as root;
# otherwise it prints the one command to run).
#
#   make demo                 capture a program, replay it, show result, gain and a picture
#   make test                 all tests: optimised, with PyTorch, with the published torch-npu package, under
#                             AddressSanitizer and UBSan, under ThreadSanitizer
#   make test PRESETS=release one of these rows (release, torch, wheel, asan, tsan; debug too)
#   make test-all             the same with the full form of sweeps and random tests, and all programs in all rows
#   make test-models          transformers, diffusers, timm, lightning and others on the device npu; downloads them
#   make test-wheel           the row wheel alone: the published package on the installed libraries; downloads it
#   make compiled-table       PyTorch's table of operators through torch.compile with torchair; TABLE_ARGS="--only '^sort$'"
#   make flaky                looks for tests that fail now and then, on a busy machine; FLAKY_MINUTES=60
#   make mutants              builds small mistakes and sees that the tests catch them; MUTANTS_ARGS="--only NAME"
#   make conformance          which items of the specification are covered and pass
#   make bench                benchmarks against goals and other systems: table and plot; BENCH_ARGS="--rows R1,R8"
#   make bench-compile        torch.compile with this torchair and with the published one: first calls and steps; downloads it
#   make bench-collectives    collectives beside raw limits, Gloo and Open MPI, and a tensor-parallel decoder
#   make bench-models         whole models, compiled and captured, beside PyTorch, ONNX Runtime and OpenVINO; downloads them
#   make fuzz                 clang's libFuzzer on sequences of calls and on everything that reads input; FUZZ_SECONDS=60
#   make lint                 format, layers, generated files, clang-tidy
#   make install PREFIX=DIR   a toolkit tree: include/, lib64/, set_env.sh; STRIP= keeps what debuggers need
#   make uninstall PREFIX=DIR removes it
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PREFIX ?= $(CURDIR)/prefix
STRIP ?= --strip
JOBS ?= $(shell nproc)
PRESETS ?= release torch wheel asan tsan

.PHONY: demo test test-all test-models test-wheel compiled-table flaky mutants conformance bench bench-collectives bench-compile bench-models fuzz lint format install uninstall deps dev-deps clean

demo: deps
	@scripts/demo.sh "$(CURDIR)/build/demo"

test: deps
	@scripts/deps.sh test $(if $(filter torch wheel,$(PRESETS)),torch)
	@scripts/run_tests.sh $(PRESETS)

test-all: export REPRISE_TEST_FORM = full
test-all: test

test-models: deps
	@scripts/deps.sh torch
	@scripts/test_models.sh $(MODELS_ARGS)

compiled-table: deps
	@scripts/deps.sh torch
	@scripts/compiled_table.sh $(TABLE_ARGS)

test-wheel: PRESETS = wheel
test-wheel: test

flaky: FLAKY_ROWS = $(filter-out wheel,$(PRESETS))
flaky: deps
	@scripts/deps.sh test $(filter torch,$(FLAKY_ROWS))
	@scripts/run_tests.sh --build $(FLAKY_ROWS)
	@scripts/flaky.py $(FLAKY_ROWS)

mutants: deps
	@scripts/deps.sh test
	@scripts/mutants.py $(MUTANTS_ARGS)

# The tables are of most interest when something fails.
conformance: deps
	@scripts/deps.sh test torch
	@status=0; \
	scripts/run_tests.sh --only conformance release torch || status=$$?; \
	python3 scripts/conformance_report.py --spec-ids tests/conformance/items.csv build/release/results/conformance_*.xml; \
	echo; \
	python3 scripts/conformance_report.py --spec-ids tests/torch/items.csv build/release/results/torch/torch.xml; \
	echo; \
	python3 scripts/api_status.py --lib-dir build/release/lib64 --summary; \
	exit $$status

bench: deps
	@scripts/deps.sh test
	@scripts/deps.sh bench || echo "benchmarks: going on without the systems that are not installed" >&2
	@scripts/bench.sh $(BENCH_ARGS)

bench-compile: deps
	@scripts/deps.sh torch
	@scripts/bench_compile.sh $(BENCH_ARGS)

bench-collectives: deps
	@scripts/deps.sh bench || echo "benchmarks: going on without the systems that are not installed" >&2
	@scripts/bench_collectives.sh $(BENCH_ARGS)

bench-models: deps
	@scripts/deps.sh torch
	@scripts/bench_models.sh $(BENCH_ARGS)

fuzz:
	@scripts/deps.sh build test fuzz
	@scripts/fuzz.sh

lint: dev-deps
	@scripts/lint.sh

format: dev-deps
	@scripts/lint.sh --fix

install: deps
	@scripts/build.sh release -DREPRISE_BUILD_TESTS=OFF -DREPRISE_TORCH=OFF
	@cmake --install build/release --prefix "$(PREFIX)" $(STRIP) >/dev/null
	@echo "installed into $(PREFIX); use it with: source $(PREFIX)/set_env.sh"

uninstall:
	@scripts/uninstall.sh "$(PREFIX)"

deps:
	@scripts/deps.sh build

dev-deps:
	@scripts/deps.sh build test torch lint

clean:
	rm -rf build prefix
