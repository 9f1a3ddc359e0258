"""Alert rules over the figures of the sampler: pure. Time comes in as milliseconds."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rocketq.client.core.overview import ClusterOverview
from rocketq.console.rates import ClusterFigures, is_users

METRICS: Final = (
    "group.lag",
    "group.delay_s",
    "group.offline_lag",
    "group.unknown",
    "group.conflicts",
    "group.dead_letters",
    "broker.missing",
    "broker.disk",
    "broker.replica_behind_bytes",
    "broker.put_p99_ms",
    "topic.in_tps",
    "cluster.in_tps",
    "cluster.dead_letters",
    "sampler.failing",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Fires when the metric of a subject is above (or below) the threshold for so long."""

    id: str
    name: str
    metric: str
    scope: str = "*"
    above: bool = True
    threshold: float = 0.0
    for_s: int = 60
    severity: str = "warning"
    enabled: bool = True
    silenced_until_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One subject of a rule. `state`: pending, firing, resolved."""

    rule: str
    name: str
    subject: str
    metric: str
    severity: str
    state: str
    value: float
    threshold: float
    since_ms: int
    fired_ms: int | None = None
    resolved_ms: int | None = None
    note: str | None = None
    acknowledged_by: str | None = None

    @property
    def key(self) -> str:
        return f"{self.rule}/{self.subject}"


DEFAULT_RULES: Final = (
    Rule(id="group-behind", name="Consumer group is behind", metric="group.delay_s", threshold=300, for_s=60),
    Rule(id="group-offline", name="Group without members has lag", metric="group.offline_lag", threshold=0, for_s=120),
    Rule(
        id="broker-missing", name="Broker does not answer", metric="broker.missing", threshold=0, for_s=15,
        severity="critical",
    ),
    Rule(
        id="disk", name="Disk of a broker fills up", metric="broker.disk", threshold=0.8, for_s=60,
        severity="critical",
    ),
    Rule(id="dead-letters", name="Dead letters of a group", metric="group.dead_letters", threshold=100, for_s=60),
    Rule(
        id="replica", name="Replica falls behind", metric="broker.replica_behind_bytes", threshold=64 << 20, for_s=60,
    ),
    Rule(
        id="sampler", name="Cluster cannot be sampled", metric="sampler.failing", threshold=0, for_s=60,
        severity="critical",
    ),
)  # fmt: skip


def values_of(
    metric: str, overview: ClusterOverview | None, figures: ClusterFigures | None, *, failing: bool
) -> Iterator[tuple[str, float]]:
    """The subjects of a metric with their values; unknown values are left out."""
    if metric == "sampler.failing":
        yield "sampler", 1.0 if failing else 0.0
        return
    if overview is None or figures is None:
        return
    match metric.split(".", maxsplit=1)[0]:
        case "group":
            for group in overview.groups:
                if not is_users(group):
                    continue
                value = {
                    "group.lag": group.lag,
                    "group.delay_s": (group.delay_ms or 0) / 1000 if group.lag_known else 0,
                    "group.offline_lag": group.lag_known if group.members == 0 else 0,
                    "group.unknown": 1 if group.state == "unknown" else 0,
                    "group.conflicts": group.conflicts,
                    "group.dead_letters": group.dead_letters,
                }.get(metric)
                if value is not None:
                    yield group.name, float(value)
        case "broker":
            missing = {one.broker for one in overview.partial}
            for broker in overview.brokers:
                value = {
                    "broker.missing": 1 if broker.name in missing else 0,
                    "broker.disk": broker.disk_ratio,
                    "broker.replica_behind_bytes": broker.replicas_behind_bytes,
                    "broker.put_p99_ms": broker.put_p99_ms,
                }.get(metric)
                if value is not None:
                    yield broker.name, float(value)
        case "topic":
            for topic in overview.topics:
                if topic.in_tps is not None:
                    yield topic.name, topic.in_tps
        case "cluster":
            value = {"cluster.in_tps": figures.in_tps, "cluster.dead_letters": figures.dead_letters}.get(metric)
            if value is not None:
                yield "cluster", float(value)


@dataclass(slots=True)
class AlertStates:
    """Of one cluster: which subjects are above their thresholds since when."""

    active: dict[str, Alert] = field(default_factory=dict)
    resolved: list[Alert] = field(default_factory=list)

    def update(self, rules: Mapping[str, Rule], values: Mapping[str, Mapping[str, float]], now_ms: int) -> list[Alert]:
        """Alerts that began to fire or were resolved now. `values` by metric, then by subject."""
        events: list[Alert] = []
        seen: set[str] = set()
        for rule in rules.values():
            if not rule.enabled:
                continue
            for subject, value in values.get(rule.metric, {}).items():
                if not fnmatch.fnmatchcase(subject, rule.scope):
                    continue
                if (value > rule.threshold) is not rule.above or value == rule.threshold:
                    continue
                key = f"{rule.id}/{subject}"
                seen.add(key)
                alert = self.active.get(key)
                if alert is None:
                    alert = Alert(
                        rule=rule.id,
                        name=rule.name,
                        subject=subject,
                        metric=rule.metric,
                        severity=rule.severity,
                        state="pending",
                        value=value,
                        threshold=rule.threshold,
                        since_ms=now_ms,
                    )
                alert = replace(alert, value=value)
                if alert.state == "pending" and now_ms - alert.since_ms >= rule.for_s * 1000:
                    alert = replace(alert, state="firing", fired_ms=now_ms)
                    if now_ms >= rule.silenced_until_ms:
                        events.append(alert)
                self.active[key] = alert
        for key in [key for key in self.active if key not in seen]:
            alert = self.active.pop(key)
            if alert.state == "firing":
                done = replace(alert, state="resolved", resolved_ms=now_ms)
                events.append(done)
                self.resolved = [done, *self.resolved][:200]
        return events


def rule_of(value: Mapping[str, Any]) -> Rule:
    """ValueError for what is no rule."""
    rule = Rule(**value)
    if rule.metric not in METRICS:
        raise ValueError(f"metric {rule.metric!r} is not one of {', '.join(METRICS)}")
    if rule.severity not in ("info", "warning", "critical"):
        raise ValueError(f"severity {rule.severity!r} is not info, warning or critical")
    if rule.for_s < 0 or not rule.id or len(rule.id) > 64:
        raise ValueError("a rule needs an id of at most 64 characters and a duration of 0 s or more")
    return rule
