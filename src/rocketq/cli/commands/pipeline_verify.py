"""`rocketq pipeline verify`: a whole store, checked by many tasks in parallel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketq.cli.commands.calling import FAILED, example
from rocketq.cli.commands.pipeline_calling import Pipeline, runs_offline
from rocketq.cli.commands.store import report_text
from rocketq.client.errors import NotFoundError
from rocketq.store.config import DEFAULT_DELAY_LEVELS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketq.cli.commands.pipeline_progress import Tell
    from rocketq.store.verify import VerifyReport


@click.command(
    short_help="Check a whole store, in parallel.",
    epilog=example("rocketq pipeline verify /data/broker-0", "rocketq pipeline verify DIR --master yarn"),
)
@runs_offline
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--log-dir", type=click.Path(path_type=Path), help="Where the commit log is, when not in DIRECTORY.")
@click.option("--index-slots", type=click.IntRange(1), help="maxHashSlotNum of the index files.")
@click.option("--index-units", type=click.IntRange(2), help="maxIndexNum of the index files.")
@click.option("--delay-levels", default=DEFAULT_DELAY_LEVELS, help="messageDelayLevel, when it is not the default.")
def verify(
    pipeline: Pipeline,
    directory: Path,
    log_dir: Path | None,
    index_slots: int | None,
    index_units: int | None,
    delay_levels: str,
) -> None:
    """Verify every record, CRC, queue entry and index entry of DIRECTORY, as `rocketq store check`, in parallel.

    All nodes must see DIRECTORY. Nothing is changed. Exit codes: 0 sound, 1 damaged, 2 wrong usage, 3 no such store.
    """
    if (index_slots is None) != (index_units is None):
        raise click.UsageError("--index-slots and --index-units go together")
    if not (log_dir or directory / "commitlog").is_dir():
        pipeline.fail(NotFoundError("store", str(directory), "there is no commit log"))
    shape = (index_slots, index_units) if index_slots is not None and index_units is not None else None

    def work(spark: SparkSession, tell: Tell) -> VerifyReport:
        from rocketq.spark.pipelines.verify import verify as run  # noqa: PLC0415

        return run(spark, directory, log_dir=log_dir, index_shape=shape, delay_levels=delay_levels, progress=tell)

    report = pipeline.run_told("verify", "bytes", work)
    pipeline.caller.show(report.to_json(), report_text(report))
    sys.exit(0 if report.ok else FAILED)
