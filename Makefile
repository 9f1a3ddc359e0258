# One command per intent, the same on a desk and in CI.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
KERNEL := $(wildcard src/rocketq/kernel/*.py src/rocketq/kernel/*.pxd src/rocketq/kernel/*.h)

.PHONY: help setup check stubs test test-compiled test-interpreted test-spark-slow interop interop-store interop-broker bench chaos chaos-sim chaos-faults chaos-failovers demo store-demo clean

help: ## what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(STAMP) ## make .venv with everything, compiled where a C compiler exists

$(STAMP): pyproject.toml setup.py $(KERNEL)
	@test -x $(BIN)/python || echo "setup: making $(VENV) with $(PYTHON)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setup: installing the tools and compiling the kernel into $(VENV); the first time takes a minute or two"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -c "import rocketq.kernel as k; print('setup: done, kernel:', 'compiled' if k.compiled else 'interpreted (no C compiler was found)')"
	@touch $(STAMP)

check: setup ## lint, types, the rules of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/tidy

stubs: setup ## write the types of the kernel for its callers, after a change of its .py or .pxd
	$(BIN)/python tools/kernel_stubs.py

test: setup ## the whole suite with the compiled kernel; store, broker, crashes again with the interpreted one
	@if $(BIN)/python -c "import sys, rocketq.kernel as k; sys.exit(not k.compiled)"; then \
	  $(MAKE) --no-print-directory test-compiled; \
	else echo "no C compiler was found at setup: only the interpreted kernel is tested"; fi
	@$(MAKE) --no-print-directory test-interpreted

# Many tests wait for sockets and clocks: three at a time keep two cores busy.
SUITE := $(BIN)/pytest -m "not interop" --ignore=tests/spark --numprocesses=3 --dist=worksteal

test-compiled: setup
	ROCKETQ_KERNEL=compiled $(SUITE)
	ROCKETQ_KERNEL=compiled $(BIN)/pytest tests/spark -m "not interop and not slow"

test-spark-slow: setup ## Spark under kills, on local-cluster, with Connect and spark-pipelines
	ROCKETQ_KERNEL=compiled $(BIN)/pytest tests/spark -m "slow and not interop" --numprocesses=2 --dist=worksteal

# What talks to the broker from outside is not run twice: the NameServer has no kernel, and the codec kernels of the client
# and its commands are run in both forms by the units.
ABOVE := $(addprefix --ignore=tests/contract/,client cli nameserver)

test-interpreted: setup
	ROCKETQ_KERNEL=interpreted $(SUITE) $(ABOVE)

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

bench: setup ## the figures, as ratios within one run
	@status=0; for each in store opening broker pipeline loop_hold replication client delays filters spark; do $(BIN)/python -m bench.$$each || status=1; done; exit $$status

demo: setup ## the whole story: cluster, orders, failing consumers, Spark, dead letters, replay
	@echo "demo: two brokers, an order stream, consumers that fail, Spark beside them; a minute or two"
	$(BIN)/python examples/demo.py

store-demo: setup ## a store is written, killed, recovered and checked
	$(BIN)/python examples/store_demo.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/rocketq/kernel/*.so
