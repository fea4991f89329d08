# Every target works on a fresh clone with nothing but python3 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: demo test test-long lint format bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/osls demo

# Two workers of one thread each: more threads than cores slow the small networks down many times over.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal --durations 10

test-long: $(STAMP)
	$(BIN)/pytest -o addopts='' tests/long

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/osls bench --data digits --methods pulse,pulse-paper,source-only,oracle --draws 5

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache dist build
