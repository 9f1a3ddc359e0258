"""Topics, groups, brokers, messages: what can be changed. None of these routes exists in a read-only console."""

from __future__ import annotations

import asyncio
import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Header, Query
from starlette.responses import Response

from rocketq.client.admin.groups import GroupChanges
from rocketq.client.core.messages import Message
from rocketq.client.core.offsets import OffsetChange, ResetTo
from rocketq.client.core.routes import queue_order
from rocketq.client.core.send_flow import SendResult
from rocketq.client.errors import NotFoundError
from rocketq.client.fan_out import outcomes
from rocketq.client.send import Sender
from rocketq.console.changes import (
    Asked,
    ChangePlan,
    ItemResult,
    ItemStatus,
    PlannedItem,
    Warning_,
    command_line,
    run_change,
    status_of,
)
from rocketq.console.config import Role
from rocketq.console.context import Call
from rocketq.console.json_text import to_json
from rocketq.console.problems import ProblemError
from rocketq.errors import ConfigError, RocketQError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.flags import Perm, TransactionState
from rocketq.protocol.names import Property, dlq_topic, group_fault, retry_topic, topic_fault

router = APIRouter(tags=["change"])
Called = Annotated[Call, Depends(Call)]
PERMS: Final = {"rw": Perm.READ | Perm.WRITE, "r": Perm.READ, "w": Perm.WRITE, "none": Perm(0)}
BURST_MAX: Final = 10_000
CLEANINGS: Final = {
    "consume-queues": RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
    "unused-topics": RequestCode.CLEAN_UNUSED_TOPIC,
    "commit-log": RequestCode.DELETE_EXPIRED_COMMITLOG,
}


def how_asked(
    dry_run: Annotated[bool, Query(alias="dryRun", description="only show what would change")] = False,
    confirm: Annotated[str | None, Query(description="the name, for what cannot be undone")] = None,
    token: Annotated[str | None, Query(description="of a preview: 409 when the state has changed since")] = None,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> Asked:
    return Asked(dry_run=dry_run, token=token, confirm=confirm, idempotency_key=idempotency_key)


How = Annotated[Asked, Depends(how_asked)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """A topic to make or to change. None leaves a setting as it is."""

    topic: str
    read_queues: int | None = None
    write_queues: int | None = None
    perm: str | None = None
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    broker: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    group: str
    consume_enable: bool | None = None
    consume_broadcast_enable: bool | None = None
    retry_max: int | None = None
    retry_queue_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetChange:
    """Where a group starts again. `to`: earliest, latest, time, offset, by, group, exact."""

    topic: str
    to: str
    value: int | None = None
    """Milliseconds for `time`, an offset for `offset`, a difference for `by`."""
    from_group: str | None = None
    queues: tuple[str, ...] = ()
    """`BROKER:ID`; all without."""
    exact: Mapping[str, int] = field(default_factory=dict)
    """Offsets by `BROKER:ID`, for `exact`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendChange:
    """A message to send, or many: `{{n}}` in the body is the number of each."""

    body: str = ""
    body_base64: str | None = None
    keys: tuple[str, ...] = ()
    tag: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    queue: str | None = None
    sharding_key: str | None = None
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None
    count: int = 1
    per_second: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    changes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfRef:
    """Names an undecided half message."""

    broker: str
    queue_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeChange:
    group: str
    client_id: str
    broker: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerChange:
    handle: str


# topics


@router.post("/clusters/{cluster}/topics")
async def set_topic(call: Called, how: How, given: Annotated[TopicChange, Body()]) -> Response:
    """Make a topic, or change its queues and permission."""
    call.require_topic(given.topic)
    if (fault := topic_fault(given.topic)) is not None:
        raise ProblemError(422, "invalid", fault)
    if given.perm is not None and given.perm not in PERMS:
        raise ProblemError(422, "invalid", f"perm {given.perm!r} is not one of {', '.join(PERMS)}")

    async def plan() -> ChangePlan:
        admin = call.admin
        try:
            known = await admin.topics.configs(given.topic)
        except TopicNotFoundError:
            known = {}
        table = await admin.brokers.cluster()
        names = sorted(
            name
            for name, data in table.brokers.items()
            if (given.broker is None or name == given.broker) and (given.cluster in (None, data.cluster))
        )
        if not names:
            raise NotFoundError("broker", given.broker or given.cluster or "")
        first = next(iter(known.values()), None)
        read = given.read_queues or (first.read_queue_count if first else 8)
        write = given.write_queues or (first.write_queue_count if first else 8)
        perm = PERMS[given.perm] if given.perm else Perm(first.perm & 7) if first else PERMS["rw"]
        items = []
        warnings = []
        for name in names:
            before = known.get(name)
            items.append(
                PlannedItem(
                    name=name,
                    before=_shape(before.read_queue_count, before.write_queue_count, before.perm) if before else None,
                    after=_shape(read, write, int(perm)),
                )
            )
            if before is not None and before.read_queue_count > read:
                fields = {"broker": name, "from": read, "to": before.read_queue_count - 1}
                warnings.append(Warning_(code="queues-unreachable", fields=fields))
        if len(names) == 1 and len(table.brokers) > 1:
            warnings.append(Warning_(code="one-broker", fields={"broker": names[0]}))

        async def apply() -> tuple[ItemResult, ...]:
            made = await admin.topics.create(
                given.topic,
                read_queues=read,
                write_queues=write,
                perm=int(perm),
                order=given.order,
                attributes=given.attributes or None,
                cluster=given.cluster,
                broker=given.broker,
            )
            await call.sampler.refresh()
            reason = None if made.routed else "no NameServer knows it yet"
            return tuple(ItemResult(name=name, status=ItemStatus.DONE, reason=reason) for name in made.brokers)

        word = next(name for name, each in PERMS.items() if each == perm)
        options: list[object] = ["--read-queues", read, "--write-queues", write]
        options += ["--perm", word] if word in ("rw", "r", "w") else []
        options += ["--order"] if given.order else []
        for name, value in given.attributes.items():
            options += ["--attribute", f"{name}={value}"]
        options += ["--broker", given.broker] if given.broker else []
        return ChangePlan(
            action="topic.change" if known else "topic.create",
            target=given.topic,
            role=Role.OPERATOR,
            command=command_line("topic", "create", given.topic, *options),
            items=tuple(items),
            warnings=tuple(warnings),
            apply=apply,
        )

    return await run_change(call, how, plan)


def _shape(read: int, write: int, perm: int) -> dict[str, Any]:
    return {"read_queues": read, "write_queues": write, "perm": Perm(perm & 7).text}


@router.delete("/clusters/{cluster}/topics/{topic}")
async def delete_topic(call: Called, how: How, topic: str) -> Response:
    """Delete a topic with its messages, on all brokers and NameServers."""
    call.require_topic(topic)

    async def plan() -> ChangePlan:
        admin = call.admin
        configs = await admin.topics.configs(topic)
        stats = await admin.topics.stats(topic)
        groups = await admin.topics.consumers(topic)
        kept: dict[str, int] = {}
        last_ms = 0
        for queue, one in stats.queues.items():
            kept[queue.broker_name] = kept.get(queue.broker_name, 0) + one.max_offset - one.min_offset
            last_ms = max(last_ms, one.updated_ms)
        warnings = [Warning_(code="messages-lost", fields={"count": sum(kept.values()), "last_ms": last_ms or None})]
        if groups:
            warnings.append(Warning_(code="read-by", fields={"groups": list(groups)}))

        async def apply() -> tuple[ItemResult, ...]:
            brokers = await admin.topics.delete(topic)
            await call.sampler.refresh()
            return tuple(ItemResult(name=name, status=ItemStatus.DONE) for name in brokers)

        return ChangePlan(
            action="topic.delete",
            target=topic,
            role=Role.ADMIN,
            command=command_line("topic", "delete", topic, "--yes"),
            items=tuple(PlannedItem(name=name, before=kept.get(name, 0), after=None) for name in configs),
            warnings=tuple(warnings),
            confirm=topic,
            apply=apply,
        )

    return await run_change(call, how, plan)


# messages


@router.post("/clusters/{cluster}/topics/{topic}/send")
async def send(call: Called, how: How, topic: str, given: Annotated[SendChange, Body()]) -> Response:
    """Send a message, or up to 10,000 at a rate. The result has id, queue and offset of each."""
    call.require_topic(topic)
    if not 1 <= given.count <= BURST_MAX:
        raise ProblemError(422, "invalid", f"count is 1 to {BURST_MAX}")
    body = _body_of(given)

    async def plan() -> ChangePlan:
        admin = call.admin
        route = await admin.topics.route(topic)
        queue = await _queue_of(call, topic, given)
        fixed = queue
        properties = dict(given.properties)
        if given.sharding_key:
            properties[Property.SHARDING_KEY] = given.sharding_key
        after = {
            "count": given.count,
            "bytes": len(body),
            "queue": f"{fixed.broker_name}:{fixed.queue_id}" if fixed else "any",
            "brokers": sorted({one.broker_name for one in route.queues}),
        }

        async def apply() -> tuple[ItemResult, ...]:
            sender = Sender(admin.session, "ROCKETQ_CONSOLE", attempts_max=1)
            loop = asyncio.get_running_loop()
            began, results = loop.time(), []
            for number in range(given.count):
                if given.per_second:
                    await asyncio.sleep(max(0.0, began + number / given.per_second - loop.time()))
                message = Message(
                    topic=topic,
                    body=body.replace(b"{{n}}", str(number).encode()) if given.count > 1 else body,
                    tag=given.tag or None,
                    keys=tuple(key.replace("{{n}}", str(number)) for key in given.keys),
                    properties=properties,
                    delay_level=given.delay_level,
                    delay_ms=given.delay_ms,
                    deliver_at_ms=given.deliver_at_ms,
                )
                results.append(await _sent(sender, message, queue, number))
            return tuple(results)

        options: list[object] = []
        options += ["--tag", given.tag] if given.tag else []
        for key in given.keys:
            options += ["--key", key]
        for name, value in properties.items():
            options += ["--property", f"{name}={value}"]
        options += ["--queue", given.queue] if given.queue else []
        text = given.body if given.body_base64 is None else "-"
        return ChangePlan(
            action="message.send",
            target=topic,
            role=Role.OPERATOR,
            command=command_line("send", topic, text[:500], *options),
            items=(PlannedItem(name=topic, after=after),),
            parameters={"count": given.count, "bytes": len(body)},
            apply=apply,
        )

    return await run_change(call, how, plan)


async def _sent(sender: Sender, message: Message, queue: MessageQueue | None, number: int) -> ItemResult:
    name = str(number + 1)
    try:
        result: SendResult = await sender.send(message, queue)
    except RocketQError as error:
        return ItemResult(name=name, status=status_of(error), reason=str(error))
    value = {
        "message_id": result.message_id,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
        "offset_message_id": result.offset_message_id,
        "status": result.status.value,
    }
    return ItemResult(name=name, status=ItemStatus.DONE, value=value)


def _body_of(given: SendChange) -> bytes:
    if given.body_base64 is None:
        return given.body.encode("utf-8", "replace")
    try:
        return base64.b64decode(given.body_base64, validate=True)
    except (binascii.Error, ValueError):
        raise ProblemError(422, "invalid", "body_base64 is not base64") from None


async def _queue_of(call: Call, topic: str, given: SendChange) -> MessageQueue | None:
    route = await call.admin.topics.route(topic)
    queues = sorted(
        (
            MessageQueue(topic=topic, broker_name=one.broker_name, queue_id=number)
            for one in route.queues
            if one.perm & Perm.WRITE
            for number in range(one.write_queue_count)
        ),
        key=queue_order,
    )
    if given.queue:
        found = [one for one in queues if f"{one.broker_name}:{one.queue_id}" == given.queue]
        if not found:
            raise NotFoundError("queue", f"{given.queue} of {topic}")
        return found[0]
    if given.sharding_key and queues:
        return queues[zlib.crc32(given.sharding_key.encode()) % len(queues)]
    return None


@router.post("/clusters/{cluster}/messages:consume")
async def consume(call: Called, how: How, given: Annotated[ConsumeChange, Body()]) -> Response:
    """Let one member consume one stored message now."""

    async def plan() -> ChangePlan:
        async def apply() -> tuple[ItemResult, ...]:
            found = await call.admin.groups.consume_directly(
                given.group, given.client_id, given.message_id, given.broker
            )
            word = found.result.value if found.result is not None else "unknown"
            ok = word == "CR_SUCCESS"
            status = ItemStatus.DONE if ok else ItemStatus.FAILED
            value = {"result": word, "spent_ms": found.spent_ms}
            return (ItemResult(name=given.client_id, status=status, reason=found.remark, value=value),)

        return ChangePlan(
            action="message.consume",
            target=given.message_id,
            role=Role.OPERATOR,
            command=command_line("message", "get", given.message_id),
            items=(PlannedItem(name=given.client_id, after={"group": given.group}),),
            apply=apply,
        )

    return await run_change(call, how, plan)


# groups


@router.post("/clusters/{cluster}/groups")
async def set_group(call: Called, how: How, given: Annotated[GroupChange, Body()]) -> Response:
    """Make a group or change its settings; `consume_enable` pauses and resumes it."""
    if (fault := group_fault(given.group)) is not None:
        raise ProblemError(422, "invalid", fault)

    async def plan() -> ChangePlan:
        admin = call.admin
        known = (await admin.groups.list()).get(given.group, {})
        masters = (await admin.brokers.cluster()).brokers
        changes: GroupChanges = {}
        if given.consume_enable is not None:
            changes["consume_enable"] = given.consume_enable
        if given.consume_broadcast_enable is not None:
            changes["consume_broadcast_enable"] = given.consume_broadcast_enable
        if given.retry_max is not None:
            changes["retry_max"] = given.retry_max
        if given.retry_queue_count is not None:
            changes["retry_queue_count"] = given.retry_queue_count
        items = tuple(
            PlannedItem(
                name=name,
                before={key: getattr(known[name], key) for key in changes} if name in known else None,
                after=dict(changes),
            )
            for name in sorted(masters)
        )

        async def apply() -> tuple[ItemResult, ...]:
            made = await admin.groups.set(given.group, **changes)
            await call.sampler.refresh()
            return tuple(ItemResult(name=name, status=ItemStatus.DONE) for name in made)

        options: list[object] = []
        if given.consume_enable is not None:
            options.append("--consume" if given.consume_enable else "--no-consume")
        if given.consume_broadcast_enable is not None:
            options.append("--broadcast" if given.consume_broadcast_enable else "--no-broadcast")
        if given.retry_queue_count is not None:
            options += ["--retry-queues", given.retry_queue_count]
        if given.retry_max is not None:
            options += ["--retry-max", given.retry_max]
        return ChangePlan(
            action="group.change" if known else "group.create",
            target=given.group,
            role=Role.OPERATOR,
            command=command_line("group", "set", given.group, *options),
            items=items,
            apply=apply,
        )

    return await run_change(call, how, plan)


@router.delete("/clusters/{cluster}/groups/{group}")
async def delete_group(
    call: Called, how: How, group: str, keep_offsets: bool = False, dead_letters: bool = False
) -> Response:
    """Delete a group with its offsets and retry topic; its dead letters only where `dead_letters` is set."""

    async def plan() -> ChangePlan:
        admin = call.admin
        known = (await admin.groups.list()).get(group, {})
        if not known:
            raise NotFoundError("consumer group", group)
        topics = await admin.topics.list()
        items = [PlannedItem(name=f"group on {name}", before="configured") for name in sorted(known)]
        if not keep_offsets:
            items.append(PlannedItem(name="offsets", before="kept"))
        items += [PlannedItem(name=topic, before="kept") for topic in (retry_topic(group),) if topic in topics]
        if dead_letters and dlq_topic(group) in topics:
            items.append(PlannedItem(name=dlq_topic(group), before="kept"))
        online = await outcomes({"online": admin.groups.connections(group)})
        warnings = []
        if online.results:
            members = len(online.results["online"].connections)
            warnings.append(Warning_(code="members-online", fields={"count": members}))

        async def apply() -> tuple[ItemResult, ...]:
            await admin.groups.delete(group, keep_offsets=keep_offsets, dead_letters=dead_letters)
            await call.sampler.refresh()
            return tuple(ItemResult(name=item.name, status=ItemStatus.DONE) for item in items)

        options = [
            "--yes",
            *(["--keep-offsets"] if keep_offsets else []),
            *(["--dead-letters"] if dead_letters else []),
        ]
        return ChangePlan(
            action="group.delete",
            target=group,
            role=Role.ADMIN,
            command=command_line("group", "delete", group, *options),
            items=tuple(items),
            warnings=tuple(warnings),
            confirm=group,
            apply=apply,
        )

    return await run_change(call, how, plan)


@router.post("/clusters/{cluster}/groups/{group}:reset")
async def reset(call: Called, how: How, group: str, given: Annotated[ResetChange, Body()]) -> Response:
    """Move the committed offsets of a group. The offsets before are kept and can be put back with `:undo`."""
    call.require_topic(given.topic)

    async def plan() -> ChangePlan:
        changes = await _reset_changes(call, group, given)
        online = await outcomes({"online": call.admin.groups.connections(group)})
        members = len(online.results["online"].connections) if online.results else 0
        skipped = sum(max(0, one.after - (one.before or 0)) for one in changes if one.before is not None)
        replayed = sum(max(0, one.before - one.after) for one in changes if one.before is not None)
        items = tuple(
            PlannedItem(
                name=_place(one.queue),
                before=one.before,
                after=one.after,
                note=None if one.before is not None else "nothing was committed",
            )
            for one in changes
        )
        warnings = [Warning_(code="replayed", fields={"count": replayed})] if replayed else []
        if skipped:
            warnings.append(Warning_(code="skipped", fields={"count": skipped}))
        if members:
            warnings.append(Warning_(code="members-told", fields={"count": members}))
        else:
            warnings.append(Warning_(code="group-offline"))

        async def apply() -> tuple[ItemResult, ...]:
            before = {_place(one.queue): one.before for one in changes}
            await _keep_undo(call, group, given.topic, before)
            return await _move(call, group, given.topic, changes)

        return ChangePlan(
            action="group.reset",
            target=f"{group} {given.topic}",
            role=Role.OPERATOR,
            command=_reset_command(group, given, changes),
            items=items,
            warnings=tuple(warnings),
            confirm=group if skipped else None,
            parameters={"to": given.to, "value": given.value},
            apply=apply,
        )

    return await run_change(call, how, plan)


@router.post("/clusters/{cluster}/groups/{group}:undo")
async def undo(call: Called, how: How, group: str, topic: str) -> Response:
    """Put back the offsets that the last reset of this group and topic replaced."""
    call.require_topic(topic)

    async def plan() -> ChangePlan:
        kept = await call.console.history.note(_undo_name(call, group, topic))
        if kept is None:
            raise ProblemError(404, "nothing-to-undo", f"no reset of {group} on {topic} is remembered")
        given = ResetChange(topic=topic, to="exact", exact=_offsets_of(kept))
        changes = await _reset_changes(call, group, given)

        async def apply() -> tuple[ItemResult, ...]:
            results = await _move(call, group, topic, changes)
            await call.console.history.drop(_undo_name(call, group, topic))
            return results

        return ChangePlan(
            action="group.undo-reset",
            target=f"{group} {topic}",
            role=Role.OPERATOR,
            command=_reset_command(group, given, changes),
            items=tuple(PlannedItem(name=_place(one.queue), before=one.before, after=one.after) for one in changes),
            apply=apply,
        )

    return await run_change(call, how, plan)


def _undo_name(call: Call, group: str, topic: str) -> str:
    return f"undo/{call.cluster.name}/{group}/{topic}"


async def _keep_undo(call: Call, group: str, topic: str, before: Mapping[str, int | None]) -> None:
    kept = {name: offset for name, offset in before.items() if offset is not None}
    await call.console.history.keep(_undo_name(call, group, topic), to_json(kept).decode())


def _offsets_of(text: str) -> dict[str, int]:
    import json  # noqa: PLC0415 - beside its only use

    return {str(name): int(offset) for name, offset in json.loads(text).items()}


def _place(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


async def _reset_changes(call: Call, group: str, given: ResetChange) -> list[OffsetChange]:
    admin = call.admin
    if given.to in ("earliest", "latest", "time", "offset"):
        to = _reset_to(given)
        changes = list(await admin.offsets.reset(group, given.topic, to, preview=True))
    elif given.to in ("by", "group", "exact"):
        now = await admin.offsets.get(group, given.topic)
        other: dict[MessageQueue, int | None] = {}
        if given.to == "group":
            if not given.from_group:
                raise ProblemError(422, "invalid", "from_group is missing")
            other = {one.queue: one.committed for one in await admin.offsets.get(given.from_group, given.topic)}
        changes = []
        for one in now:
            low, high = one.bounds.min_offset, one.bounds.max_offset
            wanted: int | None
            if given.to == "by":
                wanted = None if one.committed is None else one.committed + (given.value or 0)
            elif given.to == "group":
                wanted = other.get(one.queue)
            else:
                wanted = given.exact.get(_place(one.queue))
            if wanted is not None:
                after = min(max(wanted, low), high)
                changes.append(OffsetChange(queue=one.queue, before=one.committed, after=after, bounds=one.bounds))
    else:
        raise ProblemError(422, "invalid", f"to={given.to!r}: earliest, latest, time, offset, by, group or exact")
    if given.queues:
        changes = [one for one in changes if _place(one.queue) in given.queues]
        if not changes:
            raise NotFoundError("queue", ", ".join(given.queues))
    return changes


def _reset_command(group: str, given: ResetChange, changes: Sequence[OffsetChange]) -> str:
    """One command, or one for each queue where queues go to different offsets."""
    to: dict[str, list[object]] = {
        "earliest": ["--to-earliest"],
        "latest": ["--to-latest"],
        "time": ["--to-time", given.value],
        "offset": ["--to-offset", given.value],
    }
    if given.to in to and not given.queues:
        return command_line("group", "reset", group, given.topic, *to[given.to])
    return " && ".join(
        command_line("group", "reset", group, given.topic, "--to-offset", one.after, "--queue", _place(one.queue))
        for one in changes
    )


def _reset_to(given: ResetChange) -> ResetTo:
    try:
        match given.to:
            case "earliest":
                return ResetTo.earliest()
            case "latest":
                return ResetTo.latest()
            case "time":
                return ResetTo.at_time(given.value if given.value is not None else -1)
            case _:
                return ResetTo.at_offset(given.value if given.value is not None else -1)
    except ValueError as error:
        raise ConfigError(str(error)) from None


async def _move(call: Call, group: str, topic: str, changes: Sequence[OffsetChange]) -> tuple[ItemResult, ...]:
    """Commit each queue's offset, have members move, and read everything back."""
    admin = call.admin
    moves = {
        one.queue: admin.offsets.reset(
            group, topic, ResetTo.at_offset(one.after), queue=(one.queue.broker_name, one.queue.queue_id)
        )
        for one in changes
        if one.before != one.after
    }
    moved = await outcomes(moves)
    after = {one.queue: one.committed for one in await admin.offsets.get(group, topic)}
    results = []
    for one in changes:
        name, found = _place(one.queue), after.get(one.queue)
        if one.queue in moved.failures:
            error = moved.failures[one.queue]
            results.append(ItemResult(name=name, status=status_of(error), reason=str(error), value=found))
        elif one.before == one.after:
            results.append(ItemResult(name=name, status=ItemStatus.UNCHANGED, value=found))
        elif found is not None and (found == one.after or found > one.after):
            reason = None if found == one.after else f"a member has gone on to {found} already"
            results.append(ItemResult(name=name, status=ItemStatus.DONE, reason=reason, value=found))
        else:
            reason = f"read back {found}, not {one.after}: a member committed its own offset again"
            results.append(ItemResult(name=name, status=ItemStatus.FAILED, reason=reason, value=found))
    await call.sampler.refresh()
    return tuple(results)


# brokers


@router.post("/clusters/{cluster}/brokers/{broker}/config")
async def set_config(call: Called, how: How, broker: str, given: Annotated[SettingChange, Body()]) -> Response:
    """Change settings of a running broker; the result is read back."""

    async def plan() -> ChangePlan:
        before = await call.admin.brokers.config(broker)
        for key in given.changes:
            if key not in before:
                raise NotFoundError("setting", key, f"{broker} has none of that name")

        async def apply() -> tuple[ItemResult, ...]:
            after = await call.admin.brokers.set_config(broker, given.changes)
            return tuple(
                ItemResult(
                    name=key,
                    status=ItemStatus.DONE if after.get(key) == value else ItemStatus.FAILED,
                    reason=None if after.get(key) == value else f"the broker has {after.get(key)!r}",
                )
                for key, value in given.changes.items()
            )

        pairs = [f"{key}={value}" for key, value in given.changes.items()]
        return ChangePlan(
            action="broker.config",
            target=broker,
            role=Role.ADMIN,
            command=command_line("broker", "config", "set", broker, *pairs),
            items=tuple(PlannedItem(name=key, before=before[key], after=value) for key, value in given.changes.items()),
            apply=apply,
        )

    return await run_change(call, how, plan)


@router.post("/clusters/{cluster}/brokers/{broker}:clean")
async def clean(call: Called, how: How, broker: str, what: str) -> Response:
    """Delete what is no longer needed: consume-queues, unused-topics, commit-log."""
    code = CLEANINGS.get(what)
    if code is None:
        raise ProblemError(422, "invalid", f"what={what!r} is not one of {', '.join(CLEANINGS)}")

    async def plan() -> ChangePlan:
        await call.admin.brokers.addr(broker)

        async def apply() -> tuple[ItemResult, ...]:
            await call.admin.brokers.clean(broker, code)
            return (ItemResult(name=broker, status=ItemStatus.DONE),)

        return ChangePlan(
            action=f"broker.clean-{what}",
            target=broker,
            role=Role.ADMIN,
            command=command_line("broker", "clean", broker, what),
            items=(PlannedItem(name=broker, before=what),),
            confirm=broker,
            apply=apply,
        )

    return await run_change(call, how, plan)


@router.post("/clusters/{cluster}/brokers/{broker}:maintenance")
async def maintenance(call: Called, how: How, broker: str, writable: bool) -> Response:
    """Take write permission from a broker in all routes, or give it back."""

    async def plan() -> ChangePlan:
        await call.admin.brokers.addr(broker)

        async def apply() -> tuple[ItemResult, ...]:
            await call.admin.brokers.set_writable(broker, writable)
            return (ItemResult(name=broker, status=ItemStatus.DONE),)

        return ChangePlan(
            action="broker.writable" if writable else "broker.maintenance",
            target=broker,
            role=Role.ADMIN,
            command=command_line("broker", "maintenance", broker, "--off" if writable else "--on"),
            items=(PlannedItem(name=broker, after={"writable": writable}),),
            apply=apply,
        )

    return await run_change(call, how, plan)


# timers and transactions


@router.post("/clusters/{cluster}/timers:cancel")
async def cancel_timer(call: Called, how: How, given: Annotated[TimerChange, Body()]) -> Response:
    """Take back a message that waits for its time."""

    async def plan() -> ChangePlan:
        async def apply() -> tuple[ItemResult, ...]:
            found = await call.admin.timers.cancel(given.handle)
            return (ItemResult(name=found.unique_key, status=ItemStatus.DONE),)

        return ChangePlan(
            action="timer.cancel",
            target=given.handle[:80],
            role=Role.OPERATOR,
            command=command_line("timer", "cancel", given.handle),
            items=(PlannedItem(name=given.handle[:80], before="waiting", after="cancelled"),),
            apply=apply,
        )

    return await run_change(call, how, plan)


@router.post("/clusters/{cluster}/transactions:check")
async def check_transaction(call: Called, how: How, given: Annotated[HalfRef, Body()]) -> Response:
    """Have the broker ask the producers of a half message again."""

    async def plan() -> ChangePlan:
        half = await _half(call, given)

        async def apply() -> tuple[ItemResult, ...]:
            await call.admin.transactions.check(half)
            return (ItemResult(name=half.unique_key, status=ItemStatus.DONE),)

        return ChangePlan(
            action="transaction.check",
            target=half.unique_key,
            role=Role.OPERATOR,
            command=command_line("transaction", "check", half.offset_message_id),
            items=(PlannedItem(name=half.unique_key, before={"checks": half.checks}, after={"checks": 0}),),
            apply=apply,
        )

    return await run_change(call, how, plan)


@router.post("/clusters/{cluster}/transactions:decide")
async def decide_transaction(call: Called, how: How, given: Annotated[HalfRef, Body()], commit: bool) -> Response:
    """Commit or roll back a half message by hand."""

    async def plan() -> ChangePlan:
        half = await _half(call, given)
        state = TransactionState.COMMIT if commit else TransactionState.ROLLBACK
        word = state.name.lower()

        async def apply() -> tuple[ItemResult, ...]:
            await call.admin.transactions.decide(half, state)
            return (ItemResult(name=half.unique_key, status=ItemStatus.DONE),)

        return ChangePlan(
            action=f"transaction.{word}",
            target=half.unique_key,
            role=Role.ADMIN,
            command=command_line("transaction", "decide", half.offset_message_id, f"--{word}"),
            items=(PlannedItem(name=half.unique_key, before="undecided", after=word),),
            warnings=(Warning_(code="delivered" if commit else "discarded", fields={"topic": half.topic}),),
            confirm=half.unique_key,
            apply=apply,
        )

    return await run_change(call, how, plan)


async def _half(call: Call, given: HalfRef) -> Any:
    for half in await call.admin.transactions.list():
        if (half.broker_name, half.queue_offset) == (given.broker, given.queue_offset):
            return half
    raise NotFoundError("half message", f"{given.broker}@{given.queue_offset}", "it was decided meanwhile")
