"""`rocketq tail`: watch a topic."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example, to_json
from rocketq.cli.commands.message_views import message_json, message_line
from rocketq.cli.commands.times import moment
from rocketq.cli.numbers import FiniteRange
from rocketq.client.admin import AsyncAdmin
from rocketq.client.core.offsets import ResetTo
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscriptions import ALL
from rocketq.client.follow import Follower


@click.command(
    epilog=example("rocketq tail Orders", "rocketq tail Orders --from 15m --tag 'paid || sent' --no-follow --json")
)
@calls_cluster
@click.argument("topic")
@click.option(
    "--from",
    "start",
    default="latest",
    show_default=True,
    help="earliest, latest, or a moment: 15m, 2h, 2026-11-15T10:00, milliseconds.",
)
@click.option("--tag", "expression", default=ALL, show_default=True, help="Only these: 'a || b'.")
@click.option("--count", type=click.IntRange(1), help="Stop after this many messages.")
@click.option("--for", "seconds", type=FiniteRange(0), help="Stop after this many seconds.")
@click.option("--follow/--no-follow", default=True, help="Wait for messages to come, or end where the topic ends.")
def tail(
    caller: Caller,
    topic: str,
    start: str,
    expression: str,
    count: int | None,
    seconds: float | None,
    follow: bool,
) -> None:
    """Print messages of TOPIC as they arrive. One line each, until Ctrl-C. No offset is committed."""
    begin = parse_start(start)

    async def watch(admin: AsyncAdmin) -> None:
        follower = Follower(admin.session, topic, expression=expression)
        offsets = await follower.start_offsets(begin)
        messages = follower.follow(offsets) if follow else follower.read(offsets)
        try:
            async with asyncio.timeout(seconds):
                await _print(caller, messages, count)
        except TimeoutError:
            if seconds is None:
                raise

    with suppress(KeyboardInterrupt):  # how it is meant to end
        caller.run(watch)


async def _print(caller: Caller, messages: AsyncGenerator[StoredMessage, None], count: int | None) -> None:
    numbers = itertools.count(1)
    async with aclosing(messages) as found:
        async for message in found:
            click.echo(to_json(message_json(message)) if caller.as_json else message_line(message))
            if next(numbers) == count:
                return


def parse_start(text: str) -> ResetTo:
    """`earliest`, `latest` or a moment."""
    if text == "earliest":
        return ResetTo.earliest()
    if text == "latest":
        return ResetTo.latest()
    return ResetTo.at_time(moment(text))
