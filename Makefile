# One command runs the main job, one tests it, one checks style, types and import contracts.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Before what takes long, what it is and about how long, on an idle machine with two cores.
SAY := @printf '==> %s\n' >&2

# Minutes that `make fuzz` gives to each target, and which.
MINUTES ?= 1
TARGETS ?= pcap pcapng link stream kernels frames dissector records codec tls

# The release of kafka-clients that `make conformance` asks, for instance 4.5.0; nothing for the newest.
VERSION ?=

.PHONY: echarts kernels run pipeline test test-all check figures conformance fuzz bench clean

run: $(VENV)/.run
	$(SAY) "The report of the captures in captures/ (a few seconds)"
	$(BIN)/kwsniff report captures --csv out/csv
	$(SAY) "The same as one row per call, in Parquet (a few seconds)"
	$(BIN)/kwsniff decode captures -q -f parquet -o out/events.parquet
	$(SAY) "Done: tables of the report are in out/csv, events in out/events.parquet. What follows is for Spark alone."
	@$(MAKE) --no-print-directory pipeline

# Apart from the report, which so needs neither the download of Spark nor a Java.
pipeline: $(VENV)/.spark
	$(SAY) "The data pipeline on the same captures (half a minute)"
	$(BIN)/kwsniff pipeline captures --out out/pipeline
	$(SAY) "Done: the pipeline's events and statistics are in out/pipeline"

# Side by side on as many cores as there are. `test` leaves out repeats (cases that differ from others only in
# the sample, the damage or the random numbers) and what is costly to prepare; `test-all` has both. See
# tests/strength.py.
# They start kwsniff a few hundred times: its modules are compiled once.
# One worker more than there are cores: many tests wait for something, Spark's most of all.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n $(WORKERS)

test: $(VENV)/.dev
	$(PYTEST)

test-all: $(VENV)/.dev
	KWSNIFF_TESTS=all $(PYTEST) -m "not tshark and not root and not slow and not maven and not browser"

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.figures

# How large the source is and how it hangs together, and what of it counts; see tests/figures.py.
figures: $(VENV)/.dev
	$(BIN)/python -m tests.figures -v

# What the dissectors lack or say otherwise than a release of Kafka; needs mvn and a JDK.
conformance: $(VENV)/.dev
	$(BIN)/python -m tests.conformance $(VERSION)

fuzz: $(VENV)/.dev
	$(INSTALL) -e '.[fuzz]'
	for target in $(TARGETS); do $(BIN)/python -m tests.fuzz.fuzz $$target $$(( $(MINUTES) * 60 )) || exit 1; done

# Compile the kernels again after a change to them; installing does it the first time (see docs/design.md).
kernels: $(VENV)/.dev
	$(BIN)/python -m kwsniff.engine.build

# The charts' library of pages, from what its authors published; needs npm. ECHARTS=6.2.0 for another version.
echarts: $(VENV)/.dev
	$(BIN)/python -m tests.page.echarts $(ECHARTS)

# Beside tshark, which must be installed; records its workloads first (as root, needs tcpdump, Java and Maven).
bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench.run --out docs/performance.md
	$(BIN)/python -m tests.bench.tls --out docs/performance.md
	$(BIN)/python -m tests.bench.pairing --out docs/reliability.md
	$(BIN)/python -m tests.bench.replay --out docs/live.md
	$(BIN)/python -m tests.bench.pipeline --out docs/spark.md

$(BIN)/python:
	$(SAY) "Making a virtual environment in $(VENV) (a few seconds)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: $(BIN)/python pyproject.toml
	$(SAY) "Installing kwsniff: downloads 250 MB, compiles its kernels (a minute; three on a slow machine)"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.spark: $(VENV)/.run
	$(SAY) "Installing Spark and a Java runtime: downloads 500 MB (a minute; more on a slow network)"
	@$(INSTALL) -e '.[spark]'
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(SAY) "Installing kwsniff and what its tests need: downloads 1 GB, compiles its kernels (three minutes)"
	@$(INSTALL) -e '.[dev]'
	@touch $(VENV)/.run $(VENV)/.spark $@

clean:
	rm -rf $(VENV) out build dist
