# Every target does its own set-up; a second run finds it done. `make help` lists the targets.

SPARK ?= 4.3.0
DEFAULT_SPARK := 4.3.0
# One environment for each Spark and each Python asked for.
VENV := .venv$(if $(filter-out $(DEFAULT_SPARK),$(SPARK)),-$(SPARK))$(if $(PYTHON),-$(notdir $(PYTHON)))

BIN := $(VENV)/bin
READY := $(VENV)/.ready
CONSTRAINTS := requirements/constraints.txt

# Without these the workers would run whatever python3 the PATH has.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(BIN)/python
# A Spark of the machine's own, or settings for it, would be used instead of the pinned one.
unexport SPARK_HOME SPARK_CONF_DIR SPARK_REMOTE PYSPARK_SUBMIT_ARGS PYTHONHOME PYTHONPATH

# Runs a command where Spark finds Java; where there is none, stops with what to do.
WITH_JAVA := JAVA_HOME="$$(scripts/find_java.sh $(VENV)/java)" && export JAVA_HOME &&

# Spark's own table, with which merges are compared; without a network those tests are skipped.
ORACLE := $(BIN)/python -m scripts.fetch_oracle &&

# Servers of object stores; where they cannot be had, the tests that need one are skipped.
SERVERS := $(BIN)/python -m scripts.fetch_servers &&

# Spark's own file system for S3; likewise.
S3A := $(BIN)/python -m scripts.fetch_s3a &&

# Two of three workers have a session of Spark, and often wait; tests/conftest.py says which tests
# share one.
PYTEST = $(BIN)/python -m pytest --numprocesses=3 --no-loadscope-reorder --durations=15

.DEFAULT_GOAL := help
.PHONY: help demo demo-cdc demo-recovery demo-rehearsal test test-all test-night check bench soak mutants torture torture-night servers clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 16
	@echo
	@echo "SPARK=4.2.0 uses that Spark, PYTHON=python3.12 that Python, ARGS=... goes to the program."

demo: $(READY) ## The main job on real flights, its driver killed; KILL=me lets you do it
	@$(WITH_JAVA) $(BIN)/python demo/run.py $(if $(KILL),--kill=$(KILL)) $(ARGS)

demo-cdc: $(READY) ## A database's changes through three tables, driver killed; KILL=me as above
	@$(WITH_JAVA) $(BIN)/python -m demo.cdc $(if $(KILL),--kill=$(KILL)) $(ARGS)

demo-recovery: $(READY) ## A pipeline of three tables, taken back after two bad deploys; FEED=changes
	@$(WITH_JAVA) $(BIN)/python -m demo.recovery $(if $(FEED),--feed=$(FEED)) $(ARGS)

demo-rehearsal: $(READY) ## A fix tried on a branch, then published
	@$(WITH_JAVA) $(BIN)/python -m demo.rehearsal $(ARGS)

test: $(READY) ## Checks and tests in minutes; ARGS="-k name" for some
	@$(WITH_JAVA) $(ORACLE) $(PYTEST) -m "not long" $(ARGS)

test-all: $(READY) ## The same, and what takes long by nature
	@$(WITH_JAVA) $(ORACLE) $(SERVERS) $(S3A) $(PYTEST) -m "not night" $(ARGS)

test-night: $(READY) ## The same with every case, in some hours
	@$(WITH_JAVA) $(ORACLE) $(SERVERS) $(S3A) $(PYTEST) $(ARGS)

check: $(READY) ## Lint, format and types; the tests do the same
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy

bench: $(READY) ## Speed against plain Spark; QUICK=1 for two minutes
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.run $(if $(QUICK),--quick) $(ARGS)

soak: $(READY) ## Everything together for half an hour; MINUTES=3 for less
	@$(WITH_JAVA) $(BIN)/python -m soak.run --minutes=$(or $(MINUTES),30) $(ARGS)

mutants: $(READY) ## Seeded bugs, each of which a test must notice; ARGS="--count=5 --seed=1"
	@$(BIN)/python -m tests.mutants.kill $(ARGS)

torture: $(READY) ## Break tables on purpose, in minutes; FAULTS=200000, ARGS="--only model --seed 7"
	@$(WITH_JAVA) $(SERVERS) $(BIN)/python -m torture.run $(if $(FAULTS),--faults=$(FAULTS)) $(ARGS)

torture-night: $(READY) ## The same for hours; a run that was stopped goes on; MINUTES=40 for a part
	@$(WITH_JAVA) $(SERVERS) $(BIN)/python -m torture.run --night $(if $(MINUTES),--minutes=$(MINUTES)) $(ARGS)

servers: $(READY) ## Servers of S3, Azure and Google's store for the tests, into .cache
	@$(SERVERS) echo "the servers are in .cache/servers"

clean: ## Remove every environment and all caches
	rm -rf .venv .venv-* .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist spark-warehouse

# A constraint also binds what is fetched to build a package, so nothing floats.
$(READY): pyproject.toml $(CONSTRAINTS) scripts/find_python.sh
	@python="$$(PYTHON="$(PYTHON)" scripts/find_python.sh)" && \
	  { $(BIN)/python -c '' 2>/dev/null || "$$python" -m venv --clear $(VENV); }
	@echo "installing pinned packages into $(VENV): a minute or two, once"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) pip
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c $(CONSTRAINTS) \
	  --build-constraint $(CONSTRAINTS) -e '.[dev]' 'pyspark==$(SPARK)'
	@touch $@
