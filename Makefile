# Needs GNU make and Python 3.11 or newer; everything else goes into .venv.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONSTRAINTS := .ci/constraints.txt
PYTEST_ARGS ?=
# A test computes on one thread, so two of them fill two cores. Bytecode is kept, whatever the environment says: hundreds
# of child processes would compile everything again.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses 2 --dist worksteal
DEMO_ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# torch goes first and alone: a range such as `torch>=2.11` may resolve to a build with gigabytes of CUDA packages.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) torch
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --group dev --editable '.[train,plot,lsp]'
	touch $@

.PHONY: demo
demo: $(STAMP) ## Train a small Llama with LoRA under three policies and compare them, then lint the classic mistakes
	$(BIN)/python examples/demo.py $(DEMO_ARGS)

.PHONY: test
# Hypothesis's own profile: the same examples every time. `make test-all` draws new ones.
test: style typecheck ## Ruff, mypy --strict and every test that is not slow
	$(PYTEST) -m 'not slow' --hypothesis-profile=ci $(PYTEST_ARGS)

.PHONY: test-all
test-all: style typecheck ## The same with the slow tests
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --group ecosystem
	$(PYTEST) $(PYTEST_ARGS)

.PHONY: lint
lint: style typecheck ## Ruff, mypy --strict, and ckpt-lint on this repository
	$(BIN)/ruff format --check .
	$(BIN)/ckpt-lint .

.PHONY: style
style: $(STAMP)
	$(BIN)/ruff check .

.PHONY: typecheck
typecheck: $(STAMP) .typing ## mypy --strict
	cd .typing && $(abspath $(BIN))/mypy --config-file ../pyproject.toml --package hf_ckpt

# mypy knows nothing of setuptools' package-dir: it reads the packages where they are imported, through links.
.PHONY: .typing
.typing:
	@mkdir -p .typing/hf_ckpt
	@ln -sfn ../../lint ../../callbacks $$(cd hf_ckpt && printf '../../hf_ckpt/%s ' *) .typing/hf_ckpt
	@find .typing -xtype l -delete

.PHONY: bench
bench: $(STAMP) ## Measure the engine and the planner on this machine, its GPU where it has one, into tests/benchmarks/results/
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --group bench
	results=$$($(BIN)/python -m tests.benchmarks.device); missed=0; for run in frontier 'frontier --dtype bf16' host_cost length_skew predict; do \
		OMP_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks.$$run \
			--out $$results/$${run// --dtype /_}.json || missed=1; \
	done; exit $$missed

.PHONY: sweep
sweep: $(STAMP) ## Every architecture of transformers under every policy, into hf_ckpt/ARCHITECTURES.md (hours; resumes)
	OMP_NUM_THREADS=1 nice $(BIN)/python -m tests.sweep

.PHONY: budgets
budgets: $(STAMP) ## What budgets do on what people fine-tune, into hf_ckpt/BUDGETS.md (minutes; packages it lacks are named)
	OMP_NUM_THREADS=1 nice $(BIN)/python -m tests.acceptance

.PHONY: published
published: $(STAMP) ## Plans against measurements that others published, into hf_ckpt/PUBLISHED.md (minutes)
	OMP_NUM_THREADS=1 nice $(BIN)/python -m tests.published

SIM_VENV ?= .venv-sim
SIM_STAMP := $(SIM_VENV)/.installed
SIM_TORCH ?= 2.13.0

# `===` takes PyPI's wheel, the one for CUDA, where a folder of pip's --find-links has a build for the CPU.
$(SIM_STAMP): pyproject.toml $(CONSTRAINTS)
	test -x $(SIM_VENV)/bin/python || $(PYTHON) -m venv $(SIM_VENV)
	$(SIM_VENV)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(SIM_VENV)/bin/python -m pip install --quiet 'torch===$(SIM_TORCH)' nvidia-cuda-crt
	sed '/^torch=/d' $(CONSTRAINTS) > $(SIM_VENV)/constraints.txt
	$(SIM_VENV)/bin/python -m pip install --quiet --constraint $(SIM_VENV)/constraints.txt --editable '.[train]' bitsandbytes
	touch $@

.PHONY: sim
sim: $(STAMP) $(SIM_STAMP) ## Everything on simulated GPUs: the tests and the tables of tests/gpu_sim (5 GB for torch's CUDA wheel, gcc; hours on two cores, it resumes)
	$(SIM_VENV)/bin/python -m tests.gpu_sim.build
	HF_CKPT_SIM_VENV=$(SIM_VENV) $(BIN)/python -m pytest tests/gpu_sim $(PYTEST_ARGS)
	HF_CKPT_SIM_VENV=$(SIM_VENV) nice $(BIN)/python -m tests.gpu_sim.judge
	HF_CKPT_SIM_VENV=$(SIM_VENV) nice $(BIN)/python -m tests.gpu_sim.long

.PHONY: clean
clean: ## Remove everything that was built here, .venv too
	rm -rf $(VENV) $(SIM_VENV) .typing .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
