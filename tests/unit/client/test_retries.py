"""Which failures are worth another try, and what is said in the end."""

from __future__ import annotations

from itertools import cycle

import pytest

from rocketq.client.core.send_flow import Accepted, RetryPolicy, SendFlow, SendStatus, client_code, failure
from rocketq.client.errors import MessageInvalidError, NoQueueError, SendFailedError, SendTimeoutError
from rocketq.errors import (
    ConnectionClosedError,
    RemoteProtocolError,
    RequestTimeoutError,
    RocketQError,
    UnreachableError,
)
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.command import Command
from rocketq.protocol.failures import AccessDeniedError, BrokerError, failure_of


def answered(code: int, remark: str = "") -> RocketQError:
    return failure_of(Command(code=code, remark=remark), peer="b:1")


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
def test_these_codes_are_tried_again(code: int) -> None:
    assert RetryPolicy().is_retriable(answered(code))
    assert not RetryPolicy(codes=frozenset()).is_retriable(answered(code))


@pytest.mark.parametrize("code", [3, 13, 15, 26, 29, 206, 604, 999])
def test_other_codes_are_not(code: int) -> None:
    assert not RetryPolicy().is_retriable(answered(code))


@pytest.mark.parametrize(
    "error",
    [
        UnreachableError("b:1", "refused"),
        ConnectionClosedError("b:1", "gone"),
        RequestTimeoutError("b:1", 310, 100),
        NoQueueError("T", "no master"),
        RemoteProtocolError("garbage"),
    ],
)
def test_what_another_broker_may_do_better_is_tried_again(error: RocketQError) -> None:
    assert RetryPolicy().is_retriable(error)


def test_a_denied_or_bad_message_is_not_tried_again() -> None:
    """Goal: 4.x says 1 and 5.x 16 to those it does not know; both codes are tried again otherwise."""
    for denied in (
        answered(1, "org.apache.rocketmq.acl.common.AclException: No acl config"),
        answered(16, "check signature failed."),
        answered(16, "User:bob is not found."),
        answered(16, "User:bob has no permission to access Topic:T from 10.0.0.9, no matched policies."),
    ):
        assert isinstance(denied, AccessDeniedError)
        assert not denied.retriable
        assert not RetryPolicy().is_retriable(denied)
    assert RetryPolicy().is_retriable(answered(16, "the broker[b] sending message is forbidden"))
    assert not RetryPolicy().is_retriable(MessageInvalidError("empty"))


def test_a_message_that_is_stored_but_unsure_is_enough_unless_told_otherwise() -> None:
    assert RetryPolicy().is_final(SendStatus.FLUSH_DISK_TIMEOUT)
    strict = RetryPolicy(when_not_stored_ok=True)
    assert strict.is_final(SendStatus.SEND_OK)
    assert not strict.is_final(SendStatus.SLAVE_NOT_AVAILABLE)


def test_each_try_but_the_last_may_be_bounded() -> None:
    policy = RetryPolicy(attempts_max=3, attempt_timeout_ms=500)
    assert [policy.timeout_ms(attempt, 2_000) for attempt in (1, 2, 3)] == [500, 500, 2_000]
    assert policy.timeout_ms(1, 200) == 200
    assert RetryPolicy().timeout_ms(1, 2_000) == 2_000


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnreachableError("b:1", "refused"), 10001),
        (RequestTimeoutError("b:1", 310, 100), 10002),
        (NoQueueError("T", "no master"), 10003),
        (answered(14), 14),
    ],
)
def test_the_code_is_the_brokers_or_one_of_apaches_clients(error: RocketQError, code: int) -> None:
    assert client_code(error) == code


def test_the_failure_tells_of_all_tries() -> None:
    attempts = [("a", UnreachableError("a:1", "refused")), ("b", answered(14, "disk full"))]
    failed = failure("T", attempts, 120, 3_000)
    assert type(failed) is SendFailedError
    assert (failed.code, failed.topic, failed.elapsed_ms, failed.attempts) == (14, "T", 120, tuple(attempts))
    assert failed.retriable
    for text in ("refused", "disk full", "120 ms"):
        assert text in str(failed)
    late = failure("T", attempts[:1], 3_000, 3_000)
    assert isinstance(late, SendTimeoutError)
    assert failure("T", [], 3_000, 3_000).code == 10002


def test_requests_that_were_not_sent_are_repeated_until_the_timeout() -> None:
    """Goal: a failover costs a send time, not attempts; pauses grow to a second."""
    flow, now_ms, pauses = SendFlow("T", RetryPolicy(attempts_max=2), 0, 5_000), 0, list[int]()
    errors = cycle([UnreachableError("b:1", "refused"), NoQueueError("T", "no master")])
    while now_ms < 4_980:
        pause_ms = flow.failed("b", next(errors), now_ms, {"b": "b:1"})
        assert pause_ms is not None
        pauses.append(pause_ms)
        now_ms += pause_ms
    with pytest.raises(SendTimeoutError) as caught:
        flow.failed("b", next(errors), now_ms, {"b": "b:1"})
    assert pauses[:6] == [50, 100, 200, 400, 800, 1_000]
    assert now_ms == sum(pauses) == 4_980  # an attempt in the last 20 ms would only time out
    assert len(caught.value.attempts) == len(pauses) + 1


def test_another_broker_is_tried_without_a_pause_and_each_again_after_one() -> None:
    flow = SendFlow("T", RetryPolicy(attempts_max=3), 0, 3_000)
    lost = ConnectionClosedError("a:1", "closed")
    assert flow.failed("a", lost, 0, {"a": "", "b": ""}) == 0
    assert flow.failed_broker == "a"
    assert flow.failed("b", lost, 0, {"a": "", "b": ""}) == 50
    with pytest.raises(SendFailedError) as caught:
        flow.failed("a", lost, 50, {"a": "", "b": ""})
    assert [name for name, _ in caught.value.attempts] == ["a", "b", "a"]


def test_an_unconfirmed_answer_is_better_than_the_error_after_it() -> None:
    flow = SendFlow("T", RetryPolicy(attempts_max=3, when_not_stored_ok=True), 0, 3_000)
    answer = Accepted(10, {}, MessageQueue(topic="T", broker_name="a", queue_id=0), 7)
    assert flow.not_confirmed("a", answer, 0, {"a": "", "b": ""}) == 0
    assert flow.failed("b", BrokerError(13, "illegal"), 0, {"a": "", "b": ""}) is None
    assert flow.unconfirmed is answer
