PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

BENCH := .venv-bench

.PHONY: setup demo test docs bench fuzz soak results dist

setup: $(INSTALLED)

# Made when missing, and brought up to date when older than what it is made from: in place, so that programs that run
# from it live on. It is made anew only if it does not work, for example because the folder was moved.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("csml needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	@{ $(BIN)/pip --version && $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))'; } >/dev/null 2>&1 \
		|| $(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	@touch $@

# Both sides of every ratio live in one environment of their own. FIGURES="views search" runs some of them.
bench:
	@test -e $(BENCH)/.installed || $(PYTHON) -m venv --clear $(BENCH)
	$(BENCH)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[all]' --requirement benchmarks/requirements.txt
	@touch $(BENCH)/.installed
	$(BENCH)/bin/python -m benchmarks $(FIGURES)

demo: setup
	$(BIN)/csml demo

# Types are checked beside the tests: mypy keeps one core busy for most of a minute where it has no cache.
test: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@.ci/chromium
	$(BIN)/mypy & types=$$!; \
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder; tests=$$?; \
	wait $$types && exit $$tests

# site/: these documents as pages; open site/index.html, or for the search: python -m http.server --directory site
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# dist/: a wheel and an sdist; the same commit gives the same bytes.
dist: setup
	$(BIN)/python .ci/dist.py dist

# docs/results.md, from what csml ablate has left in docs/evidence and the notes beside it.
results: setup
	$(BIN)/csml tables docs/evidence/*/ --introduction docs/evidence/introduction.md \
		--title "Does each part help?" --output docs/results.md

# Hostile bytes for every parser; EXAMPLES=20000 makes it hours, each time with other inputs.
fuzz: setup
	FUZZ_EXAMPLES=$(or $(EXAMPLES),2000) OMP_NUM_THREADS=1 $(BIN)/pytest tests/fuzz

# Commands are disturbed at random moments, and compared with undisturbed ones; KILLS=50 takes about a quarter of an hour.
# Given again, it goes on where it was stopped; SEED=1 is another sequence.
soak: setup
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m soak --kills $(or $(KILLS),50) --seed $(or $(SEED),0)
