"""A web application that produces and consumes: uvicorn examples.fastapi_app:app"""

from collections import deque
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request

from rocketq import RocketQError
from rocketq.client import AsyncProducer, AsyncPushConsumer, ConsumeFromWhere, Message, PushConfig

received: deque[str] = deque(maxlen=100)


async def remember(messages, context):
    received.extend(message.body.decode() for message in messages)


@asynccontextmanager
async def lifespan(app: FastAPI):
    config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    consumer = AsyncPushConsumer("web", remember, config=config)
    consumer.subscribe("WebOrders")
    async with AsyncProducer("web") as app.state.producer, consumer:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place(request: Request):
    try:
        result = await app.state.producer.send(Message(topic="WebOrders", body=await request.body()), timeout_ms=2_000)
    except RocketQError as error:
        raise HTTPException(503, str(error)) from error
    return {"message_id": result.message_id}


@app.get("/orders")
async def latest():
    return list(received)
