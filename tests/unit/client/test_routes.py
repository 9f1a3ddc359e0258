"""Routes to queues and addresses, and whose turn it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rocketq.client.core
from rocketq.client.admin.topics import TopicKind, topic_kind
from rocketq.client.core.routes import (
    RoundRobin,
    broker_addr,
    format_order,
    from_template,
    master_addr,
    masters_of,
    parse_order,
    publish_queues,
    subscribe_queues,
)
from rocketq.client.errors import NoQueueError
from rocketq.client.name_servers import FailoverList
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import BrokerData, QueueData, TopicRoute

ROUTE = TopicRoute(
    queues=(
        QueueData(broker_name="b", read_queue_count=1, write_queue_count=2, perm=6),
        QueueData(broker_name="a", read_queue_count=2, write_queue_count=1, perm=6),
        QueueData(broker_name="slave-only", read_queue_count=1, write_queue_count=1, perm=6),
        QueueData(broker_name="read-only", read_queue_count=1, write_queue_count=1, perm=4),
        QueueData(broker_name="write-only", read_queue_count=1, write_queue_count=1, perm=2),
    ),
    brokers=(
        BrokerData(broker_name="b", addrs={0: "b0", 1: "b1"}),
        BrokerData(broker_name="a", addrs={0: "a0"}),
        BrokerData(broker_name="slave-only", addrs={2: "s2", 1: "s1"}),
        BrokerData(broker_name="read-only", addrs={0: "r0"}),
        BrokerData(broker_name="write-only", addrs={0: "w0"}),
    ),
)


def places(queues: tuple[MessageQueue, ...]) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in queues]


def queue(broker_name: str, queue_id: int = 0) -> MessageQueue:
    return MessageQueue(topic="T", broker_name=broker_name, queue_id=queue_id)


def test_writable_queues_need_a_master_and_the_permission() -> None:
    assert places(publish_queues("T", ROUTE)) == [("a", 0), ("b", 0), ("b", 1), ("write-only", 0)]


def test_readable_queues_need_the_permission_alone() -> None:
    assert places(subscribe_queues("T", ROUTE)) == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("read-only", 0),
        ("slave-only", 0),
    ]


def test_an_order_config_says_where_to_write_and_in_which_order() -> None:
    ordered = TopicRoute(order_config="b:2;a:1", queues=ROUTE.queues, brokers=ROUTE.brokers)
    assert places(publish_queues("T", ordered)) == [("b", 0), ("b", 1), ("a", 0)]


@pytest.mark.parametrize(
    ("text", "counts"),
    [("a:1;b:2", (("a", 1), ("b", 2))), ("", ()), ("a;b:x;:3;c:0", (("c", 0),)), (" a:1 ;", (("a", 1),))],
)
def test_order_configs_are_read_as_far_as_they_say_something(text: str, counts: tuple[tuple[str, int], ...]) -> None:
    assert parse_order(text) == counts
    assert parse_order(format_order(counts)) == counts


def test_addresses_prefer_the_asked_id_then_any() -> None:
    assert broker_addr(ROUTE, "b") == "b0"
    assert broker_addr(ROUTE, "b", 1) == "b1"
    assert broker_addr(ROUTE, "b", 7) == "b0"
    assert broker_addr(ROUTE, "slave-only") == "s1"
    assert broker_addr(ROUTE, "nobody") is None
    assert masters_of(ROUTE) == {"a": "a0", "b": "b0", "read-only": "r0", "slave-only": "s1", "write-only": "w0"}


def test_writing_needs_a_master() -> None:
    assert master_addr(ROUTE, queue("a")) == "a0"
    with pytest.raises(NoQueueError) as caught:
        master_addr(ROUTE, queue("slave-only"))
    assert (caught.value.topic, caught.value.retriable) == ("T", True)


def test_a_new_topic_has_at_most_as_many_queues_as_its_template() -> None:
    template = TopicRoute(
        order_config="a:1",
        queues=(
            QueueData(broker_name="a", read_queue_count=8, write_queue_count=8, perm=7),
            QueueData(broker_name="b", read_queue_count=2, write_queue_count=2, perm=7),
        ),
        brokers=ROUTE.brokers,
    )
    assert places(publish_queues("New", from_template(template, 4))) == [
        *(("a", at) for at in range(4)),
        *(("b", at) for at in range(2)),
    ]


def test_queues_take_turns_and_a_failed_broker_is_passed_over() -> None:
    queues = (queue("a", 0), queue("a", 1), queue("b", 0))
    choice = RoundRobin()
    assert [choice.choose(queues) for _ in range(4)] == [*queues, queues[0]]
    assert choice.choose(queues, failed_broker="a") == queue("b", 0)
    assert choice.choose((queue("a"),), failed_broker="a") == queue("a")


def test_the_name_server_that_answered_is_asked_first_next_time() -> None:
    turns = FailoverList(["x", "y", "z"])
    assert turns.order() == ("x", "y", "z")
    turns.answered("y")
    assert turns.order() == ("y", "z", "x")


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("Orders", TopicKind.NORMAL),
        ("%RETRY%g", TopicKind.RETRY),
        ("%DLQ%g", TopicKind.DEAD_LETTER),
        ("TBW102", TopicKind.SYSTEM),
        ("rmq_sys_wheel_timer", TopicKind.SYSTEM),
        ("broker-a", TopicKind.SYSTEM),
        ("Cluster_REPLY_TOPIC", TopicKind.SYSTEM),
    ],
)
def test_kinds_of_topics(topic: str, kind: TopicKind) -> None:
    assert topic_kind(topic, {"broker-a", "Cluster"}) is kind


def test_the_core_knows_no_time_threads_sockets_or_chance() -> None:
    impure = {"asyncio", "socket", "threading", "time", "os", "random"}
    for path in Path(rocketq.client.core.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not impure & {alias.name for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in impure, path
                name = node.module or ""
                assert not name.startswith("rocketq.remoting"), path
                inside = ("rocketq.client.core", "rocketq.client.errors")
                assert not name.startswith("rocketq.client") or name.startswith(inside), path
