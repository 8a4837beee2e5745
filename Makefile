# Two commands do everything on a fresh machine with Python 3.11: `make run` and `make test`.
PYTHON ?= python3.11
PYTHON := $(shell command -v $(PYTHON) || command -v python3)
LOCKS  := docker/requirements
# uv installs all else, but not itself.
PIP    := -m pip install -qq --disable-pip-version-check --no-input
UV      = $(@D)/bin/uv
INSTALL = $(UV) pip install --quiet --no-config --python $(@D)/bin/python
# Where uv's cache has all of a set, its hashes leave the index nothing to say.
LOCKED  = --only-binary :all: --require-hashes -r $(filter %.txt,$^)
# TensorFlow takes 5 seconds and 700 MB in each process: the fast tests have as many as fit the machine (tests/threads.py),
# the others, which start containers, two. See tests/conftest.py for what runs in which.
PYTEST := .venv-dev/bin/python -m pytest --no-loadscope-reorder -n

# Compiled modules are kept whatever the user's habit: TensorFlow loads in 4 seconds with them, in 12 without.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-weekly mutations lint lint-schemas docs pins lock clean

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

run: .venv/ready ## the main job: wheel, smoke checks, training on real digits, a picture of the result
	@.venv/bin/toolkit up digits

test: .venv-dev/ready ## the fast tests: no engine, no GPU, no network
	@$(PYTEST) $$(.venv-dev/bin/python -m tests.threads) -m "not (engine or rehearse or slow or weekly)"

test-all: .venv-dev/ready ## all tests: also slow ones, in real containers and on an emulated GPU
	@$(PYTEST) 2 -m "not weekly" --durations 40 --durations-min 10

test-weekly: .venv-dev/ready ## what takes longest: more kills, wrong bytes, large images; an hour, with all that CI has
	@$(PYTEST) 2 -m weekly

mutations: .venv-dev/ready ## break the code on purpose, once for each entry of a list: each time a test must fail
	@.venv-dev/bin/python -m tests.mutations

lint: .venv-dev/ready lint-schemas ## every linter of the house
	@.venv-dev/bin/ruff check .
	@.venv-dev/bin/ruff format --check .
	@.venv-dev/bin/mypy
	@MYPYPATH=docker/scripts .venv-dev/bin/mypy --package wheelbuild
	@MYPYPATH=toolkit/checks:docker/scripts/proof:. .venv-dev/bin/mypy docker/scripts/proof/prove.py docker/scripts/kernels/tree.py
	@.venv-dev/bin/hadolint docker/Dockerfile docker/base/bazel/Dockerfile .devcontainer/Dockerfile
	@.venv-dev/bin/shellcheck --severity=warning $$(git ls-files | xargs awk 'FNR == 1 && /^#!.*sh$$/ {print FILENAME}')

lint-schemas: .venv-dev/ready ## files that have a JSON schema; `make lint` does it too
	@.venv-dev/bin/check-jsonschema --builtin-schema vendor.compose-spec compose.yaml compose.gpu.yaml
	@.venv-dev/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml $$(ls examples/*.yml | grep -v gitlab)
	@.venv-dev/bin/check-jsonschema --builtin-schema vendor.github-actions action.yml
	@.venv-dev/bin/check-jsonschema --builtin-schema vendor.gitlab-ci examples/gitlab.yml
	@.venv-dev/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@.venv-dev/bin/check-jsonschema --check-metaschema toolkit/schemas/*.json
	@.venv-dev/bin/check-jsonschema --schemafile toolkit/schemas/lock.json docker/toolkit.lock.yaml
	@.venv-dev/bin/check-jsonschema --schemafile toolkit/schemas/settings.json examples/toolkit.yaml
	@.venv-dev/bin/check-jsonschema --schemafile toolkit/schemas/policy.json examples/policy.yaml

docs: export NO_MKDOCS_2_WARNING := 1
docs: export TF_CPP_MIN_LOG_LEVEL := 2
docs: .venv-dev/ready ## the documentation site, in .site/html; a dead link or a call to another host is an error
	@.venv-dev/bin/python -m tools.site collect
	@.venv-dev/bin/mkdocs build --strict
	@.venv-dev/bin/python -m tools.site check

# A folder is ready when the marker is newer than its lock. A whole one is brought up to date; one whose install was
# interrupted has no marker and is made again from the start. So is one that came with a copied or moved clone: its
# programs name the folder in which it was made, which the marker holds. The program `toolkit` looks for the Python beside
# itself, so that it is that of its own clone even before the next `make`. The path to this folder is made relative,
# because Python reads it by the locale's encoding, which may lack its letters.
FOREIGN := $(shell for marker in .venv/ready .venv-dev/ready; do \
  [ ! -e $$marker ] || [ "$$(cat $$marker)" = "$$(pwd -P)" ] || echo $$marker; done)
.PHONY: $(FOREIGN)
.venv/ready: $(LOCKS)/toolkit.txt
.venv-dev/ready: $(LOCKS)/dev.txt
.venv/ready: NEWEST := 13
# The locked TensorFlow 2.19.0 has no wheel for Python 3.13.
.venv-dev/ready: NEWEST := 12
.venv/ready .venv-dev/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; found = sys.version_info[:2]; sys.exit(None if (3, 11) <= found <= (3, $(NEWEST)) else \
	  "error: $(@D) needs Python 3.11 to 3.$(NEWEST), and $(PYTHON) is %d.%d; name another by make PYTHON=..." % found)'
	@echo "preparing $(@D) from $(filter %.txt,$^)"
	@$(if $(filter $@,$(FOREIGN)),echo "it was made for a clone in another folder: it is made again"; rm -f $@,:)
	@test -e $@ || $(PYTHON) -m venv --clear $(@D)
	@rm -f $@
	@$(@D)/bin/python $(PIP) --require-hashes -r $(LOCKS)/uv.txt
	@$(INSTALL) --offline $(LOCKED) 2>/dev/null || $(INSTALL) $(LOCKED)
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@for file in $(@D)/lib/python3*/site-packages/_tensorflow_toolkit.pth; do echo ../../../.. >"$$file"; done
	@printf '%s\n' '#!/bin/sh' 'exec "$$(dirname -- "$$(readlink -f -- "$$0")")/python" -P -m toolkit "$$@"' >$(@D)/bin/toolkit
	@pwd -P >$@

pins: .venv-dev/ready ## write what other programs read: pins, arguments of options, and schemas
	@.venv-dev/bin/python -m toolkit.versions.pins
	@.venv-dev/bin/python -m tools.dockerfile
	@.venv-dev/bin/python -m toolkit.versions.lock
	@.venv-dev/bin/python -m tools.schemas

lock: .venv-dev/ready ## freeze the newest versions of everything into the locked sets
	@UV=$(CURDIR)/.venv-dev/bin/uv docker/requirements/lock

clean: .venv/ready ## remove what was made here, but not the runs; asks first (YES=1 where there is no terminal)
	@.venv/bin/toolkit clean $(if $(YES),--yes)
