"""Send many messages with few requests."""

import asyncio

from rocketq.client import AsyncProducer, Batching, Message, ProducerConfig


async def main() -> None:
    config = ProducerConfig(batching=Batching(linger_ms=5))
    async with AsyncProducer("batching-example", config=config) as producer:
        messages = [Message(topic="Readings", body=b"%d" % number, tag="sensor-1") for number in range(1_000)]
        results = await asyncio.gather(*(producer.send(message) for message in messages))
        print(f"{len(results)} messages are stored in {len({result.queue for result in results})} queues")


asyncio.run(main())
