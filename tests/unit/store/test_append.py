"""Appending through the store: every answer there is, and what each leaves behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rocketq.model import Host, NewMessage, SysFlag, decode_message_id
from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendResult, AppendStatus, FlushType, Store

from .kit import (
    NOW_MS,
    SEGMENT,
    StagedDisk,
    bodies,
    fill,
    message,
    open_store,
    packed,
    properties,
    records,
    small_config,
)

OK = AppendStatus.OK


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def test_stored_message_is_where_the_result_says(store: Store) -> None:
    """Goal: log offset, queue offset, size, time and id of the result lead back to the message."""
    first, second = store.append(message(b"one")), store.append(message(b"two", queue_id=3, TAGS="A"))
    assert (first.status, first.log_offset, first.queue_offset, first.store_ms) == (OK, 0, 0, NOW_MS)
    assert (second.log_offset, second.queue_offset) == (first.end, 0)
    assert second.log_offsets == (second.log_offset,)
    record = store.message_by_id(second.message_id)
    assert record is not None
    assert (record.body, record.queue_id, record.properties) == (b"two", 3, properties(TAGS="A"))
    assert decode_message_id(second.message_id) == (store.config.store_host, second.log_offset)
    assert store.log_end == second.end


def test_every_field_of_a_message_is_stored(store: Store) -> None:
    """Goal: what goes in comes out, IPv6 hosts and odd numbers included."""
    sent = NewMessage(
        topic="%RETRY%group",
        queue_id=7,
        body=b"\x00\xff",
        properties=properties(KEYS="k"),
        flag=-5,
        sys_flag=SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB,
        born_ms=-1,
        born_host=Host.of("2001:db8::1", 65535),
        reconsume_times=16,
        prepared_offset=1 << 40,
    )
    record = store.message_at(store.append(sent).log_offset)
    assert record is not None
    for name in (
        "topic",
        "queue_id",
        "body",
        "properties",
        "flag",
        "born_ms",
        "born_host",
        "reconsume_times",
        "prepared_offset",
    ):
        assert getattr(record, name) == getattr(sent, name)
    assert record.sys_flag == sent.sys_flag | SysFlag.BORN_HOST_V6
    assert (record.store_ms, record.store_host, record.version) == (NOW_MS, store.config.store_host, 1)


def test_store_time_is_taken_when_the_message_is_written(tmp_path: Path) -> None:
    """Goal: store times follow the order of the log."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock)
    for _ in range(3):
        store.append(message())
        clock.advance(7)
    assert [record.store_ms for record in records(store.read("T", 0, 0))] == [NOW_MS, NOW_MS + 7, NOW_MS + 14]
    store.close()


@pytest.mark.parametrize(
    ("given", "status", "reason"),
    [
        ({"topic": ""}, AppendStatus.MESSAGE_ILLEGAL, "is empty"),
        ({"topic": "a/b"}, AppendStatus.MESSAGE_ILLEGAL, "letters, digits"),
        ({"topic": ".."}, AppendStatus.MESSAGE_ILLEGAL, "letters, digits"),
        ({"topic": "a\n"}, AppendStatus.MESSAGE_ILLEGAL, "letters, digits"),
        ({"topic": "\u4e2d"}, AppendStatus.MESSAGE_ILLEGAL, "letters, digits"),
        ({"topic": "t" * 128}, AppendStatus.MESSAGE_ILLEGAL, "128 characters"),
        ({"queue_id": -1}, AppendStatus.MESSAGE_ILLEGAL, "queue id -1"),
        ({"queue_id": 65536}, AppendStatus.MESSAGE_ILLEGAL, "queue id 65536"),
        ({"body": bytes(8193)}, AppendStatus.MESSAGE_ILLEGAL, "8193 bytes"),
        ({"properties": bytes(32768)}, AppendStatus.PROPERTIES_SIZE_EXCEEDED, "32768 bytes"),
        ({"properties": bytes(16384)}, AppendStatus.MESSAGE_ILLEGAL, "does not fit in a log file"),
    ],
)
def test_message_that_cannot_be_stored_is_refused_with_the_reason(
    tmp_path: Path, given: dict[str, object], status: AppendStatus, reason: str
) -> None:
    """Goal: the check comes before anything is touched, for single messages and for batches."""
    store = open_store(tmp_path, segment_bytes=1 << 16 if status is AppendStatus.PROPERTIES_SIZE_EXCEEDED else SEGMENT)
    refused = store.append(message(**given))  # type: ignore[arg-type]
    assert refused.status is status
    assert reason in refused.reason
    assert not refused.status.stored
    assert (refused.message_id, store.log_end, len(store.queues)) == ("", 0, 0)
    if "body" not in given:
        assert store.append_batch(message(**({"body": packed(b"x")} | given))).status.stored is False  # type: ignore[arg-type]
    assert (store.log_end, len(store.queues)) == (0, 0)
    store.close()


@pytest.mark.parametrize(
    ("name", "bits"),
    [("flag", 32), ("sys_flag", 32), ("reconsume_times", 32), ("born_ms", 64), ("prepared_offset", 64)],
)
def test_number_that_a_record_cannot_hold_is_illegal(store: Store, name: str, bits: int) -> None:
    """Goal: a header field out of range is refused with its name, not wrapped and not an error of the kernel."""
    for value in (1 << (bits - 1), -(1 << (bits - 1)) - 1):
        for refused in (
            store.append(message(**{name: value})),
            store.append_batch(message(packed(b"x"), **{name: value})),
        ):
            assert refused.status is AppendStatus.MESSAGE_ILLEGAL
        assert store.log_end == 0
    assert store.append(message(**{name: (1 << (bits - 1)) - 1 if name != "sys_flag" else 1 << 30})).status is OK


def test_longest_topic_and_largest_body_fit(store: Store) -> None:
    """Goal: the limits themselves are allowed."""
    assert store.append(message(bytes(8192), topic="t" * 127, queue_id=65535)).status is OK


def test_closed_store_is_not_available(tmp_path: Path) -> None:
    """Goal: SERVICE_NOT_AVAILABLE before opening is over and after closing, with the reason."""
    store = open_store(tmp_path)
    store.close()
    for refused in (store.append(message()), store.append_batch(message(packed(b"x")))):
        assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
        assert "shut" in refused.reason
    unopened = Store(small_config(tmp_path / "new"))
    assert unopened.append(message()).status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert unopened.refusal == "the store is not open yet"


@pytest.mark.parametrize(
    ("name", "part"), [("create", "commitlog"), ("create", "consumequeue"), ("reserve", "consumequeue")]
)
def test_file_that_cannot_be_made_fails_the_append_and_no_other(tmp_path: Path, name: str, part: str) -> None:
    """Goal: CREATE_FILE_FAILED leaves no trace: same offsets once there is room, nothing half written."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    fill(store, 14)
    end = store.log_end
    disk.fail(name, part=part)
    large = message(b"x" * 3000, topic="New")
    failed = store.append(large)
    assert failed.status is AppendStatus.CREATE_FILE_FAILED
    assert "No space left" in failed.reason
    assert not failed.status.stored
    disk.recover()
    again = store.append(large)
    assert (again.status, again.queue_offset, again.log_offset) == (OK, 0, SEGMENT)
    assert store.message_at(end) is None
    assert bodies(store.read("New", 0, 0)) == [b"x" * 3000]
    store.close()


def test_append_held_up_by_another_is_told_that_the_disk_is_busy(tmp_path: Path) -> None:
    """Goal: PAGE_CACHE_BUSY at once, instead of a queue of waiters, while somebody holds the lock for over a second."""
    clock, disk = ManualClock(NOW_MS), StagedDisk()
    store = open_store(tmp_path, clock=clock, disk=disk)
    answers: list[AppendResult] = []

    def slow(name: str, path: Path) -> None:
        if name == "reserve":
            clock.advance(1_002)
            other = threading.Thread(target=lambda: answers.append(store.append(message())))
            other.start()
            other.join(30)

    disk.on = slow
    assert store.append(message()).status is OK
    assert [answer.status for answer in answers] == [AppendStatus.PAGE_CACHE_BUSY]
    disk.recover()
    assert store.append(message()).status is OK
    store.close()


def test_statuses_say_whether_the_message_is_stored() -> None:
    """Goal: four mean stored, the others do not; names are Apache's."""
    stored = {"PUT_OK", "FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}
    assert {status.value for status in AppendStatus if status.stored} == stored


# Batches


def test_batch_is_stored_as_messages_with_consecutive_offsets(store: Store) -> None:
    """Goal: the first offset, every id, and ordinary messages to read."""
    store.append(message())
    result = store.append_batch(message(packed(b"1", b"2", b"3"), TAGS="A"))
    assert (result.status, result.queue_offset, len(result.log_offsets)) == (OK, 1, 3)
    assert result.message_id == ",".join(result.message_ids)
    assert [store.message_by_id(one).body for one in result.message_ids] == [b"1", b"2", b"3"]  # type: ignore[union-attr]
    assert bodies(store.read("T", 0, 1)) == [b"1", b"2", b"3"]
    assert store.append(message()).queue_offset == 4
    assert result.end == store.message_by_id(result.message_ids[-1]).log_offset + result.size // 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("body", "sys_flag", "reason"),
    [
        (b"", 0, "unpacked"),
        (b"garbage", 0, "unpacked at byte 0"),
        (packed(b"ok") + b"tail", 0, "unpacked at byte 24"),
        (packed(b"x"), SysFlag.TRANSACTION_PREPARED, "transactional"),
        (packed(b"x"), SysFlag.TRANSACTION_COMMIT, "transactional"),
        (packed(*[b"x"] * 300), 0, "the batch needs 27900 bytes, more than"),
        (packed(bytes(8200)), 0, ""),
    ],
)
def test_batch_that_cannot_be_stored_is_illegal(store: Store, body: bytes, sys_flag: int, reason: str) -> None:
    """Goal: refused whole, with the place."""
    refused = store.append_batch(message(body, sys_flag=sys_flag))
    assert refused.status is AppendStatus.MESSAGE_ILLEGAL
    assert reason in refused.reason
    assert store.log_end == 0


def test_batch_that_does_not_fit_moves_whole_to_the_next_file(store: Store) -> None:
    """Goal: nothing of it stays in the old file, which ends with a blank."""
    fill(store, 13)
    end = store.log_end
    result = store.append_batch(message(packed(*[bytes(1_000)] * 4)))
    assert result.log_offset == SEGMENT
    assert store.log.bytes_at(end, SEGMENT - end) == (SEGMENT - end).to_bytes(4, "big") + bytes.fromhex(
        "cbd43194"
    ) + bytes(SEGMENT - end - 8)
    assert store.read("T", 0, 13).count == 4


def test_batch_may_cross_queue_files(store: Store) -> None:
    """Goal: forty units per file here, a batch of fifty is one batch."""
    assert store.append_batch(message(packed(*[b""] * 50))).status is OK
    assert [store.read("T", 0, offset).count for offset in (0, 32, 40)] == [32, 8, 10]


def test_failed_batch_gives_its_offsets_back(tmp_path: Path) -> None:
    """Goal: without room for all of its units nothing is written."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    store.append(message())
    end = store.log_end
    disk.fail("create", part="consumequeue")
    assert store.append_batch(message(packed(*[b""] * 50))).status is AppendStatus.CREATE_FILE_FAILED
    disk.recover()
    assert store.log_end == end
    assert store.append_batch(message(packed(b"1", b"2"))).queue_offset == 1
    store.close()


def test_concurrent_appends_get_offsets_of_their_own(tmp_path: Path) -> None:
    """Goal: one lock orders everybody, with services running and files rolling."""
    store = Store.open(small_config(tmp_path, flush_type=FlushType.SYNC_FLUSH))
    results: list[AppendResult] = []

    def send() -> None:
        results.extend(store.append(message(bytes(1_500))) for _ in range(10))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {result.status for result in results} == {OK}
    assert sorted(result.queue_offset for result in results) == list(range(40))
    assert len({result.log_offset for result in results}) == 40
    store.close()
