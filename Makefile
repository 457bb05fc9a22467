# What a newcomer types. Each target makes the environment first; the work is in tools/.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
PY     := $(BIN)/python
STAMP  := $(VENV)/.installed
CODE   := $(foreach dir,src tests tools bench examples,$(if $(wildcard $(dir)/*.py $(dir)/*/*.py),$(dir)))
JOBS   ?= 2
# Processes of tests. Many wait for other processes, so 3 are faster on two cores; tests that measure
# CPU time are more reliable with 2.
WORKERS ?= 2
ARGS   ?=
SEEDS  ?= 20

.DEFAULT_GOAL := help
.PHONY: help env test check format lint types layers tidy fmt
.PHONY: spec contracts e2e interop conformance docs bench bench-all bench-xds bench-scale fuzz fuzz-mesh
.PHONY: sim mutants interleavings peers istio pythons coverage lock demo first-hour screenshots clean

help:  ## Show this list
	@echo "make <target> [ARGS='...'] [PYTHON=...]"
	@sed -n 's/^\([a-z0-9 -]*\):[^#]*## \(.*\)/  \1: \2/p' $(MAKEFILE_LIST)

env: $(STAMP)  ## Make .venv with everything for development
$(STAMP): pyproject.toml tools/bootstrap.py tools/hatch_build.py tools/constraints.txt src/proxyless/protos/proxyless/live/v1/live.proto
	@if [ -z "$(PYTHON)" ]; then echo "error: found no python3, wanted Python 3.11 or newer: make PYTHON=/path/to/it" >&2; exit 1; fi
	@$(PYTHON) tools/bootstrap.py $(VENV)
	@touch $@

# The build hook writes them; a checkout that has lost them is installed again.
ifeq ($(wildcard src/proxyless/protos/descriptors.pb),)
.PHONY: $(STAMP)
endif

test: $(STAMP)  ## Run every test that needs no other toolchain
	@$(PY) -m pytest -q -n $(WORKERS) --dist loadfile --max-worker-restart=0 $(ARGS)

check: format lint types layers tidy  ## Format, lint, types, layers, tidiness; changes nothing
format: $(STAMP)
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo "run 'make fmt'" >&2; exit 1; }
lint: $(STAMP)
	@$(BIN)/ruff check --quiet $(CODE)
types: $(STAMP)
	@$(BIN)/mypy $(CODE)
layers: $(STAMP)
	@$(BIN)/lint-imports --no-cache --no-logo
tidy: $(STAMP)
	@$(PY) -m tools.tidy

fmt: $(STAMP)  ## Format, and fix what lint can fix
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

spec contracts e2e interop: $(STAMP)  ## Run one suite of tests
	@$(if $(wildcard tests/$@),$(PY) -m pytest tests/$@ $(ARGS),echo "tests/$@ does not exist yet")

conformance: $(STAMP)  ## Rewrite docs/conformance.md from the tests; ARGS=--check only compares
	@$(PY) -m tools.conformance $(ARGS)

docs: $(STAMP)  ## Rewrite docs/api, docs/grafana, docs/performance.md and the tables of metrics; ARGS=--check only compares
	@$(PY) -m tools.api_reference $(ARGS)
	@$(PY) -m tools.dashboard $(ARGS)
	@$(PY) -m tools.metrics_page $(ARGS)
	@$(PY) -m bench.page $(ARGS)

bench: $(STAMP)  ## Measure RPCs against grpcio
	@$(PY) bench/rpc.py $(ARGS)

bench-xds: $(STAMP)  ## Measure RPCs through a control plane against grpcio
	@$(PY) bench/rpc.py --target xds --targets $(ARGS)

bench-all: $(STAMP)  ## Measure every row of the targets with all peers, an hour; ARGS="--rows P1,P9"
	@$(PY) -m bench.all $(ARGS)

bench-scale: $(STAMP)  ## Measure large and changing meshes against grpcio
	@$(PY) bench/scale.py $(ARGS)

fuzz: $(STAMP)  ## Feed hostile bytes to wire, resources to the parsers, texts to logs; then fuzz-mesh
	@$(PY) tools/fuzz_wire.py --inputs 200000 $(ARGS)
	@$(PY) -m tools.fuzz_xds --inputs 20000 $(ARGS)
	@$(PY) -m tools.fuzz_texts --inputs 20000 $(ARGS)
	@$(PY) -m tools.fuzz_mesh

fuzz-mesh: $(STAMP)  ## Change a mesh at random under load, beside grpcio; ARGS='--seeds 20 --seconds 60'
	@$(PY) -m tools.fuzz_mesh $(ARGS)

sim: $(STAMP)  ## Run the whole mesh in virtual time, for SEEDS seeds of ten minutes
	@$(PY) -m tools.simulation --seeds $(SEEDS) --jobs $(JOBS) $(ARGS)

mutants: $(STAMP)  ## Plant bugs one by one, and show that tests or simulation catch each
	@$(PY) -m tools.mutants --jobs $(JOBS) $(ARGS)

interleavings: $(STAMP)  ## Run every order of events of two small scenarios, deeper than the tests do
	@$(PY) -m tools.interleavings $(ARGS)

peers: $(STAMP)  ## Run other projects' suites and xDS clients beside ours; needs Go, Maven, npm; ARGS='--only connect'
	@$(PY) -m tools.peers $(ARGS)

istio: $(STAMP)  ## Run the scenarios with Istio's generators, ours and grpcio; needs Go, 10 minutes at first
	@$(PY) -m tools.peers --only istio

pythons: $(STAMP)  ## Run unit, spec and e2e suites on every Python of this machine; ARGS=--list, ARGS="--latest --coverage"
	@$(PY) -m tools.pythons $(ARGS)

coverage: $(STAMP)  ## Measure branch coverage of unit and spec tests; fails under the floor for cores
	@$(PY) -m tools.coverage_floor $(ARGS)

lock: $(STAMP)  ## Rewrite tools/constraints.txt: the versions that make env installs
	@$(PY) -m tools.lock

demo: $(STAMP)  ## A mesh on this machine fails over under load; ARGS=--web for the page
	@$(BIN)/proxyless demo $(ARGS)

first-hour: $(STAMP)  ## A new user's first hour in a new environment; rewrites docs/first-hour.md
	@$(PY) -m tools.first_hour $(ARGS)

screenshots: $(STAMP)  ## Make the pictures of docs/demo.md; needs Chromium
	@$(PY) -m tools.screenshots

clean:  ## Remove the environment and everything built
	@rm -rf $(VENV) .pythons build dist bench/.build .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
