"""Deliver a message later, and take another one back before its time."""

import asyncio
import time

from rocketq.client import AsyncProducer, AsyncPushConsumer, ConsumeFromWhere, Message, PushConfig


async def main() -> None:
    arrived = asyncio.Event()

    async def remind(messages, context):
        waited_s = time.time() - messages[0].born_ms / 1000
        print(f"{messages[0].body.decode()} after at least 2 s: {waited_s >= 2}")
        arrived.set()

    config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with AsyncProducer("reminders") as producer:
        await producer.send(Message(topic="Reminders", body=b"reminder", delay_ms=2_000))
        result = await producer.send(Message(topic="Reminders", body=b"never delivered", delay_ms=3_600_000))
        print("recalled", await producer.recall(result.recall_handle) == result.message_id)
        async with AsyncPushConsumer("reminder-service", remind, config=config) as consumer:
            consumer.subscribe("Reminders")
            await asyncio.wait_for(arrived.wait(), 60)


asyncio.run(main())
