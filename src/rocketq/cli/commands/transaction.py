"""`rocketq transaction`: what producers have not decided on."""

from __future__ import annotations

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.tables import table, time_text
from rocketq.client.admin.pending import OpenHalf


@click.group()
def transaction() -> None:
    """Transactions: list."""


@transaction.command("list", epilog=example("rocketq transaction list", "rocketq transaction list --group payments"))
@calls_cluster
@click.option("--group", help="Of this producer group only.")
@click.option("--topic", help="For this topic only.")
def list_open(caller: Caller, group: str | None, topic: str | None) -> None:
    """Show undecided half messages. They are neither committed nor rolled back; the number of checks is listed."""
    found = [
        half
        for half in caller.run(lambda admin: admin.transactions.list())
        if group in (None, half.group) and topic in (None, half.topic)
    ]
    caller.show([_json(half) for half in found], _text(found))


def _json(half: OpenHalf) -> dict[str, object]:
    return {
        "broker": half.broker_name,
        "topic": half.topic,
        "queue_id": half.queue_id,
        "group": half.group,
        "message_id": half.unique_key,
        "offset_message_id": half.offset_message_id,
        "half_offset": half.queue_offset,
        "born_ms": half.born_ms,
        "checks": half.checks,
        "body_bytes": half.body_bytes,
    }


def _text(found: list[OpenHalf]) -> str:
    titles = ("TOPIC", "QUEUE", "GROUP", "BORN", "CHECKS", "BYTES", "MESSAGE ID")
    rows = (
        (
            half.topic,
            f"{half.broker_name}:{half.queue_id}",
            half.group,
            time_text(half.born_ms),
            half.checks,
            half.body_bytes,
            half.unique_key,
        )
        for half in found
    )
    return table(titles, rows) if found else "none"
