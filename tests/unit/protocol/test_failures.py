"""Failure answers as errors."""

from __future__ import annotations

import pytest

from rocketq.errors import RequestTimeoutError, RocketQError
from rocketq.protocol.codes import ResponseCode, request_text
from rocketq.protocol.command import Command
from rocketq.protocol.failures import BrokerError, SystemBusyError, TopicNotFoundError, failure_of


def test_a_code_finds_its_class() -> None:
    error = failure_of(Command(code=17, flag=1, remark="no topic T"), peer="10.0.0.1:10911")
    assert isinstance(error, TopicNotFoundError)
    assert isinstance(error, RocketQError)
    assert (error.code, error.remark, error.peer, error.retriable) == (17, "no topic T", "10.0.0.1:10911", True)
    assert str(error) == "TOPIC_NOT_EXIST (17) from 10.0.0.1:10911: no topic T"


def test_a_code_without_a_class_is_a_plain_error() -> None:
    error = failure_of(Command(code=4711, flag=1))
    assert type(error) is BrokerError
    assert not error.retriable
    assert str(error) == "4711 (4711): no remark"


def test_what_apache_retries_is_retriable() -> None:
    retriable = {code for code, kind in BrokerError.by_code.items() if kind.retriable}
    assert {1, 2, 14, 16, 17, 204, 205, 1500} <= retriable
    assert not retriable & {10, 11, 12, 13, 26, 29}
    assert BrokerError.by_code[ResponseCode.SYSTEM_BUSY] is SystemBusyError


def test_two_classes_cannot_claim_one_code() -> None:
    with pytest.raises(TypeError, match="two classes claim code 2"):
        type("Other", (BrokerError,), {}, code=ResponseCode.SYSTEM_BUSY)


@pytest.mark.parametrize(
    ("code", "fields", "text"),
    [
        (105, {"topic": "Orders"}, "route of topic Orders from NameServer"),
        (310, {"a": "p", "b": "Orders"}, "send of topic Orders to broker"),
        (11, {"consumerGroup": "g", "topic": "Orders"}, "pull of topic Orders from broker"),
        (38, {"consumerGroup": "g"}, "list of members of group g from broker"),
        (34, None, "heartbeat to broker"),
        (26, None, "get broker config at broker"),
        (205, None, "wipe write perm of broker at NameServer"),
        (221, {"topic": "Orders"}, "get consumer status from client of topic Orders at"),
        (9_999, None, "request 9999 at"),
    ],
)
def test_requests_that_time_out_are_named_in_words(code: int, fields: dict[str, str] | None, text: str) -> None:
    assert request_text(code, fields) == text
    error = RequestTimeoutError("10.0.0.1:10911", code, 3_000, request_text(code, fields))
    assert str(error) == f"{text} 10.0.0.1:10911 timed out after 3000 ms"
