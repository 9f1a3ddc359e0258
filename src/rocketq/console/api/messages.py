"""Messages: search as a stream, one message, the live tail, traces."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response, StreamingResponse

from rocketq.client.admin.traces import TRACE_TOPIC, MessageTrace
from rocketq.client.core.search import Direction, SearchProgress, SearchQuery
from rocketq.client.fan_out import outcomes
from rocketq.client.fetcher import Puller
from rocketq.console.context import Call
from rocketq.console.json_text import to_json
from rocketq.console.problems import ProblemError, problem_of
from rocketq.console.views import Mask, MessageDetail, MessageRow, message_detail, message_row
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import MessageQueue

router = APIRouter(tags=["messages"])
Asked = Annotated[Call, Depends(Call)]
JSON_LINES: Final = "application/x-ndjson"
TAIL_PER_S: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLine:
    """A line of the answer to a search has one of these."""

    message: MessageRow | None = None
    progress: SearchProgress | None = None
    problem: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """Whether a group had the message: `consumed`, `not-yet`, `filtered` or `unknown`."""

    group: str
    state: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageAnswer:
    message: MessageDetail
    consumed: tuple[Consumption, ...] = ()
    min_offset: int | None = None
    max_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAnswer:
    traces: tuple[MessageTrace, ...]
    trace_topic: str = TRACE_TOPIC
    problems: tuple[str, ...] = field(default=())


def _query(
    topic: str,
    direction: Direction,
    since_ms: int | None,
    until_ms: int | None,
    tag: str,
    key: str,
    text: str,
    json_path: str,
    property_: list[str],
    queue: list[str],
    offset: int | None,
    cursor: str | None,
) -> SearchQuery:
    bad = [each for each in property_ if "=" not in each]
    if bad:
        raise ProblemError(422, "invalid", f"property={bad[0]} is not NAME=VALUE")
    return SearchQuery(
        topic=topic,
        direction=direction,
        since_ms=since_ms,
        until_ms=until_ms,
        tag=tag or "*",
        key=key or None,
        text=text or None,
        json_path=json_path or None,
        properties=dict(each.split("=", 1) for each in property_),
        queues=tuple(queue),
        from_offset=offset,
        cursor=cursor,
    )


def search_query(
    topic: str,
    direction: Direction = Direction.NEWEST,
    since_ms: int | None = None,
    until_ms: int | None = None,
    tag: str = "",
    key: str = "",
    text: Annotated[str, Query(description="text in the body")] = "",
    json_path: Annotated[str, Query(alias="json", description="such as $.order.total > 100")] = "",
    property_: Annotated[list[str], Query(alias="property", description="NAME=VALUE")] = [],  # noqa: B006
    queue: Annotated[list[str], Query(description="BROKER:ID")] = [],  # noqa: B006
    offset: int | None = None,
    cursor: str | None = None,
) -> SearchQuery:
    """What is searched for, from the parameters of a request."""
    return _query(topic, direction, since_ms, until_ms, tag, key, text, json_path, property_, queue, offset, cursor)


@router.get("/clusters/{cluster}/messages:search", response_model=SearchLine)
async def search(
    call: Asked,
    query: Annotated[SearchQuery, Depends(search_query)],
    n: Annotated[int, Query(ge=1, le=10_000_000, description="stop after this many found")] = 200,
) -> Response:
    """Stream JSON lines: messages as they are found, and the progress. All messages in the range are read."""
    call.require_topic(query.topic)
    mask = Mask(call.console.config.masks, call.role)

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for step in call.admin.search.run(query, found_max=n):
                rows = (to_json({"message": message_row(one, mask)}) + b"\n" for one in step.messages)
                yield b"".join(rows) + to_json({"progress": step.progress}) + b"\n"
        except RocketQError as error:
            problem = problem_of(error)
            yield to_json({"problem": {"code": problem.code, "detail": problem.detail}}) + b"\n"

    return StreamingResponse(lines(), media_type=JSON_LINES)


@router.get("/clusters/{cluster}/messages:tail", response_model=SearchLine)
async def tail(
    call: Asked,
    query: Annotated[SearchQuery, Depends(search_query)],
    from_: Annotated[list[str], Query(alias="from", description="BROKER:ID@OFFSET to go on from")] = [],  # noqa: B006
) -> Response:
    """Stream JSON lines: messages as they are stored, at most 200 per second; a `rate` line has the real rate."""
    call.require_topic(query.topic)
    mask = Mask(call.console.config.masks, call.role)
    offsets = {place.rpartition("@")[0]: int(place.rpartition("@")[2]) for place in from_ if "@" in place}

    async def lines() -> AsyncIterator[bytes]:
        second, seen, shown = 0.0, 0, 0
        try:
            async for messages in call.admin.search.tail(query, hold_ms=2_000, offsets=offsets):
                out = []
                now = time.monotonic()
                if now - second >= 1:
                    if seen > shown:
                        out.append(to_json({"rate": {"seen": seen, "shown": shown}}) + b"\n")
                    second, seen, shown = now, 0, 0
                for one in messages:
                    seen += 1
                    if shown < TAIL_PER_S:
                        shown += 1
                        out.append(to_json({"message": message_row(one, mask)}) + b"\n")
                if out:
                    yield b"".join(out)
        except RocketQError as error:
            yield to_json({"problem": {"code": problem_of(error).code, "detail": str(error)}}) + b"\n"

    return StreamingResponse(lines(), media_type=JSON_LINES)


@router.get("/clusters/{cluster}/message", response_model=MessageAnswer)
async def message(
    call: Asked,
    topic: str = "",
    id_: Annotated[str, Query(alias="id")] = "",
    broker: str = "",
    queue: int | None = None,
    offset: int | None = None,
    whole: bool = False,
) -> Response:
    """One message, by id or by broker, queue and offset; and which groups had it."""
    if topic:
        call.require_topic(topic)
    bounds: tuple[int | None, int | None] = None, None
    if broker and queue is not None and offset is not None and topic:
        place = MessageQueue(topic=topic, broker_name=broker, queue_id=queue)
        result = await Puller(call.admin.session).pull(place, offset, count_max=1)
        found = next((one for one in result.messages if one.queue_offset == offset), None)
        bounds = result.min_offset, result.max_offset
        if found is None:
            raise ProblemError(
                404,
                "not-found",
                f"{topic} has no message at {broker}:{queue}@{offset}",
                what="message",
                name=str(offset),
            )
    elif id_:
        found = await call.admin.messages.get(id_, topic or None)
        call.require_topic(found.topic)
    else:
        raise ProblemError(422, "invalid", "give id, or topic, broker, queue and offset")
    mask = Mask(call.console.config.masks, call.role)
    return call.answer(
        MessageAnswer(
            message=message_detail(found, mask, whole=whole),
            consumed=await _consumed(call, found.queue, found.queue_offset),
            min_offset=bounds[0],
            max_offset=bounds[1],
        )
    )


async def _consumed(call: Call, queue: MessageQueue, offset: int) -> tuple[Consumption, ...]:
    """From the committed offset of each group that reads the topic."""
    try:
        groups = await call.admin.topics.consumers(queue.topic)
    except RocketQError:
        return ()
    asked = groups[:50]
    found = await outcomes({group: call.admin.offsets.get(group, queue.topic) for group in asked})
    rows = [Consumption(group=group, state="unknown", reason=str(error)) for group, error in found.failures.items()]
    for group, offsets in found.results.items():
        committed = next((one.committed for one in offsets if one.queue == queue), None)
        if committed is None:
            rows.append(Consumption(group=group, state="unknown", reason="nothing was committed"))
        else:
            rows.append(Consumption(group=group, state="consumed" if committed > offset else "not-yet"))
    return tuple(sorted(rows, key=lambda one: one.group))


@router.get("/clusters/{cluster}/traces", response_model=TraceAnswer)
async def traces(
    call: Asked,
    id_: Annotated[str, Query(alias="id")] = "",
    key: str = "",
    topic: str = "",
    trace_topic: str = TRACE_TOPIC,
) -> Response:
    """The life of a message by id, or of all traced messages with a key."""
    if not id_ and not key:
        raise ProblemError(422, "invalid", "give id or key")
    ids = [id_] if id_ else list(await call.admin.traces.by_key(key, trace_topic=trace_topic))[:20]
    if key and not ids and topic:
        ids = [one.message_id for one in await call.admin.messages.by_key(topic, key)][:20]
    found = [await call.admin.traces.get(each, topic=topic or None, trace_topic=trace_topic) for each in ids]
    return call.answer(TraceAnswer(traces=tuple(found), trace_topic=trace_topic))
