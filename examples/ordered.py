"""Keep the steps of each order in their order, while different orders are processed at the same time."""

import asyncio

from rocketq.client import AsyncProducer, AsyncPushConsumer, ConsumeFromWhere, Message, PushConfig

STEPS = (b"created", b"paid", b"shipped")


async def main() -> None:
    seen: dict[str, list[bytes]] = {}
    done = asyncio.Event()

    async def record(messages, context):
        for message in messages:
            seen.setdefault(message.keys[0], []).append(message.body)
        if sum(map(len, seen.values())) == 6:
            done.set()

    async with AsyncProducer("orders") as producer:
        for step in STEPS:
            for order in ("order-1", "order-2"):
                await producer.send(Message(topic="OrderSteps", body=step, keys=(order,)), sharding_key=order)

    config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with AsyncPushConsumer("order-tracker", record, config=config, orderly=True) as consumer:
        consumer.subscribe("OrderSteps")
        await asyncio.wait_for(done.wait(), 60)
    for order, steps in sorted(seen.items()):
        print(order, *(step.decode() for step in steps))


asyncio.run(main())
