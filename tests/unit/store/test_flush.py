"""Waiting for the disk: the gate, the thresholds, synchronous appends, a disk that fails."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendStatus, FlushType, Store
from rocketq.store.flush import FlushGate

from .kit import NOW_MS, SEGMENT, StagedDisk, fill, message, open_store, small_config


def test_gate_releases_those_whose_position_was_reached_in_order() -> None:
    """Goal: lowest position first, equal ones in the order of their coming, each once."""
    gate, called = FlushGate(), []
    for position, name in [(30, "c"), (10, "a"), (20, "b1"), (20, "b2")]:
        gate.hold(position, lambda reached, name=name: called.append((name, reached)))
    gate.release(20)
    assert called == [("a", True), ("b1", True), ("b2", True)]
    gate.release(25)
    gate.release(30)
    gate.release(30)
    assert called[3:] == [("c", True)]


def test_gate_calls_back_at_once_for_what_is_safe_already() -> None:
    """Goal: nobody waits for what has happened."""
    gate, called = FlushGate(100), []
    gate.hold(100, called.append)
    assert called == [True]
    assert gate.wait(100, 0)
    assert not gate.wait(101, 0)


def test_gate_never_goes_back() -> None:
    """Goal: an old flush that finishes late takes nothing from anybody."""
    gate = FlushGate(100)
    gate.release(50)
    assert gate.position == 100


def test_shut_gate_lets_everybody_go_with_the_truth() -> None:
    """Goal: waiting for what will never come ends with False, before and after the gate was shut."""
    gate, called = FlushGate(10), []
    gate.hold(20, called.append)
    gate.shut()
    gate.hold(20, called.append)
    gate.hold(10, called.append)
    assert called == [False, False, True]
    assert not gate.wait(20, 60_000)
    assert gate.wait(10, 0)


def test_waiting_thread_is_woken_by_the_release() -> None:
    """Goal: threads wait for positions too."""
    gate, results = FlushGate(), []
    thread = threading.Thread(target=lambda: results.append(gate.wait(10, 60_000)))
    thread.start()
    gate.release(10)
    thread.join(10)
    assert results == [True]


def test_callback_may_use_the_gate_again() -> None:
    """Goal: callbacks run outside the gate's own lock."""
    gate, called = FlushGate(), []
    gate.hold(10, lambda reached: gate.hold(20, called.append))
    gate.release(10)
    gate.release(20)
    assert called == [True]


def test_asynchronous_flush_waits_for_enough_pages_until_it_is_time(tmp_path: Path) -> None:
    """Goal: four pages at least in passing; everything once the thorough interval has passed."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock, segment_bytes=1 << 20)
    fill(store, 2)
    store.flush_step()
    assert store.gate.position == 0
    fill(store, 16)
    store.flush_step()
    assert store.gate.position == store.log_end
    fill(store, 1)
    clock.advance(9_999)
    store.flush_step()
    assert store.gate.position < store.log_end
    clock.advance(1)
    store.flush_step()
    assert store.gate.position == store.log_end
    store.close()


@pytest.mark.parametrize("flush_type", list(FlushType), ids=lambda each: each.name)
def test_growth_that_nobody_waits_for_is_announced_now_and_then(tmp_path: Path, flush_type: FlushType) -> None:
    """Goal: with thousands of queues it is not told twice a second; who begins to wait during a flush hears of it."""
    clock, told, waiting = ManualClock(NOW_MS), list[int](), list[str]()
    disk = StagedDisk()
    store = open_store(tmp_path, clock=clock, disk=disk, segment_bytes=1 << 20, flush_type=flush_type)
    store.add_listener(lambda topic, queue_id, end: told.append(end))
    store.flusher.announce_while(lambda: bool(waiting))
    store.flush_step()
    grow(store)
    store.flush_step()
    assert told == []
    sync = disk.sync
    disk.sync = lambda path: (sync(path), waiting.append("began during the flush"))[0]  # type: ignore[method-assign]
    grow(store)
    store.flush_step()
    assert told == [40]
    disk.sync, waiting[:] = sync, []  # type: ignore[method-assign]
    grow(store)
    clock.advance(10_000)
    store.flush_step()
    assert told == [40, 60]
    store.close()


def grow(store: Store) -> None:
    """Messages that are stored as the kernel does it, without telling anybody."""
    for _ in range(20):
        assert store.writer.append(message(body=b"x" * 1_000)).status.stored


def test_finished_segment_is_synced_before_the_next_one_counts_as_flushed(tmp_path: Path) -> None:
    """Goal: the old file first; no position in the new one is reached while the old one could still be lost."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    fill(store, 16)
    assert store.log_end > SEGMENT
    disk.synced.clear()
    disk.fail("sync", part="0" * 15 + str(SEGMENT))
    with pytest.raises(OSError, match="No space"):
        store.flush()
    assert disk.synced[0].name == "0" * 20
    assert store.gate.position <= SEGMENT


def test_synchronous_append_returns_when_the_message_is_on_disk(tmp_path: Path) -> None:
    """Goal: with a flusher thread running, an OK means flushed."""
    store = Store.open(small_config(tmp_path, flush_type=FlushType.SYNC_FLUSH))
    result = store.append(message())
    assert result.status is AppendStatus.OK
    assert store.gate.position >= result.end
    assert store.visible_to >= result.end
    store.close()


def test_slow_disk_is_answered_in_time_and_the_message_is_stored(tmp_path: Path) -> None:
    """Goal: FLUSH_DISK_TIMEOUT: the message is in the log, not yet visible, and becomes so with the flush."""
    disk, slow = StagedDisk(), threading.Event()
    store = Store.open(small_config(tmp_path, flush_type=FlushType.SYNC_FLUSH, sync_flush_timeout_ms=20), disk=disk)
    disk.on = lambda name, path: slow.wait(30) and None if name == "sync" else None  # type: ignore[func-returns-value]
    result = store.append(message())
    assert result.status is AppendStatus.FLUSH_DISK_TIMEOUT
    assert result.status.stored
    assert result.message_id
    assert store.max_offset("T", 0) == 0
    slow.set()
    assert store.gate.wait(result.end, 30_000)
    assert store.max_offset("T", 0) == 1
    store.close()


def test_append_that_need_not_wait_does_not(tmp_path: Path) -> None:
    """Goal: internal messages only wake the flusher."""
    disk, slow = StagedDisk(), threading.Event()
    store = Store.open(small_config(tmp_path, flush_type=FlushType.SYNC_FLUSH), disk=disk)
    disk.on = lambda name, path: slow.wait(30) and None if name == "sync" else None  # type: ignore[func-returns-value]
    assert store.append(message(), wait=False).status is AppendStatus.OK
    assert store.visible_to == 0
    slow.set()
    assert store.gate.wait(store.log_end, 30_000)
    store.close()


def test_failed_flush_stops_writing_for_good(tmp_path: Path) -> None:
    """Goal: after a failed sync the kernel may have dropped the pages: nothing more is promised."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    fill(store, 1)
    disk.fail("sync", part="commitlog")
    with pytest.raises(OSError, match="No space"):
        store.flush()
    disk.recover()
    refused = store.append(message())
    assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert "could not be flushed" in refused.reason


def test_failed_flush_of_the_service_stops_writing_too(tmp_path: Path) -> None:
    """Goal: it does not matter who asked for the sync that failed."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk, segment_bytes=1 << 20)
    fill(store, 20)
    disk.fail("sync", part="commitlog")
    with pytest.raises(OSError, match="No space"):
        store.flush_step()
    disk.recover()
    assert store.append(message()).status is AppendStatus.SERVICE_NOT_AVAILABLE


def test_failed_flush_of_a_full_segment_stops_writing_too(tmp_path: Path) -> None:
    """Goal: a segment that could not be synced is not left behind as if it were safe."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    fill(store, 14)
    disk.fail("sync", part="commitlog")
    fill(store, 14)
    refused = store.append(message(b"x" * 8_000))
    assert not refused.status.stored
    disk.recover()
    assert store.append(message()).status is AppendStatus.SERVICE_NOT_AVAILABLE
    assert "could not be flushed" in (store.refusal or "")


def test_failed_flush_for_the_recovery_point_stops_writing_too(tmp_path: Path) -> None:
    """Goal: nor is a point written over a log that is not safe."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    fill(store, 3)
    disk.fail("sync", part="commitlog")
    with pytest.raises(OSError, match="No space"):
        store.save_recovery_point()
    disk.recover()
    assert store.append(message()).status is AppendStatus.SERVICE_NOT_AVAILABLE


def test_everything_is_flushed_at_close(tmp_path: Path) -> None:
    """Goal: a clean stop leaves nothing to chance."""
    disk = StagedDisk()
    store = open_store(tmp_path, disk=disk)
    fill(store, 3, KEYS="k")
    disk.synced.clear()
    store.close()
    assert {path.parent.name for path in disk.synced} == {"commitlog", "0", "index"}


def test_many_queues_that_grow_alike_are_synced_by_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a turn syncs only so many queue files, none is passed over, and a recovery point has them all."""
    monkeypatch.setattr("rocketq.store.upkeep.QUEUE_SYNCS_MAX", 2)
    disk, clock = StagedDisk(), ManualClock(NOW_MS)
    with open_store(tmp_path, disk=disk, clock=clock, queue_flush_pages_min=0) as store:
        store.upkeep_step()
        turns = []
        for turn in range(4):
            for queue_id in range(5):
                store.append(message(queue_id=queue_id))
            disk.synced.clear()
            clock.advance(1_000)
            store.upkeep_step()
            turns.append(sorted(path.parent.name for path in disk.synced if "consumequeue" in str(path)))
            assert len(turns[turn]) <= 2
        assert turns == [["0", "1"], ["2", "3"], ["4"], ["0", "1"]]
        disk.synced.clear()
        store.save_recovery_point()
        assert {path.parent.name for path in disk.synced if "consumequeue" in str(path)} == {"2", "3", "4"}
