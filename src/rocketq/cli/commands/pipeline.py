"""`rocketq pipeline`: ready-made work on topics and stores, done by Spark."""

from __future__ import annotations

import importlib
from typing import Final

import click

VERBS: Final = {
    "archive": ("rocketq.cli.commands.pipeline_archive", "archive"),
    "dlq": ("rocketq.cli.commands.pipeline_dlq", "dlq"),
    "init": ("rocketq.cli.commands.pipeline_init", "init"),
    "lag": ("rocketq.cli.commands.pipeline_lag", "lag"),
    "replay": ("rocketq.cli.commands.pipeline_replay", "replay"),
    "trace": ("rocketq.cli.commands.pipeline_trace", "trace"),
    "verify": ("rocketq.cli.commands.pipeline_verify", "verify"),
}


class Verbs(click.Group):
    """Imports a verb when it is asked for; none imports Spark before it works."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, name = VERBS[cmd_name]
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Verbs)
def pipeline() -> None:
    """Run data pipelines on Spark.

    They need the extra rocketq[spark]. Java 17 or newer is used where it is found, otherwise the one that comes with
    the extra. Everything runs on this machine unless --master names a cluster.
    """
