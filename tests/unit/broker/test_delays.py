"""Delay levels without a store: when each is looked at, and what a clock that is set back does."""

from __future__ import annotations

from rocketq.broker.delay.levels import LOOK_MS, RETRY_MS, DelayCursors, Look

NOW = 1_000_000_000


def test_every_level_is_looked_at_from_where_it_was() -> None:
    cursors = DelayCursors([1_000, 5_000], {2: 7})
    assert cursors.looks(NOW) == [Look(1, 0, NOW), Look(2, 7, NOW)]
    assert cursors.offsets() == {2: 7}


def test_a_level_is_looked_at_again_when_its_next_message_is_due() -> None:
    cursors = DelayCursors([1_000, 5_000], {})
    cursors.looks(NOW)
    cursors.delivered(1, 3, NOW + 400, 9, NOW)
    cursors.delivered(2, 0, None, 0, NOW)
    assert cursors.next_look_ms(NOW) == NOW + LOOK_MS
    assert [look.level for look in cursors.looks(NOW + LOOK_MS)] == [2]
    cursors.delivered(2, 0, None, 0, NOW + LOOK_MS)
    assert Look(1, 3, NOW + 400) in cursors.looks(NOW + 400)


def test_a_refused_delivery_is_tried_again_later_from_the_same_place() -> None:
    cursors = DelayCursors([1_000], {})
    cursors.looks(NOW)
    cursors.failed(1, 4, NOW)
    assert cursors.looks(NOW + RETRY_MS - 1) == []
    assert cursors.looks(NOW + RETRY_MS) == [Look(1, 4, NOW + RETRY_MS)]


def test_a_clock_that_was_set_back_makes_messages_wait_a_full_delay_and_no_more() -> None:
    """Goal: neither an hour late nor early; messages that come after the step wait their own time."""
    cursors = DelayCursors([5_000], {1: 10})
    cursors.looks(NOW)
    cursors.delivered(1, 10, NOW + 4_000, 13, NOW)
    back = NOW - 3_600_000
    assert cursors.looks(back) == [Look(1, 10, back)]
    cursors.delivered(1, 10, NOW + 4_000, 13, back)
    assert cursors.looks(back + 4_999) == []
    (look,) = cursors.looks(back + 5_000)
    assert (look.offset, look.stop_offset, look.due_to_ms > NOW) == (10, 13, True)
    cursors.delivered(1, 13, back + 9_000, 14, back + 5_000)
    assert cursors.looks(back + 8_999) == []
    assert cursors.looks(back + 9_000) == [Look(1, 13, back + 9_000)]


def test_levels_the_table_does_not_have_are_looked_at_too() -> None:
    cursors = DelayCursors([1_000], {})
    cursors.add_level(9)
    cursors.add_level(1)
    assert [look.level for look in cursors.looks(NOW)] == [1, 9]
    cursors.delivered(9, 0, NOW + 7_200_000, 1, NOW)
    assert [look.level for look in cursors.looks(NOW + 7_200_000)] == [1, 9]
