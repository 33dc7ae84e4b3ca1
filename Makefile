# Every task of a developer; `make help` lists them.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
SECONDS ?= 300
SEED ?= 0
JOBS ?= 2
RECORDS ?= .records

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet -e '.[dev]'
	touch $(VENV)/ready

setup: $(VENV)/ready  ## make a virtual environment with everything for development

demo: $(VENV)/ready  ## compile a problem, check it, show its schedule
	$(VENV)/bin/wsopt compile problems/gemm_small_k.json
	$(VENV)/bin/wsopt run gemm_small_k.wsopt
	$(VENV)/bin/wsopt inspect gemm_small_k.wsopt

test: $(VENV)/ready  ## run the tests; no GPU is needed
	$(VENV)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-fast: $(VENV)/ready  ## run the tests of every room that need no search, no compiler and no seconds
	$(VENV)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not (solver or compiler or torch or slow)"

records: $(VENV)/ready  ## find again all that tests have records of, and keep it (an hour)
	rm -rf $(RECORDS) && mkdir -p $(RECORDS)
	rm -f $(addprefix tests/helpers/,$(addsuffix .json,machine_code binaries simulated ending_waits simulated_runs solver_answers known_schedules))
	WSOPT_RECORD=$(CURDIR)/$(RECORDS) $(VENV)/bin/python -m pytest -n 2 --dist loadfile
	$(VENV)/bin/python tests/helpers/records.py $(RECORDS)

fuzz: $(VENV)/ready  ## compile random graphs for SECONDS; SEED, JOBS, FAMILY="family decode", and ONLY=i for graph i alone
	$(VENV)/bin/python tests/fuzz/fuzz_run.py --seconds $(SECONDS) --seed $(SEED) --jobs $(JOBS) $(ONLY:%=--only %) $(if $(FAMILY),--family "$(FAMILY)")

mutants: $(VENV)/ready  ## delete every wait, arrival and fence of every kernel, and see that a run shows it (minutes)
	PYTHONPATH=. $(VENV)/bin/python tests/mutants/mutants.py $(if $(JOBS),--jobs $(JOBS)) $(if $(ONLY),--only $(ONLY))

cluster: $(VENV)/ready  ## compile a block on a Dask cluster here, kill a worker, compare with no cluster (minutes)
	PYTHONPATH=. $(VENV)/bin/python tests/pool/cluster_run.py

whole-graphs: $(VENV)/ready  ## compile and simulate small graphs of whole layers (half an hour); ONLY="name ..." for some
	PYTHONPATH=.:tests/helpers $(VENV)/bin/python tests/partition/whole_graphs.py $(ONLY)

lint: $(VENV)/ready  ## run the linter and the formatter's check
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(VENV)/ready  ## run the type checker
	$(VENV)/bin/mypy

docs: $(VENV)/ready  ## write the pages of docs/ that are made from the committed measurements and figures
	$(VENV)/bin/python -m wsopt.bench.docs docs/benchmarks/*.json -o docs/benchmarks.md
	$(VENV)/bin/wsopt report docs/benchmarks/*.json --html docs/benchmarks.html
	$(VENV)/bin/python -m wsopt.bench.docs docs/few_tiles/*.json -o docs/few_tiles.md
	$(VENV)/bin/python -m wsopt.bench.docs docs/rows/*.json -o docs/rows.md
	$(VENV)/bin/python -m wsopt.bench.docs docs/quantized/*.json -o docs/quantized.md
	$(VENV)/bin/python -m wsopt.bench.docs docs/survey/*.json -o docs/survey.md
	$(VENV)/bin/python -m wsopt.bench.docs docs/survey/second/*.json -o docs/survey_second.md
	$(VENV)/bin/python -m wsopt.bench.docs docs/survey/third/*.json -o docs/survey_third.md
	$(VENV)/bin/python -m wsopt.bench.docs docs/survey/fourth/*.json -o docs/survey_fourth.md
	$(VENV)/bin/python -m wsopt.bench.host_cost_docs docs/host_cost/*.json -o docs/host_cost.md
	$(VENV)/bin/python -m wsopt.validate.docs docs/model/*.json -o docs/model.md
	$(VENV)/bin/python -m wsopt.space.docs docs/space/h200.json -o docs/space.md
	$(VENV)/bin/python -m wsopt.validate.cards_docs docs/blackwell/published.json docs/blackwell/roles.json -o docs/blackwell.md

space: $(VENV)/ready  ## solve the problems without each limit of the emitter, for docs/space.md (minutes)
	$(VENV)/bin/python -m wsopt.space problems/*.json docs/space/graphs/*.json --json docs/space/h200.json

margin: $(VENV)/ready  ## learn the register margin from what ptxas makes of the problems (minutes)
	$(VENV)/bin/python -m wsopt.learn problems/*.json

wheel: $(VENV)/ready  ## build the wheel into dist/
	$(VENV)/bin/python -m pip wheel --quiet --no-deps -w dist .

clean:  ## remove what the other tasks made
	rm -rf $(VENV) *.wsopt dist build .pytest_cache .mypy_cache .ruff_cache

.PHONY: help setup demo test test-fast records fuzz mutants cluster whole-graphs lint types docs space margin wheel clean
