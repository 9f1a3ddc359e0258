"""Log files with known records, written byte by byte."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rocketq.model import Host, Record
from rocketq.protocol.messages import encode_record
from rocketq.protocol.properties import encode_properties

BLANK_MAGIC = 0xCBD43194
V4, V6 = Host.of("127.0.0.1", 10911), Host.of("::1", 10911)


def record(number: int, **changes: Any) -> Record:
    """Message n of topic T0 or T1 and queue 0 to 2, stored at second n."""
    made = Record(
        size=0, version=1, body_crc=0, queue_id=number % 3, flag=0, queue_offset=number, log_offset=0, sys_flag=0,
        born_ms=1, born_host=V4, store_ms=number * 1000, store_host=V4, reconsume_times=0, prepared_offset=0,
        body=b"body %d" % number, topic=f"T{number % 2}",
        properties=encode_properties({"KEYS": f"k{number}", "TAGS": "ab"[number % 2]}),
    )  # fmt: skip
    return replace(made, **changes)


def write_log(folder: Path, records: Iterable[Record], *, file_bytes: int) -> list[Record]:
    """As a broker lays them out, blanks included; the records with their log offsets."""
    folder.mkdir(parents=True, exist_ok=True)
    placed, files = [], [bytearray()]
    for each in records:
        data = encode_record(replace(each, log_offset=(len(files) - 1) * file_bytes + len(files[-1])))
        if len(files[-1]) + len(data) + 8 > file_bytes:
            rest = file_bytes - len(files[-1])
            files[-1] += rest.to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")
            files.append(bytearray())
        offset = (len(files) - 1) * file_bytes + len(files[-1])
        data = encode_record(replace(each, log_offset=offset))
        files[-1] += data
        placed.append(replace(each, log_offset=offset, size=len(data)))
    for number, content in enumerate(files):
        (folder / f"{number * file_bytes:020d}").write_bytes(content.ljust(file_bytes, b"\0"))
    return placed


def overwrite(folder: Path, file_bytes: int, log_offset: int, data: bytes) -> None:
    path = folder / f"{log_offset - log_offset % file_bytes:020d}"
    content = bytearray(path.read_bytes())
    content[log_offset % file_bytes : log_offset % file_bytes + len(data)] = data
    path.write_bytes(content)
