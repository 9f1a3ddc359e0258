"""Ids of messages over the turn of a month."""

from __future__ import annotations

from datetime import datetime

from rocketq.client.core.messages import UniqueIds, born_ms_of


def at(*parts: int) -> int:
    return round(datetime(*parts).timestamp() * 1000)  # type: ignore[arg-type]


def test_the_span_starts_anew_with_each_month() -> None:
    ids = UniqueIds(b"\x0a\x00\x00\x01", 0x12345, 7)
    last = ids.next(at(2026, 1, 31, 23, 59, 59))
    first = ids.next(at(2026, 2, 1))
    again = ids.next(at(2026, 1, 31, 12))  # a clock that was set back
    december = ids.next(at(2026, 12, 31, 23))
    assert [len(one) for one in (last, first, again, december)] == [32] * 4
    assert last.startswith("0A0000012345" + "00000007")
    assert first[-12:-4] == "00000000"
    assert born_ms_of(last, at(2026, 1, 31, 23, 59, 59)) == at(2026, 1, 31, 23, 59, 59)
    assert born_ms_of(again, at(2026, 1, 31, 13)) == at(2026, 1, 31, 12)
    assert born_ms_of(december, at(2026, 12, 31, 23, 30)) == at(2026, 12, 31, 23)


def test_ids_of_one_millisecond_differ() -> None:
    ids = UniqueIds(bytes(4), 1, 2)
    assert len({ids.next(at(2026, 5, 5)) for _ in range(60_000)}) == 60_000
