"""Topics: what is built in, what comes to be by itself, how the version moves."""

from __future__ import annotations

import pytest

from rocketq.broker.topics.table import TopicRules, TopicTable, builtin_topics
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.protocol.flags import TopicFilterType

RULES = TopicRules(cluster="C", broker_name="broker-a")


def table(rules: TopicRules = RULES) -> TopicTable:
    return TopicTable(builtin_topics(rules))


def create(topics: TopicTable, topic: str, **given: object) -> TopicConfig | None:
    wish = {"template": "TBW102", "queue_count": 4, "sys_flag": 0, "auto_create": True, "now_ms": 7} | given
    return topics.create_for_send(topic, **wish)  # type: ignore[arg-type]


def shape(topic: TopicConfig | None) -> tuple[int, int, int]:
    assert topic is not None
    return topic.read_queue_count, topic.write_queue_count, topic.perm


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("TBW102", (8, 8, 7)),
        ("SELF_TEST_TOPIC", (1, 1, 6)),
        ("BenchmarkTest", (1024, 1024, 6)),
        ("C", (16, 16, 7)),
        ("broker-a", (1, 1, 7)),
        ("OFFSET_MOVED_EVENT", (1, 1, 6)),
        ("SCHEDULE_TOPIC_XXXX", (18, 18, 6)),
        ("C_REPLY_TOPIC", (1, 1, 6)),
    ],
)
def test_built_in_topics(topic: str, expected: tuple[int, int, int]) -> None:
    assert shape(table().get(topic)) == expected


def test_settings_decide_about_some_of_them() -> None:
    topics = table(
        TopicRules(
            cluster="C",
            broker_name="b",
            auto_create=False,
            cluster_topic=False,
            broker_topic=False,
            trace_topic="RMQ_SYS_TRACE_TOPIC",
        )
    )
    assert "TBW102" not in topics
    assert shape(topics.get("C")) == (16, 16, 1)
    assert shape(topics.get("b")) == (1, 1, 1)
    assert shape(topics.get("RMQ_SYS_TRACE_TOPIC")) == (1, 1, 6)


def test_a_new_topic_takes_the_smaller_queue_count_and_no_inherit_bit() -> None:
    topics = table()
    assert shape(create(topics, "A", queue_count=4)) == (4, 4, 6)
    assert shape(create(topics, "B", queue_count=99)) == (8, 8, 6)
    assert shape(create(topics, "C0", queue_count=-3)) == shape(create(topics, "C1", queue_count=0)) == (8, 8, 6)
    assert topics.data_version == DataVersion(counter=4, timestamp_ms=7)


def test_any_topic_with_the_inherit_bit_is_a_template() -> None:
    topics = table()
    topics.put(TopicConfig(topic="Mine", write_queue_count=3, perm=5, filter_type=TopicFilterType.MULTI_TAG), now_ms=1)
    made = create(topics, "A", template="Mine", sys_flag=1, auto_create=False)
    assert shape(made) == (3, 3, 4)
    assert made is not None
    assert (made.filter_type, made.topic_sys_flag) == (TopicFilterType.MULTI_TAG, 1)


def test_without_auto_creation_the_template_stays_as_it_is() -> None:
    """Goal: unlike Apache's, it works again when the setting is turned back on."""
    topics = table()
    assert create(topics, "A", auto_create=False) is None
    assert shape(topics.get("TBW102")) == (8, 8, 7)
    assert create(topics, "A") is not None


def test_retry_topics_come_to_be_in_any_case() -> None:
    topics = table()
    assert create(topics, "A", template="nobody") is None
    assert shape(create(topics, "%RETRY%g", template="nobody")) == (1, 1, 6)
    assert shape(topics.create_exactly("%RETRY%h", 3, now_ms=1)) == (3, 3, 6)
    assert shape(topics.create_exactly("%RETRY%h", 9, now_ms=1)) == (3, 3, 6)


def test_what_was_saved_wins_over_what_is_built_in() -> None:
    topics = table()
    saved = TopicConfig(topic="TBW102", read_queue_count=2, write_queue_count=2, perm=7)
    topics.load(TopicConfigTable(data_version=DataVersion(counter=9), topics={"TBW102": saved}))
    assert topics.get("TBW102") == saved
    assert topics.data_version.counter == 9
    assert "BenchmarkTest" in topics


def test_changes_are_told_with_the_table_as_it_is_then() -> None:
    topics, told = table(), []
    topics.listeners.append(lambda: told.append((topics.data_version.counter, "A" in topics)))
    create(topics, "A")
    create(topics, "A")
    assert topics.delete("A", "nobody", now_ms=2)
    assert not topics.delete("A", now_ms=3)
    topics.touch(4)
    assert told == [(1, True), (2, False), (3, False)]


def test_the_order_flag_follows_the_given_set() -> None:
    topics = table()
    create(topics, "A")
    assert topics.set_orders({"A", "nobody"}, now_ms=1)
    assert not topics.set_orders({"A"}, now_ms=2)
    found = topics.get("A")
    assert found is not None
    assert found.order
    assert topics.set_orders(set(), now_ms=3)


@pytest.mark.parametrize("topic", ["TBW102", "C", "broker-a", "C_REPLY_TOPIC", "rmq_sys_x", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_system_topics(topic: str) -> None:
    assert table().is_system(topic)
    assert not table().is_system("mine")


def test_a_topic_does_not_come_back_while_it_is_deleted() -> None:
    topics = table()
    create(topics, "A")
    topics.begin_deletion("A", now_ms=1)
    assert topics.is_being_deleted("A")
    assert create(topics, "A") is None
    topics.end_deletion("A")
    assert create(topics, "A") is not None
