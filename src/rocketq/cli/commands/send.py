"""`rocketq send`: put messages into a topic."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

import click

from rocketq.cli.commands.calling import NOT_FOUND, Caller, calls_cluster, example, to_json
from rocketq.cli.commands.message_views import sent_json, sent_text
from rocketq.cli.commands.queues import parse_queue
from rocketq.client.admin import AsyncAdmin
from rocketq.client.core.messages import Message
from rocketq.client.errors import NoQueueError
from rocketq.client.send import Sender
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.names import topic_fault


@click.command(
    epilog=example(
        "rocketq send Orders 'paid 17' --tag paid --key order-17",
        "cat events.jsonl | rocketq send Events --lines",
    )
)
@calls_cluster
@click.argument("topic")
@click.argument("body", required=False)
@click.option("--lines", is_flag=True, help="Send every line of standard input as a message.")
@click.option("--tag", help="What consumers subscribe to within the topic.")
@click.option("--key", "keys", multiple=True, help="Finds the message again; may be repeated.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--queue", metavar="BROKER:ID", help="One queue.  [default: queues in turn]")
@click.option("--group", default="ROCKETQ_CLI", show_default=True, help="The producer group.")
def send(
    caller: Caller,
    topic: str,
    body: str | None,
    lines: bool,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    queue: str | None,
    group: str,
) -> None:
    """Send BODY, or standard input, to TOPIC. Prints where each message went."""
    if lines and body is not None:
        raise click.UsageError("--lines reads standard input; give no BODY with it")
    if (fault := topic_fault(topic)) is not None:
        caller.fail(ConfigError(fault))
    named = _properties(properties)
    target = None if queue is None else parse_queue(queue, topic)
    bodies = _lines() if lines else iter([os.fsencode(body) if body is not None else sys.stdin.buffer.read()])
    messages = (Message(topic=topic, body=each, tag=tag, keys=keys, properties=named) for each in bodies)
    caller.run(lambda admin: _send(caller, admin, messages, group, target))


async def _send(
    caller: Caller, admin: AsyncAdmin, messages: Iterable[Message], group: str, queue: MessageQueue | None
) -> None:
    sender = Sender(admin.session, group)
    for message in messages:
        try:
            result = await sender.send(message, queue, timeout_ms=caller.timeout_ms)
        except NoQueueError as error:  # the queue that was asked for, or any
            caller.fail(error, None if queue is None else NOT_FOUND)
        click.echo(to_json(sent_json(result)) if caller.as_json else sent_text(result))


def _lines() -> Iterator[bytes]:
    """One at a time, so that an endless pipe works."""
    for line in sys.stdin.buffer:
        if stripped := line.rstrip(b"\r\n"):
            yield stripped


def _properties(texts: Iterable[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
        found[name] = value
    return found
