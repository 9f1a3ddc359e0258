"""The timer's files: Apache's bytes, chains, rolls of files, marks that are whole or not there."""

from __future__ import annotations

import struct
from pathlib import Path

from rocketq.store.timer_files import (
    SLOT_COUNT,
    Slot,
    TimerCheck,
    TimerLog,
    TimerMark,
    TimerUnit,
    TimerWheel,
    unit_kind,
)

SECOND = 1_700_000_000_000


def unit(previous: int = -1, delay_ms: int = 5_000, log_offset: int = 77) -> TimerUnit:
    return TimerUnit(previous, unit_kind(rolls=False, deletes=False), SECOND, delay_ms, log_offset, 200, -5)


def test_the_wheel_has_apaches_layout(tmp_path: Path) -> None:
    wheel = TimerWheel(tmp_path / "timerwheel")
    wheel.link(SECOND, 104, None)
    wheel.link(SECOND, 208, wheel.slot(SECOND))
    assert wheel.slot(SECOND) == Slot(SECOND // 1000, 104, 208, 2)
    assert wheel.slot(SECOND + 1000) is None
    assert wheel.slot(SECOND + wheel.span_ms) is None
    wheel.close()
    data = (tmp_path / "timerwheel").read_bytes()
    assert len(data) == 38_707_200
    at = SECOND // 1000 % SLOT_COUNT * 32
    assert data[at : at + 32] == struct.pack(">qqqii", SECOND // 1000, 104, 208, 2, 0)


def test_units_are_52_bytes_chained_and_never_across_files(tmp_path: Path) -> None:
    log = TimerLog(tmp_path / "timerlog", file_bytes=52 * 3 + 20)
    positions: list[int] = []
    for number in range(8):
        positions.append(log.append(unit(positions[-1] if positions else -1, log_offset=number)))
    assert positions[:4] == [0, 52, 104, 176]
    assert [found.log_offset for found in log.chain(positions[-1])] == list(reversed(range(8)))
    log.close()
    first = (tmp_path / "timerlog" / f"{0:020d}").read_bytes()
    assert first[:52] == struct.pack(">iqiqiqiiq", 52, -1, 1, SECOND, 5_000, 0, 200, -5, 0)
    assert struct.unpack_from(">iqi", first, 156) == (20, 0, -875286124)
    again = TimerLog(tmp_path / "timerlog", file_bytes=52 * 3 + 20)
    assert [position for position, _ in again.walk(0)] == positions
    assert again.end == positions[-1] + 52
    again.delete_before(176)
    assert (again.start, again.read(0)) == (176, None)
    again.cut(positions[4])
    assert [position for position, _ in again.walk(0)] == positions[3:4]
    again.close()


def test_marks_survive_half_a_write(tmp_path: Path) -> None:
    """Goal: whatever is torn, the mark before it is still there; Apache's numbers are in front."""
    path = tmp_path / "config" / "timercheck"
    check = TimerCheck(path)
    assert (check.latest, check.safe) == (None, None)
    marks = [TimerMark(number, SECOND + number, 52 * number, number) for number in range(1, 4)]
    for mark in marks:
        check.put(mark)
    check.put_safe(marks[0])
    check.close()
    assert struct.unpack_from(">3q", path.read_bytes()) == (SECOND + 3, 156, 3)
    again = TimerCheck(path)
    assert (again.latest, again.safe, again.read_ms) == (marks[2], marks[0], SECOND + 3)
    again.close()
    for at in (1024, 1536):
        torn = bytearray(path.read_bytes())
        torn[at + 9] ^= 0xFF
        (tmp_path / "torn").write_bytes(torn)
        found = TimerCheck(tmp_path / "torn")
        assert found.latest in (marks[1], marks[2])
        found.close()
