"""Counters over time."""

from __future__ import annotations

import pytest

from rocketq.broker.stats.stats_table import SAMPLE_MS, StatName, StatsTable, group_key
from rocketq.broker.stats.totals import BrokerTotals
from rocketq.runtime.clock import ManualClock


def test_a_meter_is_right_after_its_first_sample() -> None:
    clock = ManualClock(0)
    table = StatsTable(clock.now_ms())
    table.add(StatName.TOPIC_PUT_COUNT, "T", 5)
    clock.advance(SAMPLE_MS)
    list(table.sample(clock.now_ms()))
    counter = table.get(StatName.TOPIC_PUT_COUNT, "T")
    assert counter is not None
    assert (counter.stats().minute.sum, counter.stats().minute.tps, counter.stats().minute.average) == (5, 0.5, 5.0)
    assert counter.stats().hour.sum == 0


def test_the_minute_slides_and_the_hour_remembers() -> None:
    clock = ManualClock(0)
    table = StatsTable(0)
    table.add(StatName.TOPIC_PUT_COUNT, "T", 7)
    for _ in range(61):
        clock.advance(SAMPLE_MS)
        list(table.sample(clock.now_ms()))
    counter = table.get(StatName.TOPIC_PUT_COUNT, "T")
    assert counter is not None
    assert (counter.stats().minute.sum, counter.stats().hour.sum, counter.stats().day.sum) == (0, 7, 0)
    for _ in range(300):
        clock.advance(SAMPLE_MS)
        list(table.sample(clock.now_ms()))
    assert counter.stats().day.sum == 7
    assert table.tps(StatName.TOPIC_PUT_COUNT, "T") == 0.0
    assert table.tps(StatName.TOPIC_PUT_COUNT, "nobody") == 0.0


def test_what_is_deleted_is_forgotten() -> None:
    table = StatsTable(0)
    for key in ("T", group_key("T", "g"), group_key("U", "g"), "TT"):
        table.add(StatName.GROUP_GET_COUNT, key, 1)
    table.forget_topic("T")
    assert table.get(StatName.GROUP_GET_COUNT, "T") is None
    assert table.get(StatName.GROUP_GET_COUNT, "T@g") is None
    assert table.get(StatName.GROUP_GET_COUNT, "TT") is not None
    table.forget_group("g")
    assert table.get(StatName.GROUP_GET_COUNT, "U@g") is None


def test_rates_of_a_young_broker_leave_long_spans_empty() -> None:
    clock = ManualClock(0)
    totals = BrokerTotals(0)
    assert totals.rates("put") == "  "
    for _ in range(10):
        totals.put(3, 300, 1)
        clock.advance(1_000)
        totals.sample(clock.now_ms())
    assert totals.rates("put") == "3.0  "
    assert totals.rates("found", "missed") == "0.0  "


def test_days_and_distribution() -> None:
    totals = BrokerTotals(0)
    for took_ms in (0, 1, 10, 11, 20_000):
        totals.put(1, 100, took_ms)
    totals.got(4, 3)
    totals.got(0, 0)
    totals.put_failed()
    assert totals.distribution().startswith("[<=0ms]:1 [0~10ms]:2 [10~50ms]:1 ")
    assert totals.distribution().endswith("[10s~]:1 ")
    totals.begin_day()
    totals.put(2, 1, 0)
    totals.begin_day()
    day = totals.day_totals()
    assert (day["msgPutTotalTodayNow"], day["msgPutTotalTodayMorning"]) == ("7", "7")
    assert (day["msgPutTotalYesterdayMorning"], day["msgGetTotalTodayMorning"]) == ("5", "4")
    assert (totals.put_ms_max, totals.get_ms_max, totals.now.put_failed) == (20_000, 3, 1)
    assert (totals.now.found, totals.now.missed) == (1, 1)


@pytest.mark.parametrize("samples", [1, 601, 700])
def test_samples_are_bounded(samples: int) -> None:
    totals = BrokerTotals(0)
    for number in range(samples):
        totals.sample(number * 1_000)
    assert len(totals._samples) <= 601
