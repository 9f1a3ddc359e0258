"""Messages as a producer was told, and as a broker or our store shows them: values that compare field by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketq.model import Host, SysFlag

Queue = tuple[str, int]
Place = tuple[str, int, int]
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """A message as its producer knows it. Topic and queue are those it is stored in."""

    kind: str
    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    unique_key: str | None
    keys: str | None
    tags: str | None
    body_sha256: str
    body_bytes: int

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Acknowledged:
        return cls(
            kind=line["kind"],
            topic=line["topic"],
            queue_id=line["queueId"],
            queue_offset=line["queueOffset"],
            message_id=line["offsetMsgId"],
            unique_key=line.get("msgId"),
            keys=line.get("keys"),
            tags=line.get("tags"),
            body_sha256=line["bodySha256"],
            body_bytes=line["bodyLength"],
        )

    def to_line(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "topic": self.topic,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
            "offsetMsgId": self.message_id,
            "msgId": self.unique_key,
            "keys": self.keys,
            "tags": self.tags,
            "bodySha256": self.body_sha256,
            "bodyLength": self.body_bytes,
        }

    @property
    def place(self) -> Place:
        return self.topic, self.queue_id, self.queue_offset

    @property
    def index_keys(self) -> list[str]:
        """What the index must find it by. (Not the unique key in a batch of a 5.x client: that is the batch's.)"""
        unique = [self.unique_key] if self.unique_key and self.kind != "batch" else []
        return unique + [key for key in (self.keys or "").split(" ") if key]

    @property
    def is_half(self) -> bool:
        """Hidden until committed: clients reach it by id only."""
        return self.topic == HALF_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A message as it was read back, its body uncompressed: a 5.x client clears that bit of sysFlag, so we do, too."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    size: int
    message_id: str
    body_sha256: str
    body_bytes: int
    body_crc: int
    properties: Mapping[str, str]
    flag: int
    sys_flag: int
    born_ms: int
    born_host: Host
    store_ms: int
    store_host: Host
    reconsume_times: int
    prepared_offset: int

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Stored:
        return cls(
            topic=line["topic"],
            queue_id=line["queueId"],
            queue_offset=line["queueOffset"],
            log_offset=line["logOffset"],
            size=line["size"],
            message_id=line["offsetMsgId"],
            body_sha256=line["bodySha256"],
            body_bytes=line["bodyLength"],
            body_crc=line["bodyCrc"],
            properties=dict(line["properties"]),
            flag=line["flag"],
            sys_flag=line["sysFlag"] & ~SysFlag.COMPRESSED,
            born_ms=line["bornMs"],
            born_host=_host(line["bornHost"]),
            store_ms=line["storeMs"],
            store_host=_host(line["storeHost"]),
            reconsume_times=line["reconsumeTimes"],
            prepared_offset=line["preparedOffset"],
        )

    @property
    def place(self) -> Place:
        return self.topic, self.queue_id, self.queue_offset

    @property
    def index_keys(self) -> list[str]:
        """What the index holds of it: the unique key, then the keys."""
        unique = self.properties.get("UNIQ_KEY")
        return ([unique] if unique else []) + [key for key in self.properties.get("KEYS", "").split(" ") if key]


def _host(text: str) -> Host:
    ip, _, port = text.rpartition(":")
    return Host.of(ip, int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything one reader saw of a store: by pull, by id and by key."""

    bounds: Mapping[Queue, tuple[int, int]] = field(default_factory=dict)
    pulled: Mapping[Place, Stored] = field(default_factory=dict)
    by_id: Mapping[str, Stored] = field(default_factory=dict)
    by_key: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def by_place(messages: Iterable[Stored]) -> dict[Place, Stored]:
    """Messages by topic, queue and queue offset; two in one place are an error."""
    places: dict[Place, Stored] = {}
    for message in messages:
        assert message.place not in places, f"two messages at {message.place}"
        places[message.place] = message
    return places
