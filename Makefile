# The front door: `make help` lists what it opens. Every target first installs what is missing, shows what it does,
# and can be interrupted and run again.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

PRESET ?= dev
build_dir := build/$(PRESET)
llvm_bin := $(abspath $(or $(LLVM_DIR),/usr/lib/llvm-22/lib/cmake/llvm)/../../../bin)

ifneq ($(PYTHON),)
  python := $(shell command -v $(PYTHON))
else ifneq ($(filter-out $(CURDIR)/.venv,$(VIRTUAL_ENV)),)
  python := $(VIRTUAL_ENV)/bin/python
else
  python := $(CURDIR)/.venv/bin/python
  # Named after what it stands for and written last, so that an edit or an interruption brings the installation back.
  venv_stamp := .venv/installed-$(firstword $(shell cat requirements.txt build_tools/make_venv.sh | sha256sum))
endif

# What the preset cannot know.
configuration := $(strip -DPython3_EXECUTABLE=$(python) $(if $(LLVM_DIR), \
    -DLLVM_DIR=$(LLVM_DIR) -DMLIR_DIR=$(LLVM_DIR)/../mlir \
    -DCMAKE_C_COMPILER=$(firstword $(wildcard $(llvm_bin)/clang) cc) \
    -DCMAKE_CXX_COMPILER=$(firstword $(wildcard $(llvm_bin)/clang++) c++)) $(CMAKE_ARGS))

export configuration
export PATH := $(llvm_bin):$(PATH)
export PYTHONPATH := $(CURDIR)/frontends/python$(if $(PYTHONPATH),:$(PYTHONPATH))

ifeq ($(PRESET),asan)
  SUITES ?= lit unit
  # LLVM's libraries are not instrumented: memory that its headers poison would stay poisoned.
  export ASAN_OPTIONS := allow_user_poisoning=0
else
  SUITES ?= lint docs lit unit python
endif

.PHONY: help packages setup build check gpu-check demo bench docs format release requirements clean

help:
	@awk -F ' ## ' '/^[a-z-]+:.* ## / { sub(/:.*/, "", $$1); printf "make %-14s %s\n", $$1, $$2 }' Makefile
	@printf '%s\n' '' 'Settings, all optional, after the target:' \
	  'LLVM_DIR=DIR         an LLVM and MLIR 22 other than the Debian packages: their <prefix>/lib/cmake/llvm' \
	  'PYTHON=PYTHON        a Python environment other than .venv; one that is active is used without being named' \
	  'PRESET=NAME          dev, release or asan (CMakePresets.json)' \
	  'CMAKE_ARGS=...       further arguments of the configuration, such as another compiler' \
	  'SUITES=...           the suites that `make check` runs, of: lint docs lit unit python' \
	  'ARGS=...             arguments of `make demo`, `make bench` and `make requirements`'

packages:
	@build_tools/install_packages.sh

$(venv_stamp): | packages
	build_tools/make_venv.sh
	@rm -f .venv/installed-*
	@touch $@

setup: packages $(venv_stamp) ## install Debian's packages and the Python environment
ifndef venv_stamp
	@$(python) build_tools/check_python.py
endif

ifneq ($(configuration),$(file <$(build_dir)/configuration))
.PHONY: $(build_dir)/build.ninja
endif
$(build_dir)/build.ninja: CMakePresets.json $(venv_stamp) | setup
	cmake --preset $(PRESET) $(configuration)
	@echo "$$configuration" >$(build_dir)/configuration
	@touch $@

build: $(build_dir)/build.ninja ## compile everything into build/PRESET
	cmake --build $(build_dir)
ifneq ($(PRESET),asan)
	@ln -sfn ../../../$(build_dir)/lib frontends/python/stretto/_native
endif

check: build ## run every test that needs no GPU
	@$(python) build_tools/run_tests.py --build $(build_dir) $(SUITES)

gpu-check: build ## run the tests that need a GPU
	@if $(python) -c 'import torch; raise SystemExit(not torch.cuda.is_available())'; \
	then $(python) build_tools/run_tests.py --build $(build_dir) gpu; \
	else echo '*** gpu-check SKIPPED: PyTorch sees no GPU here. NOTHING WAS TESTED. ***'; fi

demo: build ## see what stretto does
	@$(python) -m stretto.demo $(ARGS)

bench: build ## measure the kernels against their floors and other implementations
	@$(python) bench/run.py $(ARGS)

docs: build ## write the generated reference into docs/reference
	@$(python) build_tools/docs.py --build $(build_dir)

format: setup ## format C++ and Python, and repair what ruff can
	@$(python) build_tools/lint.py --fix

release: ## compile one stripped library that holds LLVM and MLIR
	@$(MAKE) build PRESET=release

requirements: setup ## pin requirements.in into requirements.txt (ARGS=--upgrade for newer versions)
	@$(python) -m uv pip compile --universal --python-version 3.11 --fork-strategy fewest --generate-hashes --no-emit-index-url \
	  --custom-compile-command 'make requirements' --quiet -o requirements.txt $(ARGS) requirements.in

clean: ## remove every build, but not .venv
	rm -rf build frontends/python/stretto/_native
