"""`rocketq timer`: messages that wait for their time."""

from __future__ import annotations

from collections.abc import Sequence

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.tables import table, time_text
from rocketq.client.admin.pending import WaitingTimer


@click.group()
def timer() -> None:
    """Messages with a timer: list, cancel."""


@timer.command("list", epilog=example("rocketq timer list", "rocketq timer list --topic Orders"))
@calls_cluster
@click.option("--topic", help="For this topic only.")
def list_waiting(caller: Caller, topic: str | None) -> None:
    """Show messages that are not due yet. The next one comes first, with the handle that recalls it."""
    found = caller.run(lambda admin: admin.timers.list(topic))
    caller.show([_json(one) for one in found], _text(found))


@timer.command(epilog=example("rocketq timer cancel HANDLE"))
@calls_cluster
@click.argument("handle")
def cancel(caller: Caller, handle: str) -> None:
    """Recall the message of HANDLE. It will not be delivered."""
    done = caller.run(lambda admin: admin.timers.cancel(handle))
    value = {"topic": done.topic, "message_id": done.unique_key, "broker": done.broker_name}
    caller.show(value, f"{done.unique_key} of {done.topic} will not be delivered")


def _json(one: WaitingTimer) -> dict[str, object]:
    return {
        "topic": one.topic,
        "broker": one.broker_name,
        "queue_id": one.queue_id,
        "due_ms": one.due_ms,
        "message_id": one.unique_key,
        "born_ms": one.born_ms,
        "body_bytes": one.body_bytes,
        "handle": one.handle,
    }


def _text(found: Sequence[WaitingTimer]) -> str:
    titles = ("DUE", "TOPIC", "QUEUE", "BYTES", "MESSAGE ID", "HANDLE")
    rows = (
        (
            time_text(one.due_ms),
            one.topic,
            f"{one.broker_name}:{one.queue_id}",
            one.body_bytes,
            one.unique_key,
            one.handle,
        )
        for one in found
    )
    return table(titles, rows) if found else "none"
