"""Pages ahead of the writer: how far, when, and that it changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.store.kit import StagedDisk, message, open_store

from rocketq.kernel.buffers import MappedBuffer
from rocketq.store import FlushType
from rocketq.store.disk import Disk
from rocketq.store.warming import AHEAD_BYTES_MAX, BUSY_INTERVAL_MS, IDLE_INTERVAL_MS, Warmer, WarmFile, ahead_of


class Pages:
    """A buffer that notes what is asked of it."""

    def __init__(self, size: int, *, able: bool = True) -> None:
        self.size, self.base = size, 0
        self.able = able
        self.asked: list[tuple[int, int]] = []

    def populate(self, at: int, count: int) -> bool:
        self.asked.append((at, at + count))
        return self.able


@pytest.mark.parametrize(
    ("grown", "turn_ms", "ahead"),
    [
        (0, IDLE_INTERVAL_MS, 0),
        (100 << 10, IDLE_INTERVAL_MS, 0),
        (100 << 10, 40, 250 << 10),  # so much in less time is a busy log
        (10 << 20, BUSY_INTERVAL_MS, 20 << 20),
        (10 << 20, IDLE_INTERVAL_MS, 4 << 20),  # the next turn is a short one
        (1 << 40, BUSY_INTERVAL_MS, AHEAD_BYTES_MAX),
    ],
)
def test_it_looks_as_far_ahead_as_the_log_grows(grown: int, turn_ms: int, ahead: int) -> None:
    """Goal: an idle store keeps nothing ready, a busy one a bounded amount, whatever the length of a turn."""
    assert ahead_of(grown, turn_ms) == ahead


def test_every_page_is_asked_for_once_and_none_beyond_the_file() -> None:
    """Goal: the stretches follow one another, from where the writer is to the end of the file."""
    pages, file = Pages(10 << 20), WarmFile()
    for position in range(0, 10 << 20, 300 << 10):
        file.warm(pages, position, 3 << 20)  # type: ignore[arg-type]
    assert pages.asked[0][0] == 0
    assert pages.asked[-1][1] == 10 << 20
    assert all(before[1] == after[0] for before, after in zip(pages.asked, pages.asked[1:], strict=False))


def test_a_writer_that_overtakes_is_followed() -> None:
    """Goal: pages behind the writer are not asked for."""
    pages, file = Pages(64 << 20), WarmFile()
    file.warm(pages, 0, 1 << 20)  # type: ignore[arg-type]
    file.warm(pages, 32 << 20, 1 << 20)  # type: ignore[arg-type]
    assert pages.asked == [(0, 1 << 20), (32 << 20, 33 << 20)]


def test_a_system_that_cannot_is_asked_once_a_turn() -> None:
    """Goal: an old kernel costs a call, not a loop of them."""
    pages, file = Pages(64 << 20, able=False), WarmFile()
    file.warm(pages, 0, 32 << 20)  # type: ignore[arg-type]
    assert pages.asked == [(0, 1 << 20)]


def test_a_populated_buffer_holds_what_it_held() -> None:
    """Goal: asking for pages writes nothing, and a range outside the buffer is refused."""
    data = bytearray(b"abc" * 4096)
    buffer = MappedBuffer(data, 0)
    buffer.populate(1, len(data) - 1)
    assert data == b"abc" * 4096
    with pytest.raises(IndexError):
        buffer.populate(0, len(data) + 1)


class AskedDisk(StagedDisk):
    """Notes which parts of which files are to be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[tuple[str, int, int]] = []

    def fetch(self, path: Path, start: int, count: int) -> bool:
        self.fetched.append((path.name, start, start + count))
        return super().fetch(path, start, count)


@pytest.mark.parametrize(
    ("flush_type", "read_ahead", "fetches"),
    [
        (FlushType.ASYNC_FLUSH, True, False),
        (FlushType.ASYNC_FLUSH, False, False),
        (FlushType.SYNC_FLUSH, True, False),
        (FlushType.SYNC_FLUSH, False, True),
    ],
)
def test_pages_are_fetched_where_each_message_is_synced_and_nothing_read_ahead(
    tmp_path: Path, flush_type: FlushType, read_ahead: bool, fetches: bool
) -> None:
    """Goal: pages that are synced often are never made dirty ahead, and those fetched lie behind the writer's."""
    disk = AskedDisk()
    given = {"flush_type": flush_type, "read_ahead": read_ahead, "segment_bytes": 8 << 20}
    with open_store(tmp_path, disk=disk, message_bytes_max=1 << 20, **given) as store:
        warmer = Warmer(store.config, store.log)
        warmer.step()
        first_end = store.append(message(body=bytes(900_000))).end
        warmer.step()
        assert bool(disk.fetched) is fetches
        assert all(name == "0" * 20 and start >= first_end for name, start, _ in disk.fetched)


def test_a_file_that_is_gone_is_not_fetched(tmp_path: Path) -> None:
    """Goal: the log may be cut back at any moment; asking for pages of it is no failure."""
    assert not Disk().fetch(tmp_path / "gone", 0, 1 << 20)


@pytest.mark.parametrize("read_ahead", [True, False])
@pytest.mark.parametrize("flush_type", [FlushType.ASYNC_FLUSH, FlushType.SYNC_FLUSH])
def test_a_store_reads_the_same_behind_a_warm_page(tmp_path: Path, flush_type: FlushType, read_ahead: bool) -> None:
    """Goal: turns of the warmer between appends change neither records nor what a new opening finds."""
    given = {"flush_type": flush_type, "segment_bytes": 4 << 20, "message_bytes_max": 1 << 20, "read_ahead": read_ahead}
    with open_store(tmp_path, **given) as store:
        warmer = Warmer(store.config, store.log)
        warmer.step()
        results = []
        for number in range(12):
            results.append(store.append(message(body=bytes([number]) * 600_000)))
            warmer.step()
        found = [store.queries.record_at(result.log_offset) for result in results]
    assert [record and record.body for record in found] == [bytes([number]) * 600_000 for number in range(12)]
    with open_store(tmp_path, **given) as store:
        assert store.log_end == results[-1].end
