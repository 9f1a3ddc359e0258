"""A topic deleted and made again: its queues start at 0, and the log still has messages of their life before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketq.store import Store

from .kit import bodies, message, open_store

LIVES = [(1, 1), (3, 3), (5, 3), (3, 5), (2, 8), (60, 1), (60, 3), (3, 60)]


def two_lives(store: Store, old: int, new: int) -> list[bytes]:
    """What the second life has."""
    for number in range(old):
        store.append(message(b"old %d" % number))
    store.delete_topic("T")
    said = [b"new %d" % number for number in range(new)]
    assert [store.append(message(body)).queue_offset for body in said] == list(range(new))
    return said


def all_of(store: Store) -> list[bytes]:
    found: list[bytes] = []
    while result := bodies(store.read("T", 0, len(found))):
        found += result
    return found


@pytest.mark.parametrize(("old", "new"), [lives for lives in LIVES if lives[1] > 1])
def test_queues_made_again_from_the_log_have_the_second_life_only(tmp_path: Path, old: int, new: int) -> None:
    """Goal: nothing acknowledged is left out, nothing deleted comes back, and the next message gets the next offset.

    One record alone is no proof: a single wrong bit can make it say 0, and must not cost the others of its queue."""
    with open_store(tmp_path) as store:
        said = two_lives(store, old, new)
    shutil.rmtree(tmp_path / "consumequeue")
    with open_store(tmp_path) as store:
        assert all_of(store) == said
        assert store.append(message(b"next")).queue_offset == new
    with open_store(tmp_path) as store:
        assert all_of(store) == [*said, b"next"]


@pytest.mark.parametrize(("old", "new"), LIVES)
def test_a_copy_of_the_log_has_the_second_life_only(tmp_path: Path, old: int, new: int) -> None:
    """Goal: a slave gets the records of both lives, one after the other, and is told of no deletion."""
    with open_store(tmp_path / "master") as master, open_store(tmp_path / "slave") as slave:
        said = two_lives(master, old, new)
        while data := bytes(master.whole_range(slave.log_end, 700)):
            slave.append_raw(slave.log_end, data)
        assert all_of(slave) == said


def test_a_deletion_up_to_a_position_leaves_queues_with_later_messages(tmp_path: Path) -> None:
    """Goal: what was stored after the position is of another life of the topic."""
    with open_store(tmp_path) as store:
        for queue_id in (0, 1):
            store.append(message(b"old", queue_id=queue_id))
        log_end = store.log_end
        store.append(message(b"new"))
        assert store.delete_topic("T", log_end=log_end - 1) == 0
        assert store.delete_topic("T", log_end=log_end) == 1
        assert [queue.queue_id for queue in store.queues.of_topic("T")] == [0]
        assert store.delete_topic("T", log_end=store.log_end) == 1
