"""`rocketq pipeline init`: a project for spark-pipelines."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from rocketq.cli.commands.calling import USAGE, example
from rocketq.cli.connection import NAME_SERVER
from rocketq.errors import RocketQError


@click.command(
    short_help="Make a project for spark-pipelines.",
    epilog=example("rocketq pipeline init watch -n 127.0.0.1:9876", "cd watch && spark-pipelines run"),
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "-n",
    "--namesrv",
    default=NAME_SERVER,
    envvar="NAMESRV_ADDR",
    show_default=True,
    help="NameServers, HOST:PORT;HOST:PORT.  [env: NAMESRV_ADDR]",
)
@click.option(
    "--options-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='Options of format("rocketmq") for each run, a KEY=VALUE per line: keys, certificates.',
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def init(folder: Path, namesrv: str, options_file: Path | None, as_json: bool) -> None:
    """Make a spark-pipelines project in DIR: dead letters, traces and lag as tables that grow, and a replay.

    Nothing is started and no broker is asked. Settings are in DIR/spark-pipeline.yml.
    """
    from rocketq.spark.options import read_options_file  # noqa: PLC0415 - as all pipelines
    from rocketq.spark.pipelines.project_files import make_project  # noqa: PLC0415

    try:
        if options_file is not None:
            read_options_file(options_file)  # a mistake is reported here, not by the first run
        made = make_project(folder, namesrv, options_file)
    except RocketQError as error:
        click.echo(f"{click.get_current_context().command_path}: {error}", err=True)
        sys.exit(USAGE)
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "files": [str(path) for path in made]}, indent=2))
    else:
        click.echo("\n".join([*map(str, made), "", f"cd {folder} && spark-pipelines run"]))
