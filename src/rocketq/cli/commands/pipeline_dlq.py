"""`rocketq pipeline dlq`: what consumers gave up on, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rocketq.cli.commands.calling import Caller, example
from rocketq.cli.commands.pipeline_calling import Pipeline, out_option, report_option, runs_pipeline, write_report
from rocketq.cli.commands.pipeline_views import as_dicts, row_json, rows_text
from rocketq.cli.commands.times import moment
from rocketq.client.admin import AsyncAdmin
from rocketq.client.errors import NotFoundError
from rocketq.protocol.names import dlq_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CAUSES: Final = {
    "group": "GROUP",
    "originTopic": "TOPIC",
    "cause": "CAUSE",
    "tags": "TAG",
    "retries": "RETRIES",
    "messages": "MESSAGES",
    "lastDiedAt": "LAST",
}
_LETTERS: Final = {
    "group": "GROUP",
    "originTopic": "TOPIC",
    "msgId": "ID",
    "tags": "TAG",
    "keys": "KEYS",
    "retries": "RETRIES",
    "diedAt": "DIED",
    "error": "ERROR",
}


@click.command(
    short_help="Dead letters by cause, tag and retries.",
    epilog=example(
        "rocketq pipeline dlq",
        "rocketq pipeline dlq billing mail --since 1d --letters 10 --report dead.html",
    ),
)
@runs_pipeline
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option("--since", type=moment, metavar="MOMENT", help="Dead since then: 15m, 2h, 1d, 2026-11-15T10:00.")
@click.option("--until", type=moment, metavar="MOMENT", help="Dead before then.")
@click.option("--error-property", "names", multiple=True, metavar="NAME", help="The property that holds the error.")
@click.option(
    "--letters", type=click.IntRange(0, 10_000), default=0, help="Also list this many messages, newest first."
)
@out_option("dead letters")
@report_option
def dlq(
    pipeline: Pipeline,
    groups: tuple[str, ...],
    since: int | None,
    until: int | None,
    names: tuple[str, ...],
    letters: int,
    out: str | None,
    report: Path | None,
) -> None:
    """Count the dead letters of GROUPs (or of all) by topic, cause, tag and retries.

    RocketMQ does not store why a consumer failed. Where messages carry it in a property (ERROR, exception, reason or
    the one --error-property names) it is shown, with numbers and ids taken out: equal causes are counted together.
    """
    require_groups(pipeline.caller, groups)
    pipeline.read_options({"subscribePattern": "-"})

    def work(spark: SparkSession) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        from rocketq.spark.pipelines import dlq as pipelines  # noqa: PLC0415

        wanted = names or pipelines.ERROR_PROPERTIES
        read = pipelines.read_dlq(spark, pipeline.source, groups=groups)
        dead = pipelines.dead_letters(within(read, since, until), error_properties=wanted)
        if out is not None:
            dead.write.parquet(out)
            dead = spark.read.parquet(out)
        counted = pipelines.causes(dead).orderBy("group", "originTopic", "messages", ascending=[True, True, False])
        newest = dead.orderBy("diedAt", ascending=False).select(*_LETTERS).limit(letters).collect() if letters else []
        return as_dicts(counted.collect()), as_dicts(newest)

    causes, newest = pipeline.run("dlq", work)
    if report is not None:
        from rocketq.spark.pipelines.reports import dlq_page  # noqa: PLC0415

        write_report(dlq_page(causes, newest), report, quiet=pipeline.caller.as_json)
    value = {
        "messages": sum(row["messages"] for row in causes),
        "causes": [row_json(row) for row in causes],
        **({"letters": [row_json(row) for row in newest]} if letters else {}),
        **({"out": out} if out is not None else {}),
    }
    pipeline.caller.show(value, _text(causes, newest, out))


def require_groups(caller: Caller, groups: Sequence[str]) -> None:
    """Before Spark is started: brokers answer, and know these groups or hold dead letters of them."""

    async def look(admin: AsyncAdmin) -> None:
        topics = await admin.topics.list()
        if unknown := [group for group in groups if dlq_topic(group) not in topics]:
            known = await admin.groups.list()
            for group in unknown:
                if group not in known:
                    raise NotFoundError("consumer group", group)

    caller.run(look)


def within(messages: DataFrame, since_ms: int | None, until_ms: int | None) -> DataFrame:
    """Stored in [since, until)."""
    from pyspark.sql import functions as F  # noqa: PLC0415

    at = F.unix_millis("storeTimestamp")
    found = messages if since_ms is None else messages.where(at >= since_ms)
    return found if until_ms is None else found.where(at < until_ms)


def _text(causes: Sequence[Mapping[str, Any]], newest: Sequence[Mapping[str, Any]], out: str | None) -> str:
    if not causes:
        return "no dead letters"
    parts = [rows_text(_CAUSES, causes)]
    if newest:
        parts.append(rows_text(_LETTERS, newest))
    parts.append(f"{sum(row['messages'] for row in causes)} dead letters" + (f", kept in {out}" if out else ""))
    return "\n\n".join(parts)
