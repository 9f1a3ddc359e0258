"""Rates, trends and findings from successive overviews of a cluster. Times come with the overviews."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rocketq.client.core.overview import ClusterOverview, GroupSummary, TopicSummary

_TREND_MS: Final = 60_000
_STEADY_PER_S: Final = 0.5
_BEHIND: Final = 1_000
_BEHIND_MS: Final = 60_000
_DISK_WARNING: Final = 0.75
_DISK_CRITICAL: Final = 0.85
_REPLICA_BEHIND_BYTES: Final = 1 << 20
_OLD_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something an operator should see, as a code and fields so that each reader gets it in their language."""

    severity: str
    code: str
    fields: Mapping[str, Any]
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFigures:
    """The cluster in numbers. None is unknown."""

    in_tps: float | None
    out_tps: float | None
    lag: int | None
    lag_unknown_groups: int
    dead_letters: int | None
    disk_ratio: float | None
    put_p99_ms: float | None
    brokers: int
    brokers_missing: int
    topics: int
    groups: int


@dataclass(slots=True)
class RateKeeper:
    """Compares each overview with those before it. One per cluster."""

    _ends: dict[str, tuple[int, int, float | None]] = field(default_factory=dict)
    _lags: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)
    _totals: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    _dead_counts: deque[tuple[int, int]] = field(default_factory=deque)

    def update(self, overview: ClusterOverview) -> tuple[ClusterOverview, ClusterFigures]:
        """The overview with rates and trends, and its sums."""
        in_tps, out_tps = self._cluster_rates(overview)
        enriched = replace(
            overview,
            topics=tuple(self._topic(topic) for topic in overview.topics),
            groups=tuple(self._group(group, overview.taken_ms) for group in overview.groups),
        )
        return enriched, _figures(enriched, in_tps, out_tps)

    def _topic(self, topic: TopicSummary) -> TopicSummary:
        if topic.end is None or topic.asked_ms is None:
            return topic
        before = self._ends.get(topic.name)
        if before is None or before[1] == topic.asked_ms:
            rate = before[2] if before is not None else None
            self._ends[topic.name] = topic.end, topic.asked_ms, rate
        else:
            rate = max(0.0, (topic.end - before[0]) / ((topic.asked_ms - before[1]) / 1000))
            self._ends[topic.name] = topic.end, topic.asked_ms, rate
        return topic if rate is None else replace(topic, in_tps=round(rate, 2))

    def _group(self, group: GroupSummary, now_ms: int) -> GroupSummary:
        if group.state != "known":
            self._lags.pop(group.name, None)
            return group
        kept = self._lags.setdefault(group.name, deque(maxlen=64))
        kept.append((now_ms, group.lag_known))
        while kept and kept[0][0] < now_ms - _TREND_MS:
            kept.popleft()
        if len(kept) < 3 or not group.lag_known:
            return group
        (first_ms, first), (last_ms, last) = kept[0], kept[-1]
        per_s = (last - first) / max(0.001, (last_ms - first_ms) / 1000)
        if abs(per_s) < _STEADY_PER_S:
            return replace(group, trend="steady")
        if per_s > 0:
            return replace(group, trend="falling-behind")
        return replace(group, trend="catching-up", done_in_s=round(last / -per_s, 1))

    def _cluster_rates(self, overview: ClusterOverview) -> tuple[float | None, float | None]:
        into = out = 0.0
        known = False
        for broker in overview.brokers:
            if broker.messages_in is None or broker.messages_out is None:
                self._totals.pop(broker.name, None)
                continue
            before = self._totals.get(broker.name)
            self._totals[broker.name] = overview.taken_ms, broker.messages_in, broker.messages_out
            if before is None or overview.taken_ms <= before[0] or broker.messages_in < before[1]:
                continue
            seconds = (overview.taken_ms - before[0]) / 1000
            into += (broker.messages_in - before[1]) / seconds
            out += max(0, broker.messages_out - before[2]) / seconds
            known = True
        return (round(into, 2), round(out, 2)) if known else (None, None)

    def new_dead_letters(self, now_ms: int, count: int | None, span_ms: int = 3_600_000) -> int | None:
        """Dead letters added since the start of the span, or since the first sample."""
        if count is None:
            return None
        self._dead_counts.append((now_ms, count))
        while self._dead_counts and self._dead_counts[0][0] < now_ms - span_ms:
            self._dead_counts.popleft()
        return max(0, count - self._dead_counts[0][1])


def _figures(overview: ClusterOverview, in_tps: float | None, out_tps: float | None) -> ClusterFigures:
    dead = [topic.messages for topic in overview.topics if topic.kind == "dlq"]
    disks = [broker.disk_ratio for broker in overview.brokers if broker.disk_ratio is not None]
    latencies = [broker.put_p99_ms for broker in overview.brokers if broker.put_p99_ms is not None]
    unknown = sum(group.state == "unknown" for group in overview.groups)
    known_dead = [count for count in dead if count is not None]
    return ClusterFigures(
        in_tps=in_tps,
        out_tps=out_tps,
        lag=sum(group.lag_known for group in overview.groups),
        lag_unknown_groups=unknown,
        dead_letters=sum(known_dead) if len(known_dead) == len(dead) else None,
        disk_ratio=max(disks, default=None),
        put_p99_ms=max(latencies, default=None),
        brokers=len(overview.brokers),
        brokers_missing=len(overview.partial),
        topics=sum(topic.kind not in ("system", "retry", "dlq") for topic in overview.topics),
        groups=sum(is_users(group) for group in overview.groups),
    )


SYSTEM_GROUPS: Final = frozenset(
    {
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CID_RMQ_SYS_TRANS",
        "CID_SYS_RMQ_TRANS",
        "CID_DefaultHeartBeatSyncerTopic",
        "FILTERSRV_CONSUMER",
        "MONITOR_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
        "DEFAULT_CONSUMER",
        "CLIENT_INNER_PRODUCER",
    }
)


def is_users(group: GroupSummary) -> bool:
    """Whether the group belongs to an application, not to RocketMQ itself."""
    return group.name not in SYSTEM_GROUPS and not group.name.startswith("CID_RMQ_SYS_")


def findings(overview: ClusterOverview, figures: ClusterFigures, new_dead: int | None) -> list[Finding]:
    """What is wrong, the worst first."""
    found: list[Finding] = []
    for missing in overview.partial:
        fields: dict[str, Any] = {"broker": missing.broker, "addr": missing.addr, "reason": missing.reason}
        found.append(
            Finding(severity="critical", code="broker-missing", fields=fields, link=f"brokers/{missing.broker}")
        )
    for broker in overview.brokers:
        if broker.disk_ratio is not None and broker.disk_ratio >= _DISK_WARNING:
            severity = "critical" if broker.disk_ratio >= _DISK_CRITICAL else "warning"
            fields = {"broker": broker.name, "ratio": broker.disk_ratio}
            found.append(Finding(severity=severity, code="disk", fields=fields, link=f"brokers/{broker.name}"))
        if (broker.replicas_behind_bytes or 0) > _REPLICA_BEHIND_BYTES:
            fields = {"broker": broker.name, "bytes": broker.replicas_behind_bytes}
            found.append(
                Finding(severity="warning", code="replica-behind", fields=fields, link=f"brokers/{broker.name}?tab=ha")
            )
    found += _group_findings(overview.groups)
    if new_dead:
        found.append(Finding(severity="warning", code="dead-letters", fields={"count": new_dead}, link="dlq"))
    unknown = [group.name for group in overview.groups if group.state == "unknown" and is_users(group)]
    if unknown:
        fields = {"count": len(unknown), "group": unknown[0]}
        found.append(Finding(severity="info", code="groups-unknown", fields=fields, link="groups?show=unknown"))
    order = {"critical": 0, "warning": 1, "info": 2}
    return sorted(found, key=lambda finding: (order[finding.severity], -_weight(finding)))


def _weight(finding: Finding) -> float:
    return float(finding.fields.get("lag") or finding.fields.get("count") or finding.fields.get("ratio") or 0)


def _group_findings(groups: Iterable[GroupSummary]) -> list[Finding]:
    found = []
    for group in groups:
        if not is_users(group):
            continue
        link = f"groups/{group.name}"
        worst = group.worst
        if group.conflicts:
            fields: dict[str, Any] = {"group": group.name, "count": group.conflicts}
            found.append(Finding(severity="warning", code="conflict", fields=fields, link=f"{link}?tab=subscriptions"))
        if not group.lag_known or worst is None:
            continue
        fields = {
            "group": group.name,
            "lag": group.lag_known,
            "delay_ms": group.delay_ms,
            "topic": worst.topic,
            "queue": worst.queue_id,
            "broker": worst.broker,
        }
        if group.members == 0:
            found.append(Finding(severity="warning", code="group-offline", fields=fields, link=link))
        elif group.lag_known >= _BEHIND and (group.delay_ms or 0) >= _BEHIND_MS:
            severity = "critical" if group.trend == "falling-behind" else "warning"
            found.append(Finding(severity=severity, code="group-behind", fields=fields, link=link))
    return found


def is_stale(overview: ClusterOverview, now_ms: int, sample_s: float) -> bool:
    """Older than three sampling periods, and at least half a minute."""
    return now_ms - overview.taken_ms > max(_OLD_MS, 3_000 * sample_s)
