"""`rocketq pipeline lag`: how far groups are behind, queue by queue, over time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketq.cli.commands.calling import Caller, example, to_json
from rocketq.cli.commands.pipeline_calling import Pipeline, report_option, runs_pipeline, write_report
from rocketq.cli.commands.tables import NONE, table, time_text
from rocketq.cli.numbers import FiniteRange
from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.groups import GroupStatus
from rocketq.protocol.names import is_system_group

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketq.spark.pipelines.lag import GroupLag, LagRow


@click.command(
    short_help="How far groups are behind, over time.",
    epilog=example(
        "rocketq pipeline lag billing",
        "rocketq pipeline lag --every 10 --count 60 --out lag-table --report lag.html",
    ),
)
@runs_pipeline
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option("--every", "every_s", type=FiniteRange(0.1), default=5.0, show_default=True, help="Seconds.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How often to look.")
@click.option("--out", metavar="DIR", help="Add each sample to the Parquet table there: it grows with every run.")
@report_option
def lag(
    pipeline: Pipeline, groups: tuple[str, ...], every_s: float, count: int, out: str | None, report: Path | None
) -> None:
    """Sample the lag of GROUPs (or of all), and keep it as a table over time.

    One line per group and sample; with --json one object per sample and queue. What is not known (nothing committed, a
    broker that does not answer) is counted apart. Spark is started only where there is a table to write.
    """
    found: list[LagRow] = []
    for number in range(count):
        if number:
            time.sleep(every_s)
        rows = _ask(pipeline.caller, groups)
        found += rows
        _print(pipeline.caller, rows, titles=number == 0)
    if out is not None:
        pipeline.run("lag", lambda spark: _keep(spark, found, out))
        click.echo(f"table: {out}", err=pipeline.caller.as_json)
    if report is not None:
        from rocketq.spark.pipelines.reports import lag_page  # noqa: PLC0415

        write_report(lag_page(found), report, quiet=pipeline.caller.as_json)


def _ask(caller: Caller, groups: Sequence[str]) -> list[LagRow]:
    from rocketq.spark.pipelines.lag import rows_of  # noqa: PLC0415

    async def look(admin: AsyncAdmin) -> list[GroupStatus]:
        wanted = list(groups) or [name for name in sorted(await admin.groups.list()) if not is_system_group(name)]
        return [await admin.groups.status(group) for group in wanted]

    at_ms = time.time_ns() // 1_000_000
    return [row for status in caller.run(look) for row in rows_of(status, at_ms)]


def _print(caller: Caller, rows: Sequence[LagRow], *, titles: bool) -> None:
    from rocketq.spark.pipelines.lag import group_lags  # noqa: PLC0415

    if caller.as_json:
        for row in rows:
            click.echo(to_json(_row_json(row)))
        return
    text = table(["AT", "GROUP", "LAG", "QUEUES", "UNKNOWN", "BEHIND"], [_line(each) for each in group_lags(rows)])
    click.echo(text if titles else text.partition("\n")[2])


def _row_json(row: LagRow) -> dict[str, Any]:
    return {
        "at_ms": row.at_ms,
        "group": row.group,
        "topic": row.queue.topic,
        "broker": row.queue.broker_name,
        "queue_id": row.queue.queue_id,
        "committed": row.committed,
        "max": row.max_offset,
        "lag": row.lag,
        "behind_ms": row.behind_ms,
    }


def _line(each: GroupLag) -> list[Any]:
    behind = NONE if each.behind_ms is None else f"{each.behind_ms / 1000:.1f} s"
    return [time_text(each.at_ms), each.group, each.lag, each.queues, each.unknown, behind]


def _keep(spark: SparkSession, rows: Sequence[LagRow], out: str) -> None:
    from rocketq.spark.pipelines.lag import frame_of  # noqa: PLC0415

    frame_of(spark, rows).coalesce(1).write.mode("append").parquet(out)
