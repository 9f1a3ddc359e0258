"""Turns at the disk."""

from __future__ import annotations

from rocketq.broker.pull.cold_reads import KEPT_MS, WINDOW_MS, ColdReads

LIMITS = {"group_bytes_max": 100, "total_bytes_max": 250}


def test_a_group_above_its_limit_waits_for_the_next_window() -> None:
    reads = ColdReads()
    reads.count("g", 99, WINDOW_MS)
    assert not reads.is_over("g", WINDOW_MS, **LIMITS)
    reads.count("g", 1, WINDOW_MS)
    assert reads.is_over("g", 2 * WINDOW_MS - 1, **LIMITS)
    assert not reads.is_over("other", WINDOW_MS, **LIMITS)
    assert not reads.is_over("g", 2 * WINDOW_MS, **LIMITS)


def test_a_limit_of_its_own_wins_and_all_together_have_one() -> None:
    reads = ColdReads()
    reads.limits["wide"] = 1_000
    reads.count("wide", 200, WINDOW_MS)
    assert not reads.is_over("wide", WINDOW_MS, **LIMITS)
    reads.count("other", 50, WINDOW_MS)
    assert reads.is_over("wide", WINDOW_MS, **LIMITS)
    assert reads.total_bytes(WINDOW_MS) == 250


def test_who_has_not_read_for_long_is_forgotten() -> None:
    reads = ColdReads()
    reads.count("g", 5, WINDOW_MS)
    assert reads.readers(2 * WINDOW_MS)["g"].window_bytes == 0
    assert reads.readers(WINDOW_MS + KEPT_MS) == {}
