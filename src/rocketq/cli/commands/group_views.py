"""Groups and offsets for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rocketq.cli.commands.queues import queue_json
from rocketq.cli.commands.tables import NONE, UNKNOWN, pairs, table, time_text
from rocketq.client.admin.groups import GroupStatus
from rocketq.client.admin.offsets import QueueOffset
from rocketq.client.core.offsets import OffsetChange
from rocketq.protocol.versions import version_name


def status_json(status: GroupStatus) -> dict[str, Any]:
    return {
        "group": status.group,
        "online": status.online,
        "consume_type": status.consume_type,
        "model": status.model,
        "from_where": status.from_where,
        "lag": status.lag,
        "lag_known": status.lag_known,
        "consume_tps": status.consume_tps,
        "members": [
            {"client_id": one.client_id, "address": one.addr, "language": one.language, "version": one.version}
            for one in status.members
        ],
        "subscriptions": {topic: one.expression for topic, one in status.subscriptions.items()},
        "conflicts": {topic: list(kinds) for topic, kinds in status.conflicts.items()},
        "queues": [
            {
                **queue_json(one.queue),
                "committed": one.committed,
                "max": one.max_offset,
                "lag": one.lag,
                "unknown": None if one.unknown is None else one.unknown.value,
                "last_ms": one.last_ms,
            }
            for one in status.queues
        ],
        "unreachable": dict(status.unreachable),
    }


def status_text(status: GroupStatus) -> str:
    known = "" if status.lag is not None else f" ({status.lag_known} of what is known)"
    head = {
        "group": status.group,
        "members": len(status.members) or "none: offline",
        "model": status.model.value.lower() if status.model else NONE,
        "starts": status.from_where.value.lower() if status.from_where else NONE,
        "subscribes to": ", ".join(f"{topic} ({one.expression})" for topic, one in status.subscriptions.items())
        or NONE,
        **{f"CONFLICT in {topic}": " against ".join(kinds) for topic, kinds in status.conflicts.items()},
        "lag": f"{UNKNOWN if status.lag is None else status.lag}{known}",
        "consumes per second": f"{status.consume_tps:.1f}",
        **{f"{name} not heard": why for name, why in status.unreachable.items()},
    }
    parts = [pairs(head)]
    if status.members:
        rows = [(one.client_id, one.addr, one.language, version_name(one.version)) for one in status.members]
        parts.append(table(["CLIENT", "ADDRESS", "LANGUAGE", "VERSION"], rows))
    if status.queues:
        parts.append(_queues_text(status))
    return "\n\n".join(parts)


def _queues_text(status: GroupStatus) -> str:
    rows = [
        (
            one.queue.topic,
            one.queue.broker_name,
            one.queue.queue_id,
            one.committed,
            one.max_offset,
            one.lag if one.unknown is None else f"{UNKNOWN} {one.unknown.value}",
            time_text(one.last_ms),
        )
        for one in status.queues
    ]
    return table(["TOPIC", "BROKER", "QUEUE", "COMMITTED", "MAX", "LAG", "LAST CONSUMED WAS STORED"], rows)


def changes_json(group: str, topic: str, changes: Iterable[OffsetChange], preview: bool) -> dict[str, Any]:
    return {
        "group": group,
        "topic": topic,
        "preview": preview,
        "queues": [
            {
                **queue_json(one.queue),
                "before": one.before,
                "after": one.after,
                "again": one.again,
                "min": one.bounds.min_offset,
                "max": one.bounds.max_offset,
            }
            for one in changes
        ],
    }


def changes_text(changes: Sequence[OffsetChange], preview: bool) -> str:
    rows = [
        (one.queue.broker_name, one.queue.queue_id, one.before, one.after, one.again, one.bounds.max_offset)
        for one in changes
    ]
    text = table(["BROKER", "QUEUE", "BEFORE", "AFTER", "AGAIN", "MAX"], rows)
    return text + ("\n\nnothing was changed: --preview" if preview else "")


def offsets_json(group: str, topic: str, offsets: Iterable[QueueOffset]) -> dict[str, Any]:
    return {
        "group": group,
        "topic": topic,
        "queues": [
            {
                **queue_json(one.queue),
                "committed": one.committed,
                "min": one.bounds.min_offset,
                "max": one.bounds.max_offset,
            }
            for one in offsets
        ],
    }


def offsets_text(offsets: Iterable[QueueOffset]) -> str:
    rows = [
        (one.queue.broker_name, one.queue.queue_id, one.committed, one.bounds.min_offset, one.bounds.max_offset)
        for one in offsets
    ]
    return table(["BROKER", "QUEUE", "COMMITTED", "MIN", "MAX"], rows)
