"""Messages of every kind as our broker would hand them to the store: redirected ones already in their system topic."""

from __future__ import annotations

import hashlib
import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from rocketq.model import Host, NewMessage, SysFlag
from rocketq.protocol.compression import compress
from rocketq.protocol.messages import BatchElement, encode_batch
from rocketq.protocol.properties import encode_properties
from rocketq.store import Store

from .messages import HALF_TOPIC, Acknowledged
from .ours import QUEUE_COUNT

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TOPICS = ("Plain", "Ordered", "Batch", "Delayed", "Transactions", "Large")
TAGS = ("TagA", "TagZZZZZZ", "中文", "😀", "polygenelubricants", "a||b")
BORN = Host.of("127.0.0.1", 50_000)
BORN_V6 = Host.of("2001:db8::7", 50_001)

_counter = itertools.count()


def topics(prefix: str) -> list[str]:
    return [prefix + name for name in TOPICS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message and what is said about it once it is stored."""

    kind: str
    message: NewMessage
    unique_key: str
    keys: str | None
    tags: str | None
    plain_body: bytes

    def acknowledged(self, queue_offset: int, message_id: str) -> Acknowledged:
        return Acknowledged(
            kind=self.kind,
            topic=self.message.topic,
            queue_id=self.message.queue_id,
            queue_offset=queue_offset,
            message_id=message_id,
            unique_key=self.unique_key,
            keys=self.keys,
            tags=self.tags,
            body_sha256=hashlib.sha256(self.plain_body).hexdigest(),
            body_bytes=len(self.plain_body),
        )


def unique_key() -> str:
    """As a Java client makes it: IP, pid, loader, milliseconds of the local month, counter. Queries read its time."""
    now = datetime.now()
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    since_ms = int((now.timestamp() - month.timestamp()) * 1000)
    counter = next(_counter)
    return f"7F0000010001{counter >> 16:08X}{since_ms:08X}{counter & 0xFFFF:04X}"


def draft(
    kind: str,
    topic: str,
    queue_id: int,
    body: bytes,
    *,
    keys: str | None = None,
    tags: str | None = None,
    extra: dict[str, str] | None = None,
    flag: int = 0,
    sys_flag: int = 0,
    born_host: Host = BORN,
    prepared_offset: int = 0,
) -> Draft:
    unique = unique_key()
    properties = {"UNIQ_KEY": unique, "CLUSTER": "DefaultCluster", "WAIT": "true"}
    properties |= {"KEYS": keys} if keys else {}
    properties |= {"TAGS": tags} if tags else {}
    message = NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=compress(body) if sys_flag & SysFlag.COMPRESSED else body,
        properties=encode_properties(properties | (extra or {})),
        flag=flag,
        sys_flag=sys_flag,
        born_ms=int(time.time() * 1000),
        born_host=born_host,
        prepared_offset=prepared_offset,
    )
    return Draft(kind=kind, message=message, unique_key=unique, keys=keys, tags=tags, plain_body=body)


def append(store: Store, one: Draft) -> Acknowledged:
    result = store.append(one.message)
    assert result.status.stored, f"{one.kind}: {result.status} {result.reason}"
    return one.acknowledged(result.queue_offset, result.message_id)


def append_batch(store: Store, drafts: list[Draft]) -> list[Acknowledged]:
    """As a client packs it: topic, queue, times and hosts are the batch's, the rest is each message's own."""
    elements = [BatchElement(body=one.message.body, properties=one.message.properties) for one in drafts]
    batch = replace(drafts[0].message, body=encode_batch(elements), properties=encode_properties({"WAIT": "true"}))
    result = store.append_batch(batch)
    assert result.status.stored, f"batch: {result.status} {result.reason}"
    places = enumerate(zip(drafts, result.message_ids, strict=True), start=result.queue_offset)
    return [one.acknowledged(queue_offset, message_id) for queue_offset, (one, message_id) in places]


def append_few(store: Store, prefix: str, seed: int) -> list[Acknowledged]:
    """Plain, tagged, keyed and a batch, to topics that exist already."""
    source = random.Random(seed)
    acknowledged = []
    for number in range(40):
        topic, queue_id = prefix + "Plain", number % QUEUE_COUNT
        body = source.randbytes(1 + source.randrange(600))
        keys = f"ours-{seed}-{number} ours-{seed}" if number % 2 else None
        tags = TAGS[number % len(TAGS)] if number % 3 else None
        acknowledged.append(append(store, draft("plain", topic, queue_id, body, keys=keys, tags=tags)))
    return acknowledged + append_batch(store, list(_batch(prefix, f"ours-{seed}-batch", 12, source)))


def append_all_kinds(store: Store, prefix: str, seed: int) -> list[Acknowledged]:
    """Every kind, enough of them to roll log, queue and index files (of the sizes in apache.SMALL_FILES)."""
    source = random.Random(seed)
    acknowledged = append_few(store, prefix, seed)
    acknowledged += [append(store, one) for one in _singles(prefix, seed, source)]
    for size in (1, 5, 30):
        acknowledged += append_batch(store, list(_batch(prefix, f"batch-{seed}-{size}", size, source)))
    acknowledged += [append(store, one) for one in _large(prefix, seed, source)]
    acknowledged += [append(store, one) for one in _delayed(prefix, seed, source)]
    return acknowledged + _transactions(store, prefix, seed, source)


def _singles(prefix: str, seed: int, source: random.Random) -> Iterator[Draft]:
    plain = prefix + "Plain"
    for number in range(1300):
        yield draft("plain", plain, number % QUEUE_COUNT, source.randbytes(1 + source.randrange(400)))
    for number in range(24):
        tags, keys = TAGS[number % len(TAGS)], f"key-{seed}-{number}"
        yield draft("tagged", plain, number % QUEUE_COUNT, source.randbytes(50), tags=tags, flag=number)
        yield draft("keyed", plain, number % QUEUE_COUNT, source.randbytes(50), keys=keys, tags=tags)
    for number in range(12):
        keys = f"multi-{seed}-{number} shared-{seed} 键é😀-{seed}-{number}"
        colour = {"colour": "blå 😀"}
        yield draft("multi-key", plain, number % QUEUE_COUNT, source.randbytes(80), keys=keys, extra=colour)
    for number in range(4):
        keys = f"v6-{seed}-{number}"
        yield draft("ipv6-born", plain, number, source.randbytes(30), keys=keys, born_host=BORN_V6)
    yield draft("odd-value", plain, 0, source.randbytes(10), extra={"colour": "a\x01b"})
    for number in range(60):
        queue_id = 0 if number < 54 else 1 + number % 3
        yield draft("ordered", prefix + "Ordered", queue_id, f"order {seed} step {number}".encode(), tags="step")


def _batch(prefix: str, key: str, size: int, source: random.Random) -> Iterator[Draft]:
    for number in range(size):
        keys, tags = f"{key}-{number}", TAGS[number % 2]
        yield draft("our-batch", prefix + "Batch", size % 2, source.randbytes(30 + number), keys=keys, tags=tags)


def _large(prefix: str, seed: int, source: random.Random) -> Iterator[Draft]:
    for number, size in enumerate([5_000, 64 << 10, 300_000, 1 << 20] * 2):
        topic, queue_id = prefix + "Large", number % QUEUE_COUNT
        zlib_flag = SysFlag.COMPRESSED | (SysFlag.COMPRESSION_ZLIB if number % 2 else 0)
        text = bytes(97 + (at + number) % 26 for at in range(1000)) * (size // 1000)
        yield draft("compressed", topic, queue_id, text, keys=f"zip-{seed}-{number}", sys_flag=zlib_flag)
        yield draft("raw", topic, queue_id, source.randbytes(size), keys=f"raw-{seed}-{number}")


def _delayed(prefix: str, seed: int, source: random.Random) -> Iterator[Draft]:
    for number, level in enumerate((1, 18, 1, 17)):
        real = {"DELAY": str(level), "REAL_TOPIC": prefix + "Delayed", "REAL_QID": str(number % QUEUE_COUNT)}
        keys = f"delay-{seed}-{number}"
        kind = "due-soon" if level == 1 else "delayed"
        yield draft(kind, SCHEDULE_TOPIC, level - 1, source.randbytes(40), keys=keys, tags="later", extra=real)


def _transactions(store: Store, prefix: str, seed: int, source: random.Random) -> list[Acknowledged]:
    """Halves, each second one committed."""
    acknowledged = []
    for number in range(6):
        queue_id = number % QUEUE_COUNT
        real = {"REAL_TOPIC": prefix + "Transactions", "REAL_QID": str(queue_id), "TRAN_MSG": "true", "PGROUP": "ours"}
        keys = f"tx-{seed}-{number}"
        half = draft("half", HALF_TOPIC, 0, source.randbytes(60), keys=keys, tags="tx", extra=real)
        result = store.append(half.message)
        acknowledged.append(half.acknowledged(result.queue_offset, result.message_id))
        if number % 2 == 0:
            message = replace(
                half.message,
                topic=prefix + "Transactions",
                queue_id=queue_id,
                sys_flag=SysFlag.TRANSACTION_COMMIT,
                prepared_offset=result.log_offset,
            )
            acknowledged.append(append(store, replace(half, kind="tx-delivered", message=message)))
    return acknowledged
