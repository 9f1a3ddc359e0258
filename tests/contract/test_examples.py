"""The programs of examples/ run as they are; those with Spark run in tests/spark."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rocketq.testing.embedded import EmbeddedCluster

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "batching.py": ["1000 messages are stored"],
    "fast.py": ["20000 and 20000 stored", "40000 read"],
    "delayed.py": ["recalled True", "reminder after at least 2 s: True"],
    "ordered.py": ["order-1 created paid shipped", "order-2 created paid shipped"],
    "request_reply.py": ["EURUSD 1.0871"],
    "transactional.py": ["payment-1 COMMIT", "payment-2 ROLLBACK"],
    "worker.py": ["good: attempt 1", "flaky: attempt 1", "flaky: attempt 2", "broken: attempt 1"],
}
ELSEWHERE = {"demo.py", "store_demo.py", "spark_batch.py", "spark_stream.py", "test_with_pytest.py", "fastapi_app.py"}


def run_example(name: str, name_servers: str, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *(command or ("-W", "error")), str(EXAMPLES / name)],
        env={**os.environ, "NAMESRV_ADDR": name_servers},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_and_prints_its_result(name: str, rocketq_cluster: EmbeddedCluster) -> None:
    printed = run_example(name, rocketq_cluster.name_server_addr)
    assert [line for line in PRINTED[name] if line not in printed] == [], printed


def test_the_example_for_pytest_passes(rocketq_cluster: EmbeddedCluster) -> None:
    assert "1 passed" in run_example("test_with_pytest.py", rocketq_cluster.name_server_addr, "-m", "pytest")


def test_the_web_application_produces_and_consumes(
    rocketq_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    testclient = pytest.importorskip("fastapi.testclient", reason="FastAPI is not installed")
    monkeypatch.setenv("NAMESRV_ADDR", rocketq_cluster.name_server_addr)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import fastapi_app  # noqa: PLC0415

    with testclient.TestClient(fastapi_app.app) as web:
        assert web.post("/orders", content=b"a book").status_code == 201
        deadline = time.monotonic() + 60
        while web.get("/orders").json() != ["a book"]:
            assert time.monotonic() < deadline, "the message was not consumed"
            time.sleep(0.05)


def test_every_example_is_run_by_a_test() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*PRINTED, *ELSEWHERE}
