# Everything that one does here is a target. `make help` lists them.

VENV := .venv
BIN := $(VENV)/bin
COMPILED := $(shell grep -rl --include=*.py '^\# cython:' src/headrace; find src/headrace -name '*.pxd')
JOBS ?= 2
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help up test setup lint format types unit docs stubs site bench bars compat fuzz sim clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: setup ## Set up, and run a node on 127.0.0.1:9092; other options: make up ARGS="--listen 127.0.0.1:0"
	@exec $(BIN)/headrace serve $(ARGS)

test: setup lint types unit ## Set up, and run every check and test

setup: $(VENV)/.packages $(VENV)/.kernel ## Make .venv with all that is needed (at once when nothing changed)

$(VENV)/.packages: pyproject.toml setup.py constraints.txt tools/setup.sh
	@tools/setup.sh packages
	@touch $@

$(VENV)/.kernel: $(VENV)/.packages $(COMPILED)
	@tools/setup.sh kernel
	@touch $@

lint: setup ## Check style and formatting
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet

format: setup ## Put style and formatting right
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format --quiet

types: setup ## Check types (mypy --strict)
	$(BIN)/mypy

unit: setup ## Run the tests; one of them: make unit ARGS="tests/test_errors.py -k retriable"
	$(BIN)/pytest -n $(JOBS) $(ARGS)

docs: setup ## Make the generated pages of the docs again
	$(BIN)/python -m headrace.config.page > docs/settings.md
	$(BIN)/python -m headrace.metrics.page > docs/metrics.md

stubs: setup ## Make again what is generated from the shapes of messages
	$(BIN)/python -m headrace.protocol.stubs
	$(BIN)/python -m headrace.protocol.keep

site: setup ## Render the docs as a web site in build/site
	@$(BIN)/python -m pip install --quiet --no-build-isolation --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir build/site

# The bare broker is one of those that are measured, and so is what bench/peers starts; the bars run benches themselves.
BENCHES ?= $(subst /,.,$(basename $(filter-out bench/node/bare.py bench/node/bars.py bench/peers/%,$(shell grep -l '^if __name__' bench/*/*.py))))

bench: setup ## Measure against others, in one run; one of them: make bench BENCHES=bench.protocol.codec
	@for bench in $(BENCHES); do printf '\n== %s\n' $$bench; $(BIN)/python -m $$bench $(ARGS) || exit 1; done

bars: setup ## Hold a node to the bars of speed that we have set ourselves, in one table (an hour or two; goes on where it stopped)
	@$(BIN)/python -m bench.node.bars $(ARGS)

compat: setup ## Run Kafka's own Java tools and kcat against a node, and write docs/compat.md; some: make compat ARGS="groups"
	@$(BIN)/python -m tests.compat.tools $(ARGS)

FUZZERS ?= $(subst /,.,$(basename $(shell grep -l '^if __name__' tests/fuzz/*.py)))

fuzz: setup ## Throw hostile bytes at the codec; how many: make fuzz ARGS="--inputs 10000000"
	@for fuzzer in $(FUZZERS); do printf '\n== %s\n' $$fuzzer; $(BIN)/python -m $$fuzzer $(ARGS) || exit 1; done

SCENARIO ?= tests.sim.node:node
SEEDS ?= 1000

sim: setup ## Simulate trouble, seed by seed; how much: make sim SEEDS=5000 ARGS="--resume"
	@$(BIN)/python -m headrace.testing.sim --scenario $(SCENARIO) --seeds $(SEEDS) $(ARGS)

clean: ## Remove what was made, .venv too
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis src/*.egg-info
	find src -name "*.so" -delete
