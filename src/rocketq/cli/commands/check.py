"""`rocketq check`: plugins for Nagios, Icinga, Sensu and similar monitors."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.client.admin import AsyncAdmin
from rocketq.client.errors import NotFoundError
from rocketq.client.fan_out import outcomes
from rocketq.errors import RocketQError


class State(IntEnum):
    """Exit codes of monitoring plugins."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """A state, a line for people, and performance data as `name=value;warning;critical`."""

    state: State
    text: str
    data: str = ""


@click.group()
def check() -> None:
    """Check a server or group for a monitor.

    Exit codes: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    """


def _report(caller: Caller, work: Callable[[AsyncAdmin], Awaitable[Verdict]], *, failed: State) -> None:
    try:
        verdict = caller.attempt(work)
    except NotFoundError as error:
        verdict = Verdict(State.UNKNOWN, str(error))
    except RocketQError as error:
        verdict = Verdict(failed, str(error))
    line = f"{verdict.state.name} - {verdict.text}" + (f" | {verdict.data}" if verdict.data else "")
    caller.show({"state": verdict.state.name, "message": verdict.text}, line)
    sys.exit(int(verdict.state))


def judge(value: float, warning: float, critical: float) -> State:
    """A value above a limit has that limit's state."""
    if value > critical:
        return State.CRITICAL
    return State.WARNING if value > warning else State.OK


@check.command(epilog=example("rocketq check broker broker-0 --disk-warning 75 --disk-critical 85"))
@click.argument("broker")
@click.option("--disk-warning", type=float, default=75, show_default=True, help="Used disk in percent for WARNING.")
@click.option("--disk-critical", type=float, default=85, show_default=True, help="Used disk in percent for CRITICAL.")
@calls_cluster
def broker(caller: Caller, broker: str, disk_warning: float, disk_critical: float) -> None:
    """Check a broker and its disk.

    CRITICAL when BROKER does not answer.
    """

    async def work(admin: AsyncAdmin) -> Verdict:
        status = await admin.brokers.status(broker)
        used = max(float(status.get(name, "0")) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")) * 100
        state = judge(used, disk_warning, disk_critical)
        text = f"broker {broker} runs, disk {used:.0f} % used"
        return Verdict(state, text, f"disk={used:.0f}%;{disk_warning:g};{disk_critical:g}")

    _report(caller, work, failed=State.CRITICAL)


@check.command(epilog=example("rocketq check group billing --warning 1000 --critical 10000"))
@click.argument("group")
@click.option("--warning", type=int, default=1_000, show_default=True, help="Lag for WARNING.")
@click.option("--critical", type=int, default=10_000, show_default=True, help="Lag for CRITICAL.")
@click.option("--offline-ok", is_flag=True, help="Accept a group with lag and without members.")
@calls_cluster
def group(caller: Caller, group: str, warning: int, critical: int, *, offline_ok: bool) -> None:
    """Check the lag of GROUP.

    A lag that is not known is UNKNOWN, with the reason. A group with lag but without members is CRITICAL.
    """

    async def work(admin: AsyncAdmin) -> Verdict:
        status = await admin.groups.status(group)
        data = f"lag={status.lag_known};{warning};{critical} members={len(status.members)}"
        unknown = [queue for queue in status.queues if queue.unknown is not None]
        if status.lag_known > critical:
            return Verdict(State.CRITICAL, f"group {group} has lag {status.lag_known}, more than {critical}", data)
        if not status.online and status.lag_known and not offline_ok:
            return Verdict(State.CRITICAL, f"group {group} is offline with lag {status.lag_known}", data)
        if status.unreachable:
            return Verdict(State.UNKNOWN, f"brokers not reachable: {', '.join(status.unreachable)}", data)
        if not status.queues:
            return Verdict(
                State.UNKNOWN, f"group {group} has no topic: no member is online and no offset committed", data
            )
        if unknown:
            reasons = sorted({queue.unknown.value for queue in unknown if queue.unknown is not None})
            text = f"lag of {len(unknown)} queues of group {group} is unknown: {', '.join(reasons)}"
            return Verdict(State.UNKNOWN, text, data)
        return Verdict(judge(status.lag_known, warning, critical), f"group {group} has lag {status.lag_known}", data)

    _report(caller, work, failed=State.UNKNOWN)


@check.command(epilog=example("rocketq check cluster --brokers 3"))
@click.option(
    "--brokers", type=click.IntRange(1), default=1, show_default=True, help="Brokers that must be registered."
)
@calls_cluster
def cluster(caller: Caller, brokers: int) -> None:
    """Check that all brokers answer.

    CRITICAL also when fewer brokers than expected are registered.
    """

    async def work(admin: AsyncAdmin) -> Verdict:
        table = (await admin.brokers.cluster()).brokers
        addrs = [addr for one in table.values() for addr in one.addrs.values()]
        found = await outcomes({addr: admin.brokers.status(addr) for addr in addrs})
        data = f"brokers={len(table)} addresses={len(addrs)} failed={len(found.failures)}"
        if len(table) < brokers:
            return Verdict(State.CRITICAL, f"{len(table)} of {brokers} brokers are registered", data)
        if found.failures:
            text = "; ".join(f"{addr}: {error}" for addr, error in found.failures.items())
            return Verdict(State.CRITICAL, f"brokers do not answer: {text}", data)
        return Verdict(State.OK, f"{len(table)} brokers answer", data)

    _report(caller, work, failed=State.CRITICAL)
