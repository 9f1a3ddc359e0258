"""Finding messages by time and by key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketq.runtime.clock import ManualClock
from rocketq.store import Store

from .kit import NOW_MS, message, open_store


def timed_store(root: Path, gaps_ms: list[int], *, first_offset: int = 0) -> Store:
    clock = ManualClock(NOW_MS)
    store = open_store(root, clock=clock)
    if first_offset:
        store.queues.find_or_make("T", 0).begin_at(first_offset)
    for gap_ms in gaps_ms:
        clock.advance(gap_ms)
        store.append(message())
    return store


@pytest.mark.parametrize(
    ("after_ms", "lower", "upper"),
    [(-1, 5, 5), (0, 5, 5), (1, 6, 5), (10, 6, 7), (11, 8, 7), (20, 8, 8), (21, 9, 8), (1 << 40, 9, 8)],
)
def test_offset_by_time_has_a_lower_and_an_upper_bound(tmp_path: Path, after_ms: int, lower: int, upper: int) -> None:
    """Goal: LOWER is the first at or after a time (the end when none), UPPER the last at or before it."""
    store = timed_store(tmp_path, [0, 10, 0, 10], first_offset=5)
    assert store.offset_by_time("T", 0, NOW_MS + after_ms) == lower
    assert store.offset_by_time("T", 0, NOW_MS + after_ms, upper=True) == upper
    store.close()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 1, 5]), min_size=1, max_size=12), st.integers(-2, 40), st.booleans())
def test_offset_by_time_agrees_with_looking_at_every_message(
    tmp_path_factory: pytest.TempPathFactory, gaps_ms: list[int], after_ms: int, upper: bool
) -> None:
    """Goal: the search by halves is the search one by one, equal times included."""
    store = timed_store(tmp_path_factory.mktemp("store"), gaps_ms)
    times = [store.store_ms_of("T", 0, offset) for offset in range(len(gaps_ms))]
    wanted = NOW_MS + after_ms
    if upper:
        expected = max([offset for offset, time in enumerate(times) if time <= wanted], default=0)
    else:
        expected = min([offset for offset, time in enumerate(times) if time >= wanted], default=len(times))
    assert store.offset_by_time("T", 0, wanted, upper=upper) == expected
    store.close()


def test_offset_by_time_steps_over_lost_messages(tmp_path: Path) -> None:
    """Goal: fillers have no time; the search goes by their neighbours."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock)
    store.append(message())
    queue = store.queues.get("T", 0)
    assert queue is not None
    queue.fill_to(6)
    clock.advance(100)
    store.append(message())
    assert store.offset_by_time("T", 0, NOW_MS) == 0
    assert store.offset_by_time("T", 0, NOW_MS + 100) in range(1, 7)
    assert store.offset_by_time("T", 0, NOW_MS + 101) == 7
    assert store.offset_by_time("T", 0, NOW_MS + 500, upper=True) == 6
    store.close()


def test_times_of_what_is_not_there(tmp_path: Path) -> None:
    """Goal: missing queues and messages have answers of their own."""
    store = open_store(tmp_path)
    assert store.offset_by_time("none", 0, NOW_MS) == 0
    assert store.earliest_store_ms() == -1
    assert store.store_ms_of("none", 0, 0) == -1
    store.append(message())
    assert store.store_ms_of("T", 0, 0) == NOW_MS
    assert store.store_ms_of("T", 0, 1) == -1
    assert store.store_ms_of("T", 0, 1 << 30) == -1
    assert store.earliest_store_ms() == NOW_MS
    store.close()


def test_the_oldest_message_is_looked_for_only_behind_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: operators ask every second; a search goes through a whole log file, so it is made only when it must be."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock)
    first = store.append(message())
    clock.advance(100)
    store.append(message())
    with monkeypatch.context() as patch:
        patch.setattr("rocketq.store.queries.find_next_record", lambda *_: pytest.fail("searched"))
        assert store.earliest_store_ms() == NOW_MS
    store.log.segment(0).memory[first.log_offset] ^= 0xFF
    assert store.earliest_store_ms() == NOW_MS + 100
    store.close()


# By key


def test_message_is_found_by_each_of_its_keys(tmp_path: Path) -> None:
    """Goal: the unique key and every word of KEYS, of the right topic only, oldest first."""
    store = open_store(tmp_path)
    first = store.append(message(KEYS="a b", UNIQ_KEY="u1")).log_offset
    second = store.append(message(KEYS="b", UNIQ_KEY="u2")).log_offset
    store.append(message(topic="Other", KEYS="a b"))

    def found(key: str) -> list[int]:
        return [record.log_offset for record in store.query("T", key).records]

    assert [found(key) for key in ("a", "b", "u1", "u2", "none", "a b", "")] == [
        [first],
        [first, second],
        [first],
        [second],
        [],
        [],
        [],
    ]
    assert [record.topic for record in store.query("Other", "a").records] == ["Other"]
    store.close()


def test_times_of_a_query_are_exact(tmp_path: Path) -> None:
    """Goal: the index knows seconds, the messages know better."""
    clock = ManualClock(NOW_MS)
    store = open_store(tmp_path, clock=clock)
    times = []
    for _ in range(5):
        times.append(store.append(message(KEYS="k")).store_ms)
        clock.advance(400)

    def found(begin_ms: int, end_ms: int) -> list[int]:
        return [record.store_ms for record in store.query("T", "k", begin_ms=begin_ms, end_ms=end_ms).records]

    for low in range(5):
        for high in range(low, 5):
            assert found(times[low], times[high]) == times[low : high + 1]
            assert found(times[low] + 1, times[high]) == times[low + 1 : high + 1]
            assert found(times[low], times[high] - 1) == times[low:high]
    store.close()


def test_colliding_keys_are_told_apart(tmp_path: Path) -> None:
    """Goal: "Aa" and "BB" have one hash; a query answers with the messages that carry the key."""
    store = open_store(tmp_path)
    for _ in range(3):
        store.append(message(b"mine", KEYS="Aa"))
        store.append(message(b"not mine", KEYS="BB"))
    assert [record.body for record in store.query("T", "Aa").records] == [b"mine"] * 3
    assert [record.body for record in store.query("T", "BB").records] == [b"not mine"] * 3
    store.close()


@pytest.mark.parametrize(("asked", "count"), [(1, 1), (3, 3), (64, 50), (1_000, 50)])
def test_newest_messages_are_answered_when_there_are_more(tmp_path: Path, asked: int, count: int) -> None:
    """Goal: no more than asked for, the newest of them, never more than the broker's cap."""
    store = open_store(tmp_path, query_count_max=50)
    offsets = [store.append(message(b"", KEYS="k")).log_offset for _ in range(60)]
    found = [record.log_offset for record in store.query("T", "k", count_max=asked).records]
    assert found == offsets[-count:]
    store.close()


def test_query_tells_how_far_the_index_reached(tmp_path: Path) -> None:
    """Goal: clients see whether "nothing" means "not yet"."""
    store = open_store(tmp_path)
    last = store.append(message(KEYS="k"))
    result = store.query("T", "none")
    assert (result.index_end_ms, result.index_end_offset) == (last.store_ms, last.log_offset)
    store.close()
