"""The short forms of the public API: topics, start, timedelta, positional messages."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from rocketq import (
    ConfigError,
    ConsumeFromWhere,
    Message,
    MessageInvalidError,
    Producer,
    ProducerConfig,
    PullConfig,
    PullConsumer,
    PushConfig,
    PushConsumer,
    SessionConfig,
)
from rocketq.client.core.config import starting
from rocketq.testing.embedded import EmbeddedCluster


def test_a_report_in_three_lines(
    cluster: EmbeddedCluster, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the program of the README works as it is written, with NAMESRV_ADDR."""
    monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server_addr)
    with Producer("shop") as producer:
        sent = producer.send(Message(topic, b"a book", tag="new", keys="order-1"), timeout_ms=timedelta(seconds=5))
        assert sent.status == "SEND_OK"
        producer.send(Message(topic, b"old", tag="old"))
    with PullConsumer(group, topics={topic: "new"}, start="earliest") as consumer:
        (message,) = consumer.poll(timeout_ms=timedelta(seconds=20))
        assert (message.body, message.keys) == (b"a book", ("order-1",))
    with Producer("shop") as producer, pytest.raises(MessageInvalidError, match="topic"):
        producer.send(Message("a b", b"x"))


@pytest.mark.parametrize(
    ("start", "where", "time_ms"),
    [
        (None, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, None),
        ("earliest", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, None),
        ("latest", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, None),
        (timedelta(hours=1), ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 6_400_000),
        (datetime.fromtimestamp(5_000), ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 5_000_000),
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, None),
    ],
)
def test_a_start_has_a_short_form(start: object, where: ConsumeFromWhere, time_ms: int | None) -> None:
    config = starting(PushConfig(), start, 10_000_000)  # type: ignore[arg-type]
    assert (config.from_where, config.from_time_ms) == (where, time_ms)


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match=r'"earliest", "latest", a datetime or a timedelta, got \'first\''):
        PushConsumer("g", lambda messages, context: None, topics="T", start="first")
    with pytest.raises(TypeError, match="use tag='a' instead of tags="):
        Message("T", b"", tags="a")  # type: ignore[call-arg]


def test_settings_take_timedeltas() -> None:
    assert PushConfig(suspend_ms=timedelta(seconds=2)).suspend_ms == 2_000  # type: ignore[arg-type]
    assert PullConfig(hold_ms=timedelta(seconds=3)).hold_ms == 3_000  # type: ignore[arg-type]
    assert ProducerConfig(send_timeout_ms=timedelta(seconds=1)).send_timeout_ms == 1_000  # type: ignore[arg-type]
    assert SessionConfig(route_life_ms=timedelta(minutes=1)).route_life_ms == 60_000  # type: ignore[arg-type]
    delayed = Message("T", b"x", delay_ms=timedelta(seconds=90))
    assert (delayed.delay_ms, Message("T", b"x", deliver_at_ms=datetime.fromtimestamp(7)).deliver_at_ms) == (
        90_000,
        7_000,
    )


def test_a_large_body_is_shortened_in_a_repr() -> None:
    shown = repr(Message("T", b"x" * 1_000_000))
    assert len(shown) < 400
    assert "(1000000 bytes)" in shown
