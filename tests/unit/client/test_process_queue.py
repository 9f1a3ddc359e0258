"""What is held of a queue: nothing unfinished is ever committed."""

from __future__ import annotations

import random

import pytest

from rocketq.client.core.config import HoldReason, PullWindow
from rocketq.client.core.process_queue import LOCK_LIFE_MS, OrderlyQueue, ProcessQueue
from rocketq.client.core.stored_messages import delivered
from rocketq.protocol.bodies.queues import MessageQueue

from .stored import run_of, stored

QUEUE = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)


def held(start: int, end: int) -> ProcessQueue:
    queue = ProcessQueue(QUEUE, 0)
    queue.put(run_of(start, end))
    return queue


def test_the_lowest_unfinished_offset_is_committed() -> None:
    queue = ProcessQueue(QUEUE, 0)
    messages = queue.put(run_of(10, 14))
    assert queue.finish(messages[1:3]) == 10
    assert queue.finish(messages[:1]) == 13
    assert queue.finish(messages[3:]) == 14
    assert queue.finish(messages) is None
    assert (queue.count, queue.bytes) == (0, 0)


def test_offsets_may_have_gaps() -> None:
    """Goal: filtered messages never arrive; what is behind the last one held is committed when all are done."""
    queue = ProcessQueue(QUEUE, 0)
    low, high = queue.put([stored(3), stored(90)])
    assert queue.finish([low]) == 90
    assert queue.finish([high]) == 91


def test_a_message_pulled_twice_is_held_once() -> None:
    queue = held(0, 3)
    again = queue.put(run_of(1, 5))
    assert [message.queue_offset for message in again] == [3, 4]
    assert queue.count == 5


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_finishing_ends_behind_the_last(seed: int) -> None:
    """Goal: the committed offset never passes an unfinished message and never goes back."""
    chance = random.Random(seed)
    queue, messages, committed = ProcessQueue(QUEUE, 0), run_of(0, 50), 0
    queue.put(messages)
    left = set(range(50))
    chance.shuffle(messages)
    while messages:
        chunk = [messages.pop() for _ in range(min(len(messages), chance.randint(1, 5)))]
        left -= {message.queue_offset for message in chunk}
        offset = queue.finish(chunk)
        assert offset == min(left, default=50)
        assert offset >= committed
        committed = offset


def test_out_of_order_arrivals_are_sorted() -> None:
    queue = held(5, 7)
    queue.put(run_of(2, 4))
    assert (queue.next_offset, queue.span) == (2, 4)


def test_only_the_lowest_message_and_only_one_begun_is_overdue() -> None:
    queue = held(0, 2)
    assert queue.overdue(10**9, 1_000) is None
    queue.begin([stored(1)], 0)
    assert queue.overdue(10**9, 1_000) is None
    queue.begin([stored(0)], 5_000)
    assert queue.overdue(6_000, 1_000) is None
    late = queue.overdue(6_001, 1_000)
    assert late is not None
    assert late.queue_offset == 0
    queue.finish([late])
    assert late not in queue


def test_a_queue_without_pulls_is_stuck_after_two_minutes() -> None:
    queue = held(0, 1)
    assert not queue.pull_is_stuck(120_000)
    assert queue.pull_is_stuck(120_001)


def test_the_window_closes_by_count_bytes_and_span() -> None:
    window = PullWindow(count_max=3, bytes_max=20, span_max=10)
    assert window.hold_reason(held(0, 3)) is None
    assert window.hold_reason(held(0, 4)) is HoldReason.COUNT
    large = ProcessQueue(QUEUE, 0)
    large.put([stored(0, body=b"x" * 21)])
    assert window.hold_reason(large) is HoldReason.BYTES
    wide = ProcessQueue(QUEUE, 0)
    wide.put([stored(0), stored(11)])
    assert window.hold_reason(wide) is HoldReason.SPAN
    orderly = OrderlyQueue(QUEUE, 0)
    orderly.put([stored(0), stored(11)])
    assert window.hold_reason(orderly) is None


def test_limits_of_a_topic_are_shared_by_the_queues_owned() -> None:
    window = PullWindow(topic_count_max=100, topic_bytes_max=40 << 20)
    assert window.shared_by(4).count_max == 25
    assert window.shared_by(4).bytes_max == 10 << 20
    assert window.shared_by(1_000).count_max == 1
    assert PullWindow().shared_by(7).count_max == 2_000


def test_orderly_taking_committing_and_rolling_back() -> None:
    queue = OrderlyQueue(QUEUE, 0)
    queue.put(run_of(0, 5))
    assert [message.queue_offset for message in queue.take(2)] == [0, 1]
    assert queue.next_offset == 0
    assert queue.commit() == 2
    assert (queue.count, queue.next_offset) == (3, 2)
    queue.take(2)
    queue.roll_back()
    assert [message.queue_offset for message in queue.take(9)] == [2, 3, 4]
    assert queue.commit() == 5
    assert queue.take(1) == []
    assert queue.commit() is None
    assert (queue.count, queue.bytes, queue.next_offset) == (0, 0, 5)


def test_orderly_attempts_are_counted_on_the_messages_put_back() -> None:
    queue = OrderlyQueue(QUEUE, 0)
    queue.put(run_of(0, 3))
    queue.take(1)
    failed = queue.take(2)
    queue.requeue([delivered(message, reconsume_times=message.reconsume_times + 1) for message in failed])
    assert [(message.queue_offset, message.reconsume_times) for message in queue.take(9)] == [(1, 1), (2, 1)]
    assert queue.commit() == 3


def test_a_lock_is_trusted_for_half_its_life() -> None:
    queue = OrderlyQueue(QUEUE, 0)
    assert not queue.holds_lock(0)
    queue.set_lock(True, 1_000)
    assert queue.holds_lock(1_000 + LOCK_LIFE_MS)
    assert not queue.holds_lock(1_001 + LOCK_LIFE_MS)
    queue.set_lock(False, 2_000)
    assert not queue.holds_lock(2_000)


def test_reports_tell_what_is_held() -> None:
    queue = OrderlyQueue(QUEUE, 9)
    queue.put(run_of(4, 8))
    queue.take(1)
    report = queue.report(4)
    assert (report.commit_offset, report.cached_min_offset, report.cached_max_offset) == (4, 5, 7)
    assert (report.transaction_count, report.transaction_min_offset) == (1, 4)
    queue.clear()
    assert (queue.count, queue.report(4).cached_count) == (0, 0)
