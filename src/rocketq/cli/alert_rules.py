"""Default alerts and dashboard panels over the metrics of brokers and NameServers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An expression that must hold for a while; `hold` is a Prometheus duration."""

    name: str
    expression: str
    hold: str
    severity: str
    summary: str


RULES: Final = (
    AlertRule("RocketQDown", 'up{job="rocketq"} == 0', "30s", "critical", "{{ $labels.instance }} does not answer"),
    AlertRule(
        "RocketQLagHigh", "sum by (cluster, consumer_group, topic) (rocketmq_consumer_lag_messages) > 10000", "5m",
        "warning", "group {{ $labels.consumer_group }} has {{ $value }} messages of {{ $labels.topic }} to consume",
    ),
    AlertRule(
        "RocketQLagOld", "max by (cluster, consumer_group, topic) (rocketmq_consumer_lag_latency_milliseconds) > 3e5",
        "5m", "warning", "the oldest message of {{ $labels.topic }} for {{ $labels.consumer_group }} is 5 minutes old",
    ),
    AlertRule(
        "RocketQLagUnknown", "sum by (cluster, consumer_group, topic, reason) (rocketq_consumer_unknown_queues) > 0",
        "10m", "warning", "lag of {{ $labels.consumer_group }} in {{ $labels.topic }} is unknown: {{ $labels.reason }}",
    ),
    AlertRule(
        "RocketQGroupOffline",
        "sum by (cluster, consumer_group) (rocketmq_consumer_lag_messages) > 0 "
        "unless on (cluster, consumer_group) sum by (cluster, consumer_group) (rocketq_consumer_members) > 0",
        "5m", "critical", "group {{ $labels.consumer_group }} has lag and no member is online",
    ),
    AlertRule(
        "RocketQSubscriptionConflict", "max by (cluster, consumer_group, topic) (rocketq_subscription_conflicts) > 0",
        "1m", "warning", "members of {{ $labels.consumer_group }} subscribe differently to {{ $labels.topic }}",
    ),
    AlertRule(
        "RocketQNewDeadLetters",
        "sum by (cluster, consumer_group) (increase(rocketmq_send_to_dlq_messages_total[10m])) > 0", "0m", "warning",
        "group {{ $labels.consumer_group }} has {{ $value }} new dead letters",
    ),
    AlertRule(
        "RocketQDeadLettersExpire", "min by (cluster, consumer_group) (rocketq_dlq_expires_seconds) < 86400", "0m",
        "warning", "dead letters of {{ $labels.consumer_group }} are deleted within a day",
    ),
    AlertRule(
        "RocketQUnconsumedDeleted", "increase(rocketq_unconsumed_deleted_total[10m]) > 0", "0m", "critical",
        "{{ $value }} messages of {{ $labels.topic }} were deleted before {{ $labels.consumer_group }} consumed them",
    ),
    AlertRule(
        "RocketQHalfMessageOld", "max by (cluster, topic) (rocketq_half_oldest_seconds) > 600", "0m", "warning",
        "a transaction of {{ $labels.topic }} has been undecided for 10 minutes",
    ),
    AlertRule("RocketQDiskWarning", "max by (instance, path) (rocketq_disk_used_ratio) > 0.75", "1m", "warning",
              "disk of {{ $labels.path }} is more than 75 % full"),
    AlertRule("RocketQDiskCritical", "max by (instance, path) (rocketq_disk_used_ratio) > 0.85", "1m", "critical",
              "disk of {{ $labels.path }} is more than 85 % full"),
    AlertRule("RocketQSendsRejected", "sum by (instance, reason) (rate(rocketq_refused_sends_total[5m])) > 0", "1m",
              "warning", "sends are rejected: {{ $labels.reason }}"),
    AlertRule(
        "RocketQLoopDelay",
        "histogram_quantile(0.99, sum by (instance, le) (rate(rocketq_event_loop_delay_seconds_bucket[5m]))) > 0.05",
        "5m", "warning", "the event loop of {{ $labels.instance }} is late by {{ $value }} s",
    ),
)  # fmt: skip

PANELS: Final = (
    ("Messages in per second", "sum by (topic) (rate(rocketmq_messages_in_total[1m]))", "short"),
    ("Messages out per second", "sum by (consumer_group) (rate(rocketmq_messages_out_total[1m]))", "short"),
    ("Lag by group", "sum by (consumer_group, topic) (rocketmq_consumer_lag_messages)", "short"),
    ("Age of the oldest uncommitted", "max by (consumer_group) (rocketmq_consumer_lag_latency_milliseconds)", "ms"),
    ("Queues with unknown lag", "sum by (consumer_group, topic, reason) (rocketq_consumer_unknown_queues)", "short"),
    ("Dead letters", "sum by (consumer_group) (rocketq_dlq_messages)", "short"),
    ("Rejected sends per second", "sum by (reason) (rate(rocketq_refused_sends_total[1m]))", "short"),
    ("Requests per second by path", "sum by (path) (rate(rocketq_requests_total[1m]))", "short"),
    (
        "Latency, 99th percentile",
        "histogram_quantile(0.99, sum by (le, request_code) "
        "(rate(rocketmq_rpc_latency_milliseconds_bucket{is_long_polling=\"false\"}[1m])))",
        "ms",
    ),
    ("Used disk", "max by (node_id, path) (rocketq_disk_used_ratio)", "percentunit"),
    ("CPU", "rate(process_cpu_seconds_total[1m])", "percentunit"),
    ("Resident memory", "process_resident_memory_bytes", "bytes"),
    (
        "Event loop delay, 99th percentile",
        "histogram_quantile(0.99, sum by (le, node_id) (rate(rocketq_event_loop_delay_seconds_bucket[1m])))",
        "s",
    ),
    ("Connections", "sum by (node_id) (rocketq_connections)", "short"),
)  # fmt: skip


def rules_yaml() -> str:
    """A rule file of Prometheus. Strings are written as JSON, which YAML includes."""
    lines = ["groups:", "- name: rocketq", "  rules:"]
    for rule in RULES:
        lines += [
            f"  - alert: {rule.name}",
            f"    expr: {json.dumps(rule.expression)}",
            f"    for: {rule.hold}",
            "    labels:",
            f"      severity: {rule.severity}",
            "    annotations:",
            f"      summary: {json.dumps(rule.summary)}",
        ]
    return "\n".join(lines) + "\n"


def grafana_board() -> dict[str, Any]:
    """A dashboard for import into Grafana; it asks for the data source."""
    datasource = {"type": "prometheus", "uid": "${datasource}"}
    panels = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": title,
            "datasource": datasource,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "targets": [{"refId": "A", "expr": expression, "datasource": datasource}],
        }
        for number, (title, expression, unit) in enumerate(PANELS)
    ]
    return {
        "title": "RocketQ",
        "uid": "rocketq",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }
