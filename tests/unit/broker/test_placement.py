"""Where messages are put, and which delays are refused."""

from __future__ import annotations

import pytest

from rocketq.broker.delay.placement import BadDelayError, DelayRules, place, slot_ms_of, without_orders
from rocketq.errors import RemoteProtocolError
from rocketq.model import NewMessage
from rocketq.protocol.handles import RecallHandle
from rocketq.protocol.properties import decode_properties

RULES = DelayRules(18, timer_delay_ms_max=10_000)
MESSAGE = NewMessage(topic="T", queue_id=3, body=b"b")
NOW = 1_700_000_000_250


def placed(sys_flag: int = 0, **properties: str) -> tuple[str, int, dict[str, str]]:
    message = NewMessage(topic="T", queue_id=3, body=b"b", sys_flag=sys_flag)
    found = place(message, dict(properties), RULES, NOW)
    return found.topic, found.queue_id, decode_properties(found.properties)


@pytest.mark.parametrize(
    "given", [{}, {"DELAY": "0"}, {"DELAY": "-3"}, {"TIMER_DELAY_MS": "0"}, {"TIMER_DELIVER_MS": "5"}]
)
def test_what_is_due_now_stays_as_it_is(given: dict[str, str]) -> None:
    assert placed(**given) == ("T", 3, given)


@pytest.mark.parametrize(("level", "queue_id"), [("1", 0), ("18", 17), ("19", 17), ("999999", 17)])
def test_a_delayed_message_waits_in_the_queue_of_its_level(level: str, queue_id: int) -> None:
    topic, queue, properties = placed(DELAY=level, TIMER_DELAY_SEC="5", a="b")
    assert (topic, queue) == ("SCHEDULE_TOPIC_XXXX", queue_id)
    assert properties == {"DELAY": str(queue_id + 1), "a": "b", "REAL_TOPIC": "T", "REAL_QID": "3"}


def test_a_timer_names_the_second_it_is_due_in() -> None:
    topic, queue, properties = placed(TIMER_DELAY_MS="2000")
    assert (topic, queue, properties["TIMER_OUT_MS"]) == ("rmq_sys_wheel_timer", 0, "1700000002000")
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "3")
    assert slot_ms_of(5_000, 1_000) == 4_000
    assert slot_ms_of(5_001, 1_000) == 5_000


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"DELAY": "x"}, 1),
        ({"DELAY": "1.5"}, 1),
        ({"DELAY": "٣"}, 1),
        ({"TIMER_DELAY_SEC": "11"}, 13),
        ({"TIMER_DELAY_MS": "10001"}, 13),
        ({"TIMER_DELIVER_MS": ""}, 13),
        ({"TIMER_DELIVER_MS": "1e9"}, 13),
        ({"TIMER_DELAY_SEC": "9" * 400}, 13),
    ],
)
def test_delays_that_cannot_be_kept_are_refused(given: dict[str, str], code: int) -> None:
    with pytest.raises(BadDelayError) as caught:
        place(MESSAGE, given, RULES, NOW)
    assert caught.value.code == code


def test_half_messages_are_not_delayed_and_committed_ones_are() -> None:
    assert placed(0x4, DELAY="3")[0] == "T"
    assert placed(0xC, DELAY="3")[0] == "T"
    assert placed(0x8, DELAY="3")[0] == "SCHEDULE_TOPIC_XXXX"


def test_orders_can_be_taken_out() -> None:
    assert without_orders({"DELAY": "3", "TIMER_DELIVER_MS": "1", "a": "b"}) == {"a": "b"}


def test_recall_handles_are_read_as_written() -> None:
    handle = RecallHandle("T", "broker-a", 1_700_000_002_000, "KEY")
    assert RecallHandle.decode(handle.encode()) == handle
    assert RecallHandle.decode(handle.encode().rstrip("=")) == handle
    for bad in ("", "v1", "é", "A", handle.encode()[3:]):
        with pytest.raises(RemoteProtocolError, match=r"is no recall handle: it (is not made of base|does not say v1)"):
            RecallHandle.decode(bad)
    with pytest.raises(RemoteProtocolError, match="its time '-1' is no number"):
        RecallHandle.decode(RecallHandle("T", "broker-a", -1, "KEY").encode())
