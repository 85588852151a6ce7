# `make demo` and `make test` are the two commands; each does all its set-up. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
SLOWEST := --durations=30 --durations-min=1
DRIFT_CHAIN := tests/e2e/test_drift_chain.py
LEFT_OUT := and not slow
SLOW_SUITES := tests/contract tests/cluster tests/images tests/e2e
SEED ?= 1
RUNS ?= 200
NODES ?= 0
NIGHTLY_RUNS ?= 10000
TARGET ?= all

WANTED := import tomllib; d = tomllib.load(open("pyproject.toml", "rb")); print("\n".join(d["project"]["dependencies"]))
WANTED_DEV := print("\n".join(w for w in tomllib.load(open("dev/pyproject.toml", "rb"))["project"]["dependencies"] if w != d["project"]["name"]))
COMPILE := $(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras --no-header

# Compiled modules are kept, whatever the shell says: without them every worker and every program of a test compiles anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup packages binaries lock docs format lint unit chaos chaos-short fuzz gate test images vm e2e test-full e2e-vm demo bench generate golden verify image torch nightly

help: ## this list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## virtual environment from the lock file (hashes checked), upgrader and upgrader_dev installed into it

$(STAMP): requirements-dev.lock pyproject.toml dev/pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . -e dev
	touch $@

packages: ## Debian packages the embedded cluster needs: installed when root, listed otherwise
	bash dev/upgrader_dev/devcluster/install-packages.sh

binaries: setup packages ## Kubernetes' programs for the embedded cluster: built once, with progress (about 13 minutes)
	$(BIN)/upgrader dev binaries

lock: ## the three lock files anew, with hashes and without any index
	test -x $(BIN)/pip-compile || $(BIN)/python -m pip install -q pip-tools
	$(BIN)/python -c '$(WANTED)' | $(COMPILE) -o requirements.lock -
	$(BIN)/python -c '$(WANTED); $(WANTED_DEV); d["dependency-groups"].pop("docs"); print("\n".join(d["build-system"]["requires"] + sum(d["dependency-groups"].values(), [])))' \
	  | $(COMPILE) --allow-unsafe -o requirements-dev.lock -
	$(BIN)/python -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["docs"]))' \
	  | $(COMPILE) --allow-unsafe -o requirements-docs.lock -

docs: requirements-docs.lock ## the documentation as a site in build/site; fails where a link leads nowhere
	test -x build/docs-venv/bin/mkdocs || $(PYTHON) -m venv build/docs-venv
	build/docs-venv/bin/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-docs.lock
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build -q

format: setup ## ruff format and safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup ## ruff (ALL), mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

generate: setup ## crds/, drawings and stubs from their sources
	$(BIN)/python -m upgrader.api.generate .

golden: setup ## files that tests compare with (manifests, screens) anew; read the diff
	UPDATE_GOLDEN=1 $(PYTEST) -q tests/unit

verify: setup ## fails when something generated is not current
	$(BIN)/python -m upgrader.api.generate --check .

unit: setup ## units, properties, contract: what every edit must pass (4 minutes)
	$(PYTEST) $(SLOWEST) -n 3 --dist worksteal tests/unit tests/property tests/contract -m "not cluster and not e2e $(LEFT_OUT)"

gate: binaries ## of the slow suites what every change must pass: the API server, a rollout, a driver image, a virtual node
	$(PYTEST) $(SLOWEST) -n 2 --dist loadfile $(SLOW_SUITES) -m gate --timeout=900

test: lint verify unit chaos-short gate ## what CI runs (12 minutes)

chaos: setup ## seeded rollouts with faults at every port, judged by the laws (SEED=n, RUNS=n, NODES=n; a seed that fails is printed)
	$(BIN)/python -m upgrader_dev.chaos --seed $(SEED) --runs $(RUNS) --nodes $(NODES)

chaos-short: setup ## the chaos runs of the gate: 200 with two nodes, 50 with three
	$(BIN)/python -m upgrader_dev.chaos --runs 200 --nodes 2
	$(BIN)/python -m upgrader_dev.chaos --runs 50 --nodes 3

fuzz: FUZZ_RUNS := $(if $(filter command line environment,$(origin RUNS)),$(RUNS),20000)
fuzz: setup ## readers of what others write on a fuzzer's inputs (TARGET=name, RUNS=n; an input that breaks one is kept)
	$(BIN)/python -m tests.fuzz.run $(TARGET) --runs $(FUZZ_RUNS)

images: binaries ## driver images of real kernels: built, checked, booted, signed (packages are fetched once)
	$(PYTEST) $(SLOWEST) -p no:xdist tests/images -m images

e2e: binaries ## embedded cluster: API server, kwok, box nodes, crash points
	$(PYTEST) $(SLOWEST) -n 2 --dist loadfile tests/contract tests/cluster -m "cluster" --timeout=900
	$(PYTEST) $(SLOWEST) -n 2 --dist loadfile tests/e2e -m "e2e" --timeout=900 --ignore=$(DRIFT_CHAIN)

vm: binaries ## virtual nodes: boots, reboots, power cuts, hangs; boxes on cgroup v2 (emulated where there is no KVM)
	$(PYTEST) $(SLOWEST) -p no:xdist tests/cluster -m vm --timeout=900

test-full: export UPGRADER_TEST_PROFILE := full
test-full: LEFT_OUT :=
test-full: lint verify unit chaos-short images vm e2e ## all but e2e-vm, demo and nightly, with three times the examples (about an hour)

e2e-vm: binaries ## the whole rollout on virtual nodes with NVIDIA's modules: build/e2e-vm-report.json (20 minutes emulated)
	$(PYTEST) -p no:xdist tests/e2e_vm/test_story.py -m vm --timeout=900

torch: setup ## torch's CPU build in build/torch (150 MB to fetch, 650 MB there), from the distribution's archive
	bash tests/nightly/torch.sh build/torch

nightly: test-full torch ## what takes too long for every day: test-full, more examples, 10,000 chaos runs (NIGHTLY_RUNS=n), torch, every driver image of the matrix, the chain of drift, e2e-vm, every operand on virtual nodes, a fuzzer, a machine lost in its reboot, both demos (5 to 6 hours)
	UPGRADER_TEST_PROFILE=nightly $(PYTEST) -n 2 --dist loadfile tests/property --timeout=3600
	$(MAKE) chaos SEED=1 RUNS=$(NIGHTLY_RUNS)
	$(BIN)/upgrader images build --changed --report build/nightly-report.json
	$(PYTEST) -p no:xdist tests/nightly
	UPGRADER_TEST_PROFILE=nightly $(PYTEST) -p no:xdist tests/cluster/test_driver_builds.py -m cluster
	$(PYTEST) -p no:xdist $(DRIFT_CHAIN) -m e2e --timeout=900
	$(MAKE) e2e-vm
	$(PYTEST) -p no:xdist tests/e2e_vm/test_whole_stack.py tests/e2e_vm/test_lost_in_reboot.py tests/e2e_vm/test_reboot_after_unload.py -m vm --timeout=900
	$(MAKE) demo
	$(MAKE) demo DEMO="--boxes 4"

demo: binaries ## a rolling upgrade under a training gang on real kernels with NVIDIA's modules (DEMO="--boxes 4": without)
	$(BIN)/upgrader demo $(DEMO) --report build/demo-report.json

bench: binaries ## prints figures and ratios; asserts nothing about time
	$(BIN)/python -m tests.bench

image: setup packages ## images of the controller and of node pods: build/controller.tar, build/node.tar (IMAGE="--simulated-gpus": with vendor sim)
	$(BIN)/upgrader dev image --output build/controller.tar $(IMAGE)
	$(BIN)/upgrader dev image --node --output build/node.tar $(IMAGE)
