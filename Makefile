# Two commands do everything on a fresh machine with Python 3.11: `make run` and `make test`.
PYTHON ?= python3.11
PYTHON := $(shell command -v $(PYTHON) || command -v python3)
LOCKS  := docker/requirements
PIP    := -m pip install -qq --disable-pip-version-check --no-input
TESTS  ?= not engine

.DEFAULT_GOAL := help
.PHONY: help run test test-all lint pins lock clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

run: .venv/ready ## the main job: wheel, smoke checks, training on real digits, a picture of the result
	@.venv/bin/toolkit up digits

test: .venv-dev/ready ## the tests that need no engine, no GPU and no network
	@.venv-dev/bin/python -m pytest -m "$(TESTS)"

test-all: TESTS := engine or not engine
test-all: test ## all tests: those with real containers need a Docker engine and docker/base/bootstrap

lint: .venv-dev/ready ## every linter of the house
	@.venv-dev/bin/ruff check .
	@.venv-dev/bin/ruff format --check .
	@.venv-dev/bin/mypy
	@MYPYPATH=docker/scripts .venv-dev/bin/mypy --package wheelbuild
	@.venv-dev/bin/mypy docker/scripts/proof/prove.py
	@.venv-dev/bin/hadolint docker/Dockerfile docker/base/bazel/Dockerfile
	@.venv-dev/bin/shellcheck --severity=warning $$(git ls-files | xargs awk 'FNR == 1 && /^#!.*sh$$/ {print FILENAME}')
	@.venv-dev/bin/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml compose.gpu.yaml
	@.venv-dev/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

# A folder is ready when the marker is newer than its lock: an interrupted install is done again from the start.
.venv/ready: $(LOCKS)/toolkit.txt
.venv-dev/ready: $(LOCKS)/dev.txt
.venv/ready .venv-dev/ready: pyproject.toml
	@echo "preparing $(@D) from $(filter %.txt,$^)"
	@$(PYTHON) -m venv --clear $(@D)
	@$(@D)/bin/python $(PIP) --require-hashes -r $(filter %.txt,$^)
	@$(@D)/bin/python $(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

pins: .venv-dev/ready ## write the pins of the version table into the files that other programs read
	@.venv-dev/bin/python -m toolkit.versions.pins

lock: ## freeze the newest versions of everything into the locked sets
	@docker/requirements/lock

clean: .venv/ready ## remove what the toolkit made: images, containers, environments; not the runs
	@.venv/bin/toolkit clean
