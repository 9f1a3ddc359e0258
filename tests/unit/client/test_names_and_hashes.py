"""Java's hashes, and names with a namespace."""

from __future__ import annotations

import pytest

from rocketq.client.core.namespaces import Namespace, namespace_in
from rocketq.client.core.routes import hash_index, java_hash
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import MessageQueue


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -2147483648),
        ("DEFAULT", -2032180703),
        ("ü", 252),
        ("\U0001f600", 1772899),
        (5, 5),
        (-7, -7),
        (2**31, -2147483648),
        (2**32, 1),
        (-(2**31) - 1, -2147483648),
    ],
)
def test_hash_codes_are_javas(value: str | int, code: int) -> None:
    assert java_hash(value) == code


def test_an_index_is_never_negative_and_the_odd_hash_goes_first() -> None:
    assert hash_index("hello", 4) == 99162322 % 4
    assert hash_index("DEFAULT", 8) == 2032180703 % 8
    assert hash_index("polygenelubricants", 7) == 0
    with pytest.raises(ValueError):
        java_hash(1 << 63)


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("Orders", "ns%Orders"),
        ("ns%Orders", "ns%Orders"),
        ("%RETRY%g", "%RETRY%ns%g"),
        ("%DLQ%ns%g", "%DLQ%ns%g"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_x", "rmq_sys_x"),
    ],
)
def test_topics_are_wrapped_once_and_unwrapped(name: str, wrapped: str) -> None:
    namespace = Namespace("ns")
    assert namespace.topic(name) == wrapped
    assert namespace.plain(wrapped) == name.replace("ns%", "")
    assert Namespace(None).topic(name) == name
    assert Namespace(None).plain(wrapped) == wrapped


def test_groups_and_queues_too() -> None:
    namespace = Namespace("ns")
    assert namespace.group("g") == "ns%g"
    assert namespace.group("TOOLS_CONSUMER") == "TOOLS_CONSUMER"
    queue = MessageQueue(topic="T", broker_name="b", queue_id=2)
    assert namespace.queue(queue).topic == "ns%T"
    assert namespace.plain_queue(namespace.queue(queue)) == queue
    assert namespace.plain("other%T") == "other%T"


def test_endpoints_may_imply_a_namespace() -> None:
    assert namespace_in("http://MQ_INST_123_abc.host:80") == "MQ_INST_123_abc"
    assert namespace_in("127.0.0.1:9876") is None
    with pytest.raises(ConfigError):
        Namespace("a%b")
