"""Messages as the API shows them: bodies decoded, cut to a preview, and masked for roles that may not see them."""

from __future__ import annotations

import base64
import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketq.client.admin.dead_letters import LetterRef, letter_ref, origin_of
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.console.config import Role
from rocketq.protocol.names import Property

PREVIEW_BYTES: Final = 65_536
ROW_CHARS: Final = 240
MASK: Final = "•••"
CAUSES: Final = ("exception", "EXCEPTION", "error", "ERROR", "cause", "CONSUME_EXCEPTION", "ROCKETQ_EXCEPTION")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """A message in a list: `text` is the start of its body."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    message_id: str
    offset_message_id: str
    tag: str | None
    keys: tuple[str, ...]
    born_ms: int
    store_ms: int
    reconsume_times: int
    body_bytes: int
    text: str
    is_binary: bool = False
    masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDetail:
    """A message with everything about it. The body is text or base64, cut at 64 KiB unless all of it was asked for."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    message_id: str
    offset_message_id: str
    tag: str | None
    keys: tuple[str, ...]
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    reconsume_times: int
    flag: int
    sys_flag: int
    stored_bytes: int
    body_bytes: int
    properties: Mapping[str, str]
    body: str | None = None
    body_base64: str | None = None
    body_fault: str | None = None
    compression: str | None = None
    truncated: bool = False
    masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRow:
    """A dead letter in a list."""

    ref: LetterRef
    origin_topic: str | None
    origin_id: str | None
    cause: str
    reconsume_times: int
    message: MessageRow
    replayed: tuple[str, ...] = field(default=())


def message_row(message: StoredMessage, mask: Mask) -> MessageRow:
    body, masked = mask.apply(message)
    text, is_binary = _text(body[: ROW_CHARS * 4])
    return MessageRow(
        topic=message.topic,
        broker=message.queue.broker_name,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        tag=message.tag,
        keys=message.keys,
        born_ms=message.born_ms,
        store_ms=message.store_ms,
        reconsume_times=message.reconsume_times,
        body_bytes=len(message.body),
        text=text[:ROW_CHARS],
        is_binary=is_binary,
        masked=masked,
    )


def message_detail(message: StoredMessage, mask: Mask, *, whole: bool = False) -> MessageDetail:
    body, masked = mask.apply(message)
    shown = body if whole else body[:PREVIEW_BYTES]
    text: str | None = None
    try:
        text = shown.decode()
    except UnicodeDecodeError as error:
        if len(shown) < len(body) and error.start >= len(shown) - 3:  # a character was cut in two
            text = shown[: error.start].decode()
    return MessageDetail(
        topic=message.topic,
        broker=message.queue.broker_name,
        queue_id=message.queue.queue_id,
        queue_offset=message.queue_offset,
        message_id=message.message_id,
        offset_message_id=message.offset_message_id,
        tag=message.tag,
        keys=message.keys,
        born_ms=message.born_ms,
        born_host=str(message.born_host),
        store_ms=message.store_ms,
        store_host=str(message.store_host),
        reconsume_times=message.reconsume_times,
        flag=message.flag,
        sys_flag=message.sys_flag,
        stored_bytes=message.stored_bytes,
        body_bytes=len(message.body),
        properties={} if masked and mask.hides_all(message.topic) else dict(message.properties),
        body=text,
        body_base64=None if text is not None else base64.b64encode(shown).decode(),
        body_fault=message.body_fault,
        compression=_compression(message.sys_flag),
        truncated=len(shown) < len(body),
        masked=masked,
    )


def letter_row(message: StoredMessage, mask: Mask, replayed: tuple[str, ...] = ()) -> LetterRow:
    return LetterRow(
        ref=letter_ref(message),
        origin_topic=origin_of(message),
        origin_id=message.properties.get(Property.DLQ_ORIGIN_MESSAGE_ID)
        or message.properties.get(Property.ORIGIN_MESSAGE_ID),
        cause=cause_of(message),
        reconsume_times=message.reconsume_times,
        message=message_row(message, mask),
        replayed=replayed,
    )


def cause_of(message: StoredMessage) -> str:
    """Why it died, as far as a property says so; else its tag, with digits replaced."""
    for name in CAUSES:
        if found := message.properties.get(name):
            return "".join("#" if char.isdigit() else char for char in found[:120])
    return f"tag {message.tag}" if message.tag else "unknown"


class Mask:
    """Hides fields of bodies from viewers, by patterns of topics."""

    def __init__(self, rules: Mapping[str, tuple[str, ...]], role: Role) -> None:
        self._rules = rules if role < Role.OPERATOR else {}

    def hides_all(self, topic: str) -> bool:
        return any(not fields and fnmatch.fnmatchcase(topic, pattern) for pattern, fields in self._rules.items())

    def apply(self, message: StoredMessage) -> tuple[bytes, bool]:
        """The body as it may be seen, and whether something was hidden."""
        rules = [fields for pattern, fields in self._rules.items() if fnmatch.fnmatchcase(message.topic, pattern)]
        if not rules:
            return message.body, False
        if any(not fields for fields in rules):
            return MASK.encode(), True
        hidden = {name for fields in rules for name in fields}
        try:
            value = json.loads(message.body)
        except ValueError:
            return MASK.encode(), True  # what cannot be read cannot be masked in parts
        return json.dumps(_masked(value, hidden), ensure_ascii=False).encode(), True


def _masked(value: Any, hidden: set[str]) -> Any:
    if isinstance(value, dict):
        return {name: MASK if name in hidden else _masked(each, hidden) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, hidden) for each in value]
    return value


def _text(data: bytes) -> tuple[str, bool]:
    text = data.decode("utf-8", "replace")
    is_binary = b"\x00" in data or text.count("\ufffd") > max(1, len(text) // 20)
    return (data[:48].hex(" "), True) if is_binary else (text, False)


_COMPRESSED: Final = 0x1
_KIND_MASK: Final = 0x700
_KINDS: Final = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}


def _compression(sys_flag: int) -> str | None:
    return _KINDS.get(sys_flag & _KIND_MASK, "unknown") if sys_flag & _COMPRESSED else None
