"""What the store's interfaces add to reading and appending."""

from __future__ import annotations

from pathlib import Path

from rocketq.store import Store, StoreReader, StoreReplica, StoreWriter
from rocketq.store.flush import ReplicaGate

from .kit import NOW_MS, SEGMENT, StagedDisk, fill, message, open_store, properties, small_config


def test_a_reader_lists_queues_and_their_entries(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        reader: StoreReader = store
        results = [
            store.append(message(topic=topic, queue_id=queue)) for topic, queue in (("B", 3), ("A", 0), ("B", 1))
        ]
        assert reader.topics() == ["A", "B"]
        assert (reader.queue_ids("B"), reader.queue_ids("C")) == ([1, 3], [])
        assert (reader.end_offset("B", 3), reader.end_offset("C", 0)) == (1, 0)
        unit = reader.queue_unit("B", 3, 0)
        assert unit is not None
        assert unit[:2] == (results[0].log_offset, results[0].size)
        assert reader.queue_unit("C", 0, 0) is None
        assert reader.queue_extension("B", 3, 0) is None


def test_the_end_of_a_queue_counts_messages_that_are_not_visible_yet(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.confirm(0)
        store.append(message())
        assert (store.end_offset("T", 0), store.max_offset("T", 0)) == (1, 0)


def test_a_reader_finds_keys_in_the_index(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        offset = store.append(message(properties=properties(KEYS="k"))).log_offset
        assert store.is_index_complete
        assert store.find_key("T", "k", count_max=10) == [offset]


def test_a_reader_knows_when_the_newest_message_was_stored(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.last_store_ms == 0
        fill(store, 1)
    with Store.open(small_config(tmp_path), services=False) as store:
        assert store.last_store_ms == NOW_MS


def test_a_writer_waits_for_replicas_and_another_master(tmp_path: Path) -> None:
    """Goal: what replication decides about appends, writers see."""
    with open_store(tmp_path) as store:
        replica: StoreReplica = store
        writer: StoreWriter = store
        gate = ReplicaGate(lambda log_end: True, lambda: 1_000)
        replica.wait_for_replicas(gate)
        end = store.append(message()).end
        assert (writer.replica_gate, writer.acknowledged_to) == (gate, 0)
        replica.wait_for_replicas(None)
        assert writer.acknowledged_to == end
        replica.reject_appends("another broker is the master")
        assert (writer.refusal, writer.failure) == ("another broker is the master", None)
        replica.reject_appends(None)
        assert writer.refusal is None


def test_a_replica_syncs_the_file_it_writes_and_the_one_before(tmp_path: Path) -> None:
    """Goal: a promotion counts on bytes that an earlier process left unsynced."""
    disk = StagedDisk()
    with open_store(tmp_path, disk=disk) as store:
        fill(store, 3 * SEGMENT // 1_000)
        bases = [store.last_file_start - SEGMENT, store.last_file_start]
        assert bases[0] > 0
        synced: list[Path] = []
        disk.sync = synced.append  # type: ignore[method-assign]
        store.sync_last_files()
        assert synced[-2:] == [store.log.files.path_of(base) for base in bases]


def test_the_fast_path_gets_the_objects_that_the_store_writes_with(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        access = store.fast_path_access()
        first = store.append(message()).log_offset
        assert access.first_file() == first
        assert (access.appender.end, access.queues.get("T", 0) is not None) == (store.log_end, True)
        assert access.health is store.health
        with access.lock:
            assert store.writer.lock is access.lock
