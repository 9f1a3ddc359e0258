"""Slow and failing brokers are passed over for a while, and the queue choice knows it."""

from __future__ import annotations

import pytest

from rocketq.client.core.routes import FaultLatency, FaultLatencyConfig, RoundRobin
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import MessageQueue

QUEUES = tuple(
    MessageQueue(topic="T", broker_name=name, queue_id=queue_id) for name in ("a", "b", "c") for queue_id in range(2)
)


@pytest.mark.parametrize(
    ("latency_ms", "absence_ms"),
    [
        (0, 0),
        (49, 0),
        (50, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (14_999, 10_000),
        (15_000, 30_000),
        (99_000, 30_000),
    ],
)
def test_the_longer_it_took_the_longer_a_broker_is_passed_over(latency_ms: int, absence_ms: int) -> None:
    faults = FaultLatency()
    faults.record("a", latency_ms, 1_000)
    assert faults.is_available("a", 1_000 + absence_ms)
    assert absence_ms == 0 or not faults.is_available("a", 999 + absence_ms)


def test_a_failure_counts_as_a_long_answer_and_the_next_good_one_clears_it() -> None:
    faults = FaultLatency()
    faults.record("a", 3, 0, isolated=True, reachable=False)
    assert not faults.is_available("a", 9_999)
    assert not faults.is_reachable("a")
    assert faults.is_available("a", 10_000)
    faults.record("a", 3, 5_000)
    assert faults.is_available("a", 5_000)
    assert faults.is_reachable("a")
    assert faults.is_available("never heard of", 0)


def test_tables_are_the_users_to_choose() -> None:
    faults = FaultLatency(FaultLatencyConfig(latencies_ms=(10,), absences_ms=(700,), isolation_ms=10))
    faults.record("a", 10, 0)
    assert not faults.is_available("a", 699)
    assert faults.is_available("a", 700)
    for wrong in ({"latencies_ms": (1,)}, {"latencies_ms": (), "absences_ms": ()}):
        with pytest.raises(ConfigError):
            FaultLatencyConfig(**wrong)
    with pytest.raises(ConfigError):
        FaultLatencyConfig(latencies_ms=(2, 1), absences_ms=(0, 0))


def test_brokers_that_left_all_routes_are_forgotten() -> None:
    faults = FaultLatency()
    for name in ("a", "b"):
        faults.record(name, 9_000, 0)
    faults.keep_only({"b"})
    assert set(faults.known()) == {"b"}


def test_a_broker_that_answers_again_is_reachable_and_still_passed_over_for_its_time() -> None:
    faults = FaultLatency()
    faults.record("a", 1, 0, isolated=True, reachable=False)
    assert faults.unreachable() == ["a"]
    faults.reached("a")
    faults.reached("nobody")
    assert (faults.unreachable(), faults.is_reachable("a"), faults.is_available("a", 9_999)) == ([], True, False)
    assert faults.is_available("a", 10_000)


def test_round_robin_takes_every_queue_and_after_a_failure_another_broker() -> None:
    choice = RoundRobin(start=4)
    assert [choice.choose(QUEUES) for _ in range(6)] == [QUEUES[at % 6] for at in range(4, 10)]
    assert {choice.choose(QUEUES, "a").broker_name for _ in range(12)} == {"b", "c"}
    only = QUEUES[:2]
    assert choice.choose(only, "a") in only


def test_available_comes_before_reachable_comes_before_any() -> None:
    faults = FaultLatency()
    choice = RoundRobin(faults=faults)
    faults.record("a", 1, 0, isolated=True)
    faults.record("b", 1, 0, isolated=True, reachable=False)
    assert {choice.choose(QUEUES, now_ms=1).broker_name for _ in range(6)} == {"c"}
    assert {choice.choose(QUEUES, "c", now_ms=1).broker_name for _ in range(6)} == {"a"}
    faults.record("a", 1, 0, isolated=True, reachable=False)
    assert {choice.choose(QUEUES, "c", now_ms=1).broker_name for _ in range(6)} == {"a", "b", "c"}
    assert {choice.choose(QUEUES, now_ms=10_000).broker_name for _ in range(6)} == {"a", "b", "c"}
