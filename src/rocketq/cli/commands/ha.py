"""`rocketq ha`: replicas of a broker, as their control store knows them."""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rocketq.broker.config import BrokerConfig
from rocketq.broker.ha.fenced_replicas import control_store
from rocketq.cli.commands.broker import FAILED, USAGE
from rocketq.cli.commands.tables import table
from rocketq.cli.examples import example
from rocketq.cli.settings_file import read_settings
from rocketq.errors import ConfigError, RocketQError
from rocketq.replication import control
from rocketq.replication.control import ChangeRejectedError, ControlError, ControlStore, Group, GroupView

Result = TypeVar("Result")
WISH_MS = 30_000
_LOOK_S = 0.1


@click.group()
def ha() -> None:
    """Replicas of a broker: status, switch, remove."""


def asks_group(command: Callable[..., None]) -> Callable[..., None]:
    """The options that select the group and its control store."""

    @click.option("--control", help="The control store, etcd://HOST:2379,HOST:2379.  [default: haControlStore]")
    @click.option(
        "-c", "--config", "config_file", type=click.Path(path_type=Path, dir_okay=False), help="A broker.conf."
    )
    @click.option("--cluster", help="[default: DefaultCluster, or brokerClusterName of the file]")
    @click.option("--broker", "broker_name", help="The brokerName.  [default: brokerName of the file]")
    @functools.wraps(command)
    def whole(
        control: str | None, config_file: Path | None, cluster: str | None, broker_name: str | None, **given: Any
    ) -> None:
        try:
            settings = read_settings(config_file) if config_file is not None else {}
            told = {"haControlStore": control, "brokerClusterName": cluster, "brokerName": broker_name}
            settings |= {key: value for key, value in told.items() if value is not None}
            if not settings.get("haControlStore") or not settings.get("brokerName"):
                raise ConfigError("say --control and --broker, or -c with a broker.conf that has them")
            settings = {key: text for key, text in settings.items() if not key.startswith("brokerRole")}
            config = BrokerConfig.from_java(settings, ha_protocol="fenced")
            command(config, **given)
        except RocketQError as error:
            click.echo(f"rocketq ha: {error}", err=True)
            sys.exit(USAGE if isinstance(error, ConfigError) else FAILED)

    return whole


def _run(config: BrokerConfig, work: Callable[[ControlStore, Group], Awaitable[Result]]) -> Result:
    async def whole() -> Result:
        store = control_store(config)
        try:
            return await work(store, Group(config.cluster, config.name))
        finally:
            await store.close()

    return asyncio.run(whole())


@ha.command(epilog=example("rocketq ha status --control etcd://10.0.0.1:2379 --broker broker-a"))
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@asks_group
def status(config: BrokerConfig, as_json: bool) -> None:
    """Show roles, epochs and lag of replicas. Lag is shown in bytes and seconds, as told
    within the last five seconds."""
    view = _run(config, lambda store, group: store.read(group))
    if view.state is None:
        raise ControlError(f"{config.cluster}/{config.name} is not known to the control store")
    facts = describe(view)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    click.echo(f"epoch {facts['epoch']}, in-sync set version {facts['version']}, master {facts['master'] or 'none'}")
    titles = ["ID", "ROLE", "IN SYNC", "ALIVE", "EPOCH", "LOG END", "BEHIND", "SECONDS", "ADDRESS"]
    names = ("id", "role", "in_sync", "alive", "last_epoch", "log_end", "behind_bytes", "behind_seconds", "address")
    click.echo(table(titles, [tuple(_text(row[name]) for name in names) for row in facts["replicas"]]))


def describe(view: GroupView) -> dict[str, Any]:
    """A group in plain values."""
    assert view.state is not None
    state, master_id = view.state.value, view.master.value.broker_id if view.master else 0
    rows = []
    for number in sorted(view.replicas):
        report = view.alive[number].value if number in view.alive else None
        behind_bytes, behind_seconds = _behind(view, number)
        rows.append(
            {
                "id": number,
                "role": "master" if number == master_id else "slave",
                "in_sync": number in state.in_sync,
                "alive": report is not None,
                "last_epoch": report.last_epoch if report else None,
                "log_end": report.log_end if report else None,
                "behind_bytes": behind_bytes,
                "behind_seconds": behind_seconds,
                "address": view.replicas[number].value.addr,
            }
        )
    return {"epoch": state.epoch, "version": state.version, "master": master_id, "replicas": rows}


def _behind(view: GroupView, number: int) -> tuple[int | None, float | None]:
    """The master's view at one moment; without a master, what each replica reported about itself."""
    master = view.alive.get(view.master.value.broker_id) if view.master else None
    if view.master is not None and number == view.master.value.broker_id:
        return 0, 0.0
    for slave_id, end, behind_ms in master.value.slaves if master is not None else ():
        if slave_id == number and master is not None:
            return max(0, master.value.log_end - end), behind_ms / 1000
    longest = max((report.value.log_end for report in view.alive.values()), default=0)
    return (longest - view.alive[number].value.log_end, None) if number in view.alive else (None, None)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


@ha.command(epilog=example("rocketq ha switch 2 --control etcd://10.0.0.1:2379 --broker broker-a"))
@click.argument("replica", type=click.IntRange(min=1), required=False)
@click.option("--timeout", "timeout_s", type=click.IntRange(1, 600), default=20, show_default=True, help="Seconds.")
@asks_group
def switch(config: BrokerConfig, replica: int | None, timeout_s: int) -> None:
    """Make another in-sync replica the master. REPLICA is its id; the default is any. Nothing acknowledged is lost."""
    began = time.monotonic()
    chosen = _run(config, lambda store, group: _switch(store, group, replica, timeout_s))
    click.echo(f"replica {chosen} is master, after {time.monotonic() - began:.1f} s")


async def _switch(store: ControlStore, group: Group, replica: int | None, timeout_s: int) -> int:
    view = await store.read(group)
    if view.state is None or view.master is None:
        raise ChangeRejectedError("there is no master to switch from")
    others = sorted(view.state.value.in_sync - {view.master.value.broker_id})
    if replica is None and not others:
        raise ChangeRejectedError("no other replica is in sync")
    chosen = others[0] if replica is None else replica
    lease_id = await store.grant(WISH_MS)
    try:
        if await store.commit(group, control.ask_switch(view, chosen, lease_id)) is None:
            raise ChangeRejectedError("the group has changed meanwhile: try again")
        async with asyncio.timeout(timeout_s):
            while True:
                now = await store.read(group)
                if now.master is not None and now.master.value.epoch > view.epoch:
                    return now.master.value.broker_id
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise ControlError(f"no other master within {timeout_s} s; `rocketq ha status` shows who is there") from None
    finally:
        await store.revoke(lease_id)


@ha.command(epilog=example("rocketq ha remove 3 --control etcd://10.0.0.1:2379 --broker broker-a"))
@click.argument("replica", type=click.IntRange(min=1))
@asks_group
def remove(config: BrokerConfig, replica: int) -> None:
    """Remove a replica that does not return. REPLICA is its id. One that is in sync cannot be removed."""
    _run(config, lambda store, group: _remove(store, group, replica))
    click.echo(f"replica {replica} is forgotten; should it come back, it gets another id")


async def _remove(store: ControlStore, group: Group, replica: int) -> None:
    view = await store.read(group)
    if replica in view.alive:
        raise ChangeRejectedError(f"replica {replica} is alive: stop it first")
    if await store.commit(group, control.clean(view, replica)) is None:
        raise ChangeRejectedError("the group has changed meanwhile: try again")
