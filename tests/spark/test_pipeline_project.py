"""The spark-pipelines project, run by Spark's own program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rocketq.client import Message, Producer, ProducerConfig
from rocketq.spark.pipelines.project_files import SPEC, make_project
from rocketq.spark.sessions import prepare_environment
from rocketq.testing import EmbeddedCluster
from tests.spark.class_archive import java_options
from tests.spark.dead_letters import consume_all
from tests.spark.filling import Filler

GROUP = "project-billing"
CONF = {
    "spark.sql.catalogImplementation": "hive",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
}


def table(project: Path, name: str) -> list[dict[str, object]]:
    """By its files: streaming tables and views alike are Parquet in the warehouse."""
    files = sorted((project / "spark-warehouse" / name).glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def run(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # put back afterwards what is set next
        if not os.environ[name]:
            monkeypatch.delenv(name)
    prepare_environment()
    (project / "tmp").mkdir(exist_ok=True)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{java_options()} -Djava.io.tmpdir={project / 'tmp'}")
    settings = [word for key, value in CONF.items() for word in ("--conf", f"{key}={value}")]
    program = Path(sys.executable).with_name("spark-pipelines")
    done = subprocess.run(
        [program, "run", *settings], cwd=project, capture_output=True, text=True, check=False, timeout=900
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, [line[:500] for line in said.splitlines() if "Error" in line] or said[-4000:]


@pytest.mark.slow
def test_the_project_fills_its_tables_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what `rocketq pipeline init` makes runs as it is, and a second run takes up only what is new."""
    with EmbeddedCluster(settings={"traceTopicEnable": "true"}) as cluster:
        filler = Filler(cluster)
        topic = filler.topic(queues=1)
        config = ProducerConfig(trace=True)
        with Producer("project-shop", name_servers=filler.name_servers, config=config) as producer:
            for n in range(6):
                producer.send(Message(topic=topic, body=b"%d" % n, tag="bad"))
        consume_all(filler, GROUP, topic, 6, dies=["bad"], trace=True)
        project = tmp_path / "watch"
        options = tmp_path / "options"
        options.write_text("rocketmq.tls.enable=true\n")
        make_project(project, filler.name_servers, options)
        spec = project / SPEC
        chosen = spec.read_text().replace('rocketq.replay.group: ""', f'rocketq.replay.group: "{GROUP}"')
        spec.write_text(f'{chosen}  spark.sql.shuffle.partitions: "2"\n')
        run(project, monkeypatch)
        assert [(row["group"], row["messages"]) for row in table(project, "dead_letter_causes")] == [(GROUP, 6)]
        assert [row["messages"] for row in table(project, "trace_latency") if row["topic"] == topic] == [6]
        assert GROUP in {row["group"] for row in table(project, "lag_over_time")}
        (span,) = filler.admin.topics.stats(topic).queues.values()
        assert span.max_offset == 12, "six dead letters were sent again"
        run(project, monkeypatch)
        assert len(table(project, "dead_letters")) == 6
        assert [row["messages"] for row in table(project, "trace_latency") if row["topic"] == topic] == [6]
        (span,) = filler.admin.topics.stats(topic).queues.values()
        assert span.max_offset == 12
        assert len({row["at"] for row in table(project, "lag_over_time") if row["group"] == GROUP}) == 2
        filler.close()
