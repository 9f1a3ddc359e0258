"""The body of a broker's registration, as JSON or compressed.

compressed = zlib( text DataVersion as JSON
                   i32 number of topics, *text        "name readQueues writeQueues perm filterType [attributes]"
                   text filter servers as a JSON list
                   [ i32 number of queue mappings, *text ]      from 5.0 on )
text       = i32 length, bytes
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.protocol.fastjson import dumps, loads, run_steps
from rocketq.protocol.flags import TopicFilterType
from rocketq.protocol.versions import MAPPINGS_SINCE, OUR_VERSION, REGISTER_BODY_SINCE

INFLATED_BYTES_MAX: Final = 64 * 1024 * 1024
TOPIC_LINE_BYTES_MAX: Final = 4 * 1024
"""Of one topic with its attributes; a name has at most 255 characters."""
_SHORT_TEXT_BYTES_MAX: Final = 4 * 1024
_FILTER_SERVERS_BYTES_MAX: Final = 64 * 1024
_INFLATED_STEP_BYTES: Final = 64 * 1024


@body
class Registration(Body):
    topics: TopicConfigTable = member("topicConfigSerializeWrapper", factory=TopicConfigTable)
    filter_servers: tuple[str, ...] = member("filterServerList", default=())

    def encode_compressed(self, version: int = OUR_VERSION) -> bytes:
        return compress_parts(self.compressed_parts(version))

    def compressed_parts(self, version: int = OUR_VERSION) -> Iterator[bytes]:
        """The compressed form before it is compressed; a topic's order and sysFlag, and before 5.0 its attributes, are
        lost in it."""
        newer = version >= MAPPINGS_SINCE
        yield _text(self.topics.data_version.encode())
        yield _i32(len(self.topics.topics))
        for topic in self.topics.topics.values():
            yield _text(_topic_line(topic, newer))
        yield _text(dumps(list(self.filter_servers)))
        if newer:
            yield _i32(0)


def compress_parts(parts: Iterable[bytes]) -> bytes:
    return zlib.compress(b"".join(parts), 9)


def decode_registration(data: bytes, *, compressed: bool, version: int) -> Registration:
    """Decode the body of REGISTER_BROKER by the header's fields; no body is an empty registration."""
    return run_steps(registration_steps(data, compressed=compressed, version=version))


def registration_steps(data: bytes, *, compressed: bool, version: int) -> Generator[None, None, Registration]:
    """As `decode_registration`, in steps that take microseconds each."""
    if not data:
        return Registration()
    if version < REGISTER_BODY_SINCE:
        return Registration(topics=(yield from TopicConfigTable.decode_steps(data)))
    return (yield from _compressed_steps(data) if compressed else Registration.decode_steps(data))


def _compressed_steps(data: bytes) -> Generator[None, None, Registration]:
    """Queue mappings at the end are ignored, as older NameServers do."""
    reader = _Reader((yield from _inflate_steps(data)))
    data_version = DataVersion.decode(reader.text(_SHORT_TEXT_BYTES_MAX))
    topics = {}
    for _ in range(reader.count()):
        topic = _read_topic_line(reader.text(TOPIC_LINE_BYTES_MAX))
        topics[topic.topic] = topic
        yield
    table = TopicConfigTable(data_version=data_version, topics=topics)
    return replace(
        Registration.from_json(
            {"filterServerList": loads(reader.text(_FILTER_SERVERS_BYTES_MAX), relaxed_chars_max=_SHORT_TEXT_BYTES_MAX)}
        ),
        topics=table,
    )


def _inflate_steps(data: bytes) -> Generator[None, None, bytearray]:
    inflater, inflated = zlib.decompressobj(), bytearray()  # grows without a copy, where joining parts takes 30 ms
    while data and len(inflated) < INFLATED_BYTES_MAX and not inflater.eof:
        try:
            inflated += inflater.decompress(data, min(INFLATED_BYTES_MAX - len(inflated), _INFLATED_STEP_BYTES))
        except zlib.error as error:
            raise RemoteProtocolError(f"a compressed registration cannot be decompressed: {error}") from None
        data = inflater.unconsumed_tail
        yield
    if not inflater.eof:
        raise RemoteProtocolError(f"a compressed registration is truncated or exceeds {INFLATED_BYTES_MAX} bytes")
    return inflated


def _topic_line(topic: TopicConfig, newer: bool) -> bytes:
    parts: list[Any] = [topic.topic, topic.read_queue_count, topic.write_queue_count, topic.perm, topic.filter_type]
    if newer:
        parts.append(dumps(dict(topic.attributes or {})).decode())
    return " ".join(str(part) for part in parts).encode()


def _read_topic_line(line: bytes) -> TopicConfig:
    parts = line.decode("utf-8", "replace").split(" ", 5)
    try:
        name, reads, writes, perm, filter_type = parts[:5]
        return TopicConfig(
            topic=name,
            read_queue_count=int(reads),
            write_queue_count=int(writes),
            perm=int(perm),
            filter_type=TopicFilterType(filter_type),
            attributes=_attributes(parts[5]) if len(parts) > 5 else None,
        )
    except ValueError:
        raise RemoteProtocolError(f"not a topic in a registration: {line[:80]!r}") from None


def _attributes(text: str) -> dict[str, str]:
    value = loads(text) if text else {}
    if not isinstance(value, dict):
        raise RemoteProtocolError("a topic's attributes in a registration are not an object")
    return {str(name): str(item) for name, item in value.items()}


def _text(data: bytes) -> bytes:
    return _i32(len(data)) + data


def _i32(number: int) -> bytes:
    return number.to_bytes(4, "big")


class _Reader:
    def __init__(self, data: bytearray) -> None:
        self._data = data
        self._at = 0

    def count(self) -> int:
        number = int.from_bytes(self._take(4), "big", signed=True)
        if not 0 <= number <= len(self._data):
            raise RemoteProtocolError(f"a registration announces {number} of something in {len(self._data)} bytes")
        return number

    def text(self, bytes_max: int) -> bytes:
        if (length := self.count()) > bytes_max:
            raise RemoteProtocolError(f"a text in a registration has {length} bytes, {bytes_max} are allowed")
        return self._take(length)

    def _take(self, length: int) -> bytes:
        taken = bytes(self._data[self._at : self._at + length])
        if len(taken) < length:
            raise RemoteProtocolError("a registration is cut off")
        self._at += length
        return taken
