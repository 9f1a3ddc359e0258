"""Bytes inside a message body that look like a record: no log offset makes them a message."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.store.kit import open_store

from rocketq.model import NewMessage
from rocketq.protocol.messages import encode_record


def test_a_record_inside_a_body_is_no_message(tmp_path: Path) -> None:
    """Goal: requests that name a log offset get messages that were stored as such, with their own queue entry."""
    with open_store(tmp_path / "store") as store:
        first = store.append(NewMessage(topic="T", queue_id=0, body=b"first"))
        real = store.queued_message_at(first.log_offset)
        assert real is not None
        start = store.log_end
        for queue_id, offset in ((0, 0), (0, 1), (5000, 0)):
            forged = replace(real, queue_id=queue_id, queue_offset=offset, log_offset=start, topic="U", body=b"forged")
            store.append(NewMessage(topic="T", queue_id=0, body=encode_record(forged)))
        end = store.log_end
        genuine = {first.log_offset} | {
            unit[0] for offset in range(1, 4) if (unit := store.queue_unit("T", 0, offset)) is not None
        }
        assert {at for at in range(end) if store.queued_message_at(at) is not None} == genuine


def test_a_forged_record_that_names_the_place_it_lies_at(tmp_path: Path) -> None:
    """Goal: knowing where the body will be stored does not help."""
    with open_store(tmp_path / "store") as store:
        first = store.append(NewMessage(topic="T", queue_id=0, body=b"first"))
        real = store.queued_message_at(first.log_offset)
        assert real is not None
        head = 84 + 4  # of a record before its body
        at = store.log_end + head
        forged = replace(real, topic="T", queue_id=0, queue_offset=1, log_offset=at, body=b"forged")
        result = store.append(NewMessage(topic="T", queue_id=0, body=encode_record(forged)))
        assert store.queued_message_at(result.log_offset) is not None
        assert [
            offset for offset in range(result.log_offset + 1, store.log_end) if store.queued_message_at(offset)
        ] == []


def test_messages_of_a_deleted_topic_are_gone_by_log_offset_too(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        result = store.append(NewMessage(topic="T", queue_id=0, body=b"b"))
        assert store.queued_message_at(result.log_offset) is not None
        store.delete_topic("T")
        assert store.queued_message_at(result.log_offset) is None
