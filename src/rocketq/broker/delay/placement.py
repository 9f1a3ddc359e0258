"""Placement of an incoming message: its own queue, or the queue of a delay level or timer.

    DELAY=n            topic SCHEDULE_TOPIC_XXXX, queue n - 1; n above the table counts as its last level
    TIMER_DELAY_SEC,   topic rmq_sys_wheel_timer, queue 0, TIMER_OUT_MS = the slot it leaves; the first of the three
    TIMER_DELAY_MS,    names counts, and none of them beside a DELAY
    TIMER_DELIVER_MS

Both keep the real topic and queue in REAL_TOPIC and REAL_QID. These and DELAY stay in the delivered message: a DELAY in
a stored message has no effect.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from rocketq.errors import RocketQError
from rocketq.model import NewMessage, SysFlag
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC, Property
from rocketq.protocol.properties import encode_properties

TIMER_PROPERTIES: Final = (Property.TIMER_DELAY_SECONDS, Property.TIMER_DELAY_MS, Property.TIMER_DELIVER_MS)
ORDERS: Final = (Property.DELAY, *TIMER_PROPERTIES)
"""Properties that ask for a later delivery."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_HIDDEN: Final = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK)


class BadDelayError(RocketQError):
    """An invalid delay; `code` is the response code."""

    def __init__(self, code: ResponseCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class DelayRules:
    """The settings that placement depends on."""

    levels: int
    timer_enabled: bool = True
    timer_delay_ms_max: int = 3 * 86_400_000
    timer_precision_ms: int = 1_000


def place(message: NewMessage, properties: dict[str, str], rules: DelayRules, now_ms: int) -> NewMessage:
    """The message to store, with `properties` (which this may change) encoded; BadDelayError for an invalid delay."""
    if message.sys_flag & SysFlag.TRANSACTION_MASK in _HIDDEN:
        return store_as(message, properties)
    level = delay_level(properties)
    if level > 0:
        return _at_level(message, properties, min(level, rules.levels))
    due_ms = timer_due_ms(properties, rules, now_ms)
    if due_ms is None or due_ms <= now_ms:
        return store_as(message, properties)
    return _by_timer(message, properties, slot_ms_of(due_ms, rules.timer_precision_ms))


def delay_level(properties: dict[str, str]) -> int:
    text = properties.get(Property.DELAY, "0")
    if not _NUMBER.fullmatch(text):
        raise BadDelayError(ResponseCode.SYSTEM_ERROR, f"{text[:40]!r} is not a delay level")
    return int(text)


def timer_due_ms(properties: dict[str, str], rules: DelayRules, now_ms: int) -> int | None:
    """When a message with a timer is due; None when it has none."""
    name = next((name for name in TIMER_PROPERTIES if name in properties), None)
    if name is None:
        return None
    if not rules.timer_enabled:
        raise BadDelayError(ResponseCode.SYSTEM_ERROR, "this broker has no timer (timerWheelEnable=false)")
    if not _NUMBER.fullmatch(properties[name]):
        raise BadDelayError(ResponseCode.MESSAGE_ILLEGAL, f"{name}={properties[name][:40]!r} is not a number")
    number = int(properties[name])
    factor = 1_000 if name == Property.TIMER_DELAY_SECONDS else 1
    due_ms = number if name == Property.TIMER_DELIVER_MS else now_ms + number * factor
    if due_ms - now_ms > rules.timer_delay_ms_max:
        reason = f"{name}={number} is more than {rules.timer_delay_ms_max // 1000} seconds away (timerMaxDelaySec)"
        raise BadDelayError(ResponseCode.MESSAGE_ILLEGAL, reason)
    return due_ms


def slot_ms_of(due_ms: int, precision_ms: int) -> int:
    """The slot whose messages are due within (slot, slot + precision], as brokers of 5.x number them."""
    return (due_ms - 1) // precision_ms * precision_ms


def without_orders(properties: dict[str, str]) -> dict[str, str]:
    """The properties without those that request a delay."""
    return {name: value for name, value in properties.items() if name not in ORDERS}


def store_as(message: NewMessage, properties: dict[str, str]) -> NewMessage:
    return _store_at(message, properties, message.topic, message.queue_id)


def _store_at(message: NewMessage, properties: dict[str, str], topic: str, queue_id: int) -> NewMessage:
    return message.placed(topic, queue_id, encode_properties(properties).removesuffix(b"\x02"))


def _at_level(message: NewMessage, properties: dict[str, str], level: int) -> NewMessage:
    for name in TIMER_PROPERTIES:
        properties.pop(name, None)
    properties[Property.DELAY] = str(level)
    return _wait(message, properties, SCHEDULE_TOPIC, level - 1)


def _by_timer(message: NewMessage, properties: dict[str, str], slot_ms: int) -> NewMessage:
    properties[Property.TIMER_OUT_MS] = str(slot_ms)
    return _wait(message, properties, TIMER_TOPIC, 0)


def _wait(message: NewMessage, properties: dict[str, str], topic: str, queue_id: int) -> NewMessage:
    properties[Property.REAL_TOPIC] = message.topic
    properties[Property.REAL_QUEUE_ID] = str(message.queue_id)
    return _store_at(message, properties, topic, queue_id)
