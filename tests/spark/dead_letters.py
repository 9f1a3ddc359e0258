"""Real dead letters: a consumer that gives up at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rocketq.client import ConsumeContext, ConsumeFromWhere, ConsumeResult, Message, PushConfig, PushConsumer
from rocketq.client import StoredMessage as Stored
from rocketq.spark.pipelines import lag
from tests.spark.filling import Filler


def consume_all(
    filler: Filler, group: str, topic: str, count: int, *, dies: Sequence[str] = (), trace: bool = False
) -> None:
    """Let a group consume so many messages of a topic; those with one of the tags in `dies` become dead letters."""
    seen: set[str] = set()
    done = threading.Event()

    def listener(messages: list[Stored], context: ConsumeContext) -> ConsumeResult | None:
        context.delay_level = -1
        seen.update(message.message_id for message in messages)
        if len(seen) >= count:
            done.set()
        return ConsumeResult.LATER if messages[0].tag in dies else None

    config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, trace=trace)
    with PushConsumer(group, listener, name_servers=filler.name_servers, config=config) as consumer:
        consumer.subscribe(topic)
        assert done.wait(60), f"{len(seen)} of {count} came"


def dead(filler: Filler, group: str, topic: str, messages: Sequence[Message], *, dies: Sequence[str]) -> None:
    filler.send(messages)
    consume_all(filler, group, topic, len(messages), dies=dies)


def lag_of(filler: Filler, group: str, topic: str) -> int:
    rows = lag.ask(filler.name_servers, [group])
    return sum(row.lag or 0 for row in rows if row.queue.topic == topic)
