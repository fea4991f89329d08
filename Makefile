# Every target works on a fresh clone with nothing but python3 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# What users install, and what developing needs besides.
RUNTIME := $(VENV)/.runtime
STAMP  := $(VENV)/.installed

.PHONY: demo test test-long lint stats format bench bench-pages bench-speed docs docs-serve docs-run coverage fuzz audit lock endurance test-minimum changelog release clean

$(RUNTIME): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(STAMP): $(RUNTIME)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(RUNTIME)
	$(BIN)/osls demo

# Two workers of one thread each: more threads than cores slow the small networks down many times over.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --durations 10

test-long: $(STAMP)
	$(BIN)/pytest -o addopts='' tests/long

# Branch coverage of src; below the figure in pyproject.toml it fails.
coverage: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term-missing:skip-covered --cov-report=html

# Ten thousand examples of each property.
fuzz: $(STAMP)
	HYPOTHESIS_PROFILE=long OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --durations 0 tests/test_properties.py tests/test_fuzz.py

# Mutated models, kills, two processes at once, a long watch: each goes on where it was stopped.
endurance: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/endurance.py mutations --count 5000 --out .cache/mutations.jsonl
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/endurance.py kills --count 40 --out .cache/kills.jsonl
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/endurance.py pairs --count 20 --out .cache/pairs.jsonl
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/endurance.py soak --count 2000 --out .cache/soak.jsonl

# What may be dangerous, dead, or known to be vulnerable. The last asks a server, and says what it could not ask about.
audit: $(STAMP)
	$(BIN)/bandit -q -c pyproject.toml -r src
	$(BIN)/vulture
	$(BIN)/python tools/audit.py

# All that osls and its extras need to run, on every system, with the hashes of every file; the pins are those of
# constraints.txt. tests/test_supply.py holds it to them. Builds of torch from another index (CPU only) have other hashes.
lock: $(STAMP)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    --no-emit-index-url --extra all -c constraints.txt -o requirements.txt pyproject.toml

# The smallest versions that pyproject.toml allows. Warnings of old versions about new ones are theirs.
MINIMUM := $(VENV)-minimum
test-minimum:
	$(PYTHON) -m venv $(MINIMUM)
	$(MINIMUM)/bin/pip install --quiet --disable-pip-version-check -c constraints-minimum.txt -e '.[bench,images]' anndata duckdb hypothesis jsonschema polars pytest
	OMP_NUM_THREADS=1 $(MINIMUM)/bin/pytest -W ignore::DeprecationWarning --deselect 'tests/test_malformed.py::test_malformed_input[picture-cut-short]' \
	    tests/test_bbe.py tests/test_files.py tests/test_malformed.py tests/test_mixture.py tests/test_parts.py \
	    tests/test_persist.py tests/test_pu.py tests/test_shift.py tests/test_simulate.py tests/test_streaming.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# How many rooms, files, imports and lines there are, beside their limits.
stats: $(STAMP)
	$(BIN)/python tools/stats.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/osls bench --data digits --methods pulse,pulse-paper,source-only,oracle --draws 5

# The pages of the committed results, for people: self-contained, they open from the disk.
RESULTS := benchmarks/results
bench-pages: $(STAMP)
	$(BIN)/osls bench page $(RESULTS)/cells $(RESULTS)/newsgroups $(RESULTS)/cifar10 \
	    --title 'PULSE beside other methods' --out $(RESULTS)/methods.html
	$(BIN)/osls bench page $(RESULTS)/novel-fraction-cpu --out $(RESULTS)/novel-fraction.html
	$(BIN)/osls bench page $(RESULTS)/pu-cpu --out $(RESULTS)/pu.html

# The documentation, with every warning an error (not so with --quiet). The examples of the gallery run if they or the
# package changed.
$(VENV)/.docs: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs serve

# The commands of the tutorial and of the how-to pages, as they stand there; what they print is put into the pages.
docs-run: $(VENV)/.docs
	OMP_NUM_THREADS=1 $(BIN)/python docs/run_blocks.py --write docs/tutorial.md docs/howto/*.md docs/method/*.md

# The section of the changelog that the next release will get.
changelog: $(STAMP)
	$(BIN)/towncrier build --draft --version next

# All of a release but the upload: build, check, install the wheel where nothing else is, run the demo from it.
RELEASE := $(VENV)-release
release: $(STAMP) changelog
	rm -rf dist $(RELEASE)
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd $(RELEASE) && bin/osls --version && bin/osls demo --out demo.html

bench-speed: $(STAMP)
	$(BIN)/python benchmarks/speed.py

clean:
	rm -rf $(VENV) $(MINIMUM) $(RELEASE) .pytest_cache .mypy_cache .ruff_cache .cache dist build site htmlcov .coverage*
