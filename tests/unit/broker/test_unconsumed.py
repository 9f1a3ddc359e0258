"""Messages deleted before a group consumed them."""

from __future__ import annotations

import logging
from typing import cast

import pytest

from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.stats import families
from rocketq.broker.stats.broker_metrics import BrokerMetrics
from rocketq.broker.stats.unconsumed import UnconsumedWatch
from rocketq.runtime.metrics import Snapshot
from rocketq.store import StoreReader


class Log:
    """The few facts of a store that the watch reads."""

    def __init__(self) -> None:
        self.log_start = 0
        self.first = {("T", 0): 0, ("T", 1): 0, ("U", 0): 5}

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.first})

    def queue_ids(self, topic: str) -> list[int]:
        return [queue_id for name, queue_id in self.first if name == topic]

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.first[topic, queue_id]


def counted(metrics: BrokerMetrics) -> dict[tuple[str, ...], object]:
    snapshot = Snapshot()
    list(metrics.collect(snapshot))
    return dict(snapshot.families.get(families.UNCONSUMED_DELETED, {}))


def test_only_what_the_group_had_not_consumed_is_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    log, offsets, metrics = Log(), OffsetTable(), BrokerMetrics()
    offsets.commit("slow", "T", 0, 3)
    offsets.commit("slow", "T", 1, 100)
    offsets.commit("fast", "T", 0, 50)
    offsets.commit("old", "U", 0, 1)  # behind the first message already at the start
    watch = UnconsumedWatch(offsets, cast(StoreReader, log), metrics)
    log.first["T", 0] = 10
    list(watch.steps())
    assert counted(metrics) == {}  # the log has lost no file
    log.log_start = 1
    with caplog.at_level(logging.WARNING, "rocketq.broker.stats.unconsumed"):
        list(watch.steps())
    assert counted(metrics) == {("slow", "T"): 7}
    assert caplog.messages == ["messages deleted before they were consumed: group=slow topic=T count=7"]
    log.log_start, log.first["T", 0], log.first["U", 0] = 2, 12, 6
    list(watch.steps())
    assert counted(metrics) == {("slow", "T"): 9, ("old", "U"): 1}
    metrics.forget_group("slow")
    assert counted(metrics) == {("old", "U"): 1}
