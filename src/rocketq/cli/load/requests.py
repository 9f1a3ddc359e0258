"""Requests, built before the clock starts, and answers, parsed only as far as needed."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rocketq.protocol.acl import Credentials, sign
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.frame import decode_command, encode_command

GROUP: Final = "ROCKETQ_BENCH"
_U32: Final = struct.Struct(">I")
_FORM_MASK: Final = 0xFFFFFF
_CODE_AT: Final = b'"code":'


@dataclass(frozen=True, slots=True)
class SendShape:
    """What is sent: `batch` messages of `body_bytes` in each request."""

    topic: str
    body_bytes: int
    batch: int = 1


@dataclass(frozen=True, slots=True)
class QueueStretch:
    """Messages of a queue, [start, stop)."""

    topic: str
    queue_id: int
    start: int
    stop: int


def send_requests(shape: SendShape, queue_ids: Sequence[int], count: int, born_ms: int, seed: int) -> list[bytes]:
    """Frames of `count` sends, queues in turn; each message has a unique key."""
    return [_send(shape, queue_ids[number % len(queue_ids)], number, born_ms, seed) for number in range(count)]


def _send(shape: SendShape, queue_id: int, number: int, born_ms: int, seed: int) -> bytes:
    body = bytes((number + step) % 26 + 97 for step in range(shape.body_bytes))
    batched = shape.batch > 1
    fields = {"a": GROUP, "b": shape.topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0", "g": str(born_ms)}
    fields |= {"h": "0", "i": "" if batched else _properties(seed, number, 0), "j": "0", "k": "false"}
    fields["m"] = "true" if batched else "false"
    if batched:
        body = b"".join(_inner(body, _properties(seed, number, part).encode()) for part in range(shape.batch))
    code = RequestCode.SEND_BATCH_MESSAGE if batched else RequestCode.SEND_MESSAGE_V2
    return encode_command(Command(code=code, opaque=number, ext_fields=fields, body=body))


def _properties(seed: int, number: int, part: int) -> str:
    return f"UNIQ_KEY\x01{seed & 0xFFFFFFFFFFFFFFFF:016X}{number:08X}{part:08X}\x02WAIT\x01true"


def _inner(body: bytes, properties: bytes) -> bytes:
    size = 22 + len(body) + len(properties)
    return struct.pack(">5i", size, 0, 0, 0, len(body)) + body + struct.pack(">h", len(properties)) + properties


def pull_requests(stretch: QueueStretch, pull_count: int, requests_max: int) -> list[bytes]:
    """Frames that pull a stretch from its start to its end."""
    offsets = range(stretch.start, stretch.stop, pull_count)[:requests_max]
    return [_pull(stretch, offset, pull_count, number) for number, offset in enumerate(offsets)]


def _pull(stretch: QueueStretch, offset: int, pull_count: int, opaque: int) -> bytes:
    fields = {"consumerGroup": GROUP, "topic": stretch.topic, "queueId": str(stretch.queue_id)}
    fields |= {"queueOffset": str(offset), "maxMsgNums": str(pull_count), "sysFlag": "4", "commitOffset": "0"}
    fields |= {"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    return encode_command(Command(code=RequestCode.PULL_MESSAGE, opaque=opaque, ext_fields=fields))


def signed(frames: list[bytes], credentials: Credentials) -> list[bytes]:
    """The same requests, each with a signature."""
    return [encode_command(sign(decode_command(frame[4:]), credentials)) for frame in frames]


def frames_in(data: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Where each whole frame in the data starts and ends."""
    at, end = 0, len(data)
    while end - at >= 4:
        stop = at + 4 + _U32.unpack_from(data, at)[0]
        if stop > end:
            return
        yield at, stop
        at = stop


def is_success(data: bytes | bytearray, at: int, stop: int) -> bool:
    """Whether the answer at [at, stop) has code 0, in either form of header."""
    mark = _U32.unpack_from(data, at + 4)[0]
    if mark >> 24:
        return data[at + 8 : at + 10] == b"\0\0"
    found = data.find(_CODE_AT, at + 8, min(stop, at + 8 + (mark & _FORM_MASK)))
    return found >= 0 and data[found + 7 : found + 8] == b"0" and data[found + 8 : found + 9] in (b",", b"}")


def header_text(data: bytes | bytearray, at: int) -> str:
    """Decodes a broker's answer for display."""
    header_bytes = _U32.unpack_from(data, at + 4)[0] & _FORM_MASK
    return bytes(data[at + 8 : at + 8 + min(header_bytes, 500)]).decode("utf-8", "replace")


def count_records(data: bytes | bytearray, at: int, stop: int) -> int:
    """How many messages an answer to a pull brings."""
    at += 8 + (_U32.unpack_from(data, at + 4)[0] & _FORM_MASK)
    count = 0
    while stop - at >= 4:
        size = _U32.unpack_from(data, at)[0]
        if size <= 4:
            break
        at += size
        count += 1
    return count
