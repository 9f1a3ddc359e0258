"""The transient buffer: appends to memory, commits to the file, and what is visible between."""

from __future__ import annotations

from pathlib import Path

from rocketq.runtime.clock import ManualClock
from rocketq.store import Store

from .kit import NOW_MS, SEGMENT, bodies, fill, message, open_store


def buffered(root: Path, clock: ManualClock | None = None) -> Store:
    return open_store(root, clock=clock, transient_buffer=True)


def test_uncommitted_messages_are_in_no_file_and_visible_to_nobody(tmp_path: Path) -> None:
    """Goal: readers see what was handed to the file, no more."""
    store = buffered(tmp_path)
    offset = fill(store, 1, KEYS="k")[0]
    assert store.log_end > 0
    assert store.visible_to == 0
    assert store.max_offset("T", 0) == 0
    assert store.message_at(offset) is None
    assert store.query("T", "k").records == ()
    assert store.log.files.path_of(0).read_bytes() == bytes(SEGMENT)
    assert store.log.commit()
    assert store.visible_to == store.log_end
    assert store.max_offset("T", 0) == 1
    assert store.message_at(offset) is not None
    store.close()


def test_commit_waits_for_enough_pages_until_it_is_time(tmp_path: Path) -> None:
    """Goal: large writes in passing, everything when the thorough interval has passed; the flush has its own clock."""
    clock = ManualClock(NOW_MS)
    store = buffered(tmp_path, clock)
    told: list[int] = []
    store.add_listener(lambda topic, queue_id, end: told.append(end))
    fill(store, 2)
    store.flush_step()
    assert store.visible_to == 0
    clock.advance(200)
    store.flush_step()
    assert store.visible_to == store.log_end
    assert told[-1] == 2
    assert store.gate.position == 0
    clock.advance(500)
    store.flush_step()
    assert store.gate.position == 0
    clock.advance(10_000)
    store.flush_step()
    assert store.gate.position == store.log_end
    store.close()


def test_listener_is_told_with_the_commit(tmp_path: Path) -> None:
    """Goal: waking readers before they can read is waste."""
    store = buffered(tmp_path)
    told: list[int] = []
    store.add_listener(lambda topic, queue_id, end: told.append(end))
    store.append(message())
    assert told == []
    store.flush()
    assert told == [1]
    store.close()


def test_segments_roll_and_everything_is_there_afterwards(tmp_path: Path) -> None:
    """Goal: a full buffer is committed and synced before the next is used; a reopened store goes on mid-file."""
    store = buffered(tmp_path)
    fill(store, 40)
    assert store.gate.position >= 2 * SEGMENT
    assert store.max_offset("T", 0) >= 28
    store.close()
    again = buffered(tmp_path)
    assert again.max_offset("T", 0) == 40
    assert again.append(message(b"more")).queue_offset == 40
    again.flush()
    assert bodies(again.read("T", 0, 39))[-1:] == [b"more"] or bodies(again.read("T", 0, 40)) == [b"more"]
    again.close()
    plain = open_store(tmp_path)
    assert plain.max_offset("T", 0) == 41
    plain.close()


def test_buffered_and_mapped_stores_leave_equal_files(tmp_path: Path) -> None:
    """Goal: how bytes reach the file is nobody else's business."""
    buffer, mapped = buffered(tmp_path / "buffer"), open_store(tmp_path / "mapped")
    for store in (buffer, mapped):
        fill(store, 40, KEYS="k")
        store.close()
    for name in ("0" * 20, f"{SEGMENT:020d}", f"{2 * SEGMENT:020d}"):
        paths = [tmp_path / kind / "commitlog" / name for kind in ("buffer", "mapped")]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_cut_of_a_buffered_store_forgets_the_buffer_too(tmp_path: Path) -> None:
    """Goal: what was cut does not come back with the next commit."""
    store = buffered(tmp_path)
    offsets = fill(store, 5)
    assert store.truncate_to(offsets[2]) == offsets[2]
    store.append(message(b"new"))
    store.flush()
    assert bodies(store.read("T", 0, 2)) == [b"new"]
    store.close()
    assert open_and_count(tmp_path) == 3


def open_and_count(root: Path) -> int:
    store = open_store(root)
    try:
        return store.max_offset("T", 0)
    finally:
        store.close()
