"""Metrics of a real broker after real traffic: every family of Apache 5.3.3, and values equal to the admin API's."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rocketq.broker.stats import families
from rocketq.client import Admin, Message, Producer, PullConsumer, PushConfig, PushConsumer
from rocketq.errors import RocketQError
from rocketq.testing import EmbeddedCluster

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "metrics" / "families-533.json").read_text())
NOT_HERE = {
    name: "POP is counted by its own subsystem" for name in GOLDEN if name.startswith("rocketmq_pop_")
} | {
    "rocketmq_timer_enqueue_total": "timer messages are counted as messages_in of rmq_sys_wheel_timer",
    "rocketmq_timer_dequeue_total": "timer messages are counted as messages_in of their topic",
    "rocketmq_delay_message_latency_seconds": "not counted yet",
}  # fmt: skip
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0", "metricsLabel": "env:test"}
    with EmbeddedCluster(settings=settings) as running:
        traffic(running)
        yield running


def traffic(cluster: EmbeddedCluster) -> None:
    """Plain, ordered and delayed messages; a group that keeps up, and one that is behind."""
    addr = cluster.name_server_addr
    with Admin(name_servers=addr) as admin:
        for topic in ("orders", "fifo", "delays", "behind", "tx", "idle"):
            admin.topics.create(topic, queues=2)
        for group in ("g_ok", "g_behind", "g_dlq", "g_never"):
            admin.groups.set(group)
    with Producer("p", name_servers=addr) as producer:
        for number in range(60):
            producer.send(Message(topic="orders", body=b"x" * (10 if number % 2 else 2_000), keys=(f"k{number}",)))
            producer.send(Message(topic="behind", body=b"y"))
        producer.send(Message(topic="idle", body=b"z"))
        for _ in range(5):
            producer.send(Message(topic="fifo", body=b"o", properties={"__SHARDINGKEY": "a"}))
            producer.send(Message(topic="delays", body=b"d", delay_level=1))
    seen: list[Any] = []

    def listener(messages: Any, context: Any) -> None:
        seen.extend(messages)

    with PushConsumer("g_ok", listener, name_servers=addr) as consumer:
        consumer.subscribe("orders")
        wait_for(lambda: len(seen) == 60)
    with Admin(name_servers=addr) as admin:
        admin.offsets.set("g_behind", dict.fromkeys(admin.topics.stats("behind").queues, 10))


def wait_for(condition: Callable[[], bool], timeout_s: float = 20) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def scrape(cluster: EmbeddedCluster, path: str = "/metrics", **headers: str) -> tuple[int, str]:
    addr = cluster.brokers[0].observability.addr
    assert addr is not None
    connection = http.client.HTTPConnection(addr, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def samples_of(cluster: EmbeddedCluster) -> Samples:
    time.sleep(1.1)  # pages are kept for 1 s
    found: Samples = {}
    for family in parse_text(scrape(cluster)[1]):
        for sample in family.samples:
            own = {name: value for name, value in sample.labels.items() if name not in CONSTANT}
            found.setdefault(sample.name, {})[tuple(sorted(own.items()))] = sample.value
    return found


CONSTANT = ("cluster", "node_type", "node_id", "broker_id", "env")


def test_every_family_of_apache_is_there_with_its_labels_and_buckets(cluster: EmbeddedCluster) -> None:
    text = scrape(cluster)[1]
    found: dict[str, tuple[set[str], set[str]]] = {}
    for family in parse_text(text):
        assert family.documentation, family.name
        assert family.type != "unknown", family.name
        for sample in family.samples:
            name = sample.name
            for end in ("_bucket", "_count", "_sum"):
                name = name.removesuffix(end) if family.type == "histogram" else name
            labels, bounds = found.setdefault(name, (set(), set()))
            labels |= sample.labels.keys() - {"le"}
            bounds |= {sample.labels["le"]} if "le" in sample.labels else set()
    assert [sample for sample in found if sample.startswith("rocketmq_") and sample not in GOLDEN] == []
    traffic_without = {
        "rocketmq_send_to_dlq_messages_total", "rocketmq_half_messages", "rocketmq_commit_messages_total",
        "rocketmq_rollback_messages_total", "rocketmq_finish_message_latency_milliseconds", "rocketmq_timing_messages",
        "rocketmq_consumer_connections", "rocketmq_producer_connections",
    }  # fmt: skip
    declared = {family.name: family for family in families.APACHE}
    for name, wanted in GOLDEN.items():
        assert name in declared, name
        assert set(wanted["labels"]) - {"cluster", "node_id", "node_type"} == set(declared[name].labels), name
        if name in NOT_HERE or name in traffic_without:
            continue
        labels, bounds = found[name]
        assert set(wanted["labels"]) - {"is_retry"} <= labels, name
        assert labels - set(wanted["labels"]) == {"broker_id", "env"}, name
        assert bounds == set(wanted["le"]), name


def test_both_formats_have_the_same_families(cluster: EmbeddedCluster) -> None:
    text = {family.name for family in parse_text(scrape(cluster)[1])}
    openmetrics = {
        family.name for family in parse_openmetrics(scrape(cluster, Accept="application/openmetrics-text")[1])
    }
    assert text == openmetrics
    assert {family.name.removesuffix("_total") for family in families.OURS[:1]} <= text


def test_counts_of_the_fast_path_and_the_slow_path(cluster: EmbeddedCluster) -> None:
    found = samples_of(cluster)
    messages = found["rocketmq_messages_in_total"]
    assert messages[("is_system", "false"), ("message_type", "normal"), ("topic", "orders")] == 60
    assert messages[("is_system", "false"), ("message_type", "fifo"), ("topic", "fifo")] == 5
    assert messages[("is_system", "true"), ("message_type", "delay"), ("topic", "SCHEDULE_TOPIC_XXXX")] == 5
    labels = (("is_system", "false"), ("message_type", "normal"), ("topic", "orders"))
    assert found["rocketmq_message_size_count"][labels] == 60
    assert found["rocketmq_message_size_bucket"][labels[0], ("le", "1024.0"), *labels[1:]] == 30
    assert found["rocketmq_message_size_sum"][labels] == found["rocketmq_throughput_in_total"][labels] > 60_000
    out = (("consumer_group", "g_ok"), ("is_system", "false"), ("topic", "orders"))
    assert found["rocketmq_messages_out_total"][out] == 60
    sends = sum(
        count
        for labels, count in found["rocketq_requests_total"].items()
        if "send_message" in dict(labels)["request_code"]
    )
    assert sends == 60 + 60 + 1 + 10
    assert any(dict(labels)["path"] == "kernel" for labels in found["rocketq_requests_total"])
    latencies = found["rocketmq_rpc_latency_milliseconds_count"]
    assert sum(n for one, n in latencies.items() if dict(one)["request_code"].startswith("send_message")) == sends
    assert sum(found["rocketmq_topic_create_execution_time_milliseconds_count"].values()) >= 6


def test_lag_is_what_the_admin_api_says_also_offline_and_unknown(cluster: EmbeddedCluster) -> None:
    """Goal: an offline group has lag, and a group that never committed has no number but a reason."""
    with Admin(name_servers=cluster.name_server_addr) as admin:
        admin.offsets.set("g_never", {next(iter(admin.topics.stats("idle").queues)): 0})
        statuses = {group: admin.groups.status(group) for group in ("g_ok", "g_behind")}
    found = samples_of(cluster)
    lag = found["rocketmq_consumer_lag_messages"]
    for group, topic in (("g_ok", "orders"), ("g_behind", "behind")):
        labels = (("consumer_group", group), ("is_retry", "false"), ("is_system", "false"), ("topic", topic))
        wanted = sum(queue.lag or 0 for queue in statuses[group].queues if queue.queue.topic == topic)
        assert lag[labels] == wanted
    assert sum(found["rocketq_consumer_queue_lag_messages"].values()) >= 40
    behind = (("consumer_group", "g_behind"), ("is_retry", "false"), ("is_system", "false"), ("topic", "behind"))
    assert lag[behind] == 40
    assert (
        found["rocketmq_consumer_ready_messages"][behind] + found["rocketmq_consumer_inflight_messages"][behind] == 40
    )
    assert found["rocketmq_consumer_lag_latency_milliseconds"][behind] > 0
    with (
        Admin(name_servers=cluster.name_server_addr) as admin,
        Producer("p", name_servers=cluster.name_server_addr) as producer,
    ):
        for _ in range(4):
            producer.send(Message(topic="idle", body=b"z"))
        admin.groups.set("g_never")
    unknown = samples_of(cluster).get("rocketq_consumer_unknown_queues", {})
    assert unknown == {(("consumer_group", "g_never"), ("reason", "never_committed"), ("topic", "idle")): 1.0}


def test_series_of_deleted_topics_and_groups_vanish(cluster: EmbeddedCluster) -> None:
    with Admin(name_servers=cluster.name_server_addr) as admin:
        admin.topics.create("shortlived", queues=1)
        admin.groups.set("g_short")
    with Producer("p", name_servers=cluster.name_server_addr) as producer:
        producer.send(Message(topic="shortlived", body=b"x"))
    with Admin(name_servers=cluster.name_server_addr) as admin:
        admin.offsets.set("g_short", {next(iter(admin.topics.stats("shortlived").queues)): 0})
    time.sleep(1.1)
    assert 'topic="shortlived"' in scrape(cluster)[1]
    with Admin(name_servers=cluster.name_server_addr) as admin:
        admin.groups.delete("g_short")
        admin.topics.delete("shortlived")
    time.sleep(1.1)
    text = scrape(cluster)[1]
    assert "shortlived" not in text
    assert "g_short" not in text


def test_rejected_sends_are_counted_by_cause(cluster: EmbeddedCluster) -> None:
    name = cluster.brokers[0].config.name
    with Admin(name_servers=cluster.name_server_addr) as admin:
        admin.brokers.set_config(name, {"quotas": "topic/idle: 1 msg/s"})
    with Producer("p", name_servers=cluster.name_server_addr) as producer, contextlib.suppress(RocketQError):
        for _ in range(5):
            producer.send(Message(topic="idle", body=b"x"))
    with Admin(name_servers=cluster.name_server_addr) as admin:
        admin.brokers.set_config(name, {"quotas": ""})
    assert samples_of(cluster)["rocketq_refused_sends_total"][(("reason", "quota"),)] >= 1


def test_health_of_a_broker_that_serves(cluster: EmbeddedCluster) -> None:
    assert scrape(cluster, "/livez") == (200, "ok\n")
    assert scrape(cluster, "/startupz") == (200, "ok\n")
    status, text = scrape(cluster, "/readyz?verbose")
    assert (status, text) == (200, "store: ok\nwrites: ok\nregistration: ok\nreplicas: ok\nok\n")


def test_a_pull_consumer_is_shown_as_such(cluster: EmbeddedCluster) -> None:
    with PullConsumer("g_behind", name_servers=cluster.name_server_addr) as consumer:
        consumer.subscribe("behind")

        def connected() -> bool:
            return any(
                dict(labels)["consumer_group"] == "g_behind"
                for labels in samples_of(cluster).get("rocketmq_consumer_connections", {})
            )

        wait_for(connected)


def test_a_dead_letter_has_its_exception_and_is_counted(cluster: EmbeddedCluster) -> None:
    addr = cluster.name_server_addr
    with Admin(name_servers=addr) as admin:
        admin.topics.create("broken", queues=1)
    with Producer("p", name_servers=addr) as producer:
        producer.send(Message(topic="broken", body=b"x", keys=("k1",)))

    def fails(messages: Any, context: Any) -> None:
        raise ValueError("no such\ncustomer")

    config = PushConfig(max_reconsume_times=0)
    with PushConsumer("g_broken", fails, name_servers=addr, config=config) as consumer:
        consumer.subscribe("broken")
        wait_for(lambda: "rocketmq_send_to_dlq_messages_total" in scrape(cluster)[1])
    labels = (("consumer_group", "g_broken"), ("is_system", "false"), ("topic", "broken"))
    assert samples_of(cluster)["rocketmq_send_to_dlq_messages_total"][labels] == 1
    assert samples_of(cluster)["rocketq_dlq_messages"][(("consumer_group", "g_broken"),)] == 1
    with Admin(name_servers=addr) as admin:
        (found,) = admin.messages.by_key("%DLQ%g_broken", "k1")
    assert found.properties["ROCKETQ_EXCEPTION"] == "ValueError: no such customer"
