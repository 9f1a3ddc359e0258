"""What tests of consumers share: listeners that remember, waits with a limit, messages sent."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence

from rocketq.client import (
    AsyncAdmin,
    AsyncProducer,
    ConsumeContext,
    ConsumeFromWhere,
    ConsumeResult,
    Message,
    MessageQueue,
    PushConfig,
    StoredMessage,
)

PATIENCE_S = 40.0
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
QUICK = PushConfig(from_where=FIRST, rebalance_interval_ms=500, persist_interval_ms=200, retry_ms=100)


class Remembers:
    """An asynchronous listener; what it got is in `messages`, and by queue in the order it came."""

    def __init__(self, say: Callable[[Sequence[StoredMessage], ConsumeContext], ConsumeResult | None] | None = None):
        self.messages: list[StoredMessage] = []
        self.by_queue: dict[MessageQueue, list[int]] = defaultdict(list)
        self.calls = 0
        self._say = say

    async def __call__(self, messages: Sequence[StoredMessage], context: ConsumeContext) -> ConsumeResult | None:
        self.calls += 1
        said = self._say(messages, context) if self._say is not None else None
        for message in messages:
            self.messages.append(message)
            self.by_queue[message.queue].append(message.queue_offset)
        return said

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    async def until(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        await until(lambda: len(set(self.bodies)) >= count, timeout_s, lambda: f"{len(set(self.bodies))} of {count}")


async def until(
    true: Callable[[], bool], timeout_s: float = PATIENCE_S, otherwise: Callable[[], object] = lambda: "it never was"
) -> None:
    """Waits for something to become true; tells what is when it does not."""
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    while not true():
        assert asyncio.get_running_loop().time() < deadline_s, otherwise()
        await asyncio.sleep(0.01)


async def fill(name_servers: str, topic: str, count: int, *, queues: int = 4, start: int = 0, **given: object) -> None:
    """A topic on all brokers with messages `<start>` to `<start + count - 1>` in it."""
    async with AsyncAdmin(name_servers) as admin:
        await admin.topics.create(topic, queues=queues)
    await send(name_servers, topic, range(start, start + count), **given)


async def send(name_servers: str, topic: str, numbers: Sequence[int], **given: object) -> None:
    async with AsyncProducer(f"P-{topic}"[:100], name_servers=name_servers) as producer:
        for number in numbers:
            await producer.send(Message(topic=topic, body=b"%d" % number, **given))  # type: ignore[arg-type]


def numbers(start: int, end: int) -> set[bytes]:
    return {b"%d" % number for number in range(start, end)}
