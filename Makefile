# Every target makes the environment it needs, once; `make help` lists them.
#
#   ARGS=...      is passed to the program that the target runs
#   PYTHON=...    the Python to start from (3.11 or newer)
#   SETUP=none    installs nothing and runs PYTHON as it is (no network needed)

PYTHON ?= python3
VENV := .venv
ARGS ?=

ifeq ($(SETUP),none)
# Backends are found by metadata, which installing them would have left somewhere.
LINKED = $$($(PYTHON) tools/link_backends.py .backends)
RUN := PYTHONPATH="$(CURDIR):$(LINKED)$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON)
PROFILE_READY :=
DEV_READY :=
else
RUN := $(VENV)/bin/python
PROFILE_READY := $(VENV)/ready-profile
DEV_READY := $(VENV)/ready-dev
endif

.DEFAULT_GOAL := help
.PHONY: help profile browsers test check readme notebooks pictures docs benchmark clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

# What prints results prints nothing else to stdout: make profile ARGS=--json | jq
profile: $(PROFILE_READY) ## measure one decoder layer on this machine
	@$(RUN) -m layerscope profile $(ARGS)

# Tests of pictures skip where this was not run. What is missing comes from Debian.
browsers: ## install Chromium, Node.js and Perfetto, which tests of pictures look at
	@for each in chromium:chromium node:nodejs npm:npm; do \
	  command -v $${each%:*} >/dev/null && continue; \
	  apt-get update && apt-get install --yes --no-install-recommends $${each#*:} || exit; \
	done >&2
	@npm ci --prefix tests/perfetto >&2

# A test that hangs is stopped with a traceback of every thread.
test: export PYTEST_TIMEOUT ?= 300
test: $(DEV_READY) ## run the tests; those for a GPU only where there is one
	$(RUN) -m pytest $(ARGS)

check: $(DEV_READY) ## lint, types, import contracts
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -c 'from importlinter.cli import lint_imports_command as run; run()'

readme: $(DEV_READY) ## write the outputs in README and docs anew from fixtures/
	@$(RUN) tools/readme.py

notebooks: $(DEV_READY) ## run the notebooks, write their pages in docs/ anew
	@$(RUN) tools/notebook_pages.py

# Those in a browser need what `make browsers` installs; ARGS takes some of them.
pictures: $(DEV_READY) ## take the pictures in docs/images anew from fixtures/
	@$(RUN) -m tools.pictures $(ARGS)

# A broken link, a missing anchor or a page that is not in the nav fails. No network.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(DEV_READY) ## build the documentation into site/
	$(RUN) -m mkdocs build --strict
	@echo "site/index.html; with search: $(PYTHON) -m http.server -d site" >&2

benchmark: $(PROFILE_READY) ## time layerscope's own start
	@$(RUN) benchmarks/import_time.py $(ARGS)

clean: ## remove the environment and all caches
	rm -rf $(VENV) .backends dist site tests/perfetto/node_modules .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/ready-%: pyproject.toml constraints.txt tools/setup_venv.py $(wildcard backends/*/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "layerscope needs Python 3.11 or newer, and \`$(PYTHON)\` is not:" \
	    "apt install python3 python3-venv, or name another: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) tools/setup_venv.py $(VENV) $* >&2
	@touch $@
