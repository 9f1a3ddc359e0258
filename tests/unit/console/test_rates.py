"""Rates, trends, findings and alerts from overviews: pure, with times as arguments."""

from __future__ import annotations

import pytest

from rocketq.client.core.overview import (
    BrokerSummary,
    ClusterOverview,
    GroupSummary,
    MissingBroker,
    QueueProgressSummary,
    TopicSummary,
)
from rocketq.console.alerts import AlertStates, Rule, rule_of, values_of
from rocketq.console.rates import ClusterFigures, RateKeeper, findings, is_stale


def overview(at_ms: int, *, lag: int | None = 0, end: int = 0, total: int = 0, members: int = 1) -> ClusterOverview:
    worst = QueueProgressSummary(topic="T", broker="b", queue_id=0, committed=0, end=lag, lag=lag)
    group = GroupSummary(
        name="g",
        topics=("T",),
        lag=lag,
        lag_known=lag or 0,
        state="known" if lag is not None else "unknown",
        members=members,
        delay_ms=120_000,
        worst=worst,
    )
    return ClusterOverview(
        taken_ms=at_ms,
        clusters={},
        brokers=(BrokerSummary(name="b", cluster="c", addr="a", messages_in=total, messages_out=total),),
        topics=(TopicSummary(name="T", kind="normal", end=end, asked_ms=at_ms),),
        groups=(group,),
    )


def test_rates_come_from_differences() -> None:
    keeper = RateKeeper()
    first, figures = keeper.update(overview(1_000, end=100, total=50))
    assert (first.topics[0].in_tps, figures.in_tps) == (None, None)
    second, figures = keeper.update(overview(6_000, end=150, total=100))
    assert (second.topics[0].in_tps, figures.in_tps, figures.out_tps) == (10.0, 10.0, 10.0)


def test_a_broker_that_was_restarted_gives_no_negative_rate() -> None:
    keeper = RateKeeper()
    keeper.update(overview(1_000, end=500, total=900))
    after, figures = keeper.update(overview(6_000, end=10, total=5))
    assert figures.in_tps is None
    assert after.topics[0].in_tps == 0.0


@pytest.mark.parametrize(
    ("lags", "trend", "done_in_s"),
    [
        ((1_000, 900, 800), "catching-up", 80.0),
        ((800, 900, 1_000), "falling-behind", None),
        ((900, 901, 900), "steady", None),
        ((0, 0, 0), None, None),
    ],
)
def test_trends(lags: tuple[int, ...], trend: str | None, done_in_s: float | None) -> None:
    keeper = RateKeeper()
    for number, lag in enumerate(lags):
        found, _ = keeper.update(overview(1_000 + number * 10_000, lag=lag))
    assert (found.groups[0].trend, found.groups[0].done_in_s) == (trend, done_in_s)


def test_an_unknown_lag_has_no_trend_and_is_counted() -> None:
    keeper = RateKeeper()
    for number in range(3):
        found, figures = keeper.update(overview(number * 10_000, lag=None))
    assert found.groups[0].trend is None
    assert figures.lag_unknown_groups == 1
    assert [one.code for one in findings(found, figures, None)] == ["groups-unknown"]


def figures(**changes: float) -> ClusterFigures:
    values = dict.fromkeys(ClusterFigures.__dataclass_fields__, 0) | changes
    return ClusterFigures(**values)  # type: ignore[arg-type]


def test_the_worst_is_first() -> None:
    found = overview(1_000, lag=5_000)
    broker = BrokerSummary(name="b", cluster="c", addr="a", disk_ratio=0.8)
    missing = MissingBroker(broker="x", addr="1", reason="timed out")
    bad = ClusterOverview(
        taken_ms=1, clusters={}, brokers=(broker,), topics=(), groups=found.groups, partial=(missing,)
    )
    assert [one.code for one in findings(bad, figures(), 3)] == [
        "broker-missing",
        "group-behind",
        "dead-letters",
        "disk",
    ]


def test_an_offline_group_with_lag_is_a_finding() -> None:
    found = overview(1, lag=7, members=0)
    assert [one.code for one in findings(found, figures(), 0)] == ["group-offline"]


def test_old_figures_are_stale() -> None:
    found = overview(1_000_000)
    assert not is_stale(found, 1_015_000, 5.0)
    assert is_stale(found, 1_031_000, 5.0)


def test_an_alert_waits_fires_and_is_resolved() -> None:
    rule = Rule(id="r", name="lag", metric="group.lag", threshold=100, for_s=10, scope="bill*")
    states = AlertStates()
    rules = {"r": rule}

    def update(at_s: int, value: float, subject: str = "billing") -> list[str]:
        return [one.state for one in states.update(rules, {"group.lag": {subject: value}}, at_s * 1_000)]

    assert update(0, 200, "other") == []
    assert update(0, 200) == []
    assert states.active["r/billing"].state == "pending"
    assert update(5, 300) == []
    assert update(10, 300) == ["firing"]
    assert update(15, 300) == []
    assert update(20, 100) == ["resolved"]
    assert states.active == {}
    assert states.resolved[0].fired_ms == 10_000


def test_a_silenced_rule_fires_without_an_event() -> None:
    rule = Rule(id="r", name="lag", metric="group.lag", threshold=1, for_s=0, silenced_until_ms=99_000)
    states = AlertStates()
    assert states.update({"r": rule}, {"group.lag": {"g": 5}}, 1_000) == []
    assert states.active["r/g"].state == "firing"


def test_unknown_values_neither_fire_nor_resolve_by_being_zero() -> None:
    found = overview(1, lag=None)
    assert list(values_of("group.lag", found, figures(), failing=False)) == []
    assert list(values_of("group.unknown", found, figures(), failing=False)) == [("g", 1.0)]
    assert list(values_of("sampler.failing", None, None, failing=True)) == [("sampler", 1.0)]


@pytest.mark.parametrize(
    "value", [{"metric": "nonsense"}, {"severity": "loud"}, {"for_s": -1}, {"id": ""}, {"unheard": 1}]
)
def test_a_bad_rule_is_rejected(value: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        rule_of({"id": "r", "name": "n", "metric": "group.lag", **value})
