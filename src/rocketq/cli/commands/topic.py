"""`rocketq topic`: create, list, show and delete topics."""

from __future__ import annotations

from typing import Any

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.tables import NONE, table, time_text
from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.topics import QUEUES, TopicKind
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.bodies.topics import TopicStats
from rocketq.protocol.flags import Perm

_PERMS = {"rw": Perm.READ | Perm.WRITE, "r": Perm.READ, "w": Perm.WRITE}


@click.group()
def topic() -> None:
    """Topics: create, list, show, stats, delete."""


@topic.command(epilog=example("rocketq topic create Orders --queues 8"))
@calls_cluster
@click.argument("topic")
@click.option("--queues", type=click.IntRange(1, 65535), default=QUEUES, show_default=True, help="On each broker.")
@click.option("--read-queues", type=click.IntRange(0, 65535), help="Other than --queues.")
@click.option("--write-queues", type=click.IntRange(0, 65535), help="Other than --queues.")
@click.option(
    "--perm", type=click.Choice(list(_PERMS)), default="rw", show_default=True, help="Permission for clients."
)
@click.option("--order", is_flag=True, help="Keep its queues fixed: messages of one key stay in one queue.")
@click.option("--attribute", "attributes", multiple=True, metavar="NAME=VALUE", help="Of 5.x; may be repeated.")
@click.option("--cluster", help="Only on the masters of this cluster.")
@click.option("--broker", metavar="NAME|HOST:PORT", help="Only on this broker.")
def create(caller: Caller, perm: str, attributes: tuple[str, ...], **given: Any) -> None:
    """Create or change TOPIC on every broker."""
    if bad := [text for text in attributes if "=" not in text]:
        raise click.BadParameter(f"{bad[0]!r} is not NAME=VALUE", param_hint="--attribute")
    name = given.pop("topic")
    pairs = dict(text.split("=", 1) for text in attributes)
    made = caller.run(
        lambda admin: admin.topics.create(name, perm=int(_PERMS[perm]), attributes=pairs or None, **given)
    )
    note = "" if made.routed else " (no NameServer knows it yet)"
    caller.show(made, f"{made.topic} is on {', '.join(made.brokers)}{note}")


@topic.command("list", epilog=example("rocketq topic list --all --json"))
@calls_cluster
@click.option("--all", "everything", is_flag=True, help="Also retry, dead-letter and system topics.")
@click.option("--cluster", help="Those of this cluster.")
def list_topics(caller: Caller, everything: bool, cluster: str | None) -> None:
    """List topics."""
    found = caller.run(lambda admin: admin.topics.list(cluster=cluster))
    shown = {name: kind for name, kind in found.items() if everything or kind is TopicKind.NORMAL}
    value = [{"topic": name, "kind": kind.value} for name, kind in shown.items()]
    rows = table(["TOPIC", "KIND"], [(name, kind.value) for name, kind in shown.items()])
    caller.show(value, rows if everything else "\n".join(shown))


@topic.command(epilog=example("rocketq topic show Orders"))
@calls_cluster
@click.argument("topic")
def show(caller: Caller, topic: str) -> None:
    """Show brokers, queues and groups of TOPIC."""

    async def ask(admin: AsyncAdmin) -> tuple[TopicRoute, tuple[str, ...]]:
        return await admin.topics.route(topic), await admin.topics.consumers(topic)

    route, groups = caller.run(ask)
    rows = _route_rows(route)
    value = {"topic": topic, "order": route.order_config, "brokers": rows, "groups": list(groups)}
    text = table(
        ["BROKER", "READ QUEUES", "WRITE QUEUES", "PERM", "ADDRESSES"],
        [
            (row["broker"], row["read_queues"], row["write_queues"], row["perm"], _addrs(row["addresses"]))
            for row in rows
        ],
    )
    caller.show(value, f"{text}\n\nconsumed by: {', '.join(groups) or NONE}")


@topic.command(epilog=example("rocketq topic stats Orders --json"))
@calls_cluster
@click.argument("topic")
def stats(caller: Caller, topic: str) -> None:
    """Show offsets of each queue of TOPIC. The first and next offset, and the time of the last message."""
    found = caller.run(lambda admin: admin.topics.stats(topic))
    rows = _stats_rows(found)
    total = sum(row["messages"] for row in rows)
    text = table(
        ["BROKER", "QUEUE", "MIN", "MAX", "MESSAGES", "LAST"],
        [
            (row["broker"], row["queue_id"], row["min"], row["max"], row["messages"], time_text(row["last_ms"]))
            for row in rows
        ],
    )
    caller.show({"topic": topic, "messages": total, "queues": rows}, f"{text}\n\n{total} messages")


@topic.command(epilog=example("rocketq topic delete Orders --yes"))
@calls_cluster
@click.argument("topic")
@click.option("--cluster", help="Only from this cluster.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(caller: Caller, topic: str, cluster: str | None, yes: bool) -> None:
    """Delete TOPIC and its messages. It is removed from its brokers and from every NameServer."""
    if not yes:
        click.confirm(f"Delete {topic} and its messages?", abort=True, err=True)
    brokers = caller.run(lambda admin: admin.topics.delete(topic, cluster=cluster))
    caller.show({"topic": topic, "brokers": brokers}, f"{topic} is deleted from {', '.join(brokers) or NONE}")


def _route_rows(route: TopicRoute) -> list[dict[str, Any]]:
    addrs = {broker.broker_name: broker.addrs for broker in route.brokers}
    return [
        {
            "broker": data.broker_name,
            "read_queues": data.read_queue_count,
            "write_queues": data.write_queue_count,
            "perm": Perm(data.perm).text,
            "addresses": {str(broker_id): addr for broker_id, addr in addrs.get(data.broker_name, {}).items()},
        }
        for data in route.queues
    ]


def _stats_rows(stats: TopicStats) -> list[dict[str, Any]]:
    return [
        {
            "broker": queue.broker_name,
            "queue_id": queue.queue_id,
            "min": found.min_offset,
            "max": found.max_offset,
            "messages": found.max_offset - found.min_offset,
            "last_ms": found.updated_ms or None,
        }
        for queue, found in stats.queues.items()
    ]


def _addrs(addrs: dict[str, str]) -> str:
    return ", ".join(f"{addr} (id {broker_id})" for broker_id, addr in addrs.items())
