"""Drivers and brokers that are killed while streams are written."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketq.client import Admin
from rocketq.testing import EmbeddedCluster
from tests.spark.class_archive import make_archive
from tests.spark.faulty_sink import COMMIT_STEPS, TASK_STEPS, Plan, is_uncommitted
from tests.spark.filling import Filler
from tests.spark.killable_broker import KillableBroker
from tests.spark.reading import bodies as sent_bodies
from tests.spark.reading import contents
from tests.spark.sinking import bodies
from tests.spark.test_sink_stream import EXACTLY, Stream, stream

__all__ = ["stream"]
pytestmark = pytest.mark.slow
ROWS = 40
FILES = 20
KILLS = 10


def test_drivers_killed_at_every_step_twice(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: kill -9 of everything of Spark's, ten times, while one stream has written a batch to Parquet that is not
    committed and another is at a step of its commit to a topic: what is read is in Parquet once, one sink loses
    nothing, the other has every row once."""
    make_archive()
    read, sent = filler.fill(6_000, body_bytes=100)
    at_least, exactly = filler.topic(name="KilledAtLeast"), filler.topic(name="KilledExactly")
    (tmp_path / "input").mkdir()
    for file in range(FILES):
        lines = "".join(f"{file}-{row}\n" for row in range(ROWS))
        (tmp_path / "input" / f"{file:02}.txt").write_text(lines)
    Plan(tmp_path / "no-plan").write([], "raise")
    (tmp_path / "plan.other").write_text(str(tmp_path))
    plan = Plan(tmp_path / "plan")
    plan.write([*COMMIT_STEPS] * 2, "kill all")
    command = [sys.executable, "-m", "tests.spark.driver_program", filler.name_servers, str(tmp_path)]
    deaths = uncommitted = 0
    while (code := _run([*command, read, at_least, exactly], tmp_path / "driver.log")) != 0:
        assert code == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-3000:]
        deaths, uncommitted = deaths + 1, uncommitted + is_uncommitted(tmp_path)
        if not plan.left() and uncommitted < KILLS:  # the other stream was quicker than the kill
            assert deaths < 2 * KILLS
            plan.write([COMMIT_STEPS[deaths % len(COMMIT_STEPS)]], "kill all")
    assert uncommitted >= KILLS
    assert plan.left() == []
    assert contents(spark.read.parquet(str(tmp_path / "rows"))) == sent_bodies(sent)
    expected = Counter(f"{file}-{row}".encode() for file in range(FILES) for row in range(ROWS))
    assert bodies(filler.name_servers, exactly) == expected
    assert set(bodies(filler.name_servers, at_least)) == set(expected)


def _run(command: list[str], log: Path) -> int:
    with log.open("w") as output:
        repository = Path(__file__).parents[2]
        return subprocess.run(
            command, cwd=repository, start_new_session=True, stdout=output, stderr=output, timeout=900, check=False
        ).returncode


@pytest.mark.parametrize("guarantee", [EXACTLY, {}], ids=["exactly-once", "at-least-once"])
def test_a_broker_killed_at_every_step(
    spark: SparkSession, filler: Filler, stream: Stream, tmp_path: Path, guarantee: dict[str, str]
) -> None:
    """Goal: kill -9 of the only broker, twelve times or more, among tasks and commits: streams go on by themselves."""
    with EmbeddedCluster(brokers=0) as names, KillableBroker(
        names.name_server_addr, tmp_path / "store", tmp_path / "plan.broker"
    ) as broker:  # fmt: skip
        _create(names.name_server_addr, stream.topic)
        stream.aim_at(names.name_server_addr)
        stream.add(8)
        steps = [*TASK_STEPS, *COMMIT_STEPS] * 2 if guarantee else [*TASK_STEPS] * 4
        assert stream.run_over_faults(steps, "kill broker", sendRetries="100", **guarantee) == 0, stream.died_of
        assert stream.plan.left() == []
        _wait_for(lambda: broker.kills >= len(steps))
        _wait_for(lambda: sum(stream.found().values()) >= sum(stream.expected().values()))
        found = stream.found()
    if guarantee:
        assert found == stream.expected()
    else:
        assert set(found) == set(stream.expected())


def _create(name_servers: str, topic: str) -> None:
    with Admin(name_servers) as admin:
        admin.topics.create(topic, queues=2)


def _wait_for(condition, seconds: float = 60) -> None:  # type: ignore[no-untyped-def]
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.1)
