"""The lag of one queue, known and unknown."""

from __future__ import annotations

import pytest

from rocketq.model.lag import UnknownLag, queue_lag


@pytest.mark.parametrize(
    ("committed", "min_offset", "max_offset", "messages", "reason"),
    [
        (4, 0, 10, 6, None),
        (10, 0, 10, 0, None),
        (10, 10, 10, 0, None),
        (0, 0, 10, 10, None),
        (None, 0, 0, 0, None),
        (None, 7, 7, 0, None),
        (3, 7, 7, 0, None),
        (None, 0, 10, None, UnknownLag.NEVER_COMMITTED),
        (3, 4, 10, None, UnknownLag.OFFSET_DELETED),
        (4, 4, 10, 6, None),
        (11, 0, 10, None, UnknownLag.OFFSET_AHEAD),
        (4, 0, None, None, UnknownLag.BROKER_UNREACHABLE),
        (None, None, None, None, UnknownLag.BROKER_UNREACHABLE),
        (3, None, 10, 7, None),
    ],
)
def test_lag_is_a_number_or_unknown_with_its_reason(
    committed: int | None, min_offset: int | None, max_offset: int | None, messages: int | None, reason: UnknownLag
) -> None:
    assert queue_lag(committed, min_offset, max_offset) == (messages, reason)
