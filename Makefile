# Each target does all its own set-up: one .venv, made once and shared. The stamps make repeated calls instant.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev

.DEFAULT_GOAL := help
.PHONY: help demo demo-week docs test test-long test-all mutants check bench format image image-digests clean

help:
	@echo "make demo      plan the quickstart input and show the plan"
	@echo "make demo-week show what placement cost in a made-up fortnight: build/week.html"
	@echo "make test      run the tests: a sample of each sweep, some three minutes"
	@echo "make test-long run long tests, most of what changes clusters: about two minutes"
	@echo "make test-all  run every test and nearly whole sweeps, about twenty minutes"
	@echo "make mutants   plant faults one at a time; each must be caught by its net of tests"
	@echo "make check     lint and type check"
	@echo "make bench     measure, compare with other schedulers, write benchmarks/report.html"
	@echo "make docs      build the documentation as a site, with JSON schemas: build/site/index.html"
	@echo "make image     build the container image; make image-digests pins its two base images first"
	@echo "make clean     remove .venv and caches"

demo: $(RUNTIME)
	@$(BIN)/gangplan plan inputs/any-order-places-one

demo-week: $(RUNTIME)
	@mkdir -p build
	@$(BIN)/gangplan report benchmarks/week -o table --out build/week.html

# Some tests run the real kubectl against a server of ours. Many start Python: what is compiled is kept.
PYTEST = export PYTHONDONTWRITEBYTECODE=; kubectl=$$(bash .ci/kubectl "$(CURDIR)/$(VENV)/kubectl") && KUBECTL="$$kubectl" $(BIN)/python -m pytest -n 3 --dist worksteal

test: $(DEV)
	@$(PYTEST)

test-long: $(DEV)
	@$(PYTEST) -m slow tests/apply tests/search/test_large_instances.py tests/cli/test_cli_process.py tests/cli/test_docs_commands.py tests/documents/test_expressions.py tests/week/test_week.py

test-all: $(DEV)
	@$(PYTEST) --thorough

mutants: $(DEV)
	@kubectl=$$(bash .ci/kubectl "$(CURDIR)/$(VENV)/kubectl") && KUBECTL="$$kubectl" $(BIN)/python tests/mutants.py

check: $(DEV)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo --no-cache

bench: $(DEV)
	@$(BIN)/python -m benchmarks

# Strict: a broken link, or a page that the navigation leaves out, is an error.
docs: $(DEV)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict -f deploy/docs/mkdocs.yml
	@$(BIN)/python -m planner.read.schemas build/site/schemas
	@echo "build/site/index.html"

format: $(DEV)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The digests are those that the registries give for these tags on the day they are asked.
DIGESTS := deploy/image/digests
image-digests:
	@set -e; rm -f $(DIGESTS).new; \
	for one in PYTHON=python:3.11-slim-bookworm KUBECTL=registry.k8s.io/kubectl:v1.36.2; do \
	  digest=$$(docker buildx imagetools inspect "$${one#*=}" --format '{{.Manifest.Digest}}'); \
	  echo "$$one@$$digest" >> $(DIGESTS).new; \
	done; \
	mv $(DIGESTS).new $(DIGESTS); cat $(DIGESTS)

image:
	@test -s $(DIGESTS) || { echo "error: $(DIGESTS) is missing" >&2; echo "hint: make image-digests" >&2; exit 1; }
	@test -n "$(IMAGE)" || { echo "error: the image has no name" >&2; echo "hint: make image IMAGE=..." >&2; exit 1; }
	docker build -f deploy/image/Dockerfile -t "$(IMAGE)" $$(sed 's/^/--build-arg /' $(DIGESTS)) .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info

# Debian keeps ensurepip in another package; where it is missing, the outer pip fills the environment.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than Python 3.11" >&2; echo "hint: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "making $(VENV) (once)" >&2
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || \
	  { rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) && \
	    $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || { rm -rf $(VENV); exit 1; }

$(RUNTIME): $(BIN)/python pyproject.toml
	@echo "installing gangplan into $(VENV) (once)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(DEV): $(BIN)/python pyproject.toml
	@echo "installing gangplan and its tools into $(VENV) (once)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(RUNTIME) $@
