"""Stored messages for tests, made as a broker's answer makes them."""

from __future__ import annotations

from collections.abc import Mapping

from rocketq.client.core.stored_messages import StoredMessage, stored_message
from rocketq.model import Host, Record
from rocketq.protocol.properties import encode_properties

STORE_HOST = Host.of("10.0.0.1", 10911)


def stored(
    queue_offset: int,
    *,
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"body",
    properties: Mapping[str, str] | None = None,
    reconsume_times: int = 0,
    sys_flag: int = 0,
    broker_name: str = "broker-a",
) -> StoredMessage:
    record = Record(
        size=100 + len(body),
        version=1,
        body_crc=0,
        queue_id=queue_id,
        flag=7,
        queue_offset=queue_offset,
        log_offset=queue_offset * 100,
        sys_flag=sys_flag,
        born_ms=1,
        born_host=Host.of("10.0.0.9", 5),
        store_ms=2,
        store_host=STORE_HOST,
        reconsume_times=reconsume_times,
        prepared_offset=0,
        body=body,
        topic=topic,
        properties=encode_properties(properties or {"UNIQ_KEY": f"U{queue_offset}"}),
    )
    return stored_message(record, broker_name)


def run_of(start: int, end: int) -> list[StoredMessage]:
    return [stored(offset) for offset in range(start, end)]
