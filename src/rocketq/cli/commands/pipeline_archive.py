"""`rocketq pipeline archive`: topics, or the files of a store, into Parquet."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from rocketq.cli.commands.calling import example
from rocketq.cli.commands.pipeline_calling import Pipeline, runs_pipeline
from rocketq.client.errors import NotFoundError
from rocketq.spark.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketq.cli.commands.pipeline_progress import Tell
    from rocketq.spark.pipelines.archive import ArchiveSummary


@click.command(
    short_help="Topics, or store files, into Parquet.",
    epilog=example(
        "rocketq pipeline archive Orders Payments --to /data/archive",
        "rocketq pipeline archive --pattern 'Orders.*' --to /data/archive",
        "rocketq pipeline archive --from-store /data/broker-0 --broker broker-0 --to /data/archive",
        "rocketq pipeline archive --compact --to /data/archive",
    ),
)
@runs_pipeline
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--pattern", metavar="REGEX", help="Topics whose names match this pattern, instead of TOPICs.")
@click.option("--to", "target", required=True, metavar="DIR", help="The archive; created if it does not exist.")
@click.option("--from-store", "stores", multiple=True, metavar="DIR", help="Read store files, ask no broker.")
@click.option("--broker", help="With --from-store: the name of the broker whose store it is.")
@click.option("--no-properties", is_flag=True, help="Leave the map of properties out: half the size, no replay.")
@click.option("--no-compaction", is_flag=True, help="Leave small files as they are.")
@click.option("--allow-loss", is_flag=True, help="Continue if messages were deleted by retention since the last run.")
@click.option("--compact", is_flag=True, help="Only put small files of each day together.")
def archive(
    pipeline: Pipeline,
    topics: tuple[str, ...],
    pattern: str | None,
    target: str,
    stores: tuple[str, ...],
    broker: str | None,
    no_properties: bool,
    no_compaction: bool,
    allow_loss: bool,
    compact: bool,
) -> None:
    """Add the messages of TOPICs to an archive of Parquet files, by topic and date.

    Run it again and again: each message is in the archive once, whatever fails when. A run of --from-store adds what a
    store directory holds and the archive does not; both may be mixed.
    """
    _check(topics, pattern, stores, broker, compact)
    if topics and not stores:
        for topic in topics:
            pipeline.caller.run(lambda admin, topic=topic: admin.topics.route(topic))  # type: ignore[misc]
    _look(pipeline, stores, target if compact else None)
    wanted = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": str(pattern)}
    loss = {"failOnDataLoss": "false"} if allow_loss else {}
    options = {} if stores or compact else {**pipeline.read_options(wanted), **wanted, **loss}  # arguments win

    def work(spark: SparkSession, tell: Tell) -> ArchiveSummary:
        from rocketq.spark.pipelines import archive as pipelines  # noqa: PLC0415

        if compact:
            return pipelines.compact(spark, target, progress=tell)
        kept, packed = not no_properties, not no_compaction
        if stores:
            return pipelines.archive_store(
                spark,
                list(stores),
                target,
                broker_name=str(broker),
                topics=topics or None,
                topic_pattern=pattern,
                properties=kept,
                compaction=packed,
                progress=tell,
            )
        return pipelines.archive(spark, options, target, properties=kept, compaction=packed, progress=tell)

    done = pipeline.run_told("archive", "bytes" if stores else "messages", work)
    pipeline.caller.show(asdict(done), _compacted(done) if compact else _text(done))


def _check(
    topics: tuple[str, ...], pattern: str | None, stores: tuple[str, ...], broker: str | None, compact: bool
) -> None:
    if compact and (topics or pattern or stores):
        raise click.UsageError("--compact reads no topics and no stores")
    if topics and pattern is not None:
        raise click.UsageError("give TOPICs or --pattern")
    if not (topics or pattern or stores or compact):
        raise click.UsageError("give TOPICs, --pattern, --from-store or --compact")
    if bool(stores) != (broker is not None):
        raise click.UsageError("--from-store and --broker go together")
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise click.BadParameter(f"{pattern!r} is no pattern: {error}", param_hint="--pattern") from None


def _look(pipeline: Pipeline, stores: tuple[str, ...], archive: str | None) -> None:
    """Checked before Spark starts: the input exists."""
    from rocketq.spark.archive.folder import ArchiveFolder  # noqa: PLC0415 - loads pyarrow
    from rocketq.spark.commitlog_files import find_log_files  # noqa: PLC0415

    if archive is not None and not ArchiveFolder(archive).exists:
        pipeline.fail(NotFoundError("archive", archive))
    for store in stores:
        try:
            find_log_files([store])
        except SparkError as fault:
            pipeline.fail(NotFoundError("store", store, str(fault)))


def _compacted(done: ArchiveSummary) -> str:
    if done.commit == 0:
        return f"no small files to put together in {done.target}"
    return (
        f"{done.files_replaced} small files of {done.target} put together: {done.rows} messages in {done.files} files "
        f"({done.size_bytes:,} bytes); commit {done.commit}, {done.seconds:.1f} s"
    )


def _text(done: ArchiveSummary) -> str:
    lines = [f"lost: {each}" for each in done.lost] + [f"damaged: {each}" for each in done.damage]
    if done.commit == 0:
        return "\n".join([*lines, f"nothing new for {done.target}"])
    replaced = f", {done.files_replaced} small files put together" if done.files_replaced else ""
    lines.append(
        f"{done.rows} messages in {done.files} files ({done.size_bytes:,} bytes) added to {done.target}{replaced}; "
        f"commit {done.commit}, {done.seconds:.1f} s"
    )
    return "\n".join(lines)
