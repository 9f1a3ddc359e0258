"""`rocketq pipeline trace`: how long messages took from send to consumption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rocketq.cli.commands.calling import example
from rocketq.cli.commands.pipeline_calling import Pipeline, out_option, report_option, runs_pipeline, write_report
from rocketq.cli.commands.pipeline_views import as_dicts, row_json, rows_text
from rocketq.cli.commands.times import moment
from rocketq.client.admin import AsyncAdmin
from rocketq.client.errors import NotFoundError
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LATENCY: Final = {
    "topic": "TOPIC",
    "consumerGroup": "GROUP",
    "messageType": "TYPE",
    "messages": "MESSAGES",
    "p50Ms": "P50 MS",
    "p90Ms": "P90 MS",
    "p99Ms": "P99 MS",
    "maxMs": "MAX MS",
    "consumeP50Ms": "LISTENER P50 MS",
    "failed": "FAILED",
}


@click.command(
    short_help="Latencies from send to consumption.",
    epilog=example(
        "rocketq pipeline trace --of Orders", "rocketq pipeline trace --since 1h --report latency.html --out spans"
    ),
)
@runs_pipeline
@click.option("--topic", default=TRACE_TOPIC, show_default=True, help="Where clients write their traces to.")
@click.option("--of", "topics", multiple=True, metavar="TOPIC", help="Only messages of this topic; may be repeated.")
@click.option("--group", "groups", multiple=True, help="Only consumers of this group; may be repeated.")
@click.option("--since", type=moment, metavar="MOMENT", help="Sent since then: 15m, 2h, 1d, 2026-11-15T10:00.")
@click.option("--retries", is_flag=True, help="Count consumptions after the first too.")
@out_option("spans")
@report_option
def trace(
    pipeline: Pipeline,
    topic: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    since: int | None,
    retries: bool,
    out: str | None,
    report: Path | None,
) -> None:
    """Show percentiles from send to consumption, and the number of unconsumed messages.

    Producers and consumers write traces where it is switched on (trace=True), to brokers that allow it
    (traceTopicEnable=true). Latencies of delayed messages contain their delay and have rows of their own.
    """
    _require_topic(pipeline, topic)
    pipeline.read_options({} if pipeline.options.keys() & {"subscribePattern", "assign"} else {"subscribe": topic})

    def work(spark: SparkSession) -> tuple[list[dict[str, Any]], int, int]:
        from pyspark.sql import functions as F  # noqa: PLC0415

        from rocketq.spark.pipelines import trace as pipelines  # noqa: PLC0415

        spans = pipelines.spans(pipelines.events(pipelines.read_trace(spark, pipeline.source, topic=topic)))
        if out is not None:
            spans.write.parquet(out)
            spans = spark.read.parquet(out)
        spans = spans.cache()
        found, waiting = pipelines.deliveries(spans), pipelines.not_consumed(spans)
        if since is not None:
            found = found.where(F.unix_millis("sentAt") >= since)
            waiting = waiting.where(F.unix_millis("startedAt") >= since)
        if topics:
            found, waiting = found.where(F.col("topic").isin(*topics)), waiting.where(F.col("topic").isin(*topics))
        if groups:
            found = found.where(F.col("consumerGroup").isin(*groups))
        rows = as_dicts(pipelines.latency(found, retries=retries).collect())
        return rows, waiting.count(), spans.count()

    rows, waiting, spans = pipeline.run("trace", work)
    if report is not None:
        from rocketq.spark.pipelines.reports import latency_page  # noqa: PLC0415

        write_report(latency_page(rows, waiting), report, quiet=pipeline.caller.as_json)
    value = {
        "spans": spans,
        "not_consumed": waiting,
        "latency": [row_json(row) for row in rows],
        **({"out": out} if out is not None else {}),
    }
    pipeline.caller.show(value, _text(rows, waiting, spans))


def _require_topic(pipeline: Pipeline, topic: str) -> None:
    async def look(admin: AsyncAdmin) -> None:
        try:
            await admin.topics.route(topic)
        except TopicNotFoundError:
            reason = "brokers with traceTopicEnable=true have it" if topic == TRACE_TOPIC else None
            raise NotFoundError("topic", topic, reason) from None

    pipeline.caller.run(look)


def _text(rows: Sequence[Mapping[str, Any]], waiting: int, spans: int) -> str:
    tail = f"{spans} spans, {waiting} messages that no traced consumer has begun with"
    return f"{rows_text(_LATENCY, rows)}\n\n{tail}" if rows else tail
