"""`rocketq pipeline replay`: messages sent once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rocketq.cli.commands.calling import example
from rocketq.cli.commands.pipeline_calling import Pipeline, runs_pipeline
from rocketq.cli.commands.pipeline_dlq import require_groups, within
from rocketq.cli.commands.pipeline_views import as_dicts, row_json, rows_text
from rocketq.cli.commands.times import moment
from rocketq.cli.numbers import FiniteRange
from rocketq.client.errors import NotFoundError
from rocketq.protocol.names import dlq_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLAN: Final = {"topic": "TO TOPIC", "tags": "TAG", "messages": "MESSAGES", "bodyBytes": "BODY BYTES"}


@click.command(
    short_help="Send messages once more.",
    epilog=example(
        "rocketq pipeline replay --from-dlq billing --dry-run",
        "rocketq pipeline replay --from-dlq billing --where \"tags = 'paid'\" --rate 100",
        "rocketq pipeline replay --from-archive /data/archive --since 1d --to OrdersAgain",
    ),
)
@runs_pipeline
@click.option("--from-topic", metavar="TOPIC", help="Messages of a topic.")
@click.option("--from-dlq", metavar="GROUP", help="Dead letters of a group.")
@click.option("--from-archive", metavar="DIR", help="Messages of an archive, or of any Parquet files with its columns.")
@click.option("--to", "topic", metavar="TOPIC", help="Where to.  [default: where each was first sent to]")
@click.option("--since", type=moment, metavar="MOMENT", help="Stored since then: 15m, 2h, 1d, 2026-11-15T10:00.")
@click.option("--until", type=moment, metavar="MOMENT", help="Stored before then.")
@click.option("--tag", "tags", multiple=True, help="Of this tag; may be repeated.")
@click.option("--key", "keys", multiple=True, help="With this key; may be repeated.")
@click.option("--where", metavar="SQL", help="A condition of Spark SQL on the columns of a message.")
@click.option("--limit", type=click.IntRange(1), help="Maximum number of messages.")
@click.option("--rate", type=FiniteRange(0, min_open=True), help="Messages per second.  [default: no limit]")
@click.option("--dry-run", is_flag=True, help="Count what would be sent, by topic and tag; send nothing.")
@click.option("--checkpoint", metavar="DIR", help="Only what is new since the last replay with this checkpoint.")
def replay(
    pipeline: Pipeline,
    from_topic: str | None,
    from_dlq: str | None,
    from_archive: str | None,
    topic: str | None,
    rate: float | None,
    dry_run: bool,
    checkpoint: str | None,
    limit: int | None,
    **chosen: Any,
) -> None:
    """Send copies of messages: of a topic, of dead letters, of an archive.

    A copy has a new id and the old one in its property ORIGIN_MESSAGE_ID; delays, retries and transactions of the first
    way are not repeated. A run that fails half-way has sent a part: with --checkpoint the next run goes on from there,
    and some may be sent twice.
    """
    if sum(each is not None for each in (from_topic, from_dlq, from_archive)) != 1:
        raise click.UsageError("give one of --from-topic, --from-dlq and --from-archive")
    if checkpoint is not None and (from_archive is not None or dry_run or limit is not None):
        raise click.UsageError("--checkpoint is for topics and dead letters, without --dry-run and --limit")
    if from_topic is not None and (topic is None or topic == from_topic):
        raise click.UsageError("--from-topic needs --to, another topic: a topic replayed into itself never ends")
    if from_dlq is not None:
        require_groups(pipeline.caller, [from_dlq])
    for name in (from_topic, topic):
        if name is not None:
            pipeline.caller.run(lambda admin, name=name: admin.topics.route(name))  # type: ignore[misc]

    streaming = checkpoint is not None
    source, sink = _options(pipeline, from_topic or dlq_topic(str(from_dlq)), streaming=streaming)
    if from_archive is not None and "://" not in from_archive and not Path(from_archive).exists():
        pipeline.fail(NotFoundError("archive", from_archive))

    def work(spark: SparkSession) -> dict[str, Any]:
        from rocketq.spark.pipelines import replay as pipelines  # noqa: PLC0415

        read = _read(spark, source, from_archive, streaming=streaming)
        picked = pick(read, **chosen)
        copies = pipelines.prepared(picked if limit is None else picked.limit(limit), topic=topic)
        if dry_run:
            return {"dry_run": True, "plan": as_dicts(pipelines.plan(copies).collect())}
        if checkpoint is None:
            sent = pipelines.replay(copies, sink, rows_per_s=rate)
            return {"dry_run": False, "messages": sent.messages, "body_bytes": sent.body_bytes}
        query = pipelines.replay_stream(copies, sink, checkpoint=checkpoint, rows_per_s=rate)
        query.awaitTermination()
        return {"dry_run": False, "messages": sum(each.numInputRows for each in query.recentProgress)}

    done = pipeline.run("replay", work)
    if dry_run:
        plan: Sequence[Mapping[str, Any]] = done["plan"]
        total = sum(row["messages"] for row in plan)
        value = {"dry_run": True, "messages": total, "plan": [row_json(row) for row in plan]}
        pipeline.caller.show(value, f"{rows_text(_PLAN, plan)}\n\n{total} messages would be sent; none was")
    else:
        pipeline.caller.show(done, f"{done['messages']} messages were sent")


def pick(
    messages: DataFrame,
    *,
    since: int | None = None,
    until: int | None = None,
    tags: Sequence[str] = (),
    keys: Sequence[str] = (),
    where: str | None = None,
) -> DataFrame:
    """Those that all conditions hold for."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    found = within(messages, since, until)
    if tags:
        found = found.where(F.col("tags").isin(*tags))
    if keys:
        found = found.where(F.arrays_overlap(F.split("keys", " "), F.array(*(F.lit(key) for key in keys))))
    return found if where is None else found.where(where)


def _options(pipeline: Pipeline, topic: str, *, streaming: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Of the read and of the write, each checked before Spark is started."""
    from rocketq.spark.sink_options import of_sink, of_source  # noqa: PLC0415

    start = {"startingOffsets": "earliest"} if streaming else {}
    wanted = {**start, "subscribe": topic, "includeProperties": "true"}
    reading = replace(pipeline, options=of_source(pipeline.options))
    return reading.read_options(wanted, streaming=streaming), of_sink(pipeline.source)


def _read(spark: SparkSession, source: Mapping[str, str], archive: str | None, *, streaming: bool) -> DataFrame:
    if archive is not None:
        return _read_archive(spark, archive)
    return (spark.readStream if streaming else spark.read).format("rocketmq").options(**source).load()


def _read_archive(spark: SparkSession, archive: str) -> DataFrame:
    """By its manifest, or any Parquet files."""
    from rocketq.spark.archive.folder import ArchiveFolder  # noqa: PLC0415
    from rocketq.spark.pipelines.archive import read_archive  # noqa: PLC0415

    is_here = "://" not in archive.removeprefix("file://")
    if is_here and ArchiveFolder(archive).exists:
        return read_archive(spark, archive)
    return spark.read.parquet(archive)
