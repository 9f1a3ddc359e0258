"""`rocketq group`: consumer groups, how far they are, and where they start again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.group_views import changes_json, changes_text, status_json, status_text
from rocketq.cli.commands.queues import parse_queue
from rocketq.cli.commands.tables import table
from rocketq.cli.commands.times import moment
from rocketq.cli.commands.watching import watchable
from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.groups import GroupChanges
from rocketq.client.core.offsets import ResetTo
from rocketq.client.core.overview import GroupSummary
from rocketq.protocol.bodies.groups import GroupConfig
from rocketq.protocol.names import is_system_group


@click.group()
def group() -> None:
    """Manage consumer groups."""


@group.command("list", epilog=example("rocketq group list", "rocketq group list --watch 2"))
@calls_cluster
@watchable
@click.option("--all", "everything", is_flag=True, help="Also groups of the system.")
def list_groups(caller: Caller, everything: bool) -> None:
    """List groups with their lag and members. An unknown lag is shown as ?."""

    async def ask(admin: AsyncAdmin) -> tuple[dict[str, dict[str, GroupConfig]], dict[str, GroupSummary]]:
        configs = {
            name: one for name, one in (await admin.groups.list()).items() if everything or not is_system_group(name)
        }
        overview = await admin.overview.take(groups_asked=configs)
        return configs, {one.name: one for one in overview.groups}

    found, summaries = caller.run(ask)
    value, lines = [], []
    for name, configs in found.items():
        one = summaries.get(name) or GroupSummary(name=name, state="unknown")
        lag = 0 if one.state == "not-subscribed" else one.lag
        consumes, retries = _all_consume(configs), min(config.retry_max for config in configs.values())
        value.append(
            {
                "group": name,
                "brokers": sorted(configs),
                "consume_enabled": consumes,
                "retry_max": retries,
                "members": one.members,
                "lag": one.lag,
                "lag_known": one.lag_known,
                "state": one.state,
                "reason": one.reason,
                "topics": list(one.topics),
            }
        )
        lines.append((name, len(configs), "yes" if consumes else "no", retries, one.members, lag))
    caller.show(value, table(["GROUP", "BROKERS", "MAY CONSUME", "RETRIES", "MEMBERS", "LAG"], lines))


def _all_consume(configs: Mapping[str, GroupConfig]) -> bool:
    return all(config.consume_enable for config in configs.values())


@group.command(epilog=example("rocketq group status billing"))
@calls_cluster
@watchable
@click.argument("group")
def status(caller: Caller, group: str) -> None:
    """Show members and lag of GROUP. Subscriptions and lag are listed per queue. What is not known is shown as ?."""
    found = caller.run(lambda admin: admin.groups.status(group))
    caller.show(status_json(found), status_text(found))


@group.command("set", epilog=example("rocketq group set billing --retry-max 5", "rocketq group set billing --strict"))
@calls_cluster
@click.argument("group")
@click.option("--consume/--no-consume", "consume_enable", default=None, help="Whether it may consume.")
@click.option("--broadcast/--no-broadcast", "consume_broadcast_enable", default=None, help="Whether as broadcast.")
@click.option("--from-min/--no-from-min", "consume_from_min_enable", default=None, help="Whether from the beginning.")
@click.option("--notify/--no-notify", "notify_changes", default=None, help="Notify members when others join or leave.")
@click.option("--strict/--no-strict", default=None, help="Refuse members that want something else than the others.")
@click.option("--retry-max", type=click.IntRange(-1), help="Deliveries before a message is a dead letter.")
@click.option("--retry-queues", "retry_queue_count", type=click.IntRange(0), help="Queues of its retry topic.")
@click.option("--cluster", help="Only on the masters of this cluster.")
@click.option("--broker", metavar="NAME|HOST:PORT", help="Only on this broker.")
def set_group(
    caller: Caller, group: str, cluster: str | None, broker: str | None, strict: bool | None, **options: Any
) -> None:
    """Create or change GROUP on every broker. Only the given options change in an existing group."""
    changes = GroupChanges(**{name: value for name, value in options.items() if value is not None})  # type: ignore[typeddict-item]
    found = caller.run(lambda admin: admin.groups.set(group, cluster=cluster, broker=broker, strict=strict, **changes))
    caller.show({"group": group, "brokers": found}, f"{group} is set on {', '.join(found)}")


@group.command(epilog=example("rocketq group delete billing --yes"))
@calls_cluster
@click.argument("group")
@click.option("--cluster", help="Only from this cluster.")
@click.option("--keep-offsets", is_flag=True, help="Keep its offsets for a later return.")
@click.option("--dead-letters", is_flag=True, help="Delete its dead letters too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(caller: Caller, group: str, cluster: str | None, keep_offsets: bool, dead_letters: bool, yes: bool) -> None:
    """Delete GROUP with its offsets. Its retry topic is deleted too, on every broker."""
    if not yes:
        click.confirm(f"Delete group {group}?", abort=True, err=True)
    brokers = caller.run(
        lambda admin: admin.groups.delete(group, cluster=cluster, keep_offsets=keep_offsets, dead_letters=dead_letters)
    )
    caller.show({"group": group, "brokers": list(brokers)}, f"{group} is deleted from {', '.join(brokers)}")


@group.command(
    epilog=example(
        "rocketq group reset billing Orders --to-time 2h --preview",
        "rocketq group reset billing Orders --to-offset 1200 --queue broker-0:3",
    )
)
@calls_cluster
@click.argument("group")
@click.argument("topic")
@click.option("--to-time", type=moment, metavar="MOMENT", help="15m, 2h, 1d (ago), 2026-11-15T10:00, now.")
@click.option("--to-offset", type=click.IntRange(0), help="The next offset to consume.")
@click.option("--to-earliest", is_flag=True, help="Everything that is still there.")
@click.option("--to-latest", is_flag=True, help="Only what comes from now on.")
@click.option("--queue", metavar="BROKER:ID", help="One queue.  [default: all]")
@click.option("--preview", is_flag=True, help="Only show what would change.")
def reset(
    caller: Caller,
    group: str,
    topic: str,
    to_time: int | None,
    to_offset: int | None,
    to_earliest: bool,
    to_latest: bool,
    queue: str | None,
    preview: bool,
) -> None:
    """Move GROUP to another position in TOPIC.

    The group may be stopped. Running members are notified and drop their buffered messages.
    """
    to = _target(to_time, to_offset, to_earliest, to_latest)
    one = None if queue is None else parse_queue(queue, topic)
    place = None if one is None else (one.broker_name, one.queue_id)
    changes = caller.run(lambda admin: admin.offsets.reset(group, topic, to, queue=place, preview=preview))
    caller.show(changes_json(group, topic, changes, preview), changes_text(changes, preview))


def _target(to_time: int | None, to_offset: int | None, to_earliest: bool, to_latest: bool) -> ResetTo:
    given = [
        *([ResetTo.at_time(to_time)] if to_time is not None else []),
        *([ResetTo.at_offset(to_offset)] if to_offset is not None else []),
        *([ResetTo.earliest()] if to_earliest else []),
        *([ResetTo.latest()] if to_latest else []),
    ]
    if len(given) != 1:
        raise click.UsageError("give one of --to-time, --to-offset, --to-earliest, --to-latest")
    return given[0]
