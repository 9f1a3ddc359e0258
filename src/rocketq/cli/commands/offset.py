"""`rocketq offset`: what groups have committed."""

from __future__ import annotations

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.commands.group_views import offsets_json, offsets_text
from rocketq.cli.commands.queues import parse_queue
from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.offsets import QueueOffset
from rocketq.client.core.routes import subscribe_queues
from rocketq.client.errors import NotFoundError


@click.group()
def offset() -> None:
    """Offsets of groups: get, set. An offset is that of the next message to consume."""


@offset.command(epilog=example("rocketq offset get billing Orders"))
@calls_cluster
@click.argument("group")
@click.argument("topic")
def get(caller: Caller, group: str, topic: str) -> None:
    """Show committed offsets of GROUP in TOPIC. ? means that nothing was committed for a queue."""
    found = caller.run(lambda admin: admin.offsets.get(group, topic))
    caller.show(offsets_json(group, topic, found), offsets_text(found))


@offset.command("set", epilog=example("rocketq offset set billing Orders --queue broker-0:3 1200"))
@calls_cluster
@click.argument("group")
@click.argument("topic")
@click.argument("value", metavar="OFFSET", type=click.IntRange(0))
@click.option("--queue", "queues", multiple=True, metavar="BROKER:ID", required=True, help="May be repeated.")
def set_offset(caller: Caller, group: str, topic: str, value: int, queues: tuple[str, ...]) -> None:
    """Commit OFFSET for a stopped GROUP. Running members would overwrite it with their own offsets.

    `rocketq group reset` also moves members that run.
    """
    wanted = {parse_queue(text, topic): value for text in queues}

    async def change(admin: AsyncAdmin) -> tuple[QueueOffset, ...]:
        known = subscribe_queues(topic, await admin.topics.route(topic))
        for queue in wanted:
            if queue not in known:
                raise NotFoundError("queue", f"{queue.broker_name}:{queue.queue_id} of {topic}")
        await admin.offsets.set(group, wanted)
        return await admin.offsets.get(group, topic)

    found = caller.run(change)
    caller.show(offsets_json(group, topic, found), offsets_text(found))
