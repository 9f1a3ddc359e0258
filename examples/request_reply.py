"""Ask a service over a topic and wait for its answer."""

import asyncio

from rocketq.client import AsyncProducer, AsyncPushConsumer, Message


async def main() -> None:
    async with AsyncProducer("quote-desk") as client, AsyncProducer("quote-service") as service:

        async def answer(messages, context):
            for message in messages:
                await service.reply(message, b"1.0871")

        async with AsyncPushConsumer("quote-service", answer) as consumer:
            consumer.subscribe("Quotes")
            reply = await client.request(Message(topic="Quotes", body=b"EURUSD"), timeout_ms=30_000)
            print("EURUSD", reply.body.decode())


asyncio.run(main())
