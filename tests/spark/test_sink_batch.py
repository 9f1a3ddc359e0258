"""Batch writes: a DataFrame into topics, by Spark."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.filling import Filler
from tests.spark.sinking import bodies, properties, stored


def save(frame: DataFrame, filler: Filler, **options: str) -> None:
    writer = frame.write.format("rocketmq").mode("append").option("nameServer", filler.name_servers)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def last_line(error: BaseException) -> str:
    """What a user reads of a failure: the line with our error."""
    lines = [line for line in str(error).splitlines() if "rocketq.spark.errors" in line]
    assert lines, str(error)
    return lines[-1].partition(": ")[2]


def test_a_frame_is_written_whole(spark: SparkSession, filler: Filler) -> None:
    """Goal: every row once, with its key and properties, from several tasks; a batch job has no SPARK_TX."""
    topic = filler.topic(name="BatchWhole")
    frame = spark.range(0, 20_000, 1, 3).selectExpr(
        "cast(id as string) as body", "concat('k', id) as keys", "map('n', cast(id as string)) as properties"
    )
    save(frame, filler, topic=topic)
    found = stored(filler.name_servers, topic)
    assert Counter(record.body for record in found) == Counter(b"%d" % n for n in range(20_000))
    for record in found[:50]:
        assert properties(record)["KEYS"] == f"k{record.body.decode()}"
        assert properties(record)["n"] == record.body.decode()
        assert "SPARK_TX" not in properties(record)
    assert len({properties(record)["UNIQ_KEY"] for record in found}) == 20_000


def test_what_was_read_can_be_written_as_it_is(spark: SparkSession, filler: Filler) -> None:
    """Goal: a topic copied through Spark with its tags, keys and properties, and none of the brokers' own."""
    source, sent = filler.fill(500)
    target = filler.topic(name="BatchCopy")
    read = spark.read.format("rocketmq").option("nameServer", filler.name_servers).option("subscribe", source)
    save(read.option("includeProperties", "true").load().select("body", "properties"), filler, topic=target)
    found = {record.body: properties(record) for record in stored(filler.name_servers, target)}
    assert set(found) == {message.body for message in sent.values()}
    for message in sent.values():
        copy = found[message.body]
        assert (copy["TAGS"], copy["KEYS"], copy["n"]) == (message.tag, *message.keys, message.properties["n"])


def test_a_task_that_fails_is_run_again_and_nothing_is_lost(spark: SparkSession, filler: Filler) -> None:
    """Goal: at least once: a second attempt sends its rows again, under new ids, and no row is missing."""
    topic = filler.topic(name="BatchRetry")

    def stumble(batches):  # type: ignore[no-untyped-def]
        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        for number, batch in enumerate(batches):
            if number == 1 and context is not None and context.attemptNumber() < 2:
                raise RuntimeError("stumbled")
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        frame = spark.range(0, 4_000, 1, 2).selectExpr("cast(id as string) as body").mapInArrow(stumble, "body string")
        save(frame, filler, topic=topic, batchBytes="8192")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = stored(filler.name_servers, topic)
    assert {record.body for record in found} == {b"%d" % n for n in range(4_000)}
    assert len({properties(record)["UNIQ_KEY"] for record in found}) == len(found)


def test_bad_rows_go_where_the_option_says(spark: SparkSession, filler: Filler) -> None:
    topic, dead = filler.topic(name="BatchGood"), filler.topic(name="BatchDead")
    frame = spark.range(100).selectExpr(
        "if(id % 10 = 0, null, cast(id as string)) as body", "cast(id as string) as keys"
    )
    save(frame, filler, topic=topic, badRecords="deadLetter", deadLetterTopic=dead)
    assert bodies(filler.name_servers, topic) == Counter(b"%d" % n for n in range(100) if n % 10)
    letters = [properties(record) for record in stored(filler.name_servers, dead)]
    assert sorted(int(letter["KEYS"]) for letter in letters) == list(range(0, 100, 10))
    assert {letter["SPARK_BAD_REASON"] for letter in letters} == {"the body is null"}


@pytest.mark.parametrize(
    ("columns", "options", "line"),
    [
        (["'x' as value"], {"topic": "T"}, "no column value can be sent; select some of body, topic"),
        (["1 as body"], {"topic": "T"}, "column body must be binary or string, not int"),
        (["'x' as body"], {}, "no topic to send to: give the option topic or a column of that name"),
        (["'x' as body"], {"topic": "T", "batchByte": "1"}, "option batchbyte is unknown; did you mean batchBytes?"),
        (["'x' as body"], {"topic": "T", "deliveryGuarantee": "exactly-once"}, "exactly-once is for streams"),
    ],
)
def test_slips_are_told_in_one_line(
    spark: SparkSession, filler: Filler, columns: list[str], options: dict[str, str], line: str
) -> None:
    """Goal: before any task runs, and the line is ours."""
    with pytest.raises(Exception) as caught:
        save(spark.range(1).selectExpr(*columns), filler, **options)
    assert line in last_line(caught.value)


def test_a_topic_cannot_be_overwritten(spark: SparkSession, filler: Filler) -> None:
    frame = spark.range(1).selectExpr("'x' as body")
    writer = frame.write.format("rocketmq").option("nameServer", filler.name_servers).option("topic", "T")
    with pytest.raises(Exception) as caught:
        writer.mode("overwrite").save()
    assert 'a topic cannot be overwritten: write with mode("append")' in last_line(caught.value)


def test_a_null_body_fails_the_job_by_row(spark: SparkSession, filler: Filler) -> None:
    topic = filler.topic(name="BatchNull")
    with pytest.raises(Exception) as caught:
        save(spark.range(3).selectExpr("nullif(cast(id as string), '1') as body").coalesce(1), filler, topic=topic)
    assert "row 1 of partition 0, topic BatchNull: the body is null" in last_line(caught.value)


def test_a_name_server_that_is_away_is_one_line(spark: SparkSession) -> None:
    writer = spark.range(1).selectExpr("'x' as body").write.format("rocketmq").mode("append")
    with pytest.raises(Exception) as caught:
        writer.option("nameServer", "127.0.0.1:1").option("topic", "T").option("sendRetries", "0").save()
    assert "no NameServer answered" in last_line(caught.value)
