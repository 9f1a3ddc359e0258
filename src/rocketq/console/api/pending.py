"""Messages that are not visible yet: timers, half messages, retries; and Spark queries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from rocketq.client.admin.pending import OpenHalf, WaitingTimer
from rocketq.client.core.overview import SPARK_TOPIC
from rocketq.client.core.search import Direction, SearchQuery
from rocketq.console.context import Call
from rocketq.console.views import Mask, MessageRow, message_row
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.names import CHECK_EXHAUSTED_TOPIC, RETRY_PREFIX

router = APIRouter(tags=["pending"])
Asked = Annotated[Call, Depends(Call)]
_SPARK_READ_MAX: Final = 2_000
_SILENT_FACTOR: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerPage:
    """`histogram`: waiting messages by hour from now on, 24 of them; `later` are those after."""

    total: int
    items: tuple[WaitingTimer, ...]
    histogram: tuple[int, ...]
    later: int
    late: int
    asOf: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfPage:
    items: tuple[OpenHalf, ...]
    given_up: tuple[MessageRow, ...]
    producers: Mapping[str, int]
    asOf: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRow:
    group: str
    waiting: int | None
    retry_max: int | None
    members: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPage:
    items: tuple[RetryRow, ...]
    asOf: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkQuery:
    """The last report of a query. `state`: running, silent, stopped, failed."""

    id: str
    name: str
    state: str
    reported_ms: int
    report: Mapping[str, Any]
    rates: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPage:
    items: tuple[SparkQuery, ...]
    topic: str
    exists: bool


@router.get("/clusters/{cluster}/timers", response_model=TimerPage)
async def timers(
    call: Asked, topic: str = "", q: str = "", n: Annotated[int, Query(ge=1, le=10_000)] = 200
) -> Response:
    """Messages that wait for their time, the next one first."""
    now_ms = call.admin.session.clock.now_ms()
    found = await call.admin.timers.list(topic or None)
    chosen = [one for one in found if not q or q in (one.unique_key or "") or q in one.topic]
    hours = [0] * 24
    later = 0
    for one in chosen:
        hour = int(max(0, one.due_ms - now_ms) // 3_600_000)
        if hour < 24:
            hours[hour] += 1
        else:
            later += 1
    return call.answer(
        TimerPage(
            total=len(chosen),
            items=tuple(chosen[:n]),
            histogram=tuple(hours),
            later=later,
            late=sum(one.due_ms < now_ms - 5_000 for one in chosen),
            asOf=now_ms,
        )
    )


@router.get("/clusters/{cluster}/transactions", response_model=HalfPage)
async def transactions(call: Asked) -> Response:
    """Undecided half messages, and those whose checks were exhausted."""
    found = await call.admin.transactions.list()
    mask = Mask(call.console.config.masks, call.role)
    given_up: list[MessageRow] = []
    try:
        query = SearchQuery(topic=CHECK_EXHAUSTED_TOPIC, direction=Direction.NEWEST)
        async for step in call.admin.search.run(query, found_max=100):
            given_up += [message_row(one, mask) for one in step.messages]
    except TopicNotFoundError:
        given_up = []
    producers: dict[str, int] = {}
    overview = await call.overview()
    for broker in overview.brokers:
        if broker.reachable:
            for group, connected in (await call.admin.brokers.producers(broker.name)).items():
                producers[group] = producers.get(group, 0) + len(connected)
    groups = {one.group for one in found}
    return call.answer(
        HalfPage(
            items=found,
            given_up=tuple(given_up),
            producers={group: producers.get(group, 0) for group in groups},
            asOf=call.admin.session.clock.now_ms(),
        )
    )


@router.get("/clusters/{cluster}/retries", response_model=RetryPage)
async def retries(call: Asked) -> Response:
    """Groups with messages that will be delivered again."""
    overview = await call.overview()
    topics = {one.name for one in overview.topics}
    rows = [
        RetryRow(group=one.name, waiting=one.retry_waiting, retry_max=one.retry_max, members=one.members)
        for one in overview.groups
        if RETRY_PREFIX + one.name in topics and one.retry_waiting != 0
    ]
    rows.sort(key=lambda one: (-(one.waiting or 0), one.group))
    return call.answer(RetryPage(items=tuple(rows), asOf=overview.taken_ms))


@router.get("/clusters/{cluster}/spark/queries", response_model=SparkPage)
async def spark_queries(call: Asked) -> Response:
    """Streaming queries of Spark, from the reports they send. A query that is silent is shown as silent."""
    now_ms = call.admin.session.clock.now_ms()
    newest: dict[str, tuple[int, Mapping[str, Any]]] = {}
    rates: dict[str, list[tuple[int, float]]] = {}
    try:
        query = SearchQuery(topic=SPARK_TOPIC, direction=Direction.NEWEST, since_ms=now_ms - 86_400_000)
        async for step in call.admin.search.run(query, found_max=_SPARK_READ_MAX):
            for one in step.messages:
                report = _report(one.body)
                if report is None:
                    continue
                name = str(report.get("query_id") or report.get("queryId") or report.get("id") or one.keys or "")
                newest.setdefault(name, (one.store_ms, report))
                rate = report.get("processed_rows_per_second") or report.get("processedRowsPerSecond")
                if isinstance(rate, (int, float)):
                    rates.setdefault(name, []).append((one.store_ms // 1000, float(rate)))
    except TopicNotFoundError:
        return call.answer(SparkPage(items=(), topic=SPARK_TOPIC, exists=False))
    items = [
        SparkQuery(
            id=name,
            name=str(report.get("name") or report.get("query_name") or name),
            state=_state(report, at_ms, now_ms),
            reported_ms=at_ms,
            report=report,
            rates=tuple(reversed(rates.get(name, []))),
        )
        for name, (at_ms, report) in newest.items()
    ]
    return call.answer(SparkPage(items=tuple(items), topic=SPARK_TOPIC, exists=True))


def _report(body: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _state(report: Mapping[str, Any], at_ms: int, now_ms: int) -> str:
    if report.get("exception"):
        return "failed"
    if str(report.get("state", "")).lower() in ("stopped", "terminated", "finished"):
        return "stopped"
    interval_ms = report.get("trigger_ms") or report.get("triggerMs") or 20_000
    return "silent" if now_ms - at_ms > _SILENT_FACTOR * max(20_000, int(interval_ms)) else "running"
