"""`rocketq store`: check store directories without a broker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from rocketq.errors import ConfigError, StoreError
from rocketq.store.config import DEFAULT_DELAY_LEVELS
from rocketq.store.verify import Severity, Verifier, VerifyReport

FAILED, NOT_FOUND = 1, 3
_ADVICE = {
    True: "the next opening mends what is marked repair",
    False: "opening it rebuilds queues and index and keeps every message that can be read; the rest needs a copy",
}
_COLOURS = {Severity.ERROR: "red", Severity.REPAIR: "yellow", Severity.NOTE: "blue"}


@click.group()
def store() -> None:
    """Store directories, offline."""


@store.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@click.option(
    "--log-dir", type=click.Path(path_type=Path), help="Where the commit log is, when not in DIRECTORY/commitlog."
)
@click.option(
    "--index-slots",
    type=click.IntRange(min=1),
    help="maxHashSlotNum of the index files, if it cannot be derived from them.",
)
@click.option(
    "--index-units",
    type=click.IntRange(min=2),
    help="maxIndexNum of the index files, if it cannot be derived from them.",
)
@click.option("--delay-levels", default=DEFAULT_DELAY_LEVELS, help="messageDelayLevel, when it is not the default.")
def check(
    directory: Path,
    as_json: bool,
    log_dir: Path | None,
    index_slots: int | None,
    index_units: int | None,
    delay_levels: str,
) -> None:
    """Verify a store DIRECTORY. Checks each record, queue entry and index entry; changes nothing.

    Works on directories of RocketQ and of Apache RocketMQ. "repair" findings are fixed by the next start,
    as after a crash. Exit codes: 0 sound, 1 damaged, 2 wrong usage, 3 no such store.
    """
    if (index_slots is None) != (index_units is None):
        raise click.UsageError("--index-slots and --index-units go together")
    shape = (index_slots, index_units) if index_slots is not None and index_units is not None else None
    bar = click.progressbar(length=100, label="walking the log", file=sys.stderr)
    show = sys.stderr.isatty() and not as_json

    def progress(done: int, total: int) -> None:
        if show:
            bar.update(int(100 * done / max(total, 1)) - bar.pos)

    try:
        report = Verifier(
            directory, log_dir=log_dir, index_shape=shape, delay_levels=delay_levels, progress=progress
        ).run()
    except ConfigError as error:
        raise click.UsageError(f"--delay-levels: {error}") from None
    except StoreError as error:
        _fail(str(error), NOT_FOUND, as_json)
    except OSError as error:
        _fail(str(error), FAILED, as_json)
    if show:
        bar.render_finish()
    click.echo(json.dumps(report.to_json(), indent=2) if as_json else report_text(report))
    sys.exit(0 if report.ok else FAILED)


def _fail(message: str, code: int, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"ok": False, "error": message}))
    else:
        click.echo(f"rocketq store check: {message}", err=True)
    sys.exit(code)


def report_text(report: VerifyReport) -> str:
    """For people."""
    lines = [
        f"{click.style(item.severity.value, fg=_COLOURS[item.severity])}: {item.where}: {item.what}"
        for item in report.findings
    ]
    if report.findings_left_out:
        lines.append(f"(and {report.findings_left_out} more findings)")
    lines.append(
        f"{report.root}: log [{report.log_start}, {report.log_end}), {report.segments} files, "
        f"{report.records} records; "
        f"{report.queues} queues, {report.queue_units} units"
        f"{f', {report.extension_units} extensions' if report.extension_units else ''}; "
        f"{report.index_files} index files, {report.index_units} units; "
        f"{'cleanly stopped' if report.cleanly_stopped else 'not cleanly stopped (or running)'}"
    )
    lines.append(click.style("sound", fg="green") if report.ok else click.style("damaged", fg="red"))
    if any(item.severity is not Severity.NOTE for item in report.findings):
        lines.append(_ADVICE[report.ok])
    return "\n".join(lines)
