"""Dead letters: groups, letters, replays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from rocketq.client.admin.dead_letters import DeadLetterGroup, LetterEdit, LetterRef, ReplayPlan, ReplayStatus
from rocketq.client.core.search import Direction, SearchProgress, SearchQuery
from rocketq.console.api.changing import How
from rocketq.console.changes import (
    ChangePlan,
    ItemResult,
    ItemStatus,
    PlannedItem,
    Warning_,
    command_line,
    run_change,
)
from rocketq.console.config import Role
from rocketq.console.context import Call
from rocketq.console.problems import ProblemError
from rocketq.console.replays import Replays, Run, letter_name
from rocketq.console.views import LetterRow, Mask, MessageDetail, letter_row, message_detail
from rocketq.errors import RocketQError
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.names import Property, dlq_topic

reading = APIRouter(tags=["dead letters"])
changing = APIRouter(tags=["dead letters"])
Asked = Annotated[Call, Depends(Call)]
LETTERS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterGroups:
    items: tuple[DeadLetterGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    items: tuple[LetterRow, ...]
    progress: SearchProgress
    causes: Mapping[str, int]
    origins: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterAnswer:
    letter: MessageDetail
    origin_topic: str | None
    original: MessageDetail | None
    replayed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EditGiven:
    letter: LetterRef
    body: str | None = None
    keys: tuple[str, ...] | None = None
    tag: str | None = None
    properties: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayGiven:
    """`to`: origin, retry, or the name of a topic."""

    letters: tuple[LetterRef, ...]
    to: str = "origin"
    edits: tuple[EditGiven, ...] = ()
    per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    id: str
    cluster: str
    group: str
    to: str
    user: str
    state: str
    started_ms: int
    ended_ms: int | None
    reason: str | None
    counts: Mapping[str, int]
    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    items: tuple[RunView, ...]


def replays_of(request: Request) -> Replays:
    found: Replays = request.app.state.replays
    return found


def run_view(run: Run, *, with_results: bool) -> RunView:
    return RunView(
        id=run.id,
        cluster=run.cluster,
        group=run.group,
        to=run.to,
        user=run.user,
        state=run.state,
        started_ms=run.started_ms,
        ended_ms=run.ended_ms,
        reason=run.reason,
        counts=run.counts(),
        results=dict(run.results) if with_results else {},
    )


@reading.get("/clusters/{cluster}/dlq", response_model=DeadLetterGroups)
async def groups(call: Asked) -> Response:
    """Groups that have dead letters, those with most first."""
    return call.answer(DeadLetterGroups(items=await call.admin.dead_letters.groups()))


@reading.get("/clusters/{cluster}/dlq/{group}/letters", response_model=LetterPage)
async def letters(
    call: Asked,
    group: str,
    text: str = "",
    key: str = "",
    cause: str = "",
    origin: str = "",
    since_ms: int | None = None,
    until_ms: int | None = None,
    cursor: str | None = None,
    n: Annotated[int, Query(ge=1, le=LETTERS_MAX)] = 500,
) -> Response:
    """The newest dead letters of a group, with their causes and origin topics counted."""
    topic = dlq_topic(group)
    call.require_topic(topic)
    mask = Mask(call.console.config.masks, call.role)
    query = SearchQuery(
        topic=topic,
        direction=Direction.NEWEST,
        text=text or None,
        key=key or None,
        since_ms=since_ms,
        until_ms=until_ms,
        cursor=cursor,
    )
    sent = await replays_of(call.request).replayed(call.cluster.name, group)
    rows: list[LetterRow] = []
    progress = SearchProgress(looked_at=0, found=0, total=0, seen_ms=None, done=True, cursor=None)
    try:
        async for step in call.admin.search.run(query, found_max=n):
            progress = step.progress
            for one in step.messages:
                row = letter_row(one, mask)
                name = letter_name(row.ref)
                rows.append(letter_row(one, mask, (sent[name],)) if name in sent else row)
    except TopicNotFoundError:
        await call.admin.groups.status(group)  # NotFoundError for a group that does not exist at all
    causes: dict[str, int] = {}
    origins: dict[str, int] = {}
    for row in rows:
        causes[row.cause] = causes.get(row.cause, 0) + 1
        origins[row.origin_topic or "?"] = origins.get(row.origin_topic or "?", 0) + 1
    shown = [
        row for row in rows if (not cause or row.cause == cause) and (not origin or (row.origin_topic or "?") == origin)
    ]
    return call.answer(LetterPage(items=tuple(shown), progress=progress, causes=causes, origins=origins))


@reading.get("/clusters/{cluster}/dlq/{group}/letter", response_model=LetterAnswer)
async def letter(call: Asked, group: str, broker: str, queue: int, offset: int) -> Response:
    """One dead letter, and the message it was at first where that still exists."""
    call.require_topic(dlq_topic(group))
    mask = Mask(call.console.config.masks, call.role)
    ref = LetterRef(broker=broker, queue_id=queue, offset=offset)
    found = await call.admin.dead_letters.get(group, ref)
    row = letter_row(found, mask)
    original = None
    origin_id = found.properties.get(Property.DLQ_ORIGIN_MESSAGE_ID) or found.properties.get(Property.ORIGIN_MESSAGE_ID)
    if origin_id:
        try:
            original = message_detail(await call.admin.messages.get(origin_id, row.origin_topic), mask)
        except RocketQError:
            original = None  # it is older than what the broker keeps
    sent = await replays_of(call.request).replayed(call.cluster.name, group)
    return call.answer(
        LetterAnswer(
            letter=message_detail(found, mask, whole=True),
            origin_topic=row.origin_topic,
            original=original,
            replayed=sent.get(letter_name(ref)),
        )
    )


@reading.get("/clusters/{cluster}/runs", response_model=RunList)
async def runs(call: Asked, group: str = "") -> Response:
    """Replays, newest first."""
    found = [
        one
        for one in replays_of(call.request).runs.values()
        if one.cluster == call.cluster.name and group in ("", one.group)
    ]
    found.sort(key=lambda one: -one.started_ms)
    return call.answer(RunList(items=tuple(run_view(one, with_results=False) for one in found[:100])))


@reading.get("/clusters/{cluster}/runs/{run_id}", response_model=RunView)
async def run_detail(call: Asked, run_id: str) -> Response:
    """One replay with the result of each dead letter."""
    return call.answer(run_view(_run(call, run_id), with_results=True))


def _run(call: Call, run_id: str) -> Run:
    run = replays_of(call.request).runs.get(run_id)
    if run is None or run.cluster != call.cluster.name:
        raise ProblemError(404, "not-found", f"there is no run {run_id}", what="run", name=run_id)
    return run


@changing.post("/clusters/{cluster}/dlq/{group}:replay")
async def replay(call: Asked, how: How, group: str, given: Annotated[ReplayGiven, Body()]) -> Response:
    """Send dead letters again, in the background. The value of the result is the run."""
    call.require_topic(dlq_topic(group))
    if not given.letters:
        raise ProblemError(422, "invalid", "no dead letters were given")
    if len(given.letters) > LETTERS_MAX:
        raise ProblemError(
            422, "too-many", f"at most {LETTERS_MAX} at once: use rocketq pipeline replay", most=LETTERS_MAX
        )
    if given.to not in ("origin", "retry"):
        call.require_topic(given.to)
    edits = {
        one.letter: LetterEdit(
            body=one.body.encode() if one.body is not None else None,
            keys=one.keys,
            tag=one.tag,
            properties=one.properties,
        )
        for one in given.edits
    }
    plan_of_run = ReplayPlan(group=group, letters=given.letters, to=given.to, edits=edits, per_second=given.per_second)

    async def plan() -> ChangePlan:
        items: list[PlannedItem] = []
        warnings: list[Warning_] = []
        sent = await replays_of(call.request).replayed(call.cluster.name, group)
        again = sum(letter_name(one) in sent for one in given.letters)
        if again:
            warnings.append(Warning_(code="replayed-before", fields={"count": again}))
        if edits:
            warnings.append(Warning_(code="edited", fields={"count": len(edits)}))
        if how.dry_run:
            dry = ReplayPlan(group=group, letters=given.letters[:500], to=given.to, edits=edits, dry_run=True)
            async for one in call.admin.dead_letters.replay(dry):
                would = one.status is ReplayStatus.WOULD_SEND
                items.append(
                    PlannedItem(name=letter_name(one.letter), after=one.target if would else None, note=one.reason)
                )

        made = PlanValue()

        async def apply() -> tuple[ItemResult, ...]:
            admin = call.admin
            run = await replays_of(call.request).start(
                admin, plan_of_run, cluster=call.cluster.name, user=call.user.name
            )
            made.run = run.id
            return (ItemResult(name=group, status=ItemStatus.DONE, value={"run": run.id}),)

        options: list[object] = ["--all"] if len(given.letters) > 20 else []
        if not options:
            for one in given.letters:
                options += ["--letter", letter_name(one)]
        options += ["--to", given.to] if given.to != "origin" else []
        options += ["--rate", given.per_second] if given.per_second else []
        return ChangePlan(
            action="dlq.replay",
            target=group,
            role=Role.OPERATOR,
            command=command_line("dlq", "replay", group, *options),
            items=tuple(items),
            warnings=tuple(warnings),
            parameters={"to": given.to, "letters": len(given.letters), "edited": len(edits)},
            apply=apply,
        )

    asked = how
    if not how.dry_run and how.token is not None:  # the preview names each letter; a run is checked letter by letter
        asked = type(how)(dry_run=False, confirm=how.confirm, idempotency_key=how.idempotency_key)
    return await run_change(call, asked, plan)


@dataclass(slots=True)
class PlanValue:
    run: str | None = None


@changing.post("/clusters/{cluster}/runs/{run_id}:stop", response_model=RunView)
async def stop_run(call: Asked, run_id: str) -> Response:
    """Stop a replay after the letter it is at."""
    call.require(Role.OPERATOR)
    run = _run(call, run_id)
    await replays_of(call.request).stop(run)
    return call.answer(run_view(run, with_results=True))


@changing.post("/clusters/{cluster}/runs/{run_id}:continue", response_model=RunView)
async def continue_run(call: Asked, run_id: str) -> Response:
    """Send the letters of a stopped or broken-off replay that were surely not sent."""
    call.require(Role.OPERATOR)
    run = _run(call, run_id)
    await replays_of(call.request).go_on(run, call.admin)
    return call.answer(run_view(run, with_results=True))
