"""Counters over time."""

from __future__ import annotations

import pytest

from rocketq.broker.stats.meters import SAMPLE_MS, Meters, Statistic, group_key
from rocketq.broker.stats.totals import Traffic
from rocketq.runtime.clock import ManualClock


def test_a_meter_is_right_after_its_first_sample() -> None:
    clock = ManualClock(0)
    meters = Meters(clock.now_ms())
    meters.add(Statistic.TOPIC_PUT_COUNT, "T", 5)
    clock.advance(SAMPLE_MS)
    list(meters.sample(clock.now_ms()))
    meter = meters.get(Statistic.TOPIC_PUT_COUNT, "T")
    assert meter is not None
    assert (meter.stats().minute.sum, meter.stats().minute.tps, meter.stats().minute.average) == (5, 0.5, 5.0)
    assert meter.stats().hour.sum == 0


def test_the_minute_slides_and_the_hour_remembers() -> None:
    clock = ManualClock(0)
    meters = Meters(0)
    meters.add(Statistic.TOPIC_PUT_COUNT, "T", 7)
    for _ in range(61):
        clock.advance(SAMPLE_MS)
        list(meters.sample(clock.now_ms()))
    meter = meters.get(Statistic.TOPIC_PUT_COUNT, "T")
    assert meter is not None
    assert (meter.stats().minute.sum, meter.stats().hour.sum, meter.stats().day.sum) == (0, 7, 0)
    for _ in range(300):
        clock.advance(SAMPLE_MS)
        list(meters.sample(clock.now_ms()))
    assert meter.stats().day.sum == 7
    assert meters.tps(Statistic.TOPIC_PUT_COUNT, "T") == 0.0
    assert meters.tps(Statistic.TOPIC_PUT_COUNT, "nobody") == 0.0


def test_what_is_deleted_is_forgotten() -> None:
    meters = Meters(0)
    for key in ("T", group_key("T", "g"), group_key("U", "g"), "TT"):
        meters.add(Statistic.GROUP_GET_COUNT, key, 1)
    meters.forget_topic("T")
    assert meters.get(Statistic.GROUP_GET_COUNT, "T") is None
    assert meters.get(Statistic.GROUP_GET_COUNT, "T@g") is None
    assert meters.get(Statistic.GROUP_GET_COUNT, "TT") is not None
    meters.forget_group("g")
    assert meters.get(Statistic.GROUP_GET_COUNT, "U@g") is None


def test_rates_of_a_young_broker_leave_long_spans_empty() -> None:
    clock = ManualClock(0)
    traffic = Traffic(0)
    assert traffic.rates("put") == "  "
    for _ in range(10):
        traffic.put(3, 300, 1)
        clock.advance(1_000)
        traffic.sample(clock.now_ms())
    assert traffic.rates("put") == "3.0  "
    assert traffic.rates("found", "missed") == "0.0  "


def test_days_and_distribution() -> None:
    traffic = Traffic(0)
    for took_ms in (0, 1, 10, 11, 20_000):
        traffic.put(1, 100, took_ms)
    traffic.got(4, 3)
    traffic.got(0, 0)
    traffic.put_failed()
    assert traffic.distribution().startswith("[<=0ms]:1 [0~10ms]:2 [10~50ms]:1 ")
    assert traffic.distribution().endswith("[10s~]:1 ")
    traffic.begin_day()
    traffic.put(2, 1, 0)
    traffic.begin_day()
    totals = traffic.day_totals()
    assert (totals["msgPutTotalTodayNow"], totals["msgPutTotalTodayMorning"]) == ("7", "7")
    assert (totals["msgPutTotalYesterdayMorning"], totals["msgGetTotalTodayMorning"]) == ("5", "4")
    assert (traffic.put_ms_max, traffic.get_ms_max, traffic.now.put_failed) == (20_000, 3, 1)
    assert (traffic.now.found, traffic.now.missed) == (1, 1)


@pytest.mark.parametrize("samples", [1, 601, 700])
def test_samples_are_bounded(samples: int) -> None:
    traffic = Traffic(0)
    for number in range(samples):
        traffic.sample(number * 1_000)
    assert len(traffic._samples) <= 601
