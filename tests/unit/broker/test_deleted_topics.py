"""Topics that a master deletes, at a slave whose log is behind its tables or ahead of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.store.kit import NOW_MS, message, open_store

from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.ha.master_tables import CopyPorts, MasterTables
from rocketq.broker.topics.deleted_topics import DELETED_COUNT_MAX, DeletedTopics
from rocketq.broker.topics.table import TopicTable
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.replication.epochs import Epoch, EpochList
from rocketq.store import StateFiles, Store


class Side:
    """A store with its tables, of a master or of a slave."""

    def __init__(self, store: Store) -> None:
        self.store, self.topics = store, TopicTable()
        ports = CopyPorts(self.topics, GroupTable(), OffsetTable(), StateFiles(store.config.root), store)
        self.epochs = EpochList([Epoch(1, 0)])
        self.tables = MasterTables(ports, lambda: self.epochs)
        self.topics.listeners.append(self.tables.record_deletions)

    def make(self, topic: str) -> None:
        self.topics.put(TopicConfig(topic=topic), now_ms=NOW_MS)

    def send(self, topic: str, *queue_ids: int) -> None:
        for queue_id in queue_ids:
            assert self.store.append(message(topic=topic, queue_id=queue_id)).log_offset >= 0

    def delete(self, topic: str) -> None:
        self.topics.delete(topic, now_ms=NOW_MS)
        self.store.delete_topic(topic)

    def copy_from(self, master: Side) -> None:
        while data := bytes(master.store.whole_range(self.store.log_end, 700)):
            self.store.append_raw(self.store.log_end, data)

    @property
    def queues(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {(each.topic, each.queue_id): (each.min_offset, each.end_offset) for each in self.store.queues}


@contextmanager
def two_sides(folder: Path) -> Iterator[tuple[Side, Side]]:
    with open_store(folder / "master") as master, open_store(folder / "slave") as slave:
        yield Side(master), Side(slave)


def test_messages_of_a_deleted_topic_that_come_after_its_deletion_go_too(tmp_path: Path) -> None:
    """Goal: tables overtake data; an elected slave makes no topic of what comes late."""
    with two_sides(tmp_path) as (master, slave):
        master.make("T")
        master.send("T", 0, 0, 1)
        slave.copy_from(master)
        master.send("T", 0, 1)
        master.delete("T")
        asyncio.run(slave.tables.take(master.tables.snapshot(1)))
        assert slave.queues == {}
        slave.copy_from(master)
        assert slave.queues == {("T", 0): (2, 3), ("T", 1): (1, 2)}
        assert asyncio.run(slave.tables.begin_mastership()) == []
        assert slave.queues == {}


def test_messages_that_come_before_the_settings_of_their_topic_make_it(tmp_path: Path) -> None:
    """Goal: data overtake tables; what was acknowledged must be found by an elected slave."""
    with two_sides(tmp_path) as (master, slave):
        pushed = master.tables.snapshot(1)
        master.make("T")
        master.send("T", 0, 2)
        slave.copy_from(master)
        asyncio.run(slave.tables.take(pushed))
        (made,) = asyncio.run(slave.tables.begin_mastership())
        assert (made.topic, made.read_queue_count) == ("T", 3)
        assert slave.queues == master.queues


@pytest.mark.parametrize("late", [False, True], ids=["all copied", "tables first"])
def test_a_topic_made_again_keeps_what_it_got_since(tmp_path: Path, late: bool) -> None:
    """Goal: a deletion is about the messages before it, whenever it is heard of; the second life stays whole."""
    with two_sides(tmp_path) as (master, slave):
        master.make("T")
        master.send("T", 0, 0, 1)
        slave.copy_from(master)
        master.delete("T")
        deleted = master.tables.snapshot(1)
        master.make("T")
        master.send("T", 0)
        again = master.tables.snapshot(1)
        for pushed in (deleted, again):
            if not late:
                slave.copy_from(master)
            asyncio.run(slave.tables.take(pushed))
        slave.copy_from(master)
        assert slave.queues == master.queues == {("T", 0): (0, 1)}


def test_a_slave_that_was_away_drops_the_first_life_of_a_topic_made_again(tmp_path: Path) -> None:
    """Goal: queues that got nothing since start at 0 as they do at the master."""
    with two_sides(tmp_path) as (master, slave):
        master.make("T")
        master.send("T", 0, 0, 1)
        slave.copy_from(master)
        master.delete("T")
        master.make("T")
        asyncio.run(slave.tables.take(master.tables.snapshot(1)))
        assert slave.queues == master.queues == {}


def test_an_interrupted_deletion_is_finished_by_the_next_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the link may end at any moment; the table has lost the topic already."""
    with two_sides(tmp_path) as (master, slave):
        for topic in "TUV":
            master.make(topic)
            master.send(topic, 0)
        slave.copy_from(master)
        for topic in "TUV":
            master.delete(topic)

        def break_off(*_: object, **__: object) -> None:
            raise asyncio.CancelledError

        with monkeypatch.context() as patch:
            patch.setattr(slave.store, "delete_topic", break_off)
            with pytest.raises(asyncio.CancelledError):
                asyncio.run(slave.tables.take(master.tables.snapshot(1)))
        assert "T" not in slave.topics
        assert len(slave.queues) == 3
        asyncio.run(slave.tables.take(master.tables.snapshot(1)))
        assert slave.queues == {}


def test_queues_that_a_master_has_without_settings_stay(tmp_path: Path) -> None:
    """Goal: a master that was elected a moment ago may not have made their topics yet; the system's have none."""
    with two_sides(tmp_path) as (master, slave):
        master.send("Unlisted", 0)
        master.send("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        slave.copy_from(master)
        asyncio.run(slave.tables.take(master.tables.snapshot(1)))
        assert slave.queues == master.queues
        made = asyncio.run(slave.tables.begin_mastership())
        assert {"Unlisted"} <= {topic.topic for topic in made}
        assert slave.queues == master.queues


def test_what_a_later_master_wrote_where_the_log_was_cut_stays(tmp_path: Path) -> None:
    """Goal: positions of the old master's tables say nothing about other bytes at the same places."""
    with two_sides(tmp_path) as (master, slave):
        master.make("T")
        master.send("T", 0)
        slave.copy_from(master)
        point = slave.store.log_end
        master.send("T", 0, 0, 0)
        slave.copy_from(master)
        asyncio.run(slave.tables.take(master.tables.snapshot(1)))
        slave.store.truncate_to(point)
        slave.epochs.add(2, point)
        slave.send("New", 0)
        (made,) = asyncio.run(slave.tables.begin_mastership())
        assert made.topic == "New"
        assert slave.queues == {("T", 0): (0, 1), ("New", 0): (0, 1)}


def test_deletions_are_remembered_up_to_a_count() -> None:
    """Goal: the newest position of each, the oldest forgotten first."""
    deleted = DeletedTopics(["A"])
    for number in range(DELETED_COUNT_MAX + 1):
        deleted.look(["A", f"T{number}"], number)
    deleted.look(["A"], 5_000)
    assert len(deleted.ends) == DELETED_COUNT_MAX
    assert "T0" not in deleted.ends
    assert deleted.ends["T1"] == 2
    assert deleted.ends[f"T{DELETED_COUNT_MAX}"] == 5_000
    deleted.look(["A", "T1"], 6_000)
    deleted.look(["A"], 7_000)
    assert deleted.ends["T1"] == 7_000
