"""What is acknowledged, what is visible, and who is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketq.store import ReadStatus, Store

from .kit import fill, message, open_store, packed


@pytest.fixture
def store(tmp_path: Path):  # type: ignore[no-untyped-def]
    opened = open_store(tmp_path)
    yield opened
    opened.close()


def test_without_replicas_everything_written_is_visible(store: Store) -> None:
    """Goal: asynchronous flush acknowledges what is written."""
    fill(store, 3)
    assert store.acknowledged_to == store.visible_to == store.durable_to == store.log_end


def test_unconfirmed_messages_are_not_visible(store: Store) -> None:
    """Goal: readers see what replicas have, and the rest once they have it."""
    offsets = fill(store, 3, KEYS="k")
    store.confirm(offsets[2])
    assert store.acknowledged_to == store.visible_to == offsets[2]
    assert store.max_offset("T", 0) == 2
    result = store.read("T", 0, 0)
    assert (result.count, result.next_offset, result.max_offset) == (2, 2, 2)
    assert store.read("T", 0, 2).status is ReadStatus.OFFSET_OVERFLOW_ONE
    assert store.read("T", 0, 3).status is ReadStatus.OFFSET_OVERFLOW_BADLY
    assert store.message_at(offsets[2]) is None
    assert len(store.query("T", "k").records) == 2
    store.confirm(None)
    assert store.max_offset("T", 0) == 3
    assert len(store.query("T", "k").records) == 3


def test_half_confirmed_message_is_not_visible(store: Store) -> None:
    """Goal: a message is visible when all of it is confirmed, by queue, place, key and time alike."""
    offsets = fill(store, 2, KEYS="k")
    store.confirm(store.log_end - 1)
    assert store.max_offset("T", 0) == 1
    assert store.message_at(offsets[1]) is None
    assert [record.log_offset for record in store.query("T", "k").records] == offsets[:1]
    store.confirm(1)
    assert store.earliest_store_ms() == -1


def test_nothing_confirmed_is_a_queue_without_messages(store: Store) -> None:
    """Goal: a queue all of whose messages are hidden reads as empty, not as an error."""
    store.confirm(0)
    fill(store, 2)
    assert store.max_offset("T", 0) == 0
    assert store.read("T", 0, 0).status is ReadStatus.NO_MESSAGE_IN_QUEUE


def test_confirmation_ahead_of_the_log_shows_only_what_is_there(store: Store) -> None:
    """Goal: a replica's position never lends bytes to the master."""
    fill(store, 1)
    store.confirm(1 << 40)
    assert store.visible_to == store.log_end


# Listeners


def listen(store: Store) -> list[tuple[str, int, int]]:
    told: list[tuple[str, int, int]] = []
    store.add_listener(lambda topic, queue_id, end: told.append((topic, queue_id, end)))
    return told


def test_listener_hears_of_each_queue_that_grew(store: Store) -> None:
    """Goal: topic, queue and new end, once per append, once for a batch."""
    told = listen(store)
    store.append(message())
    store.append(message(topic="U", queue_id=2))
    store.append_batch(message(packed(b"1", b"2", b"3")))
    assert told == [("T", 0, 1), ("U", 2, 1), ("T", 0, 4)]


def test_every_listener_is_told(store: Store) -> None:
    """Goal: several may wait."""
    first, second = listen(store), listen(store)
    store.append(message())
    assert first == second == [("T", 0, 1)]


def test_refused_message_wakes_nobody(store: Store) -> None:
    """Goal: no message, no news."""
    told = listen(store)
    store.append(message(topic=""))
    assert told == []


def test_listener_hears_nothing_of_hidden_messages(store: Store) -> None:
    """Goal: waking a reader who then finds nothing is waste; it is told when there is something to read."""
    told = listen(store)
    store.confirm(0)
    first = store.append(message())
    second = store.append(message())
    assert told == []
    store.confirm(first.end)
    assert told == [("T", 0, 1)]
    store.confirm(second.end - 1)
    assert told == [("T", 0, 1)]
    store.confirm(second.end)
    assert told == [("T", 0, 1), ("T", 0, 2)]
    store.confirm(None)
    assert told == [("T", 0, 1), ("T", 0, 2)]


def test_half_messages_wake_nobody(store: Store) -> None:
    """Goal: a prepared message is in no queue."""
    told = listen(store)
    store.append(message(sys_flag=4))
    assert told == []
    assert store.max_offset("T", 0) == 0


def test_listener_may_read_and_append(store: Store) -> None:
    """Goal: listeners run outside the lock's critical part and may use the store."""
    seen: list[int] = []

    def forward(topic: str, queue_id: int, end: int) -> None:
        seen.append(store.read(topic, queue_id, end - 1).count)
        if topic == "T":
            store.append(message(topic="Forwarded"))

    store.add_listener(forward)
    store.append(message())
    assert seen == [1, 1]
    assert store.max_offset("Forwarded", 0) == 1


def test_listener_is_told_anew_of_what_replaced_a_cut(store: Store) -> None:
    """Goal: after a cut the ends that were told count no more."""
    offsets = fill(store, 5)
    told = listen(store)
    store.truncate_to(offsets[2])
    told.clear()
    fill(store, 2)
    assert told == [("T", 0, 3), ("T", 0, 4)]


def test_readers_never_see_units_that_a_cut_is_zeroing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a slave's log is cut back on a thread of its own: a read in the middle of it finds the end, no damage."""
    offsets = fill(store, 5)
    store.confirm(offsets[2])
    zero_from, found = store.disk.zero_from, []

    def zero_and_read(path: Path, offset: int) -> int:
        cleared = zero_from(path, offset)
        result = store.read("T", 0, 2)
        found.append((result.bad_count, result.next_offset, result.max_offset))
        return cleared

    monkeypatch.setattr(store.disk, "zero_from", zero_and_read)
    store.truncate_to(offsets[2])
    assert found[0] == (0, 2, 2)


def test_listener_is_told_of_a_topic_that_was_deleted_and_came_back(store: Store) -> None:
    """Goal: a queue made again starts its news at 1."""
    told = listen(store)
    fill(store, 3)
    store.delete_topic("T")
    told.clear()
    fill(store, 1)
    assert told == [("T", 0, 1)]
