"""A second, independent reader of store directories: plain structs, no code of the store, so that it can judge it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from rocketq.store import StoreConfig

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
FILLER_SIZE = 0x7FFFFFFF
_HEAD = Struct(">iIiiiqqiq")
_UNIT = Struct(">qiq")
_INDEX_HEADER = Struct(">qqqqii")
_INDEX_UNIT = Struct(">iqii")


class Damaged(Exception):
    """The bytes are not what the format says."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record of the log, with its bytes."""

    log_offset: int
    data: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_ms: int
    topic: str
    body: bytes
    properties: dict[str, str]

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def end(self) -> int:
        return self.log_offset + len(self.data)

    @property
    def queued(self) -> bool:
        return self.sys_flag & 0xC in (0, 0x8)

    @property
    def queue(self) -> tuple[str, int]:
        return self.topic, self.queue_id

    @property
    def keys(self) -> list[str]:
        unique = self.properties.get("UNIQ_KEY", "")
        return [key for key in [unique, *self.properties.get("KEYS", "").split(" ")] if key]

    @property
    def body_at(self) -> int:
        """Where the body starts within the record."""
        return 72 + (20 if self.sys_flag & 0x10 else 8) + (20 if self.sys_flag & 0x20 else 8)


def parse(data: bytes, at: int, log_offset: int) -> RawRecord:
    """The record at `at`; Damaged unless everything about it is right."""
    try:
        size, magic, crc, queue_id, _, queue_offset, own_offset, sys_flag, _ = _HEAD.unpack_from(data, at)
    except Exception as error:
        raise Damaged(str(error)) from None
    if magic not in (MAGIC_V1, MAGIC_V2) or size < 91 or at + size > len(data) or own_offset != log_offset:
        raise Damaged(f"no record at {log_offset}: size {size}, magic {magic:#x}, offset {own_offset}")
    record = data[at : at + size]
    next_at = 48 + (20 if sys_flag & 0x10 else 8)
    store_ms = int.from_bytes(record[next_at : next_at + 8], "big")
    next_at += 8 + (20 if sys_flag & 0x20 else 8) + 12
    body_len = int.from_bytes(record[next_at : next_at + 4], "big")
    body = record[next_at + 4 : next_at + 4 + body_len]
    next_at += 4 + body_len
    wide = 1 if magic == MAGIC_V1 else 2
    topic_len = int.from_bytes(record[next_at : next_at + wide], "big")
    topic = record[next_at + wide : next_at + wide + topic_len]
    next_at += wide + topic_len
    properties_len = int.from_bytes(record[next_at : next_at + 2], "big")
    properties = record[next_at + 2 :]
    if len(properties) != properties_len or zlib.crc32(body) & 0x7FFFFFFF != crc:
        raise Damaged(f"the record at {log_offset} does not add up")
    items = (item.partition("\x01") for item in properties.decode(errors="replace").split("\x02"))
    return RawRecord(
        log_offset=log_offset,
        data=record,
        queue_id=queue_id,
        queue_offset=queue_offset,
        sys_flag=sys_flag,
        store_ms=store_ms,
        topic=topic.decode(errors="replace"),
        body=body,
        properties={name: value for name, mark, value in items if mark},
    )


def parse_all(data: bytes) -> list[RawRecord]:
    """Records back to back, each wherever it says it lies."""
    records, at = [], 0
    while at < len(data):
        records.append(parse(data, at, int.from_bytes(data[at + 28 : at + 36], "big")))
        at += records[-1].size
    return records


def log_files(config: StoreConfig) -> list[Path]:
    return sorted(path for path in config.log_dir.iterdir() if path.name.isdigit())


def log_file(config: StoreConfig, log_offset: int) -> Path:
    return config.log_dir / f"{log_offset - log_offset % config.segment_bytes:020d}"


def record_at(config: StoreConfig, log_offset: int) -> RawRecord:
    return parse(log_file(config, log_offset).read_bytes(), log_offset % config.segment_bytes, log_offset)


def walk(config: StoreConfig) -> list[RawRecord]:
    """Every record of a log without damage; its files end in a blank record or in zeros."""
    return list(_walk(config))


def _walk(config: StoreConfig) -> Iterator[RawRecord]:
    for path in log_files(config):
        data, at, base = path.read_bytes(), 0, int(path.name)
        while at + 8 <= len(data):
            if int.from_bytes(data[at + 4 : at + 8], "big") == MAGIC_BLANK:
                break
            if not any(data[at : at + 8]):
                if any(data[at:]):
                    raise Damaged(f"{path.name} holds something behind its end at {at}")
                return
            record = parse(data, at, base + at)
            yield record
            at += record.size


def queue_dirs(config: StoreConfig) -> dict[tuple[str, int], Path]:
    root = config.root / "consumequeue"
    topics = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    return {(topic.name, int(path.name)): path for topic in topics for path in topic.iterdir()}


def queue_files(config: StoreConfig, queue: tuple[str, int]) -> list[Path]:
    path = queue_dirs(config)[queue]
    return sorted(file for file in path.iterdir() if file.name.isdigit())


def index_files(config: StoreConfig) -> list[Path]:
    path = config.root / "index"
    return sorted(file for file in path.iterdir() if file.name.isdigit()) if path.is_dir() else []


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int) -> None:
    """Turn every bit of one byte."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0xFF]))


# Judging a directory that was closed


def check_queues(config: StoreConfig, records: list[RawRecord], others: set[int]) -> None:
    """Units and records match one to one and in order; behind a queue's end there are zeros only. `others` are log
    offsets of records that are damaged or lost: units may still point there, but none has to."""
    by_place = {(*record.queue, record.queue_offset): record for record in records if record.queued}
    for queue in queue_dirs(config):
        ended = False
        for path in queue_files(config, queue):
            data = path.read_bytes()
            assert len(data) == config.queue_file_bytes, f"{path} has {len(data)} bytes"
            for number in range(len(data) // 20):
                log_offset, size, _ = _UNIT.unpack_from(data, number * 20)
                place = (*queue, int(path.name) // 20 + number)
                if size == 0:
                    assert not any(data[number * 20 : number * 20 + 20]), f"half a unit at {place}"
                    ended = True
                    continue
                assert not ended, f"a unit behind the end of its queue at {place}: {log_offset}"
                if size == FILLER_SIZE:
                    assert place not in by_place, f"a filler where a message is: {place}"
                elif place in by_place:
                    record = by_place.pop(place)
                    assert (log_offset, size) == (record.log_offset, record.size), f"{place} points to {log_offset}"
                else:
                    assert log_offset in others, f"the unit at {place} points to {log_offset}, where nothing is"
    assert not by_place, f"{len(by_place)} messages are in no queue, such as {next(iter(by_place))}"


def check_index(config: StoreConfig, records: list[RawRecord], others: set[int]) -> None:
    """Every key of every record is found by its slot's chain, and no unit points to something else."""
    by_offset = {record.log_offset: record for record in records}
    wanted = {(key_hash(record.topic, key), record.log_offset) for record in records for key in record.keys}
    wanted = {pair for pair in wanted if by_offset[pair[1]].sys_flag & 0xC != 0xC}
    allowed = wanted.copy()
    for path in index_files(config):
        data = path.read_bytes()
        assert len(data) == config.index_file_bytes, f"{path} has {len(data)} bytes"
        count = max(_INDEX_HEADER.unpack_from(data)[5], 1)
        units_at = 40 + 4 * config.index_slots
        reached = 0
        for slot in range(config.index_slots):
            number = int.from_bytes(data[40 + 4 * slot : 44 + 4 * slot], "big")
            assert number < count, f"slot {slot} of {path.name} points to unit {number} of {count}"
            while number > 0:
                hashed, log_offset, _, before = _INDEX_UNIT.unpack_from(data, units_at + 20 * number)
                assert before < number, f"unit {number} of {path.name} points forward to {before}"
                assert hashed % config.index_slots == slot
                if log_offset not in others:
                    assert (hashed, log_offset) in allowed, (
                        f"unit {number} of {path.name} is of no record: {log_offset}"
                    )
                    wanted.discard((hashed, log_offset))
                reached += 1
                number = before
        assert reached == count - 1, f"{path.name} has {count - 1} units, its chains {reached}"
    assert not wanted, f"{len(wanted)} keys are not indexed, such as {min(wanted)}"


def key_hash(topic: str, key: str) -> int:
    value = 0
    units = f"{topic}#{key}".encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (value * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed)
