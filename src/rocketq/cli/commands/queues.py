"""Queues as operators type and read them: BROKER:ID."""

from __future__ import annotations

import click

from rocketq.protocol.bodies.queues import MessageQueue


def parse_queue(text: str, topic: str) -> MessageQueue:
    broker_name, colon, queue_id = text.rpartition(":")
    if not colon or not broker_name or not queue_id.isascii() or not queue_id.isdigit():
        raise click.BadParameter(f"{text!r} is not BROKER:ID, such as broker-0:3", param_hint="--queue")
    return MessageQueue(topic=topic, broker_name=broker_name, queue_id=int(queue_id))


def queue_json(queue: MessageQueue) -> dict[str, str | int]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue_id": queue.queue_id}
