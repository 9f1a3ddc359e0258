"""`rocketq trace`: the life of one message."""

from __future__ import annotations

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.tables import NONE, UNKNOWN, pairs, table, time_text
from rocketq.client.admin.traces import TRACE_TOPIC, MessageTrace


@click.command(epilog=example("rocketq trace 7F000001ACDC18B4AAC26A0B5B8E0000 -t Orders"))
@calls_cluster
@click.argument("message_id", metavar="ID")
@click.option("-t", "--topic", help="Where the message is; adds what the store knows of it.")
@click.option("--trace-topic", default=TRACE_TOPIC, show_default=True, help="Where clients send traces.")
def trace(caller: Caller, message_id: str, topic: str | None, trace_topic: str) -> None:
    """Show the history of a message. When it was sent, stored and delivered, to whom and with which result."""
    found = caller.run(lambda admin: admin.traces.get(message_id, topic=topic, trace_topic=trace_topic))
    caller.show(found, _text(found))


def _text(found: MessageTrace) -> str:
    head = {
        "message id": found.message_id,
        "topic": found.topic or UNKNOWN,
        "keys": " ".join(found.keys) or NONE,
        "trace": found.state.value + (f": {found.reason}" if found.reason else ""),
    }
    rows = [
        (
            time_text(one.start_ms),
            one.kind + (f" #{one.attempt}" if one.attempt else ""),
            NONE if one.cost_ms is None else f"{one.cost_ms} ms",
            UNKNOWN if one.ok is None else "ok" if one.ok else "FAILED",
            one.group or NONE,
            one.client or NONE,
            one.place or one.detail or NONE,
        )
        for one in found.events
    ]
    events = table(["TIME", "EVENT", "TOOK", "RESULT", "GROUP", "CLIENT", "WHERE"], rows) if rows else "no events"
    return f"{pairs(head)}\n\n{events}"
