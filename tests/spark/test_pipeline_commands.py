"""`rocketq pipeline ...` from the command line to the result, on the session of these tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from rocketq.cli.main import main
from rocketq.client import Message, Producer, ProducerConfig
from rocketq.testing import EmbeddedCluster
from tests.spark.dead_letters import consume_all, dead
from tests.spark.filling import Filler

Command = Callable[..., Any]


@pytest.fixture
def pipeline(spark: SparkSession, filler: Filler) -> Command:
    """The JSON that a command prints; it must succeed, and leave the session alone."""

    def run(verb: str, *arguments: str, asks: bool = True, code: int = 0) -> Any:
        address = ["-n", filler.name_servers] if asks else []
        said = CliRunner().invoke(main, ["pipeline", verb, *arguments, *address, "--json"])
        if said.exception is not None and not isinstance(said.exception, SystemExit):
            raise said.exception
        assert said.exit_code == code, said.stderr
        assert spark.range(1).count() == 1, "the session is not the command's to stop"
        return json.loads(said.stdout if code == 0 else said.stderr)

    return run


def test_dead_letters_are_counted_kept_reported_and_replayed(
    pipeline: Command, filler: Filler, tmp_path: Path, spark: SparkSession
) -> None:
    """Goal: an operator's afternoon: look, keep, try without sending, send."""
    topic, group = filler.topic(), "cli-billing"
    sent = [
        Message(topic=topic, body=b"%d" % n, tag="card" if n % 2 else "cash", properties={"ERROR": f"declined {n}"})
        for n in range(8)
    ]
    dead(filler, group, topic, sent, dies=["card", "cash"])
    report, kept = tmp_path / "dead.html", tmp_path / "dead"
    found = pipeline("dlq", group, "--letters", "3", "--report", str(report), "--out", str(kept))
    assert (found["messages"], len(found["letters"])) == (8, 3)
    causes = {(row["cause"], row["tags"], row["retries"], row["messages"]) for row in found["causes"]}
    assert causes == {("declined #", "card", 1, 4), ("declined #", "cash", 1, 4)}
    assert "declined #" in report.read_text()
    assert spark.read.parquet(str(kept)).count() == 8
    choice = ("--from-dlq", group, "--tag", "card", "--where", "reconsumeTimes < 5")
    plan = pipeline("replay", *choice, "--dry-run")
    assert (plan["messages"], plan["plan"][0]["topic"]) == (4, topic)
    assert pipeline("replay", *choice)["messages"] == 4
    assert pipeline("replay", "--from-archive", str(kept), "--to", filler.topic(), "--limit", "3")["messages"] == 3


def test_traces_become_percentiles(pipeline: Command, filler: Filler, tmp_path: Path) -> None:
    topic = filler.topic()
    with Producer("cli-shop", name_servers=filler.name_servers, config=ProducerConfig(trace=True)) as producer:
        for n in range(5):
            producer.send(Message(topic=topic, body=b"%d" % n))
    consume_all(filler, "cli-mail", topic, 5, trace=True)
    found = pipeline("trace", "--of", topic, "--group", "cli-mail", "--report", str(tmp_path / "latency.png"))
    (row,) = found["latency"]
    assert (row["topic"], row["consumer_group"], row["messages"], row["failed"]) == (topic, "cli-mail", 5, 0)
    assert row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert (tmp_path / "latency.png").read_bytes().startswith(b"\x89PNG")


def test_lag_samples_are_added_to_a_table(filler: Filler, spark: SparkSession, tmp_path: Path) -> None:
    topic, _ = filler.fill(4, queues=1)
    filler.admin.groups.set("cli-lag")
    filler.admin.offsets.set("cli-lag", dict.fromkeys(filler.queues(topic), 0))
    for _ in range(2):
        arguments = ["pipeline", "lag", "cli-lag", "-n", filler.name_servers, "--out", str(tmp_path / "lag")]
        assert CliRunner().invoke(main, arguments).exit_code == 0
    rows = spark.read.parquet(str(tmp_path / "lag")).where(f"topic = '{topic}'").collect()
    assert sorted((row.brokerName, row.lag) for row in rows) == [("broker-0", 2)] * 2 + [("broker-1", 2)] * 2


def test_topics_and_stores_are_archived_and_replayed(pipeline: Command, filler: Filler, tmp_path: Path) -> None:
    topic, _ = filler.fill(30)
    target = str(tmp_path / "archive")
    assert pipeline("archive", topic, "--to", target)["rows"] == 30
    assert pipeline("archive", topic, "--to", target)["commit"] == 0
    filler.fill(10, topic=topic, first=30)
    assert pipeline("archive", "--pattern", topic, "--to", target)["rows"] == 10
    assert pipeline("archive", "--compact", "--to", target)["files_replaced"] > 0
    again = pipeline("replay", "--from-archive", target, "--to", filler.topic(), "--key", "k3", "--key", "k35")
    assert again["messages"] == 2


def test_a_store_is_verified_and_archived_without_a_broker(
    pipeline: Command, filler: Filler, cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    topic, _ = filler.fill(12, queues=1)
    store = str(cluster.store_dir(0))
    with EmbeddedCluster() as own, Producer("verified", name_servers=own.name_server_addr) as producer:
        producer.send(Message(topic="Verified", body=b"x"))  # other tests cut and delete in the shared one
        assert pipeline("verify", str(own.store_dir(0)), asks=False)["records"] > 0
    found = pipeline("archive", topic, "--from-store", store, "--broker", "broker-0", "--to", str(tmp_path / "a"))
    assert found["rows"] == 6
    fault = pipeline("verify", str(tmp_path), asks=False, code=3)
    assert fault["error"] == "NotFoundError"


def test_what_spark_refuses_is_one_line(pipeline: Command, filler: Filler, tmp_path: Path) -> None:
    """Goal: not pages of Java."""
    topic, _ = filler.fill(1)
    fault = pipeline("replay", "--from-topic", topic, "--to", filler.topic(), "--where", "nonsense = 1", code=1)
    assert "nonsense" in fault["message"]
    assert "\n" not in fault["message"]
    fault = pipeline("replay", "--from-archive", str(tmp_path / "none"), "--dry-run", code=3)
    assert str(tmp_path / "none") in fault["message"]
    (tmp_path / "empty").mkdir()
    fault = pipeline("replay", "--from-archive", str(tmp_path / "empty"), "--dry-run", code=1)
    assert "\n" not in fault["message"]
    wrong = ("--option", "subscribed=x")
    fault = pipeline("replay", "--from-topic", topic, "--to", filler.topic(), *wrong, code=2)
    assert fault["message"].startswith("option subscribed is unknown")
