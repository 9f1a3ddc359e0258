"""Messages in bodies: stored records (pull, query, view answers) and the elements of a batch send.

record  = totalSize i32, magic i32, bodyCRC i32, queueId i32, flag i32, queueOffset i64, logOffset i64,
          sysFlag i32, bornMs i64, bornHost, storeMs i64, storeHost, reconsumeTimes i32, preparedOffset i64,
          bodyLength i32, body, topicLength (u8, with the V2 magic i16), topic, propertiesLength i16, properties
host    = IPv4 (4 bytes) or, by a bit of sysFlag, IPv6 (16 bytes), port i32
element = totalSize i32, magic i32, bodyCRC i32, flag i32, bodyLength i32, body, propertiesLength i16, properties
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import Struct, error
from typing import Final

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.model import Host, Record, SysFlag

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477

_VERSIONS = {MAGIC_V1: 1, MAGIC_V2: 2}
_MAGICS = {version: magic for magic, version in _VERSIONS.items()}
_HEAD = Struct(">iiiiiqqiq")
_ELEMENT_HEAD = Struct(">iiiii")
_I16, _I32, _I64 = Struct(">h"), Struct(">i"), Struct(">q")
_RECONSUME_PREPARED_BODY = Struct(">iqi")


def decode_records(data: bytes) -> list[Record]:
    """The records of a body, one after the other; RemoteProtocolError when they do not fill it exactly."""
    records, at = [], 0
    while at < len(data):
        try:
            record = _decode_record(data, at)
        except error as cause:
            raise RemoteProtocolError(f"the record at byte {at} is cut off: {cause}") from None
        records.append(record)
        at += record.size
    return records


def encode_record(record: Record) -> bytes:
    """The bytes of a record; its size, its body CRC and the host bits of its sysFlag are recomputed."""
    sys_flag = record.sys_flag & ~(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
    sys_flag |= SysFlag.BORN_HOST_V6 if record.born_host.is_ipv6 else 0
    sys_flag |= SysFlag.STORE_HOST_V6 if record.store_host.is_ipv6 else 0
    tail = b"".join(
        (
            record.born_host.packed(),
            _I64.pack(record.store_ms),
            record.store_host.packed(),
            _RECONSUME_PREPARED_BODY.pack(record.reconsume_times, record.prepared_offset, len(record.body)),
            record.body,
            _packed_topic(record),
            _packed_properties(record.properties),
        )
    )
    head = _HEAD.pack(
        _HEAD.size + len(tail),
        _MAGICS[record.version],
        body_crc(record.body),
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.log_offset,
        sys_flag,
        record.born_ms,
    )
    return head + tail


def body_crc(body: bytes) -> int:
    """CRC-32 as the protocol uses it: of a record's body as stored, and of a registration (`bodyCrc32`)."""
    return zlib.crc32(body) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchElement:
    """One message of a batch send; topic, queue and times are the request's."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def encode_batch(elements: Iterable[BatchElement]) -> bytes:
    return b"".join(_encode_element(element) for element in elements)


def decode_batch(data: bytes) -> list[BatchElement]:
    """The elements of a batch; RemoteProtocolError when it cannot be cut into any."""
    elements = list(batch_elements(data))
    if not elements:
        raise RemoteProtocolError("a batch is empty")
    return elements


def _decode_record(data: bytes, at: int) -> Record:
    size, magic, crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms = _HEAD.unpack_from(data, at)
    if magic not in _VERSIONS:
        raise RemoteProtocolError(f"the record at byte {at} has the unknown magic {magic & 0xFFFFFFFF:#010x}")
    reader = _Reader(data, at + _HEAD.size, at + size)
    born_host = reader.host(20 if sys_flag & SysFlag.BORN_HOST_V6 else 8)
    (store_ms,) = reader.numbers(_I64)
    store_host = reader.host(20 if sys_flag & SysFlag.STORE_HOST_V6 else 8)
    reconsume_times, prepared_offset, body_bytes = reader.numbers(_RECONSUME_PREPARED_BODY)
    body = reader.take(body_bytes)
    topic_bytes = reader.take(1)[0] if magic == MAGIC_V1 else reader.numbers(_I16)[0]
    topic = reader.take(topic_bytes)
    properties = reader.take(reader.numbers(_I16)[0])
    reader.finish()
    return Record(
        size=size,
        version=_VERSIONS[magic],
        body_crc=crc,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        log_offset=log_offset,
        sys_flag=sys_flag,
        born_ms=born_ms,
        born_host=born_host,
        store_ms=store_ms,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_offset=prepared_offset,
        body=body,
        topic=topic.decode("utf-8", "replace"),
        properties=properties,
    )


def _encode_element(element: BatchElement) -> bytes:
    size = _ELEMENT_HEAD.size + len(element.body) + 2 + len(element.properties)
    head = _ELEMENT_HEAD.pack(size, 0, 0, element.flag, len(element.body))
    return b"".join((head, element.body, _packed_properties(element.properties)))


def batch_elements(data: bytes) -> Iterator[BatchElement]:
    at = 0
    while at < len(data):
        try:
            size, _, _, flag, body_bytes = _ELEMENT_HEAD.unpack_from(data, at)
            reader = _Reader(data, at + _ELEMENT_HEAD.size, at + size)
            body = reader.take(body_bytes)
            properties = reader.take(reader.numbers(_I16)[0])
        except error as cause:
            raise RemoteProtocolError(f"the batch element at byte {at} is cut off: {cause}") from None
        reader.finish()
        yield BatchElement(body=body, properties=properties, flag=flag)
        at += size


def _packed_topic(record: Record) -> bytes:
    topic = record.topic.encode("utf-8", "replace")
    length_bytes = 1 if record.version == 1 else 2
    if len(topic) >= 1 << 8 * length_bytes - 1:  # Java reads the length as a signed number
        raise LocalProtocolError(f"a topic of {len(topic)} bytes does not fit a version {record.version} record")
    return len(topic).to_bytes(length_bytes, "big") + topic


def _packed_properties(properties: bytes) -> bytes:
    if len(properties) > 0x7FFF:
        raise LocalProtocolError(f"{len(properties)} bytes of properties are over the limit of {0x7FFF}")
    return _I16.pack(len(properties)) + properties


class _Reader:
    """Reads consecutive fields of one record from a buffer."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        if not at <= end <= len(data):
            raise RemoteProtocolError(f"a record ends at byte {end} of {len(data)}, its fields start at {at}")
        self._data, self._at, self._end = data, at, end

    def numbers(self, layout: Struct) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size))

    def host(self, size: int) -> Host:
        return Host.unpack(self.take(size))

    def take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > self._end:
            raise RemoteProtocolError(f"a record has a field of {size} bytes at {start}, but ends at {self._end}")
        return self._data[start : self._at]

    def finish(self) -> None:
        if self._at != self._end:
            raise RemoteProtocolError(f"a record has {self._end - self._at} bytes too many at {self._at}")
