"""The Spark programs of examples/ run as they are, each with a session of its own."""

from __future__ import annotations

import pytest

from rocketq.testing import EmbeddedCluster
from tests.contract.test_examples import run_example


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "printed"), [("spark_batch.py", ["open 25", "paid 75"]), ("spark_stream.py", ["50 clicks"])]
)
def test_a_spark_example_runs_and_prints_its_result(
    name: str, printed: list[str], rocketq_cluster: EmbeddedCluster
) -> None:
    output = run_example(name, rocketq_cluster.name_server_addr, "-W", "default")
    assert [line for line in printed if line not in output] == [], output
