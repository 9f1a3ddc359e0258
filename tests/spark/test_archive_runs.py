"""Archives by Spark: every message once, from brokers and from store files, run after run, whatever fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from rocketq.client import Message
from rocketq.spark.archive import Archive, ArchiveFolder
from rocketq.spark.errors import DataLossError, SparkError
from rocketq.spark.pipelines import archive as archiving
from rocketq.spark.pipelines.archive import archive, archive_store, compact, read_archive
from rocketq.testing import EmbeddedCluster
from tests.golden.stores import unpack
from tests.spark.filling import Filler, Place
from tests.unit.spark.log_writing import overwrite, record, write_log


def options_of(filler: Filler, topic: str, **more: str) -> dict[str, str]:
    return {"nameServer": filler.name_servers, "subscribe": topic, **more}


def contents(frame: DataFrame) -> dict[Place, tuple[bytes, str | None]]:
    """Bodies and keys by place; a place that comes twice is an error."""
    rows = frame.select("brokerName", "queueId", "queueOffset", "body", "keys").collect()
    found = {(row.brokerName, row.queueId, row.queueOffset): (bytes(row.body), row.keys) for row in rows}
    assert len(found) == len(rows), "rows come twice"
    return found


def expected(sent: dict[Place, Message]) -> dict[Place, tuple[bytes, str | None]]:
    return {place: (message.body, " ".join(message.keys) or None) for place, message in sent.items()}


def test_runs_take_what_is_new_and_any_reader_sees_it_once(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    """Goal: three runs, the last with nothing to do; manifest and plain Parquet readers agree; progress is told."""
    topic, sent = filler.fill(300)
    told: list[tuple[int, int]] = []
    options = options_of(filler, topic)
    first = archive(spark, options, tmp_path, progress=lambda done, total: told.append((done, total)))
    assert (first.rows, first.commit, told[-1]) == (300, 1, (300, 300))
    sent |= filler.fill(200, topic=topic, first=300)[1]
    assert archive(spark, options, tmp_path).rows == 200
    assert archive(spark, options, tmp_path).commit == 0
    assert contents(read_archive(spark, tmp_path)) == expected(sent)
    plain = spark.read.parquet(str(tmp_path))
    assert contents(plain) == expected(sent)
    assert {(row.topic) for row in plain.select("topic").distinct().collect()} == {topic}
    row = read_archive(spark, tmp_path, topics=[topic]).where("keys = 'k42'").first()
    assert row is not None
    assert row.properties["n"] == "42"


def test_messages_are_found_again_by_key_id_and_time(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    topic, sent = filler.fill(100)
    archive(spark, options_of(filler, topic), tmp_path)
    opened = Archive(tmp_path)
    (found,) = opened.by_key(topic, "k77").to_pylist()
    assert sent[found["brokerName"], found["queueId"], found["queueOffset"]].body == found["body"]
    assert opened.by_id(found["msgId"]).to_pylist() == [found]
    stored_ms = int(found["storeTimestamp"].timestamp() * 1000)
    assert found in opened.by_time(topic, stored_ms, stored_ms + 1).to_pylist()
    assert read_archive(spark, tmp_path, from_ms=stored_ms, to_ms=stored_ms + 1).where("keys = 'k77'").count() == 1


class Died(BaseException):
    """Stands for the driver's death: nothing catches it."""


@pytest.mark.parametrize("step", ["write the commit", "give it its number", "move topic", "remove the staging"])
def test_a_driver_that_dies_between_writing_and_committing_repeats_nothing(
    spark: SparkSession, filler: Filler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Goal: the next run makes the archive exactly what was sent, wherever the one before stopped."""
    topic, sent = filler.fill(120)

    def on_step(told: str) -> None:
        if told.startswith(step):
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(archiving, "ArchiveFolder", lambda target: ArchiveFolder(target, on_step=on_step))
        with pytest.raises(Died):
            archive(spark, options_of(filler, topic), tmp_path)
    sent |= filler.fill(30, topic=topic, first=120)[1]
    archive(spark, options_of(filler, topic), tmp_path)
    assert contents(read_archive(spark, tmp_path)) == expected(sent)
    assert contents(spark.read.parquet(str(tmp_path))) == expected(sent)


def test_a_task_that_fails_half_way_is_tried_again_and_leaves_nothing(
    spark: SparkSession, filler: Filler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: files of an attempt that failed are never part of the archive."""
    topic, sent = filler.fill(200)
    marks = tmp_path / "marks"
    marks.mkdir()
    real = archiving.write_slice

    def fails_once(part, staging, name, tell, **rest):  # type: ignore[no-untyped-def]
        result = real(part, staging, name, tell, **rest)
        mark = marks / f"{part.queue.broker_name}-{part.queue.queue_id}"
        if not mark.exists():
            mark.touch()
            raise OSError("the disk is away")
        return result

    monkeypatch.setattr(archiving, "write_slice", fails_once)
    archive(spark, options_of(filler, topic), tmp_path / "archive")
    assert len(list(marks.iterdir())) == 4
    assert contents(spark.read.parquet(str(tmp_path / "archive"))) == expected(sent)


def test_small_files_become_few_and_everything_stays_findable(
    spark: SparkSession, filler: Filler, tmp_path: Path
) -> None:
    topic, sent = filler.fill(0)
    for step in range(4):
        sent |= filler.fill(40, topic=topic, first=40 * step)[1]
        archive(spark, options_of(filler, topic), tmp_path, compaction=False)
    files_before = len(list(tmp_path.glob("topic=*/dt=*/*.parquet")))
    done = compact(spark, tmp_path)
    files_after = len(list(tmp_path.glob("topic=*/dt=*/*.parquet")))
    assert files_before >= 16
    assert done.files == files_after <= 2  # two when midnight passed meanwhile
    assert done.files_replaced == files_before
    assert contents(read_archive(spark, tmp_path)) == expected(sent)
    assert contents(spark.read.parquet(str(tmp_path))) == expected(sent)
    assert Archive(tmp_path).by_key(topic, "k150").num_rows == 1
    assert len(list((tmp_path / "_archive" / "keys").iterdir())) == files_after
    assert compact(spark, tmp_path).commit == 0


def test_many_small_files_are_put_in_order_by_the_run_itself(
    spark: SparkSession, filler: Filler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "CROWD", 4)
    topic, sent = filler.fill(40)
    done = archive(spark, options_of(filler, topic), tmp_path)
    assert (done.files, done.files_replaced) == (4, 4)
    assert contents(spark.read.parquet(str(tmp_path))) == expected(sent)


def test_store_files_fill_what_brokers_have_and_nothing_twice(
    spark: SparkSession, cluster: EmbeddedCluster, filler: Filler, tmp_path: Path
) -> None:
    """Goal: from the broker, from its files, and again from the broker: one archive, each message once."""
    topic, sent = filler.fill(150)
    latest = options_of(filler, topic, startingTimestamp="1", minPartitions="6")
    archive(spark, latest, tmp_path)
    sent |= filler.fill(100, topic=topic, first=150)[1]
    for index in range(2):
        paths = str(cluster.store_dir(index))
        archive_store(spark, paths, tmp_path, broker_name=f"broker-{index}", topics=[topic], range_bytes=1 << 28)
        assert archive_store(spark, paths, tmp_path, broker_name=f"broker-{index}", topics=[topic]).commit == 0
    sent |= filler.fill(50, topic=topic, first=250)[1]
    assert archive(spark, options_of(filler, topic), tmp_path).rows == 50
    assert contents(read_archive(spark, tmp_path)) == expected(sent)


def test_a_directory_of_apache_is_archived_without_a_broker(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: all topics but the system's own, equal to what producers were told."""
    golden = unpack("apache-5.3.3-clean", tmp_path)
    told: list[int] = []
    done = archive_store(
        spark, str(golden.root), tmp_path / "archive", broker_name="broker-a", range_bytes=300_000,
        progress=lambda at, total: told.append(total - at),
    )  # fmt: skip
    assert done.damage == ()
    assert told[-1] == 0
    opened = Archive(tmp_path / "archive")
    places = {
        (topic, row["queueId"], row["queueOffset"])
        for topic in opened.topics
        for row in opened.by_time(topic).to_pylist()
    }
    for entry in golden.manifest:
        if "storedTopic" not in entry:
            assert (entry["topic"], entry["queueId"], entry["queueOffset"]) in places
    assert len(places) == done.rows
    assert not [topic for topic in opened.topics if topic.startswith(("SCHEDULE", "RMQ_SYS", "rmq_sys"))]


def test_damage_in_store_files_is_told_and_passed_or_an_error(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "store" / "commitlog"
    placed = write_log(log, map(record, range(300)), file_bytes=1 << 14)
    overwrite(log, 1 << 14, placed[50].log_offset + 4, b"????")
    with pytest.raises(SparkError, match="no record begins here") as caught:
        archive_store(spark, str(log), tmp_path / "a", broker_name="b", fail_fast=True)
    assert "\n" not in str(caught.value)
    done = archive_store(spark, str(log), tmp_path / "a", broker_name="b")
    assert (done.rows, len(done.damage)) == (299, 1)
    assert f"log offset {placed[50].log_offset}" in done.damage[0]


def test_offsets_that_come_twice_in_a_log_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: a topic that was made again in the same log is not mixed up silently."""
    log = tmp_path / "store" / "commitlog"
    write_log(log, [record(n % 100) for n in range(200)], file_bytes=1 << 14)
    with pytest.raises(SparkError, match=r"^T0 queue 0 of b: offset 0 is in the log twice"):
        archive_store(spark, str(log), tmp_path / "a", broker_name="b", range_bytes=4096)
    assert ArchiveFolder(tmp_path / "a").load().number == 0


@pytest.fixture
def shortened(filler: Filler, cluster: EmbeddedCluster) -> Iterator[str]:
    """A topic that was deleted and made again."""
    topic, _ = filler.fill(60)
    yield topic
    filler.admin.topics.delete(topic)


def test_a_topic_made_again_is_told(spark: SparkSession, filler: Filler, tmp_path: Path, shortened: str) -> None:
    archive(spark, options_of(filler, shortened), tmp_path)
    filler.admin.topics.delete(shortened)
    filler.admin.topics.create(shortened, queues=2)
    filler.fill(8, topic=shortened)
    with pytest.raises((SparkError, DataLossError), match="was the topic deleted and made again"):
        archive(spark, options_of(filler, shortened), tmp_path)


def test_wrong_options_are_one_line(spark: SparkSession, filler: Filler, tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="topic NoSuchTopicHere does not exist"):
        archive(spark, options_of(filler, "NoSuchTopicHere"), tmp_path)
    with pytest.raises(SparkError, match=r"nameserver\.address is missing"):
        archive(spark, {"subscribe": "T"}, tmp_path)
    with pytest.raises(SparkError, match="is no archive"):
        read_archive(spark, tmp_path / "nothing")
