"""`rocketq message`: single messages, found and sent again."""

from __future__ import annotations

import sys

import click

from rocketq.cli.commands.calling import NOT_FOUND, Caller, calls_cluster, example
from rocketq.cli.commands.message_views import message_json, message_line, message_text, sent_json, sent_text
from rocketq.cli.commands.times import moment
from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.messages import ALWAYS_MS
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscriptions import ALL


@click.group()
def message() -> None:
    """Messages: get, query, resend."""


@message.command(
    epilog=example("rocketq message get 7F00000100002A9F0000000000000000", "rocketq message get ID -t Orders")
)
@calls_cluster
@click.argument("message_id", metavar="ID")
@click.option("-t", "--topic", help="Needed where ID is a unique key, as producers and consumers see it.")
def get(caller: Caller, message_id: str, topic: str | None) -> None:
    """Show the message with this ID."""
    found = caller.run(lambda admin: admin.messages.get(message_id, topic))
    caller.show(message_json(found), message_text(found))


@message.command(
    epilog=example("rocketq message query Orders --key order-17", "rocketq message query Orders --since 15m --tag paid")
)
@calls_cluster
@click.argument("topic")
@click.option("--key", help="One of the message's keys.")
@click.option("--unique-key", help="The id producers and consumers see.")
@click.option("--since", type=moment, metavar="MOMENT", help="Stored then or later: 15m, 2h, 2026-11-15T10:00, ...")
@click.option("--until", type=moment, metavar="MOMENT", help="Stored then or earlier.")
@click.option("--tag", "expression", default=ALL, show_default=True, help="With --since or --until: 'a || b'.")
@click.option(
    "--max",
    "count_max",
    type=click.IntRange(1, 10_000),
    default=64,
    show_default=True,
    help="Maximum number of messages.",
)
def query(
    caller: Caller,
    topic: str,
    key: str | None,
    unique_key: str | None,
    since: int | None,
    until: int | None,
    expression: str,
    count_max: int,
) -> None:
    """Find messages of TOPIC by key or time. Oldest first, one line each. Exit code 3 when there is none."""
    by_time = since is not None or until is not None
    if key is not None and unique_key is not None:
        raise click.UsageError("give --key or --unique-key")
    if key is None and unique_key is None and not by_time:
        raise click.UsageError("give --key, --unique-key, --since or --until")
    begin_ms, end_ms = since or 0, ALWAYS_MS if until is None else until

    async def find(admin: AsyncAdmin) -> tuple[StoredMessage, ...]:
        if unique_key is not None:
            return await admin.messages.by_unique_key(topic, unique_key)
        if key is not None:
            return await admin.messages.by_key(topic, key, begin_ms=begin_ms, end_ms=end_ms, count_max=count_max)
        return await admin.messages.by_time(topic, begin_ms, end_ms, expression=expression, count_max=count_max)

    found = caller.run(find)
    caller.show([message_json(one) for one in found], "\n".join(message_line(one) for one in found) or "none")
    if not found:
        sys.exit(NOT_FOUND)


@message.command(epilog=example("rocketq message resend ID -t '%DLQ%billing'"))
@calls_cluster
@click.argument("message_id", metavar="ID")
@click.option("-t", "--topic", help="Where it is; needed where ID is a unique key.")
@click.option("--to-topic", help="Where to.  [default: the topic it was meant for at first]")
def resend(caller: Caller, message_id: str, topic: str | None, to_topic: str | None) -> None:
    """Send a copy of a message. It gets a new id; a dead letter goes back to its original topic."""
    result = caller.run(lambda admin: admin.messages.resend(message_id, topic, to_topic=to_topic))
    caller.show(sent_json(result), sent_text(result))
