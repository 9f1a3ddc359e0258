"""The `rocketq` command. Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 unreachable."""

from __future__ import annotations

import gc
import importlib
from types import ModuleType
from typing import Any

import click

from rocketq import __version__
from rocketq.cli.standard_files import hold_standard_files, lacks_room

COMMANDS = {
    "access": ("rocketq.cli.commands.access", "access"),
    "bench": ("rocketq.cli.commands.bench", "bench"),
    "broker": ("rocketq.cli.commands.broker", "broker"),
    "check": ("rocketq.cli.commands.check", "check"),
    "cluster": ("rocketq.cli.commands.cluster", "cluster"),
    "console": ("rocketq.cli.commands.console", "console"),
    "dlq": ("rocketq.cli.commands.dlq", "dlq"),
    "exporter": ("rocketq.cli.commands.exporter", "exporter"),
    "group": ("rocketq.cli.commands.group", "group"),
    "ha": ("rocketq.cli.commands.ha", "ha"),
    "message": ("rocketq.cli.commands.message", "message"),
    "metrics": ("rocketq.cli.commands.metrics", "metrics"),
    "namesrv": ("rocketq.cli.commands.namesrv", "namesrv"),
    "offset": ("rocketq.cli.commands.offset", "offset"),
    "pipeline": ("rocketq.cli.commands.pipeline", "pipeline"),
    "policy": ("rocketq.cli.commands.policy", "policy"),
    "profile": ("rocketq.cli.commands.profile", "profile"),
    "send": ("rocketq.cli.commands.send", "send"),
    "store": ("rocketq.cli.commands.store", "store"),
    "tail": ("rocketq.cli.commands.tail", "tail"),
    "timer": ("rocketq.cli.commands.timer", "timer"),
    "topic": ("rocketq.cli.commands.topic", "topic"),
    "trace": ("rocketq.cli.commands.trace", "trace"),
    "transaction": ("rocketq.cli.commands.transaction", "transaction"),
    "up": ("rocketq.cli.commands.up", "up"),
    "user": ("rocketq.cli.commands.user", "user"),
}


class LazyGroup(click.Group):
    """Imports a command's module when it is asked for, so that the others cost nothing."""

    def invoke(self, ctx: click.Context) -> Any:
        hold_standard_files()
        try:
            return super().invoke(ctx)
        except OSError as error:
            if not lacks_room(error):
                raise
            click.echo(f"rocketq {ctx.invoked_subcommand}: {error}", err=True)
            ctx.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name]
        try:
            command = getattr(_load(module), name)
        except ImportError as error:
            if "ROCKETQ_KERNEL" not in str(error):
                raise
            raise click.UsageError(str(error)) from None
        assert isinstance(command, click.Command)
        return command


def _load(module: str) -> ModuleType:
    """What modules bring stays for good: looking for garbage in it again and again took a tenth of the time."""
    gc.disable()
    try:
        return importlib.import_module(module)
    finally:
        gc.enable()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rocketq")
def main() -> None:
    """RocketMQ for Python and Spark."""
