"""`rocketq transaction`: what producers have not decided on."""

from __future__ import annotations

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.tables import table, time_text
from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.pending import OpenHalf
from rocketq.client.errors import NotFoundError
from rocketq.protocol.flags import TransactionState


@click.group()
def transaction() -> None:
    """Transactions: list, check, decide."""


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


@transaction.command(epilog=example("rocketq transaction check ID"))
@calls_cluster
@click.argument("message_id", metavar="ID")
def check(caller: Caller, message_id: str) -> None:
    """Check a half message again. The broker asks its producers. ID is its unique key or offset id."""

    async def work(admin: AsyncAdmin) -> OpenHalf:
        half = await _half(admin, message_id)
        await admin.transactions.check(half)
        return half

    half = caller.run(work)
    caller.show(_json(half), f"{half.unique_key}: producers of {half.group} are asked again")


@transaction.command(epilog=example("rocketq transaction decide ID --commit --yes"))
@calls_cluster
@click.argument("message_id", metavar="ID")
@click.option("--commit/--rollback", required=True, help="Deliver the message, or drop it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def decide(caller: Caller, message_id: str, commit: bool, yes: bool) -> None:
    """Commit or roll back a half message. Replaces the producer's decision. This cannot be undone."""
    word = "commit" if commit else "roll back"
    if not yes:
        click.confirm(f"{word} {message_id}?", abort=True, err=True)
    state = TransactionState.COMMIT if commit else TransactionState.ROLLBACK

    async def work(admin: AsyncAdmin) -> OpenHalf:
        half = await _half(admin, message_id)
        await admin.transactions.decide(half, state)
        return half

    half = caller.run(work)
    caller.show({**_json(half), "state": state.name}, f"{half.unique_key}: {state.name.lower()}")


async def _half(admin: AsyncAdmin, message_id: str) -> OpenHalf:
    for half in await admin.transactions.list():
        if message_id in (half.unique_key, half.offset_message_id):
            return half
    raise NotFoundError("half message", message_id, "it was decided, or never sent")
