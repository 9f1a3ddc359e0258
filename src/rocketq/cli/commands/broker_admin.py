"""`rocketq broker status` and `rocketq broker config`: a running broker, asked and changed."""

from __future__ import annotations

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.tables import pairs
from rocketq.cli.logs import LEVELS
from rocketq.client.admin import AsyncAdmin
from rocketq.client.errors import NotFoundError
from rocketq.protocol.codes import RequestCode
from rocketq.runtime.log_levels import parse_levels


@click.command(epilog=example("rocketq broker status broker-0"))
@calls_cluster
@click.argument("broker", metavar="NAME|HOST:PORT")
def status(caller: Caller, broker: str) -> None:
    """Show statistics of a running broker. The names are those of all RocketMQ tools."""
    found = caller.run(lambda admin: admin.brokers.status(broker))
    caller.show(found, pairs(dict(found)))


@click.group()
def config() -> None:
    """Settings of a running broker: get, set."""


@config.command(epilog=example("rocketq broker config get broker-0 fileReservedTime"))
@calls_cluster
@click.argument("broker", metavar="NAME|HOST:PORT")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
def get(caller: Caller, broker: str, keys: tuple[str, ...]) -> None:
    """Show settings in effect: all, or KEYs."""
    found = caller.run(lambda admin: admin.brokers.config(broker))
    for key in keys:
        if key not in found:
            caller.fail(NotFoundError("setting", key, f"{broker} has none of that name"))
    shown = {key: found[key] for key in keys} if keys else found
    caller.show(shown, "\n".join(f"{key}={value}" for key, value in shown.items()))


@config.command("set", epilog=example("rocketq broker config set broker-0 fileReservedTime=48"))
@calls_cluster
@click.argument("broker", metavar="NAME|HOST:PORT")
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE...")
def set_config(caller: Caller, broker: str, changes: tuple[str, ...]) -> None:
    """Change settings of a running broker. They survive a restart."""
    if bad := [text for text in changes if not text.partition("=")[0] or "=" not in text]:
        raise click.BadParameter(f"{bad[0]!r} is not KEY=VALUE")
    wanted = dict(text.split("=", 1) for text in changes)
    found = caller.run(lambda admin: admin.brokers.set_config(broker, wanted))
    caller.show(found, "\n".join(f"{key}={value}" for key, value in found.items()))


@click.command("log-level", epilog=example("rocketq broker log-level broker-0 debug --logger rocketq.store"))
@calls_cluster
@click.argument("broker", metavar="NAME|HOST:PORT")
@click.argument("level", required=False, type=click.Choice([*LEVELS, "default"], case_sensitive=False))
@click.option("--logger", default="rocketq", show_default=True, help="The logger whose level changes.")
def log_level(caller: Caller, broker: str, level: str | None, logger: str) -> None:
    """Show or change log levels.

    A change takes effect at once and survives a restart; `default` takes it back. Without LEVEL, show the changes.
    """

    async def work(admin: AsyncAdmin) -> dict[str, str]:
        levels = parse_levels((await admin.brokers.config(broker)).get("logLevel", ""))
        if level is not None:
            levels.pop(logger, None)
            if level != "default":
                levels[logger] = level.upper()
            text = ",".join(f"{name}={one}" for name, one in sorted(levels.items()))
            await admin.brokers.set_config(broker, {"logLevel": text})
        return levels

    found = caller.run(work)
    caller.show(found, pairs(dict(found)) if found else "levels are as the broker was started")


CLEANINGS = {
    "consume-queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "unused-topics": RequestCode.CLEAN_UNUSED_TOPIC,
    "commit-log": RequestCode.DELETE_EXPIRED_COMMITLOG,
}


@click.command(epilog=example("rocketq broker clean broker-0 consume-queues --yes"))
@calls_cluster
@click.argument("broker", metavar="NAME|HOST:PORT")
@click.argument("what", type=click.Choice(list(CLEANINGS)))
@click.option("--yes", is_flag=True, help="Do not ask.")
def clean(caller: Caller, broker: str, what: str, yes: bool) -> None:
    """Delete unneeded files of a broker. Note: consume-queues and commit-log take expired files only."""
    if not yes:
        click.confirm(f"Clean {what} of {broker}?", abort=True, err=True)
    caller.run(lambda admin: admin.brokers.clean(broker, CLEANINGS[what]))
    caller.show({"broker": broker, "cleaned": what}, f"{broker}: {what} cleaned")


@click.command(epilog=example("rocketq broker maintenance broker-0 --on"))
@calls_cluster
@click.argument("broker", metavar="NAME")
@click.option("--on/--off", "start", required=True, help="Take write permission, or give it back.")
def maintenance(caller: Caller, broker: str, start: bool) -> None:
    """Stop or resume sends to a broker. Consumers continue to read from it."""

    async def work(admin: AsyncAdmin) -> None:
        await admin.brokers.addr(broker)
        await admin.brokers.set_writable(broker, not start)

    caller.run(work)
    caller.show({"broker": broker, "writable": not start}, f"{broker} is {'not ' if start else ''}writable")
