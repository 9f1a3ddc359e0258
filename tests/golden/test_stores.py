"""Directories of real Apache brokers, read in full and appended to."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketq.model import NewMessage, Record, SysFlag
from rocketq.protocol.properties import decode_properties, encode_properties
from rocketq.store import AppendStatus, ReadStatus, Store, tag_code
from tests.golden.stores import NAMES, GoldenStore, body_of, unpack


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> GoldenStore:
    return unpack(request.param, tmp_path)


def read_queue(store: Store, topic: str, queue_id: int) -> Iterator[Record]:
    """Every message of a queue, in the order of reading."""
    offset = max(store.min_offset(topic, queue_id), 0)
    while (found := store.read(topic, queue_id, offset)).status is ReadStatus.FOUND:
        at = 0
        while at < len(found.records):
            log_offset = int.from_bytes(found.records[at + 28 : at + 36], "big")
            record = store.message_at(log_offset)
            assert record is not None
            assert found.records[at : at + 4] == record.size.to_bytes(4, "big")
            yield record
            at += record.size
        offset = found.next_offset
    assert found.status in (ReadStatus.OFFSET_OVERFLOW_ONE, ReadStatus.NO_MESSAGE_IN_QUEUE)


def plain_body(record: Record) -> bytes:
    return zlib.decompress(record.body) if record.sys_flag & SysFlag.COMPRESSED else record.body


def test_every_acknowledged_message_is_where_the_producer_was_told(golden: GoldenStore) -> None:
    """Goal: offsets, ids, bodies, keys and tags of the manifest, by pull, by id and by key."""
    with Store.open(golden.config) as store:
        assert store.report.records == golden.facts["recordsInLog"]
        assert not store.report.notes
        queues = {(q.topic, q.queue_id): list(read_queue(store, q.topic, q.queue_id)) for q in store.queues}
        assert sum(len(records) for records in queues.values()) == golden.facts["recordsInLog"]
        for entry in golden.manifest:
            topic, queue_id = entry.get("storedTopic", entry["topic"]), entry.get("storedQueueId", entry["queueId"])
            record = queues[topic, queue_id][entry["queueOffset"]]
            assert (record.queue_offset, record.log_offset) == (entry["queueOffset"], entry["logOffset"])
            assert plain_body(record) == body_of(entry)
            if entry["offsetMsgId"]:
                assert record.message_id == entry["offsetMsgId"]
                assert store.message_by_id(entry["offsetMsgId"]) == record
            for key in (entry["keys"] or "").split():
                assert (
                    record
                    in store.query(topic, key, count_max=64, begin_ms=record.store_ms, end_ms=record.store_ms).records
                )
            if entry["tags"]:
                assert decode_properties(record.properties)["TAGS"] == entry["tags"]


def test_tag_hashes_in_the_queue_find_tagged_messages(golden: GoldenStore) -> None:
    """Goal: filtering by Apache's own queue entries gives exactly the messages with that tag."""
    tagged = [
        entry for entry in golden.manifest if entry["kind"] in ("tagged", "tag-special", "plain") and entry["tags"]
    ]
    with Store.open(golden.config) as store:
        for tag in {entry["tags"] for entry in tagged}:
            wanted = {
                entry["logOffset"] for entry in golden.manifest if entry["tags"] == tag and "storedTopic" not in entry
            }
            found = set()
            for queue in store.queues:
                if queue.topic.startswith(("SCHEDULE", "RMQ_SYS", "%")):
                    continue
                codes = frozenset([tag_code(tag)])
                for offset in range(queue.min_offset, queue.end_offset):
                    result = store.read(queue.topic, queue.queue_id, offset, count_max=1, tag_codes=codes)
                    if result.count:
                        found.add(int.from_bytes(result.records[28:36], "big"))
            assert found >= wanted


def test_appending_goes_on_where_the_broker_stopped(golden: GoldenStore) -> None:
    """Goal: next offsets continue, old and new messages are there after another opening, which is short."""
    with Store.open(golden.config) as store:
        ends = {(queue.topic, queue.queue_id): queue.end_offset for queue in store.queues}
        log_end = store.log_end
        for (topic, queue_id), end in ends.items():
            properties = encode_properties({"KEYS": f"new-{topic}-{queue_id}", "TAGS": "New"})
            result = store.append(NewMessage(topic=topic, queue_id=queue_id, body=b"new", properties=properties))
            assert result.status is AppendStatus.OK
            assert result.queue_offset == end
            assert result.log_offset >= log_end
    with Store.open(golden.config) as store:
        assert store.report.from_point
        assert store.report.records == 0
        for (topic, queue_id), end in ends.items():
            records = list(read_queue(store, topic, queue_id))
            assert (records[-1].queue_offset, records[-1].body) == (end, b"new")
            assert store.query(topic, f"new-{topic}-{queue_id}").records == (records[-1],)


@pytest.mark.parametrize("golden", [name for name in NAMES if name.endswith("clean")], indirect=True)
def test_queue_files_match_the_log_unit_for_unit(golden: GoldenStore) -> None:
    """Goal: a rebuild from the log alone gives the very queue and index files that the broker wrote."""
    files = {
        p.relative_to(golden.root): p.read_bytes() for p in (golden.root / "consumequeue").rglob("*") if p.is_file()
    }
    index = [p.read_bytes() for p in sorted((golden.root / "index").iterdir())]
    for path in files:
        (golden.root / path).unlink()
    for p in (golden.root / "index").iterdir():
        p.unlink()
    with Store.open(golden.config):
        pass
    rebuilt = {
        p.relative_to(golden.root): p.read_bytes() for p in (golden.root / "consumequeue").rglob("*") if p.is_file()
    }
    assert rebuilt == files
    assert [p.read_bytes() for p in sorted((golden.root / "index").iterdir())] == index
