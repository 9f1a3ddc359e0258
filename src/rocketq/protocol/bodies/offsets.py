"""Tables of offsets: all of a broker's, resets, one consumer's view."""

from __future__ import annotations

from typing import Any, Self

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.json_body import Body, body, member, read_members
from rocketq.protocol.bodies.queues import DataVersion, MessageQueue
from rocketq.protocol.fastjson import dumps


@body
class ConsumerOffsets(Body):
    """By `topic@group` and queue id: an answer, and the file consumerOffset.json."""

    offsets: dict[str, dict[int, int]] = member("offsetTable", factory=dict)
    data_version: DataVersion | None = member("dataVersion", default=None)
    group_topics: dict[str, tuple[str, ...]] | None = member("groupTopicMap", default=None)


@body
class DelayOffsets(Body):
    """By delay level: an answer, and the file delayOffset.json."""

    offsets: dict[int, int] = member("offsetTable", factory=dict)
    data_version: DataVersion | None = member("dataVersion", default=None)


@body
class CorrectionOffsets(Body):
    offsets: dict[int, int] = member("correctionOffsets", factory=dict)


@body
class ResetOffsets(Body):
    """Where each queue starts again.

    Written with objects as keys for Java and Go, which recognize this form because it is no valid JSON, and with
    `encode_list` for C++ consumers. All forms are read.
    """

    offsets: dict[MessageQueue, int] = member("offsetTable", factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        entries = value.get("offsetTable") if isinstance(value, dict) else None
        if isinstance(entries, list):
            return cls(offsets=dict(_read_entry(entry) for entry in entries))
        return cls(**read_members(cls, value))  # super() is lost in a class with slots

    def encode_list(self) -> bytes:
        entries = (dict(queue.to_json(), offset=offset) for queue, offset in self.offsets.items())
        return dumps({"offsetTable": [dict(sorted(entry.items())) for entry in entries]})


def _read_entry(entry: Any) -> tuple[MessageQueue, int]:
    """`{queue members, offset}`, or the pair `[queue, offset]`."""
    queue, offset = entry if isinstance(entry, list) and len(entry) == 2 else (entry, _offset_of(entry))
    if type(offset) is not int:
        raise RemoteProtocolError("ResetOffsets.offsetTable: an entry has no offset")
    return MessageQueue.from_json(queue), offset


def _offset_of(entry: Any) -> Any:
    return entry.get("offset") if isinstance(entry, dict) else None


@body
class ConsumerStatus(Body):
    """A client answers with `queues`; the broker collects the answers of all clients in `consumers`."""

    queues: dict[MessageQueue, int] = member("messageQueueTable", factory=dict)
    consumers: dict[str, dict[MessageQueue, int]] = member("consumerTable", factory=dict)


@body
class TimeSpan(Body):
    """The texts are the same times for people; they are derived and may be missing."""

    queue: MessageQueue = member("messageQueue")
    min_ms: int = member("minTimeStamp", default=0)
    max_ms: int = member("maxTimeStamp", default=0)
    consume_ms: int = member("consumeTimeStamp", default=0)
    delay_ms: int = member("delayTime", default=0)
    min_text: str | None = member("minTimeStampStr", default=None)
    max_text: str | None = member("maxTimeStampStr", default=None)
    consume_text: str | None = member("consumeTimeStampStr", default=None)


@body
class TimeSpans(Body):
    spans: tuple[TimeSpan, ...] = member("consumeTimeSpanSet", default=())


@body
class OffsetMoved(Body):
    """The body of a message in OFFSET_MOVED_EVENT."""

    group: str = member("consumerGroup", default="")
    queue: MessageQueue = member("messageQueue")
    requested_offset: int = member("offsetRequest", default=0)
    new_offset: int = member("offsetNew", default=0)
