# One command per intent, the same for developers and in CI.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
KERNEL := $(wildcard src/rocketq/kernel/*.py src/rocketq/kernel/*.pxd src/rocketq/kernel/*.h)

.PHONY: help setup check stubs test test-suite test-compiled test-interpreted test-spark-slow interop interop-store interop-broker bench chaos chaos-sim chaos-faults chaos-failovers docs wheel demo store-demo clean

help: ## the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(STAMP) ## make .venv with everything, compiled where a C compiler exists

$(STAMP): pyproject.toml setup.py $(KERNEL)
	@test -x $(BIN)/python || echo "setup: making $(VENV) with $(PYTHON)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setup: installing the tools and compiling the kernel into $(VENV); the first time takes a minute or two"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -c "import rocketq.kernel as k; print('setup: done, kernel:', 'compiled' if k.compiled else 'interpreted (no C compiler was found)')"
	@touch $(STAMP)

check: setup ## lint, types, structure rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/tidy

stubs: setup ## write the types of the kernel for its callers, after a change of its .py or .pxd
	$(BIN)/python tools/kernel_stubs.py

test: setup ## the whole suite with the compiled kernel, then what runs in the kernel with the interpreted one
	@if $(BIN)/python -c "import sys, rocketq.kernel as k; sys.exit(not k.compiled)"; then \
	  $(MAKE) --no-print-directory test-compiled test-interpreted; \
	else echo "no C compiler was found at setup: the whole suite runs with the interpreted kernel"; \
	  $(MAKE) --no-print-directory test-suite KERNEL_FORM=interpreted; fi

KERNEL_FORM := compiled
# Many tests wait for sockets and clocks: three at a time keep two cores busy.
PYTEST := $(BIN)/pytest -m "not interop" --numprocesses=3 --dist=worksteal --durations=30 --durations-min=1

test-suite: setup
	ROCKETQ_KERNEL=$(KERNEL_FORM) $(PYTEST) --ignore=tests/spark
	ROCKETQ_KERNEL=$(KERNEL_FORM) $(BIN)/pytest tests/spark -m "not interop and not slow" --durations=10 --durations-min=1

test-compiled: setup
	@$(MAKE) --no-print-directory test-suite

test-spark-slow: setup ## Spark under kills, on local-cluster, with Connect and spark-pipelines
	ROCKETQ_KERNEL=compiled $(BIN)/pytest tests/spark -m "slow and not interop" --numprocesses=2 --dist=worksteal

# What runs in the kernel, and a smoke test of everything above it: the programs of the documentation and the examples.
IN_KERNEL := $(addprefix tests/,unit/kernel unit/store unit/protocol golden contract/test_columns.py contract/test_kernel_forms.py \
	contract/test_filter_program_forms.py contract/test_guide.py contract/test_examples.py) \
	$(addprefix tests/contract/broker/test_,fast_path.py fast_and_slow.py frames.py frame_robustness.py sending.py pulling.py signed_access.py quotas.py)

test-interpreted: setup
	ROCKETQ_KERNEL=interpreted $(PYTEST) $(IN_KERNEL)

# A line per test. PART=test_mqadmin.py is a part of it; logs of failed tests are kept in build/interop-logs.
INTEROP       := $(BIN)/pytest -m interop -vv -rs --durations=10 -o console_output_style=count
INTEROP_STORE := $(addprefix tests/interop/,test_harness.py test_store_directories.py test_queue_file_ends.py)

interop: setup ## against real Apache RocketMQ brokers, tools and the clients of others (what is missing is skipped)
	$(INTEROP) tests/interop/$(PART)

interop-store: setup
	$(INTEROP) $(INTEROP_STORE)

interop-broker: setup
	$(INTEROP) tests/interop $(addprefix --ignore=,$(INTEROP_STORE))

# Parts: chaos-sim, chaos-faults, chaos-failovers. ROCKETQ_SCHEDULES=n, ROCKETQ_FAILOVERS=n, ROCKETQ_ROWS=n (clusters
# at a time), ROCKETQ_CHAOS_MINUTES=n; logs of clusters that failed are in build/chaos-logs.
chaos: chaos-sim chaos-faults chaos-failovers ## failover: 10,000 seeded schedules (ROCKETQ_SEED=n replays one), 200 failovers of real brokers

chaos-sim: setup
	ROCKETQ_SCHEDULES=$${ROCKETQ_SCHEDULES:-10000} $(BIN)/pytest --numprocesses=auto tests/sim/test_failover.py tests/sim/test_failover_cases.py

chaos-faults: setup
	ROCKETQ_ETCD_AWAY_S=$${ROCKETQ_ETCD_AWAY_S:-60} $(BIN)/pytest --numprocesses=2 -rs tests/adversity/test_failover_faults.py

chaos-failovers: setup
	$(BIN)/python -m tests.adversity.chaos

bench: setup ## benchmarks, as ratios within one run
	@status=0; for each in store opening broker pipeline loop_hold replication client delays filters console spark; do $(BIN)/python -m bench.$$each || status=1; done; exit $$status

docs: setup ## the documentation site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "docs: build/site/index.html"

wheel: setup ## a wheel with the compiled kernel and a source distribution, in dist/
	$(BIN)/python -m build --outdir dist
	$(BIN)/python tools/try_wheel.py dist

demo: setup ## the whole story: cluster, orders, failing consumers, Spark, dead letters, replay; KEEP=1 keeps it running
	@echo "demo: two brokers, an order stream, consumers that fail, Spark beside them; a minute or two"
	KEEP=$(KEEP) $(BIN)/python examples/demo.py

store-demo: setup ## a store is written, killed, recovered and checked
	$(BIN)/python examples/store_demo.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/rocketq/kernel/*.so
