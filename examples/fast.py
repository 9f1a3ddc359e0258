"""Many messages with little CPU: callbacks, one call for many bodies, and batches of received messages."""

import rocketq
from rocketq import AsyncProducer, AsyncPullConsumer, ConsumeFromWhere, Message, PullConfig
from rocketq.client import SendResult, TooManySendsError

COUNT = 20_000


async def main() -> None:
    stored = 0

    def on_done(result: SendResult | None, error: BaseException | None) -> None:
        nonlocal stored
        stored += error is None

    async with AsyncProducer("fast-example") as producer:
        for number in range(COUNT):
            message = Message(topic="FastExample", body=b"%d" % number)
            try:
                producer.send_nowait(message, on_done)
            except TooManySendsError:
                await producer.wait_for_room()
                producer.send_nowait(message, on_done)
        await producer.flush()
        result = await producer.send_many("FastExample", [b"%d" % number for number in range(COUNT)])
        print(stored, "and", len(result), "stored")

    config = PullConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with AsyncPullConsumer("fast-example-reader", config=config) as consumer:
        consumer.subscribe("FastExample")
        seen = 0
        async for batch in consumer.batches(max_count=500):
            seen += len(batch.bodies())
            if seen >= 2 * COUNT:
                break
        print(seen, "read")


rocketq.run(main())
